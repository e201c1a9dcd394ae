//! Standard output, for programs that read it and may not keep up.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use serde::Serialize;

use crate::failure::Failure;

/// Lines that wait for whoever reads standard output; what is more is dropped.
const MOST_LINES: usize = 16;

/// Prints objects on lines of their own, or bytes as they are. Who does not read them holds up nothing, and misses some.
#[derive(Debug)]
pub struct Printer {
    pieces: SyncSender<Vec<u8>>,
    /// Ends with what the system said, when nothing can be written any more.
    thread: JoinHandle<io::Error>,
}

impl Printer {
    /// Prints from now on, by a thread of its own.
    pub fn start() -> Result<Printer, Failure> {
        Printer::holding(MOST_LINES)
    }

    /// The same, of which `most` pieces may wait.
    pub fn holding(most: usize) -> Result<Printer, Failure> {
        let (sender, pieces) = sync_channel::<Vec<u8>>(most);
        let print = move || {
            let mut stdout = io::stdout();
            for piece in pieces {
                if let Err(error) = stdout.write_all(&piece).and_then(|()| stdout.flush()) {
                    return error;
                }
            }
            io::ErrorKind::BrokenPipe.into()
        };
        Ok(Printer { pieces: sender, thread: std::thread::Builder::new().name("printer".into()).spawn(print)? })
    }

    /// Prints `object`, unless too much waits.
    ///
    /// # Errors
    ///
    /// When nobody can read it any more.
    pub fn print(self, object: &impl Serialize) -> Result<Printer, Failure> {
        let mut line = serde_json::to_vec(object)?;
        line.push(b'\n');
        self.write(line).map(|(printer, _)| printer)
    }

    /// Writes `piece`, unless too much waits; whether it does.
    ///
    /// # Errors
    ///
    /// When nobody can read it any more.
    pub fn write(self, piece: Vec<u8>) -> Result<(Printer, bool), Failure> {
        match self.pieces.try_send(piece) {
            Ok(()) => Ok((self, true)),
            Err(TrySendError::Full(_)) => Ok((self, false)),
            Err(TrySendError::Disconnected(_)) => {
                let error = self.thread.join().unwrap_or_else(|_| io::ErrorKind::BrokenPipe.into());
                Err(unwritable(&error))
            }
        }
    }
}

/// Why standard output cannot be written; that a reader has seen enough is no reason to say anything.
pub fn unwritable(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::unread(),
        _ => Failure::new(format!("standard output cannot be written: {error}")),
    }
}

/// Prints on standard output what `print` writes.
pub fn on_stdout(print: impl FnOnce(&mut io::StdoutLock<'static>) -> io::Result<()>) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    print(&mut stdout).and_then(|()| stdout.flush()).map_err(|error| unwritable(&error))
}

/// Prints a line on standard output, for `print_line!`.
pub fn line(line: impl std::fmt::Display) -> Result<(), Failure> {
    on_stdout(|stdout| writeln!(stdout, "{line}"))
}

/// `println!` that fails where standard output cannot be written, and does not panic.
macro_rules! print_line {
    ($($text:tt)*) => { $crate::printer::line(format_args!($($text)*)) };
}
pub(crate) use print_line;

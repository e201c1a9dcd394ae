//! Standard error, for terminals that may not keep up.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::failure::Failure;

/// Lines that wait for a terminal; what is more is dropped.
const MOST_LINES: usize = 16;

/// So long the last words are waited for.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Says things on standard error for whoever must not be held up: a terminal that was stopped (Ctrl-S) takes nothing. What it
/// does not take is dropped.
#[derive(Debug)]
pub struct Words {
    lines: Option<SyncSender<String>>,
    over: Receiver<()>,
}

impl Words {
    /// Says from now on, by a thread of its own.
    pub fn start() -> Result<Words, Failure> {
        let (sender, lines) = sync_channel::<String>(MOST_LINES);
        let (notes_end, over) = sync_channel(1);
        let say = move || {
            for line in lines {
                // Nobody is there to tell that nobody is there.
                let _ = writeln!(io::stderr(), "{line}");
            }
            let _ = notes_end.send(());
        };
        std::thread::Builder::new().name("words".into()).spawn(say)?;
        Ok(Words { lines: Some(sender), over })
    }

    /// Says `line`, unless too much waits.
    pub fn say(&self, line: String) {
        if let Some(lines) = &self.lines {
            let _ = lines.try_send(line);
        }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        self.lines = None;
        let _ = self.over.recv_timeout(LAST_WORDS);
    }
}

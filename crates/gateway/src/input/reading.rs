//! Reads what can only be waited for by a thread: files, pipes, standard input.

use std::io;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::feed::Read;

/// Bytes of a read at most.
const READ: usize = 32 * 1024;

/// Reads that wait at most.
const MOST_WAITING: usize = 4;

/// What a thread reads. The thread ends with its reader, or with the next bytes after this is dropped.
#[derive(Debug)]
pub struct Reading(mpsc::Receiver<io::Result<Bytes>>);

impl Reading {
    /// Begins to read.
    pub fn start(reader: impl io::Read + Send + 'static) -> io::Result<Reading> {
        Reading::open(move || Ok(reader))
    }

    /// Begins to read what `open` opens, which may wait: of a FIFO until somebody writes.
    pub fn open<R: io::Read>(open: impl FnOnce() -> io::Result<R> + Send + 'static) -> io::Result<Reading> {
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        std::thread::Builder::new().name("reading".into()).spawn(move || {
            let mut reader = match open() {
                Ok(reader) => reader,
                Err(error) => {
                    // Nobody may wait for it any more.
                    let _ = sender.blocking_send(Err(error));
                    return;
                }
            };
            let mut buffer = vec![0; READ];
            loop {
                let read = match reader.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => Ok(Bytes::copy_from_slice(&buffer[..count])),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let is_over = read.is_err();
                if sender.blocking_send(read).is_err() || is_over {
                    return;
                }
            }
        })?;
        Ok(Reading(receiver))
    }
}

impl Read for Reading {
    async fn read(&mut self) -> io::Result<Option<Bytes>> {
        self.0.recv().await.transpose()
    }
}

//! Where a stream's video comes from: bytes from a [`Source`] become [`Cut`]s in a bounded channel.
//!
//! What may come back is waited for, with a word about it in the [`Status`]; what cannot is the end of the
//! channel. Whoever reads the channel slowly slows the source where that is possible, and else loses what the
//! system's own buffer does not hold.

mod backoff;
mod feed;
mod ffmpeg;
mod file;
mod http;
mod ingest;
mod pattern;
mod reading;
mod source;
mod udp;

use std::thread::JoinHandle;

use anabranch_media::cutter::{Cut, Cutter, MOST_PACKETS, NARROW_PACKETS};
use anabranch_media::pattern::{BadPattern, Pattern};
use tokio::sync::{mpsc, oneshot};

pub use feed::Status;
pub(crate) use feed::{Ending, Read};
pub use ingest::Ingest;
pub use source::{BadSource, Datagrams, Source, SourceOptions};

use feed::Feed;

/// Cuts that wait at most, some 1.3 MB: whoever reads them is that late already.
const MOST_WAITING: usize = 1024;

/// An input cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file or socket is not to be had.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// No certificates are known by which a server could be believed.
    #[error("no certificates of authorities are installed here, so that no https:// server can be believed: {0}")]
    NoCertificates(String),
    /// It cannot begin again.
    #[error("{0} is no file but a pipe or a device, which gives what it gives once: leave --loop out")]
    Once(String),
    /// There is no such test picture.
    #[error(transparent)]
    Pattern(BadPattern),
}

impl InputError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> InputError {
        let what = what.into();
        move |error| InputError::Io { what, error }
    }
}

/// A running input; it ends when this is dropped.
#[derive(Debug)]
pub struct Input {
    handle: InputHandle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a gateway needs of an input.
#[derive(Clone, Debug)]
pub struct InputHandle {
    pub(crate) status: Status,
    pub(crate) ingest: Option<Ingest>,
}

impl Input {
    /// Begins to read `source`; its cuts come out of the channel, which ends when nothing more can come.
    ///
    /// # Errors
    ///
    /// When a file or socket is not to be had.
    pub fn start(source: Source, options: &SourceOptions) -> Result<(Input, mpsc::Receiver<Cut>), InputError> {
        let (sender, cuts) = mpsc::channel(MOST_WAITING);
        let status = Status::new(source.to_string());
        let cutter = Cutter::of(if options.is_narrow { NARROW_PACKETS } else { MOST_PACKETS });
        let feed = Feed::new(sender, status.clone(), cutter);
        let stall = options.stall;
        let mut handle = InputHandle { status, ingest: None };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(InputError::io("no room"))?;
        let task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = match source {
            Source::Ingest => {
                handle.ingest = Some(Ingest::new(feed, options.ingest_token.as_deref()));
                return Ok((Input { handle, stop: None, thread: None }, cuts));
            }
            Source::Http(url) => Box::pin(http::Pull::new(url, stall)?.run(feed)),
            Source::Udp(datagrams) => {
                let what = format!("cannot receive at udp://{}", datagrams.address);
                let socket = udp::bind(datagrams).map_err(InputError::io(what))?;
                Box::pin(udp::run(feed, socket, stall))
            }
            Source::StandardInput => {
                Box::pin(file::run_unpaced(feed, "standard input".to_owned(), || Ok(std::io::stdin()), stall))
            }
            Source::File(path) => {
                let refused = |error| InputError::io(format!("cannot read {}", path.display()))(error);
                let kind = std::fs::metadata(&path).map_err(refused)?.file_type();
                if kind.is_dir() {
                    return Err(refused(std::io::ErrorKind::IsADirectory.into()));
                }
                if kind.is_file() {
                    let file = std::fs::File::open(&path).map_err(refused)?;
                    Box::pin(file::run_paced(feed, file, options.is_looped))
                } else if options.is_looped {
                    return Err(InputError::Once(path.display().to_string()));
                } else {
                    // Such a thing can be read once, as it comes, and to open it may take until somebody writes.
                    let name = path.display().to_string();
                    Box::pin(file::run_unpaced(feed, name, move || std::fs::File::open(path), stall))
                }
            }
            Source::Ffmpeg(source) => Box::pin(ffmpeg::run(
                feed,
                ffmpeg::Task::Read { source, stall, is_looped: options.is_looped },
                options.ffmpeg.clone(),
            )),
            Source::Pattern(config) => {
                let pattern = Pattern::new(config).map_err(InputError::Pattern)?;
                Box::pin(pattern::run(feed, pattern))
            }
            Source::Srt(url) => Box::pin(ffmpeg::run(feed, ffmpeg::Task::Await { url }, options.ffmpeg.clone())),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("input".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = task => {}
                        _ = stopped => {}
                    }
                });
                // A name that is being resolved is not waited for.
                runtime.shutdown_background();
            })
            .map_err(InputError::io("no room for another thread"))?;
        Ok((Input { handle, stop: Some(stop), thread: Some(thread) }, cuts))
    }

    /// What a gateway needs of it.
    pub fn handle(&self) -> InputHandle {
        self.handle.clone()
    }

    /// How it goes.
    pub fn status(&self) -> Status {
        self.handle.status.clone()
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Had it panicked, it would have said so.
            let _ = thread.join();
        }
    }
}

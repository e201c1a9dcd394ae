//! `anabranch quic receive`: takes files that others send.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anabranch_net::disk::DiskStore;
use anabranch_net::quic::identity::Identity;
use anabranch_net::quic::transfer::{Event, Receiver};
use anabranch_proto::transfer::Limits;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::Amount;

/// Events that wait to be said; a transfer waits for its place.
const EVENTS: usize = 16;

/// Arguments of `quic receive`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file gets its name when all of it has arrived and its BLAKE3 hash is right; a file that is \
there is never replaced. Whoever gives the fingerprint that is printed to `quic send \
--fingerprint` can be sure to reach this receiver and nobody else; it is another one after \
each start. Anybody who can reach this address may send files: each address a quarter of the \
files that are taken at once.

What has come of a file whose connection was lost, or whose receiver was killed, stays hidden in the \
folder for a week, and the same command of its sender goes on with it. Who interrupts a transfer that \
goes on well, on either side, leaves nothing.")]
pub struct Args {
    /// Address to listen on, IP:PORT
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4433")]
    listen: SocketAddr,
    /// Folder to keep files in; it is made if it is missing
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// End when the first file of which something comes has come, or fails
    #[arg(long)]
    once: bool,
    /// The longest file that is taken, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().file_bytes)]
    max_bytes: u64,
}

/// Receives until it is interrupted, or the first file has come.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let store = DiskStore::open(&args.out)
        .map_err(|error| Failure::new(format!("cannot keep files in {}: {error}", args.out.display())))?;
    let identity = Identity::generate().map_err(|error| Failure::new(format!("cannot make an identity: {error}")))?;
    let limits = Limits { file_bytes: args.max_bytes, ..Limits::default() };
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec}");
    let display = ProgressBar::no_length().with_style(style.expect("the template is valid"));
    let first = super::runtime()?.block_on(async {
        let receiver = Receiver::new(args.listen, &identity, store, limits)?;
        println!("receiving on {}", receiver.address()?);
        println!("fingerprint {}", identity.fingerprint());
        let progress = receiver.progress();
        let show = || {
            display.set_length(progress.total.load(Ordering::Relaxed));
            display.set_position(progress.done.load(Ordering::Relaxed));
        };
        let (events, mut happened) = mpsc::channel(EVENTS);
        let say = async {
            let mut only = Only::default();
            while let Some(event) = happened.recv().await {
                let is_it = only.is_about_it(&event);
                match event {
                    // With `--once`, why it did not arrive is said at the end.
                    Event::Failed { why, .. } if args.once && is_it => return Err(why),
                    event => {
                        display.suspend(|| say(&event, &args.out));
                        if args.once && is_it && matches!(event, Event::Complete { .. }) {
                            break;
                        }
                    }
                }
            }
            Ok(())
        };
        let work = async {
            tokio::select! {
                () = receiver.run(events) => Ok(()),
                first = say => first,
            }
        };
        let outcome = super::until_interrupted(&interrupt, show, work).await;
        receiver.close().await;
        Ok::<_, Failure>(outcome)
    })?;
    display.finish_and_clear();
    match first {
        Some(Err(why)) => Err(Failure::new(format!("the file did not arrive: {why}"))),
        None if args.once => Err(Failure::interrupted("no file has arrived")),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Which file `--once` waits for: the first of which something has come. Who only connects, or whose
/// file is refused, is a stranger to it, and so is everybody else from then on.
#[derive(Default)]
struct Only(Option<u64>);

impl Only {
    /// Whether `event` is about that file.
    fn is_about_it(&mut self, event: &Event) -> bool {
        if let Event::Begun { connection } | Event::Complete { connection, .. } = *event {
            self.0.get_or_insert(connection);
        }
        match *event {
            Event::Continued { connection, by } if self.0 == Some(connection) => self.0 = Some(by),
            _ => {}
        }
        self.0 == Some(event.connection())
    }
}

fn say(event: &Event, folder: &Path) {
    match event {
        Event::Begun { .. } | Event::Continued { .. } => {}
        Event::Offered { name, length, .. } => println!("receiving {name}, {}", Amount(*length as f64)),
        Event::Complete { name, length, .. } => {
            println!("received {}, {length} bytes, hash right", folder.join(name).display());
        }
        Event::Failed { why, .. } => eprintln!("anabranch: a file did not arrive: {why}"),
    }
}

//! `anabranch quic receive`: takes files that others send.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anabranch_net::clock::Clock;
use anabranch_net::disk::DiskStore;
use anabranch_net::quic::identity::PublicKey;
use anabranch_net::quic::transfer::Receiver;
use anabranch_proto::transfer::Limits;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::key::IdentityArg;
use crate::network::{self, socket_address};
use crate::progress::BYTES;
use crate::receive::arrivals::{Arrived, Only, say};

/// Events that wait to be said; a transfer waits for its place.
const EVENTS: usize = 16;

/// Arguments of `quic receive`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file gets its name when all of it has arrived and its BLAKE3 hash is right; a file that is \
there is never replaced. Whoever gives the public key that is printed to `quic send --key` can be \
sure to reach this receiver and nobody else. The key stays the same, in the file of --identity, and is \
that of `anabranch receive`. Anybody who can reach this address may send files, unless --allow says \
who: each address a quarter of the files that are taken at once.

What has come of a file whose connection was lost, or whose receiver was killed, stays hidden in the \
folder for a week, and the same command of its sender goes on with it. Who interrupts a transfer that \
goes on well, on either side, leaves nothing.")]
pub struct Args {
    /// Address to listen on, IP:PORT
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4433", value_parser = socket_address)]
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
    /// Take no file with which all files in the folder would have more bytes
    #[arg(long, value_name = "BYTES")]
    max_total: Option<u64>,
    /// Take files only from the holder of this public key, as `anabranch key` prints it; may be given
    /// several times
    #[arg(long, value_name = "KEY")]
    allow: Vec<PublicKey>,
    #[command(flatten)]
    identity: IdentityArg,
    /// Say what became of it as one JSON object on standard output, and all else on standard error
    #[arg(long)]
    json: bool,
}

/// Receives until it is interrupted, or the first file has come.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let store = DiskStore::open(&args.out)
        .map_err(|error| Failure::new(format!("cannot keep files in {}: {error}", args.out.display())))?;
    let store = store.with_max_total(args.max_total.unwrap_or(u64::MAX));
    let identity = args.identity.load_or_make()?;
    let limits = Limits { file_bytes: args.max_bytes, ..Limits::default() };
    let style = ProgressStyle::with_template(BYTES);
    let display = ProgressBar::no_length().with_style(style.expect("the template is valid"));
    let clock = Clock::start();
    let (mut only, mut arrived) = (Only::default(), Arrived::default());
    super::runtime()?.block_on(async {
        let receiver = Receiver::new(args.listen, &identity, store, limits, args.allow.clone().into())?;
        network::say(args.json, &format!("receiving on {}", receiver.address()?));
        network::say(args.json, &format!("public key {}", identity.public()));
        let progress = receiver.progress();
        let show = || {
            display.set_length(progress.total.load(Ordering::Relaxed));
            display.set_position(progress.done.load(Ordering::Relaxed));
        };
        let (events, mut happened) = mpsc::channel(EVENTS);
        let say_all = async {
            while let Some(event) = happened.recv().await {
                only.note(clock.now(), &event);
                arrived.note(clock.now(), &event);
                // With `--once`, why it did not arrive is said at the end.
                if !(args.once && only.failed.is_some()) {
                    display.suspend(|| say(&event, &args.out, false, args.json));
                }
                if args.once && only.is_over(clock.now()) {
                    return;
                }
            }
        };
        let work = async {
            tokio::select! {
                () = receiver.run(events) => {}
                () = say_all => {}
            }
        };
        super::until_interrupted(&interrupt, show, work).await;
        receiver.close().await;
        Ok::<_, Failure>(())
    })?;
    display.finish_and_clear();
    match only.failure() {
        Some(failure) if args.once => Err(failure),
        _ => {
            if args.json {
                println!("{}", arrived.summary(&args.out));
            }
            Ok(())
        }
    }
}

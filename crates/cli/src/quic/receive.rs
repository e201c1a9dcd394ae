//! `anabranch quic receive`: takes files that others send.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anabranch_control::time::Time;
use anabranch_net::clock::Clock;
use anabranch_net::quic::identity::PublicKey;
use anabranch_net::quic::transfer::{Progress, Receiver};
use anabranch_proto::transfer::{Event, Limits};
use indicatif::ProgressBar;
use serde_json::Map;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::key::IdentityArg;
use crate::network::{self, socket_address};
use crate::receive::arrivals::LINGER;
use crate::receive::store_in;
use crate::receive::taking::{Carrier, Manner, take};
use crate::tasks;

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
    let store = store_in(&args.out, args.max_total)?;
    let identity = args.identity.load_or_make()?;
    let limits = Limits { file_bytes: args.max_bytes, ..Limits::default() };
    let runtime = tasks::runtime()?;
    let receiver = {
        let _within = runtime.enter();
        Receiver::new(args.listen, &identity, store, limits, args.allow.clone().into())?
    };
    network::say(args.json, &format!("receiving on {}", receiver.address()?));
    network::say(args.json, &format!("public key {}", identity.public()));
    let manner = Manner::at_address(args.once, LINGER, &args.out, args.json);
    let taken = take(&mut OverQuic::start(runtime, receiver), manner, &interrupt, |_, _, _| true)?;
    taken.end(manner, Map::new())
}

/// Files over QUIC, as the loop of a receiver sees them.
struct OverQuic {
    receiver: Arc<Receiver>,
    work: JoinHandle<()>,
    events: mpsc::Receiver<Event>,
    /// The first that has happened since.
    first: Option<Event>,
    progress: Arc<Progress>,
    clock: Clock,
    /// Goes after all that runs in it.
    runtime: Runtime,
}

impl OverQuic {
    /// Files come from now on; they move while somebody [turns](Carrier::turn).
    fn start(runtime: Runtime, receiver: Receiver) -> OverQuic {
        let (says, events) = mpsc::channel(EVENTS);
        let (progress, receiver) = (receiver.progress(), Arc::new(receiver));
        let takes = Arc::clone(&receiver);
        let work = runtime.spawn(async move { takes.run(says).await });
        OverQuic { receiver, work, events, first: None, progress, clock: Clock::start(), runtime }
    }
}

impl Carrier for OverQuic {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn turn(&mut self, _: &ProgressBar) -> Result<(), Failure> {
        let OverQuic { runtime, events, first, .. } = self;
        match runtime.block_on(async { timeout(tasks::TICK, events.recv()).await }) {
            Ok(Some(event)) => *first = Some(event),
            Ok(None) => return Err(Failure::new("nothing can come any more: the socket is lost")),
            Err(_) => {}
        }
        Ok(())
    }

    fn next_event(&mut self) -> Option<Event> {
        self.first.take().or_else(|| self.events.try_recv().ok())
    }

    fn progress(&self) -> (u64, u64) {
        (self.progress.done.load(Ordering::Relaxed), self.progress.total.load(Ordering::Relaxed))
    }

    fn leave(&mut self) -> Result<(), Failure> {
        let OverQuic { runtime, receiver, work, .. } = self;
        // What is on its way ends before its senders are told: it says itself what is kept of it.
        work.abort();
        runtime.block_on(async {
            let _ = work.await;
            receiver.close().await;
        });
        Ok(())
    }
}

//! `anabranch onion receive`: takes files under a key, over the onion overlay, and is seen by nobody.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anabranch_control::time::{Duration, Time};
use anabranch_net::disk::DiskStore;
use anabranch_net::identity_file::{self, KeyPair};
use anabranch_net::onion::file::Files;
use anabranch_net::onion::follow::NextList;
use anabranch_net::onion::hidden_edge::{HiddenEdge, HiddenNews, Receiver};
use anabranch_net::state::Seed;
use anabranch_onion::hidden::ReceiverSecret;
use anabranch_onion::node::{HiddenReceiver, ReceiverEvent, ServiceEvent};
use anabranch_onion::session::{ExitEvent, Reason, Secrecy, SessionName, StreamEvent, StreamId, Target};
use anabranch_proto::transfer::{Event, Limits};
use indicatif::ProgressBar;
use serde_json::Map;

use super::hidden::{self, LOOK, PathArgs};
use super::network::{NetworkArg, StateArg};
use super::relay::say_found;
use super::repeats::Repeats;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::say;
use crate::receive::store_in;
use crate::receive::taking::{Carrier, Manner, take};
use crate::stderr::eprint_line;

/// So long the leave of a sender is waited for: it comes by way of a mailbox.
const LINGER: Duration = Duration::from_millis(5_000);

/// Arguments of `onion receive`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
The address that is printed is a public key, the same after each start; its secret is in the file of --key. Whoever \
has the address can send files, and does not learn where they go: give it only to those who shall. The file comes from \
whoever has the address, and from whom, nobody knows.

A file gets its name when all of it has arrived and its BLAKE3 hash is right; a file that is there is never replaced. \
Folders come as a tar archive. What has come of a file whose session was lost, or whose receiver was killed, stays \
hidden in the folder for a week, and the same command of its sender goes on with it.

{}", hidden::PROTECTS))]
pub struct Args {
    #[command(flatten)]
    network: NetworkArg,
    #[command(flatten)]
    state: StateArg,
    /// Folder to keep files in; it is made if it is missing
    #[arg(long, visible_alias = "out", value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The file with the secret of the address, which is made if it is missing [default: key in the folder of --state]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    path: PathArgs,
    /// End when the first file of which something comes has come, or fails
    #[arg(long)]
    once: bool,
    /// The longest file that is taken, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().file_bytes)]
    max_bytes: u64,
    /// Take no file with which all files in the folder would have more bytes
    #[arg(long, value_name = "BYTES")]
    max_total: Option<u64>,
    /// Say what became of it as one JSON object on standard output, and all else on standard error
    #[arg(long)]
    json: bool,
}

type Stream = (SessionName, StreamId);

/// Files over the onion's sessions, as the loop of a receiver sees them.
struct OverOnion {
    edge: HiddenEdge<Receiver>,
    files: Files<DiskStore>,
    /// Streams that have more to read than one turn took.
    busy: BTreeSet<Stream>,
    json: bool,
    repeats: Repeats,
}

/// Receives until it is interrupted, or the first file has come.
pub fn run(args: &Args) -> Result<(), Failure> {
    let network = args.network.read()?;
    let user = args.path.settings(&network)?;
    let folder = args.state.open("onion-receive")?;
    let seed = match &args.key {
        Some(file) => *identity_file::load_or_make::<Seed>(file)?.secret(),
        None => folder.seed("key")?,
    };
    let secret = ReceiverSecret::from_seed(&seed);
    let address = secret.address();
    let store = store_in(&args.dir, args.max_total)?;
    let limits = Limits { file_bytes: args.max_bytes, ..Limits::default() };
    let interrupt = Interrupt::listen()?;
    let followed_after = NextList::spread(network.authorities.round);
    let settings = hidden::settings(network, user, &folder)?;
    let edge = HiddenEdge::start(settings, move |user, now, wall, rng| {
        HiddenReceiver::new(user, secret, Secrecy::Sealed, now, wall, rng).followed_after(followed_after)
    })?;
    say(args.json, &format!("address {address}"));
    let mut carrier = OverOnion {
        edge,
        files: Files::new(store, limits),
        busy: BTreeSet::new(),
        json: args.json,
        repeats: Repeats::default(),
    };
    let manner = Manner::at_address(args.once, LINGER, &args.dir, args.json);
    let taken = take(&mut carrier, manner, &interrupt, |_, _, _| true)?;
    taken.end(manner, Map::from_iter([("address".to_owned(), address.to_string().into())]))
}

impl OverOnion {
    fn drive(&mut self, of: Stream) {
        let OverOnion { edge, files, busy, .. } = self;
        let is_more = edge.act(|machine, _| machine.act(of.0, |exit| files.drive(of, exit)));
        if let Some(Some(true)) = is_more {
            busy.insert(of);
        }
    }

    fn on_news(&mut self, news: HiddenNews<ReceiverEvent>) -> Result<(), Failure> {
        let json = self.json;
        match news {
            HiddenNews::Epoch { epoch, relays } => say(json, &format!("epoch {epoch}: {relays} relays")),
            HiddenNews::Directory(found) => _ = say_found(&mut self.repeats, self.edge.now(), &found)?,
            HiddenNews::GuardsNotKept(why) => {
                return Err(Failure::new(format!("no new guard is used, since it cannot be written down: {why}")));
            }
            HiddenNews::Machine(ReceiverEvent::Ready) => say(json, "ready: senders find this address now"),
            HiddenNews::Machine(ReceiverEvent::NoPath(why)) => eprint_line!("no path: {why}"),
            HiddenNews::Machine(ReceiverEvent::Guards) => {}
            HiddenNews::Machine(ReceiverEvent::Session(ServiceEvent { session, event })) => match event {
                ExitEvent::Stream(StreamEvent::Opened(stream, target)) => {
                    let is_taken = target == Target::Itself && self.files.open((session, stream));
                    self.edge.act(|machine, _| {
                        machine.act(session, |exit| match is_taken {
                            true => exit.accept(stream),
                            false => exit.reset(stream, Reason::Busy),
                        })
                    });
                }
                ExitEvent::Stream(StreamEvent::Readable(stream) | StreamEvent::Writable(stream)) => {
                    self.drive((session, stream));
                }
                ExitEvent::Stream(StreamEvent::Reset(stream, reason)) => {
                    self.files.on_reset((session, stream), reason);
                }
                ExitEvent::Stream(
                    StreamEvent::Accepted(_) | StreamEvent::FlowOpened(..) | StreamEvent::Datagram(..),
                ) => {}
                ExitEvent::Ended(_) => self.files.on_end(session),
            },
        }
        Ok(())
    }
}

impl Carrier for OverOnion {
    fn now(&self) -> Time {
        self.edge.now()
    }

    fn turn(&mut self, display: &ProgressBar) -> Result<(), Failure> {
        let now = self.edge.now();
        self.edge.turn(if self.busy.is_empty() { now + LOOK } else { now })?;
        for of in std::mem::take(&mut self.busy) {
            self.drive(of);
        }
        for news in self.edge.take_news() {
            display.suspend(|| self.on_news(news))?;
        }
        Ok(())
    }

    fn next_event(&mut self) -> Option<Event> {
        self.files.next_event()
    }

    fn progress(&self) -> (u64, u64) {
        self.files.progress()
    }

    fn leave(&mut self) -> Result<(), Failure> {
        let streams = self.files.streams();
        for of in &streams {
            self.edge.act(|machine, _| machine.act(of.0, |exit| exit.reset(of.1, Reason::Stopped)));
        }
        self.files.end();
        hidden::await_heard(&mut self.edge, |machine| {
            let mut is_heard = |session| machine.act(session, |exit| exit.streams().are_resets_heard());
            streams.iter().all(|of| is_heard(of.0) != Some(false))
        })
    }
}

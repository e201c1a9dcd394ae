//! `anabranch onion receive`: takes files under a key, over the onion overlay, and is seen by nobody.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anabranch_control::time::{Duration, Time};
use anabranch_net::disk::DiskStore;
use anabranch_net::identity_file::{self, KeyPair};
use anabranch_net::onion::file::{FileEvent, Files};
use anabranch_net::onion::follow::NextList;
use anabranch_net::onion::hidden_edge::{HiddenEdge, HiddenNews, Receiver};
use anabranch_net::state::Seed;
use anabranch_onion::hidden::ReceiverSecret;
use anabranch_onion::node::{HiddenReceiver, ReceiverEvent, ServiceEvent};
use anabranch_onion::session::{ExitEvent, Reason, Secrecy, SessionName, StreamEvent, StreamId, Target};
use anabranch_proto::printable::printable;
use anabranch_proto::transfer::Limits;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::hidden::{self, LEAVE, LOOK, PathArgs};
use super::network::{NetworkArg, StateArg};
use super::relay::say_found;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{Amount, say};
use crate::progress::BYTES;

/// With `--once`: after so long without the sender's leave, the end comes all the same.
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
    /// End when the first file has come
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

/// What goes on.
struct Taking<'a> {
    args: &'a Args,
    edge: HiddenEdge<Receiver>,
    files: Files<DiskStore>,
    /// Streams that have more to read than one turn took.
    busy: BTreeSet<Stream>,
    display: ProgressBar,
    received: Vec<(String, u64)>,
    /// With `--once`: the session of the file that has come, and when.
    last: Option<(SessionName, Time)>,
    is_over: bool,
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
    let store = DiskStore::open(&args.dir)
        .map_err(|error| Failure::new(format!("cannot keep files in {}: {error}", args.dir.display())))?
        .with_max_total(args.max_total.unwrap_or(u64::MAX));
    let limits = Limits { file_bytes: args.max_bytes, ..Limits::default() };
    let interrupt = Interrupt::listen()?;
    let followed_after = NextList::spread(network.authorities.round);
    let settings = hidden::settings(network, user, &folder)?;
    let edge = HiddenEdge::start(settings, move |user, now, wall, rng| {
        HiddenReceiver::new(user, secret, Secrecy::Sealed, now, wall, rng).followed_after(followed_after)
    })?;
    say(args.json, &format!("address {address}"));
    let style = ProgressStyle::with_template(BYTES).expect("the template is valid");
    let mut taking = Taking {
        args,
        edge,
        files: Files::new(store, limits),
        busy: BTreeSet::new(),
        display: ProgressBar::no_length().with_style(style),
        received: Vec::new(),
        last: None,
        is_over: false,
    };
    while !interrupt.is_raised() && !taking.is_over {
        for news in taking.turn()? {
            taking.on_news(news)?;
        }
        taking.say_events();
    }
    taking.leave()?;
    let Taking { received, .. } = taking;
    if args.json {
        let path = |name: &str| args.dir.join(name).display().to_string();
        let files: Vec<_> =
            received.iter().map(|(name, bytes)| json!({ "path": path(name), "bytes": bytes })).collect();
        let bytes: u64 = received.iter().map(|(_, bytes)| bytes).sum();
        let summary = json!({
            "outcome": "received",
            "address": address.to_string(),
            "received": files,
            "files": files.len(),
            "bytes": bytes,
        });
        println!("{summary}");
    }
    match received.is_empty() && args.once {
        true => Err(Failure::interrupted("no file has arrived")),
        false => Ok(()),
    }
}

impl Taking<'_> {
    fn turn(&mut self) -> Result<Vec<HiddenNews<ReceiverEvent>>, Failure> {
        let now = self.edge.now();
        self.edge.turn(if self.busy.is_empty() { now + LOOK } else { now })?;
        for of in std::mem::take(&mut self.busy) {
            self.drive(of);
        }
        if let Some((_, since)) = self.last {
            self.is_over |= self.edge.now().since(since) >= LINGER;
        }
        Ok(self.edge.take_news())
    }

    fn drive(&mut self, of: Stream) {
        let Taking { edge, files, busy, .. } = self;
        let is_more = edge.act(|machine, _| machine.act(of.0, |exit| files.drive(of, exit)));
        if let Some(Some(true)) = is_more {
            busy.insert(of);
        }
    }

    fn on_news(&mut self, news: HiddenNews<ReceiverEvent>) -> Result<(), Failure> {
        let json = self.args.json;
        match news {
            HiddenNews::Epoch { epoch, relays } => say(json, &format!("epoch {epoch}: {relays} relays")),
            HiddenNews::Directory(found) => _ = say_found(&found)?,
            HiddenNews::GuardsNotKept(why) => {
                return Err(Failure::new(format!("no new guard is used, since it cannot be written down: {why}")));
            }
            HiddenNews::Machine(ReceiverEvent::Ready) => say(json, "ready: senders find this address now"),
            HiddenNews::Machine(ReceiverEvent::NoPath(why)) => eprintln!("no path: {why}"),
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
                ExitEvent::Ended(_) => {
                    self.files.on_end(session);
                    self.is_over |= self.last.is_some_and(|(last, _)| last == session);
                }
            },
        }
        Ok(())
    }

    fn say_events(&mut self) {
        let Taking { args, edge, files, display, received, last, .. } = self;
        while let Some(event) = files.poll_event() {
            display.suspend(|| match &event {
                FileEvent::Offered { offer, .. } => {
                    say(args.json, &format!("receiving {}, {}", offer.name, Amount(offer.length as f64)));
                }
                FileEvent::Complete { name, length, .. } => {
                    let path = args.dir.join(name);
                    say(args.json, &format!("received {}, {length} bytes, hash right", path.display()));
                }
                FileEvent::Failed { why, .. } => {
                    eprintln!("anabranch: a file did not arrive: {}", printable(&why.to_string()));
                }
                FileEvent::Suspended { .. } => {
                    eprintln!("anabranch: a session was lost in a file: what has come is kept for its sender to go on");
                }
            });
            if let FileEvent::Complete { of, name, length } = event {
                received.push((name, length));
                if args.once {
                    last.get_or_insert((of.0, edge.now()));
                }
            }
        }
        let (there, all) = files.progress();
        if all > 0 {
            display.set_length(all);
            display.set_position(there);
        }
    }

    /// Tells senders that nothing more is taken.
    fn leave(&mut self) -> Result<(), Failure> {
        self.display.finish_and_clear();
        for of in self.files.streams() {
            self.edge.act(|machine, _| machine.act(of.0, |exit| exit.reset(of.1, Reason::Stopped)));
        }
        let is_heard = self.files.coming() > 0;
        self.files.end();
        let end = self.edge.now() + LEAVE;
        while is_heard && self.edge.now() < end {
            self.edge.turn(end)?;
            self.edge.take_news();
        }
        Ok(())
    }
}

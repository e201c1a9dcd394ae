//! `anabranch onion relay`: carries what others send over the onion overlay, and connects to hosts if told so.

use std::net::SocketAddr;
use std::path::PathBuf;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_net::onion::exit_edge::{ExitEdge, ExitService};
use anabranch_net::onion::follow::Found;
use anabranch_net::onion::relay::{OnionRelay, RelayNews, RelaySettings};
use anabranch_net::onion::{Policy, Rule};
use anabranch_net::setup;
use anabranch_net::udp::Socket;
use anabranch_onion::crypto::Real;
use anabranch_onion::directory::{Remembered, SecretKey, ServiceEntry, ViewError};
use anabranch_onion::hidden::Mailboxes;
use anabranch_onion::node::{EXIT, SessionService, WithMailboxes};
use anabranch_onion::packet::Label;
use anabranch_onion::relay::DropReason;
use anabranch_onion::session::{Entropy, Secrecy, ServiceSecret};
use serde::Serialize;

use super::family;
use super::metrics::{self, Metrics, RelayFigures};
use super::network::{NetworkArg, StateArg};
use super::observe::{self, Observer};
use super::repeats::Repeats;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{self, socket_address};
use crate::printer::print_line;
use crate::stderr::eprint_line;

/// What was seen of the directory.
const SEEN: &str = "seen.json";

/// How often figures are renewed.
const PERIOD: Duration = Duration::SECOND;

/// How often it is looked whether the user has had enough.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of `onion relay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A relay takes a layer off each packet and sends it on: it sees the neighbours before and behind it, and that up to \
`packets_per_key` packets are one sender's. It sends to relays of the signed list and to clients that hang on it, and \
to nobody else.

With --allow it is an exit, too: it connects to hosts on behalf of users, and reads what they do not encrypt. Nothing \
is allowed that no rule names; loopback and private addresses must be named as addresses. What a rule with a name \
allows, only those find who have another reason to use this exit: lists name networks and ports.

Keys of packets live in memory: after a restart a relay is of use from the next epoch on.")]
pub struct Args {
    #[command(flatten)]
    network: NetworkArg,
    #[command(flatten)]
    state: StateArg,
    /// Address to listen on, IP:PORT; others reach it there, unless --address says otherwise
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    listen: SocketAddr,
    /// Where others reach it, if that is not where it listens
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    address: Option<SocketAddr>,
    /// The most that it takes, such as "4 MB/s" or "32 Mbit/s"
    #[arg(long, value_name = "RATE", value_parser = network::limit, default_value = "100 Mbit/s")]
    limit: Rate,
    /// Say that this relay is of the family whose key is in FILE, as all relays of one operator are: no path has two of
    /// them. `anabranch onion family FILE` makes it
    #[arg(long, value_name = "FILE")]
    family: Option<PathBuf>,
    /// Connect to this on behalf of users: HOST:PORTS, as in *:443, example.org:443 or 192.0.2.0/24:1-1024, or
    /// HOST:PORTS/udp, which allows UDP and nothing of TCP; may be repeated
    #[arg(long, value_name = "RULE")]
    allow: Vec<Rule>,
    /// Serve figures for Prometheus at ADDR; they hold no address and no target
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    metrics: Option<SocketAddr>,
    /// FOR DEMONSTRATIONS ALONE: write down into FILE, once a second, from whom to whom how many packets went through
    /// this relay. Refused unless the relay and all authorities are on this machine's loopback
    #[arg(long, value_name = "FILE")]
    observe: Option<PathBuf>,
    /// Say at the end what was done as one JSON object on standard output, and all else on standard error
    #[arg(long)]
    json: bool,
}

/// What a relay has done. It holds no address and no target.
#[derive(Debug, Serialize)]
struct Done {
    epoch: Option<u64>,
    received_bytes: u64,
    sent_bytes: u64,
    forwarded: u64,
    to_clients: u64,
    delivered: u64,
    keys_set_up: u64,
    /// By reason.
    dropped: serde_json::Map<String, serde_json::Value>,
    beyond_limit: u64,
    clients: usize,
    sessions: usize,
    /// What was done for hidden receivers.
    mailboxes_opened: u64,
    mailbox_packets: u64,
    mailbox_packets_without_block: u64,
    onward_packets: u64,
    descriptors_stored: u64,
    descriptors_asked_for: u64,
    /// Requests of receivers and senders that were none, not signed, or beyond a limit.
    requests_refused: u64,
    memory_bytes: usize,
}

/// Runs until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    let network = args.network.read()?;
    let reached = args.address.unwrap_or(args.listen);
    if reached.ip().is_unspecified() {
        return Err(Failure::new(format!("others cannot reach {reached}: say with --address where they can")));
    }
    if args.observe.is_some() {
        observe::check(&network, reached)?;
    }
    let family = args.family.as_deref().map(family::read).transpose()?;
    let folder = args.state.open("onion-relay")?;
    let identity = SecretKey::from_seed(&folder.seed("key")?);
    let secret = ServiceSecret::from_seed(&folder.seed("service-key")?);
    let remembered: Remembered = folder.load(SEEN)?;
    let interrupt = Interrupt::listen()?;
    let metrics_at = args.metrics.map(metrics::listen).transpose()?;
    let socket =
        Socket::bind(args.listen).map_err(|why| Failure::new(format!("cannot listen at {}: {why}", args.listen)))?;
    let local = socket.local_addr()?;
    let address = args.address.unwrap_or(local);
    let policy = Policy::new(args.allow.iter().cloned());
    let exit = policy.advertised();
    let is_exit = !policy.is_empty();
    let service = is_exit.then(|| ServiceEntry::new(&secret.keys()));
    // Where nothing is allowed nobody finds the service.
    let label = if is_exit { EXIT } else { Label(setup::random_seed().to_be_bytes()) };
    let sessions = SessionService::<Real>::new(label, secret, Secrecy::Sealed, Entropy(setup::secret()));
    let offered = WithMailboxes::new(Mailboxes::new(identity.public(), 0), sessions);
    let keep_in = folder.clone();
    let of_family = family.as_ref().map(|key| format!(", of the family {}", key.public())).unwrap_or_default();
    let settings = RelaySettings {
        network,
        identity,
        address,
        limit: args.limit,
        family,
        exit,
        service,
        remembered,
        keep: Box::new(move |seen| keep_in.save(SEEN, seen).map_err(std::io::Error::other)),
    };
    let mut relay = OnionRelay::start(settings, socket, offered)?;
    let mut edge = ExitEdge::start(policy, relay.runtime().waker())?;
    network::say(args.json, &format!("relay at {address}, up to {}{of_family}", args.limit));
    let (metrics, mut is_listed) = (Metrics::default(), false);
    metrics.renew(figures(&relay, &edge, is_listed).rows());
    if let Some(listener) = metrics_at {
        metrics.serve(listener, "anabranch_onion_relay")?;
    }
    let mut observer = args.observe.as_deref().map(Observer::begin).transpose()?;
    if observer.is_some() {
        relay.observe();
    }
    let (mut next, mut repeats) = (relay.now() + PERIOD, Repeats::default());
    while !interrupt.is_raised() {
        if relay.now() >= next {
            next = relay.now() + PERIOD;
            metrics.renew(figures(&relay, &edge, is_listed).rows());
            note(&mut relay, observer.as_mut())?;
        }
        let until = relay.now() + LOOK;
        edge.turn(&mut relay, until)?;
        while let Some(news) = relay.poll_news() {
            match news {
                RelayNews::Service(event) => edge.on_event(&mut relay, event),
                RelayNews::Epoch { epoch, relays, own: Some(_) } => {
                    is_listed = true;
                    network::say(args.json, &format!("epoch {epoch}: one of {relays} relays"));
                }
                RelayNews::Epoch { epoch, relays, own: None } => {
                    is_listed = false;
                    network::say(
                        args.json,
                        &format!(
                            "epoch {epoch}: not among {relays} relays, or with other keys; it carries nothing till the \
                             next"
                        ),
                    );
                }
                RelayNews::Directory(found) => _ = say_found(&mut repeats, relay.now(), &found)?,
            }
        }
    }
    note(&mut relay, observer.as_mut())?;
    let done = done(&relay);
    let words = format!("forwarded {} packets, handed {} to clients", done.forwarded, done.to_clients);
    network::say(args.json, &words);
    if args.json {
        print_line!("{}", serde_json::to_string(&done)?)?;
    }
    Ok(())
}

/// Writes down what has passed since the last time, if that is wanted.
fn note(relay: &mut OnionRelay<ExitService>, observer: Option<&mut Observer>) -> Result<(), Failure> {
    match observer.zip(relay.take_observed()) {
        Some((observer, observed)) => observer.note(relay.now(), &observed),
        None => Ok(()),
    }
}

fn figures(relay: &OnionRelay<ExitService>, edge: &ExitEdge, is_listed: bool) -> RelayFigures {
    let node = relay.node();
    RelayFigures {
        epoch: relay.epoch().unwrap_or(0),
        is_listed,
        node: *node.counts(),
        keys: *node.relay().counts(),
        unreadable: relay.runtime().counters().unreadable,
        clients: node.links().len(),
        sessions: node.service().inner().exits().len(),
        connections: edge.connections(),
        memory: memory(relay),
    }
}

fn done(relay: &OnionRelay<ExitService>) -> Done {
    let node = relay.node();
    let (counts, keys) = (node.counts(), node.relay().counts());
    let mailboxes = node.service().mailboxes().counts();
    let dropped =
        DropReason::ALL.iter().map(|reason| (reason.name().to_owned(), keys.dropped[*reason as usize].into()));
    Done {
        epoch: relay.epoch(),
        received_bytes: counts.received,
        sent_bytes: counts.sent,
        forwarded: keys.forwarded,
        to_clients: keys.to_clients,
        delivered: keys.delivered,
        keys_set_up: keys.set_up,
        dropped: dropped.collect(),
        beyond_limit: counts.refused,
        clients: node.links().len(),
        mailboxes_opened: mailboxes.opened,
        mailbox_packets: mailboxes.stapled,
        mailbox_packets_without_block: mailboxes.dry,
        onward_packets: mailboxes.onward,
        descriptors_stored: mailboxes.stored,
        descriptors_asked_for: mailboxes.fetched,
        requests_refused: mailboxes.refused,
        sessions: node.service().inner().exits().len(),
        memory_bytes: memory(relay),
    }
}

fn memory(relay: &OnionRelay<ExitService>) -> usize {
    let (node, offered) = (relay.node(), relay.node().service());
    node.relay().memory() + offered.inner().exits().memory() + offered.mailboxes().memory()
}

/// Says what is wrong with the directory, if something is and it was not said just before, and gives the words; a failure
/// if nothing can go on.
pub fn say_found(repeats: &mut Repeats, now: Time, found: &Found) -> Result<Option<String>, Failure> {
    let (kind, words) = match found {
        Found::Document(_) => return Ok(None),
        Found::Refused { authority, why } => {
            let words = format!("authority {} does not list this relay: {why}", authority + 1);
            (words.clone(), words)
        }
        Found::Disbelieved(why) => {
            let kind = match why {
                // Its words have the time in them.
                ViewError::Stale { epoch, .. } | ViewError::Early { epoch, .. } => format!("the time and {epoch}"),
                _ => why.to_string(),
            };
            (kind, why.to_string())
        }
        Found::NoAnswer(why) => (why.to_string(), why.to_string()),
        Found::OtherTerms(other) => return Err(Failure::new(other.to_string())),
        Found::NotKept(why) => return Err(Failure::new(format!("what was seen of the directory is not kept: {why}"))),
    };
    let said = repeats.say(now, &kind, &words);
    said.iter().for_each(|words| eprint_line!("{words}"));
    Ok(said)
}

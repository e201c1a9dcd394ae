//! `anabranch receive`: takes files that others send.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anabranch_control::time::{Duration, Time};
use anabranch_net::disk::DiskStore;
use anabranch_net::runtime::Runtime;
use anabranch_proto::peer::Peer;
use anabranch_proto::printable::printable;
use anabranch_proto::relay_node::RelayNode;
use anabranch_proto::seal::{PublicKey, SessionId};
use anabranch_proto::transfer::{Event, Limits, Receiver};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::key::IdentityArg;
use crate::network::{self, Amount};

/// With `--once`: after so long without the sender's leave, the end comes all the same.
const LINGER: Duration = Duration::from_millis(3_000);

/// Arguments of `receive`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file gets its name when all of it has arrived and its BLAKE3 hash is right; a file that \
is there is never replaced. Whoever gives the public key that is printed to `send --key` \
can be sure to reach this receiver and nobody else; without it, a relay that meddles with \
the first exchange could pose as it. The key stays the same, in the file of --identity. \
Anybody who can reach this address may send files, unless --allow says who.")]
pub struct Args {
    /// Address to listen on, IP:PORT; its own IP address if the machine has several
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Folder to keep files in; it is made if it is missing
    #[arg(long, value_name = "DIR")]
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
}

/// Receives until it is interrupted, or the first file has come.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let store = DiskStore::open(&args.out)
        .map_err(|error| Failure::new(format!("cannot keep files in {}: {error}", args.out.display())))?
        .with_max_total(args.max_total.unwrap_or(u64::MAX));
    let socket = network::listen(args.listen)?;
    let limits = Limits { file_bytes: args.max_bytes, ..Limits::default() };
    let mut receiver = Receiver::new(args.identity.load_or_make()?, limits);
    if !args.allow.is_empty() {
        receiver = receiver.only_from(args.allow.clone());
    }
    println!("receiving on {}", socket.local_addr()?);
    println!("public key {}", receiver.public_key());
    let mut runtime = Runtime::new(store)?;
    let number = runtime.add(socket, Peer::new(RelayNode::end(), Some(receiver), None), None)?;
    let display = ProgressBar::no_length()
        .with_style(ProgressStyle::with_template("{bar:30} {pos}/{len} blocks {msg}").expect("the template is valid"));
    let mut only = Only::default();
    while !interrupt.is_raised() {
        if args.once && only.is_over(runtime.now()) {
            break;
        }
        let until = runtime.now() + network::TICK;
        runtime.run_until(until)?;
        let now = runtime.now();
        let Some(receiver) = runtime.machine_mut(number).receiver_mut() else { break };
        while let Some(event) = receiver.next_event() {
            only.note(now, &event);
            // With `--once`, why it did not arrive is said at the end.
            if !(args.once && only.failed.is_some()) {
                display.suspend(|| say(&event, &args.out));
            }
        }
        let (arrived, blocks) = receiver.progress();
        display.set_length(blocks);
        display.set_position(arrived);
    }
    display.finish_and_clear();
    runtime.act(number, |peer, _, out| peer.close_all(out));
    let peer = runtime.machine(number);
    let counters = peer.receiver().map(|receiver| *receiver.counters()).unwrap_or_default();
    println!(
        "{} blocks taken, {} more than once, {} datagrams that did not open; {}",
        counters.blocks,
        counters.duplicates,
        counters.unreadable + counters.unknown_session,
        network::discarded(peer.relay().counters(), &runtime.counters().unreadable)
    );
    match only.failed {
        Some(reason) if args.once => Err(Failure::new(format!("the file did not arrive: {reason}"))),
        _ if args.once && only.complete.is_none() => Err(Failure::interrupted("no file has arrived")),
        _ => Ok(()),
    }
}

/// What became of the file that `--once` waits for: the first of which something is kept. Who only
/// greets, whose offer is refused, or who offers and sends nothing, is a stranger to it; and so is
/// everybody else from the first block on.
#[derive(Default)]
struct Only {
    session: Option<SessionId>,
    complete: Option<Time>,
    failed: Option<String>,
    closed: bool,
}

impl Only {
    fn note(&mut self, now: Time, event: &Event) {
        if let Event::Begun { session } | Event::Complete { session, .. } = *event {
            self.session.get_or_insert(session);
        }
        if self.session != Some(event.session()) {
            return;
        }
        match event {
            Event::Offered { .. } | Event::Begun { .. } => {}
            Event::Complete { .. } => self.complete = Some(now),
            Event::Closed { .. } if self.complete.is_some() => self.closed = true,
            Event::Failed { reason, .. } => self.failed = Some(printable(reason)),
            Event::Closed { .. } => {
                self.failed = Some("the sender has given up, or was not heard of any more".into());
            }
        }
    }

    /// It has come and the sender knows it, or time enough was given to learn it.
    fn is_over(&self, now: Time) -> bool {
        let lingered = |since| now.since(since) >= LINGER;
        self.complete.is_some_and(|since| self.closed || lingered(since)) || self.failed.is_some()
    }
}

fn say(event: &Event, folder: &Path) {
    match event {
        Event::Offered { offer, .. } => println!("receiving {}, {}", offer.name, Amount(offer.length as f64)),
        Event::Complete { name, length, .. } => {
            println!("received {}, {length} bytes, hash right", folder.join(name).display());
        }
        Event::Failed { reason, .. } => eprintln!("anabranch: a file did not arrive: {}", printable(reason)),
        Event::Closed { complete: false, .. } => eprintln!("anabranch: a sender has given up its file"),
        Event::Closed { .. } | Event::Begun { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use anabranch_proto::message::{FileName, Offer};

    use super::*;

    const FRIEND: SessionId = SessionId(1);
    const STRANGER: SessionId = SessionId(2);

    fn offered(session: SessionId) -> Event {
        let offer = Offer { name: FileName::sanitised("a"), length: 10, block: 5, hash: [0; 32] };
        Event::Offered { session, offer }
    }

    fn complete(session: SessionId) -> Event {
        Event::Complete { session, name: "a".into(), length: 10 }
    }

    fn failed(session: SessionId) -> Event {
        Event::Failed { session, reason: "refused\u{1b}[2J".into() }
    }

    fn begun(session: SessionId) -> Event {
        Event::Begun { session }
    }

    fn closed(session: SessionId, complete: bool) -> Event {
        Event::Closed { session, complete }
    }

    fn after(events: &[Event]) -> Only {
        let mut only = Only::default();
        events.iter().for_each(|event| only.note(Time::ZERO, event));
        only
    }

    #[test]
    fn strangers_who_offer_and_send_nothing_do_not_end_it() {
        for harmless in [
            vec![failed(STRANGER)],
            vec![offered(STRANGER), closed(STRANGER, false)],
            vec![offered(STRANGER), failed(STRANGER)],
            vec![offered(FRIEND), begun(FRIEND), offered(STRANGER), failed(STRANGER)],
            vec![offered(FRIEND), begun(FRIEND), offered(STRANGER), begun(STRANGER), failed(STRANGER)],
            // Even a file that is done: the one that it follows would be deleted half-way.
            vec![offered(FRIEND), begun(FRIEND), complete(STRANGER), closed(STRANGER, true)],
        ] {
            let only = after(&harmless);
            assert!(!only.is_over(Time::MAX), "{harmless:?}");
        }
    }

    #[test]
    fn it_ends_when_the_file_that_came_first_has_come_or_failed() {
        let events = [offered(STRANGER), failed(STRANGER), offered(FRIEND), begun(FRIEND)];
        let with = |last: &[Event]| after(&[&events[..], last].concat());
        assert!(!with(&[complete(FRIEND)]).is_over(Time::ZERO), "its sender must learn it");
        assert!(with(&[complete(FRIEND)]).is_over(Time::ZERO + LINGER));
        assert!(with(&[complete(FRIEND), closed(FRIEND, true)]).is_over(Time::ZERO));
        for last in [failed(FRIEND), closed(FRIEND, false)] {
            let only = with(&[last]);
            assert!(only.is_over(Time::ZERO) && !only.failed.unwrap().contains('\u{1b}'));
        }
        let empty = after(&[offered(FRIEND), complete(FRIEND), closed(FRIEND, true)]);
        assert!(empty.is_over(Time::ZERO) && empty.failed.is_none(), "an empty file has no first block");
    }
}

//! The receiver: answers handshakes, takes offers, keeps blocks, checks hashes.
//!
//! What strangers can make it remember is bounded by `Limits`: a session without a file
//! on its way (greeted, refused, complete) takes a place in a small table from which the
//! longest unheard one is pushed out, a file on its way one bit for each block. Replays change nothing: a block that is there is
//! acknowledged again, an offer is answered as before.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use anabranch_control::time::{Duration, Time};

use super::around::{Event, Limits, ReceiverCounters, Reply, Store, StoreError};
use super::check::FileCheck;
use super::error::TransferError;
use crate::message::{Code, Message, Offer, Report};
use crate::seal::{self, Identity, Session, SessionId};

/// Bytes of a file that are hashed in one step of `work`.
const WORK_STEP: usize = 1 << 20;

/// Events that wait to be fetched; when there are more, the oldest are forgotten.
pub const MAX_EVENTS: usize = 1024;

#[derive(Clone, Debug)]
enum Phase {
    /// No message has come yet; the answer to the handshake, to be repeated.
    Greeted(Vec<u8>),
    /// A session that was agreed on otherwise: fillers may come.
    Load,
    Receiving(Incoming),
    Checking(FileCheck),
    Complete {
        name: String,
    },
    Over {
        code: Code,
        reason: String,
    },
}

/// A file that arrives.
#[derive(Clone, Debug)]
struct Incoming {
    offer: Offer,
    /// A bit for each block that is there.
    arrived: Vec<u64>,
    missing: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    noise: Session,
    heard: Time,
    phase: Phase,
}

/// A receiver of files.
#[derive(Clone)]
pub struct Receiver {
    identity: Identity,
    limits: Limits,
    store: Box<dyn Store>,
    sessions: BTreeMap<SessionId, Entry>,
    events: VecDeque<Event>,
    counters: ReceiverCounters,
    /// The second that `greeted` counts in, and when idle sessions are next looked for.
    next_second: Time,
    greeted: u32,
    message: Vec<u8>,
    report: Vec<u8>,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({:?}, {} sessions)", self.identity, self.sessions.len())
    }
}

impl Receiver {
    /// A receiver that keeps files in `store`.
    pub fn new(identity: Identity, limits: Limits, store: Box<dyn Store>) -> Receiver {
        Receiver {
            identity,
            limits,
            store,
            sessions: BTreeMap::new(),
            events: VecDeque::new(),
            counters: ReceiverCounters::default(),
            next_second: Time::ZERO,
            greeted: 0,
            message: Vec::new(),
            report: Vec::new(),
        }
    }

    /// Adds a session that was agreed on otherwise, in which fillers may come.
    pub fn install(&mut self, now: Time, noise: Session) {
        self.sessions.insert(noise.id(), Entry { noise, heard: now, phase: Phase::Load });
    }

    /// A handshake's first message has come: appends the answer to `reply`, or refuses.
    pub fn on_hello(&mut self, now: Time, hello: &[u8], reply: &mut Vec<u8>) -> bool {
        let known = self.sessions.get_mut(&seal::name_of(hello));
        if let Some(entry) = known {
            // A duplicate: the same answer, and nobody's session is replaced.
            if let Phase::Greeted(answer) = &entry.phase {
                reply.extend_from_slice(answer);
                return true;
            }
            return false;
        }
        if self.greeted >= self.limits.greetings_per_second {
            self.counters.greetings_refused += 1;
            return false;
        }
        self.greeted += 1;
        let start = reply.len();
        let Ok(noise) = seal::answer(&self.identity, hello, reply) else {
            self.counters.greetings_refused += 1;
            return false;
        };
        self.make_room();
        self.counters.greetings += 1;
        let phase = Phase::Greeted(reply[start..].to_vec());
        self.sessions.insert(noise.id(), Entry { noise, heard: now, phase });
        true
    }

    /// Pushes out the session without a file on its way that was not heard of for
    /// longest, if there are too many of them.
    fn make_room(&mut self) {
        let others = self.sessions.iter().filter(|(_, entry)| entry.phase.may_be_forgotten());
        if others.clone().count() >= self.limits.greetings
            && let Some(oldest) = others.min_by_key(|(_, entry)| entry.heard).map(|(id, _)| *id)
        {
            self.close(oldest);
        }
    }

    /// The body of a data datagram has come: how to answer it, if at all. The body of a
    /// report is appended to `reply`.
    pub fn on_data(&mut self, now: Time, body: &[u8], reply: &mut Vec<u8>) -> Option<Reply> {
        let (id, sealed) = seal::split_session(body).or_else(|| {
            self.counters.unreadable += 1;
            None
        })?;
        let Some(entry) = self.sessions.get_mut(&id) else {
            self.counters.unknown_session += 1;
            return None;
        };
        let opened = entry.noise.open(sealed, &mut self.message).is_ok();
        let Some((proof, message)) = Some(&self.message).filter(|_| opened).and_then(|m| Message::decode(m).ok())
        else {
            self.counters.unreadable += 1;
            return None;
        };
        entry.heard = now;
        let (code, text) = match message {
            // Load is taken from those with whom it was agreed on, not from strangers.
            Message::Filler if !matches!(entry.phase, Phase::Load) => return None,
            Message::Filler => {
                self.counters.fillers += 1;
                return Some(Reply::Ack(proof));
            }
            Message::Bye => {
                self.close(id);
                return Some(Reply::Ack(proof));
            }
            Message::Offer(offer) => {
                self.on_offer(id, offer);
                self.status(id)
            }
            Message::Block { .. } if matches!(entry.phase, Phase::Over { .. }) => self.status(id),
            Message::Block { index, bytes } => {
                match on_block(entry, id, index, bytes, &mut *self.store, &mut self.counters) {
                    Ok(true) => return Some(Reply::Ack(proof)),
                    Ok(false) => return None,
                    Err(error) => self.fail(id, Code::Failed, error.0),
                }
                self.status(id)
            }
            Message::Finish => {
                if let Phase::Greeted(_) | Phase::Load = entry.phase {
                    return None;
                }
                self.status(id)
            }
        };
        Report { proof, code, text: &text }.encode(&mut self.report);
        let entry = self.sessions.get_mut(&id)?;
        entry.noise.seal(&self.report, reply);
        Some(Reply::Report)
    }

    /// What a report says about session `id` now.
    fn status(&self, id: SessionId) -> (Code, String) {
        match self.sessions.get(&id).map(|entry| &entry.phase) {
            Some(Phase::Receiving(incoming)) if incoming.missing < incoming.offer.blocks() => {
                (Code::Incomplete, String::new())
            }
            Some(Phase::Receiving(_)) => (Code::Accepted, String::new()),
            Some(Phase::Checking(_)) => (Code::Checking, String::new()),
            Some(Phase::Complete { name }) => (Code::Complete, name.clone()),
            Some(Phase::Over { code, reason }) => (*code, reason.clone()),
            Some(Phase::Greeted(_) | Phase::Load) | None => (Code::Failed, "there is no such transfer".into()),
        }
    }

    fn on_offer(&mut self, id: SessionId, offer: Offer) {
        let busy = self.sessions.values().filter(|entry| entry.phase.is_transfer()).count() >= self.limits.files;
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        if !matches!(entry.phase, Phase::Greeted(_) | Phase::Load) {
            return; // Offered again: the answer was lost.
        }
        let limits = &self.limits;
        let refused = if busy {
            Some(format!("{} files are being received already", limits.files))
        } else if let Some(refusal) = limits.refusal(&offer) {
            Some(refusal)
        } else if offer.block == 0 || offer.blocks() > limits.blocks {
            Some(format!("more than {} blocks", limits.blocks))
        } else {
            self.store.create(id, &offer).err().map(|error| error.0)
        };
        if let Some(reason) = refused {
            return self.fail(id, Code::Refused, reason);
        }
        let blocks = offer.blocks();
        let arrived = vec![0; blocks.div_ceil(64) as usize];
        let incoming = Incoming { offer: offer.clone(), arrived, missing: blocks };
        entry.phase =
            if blocks == 0 { Phase::Checking(FileCheck::new(incoming.offer)) } else { Phase::Receiving(incoming) };
        self.note(Event::Offered { session: id, offer });
    }

    /// Whether files that have arrived are to be hashed.
    pub fn has_work(&self) -> bool {
        self.sessions.values().any(|entry| matches!(entry.phase, Phase::Checking(_)))
    }

    /// Hashes a part of a file that has arrived.
    pub fn work(&mut self) {
        let checking = |(id, entry): (&SessionId, &Entry)| matches!(entry.phase, Phase::Checking(_)).then_some(*id);
        if let Some(id) = self.sessions.iter().find_map(checking)
            && let Err(error) = self.check(id)
        {
            self.fail(id, Code::Failed, error.to_string());
        }
    }

    fn check(&mut self, id: SessionId) -> Result<(), TransferError> {
        let Some(Entry { phase: Phase::Checking(check), .. }) = self.sessions.get_mut(&id) else { return Ok(()) };
        if check.left() > 0 {
            let step = check.left().min(WORK_STEP as u64) as usize;
            self.message.resize(step, 0);
            self.store.read(id, check.hashed(), &mut self.message)?;
            return check.update(&self.message);
        }
        let name = check.publish(&mut *self.store, id)?;
        let event = Event::Complete { session: id, name: name.clone(), length: check.offer().length };
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.phase = Phase::Complete { name };
        }
        self.note(event);
        Ok(())
    }

    fn fail(&mut self, id: SessionId, code: Code, reason: String) {
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.phase = Phase::Over { code, reason: reason.clone() };
            self.store.discard(id);
            self.note(Event::Failed { session: id, reason });
        }
    }

    fn close(&mut self, id: SessionId) {
        let Some(entry) = self.sessions.remove(&id) else { return };
        let complete = matches!(entry.phase, Phase::Complete { .. });
        if let Phase::Receiving(_) | Phase::Checking(_) = entry.phase {
            self.store.discard(id);
        }
        // Of what was refused or failed, everything has been said.
        if !matches!(entry.phase, Phase::Greeted(_) | Phase::Load | Phase::Over { .. }) {
            self.note(Event::Closed { session: id, complete });
        }
    }

    /// Gives up every session, and what has arrived of unfinished files.
    pub fn close_all(&mut self) {
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.close(id);
        }
    }

    /// Time has passed: forgets sessions that were not heard of for too long.
    pub fn on_timer(&mut self, now: Time) {
        if now < self.next_second {
            return;
        }
        self.next_second = now + Duration::SECOND;
        self.greeted = 0;
        let idle = self.limits.idle;
        let quiet = self.sessions.iter().filter(|(_, entry)| now.since(entry.heard) >= idle).map(|(id, _)| *id);
        for id in quiet.collect::<Vec<_>>() {
            self.close(id);
        }
    }

    /// When to call `on_timer`.
    pub fn timer(&self) -> Time {
        self.next_second
    }

    /// The next thing that happened.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Things that happened and were not fetched; at most [`MAX_EVENTS`].
    pub fn waiting_events(&self) -> usize {
        self.events.len()
    }

    fn note(&mut self, event: Event) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// What it has done so far.
    pub fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }

    /// Blocks that have arrived and blocks in all, of all files that are arriving.
    pub fn progress(&self) -> (u64, u64) {
        let each = self.sessions.values().filter_map(|entry| match &entry.phase {
            Phase::Receiving(incoming) => Some((incoming.missing, incoming.offer.blocks())),
            Phase::Checking(check) => Some((0, check.offer().blocks())),
            _ => None,
        });
        each.fold((0, 0), |(arrived, all), (missing, blocks)| (arrived + blocks - missing, all + blocks))
    }

    /// Sessions that are remembered, of whatever kind.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The key by which senders know it.
    pub fn public_key(&self) -> seal::PublicKey {
        self.identity.public()
    }
}

impl Phase {
    fn is_transfer(&self) -> bool {
        matches!(self, Phase::Receiving(_) | Phase::Checking(_))
    }

    fn may_be_forgotten(&self) -> bool {
        !self.is_transfer() && !matches!(self, Phase::Load)
    }
}

/// A block has come; whether it is acknowledged: only what is kept is.
fn on_block(
    entry: &mut Entry,
    id: SessionId,
    index: u32,
    bytes: &[u8],
    store: &mut dyn Store,
    counters: &mut ReceiverCounters,
) -> Result<bool, StoreError> {
    let incoming = match &mut entry.phase {
        Phase::Receiving(incoming) => incoming,
        Phase::Checking(_) | Phase::Complete { .. } => {
            counters.duplicates += 1;
            return Ok(true);
        }
        Phase::Greeted(_) | Phase::Load | Phase::Over { .. } => return Ok(false),
    };
    let Some((offset, _)) = incoming.offer.span(index).filter(|&(_, length)| length == bytes.len()) else {
        counters.unreadable += 1;
        return Ok(false);
    };
    let (word, bit) = (index as usize / 64, 1 << (index % 64));
    if incoming.arrived[word] & bit != 0 {
        counters.duplicates += 1;
        return Ok(true);
    }
    store.write(id, offset, bytes)?;
    counters.blocks += 1;
    incoming.arrived[word] |= bit;
    incoming.missing -= 1;
    if incoming.missing == 0 {
        entry.phase = Phase::Checking(FileCheck::new(incoming.offer.clone()));
    }
    Ok(true)
}

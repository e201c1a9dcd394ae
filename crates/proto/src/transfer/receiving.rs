//! The receiver: answers handshakes, takes offers, has blocks written and hashes checked.
//!
//! Disk and hashes are jobs that it hands out, of one file one at a time: blocks that come
//! meanwhile wait together for the next. A block is acknowledged when it has come, and answered with a report once
//! all have; if it can't be written, that is said in place of what follows. A session that ends while a job is under
//! way leaves its name behind until that is done and what was kept is discarded or put away: no result
//! is taken for a later session's. Who takes leave of an unfinished file has it discarded; what has
//! come of one whose sender has fallen silent is put away, and its sender can go on with it.
//!
//! What strangers can make it remember is bounded by `Limits`, in all and for one address
//! (`places.rs`): sessions without a file, of which the longest unheard ones are pushed out, files that wait,
//! files on their way with a bit for each block, and files that have come, which nobody can push
//! out. Of who has not proved to be heard at its address ([`Cookies`]) a few half-open sessions are
//! remembered, which push out nothing and which nothing pushes out. A datagram that comes twice is opened once; a block
//! or an offer that is said again is answered as before.

mod entry;
mod files;
mod incoming;
mod places;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::IpAddr;

use anabranch_control::time::{Duration, Time};

use self::entry::{Closing, Entry, Phase};
pub use self::places::origin_of;
use super::TransferError;
use super::around::{Event, ReceiverCounters, Reply};
use super::jobs::FileJob;
use super::limits::Limits;
use super::partial::{Owner, Partial, PartialId};
use super::phase::PATIENCE;
use super::senders::Senders;
use crate::overlay::hello::{COOKIE, Cookies, HELLO, HelloBody, HelloReply};
use crate::overlay::message::{Code, Message, Offer, Report};
use crate::seal::{self, Answered, Identity, PublicKey, SealError, Session, SessionId};

/// Events that wait to be fetched; when there are more, the oldest are forgotten.
pub const MAX_EVENTS: usize = 1024;

/// Files that are put away of which a receiver remembers that they are; of others it finds out.
const MAX_KEPT: usize = 256;

/// A receiver of files.
#[derive(Clone)]
pub struct Receiver {
    identity: Identity,
    limits: Limits,
    senders: Senders,
    /// Its senders come by a code, each with a key that is good for once.
    is_by_code: bool,
    cookies: Cookies,
    sessions: BTreeMap<SessionId, Entry>,
    /// Sessions of who has not proved yet to be heard at its address: at most `Limits::half_open`.
    half_open: BTreeMap<SessionId, Entry>,
    closing: BTreeMap<SessionId, Closing>,
    /// Files that are put away, as far as is known: their senders are sent what is there of them.
    kept: BTreeSet<PartialId>,
    /// To be handed out.
    jobs: VecDeque<FileJob>,
    /// What blocks take that are not written yet, of all files.
    unwritten: usize,
    events: VecDeque<Event>,
    counters: ReceiverCounters,
    /// Sessions whose files wait for a place, in their order.
    queue: VecDeque<SessionId>,
    /// The second that `greeted` counts in, and when idle sessions are next looked for.
    next_second: Time,
    greeted: u32,
    /// Of them, whose.
    greeted_of: BTreeMap<IpAddr, u32>,
    /// Handshakes besides, of those who have not proved to be heard at their addresses.
    unproved: u32,
    message: Vec<u8>,
    report: Vec<u8>,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({:?}, {} sessions)", self.identity, self.sessions.len())
    }
}

impl Receiver {
    /// A receiver whose [jobs](Receiver::next_job) are done by whoever keeps its files.
    pub fn new(identity: Identity, limits: Limits) -> Receiver {
        Receiver {
            identity,
            limits,
            senders: Senders::Anybody,
            is_by_code: false,
            cookies: Cookies::default(),
            sessions: BTreeMap::new(),
            half_open: BTreeMap::new(),
            closing: BTreeMap::new(),
            kept: BTreeSet::new(),
            jobs: VecDeque::new(),
            unwritten: 0,
            queue: VecDeque::new(),
            events: VecDeque::new(),
            counters: ReceiverCounters::default(),
            next_second: Time::ZERO,
            greeted: 0,
            greeted_of: BTreeMap::new(),
            unproved: 0,
            message: Vec::new(),
            report: Vec::new(),
        }
    }

    /// The same, but only from `senders`.
    pub fn only_from(self, senders: Senders) -> Receiver {
        Receiver { senders, ..self }
    }

    /// The same, but only from the holder of `key`, whom a code has brought. Whom the next code brings to
    /// a receiver of the same folder may go on with the same file, whatever its key.
    pub fn by_code(self, key: PublicKey) -> Receiver {
        Receiver { is_by_code: true, ..self.only_from(Senders::Only(vec![key])) }
    }

    /// The same, with a store that has these files from before.
    pub fn with_kept(self, kept: impl IntoIterator<Item = PartialId>) -> Receiver {
        Receiver { kept: kept.into_iter().take(MAX_KEPT).collect(), ..self }
    }

    /// Adds a session that was agreed on otherwise, in which fillers may come.
    pub fn install(&mut self, now: Time, noise: Session) {
        self.sessions.insert(
            noise.id(),
            Entry {
                noise,
                answer: None,
                origin: None,
                sender: None,
                heard: now,
                phase: Phase::Load,
                partial: None,
                reported: String::new(),
            },
        );
    }

    /// The body of a hello from `source` has come: appends the body of the answer to `reply`, which
    /// is never longer, or refuses. Before the hello brings the cookie that `source` was given, nothing is
    /// computed on a curve and nothing is remembered, but for a few who have none yet: it is asked for only
    /// while there are this many half-open sessions that some may be a flood's (as RFC 7296, 2.6 has it).
    pub fn on_hello(&mut self, now: Time, source: IpAddr, body: &[u8], reply: &mut Vec<u8>) -> bool {
        let Some(hello) = HelloBody::decode(body) else {
            self.counters.greetings_refused += 1;
            return false;
        };
        let (name, origin) = (seal::name_of(hello.opening), origin_of(source));
        if !self.cookies.is_right(now, source, &hello) {
            // A longer one only tries the path.
            let is_first = hello.cookie == [0; COOKIE] && body.len() == HELLO;
            if is_first && self.may_half_open(now, origin, name, hello.opening) {
                let Some(entry) = self.half_open.get_mut(&name) else { return false };
                return answer_hello(entry, hello.proof, reply);
            }
            self.counters.cookies += 1;
            let cookie = self.cookies.make(now, source, hello.opening);
            HelloReply::Cookie { proof: hello.proof, cookie }.encode(reply);
            return true;
        }
        // Said again, while something is left of its file.
        if self.closing.contains_key(&name) {
            return false;
        }
        let is_known = self.sessions.contains_key(&name) || self.complete_opening(origin, name);
        if !is_known && !self.greet(now, origin, name, hello.opening) {
            self.counters.greetings_refused += 1;
            return false;
        }
        let Some(entry) = self.sessions.get_mut(&name) else { return false };
        answer_hello(entry, hello.proof, reply)
    }

    /// Whether session `name` is half-open, or may be and is from now on.
    fn may_half_open(&mut self, now: Time, origin: IpAddr, name: SessionId, opening: &[u8]) -> bool {
        if self.half_open.contains_key(&name) {
            return true;
        }
        if self.half_open.len() >= self.limits.half_open
            || self.unproved >= self.limits.unproved_greetings_per_second
            || self.sessions.contains_key(&name)
            || self.closing.contains_key(&name)
        {
            return false;
        }
        self.unproved += 1;
        let Some(entry) = self.answered(now, origin, opening) else { return false };
        self.half_open.insert(name, entry);
        true
    }

    /// Who has opened session `name` halfway has proved to be heard at `origin`: it is a session like others,
    /// if there is room for one more.
    fn complete_opening(&mut self, origin: IpAddr, name: SessionId) -> bool {
        let Some(entry) = self.half_open.remove(&name) else { return false };
        let has_room = self.make_room(origin);
        if has_room {
            self.counters.greetings += 1;
            self.sessions.insert(name, Entry { origin: Some(origin), ..entry });
        }
        has_room
    }

    /// Begins session `name`, unless too many were begun in this second, there is no room, or its
    /// handshake is none.
    fn greet(&mut self, now: Time, origin: IpAddr, name: SessionId, opening: &[u8]) -> bool {
        let of_origin = self.greeted_of.entry(origin).or_default();
        if self.greeted >= self.limits.greetings_per_second || *of_origin >= self.limits.greetings_per_second_of_one {
            return false;
        }
        *of_origin += 1;
        self.greeted += 1;
        let Some(entry) = self.answered(now, origin, opening) else { return false };
        if !self.make_room(origin) {
            return false;
        }
        self.counters.greetings += 1;
        self.sessions.insert(name, entry);
        true
    }

    /// The session that answers `opening`, if that is a handshake.
    fn answered(&self, now: Time, origin: IpAddr, opening: &[u8]) -> Option<Entry> {
        let Answered { session: noise, answer, sender } = seal::answer(&self.identity, opening).ok()?;
        Some(Entry {
            noise,
            answer: Some(answer),
            origin: Some(origin),
            sender,
            heard: now,
            phase: Phase::Greeted,
            partial: None,
            reported: String::new(),
        })
    }

    /// The body of a data datagram has come: how to answer it, if at all. The body of a
    /// report is appended to `reply`.
    pub fn on_data(&mut self, now: Time, body: &[u8], reply: &mut Vec<u8>) -> Option<Reply> {
        let (id, sealed) = seal::split_session(body).or_else(|| {
            self.counters.unreadable += 1;
            None
        })?;
        let entry = self.sessions.get_mut(&id).or_else(|| self.half_open.get_mut(&id));
        let Some(entry) = entry else {
            self.counters.unknown_session += 1;
            return None;
        };
        if let Err(error) = entry.noise.open(sealed, &mut self.message) {
            // Whoever sends again what has come before gets no answer, and keeps nobody awake.
            match error {
                SealError::Damaged => self.counters.unreadable += 1,
                SealError::Replayed => self.counters.replayed += 1,
            }
            return None;
        }
        // Who can seal it has heard the answer to its hello.
        let half_open_at = self.half_open.get(&id).and_then(|entry| entry.origin);
        if let Some(origin) = half_open_at
            && !self.complete_opening(origin, id)
        {
            self.counters.greetings_refused += 1;
            return None;
        }
        let entry = self.sessions.get_mut(&id)?;
        let Ok((proof, message)) = Message::decode(&self.message) else {
            self.counters.unreadable += 1;
            return None;
        };
        // What has come is remembered for its sender's questions, but not for ever.
        if !matches!(entry.phase, Phase::Complete { .. }) {
            entry.heard = now;
        }
        let (code, text) = match message {
            // Load is taken from those with whom it was agreed on, not from strangers.
            Message::Filler if !matches!(entry.phase, Phase::Load) => return None,
            Message::Filler => {
                self.counters.fillers += 1;
                return Some(Reply::Ack(proof));
            }
            Message::Close => {
                self.close(id, false);
                self.admit();
                return Some(Reply::Ack(proof));
            }
            Message::Offer(offer) => {
                self.on_offer(now, id, offer);
                let (code, text) = self.status(id);
                let is_accepted = matches!(code, Code::Accepted | Code::Incomplete | Code::Checking);
                let reported = self.sessions.get(&id).filter(|_| is_accepted).map(|entry| entry.reported.clone());
                (code, reported.unwrap_or(text))
            }
            Message::Block { .. } if matches!(entry.phase, Phase::Over { .. }) => self.status(id),
            Message::Block { index, bytes } => {
                let Receiver { limits, unwritten, counters, .. } = self;
                if !entry.on_block(index, bytes, limits, unwritten, counters) {
                    return None;
                }
                self.go_on(id);
                // That all has come proves more than an ACK: the ACKs of other blocks may have been lost.
                match self.status(id) {
                    status @ (Code::Checking | Code::Complete, _) => status,
                    _ => return Some(Reply::Ack(proof)),
                }
            }
            Message::Finish => {
                if let Phase::Greeted | Phase::Load = entry.phase {
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
            Some(Phase::Receiving(incoming)) if incoming.is_looked_up => (Code::Waiting, String::new()),
            Some(Phase::Receiving(incoming)) if incoming.missing == 0 => (Code::Checking, String::new()),
            Some(Phase::Receiving(incoming)) if incoming.missing < incoming.offer.blocks() => {
                (Code::Incomplete, String::new())
            }
            Some(Phase::Receiving(_)) => (Code::Accepted, String::new()),
            Some(Phase::Waiting(_)) => (Code::Waiting, self.place_of(id).to_string()),
            Some(Phase::Checking(_) | Phase::Publishing(_)) => (Code::Checking, String::new()),
            Some(Phase::Complete { name }) => (Code::Complete, name.clone()),
            Some(Phase::Over { code, reason }) => (*code, reason.clone()),
            Some(Phase::Greeted | Phase::Load) | None => (Code::Failed, "there is no such transfer".into()),
        }
    }

    fn on_offer(&mut self, now: Time, id: SessionId, offer: Offer) {
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        if !matches!(entry.phase, Phase::Greeted | Phase::Load) {
            return; // Offered again: the answer was lost.
        }
        let sender = entry.sender;
        let partial = Partial::of(self.owner(sender), &offer);
        let limits = &self.limits;
        let refused = if let Some(refusal) = self.senders.refusal(sender.as_ref()) {
            Some(refusal)
        } else if let Some(refusal) = limits.refusal(&offer) {
            Some(refusal)
        } else if offer.block == 0 || offer.blocks() > limits.blocks {
            Some(format!("more than {} blocks", limits.blocks))
        } else {
            if let Some(entry) = self.sessions.get_mut(&id) {
                entry.partial = Some(partial.id);
            }
            self.take_over(now, id);
            self.take_or_queue(id, offer).err()
        };
        if let (Some(reason), Some(entry)) = (refused, self.sessions.get_mut(&id)) {
            entry.phase = Phase::Over { code: Code::Refused, reason: reason.clone() };
            self.note(Event::Failed { session: id, reason });
        }
    }

    /// Who may go on with what the holder of this key, or nobody that is known, has begun.
    fn owner(&self, sender: Option<PublicKey>) -> Owner {
        if self.is_by_code { Owner::Code } else { Owner::of(sender) }
    }

    /// Time has passed: forgets sessions that were not heard of for too long.
    pub fn on_timer(&mut self, now: Time) {
        if now < self.next_second {
            return;
        }
        self.next_second = now + Duration::SECOND;
        self.greeted = 0;
        self.greeted_of.clear();
        self.unproved = 0;
        let Limits { idle, stalled, .. } = self.limits;
        self.half_open.retain(|_, entry| now.since(entry.heard) < PATIENCE);
        // A sender that waits asks again and again, and gives up sooner than others.
        let patience = |phase: &Phase| if let Phase::Waiting(_) = phase { idle.min(PATIENCE) } else { idle };
        let is_quiet = |entry: &Entry| now.since(entry.heard) >= patience(&entry.phase);
        let quiet = self.sessions.iter().filter(|(_, entry)| is_quiet(entry)).map(|(id, _)| *id);
        for id in quiet.collect::<Vec<_>>() {
            self.close(id, true);
        }
        let is_stalled = |(id, entry): (&SessionId, &mut Entry)| match &mut entry.phase {
            Phase::Receiving(incoming) => incoming.is_stalled(now, stalled).then_some(*id),
            _ => None,
        };
        for id in self.sessions.iter_mut().filter_map(is_stalled).collect::<Vec<_>>() {
            let reason = TransferError::Stalled(stalled).to_string();
            self.leave(id, Code::Failed, reason.clone(), true);
            self.note(Event::Failed { session: id, reason });
        }
        for place in 0..self.queue.len() {
            self.take_over(now, self.queue[place]);
        }
        self.admit();
    }

    /// Seals `plain` as its session `id` would: for tests of senders that face a liar.
    #[cfg(test)]
    pub(crate) fn seal_as(&mut self, id: SessionId, plain: &[u8], out: &mut Vec<u8>) {
        self.sessions.get_mut(&id).expect("there is such a session").noise.seal(plain, out);
    }

    /// Its keys: for tests of one that is started again.
    #[cfg(test)]
    pub(crate) fn identity(&self) -> Identity {
        self.identity.clone()
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
            Phase::Checking(offer) | Phase::Publishing(offer) => Some((0, offer.blocks())),
            _ => None,
        });
        each.fold((0, 0), |(arrived, all), (missing, blocks)| (arrived + blocks - missing, all + blocks))
    }

    /// Files that are whole and being put in their places.
    pub fn publishing(&self) -> usize {
        self.sessions.values().filter(|entry| matches!(entry.phase, Phase::Publishing(_))).count()
    }

    /// Files that wait for a place.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Sessions that are remembered, of whatever kind.
    pub fn sessions(&self) -> usize {
        self.sessions.len() + self.half_open.len()
    }

    /// Of them, those of senders that have not proved to be heard at their addresses.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Files of which something is kept: those that arrive, and those of which something is left.
    pub fn files(&self) -> usize {
        self.sessions.values().filter(|entry| entry.phase.is_transfer()).count() + self.closing.len()
    }

    /// Files of which something is left, though nobody waits for them: at most as many as it
    /// receives at once.
    pub fn closing(&self) -> usize {
        self.closing.len()
    }

    /// Bytes of memory that blocks take which are not written yet, of all files.
    pub fn unwritten(&self) -> usize {
        self.unwritten
    }

    /// The key by which senders know it.
    pub fn public_key(&self) -> PublicKey {
        self.identity.public()
    }
}

/// Appends the answer to one of the hellos of a session to `reply`; false if it was agreed on otherwise.
fn answer_hello(entry: &mut Entry, proof: u64, reply: &mut Vec<u8>) -> bool {
    let Entry { noise, answer: Some(answer), .. } = entry else { return false };
    let mut sealed = Vec::new();
    noise.seal(&proof.to_be_bytes(), &mut sealed);
    HelloReply::Answer { answer, sealed: &sealed }.encode(reply);
    true
}

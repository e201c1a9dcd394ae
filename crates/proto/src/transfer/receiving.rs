//! The receiver: answers handshakes, takes offers, has blocks written and hashes checked.
//!
//! Disk and hashes are jobs that it hands out, of one file one at a time: blocks that come
//! meanwhile wait together for the next. A block is acknowledged when it has come; if it can't be
//! written, that is said in place of what follows. A session that ends while a job is under way
//! leaves its name behind until that is done and what was kept is discarded: no result is taken
//! for a later session's.
//!
//! What strangers can make it remember is bounded by `Limits`, in all and for one address
//! (`places.rs`): sessions without a file, of which the longest unheard ones are pushed out, files that wait,
//! files on their way with a bit for each block, and files that have come, which nobody can push
//! out. Nothing at all is remembered of who has not proved to be heard at its address
//! ([`Cookies`]). A datagram that comes twice is opened once; a block or an offer that is said
//! again is answered as before.

mod entry;
mod incoming;
mod places;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;

use anabranch_control::time::{Duration, Time};

use self::entry::{Closing, Entry, Phase};
use self::incoming::{Incoming, on_block};
pub use self::places::origin_of;
use super::around::{Event, ReceiverCounters, Reply};
use super::check::FileCheck;
use super::jobs::{FileDone, FileJob, FileResult, FileTask};
use super::limits::Limits;
use super::phase::PATIENCE;
use crate::hello::{Cookies, HelloBody, HelloReply};
use crate::message::{Code, Message, Offer, Report};
use crate::seal::{self, Answered, Identity, PublicKey, SealError, Session, SessionId};

/// Events that wait to be fetched; when there are more, the oldest are forgotten.
pub const MAX_EVENTS: usize = 1024;

/// A receiver of files.
#[derive(Clone)]
pub struct Receiver {
    identity: Identity,
    limits: Limits,
    /// Whose files it takes; none for anybody's.
    allowed: Option<Vec<PublicKey>>,
    cookies: Cookies,
    sessions: BTreeMap<SessionId, Entry>,
    closing: BTreeMap<SessionId, Closing>,
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
            allowed: None,
            cookies: Cookies::default(),
            sessions: BTreeMap::new(),
            closing: BTreeMap::new(),
            jobs: VecDeque::new(),
            unwritten: 0,
            queue: VecDeque::new(),
            events: VecDeque::new(),
            counters: ReceiverCounters::default(),
            next_second: Time::ZERO,
            greeted: 0,
            greeted_of: BTreeMap::new(),
            message: Vec::new(),
            report: Vec::new(),
        }
    }

    /// The same, but only from senders that prove to hold the secret of one of `keys`.
    pub fn only_from(self, keys: Vec<PublicKey>) -> Receiver {
        Receiver { allowed: Some(keys), ..self }
    }

    /// Adds a session that was agreed on otherwise, in which fillers may come.
    pub fn install(&mut self, now: Time, noise: Session) {
        self.sessions.insert(
            noise.id(),
            Entry { noise, answer: None, origin: None, sender: None, heard: now, phase: Phase::Load },
        );
    }

    /// The body of a hello from `source` has come: appends the body of the answer to `reply`, which
    /// is never longer, or refuses. Before the hello brings the cookie that `source` was given,
    /// nothing is computed on a curve and nothing is remembered.
    pub fn on_hello(&mut self, now: Time, source: IpAddr, body: &[u8], reply: &mut Vec<u8>) -> bool {
        let Some(hello) = HelloBody::decode(body) else {
            self.counters.greetings_refused += 1;
            return false;
        };
        if !self.cookies.is_right(now, source, &hello) {
            self.counters.cookies += 1;
            let cookie = self.cookies.make(now, source, hello.opening);
            HelloReply::Cookie { proof: hello.proof, cookie }.encode(reply);
            return true;
        }
        let name = seal::name_of(hello.opening);
        // Said again, while something is left of its file.
        if self.closing.contains_key(&name) {
            return false;
        }
        if !self.sessions.contains_key(&name) && !self.greet(now, origin_of(source), name, hello.opening) {
            self.counters.greetings_refused += 1;
            return false;
        }
        let Some(Entry { noise, answer: Some(answer), .. }) = self.sessions.get_mut(&name) else { return false };
        let mut sealed = Vec::new();
        noise.seal(&hello.proof.to_be_bytes(), &mut sealed);
        HelloReply::Answer { answer, sealed: &sealed }.encode(reply);
        true
    }

    /// Begins session `name`, unless too many were begun in this second, there is no room, or its
    /// handshake is none.
    fn greet(&mut self, now: Time, origin: IpAddr, name: SessionId, opening: &[u8]) -> bool {
        if self.greeted >= self.limits.greetings_per_second {
            return false;
        }
        let of_origin = self.greeted_of.entry(origin).or_default();
        if *of_origin >= self.limits.greetings_per_second_of_one {
            return false;
        }
        *of_origin += 1;
        self.greeted += 1;
        let Ok(Answered { session, answer, sender }) = seal::answer(&self.identity, opening) else { return false };
        if !self.make_room(origin) {
            return false;
        }
        self.counters.greetings += 1;
        let (noise, answer, origin, phase) = (session, Some(answer), Some(origin), Phase::Greeted);
        self.sessions.insert(name, Entry { noise, answer, origin, sender, heard: now, phase });
        true
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
        if let Err(error) = entry.noise.open(sealed, &mut self.message) {
            // Whoever sends again what has come before gets no answer, and keeps nobody awake.
            match error {
                SealError::Damaged => self.counters.unreadable += 1,
                SealError::Replayed => self.counters.replayed += 1,
            }
            return None;
        }
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
            Message::Bye => {
                self.close(id);
                self.admit();
                return Some(Reply::Ack(proof));
            }
            Message::Offer(offer) => {
                self.on_offer(id, offer);
                self.status(id)
            }
            Message::Block { .. } if matches!(entry.phase, Phase::Over { .. }) => self.status(id),
            Message::Block { index, bytes } => {
                let Receiver { limits, unwritten, counters, .. } = self;
                if !on_block(entry, index, bytes, limits, unwritten, counters) {
                    return None;
                }
                self.go_on(id);
                return Some(Reply::Ack(proof));
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

    fn on_offer(&mut self, id: SessionId, offer: Offer) {
        let Some(entry) = self.sessions.get(&id) else { return };
        if !matches!(entry.phase, Phase::Greeted | Phase::Load) {
            return; // Offered again: the answer was lost.
        }
        let limits = &self.limits;
        let refused = if let Some(refusal) = self.stranger(entry.sender) {
            Some(refusal)
        } else if let Some(refusal) = limits.refusal(&offer) {
            Some(refusal)
        } else if offer.block == 0 || offer.blocks() > limits.blocks {
            Some(format!("more than {} blocks", limits.blocks))
        } else {
            self.take_or_queue(id, offer).err()
        };
        if let (Some(reason), Some(entry)) = (refused, self.sessions.get_mut(&id)) {
            entry.phase = Phase::Over { code: Code::Refused, reason: reason.clone() };
            self.note(Event::Failed { session: id, reason });
        }
    }

    /// Why nothing is taken from who has shown this key, or none.
    fn stranger(&self, sender: Option<PublicKey>) -> Option<String> {
        const ONLY: &str = "only senders whose keys are known here may send";
        match (&self.allowed, sender) {
            (Some(allowed), Some(key)) if !allowed.contains(&key) => Some(format!("{ONLY}, and {key} is not")),
            (Some(_), None) => Some(format!("{ONLY}, and this one has shown none")),
            _ => None,
        }
    }

    fn hand_out(&mut self, session: SessionId, task: FileTask) {
        self.jobs.push_back(FileJob { session, task });
    }

    /// The next job, to be done elsewhere; [`Receiver::on_done`] gets the result.
    pub fn next_job(&mut self) -> Option<FileJob> {
        self.jobs.pop_front()
    }

    /// Has done next for the file of session `id` what is to be done, if nothing is being done.
    fn go_on(&mut self, id: SessionId) {
        let Some(Entry { phase, .. }) = self.sessions.get_mut(&id) else { return };
        let Phase::Receiving(incoming) = phase else { return };
        if incoming.is_working {
            return;
        }
        if !incoming.waiting.is_empty() {
            let batch = std::mem::take(&mut incoming.waiting);
            (incoming.is_working, incoming.writing) = (true, incoming.unwritten);
            self.hand_out(id, FileTask::Write(batch));
        } else if incoming.missing == 0 {
            let check = FileCheck::new(incoming.offer.clone());
            self.go_on_checking(id, check);
        }
    }

    fn go_on_checking(&mut self, id: SessionId, check: FileCheck) {
        let Some(Entry { phase, .. }) = self.sessions.get_mut(&id) else { return };
        if check.left() > 0 {
            *phase = Phase::Checking(check.offer().clone());
            self.hand_out(id, FileTask::Check(check));
        } else {
            *phase = Phase::Publishing(check.offer().clone());
            self.hand_out(id, FileTask::Publish(check));
        }
    }

    /// A job is done.
    pub fn on_done(&mut self, done: FileDone) {
        self.take_result(done);
        self.admit();
    }

    fn take_result(&mut self, done: FileDone) {
        let FileDone { session: id, result } = done;
        if let Some(&closing) = self.closing.get(&id) {
            return self.on_closing_done(id, closing, result);
        }
        let Some(Entry { phase, .. }) = self.sessions.get_mut(&id) else { return };
        match (phase, result) {
            (Phase::Receiving(incoming), FileResult::Created(Ok(()))) => {
                incoming.is_working = false;
                let offer = incoming.offer.clone();
                self.note(Event::Offered { session: id, offer });
                self.go_on(id);
            }
            (Phase::Receiving(incoming), FileResult::Written(Ok(()))) => {
                incoming.is_working = false;
                self.unwritten -= incoming.writing;
                incoming.unwritten -= std::mem::take(&mut incoming.writing);
                if !std::mem::replace(&mut incoming.is_begun, true) {
                    self.note(Event::Begun { session: id });
                }
                self.go_on(id);
            }
            (Phase::Checking(_), FileResult::Checked(Ok(check))) => self.go_on_checking(id, check),
            (phase @ Phase::Publishing(_), FileResult::Published(Ok(name))) => {
                if let Phase::Publishing(offer) = std::mem::replace(phase, Phase::Complete { name: name.clone() }) {
                    self.note(Event::Complete { session: id, name, length: offer.length });
                }
            }
            (Phase::Receiving(_), FileResult::Created(Err(error))) => self.fail(id, Code::Refused, error.0),
            (Phase::Receiving(_), FileResult::Written(Err(error))) => self.fail(id, Code::Failed, error.0),
            (Phase::Checking(_), FileResult::Checked(Err(error)))
            | (Phase::Publishing(_), FileResult::Published(Err(error))) => {
                self.fail(id, Code::Failed, error.to_string());
            }
            // Nobody has asked for it.
            _ => {}
        }
    }

    /// A job is done for a file that nobody waits for.
    fn on_closing_done(&mut self, id: SessionId, closing: Closing, result: FileResult) {
        match (closing, result) {
            (Closing::Discarding, _) => _ = self.closing.remove(&id),
            (Closing::Publishing { length }, FileResult::Published(Ok(name))) => {
                self.closing.remove(&id);
                self.note(Event::Complete { session: id, name, length });
                self.note(Event::Closed { session: id, complete: true });
            }
            (Closing::Publishing { .. }, _) => {
                self.note(Event::Closed { session: id, complete: false });
                self.discard(id);
            }
            (Closing::Working { writing }, _) => {
                self.unwritten -= writing;
                self.discard(id);
            }
        }
    }

    /// The file of session `id`, of which no job is under way, will not come.
    fn fail(&mut self, id: SessionId, code: Code, reason: String) {
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.phase, Phase::Over { code, reason: reason.clone() });
        if let Phase::Receiving(incoming) = before {
            self.unwritten -= incoming.unwritten;
        }
        self.discard(id);
        self.note(Event::Failed { session: id, reason });
    }

    fn discard(&mut self, id: SessionId) {
        self.closing.insert(id, Closing::Discarding);
        self.hand_out(id, FileTask::Discard);
    }

    fn close(&mut self, id: SessionId) {
        let Some(entry) = self.sessions.remove(&id) else { return };
        let complete = match entry.phase {
            // Of what was refused or failed, everything has been said.
            Phase::Greeted | Phase::Load | Phase::Waiting(_) | Phase::Over { .. } => return,
            Phase::Complete { .. } => true,
            Phase::Receiving(Incoming { is_working: false, unwritten, .. }) => {
                self.unwritten -= unwritten;
                self.discard(id);
                false
            }
            Phase::Receiving(Incoming { unwritten, writing, .. }) => {
                self.unwritten -= unwritten - writing;
                self.closing.insert(id, Closing::Working { writing });
                false
            }
            Phase::Checking(_) => {
                self.closing.insert(id, Closing::Working { writing: 0 });
                false
            }
            // Whether it comes is said when it is known.
            Phase::Publishing(offer) => {
                self.closing.insert(id, Closing::Publishing { length: offer.length });
                return;
            }
        };
        self.note(Event::Closed { session: id, complete });
    }

    /// Gives up every session, and what has arrived of unfinished files.
    pub fn close_all(&mut self) {
        self.queue.clear();
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
        self.greeted_of.clear();
        let Limits { idle, stalled, .. } = self.limits;
        // A sender that waits asks again and again, and gives up sooner than others.
        let patience = |phase: &Phase| if let Phase::Waiting(_) = phase { idle.min(PATIENCE) } else { idle };
        let is_quiet = |entry: &Entry| now.since(entry.heard) >= patience(&entry.phase);
        let quiet = self.sessions.iter().filter(|(_, entry)| is_quiet(entry)).map(|(id, _)| *id);
        for id in quiet.collect::<Vec<_>>() {
            self.close(id);
        }
        let is_stalled = |(id, entry): (&SessionId, &mut Entry)| match &mut entry.phase {
            Phase::Receiving(incoming) => incoming.is_stalled(now, stalled).then_some(*id),
            _ => None,
        };
        for id in self.sessions.iter_mut().filter_map(is_stalled).collect::<Vec<_>>() {
            self.fail(id, Code::Failed, format!("nothing of the file has come for {} s", stalled.as_secs_f64()));
        }
        self.admit();
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

    /// Files that wait for a place.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Sessions that are remembered, of whatever kind.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
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

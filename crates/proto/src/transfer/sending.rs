//! The sender of one file.
//!
//! Blocks leave in order as fast as the path controller has room, those that were lost
//! before new ones, the last ones twice if need be; a block is done when an answer proves
//! its arrival, however late. The file is read ahead by jobs that it hands out; a block whose part
//! is not there yet is waited for.
//! The first blocks follow the offer soon; the others wait until it is accepted.
//! Greeting, offer and finish leave again and again until they are answered, each time
//! by another path, so that a dead relay costs one interval and no more.
//!
//! What the receiver says to have from before is not sent. One that was started again knows nothing
//! of the session: after a while of silence the sender greets it anew, and goes on with what is there.

mod anew;
mod blocks;
mod greeting;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use anabranch_control::path::Slot;
use anabranch_control::time::{Duration, Time};

use self::anew::MOST_ANEW;
use self::blocks::EARLY;
use self::greeting::{CookieJar, RENEWAL};
use super::check::FileCheck;
use super::error::TransferError;
use super::jobs::{FileDone, FileJob, FileResult, FileTask};
use super::phase::{PATIENCE, Phase};
use super::reading::ReadAhead;
use crate::overlay::courier::{Courier, Parcel};
use crate::overlay::message::{BLOCK_PREFIX, Code, Message, Offer, Report};
use crate::overlay::packet::{Kind, Packet, PacketId};
use crate::overlay::path_sender::AckVerdict;
use crate::overlay::wire::{self, OwnedDatagram, Type};
use crate::printable::printable;
use crate::seal::{self, Hello, Identity, PublicKey, Session};

/// After so long without an answer, greeting and offer leave once more.
const REPEAT: Duration = Duration::from_millis(500);

/// While a receiver looks up what it has, the offer leaves again so long after each answer.
const SOON: Duration = Duration::from_millis(20);

/// Between two questions whether the receiver has the file is at least this, and twice as much after each
/// answer that it still checks it, up to [`REPEAT`].
const FIRST_QUESTION: Duration = Duration::from_millis(10);

/// Greeting and offer leave over this many paths at once at most, at first each over other relays: one bad relay
/// among many does not delay them, and what the relays grant is known before the first block leaves. Each attempt in
/// vain is followed by one over twice as many: where half of eight relays are dead, of those over three of them one
/// path in fourteen is whole.
const MOST_PATHS: usize = 8;

/// From when the last block has left, the receiver is asked this many times in a round trip whether it has
/// the file, which it may know before the last ACK is here. What it knows waits for half of the time between two
/// questions on average, and each is one short packet over relays that have nothing else to pass on.
const QUESTIONS_A_ROUND_TRIP: u64 = 8;

/// Copies of the closing message, each by another path; nobody waits for an answer to it.
const GOODBYE_COPIES: u8 = 3;

/// Copies of greeting or offer after `attempts` in vain, where `disjoint` paths take each of `relays` once: no more
/// than there are relays, for over one it is one path again and again.
fn copies(disjoint: usize, relays: usize, attempts: u32) -> usize {
    disjoint.saturating_mul(1 << attempts.min(MOST_PATHS.ilog2())).min(relays).min(MOST_PATHS)
}

/// The bytes of a block so that its datagram over `nodes` (source, relays, destination,
/// each as long as it can be) has `packet` bytes; none if nothing is left for it.
pub fn block_size(nodes: &[SocketAddr], packet: usize) -> Option<u16> {
    let around = wire::header_len(Kind::Data, nodes) + seal::DATA_PREFIX + seal::TAG + BLOCK_PREFIX;
    packet.checked_sub(around).filter(|&left| left > 0).map(|left| left as u16)
}

/// A file that has arrived whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// Its name at the receiver.
    pub name: String,
    /// Its length in bytes.
    pub length: u64,
    /// Of them, those that the receiver had from a transfer before.
    pub resumed: u64,
    /// From the start until the receiver confirmed it.
    pub took: Duration,
}

/// What a packet carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    Hello,
    Block(u32),
    /// A finish, before all blocks are known to have arrived.
    Question,
    Finish,
    Other,
}

/// Sends one file.
#[derive(Clone)]
pub struct FileSender {
    courier: Courier,
    destination: Slot,
    key: Option<PublicKey>,
    /// The handshake, which every greeting repeats.
    hello: Hello,
    cookies: CookieJar,
    offer: Offer,
    file: ReadAhead,
    /// Since when the next block can't leave before a part of the file was read.
    awaits_file: Option<Time>,
    phase: Phase,
    /// Where it was when the receiver fell silent and was greeted anew.
    interrupted: Option<Phase>,
    /// When something new has arrived last, or could first.
    progressed: Option<Time>,
    /// Since when no block may leave: the receiver has it wait, or is greeted anew.
    waits_since: Option<Time>,
    /// Blocks that the receiver said to have from before.
    resumed: u64,
    /// They did not help: all was sent again in this session.
    is_anew: bool,
    /// How often the file may still be hashed and sent again, over all sessions.
    anew_left: u8,
    /// Whether the file is still what was offered is being looked up.
    is_rechecking: bool,
    /// Its next part is to be hashed for it.
    recheck: Option<FileCheck>,
    /// In the receiver's queue, if it waits there.
    place: Option<u32>,
    session: Option<Session>,
    /// By the packet's place in the sending machine's table.
    carried: Vec<Carried>,
    /// A bit for each block whose arrival is proven.
    arrived: Vec<u64>,
    missing: u64,
    next_block: u32,
    resend: VecDeque<u32>,
    /// The last blocks that are still to leave a second time, the next one last; none before all have left.
    spares: Option<Vec<u32>>,
    /// When greeting or offer leave again.
    repeat_at: Time,
    /// When blocks leave again that nobody has confirmed.
    resend_at: Time,
    /// Bytes of blocks that may still leave before there is an answer to the offer.
    early_left: usize,
    /// From when on they may.
    early_from: Time,
    /// Copies of greeting or offer that are still to leave now.
    copies_left: usize,
    /// How often they have left without an answer.
    attempts: u32,
    /// When the receiver is asked next whether it has the file.
    ask_at: Time,
    /// The least time from one such question to the next.
    question: Duration,
    /// From when on a cookie has the next greeting leave at once.
    hasty_from: Time,
    started: Time,
    heard: Time,
    /// Copies of the closing message that are still to leave.
    goodbyes_left: u8,
    outcome: Option<Result<Transferred, TransferError>>,
    message: Vec<u8>,
}

impl fmt::Debug for FileSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileSender({:?}, {:?}, {} blocks missing)", self.offer.name, self.phase, self.missing)
    }
}

impl FileSender {
    /// Sends the file that `offer` describes, and that its [jobs](FileSender::next_job) read, to the
    /// peer in slot `destination`, which must hold the secret of `key` if one is given.
    pub fn new(now: Time, courier: Courier, destination: Slot, key: Option<PublicKey>, offer: Offer) -> FileSender {
        let blocks = offer.blocks();
        FileSender {
            courier,
            destination,
            key,
            hello: Hello::new(key.as_ref(), None),
            cookies: CookieJar::default(),
            file: ReadAhead::new(&offer),
            awaits_file: None,
            phase: Phase::Greeting,
            interrupted: None,
            progressed: None,
            waits_since: None,
            resumed: 0,
            is_anew: false,
            anew_left: MOST_ANEW,
            is_rechecking: false,
            recheck: None,
            place: None,
            session: None,
            carried: Vec::new(),
            arrived: vec![0; blocks.div_ceil(64) as usize],
            missing: blocks,
            next_block: 0,
            resend: VecDeque::new(),
            spares: None,
            repeat_at: now,
            resend_at: now,
            early_left: EARLY,
            early_from: now,
            copies_left: 0,
            attempts: 0,
            ask_at: now,
            question: FIRST_QUESTION,
            hasty_from: now,
            started: now,
            heard: now,
            goodbyes_left: 0,
            outcome: None,
            message: Vec::new(),
            offer,
        }
    }

    /// The same, but the holder of `key` learns that this is `own`; without a key nobody learns it.
    pub fn with_identity(self, own: &Identity) -> FileSender {
        FileSender { hello: Hello::new(self.key.as_ref(), Some(own)), ..self }
    }

    /// A datagram that shall leave now, into `out`, and the relay to send it to.
    pub fn poll(&mut self, now: Time, out: &mut OwnedDatagram) -> Option<SocketAddr> {
        match self.phase {
            Phase::Greeting => self.greet(now, out),
            Phase::Offering => {
                if let Some(parcel) = self.copy(now, Carried::Other) {
                    return self.write(&parcel, &Message::Offer(self.offer.clone()), out);
                }
                self.send_early(now, out)
            }
            Phase::Sending => {
                let to = self.send_block(now, out);
                if to.is_none() && self.awaits_last_acks() { self.ask(now, Carried::Question, out) } else { to }
            }
            Phase::Finishing => self.ask(now, Carried::Finish, out),
            Phase::Over if self.goodbyes_left > 0 => {
                let parcel = self.depart(now, Carried::Other)?;
                self.goodbyes_left -= 1;
                self.write(&parcel, &Message::Close, out)
            }
            _ => None,
        }
    }

    fn depart(&mut self, now: Time, carries: Carried) -> Option<Parcel> {
        let parcel = self.courier.depart(now, self.destination).departs()?;
        let place = parcel.packet.id.index as usize;
        if self.carried.len() <= place {
            self.carried.resize(place + 1, Carried::Other);
        }
        self.carried[place] = carries;
        Some(parcel)
    }

    /// The same message over several paths.
    fn copy(&mut self, now: Time, carries: Carried) -> Option<Parcel> {
        if now >= self.repeat_at {
            self.copies_left = copies(self.courier.disjoint_paths(), self.courier.relays(), self.attempts);
            self.attempts += 1;
            self.repeat_at = now + REPEAT;
        }
        let left = self.copies_left.checked_sub(1)?;
        let parcel = self.depart(now, carries)?;
        self.copies_left = left;
        Some(parcel)
    }

    /// Once all blocks have left: has the receiver got and checked them?
    fn ask(&mut self, now: Time, carries: Carried, out: &mut OwnedDatagram) -> Option<SocketAddr> {
        if now < self.ask_at {
            return None;
        }
        let parcel = self.depart(now, carries)?;
        let round_trip = self.courier.smoothed_rtt().unwrap_or(REPEAT);
        self.ask_at = now + self.question.max(round_trip / QUESTIONS_A_ROUND_TRIP);
        self.write(&parcel, &Message::Finish, out)
    }

    /// The next job, to be done elsewhere; [`FileSender::on_done`] gets the result.
    pub fn next_job(&mut self) -> Option<FileJob> {
        let session = self.session.as_ref()?.id();
        let task = match self.recheck.take() {
            Some(check) => FileTask::CheckSource(check),
            None => FileTask::Read(self.file.next_job()?),
        };
        Some(FileJob { session, task })
    }

    /// A part of the file was read, or could not be.
    pub fn on_done(&mut self, now: Time, done: FileDone) {
        let (offset, bytes) = match done.result {
            FileResult::Read(offset, bytes) => (offset, bytes),
            FileResult::SourceChecked(checked) => return self.on_rechecked(now, checked),
            _ => return,
        };
        match self.file.on_read(offset, bytes) {
            Err(error) if self.phase == Phase::Sending => self.fail(TransferError::Unreadable(error)),
            // It is read again, and that it can't be is said, if it is wanted.
            Err(_) => self.early_left = 0,
            Ok(()) => {}
        }
        // While nothing could leave, nothing could be heard: that does not count as silence.
        let is_held_up = self.is_held_up();
        if let Some(since) = self.awaits_file.take().filter(|_| is_held_up) {
            self.heard = (self.heard + now.since(since)).min(now);
            self.progressed = self.progressed.map(|last| (last + now.since(since)).min(now));
        }
    }

    fn write(&mut self, parcel: &Parcel, message: &Message<'_>, out: &mut OwnedDatagram) -> Option<SocketAddr> {
        Some(write(self.session.as_mut()?, &mut self.message, parcel, message, out))
    }

    /// An answer has come home.
    pub fn on_answer(&mut self, now: Time, datagram: &OwnedDatagram) {
        let packet = &datagram.packet;
        match datagram.what {
            Type::HelloReply => self.on_hello_reply(now, packet, &datagram.body),
            // A hello's proof travels in the clear: only a hello's reply, which is sealed, answers it.
            _ if self.carried(packet.id) == Some(Carried::Hello) => self.courier.count_unreadable(),
            Type::Ack => {
                self.on_proof(now, packet, packet.nonce);
            }
            Type::Report => self.on_report(now, packet, &datagram.body),
            Type::Hello | Type::Data => self.courier.count_unreadable(),
        }
    }

    /// What the last packet at this place of the table carried.
    fn carried(&self, id: PacketId) -> Option<Carried> {
        self.carried.get(id.index as usize).copied()
    }

    fn on_report(&mut self, now: Time, packet: &Packet<SocketAddr>, body: &[u8]) {
        let mut opened = std::mem::take(&mut self.message);
        let open = self.session.as_mut().is_some_and(|session| session.open(body, &mut opened).is_ok());
        let report = if open { Report::decode(&opened).ok() } else { None };
        match report {
            Some(report) => {
                // What it says is true even if its packet is forgotten: only the
                // receiver can have sealed it.
                let answers = self.on_proof(now, packet, report.proof);
                self.heard = now;
                self.act_on(now, report, answers);
            }
            None => self.courier.count_unreadable(),
        }
        self.message = opened;
    }

    fn act_on(&mut self, now: Time, report: Report<'_>, answers: Option<Carried>) {
        let answers_finish = answers == Some(Carried::Finish);
        let answers_block = matches!(answers, Some(Carried::Block(_)));
        if let Phase::Over | Phase::Greeting = self.phase {
            return;
        }
        if let Some(error) = TransferError::reported(&report) {
            return self.fail(error);
        }
        match (report.code, self.phase) {
            (Code::Complete, _) => {
                self.arrived.fill(u64::MAX);
                self.missing = 0;
                let took = now.since(self.started);
                let name = printable(report.text);
                let (length, resumed) = (self.offer.length, self.resumed_bytes());
                self.outcome = Some(Ok(Transferred { name, length, resumed, took }));
                self.goodbyes_left = GOODBYE_COPIES;
                self.phase = Phase::Over;
            }
            (Code::Waiting, Phase::Offering) => {
                self.attempts = 0;
                self.place = report.text.parse().ok();
                if self.place.is_some() {
                    self.early_left = 0;
                }
                self.waits_since.get_or_insert(now);
                if report.text.is_empty() {
                    self.repeat_at = self.repeat_at.min(now + SOON);
                }
            }
            // The offer's answer tells what was there from before; a block's does not.
            (Code::Checking, Phase::Offering) if answers_block => {}
            (Code::Accepted | Code::Incomplete | Code::Checking, Phase::Offering) => {
                self.place = None;
                self.resume(report.text);
                let waited = self.waits_since.take().map_or(Duration::ZERO, |since| now.since(since));
                self.progressed = Some(self.progressed.map_or(now, |last| last + waited));
                self.enter(now, Phase::Sending);
                self.finish_if_all_arrived(now);
            }
            // What it had from before did not have the right hash; or this file has it no longer.
            (Code::Accepted | Code::Incomplete, Phase::Finishing)
                if answers_finish && self.resumed > 0 && !self.is_anew =>
            {
                self.question = (self.question * 2).min(REPEAT);
                self.recheck_file();
            }
            (Code::Checking, Phase::Sending) if answers_block || answers == Some(Carried::Question) => {
                self.arrived.fill(u64::MAX);
                self.missing = 0;
                self.finish_if_all_arrived(now);
            }
            (Code::Checking, Phase::Finishing) if answers_finish => self.question = (self.question * 2).min(REPEAT),
            (Code::Accepted | Code::Incomplete, Phase::Finishing) if answers_finish => {
                self.fail(TransferError::Failed("blocks that it had confirmed are missing there".into()));
            }
            _ => {}
        }
    }

    fn enter(&mut self, now: Time, phase: Phase) {
        self.phase = phase;
        self.repeat_at = now;
        self.copies_left = 0;
        self.attempts = 0;
        self.heard = now;
    }

    /// An answer proves that packet `id` has arrived: what it carried, the first time.
    fn on_proof(&mut self, now: Time, answer: &Packet<SocketAddr>, proof: u64) -> Option<Carried> {
        let id = answer.id;
        let verdict = self.courier.on_answer(now, id, proof, &answer.telemetry);
        if !matches!(verdict, AckVerdict::Acked { .. } | AckVerdict::Late { .. }) {
            return None;
        }
        self.heard = now;
        let carried = self.carried[id.index as usize];
        if let Carried::Block(index) = carried
            && !self.has_arrived(index)
        {
            self.arrived[index as usize / 64] |= 1 << (index % 64);
            self.missing -= 1;
            self.progressed = Some(now);
            self.finish_if_all_arrived(now);
        }
        Some(carried)
    }

    /// Time has passed: lost blocks will leave again.
    pub fn on_timer(&mut self, now: Time) {
        for &id in self.courier.on_timer(now) {
            if let Carried::Block(index) = self.carried[id.index as usize] {
                self.resend.push_back(index);
            }
        }
        if self.outcome.is_some() || self.is_held_up() {
            return;
        }
        if self.is_black_hole(now) {
            self.fail(TransferError::BlackHole);
        } else if now.since(self.heard) >= PATIENCE {
            self.fail(TransferError::NoAnswer(self.interrupted.unwrap_or(self.phase)));
        } else if self.may_greet_anew() && now.since(self.heard) >= RENEWAL {
            self.greet_anew(now);
        }
    }

    /// Whether nothing can leave before more of the file was read. An offer leaves all the same.
    fn is_held_up(&self) -> bool {
        self.phase == Phase::Sending && self.awaits_file.is_some()
    }

    /// Whether nothing new has arrived for long, though the receiver has answered what is short meanwhile:
    /// an answer to the last block that has arrived comes no later than that.
    fn is_black_hole(&self, now: Time) -> bool {
        self.phase == Phase::Sending
            && self.progressed.is_some_and(|last| now.since(last) >= PATIENCE && self.heard.since(last) >= RENEWAL)
    }

    /// When to call `on_timer` and `poll` again if nothing else happens.
    pub fn timer(&self, now: Time) -> Time {
        let may_leave = self.courier.wake(now).time(now);
        let wants_to_send = match self.phase {
            Phase::Greeting | Phase::Offering if self.copies_left > 0 => may_leave,
            Phase::Offering if self.may_send_early() => may_leave.max(self.early_from.min(self.repeat_at)),
            Phase::Greeting | Phase::Offering => may_leave.max(self.repeat_at),
            Phase::Finishing => may_leave.max(self.ask_at),
            Phase::Sending if self.awaits_file.is_some() => Time::MAX,
            Phase::Sending if self.awaits_last_acks() => may_leave.max(self.resend_at.min(self.ask_at)),
            Phase::Sending => may_leave,
            Phase::Over if self.goodbyes_left > 0 => may_leave,
            Phase::Over => return Time::MAX,
        };
        // A packet that has no room waits for the outcomes of others, and a missed deadline is one.
        let deadline = wants_to_send.min(self.courier.next_deadline());
        if self.outcome.is_some() || self.is_held_up() {
            deadline
        } else {
            let silence = self.heard + if self.may_greet_anew() { RENEWAL } else { PATIENCE };
            let standstill = match self.progressed.filter(|_| self.phase == Phase::Sending) {
                // A file that was waited for may have come late.
                Some(last) if self.heard.since(last) >= RENEWAL => (last + PATIENCE).max(self.heard),
                _ => Time::MAX,
            };
            deadline.min(silence).min(standstill)
        }
    }

    fn fail(&mut self, error: TransferError) {
        // Whoever takes leave gives up the file. A receiver that is not heard keeps what it has: the
        // same file may be offered again.
        let takes_leave =
            self.session.is_some() && !matches!(error, TransferError::NoAnswer(_) | TransferError::BlackHole);
        self.outcome = Some(Err(error));
        self.awaits_file = None;
        self.goodbyes_left = if takes_leave { GOODBYE_COPIES } else { 0 };
        self.phase = Phase::Over;
    }

    /// Gives up; the receiver is told.
    pub fn cancel(&mut self) {
        if self.outcome.is_none() {
            self.fail(TransferError::Cancelled);
        }
    }

    /// How it ended, once it has; and nothing more shall leave.
    pub fn outcome(&self) -> Option<&Result<Transferred, TransferError>> {
        self.outcome.as_ref()
    }

    /// Whether there is nothing left to say: the outcome is known, and the receiver was told of it.
    pub fn is_over(&self) -> bool {
        self.outcome.is_some() && self.goodbyes_left == 0
    }

    /// How it ended.
    pub fn into_outcome(self) -> Option<Result<Transferred, TransferError>> {
        self.outcome
    }

    /// Bytes of the file that the receiver said to have from a transfer before.
    pub fn resumed_bytes(&self) -> u64 {
        (self.resumed * u64::from(self.offer.block)).min(self.offer.length)
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Its place in the receiver's queue, from 1 on, if it waits there for its turn.
    pub fn place(&self) -> Option<u32> {
        self.place.filter(|_| self.phase == Phase::Offering)
    }

    /// What it sends.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Bytes of the file whose arrival is proven.
    pub fn arrived_bytes(&self) -> u64 {
        let blocks = self.offer.blocks() - self.missing;
        (blocks * u64::from(self.offer.block)).min(self.offer.length)
    }

    /// Bytes of the file that are kept in memory, at most [`MOST_KEPT`](super::MOST_KEPT).
    pub fn kept(&self) -> usize {
        self.file.kept()
    }

    /// The path sender and its counters, to look at.
    pub fn courier(&self) -> &Courier {
        &self.courier
    }
}

/// Seals `message` into `out`, and says to whom it goes.
fn write(
    session: &mut Session,
    plain: &mut Vec<u8>,
    parcel: &Parcel,
    message: &Message<'_>,
    out: &mut OwnedDatagram,
) -> SocketAddr {
    message.encode(parcel.proof, plain);
    out.what = Type::Data;
    out.packet = parcel.packet;
    out.body.clear();
    session.seal_data(plain, &mut out.body);
    parcel.to()
}

//! The client's end of a session: it opens streams, sends over paths that its driver chooses, and grants the
//! blocks over which it is answered.

mod opening;
mod silence;

use std::collections::VecDeque;

use anabranch_control::time::{Duration, Time};

use self::opening::{Attempts, OPENING_BLOCKS, OPENING_TIMEOUT};
pub use self::silence::GONE;
use super::blocks::{BlockError, Grants, MAX_POOL};
use super::cell::{BLOCKS_HEADER, Frame, PLAIN_HEADER, Reason, StreamId, Target};
use super::envelope::{CellFormat, Envelope};
use super::handshake::{Entropy, ServiceKeys};
use super::limits::Violation;
use super::link::{End, Link, Outcome, Settled};
use super::receiver::{report_delay, report_wait};
use super::sender::{Carried, Delivered};
use super::steps::{Shape, Watch};
use super::streams::{ReadOutcome, StreamError, StreamEvent, Streams};
use super::total_rate::TotalRate;

/// After so long without streams too; sooner than the service would forget it. A session whose rates pad ends only when
/// it is closed.
pub const IDLE: Duration = Duration::from_millis(120_000);

/// The least blocks that are out, where streams are.
const LEAST_BLOCKS: usize = 32;

/// Bytes of a cell that blocks leave for reports.
const REPORT_ROOM: usize = 120;

/// Bytes that a pace takes at most, or that earlier blocks are void.
const PACE_ROOM: usize = 16;

/// Events about cells and blocks that wait to be fetched at most; of more, the oldest go.
const MAX_EVENTS: usize = 1 << 16;

/// How the total rates of both directions are decided.
#[derive(Clone, Debug)]
pub struct Rates {
    /// The client's own cells.
    pub forward: Box<dyn TotalRate>,
    /// The service's cells, over the client's blocks.
    pub backward: Box<dyn TotalRate>,
}

impl Rates {
    /// Where this many packets a second leave in all, as cover: the client's cells go by its ticks, at most that many,
    /// and the service's come at that rate, always, since a rate that follows what it has to say would tell it.
    pub fn covered(packets_per_s: u32) -> Rates {
        use super::total_rate::{Constant, Stepped};
        Rates { forward: Box::new(Stepped::new(packets_per_s)), backward: Box::new(Constant::new(packets_per_s)) }
    }
}

impl Default for Rates {
    fn default() -> Rates {
        use super::total_rate::Stepped;
        Rates { forward: Box::new(Stepped::default()), backward: Box::new(Stepped::default()) }
    }
}

/// The path that the next cell takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via {
    /// Its name, which comes back with the outcome.
    pub tag: u64,
    /// After so long without an answer a cell over it is lost: (4.6). The time for which the other end
    /// gathers reports is added here.
    pub timeout: Duration,
    /// Whether one of its relays is believed to be gone: that a cell over it is lost says nothing of how many may leave.
    pub is_trial: bool,
}

/// What a driver is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The service has answered.
    Connected,
    /// Of a stream.
    Stream(StreamEvent),
    /// A cell came at the other end: evidence of its path.
    Delivered(Delivered),
    /// A cell is lost: evidence of its path.
    Lost {
        /// Its path.
        via: u64,
    },
    /// A block brought a cell: evidence of its path.
    BlockReturned {
        /// The block.
        serial: u64,
        /// What the cell took longer than the fastest lately.
        delay: Duration,
    },
    /// A block was used and its cell did not come: evidence of its path.
    BlockLost {
        /// The block.
        serial: u64,
    },
    /// The cell that a block was in did not come in time: it may not have reached the service.
    BlockUndelivered {
        /// The block.
        serial: u64,
    },
    /// The session is over.
    Ended(End),
}

/// A client's end.
#[derive(Clone, Debug)]
pub struct Client {
    link: Link,
    keys: ServiceKeys,
    entropy: Entropy,
    attempts: Attempts,
    shape: Shape,
    watch: Watch,
    grants: Grants,
    /// The number of the first cell whose blocks are not void, while the service is to be notified.
    void: Option<u64>,
    void_due: bool,
    /// When the service was last asked whether it is there, and first since a cell came.
    probed: Time,
    first_probed: Time,
    /// Questions since a cell came, and those in a row between which streams said nothing.
    probes: u32,
    quiet: u32,
    /// When streams were last there, and since when there are some.
    idle_since: Time,
    busy_since: Time,
    events: VecDeque<ClientEvent>,
    has_reported_end: bool,
}

impl Client {
    /// Begins a session with the service of these keys.
    pub fn new(now: Time, format: CellFormat, keys: ServiceKeys, rates: Rates, entropy: Entropy) -> Client {
        Client {
            link: Link::new(now, format, true, None),
            keys,
            entropy,
            attempts: Attempts::default(),
            shape: Shape::new(rates.forward),
            watch: Watch::new(rates.backward),
            grants: Grants::new(OPENING_BLOCKS),
            void: None,
            void_due: false,
            probed: now,
            first_probed: now,
            probes: 0,
            quiet: 0,
            idle_since: now,
            busy_since: now,
            events: VecDeque::new(),
            has_reported_end: false,
        }
    }

    /// Opens a stream to `target`, which may be written at once; nothing when there are too many, or the session
    /// is over.
    pub fn open_stream(&mut self, now: Time, target: Target) -> Option<StreamId> {
        self.begin(now)?;
        self.link.streams.open(target)
    }

    /// Opens a flow of datagrams to `target`, which may be sent to at once; nothing when there are too many, or the session
    /// is over. It ends when it is reset.
    pub fn open_flow(&mut self, now: Time, target: Target) -> Option<StreamId> {
        self.begin(now)?;
        self.link.streams.open_flow(target)
    }

    fn begin(&mut self, now: Time) -> Option<()> {
        if self.link.end.is_some() {
            return None;
        }
        if !self.is_busy() {
            (self.busy_since, self.probes, self.quiet) = (now, 0, 0);
        }
        Some(())
    }

    /// Sends a datagram, once: it comes whole or not at all. False if it is dropped, since too many wait.
    ///
    /// # Errors
    ///
    /// When the flow takes none, or not one so long.
    pub fn send_datagram(&mut self, flow: StreamId, bytes: &[u8]) -> Result<bool, StreamError> {
        self.link.streams.send_datagram(flow, bytes)
    }

    /// Takes of `bytes` what fits; how many those are. After less than all, [`StreamEvent::Writable`] tells when
    /// there is room.
    ///
    /// # Errors
    ///
    /// When the stream takes no more.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        self.link.streams.write(stream, bytes)
    }

    /// Nothing more will be written.
    pub fn finish(&mut self, stream: StreamId) {
        self.link.streams.finish(stream);
    }

    /// Reads into `out`.
    ///
    /// # Errors
    ///
    /// When the stream is not there any more.
    pub fn read(&mut self, stream: StreamId, out: &mut [u8]) -> Result<ReadOutcome, StreamError> {
        self.link.streams.read(stream, out)
    }

    /// Ends both directions of a stream at once.
    pub fn reset(&mut self, stream: StreamId, reason: Reason) {
        self.link.streams.reset(stream, reason);
    }

    /// The session shall end; some more cells say so.
    pub fn close(&mut self) {
        self.link.finish(End::Closed, true);
    }

    /// How many blocks should be made and given now.
    pub fn blocks_wanted(&self) -> usize {
        if self.link.end.is_some() {
            0
        } else if self.link.keys.is_none() {
            let is_asked = self.attempts.openings.is_empty() || self.attempts.sent >= self.attempts.blocks;
            if is_asked { OPENING_BLOCKS.saturating_sub(self.grants.fresh()) } else { 0 }
        } else if self.is_busy() {
            self.grants.wanted()
        } else {
            0
        }
    }

    /// Whether cells are to be expected: there are streams, or cells leave anyway.
    fn is_busy(&self) -> bool {
        !self.link.streams.is_empty() || self.shape.rate().pads() || self.watch.rate().pads()
    }

    /// A block of a path whose cells come up to `spread` later than those of the fastest (`L + α V` of the delays
    /// that [`ClientEvent::BlockReturned`] tells), `is_trial` if one of its relays is believed to be gone; the serial by
    /// which it is known from now on.
    ///
    /// # Errors
    ///
    /// When it is too long, or not as long as the others.
    pub fn give_block(&mut self, block: &[u8], spread: Duration, is_trial: bool) -> Result<u64, BlockError> {
        let most = self.most_block();
        if block.len() > most { Err(BlockError::Length) } else { self.grants.put(block, spread, is_trial) }
    }

    /// Bytes of a block at most.
    pub fn most_block(&self) -> usize {
        let format = self.link.format();
        (format.payload() - BLOCKS_HEADER).min(format.plain() - PLAIN_HEADER - BLOCKS_HEADER - REPORT_ROOM)
    }

    /// Whether a cell should leave now: [`poll_cell`](Client::poll_cell) will give one.
    pub fn wants_cell(&self, now: Time) -> bool {
        if self.link.end.is_some() {
            return self.link.closes_due > 0;
        }
        if self.link.keys.is_none() {
            return self.attempts.halves > 0 || (self.begins_opening() && self.grants.fresh() > 0);
        }
        self.link.flight.has_room() && self.shape.release() <= now && self.has_something(now)
    }

    fn has_something(&self, now: Time) -> bool {
        self.link.wants(now) || self.watch.is_due || self.void_due || self.grants_blocks() || self.shape.rate().pads()
    }

    /// Whether blocks are worth a cell of their own.
    fn grants_blocks(&self) -> bool {
        let fresh = self.grants.fresh();
        fresh > 0 && (fresh >= self.blocks_a_cell() || self.grants.outstanding() < self.grants.target() / 2)
    }

    fn blocks_a_cell(&self) -> usize {
        let room = self.link.format().plain() - PLAIN_HEADER - BLOCKS_HEADER - REPORT_ROOM;
        self.grants.size().map_or(1, |size| (room / size).clamp(1, 255))
    }

    /// Replaces what is in `out` by the next cell, which leaves over `via`; false when there is none. A cell of an open
    /// session has an outcome later.
    pub fn poll_cell(&mut self, now: Time, via: Via, out: &mut Vec<u8>) -> bool {
        if !self.wants_cell(now) {
            return false;
        }
        if self.link.keys.is_none() {
            return self.write_opening(now, via.tag, out);
        }
        let wait = self.link.wait(now, via.timeout, report_wait(self.link.round_trip));
        let most = self.blocks_a_cell();
        let Client { link, grants, watch, shape, void, void_due, .. } = self;
        let written = link.write(now, via.tag, wait, out, |mut room, has_data, plain, carried| {
            if watch.is_due && room >= PACE_ROOM {
                let frame = Frame::Pace {
                    turn: watch.turn(),
                    cells_per_s: watch.rate().cells_per_s(),
                    pads: watch.rate().pads(),
                };
                let before = plain.len();
                frame.encode(plain);
                room = room.saturating_sub(plain.len() - before);
                carried.push(Carried::Pace);
                watch.is_due = false;
            }
            if let Some(before) = void.filter(|_| *void_due && room >= PACE_ROOM) {
                let length = plain.len();
                Frame::Void { before }.encode(plain);
                room = room.saturating_sub(plain.len() - length);
                carried.push(Carried::Void);
                *void_due = false;
            }
            let Some(size) = grants.size().filter(|_| grants.fresh() > 0) else { return };
            // Data has its half of the cell.
            let share = if has_data { (most / 2).max(1) } else { most };
            let count = share.min(room.saturating_sub(BLOCKS_HEADER) / size).min(grants.fresh());
            if count > 0 {
                let mut bytes = Vec::with_capacity(count * size);
                let (first, count) = grants.take(now, count, &mut bytes);
                Frame::Blocks { size, bytes: &bytes }.encode(plain);
                carried.push(Carried::Blocks { first, count });
            }
        });
        if let Some((number, _)) = written.filter(|_| via.is_trial) {
            shape.on_trial(now, number);
        } else if let Some((number, asks)) = written {
            shape.on_sent(now, number, asks, wait.backed_off, link.round_trip);
        }
        written.is_some()
    }

    /// A cell came, by the block of this serial.
    pub fn on_cell(&mut self, now: Time, cell: &[u8], serial: u64) {
        let format = *self.link.format();
        match Envelope::read(&format, cell) {
            Ok(Envelope::Answer { name, bytes }) if self.link.keys.is_none() && self.link.end.is_none() => {
                let sealing = self.attempts.openings.iter().find(|opening| opening.name() == name);
                if let Some(sealing) = sealing.and_then(|opening| opening.complete(bytes).ok()) {
                    self.link.keys = Some((name, sealing));
                    self.link.heard = now;
                    let round_trip = self.attempts.round_trip(now);
                    if let Some(time) = round_trip {
                        self.link.sample(time);
                    }
                    self.shape.on_answered(round_trip);
                    self.watch.on_answered(round_trip);
                    self.attempts = Attempts::default();
                    self.push(ClientEvent::Connected);
                    self.set_blocks();
                }
            }
            Ok(Envelope::Sealed { name, number, bytes }) if self.link.keys.as_ref().is_some_and(|k| k.0 == name) => {
                let heard = self.link.on_sealed(now, number, bytes, |_| Err(Violation::Role));
                if let Some((number, left)) = heard {
                    self.probes = 0;
                    self.watch.on_cell(now, number, left, self.link.round_trip);
                    let delay = self.grants.on_returned(now, serial, left);
                    self.push(ClientEvent::BlockReturned { serial, delay });
                }
                self.settle(now);
            }
            _ => {}
        }
    }

    /// What became of cells, to whom it concerns.
    fn settle(&mut self, now: Time) {
        let mut settled = std::mem::take(&mut self.link.settled);
        for (carried, fate) in settled.drain(..) {
            match (carried, fate) {
                (Carried::Blocks { first, count }, Settled::Came(at)) => self.grants.on_delivered(first, count, at),
                (Carried::Blocks { first, count }, Settled::Lost) => {
                    for serial in self.grants.on_undelivered(first, count) {
                        self.push(ClientEvent::BlockUndelivered { serial });
                    }
                }
                (Carried::Pace, Settled::Came(at)) if !self.watch.is_due => self.watch.on_rate_received(at),
                (Carried::Pace, Settled::Lost) => self.watch.is_due = true,
                (Carried::Void, Settled::Came(_)) if !self.void_due => self.void = None,
                (Carried::Void, Settled::Lost) => self.void_due = self.void.is_some(),
                _ => {}
            }
        }
        self.link.settled = settled;
        while let Some(outcome) = self.link.outcomes.pop_front() {
            match outcome {
                Outcome::Delivered(delivered) => {
                    match delivered.is_late {
                        true => self.shape.on_late(delivered.number),
                        false => self.shape.on_outcome(delivered.number, true),
                    }
                    self.push(ClientEvent::Delivered(delivered));
                }
                Outcome::Lost { number, via } => {
                    self.shape.on_outcome(number, false);
                    self.push(ClientEvent::Lost { via });
                }
            }
        }
        self.set_blocks();
        if self.is_busy() {
            self.idle_since = now;
        }
    }

    /// As many blocks are out as the service's rate uses in two round trips and the time for which it
    /// gathers reports.
    fn set_blocks(&mut self) {
        let round_trip = self.link.round_trip;
        let time = round_trip.map_or(OPENING_TIMEOUT / 10, |time| time * 2) + report_delay(round_trip) * 2;
        let blocks = f64::from(self.watch.rate().cells_per_s()) * time.as_secs_f64();
        self.grants.set_target((blocks as usize).clamp(LEAST_BLOCKS, MAX_POOL));
    }

    fn push(&mut self, event: ClientEvent) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Time has passed.
    pub fn on_timer(&mut self, now: Time) {
        if self.link.end.is_some() {
            return;
        }
        if self.link.keys.is_none() {
            self.on_opening_timer(now);
            return;
        }
        self.link.on_timer(now);
        self.settle(now);
        self.shape.on_timer(now, self.link.flight.next());
        self.watch.on_timer(now);
        self.set_blocks();
        let Client { grants, events, watch, .. } = self;
        grants.on_timer(now, |serial, is_trial| {
            events.push_back(ClientEvent::BlockLost { serial });
            if is_trial {
                watch.on_trial_lost();
            }
        });
        if !self.is_busy() {
            if now.since(self.idle_since.max(self.link.heard)) >= IDLE {
                self.link.finish(End::Idle, true);
            }
            return;
        }
        if now >= self.silent_at() {
            self.link.finish(End::Silent, true);
        } else if now >= self.probe_at() {
            self.link.ping_due = true;
            self.quiet = self.quiet() + 1;
            if self.probes == 0 {
                self.first_probed = now;
            }
            self.probed = now;
            self.probes += 1;
            if self.probes > 1 {
                // The service may have no block left to answer with.
                self.void_blocks();
            }
        }
    }

    /// Cells of the client lead somewhere else than to what was dead.
    pub fn on_new_way(&mut self) {
        self.shape.on_new_way();
    }

    /// What blocks that are out lead to is gone: the service is to use others, and says at once that it has some.
    pub fn renew_blocks(&mut self) {
        if self.link.end.is_none() && self.link.keys.is_some() {
            self.on_new_way();
            self.watch.on_new_way();
            self.void_blocks();
            self.link.ping_due = true;
        }
    }

    /// All blocks that left are given up, on both ends; a service that went on by the oldest would first use those up.
    fn void_blocks(&mut self) {
        self.grants.write_off();
        (self.void, self.void_due) = (Some(self.link.flight.next()), true);
    }

    /// When to call [`on_timer`](Client::on_timer), or to ask for a cell again: never before `now`, if both were done
    /// at `now`.
    pub fn timer(&self, now: Time) -> Option<Time> {
        if self.link.end.is_some() {
            return None;
        }
        if self.link.keys.is_none() {
            return self.attempts.retry_at;
        }
        let can_send = self.link.flight.has_room();
        let release = self.shape.release();
        let cell = (can_send && self.has_something(now)).then_some(release);
        // A report leaves when it is due, as far as the rate lets it.
        let report = self.link.report_due().filter(|_| can_send).map(|due| due.max(release));
        let over = if self.is_busy() {
            self.probe_at().min(self.silent_at())
        } else {
            self.idle_since.max(self.link.heard) + IDLE
        };
        let timers =
            [cell, report, self.link.flight.timer(), self.shape.timer(), self.watch.timer(), self.grants.timer()];
        timers.into_iter().flatten().chain([over]).min()
    }

    /// What a driver should know next.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if let Some(event) = self.link.streams.poll_event() {
            return Some(ClientEvent::Stream(event));
        }
        let end = self.link.end.filter(|_| !self.has_reported_end)?;
        self.has_reported_end = true;
        Some(ClientEvent::Ended(end))
    }

    /// Whether the service has answered.
    pub fn is_connected(&self) -> bool {
        self.link.keys.is_some()
    }

    /// Why the session is over, if it is.
    pub fn end(&self) -> Option<End> {
        self.link.end
    }

    /// The smoothed round-trip time.
    pub fn round_trip(&self) -> Option<Duration> {
        self.link.round_trip
    }

    /// Cells a second, forward and backward.
    pub fn rates(&self) -> [u32; 2] {
        [self.shape.rate().cells_per_s(), self.watch.rate().cells_per_s()]
    }

    /// Cells whose outcome is not known, and blocks that are out.
    pub fn in_flight(&self) -> [usize; 2] {
        [self.link.flight.in_flight(), self.grants.outstanding()]
    }

    /// Its streams, to look at.
    pub fn streams(&self) -> &Streams {
        &self.link.streams
    }
}

//! The service's end of a session: an exit's, or a hidden receiver's. It answers over the client's blocks alone.

use anabranch_control::time::{Duration, Time};

use super::blocks::Pool;
use super::cell::{Frame, Reason, StreamId, decode};
use super::envelope::{CellFormat, Envelope};
use super::handshake::{ANSWER, Answered, SessionName};
use super::limits::Violation;
use super::link::{End, Link};
use super::steps::CellPacer;
use super::streams::{ReadOutcome, StreamError, StreamEvent, Streams};
use super::total_rate::{MOST_RATE, first_rate};

/// After so long without a cell the client is gone.
pub const FORGET: Duration = Duration::from_millis(300_000);

/// Answers to one opening at most: what it has blocks for.
const MAX_ANSWERS: u32 = 8;

/// What a driver is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitEvent {
    /// Of a stream.
    Stream(StreamEvent),
    /// The session is over.
    Ended(End),
}

/// What the client has said of how fast the service sends.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Later ones have higher numbers.
    turn: u32,
    cells_per_s: u32,
    /// Whether cells leave though there is nothing to say.
    pads: bool,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { turn: 0, cells_per_s: first_rate(None), pads: false }
    }
}

/// A service's end.
#[derive(Clone, Debug)]
pub struct Exit {
    link: Link,
    name: SessionName,
    pool: Pool,
    answer: [u8; ANSWER],
    /// How often it must be sent still, and was asked for.
    answers: u32,
    asked: u32,
    pacer: CellPacer,
    pace: Pace,
    has_reported_end: bool,
}

impl Exit {
    /// A session that a client has opened.
    pub fn new(now: Time, format: CellFormat, answered: Answered) -> Exit {
        let Answered { name, sealing, answer, payload } = answered;
        let mut exit = Exit {
            link: Link::new(now, format, false, Some((name, sealing))),
            name,
            pool: Pool::default(),
            answer,
            answers: 1,
            asked: 1,
            pacer: CellPacer::default(),
            pace: Pace::default(),
            has_reported_end: false,
        };
        // The payload is frames, as a cell's plain text is after its instant.
        let plain = [&0u64.to_be_bytes()[..], &payload].concat();
        let frames = decode(&plain).map(|(_, frames)| frames);
        for frame in frames.into_iter().flatten() {
            match frame {
                Ok(frame @ Frame::Blocks { .. }) => _ = on_side(now, 0, &frame, &mut exit.pool, &mut exit.pace),
                _ => exit.link.finish(End::Broken(Violation::Format), false),
            }
        }
        exit
    }

    /// The session's name.
    pub fn name(&self) -> SessionName {
        self.name
    }

    /// The opening came once more: the answer may be lost.
    pub fn on_opened_again(&mut self) {
        if self.asked < MAX_ANSWERS {
            self.asked += 1;
            self.answers += 1;
        }
    }

    /// A sealed cell of this session came.
    pub fn on_cell(&mut self, now: Time, number: u64, sealed: &[u8]) {
        let Exit { link, pool, pace, .. } = self;
        link.on_sealed(now, number, sealed, |frame| on_side(now, number, &frame, pool, pace));
        self.forget_outcomes();
    }

    /// Nobody here chooses paths.
    fn forget_outcomes(&mut self) {
        self.link.outcomes.clear();
        self.link.settled.clear();
    }

    /// The stream leads where it shall.
    pub fn accept(&mut self, stream: StreamId) {
        self.link.streams.accept(stream);
    }

    /// Takes of `bytes` what fits; how many those are.
    ///
    /// # Errors
    ///
    /// When the stream takes no more.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        self.link.streams.write(stream, bytes)
    }

    /// Sends a datagram, once: it comes whole or not at all. False if it is dropped, since too many wait.
    ///
    /// # Errors
    ///
    /// When the flow takes none, or not one so long.
    pub fn send_datagram(&mut self, flow: StreamId, bytes: &[u8]) -> Result<bool, StreamError> {
        self.link.streams.send_datagram(flow, bytes)
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

    /// Ends both directions of a stream at once, or refuses it.
    pub fn reset(&mut self, stream: StreamId, reason: Reason) {
        self.link.streams.reset(stream, reason);
    }

    /// The session shall end; some more cells say so, as far as there are blocks.
    pub fn close(&mut self) {
        self.link.finish(End::Closed, true);
    }

    /// The service has no memory for it: it ends, and all that its streams hold goes.
    pub(super) fn shed(&mut self) {
        self.close();
        self.link.streams = Streams::new(false);
    }

    /// When a cell came last.
    pub(super) fn heard(&self) -> Time {
        self.link.heard
    }

    /// Whether it is open, and has no streams.
    pub(super) fn is_unused(&self) -> bool {
        self.link.end.is_none() && self.link.streams.is_empty()
    }

    /// Whether a cell should leave now: [`poll_cell`](Exit::poll_cell) will give one.
    pub fn wants_cell(&self, now: Time) -> bool {
        if self.pool.is_empty() {
            return false;
        }
        if self.link.end.is_some() {
            return self.link.closes_due > 0;
        }
        self.answers > 0
            || (self.link.flight.has_room() && self.pacer.release() <= now && (self.pace.pads || self.link.wants(now)))
    }

    /// Replaces what is in `out` by the next cell; the block over which it leaves, nothing when there is no cell.
    pub fn poll_cell(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Box<[u8]>> {
        if !self.wants_cell(now) {
            return None;
        }
        let block = self.pool.take(now)?;
        if self.answers > 0 && self.link.end.is_none() {
            self.answers -= 1;
            Envelope::write_answer(self.link.format(), self.name, &self.answer, out);
            return Some(block);
        }
        let wait = self.link.any_wait(now);
        self.link.write(now, 0, wait, out, |_, _, _, _| {})?;
        self.pacer.on_sent(now, self.pace.cells_per_s);
        Some(block)
    }

    /// Time has passed.
    pub fn on_timer(&mut self, now: Time) {
        if self.link.end.is_some() {
            return;
        }
        self.pool.expire(now);
        self.link.on_timer(now);
        self.forget_outcomes();
        if now.since(self.link.heard) >= FORGET {
            self.link.finish(End::Silent, false);
        }
    }

    /// When to call [`on_timer`](Exit::on_timer), or to ask for a cell again: never before `now`, if both were done
    /// at `now`.
    pub fn timer(&self, now: Time) -> Option<Time> {
        if self.link.end.is_some() {
            return None;
        }
        let can_send = !self.pool.is_empty() && self.link.flight.has_room();
        let release = self.pacer.release();
        let cell = (can_send && (self.pace.pads || self.link.wants(now))).then_some(release);
        let report = self.link.report_due().filter(|_| can_send).map(|due| due.max(release));
        let timers = [cell, report, self.link.flight.timer(), Some(self.link.heard + FORGET)];
        timers.into_iter().flatten().min()
    }

    /// What a driver should know next.
    pub fn poll_event(&mut self) -> Option<ExitEvent> {
        if let Some(event) = self.link.streams.poll_event() {
            return Some(ExitEvent::Stream(event));
        }
        let end = self.link.end.filter(|_| !self.has_reported_end)?;
        self.has_reported_end = true;
        Some(ExitEvent::Ended(end))
    }

    /// Why the session is over, if it is.
    pub fn end(&self) -> Option<End> {
        self.link.end
    }

    /// Whether nothing is left to be done or said.
    pub fn is_done(&self) -> bool {
        self.link.end.is_some() && (self.link.closes_due == 0 || self.pool.is_empty())
    }

    /// Blocks that it holds.
    pub fn blocks(&self) -> usize {
        self.pool.len()
    }

    /// Bytes of memory, about: streams and blocks.
    pub fn memory(&self) -> usize {
        self.link.streams.memory() + self.pool.bytes()
    }

    /// Its streams, to look at.
    pub fn streams(&self) -> &Streams {
        &self.link.streams
    }
}

/// A frame for this end alone came in cell `number`.
fn on_side(now: Time, number: u64, frame: &Frame<'_>, pool: &mut Pool, pace: &mut Pace) -> Result<(), Violation> {
    match *frame {
        Frame::Blocks { size, bytes } => bytes.chunks_exact(size).for_each(|block| pool.put(now, number, block)),
        Frame::Pace { turn, cells_per_s, pads } => {
            // An older one that was overtaken is none; numbers may wrap.
            if turn.wrapping_sub(pace.turn) as i32 > 0 {
                *pace = Pace { turn, cells_per_s: cells_per_s.min(MOST_RATE), pads };
            }
        }
        // It speaks of cells that left before it.
        Frame::Void { before } if before <= number => pool.void(before),
        _ => return Err(Violation::Role),
    }
    Ok(())
}

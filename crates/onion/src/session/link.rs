//! What both ends of a session do alike: seal and open cells, report what came, and hold streams.

use std::collections::VecDeque;

use anabranch_control::time::{Duration, Time};

use super::cell::{Frame, PLAIN_HEADER, decode};
use super::delays::RelayDelays;
use super::envelope::{CellFormat, Envelope};
use super::handshake::{Sealing, SessionName};
use super::limits::Violation;
use super::receiver::{Received, report_delay};
use super::sender::{Carried, Delivered, Flight, Wait};
use super::streams::Streams;

/// No honest end gets so far: sums of numbers have room.
const MAX_NUMBER: u64 = 1 << 62;

/// So many cells say that a session is over, each over another path: nobody is there to send one again. Whoever hears of
/// none goes by silence, for a minute and more.
const CLOSES: u8 = 3;

/// No timeout grows beyond this for want of ACKs.
const LONGEST_BACKOFF: Duration = Duration::from_millis(30_000);

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// This end has closed it.
    Closed,
    /// The other end has.
    ClosedByPeer,
    /// Nothing has come for too long.
    Silent,
    /// It had no streams for too long.
    Idle,
    /// The handshake was not answered.
    Unanswered,
    /// The other end breaks the rules.
    Broken(Violation),
}

/// What became of something that a cell carried, for whoever is not concerned with streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It came, at this instant in the other end's clock.
    Came(Time),
    Lost,
}

/// The outcome of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Delivered(Delivered),
    Lost { number: u64, via: u64 },
}

/// One end of a session, the client's or the service's.
#[derive(Clone, Debug)]
pub(super) struct Link {
    format: CellFormat,
    pub keys: Option<(SessionName, Sealing)>,
    pub flight: Flight,
    received: Received,
    pub streams: Streams,
    plain: Vec<u8>,
    pub heard: Time,
    /// When streams last said something to each other, either way.
    pub used: Time,
    /// Since when this end's streams have said something and no cell has come.
    pub waits_since: Option<Time>,
    /// What all paths together take; of use where they are not known apart.
    pub delays: RelayDelays,
    /// Since when cells are lost and none has come.
    unheard_since: Option<Time>,
    pub round_trip: Option<Duration>,
    pub outcomes: VecDeque<Outcome>,
    pub settled: Vec<(Carried, Settled)>,
    pub ping_due: bool,
    pub end: Option<End>,
    /// Cells that are still to notify the other end that it is over.
    pub closes_due: u8,
}

impl Link {
    pub fn new(now: Time, format: CellFormat, opens: bool, keys: Option<(SessionName, Sealing)>) -> Link {
        Link {
            format,
            keys,
            flight: Flight::default(),
            received: Received::default(),
            streams: Streams::new(opens),
            plain: Vec::new(),
            heard: now,
            used: now,
            waits_since: None,
            delays: RelayDelays::default(),
            unheard_since: None,
            round_trip: None,
            outcomes: VecDeque::new(),
            settled: Vec::new(),
            ping_due: false,
            end: None,
            closes_due: 0,
        }
    }

    pub fn format(&self) -> &CellFormat {
        &self.format
    }

    /// The session is over; the first reason counts.
    pub fn finish(&mut self, end: End, notifies_peer: bool) {
        if self.end.is_none() {
            self.end = Some(end);
            self.closes_due = if notifies_peer && self.keys.is_some() { CLOSES } else { 0 };
        }
    }

    /// Whether a cell should leave now for what both ends have in common.
    pub fn wants(&self, now: Time) -> bool {
        self.ping_due || self.received.due().is_some_and(|due| due <= now) || self.streams.has_work()
    }

    /// When that changes by itself.
    pub fn report_due(&self) -> Option<Time> {
        self.received.due()
    }

    /// A sealed cell came. Frames that are for one of the two ends alone go to `side`, with when the cell left.
    /// Gives its number and that instant, in the other end's clock; nothing if it was none, or came before.
    pub fn on_sealed(
        &mut self,
        now: Time,
        number: u64,
        sealed: &[u8],
        mut side: impl FnMut(Frame<'_>) -> Result<(), Violation>,
    ) -> Option<(u64, Time)> {
        if self.end.is_some() || number > MAX_NUMBER || !self.received.is_new(number) {
            return None;
        }
        let (_, sealing) = self.keys.as_ref()?;
        let mut plain = std::mem::take(&mut self.plain);
        let heard = sealing.open(number, sealed, &mut plain).ok().map(|()| {
            // Only now: whoever forges a cell must not use up its number.
            self.heard = now;
            self.waits_since = None;
            self.on_plain(now, number, &plain, &mut side)
        });
        self.plain = plain;
        match heard? {
            Ok(left) => Some((number, left)),
            Err(violation) => {
                self.finish(End::Broken(violation), true);
                None
            }
        }
    }

    fn on_plain(
        &mut self,
        now: Time,
        number: u64,
        plain: &[u8],
        side: &mut impl FnMut(Frame<'_>) -> Result<(), Violation>,
    ) -> Result<Time, Violation> {
        let (left, frames) = decode(plain).map_err(|_| Violation::Format)?;
        let (mut asks, before) = (false, self.outcomes.len());
        for frame in frames {
            let frame = frame.map_err(|_| Violation::Format)?;
            asks |= frame.asks_for_ack();
            match frame {
                Frame::Ping => {}
                Frame::Acked(acked) => {
                    if !self.flight.was_sent(acked.largest) {
                        return Err(Violation::Ack);
                    }
                    // Each report says again what the last ones said.
                    for number in self.flight.open_among(&acked) {
                        self.on_ack(now, number, None, left)?;
                    }
                }
                Frame::Arrivals(arrivals) => {
                    for arrival in arrivals.iter() {
                        self.on_ack(now, arrival.number, Some(arrival.at), left)?;
                    }
                }
                Frame::Close => self.finish(End::ClosedByPeer, false),
                Frame::Blocks { .. } | Frame::Pace { .. } | Frame::Void { .. } => side(frame)?,
                frame => {
                    self.used = now;
                    self.streams.on_frame(frame)?;
                }
            }
        }
        let came = self.outcomes.range(before..).filter_map(|outcome| match outcome {
            Outcome::Delivered(delivered) => Some(delivered.elapsed),
            Outcome::Lost { .. } => None,
        });
        if let Some(quickest) = came.min() {
            self.flight.relax(now, quickest);
        }
        self.received.on_cell(now, number, asks);
        Ok(left)
    }

    fn on_ack(&mut self, now: Time, number: u64, arrived: Option<Time>, left: Time) -> Result<(), Violation> {
        if !self.flight.was_sent(number) {
            return Err(Violation::Ack);
        }
        let Link { flight, streams, settled, .. } = self;
        let delivered = flight.on_ack(now, number, arrived, left, |carried| {
            streams.on_delivered(carried);
            settled.push((*carried, Settled::Came(arrived.unwrap_or(left))));
        });
        if let Some(delivered) = delivered {
            // With what the other end waits: where nobody learns from a loss, an early guess costs one cell.
            self.delays.sample(&[], delivered.elapsed);
            if let Some(time) = delivered.round_trip {
                self.sample(time);
            }
            self.unheard_since = None;
            self.outcomes.push_back(Outcome::Delivered(delivered));
        }
        Ok(())
    }

    /// A round trip took `time`.
    pub fn sample(&mut self, time: Duration) {
        // RFC 6298 2.3: SRTT <- 7/8 SRTT + 1/8 R
        let mean = self.round_trip.map_or(time, |mean| (mean * 7 + time) / 8);
        self.round_trip = Some(mean);
        self.received.set_round_trip(mean);
    }

    /// Time has passed: what is lost leaves again.
    pub fn on_timer(&mut self, now: Time) {
        let Link { flight, streams, settled, outcomes, unheard_since, .. } = self;
        flight.on_timer(now, |number, via, all| {
            unheard_since.get_or_insert(now);
            for carried in all {
                streams.on_lost(carried);
                settled.push((*carried, Settled::Lost));
            }
            outcomes.push_back(Outcome::Lost { number, via });
        });
    }

    /// After how long a cell's ACK is late, whatever its path: what is known of that has the wait for a report in it, and one
    /// report may be lost.
    pub fn any_wait(&self, now: Time) -> Wait {
        self.wait(now, self.delays.timeout(&[]), report_delay(self.round_trip))
    }

    /// After how long the ACK of a cell over a path of this timeout is late, which the other end may keep back for `kept`.
    pub fn wait(&self, now: Time, timeout: Duration, kept: Duration) -> Wait {
        Wait { timeout: timeout + kept, backed_off: self.backed_off(now, timeout) + kept }
    }

    /// A timeout grows as long as cells are lost and none is known to have come (RFC 6298 5.5), to half of that time:
    /// where all paths have become slower than a cell is remembered, no ACK would ever teach that.
    fn backed_off(&self, now: Time, timeout: Duration) -> Duration {
        let unheard = self.unheard_since.map_or(Duration::ZERO, |since| now.since(since));
        timeout.max((unheard / 2).min(LONGEST_BACKOFF))
    }

    /// Replaces what is in `out` by the next cell; its number, and whether its outcome will be known. What one of
    /// the two ends alone has to say, `side` appends, given the room that is left.
    pub fn write(
        &mut self,
        now: Time,
        via: u64,
        wait: Wait,
        out: &mut Vec<u8>,
        side: impl FnOnce(usize, bool, &mut Vec<u8>, &mut Vec<Carried>),
    ) -> Option<(u64, bool)> {
        let (name, sealing) = self.keys.as_ref()?;
        let full = self.format.plain();
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        plain.extend_from_slice(&now.as_nanos().to_be_bytes());
        let mut carried = self.flight.list();
        let mut asks = false;
        if self.closes_due > 0 {
            Frame::Close.encode(&mut plain);
            self.closes_due -= 1;
        } else {
            // Before it is due, a report would take the room of data.
            if self.received.due().is_some_and(|due| due <= now) {
                self.received.write(full - plain.len(), &mut plain);
            }
            let before = plain.len();
            while let Some(said) = self.streams.next_control(full - plain.len(), &mut plain) {
                carried.push(said);
            }
            let control = plain.len() - before;
            side(full - plain.len(), self.streams.has_work(), &mut plain, &mut carried);
            let before = plain.len();
            self.streams.fill(full - plain.len(), full - PLAIN_HEADER, &mut plain, &mut carried);
            if control + plain.len() > before {
                self.used = now;
                self.waits_since.get_or_insert(now);
            }
            asks = !carried.is_empty();
            if std::mem::take(&mut self.ping_due) && !asks && plain.len() < full {
                Frame::Ping.encode(&mut plain);
                asks = true;
            }
            // What is left of the cell costs nobody anything.
            if self.received.has_news() && self.received.fits(full - plain.len()) {
                self.received.write(full - plain.len(), &mut plain);
            }
        }
        plain.resize(full, 0);
        let number = self.flight.next();
        Envelope::begin_sealed(*name, number, out);
        sealing.seal(number, &plain, out);
        self.plain = plain;
        self.flight.on_sent(now, via, wait, carried, asks);
        Some((number, asks))
    }
}

//! Loss recovery of TCP without RACK, as classic simulators run it: a SACK scoreboard
//! (RFC 6675), or NewReno where there are no selective ACKs (RFC 6582), and a retransmission timer
//! (RFC 6298), for one receiver.
//!
//! A segment keeps its number when it is sent again, as TCP's sequence numbers do, so that an
//! ACK does not tell a retransmission from the original. What follows from that is here too:
//! no round-trip sample from data that was sent twice (Karn's algorithm; there are no
//! timestamps), and a retransmission that is lost costs a timeout. There are no probes.
//!
//! ```text
//! open       nothing is known to be lost; segments that arrive behind a gap leave the pipe, so
//!            that new ones follow them (limited transmit, RFC 3042)
//! recovery   from DupThresh duplicate ACKs, or IsLost(HighACK + 1), until all is acknowledged
//!            that was sent before (RFC 6675, 5). A partial ACK has the first segment that it
//!            leaves sent again, whatever was SACKed behind (RFC 6582, 3.2, step 3): in a small
//!            window nothing would make it lost but a timeout. The ACK that ends the recovery
//!            finds none going on: the window grows by it as by every ACK of new data (RFC 6675,
//!            5, step A; RFC 5681, 3.1), as in ns-3 and Linux
//! timeout    from the timer's expiry until then: everything that was not SACKed is sent again,
//!            in slow start from one packet (RFC 5681, 3.1; RFC 6675, 5.1)
//! ```
//!
//! What a recovery lets leave beside what must be sent again, and what a partial ACK sends, can be had otherwise
//! ([`Reduction`](super::Reduction), [`PartialAck`]).
//!
//! SACKed data stay so across a timeout: our receivers keep what they have (RFC 6675, 5.1,
//! leaves it to the sender). Whole segments stand for the RFC's octets.
//!
//! Without selective ACKs a duplicate ACK tells that a segment has arrived, but not which:
//!
//! ```text
//! open       the third duplicate ACK begins a recovery, unless what is acknowledged was sent before
//!            the last one began or the timer expired (RFC 6582, 3.2, step 2; the careful variant)
//! recovery   each duplicate ACK, the first three included, lets a segment leave, by which RFC 6582
//!            inflates the window; here a segment counts as arrived instead, the first behind the gap
//!            that does not. FlightSize - duplicates < ssthresh is one inequality in both ways.
//!            A partial ACK has the first segment that it leaves sent again: n losses take n round
//!            trips. Only the first one sets the timer anew ("impatient", step 3 and 4), so that many
//!            losses end in a timeout. The ACK of all ends it; what counted as arrived and is not
//!            acknowledged is in flight again
//! timeout    all is sent again in order, go-back-N, as far as no ACK comes first; duplicate ACKs mean
//!            nothing, and an ACK that jumps over what had arrived is one for the window's growth
//! ```

use std::collections::VecDeque;

use anabranch_control::flow::{LossCause, Lost, Sent, TcpRecovery};
use anabranch_control::round_trip::RoundTripEstimator;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;

use super::Ack;
use super::answer::{AckError, Answer, Losses, MAX_PACKETS_IN_FLIGHT, Piece};
use super::config::{LossRecovery, PartialAck, SenderConfig, TcpOptions};
use super::reduction::{Delivery, ProportionalReduction};

/// Duplicate ACKs, or SACKed ranges behind a segment, that make it lost (RFC 6675, 2).
const DUP_THRESH: u64 = 3;

/// Duplicate ACKs that let a segment leave before they make one lost (RFC 3042).
const LIMITED_TRANSMIT: u64 = DUP_THRESH - 1;

/// The retransmission timeout before a round-trip sample (RFC 6298, 2.1).
const FIRST_TIMEOUT: Duration = Duration::SECOND;

/// No timeout is longer: RFC 6298 (2.5) allows a bound of 60 s or more.
const LONGEST_TIMEOUT: Duration = Duration::from_millis(60_000);

/// Doublings after which any timeout is the longest.
const MOST_DOUBLINGS: u32 = 6;

/// A segment that is not acknowledged cumulatively.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    /// Its last transmission.
    sent: Sent,
    offset: u64,
    length: u32,
    fin: bool,
    /// The ACK that was the first to report its arrival, counted from 1; 0 if none has.
    reported_by: u64,
    /// Transmissions in the network as far as the sender knows (RFC 6675's Pipe).
    copies: u8,
    /// Its loss is known, and it has not been sent again since.
    is_lost: bool,
    /// It was sent again at some time.
    is_retransmitted: bool,
    /// The timer has expired for it.
    has_timed_out: bool,
    /// A duplicate ACK stands for its arrival, or for that of another one.
    is_presumed: bool,
}

impl Segment {
    fn has_arrived(&self) -> bool {
        self.reported_by > 0
    }

    fn piece(&self) -> Piece {
        Piece { offset: self.offset, length: self.length, fin: self.fin }
    }

    /// Takes it out of the pipe; what was in it is added to `lost`.
    fn lose(&mut self, number: u64, cause: LossCause, lost: &mut Losses) {
        for _ in 0..core::mem::take(&mut self.copies) {
            lost.packets.push(Lost { sent: self.sent, cause });
            lost.numbers.push(number);
        }
        self.is_lost = true;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Recovery,
    Timeout,
}

/// The segments to one receiver.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    /// Data in a full segment (SMSS).
    full: u64,
    /// Whether ACKs tell what has arrived behind a gap.
    is_selective: bool,
    options: TcpOptions,
    /// From the first that is not acknowledged cumulatively on.
    segments: VecDeque<Segment>,
    /// The first one's number (HighACK + 1).
    first: u64,
    phase: Phase,
    /// Segments below were sent before the phase began (RecoveryPoint + 1).
    recovery_point: u64,
    /// Segments below need not be looked at again in this recovery (HighRxt + 1).
    high_retransmitted: u64,
    /// No second rescue before this is acknowledged (RescueRxt + 1).
    rescued: u64,
    duplicate_acks: u64,
    /// Segments from here on have not arrived.
    highest_arrived: u64,
    acks: u64,
    /// By how much the last ACK moved HighACK, as far as it counts for the window.
    advanced: Bytes,
    in_flight: u32,
    /// When the retransmission timer expires, if it runs.
    timer: Option<Time>,
    doublings: u32,
    /// What the last ACK or expiry meant for the window.
    event: TcpRecovery,
    /// A segment must leave whatever the window says.
    must_send: bool,
    /// The first segment is lost, whatever was SACKed behind it.
    first_is_lost: bool,
    /// Behind it no duplicate ACK stands for a segment.
    presumed_below: u64,
    /// A partial ACK has set the timer anew in this recovery.
    had_partial_ack: bool,
    /// Of this recovery, where the window is not reduced at once.
    reduction: Option<ProportionalReduction>,
    /// What the last ACK reported.
    delivery: Delivery,
}

impl Scoreboard {
    pub fn new(config: &SenderConfig) -> Scoreboard {
        Scoreboard {
            full: config.packet.get(),
            is_selective: config.recovery != LossRecovery::Rfc6582,
            options: config.tcp,
            segments: VecDeque::new(),
            first: 0,
            phase: Phase::Open,
            recovery_point: 0,
            high_retransmitted: 0,
            rescued: 0,
            duplicate_acks: 0,
            highest_arrived: 0,
            acks: 0,
            advanced: Bytes::ZERO,
            in_flight: 0,
            timer: None,
            doublings: 0,
            event: TcpRecovery::Open { advanced: Bytes::ZERO },
            must_send: false,
            first_is_lost: false,
            presumed_below: 0,
            had_partial_ack: false,
            reduction: None,
            delivery: Delivery { delivered: Bytes::ZERO, is_duplicate: false, is_of_retransmission: false },
        }
    }

    /// The number of the next new segment (HighData + 1).
    fn next(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// Whether another segment may be outstanding.
    pub fn has_room(&self) -> bool {
        self.segments.len() < MAX_PACKETS_IN_FLIGHT
    }

    /// Whether something is not acknowledged.
    pub fn is_outstanding(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Transmissions in the network.
    pub fn packets_in_flight(&self) -> u32 {
        self.in_flight
    }

    /// When the retransmission timer expires.
    pub fn timer(&self) -> Option<Time> {
        self.timer
    }

    /// Expiries since the last round-trip sample.
    pub fn timeouts(&self) -> u32 {
        self.doublings
    }

    /// What the last ACK or expiry meant for the window.
    pub fn event(&self) -> TcpRecovery {
        self.event
    }

    /// Whether a segment must leave now, whatever the window says.
    pub fn take_must_send(&mut self) -> bool {
        core::mem::take(&mut self.must_send)
    }

    /// `RTO = SRTT + max(G, 4 RTTVAR)`, no less than the least, doubled at each expiry (RFC 6298,
    /// 2.3 to 2.5 and 5.5).
    fn timeout(&self, rtt: &RoundTripEstimator) -> Duration {
        let usual = if rtt.is_sampled() { rtt.probe_timeout(Duration::ZERO) } else { FIRST_TIMEOUT };
        (usual.max(self.options.least_timeout) * (1 << self.doublings.min(MOST_DOUBLINGS))).min(LONGEST_TIMEOUT)
    }

    /// `piece` leaves at `now`, for the first time if it lies behind all others.
    pub fn send(&mut self, now: Time, piece: Piece, rtt: &RoundTripEstimator) -> (u64, &mut Sent) {
        let Piece { offset, length, fin } = piece;
        let place = match self.segments.back() {
            Some(last) if offset <= last.offset => {
                self.segments.binary_search_by_key(&offset, |segment| segment.offset).expect("it was sent before")
            }
            _ => {
                self.segments.push_back(Segment { offset, length, fin, ..Segment::default() });
                self.segments.len() - 1
            }
        };
        let number = self.first + place as u64;
        let was_idle = number == self.first && self.segments.len() == 1;
        if self.timer.is_none() || (was_idle && !self.segments[place].is_lost) {
            // RFC 6298, 5.1; what ran since the last ACK waited for the end of an idle time.
            self.timer = Some(now + self.timeout(rtt));
        }
        self.in_flight += 1;
        if let Some(reduction) = &mut self.reduction {
            reduction.on_sent(u64::from(length));
        }
        let segment = &mut self.segments[place];
        if segment.copies > 0 || segment.is_lost {
            segment.is_retransmitted = true;
            self.high_retransmitted = self.high_retransmitted.max(number + 1);
        }
        segment.is_lost = false;
        segment.copies += 1;
        (number, &mut segment.sent)
    }

    /// Learns from an ACK: its range from 0 on is cumulative, the others are SACK blocks. Newly
    /// delivered segments are added to `acked`, and no longer wait in `again`.
    pub fn on_ack(
        &mut self,
        now: Time,
        ack: &Ack,
        rtt: &mut RoundTripEstimator,
        again: &mut VecDeque<Piece>,
        acked: &mut Vec<Sent>,
    ) -> Result<Answer, AckError> {
        match ack.ranges.largest() {
            Some(largest) if largest >= self.next() => return Err(AckError::NeverSent { number: largest }),
            None if self.is_selective => return Err(AckError::Empty),
            _ => {}
        }
        self.acks += 1;
        if !self.is_selective {
            return Ok(self.on_cumulative_ack(now, ack, rtt, again, acked));
        }
        let mut answer = Answer::default();
        let mut reported_below = 0;
        for (low, high) in ack.ranges.iter().rev() {
            for number in low.max(self.first)..=high {
                if self.segments[(number - self.first) as usize].has_arrived() {
                    continue;
                }
                let offset = self.deliver(number, &mut answer, acked);
                // A rescue waits there too, though its loss is not known.
                if !again.is_empty() {
                    again.retain(|piece| piece.offset != offset);
                }
                self.highest_arrived = self.highest_arrived.max(number + 1);
                reported_below = reported_below.max(number + 1);
            }
        }
        // In the order in which they left: a retransmission later than its neighbours.
        acked.sort_by_key(|sent| sent.at);
        let sampled = self.advance(now, rtt);
        self.delivery.delivered = answer.acked_bytes;
        self.delivery.is_duplicate = reported_below > self.first;
        if self.phase == Phase::Open && self.delivery.is_duplicate {
            // What reports new data behind a gap is a duplicate ACK, though it moves HighACK (RFC 6675, 2).
            self.advanced = Bytes::ZERO;
        }
        self.note_phase(!acked.is_empty(), sampled.is_some(), again);
        Ok(Answer { sampled: sampled == Some(true), ..answer })
    }

    /// This ACK is the first to report segment `number`, whose copies leave the pipe: both are counted in `answer`, and
    /// its last transmission is added to `acked`. Where its data begin in the stream.
    #[inline]
    fn deliver(&mut self, number: u64, answer: &mut Answer, acked: &mut Vec<Sent>) -> u64 {
        let segment = &mut self.segments[(number - self.first) as usize];
        segment.reported_by = self.acks;
        acked.push(segment.sent);
        answer.acked_bytes += segment.sent.size;
        let copies = core::mem::take(&mut segment.copies);
        answer.pipe_bytes += segment.sent.size * u64::from(copies);
        self.in_flight -= u32::from(copies);
        segment.offset
    }

    /// The same without selective ACKs, of which only a range from 0 on is heard.
    fn on_cumulative_ack(
        &mut self,
        now: Time,
        ack: &Ack,
        rtt: &mut RoundTripEstimator,
        again: &mut VecDeque<Piece>,
        acked: &mut Vec<Sent>,
    ) -> Answer {
        let lowest = ack.ranges.iter().last().filter(|(low, _)| *low == 0);
        let end = lowest.map_or(0, |(_, high)| high + 1);
        let mut answer = Answer::default();
        for number in self.first..end {
            let offset = self.deliver(number, &mut answer, acked);
            // What waits to be sent again is in order.
            if again.front().is_some_and(|piece| piece.offset <= offset) {
                again.pop_front();
            }
        }
        self.highest_arrived = self.highest_arrived.max(end);
        acked.sort_by_key(|sent| sent.at);
        let before = (self.phase, self.is_outstanding());
        let sampled = self.advance(now, rtt);
        let is_duplicate = sampled.is_none() && before.1;
        self.note_phase(is_duplicate || sampled.is_some(), sampled.is_some(), again);
        if sampled.is_some() {
            (answer.restored_bytes, answer.pipe_bytes) = self.settle(answer.pipe_bytes);
        } else if is_duplicate {
            let leaves = match before.0 {
                Phase::Open => self.duplicate_acks <= LIMITED_TRANSMIT || self.phase == Phase::Recovery,
                Phase::Recovery => true,
                Phase::Timeout => false,
            };
            if leaves {
                answer.pipe_bytes += self.presume();
            }
        }
        if answer.acked_bytes.get() > 2 * self.full {
            self.event = match self.event {
                TcpRecovery::Open { .. } => TcpRecovery::Jumped { ended: false },
                TcpRecovery::Ended { .. } => TcpRecovery::Jumped { ended: true },
                other => other,
            };
        }
        Answer { sampled: sampled == Some(true), ..answer }
    }

    /// A segment behind the gap has arrived; which one, nobody knows. What leaves the pipe with it.
    fn presume(&mut self) -> Bytes {
        for number in self.presumed_below.max(self.first + 1)..self.next() {
            self.presumed_below = number + 1;
            let segment = &mut self.segments[(number - self.first) as usize];
            if segment.copies > 0 {
                segment.copies -= 1;
                segment.is_presumed = true;
                self.in_flight -= 1;
                return segment.sent.size;
            }
        }
        Bytes::ZERO
    }

    /// After an ACK of new data: the first segment is missing, so that what was presumed of it is true of another one;
    /// outside of a recovery nothing is presumed. What is in flight again, and what leaves the pipe beside `pipe`.
    fn settle(&mut self, mut pipe: Bytes) -> (Bytes, Bytes) {
        let mut restored = Bytes::ZERO;
        let in_recovery = self.phase == Phase::Recovery;
        let end = if in_recovery { self.first + 1 } else { self.presumed_below };
        for number in self.first..end.min(self.next()) {
            let segment = &mut self.segments[(number - self.first) as usize];
            if core::mem::take(&mut segment.is_presumed) {
                segment.copies += 1;
                self.in_flight += 1;
                restored += segment.sent.size;
                if in_recovery {
                    pipe += self.presume();
                }
            }
        }
        if !in_recovery {
            self.presumed_below = self.first;
        }
        (restored, pipe)
    }

    /// Moves HighACK over what has arrived; none if there is nothing, else whether that gave a
    /// round-trip sample.
    fn advance(&mut self, now: Time, rtt: &mut RoundTripEstimator) -> Option<bool> {
        let (mut is_ambiguous, mut oldest, before) = (false, None, self.first);
        let (mut all, mut reported_now, mut sent_since) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
        while let Some(segment) = self.segments.front().filter(|segment| segment.has_arrived()) {
            is_ambiguous |= segment.is_retransmitted;
            if segment.reported_by == self.acks {
                oldest.get_or_insert(segment.sent.at);
            }
            let size = segment.sent.size;
            all += size;
            reported_now += if segment.reported_by == self.acks { size } else { Bytes::ZERO };
            sent_since += if self.first >= self.recovery_point { size } else { Bytes::ZERO };
            self.segments.pop_front();
            self.first += 1;
        }
        // After a timeout what had arrived before counts no more, and with the ACK of all nothing that was sent before.
        self.advanced = match self.phase {
            Phase::Open | Phase::Recovery => all,
            Phase::Timeout if self.first < self.recovery_point => reported_now,
            Phase::Timeout => sent_since,
        };
        self.delivery.is_of_retransmission = is_ambiguous;
        if self.first == before {
            return None;
        }
        // Karn's algorithm (RFC 6298, 3); the timeout stays doubled until there is a sample.
        let sample = oldest.filter(|_| !is_ambiguous);
        if let Some(at) = sample {
            rtt.sample(now.since(at), Duration::ZERO);
            self.doublings = 0;
        }
        let is_partial = self.phase == Phase::Recovery && self.first < self.recovery_point;
        if self.is_selective || !is_partial || !core::mem::replace(&mut self.had_partial_ack, true) {
            // RFC 6298, 5.2 and 5.3; an idle time ends when it would expire.
            let runs = self.is_outstanding() || self.options.restart_after_idle;
            self.timer = runs.then(|| now + self.timeout(rtt));
        }
        Some(sample.is_some())
    }

    /// What an ACK means that reports arrivals, if `reports`, and moved HighACK, if `advanced`.
    fn note_phase(&mut self, reports: bool, advanced: bool, again: &mut VecDeque<Piece>) {
        let Scoreboard { advanced: by, .. } = *self;
        self.event = if advanced { TcpRecovery::Open { advanced: by } } else { TcpRecovery::Resting };
        if advanced {
            self.duplicate_acks = 0;
        } else if reports {
            self.duplicate_acks += 1;
        }
        let is_over = self.first >= self.recovery_point;
        match self.phase {
            Phase::Open if reports && !advanced => {
                if self.begins_recovery() {
                    self.phase = Phase::Recovery;
                    self.had_partial_ack = false;
                    self.recovery_point = self.next();
                    self.high_retransmitted = self.first;
                    self.retransmit_first();
                    self.event = TcpRecovery::FastRetransmit;
                    again.clear();
                    self.segments.iter_mut().for_each(|segment| segment.is_lost = false);
                }
            }
            Phase::Open => {}
            Phase::Recovery => {
                self.event = TcpRecovery::Resting;
                if is_over {
                    self.phase = Phase::Open;
                    self.event = TcpRecovery::Ended { advanced: by };
                    again.clear();
                } else if advanced && self.first >= self.high_retransmitted {
                    match self.options.partial_ack {
                        PartialAck::NextSeg if self.is_selective => self.must_send = true,
                        PartialAck::NextSeg | PartialAck::Rfc6582 => self.retransmit_first(),
                    }
                }
            }
            Phase::Timeout if is_over => self.phase = Phase::Open,
            Phase::Timeout => {}
        }
    }

    /// The window in a recovery that does not reduce it at once to `ssthresh`, after an ACK that leaves `pipe` in flight.
    pub fn reduced_window(&mut self, pipe: Bytes, ssthresh: Bytes) -> Option<Bytes> {
        if self.phase != Phase::Recovery || !self.is_selective {
            self.reduction = None;
        } else if self.event == TcpRecovery::FastRetransmit {
            let outstanding = self.segments.iter().fold(Bytes::ZERO, |sum, segment| sum + segment.sent.size);
            self.reduction = ProportionalReduction::new(self.options.reduction, self.full, outstanding, pipe);
        }
        let delivery = self.delivery;
        self.reduction.as_mut().map(|reduction| reduction.on_ack(delivery, pipe, ssthresh))
    }

    /// Whether this duplicate ACK begins a recovery.
    fn begins_recovery(&self) -> bool {
        if self.is_selective {
            // RFC 6675, 5, steps 1, 2 and 4.
            return self.duplicate_acks >= DUP_THRESH || self.lost_below() > self.first;
        }
        // RFC 6582, 3.2, step 2: what was sent again and came twice has duplicate ACKs too.
        let covers_more = self.first > self.recovery_point || self.recovery_point == 0;
        self.duplicate_acks == DUP_THRESH && covers_more
    }

    /// The first segment is lost, and is sent again whatever the window says.
    fn retransmit_first(&mut self) {
        self.must_send = true;
        self.first_is_lost = true;
    }

    /// All segments below that have not arrived are lost (RFC 6675, 4, IsLost): behind each,
    /// DupThresh ranges were SACKed, or more than `DupThresh - 1` full segments.
    fn lost_below(&self) -> u64 {
        let (mut bytes, mut ranges, mut in_range) = (0, 0, false);
        for number in (self.first..self.highest_arrived).rev() {
            let segment = &self.segments[(number - self.first) as usize];
            if segment.has_arrived() {
                bytes += u64::from(segment.length);
                ranges += u64::from(!in_range);
                if bytes > (DUP_THRESH - 1) * self.full || ranges >= DUP_THRESH {
                    return number;
                }
            }
            in_range = segment.has_arrived();
        }
        self.first
    }

    /// Adds what is found lost in a recovery to `lost`, and to `again` in the order in which
    /// NextSeg (RFC 6675, 4) sends it.
    pub fn detect_losses(&mut self, again: &mut VecDeque<Piece>, lost: &mut Losses) {
        if self.phase != Phase::Recovery {
            return;
        }
        let from = self.high_retransmitted.max(self.first);
        let first = if core::mem::take(&mut self.first_is_lost) { self.first + 1 } else { 0 };
        for number in from..self.lost_below().max(first) {
            let segment = &mut self.segments[(number - self.first) as usize];
            if !segment.has_arrived() && !segment.is_lost {
                self.in_flight -= u32::from(segment.copies);
                segment.lose(number, LossCause::PacketThreshold, lost);
                again.push_back(segment.piece());
            }
        }
    }

    /// What a recovery sends when nothing is known to be lost and there is no new data: what
    /// has not arrived although later segments have (NextSeg, rule 3), then once the last one
    /// (rule 4).
    pub fn rescue(&mut self) -> Option<Piece> {
        if self.phase != Phase::Recovery || !self.is_selective {
            return None;
        }
        let from = self.high_retransmitted.max(self.first);
        let missing = |&number: &u64| !self.segments[(number - self.first) as usize].has_arrived();
        if let Some(number) = (from..self.highest_arrived).find(missing) {
            return Some(self.segments[(number - self.first) as usize].piece());
        }
        if self.first < self.rescued {
            return None;
        }
        let last = self.segments.iter().rev().find(|segment| !segment.has_arrived())?.piece();
        self.rescued = self.recovery_point;
        Some(last)
    }

    /// The retransmission timer has expired (RFC 6298, 5.4 to 5.6; RFC 6675, 5.1): all that has
    /// not arrived is lost. Where nothing is outstanding, an idle time has lasted for a timeout.
    pub fn on_timeout(&mut self, now: Time, rtt: &RoundTripEstimator, again: &mut VecDeque<Piece>, lost: &mut Losses) {
        if !self.is_outstanding() {
            self.event = TcpRecovery::Idle;
            self.timer = None;
            return;
        }
        let repeated = self.segments.front().is_some_and(|segment| segment.has_timed_out);
        again.clear();
        for (number, segment) in (self.first..).zip(&mut self.segments) {
            if !segment.has_arrived() {
                segment.is_presumed = false;
                segment.lose(number, LossCause::RetransmissionTimeout, lost);
                again.push_back(segment.piece());
            }
        }
        let in_flight = lost.packets.iter().fold(Bytes::ZERO, |sum, lost| sum + lost.sent.size);
        self.in_flight = 0;
        if let Some(segment) = self.segments.front_mut() {
            segment.has_timed_out = true;
        }
        self.event = TcpRecovery::Timeout { in_flight, repeated };
        self.phase = Phase::Timeout;
        self.recovery_point = self.next();
        self.high_retransmitted = self.first;
        self.presumed_below = self.first;
        self.duplicate_acks = 0;
        self.doublings += 1;
        self.must_send = true;
        self.timer = self.is_outstanding().then(|| now + self.timeout(rtt));
    }
}

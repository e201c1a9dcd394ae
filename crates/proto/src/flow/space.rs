//! One receiver's packets as its sender knows them: what is in flight, what is lost, what
//! must be sent again, and when to ask (RFC 9002, 5 and 6).

use std::collections::VecDeque;

use anabranch_control::flow::{LossCause, Lost, Sent, TcpRecovery};
use anabranch_control::round_trip::RoundTripEstimator;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;

use super::Ack;
use super::answer::{AckError, Answer, Losses, MAX_PACKETS_IN_FLIGHT, Piece};
use super::config::SenderConfig;
use super::ranges::AckRanges;
use super::reordering::{LostPacket, Reordering};
use super::scoreboard::Scoreboard;

/// Probe timeouts without any ACK that make a congestion persistent (RFC 9002, 7.6.1).
const PERSISTENT_PROBE_TIMEOUTS: u64 = 3;

/// Probe timeouts double no more often than this: RFC 9002 leaves the bound to us.
const MAX_BACKOFF: u32 = 10;

/// Room for packets at the beginning, and always; a power of two.
const FIRST_ROOM: usize = 16;

/// The same for one receiver of many, who gets a few packets a round trip: what all of them take
/// should stay in a cache.
const ROOM_OF_MANY: usize = 4;

/// One transmission.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    sent: Sent,
    offset: u64,
    length: u32,
    fin: bool,
    outstanding: bool,
    /// There was a round-trip sample when it left.
    sampled: bool,
    /// A probe carries the same data: this packet's loss need not be repaired.
    copied: bool,
}

/// The packets to one receiver.
#[derive(Clone, Debug)]
pub struct Space {
    pub rtt: RoundTripEstimator,
    /// No packet below is in flight.
    first: u64,
    /// The number of the next packet.
    next: u64,
    /// Packets from `first` on, each at its number modulo the length, a power of two.
    flights: Box<[Flight]>,
    /// No room is less.
    least_room: u32,
    in_flight: u32,
    largest_acked: Option<u64>,
    /// When the time threshold will declare a packet lost.
    loss_time: Option<Time>,
    /// Packets that were looked at for losses.
    #[cfg(test)]
    looked_at: u64,
    last_sent: Time,
    backoff: u32,
    /// Lost data that must be sent again.
    pub again: VecDeque<Piece>,
    /// The next new byte of the stream.
    pub offset: u64,
    reordering: Reordering,
    /// What the last ACK that was searched for spurious losses acknowledged.
    searched: AckRanges,
    /// TCP's recovery in place of all that numbers packets here: those counts then stay as they
    /// are in an unused space, so that the usual recovery need not ask for it on its way.
    tcp: Option<Box<Scoreboard>>,
    ecn: Ecn,
    /// Marks that were reported and could be true.
    ce_count: u64,
    /// Packets that were acknowledged before they were declared lost.
    acked: u64,
}

/// Whether packets to a receiver may be marked in place of being dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// They say that they may not.
    #[default]
    Off,
    /// They say that they may.
    Capable,
    /// They said so until counts of marks came that no path gives (RFC 9000, 13.4.2.1).
    Failed,
}

impl Space {
    pub fn new(config: &SenderConfig) -> Space {
        Space::with_room(config, FIRST_ROOM)
    }

    /// Of one receiver of many.
    pub fn of_many(config: &SenderConfig) -> Space {
        Space::with_room(config, ROOM_OF_MANY)
    }

    fn with_room(config: &SenderConfig, room: usize) -> Space {
        Space {
            rtt: RoundTripEstimator::default(),
            first: 0,
            next: 0,
            flights: vec![Flight::default(); room].into(),
            least_room: room as u32,
            in_flight: 0,
            largest_acked: None,
            loss_time: None,
            #[cfg(test)]
            looked_at: 0,
            last_sent: Time::ZERO,
            backoff: 0,
            again: VecDeque::new(),
            offset: 0,
            reordering: Reordering::default(),
            searched: AckRanges::default(),
            tcp: config.recovery.is_tcp().then(|| Box::new(Scoreboard::new(config))),
            ecn: if config.ecn { Ecn::Capable } else { Ecn::Off },
            ce_count: 0,
            acked: 0,
        }
    }

    #[inline]
    fn flight(&mut self, number: u64) -> &mut Flight {
        let mask = self.flights.len() - 1;
        &mut self.flights[number as usize & mask]
    }

    /// Whether another packet may be in flight.
    #[inline]
    pub fn has_room(&self) -> bool {
        ((self.next - self.first) as usize) < MAX_PACKETS_IN_FLIGHT
            && self.tcp.as_ref().is_none_or(|tcp| tcp.has_room())
    }

    /// Numbers a packet with `piece` that leaves now. What else is true of it is noted where
    /// it is kept: a copy of the note would cost more than all the rest. Both fit into registers.
    #[inline(always)]
    pub fn send(&mut self, now: Time, piece: Piece) -> (u64, &mut Sent) {
        if self.next as usize & (self.flights.len() - 1) == 0 {
            if self.tcp.is_some() {
                return self.send_segment(now, piece);
            }
            self.shrink();
        }
        if (self.next - self.first) as usize == self.flights.len() {
            self.resize(self.flights.len() * 2);
        }
        let number = self.next;
        let sampled = self.rtt.is_sampled();
        self.next += 1;
        self.in_flight += 1;
        self.last_sent = now;
        let flight = self.flight(number);
        let Piece { offset, length, fin } = piece;
        flight.offset = offset;
        flight.length = length;
        flight.fin = fin;
        flight.outstanding = true;
        flight.sampled = sampled;
        flight.copied = false;
        (number, &mut flight.sent)
    }

    /// Sends as TCP does, which numbers data, not packets.
    #[cold]
    #[inline(never)]
    fn send_segment(&mut self, now: Time, piece: Piece) -> (u64, &mut Sent) {
        self.tcp.as_mut().expect("only a sender with a scoreboard sends segments").send(now, piece, &self.rtt)
    }

    /// Gives back room that a start left: every packet passes through all of it, and what
    /// does not stay in the nearest cache is slow.
    #[cold]
    fn shrink(&mut self) {
        if self.flights.len() > self.least_room as usize && (self.next - self.first) as usize <= self.flights.len() / 4
        {
            self.resize(self.flights.len() / 2);
        }
    }

    #[cold]
    fn resize(&mut self, room: usize) {
        let mut flights = vec![Flight::default(); room].into_boxed_slice();
        for number in self.first..self.next {
            flights[number as usize & (room - 1)] = *self.flight(number);
        }
        self.flights = flights;
    }

    /// Learns from an ACK, which a receiver may put off by `max_ack_delay`; newly acknowledged
    /// packets are added to `acked`. `arrived` is called with what they carried, and what packets that
    /// were declared lost carried and need not be sent again, unless they are TCP's.
    #[inline]
    pub fn on_ack(
        &mut self,
        now: Time,
        ack: &Ack,
        max_ack_delay: Duration,
        acked: &mut Vec<Sent>,
        mut arrived: impl FnMut(Piece),
    ) -> Result<Answer, AckError> {
        let largest = match ack.ranges.largest() {
            Some(largest) if largest < self.next => largest,
            largest => return self.on_segments_ack(now, ack, largest, acked),
        };
        let mut acked_bytes = Bytes::ZERO;
        let mut newest = None;
        let first = self.first;
        let mut take = |low: u64, high: u64| {
            for number in low.max(first)..=high {
                let flight = self.flight(number);
                if flight.outstanding {
                    flight.outstanding = false;
                    let sent = flight.sent;
                    arrived(Piece { offset: flight.offset, length: flight.length, fin: flight.fin });
                    acked_bytes += sent.size;
                    acked.push(sent);
                    newest = Some((number, sent.at));
                    self.in_flight -= 1;
                }
            }
        };
        match ack.ranges.highest() {
            // Mostly nothing is in flight that the others could tell of.
            (low, high) if low <= first => take(low, high),
            _ => ack.ranges.iter().rev().for_each(|(low, high)| take(low, high)),
        }
        let (mut sampled, ack_delay) = (false, ack.delay.min(max_ack_delay));
        if let Some((number, at)) = newest {
            self.backoff = 0;
            if number == largest {
                // RFC 9002, 5.3: no receiver may claim more delay than it promised.
                self.rtt.sample(now.since(at), ack_delay);
                sampled = true;
            } else if self.reordering.packet_threshold() == u64::MAX {
                // Where packets overtake each other, those that arrive as the newest took less time than others do:
                // samples of them alone (RFC 9002, 5.1) are too short. What comes out of order is acknowledged at
                // once (RFC 9000, 13.2.1).
                self.rtt.sample(now.since(at), Duration::ZERO);
                sampled = true;
            }
        }
        let spurious_losses = if self.reordering.awaits() && !self.searched.misses_the_same(&ack.ranges) {
            self.find_spurious_losses(now, ack, max_ack_delay, &mut arrived)
        } else {
            0
        };
        self.acked += acked.len() as u64;
        let newly_marked = self.count_marks(ack.ce_count, largest, acked.len() as u64);
        self.largest_acked = self.largest_acked.max(Some(largest));
        let pipe_bytes = acked_bytes;
        Ok(Answer { sampled, ack_delay, acked_bytes, pipe_bytes, newly_marked, spurious_losses, ..Answer::default() })
    }

    /// The same of TCP, which numbers no packets here; of others an ACK without a number, or of one that was never sent.
    #[cold]
    fn on_segments_ack(
        &mut self,
        now: Time,
        ack: &Ack,
        largest: Option<u64>,
        acked: &mut Vec<Sent>,
    ) -> Result<Answer, AckError> {
        let Some(tcp) = &mut self.tcp else {
            return Err(largest.map_or(AckError::Empty, |number| AckError::NeverSent { number }));
        };
        let mut answer = tcp.on_ack(now, ack, &mut self.rtt, &mut self.again, acked)?;
        // TCP's marks are no counts that could be validated (RFC 3168, 6.1).
        answer.newly_marked = ack.ce_count.saturating_sub(self.ce_count).min(acked.len() as u64);
        self.ce_count += answer.newly_marked;
        Ok(answer)
    }

    /// How many packets that were declared lost an ACK acknowledges. Their data need not be
    /// sent again if it has not been; `arrived` is called with it.
    #[cold]
    fn find_spurious_losses(
        &mut self,
        now: Time,
        ack: &Ack,
        max_ack_delay: Duration,
        arrived: &mut impl FnMut(Piece),
    ) -> u64 {
        let previous = std::mem::replace(&mut self.searched, ack.ranges);
        if !self.reordering.may_be_spurious(&ack.ranges, &previous) {
            return 0;
        }
        let span = self.rtt.probe_timeout(max_ack_delay) * PERSISTENT_PROBE_TIMEOUTS;
        self.reordering.forget_before(now.before(span));
        let (next, again, rtt) = (self.next, &mut self.again, &mut self.rtt);
        let mut spurious = 0;
        self.reordering.on_ack(&ack.ranges, next, |lost| {
            spurious += 1;
            rtt.sample(now.since(lost.at), Duration::ZERO);
            again.retain(|piece| {
                let waits = piece.offset != lost.offset;
                if !waits {
                    arrived(*piece);
                }
                waits
            });
        });
        spurious
    }

    /// How many of the marks that an ACK of `newly` packets up to `largest` reports are new. A
    /// path that reports what cannot be is not ECN-capable any more (RFC 9000, 13.4.2.1).
    #[inline]
    fn count_marks(&mut self, ce_count: u64, largest: u64, newly: u64) -> u64 {
        if ce_count == self.ce_count || self.ecn != Ecn::Capable {
            return 0;
        }
        self.count_marks_seldom(ce_count, largest, newly)
    }

    #[cold]
    fn count_marks_seldom(&mut self, ce_count: u64, largest: u64, newly: u64) -> u64 {
        // An ACK that does not raise the largest number may have been overtaken: it must not
        // fail the validation.
        let is_newest = self.largest_acked.is_none_or(|before| largest > before);
        // What arrived since the last ACK is newly acknowledged, or unreported for want of ranges.
        let unreported = self.largest_acked.map_or(largest, |before| before.max(largest)) + 1 - self.acked;
        match ce_count.checked_sub(self.ce_count) {
            Some(marks) if marks <= newly + unreported => {
                self.ce_count = ce_count;
                return marks;
            }
            _ if is_newest => self.ecn = Ecn::Failed,
            _ => {}
        }
        0
    }

    /// Whether packets may be marked.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        self.ecn
    }

    /// Declares packets lost by both thresholds and adds them to `lost`; says whether the
    /// congestion is persistent.
    #[inline(always)]
    pub fn detect_losses(&mut self, now: Time, max_ack_delay: Duration, lost: &mut Losses) -> bool {
        self.loss_time = None;
        let Some(largest) = self.largest_acked else {
            if let Some(tcp) = &mut self.tcp {
                tcp.detect_losses(&mut self.again, lost);
            }
            return false;
        };
        // Mostly all that left before the largest was answered before or with it.
        self.skip_answered();
        if self.first >= largest {
            return false;
        }
        let persistent = self.scan_for_losses(now, largest, max_ack_delay, lost);
        self.skip_answered();
        persistent
    }

    /// `first` is the first packet in flight.
    #[inline(always)]
    fn skip_answered(&mut self) {
        while self.first < self.next && !self.flight(self.first).outstanding {
            self.first += 1;
        }
    }

    #[inline(never)]
    fn scan_for_losses(&mut self, now: Time, largest: u64, max_ack_delay: Duration, lost: &mut Losses) -> bool {
        let delay = self.rtt.loss_delay(self.reordering.multiple());
        let threshold = self.reordering.packet_threshold();
        let span = self.rtt.probe_timeout(max_ack_delay) * PERSISTENT_PROBE_TIMEOUTS;
        let mut persistent = false;
        // When the first of a row of lost packets, with none between that arrived, left; none
        // left before there was a round-trip sample (RFC 9002, 7.6.2).
        let mut row: Option<Time> = None;
        for number in self.first..largest {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let flight = self.flight(number);
            if !flight.outstanding {
                row = None;
                continue;
            }
            let cause = if largest - number >= threshold {
                LossCause::PacketThreshold
            } else if flight.sent.at + delay <= now {
                LossCause::TimeThreshold
            } else {
                // Nothing behind it left sooner or lies further below the largest: all of it can wait as long.
                self.loss_time = Some(flight.sent.at + delay);
                break;
            };
            flight.outstanding = false;
            let Flight { sent, offset, length, fin, sampled, copied, .. } = *flight;
            persistent |= sampled && sent.at.since(*row.get_or_insert(sent.at)) > span;
            self.in_flight -= 1;
            let piece = Piece { offset, length, fin };
            if !copied && !piece.is_none() {
                self.again.push_back(piece);
            }
            self.reordering.on_lost(LostPacket { number, at: sent.at, offset }, self.next, now.before(span));
            lost.packets.push(Lost { sent, cause });
            lost.numbers.push(number);
        }
        persistent
    }

    /// Nobody waits any more for what is in flight, which `abandoned` is told of by number; what it
    /// carried is to be sent again.
    pub fn abandon(&mut self, mut abandoned: impl FnMut(u64, Sent)) {
        for number in self.first..self.next {
            let flight = self.flight(number);
            if !core::mem::take(&mut flight.outstanding) {
                continue;
            }
            let Flight { sent, offset, length, fin, copied, .. } = *flight;
            abandoned(number, sent);
            let piece = Piece { offset, length, fin };
            if !copied && !piece.is_none() {
                self.again.push_back(piece);
            }
        }
        self.first = self.next;
        self.in_flight = 0;
        self.loss_time = None;
    }

    /// When the oldest packet in flight left.
    pub fn oldest(&mut self) -> Option<Time> {
        let number = (self.first..self.next).find(|&number| self.flight(number).outstanding)?;
        Some(self.flight(number).sent.at)
    }

    /// When the time threshold will declare a packet lost.
    #[inline]
    pub fn loss_time(&self) -> Option<Time> {
        self.loss_time
    }

    /// The probe timeout after `since`, doubled for each one before that brought no answer.
    #[inline]
    pub fn probe_time(&self, since: Time, max_ack_delay: Duration) -> Time {
        since + self.rtt.probe_timeout(max_ack_delay) * (1 << self.backoff.min(MAX_BACKOFF))
    }

    /// When losses must be looked for or a probe sent.
    #[inline(always)]
    pub fn timer(&self, max_ack_delay: Duration) -> Option<Time> {
        if self.loss_time.is_some() {
            return self.loss_time;
        }
        if self.in_flight == 0 {
            return self.tcp.as_ref().and_then(|tcp| tcp.timer());
        }
        Some(self.probe_time(self.last_sent, max_ack_delay))
    }

    /// Where TCP's recovery stands; none where another one is at work.
    #[inline]
    pub fn tcp(&self) -> Option<TcpRecovery> {
        self.tcp.as_ref().map(|tcp| tcp.event())
    }

    /// Whether TCP's recovery lets a segment leave now, whatever the window says.
    #[inline]
    pub fn take_must_send(&mut self) -> bool {
        self.tcp.as_mut().is_some_and(|tcp| tcp.take_must_send())
    }

    /// The window of TCP's recovery, where that reduces it by and by to `ssthresh`, with `pipe` in flight.
    pub fn reduced_window(&mut self, pipe: Bytes, ssthresh: Bytes) -> Option<Bytes> {
        self.tcp.as_mut()?.reduced_window(pipe, ssthresh)
    }

    /// What TCP's recovery sends when there is nothing else to send.
    pub fn rescue(&mut self) -> Option<Piece> {
        self.tcp.as_mut()?.rescue()
    }

    /// TCP's retransmission timer has expired: what is lost with it is added to `lost`.
    pub fn on_timeout(&mut self, now: Time, lost: &mut Losses) {
        if let Some(tcp) = &mut self.tcp {
            tcp.on_timeout(now, &self.rtt, &mut self.again, lost);
        }
    }

    /// Whether the timer, which has come, is about losses rather than a probe.
    pub fn awaits_loss(&self) -> bool {
        self.loss_time.is_some()
    }

    /// A probe timeout has passed: the next one is twice as long.
    pub fn back_off(&mut self) {
        self.backoff += 1;
    }

    /// The oldest data in flight, which a probe carries when there is nothing new.
    pub fn copy_oldest(&mut self) -> Option<Piece> {
        let number = (self.first..self.next).find(|&number| self.flight(number).outstanding)?;
        let flight = self.flight(number);
        flight.copied = true;
        Some(Piece { offset: flight.offset, length: flight.length, fin: flight.fin })
    }

    /// Probe timeouts since the last ACK of something new; expiries of TCP's timer since the
    /// last round-trip sample.
    pub fn probe_timeouts(&self) -> u32 {
        self.tcp.as_ref().map_or(self.backoff, |tcp| tcp.timeouts())
    }

    /// Packets in flight.
    pub fn packets_in_flight(&self) -> u32 {
        self.tcp.as_ref().map_or(self.in_flight, |tcp| tcp.packets_in_flight())
    }

    /// Whether something is not acknowledged that is neither declared lost.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight > 0 || self.tcp.as_ref().is_some_and(|tcp| tcp.is_outstanding())
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{LossRecovery, TcpOptions};
    use super::*;

    fn space(recovery: LossRecovery) -> Space {
        Space::new(&SenderConfig {
            packet: Bytes::new(1),
            max_ack_delay: Duration::ZERO,
            paced: false,
            ecn: false,
            recovery,
            tcp: TcpOptions::default(),
        })
    }

    fn send(space: &mut Space) -> u64 {
        let offset = space.offset;
        space.offset += 1;
        space.send(Time::ZERO, Piece { offset, length: 1, fin: false }).0
    }

    /// How many packets were newly acknowledged; adds the offsets that `on_ack` reported.
    fn acknowledge(space: &mut Space, numbers: (u64, u64), arrived: &mut Vec<u64>) -> usize {
        let ack = Ack { ranges: AckRanges::new([numbers]), delay: Duration::ZERO, ce_count: 0 };
        let mut acked = Vec::new();
        space.on_ack(Time::ZERO, &ack, Duration::ZERO, &mut acked, |piece| arrived.push(piece.offset)).unwrap();
        space.detect_losses(Time::ZERO, Duration::ZERO, &mut Losses::default());
        acked.len()
    }

    #[test]
    fn room_grows_with_a_burst_and_is_given_back_after_it() {
        let mut space = space(LossRecovery::Rack);
        let mut arrived = Vec::new();
        let numbers: Vec<u64> = (0..200).map(|_| send(&mut space)).collect();
        assert_eq!(space.flights.len(), 256);
        assert_eq!(acknowledge(&mut space, (0, 199), &mut arrived), numbers.len());
        let mut last = send(&mut space);
        for _ in 0..1000 {
            let next = send(&mut space);
            assert_eq!(acknowledge(&mut space, (last, last), &mut arrived), 1, "a packet was forgotten");
            last = next;
        }
        assert_eq!(space.flights.len(), FIRST_ROOM);
    }

    /// The first packet of all can wait as long as any.
    #[test]
    fn where_packets_overtake_each_other_an_ack_costs_no_look_at_all_that_is_in_flight() {
        let mut space = space(LossRecovery::Rack);
        let mut arrived = Vec::new();
        (0..6).for_each(|_| _ = send(&mut space));
        acknowledge(&mut space, (1, 5), &mut arrived);
        acknowledge(&mut space, (0, 5), &mut arrived);
        assert_eq!(space.reordering.packet_threshold(), u64::MAX);
        let first = send(&mut space);
        let numbers: Vec<u64> = (0..200_000).map(|_| send(&mut space)).collect();
        let before = space.looked_at;
        for &number in numbers.iter().step_by(2) {
            assert_eq!(acknowledge(&mut space, (number, number), &mut arrived), 1);
        }
        assert_eq!(space.looked_at - before, 100_000, "one for each ACK");
        assert_eq!((space.first, space.in_flight), (first, 100_001));
    }

    #[test]
    fn what_was_declared_lost_and_arrived_late_is_reported_once_and_not_sent_again() {
        let mut space = space(LossRecovery::Rack);
        let numbers: Vec<u64> = (0..6).map(|_| send(&mut space)).collect();
        let mut arrived = Vec::new();
        acknowledge(&mut space, (numbers[1], numbers[5]), &mut arrived);
        assert_eq!(space.again, [Piece { offset: 0, length: 1, fin: false }], "the first is not lost");
        assert_eq!(arrived, [1, 2, 3, 4, 5]);
        arrived.clear();
        acknowledge(&mut space, (numbers[0], numbers[5]), &mut arrived);
        assert_eq!(arrived, [0], "the stream's sender waits for what has arrived");
        assert!(space.again.is_empty());
        arrived.clear();
        acknowledge(&mut space, (numbers[0], numbers[5]), &mut arrived);
        assert!(arrived.is_empty());
    }
}

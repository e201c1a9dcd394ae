//! The sending side of a flow: what leaves, when, and what became of it.

use std::collections::VecDeque;

use anabranch_control::delivery_rate::DeliveryRate;
use anabranch_control::flow::{
    Bounded, Bounds, Feedback, FlowController, Limits, LossCause, PeerId, RoundTrip, Sent, TcpRecovery,
};
use anabranch_control::pacer::Pacer;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::answer::{AckError, Answer, Losses, Piece};
use super::config::{LossRecovery, SenderConfig};
use super::space::{Ecn, Space};
use super::{Ack, Data};

/// A paced window controller sends a window in 4/5 of a round trip (RFC 9002, 7.7).
const PACING_GAIN_PERCENT: u64 = 125;

/// Packets that leave at once under a pace that the sender sets itself: evenly.
const PACING_BURST_PACKETS: u64 = 1;

/// What a pacer lets a driver make up for that wakes late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// How late it may be.
    pub span: Duration,
    /// The most data that it may make up for.
    pub most: Bytes,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To whom.
    pub to: PeerId,
    /// What.
    pub data: Data,
    /// Whether a queue may mark it in place of dropping it.
    pub ecn_capable: bool,
}

/// Where a sender stands, for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Round-trip times to one receiver, once there is a sample.
    pub rtt: Option<RoundTrip>,
    /// Probe timeouts to that receiver since its last ACK of something new.
    pub probe_timeouts: u32,
    /// Whether packets to that receiver may be marked.
    pub ecn: Ecn,
    /// What the controller allows.
    pub limits: Limits,
    /// Data in flight to all receivers.
    pub in_flight: Bytes,
    /// Packets in flight to all receivers.
    pub packets_in_flight: u64,
}

/// A controller that lets nothing leave, ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its window is 0 and it waits for no time to come.
    NoWindow,
    /// Its pacing rate is 0.
    NoRate,
}

/// Data that the application has handed over.
#[derive(Clone, Copy, Debug)]
struct Write {
    to: PeerId,
    left: u64,
    last: bool,
}

/// Sends data to receivers.
#[derive(Clone, Debug)]
pub struct FlowSender {
    config: SenderConfig,
    controller: Bounded,
    rng: Rng,
    limits: Limits,
    pacer: Pacer,
    catch_up: CatchUp,
    delivery: DeliveryRate,
    in_flight: Bytes,
    spaces: Vec<Space>,
    writes: VecDeque<Write>,
    /// Packets that must leave whatever the window says, each to this receiver.
    probes: VecDeque<PeerId>,
    /// Nothing is left to send although the window has room.
    app_limited: bool,
    /// The pacer holds back a packet that may leave by the window.
    awaits_pacer: bool,
    /// To whom the next packet goes, or the last one went, whose round trip sets the pace.
    paced_to: PeerId,
    fault: Option<Fault>,
    acked: Vec<Sent>,
    lost: Losses,
    newly_lost: Vec<(PeerId, u64, LossCause)>,
    packets_sent: u64,
    packets_lost: u64,
    spurious_losses: u64,
}

impl FlowSender {
    /// Sends under `controller`, which draws from `rng`, to `receivers` receivers.
    pub fn new(config: SenderConfig, controller: Box<dyn FlowController>, receivers: usize, rng: Rng) -> FlowSender {
        let controller = Bounded::new(controller);
        FlowSender {
            config,
            limits: controller.limits(),
            controller,
            rng,
            pacer: Pacer::default(),
            catch_up: CatchUp { span: Duration::ZERO, most: Bytes::ZERO },
            delivery: DeliveryRate::default(),
            in_flight: Bytes::ZERO,
            spaces: (0..receivers).map(|_| Space::new(&config)).collect(),
            writes: VecDeque::new(),
            probes: VecDeque::new(),
            app_limited: true,
            awaits_pacer: false,
            paced_to: PeerId(0),
            fault: None,
            acked: Vec::new(),
            lost: Losses::default(),
            newly_lost: Vec::new(),
            packets_sent: 0,
            packets_lost: 0,
            spurious_losses: 0,
        }
    }

    /// Hands over `bytes` for `to`, behind all that was handed over before; `last` if the
    /// stream to `to` ends with them.
    pub fn write(&mut self, to: PeerId, bytes: u64, last: bool) {
        self.writes.push_back(Write { to, left: bytes, last });
    }

    /// Learns the round trip to `to` before any data: from a handshake.
    pub fn on_handshake(&mut self, to: PeerId, rtt: Duration) {
        self.spaces[to.0 as usize].rtt.sample(rtt, Duration::ZERO);
        self.refresh();
    }

    /// Takes back what was handed over and has not left yet.
    pub fn take_back(&mut self) {
        self.writes.clear();
    }

    /// Bounds that hold for the controller's window from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.controller.set(bounds);
        self.refresh();
    }

    /// A driver that can't wake at each packet's instant makes up for what it missed, up to
    /// this, so that its lateness doesn't become a lower rate. None is made up for at first.
    pub fn set_catch_up(&mut self, catch_up: CatchUp) {
        self.catch_up = catch_up;
    }

    /// The next packet that may leave now.
    #[inline(always)]
    pub fn poll(&mut self, now: Time) -> Option<Transmit> {
        let (to, piece) = self.choose(now)?;
        Some(self.transmit(now, to, piece))
    }

    /// What may leave now, and to whom.
    #[inline(always)]
    fn choose(&mut self, now: Time) -> Option<(PeerId, Piece)> {
        self.awaits_pacer = false;
        if let Some(to) = self.probes.pop_front()
            && let Some(piece) = self.probe(to)
        {
            return Some((to, piece));
        }
        let (to, size) = self.upcoming()?;
        let fits = self.in_flight + size <= self.limits.window
            || (self.in_flight == Bytes::ZERO && self.limits.window > Bytes::ZERO);
        if !fits || !self.spaces[to.0 as usize].has_room() {
            self.app_limited = false;
            self.look_for_fault();
            return None;
        }
        if self.config.paced && to != self.paced_to {
            self.paced_to = to;
            self.refresh();
        }
        if self.limits.rate.is_some() && self.pacer.release() > now {
            self.app_limited = false;
            self.awaits_pacer = true;
            self.look_for_fault();
            return None;
        }
        Some((to, self.take(to)))
    }

    /// To whom the next data goes, and how much; notes when there is none.
    #[inline]
    fn upcoming(&mut self) -> Option<(PeerId, Bytes)> {
        for (receiver, space) in self.spaces.iter().enumerate() {
            if let Some(piece) = space.again.front() {
                return Some((PeerId(receiver as u32), Bytes::new(u64::from(piece.length))));
            }
        }
        match self.writes.front() {
            Some(write) => Some((write.to, self.config.packet.min(Bytes::new(write.left)))),
            None => {
                if self.config.recovery == LossRecovery::Rfc6675
                    && let Some(found) = self.rescue()
                {
                    return Some(found);
                }
                if !self.app_limited || !self.delivery.is_app_limited() {
                    self.app_limited = true;
                    self.delivery.set_app_limited(self.in_flight);
                }
                None
            }
        }
    }

    /// What TCP's recovery sends for want of new data, if the window has room for it.
    #[cold]
    fn rescue(&mut self) -> Option<(PeerId, Bytes)> {
        if self.in_flight + self.config.packet > self.limits.window {
            return None;
        }
        let (to, piece) = (0u32..).zip(&mut self.spaces).find_map(|(to, space)| Some((to, space.rescue()?)))?;
        self.spaces[to as usize].again.push_back(piece);
        Some((PeerId(to), Bytes::new(u64::from(piece.length))))
    }

    /// Takes what `upcoming` saw.
    #[inline]
    fn take(&mut self, to: PeerId) -> Piece {
        let space = &mut self.spaces[to.0 as usize];
        if let Some(piece) = space.again.pop_front() {
            return piece;
        }
        let write = self.writes.front_mut().expect("upcoming saw a write");
        let length = self.config.packet.get().min(write.left);
        if write.left != u64::MAX {
            write.left -= length;
        }
        let (left, last) = (write.left, write.last);
        if left == 0 {
            self.writes.pop_front();
        }
        let offset = space.offset;
        space.offset += length;
        Piece { offset, length: length as u32, fin: last && left == 0 }
    }

    /// What a probe to `to` carries: lost data, new data, or the oldest in flight.
    fn probe(&mut self, to: PeerId) -> Option<Piece> {
        let space = &mut self.spaces[to.0 as usize];
        if space.again.is_empty() && self.writes.front().is_none_or(|write| write.to != to) {
            return space.copy_oldest();
        }
        Some(self.take(to))
    }

    #[inline(always)]
    fn transmit(&mut self, now: Time, to: PeerId, piece: Piece) -> Transmit {
        let Piece { offset, length, fin } = piece;
        let size = Bytes::new(u64::from(length));
        let (number, sent) = self.spaces[to.0 as usize].send(now, piece);
        sent.at = now;
        sent.size = size;
        self.delivery.on_sent(sent, self.in_flight);
        self.in_flight += size;
        sent.in_flight = self.in_flight;
        self.packets_sent += 1;
        if self.controller.on_sent(now, to, sent, &mut self.rng) {
            self.refresh();
        }
        if let Some(rate) = self.limits.rate {
            let mut burst = self.limits.burst;
            if self.catch_up.most > Bytes::ZERO {
                burst += (rate * self.catch_up.span).min(self.catch_up.most);
            }
            self.pacer.on_sent(now, size, rate, burst);
        }
        let ecn_capable = self.spaces[to.0 as usize].ecn() == Ecn::Capable;
        Transmit { to, data: Data { number, offset, length, fin }, ecn_capable }
    }

    /// `from` answers.
    ///
    /// # Errors
    ///
    /// When the answer cannot be true; nothing has changed then.
    #[inline]
    pub fn on_ack(&mut self, now: Time, from: PeerId, ack: &Ack) -> Result<(), AckError> {
        let Some(space) = self.spaces.get_mut(from.0 as usize) else { return Err(AckError::Stranger) };
        self.acked.clear();
        self.newly_lost.clear();
        let answer = space.on_ack(now, ack, self.config.max_ack_delay, &mut self.acked)?;
        self.learn(now, from, answer);
        Ok(())
    }

    /// Looks for losses and tells the controller all at once.
    #[inline]
    fn learn(&mut self, now: Time, from: PeerId, answer: Answer) {
        let space = &mut self.spaces[from.0 as usize];
        self.lost.clear();
        let persistent_congestion = space.detect_losses(now, self.config.max_ack_delay, &mut self.lost);
        self.tell(now, from, answer, persistent_congestion);
    }

    /// Keeps the books of what was acknowledged and lost, and tells the controller.
    #[inline]
    fn tell(&mut self, now: Time, from: PeerId, answer: Answer, persistent_congestion: bool) {
        let space = &mut self.spaces[from.0 as usize];
        self.in_flight -= answer.pipe_bytes;
        if space.take_must_send() {
            self.probes.push_back(from);
        }
        for (lost, &number) in self.lost.packets.iter().zip(&self.lost.numbers) {
            self.newly_lost.push((from, number, lost.cause));
            self.in_flight -= lost.sent.size;
            self.delivery.on_lost(lost.sent.size);
        }
        self.packets_lost += self.lost.packets.len() as u64;
        self.spurious_losses += answer.spurious_losses;
        let rtt = space.rtt.report(answer.sampled);
        let newest = self.acked.last();
        let rate = newest.and_then(|newest| self.delivery.on_acked(now, answer.acked_bytes, newest, rtt.min));
        let tcp = space.tcp();
        let is_timeout = matches!(tcp, Some(TcpRecovery::Timeout { .. }));
        if self.acked.is_empty() && self.lost.packets.is_empty() && answer.newly_marked == 0 && !is_timeout {
            return;
        }
        let feedback = Feedback {
            receiver: from,
            rtt,
            acked: &self.acked,
            lost: &self.lost.packets,
            acked_bytes: answer.acked_bytes,
            in_flight: self.in_flight,
            delivered: self.delivery.delivered(),
            rate,
            ecn_marked_packets: answer.newly_marked,
            persistent_congestion,
            tcp,
            app_limited: self.app_limited,
        };
        self.controller.on_feedback(now, &feedback, &mut self.rng);
        self.refresh();
    }

    /// Time has come to `timer`, or later.
    pub fn on_timer(&mut self, now: Time) {
        self.newly_lost.clear();
        for receiver in 0..self.spaces.len() {
            let space = &mut self.spaces[receiver];
            if space.timer(self.config.max_ack_delay).is_none_or(|due| due > now) {
                continue;
            }
            let to = PeerId(receiver as u32);
            if space.awaits_loss() {
                self.acked.clear();
                self.learn(now, to, Answer::default());
            } else if self.config.recovery == LossRecovery::Rfc6675 {
                self.acked.clear();
                self.lost.clear();
                space.on_timeout(now, &mut self.lost);
                self.tell(now, to, Answer::default(), true);
            } else {
                space.back_off();
                self.probes.push_back(to);
            }
        }
        if self.controller.timer().is_some_and(|due| due <= now) {
            self.controller.on_timer(now, &mut self.rng);
            self.refresh();
        }
    }

    /// When `on_timer` must be called, or `poll` once more.
    #[inline(always)]
    pub fn timer(&self) -> Option<Time> {
        let mut earliest = self.controller.timer();
        let mut consider = |due: Option<Time>| {
            if let Some(due) = due {
                earliest = Some(earliest.map_or(due, |earliest| earliest.min(due)));
            }
        };
        for space in &self.spaces {
            consider(space.timer(self.config.max_ack_delay));
        }
        consider(self.awaits_pacer.then(|| self.release()));
        earliest
    }

    /// When the pacer has room for all that may leave at once: one wake for a burst.
    #[inline]
    fn release(&self) -> Time {
        let rate = self.limits.rate.unwrap_or(Rate::ZERO);
        self.pacer.release() + (self.limits.burst - self.config.packet) / rate
    }

    /// Asks the controller what holds now.
    #[inline]
    fn refresh(&mut self) {
        self.limits = self.controller.limits();
        if self.config.paced && self.limits.rate.is_none() {
            self.limits = self.pace(self.limits);
        }
    }

    /// Spreads the window over the round trip of the receiver that gets the next packet. Each
    /// packet then takes its share of a window's time by its own round trip, so that over all
    /// of them a window leaves in the mean round trip of its packets, as Little's law wants it.
    fn pace(&self, limits: Limits) -> Limits {
        let rtt = &self.spaces[self.paced_to.0 as usize].rtt;
        if !rtt.is_sampled() {
            return limits;
        }
        let rate = (limits.window / rtt.report(false).smoothed).max(Rate::LOWEST);
        let bits = rate.bits_per_sec().saturating_mul(PACING_GAIN_PERCENT) / 100;
        let burst = self.config.packet * PACING_BURST_PACKETS;
        Limits { rate: Some(Rate::from_bits_per_sec(bits)), burst, ..limits }
    }

    /// Nothing may leave and nothing is on its way that could change that.
    fn look_for_fault(&mut self) {
        let waits = self.in_flight > Bytes::ZERO || self.controller.timer().is_some();
        if self.limits.rate == Some(Rate::ZERO) {
            self.fault = Some(Fault::NoRate);
        } else if self.limits.window == Bytes::ZERO && !waits {
            self.fault = Some(Fault::NoWindow);
        }
    }

    /// Why nothing will leave any more, if so.
    #[inline]
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Whether all that was handed over has been acknowledged.
    pub fn is_done(&self) -> bool {
        self.writes.is_empty() && self.spaces.iter().all(|space| space.again.is_empty() && !space.is_in_flight())
    }

    /// Data bytes that wait to be sent for the first time.
    pub fn unsent(&self) -> u64 {
        self.writes.iter().fold(0, |sum, write| sum.saturating_add(write.left))
    }

    /// Data in flight.
    pub fn in_flight(&self) -> Bytes {
        self.in_flight
    }

    /// What holds now.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The smoothed round-trip time to `to`, once there is a sample.
    pub fn smoothed_rtt(&self, to: PeerId) -> Option<Duration> {
        let rtt = &self.spaces[to.0 as usize].rtt;
        rtt.is_sampled().then(|| rtt.report(false).smoothed)
    }

    /// The least round-trip time to `to`, once there is a sample.
    pub fn min_rtt(&self, to: PeerId) -> Option<Duration> {
        let rtt = &self.spaces[to.0 as usize].rtt;
        rtt.is_sampled().then(|| rtt.report(false).min)
    }

    /// The packets that the last ACK or the last call of `on_timer` made the sender declare
    /// lost: to whom each went, its number, and how its loss was found.
    pub fn newly_lost(&self) -> &[(PeerId, u64, LossCause)] {
        &self.newly_lost
    }

    /// Where the sender stands towards `to`.
    pub fn metrics(&self, to: PeerId) -> Metrics {
        let space = &self.spaces[to.0 as usize];
        Metrics {
            rtt: space.rtt.is_sampled().then(|| space.rtt.report(true)),
            probe_timeouts: space.probe_timeouts(),
            ecn: space.ecn(),
            limits: self.limits,
            in_flight: self.in_flight,
            packets_in_flight: self.spaces.iter().map(|space| u64::from(space.packets_in_flight())).sum(),
        }
    }

    /// Data in a full packet.
    pub fn packet(&self) -> Bytes {
        self.config.packet
    }

    /// How many receivers it serves.
    pub fn receivers(&self) -> usize {
        self.spaces.len()
    }

    /// Packets that have left.
    pub fn packets_sent(&self) -> u64 {
        self.packets_sent
    }

    /// Packets declared lost, those that were only late among them.
    pub fn packets_lost(&self) -> u64 {
        self.packets_lost
    }

    /// Packets that were acknowledged after they had been declared lost: they were only late.
    pub fn spurious_losses(&self) -> u64 {
        self.spurious_losses
    }

    /// Receivers whose counts of marks could not be true: packets to them may not be marked
    /// any more.
    pub fn ecn_failures(&self) -> u64 {
        self.spaces.iter().filter(|space| space.ecn() == Ecn::Failed).count() as u64
    }

    /// Delivered data, all receivers together.
    pub fn delivered(&self) -> Bytes {
        self.delivery.delivered()
    }

    /// The controller's named values.
    pub fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.controller.trace(record);
    }
}

//! A window that receivers share: one controller, pacer and delivery rate for all packets that a
//! sender has in flight, whoever they go to. What becomes of each packet is known here; what
//! the packets carry is decided above.

use std::collections::VecDeque;

use anabranch_control::delivery_rate::DeliveryRate;
use anabranch_control::flow::{
    Abandoned, Bounded, Bounds, Feedback, FlowController, Limits, LossCause, Lost, PeerId, RoundTrip, Sent, TcpRecovery,
};
use anabranch_control::pacer::Pacer;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::Ack;
use super::answer::{AckError, Answer, Losses, Piece};
use super::config::{LossRecovery, SenderConfig};
use super::loss_shares::{LossShares, packets_wait};
use super::space::{Ecn, Space};

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

/// The window, and the packets to each receiver.
#[derive(Clone, Debug)]
pub struct SharedWindow {
    config: SenderConfig,
    controller: Bounded,
    rng: Rng,
    limits: Limits,
    pacer: Pacer,
    catch_up: CatchUp,
    delivery: DeliveryRate,
    in_flight: Bytes,
    spaces: Vec<Space>,
    /// Packets that must leave whatever the window says, each to this receiver.
    probes: VecDeque<PeerId>,
    /// Nothing is left to send although the window has room.
    app_limited: bool,
    /// The pacer holds back a packet that may leave by the window.
    awaits_pacer: bool,
    /// To whom the next packet goes, or the last one went, whose round trip sets the pace.
    paced_to: PeerId,
    fault: Option<Fault>,
    /// Receivers come and go, and one that is silent says nothing of the others' way.
    come_and_go: bool,
    /// When the packet left that, of all that were acknowledged, left last.
    newest_acked: Time,
    /// How long acknowledged packets have waited for their ACK, in the mean.
    ack_wait: Duration,
    acked: Vec<Sent>,
    lost: Losses,
    newly_lost: Vec<(PeerId, u64, LossCause)>,
    loss_shares: LossShares,
    /// Packets that are lost, of which the controller does not learn as losses.
    excused: Vec<Sent>,
    packets_sent: u64,
    packets_lost: u64,
    spurious_losses: u64,
}

impl SharedWindow {
    /// The window of `controller`, which draws from `rng`, for `receivers` receivers.
    pub fn new(config: SenderConfig, controller: Box<dyn FlowController>, receivers: usize, rng: Rng) -> SharedWindow {
        let controller = Bounded::new(controller);
        SharedWindow {
            config,
            limits: controller.limits(),
            controller,
            rng,
            pacer: Pacer::default(),
            catch_up: CatchUp { span: Duration::ZERO, most: Bytes::ZERO },
            delivery: DeliveryRate::default(),
            in_flight: Bytes::ZERO,
            spaces: (0..receivers).map(|_| Space::new(&config)).collect(),
            probes: VecDeque::new(),
            app_limited: true,
            awaits_pacer: false,
            paced_to: PeerId(0),
            fault: None,
            come_and_go: false,
            newest_acked: Time::ZERO,
            ack_wait: Duration::ZERO,
            acked: Vec::new(),
            lost: Losses::default(),
            newly_lost: Vec::new(),
            loss_shares: LossShares::default(),
            excused: Vec::new(),
            packets_sent: 0,
            packets_lost: 0,
            spurious_losses: 0,
        }
    }

    /// How the sender sends.
    #[inline(always)]
    pub fn config(&self) -> &SenderConfig {
        &self.config
    }

    /// The window of receivers that come and go, none yet.
    pub fn without_receivers(config: SenderConfig, controller: Box<dyn FlowController>, rng: Rng) -> SharedWindow {
        SharedWindow { come_and_go: true, ..SharedWindow::new(config, controller, 0, rng) }
    }

    /// A receiver comes, under a number that is the next one or one whose receiver is gone.
    pub fn join(&mut self, receiver: PeerId) {
        let fresh = Space::of_many(&self.config);
        self.loss_shares.join(receiver.0 as usize);
        match self.spaces.get_mut(receiver.0 as usize) {
            Some(space) => *space = fresh,
            None => {
                debug_assert_eq!(receiver.0 as usize, self.spaces.len(), "receivers are numbered densely");
                self.spaces.push(fresh);
            }
        }
    }

    /// A receiver goes: what is in flight to it counts no more (RFC 9002, 6.4).
    pub fn leave(&mut self, now: Time, receiver: PeerId) {
        self.probes.retain(|to| *to != receiver);
        self.abandon(now, receiver, true);
    }

    /// A receiver has been silent for so long that what is in flight to it counts no more. If
    /// another one has answered to what left later, the others' way is open, and the controller
    /// learns nothing of a loss; else that is a persistent congestion, which needs that no
    /// packet to anybody arrived (RFC 9002, 7.6.2).
    pub fn give_up(&mut self, now: Time, receiver: PeerId) {
        let space = &mut self.spaces[receiver.0 as usize];
        if space.oldest().is_some_and(|oldest| oldest <= self.newest_acked) {
            return self.abandon(now, receiver, false);
        }
        self.acked.clear();
        self.lost.clear();
        self.newly_lost.clear();
        space.abandon(|number, sent| {
            self.lost.numbers.push(number);
            self.lost.packets.push(Lost { sent, cause: LossCause::RetransmissionTimeout });
        });
        self.tell(now, receiver, Answer::default(), true);
    }

    fn abandon(&mut self, now: Time, receiver: PeerId, is_gone: bool) {
        self.acked.clear();
        self.spaces[receiver.0 as usize].abandon(|_, sent| self.acked.push(sent));
        self.in_flight -= self.acked.iter().map(|sent| sent.size).sum();
        let abandoned = Abandoned { receiver, packets: &self.acked, in_flight: self.in_flight, is_gone };
        self.controller.on_abandoned(now, &abandoned);
        self.refresh();
    }

    /// The packets to `to`.
    #[inline(always)]
    pub fn space(&self, to: PeerId) -> &Space {
        &self.spaces[to.0 as usize]
    }

    /// The packets to `to`, to change.
    #[inline(always)]
    pub fn space_mut(&mut self, to: PeerId) -> &mut Space {
        &mut self.spaces[to.0 as usize]
    }

    /// The packets to each receiver, by receiver.
    #[inline(always)]
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// Learns the round trip to `to` before any data: from a handshake.
    pub fn on_handshake(&mut self, to: PeerId, rtt: Duration) {
        self.spaces[to.0 as usize].rtt.sample(rtt, Duration::ZERO);
        self.refresh();
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

    /// Whoever a packet must leave for whatever the window says. To be asked before each packet:
    /// nothing waits for the pacer until it is asked again.
    #[inline(always)]
    pub fn take_probe(&mut self) -> Option<PeerId> {
        self.awaits_pacer = false;
        self.probes.pop_front()
    }

    /// Whether a packet with `size` data bytes for `to` may leave now.
    #[inline(always)]
    pub fn admits(&mut self, now: Time, to: PeerId, size: Bytes) -> bool {
        if !self.fits(size) || !self.spaces[to.0 as usize].has_room() {
            self.app_limited = false;
            self.look_for_fault();
            return false;
        }
        self.pace_for(to);
        self.is_released(now)
    }

    /// Whether a packet with `size` data bytes may leave now, whoever it goes to.
    #[inline(always)]
    pub fn has_room(&mut self, now: Time, size: Bytes) -> bool {
        if !self.fits(size) {
            self.app_limited = false;
            self.look_for_fault();
            return false;
        }
        self.is_released(now)
    }

    #[inline(always)]
    fn fits(&self, size: Bytes) -> bool {
        self.in_flight + size <= self.limits.window
            || (self.in_flight == Bytes::ZERO && self.limits.window > Bytes::ZERO)
    }

    /// The next packet goes to `to`.
    #[inline(always)]
    pub fn pace_for(&mut self, to: PeerId) {
        if self.config.paced && to != self.paced_to {
            self.paced_to = to;
            self.refresh();
        }
    }

    /// Whether the pacer lets a packet leave now.
    #[inline(always)]
    fn is_released(&mut self, now: Time) -> bool {
        if self.limits.rate.is_some() && self.pacer.release() > now {
            self.app_limited = false;
            self.awaits_pacer = true;
            self.look_for_fault();
            return false;
        }
        true
    }

    /// There is nothing to send although the window has room.
    #[inline]
    pub fn set_app_limited(&mut self) {
        if !self.app_limited || !self.delivery.is_app_limited() {
            self.app_limited = true;
            self.delivery.set_app_limited(self.in_flight);
        }
    }

    /// What TCP's recovery sends for want of new data, if the window has room for it.
    #[cold]
    pub fn rescue(&mut self) -> Option<(PeerId, Bytes)> {
        if self.in_flight + self.config.packet > self.limits.window {
            return None;
        }
        let (to, piece) = (0u32..).zip(&mut self.spaces).find_map(|(to, space)| Some((to, space.rescue()?)))?;
        self.spaces[to as usize].again.push_back(piece);
        Some((PeerId(to), Bytes::new(u64::from(piece.length))))
    }

    /// A packet with `piece`, `size` data bytes in all, leaves for `to`: its number, and whether it
    /// may be marked.
    #[inline(always)]
    pub fn send(&mut self, now: Time, to: PeerId, piece: Piece, size: Bytes) -> (u64, bool) {
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
        (number, self.spaces[to.0 as usize].ecn() == Ecn::Capable)
    }

    /// `from` answers; `arrived` is told what the packets carried that it acknowledges.
    ///
    /// # Errors
    ///
    /// When the answer cannot be true; nothing has changed then.
    #[inline]
    pub fn on_ack(&mut self, now: Time, from: PeerId, ack: &Ack, arrived: impl FnMut(Piece)) -> Result<(), AckError> {
        let Some(space) = self.spaces.get_mut(from.0 as usize) else { return Err(AckError::Stranger) };
        self.acked.clear();
        self.newly_lost.clear();
        let answer = space.on_ack(now, ack, self.config.max_ack_delay, &mut self.acked, arrived)?;
        self.learn(now, from, answer);
        Ok(())
    }

    /// The time threshold of `to` has perhaps come.
    pub fn on_loss_time(&mut self, now: Time, to: PeerId) {
        self.newly_lost.clear();
        self.acked.clear();
        self.learn(now, to, Answer::default());
    }

    /// Looks for losses and tells the controller all at once.
    #[inline]
    fn learn(&mut self, now: Time, from: PeerId, answer: Answer) {
        let space = &mut self.spaces[from.0 as usize];
        self.lost.clear();
        let mut persistent_congestion = space.detect_losses(now, self.config.max_ack_delay, &mut self.lost);
        if self.come_and_go {
            // RFC 9002, 7.6.2: no packet of any space, here of any receiver, may have arrived.
            let first_lost = self.lost.packets.first().map_or(Time::MAX, |lost| lost.sent.at);
            persistent_congestion &= self.newest_acked < first_lost;
            self.newest_acked = self.acked.last().map_or(self.newest_acked, |sent| sent.at.max(self.newest_acked));
        }
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
        let mut rtt = space.rtt.report(answer.sampled);
        let newest = self.acked.last();
        let rate = newest.and_then(|newest| self.delivery.on_acked(now, answer.acked_bytes, newest, rtt.min));
        let tcp = space.tcp();
        let is_timeout = matches!(tcp, Some(TcpRecovery::Timeout { .. }));
        if self.acked.is_empty() && self.lost.packets.is_empty() && answer.newly_marked == 0 && !is_timeout {
            return;
        }
        if self.come_and_go {
            self.note_ack_wait(now, &mut rtt, answer.ack_delay);
            if !persistent_congestion {
                self.excuse_losses(now, from);
            }
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

    /// Takes losses out of what the controller is going to learn that weigh too little.
    #[inline]
    fn excuse_losses(&mut self, now: Time, from: PeerId) {
        let Some(newest) = self.lost.packets.iter().map(|lost| lost.sent.at).max() else { return };
        let lost = self.lost.packets.len() as f64;
        let own = f64::from(self.spaces[from.0 as usize].packets_in_flight()) + lost;
        let all = self.spaces.iter().map(|space| f64::from(space.packets_in_flight())).sum::<f64>() + lost;
        let waits = packets_wait(&self.spaces[from.0 as usize].rtt.report(false));
        if self.loss_shares.weigh(now, from.0 as usize, own / all, newest, waits) {
            return;
        }
        self.excused.clear();
        self.excused.extend(self.lost.packets.iter().map(|lost| lost.sent));
        self.lost.clear();
        let in_flight = self.in_flight;
        let abandoned = Abandoned { receiver: from, packets: &self.excused, in_flight, is_gone: false };
        self.controller.on_abandoned(now, &abandoned);
    }

    /// Takes what the receiver waited before it answered out of the sample: it is no delay of the
    /// path. What the packets that it has acknowledged waited for that counts in the window all the
    /// same, and where a receiver gets few packets it is long; the controller is told of it.
    #[inline]
    fn note_ack_wait(&mut self, now: Time, rtt: &mut RoundTrip, ack_delay: Duration) {
        let Some(latest) = &mut rtt.latest else { return };
        // As RFC 9002, 5.3, has it for the mean.
        if *latest >= rtt.min + ack_delay {
            *latest = *latest - ack_delay;
        }
        let packets = self.acked.len().max(1) as u64;
        let sum: u64 = self.acked.iter().map(|sent| (now.since(sent.at) - *latest).as_nanos()).sum();
        let wait = (sum / packets).min(self.config.max_ack_delay.as_nanos());
        // 7/8 and 1/8, as in the mean of round trips.
        self.ack_wait = Duration::from_nanos((self.ack_wait.as_nanos() * 7 + wait) / 8);
        self.controller.set_ack_wait(self.ack_wait);
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
        self.on_controller_timer(now);
    }

    /// The controller's time has come, perhaps.
    #[inline]
    pub fn on_controller_timer(&mut self, now: Time) {
        if self.controller.timer().is_some_and(|due| due <= now) {
            self.controller.on_timer(now, &mut self.rng);
            self.refresh();
        }
    }

    /// When the controller waits for time to pass, or the pacer has room.
    #[inline(always)]
    pub fn controller_timer(&self) -> Time {
        let due = self.controller.timer().unwrap_or(Time::MAX);
        if self.awaits_pacer { due.min(self.release()) } else { due }
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
        let Some(rtt) = self.spaces.get(self.paced_to.0 as usize).map(|space| &space.rtt) else { return limits };
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

    /// Data in flight.
    pub fn in_flight(&self) -> Bytes {
        self.in_flight
    }

    /// What holds now.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether the last ACK acknowledged something new.
    #[inline]
    pub fn has_acked(&self) -> bool {
        !self.acked.is_empty()
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

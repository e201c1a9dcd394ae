//! A window that receivers share: one controller, pacer and delivery rate for all packets that a
//! sender has in flight, whoever they go to. What becomes of each packet is known here; what
//! the packets carry is decided above.

use std::collections::VecDeque;

use anabranch_control::flow::{Bounds, FlowController, Limits, LossCause, PeerId, RoundTrip, Sent, TcpRecovery};
use anabranch_control::pacer::Pacer;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::Ack;
use super::answer::{AckError, Answer, Losses, Piece};
use super::config::{Reduction, SenderConfig};
use super::shared_controller::{Learned, PACING_GAIN_PERCENT, SharedController};
use super::space::{Ecn, Space};

/// Packets that leave at once under a pace that the sender sets itself: evenly.
const PACING_BURST_PACKETS: u64 = 1;

/// What a pacer lets a driver make up for that wakes late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// What the limits say in time: divisions that each packet would else make again.
#[derive(Clone, Copy, Debug, Default)]
struct Spans {
    /// Of what rate and burst.
    of: (Option<Rate>, Bytes),
    /// What a full packet takes.
    packet: Duration,
    /// What may leave at once after a pause, and a driver may make up for.
    spare: Duration,
    /// What all that is waited for together takes beside its first packet.
    wake: Duration,
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
    pub(super) config: SenderConfig,
    pub(super) shared: SharedController,
    limits: Limits,
    pacer: Pacer,
    spans: Spans,
    catch_up: CatchUp,
    pub(super) spaces: Vec<Space>,
    /// Packets that must leave whatever the window says, each to this receiver.
    pub(super) probes: VecDeque<PeerId>,
    /// The pacer holds back a packet that may leave by the window.
    awaits_pacer: bool,
    /// To whom the next packet goes, or the last one went, whose round trip sets the pace.
    paced_to: PeerId,
    fault: Option<Fault>,
    /// The window in a recovery of TCP's to this receiver that does not reduce it at once.
    reducing: Option<Bytes>,
    pub(super) acked: Vec<Sent>,
    pub(super) lost: Losses,
    pub(super) newly_lost: Vec<(PeerId, u64, LossCause)>,
    packets_sent: u64,
    packets_lost: u64,
    spurious_losses: u64,
}

impl SharedWindow {
    /// The window of `controller`, which draws from `rng`, for `receivers` receivers.
    pub fn new(config: SenderConfig, controller: Box<dyn FlowController>, receivers: usize, rng: Rng) -> SharedWindow {
        SharedWindow::over(config, SharedController::new(controller, rng), receivers)
    }

    pub(super) fn over(config: SenderConfig, shared: SharedController, receivers: usize) -> SharedWindow {
        let mut window = SharedWindow {
            config,
            limits: shared.limits(),
            shared,
            pacer: Pacer::default(),
            spans: Spans::default(),
            catch_up: CatchUp::default(),
            spaces: (0..receivers).map(|_| Space::new(&config)).collect(),
            probes: VecDeque::new(),
            awaits_pacer: false,
            paced_to: PeerId(0),
            fault: None,
            reducing: None,
            acked: Vec::new(),
            lost: Losses::default(),
            newly_lost: Vec::new(),
            packets_sent: 0,
            packets_lost: 0,
            spurious_losses: 0,
        };
        window.note_spans();
        window
    }

    /// How the sender sends.
    #[inline(always)]
    pub fn config(&self) -> &SenderConfig {
        &self.config
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
        self.shared.set_bounds(bounds);
        self.refresh();
    }

    /// A driver that can't wake at each packet's instant makes up for what it missed, up to
    /// this, so that its lateness doesn't become a lower rate. None is made up for at first.
    pub fn set_catch_up(&mut self, catch_up: CatchUp) {
        self.catch_up = catch_up;
        self.note_spans();
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
            self.shared.set_held_back();
            self.look_for_fault();
            return false;
        }
        self.pace_for(to);
        self.is_released(now)
    }

    /// Whether a packet with `size` data bytes may leave now, whoever it goes to, if there is any; `waiting` is how much
    /// waits for that.
    #[inline(always)]
    pub fn has_room(&mut self, now: Time, size: Bytes, waiting: impl FnOnce() -> Bytes) -> bool {
        if !self.fits(size) {
            self.shared.set_held_back();
            self.look_for_fault();
            return false;
        }
        if self.limits.rate.is_some() && self.pacer.release() > now {
            self.shared.set_paced(waiting());
            self.awaits_pacer = true;
            self.look_for_fault();
            return false;
        }
        true
    }

    #[inline(always)]
    fn fits(&self, size: Bytes) -> bool {
        self.shared.fits(size, self.limits.window)
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
            self.shared.set_held_back();
            self.awaits_pacer = true;
            self.look_for_fault();
            return false;
        }
        true
    }

    /// There is nothing to send although the window has room.
    #[inline]
    pub fn set_app_limited(&mut self) {
        self.shared.set_app_limited();
    }

    /// What TCP's recovery sends for want of new data, if the window has room for it.
    #[cold]
    pub fn rescue(&mut self) -> Option<(PeerId, Bytes)> {
        if self.in_flight() + self.config.packet > self.limits.window {
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
        let space = &mut self.spaces[to.0 as usize];
        let may_be_marked = space.ecn() == Ecn::Capable;
        let (number, sent) = space.send(now, piece);
        sent.at = now;
        sent.size = size;
        self.packets_sent += 1;
        if self.shared.on_sent(now, to, sent) {
            self.refresh();
        }
        if let Some(rate) = self.limits.rate {
            let takes = if size == self.config.packet { self.spans.packet } else { size / rate };
            self.pacer.charge(now, self.spans.spare, takes);
        }
        (number, may_be_marked)
    }

    /// `from` answers; `arrived` is called with what the packets carried that it acknowledges.
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
        self.learn_without_ack(now, to);
    }

    /// Looks for losses when a timer has come.
    #[inline(never)]
    fn learn_without_ack(&mut self, now: Time, to: PeerId) {
        self.acked.clear();
        self.learn(now, to, Answer::default());
    }

    /// Looks for losses and tells the controller all at once. Inlined into what takes an ACK: what it
    /// says would go through memory.
    #[inline(always)]
    fn learn(&mut self, now: Time, from: PeerId, answer: Answer) {
        let space = &mut self.spaces[from.0 as usize];
        self.lost.clear();
        let persistent_congestion = space.detect_losses(now, self.config.max_ack_delay, &mut self.lost);
        self.report(now, from, answer, persistent_congestion);
    }

    /// Keeps the books of what was acknowledged and lost, and gives the controller its feedback.
    #[inline(always)]
    fn report(&mut self, now: Time, from: PeerId, answer: Answer, persistent_congestion: bool) {
        let space = &mut self.spaces[from.0 as usize];
        self.shared.release(answer.pipe_bytes);
        self.shared.restore(answer.restored_bytes);
        if space.take_must_send() {
            self.probes.push_back(from);
        }
        let (rtt, tcp) = (space.rtt.report(answer.sampled), space.tcp());
        let share = if self.lost.packets.is_empty() { 0.0 } else { self.share(from) };
        for (lost, &number) in self.lost.packets.iter().zip(&self.lost.numbers) {
            self.newly_lost.push((from, number, lost.cause));
            self.shared.release(lost.sent.size);
        }
        self.packets_lost += self.lost.packets.len() as u64;
        self.spurious_losses += answer.spurious_losses;
        let learned = Learned {
            receiver: from,
            rtt,
            ack_delay: answer.ack_delay,
            acked: &self.acked,
            lost: &self.lost.packets,
            acked_bytes: answer.acked_bytes,
            share,
            marked: answer.newly_marked,
            persistent_congestion,
            tcp,
        };
        if self.shared.on_learned(now, &learned) {
            self.refresh();
        }
        if self.config.tcp.reduction != Reduction::Rfc6675 {
            self.reduce();
        }
    }

    /// The window follows a recovery of TCP's that reduces it by and by. One that several receivers share falls at once:
    /// RFC 6937 is about what one receiver reports, and what the others do moves all that is in flight.
    #[cold]
    fn reduce(&mut self) {
        let (pipe, ssthresh) = (self.in_flight(), self.shared.limits().window);
        let [space] = &mut self.spaces[..] else { return };
        let window = space.reduced_window(pipe, ssthresh);
        if window != self.reducing {
            self.reducing = window;
            self.refresh();
        }
    }

    /// The same of losses that a timer has found, whose congestion is persistent.
    #[inline(never)]
    pub(super) fn report_persistent_congestion(&mut self, now: Time, from: PeerId) {
        self.report(now, from, Answer::default(), true);
    }

    /// What of all that was in flight was on its way to `from`, whose losses were just found.
    fn share(&self, from: PeerId) -> f64 {
        let lost = self.lost.packets.len() as f64;
        let own = f64::from(self.spaces[from.0 as usize].packets_in_flight()) + lost;
        let all = self.spaces.iter().map(|space| f64::from(space.packets_in_flight())).sum::<f64>() + lost;
        own / all
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
                self.learn_without_ack(now, to);
            } else if self.config.recovery.is_tcp() {
                self.acked.clear();
                self.lost.clear();
                space.on_timeout(now, &mut self.lost);
                if space.tcp() != Some(TcpRecovery::Idle) {
                    self.report_persistent_congestion(now, to);
                } else if self.in_flight() == Bytes::ZERO {
                    self.report(now, to, Answer::default(), false);
                }
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
        if self.shared.on_timer(now) {
            self.refresh();
        }
    }

    /// When the controller waits for time to pass, or the pacer has room.
    #[inline(always)]
    pub fn controller_timer(&self) -> Time {
        let due = self.shared.timer().unwrap_or(Time::MAX);
        if self.awaits_pacer { due.min(self.release()) } else { due }
    }

    /// When `on_timer` must be called, or `poll` once more.
    #[inline(always)]
    pub fn timer(&self) -> Option<Time> {
        let mut due = self.controller_timer();
        for space in &self.spaces {
            due = due.min(space.timer(self.config.max_ack_delay).unwrap_or(Time::MAX));
        }
        (due < Time::MAX).then_some(due)
    }

    /// When the pacer has room for all that may leave at once: one wake for a burst. A burst of many
    /// receivers' packets is for what has come at once, and is not waited for.
    #[inline]
    fn release(&self) -> Time {
        self.pacer.release() + self.spans.wake
    }

    /// Asks the controller what holds now.
    #[inline(always)]
    pub(super) fn refresh(&mut self) {
        let before = self.limits.rate;
        self.limits = self.shared.limits();
        if let Some(window) = self.reducing {
            self.limits.window = window;
        }
        if self.config.paced && self.limits.rate.is_none() {
            self.limits = self.pace(self.limits);
        } else {
            self.pacer.on_rate(before, self.limits.rate, self.config.packet);
        }
        if self.spans.of != (self.limits.rate, self.limits.burst) {
            self.note_spans();
        }
    }

    /// Notes what the limits say in time.
    #[inline(never)]
    fn note_spans(&mut self) {
        let Limits { rate: noted, burst, .. } = self.limits;
        let rate = noted.unwrap_or(Rate::ZERO);
        let made_up = (rate * self.catch_up.span).min(self.catch_up.most);
        let at_once = if self.shared.is_of_many() { self.config.packet * 2 } else { burst };
        self.spans = Spans {
            of: (noted, burst),
            packet: self.config.packet / rate,
            spare: (burst + made_up) / rate,
            wake: (at_once - self.config.packet) / rate,
        };
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
        let waits = self.in_flight() > Bytes::ZERO || self.shared.timer().is_some();
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
        self.shared.in_flight()
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
            in_flight: self.in_flight(),
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
        self.shared.delivered()
    }

    /// What its controller has to say.
    pub fn note(&self) -> Option<String> {
        self.shared.note()
    }

    /// The controller's named values.
    pub fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.shared.trace(record);
    }
}

//! One congestion controller for all connections of a peer: a window that they share.
//!
//! To QUIC's library each connection has a controller of its own. Here that is a *share*: its window is
//! what the connection has in flight and what is left of the common window,
//!
//! ```text
//! share = in flight of the connection + (window - in flight of all)
//! ```
//!
//! so that whoever sends next takes what is left, and all of them together never have more in flight than
//! the one controller allows. The library tells shares what leaves, arrives and is lost; they tell the
//! controller, to which every connection is a receiver.
//!
//! A receiver is *silent* once a packet to it has waited for a probe timeout, counted from the last ACK or the
//! first packet behind it. At the second one in a row, three after the last sign of life, what is in flight
//! to it counts no more: it would hold up the others until the connection is over. Both are as in the
//! simulated sessions (`anabranch_proto::session`).

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

use anabranch_control::delivery_rate::DeliveryRate;
use anabranch_control::flow::{
    Abandoned, Bounded, Bounds, Feedback, FlowController, Limits, LossCause, Lost, PeerId, RoundTrip, Sent,
};
use anabranch_control::pacer::Pacer;
use anabranch_control::rng::Rng;
use anabranch_control::round_trip::RoundTripEstimator;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::flow::loss_shares::{LossShares, packets_wait};

/// A packet is settled without an answer when one that left so many percent of a round trip later is
/// acknowledged: the library has declared it lost long before if it counted (RFC 9002, 6.1.2).
const SETTLED_AFTER_PERCENT: u64 = 125;

/// What the library's own pacer, of each connection, takes for a window: it does not pace by one that
/// is so large. The common pacer paces.
const UNPACED: u64 = 1 << 40;

/// What a host wakes too late for, the pacer makes up for up to this, so that it does not become a lower rate.
const CATCH_UP: Duration = Duration::from_millis(10);

/// A receiver's ACKs may wait for so long: RFC 9000's own bound (18.2).
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// How long it takes to read ACKs that have come while this host was busy with something else, before they are
/// missed; and as much as another busy host's timers may be late.
const LATENESS: Duration = Duration::from_millis(25);

/// A packet whose fate is not known.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    number: u64,
    sent: Sent,
}

/// What is known of one connection's packets.
#[derive(Debug, Default)]
struct Member {
    /// In the order in which they left.
    packets: VecDeque<Outstanding>,
    rtt: RoundTripEstimator,
    /// No longer packet leaves but as a probe for the path's MTU, of whose loss nobody tells.
    mtu: Bytes,
    /// What the library counts as in flight, as far as it tells.
    in_flight: Bytes,
    /// Of that, what counts in the common window: nothing while it is given up.
    counted: Bytes,
    newest_acked: Option<Time>,
    /// Since when an ACK is awaited: since the last one, or since the first packet after it.
    waiting_since: Option<Time>,
    /// When its silence was due: ACKs that have come meanwhile are read first.
    missed_at: Option<Time>,
    is_silent: bool,
    is_given_up: bool,
    /// The library wanted to send and the window did not let it.
    is_blocked: bool,
    acked: Vec<Sent>,
    acked_bytes: Bytes,
    lost: Vec<Lost>,
    lost_bytes: Bytes,
    marked: u64,
    is_persistent: bool,
    is_sampled: bool,
    is_untold: bool,
}

impl Member {
    fn take(&mut self, number: u64, size: Bytes) -> Option<Sent> {
        let place = self.packets.iter().position(|packet| packet.number == number && packet.sent.size == size)?;
        self.packets.remove(place).map(|packet| packet.sent)
    }

    /// What is in flight of probes for the path's MTU.
    fn probes(&self) -> Bytes {
        self.packets.iter().map(|packet| packet.sent.size).filter(|&size| size > self.mtu).sum()
    }
}

/// A receiver's silence has begun or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Whose.
    pub member: u32,
    /// Whether it has begun.
    pub has_begun: bool,
}

#[derive(Debug)]
struct State {
    /// The library's time when ours was zero.
    began: Instant,
    controller: Bounded,
    limits: Limits,
    rng: Rng,
    pacer: Pacer,
    delivery: DeliveryRate,
    members: Vec<Option<Member>>,
    free: Vec<u32>,
    /// The member that was made last, for whoever began its connection.
    newest: Option<u32>,
    /// What counts of all connections.
    in_flight: Bytes,
    lost_bytes: Bytes,
    sent_bytes: Bytes,
    /// When something last happened.
    last: Time,
    /// When the packet left that, of all that were acknowledged, left last.
    newest_acked: Time,
    is_app_limited: bool,
    /// The pacer holds back a packet that may leave by the window.
    awaits_pacer: bool,
    loss_shares: LossShares,
    /// Members whose silence has changed.
    silences: Vec<Silence>,
    /// No member's silence is due earlier.
    silence_due: Time,
}

impl State {
    fn time(&self, at: Instant) -> Time {
        let since = at.saturating_duration_since(self.began);
        Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    fn member(&mut self, number: u32) -> &mut Member {
        self.members[number as usize].as_mut().expect("a share's member lives as long as the share")
    }

    /// What a member has in flight is `in_flight` now.
    fn recount(&mut self, number: u32, in_flight: Bytes) {
        let member = self.member(number);
        member.in_flight = in_flight;
        let counted = if member.is_given_up { Bytes::ZERO } else { in_flight };
        let before = std::mem::replace(&mut member.counted, counted);
        self.in_flight = self.in_flight + counted - before;
    }

    fn join(&mut self, mtu: u16) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.members.push(None);
            self.members.len() as u32 - 1
        });
        self.members[number as usize] = Some(Member { mtu: Bytes::new(u64::from(mtu)), ..Member::default() });
        self.newest = Some(number);
        self.loss_shares.join(number as usize);
        number
    }

    /// The connection is over: what is in flight over it counts no more (RFC 9002, 6.4).
    fn leave(&mut self, number: u32) {
        self.recount(number, Bytes::ZERO);
        let Some(member) = self.members[number as usize].take() else { return };
        self.free.push(number);
        self.silences.retain(|silence| silence.member != number);
        self.abandon(self.last, number, member.packets.iter().map(|packet| packet.sent).collect(), true);
    }

    fn abandon(&mut self, now: Time, number: u32, packets: Vec<Sent>, is_gone: bool) {
        let in_flight = self.in_flight;
        let abandoned = Abandoned { receiver: PeerId(number), packets: &packets, in_flight, is_gone };
        self.controller.on_abandoned(now, &abandoned);
        self.limits = self.controller.limits();
    }

    fn on_sent(&mut self, now: Time, number: u32, packet: u64, size: Bytes) {
        self.last = now;
        let mut sent = Sent { at: now, size, ..Sent::default() };
        self.delivery.on_sent(&mut sent, self.in_flight);
        let in_flight = self.member(number).in_flight + size;
        self.recount(number, in_flight);
        sent.in_flight = self.in_flight;
        self.sent_bytes += size;
        let member = self.member(number);
        member.packets.push_back(Outstanding { number: packet, sent });
        if member.waiting_since.is_none() && size <= member.mtu {
            member.waiting_since = Some(now);
            let due = now + member.rtt.probe_timeout(MAX_ACK_DELAY);
            self.silence_due = self.silence_due.min(due);
        }
        if self.controller.on_sent(now, PeerId(number), &sent, &mut self.rng) {
            self.limits = self.controller.limits();
        }
        if let Some(rate) = self.limits.rate {
            self.pacer.on_sent(now, size, rate, self.limits.burst + rate * CATCH_UP);
        }
    }

    fn on_ack(&mut self, number: u32, packet: u64, left: Time, size: Bytes) {
        let (delivered, lost) = (self.delivery.delivered(), self.lost_bytes);
        let member = self.member(number);
        // Of a packet that is not known, or was given up, the rate sample would be too low.
        let unknown = Sent {
            at: left,
            size,
            delivered,
            delivered_at: left,
            first_sent_at: left,
            lost,
            app_limited: true,
            ..Sent::default()
        };
        let sent = member.take(packet, size).unwrap_or(unknown);
        member.acked_bytes += size;
        member.acked.push(sent);
        member.is_untold = true;
    }

    /// All packets of an ACK were told; `in_flight` is what the connection has in flight now.
    fn on_end_acks(&mut self, now: Time, number: u32, in_flight: Bytes) {
        let member = self.member(number);
        let newest = member.acked.iter().map(|sent| sent.at).max();
        if let Some(newest) = newest.filter(|_| newest > member.newest_acked) {
            // RFC 9002, 5.1: a sample only when the newest packet of all is newly acknowledged.
            member.newest_acked = Some(newest);
            member.rtt.sample(now.since(newest), Duration::ZERO);
            member.is_sampled = true;
        }
        member.waiting_since = (in_flight > member.probes()).then_some(now);
        let due = member.waiting_since.map(|since| since + member.rtt.probe_timeout(MAX_ACK_DELAY));
        member.is_given_up = false;
        member.missed_at = None;
        if std::mem::take(&mut member.is_silent) {
            self.silences.push(Silence { member: number, has_begun: false });
        }
        self.silence_due = self.silence_due.min(due.unwrap_or(Time::MAX));
        self.newest_acked = self.newest_acked.max(newest.unwrap_or(Time::ZERO));
        self.recount(number, in_flight);
    }

    fn on_packet_lost(&mut self, number: u32, packet: u64, size: Bytes, is_by_ack: bool) {
        let member = self.member(number);
        let known = member.take(packet, size);
        let in_flight = member.in_flight - size.min(member.in_flight);
        if let Some(sent) = known {
            let cause = if is_by_ack { LossCause::PacketThreshold } else { LossCause::TimeThreshold };
            member.lost.push(Lost { sent, cause });
            member.lost_bytes += size;
            member.is_untold = true;
        }
        if in_flight <= member.probes() {
            member.waiting_since = None;
        }
        self.recount(number, in_flight);
    }

    /// Tells the controller all that one instant brought of a connection.
    fn tell(&mut self, now: Time, number: u32) {
        self.run_timer(now);
        let Some(member) = self.members.get_mut(number as usize).and_then(Option::as_mut) else { return };
        if !std::mem::take(&mut member.is_untold) {
            return;
        }
        settle(now, member);
        let (mut acked, mut lost) = (std::mem::take(&mut member.acked), std::mem::take(&mut member.lost));
        acked.sort_by_key(|sent| sent.at);
        lost.sort_by_key(|lost| lost.sent.at);
        let (acked_bytes, lost_bytes) =
            (std::mem::take(&mut member.acked_bytes), std::mem::take(&mut member.lost_bytes));
        let rtt: RoundTrip = member.rtt.report(std::mem::take(&mut member.is_sampled));
        let marked = std::mem::take(&mut member.marked);
        let first_lost = lost.first().map_or(Time::MAX, |lost| lost.sent.at);
        // RFC 9002, 7.6.2: no packet to anybody may have arrived.
        let is_persistent = std::mem::take(&mut member.is_persistent) && self.newest_acked < first_lost;
        self.lost_bytes += lost_bytes;
        self.delivery.on_lost(lost_bytes);
        let newest = acked.last();
        let rate = newest.and_then(|newest| self.delivery.on_acked(now, acked_bytes, newest, rtt.min));
        if acked.is_empty() && lost.is_empty() && marked == 0 {
            return;
        }
        if !is_persistent && !self.learns_of(now, number, &lost, lost_bytes, &rtt) {
            let packets: Vec<Sent> = lost.drain(..).map(|lost| lost.sent).collect();
            self.abandon(now, number, packets, false);
        }
        let feedback = Feedback {
            receiver: PeerId(number),
            rtt,
            acked: &acked,
            lost: &lost,
            acked_bytes,
            in_flight: self.in_flight,
            delivered: self.delivery.delivered(),
            rate,
            ecn_marked_packets: marked,
            persistent_congestion: is_persistent,
            tcp: None,
            app_limited: self.is_app_limited,
        };
        self.controller.on_feedback(now, &feedback, &mut self.rng);
        self.limits = self.controller.limits();
        // What was taken is given back, so that nothing is allocated for the next ACK.
        acked.clear();
        lost.clear();
        let member = self.member(number);
        (member.acked, member.lost) = (acked, lost);
    }

    /// Whether the controller is to learn of these losses as such: see [`LossShares`].
    fn learns_of(&mut self, now: Time, number: u32, lost: &[Lost], lost_bytes: Bytes, rtt: &RoundTrip) -> bool {
        let Some(newest) = lost.last().map(|lost| lost.sent.at) else { return true };
        let of = |bytes: Bytes| (bytes + lost_bytes).get() as f64;
        let own = self.member(number).counted;
        let share = of(own) / of(self.in_flight);
        self.loss_shares.weigh(now, number as usize, share, newest, packets_wait(rtt))
    }

    fn run_timer(&mut self, now: Time) {
        self.last = now;
        if self.controller.timer().is_some_and(|due| due <= now) {
            self.controller.on_timer(now, &mut self.rng);
            self.limits = self.controller.limits();
        }
    }

    /// Looks for receivers that have begun to be silent, and those that have been for long.
    fn look_for_silence(&mut self, now: Time) {
        if now < self.silence_due {
            return;
        }
        self.silence_due = Time::MAX;
        for number in 0..self.members.len() as u32 {
            let Some(member) = &mut self.members[number as usize] else { continue };
            let Some(since) = member.waiting_since else { continue };
            let timeout = member.rtt.probe_timeout(MAX_ACK_DELAY);
            let due = |member: &Member| match (member.is_silent, member.missed_at) {
                (true, _) => since + timeout * 3,
                (false, Some(missed_at)) => missed_at + LATENESS,
                (false, None) => since + timeout,
            };
            if !member.is_silent && member.missed_at.is_none() && now >= due(member) {
                member.missed_at = Some(now);
            }
            if !member.is_silent && now >= due(member) {
                (member.is_silent, member.missed_at) = (true, None);
                self.silences.push(Silence { member: number, has_begun: true });
            }
            if member.is_silent && !member.is_given_up && now >= due(member) {
                self.give_up(now, number);
                continue;
            }
            if !member.is_given_up {
                self.silence_due = self.silence_due.min(due(member));
            }
        }
    }

    fn give_up(&mut self, now: Time, number: u32) {
        let newest_acked = self.newest_acked;
        let member = self.member(number);
        member.is_given_up = true;
        let in_flight = member.in_flight;
        let packets: Vec<Sent> = member.packets.drain(..).map(|packet| packet.sent).collect();
        self.recount(number, in_flight);
        // If another one has answered to what left later, the others' way is open.
        if packets.first().is_none_or(|oldest| oldest.at <= newest_acked) {
            return self.abandon(now, number, packets, false);
        }
        let member = self.member(number);
        member.lost_bytes += packets.iter().map(|sent| sent.size).sum::<Bytes>();
        member.lost.extend(packets.iter().map(|&sent| Lost { sent, cause: LossCause::RetransmissionTimeout }));
        (member.is_persistent, member.is_untold) = (true, true);
        self.tell(now, number);
    }

    fn left(&self) -> Bytes {
        self.limits.window - self.in_flight.min(self.limits.window)
    }
}

/// Puts what will never be answered (lost probes for the path's MTU, what was left of the handshake) among
/// the acknowledged packets, where it counts in no sum: some controllers wait for each packet's fate.
fn settle(now: Time, member: &mut Member) {
    let Some(newest) = member.newest_acked else { return };
    let round_trip = member.rtt.report(false).smoothed * SETTLED_AFTER_PERCENT / 100;
    let long_ago = Time::from_nanos(now.as_nanos().saturating_sub(round_trip.as_nanos())).min(newest);
    while member.packets.front().is_some_and(|oldest| oldest.sent.at < long_ago) {
        member.acked.extend(member.packets.pop_front().map(|packet| packet.sent));
    }
}

/// A window that connections share. Clones are the same.
#[derive(Clone, Debug)]
pub struct SharedWindow(Arc<Mutex<State>>);

impl SharedWindow {
    /// That of `controller`, which draws from `rng`; our time is zero at `began`.
    pub fn new(controller: Box<dyn FlowController>, rng: Rng, began: Instant) -> SharedWindow {
        let controller = Bounded::new(controller);
        SharedWindow(Arc::new(Mutex::new(State {
            began,
            limits: controller.limits(),
            controller,
            rng,
            pacer: Pacer::default(),
            delivery: DeliveryRate::default(),
            members: Vec::new(),
            free: Vec::new(),
            newest: None,
            in_flight: Bytes::ZERO,
            lost_bytes: Bytes::ZERO,
            sent_bytes: Bytes::ZERO,
            last: Time::ZERO,
            newest_acked: Time::ZERO,
            is_app_limited: true,
            awaits_pacer: false,
            loss_shares: LossShares::default(),
            silences: Vec::new(),
            silence_due: Time::MAX,
        })))
    }

    /// A controller that panicked leaves its last state, and numbers stay numbers.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a share for each connection.
    pub fn factory(&self) -> Arc<Factory> {
        Arc::new(Factory(self.clone()))
    }

    /// The member of the connection that has just begun.
    pub fn take_newest(&self) -> Option<u32> {
        self.lock().newest.take()
    }

    /// Tells the controller what a connection has brought.
    pub fn tell(&self, now: Time, member: u32) {
        self.lock().tell(now, member);
    }

    /// Whether a packet of `size` may leave now, whoever it goes to.
    pub fn has_room(&self, now: Time, size: Bytes) -> bool {
        let mut state = self.lock();
        let is_empty = state.in_flight == Bytes::ZERO && state.limits.window > Bytes::ZERO;
        let fits = is_empty || state.left() >= size;
        state.awaits_pacer = fits && state.limits.rate.is_some() && state.pacer.release() > now;
        let may = fits && !state.awaits_pacer;
        state.is_app_limited &= may;
        may
    }

    /// There is nothing to send although the window has room.
    pub fn set_app_limited(&self) {
        let mut state = self.lock();
        if !state.is_app_limited || !state.delivery.is_app_limited() {
            state.is_app_limited = true;
            let in_flight = state.in_flight;
            state.delivery.set_app_limited(in_flight);
        }
    }

    /// Whether a connection wanted to send and the window did not let it; asked once for each time.
    pub fn take_blocked(&self, member: u32) -> bool {
        let mut state = self.lock();
        state
            .members
            .get_mut(member as usize)
            .and_then(Option::as_mut)
            .is_some_and(|member| std::mem::take(&mut member.is_blocked))
    }

    /// Whether a receiver is silent.
    pub fn is_silent(&self, member: u32) -> bool {
        self.lock().members.get(member as usize).and_then(Option::as_ref).is_some_and(|member| member.is_silent)
    }

    /// What is due by time; whose silence has begun or ended since the last call.
    pub fn poll(&self, now: Time, silences: &mut Vec<Silence>) {
        let mut state = self.lock();
        state.run_timer(now);
        state.look_for_silence(now);
        silences.append(&mut state.silences);
    }

    /// When to call [`SharedWindow::poll`], or to ask again for room that the pacer has denied.
    pub fn timer(&self) -> Time {
        let state = self.lock();
        let released = state.awaits_pacer.then(|| state.pacer.release());
        let controller = state.controller.timer();
        [released, controller].into_iter().flatten().fold(state.silence_due, Time::min)
    }

    /// The least round trip to a receiver, once there is a sample.
    pub fn least_round_trip(&self, member: u32) -> Option<Duration> {
        let state = self.lock();
        let member = state.members.get(member as usize)?.as_ref()?;
        member.rtt.is_sampled().then(|| member.rtt.report(false).min)
    }

    /// Bounds that hold for the controller's window from now on.
    pub fn set_bounds(&self, bounds: Bounds) {
        let mut state = self.lock();
        state.controller.set(bounds);
        state.limits = state.controller.limits();
    }

    /// What the controller allows.
    pub fn limits(&self) -> Limits {
        self.lock().limits
    }

    /// What is in flight over all connections.
    pub fn in_flight(&self) -> Bytes {
        self.lock().in_flight
    }

    /// Sent, delivered and lost since the beginning.
    pub fn totals(&self) -> (Bytes, Bytes, Bytes) {
        let state = self.lock();
        (state.sent_bytes, state.delivery.delivered(), state.lost_bytes)
    }

    /// The controller's named values; see `FlowController::trace`.
    pub fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.lock().controller.trace(record);
    }
}

/// Makes shares.
#[derive(Debug)]
pub struct Factory(SharedWindow);

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, _: Instant, mtu: u16) -> Box<dyn Controller> {
        let number = self.0.lock().join(mtu);
        Box::new(Share(Arc::new(Membership { window: self.0.clone(), number })))
    }
}

/// A connection's place, until all that speak for it are gone.
#[derive(Debug)]
struct Membership {
    window: SharedWindow,
    number: u32,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.window.lock().leave(self.number);
    }
}

/// What a connection's controller is.
#[derive(Clone, Debug)]
struct Share(Arc<Membership>);

impl Share {
    fn with<R>(&self, act: impl FnOnce(&mut State, u32) -> R) -> R {
        act(&mut self.0.window.lock(), self.0.number)
    }
}

impl Controller for Share {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, packet: u64) {
        self.with(|state, number| state.on_sent(state.time(now), number, packet, Bytes::new(u64::from(bytes))));
    }

    fn on_ack(&mut self, _: Instant, sent: Instant, bytes: u64, packet: u64, _: bool, _: &RttEstimator) {
        self.with(|state, number| state.on_ack(number, packet, state.time(sent), Bytes::new(bytes)));
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        self.with(|state, number| state.on_end_acks(state.time(now), number, Bytes::new(in_flight)));
    }

    fn on_packet_lost(&mut self, bytes: u16, packet: u64, _: Instant) {
        self.with(|state, number| {
            let is_by_ack = !state.member(number).acked.is_empty();
            state.on_packet_lost(number, packet, Bytes::new(u64::from(bytes)), is_by_ack);
        });
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, is_persistent: bool, is_ecn: bool, _: u64, _: u64) {
        self.with(|state, number| {
            let member = state.member(number);
            member.is_persistent |= is_persistent;
            member.marked += u64::from(is_ecn);
            member.is_untold = true;
        });
    }

    fn on_cwnd_limited(&mut self) {
        self.with(|state, number| state.member(number).is_blocked = true);
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.with(|state, number| state.member(number).mtu = Bytes::new(u64::from(mtu)));
    }

    fn window(&self) -> u64 {
        self.with(|state, number| {
            let own = state.member(number).in_flight;
            // A window above 0 always admits one packet to an empty network, however small it is.
            if state.in_flight == Bytes::ZERO && state.limits.window > Bytes::ZERO {
                return u64::MAX / 2;
            }
            (own + state.left()).get()
        })
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = UNPACED;
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        UNPACED
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::flow::registry::{self, Setup};

    use super::*;

    const PACKET: Bytes = Bytes::new(1000);

    /// A window of so many packets.
    fn shared(packets: u64) -> SharedWindow {
        let entry = registry::find("cubic").unwrap();
        let controller = (entry.build)(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
        let window = SharedWindow::new(controller, Rng::stream(1, "test"), Instant::now());
        window.set_bounds(Bounds { fixed: Some(PACKET * packets), ..Bounds::default() });
        window
    }

    fn share(window: &SharedWindow) -> (Box<dyn Controller>, u32) {
        let share = window.factory().build(Instant::now(), 1200);
        (share, window.take_newest().unwrap())
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn send(window: &SharedWindow, member: u32, ms: u64, packet: u64) {
        window.lock().on_sent(at(ms), member, packet, PACKET);
    }

    fn ack(window: &SharedWindow, member: u32, (ms, sent): (u64, u64), packet: u64, in_flight: u64) {
        let mut state = window.lock();
        state.on_ack(member, packet, at(sent), PACKET);
        state.on_end_acks(at(ms), member, PACKET * in_flight);
        state.tell(at(ms), member);
    }

    fn silences(window: &SharedWindow, ms: u64) -> Vec<(u32, bool)> {
        let mut silences = Vec::new();
        window.poll(at(ms), &mut silences);
        silences.iter().map(|silence| (silence.member, silence.has_begun)).collect()
    }

    #[test]
    fn all_connections_together_have_no_more_in_flight_than_the_window() {
        let window = shared(4);
        let [(one, first), (other, second)] = [share(&window), share(&window)];
        send(&window, first, 0, 0);
        send(&window, first, 0, 1);
        assert_eq!((one.window(), other.window()), (4000, 2000));
        send(&window, second, 1, 0);
        send(&window, second, 1, 1);
        assert_eq!((one.window(), other.window(), window.in_flight()), (2000, 2000, PACKET * 4));
        assert!(!window.has_room(at(1), PACKET));
        ack(&window, first, (20, 0), 0, 1);
        assert_eq!((one.window(), other.window()), (2000, 3000), "whoever sends next takes what is left");
        assert!(window.has_room(at(20), PACKET) && !window.has_room(at(20), PACKET * 2));
        let loss = PACKET;
        window.lock().on_packet_lost(second, 0, loss, false);
        assert_eq!((one.window(), window.in_flight()), (3000, PACKET * 2));
    }

    #[test]
    fn a_connection_that_is_over_leaves_its_part_to_others() {
        let window = shared(2);
        let [(one, first), (other, second)] = [share(&window), share(&window)];
        send(&window, first, 0, 0);
        send(&window, first, 0, 1);
        assert!(!window.has_room(at(0), PACKET));
        let copy = one.clone_box();
        drop(one);
        assert!(!window.has_room(at(0), PACKET), "somebody still speaks for it");
        drop(copy);
        assert_eq!((window.in_flight(), other.window()), (Bytes::ZERO, u64::MAX / 2));
        send(&window, second, 1, 0);
        assert_eq!(share(&window).1, first, "its number is free");
    }

    #[test]
    fn a_receiver_that_answers_nothing_is_silent_and_holds_up_the_others_no_longer_than_three_timeouts() {
        let window = shared(4);
        let [(_one, first), (_other, second)] = [share(&window), share(&window)];
        for member in [first, second] {
            send(&window, member, 0, 0);
            ack(&window, member, (20, 0), 0, 0);
        }
        // 20 ms, four times half of it, and what ACKs may wait: 85 ms.
        send(&window, first, 100, 1);
        send(&window, first, 100, 2);
        send(&window, second, 100, 1);
        ack(&window, second, (120, 100), 1, 0);
        assert_eq!((silences(&window, 184), window.timer()), (vec![], at(185)));
        // What has come already may be unread.
        assert_eq!((silences(&window, 185), window.timer()), (vec![], at(210)));
        assert_eq!(silences(&window, 210), [(first, true)]);
        assert!(window.is_silent(first) && !window.is_silent(second));
        assert_eq!((window.in_flight(), window.timer()), (PACKET * 2, at(355)));
        send(&window, second, 300, 2);
        ack(&window, second, (320, 300), 2, 0);
        assert_eq!((silences(&window, 355), window.in_flight()), (vec![], Bytes::ZERO), "it counts no more");
        ack(&window, first, (500, 100), 2, 1);
        assert_eq!((silences(&window, 500), window.in_flight()), (vec![(first, false)], PACKET));
    }

    #[test]
    fn a_lost_probe_for_the_mtu_is_no_silence() {
        let window = shared(4);
        let (mut one, first) = share(&window);
        one.on_mtu_update(1372);
        send(&window, first, 0, 0);
        ack(&window, first, (20, 0), 0, 0);
        window.lock().on_sent(at(30), first, 1, Bytes::new(1452));
        assert_eq!((silences(&window, 10_000), window.timer()), (vec![], Time::MAX));
        send(&window, first, 10_000, 2);
        ack(&window, first, (10_020, 10_000), 2, 0);
        assert_eq!((silences(&window, 20_000), window.lock().member(first).packets.len()), (vec![], 0));
    }

    #[test]
    fn the_controller_learns_of_losses_and_grows_by_what_arrives() {
        let window = shared(1);
        window.set_bounds(Bounds::default());
        let (_one, first) = share(&window);
        let before = window.limits().window;
        for packet in 0..5 {
            send(&window, first, packet, packet);
            assert!(window.has_room(at(packet), PACKET));
        }
        window.lock().is_app_limited = false;
        ack(&window, first, (20, 0), 0, 4);
        let grown = window.limits().window;
        assert!(grown > before, "{grown:?}");
        let mut state = window.lock();
        state.on_packet_lost(first, 1, PACKET, false);
        state.tell(at(30), first);
        drop(state);
        assert!(window.limits().window < grown);
        assert_eq!(window.totals(), (PACKET * 5, PACKET, PACKET));
    }
}

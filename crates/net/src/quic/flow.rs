//! One connection's controller as a QUIC library drives it, whichever library that is.
//!
//! Both libraries report one ACK in pieces: each packet, then the end of the batch, then
//! losses, then marks. A controller gets all of it at once, so the pieces are kept until
//! something else happens or somebody asks for the window, and then given as one `Feedback`.
//!
//! What a library does not say and what is taken instead:
//! - Which packets are lost: see `ledger`. Which threshold found them: that on packets when
//!   an ACK did, that on time when a timer did.
//! - What becomes of packets that are never answered: they are reported among the acknowledged,
//!   without counting, when a packet that counts would have been declared lost.
//! - The latest round-trip sample and the variation: both are taken here, from the newest
//!   acknowledged packet, without the receiver's delay. The mean is the library's, with its
//!   correction for that delay, as it stood before the ACK.
//! - Timers: there are none. `on_timer` is called with the first event at which it is due,
//!   which in a connection that transfers is at most an ACK away.
//! - A change of the path's MTU: the controller's packet stays what it was at the start.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use anabranch_control::delivery_rate::DeliveryRate;
use anabranch_control::flow::registry::Setup;
use anabranch_control::flow::{Bounded, Bounds, Feedback, FlowController, LossCause, Lost, PeerId, RoundTrip, Sent};
use anabranch_control::rng::Rng;
use anabranch_control::round_trip::RoundTripEstimator;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::ledger::Ledger;

/// The only receiver of a connection.
const PEER: PeerId = PeerId(0);

/// A packet that left this many percent of a round trip ago, before one that was acknowledged,
/// has been declared lost if it counted: RFC 9002 6.1.2 waits 9/8, of a round trip that the
/// library measures more exactly.
const SETTLED_AFTER_PERCENT: u64 = 125;

/// Packets that a rate may always have in flight where it acts through the window: with
/// fewer, receivers that answer each second packet leave pauses
/// (draft-ietf-ccwg-bbr-04 5.6.4.3).
const LEAST_AT_RATE_PACKETS: u64 = 4;

/// One connection's controller: the connection drives it, others may watch and bound it.
/// Clones are the same controller.
#[derive(Clone, Debug)]
pub struct Flow(Arc<Shared>);

/// A flow whose connection may be over.
#[derive(Debug)]
pub(super) struct WeakFlow(Weak<Shared>);

impl WeakFlow {
    pub(super) fn upgrade(&self) -> Option<Flow> {
        self.0.upgrade().map(Flow)
    }
}

#[derive(Debug)]
struct Shared {
    name: &'static str,
    began: Instant,
    /// What the library reads for each packet, so that it takes no lock for it.
    window: AtomicU64,
    /// Bytes a second; 0 without a rate.
    rate: AtomicU64,
    burst: AtomicU64,
    /// What the rate keeps in flight over a round trip; all there is without a rate.
    at_rate: AtomicU64,
    mtu: AtomicU64,
    /// Whether something was reported to us and not yet to the controller.
    pending: AtomicBool,
    state: Mutex<State>,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Since the connection began.
    pub age: Duration,
    /// What may be in flight, within the bounds; QUIC packets with their headers.
    pub window: Bytes,
    /// The rate that the controller asks for, if it paces.
    pub rate: Option<Rate>,
    /// The smoothed round-trip time, once there was a sample.
    pub smoothed_rtt: Option<Duration>,
    /// The least round-trip time, once there was a sample.
    pub min_rtt: Option<Duration>,
    /// Sent and neither acknowledged nor lost.
    pub in_flight: Bytes,
    /// Acknowledged since the connection began.
    pub delivered: Bytes,
    /// Declared lost since the connection began.
    pub lost: Bytes,
    /// How often packets were declared lost or found marked.
    pub congestion_events: u64,
}

/// All that an ACK says but its packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckEnd {
    /// Data in flight after it.
    pub in_flight: Bytes,
    /// Whether the application had nothing more to send before it.
    pub app_limited: bool,
    /// The library's smoothed round-trip time before it.
    pub smoothed_rtt: std::time::Duration,
}

impl Flow {
    pub(super) fn new(
        name: &'static str,
        controller: Box<dyn FlowController>,
        bounds: Bounds,
        setup: Setup,
        rng: Rng,
        began: Instant,
    ) -> Flow {
        let mut controller = Bounded::new(controller);
        controller.set(bounds);
        let state = State::new(controller, bounds, rng);
        let shared = Shared {
            name,
            began,
            window: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            burst: AtomicU64::new(0),
            at_rate: AtomicU64::new(u64::MAX),
            mtu: AtomicU64::new(setup.packet.get()),
            pending: AtomicBool::new(false),
            state: Mutex::new(state),
        };
        let flow = Flow(Arc::new(shared));
        flow.publish(&flow.lock());
        flow
    }

    pub(super) fn downgrade(&self) -> WeakFlow {
        WeakFlow(Arc::downgrade(&self.0))
    }

    /// The controller's name.
    pub fn controller(&self) -> &'static str {
        self.0.name
    }

    /// Bounds the window from now on. The connection sends within them with its next
    /// packet; a raised bound is used from its next event on, an ACK most often.
    pub fn set(&self, bounds: Bounds) {
        let mut state = self.lock();
        state.bounds = bounds;
        state.controller.set(bounds);
        self.publish(&state);
    }

    /// Bounds the window for `lease` from now on, whatever `bounds.expires` says: the connection
    /// has a clock of its own. As it has no timer either, the end of the lease is seen with its
    /// first event after it.
    pub fn lease(&self, bounds: Bounds, lease: Duration) {
        let expires = self.time(Instant::now()) + lease;
        self.set(Bounds { expires: Some(expires), ..bounds });
    }

    /// The bounds that were set.
    pub fn bounds(&self) -> Bounds {
        self.lock().bounds
    }

    /// Where the connection stands.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.flushed();
        let limits = state.controller.limits();
        let rtt = state.rtt.report(false);
        Snapshot {
            age: self.time(Instant::now()).since(Time::ZERO),
            window: limits.window,
            rate: limits.rate,
            smoothed_rtt: state.rtt.is_sampled().then_some(state.smoothed),
            min_rtt: state.rtt.is_sampled().then_some(rtt.min),
            in_flight: state.in_flight,
            delivered: state.delivery.delivered(),
            lost: state.lost_bytes,
            congestion_events: state.congestion_events,
        }
    }

    /// The controller's named values; see `FlowController::trace`.
    pub fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.flushed().controller.trace(record);
    }

    /// `bytes` leave, in packets of the path's MTU but the last.
    pub(super) fn on_sent(&self, now: Instant, bytes: u64) {
        let mut state = self.flushed();
        let packet = Bytes::new(self.0.mtu.load(Ordering::Relaxed).max(1));
        if state.on_sent(self.time(now), Bytes::new(bytes), packet) {
            self.publish(&state);
        }
    }

    /// An ACK: packets by when they left and how long they were, in that order.
    pub(super) fn on_acks(&self, now: Instant, acked: &[(Instant, u16)], end: AckEnd) {
        let mut state = self.flushed();
        let times = acked.iter().map(|&(at, size)| (self.time(at), Bytes::new(u64::from(size))));
        state.on_acks(self.time(now), times, end);
        self.0.pending.store(true, Ordering::Relaxed);
    }

    /// Packets with `bytes` are lost, of which the newest left at `newest`; 0 bytes say that
    /// a packet was marked.
    pub(super) fn on_congestion(&self, now: Instant, newest: Instant, bytes: u64, persistent: bool) {
        let mut state = self.lock();
        let packet = Bytes::new(self.0.mtu.load(Ordering::Relaxed).max(1));
        state.on_congestion(self.time(now), self.time(newest), Bytes::new(bytes), packet, persistent);
        self.0.pending.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_mtu(&self, mtu: u16) {
        self.0.mtu.store(u64::from(mtu), Ordering::Relaxed);
    }

    pub(super) fn mtu(&self) -> u64 {
        self.0.mtu.load(Ordering::Relaxed)
    }

    /// What may be in flight.
    #[inline]
    pub(super) fn window(&self) -> u64 {
        self.flush();
        self.0.window.load(Ordering::Relaxed)
    }

    /// Window, bytes a second if the controller paces, and what may leave at once then.
    #[inline]
    pub(super) fn limits(&self) -> (u64, Option<u64>, u64) {
        let window = self.window();
        let rate = self.0.rate.load(Ordering::Relaxed);
        (window, (rate > 0).then_some(rate), self.0.burst.load(Ordering::Relaxed))
    }

    /// What may be in flight where nobody keeps to the rate: no more than the rate puts there
    /// in a round trip.
    #[inline]
    pub(super) fn window_at_rate(&self) -> u64 {
        let window = self.window();
        let least = LEAST_AT_RATE_PACKETS.saturating_mul(self.mtu());
        window.min(self.0.at_rate.load(Ordering::Relaxed).max(least))
    }

    /// Gives the controller the feedback that is pending.
    #[inline]
    fn flush(&self) {
        if self.0.pending.load(Ordering::Relaxed) {
            drop(self.flushed());
        }
    }

    /// The state when the controller knows all.
    #[inline]
    fn flushed(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if self.0.pending.swap(false, Ordering::Relaxed) {
            state.flush();
            self.publish(&state);
        }
        state
    }

    /// A controller that panicked leaves its last state, and numbers stay numbers.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn publish(&self, state: &State) {
        let limits = state.controller.limits();
        // Below two bytes a second nothing would ever leave, and 0 says "no rate".
        let rate = limits.rate.map_or(0, |rate| (rate.bits_per_sec() / 8).max(1));
        self.0.window.store(limits.window.get(), Ordering::Relaxed);
        self.0.rate.store(rate, Ordering::Relaxed);
        self.0.burst.store(limits.burst.get(), Ordering::Relaxed);
        let sampled = limits.rate.filter(|_| state.rtt.is_sampled());
        let at_rate = sampled.map_or(u64::MAX, |rate| (rate * state.smoothed).get());
        self.0.at_rate.store(at_rate, Ordering::Relaxed);
    }

    /// The library's clock as ours; before the connection began is its beginning.
    #[inline]
    fn time(&self, at: Instant) -> Time {
        let since = at.saturating_duration_since(self.0.began);
        Time::from_nanos(since.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(since.subsec_nanos())))
    }
}

/// What was reported to us since the controller's last feedback.
#[derive(Clone, Copy, Debug)]
struct Pending {
    at: Time,
    /// Whether an ACK reported it, not a timer.
    by_ack: bool,
    /// Whether there is a round-trip sample.
    sampled: bool,
    acked_bytes: Bytes,
    marked: u64,
    persistent: bool,
}

#[derive(Debug)]
struct State {
    controller: Bounded,
    bounds: Bounds,
    rng: Rng,
    delivery: DeliveryRate,
    ledger: Ledger,
    rtt: RoundTripEstimator,
    smoothed: Duration,
    latest: Duration,
    /// When the newest acknowledged packet left.
    newest_acked_at: Option<Time>,
    in_flight: Bytes,
    app_limited: bool,
    pending: Option<Pending>,
    acked: Vec<Sent>,
    lost: Vec<Lost>,
    unanswered: Vec<Sent>,
    lost_bytes: Bytes,
    congestion_events: u64,
}

impl State {
    fn new(controller: Bounded, bounds: Bounds, rng: Rng) -> State {
        State {
            controller,
            bounds,
            rng,
            delivery: DeliveryRate::default(),
            ledger: Ledger::default(),
            rtt: RoundTripEstimator::default(),
            smoothed: Duration::ZERO,
            latest: Duration::ZERO,
            newest_acked_at: None,
            in_flight: Bytes::ZERO,
            app_limited: false,
            pending: None,
            acked: Vec::new(),
            lost: Vec::new(),
            unanswered: Vec::new(),
            lost_bytes: Bytes::ZERO,
            congestion_events: 0,
        }
    }

    /// Says whether the limits may have changed.
    fn on_sent(&mut self, now: Time, bytes: Bytes, packet: Bytes) -> bool {
        let mut changed = self.run_timer(now);
        let mut left = bytes;
        while left > Bytes::ZERO {
            let size = left.min(packet);
            left -= size;
            let mut sent = Sent { at: now, size, ..Sent::default() };
            self.delivery.on_sent(&mut sent, self.in_flight);
            self.in_flight += size;
            sent.in_flight = self.in_flight;
            self.ledger.on_sent(&sent);
            changed |= self.controller.on_sent(now, PEER, &sent, &mut self.rng);
        }
        changed
    }

    fn on_acks(&mut self, now: Time, acked: impl Iterator<Item = (Time, Bytes)>, end: AckEnd) {
        let mut acked_bytes = Bytes::ZERO;
        for (at, size) in acked {
            acked_bytes += size;
            // Of a packet that is not known the rate sample would be too low: it must not
            // count for more than one that the application limited.
            let unknown = || Sent {
                at,
                size,
                in_flight: end.in_flight + size,
                delivered: self.delivery.delivered(),
                delivered_at: at,
                first_sent_at: at,
                lost: self.lost_bytes,
                app_limited: true,
            };
            self.acked.push(self.ledger.on_acked(at, size).unwrap_or_else(unknown));
        }
        let newest = self.acked.last().map(|newest| newest.at);
        // RFC 9002 5.1: a sample only when the newest packet of all is newly acknowledged.
        let sampled = newest > self.newest_acked_at;
        if let Some(newest) = newest.filter(|_| sampled) {
            self.newest_acked_at = Some(newest);
            let known = self.rtt.is_sampled();
            self.latest = now.since(newest);
            self.rtt.sample(self.latest, Duration::ZERO);
            // The library has no sample before its first ACK either.
            self.smoothed = match known {
                true => Duration::from_nanos(u64::try_from(end.smoothed_rtt.as_nanos()).unwrap_or(u64::MAX)),
                false => self.rtt.report(false).smoothed,
            };
        }
        self.in_flight = end.in_flight;
        self.app_limited = end.app_limited;
        self.pending = Some(Pending { at: now, by_ack: true, sampled, acked_bytes, marked: 0, persistent: false });
    }

    fn on_congestion(&mut self, now: Time, newest: Time, bytes: Bytes, packet: Bytes, persistent: bool) {
        if self.pending.is_some_and(|pending| pending.at != now) {
            self.flush();
        }
        let by_timer =
            Pending { at: now, by_ack: false, sampled: false, acked_bytes: Bytes::ZERO, marked: 0, persistent };
        let pending = self.pending.get_or_insert(by_timer);
        self.congestion_events += 1;
        if bytes == Bytes::ZERO {
            // How many packets were marked is not reported.
            pending.marked += 1;
            return;
        }
        pending.persistent |= persistent;
        let cause = if pending.by_ack { LossCause::PacketThreshold } else { LossCause::TimeThreshold };
        self.ledger.on_lost(newest, bytes, packet, cause, &mut self.lost, &mut self.unanswered);
        self.in_flight -= bytes;
        self.lost_bytes += bytes;
        self.delivery.on_lost(bytes);
    }

    /// Gives the controller all that one instant brought.
    fn flush(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let now = pending.at;
        self.run_timer(now);
        let rtt = RoundTrip { smoothed: self.smoothed, ..self.rtt.report(pending.sampled) };
        let newest = self.acked.last();
        let rate = newest.and_then(|newest| self.delivery.on_acked(now, pending.acked_bytes, newest, rtt.min));
        if self.app_limited {
            self.delivery.set_app_limited(self.in_flight);
        }
        self.settle(now);
        let feedback = Feedback {
            receiver: PEER,
            rtt,
            acked: &self.acked,
            lost: &self.lost,
            acked_bytes: pending.acked_bytes,
            in_flight: self.in_flight,
            delivered: self.delivery.delivered(),
            rate,
            ecn_marked_packets: pending.marked,
            persistent_congestion: pending.persistent,
            tcp: None,
            app_limited: self.app_limited,
        };
        if !self.acked.is_empty() || !self.lost.is_empty() || pending.marked > 0 {
            self.controller.on_feedback(now, &feedback, &mut self.rng);
        }
        self.acked.clear();
        self.lost.clear();
    }

    /// Puts what will never be answered among the acknowledged packets. It counts in no sum.
    #[inline]
    fn settle(&mut self, now: Time) {
        let Some(newest) = self.newest_acked_at else { return };
        let round_trip = self.smoothed.max(self.latest) * SETTLED_AFTER_PERCENT / 100;
        let long_ago = Time::from_nanos(now.as_nanos().saturating_sub(round_trip.as_nanos()));
        self.ledger.forget(newest.min(long_ago), &mut self.unanswered);
        if !self.unanswered.is_empty() {
            self.acked.append(&mut self.unanswered);
            self.acked.sort_by_key(|sent| sent.at);
        }
    }

    /// Says whether the controller's instant had come.
    #[inline]
    fn run_timer(&mut self, now: Time) -> bool {
        let due = self.controller.timer().is_some_and(|due| due <= now);
        if due {
            self.controller.on_timer(now, &mut self.rng);
        }
        due
    }
}

#[cfg(test)]
mod tests;

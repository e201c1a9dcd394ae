//! Bounds that another party sets on any controller while it runs. The controller goes on
//! beneath them, with its answer to loss, and its window holds again when they are lifted or
//! their lease has expired. Meanwhile it does not grow beyond what the bounds let it use.

use serde::Deserialize;

use super::{Abandoned, Feedback, FlowController, Limits, PeerId, Sent};
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};

/// What a window and a rate may be, and how long that holds. A fixed window overrules the
/// others, a maximum the initial one and the minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// No window is smaller until the first loss or mark: the window to begin with.
    pub initial: Option<Bytes>,
    /// No window is smaller.
    pub minimum: Option<Bytes>,
    /// No window is larger.
    pub maximum: Option<Bytes>,
    /// The window, whatever the controller says: it has no answer to loss any more.
    pub fixed: Option<Bytes>,
    /// No pacing rate is higher.
    pub rate: Option<Rate>,
    /// The lease: from then on the controller is alone again.
    pub expires: Option<Time>,
}

/// How a coordinator's window becomes bounds. [C3] names both; a flow whose window is fixed has
/// no answer to losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actuator {
    /// The window that the controller begins with and never exceeds; its answer to loss stays.
    #[default]
    Maximum,
    /// The window, whatever the controller says.
    Fixed,
}

impl Actuator {
    /// The bounds that `window` becomes, without an end.
    pub fn bounds(self, window: Bytes) -> Bounds {
        match self {
            Actuator::Maximum => Bounds { initial: Some(window), maximum: Some(window), ..Bounds::default() },
            Actuator::Fixed => Bounds { fixed: Some(window), ..Bounds::default() },
        }
    }
}

impl Bounds {
    /// The window that holds for a controller that wants `window`, whose `initial` one is over.
    #[inline]
    pub fn apply(&self, window: Bytes) -> Bytes {
        let bounded = window.max(self.minimum.unwrap_or(Bytes::ZERO));
        self.fixed.unwrap_or(self.maximum.map_or(bounded, |maximum| bounded.min(maximum)))
    }
}

/// A controller beneath bounds.
#[derive(Clone, Debug)]
pub struct Bounded {
    controller: Box<dyn FlowController>,
    bounds: Bounds,
    /// Anything but the controller decides: bounds, or what is left of a lease. Most flows have
    /// neither, and every packet asks.
    in_force: bool,
    /// Nothing was lost or marked yet.
    untouched: bool,
    /// After a lease: the window that held at its end, raised by what is acknowledged since, as
    /// in slow start, until it reaches the controller's own. The controller's may be one from
    /// before the bounds, and would leave as one burst.
    opening: Option<Bytes>,
}

impl Bounded {
    /// `controller`, not bounded yet.
    pub fn new(controller: Box<dyn FlowController>) -> Bounded {
        Bounded { controller, bounds: Bounds::default(), in_force: false, untouched: true, opening: None }
    }

    /// Sets the bounds that hold from now on. A lease that is over already lasts until the next
    /// call that says what time it is.
    pub fn set(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.opening = None;
        self.note_force();
    }

    fn note_force(&mut self) {
        self.in_force = self.bounds != Bounds::default() || self.opening.is_some();
    }

    /// The window that holds for a controller that wants `window`.
    #[inline]
    fn window(&self, window: Bytes) -> Bytes {
        let initial = self.bounds.initial.filter(|_| self.untouched).unwrap_or(Bytes::ZERO);
        let bounded = self.bounds.apply(window.max(initial));
        self.opening.map_or(bounded, |opening| bounded.min(opening))
    }

    /// Whether the bounds, and not the controller, kept another packet from being in flight
    /// when `feedback` came.
    fn held_back(&self, feedback: &Feedback<'_>) -> bool {
        let wanted = self.controller.limits();
        let allowed = self.window(wanted.window);
        let lost = feedback.lost.iter().map(|lost| lost.sent.size).sum::<Bytes>();
        let before = feedback.in_flight + feedback.acked_bytes + lost;
        let packet = feedback.acked.last().map_or(Bytes::ZERO, |newest| newest.size);
        let by_window = allowed < wanted.window && before + packet > allowed;
        // A rate leaves part of the window unused; less than half of it is too little to let
        // it grow (RFC 7661, 4.3).
        let is_slowed = self.bounds.rate.is_some_and(|most| wanted.rate.is_none_or(|rate| rate > most));
        by_window || (is_slowed && (before + packet) * 2 <= wanted.window)
    }

    /// Ends a lease that has expired; whether one has.
    #[inline]
    fn end_lease(&mut self, now: Time) -> bool {
        let expired = self.bounds.expires.is_some_and(|expires| expires <= now);
        if expired {
            let wanted = self.controller.limits().window;
            let held = self.window(wanted);
            self.bounds = Bounds::default();
            self.opening = Some(held).filter(|held| *held < wanted);
            self.note_force();
        }
        expired
    }

    /// Opens the window after a lease by what `feedback` acknowledges.
    fn open(&mut self, feedback: &Feedback<'_>) {
        if let Some(opening) = self.opening {
            let opened = opening + feedback.acked_bytes;
            self.opening = Some(opened).filter(|opened| *opened < self.controller.limits().window);
            self.note_force();
        }
    }

    /// Feedback that came while something other than the controller decides.
    ///
    /// A window that a bound holds back is not used up, whatever the application has to
    /// send, so it must not grow (RFC 9002, 7.8): else it would burst out once the bound is
    /// lifted.
    #[inline(never)]
    fn on_feedback_in_force(&mut self, now: Time, feedback: &Feedback<'_>, rng: &mut Rng) {
        // What was in flight left under the bounds, even if their lease expires now.
        let app_limited = feedback.app_limited || self.held_back(feedback);
        self.controller.on_feedback(now, &Feedback { app_limited, ..*feedback }, rng);
        self.note_loss(feedback);
        self.open(feedback);
        self.end_lease(now);
    }

    #[inline]
    fn note_loss(&mut self, feedback: &Feedback<'_>) {
        self.untouched &=
            feedback.lost.is_empty() && feedback.ecn_marked_packets == 0 && !feedback.persistent_congestion;
    }

    /// The controller's limits within what is in force. A pacing rate grows with the window, for
    /// it would else hold back what the bounds allow. It does not fall with it: controllers
    /// that pace take a window of about twice what their rate keeps in flight, and with its
    /// share of the rate a smaller one would be left half empty.
    #[inline(never)]
    fn limits_in_force(&self) -> Limits {
        let limits = self.controller.limits();
        let window = self.window(limits.window);
        let mut rate = limits.rate;
        if window > limits.window && limits.window > Bytes::ZERO {
            let scaled = |rate: Rate| {
                let bits = u128::from(rate.bits_per_sec()) * u128::from(window.get()) / u128::from(limits.window.get());
                Rate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX))
            };
            rate = rate.map(scaled);
        }
        if let Some(most) = self.bounds.rate {
            // Not nothing: a flow that may not send would never learn when that ends.
            rate = Some(rate.map_or(most, |rate| rate.min(most)).max(Rate::LOWEST));
        }
        Limits { window, rate, burst: limits.burst }
    }
}

// What follows is asked for each packet, and most flows have no bounds: it stays small enough to be compiled into its
// callers.
impl FlowController for Bounded {
    #[inline]
    fn on_sent(&mut self, now: Time, to: PeerId, packet: &Sent, rng: &mut Rng) -> bool {
        let expired = self.in_force && self.end_lease(now);
        self.controller.on_sent(now, to, packet, rng) || expired
    }

    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, rng: &mut Rng) {
        if self.in_force {
            return self.on_feedback_in_force(now, feedback, rng);
        }
        self.controller.on_feedback(now, feedback, rng);
        self.note_loss(feedback);
    }

    fn set_ack_wait(&mut self, wait: Duration) {
        self.controller.set_ack_wait(wait);
    }

    fn distinguishes_receivers(&self) -> bool {
        self.controller.distinguishes_receivers()
    }

    fn on_abandoned(&mut self, now: Time, abandoned: &Abandoned<'_>) {
        self.controller.on_abandoned(now, abandoned);
    }

    fn on_timer(&mut self, now: Time, rng: &mut Rng) {
        self.end_lease(now);
        if self.controller.timer().is_some_and(|due| due <= now) {
            self.controller.on_timer(now, rng);
        }
    }

    #[inline]
    fn timer(&self) -> Option<Time> {
        let due = self.controller.timer();
        match self.bounds.expires {
            Some(expires) => Some(due.map_or(expires, |due| due.min(expires))),
            None => due,
        }
    }

    #[inline]
    fn limits(&self) -> Limits {
        if self.in_force { self.limits_in_force() } else { self.controller.limits() }
    }

    fn note(&self) -> Option<String> {
        self.controller.note()
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.controller.trace(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::registry::{Setup, find};
    use crate::flow::setup::made;
    use crate::flow::testing::{PACKET, PATH, Path, acknowledge, drive, silence};
    use crate::flow::{LossCause, Lost};

    #[derive(Clone, Debug)]
    struct Wants(Limits);

    impl FlowController for Wants {
        fn on_feedback(&mut self, _: Time, _: &Feedback<'_>, _: &mut Rng) {}
        fn limits(&self) -> Limits {
            self.0
        }
        fn trace(&self, _: &mut dyn FnMut(&'static str, f64)) {}
    }

    const KB: fn(u64) -> Bytes = |kb| Bytes::new(kb * 1000);

    #[test]
    fn a_window_that_a_maximum_holds_back_grows_no_further() {
        for name in ["reno", "cubic", "bic", "vegas", "westwood", "compound", "copa", "ledbat", "ledbat++"] {
            let entry = find(name).unwrap();
            let setup = Setup::new(PACKET, Time::ZERO);
            let mut bounded = Bounded::new(entry.make(&setup, &toml::Table::new()).unwrap());
            bounded.set(Bounds { maximum: Some(PACKET * 20), ..Bounds::default() });
            let run = drive(&mut bounded, PATH, 30.0, 1);
            assert!(run.window.iter().all(|window| *window <= 20.0), "{name}");
            bounded.set(Bounds::default());
            let window = bounded.limits().window;
            assert!(window <= PACKET * 22, "{name} would send {window:?} at once");
        }
    }

    #[test]
    fn bounds_hold_while_they_are_set_and_no_longer() {
        let wants = Limits { window: KB(40), rate: Some(Rate::from_bits_per_sec(8_000_000)), burst: KB(3) };
        let mut bounded = Bounded::new(Box::new(Wants(wants)));
        assert_eq!(bounded.limits(), wants);
        bounded.set(Bounds { maximum: Some(KB(10)), ..Bounds::default() });
        let held = bounded.limits();
        assert_eq!((held.window, held.rate), (KB(10), wants.rate));
        bounded.set(Bounds { minimum: Some(KB(80)), ..Bounds::default() });
        let raised = bounded.limits();
        assert_eq!((raised.window, raised.rate), (KB(80), Some(Rate::from_bits_per_sec(16_000_000))));
        let fixed = Bounds { minimum: Some(KB(80)), maximum: Some(KB(90)), fixed: Some(KB(5)), ..Bounds::default() };
        bounded.set(fixed);
        assert_eq!(bounded.limits().window, KB(5));
        bounded.set(Bounds::default());
        assert_eq!(bounded.limits(), wants);
    }

    #[test]
    fn a_maximum_is_used_up_each_round_trip_whether_the_controller_paces_or_not() {
        // 100 packets a round trip fill the path; 50 are allowed.
        let path = Path { buffer: 100, ..PATH };
        for entry in ["reno", "copa", "bbr", "bbr3", "vivace"].map(|name| find(name).unwrap()) {
            let mut bounded = Bounded::new(entry.make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap());
            bounded.set(Bounds { maximum: Some(PACKET * 50), ..Bounds::default() });
            let run = drive(&mut bounded, path, 60.0, 1);
            assert!((440.0..=500.0).contains(&run.throughput()), "{}: {}", entry.name, run.throughput());
        }
    }

    fn cubic() -> Bounded {
        let build = find("cubic").unwrap().build;
        Bounded::new(made(build, &Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap())
    }

    #[test]
    fn a_maximum_leaves_the_answer_to_loss_and_a_fixed_window_does_not() {
        let lossy = Path { loss: 0.02, ..PATH };
        let after_losses = |bounds: Option<Bounds>| {
            let mut bounded = cubic();
            bounds.into_iter().for_each(|bounds| bounded.set(bounds));
            drive(&mut bounded, lossy, 30.0, 1)
        };
        let window = PACKET * 60;
        let capped = after_losses(Some(Actuator::Maximum.bounds(window)));
        let fixed = after_losses(Some(Actuator::Fixed.bounds(window)));
        let alone = after_losses(None);
        assert!(capped.window.iter().all(|window| *window <= 60.0));
        assert!(capped.throughput() < 1.1 * alone.throughput(), "{} and {}", capped.throughput(), alone.throughput());
        assert!(fixed.throughput() > 3.0 * capped.throughput(), "{} and {}", fixed.throughput(), capped.throughput());
    }

    #[test]
    fn an_initial_window_holds_until_the_first_loss() {
        let mut bounded = cubic();
        bounded.set(Bounds { initial: Some(PACKET * 60), ..Bounds::default() });
        assert_eq!(bounded.limits().window, PACKET * 60);
        let mut rng = Rng::stream(1, "controller");
        acknowledge(&mut bounded, Time::from_secs_f64(0.1), Duration::from_millis(100), false, &mut rng);
        assert_eq!(bounded.limits().window, PACKET * 60);
        let sent = Sent { at: Time::from_secs_f64(0.05), size: PACKET, ..Sent::default() };
        let lost = [Lost { sent, cause: LossCause::PacketThreshold }];
        bounded.on_feedback(Time::from_secs_f64(0.2), &Feedback { lost: &lost, ..silence() }, &mut rng);
        assert!(bounded.limits().window < PACKET * 10, "{:?}", bounded.limits().window);
    }

    #[test]
    fn after_a_lease_the_controller_goes_on_alone_and_nothing_bursts_out() {
        // A window of 1100 packets fills path and queue; the lease holds 30 until 60 s.
        let expires = Time::from_secs_f64(60.0);
        for name in ["reno", "cubic", "bic", "vegas", "westwood", "compound", "copa", "bbr", "vivace"] {
            let build = find(name).unwrap().build;
            let mut bounded = Bounded::new(made(build, &Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap());
            drive(&mut bounded, PATH, 30.0, 1);
            let before = bounded.limits().window;
            bounded.set(Bounds { maximum: Some(PACKET * 30), expires: Some(expires), ..Bounds::default() });
            assert_eq!(bounded.limits().window, PACKET * 30, "{name} had {before}");
            assert!(bounded.timer().is_some_and(|due| due <= expires), "{name} would not wake");
            bounded.on_timer(expires, &mut Rng::stream(1, "controller"));
            assert_eq!(bounded.limits().window, PACKET * 30, "{name}: its old window, {before}, would burst out");
            // What an ACK frees and what it adds: slow start's pace, if the controller wants more.
            let (mut last, mut rng) = (PACKET * 30, Rng::stream(2, "controller"));
            for i in 1..50 {
                let now = expires + Duration::from_millis(i);
                acknowledge(&mut bounded, now, Duration::from_millis(100), false, &mut rng);
                let window = bounded.limits().window;
                assert!(window <= last + PACKET || window <= PACKET * 30, "{name}: from {last} to {window}");
                last = window;
            }
            let own = bounded.controller.limits().window;
            assert!(last > PACKET * 30 || last == own, "{name} is still held at {last}, not {own}");
        }
    }

    #[test]
    fn a_lease_is_worth_nothing_after_its_end_and_wakes_the_sender_for_it() {
        let wants = Limits { window: KB(40), rate: None, burst: KB(0) };
        let mut bounded = Bounded::new(Box::new(Wants(wants)));
        let mut rng = Rng::stream(1, "controller");
        let (before, expires) = (Time::from_secs_f64(0.9), Time::from_secs_f64(1.0));
        bounded.set(Bounds { fixed: Some(KB(80)), expires: Some(expires), ..Bounds::default() });
        assert_eq!(bounded.timer(), Some(expires));
        let sent = Sent { at: before, size: PACKET, ..Sent::default() };
        assert!(!bounded.on_sent(before, PeerId(0), &sent, &mut rng));
        assert_eq!(bounded.limits().window, KB(80));
        assert!(bounded.on_sent(expires, PeerId(0), &sent, &mut rng), "the limits have changed");
        assert_eq!((bounded.limits(), bounded.timer()), (wants, None));
    }

    #[test]
    fn a_highest_rate_paces_what_has_no_pace_and_slows_what_is_faster() {
        let most = Rate::from_bits_per_sec(2_000_000);
        let bounds = Bounds { rate: Some(most), ..Bounds::default() };
        for (own, held) in
            [(None, most), (Some(8_000_000), most), (Some(1_000_000), Rate::from_bits_per_sec(1_000_000))]
        {
            let rate = own.map(Rate::from_bits_per_sec);
            let mut bounded = Bounded::new(Box::new(Wants(Limits { window: KB(40), rate, burst: KB(1) })));
            bounded.set(bounds);
            assert_eq!(bounded.limits(), Limits { window: KB(40), rate: Some(held), burst: KB(1) });
        }
        // Half of the path's rate: what Cubic does not use must not grow either.
        let mut bounded = cubic();
        bounded.set(Bounds { rate: Some(Rate::from_bytes_per_sec(500_000)), ..Bounds::default() });
        let run = drive(&mut bounded, PATH, 30.0, 1);
        assert!((480.0..=505.0).contains(&run.throughput()), "{}", run.throughput());
        bounded.set(Bounds::default());
        assert!(bounded.limits().window < PACKET * 110, "{:?}", bounded.limits().window);
    }
}

//! Bounds that another party sets on any controller while it runs. The controller goes on
//! beneath them, with its answer to loss, and its window holds again when they are lifted.
//! Meanwhile it does not grow beyond what the bounds let it use.

use super::{Feedback, FlowController, Limits, PeerId, Sent};
use crate::rng::Rng;
use crate::time::Time;
use crate::units::{Bytes, Rate};

/// What a window may be. A fixed window overrules the others, a maximum the minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// No window is smaller.
    pub minimum: Option<Bytes>,
    /// No window is larger.
    pub maximum: Option<Bytes>,
    /// The window.
    pub fixed: Option<Bytes>,
}

impl Bounds {
    /// The window that holds for a controller that wants `window`.
    #[inline]
    pub fn apply(&self, window: Bytes) -> Bytes {
        let bounded = window.max(self.minimum.unwrap_or(Bytes::ZERO));
        self.fixed.unwrap_or(self.maximum.map_or(bounded, |maximum| bounded.min(maximum)))
    }
}

/// A controller beneath bounds.
#[derive(Debug)]
pub struct Bounded {
    controller: Box<dyn FlowController>,
    bounds: Bounds,
}

impl Bounded {
    /// `controller`, not bounded yet.
    pub fn new(controller: Box<dyn FlowController>) -> Bounded {
        Bounded { controller, bounds: Bounds::default() }
    }

    /// Sets the bounds that hold from now on.
    pub fn set(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Whether the bounds, and not the controller, kept another packet from being in flight
    /// when `feedback` came.
    #[inline]
    fn held_back(&self, feedback: &Feedback<'_>) -> bool {
        self.bounds != Bounds::default() && {
            let wanted = self.controller.limits().window;
            let allowed = self.bounds.apply(wanted);
            let lost = feedback.lost.iter().map(|lost| lost.sent.size).sum::<Bytes>();
            let before = feedback.in_flight + feedback.acked_bytes + lost;
            let packet = feedback.acked.last().map_or(Bytes::ZERO, |newest| newest.size);
            allowed < wanted && before + packet > allowed
        }
    }
}

impl FlowController for Bounded {
    #[inline]
    fn on_sent(&mut self, now: Time, to: PeerId, packet: &Sent, rng: &mut Rng) -> bool {
        self.controller.on_sent(now, to, packet, rng)
    }

    /// A window that a bound holds back is not used up, whatever the application has to
    /// send, so it must not grow (RFC 9002, 7.8): else it would burst out once the bound is
    /// lifted.
    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, rng: &mut Rng) {
        if self.held_back(feedback) {
            self.controller.on_feedback(now, &Feedback { app_limited: true, ..*feedback }, rng);
        } else {
            self.controller.on_feedback(now, feedback, rng);
        }
    }

    fn on_timer(&mut self, now: Time, rng: &mut Rng) {
        self.controller.on_timer(now, rng);
    }

    #[inline]
    fn timer(&self) -> Option<Time> {
        self.controller.timer()
    }

    /// The controller's limits within the bounds. A pacing rate grows with the window, for it
    /// would else hold back what the bounds allow. It does not fall with it: controllers
    /// that pace take a window of about twice what their rate keeps in flight, and with its
    /// share of the rate a smaller one would be left half empty.
    #[inline]
    fn limits(&self) -> Limits {
        let limits = self.controller.limits();
        let window = self.bounds.apply(limits.window);
        if window <= limits.window || limits.window == Bytes::ZERO {
            return Limits { window, ..limits };
        }
        let scaled = |rate: Rate| {
            let bits = u128::from(rate.bits_per_sec()) * u128::from(window.get()) / u128::from(limits.window.get());
            Rate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX))
        };
        Limits { window, rate: limits.rate.map(scaled), burst: limits.burst }
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.controller.trace(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::registry::{Setup, find};
    use crate::flow::testing::{PACKET, PATH, Path, drive};

    #[derive(Debug)]
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
            let mut bounded = Bounded::new((entry.build)(&setup, &toml::Table::new()).unwrap());
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
        bounded.set(Bounds { minimum: Some(KB(80)), maximum: Some(KB(90)), fixed: Some(KB(5)) });
        assert_eq!(bounded.limits().window, KB(5));
        bounded.set(Bounds::default());
        assert_eq!(bounded.limits(), wants);
    }

    #[test]
    fn a_maximum_is_used_up_each_round_trip_whether_the_controller_paces_or_not() {
        // 100 packets a round trip fill the path; 50 are allowed.
        let path = Path { buffer: 100, ..PATH };
        for entry in ["reno", "copa", "bbr", "bbr3", "vivace"].map(|name| find(name).unwrap()) {
            let mut bounded =
                Bounded::new((entry.build)(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap());
            bounded.set(Bounds { maximum: Some(PACKET * 50), ..Bounds::default() });
            let run = drive(&mut bounded, path, 60.0, 1);
            assert!((440.0..=500.0).contains(&run.throughput()), "{}: {}", entry.name, run.throughput());
        }
    }
}

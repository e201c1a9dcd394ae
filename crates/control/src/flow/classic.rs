//! Classic, window-based congestion control: slow start up to a threshold, then congestion
//! avoidance; one reduction for each round trip with a loss or a mark; the least window after
//! persistent congestion (RFC 5681; RFC 9002, 7). What a window gains in congestion avoidance
//! and what a reduction leaves of it is a rule of its own: Reno's, Cubic's, BIC's, Westwood+'s,
//! Compound's, Vegas's.
//!
//! Window-based controllers that are not of this shape stand alone, with the same parts: LEDBAT
//! and LEDBAT++ grow with the very feedback that reports a loss and have no threshold to come
//! back to, LearningCC and Copa pace, Xavier's window is moved by its actions.

use core::fmt::Debug;

use super::counting::Counting;
use super::recovery::{MINIMUM_WINDOW, Recovery, restart_window};
use super::setup::Setup;
use super::slow_start::SlowStart;
use super::{Feedback, FlowController, Limits};
use crate::rng::Rng;
use crate::time::Time;
use crate::units::Bytes;

/// In what a rule counts its window. RFC 5681 counts bytes, RFC 9438 packets; to count one in
/// the other's unit would round differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Full packets.
    Packets,
}

/// A congestion window; sizes in the unit of its rule.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The window.
    pub size: f64,
    /// Slow start and its threshold.
    pub slow_start: SlowStart,
    /// A full packet.
    packet: f64,
    /// Bytes in the unit.
    unit: f64,
}

impl Window {
    fn new(setup: &Setup, unit: Unit, hystart: bool) -> Window {
        let bytes = setup.packet.get() as f64;
        let (packet, unit) = match unit {
            Unit::Bytes => (bytes, 1.0),
            Unit::Packets => (1.0, bytes),
        };
        let size = setup.initial_window.get() as f64 / unit;
        Window { size, slow_start: SlowStart::new(hystart), packet, unit }
    }

    /// The least window (RFC 9002, 7.2).
    #[inline]
    pub fn minimum(&self) -> f64 {
        MINIMUM_WINDOW.in_bytes(self.packet)
    }

    /// A full packet.
    #[inline]
    pub fn packet(&self) -> f64 {
        self.packet
    }

    /// `amount` in bytes.
    #[inline]
    pub fn in_bytes(&self, amount: f64) -> f64 {
        amount * self.unit
    }

    /// `bytes` in the window's unit.
    #[inline]
    pub fn in_unit(&self, bytes: f64) -> f64 {
        bytes / self.unit
    }

    /// `size` is left, or the least window; slow start ends there.
    #[inline]
    pub fn reduce_to(&mut self, size: f64) {
        self.size = size.max(self.minimum());
        self.slow_start.end(self.size);
    }

    /// Window and threshold for a trace, in bytes.
    pub fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.in_bytes(self.size));
        record("slow_start_threshold", self.in_bytes(self.slow_start.traced_threshold()));
    }
}

/// What was acknowledged, as far as the window may grow by it.
#[derive(Clone, Copy, Debug)]
pub struct Acked<'a> {
    /// When.
    pub now: Time,
    /// How much, above 0, in the window's unit.
    pub counted: f64,
    /// All that the feedback says.
    pub feedback: &'a Feedback<'a>,
}

/// What makes one classic controller another one than the next.
pub trait WindowRule: Clone + Debug + Send + Sync {
    /// In what it counts the window.
    const UNIT: Unit;

    /// Looks at each feedback before the window is moved.
    #[inline]
    fn observe(&mut self, now: Time, feedback: &Feedback<'_>) {
        let _ = (now, feedback);
    }

    /// The window grows in congestion avoidance.
    fn avoid(&mut self, window: &mut Window, acked: &Acked<'_>);

    /// The window grows: in slow start below the threshold, else in congestion avoidance.
    #[inline]
    fn grow(&mut self, window: &mut Window, acked: &Acked<'_>) {
        if window.slow_start.holds(window.size) {
            window.size = window.slow_start.grown(window.size, acked.counted, window.packet, acked.feedback);
        } else {
            self.avoid(window, acked);
        }
    }

    /// A congestion event: the window and the threshold of slow start fall.
    fn reduce(&mut self, window: &mut Window, feedback: &Feedback<'_>);

    /// Persistent congestion has taken the window to its minimum (RFC 9002, 7.6.2), or a timeout
    /// to the loss window (RFC 5681, 3.1): what the rule forgets of the path.
    fn on_persistent_congestion(&mut self) {}

    /// What the rule allows in flight beyond `window`, in its unit.
    #[inline]
    fn beyond(&self) -> f64 {
        0.0
    }

    /// Named values, the window first, always the same in the same order.
    fn trace(&self, window: &Window, record: &mut dyn FnMut(&'static str, f64)) {
        window.trace(record);
    }
}

/// A classic controller: a window and the rule that moves it.
#[derive(Clone, Debug)]
pub struct Classic<R> {
    window: Window,
    recovery: Recovery,
    counting: Counting,
    rule: R,
}

impl<R: WindowRule> Classic<R> {
    /// With the window of `setup`, whose growth counts what `counting` says; `hystart`: slow
    /// start watches round trips (RFC 9406).
    pub fn new(setup: &Setup, counting: Counting, hystart: bool, rule: R) -> Classic<R> {
        Classic { window: Window::new(setup, R::UNIT, hystart), recovery: Recovery::default(), counting, rule }
    }
}

impl<R: WindowRule> FlowController for Classic<R> {
    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        let Classic { window, recovery, counting, rule } = self;
        rule.observe(now, feedback);
        if recovery.enter(now, feedback) {
            rule.reduce(window, feedback);
        } else {
            let counted = window.in_unit(counting.counted(feedback, recovery, window.in_bytes(window.packet)));
            if counted > 0.0 {
                rule.grow(window, &Acked { now, counted, feedback });
            }
        }
        if feedback.persistent_congestion {
            // The threshold stays: slow start leads back to the last reduction's window.
            window.size = restart_window(feedback).in_bytes(window.packet);
            recovery.reset();
            rule.on_persistent_congestion();
        }
    }

    #[inline]
    fn limits(&self) -> Limits {
        Limits::window(Bytes::new(self.window.in_bytes(self.window.size + self.rule.beyond()) as u64))
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.rule.trace(&self.window, record);
    }
}

#[cfg(test)]
pub mod testing {
    //! A rule beside the window that it moves, for tests of rules alone.

    use super::*;
    use crate::flow::testing::PACKET;

    /// A window of `size` with its threshold there: in congestion avoidance.
    pub fn window<R: WindowRule>(size: f64) -> Window {
        let mut window = Window::new(&Setup::new(PACKET, Time::ZERO), R::UNIT, false);
        window.size = size;
        window.slow_start.end(size);
        window
    }

    /// A controller in congestion avoidance with a window of `size`.
    pub fn avoiding<R: WindowRule>(size: f64, counting: Counting, rule: R) -> Classic<R> {
        Classic { window: window::<R>(size), recovery: Recovery::default(), counting, rule }
    }

    impl<R> Classic<R> {
        /// The window, in the rule's unit.
        pub fn size(&self) -> f64 {
            self.window.size
        }

        /// The rule and its window.
        pub fn parts(&mut self) -> (&mut R, &mut Window) {
            (&mut self.rule, &mut self.window)
        }
    }
}

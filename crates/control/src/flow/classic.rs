//! Classic, window-based congestion control: slow start up to a threshold, then congestion
//! avoidance; one reduction for each round trip with a loss or a mark; the least window after
//! persistent congestion, the first one again after an idle time where the sender restarts then
//! (RFC 5681; RFC 9002, 7). What a window gains in congestion avoidance
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
use super::{Feedback, FlowController, Limits, TcpRecovery};
use crate::rng::Rng;
use crate::time::Time;
use crate::units::{Octets, Packets, WindowUnit};

/// A congestion window, counted in `U`.
#[derive(Clone, Copy, Debug)]
pub struct Window<U> {
    /// The window.
    pub size: U,
    /// Slow start and its threshold.
    pub slow_start: SlowStart<U>,
    /// A full packet.
    packet: Octets,
}

impl<U: WindowUnit> Window<U> {
    fn new(setup: &Setup, hystart: bool) -> Window<U> {
        let packet = Octets::from(setup.packet);
        let size = U::of(setup.initial_window.into(), packet);
        Window { size, slow_start: SlowStart::new(hystart), packet }
    }

    /// `packets` packets.
    #[inline]
    pub fn packets(&self, packets: Packets) -> U {
        U::of_packets(packets, self.packet)
    }

    /// The least window (RFC 9002, 7.2).
    #[inline]
    pub fn minimum(&self) -> U {
        self.packets(MINIMUM_WINDOW)
    }

    /// A full packet.
    #[inline]
    pub fn packet(&self) -> U {
        self.packets(Packets(1.0))
    }

    /// `amount` in bytes.
    #[inline]
    pub fn in_bytes(&self, amount: U) -> Octets {
        amount.in_bytes(self.packet)
    }

    /// `bytes` in the window's unit.
    #[inline]
    pub fn in_unit(&self, bytes: Octets) -> U {
        U::of(bytes, self.packet)
    }

    /// `size` is left, or the least window; slow start ends there.
    #[inline]
    pub fn reduce_to(&mut self, size: U) {
        self.size = size.max(self.minimum());
        self.slow_start.end(self.size);
    }

    /// Window and threshold for a trace, in bytes.
    pub fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.in_bytes(self.size).0);
        record("slow_start_threshold", self.traced_threshold());
    }

    /// The threshold of slow start for a trace, in bytes.
    pub fn traced_threshold(&self) -> f64 {
        self.slow_start.traced_threshold(self.packet).0
    }
}

/// What was acknowledged, as far as the window may grow by it.
#[derive(Clone, Copy, Debug)]
pub struct Acked<'a, U> {
    /// When.
    pub now: Time,
    /// How much, above 0.
    pub counted: U,
    /// All that the feedback says.
    pub feedback: &'a Feedback<'a>,
}

/// What makes one classic controller another one than the next.
pub trait WindowRule: Clone + Debug + Send + Sync {
    /// In what it counts the window.
    type Unit: WindowUnit;

    /// Looks at each feedback before the window is moved.
    #[inline]
    fn observe(&mut self, now: Time, feedback: &Feedback<'_>) {
        let _ = (now, feedback);
    }

    /// The window grows in congestion avoidance.
    fn avoid(&mut self, window: &mut Window<Self::Unit>, acked: &Acked<'_, Self::Unit>);

    /// The window grows: in slow start below the threshold, else in congestion avoidance.
    #[inline]
    fn grow(&mut self, window: &mut Window<Self::Unit>, acked: &Acked<'_, Self::Unit>) {
        if window.slow_start.holds(window.size) {
            window.size = window.slow_start.grown(window.size, acked.counted, window.packet(), acked.feedback);
        } else {
            self.avoid(window, acked);
        }
    }

    /// A congestion event: the window and the threshold of slow start fall.
    fn reduce(&mut self, window: &mut Window<Self::Unit>, feedback: &Feedback<'_>);

    /// Persistent congestion has taken the window to its minimum (RFC 9002, 7.6.2), or a timeout
    /// to the loss window (RFC 5681, 3.1): what the rule forgets of the path.
    fn on_persistent_congestion(&mut self) {}

    /// What the rule allows in flight beyond the window.
    #[inline]
    fn beyond(&self) -> Self::Unit {
        Self::Unit::ZERO
    }

    /// Named values, the window first, always the same in the same order.
    fn trace(&self, window: &Window<Self::Unit>, record: &mut dyn FnMut(&'static str, f64)) {
        window.trace(record);
    }
}

/// A classic controller: a window and the rule that moves it.
#[derive(Clone, Debug)]
pub struct Classic<R: WindowRule> {
    window: Window<R::Unit>,
    /// The first one.
    initial: R::Unit,
    recovery: Recovery,
    counting: Counting,
    rule: R,
}

impl<R: WindowRule> Classic<R> {
    /// With the window of `setup`, whose growth counts what `counting` says; `hystart`: slow
    /// start watches round trips (RFC 9406).
    pub fn new(setup: &Setup, counting: Counting, hystart: bool, rule: R) -> Classic<R> {
        let window = Window::new(setup, hystart);
        Classic { initial: window.size, window, recovery: Recovery::default(), counting, rule }
    }
}

impl<R: WindowRule> FlowController for Classic<R> {
    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        let Classic { window, initial, recovery, counting, rule } = self;
        if feedback.tcp == Some(TcpRecovery::Idle) {
            // RW = min(IW, W) (RFC 5681, 4.1).
            window.size = window.size.min(*initial);
            return;
        }
        rule.observe(now, feedback);
        if recovery.enter(now, feedback) {
            rule.reduce(window, feedback);
        } else {
            let counted = counting.counted(feedback, recovery, window.packet);
            if counted > Octets::ZERO {
                rule.grow(window, &Acked { now, counted: window.in_unit(counted), feedback });
            }
        }
        if feedback.persistent_congestion {
            // The threshold stays: slow start leads back to the last reduction's window.
            window.size = window.packets(restart_window(feedback));
            recovery.reset();
            rule.on_persistent_congestion();
        }
    }

    #[inline]
    fn limits(&self) -> Limits {
        Limits::window(self.window.in_bytes(self.window.size + self.rule.beyond()).whole())
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

    /// A window of `size` of the rule's unit with its threshold there: in congestion avoidance.
    pub fn window<R: WindowRule>(size: f64) -> Window<R::Unit> {
        let size = R::Unit::ONE * size;
        let mut window = Window::new(&Setup::new(PACKET, Time::ZERO), false);
        window.size = size;
        window.slow_start.end(size);
        window
    }

    /// A controller in congestion avoidance with a window of `size`.
    pub fn avoiding<R: WindowRule>(size: f64, counting: Counting, rule: R) -> Classic<R> {
        let window = window::<R>(size);
        Classic { initial: window.size, window, recovery: Recovery::default(), counting, rule }
    }

    impl<R: WindowRule> Classic<R> {
        /// The window, in the rule's unit.
        pub fn size(&self) -> f64 {
            self.window.size / R::Unit::ONE
        }

        /// The rule and its window.
        pub fn parts(&mut self) -> (&mut R, &mut Window<R::Unit>) {
            (&mut self.rule, &mut self.window)
        }
    }
}

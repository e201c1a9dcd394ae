//! Slow start: the window grows by what is acknowledged, and so doubles each round trip,
//! until it reaches a threshold (RFC 5681, 3.1; RFC 9002, 7.3.1), or until HyStart++ sees
//! round trips grow.

use super::Feedback;
use super::hystart::HyStart;

/// Slow start; windows in whatever unit the controller counts them in.
#[derive(Clone, Copy, Debug)]
pub struct SlowStart {
    threshold: f64,
    hystart: Option<HyStart>,
}

impl SlowStart {
    /// Without a threshold yet, with HyStart++ or without.
    pub fn new(hystart: bool) -> SlowStart {
        SlowStart { threshold: f64::INFINITY, hystart: hystart.then(HyStart::default) }
    }

    /// Whether a window of this size grows by slow start.
    #[inline]
    pub fn holds(&self, window: f64) -> bool {
        window < self.threshold
    }

    /// The window after `acked` was acknowledged; a packet has `packet` of the same unit.
    #[inline]
    pub fn grown(&mut self, window: f64, acked: f64, packet: f64, feedback: &Feedback<'_>) -> f64 {
        let Some(hystart) = &mut self.hystart else { return window + acked };
        let grown = window + hystart.growth(acked, packet, feedback);
        if hystart.is_over() {
            self.end(grown);
        }
        grown
    }

    /// Congestion: slow start ends at `threshold`, now and when it is entered again.
    /// HyStart++ is for the first slow start alone (RFC 9406, 4.3).
    #[inline]
    pub fn end(&mut self, threshold: f64) {
        self.threshold = threshold;
        self.hystart = None;
    }

    /// The threshold for a trace; plots want a number where there is none yet.
    pub fn traced_threshold(&self) -> f64 {
        self.threshold.min(f64::from(u32::MAX))
    }
}

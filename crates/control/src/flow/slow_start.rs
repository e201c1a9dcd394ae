//! Slow start: the window grows by what is acknowledged, and so doubles each round trip,
//! until it reaches a threshold (RFC 5681, 3.1; RFC 9002, 7.3.1), or until HyStart++ sees
//! round trips grow.

use super::Feedback;
use super::hystart::HyStart;
use crate::units::{Octets, WindowUnit};

/// Slow start of a window that is counted in `U`.
#[derive(Clone, Copy, Debug)]
pub struct SlowStart<U> {
    threshold: U,
    hystart: Option<HyStart>,
}

impl<U: WindowUnit> SlowStart<U> {
    /// Without a threshold yet, with HyStart++ or without.
    pub fn new(hystart: bool) -> SlowStart<U> {
        SlowStart { threshold: U::INFINITY, hystart: hystart.then(HyStart::default) }
    }

    /// Whether a window of this size grows by slow start.
    #[inline]
    pub fn holds(&self, window: U) -> bool {
        window < self.threshold
    }

    /// The window after `acked` was acknowledged; a full packet is `packet`.
    #[inline]
    pub fn grown(&mut self, window: U, acked: U, packet: U, feedback: &Feedback<'_>) -> U {
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
    pub fn end(&mut self, threshold: U) {
        self.threshold = threshold;
        self.hystart = None;
    }

    /// The threshold for a trace, where a full packet has `packet`; plots want a number where
    /// there is none yet.
    pub fn traced_threshold(&self, packet: Octets) -> Octets {
        self.threshold.min(U::ONE * f64::from(u32::MAX)).in_bytes(packet)
    }
}

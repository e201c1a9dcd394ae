//! Rates of equations: bytes a second, whole or not.

use core::ops::{Add, Div, Mul};

use super::{Octets, Rate};
use crate::time::Seconds;

/// A rate in bytes a second, whole or not: in what models of a path are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct OctetRate(pub f64);

impl OctetRate {
    /// Nothing, ever.
    pub const ZERO: OctetRate = OctetRate(0.0);
    /// More than any rate.
    pub const INFINITY: OctetRate = OctetRate(f64::INFINITY);

    /// The higher rate.
    #[inline]
    pub fn max(self, other: OctetRate) -> OctetRate {
        OctetRate(self.0.max(other.0))
    }

    /// The lower rate.
    #[inline]
    pub fn min(self, other: OctetRate) -> OctetRate {
        OctetRate(self.0.min(other.0))
    }

    /// Whether it is a number and not infinite.
    #[inline]
    pub fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    /// In whole bits a second; negative or not a number is zero.
    #[inline]
    pub fn whole(self) -> Rate {
        Rate::from_bytes_per_sec_f64(self.0)
    }

    /// In bits a second, whole or not.
    #[inline]
    pub fn bits_per_sec(self) -> f64 {
        self.0 * 8.0
    }
}

impl From<Rate> for OctetRate {
    #[inline]
    fn from(rate: Rate) -> OctetRate {
        OctetRate(rate.bytes_per_sec())
    }
}

impl Add for OctetRate {
    type Output = OctetRate;
    #[inline]
    fn add(self, other: OctetRate) -> OctetRate {
        OctetRate(self.0 + other.0)
    }
}

impl Mul<f64> for OctetRate {
    type Output = OctetRate;
    #[inline]
    fn mul(self, factor: f64) -> OctetRate {
        OctetRate(self.0 * factor)
    }
}

impl Div<f64> for OctetRate {
    type Output = OctetRate;
    #[inline]
    fn div(self, divisor: f64) -> OctetRate {
        OctetRate(self.0 / divisor)
    }
}

impl Mul<Seconds> for OctetRate {
    type Output = Octets;
    /// What passes in `span`.
    #[inline]
    fn mul(self, span: Seconds) -> Octets {
        Octets(self.0 * span.0)
    }
}

impl Div<Seconds> for Octets {
    type Output = OctetRate;
    /// The rate at which these bytes pass in `span`; infinite or no number for no span.
    #[inline]
    fn div(self, span: Seconds) -> OctetRate {
        OctetRate(self.0 / span.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn a_rate_times_a_span_over_that_span_is_the_rate_again() {
        let (window, span) = (Octets(1500.5), Duration::from_millis(250).seconds());
        let rate = window / span;
        assert_eq!((rate, rate * span), (OctetRate(6002.0), window));
        assert_eq!((rate * 0.5 + rate / 2.0).bits_per_sec(), 48_016.0);
    }

    #[test]
    fn whole_bits_a_second_are_what_a_sender_is_limited_to() {
        let rate = Rate::from_bits_per_sec(1_000_001);
        assert_eq!(OctetRate::from(rate), OctetRate(125_000.125));
        assert_eq!(OctetRate::from(rate).whole(), rate);
        assert_eq!(OctetRate(0.99).whole(), Rate::from_bits_per_sec(7));
        assert_eq!(OctetRate(f64::NAN).whole(), Rate::ZERO);
        assert!(!OctetRate::INFINITY.is_finite());
    }
}

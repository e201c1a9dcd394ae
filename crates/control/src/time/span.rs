//! Spans of time as equations have them: with a sign, and not rounded to nanoseconds.

use core::ops::{Add, AddAssign, Div, Mul, Sub};

use serde::Deserialize;

/// A span of time in seconds, for equations: with a sign, and without rounding to nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Seconds(pub f64);

impl Seconds {
    /// No time at all.
    pub const ZERO: Seconds = Seconds(0.0);
    /// The shortest span that clocks here can tell from none.
    pub const NANOSECOND: Seconds = Seconds(1e-9);
    /// Longer than any.
    pub const INFINITY: Seconds = Seconds(f64::INFINITY);

    /// A span of `millis` milliseconds.
    #[inline]
    pub fn from_millis(millis: f64) -> Seconds {
        Seconds(millis / 1e3)
    }

    /// Milliseconds.
    #[inline]
    pub fn as_millis(self) -> f64 {
        self.0 * 1e3
    }

    /// The longer span.
    #[inline]
    pub fn max(self, other: Seconds) -> Seconds {
        Seconds(self.0.max(other.0))
    }

    /// The shorter span.
    #[inline]
    pub fn min(self, other: Seconds) -> Seconds {
        Seconds(self.0.min(other.0))
    }

    /// Whether it is a number and not infinite.
    #[inline]
    pub fn is_finite(self) -> bool {
        self.0.is_finite()
    }
}

impl Add for Seconds {
    type Output = Seconds;
    #[inline]
    fn add(self, other: Seconds) -> Seconds {
        Seconds(self.0 + other.0)
    }
}

impl AddAssign for Seconds {
    #[inline]
    fn add_assign(&mut self, other: Seconds) {
        *self = *self + other;
    }
}

impl Sub for Seconds {
    type Output = Seconds;
    #[inline]
    fn sub(self, other: Seconds) -> Seconds {
        Seconds(self.0 - other.0)
    }
}

impl Mul<f64> for Seconds {
    type Output = Seconds;
    #[inline]
    fn mul(self, factor: f64) -> Seconds {
        Seconds(self.0 * factor)
    }
}

impl Div<f64> for Seconds {
    type Output = Seconds;
    #[inline]
    fn div(self, divisor: f64) -> Seconds {
        Seconds(self.0 / divisor)
    }
}

impl Div for Seconds {
    type Output = f64;
    /// How many times `other` it is.
    #[inline]
    fn div(self, other: Seconds) -> f64 {
        self.0 / other.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn seconds_of_equations_have_a_sign_and_what_is_less_than_a_nanosecond() {
        let (short, long) = (Duration::from_millis(250).seconds(), Duration::SECOND.seconds());
        assert_eq!((short - long, short / long), (Seconds(-0.75), 0.25));
        assert!(short * 1e-10 > Seconds::ZERO);
        assert_eq!(Seconds::from_millis(250.0), short);
    }
}

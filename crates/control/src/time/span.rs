//! Spans of time as equations have them: with a sign, and not rounded to nanoseconds.

use core::ops::{Add, AddAssign, Div, Mul, Sub};

use serde::Deserialize;

use super::Duration;

/// A span of time in seconds, for equations: with a sign, and without rounding to nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Seconds(pub f64);

/// The same in milliseconds, for what a source counts in them, and users write: to count it in seconds would
/// round differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Millis(pub f64);

/// The square of a span, in s^2: what variances of times and slopes over time are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct SquareSeconds(pub f64);

impl Seconds {
    /// The shortest span that clocks here can tell from none.
    pub const NANOSECOND: Seconds = Seconds(1e-9);

    /// In milliseconds, for traces.
    #[inline]
    pub fn as_millis(self) -> f64 {
        self.0 * 1e3
    }
}

impl From<Millis> for Seconds {
    #[inline]
    fn from(span: Millis) -> Seconds {
        Seconds(span.0 / 1e3)
    }
}

impl From<Seconds> for Duration {
    /// Cut to whole nanoseconds; negative or not a number is zero.
    #[inline]
    fn from(span: Seconds) -> Duration {
        Duration::from_secs_f64(span.0)
    }
}

impl From<Millis> for Duration {
    /// Cut to whole nanoseconds; negative or not a number is zero.
    #[inline]
    fn from(span: Millis) -> Duration {
        Seconds::from(span).into()
    }
}

macro_rules! quantity {
    ($quantity:ident) => {
        impl $quantity {
            /// Nothing.
            pub const ZERO: $quantity = $quantity(0.0);
        }

        impl Add for $quantity {
            type Output = $quantity;
            #[inline]
            fn add(self, other: $quantity) -> $quantity {
                $quantity(self.0 + other.0)
            }
        }

        impl AddAssign for $quantity {
            #[inline]
            fn add_assign(&mut self, other: $quantity) {
                *self = *self + other;
            }
        }

        impl Sub for $quantity {
            type Output = $quantity;
            #[inline]
            fn sub(self, other: $quantity) -> $quantity {
                $quantity(self.0 - other.0)
            }
        }

        impl Mul<f64> for $quantity {
            type Output = $quantity;
            #[inline]
            fn mul(self, factor: f64) -> $quantity {
                $quantity(self.0 * factor)
            }
        }

        impl Div<f64> for $quantity {
            type Output = $quantity;
            #[inline]
            fn div(self, divisor: f64) -> $quantity {
                $quantity(self.0 / divisor)
            }
        }

        impl Div for $quantity {
            type Output = f64;
            /// How many times `other` it is.
            #[inline]
            fn div(self, other: $quantity) -> f64 {
                self.0 / other.0
            }
        }
    };
}

macro_rules! span {
    ($span:ident) => {
        quantity!($span);

        impl $span {
            /// Longer than any.
            pub const INFINITY: $span = $span(f64::INFINITY);

            /// The longer span.
            #[inline]
            pub fn max(self, other: $span) -> $span {
                $span(self.0.max(other.0))
            }

            /// The shorter span.
            #[inline]
            pub fn min(self, other: $span) -> $span {
                $span(self.0.min(other.0))
            }

            /// Whether it is a number and not infinite.
            #[inline]
            pub fn is_finite(self) -> bool {
                self.0.is_finite()
            }
        }
    };
}

span!(Seconds);
span!(Millis);
quantity!(SquareSeconds);

impl Mul for Seconds {
    type Output = SquareSeconds;
    #[inline]
    fn mul(self, other: Seconds) -> SquareSeconds {
        SquareSeconds(self.0 * other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_of_equations_have_a_sign_and_what_is_less_than_a_nanosecond() {
        let (short, long) = (Duration::from_millis(250).seconds(), Duration::SECOND.seconds());
        assert_eq!((short - long, short / long), (Seconds(-0.75), 0.25));
        assert!(short * 1e-10 > Seconds::ZERO);
        assert_eq!(Seconds::from(Millis(250.0)), short);
        assert_eq!(short * long, SquareSeconds(0.25));
    }

    #[test]
    fn milliseconds_of_a_clock_are_its_nanoseconds_over_a_million() {
        let span = Duration::from_nanos(1_234_567);
        assert_eq!(span.millis(), Millis(1.234_567));
        assert_eq!(Duration::from(Millis(0.25)), Duration::from_nanos(250_000));
        assert_eq!(Duration::from(Millis(-1.0)), Duration::ZERO);
    }
}

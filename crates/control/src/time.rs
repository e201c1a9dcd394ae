//! Instants and spans in whole nanoseconds.
//!
//! A run begins at `Time::ZERO`; only a driver knows what that is on a clock.
//! 64 bits of nanoseconds hold 584 years. Equations count in `Seconds`, which have a sign and are
//! not rounded.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

use serde::Deserialize;

const NANOS_PER_SEC: f64 = 1e9;

/// An instant: nanoseconds since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A span of time in nanoseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

/// A span of time in seconds, for equations: with a sign, and without rounding to nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Seconds(pub f64);

impl Time {
    /// The beginning of the run.
    pub const ZERO: Time = Time(0);
    /// Later than anything that happens.
    pub const MAX: Time = Time(u64::MAX);

    /// The instant `nanos` nanoseconds after the run began.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// The instant `secs` seconds after the run began; negative is the beginning.
    pub fn from_secs_f64(secs: f64) -> Time {
        Time(Duration::from_secs_f64(secs).0)
    }

    /// Nanoseconds since the run began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the run began.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC
    }

    /// The span since `earlier`; zero if `earlier` is in fact later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);
    /// One second.
    pub const SECOND: Duration = Duration(1_000_000_000);

    /// A span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Duration {
        Duration(nanos)
    }

    /// A span of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Duration {
        Duration(millis * 1_000_000)
    }

    /// A span of `secs` seconds; negative or not a number is zero.
    pub fn from_secs_f64(secs: f64) -> Duration {
        // `as` saturates and turns NaN into 0.
        Duration((secs * NANOS_PER_SEC) as u64)
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC
    }

    /// The same span for equations.
    #[inline]
    pub fn seconds(self) -> Seconds {
        Seconds(self.as_secs_f64())
    }

    /// Milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

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

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl Sub for Duration {
    type Output = Duration;
    /// Saturates at zero.
    fn sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Duration {
    type Output = Duration;
    fn mul(self, factor: u64) -> Duration {
        Duration(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Duration {
    type Output = Duration;
    fn div(self, divisor: u64) -> Duration {
        Duration(self.0 / divisor)
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Duration>>(spans: I) -> Duration {
        spans.fold(Duration::ZERO, Add::add)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            nanos if nanos >= 1_000_000_000 => write!(f, "{} s", self.as_secs_f64()),
            _ => write!(f, "{} ms", self.as_millis_f64()),
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_saturate_instead_of_wrapping() {
        assert_eq!(Time::MAX + Duration::SECOND, Time::MAX);
        assert_eq!(Duration::ZERO - Duration::SECOND, Duration::ZERO);
        assert_eq!(Time::ZERO.since(Time::MAX), Duration::ZERO);
        assert_eq!(Duration::from_secs_f64(f64::NAN), Duration::ZERO);
        assert_eq!(Duration::from_secs_f64(-1.0), Duration::ZERO);
    }

    #[test]
    fn seconds_of_equations_have_a_sign_and_what_is_less_than_a_nanosecond() {
        let (short, long) = (Duration::from_millis(250).seconds(), Duration::SECOND.seconds());
        assert_eq!((short - long, short / long), (Seconds(-0.75), 0.25));
        assert!(short * 1e-10 > Seconds::ZERO);
        assert_eq!(Seconds::from_millis(250.0), short);
    }

    #[test]
    fn an_instant_plus_a_span_is_that_much_later() {
        let start = Time::from_secs_f64(1.5);
        assert_eq!((start + Duration::from_millis(250)).since(start), Duration::from_millis(250));
        assert_eq!((start + Duration::SECOND).as_secs_f64(), 2.5);
    }
}

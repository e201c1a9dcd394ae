//! Instants and spans in whole nanoseconds.
//!
//! A run begins at `Time::ZERO`; only a driver knows what that is on a clock.
//! 64 bits of nanoseconds hold 584 years. Equations count in `Seconds`, which have a sign and are
//! not rounded.

mod span;

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

pub use self::span::{Millis, Seconds, SquareSeconds};

const NANOS_PER_SEC: f64 = 1e9;

/// An instant: nanoseconds since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A span of time in nanoseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

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

    /// The instant `span` before this one; the beginning of the run if there is none.
    pub const fn before(self, span: Duration) -> Time {
        Time(self.0.saturating_sub(span.0))
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

    /// The same span for equations in milliseconds.
    #[inline]
    pub fn millis(self) -> Millis {
        Millis(self.as_millis_f64())
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
    fn an_instant_plus_a_span_is_that_much_later() {
        let start = Time::from_secs_f64(1.5);
        assert_eq!((start + Duration::from_millis(250)).since(start), Duration::from_millis(250));
        assert_eq!((start + Duration::SECOND).as_secs_f64(), 2.5);
    }
}

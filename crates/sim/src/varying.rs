//! Values that change while a run goes on: at given times, or by a random law.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

/// How a value changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<T> {
    /// Never.
    Never,
    /// To the value at each time, ascending.
    At(Vec<(Time, T)>),
    /// To a uniform value between both, at the beginning and anew after each period.
    Uniform {
        /// The period.
        every: Duration,
        /// The least value.
        low: T,
        /// The highest value.
        high: T,
    },
}

/// What a value is at first, and how it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Course<T> {
    /// At first.
    pub first: T,
    /// From then on.
    pub change: Change<T>,
}

impl<T> Course<T> {
    /// A value that never changes.
    pub const fn constant(value: T) -> Course<T> {
        Course { first: value, change: Change::Never }
    }

    /// Whether chance has a part in it.
    pub fn is_random(&self) -> bool {
        matches!(self.change, Change::Uniform { .. })
    }
}

/// A value between two others.
pub trait Between: Copy {
    /// `low` at `share` 0, `high` at 1.
    fn between(low: Self, high: Self, share: f64) -> Self;
}

impl Between for f64 {
    fn between(low: f64, high: f64, share: f64) -> f64 {
        low + (high - low) * share
    }
}

impl Between for Rate {
    fn between(low: Rate, high: Rate, share: f64) -> Rate {
        Rate::from_bits_per_sec(f64::between(low.bits_per_sec() as f64, high.bits_per_sec() as f64, share) as u64)
    }
}

impl Between for Duration {
    fn between(low: Duration, high: Duration, share: f64) -> Duration {
        Duration::from_nanos(f64::between(low.as_nanos() as f64, high.as_nanos() as f64, share) as u64)
    }
}

/// A value on its course, asked for at times that never fall.
#[derive(Clone, Debug)]
pub struct Varying<T> {
    value: T,
    next_change: Time,
    change: Change<T>,
    /// Changes of `At` that have been made.
    made: usize,
    rng: Rng,
}

impl<T: Between> Varying<T> {
    /// `course` from the beginning; a random law draws from `rng`.
    pub fn new(course: &Course<T>, rng: Rng) -> Varying<T> {
        let next_change = match &course.change {
            Change::Never => Time::MAX,
            Change::At(changes) => changes.first().map_or(Time::MAX, |(at, _)| *at),
            Change::Uniform { .. } => Time::ZERO,
        };
        Varying { value: course.first, next_change, change: course.change.clone(), made: 0, rng }
    }

    /// The value at `now`.
    #[inline]
    pub fn at(&mut self, now: Time) -> T {
        while now >= self.next_change {
            self.advance();
        }
        self.value
    }

    /// When the value that `at` gave last changes; `Time::MAX` if never.
    #[inline]
    pub fn next_change(&self) -> Time {
        self.next_change
    }

    #[cold]
    fn advance(&mut self) {
        match &self.change {
            Change::Never => {}
            Change::At(changes) => {
                self.value = changes[self.made].1;
                self.made += 1;
                self.next_change = changes.get(self.made).map_or(Time::MAX, |(at, _)| *at);
            }
            Change::Uniform { every, low, high } => {
                self.value = T::between(*low, *high, self.rng.uniform());
                self.next_change += *every;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    #[test]
    fn a_schedule_holds_each_value_until_the_next() {
        let course = Course { first: 1.0, change: Change::At(vec![(at(2.0), 5.0), (at(3.0), 0.5)]) };
        let mut value = Varying::new(&course, Rng::stream(1, "test"));
        let seen: Vec<f64> = [0.0, 1.9, 2.0, 2.9, 3.0, 100.0].iter().map(|&s| value.at(at(s))).collect();
        assert_eq!(seen, [1.0, 1.0, 5.0, 5.0, 0.5, 0.5]);
        assert_eq!(value.next_change(), Time::MAX);
    }

    #[test]
    fn a_random_law_draws_once_a_period_within_its_bounds() {
        let every = Duration::from_millis(10_000);
        let (low, high) = (Rate::from_bits_per_sec(1_000_000), Rate::from_bits_per_sec(5_000_000));
        let course = Course { first: low, change: Change::Uniform { every, low, high } };
        let mut value = Varying::new(&course, Rng::stream(1, "test"));
        let seen: Vec<Rate> = (0..100).map(|second| value.at(at(f64::from(second)))).collect();
        assert!(seen.iter().all(|rate| (low..=high).contains(rate)));
        let changes = seen.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(changes, 9);
        assert_ne!(seen[0], low, "the first value is drawn too");
    }
}

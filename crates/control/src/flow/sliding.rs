//! The least of the samples of a span whose length changes, as where it is a share of the
//! round trip.

use crate::time::{Duration, Time};

/// Candidates that are remembered.
const ROOM: usize = 32;

/// Samples closer together than this share of the span count as one.
const SHARE: u64 = 16;

/// The minimum over a sliding span, in constant memory. Only samples that may still become
/// the minimum are kept, in rising order; a higher one that comes within a sixteenth of the
/// span behind another is left out, so that the minimum is exact but for samples within a
/// sixteenth of the span.
#[derive(Clone, Copy, Debug)]
pub struct SlidingMin {
    /// Values that rise with their times, in a ring from `first` on.
    ring: [(Time, u64); ROOM],
    first: usize,
    count: usize,
}

impl Default for SlidingMin {
    fn default() -> SlidingMin {
        SlidingMin { ring: [(Time::ZERO, 0); ROOM], first: 0, count: 0 }
    }
}

impl SlidingMin {
    #[inline]
    fn at(&self, index: usize) -> (Time, u64) {
        self.ring[(self.first + index) % ROOM]
    }

    /// Adds `value` at `now` and says the least of the last `span`.
    #[inline]
    pub fn update(&mut self, now: Time, value: u64, span: Duration) -> u64 {
        while self.count > 0 && self.at(self.count - 1).1 >= value {
            self.count -= 1;
        }
        while self.count > 0 && now.since(self.at(0).0) > span {
            self.first = (self.first + 1) % ROOM;
            self.count -= 1;
        }
        let is_far = self.count == 0 || now.since(self.at(self.count - 1).0) > span / SHARE;
        if is_far {
            // Room is short only after the span has shrunk a lot: the last one gives way.
            self.count = self.count.min(ROOM - 1);
            self.ring[(self.first + self.count) % ROOM] = (now, value);
            self.count += 1;
        }
        self.at(0).1
    }
}

/// The maximum over a sliding span: [`SlidingMin`] upside down.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlidingMax(SlidingMin);

impl SlidingMax {
    /// Adds `value` at `now` and says the most of the last `span`.
    #[inline]
    pub fn update(&mut self, now: Time, value: u64, span: Duration) -> u64 {
        !self.0.update(now, !value, span)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_minimum_is_that_of_the_span_or_of_15_sixteenths_of_it(
            samples in prop::collection::vec((0u64..40, 0u64..50), 1..300),
        ) {
            const SPAN: u64 = 160;
            let mut filter = SlidingMin::default();
            let mut seen: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (gap, value) in samples {
                now += gap;
                seen.push((now, value));
                let got = filter.update(Time::from_nanos(now), value, Duration::from_nanos(SPAN));
                let least = |span: u64| seen.iter().filter(|(at, _)| at + span >= now).map(|(_, value)| *value).min();
                prop_assert!(Some(got) >= least(SPAN), "{got} is older than the span");
                prop_assert!(Some(got) <= least(SPAN - SPAN / SHARE - 40), "{got} is not the least");
            }
        }

        #[test]
        fn a_span_that_changes_never_leaves_it_empty(samples in prop::collection::vec((0u64..40, 0u64..50, 0u64..500), 1..300)) {
            let (mut least, mut most) = (SlidingMin::default(), SlidingMax::default());
            let mut now = Time::ZERO;
            for (gap, value, span) in samples {
                now += Duration::from_nanos(gap);
                prop_assert!(least.update(now, value, Duration::from_nanos(span)) <= value);
                prop_assert!(most.update(now, value, Duration::from_nanos(span)) >= value);
            }
        }
    }
}

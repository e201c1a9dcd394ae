//! Filters that controllers share: extremes over a sliding window, and medians.

/// Parts of a window that expire one by one.
const PARTS: usize = 16;

/// The maximum of the samples of a sliding window, in constant memory: the window is cut
/// into up to 16 parts, each keeps its own maximum, and the oldest expires as a whole.
///
/// `clock` may be a time or a count of rounds, as long as it never falls. A window of at
/// most 16 units is exact; a longer one forgets a part, or what is left of one, early.
#[derive(Clone, Copy, Debug)]
pub struct WindowedMax {
    /// Units of the clock in a part.
    width: u64,
    parts: u64,
    /// The part that the last sample belongs to, counted from the clock's beginning, its place, and the clock at its
    /// end: most samples belong to the same part as the one before, and need no division to find it.
    newest: u64,
    place: usize,
    ends: u64,
    maxima: [u64; PARTS],
    maximum: u64,
}

impl WindowedMax {
    /// No samples, over a window of `window` units of the clock, the present one included.
    pub fn new(window: u64) -> WindowedMax {
        let width = window.div_ceil(PARTS as u64).max(1);
        // Whole parts only: a window of 20 units is ten parts of two.
        let parts = (window / width).max(1);
        WindowedMax { width, parts, newest: 0, place: 0, ends: width, maxima: [0; PARTS], maximum: 0 }
    }

    /// The maximum over the window that ended with the last update; 0 without a sample.
    #[inline]
    pub fn get(&self) -> u64 {
        self.maximum
    }

    /// Forgets all samples but this one.
    pub fn reset(&mut self, clock: u64, value: u64) {
        self.maxima = [0; PARTS];
        self.begin(clock / self.width);
        self.maxima[self.place] = value;
        self.maximum = value;
    }

    /// Adds a sample and says the maximum.
    #[inline]
    pub fn update(&mut self, clock: u64, value: u64) -> u64 {
        if clock >= self.ends {
            self.advance(clock / self.width);
        }
        let maximum = &mut self.maxima[self.place];
        *maximum = (*maximum).max(value);
        self.maximum = self.maximum.max(value);
        self.maximum
    }

    fn begin(&mut self, part: u64) {
        self.newest = part;
        self.place = (part % self.parts) as usize;
        self.ends = part.saturating_add(1).saturating_mul(self.width);
    }

    fn advance(&mut self, part: u64) {
        for expired in (self.newest + 1..=part).take(self.parts as usize) {
            self.maxima[(expired % self.parts) as usize] = 0;
        }
        self.begin(part);
        // More than a whole window may have passed: then all parts are empty already.
        self.maximum = self.maxima.iter().copied().max().unwrap_or(0);
    }
}

/// The minimum of the samples of a sliding window: [`WindowedMax`] upside down.
#[derive(Clone, Copy, Debug)]
pub struct WindowedMin(WindowedMax);

impl WindowedMin {
    /// No samples, over a window of `window` units of the clock, the present one included.
    pub fn new(window: u64) -> WindowedMin {
        WindowedMin(WindowedMax::new(window))
    }

    /// The minimum over the window that ended with the last update; the highest number
    /// without a sample.
    #[inline]
    pub fn get(&self) -> u64 {
        !self.0.get()
    }

    /// Forgets all samples but this one.
    pub fn reset(&mut self, clock: u64, value: u64) {
        self.0.reset(clock, !value);
    }

    /// Adds a sample and says the minimum.
    #[inline]
    pub fn update(&mut self, clock: u64, value: u64) -> u64 {
        !self.0.update(clock, !value)
    }
}

/// What half of `values` do not exceed, the greater of two that are in the middle; none of none.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(3.0));
    }
    use crate::rng::Rng;

    fn compare(window: u64, slack: u64) {
        let mut rng = Rng::stream(1, "filter");
        let mut filter = WindowedMax::new(window);
        let mut samples: Vec<(u64, u64)> = Vec::new();
        let mut clock = 0;
        for _ in 0..5000 {
            clock += rng.below(4) as u64 * if rng.chance(0.01) { window } else { 1 };
            samples.push((clock, 1 + rng.below(1000) as u64));
            let got = filter.update(clock, samples.last().unwrap().1);
            let over = |span: u64| {
                samples.iter().rev().take_while(|(at, _)| at + span > clock).map(|(_, value)| *value).max().unwrap()
            };
            assert!(got <= over(window), "at {clock}: {got} is older than the window of {window}");
            assert!(got >= over(window - slack), "at {clock}: {got} is not the maximum over {window}");
        }
    }

    #[test]
    fn a_short_window_is_exact_and_a_long_one_to_a_sixteenth() {
        compare(1, 0);
        compare(10, 0);
        compare(16, 0);
        compare(320, 20);
        compare(20, 2);
        compare(33, 5);
    }

    #[test]
    fn the_minimum_is_found_and_expires() {
        let mut filter = WindowedMin::new(10);
        assert_eq!(filter.get(), u64::MAX);
        assert_eq!(filter.update(0, 5), 5);
        assert_eq!(filter.update(5, 9), 5);
        assert_eq!(filter.update(11, 7), 7);
        filter.reset(12, 20);
        assert_eq!(filter.get(), 20);
    }
}

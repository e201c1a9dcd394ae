//! What cross traffic is expected to take of a link.
//!
//! Monitoring looks back, and what a coordinator decides holds ahead. Two forecasts bridge that: the naive one, that what was
//! goes on, and the seasonal naive one, that cross traffic comes and goes as it did the last time ([`CrossCourse`]). The
//! second is right about what is regular and wrong about all else, so that it may be taken only while it errs less.

use core::str::FromStr;

use super::policy::CrossCourse;

/// What cross traffic is taken to do. Scenarios have the last span where they name none, as [C3] has it; coordinators of
/// hosts have the closer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// What it did in the span before.
    #[default]
    LastSpan,
    /// What it will do if it comes and goes as the last time.
    LastPeriod,
    /// The one of both that has been closer to what came; the last span where the other was wrong of it.
    Closer,
}

impl Expected {
    /// Each with its name in files.
    pub const ALL: [(&'static str, Expected); 3] =
        [("last-span", Expected::LastSpan), ("last-period", Expected::LastPeriod), ("closer", Expected::Closer)];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        Expected::ALL.iter().find(|(_, one)| *one == self).expect("all have a name").0
    }
}

/// Not the name of a forecast; it says which there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {}", Expected::ALL.map(|(name, _)| name).join(", "))]
pub struct UnknownForecast;

impl FromStr for Expected {
    type Err = UnknownForecast;

    fn from_str(name: &str) -> Result<Expected, UnknownForecast> {
        Expected::ALL.iter().find(|(one, _)| *one == name).map(|(_, expected)| *expected).ok_or(UnknownForecast)
    }
}

/// Of what comes and goes, less than this share of a link is taken for none. Where a host's rate changes between two
/// reports its counts are off: where nobody else sends, up to 7 % of the link were found in spans of 100 ms of
/// `anabranch coordinate demo`.
pub const LEAST_SHARE: f64 = 0.1;

/// Errors are forgotten by e in this many seconds. It is ours.
const MEMORY_S: f64 = 10.0;

/// A forecast that misses a span by more than this part of what came, and by more than what is taken for none, is wrong:
/// what was regular is so no more, and whatever was closer before, the last span is taken. It is ours.
const WRONG: f64 = 0.1;

/// A forecast, and what it is made from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forecast {
    by: Expected,
    /// It was told of a span.
    knows: bool,
    course: CrossCourse,
    /// What it took of the last span.
    last: f64,
    /// What it took last that was taken for nothing that comes and goes.
    base: f64,
    /// By how much both forecasts were wrong, the later the more.
    naive_error: f64,
    seasonal_error: f64,
    /// The seasonal one was wrong of the last span.
    was_wrong: bool,
}

impl Forecast {
    /// By one of them, of which nothing is known yet.
    pub fn new(by: Expected) -> Forecast {
        Forecast { by, ..Forecast::default() }
    }

    /// A span of this many seconds in which cross traffic took `rate`, in any unit that stays the same. It begins where the
    /// last one ended. What is below `least` comes and goes with nothing: it stays.
    pub fn pass(&mut self, seconds: f64, rate: f64, least: f64) {
        self.knows = true;
        let kept = libm::exp(-seconds / MEMORY_S);
        let (naive, seasonal) = ((self.last - rate).abs(), (self.seasonal(0.0, seconds) - rate).abs());
        self.naive_error = kept * self.naive_error + seconds * naive;
        self.seasonal_error = kept * self.seasonal_error + seconds * seasonal;
        self.was_wrong = seasonal > least.max(WRONG * rate);
        let stays = rate < least;
        // The span before: in this one others may have come. No less, lest a queue grow of it.
        if stays && self.last < least {
            self.base = self.last;
        }
        self.course.pass(seconds, if stays { 0.0 } else { (rate - self.base).max(0.0) });
        self.last = rate;
    }

    /// A span of this many seconds of which nobody knows what cross traffic took: as was expected.
    pub fn miss(&mut self, seconds: f64) {
        self.course.pass(seconds, self.course.expected(0.0, seconds));
    }

    fn seasonal(&self, from: f64, to: f64) -> f64 {
        self.base + self.course.expected(from, to)
    }

    /// What it will take, `from` seconds after the last span until `to` seconds after it, if it comes and goes as the last
    /// time; none where nothing is known, or what it did last is to be taken.
    pub fn by_period(&self, from: f64, to: f64) -> Option<f64> {
        let is_taken = match self.by {
            Expected::LastSpan => false,
            Expected::LastPeriod => self.knows,
            Expected::Closer => self.seasonal_error < self.naive_error && !self.was_wrong,
        };
        is_taken.then(|| self.seasonal(from, to))
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::rng::Rng;

    use super::*;

    /// What is expected of each of these spans of 0.1 s.
    fn expected(by: Expected, shares: &[f64], least: f64) -> Vec<f64> {
        let (mut forecast, mut last) = (Forecast::new(by), 0.0);
        let expected = |&share: &f64| {
            let expected = forecast.by_period(0.0, 0.1).unwrap_or(last);
            forecast.pass(0.1, share, least);
            last = share;
            expected
        };
        shares.iter().map(expected).collect()
    }

    /// The mean error of a forecast for the next span, after the first 100 spans.
    fn error(by: Expected, shares: &[f64]) -> f64 {
        let expected = expected(by, shares, 0.0);
        let errors = expected.iter().zip(shares).map(|(expected, share)| (expected - share).abs());
        errors.skip(100).sum::<f64>() / (shares.len() - 100) as f64
    }

    fn errors(shares: &[f64]) -> [f64; 3] {
        Expected::ALL.map(|(_, by)| error(by, shares))
    }

    /// What cross traffic takes of 3000 spans that is there and away for so many seconds by turns, as `draw` says.
    fn by_turns(mut draw: impl FnMut(bool) -> f64) -> Vec<f64> {
        let (mut is_there, mut until, mut now) = (false, 1.0, 0.0);
        (0..3_000)
            .map(|_| {
                let (end, mut there) = (now + 0.1, 0.0);
                while until < end {
                    there += if is_there { until - now } else { 0.0 };
                    (now, is_there) = (until, !is_there);
                    until += draw(is_there);
                }
                there += if is_there { end - now } else { 0.0 };
                now = end;
                0.6 * there / 0.1
            })
            .collect()
    }

    #[test]
    fn of_what_is_regular_the_closer_is_the_last_period() {
        let [span, period, closer] = errors(&by_turns(|is_there| if is_there { 1.03 } else { 2.08 }));
        assert!(period < 0.01 * span && closer == period, "{span} {period} {closer}");
    }

    #[test]
    fn of_what_comes_at_random_the_closer_is_the_last_span() {
        let mut rng = Rng::stream(1, "turns");
        let [span, period, closer] = errors(&by_turns(|_| 1.5 * rng.exponential()));
        assert!(period > 1.1 * span && closer < 1.01 * span, "{span} {period} {closer}");
    }

    /// Where it is never away, when it comes and goes says nothing.
    #[test]
    fn of_what_is_always_there_and_changes_the_closer_is_the_last_span() {
        let shares: Vec<f64> = (0..3_000).map(|span| if span / 40 % 2 == 0 { 0.2 } else { 0.6 }).collect();
        let [span, period, closer] = errors(&shares);
        assert!(period > 2.0 * span && closer == span, "{span} {period} {closer}");
    }

    #[test]
    fn it_changes_its_mind_when_what_was_regular_is_so_no_more_and_back() {
        let mut rng = Rng::stream(1, "turns");
        let regular = by_turns(|is_there| if is_there { 1.03 } else { 2.08 });
        let random = by_turns(|_| 1.5 * rng.exponential());
        let [span, period, closer] = errors(&[&regular[..], &random, &regular].concat());
        assert!(closer < 0.8 * span && closer < 0.8 * period, "{span} {period} {closer}");
    }

    #[test]
    fn of_nothing_nothing_is_expected() {
        for (_, by) in Expected::ALL {
            assert_eq!(Forecast::new(by).by_period(0.0, 1.0).unwrap_or(0.0), 0.0);
        }
    }

    #[test]
    fn what_is_always_there_stays_while_more_comes_and_goes() {
        // A twelfth always, and 0.4 more for two seconds of five.
        let shares: Vec<f64> = (0..500).map(|span| 1.0 / 12.0 + if span % 50 >= 30 { 0.4 } else { 0.0 }).collect();
        let expected = expected(Expected::LastPeriod, &shares, 0.1);
        for (span, (expected, share)) in expected.iter().zip(&shares).enumerate().skip(150) {
            assert!((expected - share).abs() < 0.01, "{expected}, not {share}, at {span}");
        }
    }

    /// Others are there for a part of some spans; and counts are off by less than what is taken for none.
    #[test]
    fn neither_parts_of_spans_nor_wrong_counts_are_anything_that_comes_or_stays() {
        let mut rng = Rng::stream(1, "counts");
        let turns = by_turns(|is_there| if is_there { 1.03 } else { 2.08 });
        let noisy: Vec<f64> = turns.iter().map(|share| share + 0.07 * rng.uniform()).collect();
        for by in [Expected::LastPeriod, Expected::Closer] {
            // Two numbers from 0 to 0.07 are a third of that apart in the mean.
            for (shares, most) in [(&turns, 0.001), (&noisy, 0.026)] {
                let expected = expected(by, shares, LEAST_SHARE);
                let errors = expected.iter().zip(shares).skip(100).map(|(expected, share)| (expected - share).abs());
                let mean = errors.sum::<f64>() / 2_900.0;
                assert!(mean < most, "{by:?}: {mean}");
            }
        }
    }

    #[test]
    fn what_nobody_knows_of_a_span_moves_no_rhythm() {
        let shares: Vec<f64> = (0..300).map(|span| if span % 30 >= 20 { 0.6 } else { 0.0 }).collect();
        let mut forecast = Forecast::new(Expected::LastPeriod);
        for (span, share) in shares.iter().enumerate() {
            if span >= 100 {
                let expected = forecast.by_period(0.0, 0.1).unwrap();
                assert!((expected - share).abs() < 0.01, "{expected}, not {share}, at {span}");
            }
            match span % 17 {
                0 if span >= 100 => forecast.miss(0.1),
                _ => forecast.pass(0.1, *share, LEAST_SHARE),
            }
        }
    }

    /// Others who came and went regularly take less at last, and stay: no more than one span is taken for their going.
    #[test]
    fn a_forecast_that_was_wrong_of_a_span_is_not_taken_for_the_next() {
        let regular = (0..600).map(|span| if span % 50 >= 20 { 0.6 } else { 0.0 });
        let shares: Vec<f64> = regular.chain([0.25; 40]).collect();
        let wrong = |by| {
            let expected = expected(by, &shares, 0.1);
            expected[601..].iter().filter(|expected| (**expected - 0.25).abs() > 0.1).count()
        };
        assert!(wrong(Expected::Closer) <= 1 && wrong(Expected::LastSpan) == 0);
    }
}

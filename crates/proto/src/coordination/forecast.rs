//! What cross traffic is expected to take of a link.
//!
//! Monitoring looks back, and what a coordinator decides holds ahead. Two forecasts bridge that: the naive one, that what was
//! goes on, and the seasonal naive one, that cross traffic comes and goes as it did the last time ([`CrossCourse`]). The
//! second is right of what is regular and at a loss with all else, so that it may be taken only while it errs less.

use core::str::FromStr;

use super::policy::CrossCourse;

/// What cross traffic is taken to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// What it did in the span before.
    #[default]
    LastSpan,
    /// What it will do if it comes and goes as the last time.
    LastPeriod,
    /// The one of both that has been closer to what came.
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

/// Not the name of one; it says which there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {}", Expected::ALL.map(|(name, _)| name).join(", "))]
pub struct NotExpected;

impl FromStr for Expected {
    type Err = NotExpected;

    fn from_str(name: &str) -> Result<Expected, NotExpected> {
        Expected::ALL.iter().find(|(one, _)| *one == name).map(|(_, expected)| *expected).ok_or(NotExpected)
    }
}

/// What an error counts after another span: errors of a hundred spans or so decide, which are some seconds of a coordinator
/// that decides ten times a second. It is ours.
const REMEMBERED: f64 = 0.99;

/// A forecast, and what it is made from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forecast {
    by: Expected,
    course: CrossCourse,
    /// Of what comes and goes, less is none; it goes on.
    least: f64,
    /// What it took of the last span.
    last: f64,
    /// By how much both forecasts were wrong, the later the more.
    naive_error: f64,
    seasonal_error: f64,
}

impl Forecast {
    /// By one of them, of which nothing is known yet.
    pub fn new(by: Expected) -> Forecast {
        Forecast { by, ..Forecast::default() }
    }

    /// The same where shares are off by up to `least` whether cross traffic is there or not: a smaller one comes and goes
    /// with nothing.
    pub fn above(by: Expected, least: f64) -> Forecast {
        Forecast { by, least, ..Forecast::default() }
    }

    /// A span of this many seconds in which cross traffic took `share` of the link, or in any other unit that stays the same.
    /// It begins where the last one ended.
    pub fn pass(&mut self, seconds: f64, share: f64) {
        let errs = |before: f64, foretold: f64| REMEMBERED * before + (foretold - share).abs();
        self.naive_error = errs(self.naive_error, self.last);
        self.seasonal_error = errs(self.seasonal_error, self.seasonal(0.0, seconds));
        self.course.pass(seconds, if share < self.least { 0.0 } else { share });
        self.last = share;
    }

    fn seasonal(&self, from: f64, to: f64) -> f64 {
        let goes_on = if self.last < self.least { self.last } else { 0.0 };
        self.course.expected(from, to) + goes_on
    }

    /// What it will take, `from` seconds after the last span until `to` seconds after it.
    pub fn expected(&self, from: f64, to: f64) -> f64 {
        let is_seasonal = match self.by {
            Expected::LastSpan => false,
            Expected::LastPeriod => true,
            Expected::Closer => self.seasonal_error < self.naive_error,
        };
        if is_seasonal { self.seasonal(from, to) } else { self.last }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::rng::Rng;

    use super::*;

    /// The mean error of a forecast for the next span of 0.1 s, after the first 100 spans.
    fn error(by: Expected, shares: &[f64]) -> f64 {
        let mut forecast = Forecast::new(by);
        let errors = shares.iter().map(|&share| {
            let error = (forecast.expected(0.0, 0.1) - share).abs();
            forecast.pass(0.1, share);
            error
        });
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
            assert_eq!(Forecast::new(by).expected(0.0, 1.0), 0.0);
        }
    }
}

//! When cross traffic comes and goes, as far as it was measured.
//!
//! Spans are cut by a clock of their own: cross traffic comes and goes within them. Where it takes the same share of the
//! link while it is there, what it takes of a span says when it came, and all that it took says how long it was there,
//! to a small part of a span ([`Rhythm`]).

/// When cross traffic came and went, as far as it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrossCourse {
    is_there: bool,
    /// Seconds since it came or went, in whole spans.
    pub age: f64,
    /// Seconds that it was there the last time, and away, in whole spans.
    pub on: f64,
    /// See above.
    pub off: f64,
    rhythm: Rhythm,
}

impl CrossCourse {
    /// A span of this many seconds in which it took `share` of the link.
    pub fn pass(&mut self, seconds: f64, share: f64) {
        let is_there = share > 0.0;
        if is_there != self.is_there {
            *(if is_there { &mut self.off } else { &mut self.on }) = self.age;
            (self.is_there, self.age) = (is_there, 0.0);
        }
        self.age += seconds;
        self.rhythm.pass(seconds, share);
    }

    /// What it will take of the link, `from` seconds from now until `to` seconds from now, if it comes and goes as it did
    /// the last time; as now, where that is not known, or has turned out to be wrong.
    pub fn expected(&self, from: f64, to: f64) -> f64 {
        self.rhythm.expected(from, to)
    }
}

/// A span of less than this part of what cross traffic takes is the one in which it went: while it is there, it takes less
/// where its packets wait or are dropped.
const PART: f64 = 0.5;

/// How long cross traffic is there and away, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Rhythm {
    /// Spans in which it has been there without a pause; 0 while it is away.
    spans: u32,
    /// The first of them: seconds, and share.
    first: (f64, f64),
    /// Seconds after it, or since it went.
    after: f64,
    /// The last span: seconds, and share.
    last: (f64, f64),
    /// What it took of the link while it was there the last time; 0 when it never was.
    share_before: f64,
    /// What it has taken since it came, in seconds of the whole link.
    taken: f64,
    /// Whether it was seen to come, or to go.
    has_begun: bool,
    /// Seconds that it was there the last time, and away.
    on: Option<f64>,
    off: Option<f64>,
}

impl Rhythm {
    fn pass(&mut self, seconds: f64, share: f64) {
        match (self.spans, share > 0.0) {
            (0, false) => self.after += seconds,
            (0, true) => {
                let before = self.after;
                (self.spans, self.first, self.after) = (1, (seconds, share), 0.0);
                self.taken = share * seconds;
                self.off = self.has_begun.then_some(before + seconds - self.since());
                // There from the beginning on, it came before.
                self.has_begun |= before > 0.0;
            }
            (_, true) => {
                self.spans = self.spans.saturating_add(1);
                self.after += seconds;
                self.taken += share * seconds;
            }
            (_, false) => {
                let away = self.away();
                if self.has_begun {
                    self.on = Some(self.since() - away);
                }
                self.share_before = self.share();
                (self.spans, self.has_begun) = (0, true);
                self.after = away + seconds;
            }
        }
        self.last = (seconds, share);
    }

    /// What it takes of the link while it is there: of the spans between the first and the last, in which it was there
    /// for all of the time.
    fn share(&self) -> f64 {
        let part = |(seconds, share): (f64, f64)| seconds * share;
        if self.spans > 2 {
            (self.taken - part(self.first) - part(self.last)) / (self.after - self.last.0)
        } else if self.share_before > 0.0 {
            self.share_before
        } else {
            self.first.1.max(self.last.1)
        }
    }

    /// Seconds since it came.
    fn since(&self) -> f64 {
        self.after + self.first.0 * (self.first.1 / self.share()).min(1.0)
    }

    /// Seconds since it went, if that was before the end of the last span, and after its beginning.
    fn away(&self) -> f64 {
        (self.since() - self.taken / self.share()).clamp(0.0, self.last.0)
    }

    fn expected(&self, from: f64, to: f64) -> f64 {
        let is_there = self.spans > 0;
        let share = if is_there { self.share() } else { self.share_before };
        let went = is_there && self.spans > 1 && self.last.1 < PART * share;
        let (mut on, off) = (self.on.unwrap_or(f64::INFINITY), self.off.unwrap_or(f64::INFINITY));
        let comes = if is_there && !went {
            let since = self.since();
            // What waits for the link is seen a little later at one time than at another: a span may be it.
            on = if since > on + self.last.0 { f64::INFINITY } else { on.max(since - self.away()) };
            -since
        } else {
            let comes = off - if went { self.away() } else { self.after };
            if comes < -self.last.0 { f64::INFINITY } else { comes.max(0.0) }
        };
        if share == 0.0 || comes == f64::INFINITY || to <= from {
            return 0.0;
        }
        share * (there(to - comes, on, off) - there(from - comes, on, off)) / (to - from)
    }
}

/// For how long it is there in the first `seconds` after it came, if it is there and away for so long by turns.
fn there(seconds: f64, on: f64, off: f64) -> f64 {
    let period = on + off;
    if seconds <= 0.0 {
        0.0
    } else if period.is_finite() && period > 0.0 {
        let periods = (seconds / period).floor();
        periods * on + (seconds - periods * period).min(on)
    } else {
        seconds.min(on)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, proptest};

    use super::*;

    const SHARE: f64 = 0.7;

    /// What cross traffic takes of the span, that is there for `on` seconds from `comes` on, and each `on + off` again.
    fn share(comes: f64, (on, off): (f64, f64), from: f64, to: f64) -> f64 {
        SHARE * (there(to - comes, on, off) - there(from - comes, on, off)) / (to - from)
    }

    #[test]
    fn what_is_expected_is_what_was_the_last_time() {
        let mut course = CrossCourse::default();
        let of = |step: u32| share(0.25, (1.0, 2.0), f64::from(step) * 0.1, f64::from(step + 1) * 0.1);
        let pass =
            |course: &mut CrossCourse, steps: core::ops::Range<u32>| steps.for_each(|step| course.pass(0.1, of(step)));
        pass(&mut course, 0..2);
        assert_eq!(course.expected(0.0, 0.1), 0.0, "none was there yet");
        pass(&mut course, 2..5);
        assert!((course.expected(5.0, 5.1) - SHARE).abs() < 1e-9, "when it goes is not known");
        pass(&mut course, 5..20);
        assert_eq!(course.expected(5.0, 5.1), 0.0, "when it comes is not known");
        pass(&mut course, 20..36);
        // It came again, and was there for a second the last time.
        assert!((course.expected(0.6, 0.7) - SHARE / 2.0).abs() < 1e-9);
        assert!((course.expected(0.0, 6.0) - 0.7 * (0.65 + 1.0 + 0.35) / 6.0).abs() < 1e-9);
        assert!((course.on - 1.1).abs() < 1e-9 && (course.off - 1.9).abs() < 1e-9, "as whole spans: {course:?}");
    }

    #[test]
    fn what_turns_out_otherwise_than_the_last_time_is_expected_to_stay_as_it_is() {
        let mut course = CrossCourse::default();
        let mut expects = |expected: f64, shares: &[(u32, f64)], why: &str| {
            shares.iter().for_each(|&(times, share)| (0..times).for_each(|_| course.pass(0.1, share)));
            let found = course.expected(0.0, 0.1);
            assert!((found - expected).abs() < 1e-9, "{found}, not {expected}: {why}");
        };
        expects(0.0, &[(3, 0.0), (5, 0.5), (10, 0.0), (5, 0.5), (9, 0.0)], "not yet");
        expects(0.5, &[(1, 0.0)], "as the last time");
        expects(0.0, &[(2, 0.0)], "it did not come");
        expects(0.5, &[(4, 0.5)], "not yet");
        expects(0.0, &[(1, 0.5)], "as the last time");
        expects(0.5, &[(2, 0.5)], "it did not go");
        expects(0.0, &[(1, 0.2)], "it went within the span");
    }

    #[test]
    fn what_was_there_at_the_beginning_says_nothing_of_how_long_it_stays() {
        let mut course = CrossCourse::default();
        (0..3).for_each(|_| course.pass(0.1, SHARE));
        (0..5).for_each(|_| course.pass(0.1, 0.0));
        (0..4).for_each(|_| course.pass(0.1, SHARE));
        assert!((course.expected(3.0, 3.1) - SHARE).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn of_what_comes_and_goes_in_even_times_each_span_is_known_after_two_periods(
            on in 0.3..2.0_f64, away in 1.0..5.0_f64, phase in 0.0..1.0_f64, late in 0_u32..12,
        ) {
            let (step, off) = (0.1, on * away + 0.2);
            let comes = 0.3 + phase * (on + off);
            let of = |number: u32| share(comes, (on, off), f64::from(number) * step, f64::from(number + 1) * step);
            let mut course = CrossCourse::default();
            let known = ((comes + 2.0 * (on + off)) / step) as u32 + 2;
            for number in 0..known + 200 {
                course.pass(step, of(number));
                let ahead = f64::from(late) * step;
                let error = course.expected(ahead, ahead + step) - of(number + 1 + late);
                prop_assert!(number < known || error.abs() < 0.01 * SHARE, "{error} at {number} of {known}");
            }
        }

        #[test]
        fn whatever_passes_what_is_expected_is_a_share(
            spans in proptest::collection::vec((0.001..3.0_f64, proptest::bool::ANY, 0.0..1.5_f64), 0..200),
            from in 0.0..10.0_f64, length in 0.001..5.0_f64,
        ) {
            let mut course = CrossCourse::default();
            for (seconds, is_there, share) in spans {
                course.pass(seconds, if is_there { share } else { 0.0 });
                let expected = course.expected(from, from + length);
                prop_assert!((0.0..=1.5 + 1e-9).contains(&expected), "{expected}");
            }
        }
    }
}

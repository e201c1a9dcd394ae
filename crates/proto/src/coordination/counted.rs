//! How much an agent's count has grown over any span that its reports cover.
//!
//! Reports of different agents come at different times, and take different times to come. What passes over a link
//! beside its hosts' traffic is a difference of counts over one and the same span, so counts are placed on one
//! clock, by the least delay with which an agent's reports have lately come (as NTP's clock filter does, RFC 5905,
//! 10), and are interpolated.

use std::collections::VecDeque;

use anabranch_control::filter::WindowedMin;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

/// Counts that are kept of an agent: of one that reports each 20 ms, some more than the longest period of others.
const KEPT: usize = 256;

/// The least delay of this many seconds counts: clocks drift apart, by 3 ms in that time at 50 ppm.
const WINDOW_S: u64 = 60;

/// Counts of one agent.
#[derive(Clone, Debug)]
pub struct Counted {
    /// What to add to the agent's time, in nanoseconds; in the order of unsigned numbers.
    offset: WindowedMin,
    /// By the agent's time, in nanoseconds.
    counts: VecDeque<(i64, u64)>,
}

impl Default for Counted {
    fn default() -> Counted {
        Counted { offset: WindowedMin::new(WINDOW_S), counts: VecDeque::new() }
    }
}

/// Maps all signed numbers onto the unsigned ones in their order, and back.
const SIGN: u64 = 1 << 63;

fn nanos(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

impl Counted {
    /// The agent says at `now` that it had counted `count` at its time `at`. False, and all before is forgotten, if
    /// its clock or its count went back.
    pub fn note(&mut self, now: Time, at: Duration, count: u64) -> bool {
        let (now, at) = (nanos(now.as_nanos()), nanos(at.as_nanos()));
        let goes_on = self.counts.back().is_none_or(|&(before, counted)| at >= before && count >= counted);
        if !goes_on {
            *self = Counted::default();
        }
        let offset = now.saturating_sub(at);
        self.offset.update(now as u64 / 1_000_000_000, offset as u64 ^ SIGN);
        match self.counts.back_mut() {
            Some(last) if last.0 == at => last.1 = count,
            _ => self.counts.push_back((at, count)),
        }
        if self.counts.len() > KEPT {
            self.counts.pop_front();
        }
        goes_on
    }

    /// What to add to the agent's time; none of an agent of which nothing was counted.
    fn offset(&self) -> Option<i64> {
        (!self.counts.is_empty()).then(|| (self.offset.get() ^ SIGN) as i64)
    }

    /// Where an instant of the agent's clock lies.
    fn here(&self, at: i64) -> Option<Time> {
        Some(Time::from_nanos(at.saturating_add(self.offset()?).max(0) as u64))
    }

    /// The last count; zero if there is none.
    pub fn count(&self) -> u64 {
        self.counts.back().map_or(0, |&(_, count)| count)
    }

    /// When the last count was true.
    pub fn last(&self) -> Option<Time> {
        self.here(self.counts.back()?.0)
    }

    /// How fast it grew between the last two reports.
    pub fn rate(&self) -> Rate {
        let mut last = self.counts.iter().rev();
        let (Some(&(to, after)), Some(&(from, before))) = (last.next(), last.next()) else { return Rate::ZERO };
        Bytes::new(after - before) / Duration::from_nanos((to - from) as u64)
    }

    /// How much it grew between two instants. Beyond what reports cover it is taken to have gone on as it did;
    /// before the first, not to have grown. None without two reports.
    pub fn between(&self, from: Time, to: Time) -> Option<f64> {
        let offset = self.offset().filter(|_| self.counts.len() >= 2)?;
        let on_its_clock = |at: Time| nanos(at.as_nanos()).saturating_sub(offset);
        Some(self.at(on_its_clock(to)) - self.at(on_its_clock(from)))
    }

    /// How much it grew in the `span` that ends with the last report; nothing without two reports.
    pub fn grown(&self, span: Duration) -> f64 {
        let last = self.last();
        let grown = last.and_then(|to| self.between(to.before(span), to));
        grown.unwrap_or(0.0)
    }

    /// Between which instants the last two counts were true.
    pub fn last_span(&self) -> Option<(Time, Time)> {
        let &(from, _) = self.counts.iter().nth_back(1)?;
        Some((self.here(from)?, self.last()?))
    }

    /// When the first count that is kept was true.
    pub fn first(&self) -> Option<Time> {
        self.here(self.counts.front()?.0)
    }

    /// The count at an instant on the agent's clock.
    fn at(&self, at: i64) -> f64 {
        let after = self.counts.partition_point(|&(counted, _)| counted <= at).clamp(1, self.counts.len() - 1);
        let ((from, before), (to, count)) = (self.counts[after - 1], self.counts[after]);
        let share = (at.saturating_sub(from)) as f64 / (to - from) as f64;
        before as f64 + (count - before) as f64 * share.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + ms(millis)
    }

    /// 10 bytes a millisecond from the agent's time 1000 on, which is 500 here, reported each 100 ms; delays of 20
    /// to 50 ms.
    fn counted() -> Counted {
        let mut counted = Counted::default();
        for (place, delay) in (0..).zip([50, 20, 40, 30, 50]) {
            assert!(counted.note(at(500 + 100 * place + delay), ms(1000 + 100 * place), 1000 * place));
        }
        counted
    }

    #[test]
    fn growth_over_a_span_does_not_depend_on_when_reports_came() {
        let counted = counted();
        assert_eq!(counted.last(), Some(at(920)));
        assert_eq!(counted.between(at(620), at(820)), Some(2000.0));
        assert_eq!(counted.between(at(655), at(750)), Some(950.0));
        assert_eq!(counted.rate(), Rate::from_bytes_per_sec(10_000));
    }

    #[test]
    fn what_grew_in_a_span_until_the_last_report_does_not_depend_on_when_they_come() {
        let counted = counted();
        assert_eq!((counted.grown(ms(100)), counted.grown(ms(150)), counted.grown(ms(9000))), (1000.0, 1500.0, 4000.0));
        assert_eq!(Counted::default().grown(ms(100)), 0.0);
    }

    #[test]
    fn it_goes_on_after_the_last_report_and_began_with_the_first() {
        let counted = counted();
        assert_eq!(counted.between(at(920), at(1020)), Some(1000.0));
        assert_eq!(counted.between(at(420), at(620)), Some(1000.0));
        assert_eq!(counted.first(), Some(at(520)));
        assert_eq!(Counted::default().between(at(0), at(1)), None);
    }

    #[test]
    fn what_was_counted_is_forgotten_when_an_agent_begins_anew() {
        let mut counted = counted();
        assert!(!counted.note(at(2000), ms(5), 0));
        assert_eq!((counted.last(), counted.rate()), (Some(at(2000)), Rate::ZERO));
        let mut back = super::tests::counted();
        assert!(!back.note(at(2000), ms(9000), 3));
    }

    /// A day and a half of reports each 100 ms, from a clock that is slow or quick by 50 ppm.
    #[test]
    fn clocks_that_drift_apart_stay_together() {
        for drift in [-50e-6, 50e-6] {
            let mut counted = Counted::default();
            for tenth in 0..36 * 36_000u64 {
                let now = 100_000_000 * tenth;
                let its = Duration::from_nanos((now as f64 * (1.0 + drift)) as u64);
                counted.note(Time::from_nanos(now) + ms(20 + tenth % 7), its, 1000 * tenth);
                let apart = counted.last().unwrap().as_nanos().abs_diff(now + 20_000_000);
                assert!(apart <= 4_000_000, "{apart} ns apart after {tenth} reports");
            }
        }
    }

    #[test]
    fn no_times_or_counts_make_it_panic_or_keep_more() {
        let mut counted = Counted::default();
        for time in [0, 1, u64::MAX / 3, u64::MAX / 2, u64::MAX] {
            for count in [0, u64::MAX] {
                counted.note(Time::from_nanos(time), Duration::from_nanos(u64::MAX - time), count);
                counted.note(Time::from_nanos(time), Duration::from_nanos(time), count);
                let _ = (counted.between(at(0), Time::from_nanos(time)), counted.rate(), counted.last());
            }
        }
        for place in 0..1000 {
            counted.note(at(place), ms(place), place);
        }
        assert_eq!(counted.counts.len(), KEPT);
    }
}

//! What a host was allowed to send over any span: rates that hold each from an instant to the next.
//!
//! A host that reports seldom has sent, since its last report, as large a part of what it was allowed as before it
//! ([`Granted::continued`]). To take it to go on at the rate of before would be wrong whenever it was told another:
//! what others send would look larger after less was given and smaller after more, and hosts be told less and more
//! in turn, for ever.

use std::collections::VecDeque;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

/// Rates that are kept: more than a host is told between three of its reports.
const KEPT: usize = 256;

/// Rates of one host, in the order of their beginnings.
#[derive(Clone, Debug, Default)]
pub struct Granted {
    rates: VecDeque<(Time, Rate)>,
}

impl Granted {
    /// It may send `rate` from `at` on, or from the rate before on if that begins later.
    pub fn note(&mut self, at: Time, rate: Rate) {
        let begin = self.rates.back().map_or(at, |&(before, _)| at.max(before));
        match self.rates.back_mut() {
            Some(&mut (_, last)) if last == rate => return,
            Some(last) if last.0 == begin => last.1 = rate,
            _ => self.rates.push_back((begin, rate)),
        }
        if self.rates.len() > KEPT {
            self.rates.pop_front();
        }
    }

    /// Bytes that it was allowed between two instants; none before the first rate.
    pub fn between(&self, from: Time, to: Time) -> f64 {
        let ends = self.rates.iter().skip(1).map(|&(begin, _)| begin).chain([Time::MAX]);
        let spans = self.rates.iter().zip(ends);
        spans.map(|(&(begin, rate), end)| bytes(rate, from.max(begin), to.min(end))).sum()
    }

    /// Bytes that it sends between `to` and `until` if it goes on as it did between `from` and `to`, when it sent
    /// `sent`: of what it may, the same part, or all if it was allowed nothing; and what it sent beyond that, as
    /// fast.
    pub fn continued(&self, sent: f64, from: Time, to: Time, until: Time) -> f64 {
        let (may, will) = (self.between(from, to), self.between(to, until));
        let within = if may > 0.0 { sent.min(may) / may } else { 1.0 };
        let beyond = (sent - may).max(0.0);
        let spans = if from < to { until.since(to).as_secs_f64() / to.since(from).as_secs_f64() } else { 0.0 };
        within * will + beyond * spans
    }
}

fn bytes(rate: Rate, from: Time, to: Time) -> f64 {
    let span = if from < to { to.since(from) } else { Duration::ZERO };
    rate.bits_per_sec() as f64 / 8.0 * span.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    /// 1000 bytes a second from 1 s on, 4000 from 2 s on.
    fn granted() -> Granted {
        let mut granted = Granted::default();
        granted.note(at(1000), Rate::from_bytes_per_sec(1000));
        granted.note(at(1500), Rate::from_bytes_per_sec(1000));
        granted.note(at(2000), Rate::from_bytes_per_sec(4000));
        granted
    }

    #[test]
    fn a_rate_holds_until_the_next() {
        let granted = granted();
        assert_eq!(granted.between(at(0), at(1500)), 500.0);
        assert_eq!(granted.between(at(1500), at(3000)), 500.0 + 4000.0);
        assert_eq!(granted.between(at(3000), at(3500)), 2000.0);
        assert_eq!((granted.between(at(0), at(900)), granted.between(at(3000), at(1500))), (0.0, 0.0));
    }

    #[test]
    fn who_used_half_of_its_rate_uses_half_of_the_next() {
        assert_eq!(granted().continued(500.0, at(1000), at(2000), at(2500)), 1000.0);
    }

    #[test]
    fn who_was_allowed_nothing_sends_what_it_may() {
        assert_eq!(granted().continued(0.0, at(0), at(1000), at(2500)), 1000.0 + 2000.0);
    }

    #[test]
    fn what_is_sent_beyond_a_rate_goes_on() {
        // 300 bytes a second more than the rate.
        assert_eq!(granted().continued(1300.0, at(1000), at(2000), at(3000)), 4000.0 + 300.0);
        assert_eq!(granted().continued(700.0, at(0), at(1000), at(1000)), 0.0);
        assert_eq!(Granted::default().continued(700.0, at(0), at(1000), at(2000)), 700.0);
    }

    #[test]
    fn no_instants_make_it_panic_or_keep_more() {
        let mut granted = granted();
        granted.note(at(500), Rate::ZERO);
        assert_eq!(granted.between(at(1000), at(5000)), 1000.0, "not before the rate before it");
        for place in 0..1000 {
            granted.note(at(3000 + place), Rate::from_bytes_per_sec(place));
        }
        assert_eq!(granted.rates.len(), KEPT);
        for time in [Time::ZERO, Time::MAX] {
            assert!(granted.continued(1.0, time, time, time).is_finite());
            assert!(granted.continued(1.0, Time::ZERO, at(1), time).is_finite());
        }
    }
}

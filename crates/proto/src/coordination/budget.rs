//! What a host may send now: the last directive that is worth something, until its lease ends.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::message::Directive;
use super::wire::HOST_REPORT;

/// No lease holds longer, whatever a directive says.
pub const LONGEST_LIFETIME: Duration = Duration::from_millis(10_000);

/// Quarters of a period that a directive holds: (K + 1/2) 3/2 periods with K = 3, as soft state that is refreshed
/// (RFC 2205, 3.7), so that two directives in a row may be lost, or come late by more than a period.
const LEASE_QUARTERS: u64 = 21;

/// A directive is renewed this many times as often as is decided, so that its lease is as much shorter.
const RENEWALS: u64 = 2;

/// But no more often than this, unless decisions come sooner: a lease must outlast what a network and a busy machine
/// hold up.
const LEAST_RENEWAL: Duration = Duration::from_millis(50);

/// Control takes no more than one part in this many of the rate that it governs, wherever it travels.
const CONTROL_SHARE: u64 = 100;

/// Directives and reports of a session that do not wait for a budget that bears them. What passed over a link is known for
/// a span of two reports; two of them may be lost, and the coordinator's next word comes a period later.
const FIRST_WORDS: u64 = 8;

/// Bytes of a report or a directive on the wire: QUIC's, UDP's and IP's headers, a tag and an AEAD's included.
const CONTROL_PACKET: Bytes = Bytes::new(HOST_REPORT as u64 + 60);

/// What is on its way to a host whose directives come no more until its lease is over: as much must be let go, lest those
/// to others wait for it.
pub const LEAST_IN_FLIGHT: Bytes = Bytes::new(CONTROL_PACKET.get() * LEASE_QUARTERS.div_ceil(4));

/// How often a host whose budget is `rate` reports, and is directed, where `every` is asked for.
pub fn period(every: Duration, rate: Rate) -> Duration {
    let longest = LONGEST_LIFETIME * 4 / LEASE_QUARTERS;
    every.max((CONTROL_PACKET * CONTROL_SHARE) / rate.max(Rate::LOWEST)).min(longest.max(every))
}

/// How often a host is directed or reports, which has had `words` directives, or sent as many reports, since its
/// session began. A coordinator learns what a newcomer sends only from several reports, and until then takes it for what
/// others send: the first [`FIRST_WORDS`] come soon, whatever the budget is. They are a kilobyte or two each way.
pub fn period_after(words: u64, every: Duration, rate: Rate) -> Duration {
    if words < FIRST_WORDS { every } else { period(every, rate) }
}

/// How often hosts are told what was decided, where that is done `every` so long.
pub fn renewal(every: Duration) -> Duration {
    (every / RENEWALS).max(LEAST_RENEWAL).min(every)
}

/// How long what is decided `every` so long holds, where no host cuts it to [`LONGEST_LIFETIME`]: beyond the next decision
/// even if it is not told again before.
pub fn hold(every: Duration) -> Duration {
    renewal(every) * LEASE_QUARTERS / 4
}

/// How long a directive of `rate` holds, where it is decided `every` so long: longer than others, if the rate bears
/// fewer words.
pub fn lifetime(every: Duration, rate: Rate) -> Duration {
    lease(period(renewal(every), rate))
}

/// How long what is renewed `every` so long holds.
pub fn lease(every: Duration) -> Duration {
    (every * LEASE_QUARTERS / 4).min(LONGEST_LIFETIME)
}

/// Why a directive is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// It comes from a life of the coordinator that is over.
    StaleEpoch,
    /// It was overtaken by a later one.
    Overtaken,
}

/// A host's budget.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    /// The latest directive that was taken, by epoch and number.
    latest: (u64, u64),
    held: Option<(Directive, Time)>,
}

impl Budget {
    /// A session with a coordinator of the life `epoch` stands, and none with another: what comes now is the latest,
    /// whatever number an earlier life had. A life is numbered by its machine's clock, which may have been put back. What is
    /// held, holds on.
    pub fn begin(&mut self, epoch: u64) {
        self.latest = (epoch, 0);
    }

    /// A directive has come. What it says is cut to what can be: the host's own `limit`, and
    /// [`LONGEST_LIFETIME`].
    ///
    /// # Errors
    ///
    /// When an earlier one is worth more; nothing has changed then.
    pub fn take(&mut self, now: Time, directive: Directive, limit: Option<Rate>) -> Result<(), Ignored> {
        let (epoch, number) = self.latest;
        if directive.epoch < epoch {
            return Err(Ignored::StaleEpoch);
        }
        if directive.epoch == epoch && directive.number <= number {
            return Err(Ignored::Overtaken);
        }
        self.latest = (directive.epoch, directive.number);
        let most = limit.unwrap_or(Rate::from_bits_per_sec(u64::MAX));
        let (rate, lifetime) = (directive.rate.min(most), directive.lifetime.min(LONGEST_LIFETIME));
        let minimum = directive.minimum.min(rate);
        self.held = Some((Directive { rate, minimum, lifetime, ..directive }, now + lifetime));
        Ok(())
    }

    /// What holds, and until when.
    pub fn held(&self) -> Option<(Directive, Time)> {
        self.held
    }

    /// When the lease ends.
    pub fn ends(&self) -> Time {
        self.held.map_or(Time::MAX, |(_, ends)| ends)
    }

    /// Ends the lease if it is over; whether it was.
    pub fn expire(&mut self, now: Time) -> bool {
        let is_over = self.ends() <= now;
        if is_over {
            self.held = None;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Actuator;
    use super::*;

    fn directive(epoch: u64, number: u64, megabits: u64) -> Directive {
        Directive {
            epoch,
            number,
            rate: Rate::from_bits_per_sec(megabits * 1_000_000),
            minimum: Rate::ZERO,
            actuator: Actuator::Maximum,
            lifetime: Duration::from_millis(500),
        }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_directive_of_an_earlier_life_or_number_is_not_followed() {
        let mut budget = Budget::default();
        assert_eq!(budget.take(at(0), directive(7, 5, 10), None), Ok(()));
        assert_eq!(budget.take(at(1), directive(6, 99, 99), None), Err(Ignored::StaleEpoch));
        assert_eq!(budget.take(at(1), directive(7, 5, 99), None), Err(Ignored::Overtaken));
        assert_eq!(budget.held().unwrap().0.rate, Rate::from_bits_per_sec(10_000_000));
        assert_eq!(budget.take(at(1), directive(8, 1, 20), None), Ok(()));
        assert_eq!(budget.held().unwrap().0.rate, Rate::from_bits_per_sec(20_000_000));
    }

    #[test]
    fn a_lease_ends_and_earlier_directives_do_not_come_back() {
        let mut budget = Budget::default();
        budget.take(at(0), directive(7, 5, 10), None).unwrap();
        assert!(!budget.expire(at(499)));
        assert!(budget.expire(at(500)) && budget.held().is_none());
        assert!(!budget.expire(at(501)), "it ends once");
        assert_eq!(budget.take(at(600), directive(7, 4, 10), None), Err(Ignored::Overtaken));
    }

    #[test]
    fn control_takes_a_hundredth_of_a_small_budget_and_its_lease_covers_two_losses() {
        let every = Duration::from_millis(100);
        assert_eq!(period(every, Rate::from_bits_per_sec(5_000_000)), every);
        // 129 bytes each 1032 ms are 1000 bit/s.
        assert_eq!(period(every, Rate::from_bits_per_sec(100_000)), Duration::from_millis(1032));
        for rate in [0, 1000, 100_000, 10_000_000] {
            let period = period(every, Rate::from_bits_per_sec(rate));
            assert!(lease(period) > period * 2 && lease(period) <= LONGEST_LIFETIME, "{rate}");
        }
    }

    #[test]
    fn a_lease_is_over_within_300_ms_where_ten_times_a_second_is_decided() {
        let lifetime = |millis, megabits: u64| {
            super::lifetime(Duration::from_millis(millis), Rate::from_bits_per_sec(megabits * 1_000_000))
        };
        assert_eq!(lifetime(100, 10), Duration::from_millis(50) * 21 / 4);
        assert!(lifetime(100, 2) < Duration::from_millis(300));
        // Control's share of a small budget is worth more.
        assert_eq!(lifetime(100, 1), lease(period(Duration::from_millis(50), Rate::from_bits_per_sec(1_000_000))));
        assert!(lifetime(100, 1) > Duration::from_millis(500));
        // Who decides more often renews as often as it decides.
        assert_eq!(lifetime(20, 10), Duration::from_millis(105));
        assert_eq!((lifetime(50, 10), lifetime(80, 10)), (lifetime(100, 10), lifetime(100, 10)));
        assert_eq!(lifetime(500, 10), Duration::from_millis(250) * 21 / 4);
    }

    #[test]
    fn what_is_decided_holds_for_two_decisions_and_as_long_at_hosts() {
        for millis in [5, 20, 50, 100, 500, 1900, 20_000] {
            let every = Duration::from_millis(millis);
            assert!(hold(every) > every * 2, "{millis}");
            if millis <= 1900 {
                assert_eq!(hold(every), lifetime(every, Rate::from_bits_per_sec(1_000_000_000)), "{millis}");
            }
        }
    }

    #[test]
    fn the_first_words_of_a_session_come_soon_whatever_the_budget_is() {
        let every = Duration::from_millis(100);
        let small = Rate::from_bits_per_sec(100_000);
        assert_eq!((period_after(0, every, small), period_after(FIRST_WORDS - 1, every, small)), (every, every));
        assert_eq!(period_after(FIRST_WORDS, every, small), period(every, small));
    }

    #[test]
    fn a_new_session_says_which_life_is_the_latest_whatever_its_number() {
        let mut budget = Budget::default();
        budget.take(at(0), directive(7, 5, 10), None).unwrap();
        budget.begin(3);
        assert_eq!(budget.held().unwrap().0.number, 5, "the lease holds on");
        assert_eq!(budget.take(at(1), directive(3, 1, 20), None), Ok(()));
        assert_eq!(budget.take(at(1), directive(2, 9, 20), None), Err(Ignored::StaleEpoch));
    }

    #[test]
    fn absurd_values_are_cut() {
        let mut budget = Budget::default();
        let absurd = Directive {
            rate: Rate::from_bits_per_sec(u64::MAX),
            minimum: Rate::from_bits_per_sec(u64::MAX),
            lifetime: Duration::from_nanos(u64::MAX / 2),
            ..directive(1, 1, 0)
        };
        let limit = Rate::from_bits_per_sec(50_000_000);
        budget.take(at(0), absurd, Some(limit)).unwrap();
        let (held, ends) = budget.held().unwrap();
        assert_eq!((held.rate, held.minimum, ends), (limit, limit, Time::ZERO + LONGEST_LIFETIME));
    }
}

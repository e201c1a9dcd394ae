//! What Linux's BBR adds to the draft, rule by rule, so that each one's share in a difference
//! between the two can be measured.
//!
//! ```text
//! ack-aggregation  W += min(max over 5 to 10 rounds of acked - BtlBw * t, 100 ms * BtlBw)
//! pacing-margin    rate = 0.99 * pacing_gain * BtlBw
//! even-window      W in whole pairs of packets, rounded up, and two packets more in the
//!                  phase of ProbeBW that sends a quarter more
//! ```
//!
//! `acked` counts since the ACKs last came no faster than at BtlBw, `t` ago (described in
//! draft-cardwell-iccrg-bbr-congestion-control-01 4.5.2.3.2).

use serde::{Deserialize, Deserializer};

use crate::time::{Seconds, Time};
use crate::units::{OctetRate, Octets, WindowUnit};

/// Rounds after which the older half of what is remembered is forgotten.
const ROUNDS: u32 = 5;

/// The most that aggregation adds to the window, in seconds at the bandwidth.
const LONGEST: Seconds = Seconds(0.1);

/// Share of the bandwidth that is left for the queue to drain.
const MARGIN: f64 = 0.01;

/// A rule of Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rule {
    All,
    AckAggregation,
    PacingMargin,
    EvenWindow,
}

/// The rules that hold; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    ack_aggregation: bool,
    pacing_margin: bool,
    even_window: bool,
}

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rules, D::Error> {
        let asked = Vec::<Rule>::deserialize(deserializer)?;
        let has = |rule| asked.iter().any(|asked| [rule, Rule::All].contains(asked));
        Ok(Rules {
            ack_aggregation: has(Rule::AckAggregation),
            pacing_margin: has(Rule::PacingMargin),
            even_window: has(Rule::EvenWindow),
        })
    }
}

impl Rules {
    /// The pacing rate where the draft has `rate`.
    #[inline]
    pub fn paced(self, rate: OctetRate) -> OctetRate {
        if self.pacing_margin { rate * (1.0 - MARGIN) } else { rate }
    }

    /// The window where the draft has `window`.
    #[inline]
    pub fn window(self, window: Octets, packet: Octets, probes: bool) -> Octets {
        if !self.even_window {
            return window;
        }
        let pair = packet * 2.0;
        pair * libm::ceil(window / pair) + if probes { pair } else { Octets::ZERO }
    }

    /// Whether aggregation matters: who has no use for it need not measure it with every ACK.
    #[inline]
    pub fn measures_aggregation(self) -> bool {
        self.ack_aggregation
    }

    /// What aggregation adds to the window at a bandwidth.
    #[inline]
    pub fn extra(self, aggregation: &Aggregation, bandwidth: OctetRate) -> Octets {
        let most = aggregation.extra[0].max(aggregation.extra[1]);
        if self.ack_aggregation { most.min(bandwidth * LONGEST) } else { Octets::ZERO }
    }
}

/// How much more was acknowledged at a time than the bandwidth explains.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aggregation {
    since: Option<Time>,
    acked: Octets,
    /// The most in this span of rounds and in the one before.
    extra: [Octets; 2],
    current: usize,
    rounds: u32,
}

impl Aggregation {
    /// `acked` more were acknowledged; none counts for more than `window`.
    #[inline]
    pub fn on_acked(&mut self, now: Time, acked: Octets, bandwidth: OctetRate, window: Octets, round_ended: bool) {
        if round_ended {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.current = 1 - self.current;
                self.extra[self.current] = Octets::ZERO;
            }
        }
        let expected = |since: Time| bandwidth * now.since(since).seconds();
        let since = match self.since {
            Some(since) if self.acked > expected(since) => since,
            _ => {
                self.acked = Octets::ZERO;
                now
            }
        };
        self.since = Some(since);
        self.acked += acked;
        let extra = (self.acked - expected(since)).min(window);
        self.extra[self.current] = self.extra[self.current].max(extra);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(names: &str) -> Rules {
        #[derive(Deserialize)]
        struct Table {
            linux: Rules,
        }
        toml::from_str::<Table>(&format!("linux = [{names}]")).unwrap().linux
    }

    const BANDWIDTH: OctetRate = OctetRate(1e6);

    /// A thousand bytes each millisecond, in an ACK every `every_ms` milliseconds.
    fn aggregated(every_ms: u64, rounds_at: impl Fn(u64) -> bool, until_ms: u64, start: Aggregation) -> Aggregation {
        let mut aggregation = start;
        for at in (0..until_ms).step_by(every_ms as usize) {
            let now = Time::from_nanos(10_000_000_000 + at * 1_000_000);
            aggregation.on_acked(now, Octets(1000.0 * every_ms as f64), BANDWIDTH, Octets(1e9), rounds_at(at));
        }
        aggregation
    }

    #[test]
    fn an_ack_for_many_packets_adds_them_to_the_window_and_at_most_100_ms_of_them() {
        let all = rules("\"all\"");
        let of = |every_ms| all.extra(&aggregated(every_ms, |_| false, 1000, Aggregation::default()), BANDWIDTH).0;
        assert_eq!((of(1), of(20), of(500)), (1000.0, 20_000.0, 100_000.0));
        let none = Rules::default().extra(&aggregated(20, |_| false, 1000, Aggregation::default()), BANDWIDTH);
        assert_eq!(none, Octets::ZERO);
    }

    #[test]
    fn what_aggregated_is_forgotten_after_ten_rounds() {
        let burst = aggregated(50, |_| false, 100, Aggregation::default());
        // Time goes on from there: the tests' clock begins anew, which `since` bears.
        let each = |rounds: u64| {
            aggregated(1, |at| at > 0 && at % 10 == 0, 10 * rounds + 1, Aggregation { since: None, ..burst })
        };
        let all = rules("\"all\"");
        assert_eq!(all.extra(&each(9), BANDWIDTH), Octets(50_000.0));
        assert_eq!(all.extra(&each(10), BANDWIDTH), Octets(1000.0));
    }

    #[test]
    fn windows_are_pairs_of_packets_and_a_probe_has_one_more() {
        let even = rules("\"even-window\"");
        let (window, packet) = (Octets(5001.0), Octets(1000.0));
        assert_eq!(even.window(window, packet, false), Octets(6000.0));
        assert_eq!(even.window(window, packet, true), Octets(8000.0));
        assert_eq!(rules("\"pacing-margin\"").window(window, packet, true), window);
    }

    #[test]
    fn the_margin_is_a_hundredth() {
        let rate = OctetRate(100.0);
        assert_eq!((rules("\"pacing-margin\"").paced(rate), rules("").paced(rate)), (OctetRate(99.0), rate));
    }
}

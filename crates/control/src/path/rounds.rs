//! A rate that follows what arrives, in rounds: of the packets that leave in a round trip, when all of their outcomes
//! are known,
//!
//! ```text
//! more than θ + b was lost:   rate = max(arrived, sent / 8),  g = 1 %,   s = rate / 2 at the first of several
//! less was lost:              rate <- 2 rate                  below s
//!                             rate <- rate (1 + g),           g <- min(2 g, g*)      beyond
//! ```
//!
//! While a queue stands before a destination, g starts anew: what it grows by is lost as soon as that is full.
//!
//! "More" is by two standard deviations of what chance loses, of ten packets at least. θ is BBRv3's
//! (draft-ietf-ccwg-bbr, BBRLossThresh); s is the threshold of slow start (RFC 5681). b is loss that does not follow
//! load: what is lost of the packets of a round whose rate is what arrived of the one before. g*, and what counts as such
//! a round, depend on what loses: see [`Rule`].

use super::{Outcome, Report};
use crate::time::{Duration, Time};
use crate::units::{PacketRate, Packets, WindowUnit};

/// θ: what may be lost without being taken for congestion.
pub const TOLERATED: f64 = 0.02;

/// Weight of a round in b, and the most that b is: whatever loses more is taken for overload all the same.
const WEIGHT: f64 = 0.5;
const MOST_BASE: f64 = 0.2;

/// g after a loss, and g*.
const LEAST_GROWTH: f64 = 0.01;
pub const MOST_GROWTH_OF_DESTINATION: f64 = 0.25;
const MOST_GROWTH_OF_RELAY: f64 = 0.1;

/// The rate over what takes nothing. One lost packet may be chance, so that it grows to twice as much.
const LEAST: PacketRate = PacketRate(1.0);

/// A rate does not fall below this part of what was sent: where much is lost at once, as when relays die, later rounds have
/// packets left that tell by whom.
const MOST_FALL: f64 = 0.125;

/// Of fewer packets a share that was lost is chance: the next round takes twice as long.
const FEW: f64 = 10.0;
const LONGEST: Duration = Duration::from_millis(60_000);

/// No round trip counts as shorter.
const SHORTEST: Duration = Duration::from_millis(1);

/// What the rate is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The destination of all packets: nobody else limits what arrives there. g* = 25 %, BBRv3's.
    Destination,
    /// One relay of several on a path, whose share in a loss is a guess: it may still be overloaded by what arrived. Only
    /// what is lost once the rate has come down to s, half of what arrived at the first loss, is b. g* = 10 %: a relay that
    /// lets a second's worth of packets pass at once shows that it is overloaded when the rate has grown for a while.
    Relay,
}

/// The rate, and what became of the packets of a round.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// None before the first round is over.
    rate: Option<PacketRate>,
    growth: f64,
    /// s, and whether it is of a loss in the round before.
    threshold: PacketRate,
    has_lost: bool,
    /// b.
    base: f64,
    rule: Rule,
    /// When the packets of the round leave, how many round trips long, and what became of them.
    begins: Time,
    ends: Time,
    trips: u32,
    acked: f64,
    lost: f64,
    /// How long it lately took until a packet was known to be lost.
    until_lost: Duration,
}

impl Rounds {
    /// Those of a rate that was not known to lose packets before this report.
    pub fn new(report: &Report<'_>, rule: Rule) -> Rounds {
        Rounds {
            rate: None,
            growth: LEAST_GROWTH,
            threshold: PacketRate::ZERO,
            has_lost: false,
            base: 0.0,
            rule,
            begins: report.now,
            ends: report.now + round_trip(report),
            trips: 1,
            acked: 0.0,
            lost: 0.0,
            until_lost: report.now.since(report.sent_at),
        }
    }

    /// Those of a rate that is known already, if it is.
    pub fn at(self, rate: Option<PacketRate>) -> Rounds {
        Rounds { rate, ..self }
    }

    /// Those of a relay, of a rate that doubles until much is lost.
    pub fn starting(report: &Report<'_>, rate: PacketRate) -> Rounds {
        Rounds { rate: Some(rate), threshold: PacketRate(f64::INFINITY), ..Rounds::new(report, Rule::Relay) }
    }

    /// The rate, once there is one.
    pub fn rate(&self) -> Option<PacketRate> {
        self.rate
    }

    /// It is at most this.
    pub fn bound(&mut self, most: PacketRate) {
        self.rate = self.rate.map(|rate| rate.min(most));
    }

    /// A queue stands: growth begins anew.
    pub fn slow_down(&mut self) {
        self.growth = LEAST_GROWTH;
    }

    /// It doubles again until more is lost.
    pub fn reopen(&mut self) {
        self.threshold = PacketRate(f64::INFINITY);
    }

    /// Learns from an outcome, in which `share` of a packet was lost; `is_lossy` says that not all losses are others' or
    /// old. If the outcomes of a round are known, what arrived in it, in packets a second, and whether that was too little.
    pub fn learn(&mut self, report: &Report<'_>, share: f64, is_lossy: bool) -> Option<Round> {
        let took = report.now.since(report.sent_at);
        self.until_lost = if report.outcome == Outcome::TimedOut { took } else { self.until_lost.max(took) };
        if (self.begins..self.ends).contains(&report.sent_at) {
            self.lost += share;
            self.acked += 1.0 - share;
        }
        if report.now < self.ends + self.until_lost {
            return None;
        }
        let sent = self.acked + self.lost;
        let tells = sent > 0.0 && (sent >= FEW || self.lost == 0.0 || self.has_lost);
        let round = tells.then(|| self.judge(is_lossy));
        (self.acked, self.lost) = (0.0, 0.0);
        self.trips = if tells { 1 } else { self.trips.saturating_mul(2) };
        self.begins = report.now;
        // Of few packets a second not even one leaves in each round trip.
        let one = self.rate.map_or(Duration::ZERO, |rate| (Packets::ONE / rate).into());
        self.ends = report.now + (round_trip(report).max(one) * u64::from(self.trips)).min(LONGEST);
        round
    }

    fn judge(&mut self, is_lossy: bool) -> Round {
        let (sent, tolerated) = (self.acked + self.lost, TOLERATED + self.base);
        let of_a_second = |packets| Packets(packets) / self.ends.since(self.begins).seconds();
        let (arrived, sent_rate) = (of_a_second(self.acked), of_a_second(sent));
        let is_much = self.lost > tolerated * sent + 2.0 * libm::sqrt(tolerated * sent);
        let has_fallen = self.has_lost;
        let is_low = self.rule == Rule::Destination || self.rate.is_some_and(|rate| rate <= self.threshold);
        if (has_fallen && is_low) || self.lost < self.base * sent {
            self.base = (self.base + WEIGHT * (self.lost / sent - self.base)).min(MOST_BASE);
        }
        self.has_lost = is_lossy && is_much;
        if self.has_lost {
            if !has_fallen {
                self.threshold = self.before(arrived, sent_rate) / 2.0;
            }
            self.rate = Some(arrived.max(sent_rate * MOST_FALL).max(LEAST));
            self.growth = LEAST_GROWTH;
        } else {
            self.grow();
        }
        Round { arrived, fell: self.has_lost }
    }

    /// What s is half of at the first loss. A relay's rate may be far more than what is sent over it, and where nothing
    /// arrives any more, what was sent tells what did.
    fn before(&self, arrived: PacketRate, sent: PacketRate) -> PacketRate {
        let used = if arrived > PacketRate::ZERO { arrived } else { sent };
        let rate = self.rate.unwrap_or(used);
        if self.rule == Rule::Relay { rate.min(used) } else { rate }
    }

    fn grow(&mut self) {
        let Some(rate) = &mut self.rate else { return };
        if *rate < self.threshold {
            *rate = (*rate * 2.0).min(self.threshold);
            return;
        }
        *rate = *rate * (1.0 + self.growth);
        let most = match self.rule {
            Rule::Destination => MOST_GROWTH_OF_DESTINATION,
            Rule::Relay => MOST_GROWTH_OF_RELAY,
        };
        self.growth = (2.0 * self.growth).min(most);
    }
}

/// What became of the packets of a round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// What arrived of them over the time in which they left.
    pub arrived: PacketRate,
    /// Whether the rate fell to that.
    pub fell: bool,
}

fn round_trip(report: &Report<'_>) -> Duration {
    report.round_trip().max(SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Hop;
    use crate::rtt::{PairRtts, RttConfig};

    const ROUND_TRIP: f64 = 0.1;

    /// The rate at the end of each second, over what lets `limit` packets a second pass at most and loses these shares of
    /// them in each second, evenly.
    fn rates(rounds: impl Fn(&Report<'_>) -> Rounds, limit: f64, loses: &[f64]) -> Vec<f64> {
        let (rtts, path) = (PairRtts::new(&RttConfig::default(), 2), [Hop::default()]);
        let time = Time::from_secs_f64;
        let report = |now: f64, outcome| Report {
            now: time(now),
            sent_at: time(now - ROUND_TRIP),
            ..Report::of(outcome, &path, &rtts)
        };
        let mut rounds = rounds(&report(ROUND_TRIP, Outcome::Acked));
        let (mut now, mut room, mut lost, mut rates) = (ROUND_TRIP, 1.0, 0.0, Vec::new());
        for (second, loses) in loses.iter().enumerate() {
            while now < ROUND_TRIP + 1.0 + second as f64 {
                let rate = rounds.rate().map_or(limit, |rate| rate.0);
                now += 1.0 / rate;
                room = f64::min(room + limit / rate, 2.0);
                lost += loses;
                let (is_refused, is_lost) = (room < 1.0, lost >= 1.0);
                room -= if is_refused { 0.0 } else { 1.0 };
                lost -= if is_lost { 1.0 } else { 0.0 };
                let is_lost = is_lost || is_refused;
                let (outcome, share) = if is_lost { (Outcome::TimedOut, 1.0) } else { (Outcome::Acked, 0.0) };
                rounds.learn(&report(now, outcome), share, true);
            }
            rates.push(rounds.rate().map_or(f64::NAN, |rate| rate.0));
        }
        rates
    }

    fn relay(report: &Report<'_>) -> Rounds {
        Rounds::starting(report, PacketRate(10.0))
    }

    #[test]
    fn a_rate_doubles_until_much_is_lost_and_stays_near_what_passes() {
        let rates = rates(relay, 1000.0, &[0.0; 40]);
        let mean = rates[10..].iter().sum::<f64>() / 30.0;
        assert!((900.0..1200.0).contains(&mean), "{rates:?}");
        assert!(rates[5..].iter().all(|rate| (700.0..1400.0).contains(rate)), "{rates:?}");
    }

    #[test]
    fn loss_that_does_not_follow_load_holds_no_rate_down() {
        let mut loses = [0.0; 60];
        loses[20..].fill(0.1);
        for rounds in [relay, |report: &Report<'_>| Rounds::new(report, Rule::Destination)] {
            let rates = rates(rounds, 1000.0, &loses);
            assert!(rates[40..].iter().sum::<f64>() > 20.0 * 700.0, "{rates:?}");
        }
    }

    #[test]
    fn where_nothing_arrives_a_rate_falls_to_a_few_packets_a_second_and_is_back_in_some_seconds() {
        let mut loses = [0.0; 60];
        loses[20..25].fill(1.0);
        let rates = rates(relay, 1000.0, &loses);
        assert!(rates[22..25].iter().all(|&rate| rate <= 5.0), "{rates:?}");
        assert!(rates[40..].iter().all(|&rate| rate > 500.0), "{rates:?}");
    }
}

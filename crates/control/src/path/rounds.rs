//! A rate that follows what arrives, in rounds: of the packets that leave in a round trip, when all of their outcomes
//! are known,
//!
//! ```text
//! more than θ + b was lost:   rate = arrived,                g = 1 %,   s = rate / 2 at the first of several
//! less was lost:              rate <- 2 rate                 below s
//!                             rate <- rate (1 + g),          g <- min(2 g, 25 %)    beyond
//! ```
//!
//! "More" is by two standard deviations of what chance loses, of ten packets at least. θ is BBRv3's
//! (draft-ietf-ccwg-bbr, BBRLossThresh), and so is the fastest growth; s is the threshold of slow start (RFC 5681). b is
//! loss that does not follow load: what is lost of the packets of a round whose rate is what arrived of the one before.

use super::{Outcome, Report};
use crate::time::{Duration, Time};
use crate::units::{PacketRate, Packets, WindowUnit};

/// θ: what may be lost without being taken for congestion.
pub const TOLERATED: f64 = 0.02;

/// Weight of a round in b, and the most that b is: whatever loses more is taken for overload all the same.
const WEIGHT: f64 = 0.5;
const MOST_BASE: f64 = 0.2;

/// g after a loss, and at most.
const LEAST_GROWTH: f64 = 0.01;
const MOST_GROWTH: f64 = 0.25;

/// The rate over what takes nothing. One lost packet may be chance, so that it grows to twice as much.
const LEAST: PacketRate = PacketRate(1.0);

/// Of fewer packets a share that was lost is chance: the next round takes twice as long.
const FEW: f64 = 10.0;
const LONGEST: Duration = Duration::from_millis(60_000);

/// No round trip counts as shorter.
const SHORTEST: Duration = Duration::from_millis(1);

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
    pub fn new(report: &Report<'_>) -> Rounds {
        Rounds {
            rate: None,
            growth: LEAST_GROWTH,
            threshold: PacketRate::ZERO,
            has_lost: false,
            base: 0.0,
            begins: report.now,
            ends: report.now + round_trip(report),
            trips: 1,
            acked: 0.0,
            lost: 0.0,
            until_lost: report.now.since(report.sent_at),
        }
    }

    /// The same, of a rate that doubles until much is lost.
    pub fn starting(report: &Report<'_>, rate: PacketRate) -> Rounds {
        Rounds { rate: Some(rate), threshold: PacketRate(f64::INFINITY), ..Rounds::new(report) }
    }

    /// The rate, once there is one.
    pub fn rate(&self) -> Option<PacketRate> {
        self.rate
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
        let arrived = Packets(self.acked) / self.ends.since(self.begins).seconds();
        let is_much = self.lost > tolerated * sent + 2.0 * libm::sqrt(tolerated * sent);
        let has_fallen = self.has_lost;
        if has_fallen || self.lost < self.base * sent {
            self.base = (self.base + WEIGHT * (self.lost / sent - self.base)).min(MOST_BASE);
        }
        self.has_lost = is_lossy && is_much;
        if self.has_lost {
            if !has_fallen {
                self.threshold = self.rate.unwrap_or(arrived) / 2.0;
            }
            self.rate = Some(arrived.max(LEAST));
            self.growth = LEAST_GROWTH;
        } else {
            self.grow();
        }
        Round { arrived, fell: self.has_lost }
    }

    fn grow(&mut self) {
        let Some(rate) = &mut self.rate else { return };
        if *rate < self.threshold {
            *rate = (*rate * 2.0).min(self.threshold);
            return;
        }
        *rate = *rate * (1.0 + self.growth);
        self.growth = (2.0 * self.growth).min(MOST_GROWTH);
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

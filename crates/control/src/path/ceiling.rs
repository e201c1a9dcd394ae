//! The most that is sent to the one destination of a sender: what relays grant says nothing of the access of who
//! receives. It is never sent much more than has lately arrived: see [`Startup`].
//!
//! Losses that the relays of a path do not explain are blamed on its destination (`losses.rs`). Once it is thought to
//! lose more than θ, it has a rate of its own. Of the packets that leave in a round trip, when all of their outcomes are
//! known,
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
//!
//! Of several destinations each would have few packets, and one that is silent would hold up those to the others.

use super::{Outcome, Report, Slot};
use crate::pacer::{burst_of, charged};
use crate::time::{Duration, Time};
use crate::units::{PacketRate, Packets, WindowUnit};

/// θ: what may be lost without being taken for congestion.
const TOLERATED: f64 = 0.02;

/// Weight of a round in b, and the most that b is: whatever loses more is taken for overload all the same.
const WEIGHT: f64 = 0.5;
const MOST_BASE: f64 = 0.2;

/// g after a loss, and at most.
const LEAST_GROWTH: f64 = 0.01;
const MOST_GROWTH: f64 = 0.25;

/// The rate to a destination that takes nothing. One lost packet may be chance, so that it grows to twice as much.
const LEAST: PacketRate = PacketRate(1.0);

/// A rate of this many times what arrives limits nothing.
const LOOSE: f64 = 4.0;

/// Of fewer packets a share that was lost is chance: the next round takes twice as long.
const FEW: u32 = 10;
const LONGEST: Duration = Duration::from_millis(60_000);

/// No round trip counts as shorter.
const SHORTEST: Duration = Duration::from_millis(1);

/// It is the only one if these many outcomes in a row were of it, or all that there were.
const ALONE: u32 = 128;

/// How a sender begins: in each round trip it may send so much more than arrived as doubles that.
///
/// ```text
/// rate <= 4 ln 2 y + 10 n / d
/// ```
///
/// with the packets that lately arrived in a second, y (`delivered.rs`), the mean round trip d, and RFC 6928's initial
/// window to each of n paths that have no relay in common. It holds ever after: relays that die, over which most is lost,
/// leave the second term to find out which, where a window would be full of what never arrives.
#[derive(Clone, Copy, Debug)]
pub struct Startup {
    /// The rate.
    pub rate: PacketRate,
    /// d: what was not used before counts for so long.
    pub round_trip: Duration,
}

/// The bound of what is sent to a sender's one destination.
#[derive(Clone, Debug)]
pub struct Ceiling {
    /// That of the last outcome, and how many there were since one of another.
    destination: Option<Slot>,
    alone: u32,
    /// None before the first round trip is known.
    startup: Option<Startup>,
    /// The theoretical arrival time of the next packet by it.
    startup_due: Time,
    bound: Option<Bound>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    /// None before the first round is over.
    rate: Option<PacketRate>,
    growth: f64,
    /// s, and whether it is of a loss in the round before.
    threshold: PacketRate,
    has_lost: bool,
    /// b.
    base: f64,
    /// The theoretical arrival time of the next packet.
    due: Time,
    /// When the packets of the round leave, how many round trips long, and what became of them.
    begins: Time,
    ends: Time,
    trips: u32,
    acked: u32,
    lost: u32,
    /// How long it lately took until a packet was known to be lost.
    until_lost: Duration,
}

impl Default for Ceiling {
    fn default() -> Ceiling {
        Ceiling { destination: None, alone: ALONE, startup: None, startup_due: Time::ZERO, bound: None }
    }
}

impl Ceiling {
    /// Whether nothing has lately gone anywhere else, as far as is known.
    #[inline]
    pub fn is_only(&self, destination: Slot) -> bool {
        self.alone >= ALONE && self.destination.is_none_or(|only| only == destination)
    }

    /// When a packet to `destination` may leave.
    #[inline]
    pub fn due(&self, destination: Slot) -> Time {
        if !self.is_only(destination) {
            return Time::ZERO;
        }
        self.bound.map_or(self.startup_due, |bound| bound.due.max(self.startup_due))
    }

    /// A packet leaves to `destination`.
    #[inline]
    pub fn charge(&mut self, now: Time, destination: Slot) {
        if !self.is_only(destination) {
            return;
        }
        if let Some(Startup { rate, round_trip }) = self.startup {
            self.startup_due = charged(self.startup_due, now, round_trip, (Packets::ONE / rate).into());
        }
        if let Some(bound) = &mut self.bound
            && let Some(rate) = bound.rate
        {
            bound.due = charged(bound.due, now, (burst_of(rate) / rate).into(), (Packets::ONE / rate).into());
        }
    }

    /// What was lost on the way to `destination` was not lost by it; whether that is the only one.
    pub fn lift(&mut self, destination: Slot) -> bool {
        let is_only = self.is_only(destination);
        if is_only {
            self.bound = None;
        }
        is_only
    }

    /// Relays have lost more of it than was thought: the rate doubles until more is lost.
    pub fn reopen(&mut self, destination: Slot) {
        if let Some(bound) = self.bound.as_mut().filter(|_| self.destination == Some(destination)) {
            bound.threshold = PacketRate(f64::INFINITY);
        }
    }

    /// Learns from an outcome; `loss` is the probability that its destination loses a packet, and `startup` what that
    /// may be sent, once a round trip is known.
    pub fn learn(&mut self, report: &Report<'_>, loss: f64, startup: Option<Startup>) {
        self.startup = startup;
        let before = self.destination.replace(report.destination);
        if before.is_some_and(|before| before != report.destination) {
            self.alone = 0;
            self.bound = None;
        }
        self.alone = self.alone.saturating_add(1);
        let is_lossy = loss > TOLERATED;
        let is_first = self.bound.is_none() && self.alone >= ALONE && report.outcome == Outcome::TimedOut;
        if self.bound.as_mut().is_some_and(|bound| bound.learn(report, is_lossy)) {
            self.bound = None;
        } else if is_first && is_lossy {
            self.bound = Some(Bound::new(report));
        }
    }
}

impl Bound {
    fn new(report: &Report<'_>) -> Bound {
        Bound {
            rate: None,
            growth: LEAST_GROWTH,
            threshold: PacketRate::ZERO,
            has_lost: false,
            base: 0.0,
            due: report.now,
            begins: report.now,
            ends: report.now + round_trip(report),
            trips: 1,
            acked: 0,
            lost: 0,
            until_lost: report.now.since(report.sent_at),
        }
    }

    /// Whether the rate limits nothing any more.
    fn learn(&mut self, report: &Report<'_>, is_lossy: bool) -> bool {
        let took = report.now.since(report.sent_at);
        self.until_lost = if report.outcome == Outcome::TimedOut { took } else { self.until_lost.max(took) };
        if (self.begins..self.ends).contains(&report.sent_at) {
            match report.outcome {
                Outcome::Acked => self.acked += 1,
                Outcome::TimedOut => self.lost += 1,
            }
        }
        if report.now < self.ends + self.until_lost {
            return false;
        }
        let sent = self.acked + self.lost;
        let tells = sent > 0 && (sent >= FEW || self.lost == 0 || self.has_lost);
        let is_loose = tells && self.judge(is_lossy);
        (self.acked, self.lost) = (0, 0);
        self.trips = if tells { 1 } else { self.trips.saturating_mul(2) };
        self.begins = report.now;
        // Of few packets a second not even one leaves in each round trip.
        let one = self.rate.map_or(Duration::ZERO, |rate| (Packets::ONE / rate).into());
        self.ends = report.now + (round_trip(report).max(one) * u64::from(self.trips)).min(LONGEST);
        is_loose
    }

    /// The outcomes of a round are known; whether the rate limits nothing any more.
    fn judge(&mut self, is_lossy: bool) -> bool {
        let (acked, lost) = (f64::from(self.acked), f64::from(self.lost));
        let arrived = Packets(acked) / self.ends.since(self.begins).seconds();
        let (sent, tolerated) = (acked + lost, TOLERATED + self.base);
        let is_much = lost > tolerated * sent + 2.0 * libm::sqrt(tolerated * sent);
        let has_fallen = self.has_lost;
        if has_fallen || lost < self.base * sent {
            self.base = (self.base + WEIGHT * (lost / sent - self.base)).min(MOST_BASE);
        }
        self.has_lost = is_lossy && is_much;
        if self.has_lost {
            if !has_fallen {
                self.threshold = self.rate.unwrap_or(arrived) / 2.0;
            }
            self.rate = Some(arrived.max(LEAST));
            self.growth = LEAST_GROWTH;
            return false;
        }
        self.grow();
        // Its losses are others', or old.
        self.rate.is_none_or(|rate| !is_lossy && rate > (arrived * LOOSE).max(LEAST))
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

fn round_trip(report: &Report<'_>) -> Duration {
    report.round_trip().max(SHORTEST)
}

//! The most that is sent to the one destination of a sender: what relays grant says nothing of the access of who
//! receives. It is never sent much more than has lately arrived: see [`Startup`].
//!
//! Losses that the relays of a path do not explain are blamed on its destination (`losses.rs`). Once it is thought to
//! lose more than [`TOLERATED`], it has a rate of its own, which follows what arrives (`rounds.rs`).
//!
//! Of several destinations each would have few packets, and one that is silent would hold up those to the others.

use super::rounds::{Rounds, TOLERATED};
use super::{Outcome, Report, Slot};
use crate::pacer::{burst_of, charged};
use crate::time::{Duration, Time};
use crate::units::{PacketRate, Packets, WindowUnit};

/// A rate of this many times what arrives limits nothing.
const LOOSE: f64 = 4.0;

/// Nor does one of less than this, which one lost packet leads to.
const LEAST: PacketRate = PacketRate(1.0);

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
    rounds: Rounds,
    /// The theoretical arrival time of the next packet.
    due: Time,
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
            && let Some(rate) = bound.rounds.rate()
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
            bound.rounds.reopen();
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
        Bound { rounds: Rounds::new(report), due: report.now }
    }

    /// Whether the rate limits nothing any more: its losses are others', or old.
    fn learn(&mut self, report: &Report<'_>, is_lossy: bool) -> bool {
        let share = if report.outcome == Outcome::TimedOut { 1.0 } else { 0.0 };
        self.rounds.learn(report, share, is_lossy).is_some_and(|round| {
            let is_loose = |rate: PacketRate| !is_lossy && rate > (round.arrived * LOOSE).max(LEAST);
            !round.fell && self.rounds.rate().is_none_or(is_loose)
        })
    }
}

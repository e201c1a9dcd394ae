//! The most that is sent to the one destination of a sender: what relays grant says nothing of the access of who
//! receives. It is never sent much more than has lately arrived: see [`Startup`].
//!
//! Losses that the relays of a path do not explain are blamed on its destination (`losses.rs`). Once it is thought to
//! lose more than [`TOLERATED`], or nothing comes from it over relays that stamp nothing, it has a rate of its own, which
//! follows what arrives (`rounds.rs`). In a round in which no packet had to wait, as while nothing but an offer is sent,
//! loss says nothing of that rate.
//!
//! Of several destinations each would have few packets, and one that is silent would hold up those to the others.

use super::delivered::{Delivered, first_rate};
use super::rounds::{Rounds, Rule, TOLERATED};
use super::{Outcome, Report, Slot};
use crate::pacer::{burst_of, charged};
use crate::time::{Duration, Time};
use crate::units::{PacketRate, Packets, WindowUnit};

/// A rate of this many times what arrives limits nothing.
const LOOSE: f64 = 4.0;

/// Nor does one of less than this, which one lost packet leads to.
const LEAST: PacketRate = PacketRate(1.0);

/// A destination from which nothing has come for so long is silent, whoever may have lost it: a second or two are what
/// TCP, too, takes for an outage (RFC 6298's first timeout).
const QUIET: Duration = Duration::from_millis(1_100);

/// ACKs that come regularly come within so many round trips.
const SILENT_TRIPS: u64 = 2;

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
/// leave the second term to find out which, where a window would be full of what never arrives. Where relays do not say
/// what they may be sent, it is 20 n / t after a silence of t > 2 d, in which a window would be full.
#[derive(Clone, Copy, Debug)]
pub struct Startup {
    /// The rate.
    rate: PacketRate,
    /// n.
    paths: f64,
    /// d: what was not used before counts for so long.
    round_trip: Duration,
    /// Whether no relay says what it may be sent, so that silence does.
    is_blind: bool,
}

impl Startup {
    /// Over `relays`, of which each packet takes `hops`, where so much has `arrived`; none before a round trip is known.
    pub fn of(arrived: &Delivered, round_trip: Duration, relays: usize, hops: usize) -> Option<Startup> {
        let paths = relays as f64 / hops as f64;
        let rate = arrived.begins(first_rate(round_trip) * paths);
        (round_trip > Duration::ZERO).then_some(Startup { rate, paths, round_trip, is_blind: false })
    }

    /// The same, over relays that do not say what they may be sent.
    pub fn blind(self) -> Startup {
        Startup { is_blind: true, ..self }
    }

    /// The rate after so long without an ACK.
    fn rate_after(&self, silence: Duration) -> PacketRate {
        let is_silent = self.is_blind && silence > self.round_trip * SILENT_TRIPS;
        let first = first_rate(silence) * self.paths * SILENT_TRIPS as f64;
        if is_silent { first.min(self.rate) } else { self.rate }
    }
}

/// The mean round trip after one more, RFC 6298's; `before` is zero before the first.
pub fn smoothed(before: Duration, sample: Duration) -> Duration {
    if before == Duration::ZERO { sample } else { (before * 7 + sample) / 8 }
}

/// The bound of what is sent to a sender's one destination.
#[derive(Clone, Debug)]
pub struct Ceiling {
    /// That of the last outcome, and how many there were since one of another.
    destination: Option<Slot>,
    alone: u32,
    /// When the last packet left that has arrived there.
    heard: Time,
    /// When its ACK came.
    heard_at: Time,
    /// None before the first round trip is known.
    startup: Option<Startup>,
    /// The theoretical arrival time of the next packet by it.
    startup_due: Time,
    bound: Option<Bound>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    rounds: Rounds,
    /// Whether more would have left in this round, if it had been allowed.
    is_limited: bool,
    /// The theoretical arrival time of the next packet.
    due: Time,
}

impl Default for Ceiling {
    fn default() -> Ceiling {
        Ceiling {
            destination: None,
            alone: ALONE,
            heard: Time::ZERO,
            heard_at: Time::ZERO,
            startup: None,
            startup_due: Time::ZERO,
            bound: None,
        }
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

    /// A packet may not leave now.
    #[inline]
    pub fn refuse(&mut self) {
        if let Some(bound) = &mut self.bound {
            bound.is_limited = true;
        }
    }

    /// A packet leaves to `destination`.
    #[inline]
    pub fn charge(&mut self, now: Time, destination: Slot) {
        if !self.is_only(destination) {
            return;
        }
        if let Some(startup) = &self.startup {
            let rate = startup.rate_after(now.since(self.heard_at));
            self.startup_due = charged(self.startup_due, now, startup.round_trip, (Packets::ONE / rate).into());
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

    /// Learns from an outcome, which `tells` something of its destination or not; `loss` is the probability that this loses
    /// a packet, none if no rate of its own is wanted, and `startup` what it may be sent, once a round trip is known.
    pub fn learn(&mut self, report: &Report<'_>, tells: bool, loss: Option<f64>, startup: Option<Startup>) {
        self.startup = startup;
        let before = self.destination.replace(report.destination);
        if before.is_some_and(|before| before != report.destination) {
            self.alone = 0;
            self.bound = None;
        }
        self.alone = self.alone.saturating_add(1);
        if report.outcome == Outcome::Acked {
            self.heard = self.heard.max(report.sent_at);
            self.heard_at = report.now;
        }
        if !tells {
            return;
        }
        let is_blind = startup.is_some_and(|startup| startup.is_blind);
        let is_silent = is_blind && report.sent_at.since(self.heard) >= QUIET;
        let is_lossy = loss.is_some_and(|loss| loss > TOLERATED || is_silent);
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
        Bound { rounds: Rounds::new(report, Rule::Destination), is_limited: false, due: report.now }
    }

    /// Whether the rate limits nothing any more: its losses are others', or old.
    fn learn(&mut self, report: &Report<'_>, is_lossy: bool) -> bool {
        let share = if report.outcome == Outcome::TimedOut { 1.0 } else { 0.0 };
        let is_limited = self.is_limited;
        let round = self.rounds.learn(report, share, is_lossy && is_limited);
        self.is_limited &= round.is_none();
        round.is_some_and(|round| {
            let is_loose = |rate: PacketRate| !is_lossy && rate > (round.arrived * LOOSE).max(LEAST);
            !round.fell && self.rounds.rate().is_none_or(is_loose)
        })
    }
}

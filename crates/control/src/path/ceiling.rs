//! The most that is sent to the one destination of a sender: what relays grant says nothing of the access of who
//! receives. It is never sent much more than has lately arrived: see [`Startup`].
//!
//! Losses that the relays of a path do not explain are blamed on its destination (`losses.rs`). Once it is thought to
//! lose more than [`TOLERATED`], or nothing comes from it over relays that stamp nothing, it has a rate of its own, which
//! follows what arrives (`rounds.rs`). In a round in which no packet had to wait, as while nothing but an offer is sent,
//! loss says nothing of that rate. Where a queue stands before it (`round_trips.rs`), the loss is an overload, and the rate
//! begins at once with a probe's growth over the most that arrived in any round trip of the last second or two; else it may
//! be relays that have died, and the rate begins when a round has told what arrives.
//!
//! Of several destinations each would have few packets, and one that is silent would hold up those to the others.

use super::delivered::{Delivered, first_rate};
use super::round_trips::RoundTrips;
use super::rounds::{MOST_GROWTH_OF_DESTINATION, Rounds, Rule, TOLERATED};
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

/// What arrived is remembered for so long at least, and twice as long at most: a loss is known a timeout later, and relays
/// that die meanwhile do not make a destination's link slower.
const REMEMBERED: Duration = Duration::from_millis(1_000);

/// It is the only one if these many outcomes in a row were of it, or all that there were.
const ALONE: u32 = 128;

/// How a sender begins: in each round trip it may send so much more than arrived as doubles that.
///
/// ```text
/// rate <= 4 ln 2 y (d0 + η) / q + 10 n / d          (d0 + η) / q <= 1
/// ```
///
/// with the packets that lately arrived in a second, y (`delivered.rs`), the mean round trip d, the part of it that is no
/// queue (`round_trips.rs`), and RFC 6928's initial window to each of n paths that have no relay in common. Of what is sent
/// so, 4 ln 2 y (d0 + η) and 10 n packets that arrive are on their way at once, by Little's law: as in BBR, a gain times
/// the product of bandwidth and least delay, so that a queue before the destination does not grow beyond that. (BBR's gain
/// there is 2; a file over fast relays a third of a second away then took an eighth longer.) It holds ever after: relays
/// that die, over which most is lost, leave the second term to find out which, where a window would be full of what never
/// arrives.
///
/// Where the last round trip took longer than d, that counts in its place, or a queue would be full before the mean knows of
/// it. Where relays do not say what they may be sent, the rate is not more than 20 n / t after a silence of t > 2 d, in which
/// a window would be full, and queues are left out.
#[derive(Clone, Copy, Debug)]
pub struct Startup {
    /// y, and the two terms of the rate.
    arrived: PacketRate,
    grown: PacketRate,
    first: PacketRate,
    /// n.
    paths: f64,
    /// d: what was not used before counts for so long.
    round_trip: Duration,
    /// Whether no relay says what it may be sent, so that silence does.
    is_blind: bool,
    /// What is known of a queue before the destination, if that counts.
    trips: Option<RoundTrips>,
}

impl Startup {
    /// Over `relays`, of which each packet takes `hops`, where so much has `arrived`; none before a round trip is known.
    pub fn of(arrived: &Delivered, round_trip: Duration, relays: usize, hops: usize) -> Option<Startup> {
        let paths = relays as f64 / hops as f64;
        let (grown, first) = (arrived.begins(), first_rate(round_trip) * paths);
        let arrived = arrived.rate();
        let startup = Startup { arrived, grown, first, paths, round_trip, is_blind: false, trips: None };
        (round_trip > Duration::ZERO).then_some(startup)
    }

    /// The same, over relays that do not say what they may be sent.
    pub fn blind(self) -> Startup {
        Startup { is_blind: true, ..self }
    }

    /// The same, not to fill the queue that round trips tell of.
    pub fn unqueued(self, trips: &RoundTrips) -> Startup {
        Startup { grown: self.grown * trips.unqueued_part(), trips: Some(*trips), ..self }
    }

    /// Whether a queue stands before the destination.
    fn queue(&self) -> bool {
        self.trips.is_some_and(|trips| trips.queue())
    }

    /// The rate after so long without an ACK.
    fn rate_after(&self, silence: Duration) -> PacketRate {
        let rate = self.grown + self.first;
        if self.is_blind && silence > self.round_trip * SILENT_TRIPS {
            return rate.min(first_rate(silence) * self.paths * SILENT_TRIPS as f64);
        }
        match self.trips.map(|trips| trips.last()) {
            Some(last) if last > self.round_trip => rate * (self.round_trip.as_secs_f64() / last.as_secs_f64()),
            _ => rate,
        }
    }
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
    /// The most that arrived, in packets a second, since `begins`, and in the second before.
    most: PacketRate,
    before: PacketRate,
    begins: Time,
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
            most: PacketRate::ZERO,
            before: PacketRate::ZERO,
            begins: Time::ZERO,
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
        if let Some(startup) = startup {
            self.remember(report.now, startup.arrived);
        }
        let is_blind = startup.is_some_and(|startup| startup.is_blind);
        let is_silent = is_blind && report.sent_at.since(self.heard) >= QUIET;
        let is_lossy = loss.is_some_and(|loss| loss > TOLERATED || is_silent);
        let is_first = self.bound.is_none() && self.alone >= ALONE && report.outcome == Outcome::TimedOut;
        if let Some(bound) = self.bound.as_mut().filter(|_| startup.is_some_and(|startup| startup.queue())) {
            bound.rounds.slow_down();
        }
        if self.bound.as_mut().is_some_and(|bound| bound.learn(report, is_lossy)) {
            self.bound = None;
        } else if is_first && is_lossy {
            let rate = self.most.max(self.before) * (1.0 + MOST_GROWTH_OF_DESTINATION);
            let is_overload = startup.is_some_and(|startup| startup.queue());
            self.bound = Some(Bound::new(report, is_overload.then_some(rate)));
        }
    }

    /// So much has lately arrived.
    fn remember(&mut self, now: Time, arrived: PacketRate) {
        if now.since(self.begins) >= REMEMBERED {
            (self.before, self.most, self.begins) = (self.most, PacketRate::ZERO, now);
        }
        self.most = self.most.max(arrived);
    }
}

impl Bound {
    /// Of a `rate` that is known already, if it is.
    fn new(report: &Report<'_>, rate: Option<PacketRate>) -> Bound {
        Bound { rounds: Rounds::new(report, Rule::Destination).at(rate), is_limited: false, due: report.now }
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::path::Hop;
    use crate::rtt::{PairRtts, RttConfig};

    const DESTINATION: Slot = Slot(4);
    const ROUND_TRIP: Duration = Duration::from_millis(10);

    /// What a sender knows.
    struct Sender {
        ceiling: Ceiling,
        trips: RoundTrips,
        delivered: Delivered,
        /// Whether a queue counts.
        counts: bool,
        rtts: PairRtts,
    }

    impl Sender {
        fn new(counts: bool) -> Sender {
            let (delivered, rtts) = (Delivered::new(Time::ZERO), PairRtts::new(&RttConfig::default(), 5));
            Sender { ceiling: Ceiling::default(), trips: RoundTrips::default(), delivered, counts, rtts }
        }

        /// What has become of a packet over two of four relays.
        fn learn(&mut self, now: Time, sent_at: Time, outcome: Outcome) {
            let path = [Hop::default(); 2];
            let report = Report { now, sent_at, destination: DESTINATION, ..Report::of(outcome, &path, &self.rtts) };
            let has_come = outcome == Outcome::Acked;
            if has_come {
                self.trips.learn(&report);
            }
            self.delivered.learn(now, has_come, self.trips.mean());
            let startup = Startup::of(&self.delivered, self.trips.mean(), 4, 2);
            let startup = if self.counts { startup.map(|startup| startup.unqueued(&self.trips)) } else { startup };
            self.ceiling.learn(&report, true, Some(0.5), startup);
        }
    }

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(milliseconds)
    }

    /// The longest queue, in packets, before a link that carries a thousand packets a second and loses none, of a sender
    /// that sends in two seconds all that it may.
    fn longest_queue(counts: bool) -> usize {
        let (mut sender, mut under_way) = (Sender::new(counts), VecDeque::new());
        let (mut now, mut free, mut longest) = (Time::ZERO, Time::ZERO, 0);
        while now < at(2_000) {
            // The first packet is alone: its ACK tells of a round trip.
            let knows = sender.trips.mean() > Duration::ZERO || under_way.is_empty();
            let leaves = if knows { sender.ceiling.due(DESTINATION).max(now) } else { Time::MAX };
            if let Some(&(acked, sent_at)) = under_way.front()
                && acked <= leaves
            {
                under_way.pop_front();
                now = acked;
                sender.learn(now, sent_at, Outcome::Acked);
                continue;
            }
            now = leaves;
            free = free.max(now) + Duration::from_millis(1);
            under_way.push_back((free + ROUND_TRIP, now));
            sender.ceiling.charge(now, DESTINATION);
            longest = longest.max(free.since(now).as_millis_f64() as usize);
        }
        longest
    }

    #[test]
    fn a_queue_before_the_destination_holds_what_is_on_its_way_a_few_times_at_most() {
        // 4 ln 2 (11 + 4) packets, of which 11 are on their way, and twice ten, and what is sent before they are known.
        let (with, without) = (longest_queue(true), longest_queue(false));
        assert!(with < 70 && without > 1000, "{with}, {without} without");
    }

    #[test]
    fn losses_with_a_queue_are_an_overload_whose_rate_is_known_at_once() {
        for queue in [true, false] {
            let mut sender = Sender::new(true);
            for packet in 0..1000 {
                let round_trip = 50 + if queue { packet / 20 } else { 0 };
                sender.learn(at(packet + round_trip), at(packet), Outcome::Acked);
            }
            sender.learn(at(1_300), at(1_000), Outcome::TimedOut);
            let rate = sender.ceiling.bound.expect("something was lost").rounds.rate().map(|rate| rate.0);
            // Of a thousand packets a second a probe sends a quarter more.
            let is_known = rate.is_some_and(|rate| (1100.0..1300.0).contains(&rate));
            assert!(if queue { is_known } else { rate.is_none() }, "{queue}: {rate:?}");
        }
    }
}

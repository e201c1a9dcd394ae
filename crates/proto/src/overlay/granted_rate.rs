//! The rate that a relay grants to each of those who send over it, stamped on the ACKs that pass.
//!
//! The rule is that of RCP [Dukkipati 2007, "Rate Control Protocol (RCP): Congestion Control to Make
//! Flows Complete Quickly", eq. 3.2]: every sender gets the same rate R, which grows with the capacity
//! that is left and falls with the queue. Each interval of length T,
//!
//! ```text
//! R <- R (1 + min(T / d, 1) (g(eta - p y / C) - 0.15 (q - q*) / d)),    p = R / R before
//! ```
//!
//! with the limit C, what arrived in a second y, the mean wait in the queue q, and the round-trip
//! time d that the senders state. It needs no table of senders, and its memory does not grow with
//! them. R is kept as a multiple of 0.9 eta C / N, the share of each of N sources (`sources.rs`), as
//! in ERICA [Jain, Kalyanaraman, Goyal, Fahmy and Viswanathan 1996]: whoever comes has about what is
//! right after one round trip, and the others make room at once. What differs from RCP, each measured
//! in docs/controllers/explicit-rate.md:
//!
//! - What arrives now was granted a round trip ago. The factor p says what the senders will do
//!   with the grant of meanwhile, so that a relay that fills does not overshoot.
//! - The gain g of the spare capacity is 0.5 as RCP's beyond a tenth of the limit, and half of that
//!   within: there, most of what is measured is chance.
//! - A queue is not emptied but held at a fifth of its longest wait q*, for an empty one wastes the
//!   limit whenever arrivals vary.

use core::hash::Hash;

use anabranch_control::path::Stamp;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use crate::limiter::{LimitModel, Limiter};
use crate::overlay::sources::Sources;

/// Gain of the spare capacity beyond [`NEAR`], and within.
const SPARE_GAIN: f64 = 0.5;
const NEAR_GAIN: f64 = 0.25;

/// A share of the limit.
const NEAR: f64 = 0.1;

/// Gain of the queue. RCP's ratio of the two gains is 2.
const QUEUE_GAIN: f64 = 0.15;

/// The wait that is held, as a share of the longest.
const STANDING_QUEUE: f64 = 0.2;

/// A grant falls to no less than this part of it in an interval.
const MOST_FALL: f64 = 0.25;

/// Shortest and longest interval in seconds. Below the shortest, a turn of a driver's loop would be
/// measured rather than what arrives.
const SHORTEST: f64 = 0.01;
const LONGEST: f64 = 2.0;

/// An interval holds the time of this many full packets at the limit, or a packet more or less would
/// be read as a change of load.
const PACKETS: f64 = 10.0;

/// A full packet for [`PACKETS`], in bytes.
const FULL_PACKET: f64 = 1500.0;

/// Statements of a round-trip time beyond these are taken for these: one that lies can slow the
/// control down or hasten it, but not without bound.
const ROUND_TRIP: (f64, f64) = (0.001, 2.0);

/// The round-trip time as long as nobody has stated one. RFC 8085 3.1.1 would have a second; those
/// who have had an ACK state theirs.
const UNSTATED: f64 = 0.5;

/// A statement counts as at most this many times the smoothed one, and as no less than this part of
/// it: one that lies counts as little more than one that tells the truth.
const WINSOR: f64 = 4.0;

/// Weight of an interval's mean in the smoothed round-trip time.
const SMOOTHING: f64 = 0.5;

/// Of the share of each source, what is granted first: the rest is for ACKs, and for sources that
/// were not counted.
const SURE_SHARE: f64 = 0.9;

/// The least multiple of it that is ever granted: if sources do not hold to their grants, those who
/// do are not to starve for it.
const LEAST_MULTIPLE: f64 = 0.25;

/// The least while neighbours are refused what is beyond their shares: they fill the relay, but those who
/// keep to what is granted are not to make room for them.
const LEAST_WHILE_SHARED: f64 = 1.0 / SURE_SHARE;

/// The part of it that is granted first, and again to those who come after a pause; it doubles in
/// each interval. Not all who come at once are counted at once. Once none has come for a round trip, all are
/// counted, and have their shares: together they can't exceed the limit.
const FIRST: f64 = 0.2;

/// A relay with less load than this share of what it aims at raises its grant towards half of its
/// aim, but doubles it at most: senders that wait for other relays' grants use theirs later, and what
/// was granted meanwhile comes all at once. Fourfold, up to 3 % were lost in the first ten seconds of
/// the thesis's standard scenario.
const UNUSED: f64 = 0.25;
const MOST_GROWTH: f64 = 2.0;

/// By this at most beyond what each source can have if they are alike: senders that are slow to begin would be
/// granted more than there is by the time when they all have begun. Doubled beyond that as well, 3.7 % instead of
/// 1.0 % were refused in the first two minutes with round trips of 1.6 s.
const GROWTH_BEYOND: f64 = 1.1;

/// After a pause of this many intervals, who sends next need not be who sent before.
const PAUSE: f64 = 8.0;

/// No grant is below this, in bytes a second: nobody could ever try the relay again.
const LEAST: f64 = 100.0;

/// The share of the limit at which a relay aims whose queue, or whose bucket, says how far off it is.
const QUEUE_TARGET: f64 = 1.0;

/// The share of the limit at which a relay aims that counts in windows. What it has no room for it
/// refuses, and what arrives varies though it is paced: docs/controllers/explicit-rate.md has what is
/// refused at each share.
const WINDOW_TARGET: f64 = 0.965;

/// The grant of one relay.
#[derive(Clone, Debug)]
pub struct GrantedRate {
    /// eta.
    target: f64,
    /// What each of the sources can have if they are alike, in bytes a second.
    sure: f64,
    /// R as a multiple of `sure`.
    multiple: f64,
    /// Whether R still grows from [`FIRST`].
    is_starting: bool,
    /// No more than its share is granted to each until then: what they do with it is not seen yet.
    settled_at: Time,
    /// R an interval ago: what now arrives was granted then.
    previous: f64,
    /// The smoothed statement of round-trip times in seconds.
    round_trip: f64,
    /// When the interval began.
    begun: Time,
    /// T in nanoseconds.
    interval: u64,
    /// Bytes that have arrived in it.
    arrived: u64,
    /// The sum of the round-trip times that were stated in it, in seconds, and their number.
    stated: (f64, u32),
    /// Whether one was stated before.
    is_stated: bool,
    /// When a packet arrived last.
    last: Time,
    /// The sum of the waits of the packets in the interval in nanoseconds, and their number.
    waited: (u64, u32),
    /// Whether a neighbour has sent more than its share in it.
    is_shared: bool,
    sources: Sources,
}

impl GrantedRate {
    /// The grant of a relay that holds to `limit` by `model`.
    pub fn new(model: LimitModel, limit: Rate) -> GrantedRate {
        let target = match model {
            LimitModel::Queue { .. } | LimitModel::Bucket { .. } => QUEUE_TARGET,
            LimitModel::Window { .. } => WINDOW_TARGET,
        };
        let mut granted = GrantedRate {
            target,
            sure: 0.0,
            multiple: FIRST,
            is_starting: true,
            settled_at: Time::ZERO,
            previous: 0.0,
            round_trip: UNSTATED,
            begun: Time::ZERO,
            interval: 0,
            arrived: 0,
            stated: (0.0, 0),
            is_stated: false,
            last: Time::ZERO,
            waited: (0, 0),
            is_shared: false,
            sources: Sources::default(),
        };
        granted.restart(Time::ZERO, limit.bytes_per_sec());
        granted
    }

    fn restart(&mut self, now: Time, limit: f64) {
        self.count(limit);
        self.multiple = FIRST;
        self.is_starting = true;
        self.previous = self.rate();
        self.begin(now, limit);
    }

    /// Shares the limit among the sources that there are now.
    fn count(&mut self, limit: f64) {
        self.sure = (SURE_SHARE * self.target * limit / self.sources.count()).max(LEAST);
    }

    /// R in bytes a second.
    #[inline]
    fn rate(&self) -> f64 {
        self.multiple * self.sure
    }

    fn begin(&mut self, now: Time, limit: f64) {
        self.begun = now;
        self.arrived = 0;
        self.stated = (0.0, 0);
        self.waited = (0, 0);
        self.is_shared = false;
        self.interval = self.interval_of(limit);
    }

    fn interval_of(&self, limit: f64) -> u64 {
        let seconds = self.round_trip.max(PACKETS * FULL_PACKET / limit).clamp(SHORTEST, LONGEST);
        (seconds * 1e9) as u64
    }

    /// The turn in which something of `source` comes now, if that has not been counted yet.
    #[inline]
    pub fn turn_of_new<A: Hash>(&mut self, now: Time, source: &A, limiter: &Limiter) -> Option<u16> {
        let (turn, begins) = self.sources.turn(now);
        if begins {
            self.count(limiter.limit().bytes_per_sec());
        }
        self.sources.is_new(source).then_some(turn)
    }

    /// A packet of `source`, if that is believed, and of `size` has come to `limiter`, whose sender states
    /// `round_trip`; what is forwarded waits for `wait`.
    #[inline]
    pub fn on_packet<A: Hash>(
        &mut self,
        now: Time,
        source: Option<&A>,
        size: Bytes,
        limiter: &Limiter,
        wait: Duration,
        round_trip: Option<Duration>,
    ) {
        let elapsed = now.since(self.begun).as_nanos();
        if elapsed >= self.interval {
            self.update(now, elapsed, limiter);
        }
        if source.is_some_and(|source| self.sources.note(now, source)) {
            self.count(limiter.limit().bytes_per_sec());
        }
        if self.is_starting && now.since(self.sources.joined()).as_secs_f64() >= self.round_trip {
            (self.is_starting, self.multiple) = (false, self.multiple.max(1.0));
            // It arrives after a round trip, and is counted in the interval after that.
            self.settled_at = now + Duration::from_secs_f64(self.round_trip) + Duration::from_nanos(self.interval) * 2;
        }
        self.last = now;
        self.arrived += size.get();
        self.waited.0 += wait.as_nanos();
        self.waited.1 += 1;
        if let Some(round_trip) = round_trip {
            let (least, most) = match self.is_stated {
                true => (self.round_trip / WINSOR, self.round_trip * WINSOR),
                false => ROUND_TRIP,
            };
            if !self.is_stated && self.stated.1 == 0 {
                // The interval is that of an unknown round trip.
                self.round_trip = round_trip.as_secs_f64().clamp(ROUND_TRIP.0, ROUND_TRIP.1);
                self.interval = self.interval_of(limiter.limit().bytes_per_sec());
            }
            self.stated.0 += round_trip.as_secs_f64().clamp(least, most);
            self.stated.1 += 1;
        }
    }

    /// A packet is beyond the fair share of the neighbour that it comes from, and is refused for that.
    #[inline]
    pub fn on_over_share(&mut self) {
        self.is_shared = true;
    }

    #[inline(never)]
    fn update(&mut self, now: Time, elapsed: u64, limiter: &Limiter) {
        let limit = limiter.limit().bytes_per_sec();
        if now.since(self.last).as_nanos() as f64 > PAUSE * self.interval as f64 {
            return self.restart(now, limit);
        }
        let (sum, count) = self.stated;
        if count > 0 {
            let mean = (sum / f64::from(count)).clamp(ROUND_TRIP.0, ROUND_TRIP.1);
            let weight = if self.is_stated { SMOOTHING } else { 1.0 };
            self.round_trip += weight * (mean - self.round_trip);
            self.is_stated = true;
        }
        let seconds = elapsed as f64 / 1e9;
        let load = self.arrived as f64 / seconds / limit;
        let step = (seconds / self.round_trip).min(1.0);
        let rate = self.rate();
        let spare = self.target - load * rate / self.previous;
        let near = spare.clamp(-NEAR, NEAR);
        let longest = limiter.longest_wait().as_secs_f64();
        let wait = self.waited.0 as f64 / 1e9 / f64::from(self.waited.1.max(1));
        let too_long = (wait - STANDING_QUEUE * longest) / self.round_trip;
        let change = NEAR_GAIN * near + SPARE_GAIN * (spare - near) - QUEUE_GAIN * too_long;
        let grown = if load < UNUSED * self.target {
            let towards_half = self.previous * 0.5 * self.target / load.max(1e-9);
            let most = (MOST_GROWTH * rate).min(self.sure).max(GROWTH_BEYOND * rate);
            towards_half.clamp(rate, most)
        } else {
            rate * (1.0 + step * change).max(MOST_FALL)
        };
        self.previous = rate;
        self.count(limit);
        let multiple = grown.min(self.target * limit) / self.sure;
        self.is_starting &= multiple < 1.0 && load < self.target;
        self.multiple = match self.is_starting {
            true => multiple.clamp(self.multiple, 1.0),
            false if now < self.settled_at => multiple.clamp(self.multiple.min(1.0), 1.0),
            false if self.is_shared => multiple.max(LEAST_WHILE_SHARED),
            false => multiple.max(LEAST_MULTIPLE),
        };
        self.begin(now, limit);
    }

    /// The stamp that says it.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        // Who is alone has its share at once: there is nobody to make room for.
        let is_low = self.is_starting && self.sources.is_one();
        Stamp::granting(if is_low { self.sure.max(self.rate()) } else { self.rate() } as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Admission;

    const PACKET: Bytes = Bytes::new(1500);
    const ROUND_TRIP: f64 = 0.1;

    /// What senders that obey get of a relay of `limit` packets a second: the share of the limit that
    /// passes and the share that is refused, in the second half of `seconds`. Each of `senders(t)`
    /// sends at what was granted a round trip before.
    fn obeyed(model: LimitModel, limit: f64, seconds: f64, senders: impl Fn(f64) -> f64) -> (f64, f64, GrantedRate) {
        let rate = Rate::from_bytes_per_sec_f64(limit * 1500.0);
        let mut limiter = Limiter::new(model, rate);
        let mut granted = GrantedRate::new(model, rate);
        let mut history = std::collections::VecDeque::from([(0.0, 0.0)]);
        let (mut now, mut due, mut passed, mut refused) = (0.0, 0.0, 0.0, 0.0);
        let mut source = 0u32;
        const STEP: f64 = 0.000_5;
        while now < seconds {
            now += STEP;
            while history.len() > 1 && history[1].0 <= now - ROUND_TRIP {
                history.pop_front();
            }
            // A packet a second, until there is a grant.
            due += senders(now) * f64::max(history[0].1 / 1500.0, 1.0) * STEP;
            while due >= 1.0 {
                due -= 1.0;
                source = (source + 1) % senders(now) as u32;
                let at = Time::from_secs_f64(now);
                let wait = limiter.backlog(at);
                let admission = limiter.admit(at, PACKET);
                granted.on_packet(at, Some(&source), PACKET, &limiter, wait, Some(Duration::from_secs_f64(ROUND_TRIP)));
                if now > seconds / 2.0 {
                    match admission {
                        Admission::After(_) => passed += 1.0,
                        Admission::Refused => refused += 1.0,
                    }
                }
            }
            history.push_back((now, granted.stamp().rate().unwrap().bytes_per_sec()));
        }
        (passed / (limit * seconds / 2.0), refused / (passed + refused), granted)
    }

    const QUEUE: LimitModel = LimitModel::Queue { longest: Duration::from_millis(100) };
    const WINDOW: LimitModel = LimitModel::Window { phase: Duration::ZERO };
    const BUCKET: LimitModel = LimitModel::Bucket { depth: Bytes::new(150_000) };

    #[test]
    fn any_number_of_senders_fills_the_relay_and_loses_nothing() {
        for senders in [1.0, 10.0, 100.0] {
            for (model, least) in [(QUEUE, 0.98), (BUCKET, 0.98), (WINDOW, 0.95)] {
                let (share, lost, _) = obeyed(model, 1000.0, 20.0, |_| senders);
                assert!(
                    share > least && share < 1.01 && lost < 0.001,
                    "{senders} over {model:?}: {share}, {lost} lost"
                );
            }
        }
    }

    #[test]
    fn ten_times_as_many_senders_have_a_tenth_of_the_grant_each_soon() {
        let limit = 1000.0;
        let (share, lost, granted) = obeyed(QUEUE, limit, 20.0, |now| if now < 18.0 { 10.0 } else { 100.0 });
        let grant = granted.stamp().rate().unwrap().bytes_per_sec() / 1500.0;
        assert!((0.8..1.25).contains(&(100.0 * grant / limit)), "{grant} packets a second for each of a hundred");
        // A tenfold load is refused for some round trips of the ten seconds.
        assert!(share > 0.95 && lost < 0.2, "{share}, {lost} lost");
    }

    #[test]
    fn a_relay_starts_low_and_each_source_that_joins_lowers_the_grant_at_once() {
        let limiter = Limiter::new(QUEUE, Rate::from_bytes_per_sec(1_500_000));
        let mut granted = GrantedRate::new(QUEUE, limiter.limit());
        for source in 0..10u32 {
            let now = Time::ZERO + Duration::from_millis(u64::from(source));
            granted.on_packet(now, Some(&source), PACKET, &limiter, Duration::ZERO, None);
            let grant = granted.stamp().rate().unwrap().bytes_per_sec();
            // Who is alone has all of its share at once.
            let first = if source == 0 { 1.0 } else { FIRST };
            let expected = first * SURE_SHARE * 1_500_000.0 / f64::from(source + 1);
            assert!((grant / expected - 1.0).abs() < 0.05, "{grant}, not {expected}, with {source} others");
        }
    }

    #[test]
    fn once_nobody_has_come_for_a_round_trip_all_have_their_shares_and_no_more_until_they_use_them() {
        for (model, target) in [(WINDOW, WINDOW_TARGET), (BUCKET, QUEUE_TARGET), (QUEUE, QUEUE_TARGET)] {
            let limiter = Limiter::new(model, Rate::from_bytes_per_sec(1_500_000));
            let mut granted = GrantedRate::new(model, limiter.limit());
            let share = SURE_SHARE * target * 1_500_000.0 / 5.0;
            let at = |millis: u64| Time::ZERO + Duration::from_millis(5_000 + millis);
            // Five sources, a packet every ten milliseconds: next to no load.
            for packet in 0..40u64 {
                let source = (packet % 5) as u32;
                let round_trip = Some(Duration::from_millis(100));
                granted.on_packet(at(10 * packet), Some(&source), PACKET, &limiter, Duration::ZERO, round_trip);
                let part = granted.stamp().rate().unwrap().bytes_per_sec() / share;
                match 10 * packet {
                    // All five are known, and others may come.
                    40..100 => assert!(part < 0.5, "{part} of a share at packet {packet}"),
                    // The last one came 40 ms after the first. What they do with it is seen after a round
                    // trip, in two intervals of as long.
                    150..400 => assert!((0.9..1.1).contains(&part), "{part} of a share at packet {packet}"),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn those_who_obey_do_not_make_room_for_who_is_refused_by_its_share() {
        let limiter = Limiter::new(BUCKET, Rate::from_bytes_per_sec(1_500_000));
        for held in [false, true] {
            let mut granted = GrantedRate::new(BUCKET, limiter.limit());
            // Two sources, one of which sends nine times the limit.
            for packet in 0..100_000u64 {
                let now = Time::from_nanos(packet * 100_000);
                let source = u32::from(packet % 10 == 9);
                granted.on_packet(
                    now,
                    Some(&source),
                    PACKET,
                    &limiter,
                    Duration::ZERO,
                    Some(Duration::from_millis(100)),
                );
                if held && source == 0 {
                    granted.on_over_share();
                }
            }
            let part = granted.rate() / 1_500_000.0;
            let expected = if held { 0.5 } else { SURE_SHARE * LEAST_MULTIPLE / 2.0 };
            assert!((part / expected - 1.0).abs() < 0.05, "{part} of the limit, not {expected}");
        }
    }

    #[test]
    fn a_lie_about_the_round_trip_moves_it_little() {
        let limiter = Limiter::new(QUEUE, Rate::from_bytes_per_sec(1_500_000));
        for lie in [Duration::from_nanos(1_000), Duration::SECOND * 4000] {
            let mut granted = GrantedRate::new(QUEUE, limiter.limit());
            for packet in 0..20_000u64 {
                let now = Time::from_nanos(packet * 1_000_000);
                let stated = if packet % 10 == 9 { lie } else { Duration::from_millis(100) };
                granted.on_packet(now, Some(&0u32), PACKET, &limiter, Duration::ZERO, Some(stated));
            }
            assert!((0.08..0.2).contains(&granted.round_trip), "{} s", granted.round_trip);
        }
    }
}

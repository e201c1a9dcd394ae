//! How long packets wait at each relay: delay tomography.
//!
//! A round trip is taken as a sum of what stays and of what wanders,
//!
//! ```text
//! RTT = c + Σ g_ij + Σ b_k + d      the way: of pairs of nodes next to each other, and of nodes
//!         + Q + Σ q_k               the waits: of all relays together, and of each relay beside
//! e   = RTT - what is expected
//! S   = the sum of all their variances v + R
//! x   <- x + v_x / S e,   v_x <- v_x (1 - v_x / S)       for each x of the sum
//! v_x <- v_x + W_x dt                                    where x wanders
//! R   <- R + γ (e² - S)
//! ```
//!
//! a Kalman filter [Kalman 1960] that keeps of the covariances the variances only, and learns how much
//! round trips scatter from its own errors [Mehra 1970]. c begins as the first round trip; the sender is a node
//! of its first pair. A packet and its ACK both wait at a relay:
//! it delays a packet by w_k = q_k / 2 + Q / (2 h + 1), with h relays and a destination, where the q_k are 0 on average.
//!
//! No round trip tells Q + h z and q_k - z from Q and q_k, for any z. So each q_k counts from their mean, which counts
//! as Q's: else Q and all q_k would wander apart for ever, and w_k with them, most of all over one relay.
//!
//! What stays is distinguished from what wanders by two things: it is learned while relays are idle, at the start,
//! and no wait is less than none. Where w_k is found below zero by more than its deviation, b_k is lowered.
//!
//! Q is there because queues grow together when many begin together: each relay of one sender is seen a
//! few times a second, all of them tens of times.
//!
//! Limits of use: a queue that has never been empty is part of what stays.

use super::{Report, Slot};
use crate::time::{Seconds, Time};

/// The deviation of what a pair or a node adds before its first packet, as a share of a hop's part of
/// the first round trip: distances between points of a square scatter by 0.47 of their mean.
const SCATTER: f32 = 0.47;

/// W: by what share of a round trip a relay's wait, or the mean wait, changes within a round trip. What
/// arrives is off the limit by a per cent or two once rates have settled; at the start, nothing waits at first.
const WANDERS: f32 = 0.02;
const WANDERS_AT_START: f32 = 0.003;
const SHARED_WANDERS: f32 = 0.01;

/// γ: how much round trips scatter is learned from about this many of them.
const NOISE_WEIGHT: f32 = 1.0 / 64.0;

/// An error counts as no more than this many deviations, for jitter has long tails [Huber 1964].
const MOST_DEVIATIONS: f32 = 3.0;

/// The part of a wait below none by which what stays is lowered, with each packet.
const LOWERED: f32 = 0.1;

/// After this many packets the q_k are made 0 on average.
const RECENTRED: u32 = 1 << 16;

/// No round trip counts as longer, or shorter, in seconds.
const LONGEST: f32 = 120.0;
const SHORTEST: f32 = 1e-5;

/// Of this many pairs each has a place of its own; of more, some share one.
const MOST_PAIRS: usize = 1 << 17;

/// An estimate in seconds, and its variance; below zero before the first packet.
#[derive(Clone, Copy, Debug)]
struct Part {
    delay: f32,
    variance: f32,
}

impl Part {
    const UNSEEN: Part = Part { delay: 0.0, variance: -1.0 };

    fn learn(&mut self, error: f32, total: f32) {
        let gain = self.variance / total;
        self.delay += gain * error;
        self.variance *= 1.0 - gain;
    }
}

/// An estimate of what wanders.
#[derive(Clone, Copy, Debug)]
struct Wandering {
    part: Part,
    updated: Time,
}

impl Wandering {
    /// Its variance grows with the time since its last packet, up to `most`.
    fn wander(&mut self, now: Time, variance_per_s: f32, most: f32) {
        let elapsed = now.since(self.updated).as_secs_f64() as f32;
        self.updated = self.updated.max(now);
        self.part.variance = (self.part.variance + variance_per_s * elapsed).min(most);
    }
}

/// A relay.
#[derive(Clone, Copy, Debug)]
struct Relay {
    /// b_k.
    stays: Part,
    /// q_k.
    waits: Wandering,
}

/// Which parts of the sum there are, besides those of each node.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Those of pairs of nodes.
    pub pairs: bool,
    /// What all relays have in common.
    pub shared: bool,
}

/// What is known of all nodes and pairs.
#[derive(Clone, Debug)]
pub struct QueueDelays {
    parts: Parts,
    /// The first round trip, by which others are measured; zero before.
    first: f32,
    /// c.
    common: Part,
    /// A smoothed round trip.
    round_trip: f32,
    /// R.
    noise: f32,
    /// Q.
    shared: Wandering,
    /// Waits in the round trip over the last path: 2 h + 1.
    waits: f32,
    /// The sum of all q_k, and of how many relays it is.
    sum: f32,
    seen: f32,
    /// Packets since that was last made nothing.
    packets: u32,
    relays: Box<[Relay]>,
    destinations: Box<[Part]>,
    pairs: Box<[Part]>,
}

impl QueueDelays {
    /// Nothing is known of `peers` nodes.
    pub fn new(parts: Parts, peers: usize, start: Time) -> QueueDelays {
        let unseen = Wandering { part: Part::UNSEEN, updated: start };
        let pairs = (peers * (peers + 1) / 2).clamp(1, MOST_PAIRS);
        QueueDelays {
            parts,
            first: 0.0,
            common: Part::UNSEEN,
            round_trip: 0.0,
            noise: 0.0,
            shared: Wandering { part: Part { variance: 0.0, ..Part::UNSEEN }, updated: start },
            waits: 1.0,
            sum: 0.0,
            seen: 0.0,
            packets: 0,
            relays: vec![Relay { stays: Part::UNSEEN, waits: unseen }; peers].into(),
            destinations: vec![Part::UNSEEN; peers].into(),
            pairs: vec![Part::UNSEEN; pairs].into(),
        }
    }

    fn pair(&self, a: usize, b: usize) -> usize {
        let (low, high) = if a < b { (a, b) } else { (b, a) };
        (high * high.saturating_sub(1) / 2 + low) % self.pairs.len()
    }

    /// Learns from a packet whose ACK has come; `starts` tells of a relay whether its rate is still that
    /// of a start.
    pub fn learn(&mut self, report: &Report<'_>, starts: impl Fn(Slot) -> bool) {
        let (now, path) = (report.now, report.path);
        let round_trip = (report.round_trip().as_secs_f64() as f32).clamp(SHORTEST, LONGEST);
        let hops = path.len() as f32 + 1.0;
        if self.first == 0.0 {
            (self.first, self.round_trip) = (round_trip, round_trip);
            // It is off the mean as the sum of its pairs is.
            self.common = Part { delay: round_trip, variance: (SCATTER * round_trip).powi(2) / hops };
            self.noise = (SCATTER * round_trip / hops).powi(2);
        }
        // RFC 6298 2.3
        self.round_trip += (round_trip - self.round_trip) / 8.0;
        self.waits = 2.0 * hops - 1.0;
        let unknown = (SCATTER * self.first / hops).powi(2);
        // A random walk, by its variance after a round trip; of what waits `times` in it.
        let first = self.first;
        let walk = |share: f32, times: f32| (times * share * first).powi(2) / first;

        let mut expected = 0.0;
        let mut total = self.noise;
        let mut add = |part: &Part| {
            expected += part.delay;
            total += part.variance;
        };
        add(&self.common);
        if self.parts.shared {
            self.shared.wander(now, walk(SHARED_WANDERS, self.waits), unknown * self.waits * self.waits);
        }
        add(&self.shared.part);
        let mut pairs = [0; super::MAX_RELAYS + 1];
        let pairs = &mut pairs[..if self.parts.pairs { path.len() + 1 } else { 0 }];
        let mut previous = self.relays.len();
        for (pair, slot) in pairs.iter_mut().zip(path.iter().map(|hop| hop.slot).chain([report.destination])) {
            *pair = self.pair(previous, slot.index());
            previous = slot.index();
            let part = &mut self.pairs[*pair];
            if part.variance < 0.0 {
                part.variance = unknown;
            }
            add(part);
        }
        for hop in path {
            let relay = &mut self.relays[hop.slot.index()];
            if relay.stays.variance < 0.0 {
                relay.stays.variance = unknown;
                relay.waits = Wandering { part: Part { delay: 0.0, variance: 0.0 }, updated: now };
                self.seen += 1.0;
            }
            let share = if starts(hop.slot) { WANDERS_AT_START } else { WANDERS };
            relay.waits.wander(now, walk(share, 2.0), unknown);
            add(&relay.stays);
            add(&relay.waits.part);
        }
        let destination = &mut self.destinations[report.destination.index()];
        if destination.variance < 0.0 {
            destination.variance = unknown;
        }
        add(destination);

        let most = MOST_DEVIATIONS * total.sqrt();
        let error = (round_trip - expected).clamp(-most, most);
        let noise = self.noise + NOISE_WEIGHT * (error * error - total);
        self.noise = noise.min(unknown * hops).max(SHORTEST * SHORTEST);
        self.common.learn(error, total);
        self.shared.part.learn(error, total);
        destination.learn(error, total);
        for &mut pair in pairs {
            self.pairs[pair].learn(error, total);
        }
        for hop in path {
            let slot = hop.slot;
            let relay = &mut self.relays[slot.index()];
            relay.stays.learn(error, total);
            let before = relay.waits.part.delay;
            relay.waits.part.learn(error, total);
            self.sum += relay.waits.part.delay - before;
            let below = self.wait(slot) + self.wait_deviation(slot);
            if below < 0.0 {
                self.take_for_staying(slot, LOWERED * below);
            }
        }
        self.packets += 1;
        if self.packets >= RECENTRED {
            self.recentre();
        }
    }

    /// The mean of all q_k: nothing, where no Q is learned beside them.
    fn mean(&self) -> f32 {
        if self.parts.shared && self.seen > 0.0 { self.sum / self.seen } else { 0.0 }
    }

    /// Takes the mean of all q_k into Q, which changes no wait: neither grows beyond what its digits can tell.
    #[cold]
    fn recentre(&mut self) {
        let mean = self.mean();
        self.shared.part.delay += (self.waits - 1.0) / 2.0 * mean;
        let seen = |relay: &&mut Relay| relay.stays.variance >= 0.0;
        self.relays.iter_mut().filter(seen).for_each(|relay| relay.waits.part.delay -= mean);
        self.sum = self.relays.iter().map(|relay| relay.waits.part.delay).sum();
        self.packets = 0;
    }

    /// What all waits have in common, by each.
    fn common_wait(&self) -> f32 {
        (self.shared.part.delay + (self.waits - 1.0) / 2.0 * self.mean()) / self.waits
    }

    /// w_k, which may be below zero.
    fn wait(&self, slot: Slot) -> f32 {
        let relay = &self.relays[slot.index()];
        let beside = if relay.stays.variance < 0.0 { 0.0 } else { relay.waits.part.delay - self.mean() };
        beside / 2.0 + self.common_wait()
    }

    fn take_for_staying(&mut self, slot: Slot, wait: f32) {
        let relay = &mut self.relays[slot.index()];
        relay.stays.delay += 2.0 * wait;
        relay.waits.part.delay -= 2.0 * wait;
        self.sum -= 2.0 * wait;
    }

    /// Takes so much of what packets wait at `slot` for a part of the way.
    pub fn renew(&mut self, slot: Slot, wait: Seconds) {
        self.take_for_staying(slot, wait.0 as f32);
    }

    /// The smoothed round trip over all paths; none before the first.
    pub fn round_trip(&self) -> Option<Seconds> {
        (self.round_trip > 0.0).then_some(seconds(self.round_trip))
    }

    /// How long a packet waits at `slot`.
    pub fn of(&self, slot: Slot) -> Seconds {
        seconds(self.wait(slot).max(0.0))
    }

    /// The standard deviation of [`QueueDelays::of`].
    pub fn deviation(&self, slot: Slot) -> Seconds {
        seconds(self.wait_deviation(slot))
    }

    fn wait_deviation(&self, slot: Slot) -> f32 {
        let own = self.relays[slot.index()].waits.part.variance.max(0.0) / 4.0;
        (own + self.shared.part.variance / (self.waits * self.waits)).sqrt()
    }

    /// How long a packet waits at a relay on average, and the standard deviation of that.
    pub fn shared(&self) -> (Seconds, Seconds) {
        (seconds(self.common_wait()), seconds(self.shared.part.variance.sqrt() / self.waits))
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.relays) + size_of_val(&*self.destinations) + size_of_val(&*self.pairs)
    }
}

/// A span that is held in single precision here.
fn seconds(span: f32) -> Seconds {
    Seconds(f64::from(span))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Hop, Outcome};
    use crate::rng::Rng;
    use crate::rtt::{PairRtts, RttConfig};
    use crate::time::Duration;

    const PEERS: usize = 12;
    const ALL: Parts = Parts { pairs: true, shared: true };

    /// What is found of ten relays in the second after `from`, and its deviation, where packets over two of them
    /// to the last peer wait at each, and once at that peer, the tenth, as `waits` says at their time; ways between two
    /// nodes take 20 to 80 ms.
    fn found(parts: Parts, seed: u64, from: f64, waits: impl Fn(usize, f64) -> f64) -> Vec<(f64, f64)> {
        let mut queues = QueueDelays::new(parts, PEERS, Time::ZERO);
        let mut rng = Rng::stream(seed, "queues");
        let rtts = PairRtts::new(&RttConfig::default(), PEERS);
        let mut ways = [[0.0; PEERS + 1]; PEERS + 1];
        for (a, b) in (0..=PEERS).flat_map(|a| (0..a).map(move |b| (a, b))) {
            ways[a][b] = 0.02 + 0.06 * rng.uniform();
            ways[b][a] = ways[a][b];
        }
        let mut sums = vec![(0.0, 0.0); 10];
        for packet in 0..6_000 {
            let sent = f64::from(packet) / 100.0;
            let first = rng.below(10);
            let nodes = [PEERS, first, (first + 1 + rng.below(9)) % 10, PEERS - 1];
            let mut round_trip = 0.0;
            for pair in nodes.windows(2) {
                round_trip += 2.0 * ways[pair[0]][pair[1]] * (1.0 + 0.1 * rng.normal());
            }
            round_trip += nodes[1..3].iter().map(|&relay| 2.0 * waits(relay, sent)).sum::<f64>() + waits(10, sent);
            let path = [nodes[1], nodes[2]].map(|node| Hop { slot: Slot(node as u16), ..Hop::default() });
            let sent_at = Time::from_secs_f64(sent);
            let now = sent_at + Duration::from_secs_f64(round_trip);
            let base = Report::of(Outcome::Acked, &path, &rtts);
            queues.learn(&Report { now, sent_at, destination: Slot(PEERS as u16 - 1), ..base }, |_| sent < 4.0);
            if (from..from + 1.0).contains(&sent) {
                for (relay, sum) in sums.iter_mut().enumerate() {
                    sum.0 += queues.of(Slot(relay as u16)).0 / 100.0;
                    sum.1 += queues.deviation(Slot(relay as u16)).0 / 100.0;
                }
            }
        }
        sums
    }

    fn rms(errors: impl Iterator<Item = f64>) -> f64 {
        let squares: Vec<f64> = errors.map(|error| error * error).collect();
        (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
    }

    #[test]
    fn each_relays_queue_is_found_to_some_milliseconds() {
        let truth = |node: usize, now: f64| ((now - 4.0).max(0.0) * 0.01).min(0.008 * (node % 10) as f64);
        let all = (1..=5).flat_map(|seed| found(ALL, seed, 50.0, truth).into_iter().enumerate());
        let error = rms(all.map(|(relay, (found, _))| found - 0.008 * relay as f64));
        // Of 36 ms on average, and between ways that scatter by 17.
        assert!(error < 0.012, "{error}");
    }

    #[test]
    fn queues_that_fill_together_are_found_sooner_by_what_they_share() {
        let truth = |_: usize, now: f64| if now < 4.0 { 0.0 } else { ((now - 4.0) * 0.2).min(0.1) };
        let mean = |parts| found(parts, 1, 4.5, truth).iter().map(|(found, _)| found / 10.0).sum::<f64>();
        let (together, each) = (mean(ALL), mean(Parts { shared: false, ..ALL }));
        assert!((together - 0.1).abs() < 0.025, "{together}");
        assert!(each < together - 0.01, "{each} without, {together} with what they share");
    }

    #[test]
    fn a_queue_that_has_been_seen_empty_is_none_of_the_way() {
        // A queue from the beginning counts as the way, until then.
        let standing = |relay: usize, now: f64| if relay == 3 && !(20.0..25.0).contains(&now) { 0.05 } else { 0.0 };
        let [before, after] = [15.0, 50.0].map(|from| found(ALL, 2, from, standing)[3].0);
        assert!(before < 0.025 && (after - 0.05).abs() < 0.02, "{before}, then {after}");
    }

    /// Which it did over one relay most of all: by a tenth of a second in a thousand.
    #[test]
    fn where_nothing_waits_no_wait_grows_in_time() {
        for (seed, hops) in [(1, 1), (3, 2), (4, 3)] {
            let mut queues = QueueDelays::new(ALL, PEERS, Time::ZERO);
            let mut rng = Rng::stream(seed, "idle");
            let rtts = PairRtts::new(&RttConfig::default(), PEERS);
            for packet in 0..200_000 {
                let sent_at = Time::from_secs_f64(f64::from(packet) / 200.0);
                let mut nodes: Vec<usize> = Vec::new();
                while nodes.len() <= hops {
                    let node = rng.below(PEERS);
                    if !nodes.contains(&node) {
                        nodes.push(node);
                    }
                }
                let way = |node: usize| 0.04 + 0.004 * node as f64;
                let ways = nodes.iter().map(|&node| way(node) * (2.0 + 0.14 * rng.normal()));
                let now = sent_at + Duration::from_secs_f64(ways.sum());
                let path: Vec<Hop> =
                    nodes[..hops].iter().map(|&node| Hop { slot: Slot(node as u16), ..Hop::default() }).collect();
                let (destination, base) = (Slot(nodes[hops] as u16), Report::of(Outcome::Acked, &path, &rtts));
                queues.learn(&Report { now, sent_at, destination, ..base }, |_| packet < 800);
            }
            let mean = (0..PEERS).map(|node| queues.of(Slot(node as u16)).0).sum::<f64>() / PEERS as f64;
            assert!(mean < 0.02, "seed {seed}, {hops} relays: {mean}");
        }
    }

    #[test]
    fn pairs_beyond_the_table_share_places() {
        let queues = QueueDelays::new(ALL, 2_000, Time::ZERO);
        assert_eq!(queues.pairs.len(), MOST_PAIRS);
        assert_eq!(queues.pair(1_999, 2_000), queues.pair(2_000, 1_999));
        assert!(queues.pair(1_999, 2_000) < MOST_PAIRS && queues.heap_bytes() < 3 << 20);
    }
}

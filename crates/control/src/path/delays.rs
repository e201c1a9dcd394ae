//! How much each relay delays what passes it: delay tomography.
//!
//! A round trip is taken as a sum of what all paths have in common and what each node adds,
//!
//! ```text
//! RTT = c + Σ a_j                              over the relays of the path and its destination
//! e   = RTT - c - Σ a_j
//! g_k = v_k / (v_c + Σ v_j + R)
//! a_k <- a_k + g_k e,   v_k <- v_k (1 - g_k) + Q,   and c likewise
//! ```
//!
//! a Kalman filter [Kalman 1960] that keeps of the covariances the variances v only: what a packet took
//! longer than expected is put down to those of its nodes of which least is known. The a_k are known
//! up to a constant that c takes; the least of them is taken for no delay. A node relays and receives
//! as two.
//!
//! Who delays on purpose is told from where packets wait by time: queues empty now and then. So what counts is the
//! least that a relay has added beyond what half of the relays do.

use super::{Report, Slot};
use crate::filter::median;
use crate::time::{Duration, Time};

/// The variance of a node of which nothing is known: a second squared.
const UNKNOWN: f32 = 1.0;

/// Q: by what a variance grows with each of a node's packets, in seconds squared. A delay may wander by
/// 20 ms from packet to packet.
const WANDERS: f32 = 0.02 * 0.02;

/// R: the variance of a round trip around the sum, in seconds squared: that of a path whose nodes are
/// in a plane, and of the queues on it, is about a tenth of a second squared.
const AROUND: f32 = 0.1 * 0.1;

/// Weight of an error in its mean. RFC 6298 has a quarter for one sample a round trip.
const DEVIATION_WEIGHT: f32 = 1.0 / 16.0;

/// Mean deviations that a timeout adds to what is expected: RFC 6298's K.
const DEVIATIONS: f32 = 4.0;

/// No round trip counts as longer, in seconds: a sender gives up far sooner.
const LONGEST: f32 = 120.0;

/// A relay's delay is looked at once its variance is less: a deviation of 0.1 s.
const KNOWN: f32 = 0.1 * 0.1;

/// In place of an option, which would take as much again.
const UNSEEN: f32 = f32::NEG_INFINITY;

/// In about this many seconds the least that a relay has added is forgotten: queues of some seconds fill and empty
/// in half a minute.
const FORGOTTEN: f32 = 60.0;

/// A relay is out of line that adds this much more than half of the relays do, in seconds, and so many times as much
/// as half of them add beyond the quickest. Between nodes 1.6 s of a round trip apart, the farthest add half a second
/// more than half do, and twice as much; a queue of half a second 0.4 s, and then six times as much.
const FAR: f32 = 0.5;
const TIMES: f32 = 4.0;

/// A delay in seconds, and its variance.
#[derive(Clone, Copy, Debug)]
struct Added {
    delay: f32,
    variance: f32,
}

impl Added {
    fn learn(&mut self, error_per_variance: f32, variance: f32) {
        self.delay += self.variance * error_per_variance;
        self.variance = self.variance * (1.0 - self.variance / variance) + WANDERS;
    }
}

/// What each node adds.
#[derive(Clone, Debug)]
pub struct Delays {
    common: Added,
    /// Each as a relay, then each as a destination.
    added: Box<[Added]>,
    /// The least that each relay has lately added beyond what half of them do, in seconds; [`UNSEEN`] before it is
    /// known.
    least: Box<[f32]>,
    /// When that was looked at last.
    reviewed: Time,
    /// The mean of |e| in seconds; negative before the first.
    deviation: f32,
}

impl Delays {
    /// Nothing is known of `peers` nodes.
    pub fn new(peers: usize, start: Time) -> Delays {
        let unknown = Added { delay: 0.0, variance: UNKNOWN };
        // The first round trip is what all have in common, as far as can be known.
        Delays {
            common: Added { delay: -1.0, ..unknown },
            added: vec![unknown; 2 * peers].into(),
            least: vec![UNSEEN; peers].into(),
            reviewed: start,
            deviation: -1.0,
        }
    }

    /// Learns from a packet whose ACK has come.
    pub fn learn(&mut self, report: &Report<'_>) {
        let destination = self.as_destination(report.destination);
        let nodes = report.path.iter().map(|hop| hop.slot.index()).chain([destination]);
        let round_trip = (report.round_trip().as_secs_f64() as f32).min(LONGEST);
        if self.common.delay < 0.0 {
            self.common.delay = round_trip;
        }
        let (mut expected, mut variance) = (self.common.delay, self.common.variance + AROUND);
        for node in nodes.clone() {
            let added = self.added[node];
            expected += added.delay;
            variance += added.variance;
        }
        let error = round_trip - expected;
        self.deviation = match self.deviation < 0.0 {
            // RFC 6298 2.2.
            true => round_trip / 2.0,
            false => self.deviation + DEVIATION_WEIGHT * (error.abs() - self.deviation),
        };
        let error_per_variance = error / variance;
        self.common.learn(error_per_variance, variance);
        self.common.delay = self.common.delay.max(0.0);
        for node in nodes {
            self.added[node].learn(error_per_variance, variance);
        }
    }

    fn as_destination(&self, slot: Slot) -> usize {
        self.added.len() / 2 + slot.index()
    }

    /// After so long the ACK of a packet over `path` to `destination` is late, as in RFC 6298; none before the
    /// first round trip.
    pub fn timeout(&self, path: &[Slot], destination: Slot) -> Option<Duration> {
        if self.deviation < 0.0 {
            return None;
        }
        let nodes = path.iter().map(|slot| slot.index()).chain([self.as_destination(destination)]);
        let (mut expected, mut variance) = (self.common.delay, self.common.variance);
        for node in nodes {
            expected += self.added[node].delay;
            variance += self.added[node].variance;
        }
        // The last term says how well the sum is known: a node of which nothing is known adds a second.
        let timeout = expected.max(0.0) + DEVIATIONS * self.deviation + libm::sqrtf(variance);
        Some(Duration::from_secs_f64(f64::from(timeout)))
    }

    /// By how much `slot` delays a packet that it passes on and its ACK together, more than the quickest
    /// relay.
    pub fn of(&self, slot: Slot) -> Duration {
        Duration::from_secs_f64(f64::from((self.added[slot.index()].delay - self.of_quickest()).max(0.0)))
    }

    fn relays(&self) -> &[Added] {
        &self.added[..self.least.len()]
    }

    fn of_quickest(&self) -> f32 {
        self.relays().iter().map(|added| added.delay).fold(f32::INFINITY, f32::min)
    }

    /// What half of the relays add at most.
    fn usual(&self) -> f32 {
        median(self.relays().iter().map(|added| f64::from(added.delay)).collect()).unwrap_or(0.0) as f32
    }

    /// Looks again at what each relay adds beyond what half of them do.
    pub fn review(&mut self, now: Time) {
        let usual = self.usual();
        let forgotten = (now.since(self.reviewed).as_secs_f64() as f32 / FORGOTTEN).min(1.0);
        self.reviewed = self.reviewed.max(now);
        for (added, least) in self.added.iter().zip(&mut self.least).filter(|(added, _)| added.variance < KNOWN) {
            let beyond = added.delay - usual;
            *least = if *least == UNSEEN { beyond } else { beyond.min(*least + (beyond - *least) * forgotten) };
        }
    }

    /// Whether `slot` delays what passes it far more than half of the relays do, and has done so for long.
    pub fn is_out_of_line(&self, slot: Slot) -> bool {
        let usual = || self.usual() - self.of_quickest();
        let least = self.least[slot.index()];
        least > FAR && least > TIMES * usual()
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.added) + size_of_val(&*self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Hop, Outcome};
    use crate::rng::Rng;
    use crate::rtt::{PairRtts, RttConfig};

    /// What is learned over two of nine relays in each packet, ten packets a second.
    struct Network {
        delays: Delays,
        rng: Rng,
    }

    impl Network {
        fn new() -> Network {
            Network { delays: Delays::new(10, Time::ZERO), rng: Rng::stream(1, "delays") }
        }

        /// From one second to another, over relays that add this many milliseconds to a round trip of 200, give or
        /// take 50.
        fn run(&mut self, from: u64, to: u64, adds: impl Fn(f64, usize) -> f64) {
            let rtts = PairRtts::new(&RttConfig::default(), 10);
            for packet in 10 * from..10 * to {
                let first = self.rng.below(9);
                let path = [first, (first + 1 + self.rng.below(8)) % 9];
                let added: f64 = path.iter().map(|&relay| adds(packet as f64 / 10.0, relay)).sum();
                let round_trip = 200.0 + 100.0 * (self.rng.uniform() - 0.5) + added;
                let sent_at = Time::from_nanos(100_000_000 * packet);
                let now = sent_at + Duration::from_secs_f64(round_trip / 1e3);
                let path = path.map(|slot| Hop { slot: Slot(slot as u16), ..Hop::default() });
                let base = Report::of(Outcome::Acked, &path, &rtts);
                self.delays.learn(&Report { now, sent_at, destination: Slot(9), ..base });
                if packet % 10 == 9 {
                    self.delays.review(now);
                }
            }
        }

        fn out_of_line(&self) -> Vec<u16> {
            (0..9).filter(|&slot| self.delays.is_out_of_line(Slot(slot))).collect()
        }
    }

    #[test]
    fn who_delays_on_purpose_is_out_of_line_within_ten_seconds_and_who_is_far_is_not() {
        // The farthest adds 400 ms, and others 50 to 350.
        let far = |_: f64, relay: usize| 50.0 * relay as f64;
        let mut network = Network::new();
        network.run(0, 60, far);
        assert_eq!(network.out_of_line(), [0; 0]);
        let mut network = Network::new();
        network.run(0, 10, |now, relay| far(now, relay) + if relay == 4 { 2000.0 } else { 0.0 });
        assert_eq!(network.out_of_line(), [4]);
        // It no longer delays.
        network.run(10, 20, far);
        assert_eq!(network.out_of_line(), [0; 0]);
    }

    #[test]
    fn where_packets_wait_now_and_then_is_not_out_of_line() {
        let mut network = Network::new();
        // Two queues that fill to 1.5 s and empty, each in half a minute, and are empty at first.
        let waits = |now: f64| (-1500.0 * libm::sin(now / 30.0 * core::f64::consts::TAU)).max(0.0);
        for second in 0..120 {
            network.run(second, second + 1, |now, relay| if relay < 2 { 2.0 * waits(now) } else { 0.0 });
            assert_eq!(network.out_of_line(), [0; 0], "after {second} s");
        }
    }

    #[test]
    fn a_relay_that_delays_stands_out() {
        let mut network = Network::new();
        network.run(0, 60, |_, relay| if relay == 4 { 500.0 } else { 0.0 });
        let delays = network.delays;
        let found: Vec<f64> = (0..9).map(|slot| delays.of(Slot(slot)).as_millis_f64()).collect();
        assert!((400.0..650.0).contains(&found[4]), "{found:?}");
        assert!(found.iter().enumerate().all(|(slot, &delay)| slot == 4 || delay < 150.0), "{found:?}");
        // 25 ms is the mean deviation, and some more by the errors of the estimates.
        let timeout = |path: [u16; 2]| delays.timeout(&path.map(Slot), Slot(9)).expect("measured").as_millis_f64();
        assert!((260.0..500.0).contains(&timeout([1, 2])), "{}", timeout([1, 2]));
        assert!((700.0..1000.0).contains(&timeout([1, 4])), "{}", timeout([1, 4]));
    }
}

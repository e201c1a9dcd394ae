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

use super::{Report, Slot};
use crate::time::Duration;

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
    /// The mean of |e| in seconds; negative before the first.
    deviation: f32,
}

impl Delays {
    /// Nothing is known of `peers` nodes.
    pub fn new(peers: usize) -> Delays {
        let unknown = Added { delay: 0.0, variance: UNKNOWN };
        // The first round trip is what all have in common, as far as can be known.
        Delays { common: Added { delay: -1.0, ..unknown }, added: vec![unknown; 2 * peers].into(), deviation: -1.0 }
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
        let least = self.added[..self.added.len() / 2].iter().map(|added| added.delay).fold(f32::INFINITY, f32::min);
        Duration::from_secs_f64(f64::from((self.added[slot.index()].delay - least).max(0.0)))
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Hop, Outcome};
    use crate::rng::Rng;
    use crate::rtt::{PairRtts, RttConfig};
    use crate::time::Time;

    #[test]
    fn a_relay_that_delays_stands_out() {
        let mut delays = Delays::new(10);
        let mut rng = Rng::stream(1, "delays");
        let rtts = PairRtts::new(&RttConfig::default(), 10);
        for _ in 0..600 {
            let first = rng.below(9);
            let path =
                [first, (first + 1 + rng.below(8)) % 9].map(|slot| Hop { slot: Slot(slot as u16), ..Hop::default() });
            // 200 ms whatever the path, give or take 50, and 500 more over relay 4.
            let slow = path.iter().any(|hop| hop.slot == Slot(4));
            let round_trip = 200.0 + 100.0 * (rng.uniform() - 0.5) + if slow { 500.0 } else { 0.0 };
            let now = Time::ZERO + Duration::from_secs_f64(round_trip / 1e3);
            delays.learn(&Report { now, destination: Slot(9), ..Report::of(Outcome::Acked, &path, &rtts) });
        }
        let found: Vec<f64> = (0..9).map(|slot| delays.of(Slot(slot)).as_millis_f64()).collect();
        assert!((400.0..650.0).contains(&found[4]), "{found:?}");
        assert!(found.iter().enumerate().all(|(slot, &delay)| slot == 4 || delay < 150.0), "{found:?}");
        // 25 ms is the mean deviation, and some more by the errors of the estimates.
        let timeout = |path: [u16; 2]| delays.timeout(&path.map(Slot), Slot(9)).expect("measured").as_millis_f64();
        assert!((260.0..500.0).contains(&timeout([1, 2])), "{}", timeout([1, 2]));
        assert!((700.0..1000.0).contains(&timeout([1, 4])), "{}", timeout([1, 4]));
    }
}

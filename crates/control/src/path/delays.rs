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
}

impl Delays {
    /// Nothing is known of `peers` nodes.
    pub fn new(peers: usize) -> Delays {
        let unknown = Added { delay: 0.0, variance: UNKNOWN };
        // The first round trip is what all have in common, as far as can be known.
        Delays { common: Added { delay: -1.0, ..unknown }, added: vec![unknown; 2 * peers].into() }
    }

    /// Learns from a packet whose ACK has come.
    pub fn learn(&mut self, report: &Report<'_>) {
        let destination = self.added.len() / 2 + report.destination.index();
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
        let error_per_variance = (round_trip - expected) / variance;
        self.common.learn(error_per_variance, variance);
        self.common.delay = self.common.delay.max(0.0);
        for node in nodes {
            self.added[node].learn(error_per_variance, variance);
        }
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
    }
}

//! How much each relay delays what passes it: delay tomography.
//!
//! A round trip is taken as a sum of what all paths have in common and what each node adds,
//!
//! ```text
//! RTT = c + Σ a_j                        over the relays of the path and its destination
//! e   = RTT - c - Σ a_j
//! a_k <- a_k + μ e / (n + 1),  c <- c + μ e / (n + 1)
//! ```
//!
//! which is the normalised LMS rule [Widrow and Hoff 1960] for n nodes. The a_k are known up to a
//! constant that c takes; the least of them is taken for no delay.

use super::{Report, Slot};
use crate::time::Duration;

/// μ: a node's estimate forgets within some tens of its packets.
const STEP: f32 = 0.3;

/// No round trip counts as longer, in seconds: a sender gives up far sooner.
const LONGEST: f32 = 120.0;

/// What each node adds, in seconds.
#[derive(Clone, Debug)]
pub struct Delays {
    common: f32,
    added: Box<[f32]>,
}

impl Delays {
    /// Nothing is known of `peers` nodes.
    pub fn new(peers: usize) -> Delays {
        Delays { common: 0.0, added: vec![0.0; peers].into() }
    }

    /// Learns from a packet whose ACK has come.
    pub fn learn(&mut self, report: &Report<'_>) {
        let nodes = report.path.iter().map(|hop| hop.slot).chain([report.destination]);
        let round_trip = (report.round_trip().as_secs_f64() as f32).min(LONGEST);
        if self.common == 0.0 {
            self.common = round_trip;
        }
        let expected = self.common + nodes.clone().map(|slot| self.added[slot.index()]).sum::<f32>();
        let step = STEP * (round_trip - expected) / (report.path.len() + 2) as f32;
        self.common += step;
        for slot in nodes {
            self.added[slot.index()] += step;
        }
    }

    /// By how much `slot` delays a packet and its ACK together, more than the quickest node.
    pub fn of(&self, slot: Slot) -> Duration {
        let least = self.added.iter().copied().fold(f32::INFINITY, f32::min);
        Duration::from_secs_f64(f64::from((self.added[slot.index()] - least).max(0.0)))
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

//! Round-trip times between pairs of peers, learned from round trips over several.
//!
//! A packet over h relays and its ACK cross h + 1 links twice, and only the whole
//! round trip R is seen. Each link is credited with l = R / (h + 1), and its pair
//! of peers keeps a smoothed mean and a mean deviation of what it was credited
//! with; the ACK of a packet is late once the sum of its pairs' means and α
//! deviations has passed. [Raiber 2010] 4.2.1.

use serde::Deserialize;

use crate::path::slot::Slot;
use crate::time::Duration;

/// Parameters of the estimate. [Raiber 2010] table 7.1.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RttConfig {
    /// Weight γ of a new sample in mean and deviation (4.3, 4.4), in (0, 1].
    pub gain: f64,
    /// Deviations α that the timeout adds to the mean (4.5).
    pub deviations: f64,
}

impl Default for RttConfig {
    fn default() -> RttConfig {
        // 4.2.1 names 0.1 and 4 as usual; 7.1.4 confirms 4 and allows γ up to 0.15.
        RttConfig { gain: 0.1, deviations: 4.0 }
    }
}

/// What a pair without a sample adds to a timeout: RFC 6298 2.1's first timeout.
const UNSAMPLED: Duration = Duration::SECOND;

/// No timeout is longer: RFC 6298 2.5 allows a maximum of 60 s or more.
const LONGEST_TIMEOUT: Duration = Duration::from_millis(60_000);

/// Mean and deviation of one pair in nanoseconds; a mean of 0 is "no sample yet".
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    mean: f32,
    deviation: f32,
}

/// The estimates of one sender for every pair among itself and the peers it knows.
#[derive(Clone, Debug)]
pub struct PairRtts {
    gain: f32,
    deviations: f32,
    /// A triangle: the pair {a, b} with a < b stands at b (b - 1) / 2 + a.
    pairs: Box<[Estimate]>,
    /// Where the sender itself stands in the triangle: behind the peers.
    own: usize,
}

impl PairRtts {
    /// No samples, for a sender that knows `peers` peers.
    pub fn new(config: &RttConfig, peers: usize) -> PairRtts {
        PairRtts {
            gain: config.gain as f32,
            deviations: config.deviations as f32,
            pairs: vec![Estimate::default(); (peers + 1) * peers / 2].into_boxed_slice(),
            own: peers,
        }
    }

    /// When the ACK of a packet over `route` (relays, then destination) is late:
    /// `T = Σ (L + α V)` over the pairs on the way (4.6).
    #[inline]
    pub fn timeout(&self, route: &[Slot]) -> Duration {
        let mut total = 0.0;
        self.for_each_pair(route, |pair| {
            let Estimate { mean, deviation } = self.pairs[pair];
            total += if mean == 0.0 { UNSAMPLED.as_nanos() as f32 } else { mean + self.deviations * deviation };
        });
        Duration::from_nanos(total as u64).min(LONGEST_TIMEOUT)
    }

    /// Learns from the ACK of a packet over `route` (relays, then destination)
    /// that came after `rtt`.
    #[inline]
    pub fn sample(&mut self, route: &[Slot], rtt: Duration) {
        let gain = self.gain;
        // l = R / (h + 1) (figure 4.1); at least 1 ns, for 0 says "no sample".
        let sample = (rtt.as_nanos() as f32 / route.len() as f32).max(1.0);
        let mut previous = self.own;
        for &slot in route {
            let next = slot.index();
            let estimate = &mut self.pairs[pair_index(previous, next)];
            if estimate.mean == 0.0 {
                // RFC 6298 2.2: a first deviation of half the sample, where 4.4 from 0 would be rash.
                *estimate = Estimate { mean: sample, deviation: sample / 2.0 };
            } else {
                let error = sample - estimate.mean;
                // V = V + γ (|l − L| − V) (4.4), with the mean from before this sample.
                estimate.deviation += gain * (error.abs() - estimate.deviation);
                // L = L + γ (l − L) (4.3)
                estimate.mean += gain * error;
            }
            previous = next;
        }
    }

    /// The smoothed round-trip time L to `peer` over the direct link, if it was sampled.
    #[inline]
    pub fn mean_to(&self, peer: Slot) -> Option<Duration> {
        let mean = self.pairs[pair_index(self.own, peer.index())].mean;
        (mean > 0.0).then(|| Duration::from_nanos(mean as u64))
    }

    /// Memory in bytes, this struct included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<PairRtts>() + size_of_val(&*self.pairs)
    }

    #[inline]
    fn for_each_pair(&self, route: &[Slot], mut visit: impl FnMut(usize)) {
        let mut previous = self.own;
        for &slot in route {
            let next = slot.index();
            visit(pair_index(previous, next));
            previous = next;
        }
    }
}

#[inline]
fn pair_index(a: usize, b: usize) -> usize {
    debug_assert_ne!(a, b, "a path never visits a peer twice in a row");
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    high * (high - 1) / 2 + low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(slots: &[u16]) -> Vec<Slot> {
        slots.iter().map(|&slot| Slot(slot)).collect()
    }

    #[test]
    fn a_route_of_constant_delay_times_out_at_its_round_trip_once_learned() {
        let mut rtts = PairRtts::new(&RttConfig::default(), 5);
        let path = route(&[0, 3, 1, 4]);
        let rtt = Duration::from_millis(400);
        for _ in 0..200 {
            rtts.sample(&path, rtt);
        }
        let timeout = rtts.timeout(&path);
        assert!(timeout >= Duration::from_millis(399) && timeout < Duration::from_millis(401), "{timeout}");
        assert_eq!(rtts.mean_to(Slot(0)), Some(Duration::from_millis(100)));
        assert_eq!(rtts.mean_to(Slot(3)), None);
    }

    #[test]
    fn the_timeout_adds_alpha_deviations_to_the_mean() {
        let config = RttConfig { gain: 0.5, deviations: 4.0 };
        let mut rtts = PairRtts::new(&config, 1);
        let path = route(&[0]);
        rtts.sample(&path, Duration::from_millis(100)); // L = 100, V = 50
        assert_eq!(rtts.timeout(&path), Duration::from_millis(300));
        rtts.sample(&path, Duration::from_millis(140)); // V = 50 + (40 − 50) / 2 = 45, L = 120
        assert_eq!(rtts.timeout(&path), Duration::from_millis(120 + 4 * 45));
    }

    #[test]
    fn pairs_are_symmetric_and_unsampled_ones_wait_a_second_each() {
        let mut rtts = PairRtts::new(&RttConfig::default(), 4);
        assert_eq!(rtts.timeout(&route(&[0, 1, 2, 3])), Duration::SECOND * 4);
        rtts.sample(&route(&[0, 1]), Duration::from_millis(20));
        rtts.sample(&route(&[1]), Duration::from_millis(10));
        assert_eq!(rtts.timeout(&route(&[1, 0])), rtts.timeout(&route(&[0, 1])));
    }
}

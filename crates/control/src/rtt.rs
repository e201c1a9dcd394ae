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
    /// Whether estimates are rounded to 16 bits each, which halves their memory. A step is then
    /// at most 1/2048 of a value, and an estimate rests within half a step over γ of what it
    /// would be: 0.25 % where γ is 0.1.
    pub compact: bool,
}

impl Default for RttConfig {
    fn default() -> RttConfig {
        // 4.2.1 names 0.1 and 4 as usual; 7.1.4 confirms 4 and allows γ up to 0.15.
        RttConfig { gain: 0.1, deviations: 4.0, compact: false }
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

impl Estimate {
    /// After this packet's ACK is late: L + α V, as long as there is a sample.
    #[inline]
    fn late_after(self, deviations: f32) -> f32 {
        if self.mean == 0.0 { UNSAMPLED.as_nanos() as f32 } else { self.mean + deviations * self.deviation }
    }

    #[inline]
    fn learn(&mut self, sample: f32, gain: f32) {
        if self.mean == 0.0 {
            // RFC 6298 2.2: a first deviation of half the sample, where 4.4 from 0 would be rash.
            *self = Estimate { mean: sample, deviation: sample / 2.0 };
            return;
        }
        let error = sample - self.mean;
        // V = V + γ (|l − L| − V) (4.4), with the mean from before this sample.
        self.deviation += gain * (error.abs() - self.deviation);
        // L = L + γ (l − L) (4.3)
        self.mean += gain * error;
    }
}

/// A positive number of nanoseconds in 16 bits, five of exponent and eleven of mantissa: from 64 ns
/// to 274 s. 0 is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rounded(u16);

impl Rounded {
    /// The bits of a mantissa that binary32 has beyond ours.
    const DROPPED: u32 = 12;
    /// The upper bits of the binary32 of 64 ns, which begins our range.
    const BIAS: u32 = (127 + 6) << (23 - Rounded::DROPPED);

    /// The nearest number that can be said, at least `least`.
    #[inline]
    fn nearest(value: f32, least: Rounded) -> Rounded {
        let upper = (value.to_bits() + (1 << (Rounded::DROPPED - 1))) >> Rounded::DROPPED;
        let code = upper.saturating_sub(Rounded::BIAS).clamp(u32::from(least.0), u32::from(u16::MAX));
        Rounded(code as u16)
    }

    #[inline]
    fn value(self) -> f32 {
        if self.0 == 0 { 0.0 } else { f32::from_bits((u32::from(self.0) + Rounded::BIAS) << Rounded::DROPPED) }
    }
}

/// An entry for each pair.
#[derive(Clone, Debug)]
enum Estimates {
    Exact(Box<[Estimate]>),
    /// Mean and deviation.
    Compact(Box<[[Rounded; 2]]>),
    /// An entry for each relay, in place of the pairs.
    PerRelay(Box<[Estimate]>),
}

impl Estimates {
    #[inline]
    fn get(&self, pair: usize) -> Estimate {
        match self {
            Estimates::Exact(all) | Estimates::PerRelay(all) => all[pair],
            Estimates::Compact(all) => rounded(all[pair]),
        }
    }

    fn forget(&mut self, pair: usize) {
        match self {
            Estimates::Exact(all) | Estimates::PerRelay(all) => all[pair] = Estimate::default(),
            Estimates::Compact(all) => all[pair] = round(Estimate::default()),
        }
    }
}

#[inline]
fn rounded(entry: [Rounded; 2]) -> Estimate {
    let [mean, deviation] = entry.map(Rounded::value);
    Estimate { mean, deviation }
}

#[inline]
fn round(Estimate { mean, deviation }: Estimate) -> [Rounded; 2] {
    // A mean of 0 would say "no sample yet".
    let least = Rounded(u16::from(mean > 0.0));
    [Rounded::nearest(mean, least), Rounded::nearest(deviation, Rounded(0))]
}

/// The estimates of one sender for every pair among itself and the peers it knows.
#[derive(Clone, Debug)]
pub struct PairRtts {
    gain: f32,
    deviations: f32,
    /// A triangle: the pair {a, b} with a < b stands at b (b - 1) / 2 + a.
    pairs: Estimates,
    /// Where the sender itself stands in the triangle: behind the peers.
    own: u16,
}

impl PairRtts {
    /// No samples, for a sender that knows `peers` peers.
    pub fn new(config: &RttConfig, peers: usize) -> PairRtts {
        let pairs = (peers + 1) * peers / 2;
        PairRtts {
            gain: config.gain as f32,
            deviations: config.deviations as f32,
            pairs: match config.compact {
                true => Estimates::Compact(vec![Default::default(); pairs].into()),
                false => Estimates::Exact(vec![Estimate::default(); pairs].into()),
            },
            own: u16::try_from(peers).expect("a sender knows fewer peers than slots have numbers"),
        }
    }

    /// The same with one estimate for each peer, the part of a round trip that its nodes each account
    /// for, in place of one for each pair: for senders that know this many peers that no pair is sampled
    /// twice. What is between two peers is then not known.
    pub fn per_relay(config: &RttConfig, peers: usize) -> PairRtts {
        PairRtts {
            gain: config.gain as f32,
            deviations: config.deviations as f32,
            pairs: Estimates::PerRelay(vec![Estimate::default(); peers].into()),
            own: u16::try_from(peers).expect("a sender knows fewer peers than slots have numbers"),
        }
    }

    /// When the ACK of a packet over `route` (relays, then destination) is late:
    /// `T = Σ (L + α V)` over the pairs on the way (4.6).
    #[inline(always)]
    pub fn timeout(&self, route: &[Slot]) -> Duration {
        let (mut total, own, deviations) = (0.0, self.own, self.deviations);
        match &self.pairs {
            Estimates::Exact(all) => for_each_pair(own, route, |pair| total += all[pair].late_after(deviations)),
            Estimates::Compact(all) => {
                for_each_pair(own, route, |pair| total += rounded(all[pair]).late_after(deviations));
            }
            Estimates::PerRelay(all) => {
                route.iter().for_each(|slot| total += all[slot.index()].late_after(deviations));
            }
        }
        // Never negative, and far below 2^63: a signed conversion is the cheaper one.
        Duration::from_nanos(total as i64 as u64).min(LONGEST_TIMEOUT)
    }

    /// Learns from the ACK of a packet over `route` (relays, then destination)
    /// that came after `rtt`.
    #[inline(always)]
    pub fn sample(&mut self, route: &[Slot], rtt: Duration) {
        // l = R / (h + 1) (figure 4.1); at least 1 ns, for 0 says "no sample".
        let sample = (rtt.as_nanos() as i64 as f32 / route.len() as f32).max(1.0);
        // Through memory: `cvtsi2ss` leaves in a register's upper lanes what was there before, and mean and
        // deviation are computed in lanes of one. Where a subnormal number was left, each takes an x86
        // processor about 100 cycles more, a third of what a packet costs in an overlay of 20 peers.
        let sample = core::hint::black_box(sample);
        let (own, gain) = (self.own, self.gain);
        match &mut self.pairs {
            Estimates::Exact(all) => for_each_pair(own, route, |pair| all[pair].learn(sample, gain)),
            Estimates::Compact(all) => for_each_pair(own, route, |pair| {
                let mut estimate = rounded(all[pair]);
                estimate.learn(sample, gain);
                all[pair] = round(estimate);
            }),
            Estimates::PerRelay(all) => route.iter().for_each(|slot| all[slot.index()].learn(sample, gain)),
        }
    }

    /// The smoothed round-trip time L to `peer` over the direct link, if it was sampled.
    #[inline]
    pub fn mean_to(&self, peer: Slot) -> Option<Duration> {
        let mean = self.pairs.get(self.place(usize::from(self.own), peer.index())).mean;
        (mean > 0.0).then(|| Duration::from_nanos(mean as u64))
    }

    /// The smoothed L between two peers, if that pair was sampled.
    #[inline]
    pub fn mean_between(&self, one: Slot, other: Slot) -> Option<Duration> {
        if let Estimates::PerRelay(_) = self.pairs {
            return None;
        }
        let mean = self.pairs.get(pair_index(one.index(), other.index())).mean;
        (mean > 0.0).then(|| Duration::from_nanos(mean as u64))
    }

    /// Nothing is known any more of the pairs of `peer`: its slot is another's now.
    pub fn forget(&mut self, peer: Slot) {
        if let Estimates::PerRelay(_) = self.pairs {
            return self.pairs.forget(peer.index());
        }
        for other in (0..=usize::from(self.own)).filter(|&other| other != peer.index()) {
            self.pairs.forget(pair_index(peer.index(), other));
        }
    }

    /// How many peers there can be.
    pub fn peers(&self) -> usize {
        usize::from(self.own)
    }

    /// Memory in bytes, this struct included.
    pub fn memory_bytes(&self) -> usize {
        let heap = match &self.pairs {
            Estimates::Exact(all) | Estimates::PerRelay(all) => size_of_val(&**all),
            Estimates::Compact(all) => size_of_val(&**all),
        };
        size_of::<PairRtts>() + heap
    }

    /// The same for a sender that knows `peers` peers, before it is there.
    pub fn bytes(config: &RttConfig, peers: usize) -> usize {
        let entry = if config.compact { size_of::<[Rounded; 2]>() } else { size_of::<Estimate>() };
        size_of::<PairRtts>() + (peers + 1) * peers / 2 * entry
    }

    /// Where the estimate for the way from `previous` to `next` stands.
    #[inline]
    fn place(&self, previous: usize, next: usize) -> usize {
        match self.pairs {
            Estimates::PerRelay(_) => next,
            _ => pair_index(previous, next),
        }
    }
}

/// Visits the pairs on the way from a sender, who stands at `own`, over `route`.
#[inline]
fn for_each_pair(own: u16, route: &[Slot], mut visit: impl FnMut(usize)) {
    let mut previous = usize::from(own);
    for &slot in route {
        let next = slot.index();
        visit(pair_index(previous, next));
        previous = next;
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
    use proptest::prelude::*;

    use super::*;
    use crate::rng::Rng;

    /// A relay's own part is learned wherever on a path it stands.
    #[test]
    fn per_relay_each_node_of_a_route_learns_its_part() {
        let mut rtts = PairRtts::per_relay(&RttConfig::default(), 1000);
        assert_eq!(rtts.timeout(&[Slot(7), Slot(999)]), Duration::from_millis(2_000));
        rtts.sample(&[Slot(3), Slot(7), Slot(999)], Duration::from_millis(90));
        assert_eq!(rtts.mean_to(Slot(7)), Some(Duration::from_millis(30)));
        assert_eq!((rtts.mean_to(Slot(8)), rtts.mean_between(Slot(3), Slot(7))), (None, None));
        // 30 ms each, and four deviations of half of it.
        assert_eq!(rtts.timeout(&[Slot(7), Slot(999)]), Duration::from_millis(180));
        assert!(rtts.memory_bytes() < 16_000);
        rtts.forget(Slot(7));
        assert_eq!(rtts.mean_to(Slot(7)), None);
    }

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
        let config = RttConfig { gain: 0.5, ..RttConfig::default() };
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

    #[test]
    fn a_slot_that_is_anothers_now_is_forgotten_and_no_other() {
        for compact in [false, true] {
            let mut rtts = PairRtts::new(&RttConfig { compact, ..RttConfig::default() }, 5);
            rtts.sample(&route(&[0, 3, 1]), Duration::from_millis(300));
            assert_eq!(rtts.mean_between(Slot(1), Slot(3)).map(|l| l.as_nanos() / 1_000_000), Some(100));
            rtts.sample(&route(&[0, 4]), Duration::from_millis(200));
            rtts.forget(Slot(3));
            assert_eq!((rtts.mean_between(Slot(0), Slot(3)), rtts.mean_between(Slot(1), Slot(3))), (None, None));
            assert!(rtts.mean_between(Slot(0), Slot(4)).is_some() && rtts.mean_to(Slot(0)).is_some());
        }
    }

    #[test]
    fn compact_estimates_are_near_the_exact_ones_in_half_of_their_memory() {
        let exact = RttConfig::default();
        let mut both = [exact, RttConfig { compact: true, ..exact }].map(|config| PairRtts::new(&config, 6));
        assert_eq!(both[1].memory_bytes() - size_of::<PairRtts>(), 21 * 4);
        assert!(
            both.iter()
                .zip([false, true])
                .all(|(rtts, compact)| { PairRtts::bytes(&RttConfig { compact, ..exact }, 6) == rtts.memory_bytes() })
        );
        assert_eq!(both[0].memory_bytes() - size_of::<PairRtts>(), 21 * 8);
        let mut rng = Rng::stream(1, "samples");
        for round in 0..20_000 {
            let first = rng.below(5);
            let path = route(&[first as u16, ((first + 1 + rng.below(4)) % 5) as u16, 5]);
            let rtt = Duration::from_secs_f64((0.2 + 0.05 * rng.normal()).max(0.0));
            both.iter_mut().for_each(|rtts| rtts.sample(&path, rtt));
            let [exact, compact] = [&both[0], &both[1]].map(|rtts| rtts.timeout(&path).as_secs_f64());
            assert!((compact / exact - 1.0).abs() < 0.01, "round {round}: {compact} s instead of {exact} s");
        }
    }

    #[test]
    fn a_pair_of_no_delay_is_sampled_all_the_same() {
        let mut rtts = PairRtts::new(&RttConfig { compact: true, ..RttConfig::default() }, 1);
        let path = route(&[0]);
        for _ in 0..100 {
            rtts.sample(&path, Duration::ZERO);
        }
        assert!(rtts.mean_to(Slot(0)).is_some() && rtts.timeout(&path) < Duration::from_nanos(1_000));
    }

    proptest! {
        #[test]
        fn a_rounded_number_is_the_nearest_within_a_step(value in 65.0f32..2e11) {
            let rounded = Rounded::nearest(value, Rounded(0)).value();
            prop_assert!((rounded / value - 1.0).abs() <= 1.0 / 4096.0, "{value} becomes {rounded}");
        }

        #[test]
        fn what_is_beyond_the_range_is_its_end(value in 2.8e11f32..3e38) {
            prop_assert_eq!(Rounded::nearest(value, Rounded(0)), Rounded(u16::MAX));
        }
    }
}

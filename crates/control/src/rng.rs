//! Named streams of random numbers.
//!
//! A stream is a key, made from a seed and a name, and a counter. The n-th number
//! is a mix of both (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom
//! number generators", 2014), so that a new stream shifts no other stream and two
//! runs with one seed draw the same numbers on any machine.

use core::convert::Infallible;

use rand_core::TryRng;
use rand_distr::{Distribution, Exp1, StandardNormal};

/// The odd increment of SplitMix64: 2^64 over the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    key: u64,
    counter: u64,
}

impl Rng {
    /// The stream `name` of the run that was started with `seed`.
    pub fn stream(seed: u64, name: &str) -> Rng {
        let mut key = mix(seed.wrapping_add(GAMMA));
        for byte in name.bytes() {
            key = mix((key ^ u64::from(byte)).wrapping_add(GAMMA));
        }
        Rng { key, counter: 0 }
    }

    /// The stream of member `index` of a family, e.g. one for each peer.
    pub fn indexed(seed: u64, name: &str, index: u64) -> Rng {
        let family = Rng::stream(seed, name);
        Rng { key: mix(family.key ^ mix(index.wrapping_add(GAMMA))), counter: 0 }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(GAMMA);
        mix(self.key.wrapping_add(self.counter))
    }

    /// The bits of this stream that belong to `number`, however many were drawn before: what need not
    /// be stored, since it can be made again. They are no draw, and none is equal to one but by chance.
    #[inline]
    pub fn numbered(&self, number: u64) -> u64 {
        mix(!self.key ^ mix(number.wrapping_add(GAMMA)))
    }

    /// Draw `number` of a stream beside this one: the same for half of the work.
    #[inline]
    pub fn beside(&self, number: u64) -> u64 {
        mix((!self.key).wrapping_add(number.wrapping_mul(GAMMA)))
    }

    /// Uniform in [0, 1), with 53 random bits.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// Uniform in 0..n, for n > 0. The bias of the plain multiplication is below n / 2^64.
    #[inline]
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Normal with mean 0 and standard deviation 1.
    #[inline]
    pub fn normal(&mut self) -> f64 {
        StandardNormal.sample(self)
    }

    /// Exponential with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        Exp1.sample(self)
    }
}

impl TryRng for Rng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.bits() >> 32) as u32)
    }

    #[inline]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.bits())
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Infallible> {
        for chunk in dst.chunks_mut(8) {
            let bytes = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        Ok(())
    }
}

/// The finaliser of SplitMix64: every input bit reaches every output bit.
#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seed_and_name_give_equal_numbers_and_others_differ() {
        let draw = |mut rng: Rng| -> Vec<u64> { (0..8).map(|_| rng.bits()).collect() };
        assert_eq!(draw(Rng::stream(1, "loss")), draw(Rng::stream(1, "loss")));
        assert_ne!(draw(Rng::stream(1, "loss")), draw(Rng::stream(2, "loss")));
        assert_ne!(draw(Rng::stream(1, "loss")), draw(Rng::stream(1, "jitter")));
        assert_ne!(draw(Rng::indexed(1, "peer", 0)), draw(Rng::indexed(1, "peer", 1)));
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        const DRAWS: usize = 200_000;
        let moments = |mut draw: Box<dyn FnMut() -> f64>| {
            let values: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
            let mean = values.iter().sum::<f64>() / DRAWS as f64;
            let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / DRAWS as f64;
            (mean, variance)
        };
        let mut rng = Rng::stream(7, "uniform");
        let (mean, variance) = moments(Box::new(move || rng.uniform()));
        assert!((mean - 0.5).abs() < 0.005 && (variance - 1.0 / 12.0).abs() < 0.002, "{mean} {variance}");
        let mut rng = Rng::stream(7, "normal");
        let (mean, variance) = moments(Box::new(move || rng.normal()));
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
        let mut rng = Rng::stream(7, "exponential");
        let (mean, variance) = moments(Box::new(move || rng.exponential()));
        assert!((mean - 1.0).abs() < 0.01 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
    }

    #[test]
    fn bits_of_a_number_are_those_of_the_stream_whatever_was_drawn() {
        let (fresh, mut used) = (Rng::stream(1, "numbers"), Rng::stream(1, "numbers"));
        let drawn: Vec<u64> = (0..100).map(|_| used.bits()).collect();
        let mut all: std::collections::BTreeSet<u64> = drawn.into_iter().collect();
        for of in [Rng::numbered, Rng::beside] {
            let numbered: Vec<u64> = (0..100).map(|number| of(&used, number)).collect();
            assert_eq!(numbered, (0..100).map(|number| of(&fresh, number)).collect::<Vec<_>>());
            all.extend(numbered);
            assert_ne!(of(&fresh, 1), of(&Rng::stream(2, "numbers"), 1));
        }
        assert_eq!(all.len(), 300);
    }

    #[test]
    fn below_is_even_over_its_range() {
        let mut rng = Rng::stream(3, "below");
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7)] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
    }
}

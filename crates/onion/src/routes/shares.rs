//! Shares of relays, within bounds, and draws by them.

use anabranch_control::rng::Rng;

use crate::RelayIndex;

/// Steps in which the multiplier is found, at most: each halves at least what is left, so that 50 leave nothing that a
/// 53-bit number would show.
const STEPS: usize = 50;

/// So near to 1 the sum of shares is the sum, as far as thousands of them can be added up.
const NEAR: f64 = 1e-12;

/// A relay that shares are to be computed of.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Which.
    pub relay: RelayIndex,
    /// Its advertised weight.
    pub weight: f64,
    /// The rate that it is believed to carry, if anything is.
    pub rate: Option<f64>,
    /// The least part of its share by weight that it gets.
    pub floor: f64,
}

/// What each relay's share is.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// By place in the document; 0 of those that are not drawn.
    of: Vec<f64>,
    relays: Vec<RelayIndex>,
    /// Sums of the shares up to and with each of `relays`.
    sums: Vec<f64>,
}

impl Shares {
    /// Of the `relays` of a document of `places`. Shares are in proportion to rates, at least each relay's floor and at
    /// most `cap` times what they would be by weight. Where no rate is believed, it is the one of the typical relay
    /// of that weight; where none is at all, shares go by weight.
    pub fn new(places: usize, relays: &[Candidate], cap: f64) -> Shares {
        let total: f64 = relays.iter().map(|of| of.weight).sum();
        let base: Vec<f64> = relays.iter().map(|of| of.weight / total).collect();
        let mut per_weight: Vec<f64> = relays.iter().filter_map(|of| Some(of.rate? / of.weight)).collect();
        per_weight.sort_unstable_by(f64::total_cmp);
        let shares = match per_weight.get(per_weight.len() / 2) {
            None => base,
            Some(typical) => {
                let rates: Vec<f64> = relays.iter().map(|of| of.rate.unwrap_or(typical * of.weight)).collect();
                let floors: Vec<f64> = relays.iter().zip(&base).map(|(of, base)| of.floor * base).collect();
                bounded(&rates, &base, &floors, cap)
            }
        };
        let mut of = vec![0.0; places];
        let mut sum = 0.0;
        let mut sums = Vec::with_capacity(relays.len());
        for (candidate, share) in relays.iter().zip(shares) {
            of[usize::from(candidate.relay.0)] = share;
            sum += share;
            sums.push(sum);
        }
        Shares { of, relays: relays.iter().map(|of| of.relay).collect(), sums }
    }

    /// A relay's share.
    pub fn of(&self, relay: RelayIndex) -> f64 {
        self.of.get(usize::from(relay.0)).copied().unwrap_or(0.0)
    }

    /// One relay by the shares; none if there is none.
    pub fn draw(&self, rng: &mut Rng) -> Option<RelayIndex> {
        let target = rng.uniform() * self.sums.last()?;
        let place = self.sums.partition_point(|sum| *sum <= target);
        Some(self.relays[place.min(self.relays.len() - 1)])
    }

    /// One of those that `allows`; none if there is none.
    pub fn draw_of(&self, allows: impl Fn(RelayIndex) -> bool, rng: &mut Rng) -> Option<RelayIndex> {
        let allowed: Vec<RelayIndex> = self.relays.iter().copied().filter(|relay| allows(*relay)).collect();
        let mut left = rng.uniform() * allowed.iter().map(|relay| self.of(*relay)).sum::<f64>();
        let drawn = allowed.iter().find(|relay| {
            left -= self.of(**relay);
            left < 0.0
        });
        drawn.or(allowed.last()).copied()
    }
}

/// q_i = min(cap b_i, max(floor_i, λ r_i)) with Σ q = 1. The sum is linear in λ between the values at which a share meets
/// one of its bounds: Newton's method finds λ after a few steps, and where a step would leave what it must lie
/// between, that is halved.
fn bounded(rates: &[f64], base: &[f64], floors: &[f64], cap: f64) -> Vec<f64> {
    let share = |lambda: f64, i: usize| (lambda * rates[i]).clamp(floors[i], cap * base[i]);
    // Σ q, and by how much it grows with λ.
    let sum = |lambda: f64| {
        (0..rates.len()).fold((0.0, 0.0), |(sum, slope), i| {
            let share = share(lambda, i);
            (sum + share, if share == lambda * rates[i] { slope + rates[i] } else { slope })
        })
    };
    // Where every share is at its cap, they add up to the cap, which is above 1.
    let (mut low, mut high) = (0.0, 1.0 / rates.iter().sum::<f64>());
    while sum(high).0 < 1.0 {
        low = high;
        high *= 2.0;
        if !high.is_finite() {
            return base.to_vec();
        }
    }
    let mut lambda = high;
    for _ in 0..STEPS {
        let (sum, slope) = sum(lambda);
        if sum < 1.0 {
            low = lambda
        } else {
            high = lambda
        }
        if (sum - 1.0).abs() < NEAR {
            break;
        }
        let next = lambda + (1.0 - sum) / slope;
        lambda = if low < next && next < high { next } else { 0.5 * (low + high) };
    }
    (0..rates.len()).map(|i| share(lambda, i)).collect()
}

#[cfg(test)]
mod tests {
    use anabranch_control::rng::Rng;
    use proptest::prelude::*;

    use super::*;

    fn relays(of: &[(f64, Option<f64>)]) -> Vec<Candidate> {
        let candidate = |(i, (weight, rate)): (usize, &(f64, Option<f64>))| Candidate {
            relay: RelayIndex(i as u16),
            weight: *weight,
            rate: *rate,
            floor: 0.1,
        };
        of.iter().enumerate().map(candidate).collect()
    }

    #[test]
    fn without_rates_shares_go_by_weight_and_unknown_relays_are_typical() {
        let shares = Shares::new(2, &relays(&[(1.0, None), (3.0, None)]), 2.0);
        assert_eq!((shares.of(RelayIndex(0)), shares.of(RelayIndex(1))), (0.25, 0.75));
        let some = Shares::new(3, &relays(&[(1.0, Some(10.0)), (1.0, None), (2.0, Some(20.0))]), 2.0);
        assert!((some.of(RelayIndex(1)) - 0.25).abs() < 1e-9 && (some.of(RelayIndex(2)) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn draws_follow_shares() {
        let shares = Shares::new(3, &relays(&[(1.0, None), (2.0, None), (5.0, None)]), 2.0);
        let mut rng = Rng::stream(1, "shares");
        let mut counts = [0; 3];
        (0..80_000).for_each(|_| counts[usize::from(shares.draw(&mut rng).unwrap().0)] += 1);
        assert!(
            counts.iter().zip([10_000, 20_000, 50_000]).all(|(c, e): (&i32, i32)| (c - e).abs() < 600),
            "{counts:?}"
        );
        let others: Vec<u16> = (0..100).map(|_| shares.draw_of(|relay| relay.0 != 2, &mut rng).unwrap().0).collect();
        assert!(others.contains(&0) && others.contains(&1) && !others.contains(&2));
        assert_eq!(shares.draw_of(|_| false, &mut rng), None);
        assert_eq!(Shares::default().draw(&mut rng), None);
    }

    proptest! {
        #[test]
        fn shares_add_up_and_keep_their_bounds(of in prop::collection::vec((1.0f64..1e9, prop::option::of(1.0f64..1e12)), 1..60)) {
            let shares = Shares::new(of.len(), &relays(&of), 2.0);
            let total: f64 = of.iter().map(|(weight, _)| weight).sum();
            let sum: f64 = (0..of.len()).map(|i| shares.of(RelayIndex(i as u16))).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{}", sum);
            for (i, (weight, _)) in of.iter().enumerate() {
                let relative = shares.of(RelayIndex(i as u16)) / (weight / total);
                prop_assert!((0.1 - 1e-9..=2.0 + 1e-9).contains(&relative), "{}", relative);
            }
        }
    }
}

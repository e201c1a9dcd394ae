//! What each of several hosts gets of a link: weighted max-min fair shares (Bertsekas and Gallager, Data Networks,
//! 6.5.2), with what each keeps in any case and what it takes at most.

use anabranch_control::units::Rate;

/// One that wants a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// How many parts: its flows, or 1.
    pub weight: u32,
    /// What it keeps in any case.
    pub least: Rate,
    /// What it takes at most.
    pub most: Rate,
}

impl Claim {
    fn at(&self, level: u64) -> u64 {
        let (least, most) = (self.least.bits_per_sec(), self.most.bits_per_sec());
        level.saturating_mul(u64::from(self.weight)).min(most).max(least)
    }
}

/// The rate of one part, such that all claims together take `capacity` or what they want: the highest such rate,
/// in whole bits a second.
pub fn level(capacity: Rate, claims: &[Claim]) -> Rate {
    let capacity = u128::from(capacity.bits_per_sec());
    let total = |level: u64| claims.iter().map(|claim| u128::from(claim.at(level))).sum::<u128>();
    let (mut low, mut high) = (0, u64::try_from(capacity).unwrap_or(u64::MAX));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if total(middle) <= capacity {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Rate::from_bits_per_sec(low)
}

/// The rate of each claim. Where not even what all keep in any case fits, each gets as large a part of that.
pub fn divide(capacity: Rate, claims: &[Claim]) -> Vec<Rate> {
    let kept: u128 = claims.iter().map(|claim| u128::from(claim.least.bits_per_sec())).sum();
    let room = u128::from(capacity.bits_per_sec());
    if kept > room {
        let part = |claim: &Claim| (u128::from(claim.least.bits_per_sec()) * room / kept) as u64;
        return claims.iter().map(|claim| Rate::from_bits_per_sec(part(claim))).collect();
    }
    let level = level(capacity, claims).bits_per_sec();
    claims.iter().map(|claim| Rate::from_bits_per_sec(claim.at(level))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MBIT: fn(u64) -> Rate = |megabits| Rate::from_bits_per_sec(megabits * 1_000_000);

    fn claim(weight: u32, least: u64, most: u64) -> Claim {
        Claim { weight, least: MBIT(least), most: MBIT(most) }
    }

    #[test]
    fn what_one_does_not_take_the_others_share_by_weight() {
        let claims = [claim(1, 0, 10), claim(1, 0, 1000), claim(2, 0, 1000)];
        assert_eq!(divide(MBIT(100), &claims), [MBIT(10), MBIT(30), MBIT(60)]);
    }

    #[test]
    fn what_is_kept_is_kept_until_there_is_not_enough_for_that() {
        let claims = [claim(1, 60, 1000), claim(1, 0, 1000), claim(0, 20, 1000)];
        assert_eq!(divide(MBIT(100), &claims), [MBIT(60), MBIT(20), MBIT(20)]);
        assert_eq!(divide(MBIT(40), &claims), [MBIT(30), MBIT(0), MBIT(10)]);
    }

    #[test]
    fn nobody_gets_more_than_it_takes() {
        assert_eq!(divide(MBIT(100), &[claim(3, 0, 10), claim(1, 0, 20)]), [MBIT(10), MBIT(20)]);
        assert_eq!(divide(MBIT(100), &[]), []);
    }

    proptest! {
        #[test]
        fn shares_fit_and_nobody_can_get_more_without_another_of_no_larger_part_getting_less(
            capacity in 0u64..1_000_000,
            claims in prop::collection::vec((0u32..50, 0u64..50_000, 0u64..100_000), 0..12),
        ) {
            let rate = Rate::from_bits_per_sec;
            let claims: Vec<Claim> = claims
                .into_iter()
                .map(|(weight, least, more)| Claim { weight, least: rate(least), most: rate(least + more) })
                .collect();
            let shares = divide(rate(capacity), &claims);
            let total: u64 = shares.iter().map(|share| share.bits_per_sec()).sum();
            prop_assert!(total <= capacity);
            let kept: u64 = claims.iter().map(|claim| claim.least.bits_per_sec()).sum();
            if kept > capacity {
                return Ok(());
            }
            // What is left over is less than one bit a second for each part that could take it.
            let open: u64 = claims
                .iter()
                .zip(&shares)
                .filter(|(claim, share)| **share < claim.most)
                .map(|(claim, _)| u64::from(claim.weight))
                .sum();
            prop_assert!(open == 0 || capacity - total < open, "{total} of {capacity}");
            // Whoever is neither at its least nor at its most has its weight's part of the same level.
            let level = level(rate(capacity), &claims).bits_per_sec();
            for (claim, share) in claims.iter().zip(&shares) {
                let is_bound = *share == claim.least || *share == claim.most;
                prop_assert!(is_bound || share.bits_per_sec() == level * u64::from(claim.weight));
            }
        }
    }
}

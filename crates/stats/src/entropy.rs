//! How evenly something is spread, as who tries to guess it sees it.
//!
//! ```text
//! H = −Σ p_i log₂ p_i,   p_i = w_i / Σ w        ([Serjantov and Danezis 2002], section 3)
//! d = H / log₂ N                                 ([Díaz et al. 2002], section 3)
//! ```
//!
//! 2^H is how many equally likely ones would be as hard to guess.

/// A distribution's entropy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entropy {
    /// H, in bits.
    pub bits: f64,
    /// d, from 0 to 1; none where there is but one to choose from.
    pub degree: Option<f64>,
}

impl Entropy {
    /// Of `weights`, none negative; those of 0 count among the N that might have been. None if all are 0.
    pub fn of(weights: &[f64]) -> Option<Entropy> {
        let total: f64 = weights.iter().sum();
        if total.is_nan() || total <= 0.0 {
            return None;
        }
        let part = |weight: &f64| {
            let p = weight / total;
            if p > 0.0 { -p * libm::log2(p) } else { 0.0 }
        };
        // One that is certain has a part of −0.
        let bits = weights.iter().map(part).sum::<f64>().max(0.0);
        let degree = (weights.len() > 1).then(|| (bits / libm::log2(weights.len() as f64)).min(1.0));
        Some(Entropy { bits, degree })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_are_hardest_to_guess_and_a_certain_one_is_known() {
        assert_eq!(Entropy::of(&[3.0; 8]), Some(Entropy { bits: 3.0, degree: Some(1.0) }));
        assert_eq!(Entropy::of(&[0.0, 5.0]), Some(Entropy { bits: 0.0, degree: Some(0.0) }));
        assert_eq!(Entropy::of(&[5.0]), Some(Entropy { bits: 0.0, degree: None }));
        let uneven = Entropy::of(&[2.0, 1.0, 1.0, 0.0]).expect("some weigh something");
        assert_eq!((uneven.bits, uneven.degree), (1.5, Some(0.75)));
    }

    #[test]
    fn of_nothing_there_is_none() {
        assert_eq!(Entropy::of(&[]), None);
        assert_eq!(Entropy::of(&[0.0, 0.0]), None);
        assert_eq!(Entropy::of(&[f64::NAN]), None);
    }
}

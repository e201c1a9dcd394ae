//! How alike a sender's and a destination's traffic are, and what follows for each pair.
//!
//! ```text
//! r = Σ (x − x̄)(y − ȳ) / √(Σ (x − x̄)² Σ (y − ȳ)²)        over bins
//! ```
//!
//! A pair of which one side was not seen has no score: nothing is linked by that. Beside others it counts as one without
//! correlation, for what speaks against another pair does not speak against one of which nothing is known.

use super::adversary::{Adversary, Series};

/// Scores of all pairs: a row for each sender, a column for each destination.
pub struct Scores {
    pub count: usize,
    /// `f64::NEG_INFINITY` for pairs of which one side was not seen.
    pub of: Vec<f64>,
}

/// A series with mean 0 and square sum 1; zeros where it does not vary.
fn normalized(counts: &[u32]) -> Vec<f64> {
    let mean = counts.iter().map(|count| f64::from(*count)).sum::<f64>() / counts.len() as f64;
    let centred: Vec<f64> = counts.iter().map(|count| f64::from(*count) - mean).collect();
    let norm = libm::sqrt(centred.iter().map(|value| value * value).sum::<f64>());
    centred.iter().map(|value| if norm > 0.0 { value / norm } else { 0.0 }).collect()
}

impl Scores {
    /// Correlations over the first `bins` of what the adversary has seen of `count` pairs.
    pub fn correlations(adversary: &Adversary, count: usize, bins: usize) -> Scores {
        let prepare = |series: &Series| -> Vec<Option<Vec<f64>>> {
            let of = |party: usize| {
                let counts = series.get(&(party as u32))?.get(..bins)?;
                // Who was not seen in these bins was not seen.
                counts.iter().any(|count| *count > 0).then(|| normalized(counts))
            };
            (0..count).map(of).collect()
        };
        let (entered, left) = (prepare(&adversary.entered), prepare(&adversary.left));
        let mut of = vec![f64::NEG_INFINITY; count * count];
        for (sender, x) in entered.iter().enumerate() {
            let Some(x) = x else { continue };
            for (destination, y) in left.iter().enumerate() {
                let Some(y) = y else { continue };
                of[sender * count + destination] = x.iter().zip(y).map(|(x, y)| x * y).sum();
            }
        }
        Scores { count, of }
    }

    pub fn get(&self, sender: usize, destination: usize) -> f64 {
        self.of[sender * self.count + destination]
    }

    /// The score above which no more than `share` of the pairs that `is_true` denies lie.
    pub fn threshold(&self, truth: &[u32], share: f64) -> f64 {
        let mut wrong: Vec<f64> = self.pairs(truth).filter(|(_, is_true)| !is_true).map(|(score, _)| score).collect();
        let allowed = (share * wrong.len() as f64) as usize;
        wrong.sort_unstable_by(|a, b| b.total_cmp(a));
        wrong.get(allowed).copied().unwrap_or(f64::NEG_INFINITY)
    }

    /// Every pair's score, and whether it is one that is true.
    pub fn pairs<'a>(&'a self, truth: &'a [u32]) -> impl Iterator<Item = (f64, bool)> + 'a {
        let count = self.count;
        self.of.iter().enumerate().map(move |(place, score)| (*score, truth[place / count] as usize == place % count))
    }

    /// The place of the true sender among all that could be a destination's, from 1; of equals, the
    /// middle one.
    pub fn rank(&self, sender: usize, destination: usize) -> f64 {
        let own = beside_others(self.get(sender, destination));
        let (mut above, mut equal) = (0u32, 0u32);
        for other in (0..self.count).filter(|other| *other != sender) {
            let score = beside_others(self.get(other, destination));
            above += u32::from(score > own);
            equal += u32::from(score == own);
        }
        1.0 + f64::from(above) + f64::from(equal) / 2.0
    }
}

/// A pair's score among those of others.
fn beside_others(score: f64) -> f64 {
    if score.is_finite() { score } else { 0.0 }
}

/// The probability that a true one scores above a wrong one, equals counting half: the area under the
/// receiver's operating characteristic.
pub fn auc(scored: impl Iterator<Item = (f64, bool)>) -> f64 {
    let mut scored: Vec<(f64, bool)> = scored.map(|(score, is_true)| (beside_others(score), is_true)).collect();
    scored.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut wrong_below, mut sum, mut trues) = (0.0, 0.0, 0.0);
    let mut start = 0;
    while start < scored.len() {
        let score = scored[start].0;
        let length = scored[start..].iter().take_while(|(other, _)| *other == score).count();
        let true_here = scored[start..start + length].iter().filter(|(_, is_true)| *is_true).count() as f64;
        let wrong_here = length as f64 - true_here;
        sum += true_here * (wrong_below + wrong_here / 2.0);
        wrong_below += wrong_here;
        trues += true_here;
        start += length;
    }
    if trues == 0.0 || wrong_below == 0.0 { 0.5 } else { sum / (trues * wrong_below) }
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::Duration;

    use super::*;

    fn adversary(entered: &[(u32, &[u32])], left: &[(u32, &[u32])]) -> Adversary {
        let mut adversary = Adversary::new(Vec::new(), Duration::SECOND, 4, Duration::ZERO);
        adversary.entered = entered.iter().map(|(party, counts)| (*party, counts.to_vec())).collect();
        adversary.left = left.iter().map(|(party, counts)| (*party, counts.to_vec())).collect();
        adversary
    }

    #[test]
    fn the_unseen_have_no_score_and_equals_share_a_rank() {
        let seen = adversary(&[(0, &[1, 2, 3, 4]), (1, &[4, 3, 2, 1]), (2, &[5, 5, 5, 5])], &[(0, &[2, 4, 6, 8])]);
        let scores = Scores::correlations(&seen, 4, 4);
        assert!((scores.get(0, 0) - 1.0).abs() < 1e-12 && (scores.get(1, 0) + 1.0).abs() < 1e-12);
        assert_eq!((scores.get(2, 0), scores.get(3, 0), scores.get(0, 1)), (0.0, f64::NEG_INFINITY, f64::NEG_INFINITY));
        assert_eq!((scores.rank(0, 0), scores.rank(1, 0), scores.rank(0, 1)), (1.0, 4.0, 2.5));
        // Sender 3 was not seen, as destinations 1 to 3: who is truly that of destination 0 is above it, and the one that
        // speaks against itself is below.
        let scored = (0..4).map(|sender| (scores.get(sender, 0), sender == 3));
        assert_eq!(auc(scored), 0.5);
    }

    #[test]
    fn a_threshold_lets_through_the_share_that_is_allowed() {
        let scores = Scores { count: 3, of: vec![0.9, 0.5, 0.4, 0.3, 0.8, 0.2, 0.1, 0.0, f64::NEG_INFINITY] };
        let truth = [0, 1, 2];
        assert_eq!(scores.threshold(&truth, 0.0), 0.5);
        assert_eq!(scores.threshold(&truth, 0.34), 0.3);
        assert_eq!(scores.threshold(&truth, 1.0), f64::NEG_INFINITY);
    }

    #[test]
    fn the_area_is_the_share_of_pairs_in_order() {
        let area = |of: &[(f64, bool)]| auc(of.iter().copied());
        assert_eq!(area(&[(1.0, true), (0.0, false)]), 1.0);
        assert_eq!(area(&[(0.0, true), (1.0, false)]), 0.0);
        assert_eq!(area(&[(1.0, true), (1.0, false), (0.0, true)]), 0.25);
        assert_eq!(area(&[(1.0, true)]), 0.5);
    }
}

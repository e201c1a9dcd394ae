//! Values of several runs, one a seed, each figure with its interval over the runs.

use anabranch_stats::{estimate_of_runs, mean};

/// Of every interval over runs.
const CONFIDENCE: f64 = 0.95;

/// A mean over runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of its 95 % confidence interval; none with a single run.
    pub half_width: Option<f64>,
}

/// A value of each run, in the order of the seeds. Runs of different subjects share seeds,
/// and with them positions, starts and losses: compare them seed by seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfRuns(Vec<f64>);

impl OfRuns {
    /// These values, in the order of the seeds.
    pub fn new(values: Vec<f64>) -> OfRuns {
        OfRuns(values)
    }

    /// A value of each of `runs`, NaN where it has none.
    pub fn of<R>(runs: &[R], of: impl Fn(&R) -> Option<f64>) -> OfRuns {
        OfRuns(runs.iter().map(|run| of(run).unwrap_or(f64::NAN)).collect())
    }

    /// Their mean, NaN of none.
    pub fn mean(&self) -> f64 {
        mean(&self.0).unwrap_or(f64::NAN)
    }

    /// Their mean with its interval by Student's t over the runs.
    pub fn estimate(&self) -> Estimate {
        let half_width = estimate_of_runs(&self.0, CONFIDENCE).map(|interval| interval.half_width);
        Estimate { mean: self.mean(), half_width }
    }

    /// The values.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// `f` of what both have with the same seed.
    pub fn with(&self, other: &OfRuns, f: impl Fn(f64, f64) -> f64) -> OfRuns {
        OfRuns(self.0.iter().zip(&other.0).map(|(one, other)| f(*one, *other)).collect())
    }

    /// Each over the other's with the same seed.
    pub fn over(&self, other: &OfRuns) -> OfRuns {
        self.with(other, |one, other| one / other)
    }
}

/// The highest of their means if `sign` is 1, the lowest if it is -1, and how far the interval of any reaches beyond.
pub fn extreme_of(all: &[OfRuns], sign: f64) -> (Option<f64>, Option<f64>) {
    let estimates: Vec<Estimate> = all.iter().map(OfRuns::estimate).collect();
    // A mean that is not a number is no figure of anybody's.
    let means: Option<Vec<f64>> = estimates.iter().map(|one| one.mean.is_finite().then_some(sign * one.mean)).collect();
    let ends: Option<Vec<f64>> = estimates.iter().map(|one| Some(sign * one.mean + one.half_width?)).collect();
    let most = |values: Option<Vec<f64>>| values.and_then(|values| values.into_iter().reduce(f64::max));
    let (center, end) = (most(means), most(ends));
    (center.map(|center| sign * center), end.zip(center).map(|(end, center)| end - center))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(values: &[f64]) -> OfRuns {
        OfRuns::new(values.to_vec())
    }

    #[test]
    fn an_extreme_reaches_as_far_as_the_farthest_interval() {
        // Means 10 and 9, half widths 0 and 12.706 * 0.5 * sqrt(2) / sqrt(2).
        let all = [runs(&[10.0, 10.0]), runs(&[8.5, 9.5])];
        let reach = all[1].estimate().half_width.unwrap();
        assert!((reach - 6.353).abs() < 1e-3, "{reach}");
        assert_eq!(extreme_of(&all, 1.0), (Some(10.0), Some(9.0 + reach - 10.0)));
        assert_eq!(extreme_of(&all, -1.0), (Some(9.0), Some(reach)));
    }

    #[test]
    fn one_run_has_a_mean_and_no_interval() {
        assert_eq!(extreme_of(&[runs(&[3.0])], 1.0), (Some(3.0), None));
        assert_eq!(extreme_of(&[], 1.0), (None, None));
        assert_eq!(extreme_of(&[runs(&[1.0, f64::INFINITY]), runs(&[2.0, 2.0])], 1.0), (None, None));
    }

    #[test]
    fn runs_are_compared_seed_by_seed() {
        // Whatever the seed gives both, their ratio is certain.
        let ratio = runs(&[2.0, 20.0, 200.0]).over(&runs(&[1.0, 10.0, 100.0])).estimate();
        assert_eq!((ratio.mean, ratio.half_width), (2.0, Some(0.0)));
    }
}

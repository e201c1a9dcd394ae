//! Batch means: a confidence interval from one long run.
//!
//! The values of one run are correlated, so that their own spread says too
//! little about their mean. Averages over batches that are long against the
//! correlation are nearly independent and nearly normal, and Student's t over
//! them gives the interval. Source: Law, Kelton, "Simulation Modeling and
//! Analysis", section on batch means.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::correlation::autocorrelation;
use super::summary::{mean, variance};

/// Fewer batches than this give no interval: the spread of nine averages is
/// itself uncertain by a quarter, and their correlation cannot be seen at all.
pub const MIN_BATCHES: usize = 10;

/// A mean with its confidence interval, `mean ± half_width`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Mean of the batch means, in the input's unit.
    pub mean: f64,
    /// Half the width of the interval, in the input's unit.
    pub half_width: f64,
    /// How many batch means it was made from.
    pub batches: usize,
    /// Share of intervals made this way that hold the true mean, for example 0.95.
    pub confidence: f64,
}

impl Interval {
    /// Whether `value` lies inside.
    pub fn contains(&self, value: f64) -> bool {
        (value - self.mean).abs() <= self.half_width
    }
}

/// What batch means allow to say about the mean of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MeanEstimate {
    /// The interval stands.
    Interval(Interval),
    /// The batch means are correlated, so the batches are too short and the
    /// interval is not to be trusted: too narrow (optimistic) when `lag1` is
    /// positive, as it nearly always is, and too wide when it is negative.
    Correlated {
        /// The interval as it would be for independent batch means.
        interval: Interval,
        /// Correlation between one batch mean and the next.
        lag1: f64,
        /// What `lag1` had to stay within, `1.96 / √batches`.
        band: f64,
    },
    /// The run is too short for an interval.
    TooShort {
        /// Mean of what there is; `None` when there is no batch at all.
        mean: Option<f64>,
        /// How many batches the run filled.
        batches: usize,
        /// How many it would take: [`MIN_BATCHES`].
        needed: usize,
    },
    /// A batch mean is infinite or not a number: something before went wrong.
    NotFinite {
        /// Index of the first such batch.
        batch: usize,
    },
}

impl MeanEstimate {
    /// The mean alone, however uncertain; `None` when there is none.
    pub fn mean(&self) -> Option<f64> {
        match self {
            Self::Interval(interval) | Self::Correlated { interval, .. } => Some(interval.mean),
            Self::TooShort { mean, .. } => *mean,
            Self::NotFinite { .. } => None,
        }
    }

    /// The interval, only when it can be trusted.
    pub fn interval(&self) -> Option<Interval> {
        match self {
            Self::Interval(interval) => Some(*interval),
            _ => None,
        }
    }
}

/// Averages over consecutive batches of `batch_len` values, in the input's unit.
///
/// A last batch that is not full is left out, since its mean would spread more
/// than the others. Empty when `batch_len` is 0 or exceeds `values.len()`.
pub fn batch_means(values: &[f64], batch_len: usize) -> Vec<f64> {
    if batch_len == 0 {
        return Vec::new();
    }
    let batches = values.chunks_exact(batch_len);
    batches.map(|batch| batch.iter().sum::<f64>() / batch_len as f64).collect()
}

/// The mean of `batch_means` with its confidence interval by Student's t,
/// `x̄ ± t_{n-1} √(s²/n)`, or the reason why there is none.
///
/// `confidence` is a share strictly between 0 and 1, 0.95 as a rule.
///
/// # Panics
///
/// When `confidence` is not strictly between 0 and 1.
pub fn estimate_mean(batch_means: &[f64], confidence: f64) -> MeanEstimate {
    assert!(confidence > 0.0 && confidence < 1.0, "a confidence is a share between 0 and 1, not {confidence}");
    if let Some(batch) = batch_means.iter().position(|x| !x.is_finite()) {
        return MeanEstimate::NotFinite { batch };
    }
    let batches = batch_means.len();
    let center = mean(batch_means);
    let (Some(center), Some(spread), MIN_BATCHES..) = (center, variance(batch_means), batches) else {
        return MeanEstimate::TooShort { mean: center, batches, needed: MIN_BATCHES };
    };
    let interval = Interval {
        mean: center,
        half_width: student_t(confidence, batches - 1) * libm::sqrt(spread / batches as f64),
        batches,
        confidence,
    };
    match autocorrelation(batch_means, 1) {
        Some(acf) if !acf.lags_outside_band().is_empty() => {
            MeanEstimate::Correlated { interval, lag1: acf.coefficients[1], band: acf.band }
        }
        // No coefficient means that all batch means are equal; nothing is uncertain then.
        _ => MeanEstimate::Interval(interval),
    }
}

/// The mean of independent runs with its confidence interval by Student's t; `None`
/// for fewer than two runs, or when one is not finite. Unlike the batches of one run,
/// runs with different seeds need no check that they are independent.
///
/// # Panics
///
/// When `confidence` is not strictly between 0 and 1.
pub fn estimate_of_runs(runs: &[f64], confidence: f64) -> Option<Interval> {
    assert!(confidence > 0.0 && confidence < 1.0, "a confidence is a share between 0 and 1, not {confidence}");
    if runs.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let (mean, spread, batches) = (mean(runs)?, variance(runs)?, runs.len());
    // So far a mean of equal values may lie beside them: nothing is uncertain then.
    let rounding = batches as f64 * f64::EPSILON * mean.abs();
    let half_width = match libm::sqrt(spread) <= rounding {
        true => 0.0,
        false => student_t(confidence, batches - 1) * libm::sqrt(spread / batches as f64),
    };
    Some(Interval { mean, half_width, batches, confidence })
}

/// The two-sided quantile of Student's t: the share `confidence` lies within ± it.
fn student_t(confidence: f64, degrees_of_freedom: usize) -> f64 {
    StudentsT::new(0.0, 1.0, degrees_of_freedom as f64)
        .expect("at least one degree of freedom")
        .inverse_cdf(0.5 + confidence / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: [f64; 12] = [4.2, 5.1, 3.9, 6.0, 5.5, 4.8, 5.9, 6.3, 4.4, 5.0, 5.2, 4.7];

    #[test]
    fn quantiles_agree_with_the_t_table() {
        // qt(0.975, df) of R; the printed tables have the first four digits.
        let table = [
            (1, 12.706_204_736_174_7),
            (2, 4.302_652_729_749_46),
            (9, 2.262_157_162_798_2),
            (10, 2.228_138_851_986_27),
            (30, 2.042_272_456_301_24),
            (34, 2.032_244_509_317_72),
            (100, 1.983_971_518_523_55),
        ];
        for (freedom, expected) in table {
            let got = student_t(0.95, freedom);
            assert!((got - expected).abs() < 1e-9 * expected, "t({freedom}) is {got}, the table has {expected}");
        }
    }

    #[test]
    fn two_runs_have_an_interval_and_one_has_none() {
        // t.test(c(10, 14))$conf.int: 12 ± 12.706 * 2
        let got = estimate_of_runs(&[10.0, 14.0], 0.95).unwrap();
        assert!((got.mean - 12.0).abs() < 1e-12 && (got.half_width - 25.412_409_472_349_4).abs() < 1e-9);
        assert_eq!(estimate_of_runs(&[10.0], 0.95), None);
        assert_eq!(estimate_of_runs(&[10.0, f64::NAN], 0.95), None);
    }

    #[test]
    fn equal_runs_have_an_interval_without_width_though_their_mean_is_rounded() {
        for value in [0.1, 4.321, -7.7e-9, 0.0, 1e17 / 3.0] {
            for runs in [2, 3, 6, 10, 35, 1000] {
                assert_eq!(estimate_of_runs(&vec![value; runs], 0.95).unwrap().half_width, 0.0, "{runs} of {value}");
            }
        }
        let apart = estimate_of_runs(&[0.1, 0.1, 0.1 + 1e-14], 0.95).unwrap();
        assert!(apart.half_width > 1e-15);
    }

    #[test]
    fn the_interval_agrees_with_rs_t_test() {
        // t.test(x)$conf.int
        let MeanEstimate::Interval(got) = estimate_mean(&SAMPLE, 0.95) else {
            panic!("twelve uncorrelated values have an interval")
        };
        assert!((got.mean - got.half_width - 4.611_871_017_568_67).abs() < 1e-9);
        assert!((got.mean + got.half_width - 5.554_795_649_097_99).abs() < 1e-9);
        assert_eq!((got.batches, got.confidence), (12, 0.95));
        assert!(got.contains(5.5) && !got.contains(5.6));
    }

    #[test]
    fn nine_batches_are_refused_and_ten_are_not() {
        let refused = estimate_mean(&SAMPLE[..9], 0.95);
        let expected = MeanEstimate::TooShort { mean: mean(&SAMPLE[..9]), batches: 9, needed: 10 };
        assert_eq!(refused, expected);
        assert_eq!(refused.interval(), None);
        assert!(estimate_mean(&SAMPLE[..10], 0.95).interval().is_some());
        assert_eq!(estimate_mean(&[], 0.95).mean(), None);
    }

    #[test]
    fn a_trend_is_flagged_as_correlated() {
        let trend: Vec<f64> = (0..35).map(f64::from).collect();
        let estimate = estimate_mean(&trend, 0.95);
        let MeanEstimate::Correlated { lag1, band, .. } = estimate else {
            panic!("a trend is not independent: {estimate:?}")
        };
        assert!(lag1 > 0.9 && band < 0.34);
        assert_eq!(estimate.mean(), Some(17.0));
        assert_eq!(estimate.interval(), None);
    }

    #[test]
    fn equal_batches_have_an_interval_without_width() {
        let estimate = estimate_mean(&[0.1; 20], 0.95).interval().unwrap();
        assert!(estimate.half_width < 1e-15);
    }

    #[test]
    fn what_is_not_a_number_gives_none() {
        let mut values = SAMPLE;
        values[3] = f64::NAN;
        let estimate = estimate_mean(&values, 0.95);
        assert_eq!(estimate, MeanEstimate::NotFinite { batch: 3 });
        assert_eq!(estimate.mean(), None);
    }

    #[test]
    fn a_partial_batch_is_left_out() {
        assert_eq!(batch_means(&[1.0, 3.0, 5.0, 7.0, 100.0], 2), [2.0, 6.0]);
        assert!(batch_means(&[1.0], 0).is_empty());
        assert!(batch_means(&[1.0], 2).is_empty());
    }

    /// The interval of a 95 % method holds the true mean in about 95 % of runs:
    /// of 4000 runs 3800, and four standard deviations of the binomial are 55.
    #[test]
    fn coverage_is_what_it_says() {
        let mut state = 7u64;
        let mut uniform = || {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut held = 0;
        let mut flagged = 0;
        for _ in 0..4000 {
            let values: Vec<f64> = (0..20).map(|_| uniform()).collect();
            let interval = match estimate_mean(&values, 0.95) {
                MeanEstimate::Interval(interval) => interval,
                MeanEstimate::Correlated { interval, .. } => {
                    flagged += 1;
                    interval
                }
                other => panic!("twenty values are enough: {other:?}"),
            };
            held += usize::from(interval.contains(0.5));
        }
        assert!((3745..=3855).contains(&held), "{held} of 4000");
        // Independent means are flagged about as seldom as the 95 % band promises.
        assert!((50..=250).contains(&flagged), "{flagged} of 4000");
    }

    proptest! {
        #[test]
        fn batch_means_keep_the_mean(
            values in prop::collection::vec(-1e3f64..1e3, 1..40),
            batch_len in 1usize..10,
        ) {
            let repeated: Vec<f64> = values.iter().flat_map(|x| vec![*x; batch_len]).collect();
            let means = batch_means(&repeated, batch_len);
            prop_assert_eq!(means.len(), values.len());
            for (a, b) in means.iter().zip(&values) {
                prop_assert!((a - b).abs() < 1e-9);
            }
        }
    }
}

//! Whether values may come from a normal distribution: the quantile-quantile
//! plot, and one number for it.
//!
//! The i-th smallest of n values is held against the normal quantile of Blom's
//! position `(i - 3/8) / (n + 1/4)`. For normal values the points lie on a
//! line, and their correlation, the probability plot correlation coefficient
//! (PPCC), is close to 1. Squared, it is the statistic W' of Shapiro and
//! Francia, whose distribution for normal values Royston fitted for 5 to 5000
//! of them:
//!
//! `ln(1 - W') ~ N(μ, σ²)`, with `u = ln n`, `v = ln u`,
//! `μ = -1.2725 + 1.0521 (v - u)` and `σ = 1.0308 - 0.26758 (v + 2/u)`.
//!
//! Sources: Filliben, "The Probability Plot Correlation Coefficient Test for
//! Normality", Technometrics 17, 1975; Looney, Gulledge, "Use of the
//! Correlation Coefficient with Normal Probability Plots", The American
//! Statistician 39, 1985 (tables for Blom's positions); Royston, "A
//! pocket-calculator algorithm for the Shapiro-Francia test for non-normality",
//! Statistics in Medicine 12, 1993.

use std::ops::RangeInclusive;

use statrs::distribution::{ContinuousCDF, Normal};

use super::summary::{mean, percentile_of_sorted};

/// Sample sizes that Royston's fit covers.
const FITTED: RangeInclusive<usize> = 5..=5000;

/// 0.95 quantile of the standard normal distribution.
const Z_95: f64 = 1.644_853_626_951_472_7;

/// One point of a quantile-quantile plot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QqPoint {
    /// Quantile of the standard normal distribution, in standard deviations.
    pub normal: f64,
    /// The value at the same rank of the sample, in the sample's unit.
    pub sample: f64,
}

/// A quantile-quantile plot against the normal distribution, and its verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Normality {
    /// The points in ascending order, one for each value.
    pub points: Vec<QqPoint>,
    /// Where the reference line crosses zero, in the sample's unit. The line
    /// goes through both quartiles, as R's `qqline` does, so that outliers
    /// cannot bend it.
    pub line_intercept: f64,
    /// Rise of the reference line, in the sample's unit for each standard deviation.
    pub line_slope: f64,
    /// Correlation of the points (PPCC), up to 1.
    pub ppcc: f64,
    /// The PPCC that 95 % of normal samples of this size exceed.
    pub critical_ppcc: f64,
    /// Share of normal samples of this size with a lower PPCC.
    pub p_value: f64,
}

impl Normality {
    /// Whether the values may be taken for normal: the PPCC is not below its
    /// critical value at the 5 % level. It does not prove that they are.
    pub fn is_plausible(&self) -> bool {
        self.ppcc >= self.critical_ppcc
    }
}

/// The quantile-quantile plot and check of `values`.
///
/// `None` when there is none to speak of: fewer than 5 or more than 5000 values
/// (the range of the published critical values), one that is not finite, or all
/// of them equal.
pub fn normality(values: &[f64]) -> Option<Normality> {
    if !FITTED.contains(&values.len()) || values.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.first() == sorted.last() {
        return None;
    }
    let normal = Normal::standard();
    let n = sorted.len() as f64;
    let position = |rank: usize| (rank as f64 + 1.0 - 0.375) / (n + 0.25);
    let points: Vec<QqPoint> = sorted
        .iter()
        .enumerate()
        .map(|(rank, sample)| QqPoint { normal: normal.inverse_cdf(position(rank)), sample: *sample })
        .collect();

    let low = percentile_of_sorted(&sorted, 0.25)?;
    let high = percentile_of_sorted(&sorted, 0.75)?;
    let line_slope = (high - low) / (2.0 * normal.inverse_cdf(0.75));
    let ppcc = correlation(&points)?;
    let (center, spread) = shapiro_francia(values.len());
    Some(Normality {
        line_intercept: (high + low) / 2.0,
        line_slope,
        ppcc,
        critical_ppcc: libm::sqrt(1.0 - libm::exp(center + Z_95 * spread)),
        p_value: 1.0 - normal.cdf((libm::log(1.0 - ppcc * ppcc) - center) / spread),
        points,
    })
}

/// Mean and standard deviation of `ln(1 - W')` for `n` normal values.
fn shapiro_francia(n: usize) -> (f64, f64) {
    let u = libm::log(n as f64);
    let v = libm::log(u);
    (-1.2725 + 1.0521 * (v - u), 1.0308 - 0.26758 * (v + 2.0 / u))
}

/// Pearson's correlation of the points; `None` when there are none.
fn correlation(points: &[QqPoint]) -> Option<f64> {
    let x: Vec<f64> = points.iter().map(|p| p.normal).collect();
    let y: Vec<f64> = points.iter().map(|p| p.sample).collect();
    let (x_mean, y_mean) = (mean(&x)?, mean(&y)?);
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(&y) {
        let (dx, dy) = (x - x_mean, y - y_mean);
        xx += dx * dx;
        xy += dx * dy;
        yy += dy * dy;
    }
    // Rounding may carry a perfect line past 1, where ln(1 - r²) has no value.
    Some((xy / (libm::sqrt(xx) * libm::sqrt(yy))).min(1.0))
}

/// One p-value for several independent samples, each of which has its own: `-2 Σ ln p` has a
/// chi-squared distribution with `2 n` degrees of freedom where all hypotheses hold (Fisher,
/// "Statistical Methods for Research Workers", 1925). `None` of none, or where one is no
/// probability.
pub fn combined_p(p_values: &[f64]) -> Option<f64> {
    if p_values.is_empty() || !p_values.iter().all(|p| (0.0..=1.0).contains(p)) {
        return None;
    }
    // Half the statistic. The upper tail with an even number of degrees of freedom is a sum
    // of Poisson probabilities.
    let half: f64 = p_values.iter().map(|p| -libm::log(*p)).sum();
    if half == f64::INFINITY {
        return Some(0.0);
    }
    let mut term = libm::exp(-half);
    let mut tail = term;
    for k in 1..p_values.len() {
        term *= half / k as f64;
        tail += term;
    }
    Some(tail.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_p_values_combine_as_fishers_method_says() {
        // pchisq(-2 * sum(log(p)), 2 * length(p), lower.tail = FALSE) of R; for two values
        // it is q (1 - log(q)) with q their product.
        assert!((combined_p(&[0.3]).unwrap() - 0.3).abs() < 1e-15);
        let two = combined_p(&[0.05, 0.05]).unwrap();
        assert!((two - 0.0025 * (1.0 - libm::log(0.0025))).abs() < 1e-15, "{two}");
        assert!((combined_p(&[1.0, 1.0, 1.0]).unwrap() - 1.0).abs() < 1e-15);
        assert_eq!(combined_p(&[0.0, 0.9]), Some(0.0));
        assert_eq!((combined_p(&[]), combined_p(&[0.5, f64::NAN])), (None, None));
    }
    use proptest::prelude::*;

    const SAMPLE: [f64; 12] = [4.2, 5.1, 3.9, 6.0, 5.5, 4.8, 5.9, 6.3, 4.4, 5.0, 5.2, 4.7];

    /// R's data set `trees$Volume` (cubic feet of timber), which is skewed.
    const TREES: [f64; 31] = [
        10.3, 10.3, 10.2, 16.4, 18.8, 19.7, 15.6, 18.2, 22.6, 19.9, 24.2, 21.0, 21.4, 21.3, 19.1, 22.2, 33.8, 27.4,
        25.7, 24.9, 34.5, 31.7, 36.3, 38.3, 42.6, 55.4, 55.7, 58.3, 51.5, 51.0, 77.0,
    ];

    fn assert_close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-7, "{got} is not {expected}");
    }

    #[test]
    fn points_and_line_agree_with_r() {
        let got = normality(&SAMPLE).unwrap();
        // qnorm(ppoints(12, a = 3/8))
        let expected = [
            -1.635_039_266_801_71,
            -1.113_937_215_356_69,
            -0.791_638_607_743_375,
            -0.536_176_266_365_806,
            -0.311_919_054_820_325,
            -0.102_490_507_691_451,
        ];
        for (i, quantile) in expected.iter().enumerate() {
            assert_close(got.points[i].normal, *quantile);
            assert_close(got.points[11 - i].normal, -quantile);
        }
        let samples: Vec<f64> = got.points.iter().map(|p| p.sample).collect();
        assert!(samples.is_sorted());
        assert_close(got.line_slope, 0.722_768_581_521_481);
        assert_close(got.line_intercept, 5.1125);
    }

    #[test]
    fn check_agrees_with_r_on_normal_and_skewed_values() {
        // The formulas of nortest::sf.test, computed with R's cor, qnorm and pnorm.
        let normal = normality(&SAMPLE).unwrap();
        assert_close(normal.ppcc, 0.993_270_333_558_698);
        assert_close(normal.critical_ppcc, 0.929_035_925_624_126);
        assert_close(normal.p_value, 0.992_176_207_302_302);
        assert!(normal.is_plausible());

        let skewed = normality(&TREES).unwrap();
        assert_close(skewed.ppcc, 0.942_659_775_798_848);
        assert_close(skewed.critical_ppcc, 0.965_505_973_598_995);
        assert_close(skewed.p_value, 0.005_291_449_525_351_98);
        assert!(!skewed.is_plausible());
    }

    #[test]
    fn critical_values_agree_with_simulated_ones() {
        // 5 % quantile of the PPCC of 20 000 normal samples of each size, by R.
        let simulated = [(10, 0.918_95), (20, 0.950_57), (35, 0.968_15), (50, 0.976_96), (100, 0.987_26)];
        for (n, expected) in simulated {
            let (center, spread) = shapiro_francia(n);
            let got = libm::sqrt(1.0 - libm::exp(center + Z_95 * spread));
            assert!((got - expected).abs() < 0.0015, "{n}: {got}, {expected}");
        }
    }

    #[test]
    fn a_perfect_line_is_the_best_score() {
        let normal = Normal::standard();
        let values: Vec<f64> =
            (0..35).map(|i| 90_000.0 + 25.0 * normal.inverse_cdf((i as f64 + 0.625) / 35.25)).collect();
        let got = normality(&values).unwrap();
        assert!(got.ppcc > 1.0 - 1e-12 && got.p_value > 0.999_999);
        assert!(got.is_plausible());
    }

    #[test]
    fn outside_the_published_range_there_is_no_check() {
        assert_eq!(normality(&SAMPLE[..4]), None);
        assert!(normality(&SAMPLE[..5]).is_some());
        assert_eq!(normality(&[1.0; 35]), None);
        let mut values = SAMPLE;
        values[0] = f64::INFINITY;
        assert_eq!(normality(&values), None);
        let many: Vec<f64> = (0..5001).map(f64::from).collect();
        assert_eq!(normality(&many), None);
        assert!(normality(&many[1..]).is_some());
    }

    proptest! {
        #[test]
        fn the_check_ignores_unit_and_order(
            values in prop::collection::vec(-1e3f64..1e3, 5..60),
            scale in 0.01f64..100.0,
            shift in -1e3f64..1e3,
        ) {
            let a = normality(&values).unwrap();
            let moved: Vec<f64> = values.iter().rev().map(|x| x * scale + shift).collect();
            let b = normality(&moved).unwrap();
            prop_assert!((a.ppcc - b.ppcc).abs() < 1e-6);
            prop_assert!(a.ppcc > 0.0 && a.ppcc <= 1.0);
            prop_assert!((0.0..=1.0).contains(&a.p_value));
            prop_assert_eq!(a.is_plausible(), a.p_value >= 0.05);
        }
    }
}

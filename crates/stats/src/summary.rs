//! One number for many: mean, variance, percentiles and Jain's fairness index.

/// Arithmetic mean; `None` when `values` is empty.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Unbiased sample variance, `Σ (x - x̄)² / (n - 1)`, in the square of the
/// input's unit; `None` for fewer than two values.
pub fn variance(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let center = mean(values)?;
    // Two passes: the textbook Σx² - n x̄² loses every digit when the mean is
    // large against the spread, as a throughput in bytes per second is.
    let squares: f64 = values.iter().map(|x| (x - center) * (x - center)).sum();
    Some(squares / (values.len() - 1) as f64)
}

/// Square root of [`variance`], in the input's unit; `None` for fewer than two values.
pub fn std_dev(values: &[f64]) -> Option<f64> {
    variance(values).map(libm::sqrt)
}

/// The value below which `share` (0 to 1) of the sample lies, interpolated
/// linearly between order statistics (R's type 7, NumPy's default).
///
/// `None` when `values` is empty or holds a NaN, or `share` is outside 0 to 1.
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    if values.iter().any(|x| x.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile_of_sorted(&sorted, share)
}

/// [`percentile`] of values that are already in ascending order and hold no NaN.
pub(crate) fn percentile_of_sorted(sorted: &[f64], share: f64) -> Option<f64> {
    if sorted.is_empty() || !(0.0..=1.0).contains(&share) {
        return None;
    }
    let position = share * (sorted.len() - 1) as f64;
    let below = libm::floor(position) as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let part = position - below as f64;
    // Weighting both ends keeps equal neighbours exact and never leaves their range
    // by more than a rounding, which the clamp takes back.
    let value = sorted[below] * (1.0 - part) + sorted[above] * part;
    Some(value.clamp(sorted[below], sorted[above]))
}

/// Jain's fairness index, `(Σ x)² / (n Σ x²)`: 1 when all shares are equal,
/// `1/n` when one has everything. Without unit.
///
/// `None` when there are no shares, all are zero, or one is negative or not
/// finite: the index says nothing then.
///
/// Source: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and
/// Discrimination for Resource Allocation in Shared Computer Systems",
/// DEC-TR-301, 1984.
pub fn jain_fairness(shares: &[f64]) -> Option<f64> {
    if shares.iter().any(|x| !x.is_finite() || *x < 0.0) {
        return None;
    }
    let largest = shares.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 {
        return None;
    }
    // Scaled by the largest share, so that squares neither overflow nor vanish.
    let sum: f64 = shares.iter().map(|x| x / largest).sum();
    let squares: f64 = shares.iter().map(|x| (x / largest) * (x / largest)).sum();
    Some(sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: [f64; 12] = [4.2, 5.1, 3.9, 6.0, 5.5, 4.8, 5.9, 6.3, 4.4, 5.0, 5.2, 4.7];

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * b.abs().max(1.0)
    }

    #[test]
    fn mean_and_variance_agree_with_r() {
        assert!(close(mean(&SAMPLE).unwrap(), 5.083_333_333_333_33));
        assert!(close(variance(&SAMPLE).unwrap(), 0.550_606_060_606_061));
        assert!(close(std_dev(&SAMPLE).unwrap(), libm::sqrt(0.550_606_060_606_061)));
        assert_eq!(mean(&[]), None);
        assert_eq!(variance(&[1.0]), None);
    }

    #[test]
    fn variance_survives_a_large_mean() {
        let shifted: Vec<f64> = [4.0, 7.0, 13.0, 16.0].iter().map(|x| x + 1e9).collect();
        assert_eq!(variance(&shifted), Some(30.0));
    }

    #[test]
    fn percentiles_agree_with_r_type_7() {
        let expected = [(0.0, 3.9), (0.05, 4.065), (0.25, 4.625), (0.5, 5.05), (0.9, 5.99), (0.95, 6.135), (1.0, 6.3)];
        for (share, value) in expected {
            let got = percentile(&SAMPLE, share).unwrap();
            assert!(close(got, value), "{share}: {got} is not {value}");
        }
        assert_eq!(percentile(&SAMPLE, 1.1), None);
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(percentile(&[1.0, f64::NAN], 0.5), None);
    }

    #[test]
    fn fairness_knows_its_ends() {
        assert_eq!(jain_fairness(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain_fairness(&[0.0, 0.0, 0.0, 8.0]), Some(0.25));
        // The example of the report: 0.5 for half of the users having all.
        assert_eq!(jain_fairness(&[1.0, 1.0, 0.0, 0.0]), Some(0.5));
        assert_eq!(jain_fairness(&[]), None);
        assert_eq!(jain_fairness(&[0.0, 0.0]), None);
        assert_eq!(jain_fairness(&[1.0, -1.0]), None);
        assert_eq!(jain_fairness(&[1.0, f64::INFINITY]), None);
    }

    proptest! {
        #[test]
        fn fairness_is_bounded_and_has_no_unit(
            shares in prop::collection::vec(0.001f64..1e9, 1..50),
            factor in 1e-3f64..1e3,
        ) {
            let index = jain_fairness(&shares).unwrap();
            let n = shares.len() as f64;
            prop_assert!(index <= 1.0 + 1e-12 && index >= 1.0 / n - 1e-12);
            let scaled: Vec<f64> = shares.iter().map(|x| x * factor).collect();
            prop_assert!(close(jain_fairness(&scaled).unwrap(), index));
        }

        #[test]
        fn percentiles_rise_and_stay_inside(
            values in prop::collection::vec(-1e6f64..1e6, 1..60),
            a in 0.0f64..=1.0,
            b in 0.0f64..=1.0,
        ) {
            let low = percentile(&values, a.min(b)).unwrap();
            let high = percentile(&values, a.max(b)).unwrap();
            prop_assert!(low <= high);
            prop_assert!(values.iter().any(|x| *x <= low) && values.iter().any(|x| *x >= high));
        }

        #[test]
        fn variance_ignores_a_shift(
            values in prop::collection::vec(-1e3f64..1e3, 2..60),
            shift in -1e3f64..1e3,
        ) {
            let moved: Vec<f64> = values.iter().map(|x| x + shift).collect();
            let (a, b) = (variance(&values).unwrap(), variance(&moved).unwrap());
            prop_assert!(a >= 0.0 && (a - b).abs() <= 1e-6 * a.max(1.0));
        }
    }
}

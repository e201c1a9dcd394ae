//! Autocorrelation: how much a value tells about the one `k` steps later.
//!
//! `c_k = 1/n Σ_t (x_t - x̄)(x_{t+k} - x̄)` and `r_k = c_k / c_0`, the definition
//! of Box and Jenkins that R's `acf` uses: divided by `n` at every lag, which
//! keeps the sequence positive semidefinite.

use super::Z_975;
use super::summary::mean;

/// An estimated autocorrelation function.
#[derive(Debug, Clone, PartialEq)]
pub struct Autocorrelation {
    /// `r_k` at index `k`, from lag 0 (always 1) on. Without unit, -1 to 1.
    pub coefficients: Vec<f64>,
    /// `1.96 / √n`: 95 % of the coefficients of independent values lie within
    /// plus and minus this.
    pub band: f64,
}

impl Autocorrelation {
    /// The lags from 1 on whose coefficient is outside the band. About one in
    /// twenty is for independent values too.
    pub fn lags_outside_band(&self) -> Vec<usize> {
        let outside = |k: &usize| self.coefficients[*k].abs() > self.band;
        (1..self.coefficients.len()).filter(outside).collect()
    }
}

/// Autocorrelation up to `max_lag`, or up to `values.len() - 1` when that is less.
///
/// `None` when it is not defined: fewer than two values, one that is not
/// finite, or all of them equal.
pub fn autocorrelation(values: &[f64], max_lag: usize) -> Option<Autocorrelation> {
    if values.len() < 2 || values.iter().any(|x| !x.is_finite()) {
        return None;
    }
    // Compared exactly: the mean of equal values may be off by a rounding, and the
    // coefficients would then be the correlation of that rounding with itself.
    if values.iter().all(|x| *x == values[0]) {
        return None;
    }
    let center = mean(values)?;
    let centered: Vec<f64> = values.iter().map(|x| x - center).collect();
    let covariance = |lag: usize| -> f64 { centered.iter().zip(&centered[lag..]).map(|(a, b)| a * b).sum() };
    let variance = covariance(0);
    let lags = 0..=max_lag.min(values.len() - 1);
    Some(Autocorrelation {
        coefficients: lags.map(|lag| covariance(lag) / variance).collect(),
        band: Z_975 / libm::sqrt(values.len() as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn coefficients_agree_with_r() {
        let values = [4.2, 5.1, 3.9, 6.0, 5.5, 4.8, 5.9, 6.3, 4.4, 5.0, 5.2, 4.7];
        let got = autocorrelation(&values, 4).unwrap();
        // acf(x, lag.max = 4, plot = FALSE); qnorm(.975) / sqrt(12)
        let expected =
            [1.0, -0.152_219_776_187_855, -0.066_685_011_924_417_6, 0.217_528_893_780_958, -0.141_350_210_970_464];
        assert_eq!(got.coefficients.len(), expected.len());
        for (a, b) in got.coefficients.iter().zip(expected) {
            assert!((a - b).abs() < 1e-13, "{a} is not {b}");
        }
        assert!((got.band - 0.565_792_867_038_086).abs() < 1e-13);
        assert!(got.lags_outside_band().is_empty());
    }

    #[test]
    fn an_alternating_series_is_negative_at_odd_lags() {
        let values: Vec<f64> = (0..100).map(|i| f64::from(i % 2)).collect();
        let got = autocorrelation(&values, 3).unwrap();
        assert!((got.coefficients[1] + 0.99).abs() < 1e-12);
        assert!((got.coefficients[2] - 0.98).abs() < 1e-12);
        assert_eq!(got.lags_outside_band(), [1, 2, 3]);
    }

    #[test]
    fn undefined_is_none_and_lags_end_with_the_data() {
        assert_eq!(autocorrelation(&[], 3), None);
        assert_eq!(autocorrelation(&[1.0], 3), None);
        assert_eq!(autocorrelation(&[0.1; 50], 3), None);
        assert_eq!(autocorrelation(&[1.0, f64::NAN, 2.0], 1), None);
        let short = autocorrelation(&[1.0, 2.0, 4.0], 10).unwrap();
        assert_eq!(short.coefficients.len(), 3);
    }

    proptest! {
        #[test]
        fn coefficients_are_correlations(
            values in prop::collection::vec(-1e3f64..1e3, 3..80),
            scale in 0.1f64..10.0,
            shift in -100.0f64..100.0,
        ) {
            let got = autocorrelation(&values, 20).unwrap();
            prop_assert_eq!(got.coefficients[0], 1.0);
            prop_assert!(got.coefficients.iter().all(|r| r.abs() <= 1.0 + 1e-12));
            let moved: Vec<f64> = values.iter().map(|x| x * scale + shift).collect();
            let other = autocorrelation(&moved, 20).unwrap();
            for (a, b) in got.coefficients.iter().zip(&other.coefficients) {
                prop_assert!((a - b).abs() < 1e-6);
            }
        }
    }
}

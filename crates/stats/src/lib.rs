//! What a run's numbers say, and how far they can be trusted.
//!
//! The chain that the papers use is here in order: average the run over batches
//! ([`batch_means`]), look whether the averages are independent
//! ([`autocorrelation`]) and normal ([`normality`]), and only then put an
//! interval around their mean ([`estimate_mean`]). An interval that the run is
//! too short for is refused rather than printed.
//!
//! Every function is pure, and takes plain `f64` in the caller's unit; a result
//! has the unit of its input unless its documentation says otherwise.

mod batch;
mod convergence;
mod correlation;
mod ellipse;
mod entropy;
mod normality;
mod summary;

pub use batch::{Interval, MIN_BATCHES, MeanEstimate, batch_means, estimate_mean, estimate_of_runs};
pub use convergence::{PAPER_SHARE, PAPER_WINDOW_S, time_to_convergence};
pub use correlation::{Autocorrelation, autocorrelation};
pub use ellipse::Ellipse;
pub use entropy::Entropy;
pub use normality::{Normality, QqPoint, combined_p, normality};
pub use summary::{jain_fairness, mean, percentile, std_dev, variance};

/// 0.975 quantile of the standard normal distribution: the "1.96" of a 95 % band.
pub(crate) const Z_975: f64 = 1.959_963_984_540_054;

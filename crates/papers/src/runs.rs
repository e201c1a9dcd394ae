//! What is claimed of several runs at once, as a figure beside the paper's.

use super::experiment_lab::Lab;
use super::findings::Row;
use super::of_runs::extreme_of;
pub use super::of_runs::{Estimate, OfRuns};

/// The highest mean of `all`. The interval reaches to the highest end of any, so that a bound
/// which it keeps is kept by each of them.
pub fn highest<S>(lab: &Lab<S>, subject: &str, metric: &str, unit: &str, all: &[OfRuns]) -> Row {
    extreme(lab, (subject, metric, unit), all, 1.0)
}

/// The lowest mean of `all`, with the interval to the lowest end of any.
pub fn lowest<S>(lab: &Lab<S>, subject: &str, metric: &str, unit: &str, all: &[OfRuns]) -> Row {
    extreme(lab, (subject, metric, unit), all, -1.0)
}

/// The mean of `all`, with its interval over the runs.
pub fn average<S>(lab: &Lab<S>, subject: &str, metric: &str, unit: &str, all: &[OfRuns]) -> Row {
    let runs = all.iter().map(|one| one.values().len()).min().unwrap_or(0);
    let of_run = |run: usize| all.iter().map(|one| one.values()[run]).sum::<f64>() / all.len() as f64;
    lab.mean_row(subject, metric, unit, &(0..runs).map(of_run).collect::<Vec<f64>>())
}

/// `sign` is 1 for the highest, -1 for the lowest.
fn extreme<S>(lab: &Lab<S>, (subject, metric, unit): (&str, &str, &str), all: &[OfRuns], sign: f64) -> Row {
    let (ours, half_width) = extreme_of(all, sign);
    lab.expected.row_of_estimate(subject, metric, unit, ours, half_width)
}

//! [C3] with a coordinator that learns: policies that were trained before are played in their learning environments.

mod cross;
mod delayed;
mod fairness;
mod play;
mod policies;
mod scenarios;
mod subdomains;

use anabranch_scenario::flows::PacketSpec;

use crate::{ExperimentError, FlowLab};
use play::{Episode, Play};

pub use cross::run as cross;
pub use delayed::run as delayed;
pub use fairness::run as fairness;
pub use scenarios::{parallel, single, staggered};
pub use subdomains::run as subdomains;

/// Plays all on all cores; the episodes are in the order of the plays.
fn play_all(lab: &FlowLab, plays: &[Play]) -> Result<Vec<Episode>, ExperimentError> {
    lab.no_other_controllers()?;
    let played = lab.run_whole(plays, None)?;
    played.into_iter().collect::<Option<Vec<_>>>().ok_or(ExperimentError::Interrupted)
}

/// The share of what a link carries that is data, without headers.
fn data_share() -> f64 {
    let PacketSpec { data, header, .. } = PacketSpec::default();
    data.get() as f64 / (data + header).get() as f64
}

/// The mean of what a training reached over the parts of its evaluation; NaN of none.
fn mean(values: &[f64]) -> f64 {
    anabranch_stats::mean(values).unwrap_or(f64::NAN)
}

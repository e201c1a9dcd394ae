//! The papers' experiments, as `anabranch reproduce --json` has them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anabranch_papers::{EXPERIMENTS, ExperimentError, Length, Request, Summary, Totals, find};
use pyo3::prelude::*;

use crate::apart::interruptible;
use crate::errors;
use crate::runs::RunResult;
use crate::tables::Table;

/// The experiments: names, and what each asks.
#[pyfunction]
pub fn experiments() -> Vec<(&'static str, &'static str)> {
    EXPERIMENTS.iter().map(|experiment| (experiment.id, experiment.title)).collect()
}

/// Runs one; what `anabranch reproduce ID --json` prints, and its rows as a table.
#[pyfunction]
#[pyo3(signature = (experiment, quick=false, seed=None, controllers=vec![], settings=vec![], policies=None))]
pub fn reproduce(
    py: Python<'_>,
    experiment: &str,
    quick: bool,
    seed: Option<u64>,
    controllers: Vec<String>,
    settings: Vec<String>,
    policies: Option<PathBuf>,
) -> PyResult<RunResult> {
    let experiment = find(experiment).map_err(errors::value)?;
    let length = if quick { Length::Quick } else { Length::Full };
    let request = Request { length, seed, controllers, settings, policies, ..Request::default() };
    let refused = |error: ExperimentError| match error {
        ExperimentError::Scenario(error) => errors::scenario(error),
        ExperimentError::Run(error) => errors::run(error),
        other => errors::value(other),
    };
    let seed = experiment.seed(&request).map_err(refused)?;
    let started = Instant::now();
    let run = |progress: &Arc<_>| experiment.run(&Request { progress: Arc::clone(progress), ..request.clone() });
    let rows = interruptible(py, run)?.map_err(refused)?.rows;
    let wall_s = started.elapsed().as_secs_f64();
    let summary = Summary { id: experiment.id, seed, quick, wall_s, totals: Totals::of_rows(&rows), rows: &rows };
    let text = serde_json::to_string(&summary).map_err(errors::value)?;
    Ok((text, vec![("rows", Table::of_rows(&rows)?)]))
}

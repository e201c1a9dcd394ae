//! What each model was held against, and the difference.
//!
//! A check has a bound that was set before the comparison was made; where programs or
//! versions of one differ from each other, the check names the one that is followed.

mod closed_forms;
mod cubic;
mod curves;
mod dumbbell;
pub mod kernel;

use std::path::Path;

use serde::Serialize;

use crate::{ExperimentError, Request};
use anabranch_lab::flows::FlowRunError;
use anabranch_lab::parallel::Progress;

pub use curves::{Curve, curves, page};
pub use dumbbell::ReferenceError;

/// Experiments whose figures are themselves comparisons with a model or another program.
const EXPERIMENTS: [&str; 3] = ["remy-golden", "learningcc-fluid", "efthymiopoulos-lemmas"];

/// One quantity of one model beside what it was held against.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What is validated.
    pub model: String,
    /// What it is held against: a program, a formula.
    pub against: String,
    /// What is compared.
    pub quantity: String,
    /// Its unit.
    pub unit: &'static str,
    /// What we measure.
    pub ours: f64,
    /// What it should be.
    pub reference: f64,
    /// Ours may lie from here...
    pub low: f64,
    /// ...to here.
    pub high: f64,
    /// What the bound is, in words.
    pub bound: String,
}

impl Check {
    /// Whether ours lies within the bound.
    pub fn holds(&self) -> bool {
        (self.low..=self.high).contains(&self.ours)
    }

    /// Ours less the reference, as a share of it.
    pub fn difference(&self) -> f64 {
        self.ours / self.reference - 1.0
    }

    /// A bound as a share of the reference to both sides.
    fn within(self, share: f64) -> Check {
        let low = self.reference * (1.0 - share);
        let high = self.reference * (1.0 + share);
        Check { low, high, bound: format!("within {} %", share * 100.0), ..self }
    }
}

/// All checks.
#[derive(Debug)]
pub struct Validation {
    /// What was compared.
    pub checks: Vec<Check>,
    /// What lies outside of what its model assumes, with the reason as its bound: reported, and
    /// held against nothing.
    pub outside: Vec<Check>,
    /// What was not, and why.
    pub skipped: Vec<String>,
}

/// Why there is no validation.
#[derive(Debug, thiserror::Error)]
pub enum ValidationError {
    /// The figures of other programs do not read.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] FlowRunError),
    /// An experiment failed.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// It was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Makes every check; `reference` is another table of dumbbell figures than ours.
///
/// # Errors
///
/// When a table does not read, a run fails, or at an interruption.
pub fn validate(reference: Option<&Path>, request: &Request) -> Result<Validation, ValidationError> {
    let progress = &*request.progress;
    let (checks, outside) = dumbbell::checks(reference, progress)?;
    let mut validation = Validation { checks, outside, skipped: Vec::new() };
    validation.checks.extend(closed_forms::checks(progress)?);
    validation.checks.extend(cubic::checks(progress)?);
    for id in EXPERIMENTS {
        let experiment = crate::find(id).expect("a registered experiment");
        let before = validation.checks.len();
        let rows = experiment.run(request)?.rows;
        validation.checks.extend(rows.iter().filter(|row| row.is_judged()).filter_map(|row| of_row(id, row)));
        validation.outside.extend(rows.iter().filter(|row| row.is_outside()).filter_map(|row| of_row(id, row)));
        if validation.checks.len() == before {
            let why = rows.iter().find(|row| row.ours.is_none()).map_or("it gives no figure", |row| &row.note);
            validation.skipped.push(format!("{id}: {why}"));
        }
    }
    Ok(validation)
}

/// An experiment's figure beside what it was expected to be.
fn of_row(id: &str, row: &crate::Row) -> Option<Check> {
    let (low, high) = row.range;
    let middle = match (low.is_finite(), high.is_finite()) {
        (true, true) => (low + high) / 2.0,
        (true, false) => low,
        _ => high,
    };
    Some(Check {
        model: row.subject.clone(),
        against: id.to_owned(),
        quantity: row.metric.clone(),
        unit: "",
        ours: row.ours?,
        reference: row.paper.unwrap_or(middle),
        low,
        high,
        bound: row.note.clone(),
    })
}

/// Runs `scenarios` on all cores.
fn run_all(
    scenarios: &[anabranch_lab::flows::FlowScenario],
    progress: &Progress,
) -> Result<Vec<anabranch_lab::flows::FlowsMeasured>, ValidationError> {
    let outcomes = anabranch_lab::parallel::run_all(scenarios, None, progress, |_, outcome| outcome)?;
    outcomes.into_iter().collect::<Option<_>>().ok_or(ValidationError::Interrupted)
}

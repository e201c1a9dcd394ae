//! Where an experiment runs: its scenario, its length, all cores, progress and
//! interruption.

use std::sync::Arc;

use anabranch_control::path::registry::{Build, CONTROLLERS, Entry};
use anabranch_control::registry::ParameterError;

use super::expected::{Expected, ExpectedError};
use super::{Experiment, Row};
use crate::overlay::Measured;
use crate::parallel::{self, Progress};
use crate::scenario::{Scenario, default_offered};
use crate::scenario_file::{self, ScenarioError};

/// How long an experiment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As long as the paper's.
    Full,
    /// Under half a minute; the ordering holds, intervals are wide.
    Quick,
}

/// Why an experiment did not end.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// Its scenario does not read.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Its expectations do not read.
    #[error(transparent)]
    Expected(#[from] ExpectedError),
    /// A controller refused its parameters.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// It was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// One experiment's place to run in.
#[derive(Debug)]
pub struct Lab {
    /// The scenario beside the experiment, with the seed that was asked for.
    pub scenario: Scenario,
    /// How long to run.
    pub length: Length,
    /// What the paper says.
    pub expected: Expected,
    /// What is done so far.
    pub progress: Arc<Progress>,
}

impl Lab {
    /// For `experiment`; `seed` overrides the scenario's.
    pub fn new(experiment: &Experiment, length: Length, seed: Option<u64>) -> Result<Lab, ExperimentError> {
        let file = format!("experiments/{}/scenario.toml", experiment.id);
        let mut scenario = scenario_file::parse(experiment.scenario, &file, &[])?;
        scenario.seed = seed.unwrap_or(scenario.seed);
        let expected = Expected::parse(experiment.expected)?;
        Ok(Lab { scenario, length, expected, progress: Arc::default() })
    }

    /// The paper's length, or a quick one.
    pub fn seconds(&self, full: u64, quick: u64) -> u64 {
        match self.length {
            Length::Full => full,
            Length::Quick => quick,
        }
    }

    /// The values of a full run, or of a quick one.
    pub fn choose<'v, T>(&self, full: &'v [T], quick: &'v [T]) -> &'v [T] {
        match self.length {
            Length::Full => full,
            Length::Quick => quick,
        }
    }

    /// The experiment's scenario with another controller, its parameters at their defaults.
    pub fn with_controller(&self, controller: &'static Entry) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.overlay.controller = controller;
        scenario.overlay.parameters = toml::Table::new();
        scenario.overlay.offered = default_offered(controller);
        scenario
    }

    /// Every registered controller.
    pub fn controllers(&self) -> impl Iterator<Item = &'static Entry> {
        CONTROLLERS.iter()
    }

    /// Every registered controller that learns a rate for each peer.
    pub fn learners(&self) -> impl Iterator<Item = &'static Entry> {
        CONTROLLERS.iter().filter(|entry| matches!(entry.build, Build::Anywhere(_)) && entry.name != "random")
    }

    /// Runs all of them on all cores; the results are in the order of the scenarios.
    pub fn run_all(&self, scenarios: &[Scenario]) -> Result<Vec<Measured>, ExperimentError> {
        let measured = parallel::run_all(scenarios, None, &self.progress, |_, measured| measured)?;
        // One that was stopped is none.
        let Some(measured) = measured.into_iter().collect::<Option<Vec<Measured>>>() else {
            return Err(ExperimentError::Interrupted);
        };
        for (scenario, measured) in scenarios.iter().zip(&measured) {
            assert_eq!(scenario.overlay.controller.name, measured.controller, "another controller ran");
        }
        Ok(measured)
    }

    /// Our figure beside the paper's, judged.
    pub fn row(&self, subject: &str, metric: &str, unit: &str, ours: Option<f64>) -> Row {
        self.expected.row(subject, metric, unit, ours)
    }
}

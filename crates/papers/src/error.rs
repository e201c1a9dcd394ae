//! Why an experiment did not end.

use std::convert::Infallible;

use anabranch_control::policy::PolicyError;
use anabranch_control::registry::UnknownController;
use anabranch_env::SpecError;
use anabranch_lab::flows::FlowRunError;
use anabranch_lab::onion::OnionRunError;
use anabranch_lab::overlay::OverlayRunError;
use anabranch_lab::stream::StreamRunError;
use anabranch_lab::sweep::PointError;
use anabranch_scenario::file::ScenarioError;
use anabranch_scenario::remy_table::TableError;

use super::expected::ExpectedError;

/// Why an experiment did not end.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// Its scenario does not read.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Its expectations do not read.
    #[error(transparent)]
    Expected(#[from] ExpectedError),
    /// A run has no result.
    #[error(transparent)]
    Run(#[from] PointError),
    /// A controller that was asked for does not exist.
    #[error(transparent)]
    Controller(#[from] UnknownController),
    /// The experiment is about certain controllers and takes no others.
    #[error("{0} takes no --controllers: it is about those that the paper compares in it")]
    FixedControllers(&'static str),
    /// A file that the environment names is no table of Remy's rules.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The experiment does not run on real packets.
    #[error("{id} does not run on real packets; those that do: {others}")]
    NotOnPackets {
        /// The experiment.
        id: &'static str,
        /// Those that do.
        others: String,
    },
    /// A setting that was asked for does not exist.
    #[error("{id} has no setting \"{name}\"; {}", settings_of(.known))]
    NoSetting {
        /// The experiment.
        id: &'static str,
        /// What was asked for.
        name: String,
        /// The settings that there are.
        known: Vec<&'static str>,
    },
    /// A setting on sockets was asked for by name, and nothing that sends there was given.
    #[error("the setting \"{0}\" is on real sockets and takes real time: add --sockets")]
    NeedsSockets(String),
    /// An experiment without settings on sockets was asked to run there.
    #[error("{id} has nothing that runs on sockets; those that have: {others}")]
    NotOnSockets {
        /// The experiment.
        id: &'static str,
        /// Those that do.
        others: String,
    },
    /// Real packets were not carried.
    #[error("{0}")]
    Testbed(String),
    /// A policy's file does not read, or it is for something else.
    #[error("{0}")]
    Policy(String),
    /// It is for another environment.
    #[error(transparent)]
    Reading(#[from] PolicyError),
    /// There is no such environment.
    #[error(transparent)]
    Environment(#[from] SpecError),
    /// An experiment without policies was given some.
    #[error("{id} plays no policies; those that do: {others}")]
    NotLearned {
        /// The experiment.
        id: &'static str,
        /// Those that do.
        others: String,
    },
    /// It was interrupted.
    #[error("interrupted")]
    Interrupted,
}

fn settings_of(known: &[&str]) -> String {
    let quoted = |name: &&str| format!("\"{name}\"");
    match known {
        [] => "it has one alone".to_owned(),
        _ => format!("it has {}", known.iter().map(quoted).collect::<Vec<_>>().join(", ")),
    }
}

macro_rules! of_runs {
    ($($error:ty),+) => {
        $(impl From<$error> for ExperimentError {
            fn from(error: $error) -> ExperimentError {
                ExperimentError::Run(error.into())
            }
        })+
    };
}

of_runs!(OverlayRunError, FlowRunError, OnionRunError, StreamRunError);

impl From<Infallible> for ExperimentError {
    fn from(never: Infallible) -> ExperimentError {
        match never {}
    }
}

//! What is asked of an experiment.

use std::path::PathBuf;
use std::sync::Arc;

use anabranch_lab::parallel::Progress;

use super::loopback::Loopback;
use super::packets::Medium;

/// How long an experiment runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// As long as the paper's.
    #[default]
    Full,
    /// Under half a minute; the ordering holds, intervals are wide.
    Quick,
}

/// What is asked of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// How long it runs.
    pub length: Length,
    /// The seed instead of the scenario's.
    pub seed: Option<u64>,
    /// The controllers instead of the paper's, by name; `all` is every registered one.
    pub controllers: Vec<String>,
    /// Only these settings of an experiment that has several; all if none is named.
    pub settings: Vec<String>,
    /// Where its packets are.
    pub medium: Medium,
    /// What sends files over sockets, for the settings that are there; without it they are left out.
    pub loopback: Option<Arc<dyn Loopback>>,
    /// A folder of policies that `python -m anabranch.train.c3` has filled, in place of the repository's.
    pub policies: Option<PathBuf>,
    /// Where it reports how far it is, and is asked to stop.
    pub progress: Arc<Progress>,
}

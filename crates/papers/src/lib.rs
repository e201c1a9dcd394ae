//! The papers' experiments: each runs its scenario, measures what the paper shows,
//! and judges its own figures by expectations that stand beside the scenario.

mod c3;
mod efthymiopoulos;
mod error;
mod expected;
mod experiment_lab;
mod findings;
mod folder;
mod learners;
mod learningcc;
mod loopback;
mod of_runs;
mod onion;
mod onion_cover;
mod packets;
mod quick_verdicts;
mod raiber;
mod registry;
mod remy_golden;
mod remy_tables;
mod request;
mod runs;
mod streams;
pub mod validate;
mod verdict;
mod xavier;

pub use error::ExperimentError;
pub use expected::{Expected, ExpectedError};
pub use experiment_lab::{AttackLab, FlowLab, Lab, OnionLab, StreamLab};
pub use findings::{Findings, Row, Summary};
pub use folder::Folder;
pub use loopback::{Arrived, Course, FileOverRelays, Loopback};
pub use packets::{Medium, Testbed};
pub use registry::{EXPERIMENTS, Experiment, UnknownExperiment, find};
pub use request::{Length, Request};
pub use verdict::{Kind, Tally, Totals, Verdict};

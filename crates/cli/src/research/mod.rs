//! The verbs of the feature `research`: scenarios, experiments and benchmarks, and the coordination of links.

mod agent;
mod bench;
mod compare;
mod coordinate;
mod emulate;
mod memory;
pub mod progress;
mod python;
mod reproduce;
pub mod run;
mod soak;
mod sweep;
mod threads;
mod validate;
mod words;

use clap::Subcommand;

use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a scenario and say what it measured
    Run(run::Args),
    /// Run a scenario over a grid of values and seeds, on all cores
    Sweep(sweep::Args),
    /// Run a scenario of flows, or of a stream, on real packets over links that are emulated
    Emulate(emulate::Args),
    /// Run a scenario of flows, or of a stream, in the simulator and on real packets, side by side
    Compare(compare::Args),
    /// Run a paper's experiment and show our figures beside the paper's
    Reproduce(reproduce::Args),
    /// Hold every model against formulas and other programs
    Validate(validate::Args),
    /// Measure how fast we are on this machine
    Bench(bench::Args),
    /// Send files through simulated networks in which everything goes wrong
    Soak(soak::Args),
    /// Divide links among the hosts that send over them, many times a second
    Coordinate(coordinate::Args),
    /// Report to a coordinator what a host sends, and keep to what it gives
    Agent(agent::Args),
}

impl Verb {
    pub fn run(&self) -> Result<(), Failure> {
        match self {
            Verb::Run(args) => run::run(args),
            Verb::Sweep(args) => sweep::run(args),
            Verb::Emulate(args) => emulate::run(args),
            Verb::Compare(args) => compare::run(args),
            Verb::Reproduce(args) => reproduce::run(args),
            Verb::Validate(args) => validate::run(args),
            Verb::Bench(args) => bench::run(args),
            Verb::Soak(args) => soak::run(args),
            Verb::Coordinate(args) => coordinate::run(args),
            Verb::Agent(args) => agent::run(args),
        }
    }
}

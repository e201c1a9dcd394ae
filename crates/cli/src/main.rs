//! The `anabranch` command. One file for each verb; this one only names them.

mod bench;
mod controllers;
mod failure;
mod number;
mod progress;
mod reproduce;
mod run;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Congestion control that learns, for networks with many parallel paths.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the controllers, what each does and where it comes from
    Controllers(controllers::Args),
    /// Measure how fast we are on this machine
    Bench(bench::Args),
    /// Run a paper's experiment and show our figures beside the paper's
    Reproduce(reproduce::Args),
    /// Run a scenario and say what it measured
    Run(run::Args),
    /// Run a scenario over a grid of values and seeds, on all cores
    Sweep(sweep::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Controllers(args) => controllers::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Reproduce(args) => reproduce::run(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Sweep(args) => sweep::run(&args),
    };
    result.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

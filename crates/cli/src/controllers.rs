//! `anabranch controllers`: what can be asked for by name.

use anabranch_control::path::registry::{Build, CONTROLLERS};

use crate::failure::Failure;

/// Arguments of `controllers`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Prints a line for each controller.
pub fn run(_args: &Args) -> Result<(), Failure> {
    let width = CONTROLLERS.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    for entry in CONTROLLERS {
        let place = match entry.build {
            Build::Anywhere(_) => "simulation, real network",
            Build::Omniscient => "simulation only",
        };
        println!("{:width$}  {} ({place}; {})", entry.name, entry.summary, entry.source);
    }
    Ok(())
}

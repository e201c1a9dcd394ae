//! `anabranch controllers`: what can be asked for by name.

use anabranch_control::flow::registry as flow;
use anabranch_control::path::registry::{self as path, Build};

use crate::failure::Failure;
use crate::printer::print_line;

/// Arguments of `controllers`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Prints a line for each controller.
pub fn run(_args: &Args) -> Result<(), Failure> {
    let names =
        path::CONTROLLERS.iter().map(|entry| entry.name).chain(flow::CONTROLLERS.iter().map(|entry| entry.name));
    let width = names.map(str::len).max().unwrap_or(0);
    print_line!("Path controllers: a rate for each peer, other relays for each packet")?;
    for entry in path::CONTROLLERS {
        let place = match entry.build {
            Build::Anywhere(_) | Build::Flow(_) => "simulation, real network",
            Build::Omniscient => "simulation only",
        };
        print_line!("  {:width$}  {} ({place}; {})", entry.name, entry.summary, entry.source)?;
    }
    print_line!(
        "\nFlow controllers: one sender's window and pacing rate; as flow:NAME, one for each peer of an overlay"
    )?;
    for entry in flow::CONTROLLERS {
        let needs = entry.needs().map_or(String::new(), |needs| format!("; needs {needs}"));
        print_line!("  {:width$}  {} ({}{needs})", entry.name, entry.summary, entry.source)?;
    }
    Ok(())
}

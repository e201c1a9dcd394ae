//! `anabranch bench`: how fast we are on this machine, as figures.

mod dumbbell;
mod overlay;
mod processor_time;
mod quic;

use clap::Subcommand;

use crate::failure::Failure;

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Packet-hops a second of the overlay simulator, over the number of peers
    Overlay(overlay::Args),
    /// Data packets a CPU second over the bottleneck of a dumbbell, for each flow controller
    Dumbbell(dumbbell::Args),
    /// Goodput and processor time of QUIC on loopback, for each flow controller
    Quic(quic::Args),
}

/// Runs the benchmark that was asked for.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Overlay(args) => overlay::run(args),
        What::Dumbbell(args) => dumbbell::run(args),
        What::Quic(args) => quic::run(args),
    }
}

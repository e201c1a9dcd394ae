//! `anabranch onion`: the overlay in which every packet takes another path.

mod attack;

use clap::Subcommand;

use crate::failure::Failure;

/// Arguments of `onion`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say what somebody sees who runs some of the relays, and how often that is enough
    Attack(attack::Args),
}

/// Does what is asked.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.verb {
        Verb::Attack(args) => attack::run(args),
    }
}

//! `anabranch quic`: a file over QUIC, with any flow controller. tokio lives within these
//! verbs only.

mod receive;
mod send;

use clap::Subcommand;

use crate::failure::Failure;

/// Arguments of `quic`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Send a file
    Send(send::Args),
    /// Take files
    Receive(receive::Args),
}

/// Runs the verb that was asked for.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Send(args) => send::run(args),
        What::Receive(args) => receive::run(args),
    }
}

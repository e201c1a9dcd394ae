//! `anabranch stream`: live video from one upload to many viewers, over the viewers themselves.

pub mod demo;
mod events;
pub mod local;
mod metrics;
mod overview;
mod serve;
mod status;
mod watch;

use crate::failure::Failure;

/// Arguments of `stream`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Serve a live stream: print a link by which others watch
    Serve(serve::Args),
    /// Serve a test picture to many viewers on this machine, kill some, and measure
    Demo(demo::Args),
    /// Watch a live stream by its link, and pass it on to others
    Watch(watch::Args),
}

/// Serves or watches until Ctrl-C.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Serve(args) => serve::run(args),
        What::Demo(args) => demo::run(args),
        What::Watch(args) => watch::run(args),
    }
}

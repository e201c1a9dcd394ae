//! `anabranch quic`: a file over QUIC, with any flow controller. tokio lives within these
//! verbs only.

mod receive;
mod send;

use std::future::Future;
use std::time::Duration;

use clap::Subcommand;
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// How often the display is renewed and Ctrl-C is looked for.
const TICK: Duration = Duration::from_millis(50);

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

/// A runtime of this thread.
pub fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(format!("cannot start: {error}")))
}

/// What `work` gives, or nothing once Ctrl-C has come; calls `show` now and then.
pub async fn until_interrupted<T>(
    interrupt: &Interrupt,
    mut show: impl FnMut(),
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(work);
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            done = &mut work => return Some(done),
            _ = ticks.tick() => {
                show();
                if interrupt.is_raised() {
                    return None;
                }
            }
        }
    }
}

//! tokio's runtime, for verbs that speak QUIC with one peer, and waiting in it until Ctrl-C.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// How often the display is renewed and Ctrl-C is looked for.
pub const TICK: Duration = Duration::from_millis(50);

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

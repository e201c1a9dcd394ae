//! Flows under QUIC: one thread for all senders with their applications, one for all
//! receivers. A connection has one stream, and always shakes hands.

pub mod receivers;
pub mod senders;

use std::time::Duration;

use anabranch_control::time::Time;
use anabranch_net::clock::{Clock, std_duration};
use tokio::runtime::Runtime;

use super::failure::TestbedFailure;

/// Bytes written or read at once.
const CHUNK: usize = 1 << 16;

fn runtime() -> Result<Runtime, TestbedFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(TestbedFailure::sockets("drive QUIC"))
}

/// Sleeps until `at`, but no longer than `longest`.
async fn sleep_until(clock: Clock, at: Time, longest: Duration) {
    tokio::time::sleep(std_duration(at.since(clock.now())).min(longest)).await;
}

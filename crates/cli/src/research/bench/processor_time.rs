//! Time that this thread has spent on a processor, so that other programs disturb a
//! measurement little.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Since the thread began.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

//! Threads that wake up on time.

use std::num::NonZeroU64;

use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// Lets this thread's sleeps end when they should: the kernel may prolong them by 50 us if
/// nobody asks for less.
pub(crate) fn sleep_exactly() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Lets this thread go before all that have no such priority (`SCHED_FIFO`), if the system
/// allows it; whether it does.
pub(crate) fn go_first() -> bool {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy).is_ok()
}

//! The one place where a clock is read.

use std::time::Instant;

use anabranch_control::time::{Duration, Time};

/// Time since it was started.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock at `Time::ZERO`.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Now.
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The span as the standard library has it.
pub fn std_duration(span: Duration) -> std::time::Duration {
    std::time::Duration::from_nanos(span.as_nanos())
}

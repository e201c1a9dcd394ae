//! Time as calendars have it. A machine's own clock knows only how long it runs; who drives it says
//! once what that is on the wall.

use core::fmt;

use anabranch_control::time::{Duration, Time};
use serde::{Deserialize, Serialize};

/// Whole seconds since 1970 began (POSIX time).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnixTime(pub u64);

/// A day, in seconds.
pub const DAY: u64 = 86_400;

impl UnixTime {
    /// Seconds from `earlier` to this; 0 if `earlier` is in fact later.
    pub fn since(self, earlier: UnixTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This many seconds later.
    pub fn after(self, seconds: u64) -> UnixTime {
        UnixTime(self.0.saturating_add(seconds))
    }
}

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s after 1970 began", self.0)
    }
}

/// What a machine's time is on the wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// POSIX time in nanoseconds when the machine's time is zero.
    at_zero: u64,
}

impl WallClock {
    /// The clock of which a driver reads `wall` at `now`; until the year 2554.
    pub fn new(now: Time, wall: core::time::Duration) -> WallClock {
        let nanos = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        WallClock { at_zero: nanos.saturating_sub(now.as_nanos()) }
    }

    /// What is on the wall at `now`.
    pub fn read(&self, now: Time) -> UnixTime {
        UnixTime(self.nanos(now) / Duration::SECOND.as_nanos())
    }

    /// The same in nanoseconds.
    pub fn nanos(&self, now: Time) -> u64 {
        self.at_zero.saturating_add(now.as_nanos())
    }

    /// When this many nanoseconds are on the wall; zero if that was before the machine began.
    pub fn time(&self, nanos: u64) -> Time {
        Time::from_nanos(nanos.saturating_sub(self.at_zero))
    }
}

//! What a sender that may or may not send waits for.

use crate::time::Time;

/// Whether something may leave now, and if not, what may change that.
///
/// `T` is what leaves: nothing but the permission where a controller is asked, a packet where a
/// sender is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake<T = ()> {
    /// This may leave now.
    DepartNow(T),
    /// Nothing may leave before this instant, unless an outcome changes that.
    WaitUntil(Time),
    /// Only the outcome of a packet in flight (an ACK, a missed deadline), or a packet that the
    /// application has yet to hand over, can change that nothing may leave.
    AwaitOutcome,
}

impl Wake {
    /// The wait until `time`: over if that is `now` or was before, endless if it is `Time::MAX`.
    #[inline]
    pub fn at(time: Time, now: Time) -> Wake {
        if time <= now {
            Wake::DepartNow(())
        } else if time == Time::MAX {
            Wake::AwaitOutcome
        } else {
            Wake::WaitUntil(time)
        }
    }

    /// The wait for both: what waits for an outcome waits for it whatever the time.
    #[inline]
    pub fn and(self, other: Wake) -> Wake {
        match (self, other) {
            (Wake::DepartNow(()), wake) | (wake, Wake::DepartNow(())) => wake,
            (Wake::WaitUntil(a), Wake::WaitUntil(b)) => Wake::WaitUntil(a.max(b)),
            _ => Wake::AwaitOutcome,
        }
    }
}

impl<T> Wake<T> {
    /// When to ask again if there is no outcome before: never before `now`.
    #[inline]
    pub fn time(&self, now: Time) -> Time {
        match self {
            Wake::DepartNow(_) => now,
            Wake::WaitUntil(time) => (*time).max(now),
            Wake::AwaitOutcome => Time::MAX,
        }
    }

    /// The same wait for another thing that leaves.
    #[inline]
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Wake<U> {
        match self {
            Wake::DepartNow(value) => Wake::DepartNow(make(value)),
            Wake::WaitUntil(time) => Wake::WaitUntil(time),
            Wake::AwaitOutcome => Wake::AwaitOutcome,
        }
    }

    /// What leaves now, if something does.
    #[inline]
    pub fn departs(self) -> Option<T> {
        match self {
            Wake::DepartNow(value) => Some(value),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanos(1000);
    const LATER: Time = Time::from_nanos(2000);

    #[test]
    fn a_wait_is_never_for_the_past() {
        for past in [Time::ZERO, Time::from_nanos(999), NOW] {
            assert_eq!(Wake::at(past, NOW), Wake::DepartNow(()));
            assert_eq!(Wake::<()>::WaitUntil(past).time(NOW), NOW);
        }
        assert_eq!(Wake::at(LATER, NOW), Wake::WaitUntil(LATER));
        assert_eq!(Wake::at(Time::MAX, NOW), Wake::AwaitOutcome);
    }

    #[test]
    fn the_wait_for_both_is_the_longer_one() {
        let waits = [Wake::DepartNow(()), Wake::WaitUntil(NOW), Wake::WaitUntil(LATER), Wake::AwaitOutcome];
        for (a, first) in waits.iter().enumerate() {
            for (b, second) in waits.iter().enumerate() {
                assert_eq!(first.and(*second), waits[a.max(b)]);
            }
        }
    }
}

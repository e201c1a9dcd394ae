//! A token bucket, as the time at which it will be full: what may happen so often in the long run, and so often at once.

use anabranch_control::time::{Duration, Time};

/// One that is full at first. Its rate and depth are its user's, who says them each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucket {
    full_at: Time,
}

impl TokenBucket {
    /// Takes one token, which comes back after `each`, if no more than `depth` are missing then.
    pub fn take(&mut self, now: Time, each: Duration, depth: u64) -> bool {
        let full_at = self.full_at.max(now) + each;
        let allows = full_at.since(now) <= each * depth;
        if allows {
            self.full_at = full_at;
        }
        allows
    }

    /// Gives one back.
    pub fn put(&mut self, now: Time, each: Duration) {
        self.full_at = self.full_at.before(each).max(now);
    }

    /// Whether none is missing.
    pub fn is_full(&self, now: Time) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depth_is_taken_at_once_and_then_what_comes_back() {
        let (each, depth) = (Duration::from_millis(100), 32);
        let mut bucket = TokenBucket::default();
        let start = Time::ZERO + Duration::SECOND;
        assert_eq!((0..100).filter(|_| bucket.take(start, each, depth)).count(), 32);
        let taken = (1..=1000).filter(|ms| bucket.take(start + Duration::from_millis(*ms), each, depth)).count();
        assert_eq!(taken, 10);
        assert!(!bucket.is_full(start + Duration::SECOND));
        assert!(bucket.is_full(start + Duration::SECOND + each * depth));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_never_overflows() {
        let (each, depth, now) = (Duration::SECOND, 2, Time::ZERO + Duration::SECOND);
        let mut bucket = TokenBucket::default();
        bucket.put(now, each);
        assert_eq!((0..5).filter(|_| bucket.take(now, each, depth)).count(), 2);
        bucket.put(now, each);
        assert_eq!((0..5).filter(|_| bucket.take(now, each, depth)).count(), 1);
    }
}

//! How many packets of one peer are read: a bucket of them, so that a flood costs the others no more of the
//! processor than its share. What is beyond is thrown away before it is decrypted; whoever sends it takes it for
//! lost, and slows down if it is honest.

use anabranch_control::time::{Duration, Time};

/// A peer may use up at once what it may send in this time.
const BURST: Duration = Duration::from_millis(100);

/// The packets of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    /// When the bucket will be full again.
    full_at: Time,
}

impl Budget {
    /// A packet comes, of which a peer may send `most` a second: whether it is read.
    pub fn admit(&mut self, now: Time, most: u32) -> bool {
        let after = self.full_at.max(now) + Duration::SECOND / u64::from(most.max(1));
        let may = after.since(now) <= BURST.max(Duration::SECOND / u64::from(most.max(1)));
        if may {
            self.full_at = after;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_read_up_to_the_burst_and_then_at_the_rate() {
        let (mut budget, mut now) = (Budget::default(), Time::from_nanos(1));
        let at_once = (0..10_000).filter(|_| budget.admit(now, 2000)).count();
        assert_eq!(at_once, 200, "100 ms of 2000 packets a second");
        let mut read = 0;
        for _ in 0..1000 {
            now += Duration::from_millis(1);
            read += (0..50).filter(|_| budget.admit(now, 2000)).count();
        }
        assert_eq!(read, 2000);
        now += Duration::SECOND;
        assert_eq!((0..10_000).filter(|_| budget.admit(now, 2000)).count(), 200, "no more is saved");
    }
}

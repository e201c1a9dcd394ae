//! Pacing: when the next packet may leave so that no more than a rate passes, apart from
//! a burst after a pause (RFC 9002, 7.7).

use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};

/// Says when the next packet may leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    /// When all that has left will have passed at the rate.
    caught_up: Time,
}

impl Pacer {
    /// The first packet may leave at `at`.
    pub const fn free_from(at: Time) -> Pacer {
        Pacer { caught_up: at }
    }

    /// When the next packet may leave; in the past if it may leave now.
    #[inline]
    pub fn release(&self) -> Time {
        self.caught_up
    }

    /// Notes that `size` left at `now` under `rate`, of which `burst` may leave at once
    /// after a pause.
    #[inline]
    pub fn on_sent(&mut self, now: Time, size: Bytes, rate: Rate, burst: Bytes) {
        self.charge(now, burst / rate, size / rate);
    }

    /// Notes that at `now` a packet left that takes `time` at the rate. Of the time that was not
    /// used before, no more than `spare` counts.
    #[inline]
    pub fn charge(&mut self, now: Time, spare: Duration, time: Duration) {
        let earliest = Time::from_nanos(now.as_nanos().saturating_sub(spare.as_nanos()));
        self.caught_up = self.caught_up.max(earliest) + time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_bytes_per_sec(1_000_000);
    const SIZE: Bytes = Bytes::new(1000);

    fn sent_until(pacer: &mut Pacer, end: Time, burst: Bytes) -> u64 {
        let mut now = Time::ZERO;
        let mut count = 0;
        while now < end {
            pacer.on_sent(now, SIZE, RATE, burst);
            count += 1;
            now = now.max(pacer.release());
        }
        count
    }

    #[test]
    fn a_second_passes_what_the_rate_allows_and_the_burst_once() {
        assert_eq!(sent_until(&mut Pacer::default(), Time::from_secs_f64(1.0), Bytes::ZERO), 1000);
        let mut late = Pacer { caught_up: Time::ZERO };
        let start = Time::from_secs_f64(5.0);
        let burst = (0..100).take_while(|_| {
            let ready = late.release() <= start;
            if ready {
                late.on_sent(start, SIZE, RATE, SIZE * 9);
            }
            ready
        });
        assert_eq!(burst.count(), 10);
    }
}

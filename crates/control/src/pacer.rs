//! Pacing: when the next packet may leave so that no more than a rate passes, apart from
//! a burst after a pause (RFC 9002, 7.7).

use crate::time::{Duration, Seconds, Time};
use crate::units::{Bytes, PacketRate, Packets, Rate, WindowUnit};

/// A rate that rises by this factor at once was held down by somebody else: no controller's start is so steep.
const FAR: u64 = 16;

/// What may be saved up of packets a second, and for how long if that is more: what a millisecond carries leaves a host
/// together anyway, as in Linux's TCP (`sk_pacing_shift`), for timers and other processes wake a sender no more
/// punctually.
const SAVED_UP: Packets = Packets::ONE;
const SAVED_UP_SPAN: Seconds = Seconds(0.001);

/// How many packets may leave at once of `rate`.
#[inline]
pub fn burst_of(rate: PacketRate) -> Packets {
    (rate * SAVED_UP_SPAN).max(SAVED_UP)
}

/// When all that has left will have passed at the rate, if so far it would have by `due`, and at `now` a packet leaves
/// that takes `time` at it: of the time that was not used before, no more than `spare` counts (GCRA, ITU-T I.371).
#[inline]
pub fn charged(due: Time, now: Time, spare: Duration, time: Duration) -> Time {
    due.max(now.before(spare)) + time
}

/// Says when the next packet may leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    /// When all that has left will have passed at the rate.
    caught_up: Time,
    /// When the last packet left.
    left: Time,
}

impl Pacer {
    /// The first packet may leave at `at`.
    pub const fn free_from(at: Time) -> Pacer {
        Pacer { caught_up: at, left: Time::ZERO }
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
        self.caught_up = charged(self.caught_up, now, spare, time);
        self.left = now;
    }

    /// The rate is `after` and was `before`. Where it is far more than it was, the next packet, of `size`, does not
    /// wait out the old one: at a rate of next to nothing, that somebody has set and lifted again, it would wait for
    /// hours. What controllers do by themselves, doubling among it, moves no packet that has its time.
    #[inline]
    pub fn on_rate(&mut self, before: Option<Rate>, after: Option<Rate>, size: Bytes) {
        if let (Some(before), Some(after)) = (before, after)
            && after.bits_per_sec() / FAR > before.bits_per_sec()
        {
            self.caught_up = self.caught_up.min(self.left + size / after);
        }
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
    fn a_rate_that_rises_much_is_not_waited_for_at_the_old_one() {
        let now = Time::from_secs_f64(1.0);
        let (slow, faster) = (Rate::from_bits_per_sec(1), Rate::from_bytes_per_sec(15_000_000));
        let mut pacer = Pacer::default();
        pacer.on_sent(now, SIZE, slow, Bytes::ZERO);
        assert!(pacer.release() > Time::from_secs_f64(7000.0));
        pacer.on_rate(Some(slow), Some(RATE), SIZE);
        assert_eq!(pacer.release(), now + Duration::from_millis(1));
        // A rate that only grows, as most do, changes nothing of what was promised; nor does one that falls, or none.
        for (before, after) in
            [(Some(RATE), Some(faster)), (Some(RATE), Some(slow)), (Some(RATE), None), (None, Some(RATE))]
        {
            pacer.on_rate(before, after, SIZE);
            assert_eq!(pacer.release(), now + Duration::from_millis(1));
        }
    }

    #[test]
    fn a_second_passes_what_the_rate_allows_and_the_burst_once() {
        assert_eq!(sent_until(&mut Pacer::default(), Time::from_secs_f64(1.0), Bytes::ZERO), 1000);
        let mut late = Pacer::default();
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

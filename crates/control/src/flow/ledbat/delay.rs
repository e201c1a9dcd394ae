//! The queueing delay as both LEDBATs see it: the least of the last few round trips above
//! the least of the last ten minutes (RFC 6817 2.4.2).
//!
//! RFC 6817 measures one-way delays, so that a queue on the way back is none of its
//! business. Our feedback has round trips only, as LEDBAT++ wants them
//! (draft-irtf-iccrg-ledbat-plus-plus-01 4.5), so a queue for ACKs counts too.

use crate::filter::WindowedMin;
use crate::time::{Duration, Time};

/// Minutes of the base delay's history (BASE_HISTORY, RFC 6817 2.5).
const BASE_MINUTES: u64 = 10;

const MINUTE_NS: u64 = 60_000_000_000;

/// Most samples of the filter for the current delay.
pub const MAX_SAMPLES: usize = 16;

/// The base delay, and the delay above it.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    /// One minimum for each minute.
    base: WindowedMin,
    /// The last samples, in a ring.
    current: [Duration; MAX_SAMPLES],
    samples: usize,
    next: usize,
    queueing: Duration,
}

impl Delay {
    /// Nothing yet; the current delay will be the least of `samples` round trips
    /// (CURRENT_FILTER).
    pub fn new(samples: usize) -> Delay {
        Delay {
            base: WindowedMin::new(BASE_MINUTES),
            current: [Duration::from_nanos(u64::MAX); MAX_SAMPLES],
            samples: samples.clamp(1, MAX_SAMPLES),
            next: 0,
            queueing: Duration::ZERO,
        }
    }

    /// Adds a round trip; none was ever shorter than `least`, which rises only where receivers come and
    /// go.
    #[inline]
    pub fn update(&mut self, now: Time, rtt: Duration, least: Duration) {
        self.current[self.next] = rtt;
        self.next = (self.next + 1) % self.samples;
        let current = self.current[..self.samples].iter().copied().min().unwrap_or(rtt);
        let base = self.base.update(now.as_nanos() / MINUTE_NS, rtt.as_nanos());
        self.queueing = current - Duration::from_nanos(base).max(least);
    }

    /// The queueing delay.
    #[inline]
    pub fn queueing(&self) -> Duration {
        self.queueing
    }

    /// The base delay, once there is a sample.
    #[inline]
    pub fn base(&self) -> Option<Duration> {
        Some(self.base.get()).filter(|base| *base < u64::MAX).map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_forgotten_after_ten_minutes_and_one_low_sample_hides_a_queue() {
        let ms = Duration::from_millis;
        let mut delay = Delay::new(4);
        for minute in 0..10u64 {
            let rtt = if minute == 0 { ms(100) } else { ms(150) };
            for second in 0..60 {
                delay.update(Time::ZERO + ms(1000 * (60 * minute + second)), rtt, Duration::ZERO);
            }
        }
        assert_eq!((delay.base(), delay.queueing()), (Some(ms(100)), ms(50)));
        delay.update(Time::ZERO + ms(600_000), ms(150), Duration::ZERO);
        assert_eq!((delay.base(), delay.queueing()), (Some(ms(150)), ms(0)));
        for sample in 0..8 {
            delay.update(Time::ZERO + ms(601_000), ms(if sample == 4 { 170 } else { 250 }), Duration::ZERO);
            assert_eq!(delay.queueing() == ms(100), sample == 3, "sample {sample}");
        }
    }
}

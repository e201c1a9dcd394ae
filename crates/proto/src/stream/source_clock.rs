//! How old a packet is, for somebody who does not share the source's clock: the time since it would
//! have come, had it come as fast as the fastest of the last half minute.

use anabranch_control::filter::WindowedMin;
use anabranch_control::time::{Duration, Time};

use super::packet::Stamp;

/// The fastest of this many seconds counts: clocks drift apart by 50 ppm, 1.5 ms in that time, and a
/// route that has become longer is known after it.
const WINDOW_S: u64 = 30;

/// Added to differences, so that none is negative, whichever clock began first.
const BIAS_NS: u64 = 1 << 62;

/// Estimates the source's clock.
#[derive(Clone, Debug)]
pub struct SourceClock {
    /// Least of when a packet came less when it left the source, and the bias.
    offset: WindowedMin,
    has_sample: bool,
    /// When the last packet left the source, in milliseconds since the stream began: what stamps are near to.
    last_millis: u64,
}

impl Default for SourceClock {
    fn default() -> SourceClock {
        SourceClock { offset: WindowedMin::new(WINDOW_S), has_sample: false, last_millis: 0 }
    }
}

impl SourceClock {
    /// A packet that left the source at `stamp` is here.
    #[inline]
    pub fn on_arrival(&mut self, now: Time, stamp: Stamp) {
        self.last_millis = if self.has_sample { stamp.millis_near(self.last_millis) } else { u64::from(stamp.0) };
        // A source may lie about its time: each stamp may be 24.8 days after the last.
        let difference = (BIAS_NS + now.as_nanos()).saturating_sub(self.last_millis.saturating_mul(1_000_000));
        self.offset.update(now.as_nanos() / 1_000_000_000, difference);
        self.has_sample = true;
    }

    /// When a packet that left the source at `stamp` would have come if it was among the fastest; none
    /// before the first packet.
    #[inline]
    pub fn expected(&self, stamp: Stamp) -> Option<Time> {
        let left = || stamp.millis_near(self.last_millis).saturating_mul(1_000_000);
        let at = || self.offset.get().saturating_add(left()).saturating_sub(BIAS_NS);
        self.has_sample.then(|| Time::from_nanos(at()))
    }

    /// The stamp of what would come at `now` if it was among the fastest; none before the first packet.
    pub fn stamp(&self, now: Time) -> Option<Stamp> {
        let elapsed = (BIAS_NS + now.as_nanos()).saturating_sub(self.offset.get());
        self.has_sample.then_some(Stamp((elapsed / 1_000_000) as u32))
    }

    /// How long ago that was; zero before the first packet.
    #[inline]
    pub fn age(&self, now: Time, stamp: Stamp) -> Duration {
        self.expected(stamp).map_or(Duration::ZERO, |expected| now.since(expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn the_fastest_packet_shows_when_others_would_have_come() {
        let mut clock = SourceClock::default();
        assert_eq!(clock.expected(Stamp(0)), None);
        // The stream began 5000 s before this host; packets take 80, 40 and 60 ms.
        for (stamp, delay) in [(5_000_000, 80), (5_000_100, 40), (5_000_200, 60)] {
            clock.on_arrival(at(u64::from(stamp) - 5_000_000 + delay), Stamp(stamp));
        }
        assert_eq!(clock.expected(Stamp(5_000_300)), Some(at(340)));
        assert_eq!(clock.age(at(400), Stamp(5_000_300)), Duration::from_millis(60));
        assert_eq!(clock.age(at(300), Stamp(5_000_300)), Duration::ZERO);
        assert_eq!(clock.stamp(at(340)), Some(Stamp(5_000_300)));
    }

    #[test]
    fn a_route_that_has_become_longer_is_known_after_half_a_minute() {
        let mut clock = SourceClock::default();
        for second in 0..100 {
            let delay = if second < 50 { 20 } else { 120 };
            clock.on_arrival(at(1000 * second + delay), Stamp(1000 * second as u32));
        }
        assert_eq!(clock.expected(Stamp(100_000)), Some(at(100_120)));
    }

    #[test]
    fn stamps_that_begin_again_after_49_days_are_of_a_stream_that_goes_on() {
        let mut clock = SourceClock::default();
        let begun = u64::from(u32::MAX) - 5_000;
        for millis in (0..60_000).step_by(100) {
            clock.on_arrival(at(millis + 40), Stamp((begun + millis) as u32));
            assert_eq!(clock.expected(Stamp((begun + millis + 200) as u32)), Some(at(millis + 240)));
            assert_eq!(clock.age(at(millis + 90), Stamp((begun + millis) as u32)), Duration::from_millis(50));
        }
        assert_eq!(clock.stamp(at(60_040)), Some(Stamp((begun + 60_000) as u32)));
    }
    #[test]
    fn stamps_that_each_jump_by_24_days_end_in_no_overflow() {
        let mut clock = SourceClock::default();
        let jump = u32::MAX / 2;
        for count in 0..10_000 {
            let stamp = Stamp(jump.wrapping_mul(count));
            clock.on_arrival(at(100 * u64::from(count)), stamp);
            assert!(clock.expected(Stamp(stamp.0.wrapping_add(jump))).is_some() && clock.stamp(at(1)).is_some());
        }
    }
}

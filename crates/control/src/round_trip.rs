//! Round-trip time of one path, RFC 9002 section 5 (RFC 6298's filter, less what the
//! receiver says it waited before it answered).

use crate::flow::feedback::RoundTrip;
use crate::time::Duration;

/// The round-trip time before the first sample, RFC 9002 6.2.2.
pub const INITIAL_RTT: Duration = Duration::from_millis(333);

/// The clock's granularity in the probe timeout, RFC 9002 6.1.2.
const GRANULARITY: Duration = Duration::from_millis(1);

/// Smoothed round-trip time and its variation.
#[derive(Clone, Copy, Debug)]
pub struct RoundTripEstimator {
    smoothed: Duration,
    variation: Duration,
    min: Duration,
    latest: Duration,
    sampled: bool,
}

impl Default for RoundTripEstimator {
    fn default() -> RoundTripEstimator {
        RoundTripEstimator {
            smoothed: INITIAL_RTT,
            variation: INITIAL_RTT / 2,
            min: Duration::from_nanos(u64::MAX),
            latest: INITIAL_RTT,
            sampled: false,
        }
    }
}

impl RoundTripEstimator {
    /// Learns that an answer took `rtt`, of which the receiver waited `ack_delay`.
    #[inline]
    pub fn sample(&mut self, rtt: Duration, ack_delay: Duration) {
        self.latest = rtt;
        self.min = self.min.min(rtt);
        if !self.sampled {
            self.sampled = true;
            self.smoothed = rtt;
            self.variation = rtt / 2;
            return;
        }
        let adjusted = if rtt >= self.min + ack_delay { rtt - ack_delay } else { rtt };
        let (smoothed, adjusted_ns) = (self.smoothed.as_nanos(), adjusted.as_nanos());
        let deviation = smoothed.abs_diff(adjusted_ns);
        // rttvar = 3/4 rttvar + 1/4 |smoothed - adjusted|; smoothed = 7/8 smoothed + 1/8 adjusted
        self.variation = weigh(2, self.variation.as_nanos(), deviation);
        self.smoothed = weigh(3, smoothed, adjusted_ns);
    }

    /// What is reported to a controller; `sampled` says whether the latest sample is new.
    #[inline]
    pub fn report(&self, sampled: bool) -> RoundTrip {
        RoundTrip {
            latest: sampled.then_some(self.latest),
            smoothed: self.smoothed,
            variation: self.variation,
            min: self.min,
        }
    }

    /// Whether there was a sample.
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// How long after it left a packet is lost, if one that left later was acknowledged: 9/8 of the
    /// larger of the smoothed and the latest round trip (RFC 9002, 6.1.2). On a path that reorders, what is
    /// added to that larger one is `multiple` quarters of the least round trip (RFC 8985, 6.2, step 4) or
    /// `multiple` eighths of the larger one, whichever is longer, but no more than the smoothed one. The
    /// eighths are not in RFC 8985: where delays vary by half of their mean, the least is next to nothing.
    #[inline]
    pub fn loss_delay(&self, multiple: u64) -> Duration {
        let usual = self.smoothed.max(self.latest);
        let late = ((self.min / 4).max(usual / 8) * multiple).min(self.smoothed);
        (usual * 9 / 8).max(usual + late).max(GRANULARITY)
    }

    /// `PTO = smoothed + max(4 rttvar, granularity) + max_ack_delay` (RFC 9002, 6.2.1).
    #[inline]
    pub fn probe_timeout(&self, max_ack_delay: Duration) -> Duration {
        self.smoothed + (self.variation * 4).max(GRANULARITY) + max_ack_delay
    }
}

/// The mean of `kept` and `new` in which the new one weighs `1 / 2^shift`, in nanoseconds, rounded
/// down. A clock may say any time: where the sum of undivided ones may not fit, what of each is left
/// when it is divided is weighed apart.
#[inline]
fn weigh(shift: u32, kept: u64, new: u64) -> Duration {
    let weight = (1 << shift) - 1;
    let mean = if kept | new < 1 << (64 - shift) {
        (kept * weight + new) >> shift
    } else {
        let left = ((kept & weight) * weight + (new & weight)) >> shift;
        (kept >> shift) * weight + (new >> shift) + left
    };
    Duration::from_nanos(mean)
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_first_sample_sets_the_mean_and_half_of_it_the_variation() {
        let mut estimator = RoundTripEstimator::default();
        estimator.sample(MS(100), MS(20));
        let report = estimator.report(true);
        assert_eq!((report.smoothed, report.variation, report.min), (MS(100), MS(50), MS(100)));
    }

    #[test]
    fn what_the_receiver_waited_is_taken_off_but_never_below_the_least_round_trip() {
        let mut estimator = RoundTripEstimator::default();
        estimator.sample(MS(100), MS(0));
        estimator.sample(MS(120), MS(20));
        assert_eq!(estimator.report(true).smoothed, MS(100));
        estimator.sample(MS(108), MS(20));
        assert_eq!(estimator.report(true).smoothed, MS(101));
    }

    proptest! {
        #[test]
        fn a_weighed_mean_is_that_of_a_sum_that_fits(shift in 1u32..8, kept: u64, new: u64) {
            let sum = u128::from(kept) * ((1 << shift) - 1) + u128::from(new);
            prop_assert_eq!(u128::from(weigh(shift, kept, new).as_nanos()), sum >> shift);
        }
    }

    #[test]
    fn samples_of_any_length_leave_it_within_them() {
        let mut estimator = RoundTripEstimator::default();
        for nanos in [0, u64::MAX, u64::MAX, 1, u64::MAX] {
            estimator.sample(Duration::from_nanos(nanos), MS(0));
        }
        assert!(estimator.report(true).smoothed > MS(1));
        assert_eq!(estimator.report(true).min, Duration::ZERO);
        assert_eq!(estimator.probe_timeout(MS(0)), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn the_probe_timeout_is_that_of_rfc_9002() {
        let mut estimator = RoundTripEstimator::default();
        assert_eq!(estimator.probe_timeout(MS(0)), MS(999));
        estimator.sample(MS(100), MS(0));
        assert_eq!(estimator.probe_timeout(MS(25)), MS(325));
        assert_eq!(estimator.loss_delay(0), Duration::from_nanos(112_500_000));
    }

    #[test]
    fn a_packet_may_be_late_by_quarters_of_the_least_round_trip_or_eighths_of_the_usual_one_up_to_the_smoothed_one() {
        let mut estimator = RoundTripEstimator::default();
        estimator.sample(MS(80), MS(0));
        estimator.sample(MS(160), MS(0));
        // Smoothed 90 ms, latest 160 ms, least 80 ms.
        for (multiple, delay_ms) in [(0, 180), (1, 180), (2, 200), (4, 240), (5, 250), (100, 250)] {
            assert_eq!(estimator.loss_delay(multiple), MS(delay_ms), "{multiple}");
        }
        // Where the least is nothing: smoothed 70 ms.
        let mut estimator = RoundTripEstimator::default();
        estimator.sample(MS(80), MS(0));
        estimator.sample(MS(0), MS(0));
        for (multiple, delay_us) in [(0, 78_750), (1, 78_750), (2, 87_500), (8, 140_000), (100, 140_000)] {
            assert_eq!(estimator.loss_delay(multiple), Duration::from_nanos(delay_us * 1000), "{multiple}");
        }
    }
}

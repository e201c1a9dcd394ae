//! The one path that a controller sees which takes all receivers for one.
//!
//! Packets of a peer wait in its uplink's queue, whoever they go to, and behind it their ways part. A
//! controller that is given the round trips of all of them as those of one path takes the difference
//! between a far receiver and a near one for a queue. It is given a path that is as long as the ways are in
//! the mean, and the queue:
//!
//! ```text
//! base      = mean over acknowledged packets of dmin_j
//! path rtt  = base + (rtt_j - dmin_j)
//! ```
//!
//! for receiver `j` with least round trip `dmin_j`. By Little's law what is in flight to all is the rate of
//! all times `base` and the queue, so that a window for that path is one for all ways. `base` moves with the
//! audience, slowly against a round trip; filters of the least round trip follow it up by `RoundTrip::min`.

use anabranch_control::flow::RoundTrip;
use anabranch_control::time::Duration;

/// The base is a mean over about this many packets: at some hundred a second, a second or two.
const PACKETS: f64 = 256.0;

/// The common path.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommonPath {
    /// Nanoseconds.
    base: f64,
    /// Packets that it is the mean of, up to [`PACKETS`].
    packets: f64,
    /// Mean and mean deviation of the queue, as RFC 9002 (5.3) has them for round trips. Nanoseconds.
    queue: f64,
    variation: f64,
    is_sampled: bool,
}

impl CommonPath {
    /// Takes a sample of the round trips to a receiver, which has just acknowledged `packets` packets; what they are
    /// on the common path.
    #[inline]
    pub fn sample(&mut self, rtt: &RoundTrip, packets: usize) -> RoundTrip {
        let least = rtt.min.as_nanos() as f64;
        if packets > 0 && rtt.min < Duration::from_nanos(u64::MAX) {
            self.packets = (self.packets + packets as f64).min(PACKETS.max(packets as f64));
            self.base += (least - self.base) * packets as f64 / self.packets;
        }
        if let Some(latest) = rtt.latest {
            let queue = (latest - rtt.min).as_nanos() as f64;
            if self.is_sampled {
                self.variation += ((queue - self.queue).abs() - self.variation) / 4.0;
                self.queue += (queue - self.queue) / 8.0;
            } else {
                (self.queue, self.variation, self.is_sampled) = (queue, rtt.variation.as_nanos() as f64, true);
            }
        }
        if self.packets == 0.0 {
            return *rtt;
        }
        let span = |nanos: f64| Duration::from_nanos(nanos as u64);
        let base = span(self.base);
        RoundTrip {
            latest: rtt.latest.map(|latest| base + (latest - rtt.min)),
            smoothed: base + span(self.queue),
            variation: span(self.variation),
            min: base,
        }
    }

    /// The mean round trip, queue included; none before anything was acknowledged.
    pub fn round_trip(&self) -> Option<Duration> {
        (self.packets > 0.0).then(|| Duration::from_nanos((self.base + self.queue) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn to(least: u64, queue: u64) -> RoundTrip {
        let latest = MS(least + queue);
        RoundTrip { latest: Some(latest), smoothed: latest, variation: MS(1), min: MS(least) }
    }

    #[test]
    fn one_receivers_round_trips_stay_as_they_are() {
        let mut path = CommonPath::default();
        for queue in [0, 5, 30, 5] {
            let common = path.sample(&to(40, queue), 1);
            assert_eq!((common.latest, common.min), (Some(MS(40 + queue)), MS(40)));
        }
    }

    #[test]
    fn near_and_far_receivers_without_a_queue_are_a_path_without_one() {
        let mut path = CommonPath::default();
        let mut common = path.sample(&to(20, 0), 1);
        for round in 0..2000 {
            common = path.sample(&to(if round % 4 == 0 { 220 } else { 20 }, 0), 1);
            assert_eq!((common.latest, common.smoothed), (Some(common.min), common.min));
        }
        assert!((65..=75).contains(&(common.min.as_nanos() / 1_000_000)), "{:?}", common.min);
    }

    #[test]
    fn a_queue_is_reported_whoevers_packet_has_waited_in_it() {
        let mut path = CommonPath::default();
        for round in 0..200 {
            let common = path.sample(&to(if round % 2 == 0 { 200 } else { 20 }, 30), 1);
            assert_eq!(common.latest.map(|latest| latest - common.min), Some(MS(30)));
        }
        let common = path.sample(&to(20, 30), 1);
        assert_eq!((common.smoothed - common.min).as_nanos() / 1_000_000, 30);
    }
}

//! How much a sender may have in flight, whatever its controller and the relays say.
//!
//! A relay may grant more than it can pass on: its limit is what somebody has written down, and the
//! processor that serves it, or a link on the way, may be slower. What is sent beyond that fills buffers,
//! and is lost when they are full. As in BBR (draft-ietf-ccwg-bbr, 4.6), what is in flight is bounded by what
//! has lately been delivered in the shortest round trip:
//!
//! ```text
//! packets <= max(4 R d, 512 relays / hops)
//! R: the most packets that were acknowledged in a second, over the last ten round trips
//! d: the least mean over a round trip's packets since the start
//! ```
//!
//! The second term lets a sender begin, and batches fill. The gain is twice BBR's: here the rates are the
//! controller's, which lets relays keep queues as long as the round trip, and the bound must not meddle
//! with them as long as they are right. A round trip that counts has a packet for each relay at least: the
//! first answers come over the shortest paths. A sender that always fills its bound sees no empty queue any
//! more, and does not stop to look for one as BBR does; so the least time counts for ever. Paths that
//! become more than four times as long in the middle of a transfer are not filled any more.

use anabranch_control::filter::WindowedMax;
use anabranch_control::time::{Duration, Time};

/// Twice BBR's gain of the congestion window.
const GAIN: f64 = 4.0;

/// Round trips over which the greatest rate counts (BBR's `MaxBwFilterLen` is two of its cycles).
const ROUNDS: u64 = 10;

/// What is sent to a relay that has died counts as in flight until its deadline, 200 ms at least, so the bound must
/// leave room for that. With 32, a sender over eight relays of 4 MB/s of which two died took 24 s for 20 MB in
/// simulated time; on sockets 128 took 7 s, 256 and 1024 took 3 s, as without a bound.
const EACH_RELAY: usize = 512;

/// A rate is taken over no less: a turn of a driver's loop would be measured rather than what comes.
const SHORTEST: Duration = Duration::from_millis(10);

/// What may be in flight.
#[derive(Clone, Debug)]
pub struct InFlightBound {
    relays: u64,
    least: f64,
    /// In packets a second, by round.
    rate: WindowedMax,
    /// The least of a round's mean.
    round_trip: Duration,
    round: u64,
    begun: Time,
    /// Acknowledged in this round, and the sum of their round-trip times.
    acked: u64,
    sum: Duration,
    packets: u64,
}

impl InFlightBound {
    /// For a sender of packets over `hops` of `relays`.
    pub fn new(relays: usize, hops: usize) -> InFlightBound {
        let least = (EACH_RELAY * relays).div_ceil(hops.max(1)) as u64;
        InFlightBound {
            relays: relays as u64,
            least: least as f64,
            rate: WindowedMax::new(ROUNDS),
            round_trip: Duration::from_nanos(u64::MAX),
            round: 0,
            begun: Time::ZERO,
            acked: 0,
            sum: Duration::ZERO,
            packets: least,
        }
    }

    /// A packet was acknowledged `round_trip` after it had left.
    #[inline]
    pub fn on_ack(&mut self, now: Time, round_trip: Duration) {
        self.acked += 1;
        self.sum = self.sum + round_trip;
        let elapsed = now.since(self.begun);
        if self.acked >= self.relays && elapsed >= round_trip.max(SHORTEST) {
            self.end_round(now, elapsed);
        }
    }

    #[inline(never)]
    fn end_round(&mut self, now: Time, elapsed: Duration) {
        self.round += 1;
        let rate = self.rate.update(self.round, (self.acked as f64 / elapsed.as_secs_f64()) as u64);
        self.round_trip = self.round_trip.min(self.sum / self.acked);
        self.packets = (GAIN * rate as f64 * self.round_trip.as_secs_f64()).max(self.least) as u64;
        (self.begun, self.acked, self.sum) = (now, 0, Duration::ZERO);
    }

    /// How many packets may be in flight.
    #[inline]
    pub fn packets(&self) -> u64 {
        self.packets
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A sender that always has something to send, over a path of `delay` that serves `rate` packets a second
    /// and never loses any: packets a second in the second half of `seconds`, and the most that waited.
    fn greedy(rate: f64, delay: f64, seconds: f64) -> (f64, u64) {
        let mut bound = InFlightBound::new(8, 3);
        let (mut flying, mut served, mut most, mut passed) = (VecDeque::new(), 0.0_f64, 0, 0.0);
        let mut now = 0.0;
        while now < seconds {
            while (flying.len() as u64) < bound.packets() {
                served = served.max(now) + 1.0 / rate;
                flying.push_back((served + delay, now));
            }
            most = most.max(flying.len() as u64);
            let (home, left) = flying.pop_front().expect("it always sends");
            now = home;
            passed += f64::from(u8::from(now > seconds / 2.0));
            bound.on_ack(Time::from_secs_f64(now), Duration::from_secs_f64(now - left));
        }
        (passed / (seconds / 2.0), most)
    }

    #[test]
    fn a_path_is_filled_and_its_buffer_is_not() {
        for (rate, delay) in [(300.0, 0.5), (10_000.0, 0.1), (50_000.0, 0.001), (100_000.0, 0.000_1)] {
            let (passed, most) = greedy(rate, delay, 20.0);
            assert!(passed >= 0.99 * rate, "{passed} of {rate} packets a second, {delay} s away");
            // It begins with a number that may be more than the path holds already.
            let enough = 4.1 * f64::max(rate * delay, InFlightBound::new(8, 3).packets() as f64);
            assert!(most as f64 <= enough, "{most} in flight, {enough} were enough: {rate} a second, {delay} s away");
        }
    }

    #[test]
    fn it_follows_a_path_that_becomes_slower_and_one_that_becomes_longer() {
        let mut bound = InFlightBound::new(8, 3);
        let run = |bound: &mut InFlightBound, from: u64, until: u64, rate: u64, round_trip: f64| {
            for packet in from * rate..until * rate {
                let now = Time::from_nanos(packet * 1_000_000_000 / rate);
                bound.on_ack(now, Duration::from_secs_f64(round_trip));
            }
            bound.packets()
        };
        assert!((39_800..=40_200).contains(&run(&mut bound, 0, 10, 100_000, 0.1)));
        assert!((7_800..=8_200).contains(&run(&mut bound, 10, 20, 20_000, 0.1)));
        let packets = run(&mut bound, 20, 40, 20_000, 0.3);
        assert!((7_800..=8_200).contains(&packets), "{packets} for the 6000 that are in flight now");
    }
}

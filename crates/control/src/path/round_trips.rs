//! The round trips of a sender's packets, and whether they wait in a queue that all of them pass, as before the link of the
//! one who receives.
//!
//! Paths differ, and a relay's queue is on some of them alone. So only packets count that no later one has overtaken, which
//! took the quickest of ways, as LEDBAT (RFC 6817, 3.4.2) has the least of its last samples for that:
//!
//! ```text
//! q  <- 7/8 q + 1/8 RTT        of packets that no later one has overtaken
//! d0 =  least q of the last one to two minutes
//! η  =  d0 / 8, 4 ms at least, and 16 at most
//! ```
//!
//! A queue stands where q > d0 + η, which is what ends HyStart++'s slow start (RFC 9406, 4.2). What waits for less may be
//! machines that are busy. The least is kept for longer than BBR's ten seconds: BBR empties its queue to measure it again,
//! and this sender does not. As LEDBAT's base delay it is that of minutes, so that a way that has become longer is known
//! as such some time.

use super::Report;
use crate::time::{Duration, Time};

/// So long it is remembered at least, and twice as long at most.
const REMEMBERED: Duration = Duration::from_millis(60_000);

/// η: RFC 9406's MIN_RTT_DIVISOR, MIN_RTT_THRESH and MAX_RTT_THRESH.
const PART: u64 = 8;
const LEAST: Duration = Duration::from_millis(4);
const MOST: Duration = Duration::from_millis(16);

/// The mean round trip, and what tells of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrips {
    /// Of all packets; zero before the first.
    mean: Duration,
    /// q; zero before the first.
    quickest: Duration,
    /// When the last packet left that has come, and its round trip.
    newest: Time,
    last: Duration,
    /// The least q since `begins`, and in the minute before; zero before the first.
    least: Duration,
    before: Duration,
    begins: Time,
}

impl RoundTrips {
    /// An ACK has come, in time or late.
    #[inline]
    pub fn learn(&mut self, report: &Report<'_>) {
        self.mean = smoothed(self.mean, report.round_trip());
        if report.sent_at < self.newest {
            return;
        }
        (self.newest, self.last) = (report.sent_at, report.round_trip());
        self.quickest = smoothed(self.quickest, report.round_trip());
        if self.least == Duration::ZERO {
            (self.least, self.before, self.begins) = (self.quickest, self.quickest, report.now);
        } else if report.now.since(self.begins) >= REMEMBERED {
            (self.before, self.least, self.begins) = (self.least, self.quickest, report.now);
        }
        self.least = self.least.min(self.quickest);
    }

    /// The mean of all; zero before the first.
    #[inline]
    pub fn mean(&self) -> Duration {
        self.mean
    }

    /// That of the last packet that no later one has overtaken.
    pub fn last(&self) -> Duration {
        self.last
    }

    /// d0 + η.
    fn unqueued(&self) -> Duration {
        let least = self.least.min(self.before);
        least + (least / PART).clamp(LEAST, MOST)
    }

    /// Whether a queue stands that all packets pass.
    pub fn queue(&self) -> bool {
        self.quickest > self.unqueued()
    }

    /// The part of a round trip that is not such a queue: (d0 + η) / q, 1 at most.
    pub fn unqueued_part(&self) -> f64 {
        if self.queue() { self.unqueued().as_secs_f64() / self.quickest.as_secs_f64() } else { 1.0 }
    }
}

/// The mean round trip after one more, RFC 6298's; `before` is zero before the first.
pub fn smoothed(before: Duration, sample: Duration) -> Duration {
    if before == Duration::ZERO { sample } else { (before * 7 + sample) / 8 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Outcome;
    use crate::rng::Rng;
    use crate::rtt::{PairRtts, RttConfig};

    /// Those that have come by then, of packets that left in each of these milliseconds and took so many.
    fn of(took: impl Fn(u64) -> u64, milliseconds: u64) -> RoundTrips {
        let rtts = PairRtts::new(&RttConfig::default(), 2);
        let at = |milliseconds: u64| Time::ZERO + Duration::from_millis(milliseconds);
        let mut come: Vec<(u64, u64)> = (0..milliseconds).map(|left| (left + took(left), left)).collect();
        come.sort_unstable();
        let mut trips = RoundTrips::default();
        for (now, left) in come.into_iter().take_while(|&(now, _)| now < milliseconds) {
            trips.learn(&Report { now: at(now), sent_at: at(left), ..Report::of(Outcome::Acked, &[], &rtts) });
        }
        trips
    }

    #[test]
    fn a_queue_is_what_all_packets_wait_for() {
        let grows = of(|left| 100 + left / 10, 600);
        assert!(grows.queue() && (0.75..0.8).contains(&grows.unqueued_part()), "{grows:?}");
        assert!((Duration::from_millis(140)..Duration::from_millis(150)).contains(&grows.mean()), "{grows:?}");
        let steady = of(|_| 100, 600);
        assert!(!steady.queue() && steady.unqueued_part() == 1.0, "{steady:?}");
        // A busy machine is none.
        assert!(!of(|left| 1 + left / 200, 600).queue());
    }

    #[test]
    fn paths_of_different_length_and_the_queues_of_some_are_none() {
        let mut rng = Rng::stream(1, "paths");
        let lengths: Vec<u64> = (0..2000).map(|_| 100 + rng.below(100) as u64).collect();
        let paths = of(|left| lengths[left as usize], 2000);
        assert!(!paths.queue(), "{paths:?}");
        let of_some = of(|left| if left % 4 == 0 { 100 } else { 100 + left.min(1000) / 5 }, 2000);
        assert!(!of_some.queue(), "{of_some:?}");
    }

    #[test]
    fn a_way_that_has_become_longer_is_none_after_some_minutes() {
        let longer = |minutes: u64| of(|left| if left < 1000 { 50 } else { 150 }, 1000 + minutes * 60_000);
        assert!(longer(1).queue());
        assert!(!longer(3).queue());
    }
}

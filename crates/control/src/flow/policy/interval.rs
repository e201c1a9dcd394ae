//! What one sender sees of its path in a monitor interval: what left, what was acknowledged and lost, and round trips.
//! A packet's leaving and its fate each belong to the interval in which the sender learns of them, so that an interval
//! is known whole the moment it ends.
//!
//! ```text
//! interval     = RTTS smoothed round trips, and what two packets take at the rate, if that is longer
//! latency      = mean of the round-trip samples
//! gradient     = slope of the least-squares line through the samples over their packets' times of leaving
//! ```
//!
//! Jay, Rotman, Godfrey, Schapira, Tamar, "A Deep Reinforcement Learning Perspective on Internet Congestion Control"
//! (Aurora), ICML 2019, section 4.1. There the intervals are PCC's, whose packets' fates are waited for; what its authors
//! trained on counts as here.

use crate::flow::monitor::Line;
use crate::flow::{Feedback, Sent};
use crate::time::{Duration, Seconds, Time};
use crate::units::{Bytes, OctetRate, Octets};

/// The shortest interval: timers of hosts are late by a good part of it.
pub const SHORTEST: Duration = Duration::from_millis(1);

/// The longest: who waits longer for a decision has no path.
pub const LONGEST: Duration = Duration::from_millis(10_000);

/// Packets that an interval has time for at least: two have a gradient.
const PACKETS: u64 = 2;

/// How long the interval is that begins now, of `rtts` smoothed round trips `srtt`, for a sender of `rate`.
pub fn length(rtts: f64, srtt: Duration, rate: OctetRate, packet: Bytes) -> Duration {
    let packets = Octets::from(packet * PACKETS) / rate.max(super::LEAST_RATE);
    Duration::from((srtt.seconds() * rtts).max(packets)).clamp(SHORTEST, LONGEST)
}

/// An interval that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// How long it was.
    pub span: Duration,
    /// Data that left.
    pub sent: Bytes,
    /// Data that was acknowledged.
    pub acked: Bytes,
    /// Data that was found lost.
    pub lost: Bytes,
    /// The mean of its round-trip samples, or of those of the last interval that had any; none before the first.
    pub latency: Option<Seconds>,
    /// The least such mean of any interval.
    pub least_latency: Option<Seconds>,
    /// The slope of its round-trip samples, in seconds a second; 0 with less than two.
    pub gradient: f64,
    /// What the sender might send.
    pub rate: OctetRate,
    /// Whether the application or a bound from outside, and not the rate, limited the sender.
    pub app_limited: bool,
}

/// Watches a sender, interval by interval.
#[derive(Clone, Debug)]
pub struct Watch {
    begun: Time,
    line: Line,
    latencies: Seconds,
    samples: u64,
    seen: Seen,
}

impl Watch {
    /// The first interval begins `now`.
    pub fn new(now: Time) -> Watch {
        Watch { begun: now, line: Line::default(), latencies: Seconds::ZERO, samples: 0, seen: Seen::default() }
    }

    /// A packet leaves.
    #[inline]
    pub fn on_sent(&mut self, packet: &Sent) {
        self.seen.sent += packet.size;
    }

    /// A receiver answers, or losses are found.
    #[inline]
    pub fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.seen.acked += feedback.acked_bytes;
        self.seen.lost += feedback.lost.iter().map(|lost| lost.sent.size).sum::<Bytes>();
        self.seen.app_limited |= feedback.app_limited;
        // The sample belongs to the newest packet; those before it waited for its ACK.
        if let (Some(newest), Some(rtt)) = (feedback.acked.last(), feedback.rtt.latest) {
            let left = Seconds(newest.at.as_secs_f64()) - Seconds(self.begun.as_secs_f64());
            self.line.add(left, rtt.seconds());
            self.latencies += rtt.seconds();
            self.samples += 1;
        }
    }

    /// The interval begins `now`, and what was seen before is forgotten but the latencies.
    pub fn skip(&mut self, now: Time) {
        let Seen { latency, least_latency, .. } = self.seen;
        *self = Watch { seen: Seen { latency, least_latency, ..Seen::default() }, ..Watch::new(now) };
    }

    /// Whether nothing has left and nothing come back since the interval began.
    pub fn is_silent(&self) -> bool {
        let Seen { sent, acked, lost, .. } = self.seen;
        (sent, acked, lost) == (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO)
    }

    /// The interval that ends `now`, in which the sender might send at `rate`; another begins.
    pub fn end(&mut self, now: Time, rate: OctetRate) -> Seen {
        let latency = match self.samples {
            0 => self.seen.latency,
            samples => Some(self.latencies / samples as f64),
        };
        let least_latency = match (self.seen.least_latency, latency) {
            (Some(least), Some(latency)) => Some(least.min(latency)),
            (least, latency) => least.or(latency),
        };
        let gradient = self.line.slope();
        let seen = Seen { span: now.since(self.begun), latency, least_latency, gradient, rate, ..self.seen };
        self.seen = seen;
        self.skip(now);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::testing::{PACKET, feedback};
    use crate::flow::{LossCause, Lost};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// A megabit a second.
    const RATE: OctetRate = OctetRate(125_000.0);

    fn at(ms: u64) -> Time {
        Time::ZERO + MS(ms)
    }

    fn acked(watch: &mut Watch, left_ms: u64, rtt_ms: u64) {
        let packet = [Sent { at: at(left_ms), size: PACKET, ..Sent::default() }];
        watch.on_feedback(&feedback(&packet, MS(rtt_ms)));
    }

    #[test]
    fn an_interval_is_what_left_and_came_back_in_it() {
        let mut watch = Watch::new(at(100));
        assert!(watch.is_silent());
        for ms in 0..4 {
            watch.on_sent(&Sent { at: at(100 + ms), size: PACKET, ..Sent::default() });
        }
        // Both left before it began; of latencies 10 and 14 ms over 20 ms of leaving, the slope is 0.2.
        acked(&mut watch, 90, 10);
        acked(&mut watch, 110, 14);
        let lost = [Lost { sent: Sent { size: PACKET, ..Sent::default() }, cause: LossCause::PacketThreshold }];
        watch.on_feedback(&Feedback { lost: &lost, app_limited: true, ..crate::flow::testing::silence() });
        let seen = watch.end(at(120), RATE);
        assert_eq!((seen.span, seen.sent, seen.acked, seen.lost), (MS(20), PACKET * 4, PACKET * 2, PACKET));
        assert!((seen.gradient - 0.2).abs() < 1e-9, "{}", seen.gradient);
        assert!((seen.latency.unwrap().0 - 0.012).abs() < 1e-12);
        assert_eq!((seen.least_latency, seen.rate, seen.app_limited), (seen.latency, RATE, true));
        // The next one knows nothing of it but the latencies.
        assert!(watch.is_silent());
        let next = watch.end(at(140), RATE * 2.0);
        assert_eq!(
            (next.sent, next.acked, next.lost, next.app_limited),
            (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO, false)
        );
        assert_eq!((next.latency, next.gradient, next.span), (seen.latency, 0.0, MS(20)));
        acked(&mut watch, 140, 30);
        let later = watch.end(at(160), RATE * 2.0);
        assert!((later.latency.unwrap().0 - 0.03).abs() < 1e-12);
        assert_eq!(later.least_latency, seen.latency);
    }

    #[test]
    fn an_interval_is_a_round_trip_and_has_time_for_two_packets() {
        assert_eq!(length(1.0, MS(50), RATE * 10.0, PACKET), MS(50));
        assert_eq!(length(0.5, MS(50), RATE * 10.0, PACKET), MS(25));
        // 16 000 bits at 100 kbit/s.
        assert_eq!(length(1.0, MS(50), RATE / 10.0, PACKET), MS(160));
        assert_eq!(length(1.0, Duration::ZERO, RATE * 1e3, PACKET), SHORTEST);
        assert_eq!(length(1.0, Duration::from_nanos(u64::MAX), OctetRate::ZERO, PACKET), LONGEST);
    }
}

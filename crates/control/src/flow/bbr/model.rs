//! What both versions of BBR measure in the same way: whether the pipe is full, the least
//! round trip, and the span in which they send little on purpose.

use super::super::{Feedback, Sent};
use crate::flow::recovery::Recovery;
use crate::time::{Duration, Time};
use crate::units::{Bytes, OctetRate, Packets};

/// Growth of the delivery rate below which a round counts as one without growth.
const GROWTH: f64 = 1.25;

/// Rounds without growth after which the pipe is full.
const ROUNDS: u32 = 3;

/// Packets in the smallest window, with which ACKs for each second packet still flow
/// (draft-cardwell-iccrg-bbr-congestion-control-00 4.2.3.2, draft-ietf-ccwg-bbr-04 5.6.4.3).
pub const MIN_PIPE: Packets = Packets(4.0);

/// How long a probe for the least round trip lasts at least (ProbeRTTDuration).
pub const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

/// Looks for a plateau of the delivery rate while more and more is sent
/// (draft-ietf-ccwg-bbr-04 5.3.1.2, draft-cardwell-...-00 4.3.2.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct FullPipe {
    /// The rate that must be outgrown.
    baseline: OctetRate,
    rounds: u32,
}

impl FullPipe {
    /// Begins to look, from `baseline` on.
    pub fn restart(&mut self, baseline: OctetRate) {
        *self = FullPipe { baseline, rounds: 0 };
    }

    /// A round that the application did not limit ended with `rate`: whether the third in a row
    /// has brought no growth.
    pub fn on_round(&mut self, rate: OctetRate) -> bool {
        if rate >= self.baseline * GROWTH {
            self.restart(rate);
            return false;
        }
        self.rounds += 1;
        self.rounds >= ROUNDS
    }
}

/// The least round trip that is not too old to be believed.
#[derive(Clone, Copy, Debug)]
pub struct MinRtt {
    value: Option<Duration>,
    /// When it was last seen.
    pub seen: Time,
}

impl MinRtt {
    /// None yet, since `now`.
    pub fn new(now: Time) -> MinRtt {
        MinRtt { value: None, seen: now }
    }

    /// The least round trip, once there is one.
    #[inline]
    pub fn get(&self) -> Option<Duration> {
        self.value
    }

    /// Whether it has not been seen for longer than `lifetime`.
    #[inline]
    pub fn is_stale(&self, now: Time, lifetime: Duration) -> bool {
        now > self.seen + lifetime
    }

    /// No round trip is below `least`: of receivers that come and go it may rise.
    #[inline]
    pub fn raise(&mut self, least: Duration) {
        self.value = self.value.map(|value| value.max(least));
    }

    /// Takes `sample`, seen at `seen`, for the least.
    #[inline]
    pub fn set(&mut self, sample: Duration, seen: Time) {
        *self = MinRtt { value: Some(sample), seen };
    }
}

/// Packets that left while little was sent on purpose: their delivery rates say nothing
/// about the path, as those of an application that has little to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lull {
    /// From the first such packet to the last, by what had been delivered when they left.
    span: Option<(Bytes, Bytes)>,
}

impl Lull {
    /// Packets that leave until `delivered` and what is in flight now is delivered belong
    /// to it (MarkConnectionAppLimited); a new one, `is_new`, if those before do not.
    pub fn extend(&mut self, feedback: &Feedback<'_>, is_new: bool) {
        let end = feedback.delivered + feedback.in_flight;
        self.span = match self.span {
            Some((start, _)) if !is_new => Some((start, end)),
            _ => Some((feedback.delivered, end)),
        };
    }

    /// Whether `packet` belongs to it.
    #[inline]
    pub fn contains(&self, packet: &Sent) -> bool {
        self.span.is_some_and(|(start, end)| (start..=end).contains(&packet.delivered))
    }
}

/// What an ACK or a timer means for loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It begins with this loss.
    Begins,
    /// It is over: a packet was acknowledged that left after it began.
    Ends,
    /// Nothing changes.
    None,
}

/// Loss recovery: from a loss until a packet is acknowledged that left after the loss was
/// known (RFC 9002, 7.3.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct LossRecovery {
    recovery: Recovery,
    active: bool,
}

impl LossRecovery {
    /// Whether it goes on.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Learns from `feedback`.
    #[inline]
    pub fn step(&mut self, now: Time, feedback: &Feedback<'_>) -> Step {
        // BBR has no answer to ECN marks (draft-ietf-ccwg-bbr-04 leaves them out).
        let unmarked = Feedback { ecn_marked_packets: 0, ..*feedback };
        if self.recovery.enter(now, &unmarked) {
            self.active = true;
            return Step::Begins;
        }
        if self.active && feedback.acked.last().is_some_and(|sent| !self.recovery.covers(sent)) {
            self.active = false;
            return Step::Ends;
        }
        Step::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rounds_without_a_quarter_more_fill_the_pipe() {
        let mut pipe = FullPipe::default();
        for rate in [10.0, 20.0, 24.9, 24.9, 25.0, 31.0, 31.2] {
            assert!(!pipe.on_round(OctetRate(rate)), "{rate}");
        }
        assert!(pipe.on_round(OctetRate(31.2)));
    }

    #[test]
    fn a_lull_covers_what_leaves_in_it_and_in_the_round_behind() {
        let mut lull = Lull::default();
        let feedback = |delivered: u64, in_flight: u64| Feedback {
            delivered: Bytes::new(delivered),
            in_flight: Bytes::new(in_flight),
            ..crate::flow::testing::silence()
        };
        let packet = |delivered: u64| Sent { delivered: Bytes::new(delivered), ..Sent::default() };
        assert!(!lull.contains(&packet(0)));
        lull.extend(&feedback(100, 50), true);
        lull.extend(&feedback(120, 40), false);
        assert_eq!([99, 100, 160, 161].map(|delivered| lull.contains(&packet(delivered))), [false, true, true, false]);
        lull.extend(&feedback(500, 10), true);
        assert!(!lull.contains(&packet(300)));
    }
}

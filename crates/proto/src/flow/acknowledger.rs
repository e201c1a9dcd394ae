//! What acknowledges packets: which have arrived, and when to say so, whatever they carry.

use anabranch_control::time::{Duration, Time};

use super::Ack;
use super::ranges::{AckForm, ReceivedNumbers};

/// When a receiver answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// Packets that may wait for an ACK, the one that completes them included.
    pub every: u32,
    /// The longest that a packet waits for its ACK.
    pub max_delay: Duration,
    /// What an ACK tells of many ranges.
    pub form: AckForm,
    /// Answer at once what fills the last gap of a stream, as TCP's receivers do (RFC 5681, 4.2).
    /// QUIC's look at packet numbers, among which what was sent again leaves no gap (RFC 9000, 13.2.1).
    pub filled_gap: bool,
}

impl Default for AckPolicy {
    /// Each second packet, at the latest after 25 ms (RFC 9000, 13.2.2 and 18.2).
    fn default() -> AckPolicy {
        AckPolicy { every: 2, max_delay: Duration::from_millis(25), form: AckForm::Ranges, filled_gap: false }
    }
}

/// Receivers are never asked to put off an ACK for less, nor for longer than a round trip that is longer:
/// what the sender learns is a round trip old anyway (draft-ietf-quic-ack-frequency, 4).
pub const LEAST_ACK_DELAY: Duration = Duration::from_millis(25);

/// How long a receiver with the round trip `rtt` is asked to put off an ACK, `most` at most.
#[inline]
pub fn asked_ack_delay(most: Duration, rtt: Duration) -> Duration {
    most.min(rtt.max(LEAST_ACK_DELAY))
}

/// How a packet has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// Next to the one with the highest number.
    InOrder,
    /// Behind a gap, or into one.
    OutOfOrder,
    /// Once more, or too late to be remembered: whoever sent it is answered at once.
    Again,
}

/// Acknowledges packets.
#[derive(Clone, Debug)]
pub struct Acknowledger {
    policy: AckPolicy,
    numbers: ReceivedNumbers,
    /// Packets that wait for an ACK.
    waiting: u32,
    /// When the next ACK is due.
    due: Option<Time>,
    /// When the packet with the highest number arrived.
    largest_at: Time,
    ce_count: u64,
    acks_sent: u64,
}

impl Acknowledger {
    /// Nothing has arrived yet.
    pub fn new(policy: AckPolicy) -> Acknowledger {
        Acknowledger {
            policy,
            numbers: ReceivedNumbers::new(policy.form),
            waiting: 0,
            due: None,
            largest_at: Time::ZERO,
            ce_count: 0,
            acks_sent: 0,
        }
    }

    /// Packet `number` arrives; `ce` if it bears a congestion-experienced mark. What has not come
    /// again waits for an ACK only from [`Acknowledger::wait`] on.
    #[inline(always)]
    pub fn on_packet(&mut self, now: Time, number: u64, ce: bool) -> Arrived {
        let largest = self.numbers.largest();
        let in_order = number == largest.map_or(0, |largest| largest.saturating_add(1));
        if !self.numbers.insert(number) {
            // A copy: the ACK of the first was perhaps lost.
            self.due = Some(now);
            return Arrived::Again;
        }
        if largest.is_none_or(|largest| number > largest) {
            self.largest_at = now;
        }
        self.ce_count += u64::from(ce);
        if in_order { Arrived::InOrder } else { Arrived::OutOfOrder }
    }

    /// The other end asks that no packet waits for its ACK for longer than `delay`.
    #[inline]
    pub fn set_max_delay(&mut self, delay: Duration) {
        self.policy.max_delay = delay;
    }

    /// The packet that has just arrived waits for an ACK, which is due `at_once` or when the policy
    /// says so.
    #[inline(always)]
    pub fn wait(&mut self, now: Time, at_once: bool) {
        self.waiting += 1;
        if at_once || self.waiting >= self.policy.every {
            self.due = Some(now);
        } else if self.due.is_none() {
            self.due = Some(now + self.policy.max_delay);
        }
    }

    /// The ACK that is due, if one is.
    #[inline(always)]
    pub fn poll_ack(&mut self, now: Time) -> Option<Ack> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        self.take_ack(now)
    }

    /// An ACK if packets wait for one, due or not.
    #[inline(always)]
    pub fn take_ack(&mut self, now: Time) -> Option<Ack> {
        self.due.take()?;
        self.waiting = 0;
        self.acks_sent += 1;
        Some(Ack { ranges: self.numbers.next_ack(), delay: now.since(self.largest_at), ce_count: self.ce_count })
    }

    /// When an ACK will be due.
    #[inline]
    pub fn timer(&self) -> Option<Time> {
        self.due
    }

    /// ACKs that have left.
    #[inline]
    pub fn acks_sent(&self) -> u64 {
        self.acks_sent
    }
}

//! Round trips counted by what was delivered: a round ends when a packet is acknowledged
//! that left after the round began (draft-ietf-ccwg-bbr, 5.5.1).

use super::Feedback;
use crate::time::Duration;
use crate::units::Bytes;

/// Counts round trips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// The round ends with a packet that left when at least this much was delivered.
    end: Bytes,
    count: u64,
}

impl Rounds {
    /// Whether `feedback` ends a round; the next one then begins.
    #[inline]
    pub fn ends(&mut self, feedback: &Feedback<'_>) -> bool {
        let ended = feedback.acked.last().is_some_and(|sent| sent.delivered >= self.end);
        if ended {
            self.restart(feedback.delivered);
            self.count += 1;
        }
        ended
    }

    /// Begins a round now, when `delivered` has been delivered.
    pub fn restart(&mut self, delivered: Bytes) {
        self.end = delivered;
    }

    /// Rounds that have ended.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// The least round-trip time of each round: what a receiver waits before it answers is then
/// not mistaken for a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundMin {
    rounds: Rounds,
    least: Option<Duration>,
}

impl RoundMin {
    /// Takes in what `feedback` says; the least of the round that ends with it, if one does
    /// and there was a sample.
    #[inline]
    pub fn ended(&mut self, feedback: &Feedback<'_>) -> Option<Duration> {
        self.least = self.least.into_iter().chain(feedback.rtt.latest).min();
        if self.rounds.ends(feedback) { self.least.take() } else { None }
    }

    /// Begins a round now, when `delivered` has been delivered.
    pub fn restart(&mut self, delivered: Bytes) {
        self.rounds.restart(delivered);
        self.least = None;
    }
}

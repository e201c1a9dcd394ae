//! Round trips counted by what was delivered: a round ends when a packet is acknowledged
//! that left after the round began (draft-ietf-ccwg-bbr, 5.5.1).

use super::Feedback;
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

//! What a client makes of a service that says nothing: it asks, ever more seldom, takes it for gone, and gives it up.

use anabranch_control::time::{Duration, Time};

use super::Client;
use super::opening::OPENING_TIMEOUT;

/// The least and the greatest time without a cell after which one asks for it. It doubles with each question that is not
/// answered, and while streams say nothing with each that is: thousands of open connections over which
/// nothing goes cost next to nothing.
const PROBE: [Duration; 2] = [Duration::from_millis(250), Duration::from_millis(16_000)];

/// After so long without a cell, while there are streams, the session is over.
const SILENCE: Duration = Duration::from_millis(60_000);

/// A service is taken for gone after so many questions in vain, each after twice the wait of the one before: as many as
/// TCP repeats at least before it doubts its way (RFC 1122 4.2.3.5, R1).
const GONE_QUESTIONS: u32 = 3;

/// A service is taken for gone after so long at least: as long as it takes at most to leave a guard that is dead, whose
/// fault it may be.
pub const GONE: Duration = Duration::from_millis(5_000);

impl Client {
    /// Questions that the service has not answered, while there are streams, and since when it is asked in vain; if it is
    /// not, since when nothing came.
    pub fn unanswered(&self) -> (u32, Time) {
        let heard = self.link.heard.max(self.busy_since);
        match self.link.keys {
            _ if !self.is_busy() || self.link.end.is_some() => (0, heard),
            Some(_) if self.probes > 0 => (self.probes, heard.max(self.first_probed)),
            Some(_) => (0, heard),
            None => (self.attempts.tries, heard),
        }
    }

    /// Whether the service seems to be gone. That may be the fault of this end's own line, which its driver knows more of;
    /// the session waits for longer.
    pub fn seems_gone(&self, now: Time) -> bool {
        let (questions, since) = self.unanswered();
        questions > GONE_QUESTIONS && now.since(since) >= GONE
    }

    /// Questions in a row between which streams said nothing.
    pub(super) fn quiet(&self) -> u32 {
        if self.link.used > self.probed { 0 } else { self.quiet }
    }

    pub(super) fn silent_at(&self) -> Time {
        self.link.heard.max(self.busy_since) + SILENCE
    }

    pub(super) fn probe_at(&self) -> Time {
        let least = self.link.round_trip.map_or(OPENING_TIMEOUT, |time| (time * 4).max(PROBE[0]));
        let doublings = if self.probes == 0 { self.quiet() } else { self.probes };
        let wait = (least * (1 << doublings.min(16))).min(PROBE[1]);
        let heard = self.link.waits_since.unwrap_or(self.link.heard).max(self.link.heard);
        heard.max(self.probed).max(self.busy_since) + wait
    }
}

//! What has passed over a peer's sessions since it began: each session counts for itself, and takes its count with it
//! when it is over.

use std::collections::BTreeMap;

use anabranch_proto::session::SessionId;

use crate::sessions::Traffic;

/// Sums over all sessions, also those that are over.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Datagrams that came, in bytes.
    pub received: u64,
    /// Of these, from the server.
    pub from_server: u64,
    /// Datagrams that were longer than a path carries, and did not leave.
    pub too_long: u64,
    /// Of the open sessions over whose paths such datagrams did not go: what the narrowest carries.
    pub narrowest: Option<u16>,
    /// How many of these there are.
    pub narrow_sessions: usize,
    /// What each open session had counted at the last look.
    before: BTreeMap<SessionId, Traffic>,
}

impl Tally {
    /// Looks at all sessions that are open, whether each is with the server, and what it has counted.
    pub fn count(&mut self, sessions: impl Iterator<Item = (SessionId, bool, Traffic)>) {
        let before = std::mem::take(&mut self.before);
        (self.narrowest, self.narrow_sessions) = (None, 0);
        for (session, is_server, traffic) in sessions {
            let past = before.get(&session).copied().unwrap_or_default();
            // One that counts less than before is another under the same number.
            let past = if past.received_bytes > traffic.received_bytes { Traffic::default() } else { past };
            let came = traffic.received_bytes - past.received_bytes;
            self.received += came;
            self.from_server += if is_server { came } else { 0 };
            self.too_long += traffic.too_long.saturating_sub(past.too_long);
            if traffic.too_long > 0 {
                self.narrowest = Some(self.narrowest.map_or(traffic.mtu, |least| least.min(traffic.mtu)));
                self.narrow_sessions += 1;
            }
            self.before.insert(session, traffic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(received_bytes: u64, too_long: u64, mtu: u16) -> Traffic {
        Traffic { received_bytes, too_long, mtu, ..Traffic::default() }
    }

    #[test]
    fn a_session_that_ends_takes_nothing_from_the_sums_and_adds_nothing() {
        let mut tally = Tally::default();
        tally.count(
            [(SessionId(1), true, traffic(60, 0, 1400)), (SessionId(2), false, traffic(40, 0, 1400))].into_iter(),
        );
        assert_eq!((tally.received, tally.from_server), (100, 60));
        tally.count([(SessionId(2), false, traffic(45, 0, 1400))].into_iter());
        assert_eq!((tally.received, tally.from_server), (105, 60));
        // Another session, under a number that was free again.
        tally.count(
            [(SessionId(1), false, traffic(7, 0, 1400)), (SessionId(2), false, traffic(3, 0, 1400))].into_iter(),
        );
        assert_eq!((tally.received, tally.from_server), (115, 60));
    }

    #[test]
    fn narrow_paths_are_those_that_are_open_and_what_did_not_leave_stays_counted() {
        let mut tally = Tally::default();
        let paths = [traffic(1, 5, 1300), traffic(1, 0, 1200), traffic(1, 7, 1250)];
        tally.count((0..).map(SessionId).zip(paths).map(|(session, traffic)| (session, false, traffic)));
        assert_eq!((tally.too_long, tally.narrowest, tally.narrow_sessions), (12, Some(1250), 2));
        tally.count([(SessionId(0), false, traffic(1, 6, 1300))].into_iter());
        assert_eq!((tally.too_long, tally.narrowest, tally.narrow_sessions), (13, Some(1300), 1));
        tally.count(std::iter::empty());
        assert_eq!((tally.too_long, tally.narrowest, tally.narrow_sessions), (13, None, 0));
    }
}

//! TCP's slow start [RFC 5681], over all relays of a sender together: what they grant says nothing of the access of who
//! receives. So many packets may be in flight that ten are to each relay (RFC 6928's initial window), and for each that
//! arrives one more. They are counted where they pass a relay: a packet over three counts three times.
//!
//! ```text
//! window = 10 relays,    window <- window + hops    at each ACK, up to twice what was in flight
//! ```
//!
//! That bound is Linux's: what is not used does not grow for ever (RFC 9002, 7.8), and the window does not hold up a
//! sender whose round trip grows. The start ends where something else limits the sender: what relays grant, or what the
//! receiver loses (`ceiling.rs`).

use super::{Outcome, Report};

/// RFC 6928's initial window, in packets.
const INITIAL: u64 = 10;

/// How many packets are in flight, and how many may be.
#[derive(Clone, Debug)]
pub struct SlowStart {
    in_flight: u64,
    /// The most that there was so far.
    used: u64,
    window: u64,
    is_limiting: bool,
}

impl SlowStart {
    /// Nothing is in flight to any of `peers`.
    pub fn new(peers: usize) -> SlowStart {
        SlowStart { in_flight: 0, used: 0, window: INITIAL * peers as u64, is_limiting: false }
    }

    /// Whether a packet over `hops` relays may leave.
    #[inline]
    pub fn has_room(&self, hops: usize) -> bool {
        self.in_flight + hops as u64 <= self.window
    }

    /// Whether it held up the last packet that had to wait.
    #[inline]
    pub fn is_limiting(&self) -> bool {
        self.is_limiting
    }

    /// A packet has to wait, for this or for something else.
    #[inline]
    pub fn on_wait(&mut self, is_limiting: bool) {
        self.is_limiting = is_limiting;
    }

    /// A packet over `hops` relays leaves.
    #[inline]
    pub fn on_departure(&mut self, hops: usize) {
        self.in_flight += hops as u64;
        self.used = self.used.max(self.in_flight);
    }

    /// What became of a packet is known.
    #[inline]
    pub fn on_outcome(&mut self, report: &Report<'_>) {
        let hops = report.path.len() as u64;
        if report.outcome == Outcome::Acked && self.window < 2 * self.used {
            self.window += hops;
        }
        self.in_flight = self.in_flight.saturating_sub(hops);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Hop, Slot};
    use crate::rtt::{PairRtts, RttConfig};

    const HOPS: usize = 3;
    const PEERS: usize = 9;

    /// Sends `most` packets or as many as there is room for, of all of which then becomes `outcome`; how many there were.
    fn round(start: &mut SlowStart, most: usize, outcome: Outcome) -> usize {
        let (path, rtts) = ([Hop::default(); HOPS], PairRtts::new(&RttConfig::default(), PEERS));
        let report = Report { destination: Slot(0), ..Report::of(outcome, &path, &rtts) };
        let mut sent = 0;
        while sent < most && start.has_room(HOPS) {
            start.on_departure(HOPS);
            sent += 1;
        }
        (0..sent).for_each(|_| start.on_outcome(&report));
        sent
    }

    #[test]
    fn what_may_be_in_flight_begins_with_ten_packets_to_each_relay_and_doubles_in_each_round_trip() {
        let mut start = SlowStart::new(PEERS);
        let rounds = [(); 4].map(|()| round(&mut start, usize::MAX, Outcome::Acked));
        assert_eq!(rounds[0], 10 * PEERS / HOPS);
        for pair in rounds.windows(2) {
            assert!((2 * pair[0] - HOPS..=2 * pair[0]).contains(&pair[1]), "{rounds:?}");
        }
    }

    #[test]
    fn it_grows_neither_by_losses_nor_beyond_twice_what_is_used() {
        let mut start = SlowStart::new(PEERS);
        let rounds = [(); 4].map(|()| round(&mut start, usize::MAX, Outcome::TimedOut));
        assert_eq!(rounds, [10 * PEERS / HOPS; 4]);
        (0..100).for_each(|_| _ = round(&mut start, 40, Outcome::Acked));
        assert_eq!(round(&mut start, usize::MAX, Outcome::TimedOut), 2 * 40);
    }
}

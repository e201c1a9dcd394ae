//! The earliest of a fixed set of sources, each of which has at most one pending time.
//!
//! A winner tree: each inner node names the earlier of its two children, so that a change
//! of one source is played again along one path to the root. Of equal times, the source
//! with the lower number wins.

use core::hint::select_unpredictable;

use anabranch_control::time::Time;

/// Pending times of sources numbered from 0.
#[derive(Clone, Debug)]
pub struct Tournament {
    /// Node 1 is the root, node i has the children 2 i and 2 i + 1, the last half are the
    /// sources. Each holds the lowest of (time, source) below it as one number, so that a
    /// match is a minimum, without a branch that could be mispredicted. There is room for a power
    /// of two, so that a mask keeps every index within it.
    nodes: Box<[u64]>,
    /// What node 1 holds: asked more often than all others together.
    winner: u64,
    /// Sources, and the node of the first.
    places: usize,
    /// Bits of a node's number that name the source.
    source_bits: u32,
    horizon: Time,
}

impl Tournament {
    /// `sources` sources without a pending time.
    pub fn new(sources: usize) -> Tournament {
        let places = sources.max(2);
        let source_bits = places.next_power_of_two().trailing_zeros();
        let nodes = vec![0; (2 * places).next_power_of_two()].into();
        let horizon = Time::from_nanos(u64::MAX >> source_bits);
        let mut tournament = Tournament { nodes, winner: 0, places, source_bits, horizon };
        tournament.clear();
        tournament
    }

    /// No source has a pending time.
    pub fn clear(&mut self) {
        let places = self.places;
        for source in 0..places {
            self.nodes[places + source] = self.entry(source, Time::MAX);
        }
        for node in (1..places).rev() {
            self.nodes[node] = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
        }
        self.winner = self.nodes[1];
    }

    /// A time from here on is never: what is left of 64 bits of nanoseconds when the number
    /// of a source has been taken off, 208 days for a thousand sources.
    pub fn horizon(&self) -> Time {
        self.horizon
    }

    #[inline]
    fn entry(&self, source: usize, at: Time) -> u64 {
        at.min(self.horizon).as_nanos() << self.source_bits | source as u64
    }

    #[inline]
    fn time(&self, entry: u64) -> Time {
        let at = Time::from_nanos(entry >> self.source_bits);
        if at == self.horizon { Time::MAX } else { at }
    }

    /// The earliest time; `Time::MAX` if nothing is pending.
    #[inline]
    pub fn earliest(&self) -> Time {
        self.time(self.winner)
    }

    /// The earliest source and its time, if that is before `end`.
    #[inline]
    pub fn earliest_before(&self, end: Time) -> Option<(Time, usize)> {
        // As numbers, for what is never is not before anything.
        let is_before = self.winner < self.entry(0, end);
        let source = self.winner & ((1 << self.source_bits) - 1);
        is_before.then(|| (Time::from_nanos(self.winner >> self.source_bits), source as usize))
    }

    /// The pending time of `source`; `Time::MAX` if there is none.
    #[inline]
    pub fn get(&self, source: usize) -> Time {
        self.time(self.nodes[self.places + source])
    }

    /// Whether `source` is pending at `at` or before, or `at` is never.
    #[inline]
    pub fn is_due_by(&self, source: usize, at: Time) -> bool {
        self.nodes[self.places + source] <= self.entry(source, at)
    }

    /// Replaces the pending time of `source`; `Time::MAX` takes it away.
    ///
    /// All the way to the root, without a jump: whether a match ends otherwise than before
    /// cannot be guessed, and a wrong guess costs more than the matches above.
    #[inline]
    pub fn set(&mut self, source: usize, at: Time) {
        debug_assert!(source < self.places, "source {source} is one of {}", self.places);
        let mut node = self.places + source;
        let mut winner = self.entry(source, at);
        let mask = self.nodes.len() - 1;
        self.nodes[node & mask] = winner;
        while node > 1 {
            let rival = self.nodes[(node ^ 1) & mask];
            winner = select_unpredictable(winner < rival, winner, rival);
            node /= 2;
            self.nodes[node & mask] = winner;
        }
        self.winner = winner;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_control::rng::Rng;

    #[test]
    fn the_earliest_is_found_after_any_changes_and_ties_go_to_the_lower_number() {
        for sources in [1, 2, 3, 7, 8, 33] {
            let mut tournament = Tournament::new(sources);
            let mut times = vec![u64::MAX; sources];
            let mut rng = Rng::stream(5, "tournament");
            for _ in 0..2000 {
                let source = rng.below(sources);
                times[source] = if rng.chance(0.2) { u64::MAX } else { rng.below(50) as u64 };
                tournament.set(source, Time::from_nanos(times[source]));
                assert_eq!(tournament.get(source).as_nanos(), times[source]);
                let earliest = *times.iter().min().unwrap();
                assert_eq!(tournament.earliest().as_nanos(), earliest);
                assert_eq!(tournament.earliest_before(Time::from_nanos(earliest)), None);
                let expected = times.iter().position(|&time| time == earliest).filter(|_| earliest < u64::MAX);
                let winner = expected.map(|winner| (Time::from_nanos(earliest), winner));
                assert_eq!(tournament.earliest_before(Time::MAX), winner);
                assert_eq!(tournament.earliest_before(Time::from_nanos(earliest.saturating_add(1))), winner);
                for at in [0, 1, 25, 49, 50, u64::MAX] {
                    assert_eq!(tournament.is_due_by(source, Time::from_nanos(at)), times[source] <= at);
                }
            }
        }
    }

    #[test]
    fn the_horizon_is_far_and_what_lies_beyond_never_comes() {
        let mut tournament = Tournament::new(1000);
        let horizon = tournament.horizon();
        assert!(horizon > Time::from_secs_f64(200.0 * 86_400.0));
        tournament.set(7, Time::from_nanos(horizon.as_nanos() - 1));
        assert_eq!(tournament.earliest_before(Time::MAX), Some((Time::from_nanos(horizon.as_nanos() - 1), 7)));
        tournament.set(7, horizon);
        assert_eq!((tournament.earliest(), tournament.earliest_before(Time::MAX)), (Time::MAX, None));
    }
}

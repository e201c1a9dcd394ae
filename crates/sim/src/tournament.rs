//! The earliest of a fixed set of sources, each of which has at most one pending time.
//!
//! A winner tree of groups of four: each entry of an inner group names the earliest of the four
//! below it, so that a change of one source is played again along one path to the root. Of equal
//! times, the source with the lower number wins.

use core::hint::select_unpredictable;

use anabranch_control::time::Time;

/// Entries of a group: with four the way to the root is half as long as with two, and a match of
/// four costs little more than one of two, since all rivals are there before the winner of the
/// group below.
const GROUP: usize = 4;

/// Pending times of sources numbered from 0.
#[derive(Clone, Debug)]
pub struct Tournament {
    /// Group 0 is the root, entry e of group g stands for group 4 g + e + 1, and the last ones hold the
    /// sources. Each entry holds the lowest of (time, source) below it as one number, so that a
    /// match is a minimum, without a branch that could be mispredicted. There is room for a power
    /// of two, so that a mask keeps every index within it.
    groups: Box<[[u64; GROUP]]>,
    /// The lowest of group 0: asked more often than all others together.
    winner: u64,
    /// How many sources there are.
    sources: usize,
    /// The first group that holds sources.
    first: usize,
    /// Bits of an entry that name the source.
    source_bits: u32,
    horizon: Time,
}

impl Tournament {
    /// `sources` sources without a pending time.
    pub fn new(sources: usize) -> Tournament {
        let leaves = sources.div_ceil(GROUP).max(1);
        // Each inner group takes the place of one entry, and gives four.
        let first = (leaves - 1).div_ceil(GROUP - 1);
        let source_bits = (leaves * GROUP).next_power_of_two().trailing_zeros();
        let groups = vec![[u64::MAX; GROUP]; (first + leaves).next_power_of_two()].into();
        let horizon = Time::from_nanos(u64::MAX >> source_bits);
        let mut tournament = Tournament { groups, winner: 0, sources, first, source_bits, horizon };
        tournament.clear();
        tournament
    }

    /// No source has a pending time.
    pub fn clear(&mut self) {
        self.groups.fill([u64::MAX; GROUP]);
        self.winner = u64::MAX;
        (0..self.sources).for_each(|source| self.set(source, Time::MAX));
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

    /// What is noted of `source`.
    #[inline]
    fn noted(&self, source: usize) -> u64 {
        debug_assert!(source < self.sources, "source {source} is one of {}", self.sources);
        self.groups[self.first + source / GROUP][source % GROUP]
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
        self.time(self.noted(source))
    }

    /// Whether `source` is pending at `at` or before, or `at` is never.
    #[inline]
    pub fn is_due_by(&self, source: usize, at: Time) -> bool {
        self.noted(source) <= self.entry(source, at)
    }

    /// Replaces the pending time of `source`; `Time::MAX` takes it away.
    ///
    /// All the way to the root, without a jump: whether a match ends otherwise than before
    /// cannot be guessed, and a wrong guess costs more than the matches above.
    #[inline]
    pub fn set(&mut self, source: usize, at: Time) {
        debug_assert!(source < self.sources, "source {source} is one of {}", self.sources);
        let least = |a: u64, b: u64| select_unpredictable(a < b, a, b);
        let mask = self.groups.len() - 1;
        let (mut group, mut place) = (self.first + source / GROUP, source % GROUP);
        let mut winner = self.entry(source, at);
        loop {
            let entries = &mut self.groups[group & mask];
            entries[place] = winner;
            let rivals = least(least(entries[place ^ 1], entries[place ^ 2]), entries[place ^ 3]);
            winner = least(winner, rivals);
            if group == 0 {
                break;
            }
            (group, place) = ((group - 1) / GROUP, (group - 1) % GROUP);
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
        for sources in [1, 2, 3, 4, 5, 8, 17, 33, 65] {
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

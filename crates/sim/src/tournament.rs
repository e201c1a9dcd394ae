//! The earliest of a fixed set of sources, each of which has at most one pending time.
//!
//! A winner tree: each inner node names the earlier of its two children, so that a change
//! of one source is played again along one path to the root. Of equal times, the source
//! with the lower number wins.

use anabranch_control::time::Time;

/// Pending times of sources numbered from 0.
#[derive(Clone, Debug)]
pub struct Tournament {
    /// One for each source; `u64::MAX` is "nothing pending".
    times: Box<[u64]>,
    /// Node 1 is the root, node i has the children 2 i and 2 i + 1, the last half are the
    /// sources themselves.
    winners: Box<[u32]>,
}

impl Tournament {
    /// `sources` sources without a pending time.
    pub fn new(sources: usize) -> Tournament {
        let places = sources.next_power_of_two().max(2);
        let mut winners = vec![0; 2 * places].into_boxed_slice();
        for (place, winner) in winners[places..].iter_mut().enumerate() {
            *winner = place as u32;
        }
        for node in (1..places).rev() {
            winners[node] = winners[2 * node];
        }
        Tournament { times: vec![u64::MAX; places].into(), winners }
    }

    /// The earliest source and its time; `Time::MAX` if nothing is pending.
    #[inline]
    pub fn earliest(&self) -> (Time, usize) {
        let winner = self.winners[1] as usize;
        (Time::from_nanos(self.times[winner]), winner)
    }

    /// The pending time of `source`; `Time::MAX` if there is none.
    #[inline]
    pub fn get(&self, source: usize) -> Time {
        Time::from_nanos(self.times[source])
    }

    /// Replaces the pending time of `source`; `Time::MAX` takes it away.
    ///
    /// All the way to the root, without a jump: whether a match ends otherwise than before
    /// cannot be guessed, and a wrong guess costs more than the matches above.
    #[inline]
    pub fn set(&mut self, source: usize, at: Time) {
        let (mut time, mut winner) = (at.as_nanos(), source as u32);
        self.times[source] = time;
        let mut node = source + self.times.len();
        while node > 1 {
            let other = self.winners[node ^ 1];
            let other_time = self.times[other as usize];
            // A tie goes to the left, so to the other if this node, an odd one, is right.
            let other_wins = other_time < time.saturating_add(node as u64 & 1);
            let mask = u32::from(other_wins).wrapping_neg();
            winner ^= (winner ^ other) & mask;
            time = time.min(other_time);
            node /= 2;
            self.winners[node] = winner;
        }
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
                let earliest = *times.iter().min().unwrap();
                let (at, winner) = tournament.earliest();
                assert_eq!(at.as_nanos(), earliest);
                if earliest < u64::MAX {
                    assert_eq!(Some(winner), times.iter().position(|&time| time == earliest));
                }
            }
        }
    }
}

//! The earliest of a fixed set of sources, each of which has at most one pending time.
//!
//! A winner tree: each inner node names the earlier of its two children, so that a change
//! of one source is played again along one path to the root. Of equal times, the source
//! with the lower number wins.

use anabranch_control::time::Time;

/// Pending times of sources numbered from 0.
#[derive(Clone, Debug)]
pub struct Tournament {
    /// Node 1 is the root, node i has the children 2 i and 2 i + 1, the last half are the
    /// sources. Each holds the lowest of (time, source) below it as one number, so that a
    /// match is a minimum, without a branch that could be mispredicted.
    nodes: Box<[u128]>,
}

/// Bits of a node's number that name the source.
const SOURCE_BITS: u32 = 32;

impl Tournament {
    /// `sources` sources without a pending time.
    pub fn new(sources: usize) -> Tournament {
        let places = sources.next_power_of_two().max(2);
        let mut nodes = vec![0; 2 * places].into_boxed_slice();
        for (place, node) in nodes[places..].iter_mut().enumerate() {
            *node = entry(place, Time::MAX);
        }
        for node in (1..places).rev() {
            nodes[node] = nodes[2 * node];
        }
        Tournament { nodes }
    }

    /// The earliest source and its time; `Time::MAX` if nothing is pending.
    #[inline]
    pub fn earliest(&self) -> (Time, usize) {
        let winner = self.nodes[1];
        (Time::from_nanos((winner >> SOURCE_BITS) as u64), winner as u32 as usize)
    }

    /// The pending time of `source`; `Time::MAX` if there is none.
    #[inline]
    pub fn get(&self, source: usize) -> Time {
        Time::from_nanos((self.nodes[source + self.nodes.len() / 2] >> SOURCE_BITS) as u64)
    }

    /// Replaces the pending time of `source`; `Time::MAX` takes it away.
    #[inline]
    pub fn set(&mut self, source: usize, at: Time) {
        let mut node = source + self.nodes.len() / 2;
        let mut winner = entry(source, at);
        self.nodes[node] = winner;
        while node > 1 {
            winner = winner.min(self.nodes[node ^ 1]);
            node /= 2;
            self.nodes[node] = winner;
        }
    }
}

#[inline]
fn entry(source: usize, at: Time) -> u128 {
    u128::from(at.as_nanos()) << SOURCE_BITS | source as u128
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

//! Which neighbour is asked for which packet: as many distinct packets as possible, each neighbour for
//! one or none [Efthymiopoulos 2015, 2].
//!
//! That is a maximum matching of a bipartite graph, found by augmenting paths (Kuhn's algorithm): a
//! packet that finds all who have it taken moves another packet to somebody else. A packet that is
//! matched once stays matched, so that the packets that are needed first, which are tried first, are
//! served before others: of all matchings, this one serves the most urgent packets (they form a
//! matroid, for which the greedy choice is best).

/// A matching of packets with neighbours.
#[derive(Clone, Debug, Default)]
pub struct Matching {
    /// The packet that each neighbour is asked for.
    packet_of: Vec<Option<usize>>,
    visited: Vec<bool>,
}

impl Matching {
    /// Matches `packets` packets, the most urgent first, with `neighbours` neighbours; `has` says whether
    /// a neighbour has a packet. For each neighbour the packet it is asked for.
    pub fn find(&mut self, packets: usize, neighbours: usize, has: impl Fn(usize, usize) -> bool) -> &[Option<usize>] {
        self.packet_of.clear();
        self.packet_of.resize(neighbours, None);
        let mut free = neighbours;
        for packet in 0..packets {
            if free == 0 {
                break;
            }
            self.visited.clear();
            self.visited.resize(neighbours, false);
            free -= usize::from(self.augment(packet, &has));
        }
        &self.packet_of
    }

    /// Whether `packet` finds a neighbour, be it that another packet moves. Paths are no longer than
    /// there are neighbours, whose number is bounded.
    fn augment(&mut self, packet: usize, has: &impl Fn(usize, usize) -> bool) -> bool {
        for neighbour in 0..self.packet_of.len() {
            if self.visited[neighbour] || !has(neighbour, packet) {
                continue;
            }
            self.visited[neighbour] = true;
            let is_free = match self.packet_of[neighbour] {
                None => true,
                Some(other) => self.augment(other, has),
            };
            if is_free {
                self.packet_of[neighbour] = Some(packet);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The size of the largest matching, and the packets of the one that serves the most urgent ones, by
    /// trying all.
    fn best(packets: usize, neighbours: usize, has: &impl Fn(usize, usize) -> bool) -> u32 {
        /// Sets of packets that can be served with the neighbours from `neighbour` on.
        fn sets(
            neighbour: usize,
            neighbours: usize,
            packets: usize,
            taken: u32,
            has: &impl Fn(usize, usize) -> bool,
            found: &mut Vec<u32>,
        ) {
            if neighbour == neighbours {
                found.push(taken);
                return;
            }
            sets(neighbour + 1, neighbours, packets, taken, has, found);
            for packet in 0..packets {
                if taken >> packet & 1 == 0 && has(neighbour, packet) {
                    sets(neighbour + 1, neighbours, packets, taken | 1 << packet, has, found);
                }
            }
        }
        let mut found = Vec::new();
        sets(0, neighbours, packets, 0, has, &mut found);
        // The most packets; of those the ones with the most urgent, the lowest bits.
        found.into_iter().max_by_key(|set| (set.count_ones(), set.reverse_bits())).unwrap()
    }

    #[test]
    fn a_packet_moves_to_somebody_else_for_one_that_has_no_choice() {
        // Both have the first packet, one alone the second.
        let has = |neighbour: usize, packet: usize| packet == 0 || neighbour == 0;
        let mut matching = Matching::default();
        assert_eq!(matching.find(2, 2, has), [Some(1), Some(0)]);
    }

    proptest! {
        #[test]
        fn as_many_packets_as_possible_are_asked_for_the_most_urgent_first(
            rows in proptest::collection::vec(0u32..64, 1..5),
        ) {
            let has = |neighbour: usize, packet: usize| rows[neighbour] >> packet & 1 == 1;
            let mut matching = Matching::default();
            let found = matching.find(6, rows.len(), has);
            let mut set = 0u32;
            for (neighbour, packet) in found.iter().enumerate() {
                if let Some(packet) = packet {
                    prop_assert!(has(neighbour, *packet), "it is asked for what it has");
                    prop_assert!(set >> packet & 1 == 0, "nobody is asked for what another is asked for");
                    set |= 1 << packet;
                }
            }
            prop_assert_eq!(set, best(6, rows.len(), &has));
        }
    }
}

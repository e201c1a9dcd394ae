//! What a relay sees of the packets that pass it, for demonstrations: from where, to where, how many.
//!
//! A relay keeps nothing of that unless it was configured to ([`RelayNode::observe`](super::RelayNode::observe)). This
//! is all that an adversary gets who runs it, but for the instants and the names of keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Pairs of neighbours that are kept apart at most; those beyond count in [`Observed::others`].
pub const MOST_PAIRS: usize = 4096;

/// A neighbour on a packet's path, as a relay knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Neighbour {
    /// Another relay of the list.
    Relay(SocketAddr),
    /// Somebody who is no relay: a client.
    Client(SocketAddr),
    /// The relay's own service: an exit.
    Itself,
}

/// Packets by where they came from and went to, since they were last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Packets from the first to the second.
    pub packets: BTreeMap<(Neighbour, Neighbour), u64>,
    /// Packets of further pairs.
    pub others: u64,
}

impl Observed {
    /// A packet came from `before`, and goes to `after`.
    pub fn count(&mut self, before: Neighbour, after: Neighbour) {
        let is_full = self.packets.len() >= MOST_PAIRS;
        match self.packets.get_mut(&(before, after)) {
            Some(count) => *count += 1,
            None if is_full => self.others += 1,
            None => _ = self.packets.insert((before, after), 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_counted_and_those_beyond_the_bound_are_others() {
        let mut observed = Observed::default();
        for port in 0..MOST_PAIRS as u16 + 3 {
            observed.count(Neighbour::Client(([192, 0, 2, 1], port).into()), Neighbour::Itself);
        }
        observed.count(Neighbour::Client(([192, 0, 2, 1], 0).into()), Neighbour::Itself);
        assert_eq!((observed.packets.len(), observed.others), (MOST_PAIRS, 3));
        assert_eq!(observed.packets.values().sum::<u64>(), MOST_PAIRS as u64 + 1);
    }
}

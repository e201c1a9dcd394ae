//! The relays that have room for a packet, and random draws from them.
//!
//! A draw takes h of them without repetition, each sequence equally likely, in a time
//! that does not depend on how many there are. [Raiber 2010] 6.1.3.

use super::{Hop, MAX_RELAYS, Slot};
use crate::rng::Rng;

const ABSENT: u16 = u16::MAX;

/// A set of slots with constant-time insertion, removal and draws.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// The members, in no particular order.
    members: Vec<Slot>,
    /// Where each slot stands among the members, or `ABSENT`.
    place: Box<[u16]>,
}

impl Candidates {
    /// All `peers` slots.
    pub fn all(peers: usize) -> Candidates {
        let slots = u16::try_from(peers).expect("a sender knows at most MAX_KNOWN_PEERS peers");
        Candidates { members: (0..slots).map(Slot).collect(), place: (0..slots).collect() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether `slot` is one of them.
    #[inline]
    pub fn contains(&self, slot: Slot) -> bool {
        self.place[slot.index()] != ABSENT
    }

    /// Adds `slot`; nothing happens if it is there.
    #[inline]
    pub fn insert(&mut self, slot: Slot) {
        if !self.contains(slot) {
            self.place[slot.index()] = self.members.len() as u16;
            self.members.push(slot);
        }
    }

    /// Takes `slot` out; nothing happens if it is not there.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        let place = self.place[slot.index()];
        if place != ABSENT {
            self.members.swap_remove(usize::from(place));
            if let Some(&moved) = self.members.get(usize::from(place)) {
                self.place[moved.index()] = place;
            }
            self.place[slot.index()] = ABSENT;
        }
    }

    /// Fills `path` with distinct members other than `excluded`, uniformly at
    /// random; false, and nothing drawn, if there are too few.
    ///
    /// # Panics
    ///
    /// If the path is longer than [`MAX_RELAYS`].
    #[inline]
    pub fn draw(&self, excluded: Slot, path: &mut [Hop], rng: &mut Rng) -> bool {
        assert!(path.len() <= MAX_RELAYS, "a path has at most {MAX_RELAYS} relays");
        if self.members.len() - usize::from(self.contains(excluded)) < path.len() {
            return false;
        }
        // All of them are compared at once, which is one instruction or two.
        let mut taken = [excluded; MAX_RELAYS];
        for (index, hop) in path.iter_mut().enumerate() {
            // With few relays out of many, a second try is seldom needed.
            hop.slot = loop {
                let drawn = self.members[rng.below(self.members.len())];
                if !taken.iter().fold(false, |is_taken, slot| is_taken | (*slot == drawn)) {
                    break drawn;
                }
            };
            taken[index] = hop.slot;
        }
        true
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.members.capacity() * size_of::<Slot>() + size_of_val(&*self.place)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::rng::Rng;

    #[test]
    fn every_relay_is_drawn_equally_often_and_the_destination_never() {
        let candidates = Candidates::all(10);
        let mut rng = Rng::stream(1, "draw");
        let mut counts = [0u32; 10];
        for _ in 0..30_000 {
            let mut path = [Hop::default(); 3];
            assert!(candidates.draw(Slot(4), &mut path, &mut rng));
            for hop in path {
                counts[hop.slot.index()] += 1;
            }
        }
        assert_eq!(counts[4], 0);
        let others = counts.iter().enumerate().filter(|&(slot, _)| slot != 4);
        assert!(others.clone().all(|(_, &count)| (9_600..10_400).contains(&count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn a_draw_is_distinct_members_or_nothing(
            absent in proptest::collection::btree_set(0u16..12, 0..12),
            excluded in 0u16..12,
            relays in 1usize..6,
            seed: u64,
        ) {
            let mut candidates = Candidates::all(12);
            for &slot in &absent {
                candidates.remove(Slot(slot));
            }
            let eligible = (0..12).filter(|slot| !absent.contains(slot) && *slot != excluded).count();
            let mut path = vec![Hop::default(); relays];
            let drawn = candidates.draw(Slot(excluded), &mut path, &mut Rng::stream(seed, "draw"));
            prop_assert_eq!(drawn, eligible >= relays);
            if drawn {
                let slots: BTreeSet<u16> = path.iter().map(|hop| hop.slot.0).collect();
                prop_assert_eq!(slots.len(), relays);
                prop_assert!(slots.iter().all(|slot| !absent.contains(slot) && *slot != excluded));
            }
            for slot in 0..12 {
                prop_assert_eq!(candidates.contains(Slot(slot)), !absent.contains(&slot));
                candidates.remove(Slot(slot));
                candidates.insert(Slot(slot));
                prop_assert!(candidates.contains(Slot(slot)));
            }
            prop_assert_eq!(candidates.len(), 12);
        }
    }
}

//! When something is due in each slot: the least of a block of slots is kept, so that neither who asks what is
//! due nor who asks when the next is looks at all of them.

use anabranch_control::time::Time;

/// Slots of a block: two lines of a processor's cache.
const BLOCK: usize = 16;

/// For each slot a time before which nothing is due there.
#[derive(Clone, Debug, Default)]
pub(super) struct Dues {
    dues: Vec<Time>,
    /// The least of each block.
    least: Vec<Time>,
}

impl Dues {
    /// One more slot, in which nothing is due.
    pub fn add_slot(&mut self) {
        if self.dues.len().is_multiple_of(BLOCK) {
            self.least.push(Time::MAX);
        }
        self.dues.push(Time::MAX);
    }

    /// Something is due in `slot` at `at`, too.
    #[inline(always)]
    pub fn lower(&mut self, slot: u32, at: Time) {
        let (due, least) = (&mut self.dues[slot as usize], &mut self.least[slot as usize / BLOCK]);
        *due = at.min(*due);
        *least = at.min(*least);
    }

    /// Nothing is due in `slot` before `at`.
    #[inline]
    pub fn set(&mut self, slot: u32, at: Time) {
        self.dues[slot as usize] = at;
        let block = slot as usize / BLOCK;
        self.least[block] = least(self.block(block));
    }

    /// Appends the slots in which something is due at `now`, in order.
    pub fn due(&self, now: Time, due: &mut Vec<u32>) {
        for (block, _) in self.least.iter().enumerate().filter(|(_, least)| **least <= now) {
            let slots = (block * BLOCK) as u32..;
            due.extend(slots.zip(self.block(block)).filter(|(_, at)| **at <= now).map(|(slot, _)| slot));
        }
    }

    /// The least of all; `Time::MAX` if there is none.
    pub fn earliest(&self) -> Time {
        least(&self.least)
    }

    fn block(&self, number: usize) -> &[Time] {
        let begin = number * BLOCK;
        &self.dues[begin..self.dues.len().min(begin + BLOCK)]
    }
}

fn least(times: &[Time]) -> Time {
    times.iter().copied().min().unwrap_or(Time::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As if every slot were looked at each time.
        #[test]
        fn what_is_due_is_what_a_look_at_all_slots_finds(
            slots in 1u32..60,
            changes in proptest::collection::vec((any::<u32>(), 0u64..50, any::<bool>()), 0..200),
        ) {
            let (mut dues, mut all) = (Dues::default(), vec![Time::MAX; slots as usize]);
            (0..slots).for_each(|_| dues.add_slot());
            for (slot, at, is_set) in changes {
                let (slot, at) = (slot % slots, Time::from_nanos(at));
                if is_set {
                    dues.set(slot, at);
                    all[slot as usize] = at;
                } else {
                    dues.lower(slot, at);
                    all[slot as usize] = at.min(all[slot as usize]);
                }
                prop_assert_eq!(dues.earliest(), all.iter().copied().min().unwrap());
                let mut due = Vec::new();
                dues.due(Time::from_nanos(20), &mut due);
                let found = (0..slots).filter(|&slot| all[slot as usize] <= Time::from_nanos(20));
                prop_assert_eq!(due, found.collect::<Vec<_>>());
            }
        }
    }
}

//! Which counters have come: so that no message is opened twice.
//!
//! A ring of bits behind the highest counter that has come, as in RFC 6479: whole words are
//! cleared when the window moves, so that nothing is shifted. What lies behind the ring can't be
//! told from a replay and is taken for one. Packets take different paths and overtake each other,
//! so the ring is as long as what a sender may have on its way; it grows to that only with the
//! counters that come.

use crate::overlay::path_sender::MAX_REMEMBERED;

/// Words of 64 bits in a full ring. What is less than 63 words behind its newest one is told apart.
const WORDS: u64 = MAX_REMEMBERED as u64 / 64;

/// The counters that have come.
#[derive(Clone, Debug, Default)]
pub struct ReplayWindow {
    ring: Vec<u64>,
    /// Words that have begun: the newest is the one before.
    begun: u64,
}

impl ReplayWindow {
    /// Whether `counter` has not come yet, as far as that is known.
    pub fn is_new(&self, counter: u64) -> bool {
        let word = counter / 64;
        if word >= self.begun {
            return true;
        }
        let is_within = self.begun - word <= WORDS;
        is_within && self.ring[(word % WORDS) as usize] & bit(counter) == 0
    }

    /// `counter` has come.
    pub fn note(&mut self, counter: u64) {
        let word = counter / 64;
        if word >= self.begun {
            let needed = (word + 1).min(WORDS) as usize;
            if self.ring.len() < needed {
                self.ring.resize(needed.next_power_of_two().min(WORDS as usize), 0);
            }
            for passed in self.begun.max((word + 1).saturating_sub(WORDS))..=word {
                self.ring[(passed % WORDS) as usize] = 0;
            }
            self.begun = word + 1;
        } else if self.begun - word > WORDS {
            return;
        }
        self.ring[(word % WORDS) as usize] |= bit(counter);
    }
}

fn bit(counter: u64) -> u64 {
    1 << (counter % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_counter_is_new_once_in_any_order_and_what_is_far_behind_never() {
        let mut window = ReplayWindow::default();
        for counter in [0, 5, 3, 63, 64, 1000, 65, 1 << 40, (1 << 40) - 100, (1 << 40) + 1] {
            assert!(window.is_new(counter), "{counter}");
            window.note(counter);
            assert!(!window.is_new(counter), "{counter}");
        }
        for old in [1, 999, (1 << 40) - MAX_REMEMBERED as u64] {
            assert!(!window.is_new(old), "{old}");
        }
        assert!(window.is_new((1 << 40) - MAX_REMEMBERED as u64 + 64), "as much as may be on its way is told apart");
        assert!(window.is_new(u64::MAX));
        window.note(u64::MAX);
        assert!(!window.is_new(u64::MAX) && window.is_new(u64::MAX - 1) && !window.is_new(1 << 40));
    }

    #[test]
    fn its_memory_follows_the_counters_up_to_a_bound() {
        let mut window = ReplayWindow::default();
        window.note(70);
        assert_eq!(window.ring.len(), 2);
        window.note(u64::MAX / 2);
        assert_eq!(window.ring.capacity() as u64, WORDS, "16 KiB");
    }

    proptest! {
        /// Against a set that remembers everything.
        #[test]
        fn no_counter_is_new_twice_and_none_within_the_window_is_refused(
            steps in prop::collection::vec((any::<bool>(), prop_oneof![0u64..200, 0u64..300_000, any::<u64>()]), 1..300),
        ) {
            let (mut window, mut come, mut highest) = (ReplayWindow::default(), BTreeSet::new(), 0u64);
            for (forth, distance) in steps {
                let counter = if forth { highest.saturating_add(distance) } else { highest.saturating_sub(distance) };
                let is_new = window.is_new(counter);
                prop_assert!(!(is_new && come.contains(&counter)), "{counter} came twice");
                if highest.saturating_sub(counter) < MAX_REMEMBERED as u64 - 64 {
                    prop_assert_eq!(is_new, !come.contains(&counter), "{}", counter);
                }
                if is_new {
                    window.note(counter);
                    come.insert(counter);
                    highest = highest.max(counter);
                }
            }
        }
    }
}

//! Which relay changes what others have stamped: the losses' tomography (`losses.rs`) once more.
//!
//! A stamp passes the relays that are nearer to the sender than who stamped it, and each of them can change it.
//! One that is out of line with the one before was changed by one of these, or its relay grants something else
//! now. With the probabilities c of relays to change a stamp that passes, and ε that it is true,
//!
//! ```text
//! P(out of line) = 1 - (1 - ε) Π (1 - c_j)     over the relays that it passed
//! r_k = c_k / P(out of line)                    the share of relay k; 0 if it is in line
//! c_k <- c_k + γ (r_k - c_k)
//! ```
//!
//! Limits of use: a relay that raises its own stamps alone is not found here, but by what is lost over it; over one
//! relay nobody passes a stamp on. Where a third of the relays changes stamps, so many are out of line that one that
//! does not may be taken for another.

use super::{Hop, Slot};

/// γ. A relay that changes all is found after some eight of its stamps, and a sender sees a relay ten times in the
/// first seconds.
const WEIGHT: f32 = 1.0 / 8.0;

/// ε: as often as a tenth of the relays makes it, for two stamps in a row that were changed are taken for a true
/// one (`explicit_rate.rs`), and the next true ones are then out of line.
const TRUE: f32 = 0.1;

/// What is thought of a relay before its first stamp, and at the least and most: as in `losses.rs`.
const LEAST: f32 = 0.01;
const MOST: f32 = 0.999;

/// Who changes a stamp more often than not is taken to do so on purpose. Where two of nineteen do, they are at 0.8
/// and more after 400 packets over three relays, and the others at 0.2 at most.
const ON_PURPOSE: f32 = 0.5;

/// The probability of each relay to change a stamp.
#[derive(Clone, Debug)]
pub struct StampChanges {
    relays: Box<[f32]>,
}

impl StampChanges {
    /// Nothing is known of `peers` relays.
    pub fn new(peers: usize) -> StampChanges {
        StampChanges { relays: vec![LEAST; peers].into() }
    }

    /// A stamp has come past the relays of `passed`, in line with the one before or not.
    #[inline]
    pub fn learn(&mut self, passed: &[Hop], in_line: bool) {
        let unchanged: f32 = passed.iter().map(|hop| 1.0 - self.relays[hop.slot.index()]).product();
        let out_of_line = 1.0 - (1.0 - TRUE) * unchanged;
        for hop in passed {
            let changes = &mut self.relays[hop.slot.index()];
            let share = if in_line { 0.0 } else { *changes / out_of_line };
            *changes = (*changes + WEIGHT * (share - *changes)).clamp(LEAST, MOST);
        }
    }

    /// Whether `slot` changes stamps on purpose.
    pub fn are_of(&self, slot: Slot) -> bool {
        self.relays[slot.index()] > ON_PURPOSE
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.relays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const RELAYS: usize = 19;

    /// Which of the relays are found after so many packets over three of them each, if these `change` stamps, and a
    /// relay's own grant is another one now and then.
    fn found(change: &[usize], grants_anew: f64, packets: usize, seed: u64) -> Vec<usize> {
        let (mut changes, mut rng) = (StampChanges::new(RELAYS), Rng::stream(seed, "stamps"));
        for _ in 0..packets {
            let mut path = [Hop::default(); 3];
            for place in 0..3 {
                path[place].slot = loop {
                    let slot = Slot(rng.below(RELAYS) as u16);
                    if path[..place].iter().all(|hop| hop.slot != slot) {
                        break slot;
                    }
                };
                let changed = path[..place].iter().any(|hop| change.contains(&hop.slot.index()));
                changes.learn(&path[..place], !changed && !rng.chance(grants_anew));
            }
        }
        (0..RELAYS).filter(|&relay| changes.are_of(Slot(relay as u16))).collect()
    }

    #[test]
    fn who_changes_stamps_is_distinguished_from_who_shares_a_path() {
        for seed in 0..20 {
            assert_eq!(found(&[3, 11], 0.05, 400, seed), [3, 11]);
            assert_eq!(found(&[3, 4, 11, 12], 0.05, 1_000, seed), [3, 4, 11, 12]);
        }
    }

    #[test]
    fn grants_that_change_are_nobodys_fault() {
        for seed in 0..20 {
            assert_eq!(found(&[], 0.2, 2_000, seed), [0; 0]);
        }
    }

    #[test]
    fn who_no_longer_changes_stamps_is_no_longer_found() {
        let mut changes = StampChanges::new(2);
        let passed = [Hop { slot: Slot(1), ..Hop::default() }];
        (0..40).for_each(|_| changes.learn(&passed, false));
        assert!(changes.are_of(Slot(1)) && !changes.are_of(Slot(0)));
        (0..8).for_each(|_| changes.learn(&passed, true));
        assert!(!changes.are_of(Slot(1)));
    }
}

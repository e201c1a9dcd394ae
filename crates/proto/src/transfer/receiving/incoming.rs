//! A file that arrives: which of its blocks have come, and which wait to be written.

use std::ops::Range;

use anabranch_control::time::{Duration, Time};

use super::super::around::ReceiverCounters;
use super::super::block_ranges;
use super::super::extents::Extents;
use super::super::jobs::Batch;
use super::super::limits::Limits;
use crate::overlay::message::Offer;

/// A file that arrives.
#[derive(Clone, Debug)]
pub struct Incoming {
    pub offer: Offer,
    /// A bit for each block that has come.
    pub arrived: Vec<u64>,
    pub missing: u64,
    /// Blocks that will be written next.
    pub waiting: Batch,
    /// What `waiting` and the blocks that are being written take, as limited.
    pub unwritten: usize,
    /// Of that, what is being written.
    pub writing: usize,
    /// A job is under way.
    pub is_working: bool,
    /// It is being looked up what is there from before: blocks had better wait.
    pub is_looked_up: bool,
    /// Blocks of it are kept.
    pub is_begun: bool,
    /// Since when it was seen that nothing of it comes; none if something has come since it was
    /// looked at.
    pub stalls_since: Option<Time>,
}

impl Incoming {
    /// Nothing has come of it, and it is being made room for.
    pub fn new(offer: Offer, is_looked_up: bool) -> Incoming {
        let blocks = offer.blocks();
        Incoming {
            offer,
            arrived: vec![0; blocks.div_ceil(64) as usize],
            missing: blocks,
            waiting: Batch::default(),
            unwritten: 0,
            writing: 0,
            is_working: true,
            is_looked_up,
            is_begun: false,
            stalls_since: None,
        }
    }

    /// A block has come; whether it is acknowledged: only what there is room for is.
    pub fn on_block(
        &mut self,
        index: u32,
        bytes: &[u8],
        limits: &Limits,
        unwritten: &mut usize,
        counters: &mut ReceiverCounters,
    ) -> bool {
        let Some((offset, _)) = self.offer.span(index).filter(|&(_, length)| length == bytes.len()) else {
            counters.unreadable += 1;
            return false;
        };
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        if self.arrived[word] & bit != 0 {
            counters.duplicates += 1;
            return true;
        }
        // Of what there is no room for, its sender is not to blame.
        self.stalls_since = None;
        let cost = Batch::cost_of(bytes.len());
        if self.unwritten + cost > limits.file_writes || *unwritten + cost > limits.writes {
            counters.deferred += 1;
            return false;
        }
        *unwritten += cost;
        self.unwritten += cost;
        self.waiting.push(offset, bytes);
        counters.blocks += 1;
        self.arrived[word] |= bit;
        self.missing -= 1;
        true
    }

    /// Whether nothing new of it has come for `longest`; to be asked now and then.
    pub fn is_stalled(&mut self, now: Time, longest: Duration) -> bool {
        if self.is_working {
            self.stalls_since = None;
            return false;
        }
        now.since(*self.stalls_since.get_or_insert(now)) >= longest
    }

    /// These bytes are there from a session before; the blocks that they hold whole.
    pub fn resume(&mut self, extents: &Extents) -> Vec<Range<u64>> {
        let whole = block_ranges::whole_blocks(&self.offer, extents);
        for blocks in &whole {
            self.missing -= set(&mut self.arrived, blocks);
        }
        whole
    }
}

/// Sets the bits of `range`; how many were not set.
fn set(bits: &mut [u64], range: &Range<u64>) -> u64 {
    let (first, last) = (range.start / 64, (range.end - 1) / 64);
    let mut new = 0;
    for word in first..=last {
        let from = if word == first { u64::MAX << (range.start % 64) } else { u64::MAX };
        let to = if word == last { u64::MAX >> (63 - (range.end - 1) % 64) } else { u64::MAX };
        let word = &mut bits[word as usize];
        new += u64::from((from & to & !*word).count_ones());
        *word |= from & to;
    }
    new
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::overlay::message::FileName;

    proptest! {
        #[test]
        fn blocks_are_there_from_before_if_all_their_bytes_are(
            length in 1u64..2000,
            block in 1u16..40,
            kept in prop::collection::vec((0u64..2000, 1u64..600), 0..6),
            come in prop::collection::vec(any::<u32>(), 0..20),
        ) {
            let offer = Offer { name: FileName::sanitised("a"), length, block, hash: [0; 32] };
            let kept = kept.into_iter().map(|(start, more)| start.min(length)..(start + more).min(length));
            let extents: Extents = kept.collect();
            let mut incoming = Incoming::new(offer.clone(), true);
            for index in come {
                incoming.missing -= set(&mut incoming.arrived, &(u64::from(index) % offer.blocks()..u64::from(index) % offer.blocks() + 1));
            }
            let before = incoming.arrived.clone();
            let resumed = incoming.resume(&extents);
            for index in 0..offer.blocks() {
                let (start, size) = offer.span(index as u32).unwrap();
                let is_kept = extents.holds(&(start..start + size as u64));
                let bit = |bits: &[u64]| bits[index as usize / 64] & 1 << (index % 64) != 0;
                prop_assert_eq!(bit(&incoming.arrived), is_kept || bit(&before), "{}", index);
                prop_assert_eq!(resumed.iter().any(|range| range.contains(&index)), is_kept);
            }
            let arrived: u32 = incoming.arrived.iter().map(|word| word.count_ones()).sum();
            prop_assert_eq!(incoming.missing + u64::from(arrived), offer.blocks());
        }
    }
}

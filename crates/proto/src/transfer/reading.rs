//! What a sender has read of its file: parts that are asked for before their blocks leave, each by
//! a job, and kept while there is room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::overlay::message::Offer;

/// Bytes that are read at once, as many as make whole blocks; a block at least.
const PART: u64 = 64 << 10;

/// Parts that are kept, the one that was used longest ago making room: 1 MiB.
const MAX_PARTS: usize = 16;

/// Parts that are being read: the one that is waited for, and the one behind it.
const MAX_READS: usize = 2;

#[derive(Clone, Debug)]
struct Part {
    bytes: Vec<u8>,
    /// How many were used before it was used last.
    used: u64,
}

/// The parts of a file.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    length: u64,
    /// Bytes of a part; its number times this is where it begins.
    part: u64,
    parts: BTreeMap<u64, Part>,
    under_way: BTreeSet<u64>,
    jobs: VecDeque<u64>,
    uses: u64,
}

impl ReadAhead {
    /// Nothing is read yet of the file of `offer`.
    pub fn new(offer: &Offer) -> ReadAhead {
        let block = u64::from(offer.block).max(1);
        ReadAhead {
            length: offer.length,
            part: block * (PART / block).max(1),
            parts: BTreeMap::new(),
            under_way: BTreeSet::new(),
            jobs: VecDeque::new(),
            uses: 0,
        }
    }

    /// The `length` bytes of the block at `offset`, if they are there; otherwise they are asked for.
    /// What is behind them is asked for too.
    pub fn block(&mut self, offset: u64, length: usize) -> Option<&[u8]> {
        let number = offset / self.part;
        self.ask(number);
        self.ask(number + 1);
        self.uses += 1;
        let part = self.parts.get_mut(&number)?;
        part.used = self.uses;
        part.bytes.get((offset % self.part) as usize..)?.get(..length)
    }

    fn ask(&mut self, number: u64) {
        let is_there = self.parts.contains_key(&number) || self.under_way.contains(&number);
        if !is_there && number * self.part < self.length && self.under_way.len() < MAX_READS {
            self.under_way.insert(number);
            self.jobs.push_back(number);
        }
    }

    /// What is to be read next.
    pub fn next_job(&mut self) -> Option<Range<u64>> {
        let start = self.jobs.pop_front()? * self.part;
        Some(start..(start + self.part).min(self.length))
    }

    /// What begins at `offset` was read, or could not be.
    ///
    /// # Errors
    ///
    /// As it is given.
    pub fn on_read(&mut self, offset: u64, bytes: Result<Vec<u8>, Arc<io::Error>>) -> Result<(), Arc<io::Error>> {
        let number = offset / self.part;
        self.under_way.remove(&number);
        let part = Part { bytes: bytes?, used: self.uses };
        let oldest = self.parts.iter().min_by_key(|(_, part)| part.used).map(|(number, _)| *number);
        if let Some(oldest) = oldest.filter(|_| self.parts.len() >= MAX_PARTS) {
            self.parts.remove(&oldest);
        }
        self.parts.insert(number, part);
        Ok(())
    }

    /// Bytes that are kept.
    pub fn kept(&self) -> usize {
        self.parts.values().map(|part| part.bytes.len()).sum()
    }
}

/// The most that [`ReadAhead::kept`] gives: a block of the longest datagram is less than a part.
pub const MOST_KEPT: usize = PART as usize * MAX_PARTS;

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::overlay::message::FileName;
    use proptest::prelude::*;

    fn offer(length: u64, block: u16) -> Offer {
        Offer { name: FileName::sanitised("a"), length, block, hash: [0; 32] }
    }

    /// The longest file of the tests.
    static CONTENT: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..4_000_000u32).map(|place| (place * 31 % 251) as u8).collect());

    fn bytes(range: Range<u64>) -> &'static [u8] {
        &CONTENT[range.start as usize..range.end as usize]
    }

    #[test]
    fn a_block_is_there_once_its_part_was_read_and_the_next_part_is_asked_for() {
        let mut file = ReadAhead::new(&offer(200_000, 1000));
        assert_eq!(file.block(3000, 1000), None);
        assert_eq!(file.block(3000, 1000), None);
        let jobs: Vec<Range<u64>> = std::iter::from_fn(|| file.next_job()).collect();
        assert_eq!(jobs, [0..65_000, 65_000..130_000], "each once, in whole blocks");
        file.on_read(0, Ok(bytes(0..65_000).to_vec())).unwrap();
        assert_eq!(file.block(3000, 1000), Some(bytes(3000..4000)));
        assert_eq!(file.block(130_000, 1000), None);
        assert_eq!(file.next_job(), Some(130_000..195_000));
        assert_eq!(file.next_job(), None, "no more than two are read at a time");
        assert!(file.on_read(65_000, Err(Arc::new(io::Error::other("broken")))).is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_asked_for_is_given_as_it_is_and_memory_is_bounded(
            length in 1u64..4_000_000,
            block in 1u16..2000,
            wanted in prop::collection::vec(any::<u64>(), 1..60),
        ) {
            let offer = offer(length, block);
            let mut file = ReadAhead::new(&offer);
            for wanted in wanted {
                let (offset, size) = offer.span((wanted % offer.blocks()) as u32).unwrap();
                // It is not taken away again before it is used.
                let mut turns = 0;
                let given = loop {
                    if let Some(given) = file.block(offset, size) {
                        break given.to_vec();
                    }
                    let job = file.next_job();
                    prop_assert!(job.is_some() && turns <= MAX_READS, "{job:?}");
                    let job = job.unwrap();
                    file.on_read(job.start, Ok(bytes(job).to_vec())).unwrap();
                    turns += 1;
                };
                prop_assert_eq!(given, bytes(offset..offset + size as u64));
                prop_assert!(file.kept() <= MOST_KEPT);
            }
        }
    }
}

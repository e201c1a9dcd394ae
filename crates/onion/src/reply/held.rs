//! Blocks that others made, until they are used.

use std::collections::{BTreeSet, VecDeque};

use crate::reply::ReplyBlock;

/// Blocks of one peer, oldest first. Each is given out once, also if its maker sends it again.
#[derive(Debug)]
pub struct HeldBlocks {
    most: usize,
    /// Used ones that are remembered.
    remembered: usize,
    held: VecDeque<ReplyBlock>,
    /// Those held, and the last that were used.
    known: BTreeSet<[u8; 32]>,
    used: VecDeque<[u8; 32]>,
}

/// Why a block was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is room for no more.
    Full,
    /// It is held already, or was used.
    Known,
}

impl HeldBlocks {
    /// None, with room for `most`.
    pub fn new(most: usize) -> HeldBlocks {
        HeldBlocks::remembering(most, most)
    }

    /// None, with room for `most`, of which those that were used count as new again after `remembered` others. With 0,
    /// whoever hands in a block twice has it used twice, in vain, since its relays open it once.
    pub fn remembering(most: usize, remembered: usize) -> HeldBlocks {
        HeldBlocks { most, remembered, held: VecDeque::new(), known: BTreeSet::new(), used: VecDeque::new() }
    }

    /// Takes `block` in.
    ///
    /// # Errors
    ///
    /// When there is no room, or it was seen before.
    pub fn insert(&mut self, block: ReplyBlock) -> Result<(), Refused> {
        if self.held.len() >= self.most {
            return Err(Refused::Full);
        }
        if !self.known.insert(block.fingerprint()) {
            return Err(Refused::Known);
        }
        self.held.push_back(block);
        Ok(())
    }

    /// The oldest block, which is not held any more.
    pub fn take(&mut self) -> Option<ReplyBlock> {
        let block = self.held.pop_front()?;
        self.used.push_back(block.fingerprint());
        if self.used.len() > self.remembered {
            let forgotten = self.used.pop_front().expect("it holds more than none");
            self.known.remove(&forgotten);
        }
        Some(block)
    }

    /// How many are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Gives all up, as in another epoch, in which relays know their keys no more.
    pub fn clear(&mut self) {
        while self.take().is_some() {}
    }
}

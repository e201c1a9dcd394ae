//! Blocks that were given out, until they come back.

use std::collections::{HashMap, VecDeque};

use anabranch_control::time::Time;
use arrayvec::ArrayVec;
use rand_core::Rng;

use crate::RelayIndex;
use crate::crypto::{Cryptography, HopKey, PacketKeys};
use crate::packet::{
    Datagram, HEADER, Half, Hop, INTEGRITY, Isolated, Label, Next, Part, PathError, PathKeys, Receipt, header_name,
    parts,
};
use crate::reply::ReplyBlock;
use crate::size::MOST_HOPS;

/// The number of a block that was made here: the first is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u64);

/// What came back by a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Which block.
    pub block: BlockId,
    /// When it was made.
    pub made: Time,
    /// The relays that it passed.
    pub relays: Vec<RelayIndex>,
}

/// Why a datagram did not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// It came by no block of ours that is out: by none, a second time, or too late.
    Unknown,
    /// It came by this block, and its payload was changed on the way.
    Damaged(Opened),
}

/// The keys of blocks that are out.
#[derive(Debug)]
pub struct MadeBlocks<C> {
    most: usize,
    /// By the name that a block's last relay appends.
    out: HashMap<u64, Made, ahash::RandomState>,
    /// When each was made, its number and its name, in that order; some have come back.
    order: VecDeque<(Time, BlockId, u64)>,
    made: u64,
    cryptography: core::marker::PhantomData<C>,
}

#[derive(Debug)]
struct Made {
    id: BlockId,
    at: Time,
    parts: ArrayVec<Part, MOST_HOPS>,
    key: HopKey,
    receipt: Receipt,
    /// Whether it counts as lost.
    is_lost: bool,
}

impl<C: Cryptography> MadeBlocks<C> {
    /// None, with room for `most`: one more, and the oldest counts as lost.
    pub fn new(most: usize) -> MadeBlocks<C> {
        MadeBlocks {
            most,
            // Names are pseudo-random and our own: nobody chooses where they go.
            out: HashMap::with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4)),
            order: VecDeque::new(),
            made: 0,
            cryptography: core::marker::PhantomData,
        }
    }

    /// Makes a block by which somebody else answers over `hops`, the last of which finds us by `label`.
    ///
    /// # Errors
    ///
    /// When there is no such path.
    pub fn make<'k>(
        &mut self,
        keys: impl Into<Isolated<'k, C>>,
        hops: &[Hop],
        label: Label,
        now: Time,
        rng: &mut impl Rng,
    ) -> Result<(BlockId, ReplyBlock), PathError>
    where
        C: 'k,
    {
        self.make_half(Half::Receiver, keys.into(), hops, label, now, rng)
    }

    /// Makes a block for ourselves: sealed with it, a packet goes from our guard, the first of `hops`, back to us.
    ///
    /// # Errors
    ///
    /// When there is no such path.
    pub fn make_loop<'k>(
        &mut self,
        keys: impl Into<Isolated<'k, C>>,
        hops: &[Hop],
        label: Label,
        now: Time,
        rng: &mut impl Rng,
    ) -> Result<(BlockId, ReplyBlock), PathError>
    where
        C: 'k,
    {
        self.make_half(Half::Loop, keys.into(), hops, label, now, rng)
    }

    fn make_half(
        &mut self,
        half: Half,
        mut keys: Isolated<'_, C>,
        hops: &[Hop],
        label: Label,
        now: Time,
        rng: &mut impl Rng,
    ) -> Result<(BlockId, ReplyBlock), PathError> {
        let mut header = [0; HEADER];
        let made = keys.make(half, hops, Next::Client, label, rng, &mut header)?;
        let mut key = HopKey([0; HopKey::BYTES]);
        rng.fill_bytes(&mut key.0);
        let id = BlockId(self.made);
        self.made += 1;
        let block = ReplyBlock { first: hops[0].relay, header, key: key.clone(), epoch: keys.keys.epoch() as u8 };
        if self.out.len() >= self.most {
            self.give_up_oldest(keys.keys);
        }
        self.out.insert(made.name, Made { id, at: now, parts: made.parts, key, receipt: made.receipt, is_lost: false });
        // What has come back is kept in the order no longer than it takes to be half of it.
        if self.order.len() >= 2 * self.most {
            self.order.retain(|(.., name)| self.out.contains_key(name));
        }
        self.order.push_back((now, id, made.name));
        Ok((id, block))
    }

    /// Opens what our guard has passed on; its [`body`](crate::packet::body) is then what the block's user has
    /// written. The block is used up.
    ///
    /// # Errors
    ///
    /// When it came by no block of ours, or damaged.
    pub fn open(&mut self, keys: &mut PathKeys<C>, datagram: &mut Datagram) -> Result<Opened, OpenError> {
        let (header, payload) = parts(datagram);
        let made = self.out.remove(&header_name(header)).ok_or(OpenError::Unknown)?;
        for part in made.parts.iter().rev() {
            C::packet(&part.key, part.index).invert(payload);
        }
        C::packet(&made.key, 0).permute(payload);
        // All relays found their keys, whatever happened to the payload.
        if made.is_lost {
            keys.arrived_late(&made.receipt);
        } else {
            keys.arrived(&made.receipt);
        }
        let relays = made.parts.iter().map(|part| part.relay).collect();
        let opened = Opened { block: made.id, made: made.at, relays };
        if C::equal(&payload[..INTEGRITY], &[0; INTEGRITY]) { Ok(opened) } else { Err(OpenError::Damaged(opened)) }
    }

    /// A block counts as lost: its keys learn that. If it comes after all, it opens.
    pub fn lost(&mut self, keys: &mut PathKeys<C>, block: BlockId) {
        let Ok(place) = self.order.binary_search_by_key(&block, |(_, id, _)| *id) else { return };
        let (.., name) = self.order[place];
        if let Some(made) = self.out.get_mut(&name).filter(|made| !made.is_lost) {
            made.is_lost = true;
            keys.lost(&made.receipt);
        }
    }

    /// Gives up the blocks that were made before `before`; the oldest first.
    pub fn give_up(&mut self, keys: &mut PathKeys<C>, before: Time) -> Vec<BlockId> {
        let mut lost = Vec::new();
        while self.order.front().is_some_and(|&(at, ..)| at < before) {
            lost.extend(self.give_up_first(keys));
        }
        lost
    }

    /// How many are out.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether none is out.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn give_up_oldest(&mut self, keys: &mut PathKeys<C>) {
        while !self.order.is_empty() && self.give_up_first(keys).is_none() {}
    }

    /// Takes the first off the order; its id if it was still out.
    fn give_up_first(&mut self, keys: &mut PathKeys<C>) -> Option<BlockId> {
        let (.., name) = self.order.pop_front()?;
        let made = self.out.remove(&name)?;
        if !made.is_lost {
            keys.lost(&made.receipt);
        }
        Some(made.id)
    }
}

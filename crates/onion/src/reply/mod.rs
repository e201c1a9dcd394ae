//! Single-use reply blocks: a half of a path that its maker chose, for whoever is to answer.
//!
//! A block is the index of its first relay and the epoch whose directory has it, a header, and a payload key. Its user ([`ReplyBlock::seal`])
//! permutes the payload under that key alone; the keys of the relays stay with the maker ([`MadeBlocks`]),
//! so that the user can't tell what any relay sees or sends. What comes back says by the name that the last
//! relay appended which block it was, and so which path it took.

mod held;
mod made;

use core::fmt;

pub use held::{HeldBlocks, Refused};
pub use made::{BlockId, MadeBlocks, OpenError, Opened};

use crate::RelayIndex;
use crate::crypto::{Cryptography, HopKey, PacketKeys};
use crate::packet::{Datagram, HEADER, INTEGRITY, LAST_INDEX, parts};

/// A block, in the hands of whoever is to answer with it. Whoever seals with it gives it away.
#[derive(PartialEq, Eq)]
pub struct ReplyBlock {
    first: RelayIndex,
    header: [u8; HEADER],
    key: HopKey,
    epoch: u8,
}

/// Where what leaves by a block goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// The relay's index.
    pub relay: RelayIndex,
    /// The epoch whose directory says which relay that is: its number's last byte.
    pub epoch: u8,
}

impl fmt::Debug for ReplyBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplyBlock(by relay {})", self.first.0)
    }
}

impl ReplyBlock {
    /// Bytes of a block. Five of them fit into a body.
    pub const BYTES: usize = 2 + HEADER + HopKey::BYTES + 1;

    /// Its bytes, for whoever is to use it.
    pub fn to_bytes(&self) -> [u8; ReplyBlock::BYTES] {
        let mut bytes = [0; ReplyBlock::BYTES];
        bytes[..2].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[2..2 + HEADER].copy_from_slice(&self.header);
        bytes[2 + HEADER..ReplyBlock::BYTES - 1].copy_from_slice(&self.key.0);
        bytes[ReplyBlock::BYTES - 1] = self.epoch;
        bytes
    }

    /// The block in `bytes`; none if no relay can have its first index. All else shows when it is used.
    pub fn from_bytes(bytes: &[u8; ReplyBlock::BYTES]) -> Option<ReplyBlock> {
        let first = RelayIndex(u16::from_le_bytes([bytes[0], bytes[1]]));
        let epoch = bytes[ReplyBlock::BYTES - 1];
        let mut block = ReplyBlock { first, header: [0; HEADER], key: HopKey([0; HopKey::BYTES]), epoch };
        block.header.copy_from_slice(&bytes[2..2 + HEADER]);
        block.key.0.copy_from_slice(&bytes[2 + HEADER..ReplyBlock::BYTES - 1]);
        (first <= LAST_INDEX).then_some(block)
    }

    /// Where it begins, for whoever is to seal with it: a block that is used in an epoch later than its own goes to the
    /// relay that its own directory had there.
    pub fn first(&self) -> First {
        First { relay: self.first, epoch: self.epoch }
    }

    /// Seals the datagram's [`body`](crate::packet::body_mut) for the block's maker. The datagram goes to the relay
    /// that is returned; the block's maker wrote it there, and it may be no member.
    #[must_use]
    pub fn seal<C: Cryptography>(self, datagram: &mut Datagram) -> RelayIndex {
        let (header, payload) = parts(datagram);
        *header = self.header;
        payload[..INTEGRITY].fill(0);
        C::packet(&self.key, 0).invert(payload);
        self.first
    }

    /// What no other block has.
    fn fingerprint(&self) -> [u8; 32] {
        let (bytes, _) = self.header.split_first_chunk().expect("a header is longer than its material");
        *bytes
    }
}

//! What a relay knows for one epoch: its secret, who is a member, and which set-ups it has seen.

use core::fmt;

use fastbloom::BloomFilter;

use crate::RelayIndex;
use crate::crypto::{Cryptography, PublicKey};

/// Bits that a set-up sets in the filter. Sized for a full filter: with 8 bits a set-up, 2.4 % of new ones are
/// refused, and with 17, 0.2 %; no old one ever passes.
const HASHES: u32 = 4;

/// What a relay begins an epoch with.
#[derive(Clone, Debug)]
pub struct EpochKeys<C: Cryptography> {
    /// The epoch's number.
    pub epoch: u64,
    /// A secret that lives in memory alone: after a restart the relay has another.
    pub secret: C::Secret,
    /// Relays in the epoch's directory.
    pub members: u16,
    /// This relay's place there.
    pub own: Option<RelayIndex>,
}

pub(super) struct Epoch<C: Cryptography> {
    pub number: u64,
    pub secret: C::Secret,
    pub public: PublicKey,
    members: u16,
    own: Option<RelayIndex>,
    pub seen: Seen,
    /// Bytes of `seen`.
    pub seen_bytes: usize,
}

impl<C: Cryptography> fmt::Debug for Epoch<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({}, {:?})", self.number, self.public)
    }
}

impl<C: Cryptography> Epoch<C> {
    pub fn new(keys: EpochKeys<C>, seen_bytes: usize, seeds: [u64; 2]) -> Epoch<C> {
        let public = C::public(&keys.secret);
        // Where there is no member nothing is ever opened.
        let seen_bytes = if keys.members == 0 { 0 } else { seen_bytes };
        Epoch {
            number: keys.epoch,
            secret: keys.secret,
            public,
            members: keys.members,
            own: keys.own,
            seen: Seen::new(seen_bytes, seeds),
            seen_bytes,
        }
    }

    pub fn is_other_member(&self, relay: RelayIndex) -> bool {
        relay.0 < self.members && Some(relay) != self.own
    }
}

/// The set-ups of an epoch, in a Bloom filter: of a fixed size, and wrong to one side only.
pub(super) struct Seen(BloomFilter<ahash::RandomState>);

impl Seen {
    fn new(bytes: usize, [one, other]: [u64; 2]) -> Seen {
        let hasher = ahash::RandomState::with_seeds(one, other, !one, !other);
        Seen(BloomFilter::with_num_bits((8 * bytes).max(64)).hasher(hasher).hashes(HASHES))
    }

    pub fn contains(&self, ephemeral: &[u8; 32]) -> bool {
        self.0.contains(ephemeral)
    }

    pub fn insert(&mut self, ephemeral: &[u8; 32]) {
        self.0.insert(ephemeral);
    }
}

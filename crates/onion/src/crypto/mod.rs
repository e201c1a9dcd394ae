//! What packets need of cryptography, behind one small trait.
//!
//! A relay and a sender agree on a [`HopKey`] (X25519, then a key derivation bound to both public keys).
//! Of it follow, for each packet, a one-time id PRF(K, i) and the [`PacketKeys`]: a keystream for the
//! header, a tag over the header, and a permutation of the whole payload. [`Real`] does this;
//! [`Transparent`] keeps lengths and outcomes and protects nothing, for simulations.

mod agreement;
mod real;
mod transparent;
mod uiv;

use core::fmt;

use zeroize::Zeroize;

pub use real::Real;
pub use transparent::Transparent;

use crate::packet::{KEYSTREAM, PAYLOAD, TAG};

/// An X25519 public key (RFC 7748): of a relay's epoch, or of one set-up. Bit 255 has no meaning there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…")
    }
}

/// What a sender shares with one relay, for at most as many packets as the network's k.
///
/// Wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct HopKey(pub(crate) [u8; HopKey::BYTES]);

impl HopKey {
    /// Its length.
    pub const BYTES: usize = 16;
}

impl fmt::Debug for HopKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HopKey")
    }
}

impl Drop for HopKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// What a packet shows a relay in place of a key: PRF(K, i). It means something once.
pub type OneTimeId = u64;

/// What relays, senders and receivers do with keys.
pub trait Cryptography: Copy + Default + fmt::Debug + Send + Sync + 'static {
    /// A secret scalar. Implementations wipe it when it is dropped.
    type Secret: Clone + fmt::Debug + Send + Sync;
    /// The keys of one packet at one relay.
    type Packet: PacketKeys;

    /// The secret that 32 random bytes are.
    fn secret(random: &[u8; 32]) -> Self::Secret;

    /// What others may know of it.
    fn public(secret: &Self::Secret) -> PublicKey;

    /// The key that the holder of `secret` shares with the holder of `theirs`, one of whom has sent
    /// `ephemeral` to the other, who is known by `relay`. None if `theirs` has a low order: then anybody
    /// would know the key (RFC 7748, 6.1).
    fn agree(secret: &Self::Secret, theirs: &PublicKey, ephemeral: &PublicKey, relay: &PublicKey) -> Option<HopKey>;

    /// The ids of the packets `first`, `first` + 1, ... under `key`.
    fn ids(key: &HopKey, first: u16, ids: &mut [OneTimeId]);

    /// The keys of packet `index` under `key`.
    fn packet(key: &HopKey, index: u16) -> Self::Packet;

    /// Whether both are the same, in a time that does not tell where they differ.
    fn equal(one: &[u8], other: &[u8]) -> bool;
}

/// What a relay does to one packet, and what its sender and receiver undo.
pub trait PacketKeys {
    /// What the header's secret part is XORed with.
    fn keystream(&self) -> &[u8; KEYSTREAM];

    /// The tag of a header.
    fn tag(&self, header: &[u8; crate::packet::TAGGED]) -> [u8; TAG];

    /// What relays do to payloads, in both halves of a path: hash first, so that what was changed
    /// comes out wholly random.
    fn permute(&self, payload: &mut [u8; PAYLOAD]);

    /// The inverse, for ends alone: relays never do it, since it carries changes through.
    fn invert(&self, payload: &mut [u8; PAYLOAD]);
}

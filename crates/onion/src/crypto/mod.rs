//! What packets need of cryptography, behind one small trait.
//!
//! A relay and a sender agree on a [`HopKey`] (X25519, then a key derivation bound to both public keys).
//! Of it follow, for each packet, a one-time id PRF(K, i) and the [`PacketKeys`]: a keystream for the
//! header, a tag over the header, and a permutation of the whole payload. [`Real`] does this;
//! [`Transparent`] keeps lengths and outcomes and protects nothing, for simulations.

mod real;
mod transparent;
mod uiv;

use core::fmt;

use subtle::ConstantTimeEq;
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
#[derive(Clone)]
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

impl PartialEq for HopKey {
    fn eq(&self, other: &HopKey) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for HopKey {}

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn agreed<C: Cryptography>(one: [u8; 32], other: [u8; 32]) -> (Option<HopKey>, Option<HopKey>) {
        let (sender, relay) = (C::secret(&one), C::secret(&other));
        let (ephemeral, key) = (C::public(&sender), C::public(&relay));
        (C::agree(&sender, &key, &ephemeral, &key), C::agree(&relay, &ephemeral, &ephemeral, &key))
    }

    fn both_ends_have_one_key<C: Cryptography>(one: [u8; 32], other: [u8; 32]) -> Result<(), TestCaseError> {
        let (ours, theirs) = agreed::<C>(one, other);
        prop_assert!(ours.is_some());
        prop_assert_eq!(&ours, &theirs);
        let mut changed = other;
        changed[1] ^= 1;
        prop_assert_ne!(ours, agreed::<C>(one, changed).0);
        Ok(())
    }

    fn what_is_permuted_comes_back<C: Cryptography>(key: [u8; 16], index: u16, seed: u64) -> Result<(), TestCaseError> {
        let mut rng = anabranch_control::rng::Rng::stream(seed, "payload");
        let mut payload = [0; PAYLOAD];
        rand_core::Rng::fill_bytes(&mut rng, &mut payload);
        let (given, keys) = (payload, C::packet(&HopKey(key), index));
        keys.permute(&mut payload);
        prop_assert_ne!(payload, given);
        keys.invert(&mut payload);
        prop_assert_eq!(payload, given);
        keys.invert(&mut payload);
        keys.permute(&mut payload);
        prop_assert_eq!(payload, given);
        Ok(())
    }

    fn any_change_of_a_header_changes_its_tag<C: Cryptography>(key: [u8; 16]) {
        let keys = C::packet(&HopKey(key), 3);
        let mut header = [5; crate::packet::TAGGED];
        let tag = keys.tag(&header);
        for bit in 0..8 * header.len() {
            header[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(keys.tag(&header), tag, "bit {bit}");
            header[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(keys.tag(&header), tag);
        assert_ne!(C::packet(&HopKey(key), 4).tag(&header), tag, "each packet has another tag");
    }

    proptest! {
        #[test]
        fn both_ends_agree_on_one_key(one: [u8; 32], other: [u8; 32]) {
            both_ends_have_one_key::<Real>(one, other)?;
            both_ends_have_one_key::<Transparent>(one, other)?;
        }

        #[test]
        fn a_payload_comes_back_in_both_orders(key: [u8; 16], index: u16, seed: u64) {
            what_is_permuted_comes_back::<Real>(key, index, seed)?;
            what_is_permuted_comes_back::<Transparent>(key, index, seed)?;
        }

        #[test]
        fn tags_hold_the_whole_header(key: [u8; 16]) {
            any_change_of_a_header_changes_its_tag::<Real>(key);
            any_change_of_a_header_changes_its_tag::<Transparent>(key);
        }
    }

    fn ids_of_keys_all_differ<C: Cryptography>() {
        let mut all = BTreeSet::new();
        for key in 0..20 {
            let mut ids = [0; 500];
            C::ids(&HopKey([key; 16]), 0, &mut ids);
            all.extend(ids);
            // One by one they are the same.
            let mut one = [0];
            C::ids(&HopKey([key; 16]), 137, &mut one);
            assert_eq!(one[0], ids[137]);
        }
        assert_eq!(all.len(), 20 * 500);
    }

    #[test]
    fn one_time_ids_are_used_by_one_packet() {
        ids_of_keys_all_differ::<Real>();
        ids_of_keys_all_differ::<Transparent>();
    }

    #[test]
    fn p08_a_comparison_misses_no_byte() {
        for place in 0..12 {
            let mut other = [9; 12];
            other[place] ^= 0x80;
            assert!(!Real::equal(&[9; 12], &other) && !Transparent::equal(&[9; 12], &other));
        }
        assert!(Real::equal(&[9; 12], &[9; 12]) && !Real::equal(&[9; 12], &[9; 11]));
    }

    #[test]
    fn another_encoding_of_an_ephemeral_key_gives_another_key() {
        // A point plus one of order two has the same shared secret: without both keys' bytes in the
        // derivation, a set-up could be repeated in another form. Bit 255 alone shows it here.
        let relay = Real::secret(&[3; 32]);
        let (ephemeral, key) = (Real::public(&Real::secret(&[4; 32])), Real::public(&relay));
        let mut other = ephemeral;
        other.0[31] |= 0x80;
        let agree = |theirs: &PublicKey| Real::agree(&relay, theirs, theirs, &key);
        assert_ne!(agree(&ephemeral), agree(&other));
    }
}

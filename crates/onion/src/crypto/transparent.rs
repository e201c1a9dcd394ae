//! A layer of equal lengths that protects nothing, for simulations.
//!
//! What relays forward, refuse and deliver is the same as with [`Real`](super::Real): keys follow from
//! both public keys, ids are all different, a changed header has another tag, and a payload's left block
//! takes up a sum of the rest at each relay, so that a change anywhere is seen at the end. Whoever wishes
//! can compute all of it.

use super::{Cryptography, HopKey, OneTimeId, PacketKeys, PublicKey};
use crate::packet::{KEYSTREAM, PAYLOAD, SLOT, TAG, TAGGED};

/// Odd constants of wyhash and SplitMix64.
const MIX: [u64; 2] = [0xa076_1d64_78bd_642f, 0x9e37_79b9_7f4a_7c15];

/// Protects nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transparent;

/// A secret that its public key tells.
#[derive(Clone, Debug)]
pub struct OpenSecret([u8; 32]);

/// The keys of one packet at one relay.
pub struct TransparentPacket {
    key: u64,
    /// Zeros, then 48 bytes that no other packet has: what is appended names reply blocks.
    stream: [u8; KEYSTREAM],
}

impl Cryptography for Transparent {
    type Secret = OpenSecret;
    type Packet = TransparentPacket;

    fn secret(random: &[u8; 32]) -> OpenSecret {
        OpenSecret(*random)
    }

    fn public(secret: &OpenSecret) -> PublicKey {
        let mut public = secret.0;
        public[31] &= 0x7f;
        PublicKey(public)
    }

    fn agree(_: &OpenSecret, theirs: &PublicKey, ephemeral: &PublicKey, relay: &PublicKey) -> Option<HopKey> {
        if theirs.0 == [0; 32] {
            return None;
        }
        let half = |seed| sum(sum(seed, &ephemeral.0), &relay.0).to_le_bytes();
        let mut key = [0; HopKey::BYTES];
        key[..8].copy_from_slice(&half(1));
        key[8..].copy_from_slice(&half(2));
        Some(HopKey(key))
    }

    fn ids(key: &HopKey, first: u16, ids: &mut [OneTimeId]) {
        let key = sum(0, &key.0);
        for (place, id) in ids.iter_mut().enumerate() {
            *id = of_packet(key, first.wrapping_add(place as u16));
        }
    }

    fn packet(key: &HopKey, index: u16) -> TransparentPacket {
        let key = of_packet(sum(3, &key.0), index);
        let mut stream = [0; KEYSTREAM];
        let (_, appended) = stream.split_at_mut(KEYSTREAM - SLOT);
        for (place, word) in appended.chunks_mut(8).enumerate() {
            word.copy_from_slice(&of_packet(key, place as u16).to_le_bytes());
        }
        TransparentPacket { key, stream }
    }

    fn equal(one: &[u8], other: &[u8]) -> bool {
        one == other
    }
}

impl PacketKeys for TransparentPacket {
    fn keystream(&self) -> &[u8; KEYSTREAM] {
        &self.stream
    }

    fn tag(&self, header: &[u8; TAGGED]) -> [u8; TAG] {
        let mut tag = [0; TAG];
        tag[..8].copy_from_slice(&sum(self.key, header).to_le_bytes());
        tag
    }

    fn permute(&self, payload: &mut [u8; PAYLOAD]) {
        let (left, right) = payload.split_at_mut(16);
        let sum = sum(self.key, right).to_le_bytes();
        left.iter_mut().zip(sum).for_each(|(byte, sum)| *byte ^= sum);
    }

    fn invert(&self, payload: &mut [u8; PAYLOAD]) {
        self.permute(payload);
    }
}

fn of_packet(key: u64, index: u16) -> u64 {
    fold(key ^ MIX[1].wrapping_mul(u64::from(index) + 1), MIX[0])
}

/// A sum over bytes that any change changes, but for one in 2⁶⁴. It is what a simulated hop spends its time with: a
/// product takes two words from each side, one of them turned, so that equal ones leave something, and two products
/// go side by side.
fn sum(seed: u64, bytes: &[u8]) -> u64 {
    let mut lanes = [seed ^ MIX[0], seed ^ MIX[1]];
    let mut add = |block: &[u8; 64]| {
        let word = |at: usize| u64::from_le_bytes(*block[8 * at..].first_chunk().expect("eight bytes"));
        let pair = |at: usize| word(at) ^ word(at + 1).rotate_left(29);
        lanes[0] = fold(pair(0) ^ MIX[0], pair(2) ^ lanes[0]);
        lanes[1] = fold(pair(4) ^ MIX[1], pair(6) ^ lanes[1]);
    };
    let (blocks, rest) = bytes.as_chunks();
    blocks.iter().for_each(&mut add);
    if !rest.is_empty() {
        let mut last = [0; 64];
        last[..rest.len()].copy_from_slice(rest);
        add(&last);
    }
    fold(lanes[0] ^ bytes.len() as u64, lanes[1] ^ MIX[1])
}

/// Both halves of the product.
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product as u64) ^ ((product >> 64) as u64)
}

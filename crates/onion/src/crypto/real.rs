//! The cryptography that protects: X25519, BLAKE3 as key derivation, AES-128 as PRF and keystream, POLYVAL
//! under a mask as one-time tag, UIV+ over the payload.
//!
//! With K = BLAKE3-KDF(X25519 secret ‖ ephemeral key ‖ relay's key), packet i takes from AES_K(i, 0),
//! AES_K(i, 1), ... in this order: its id, its tag's hash key and mask, four keys of UIV+, its keystream.
//! No two blocks of input are equal, so that nothing is used twice (a permutation for a PRF: the
//! difference is below k² · 20² / 2¹²⁸).

use aes::Aes128Enc;
use aes::cipher::array::Array;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use anabranch_proto::x25519::Secret;
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;
use subtle::ConstantTimeEq;

use super::uiv::{Block, Uiv};
use super::{Cryptography, HopKey, OneTimeId, PacketKeys, PublicKey};
use crate::packet::{KEYSTREAM, PAYLOAD, TAG, TAGGED};

/// What the derivation of a hop's key is for, and of which version of the format.
const CONTEXT: &str = "anabranch onion hop key 1";

/// Blocks that a packet's keystream takes.
const STREAM_BLOCKS: usize = KEYSTREAM.div_ceil(16);

/// A payload's right part has 74 blocks.
type Payload = Uiv<128>;

/// Protects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

/// The keys of one packet at one relay.
pub struct RealPacket {
    /// Hash key and mask of the tag.
    tag: [Block; 2],
    payload: [Block; 4],
    stream: [u8; 16 * STREAM_BLOCKS],
}

impl Cryptography for Real {
    type Secret = Secret;
    type Packet = RealPacket;

    fn secret(random: &[u8; 32]) -> Secret {
        Secret::new(random)
    }

    fn public(secret: &Secret) -> PublicKey {
        PublicKey(secret.public())
    }

    fn agree(secret: &Secret, theirs: &PublicKey, ephemeral: &PublicKey, relay: &PublicKey) -> Option<HopKey> {
        let shared = secret.agree(&theirs.0)?;
        // Bound to the very bytes of both keys: other encodings of one point give other keys, so that
        // none of them passes for a new set-up.
        let mut derivation = blake3::Hasher::new_derive_key(CONTEXT);
        derivation.update(&*shared).update(&ephemeral.0).update(&relay.0);
        let mut key = HopKey([0; HopKey::BYTES]);
        derivation.finalize_xof().fill(&mut key.0);
        Some(key)
    }

    fn ids(key: &HopKey, first: u16, ids: &mut [OneTimeId]) {
        const AT_ONCE: usize = 16;
        let cipher = Aes128Enc::new(&Array(key.0));
        for (chunk, ids) in ids.chunks_mut(AT_ONCE).enumerate() {
            let mut blocks = [Block::default(); AT_ONCE];
            for (place, block) in blocks.iter_mut().enumerate() {
                *block = input(first.wrapping_add((chunk * AT_ONCE + place) as u16), 0);
            }
            let blocks = &mut blocks[..ids.len()];
            cipher.encrypt_blocks(blocks);
            for (id, block) in ids.iter_mut().zip(blocks) {
                let (bytes, _) = block.split_first_chunk().expect("a block has 16 bytes");
                *id = OneTimeId::from_le_bytes(*bytes);
            }
        }
    }

    fn packet(key: &HopKey, index: u16) -> RealPacket {
        let mut blocks: [Block; 6 + STREAM_BLOCKS] = core::array::from_fn(|place| input(index, 1 + place as u8));
        Aes128Enc::new(&Array(key.0)).encrypt_blocks(&mut blocks);
        let mut stream = [0; 16 * STREAM_BLOCKS];
        stream.copy_from_slice(Array::cast_slice_to_core(&blocks[6..]).as_flattened());
        RealPacket { tag: [blocks[0], blocks[1]], payload: core::array::from_fn(|place| blocks[2 + place]), stream }
    }

    fn equal(one: &[u8], other: &[u8]) -> bool {
        one.ct_eq(other).into()
    }
}

/// The PRF's input: nothing else is enciphered under a hop's key.
fn input(index: u16, counter: u8) -> Block {
    let mut block = Block::default();
    block[..2].copy_from_slice(&index.to_le_bytes());
    block[2] = counter;
    block
}

impl PacketKeys for RealPacket {
    fn keystream(&self) -> &[u8; KEYSTREAM] {
        self.stream.first_chunk().expect("the blocks of a keystream hold it")
    }

    fn tag(&self, header: &[u8; TAGGED]) -> [u8; TAG] {
        // What is tagged has always the same length, so that its padding says nothing.
        let [key, mask] = &self.tag;
        let mut hash = Polyval::new(key);
        hash.update_padded(header);
        let hash = hash.finalize();
        core::array::from_fn(|place| hash[place] ^ mask[place])
    }

    fn permute(&self, payload: &mut [u8; PAYLOAD]) {
        Payload::new(&self.payload).encrypt(&[], payload);
    }

    fn invert(&self, payload: &mut [u8; PAYLOAD]) {
        Payload::new(&self.payload).decrypt(&[], payload);
    }
}

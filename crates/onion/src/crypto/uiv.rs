//! UIV+, a permutation of a whole payload under a tweak. [Degabriele, Melloni, Münch, Stam: "Counter
//! Galois Onion", 2025]; Tor's proposal 359.
//!
//! A payload is a left block X_L and the rest X_R. Forward, X_L is enciphered under a tweak that hashes
//! X_R, and what comes out keys a stream over X_R: one changed bit anywhere gives another left block, and
//! so another stream. Backward, a change of Y_R goes through bit by bit: only ends may go backward.
//!
//! With POLYVAL's hash U (RFC 8452) and AES-128 E:
//!
//! - ET((K_E, K_U), T, M) = h ⊕ E(K_E, M ⊕ h), h = U(K_U, T) (Liskov, Rivest, Wagner 2002)
//! - PRF((K, B), T) = E(K, z) E(K, z + 1) ..., z = U(B, T) with its low bits cleared
//! - Y_L = ET(J, H ‖ X_R, X_L); Y_R = X_R ⊕ PRF(S, Y_L)

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes128Enc};
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;

pub(super) type Block = Array<u8, U16>;

/// Blocks of the stream that are made at once.
const AT_ONCE: usize = 8;

/// The keys J = (K_E, K_U) and S = (K, B) of one permutation, whose right part has at most `BLOCKS`
/// blocks (a power of two up to 256): this many values the stream's counter keeps free.
pub(super) struct Uiv<const BLOCKS: usize> {
    block_key: Block,
    tweak_hash: Polyval,
    stream: Aes128Enc,
    stream_hash: Polyval,
}

impl<const BLOCKS: usize> Uiv<BLOCKS> {
    const KEEP: u8 = {
        assert!(BLOCKS.is_power_of_two() && BLOCKS <= 256);
        !((BLOCKS - 1) as u8)
    };

    /// From K_E, K_U, K and B.
    pub(super) fn new(keys: &[Block; 4]) -> Uiv<BLOCKS> {
        let [block_key, tweak_key, stream_key, stream_hash_key] = keys;
        Uiv {
            block_key: *block_key,
            tweak_hash: Polyval::new(tweak_key),
            stream: Aes128Enc::new(stream_key),
            stream_hash: Polyval::new(stream_hash_key),
        }
    }

    /// Forward: what relays do. `payload` has at least a block.
    pub(super) fn encrypt(&self, tweak: &[u8], payload: &mut [u8]) {
        let (left, right) = split(payload);
        let hash = self.hash(tweak, right);
        xor(left, &hash);
        Aes128Enc::new(&self.block_key).encrypt_block(left);
        xor(left, &hash);
        self.xor_stream(left, right);
    }

    /// Backward: what undoes it.
    pub(super) fn decrypt(&self, tweak: &[u8], payload: &mut [u8]) {
        let (left, right) = split(payload);
        self.xor_stream(left, right);
        let hash = self.hash(tweak, right);
        xor(left, &hash);
        Aes128::new(&self.block_key).decrypt_block(left);
        xor(left, &hash);
    }

    /// U(K_U, H ‖ X_R), padded with zeros.
    fn hash(&self, tweak: &[u8], right: &[u8]) -> Block {
        let mut state = self.tweak_hash.clone();
        let (whole, begun) = tweak.split_at(tweak.len() / 16 * 16);
        state.update_padded(whole);
        let mut rest = right;
        if !begun.is_empty() {
            let mut block = Block::default();
            let taken = rest.len().min(16 - begun.len());
            block[..begun.len()].copy_from_slice(begun);
            block[begun.len()..begun.len() + taken].copy_from_slice(&rest[..taken]);
            state.update(&[block]);
            rest = &rest[taken..];
        }
        state.update_padded(rest);
        state.finalize()
    }

    fn xor_stream(&self, left: &Block, right: &mut [u8]) {
        debug_assert!(right.len() <= BLOCKS * 16);
        let mut state = self.stream_hash.clone();
        state.update(&[*left]);
        let mut start = state.finalize();
        start[15] &= Self::KEEP;
        let (whole, rest) = right.as_chunks_mut::<16>();
        let mut number = 0;
        let mut next = || {
            let mut block = start;
            block[15] |= number;
            number = number.wrapping_add(1);
            block
        };
        // As many at a time as a processor's registers hold.
        let (groups, few) = whole.as_chunks_mut::<AT_ONCE>();
        for group in groups {
            let mut stream = [Block::default(); AT_ONCE];
            stream.iter_mut().for_each(|block| *block = next());
            self.stream.encrypt_blocks(&mut stream);
            group.iter_mut().zip(&stream).for_each(|(bytes, stream)| xor(bytes.into(), stream));
        }
        let mut stream = [Block::default(); AT_ONCE];
        let stream = &mut stream[..few.len() + usize::from(!rest.is_empty())];
        stream.iter_mut().for_each(|block| *block = next());
        self.stream.encrypt_blocks(stream);
        few.iter_mut().zip(stream.iter()).for_each(|(bytes, stream)| xor(bytes.into(), stream));
        rest.iter_mut().zip(stream.last().into_iter().flatten()).for_each(|(byte, stream)| *byte ^= stream);
    }
}

fn split(payload: &mut [u8]) -> (&mut Block, &mut [u8]) {
    let (left, right) = payload.split_first_chunk_mut::<16>().expect("a payload has at least a block");
    (left.into(), right)
}

fn xor(block: &mut Block, other: &Block) {
    *block = (u128::from_ne_bytes(block.0) ^ u128::from_ne_bytes(other.0)).to_ne_bytes().into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex;

    /// Of the reference implementation, as arti (tor-proto 0.39) publishes them: direction, J ‖ S, H, X_L,
    /// X_R, Y_L, Y_R. There a right part has 493 bytes, and 64 values are kept free.
    const VECTORS: &str = include_str!("uiv_vectors.txt");

    #[test]
    fn p16_published_vectors_of_uiv_hold_in_both_directions() {
        let mut directions = [0; 2];
        for record in VECTORS.split("\n\n") {
            let mut fields = record.split(';').map(|field| field.replace('\n', ""));
            let mut next = || fields.next().expect("a record has seven fields");
            let forward = next() == "encrypt";
            let keys = hex(&next());
            let keys: [Block; 4] = core::array::from_fn(|i| Block::try_from(&keys[16 * i..16 * i + 16]).unwrap());
            let tweak = hex(&next());
            let mut payload = [hex(&next()), hex(&next())].concat();
            let (given, expected) = (payload.clone(), [hex(&next()), hex(&next())].concat());
            assert_eq!((payload.len(), expected.len(), tweak.len()), (509, 509, 17));
            let uiv = Uiv::<64>::new(&keys);
            if forward {
                uiv.encrypt(&tweak, &mut payload);
            } else {
                uiv.decrypt(&tweak, &mut payload);
            }
            assert_eq!(payload, expected);
            if forward {
                uiv.decrypt(&tweak, &mut payload);
            } else {
                uiv.encrypt(&tweak, &mut payload);
            }
            assert_eq!(payload, given);
            directions[usize::from(forward)] += 1;
        }
        assert_eq!(directions, [3, 3]);
    }
}

//! A receiver's key, and the keys that follow from it, one for each epoch.
//!
//! ```text
//! h = clamp(BLAKE3-KDF(A ‖ epoch)),  a' = h a mod ℓ,  A' = h A
//! ```
//!
//! Whoever knows the address A computes A' and finds what is signed by a'. Whoever sees A' alone can check that, and
//! learns neither A nor whether two epochs' keys are one receiver's. Nobody signs for A' but who has a: as in Tor's
//! rend-spec-v3, A.2, with another hash.

use core::fmt;

use curve25519_dalek::edwards::CompressedEdwardsY;
use curve25519_dalek::scalar::{Scalar, clamp_integer};
use ed25519_dalek::VerifyingKey;
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use sha2::Sha512;
use zeroize::Zeroize;

use super::Address;
use crate::directory::{Context, PublicKey, Signature};

const FACTOR: &str = "anabranch onion blinded key 1";
const NONCES: &str = "anabranch onion blinded key 1, nonces";

/// What a receiver alone knows.
pub struct ReceiverSecret {
    expanded: ExpandedSecretKey,
    address: Address,
}

impl fmt::Debug for ReceiverSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiverSecret of {:?}", self.address)
    }
}

impl ReceiverSecret {
    /// The key that belongs to 32 random bytes, which nobody else may know.
    ///
    /// # Panics
    ///
    /// Never: no secret has a public key of a low order.
    pub fn from_seed(seed: &[u8; 32]) -> ReceiverSecret {
        let expanded = ExpandedSecretKey::from(seed);
        let public = PublicKey(VerifyingKey::from(&expanded).to_bytes());
        ReceiverSecret {
            expanded,
            address: Address::new(public).expect("a clamped scalar is no multiple of the order"),
        }
    }

    /// What others may know.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Its key in `epoch`.
    pub fn blinded(&self, epoch: u64) -> BlindedSecret {
        let factor = factor(&self.address, epoch);
        let nonces: [u8; 32] = derived(NONCES, &[&self.expanded.hash_prefix, &factor]);
        BlindedSecret::new(&self.expanded, factor, nonces)
    }
}

/// A receiver's key in one epoch.
pub struct BlindedSecret {
    expanded: ExpandedSecretKey,
    public: VerifyingKey,
}

impl fmt::Debug for BlindedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlindedSecret of {}", self.public())
    }
}

impl BlindedSecret {
    fn new(secret: &ExpandedSecretKey, factor: [u8; 32], hash_prefix: [u8; 32]) -> BlindedSecret {
        // a' = h a mod ℓ
        let mut scalar = secret.scalar * clamped(factor);
        let expanded = ExpandedSecretKey { scalar, hash_prefix };
        scalar.zeroize();
        let public = VerifyingKey::from(&expanded);
        BlindedSecret { expanded, public }
    }

    /// What relays know it by.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.public.to_bytes())
    }

    /// Signs `message` for one purpose.
    pub fn sign(&self, context: Context, message: &[u8]) -> Signature {
        let signature = raw_sign::<Sha512>(&self.expanded, &context.bytes(message), &self.public);
        Signature::from_bytes(&signature.to_bytes())
    }
}

/// What relays know `address` by in `epoch`.
///
/// # Panics
///
/// Never: an address is a point of the curve.
pub fn blinded_key(address: &Address, epoch: u64) -> PublicKey {
    PublicKey(multiplied(&address.key().0, factor(address, epoch)).expect("an address is a point of the curve"))
}

/// A' = h A
fn multiplied(key: &[u8; 32], factor: [u8; 32]) -> Option<[u8; 32]> {
    Some((clamped(factor) * CompressedEdwardsY(*key).decompress()?).compress().0)
}

fn clamped(factor: [u8; 32]) -> Scalar {
    Scalar::from_bytes_mod_order(clamp_integer(factor))
}

fn factor(address: &Address, epoch: u64) -> [u8; 32] {
    derived(FACTOR, &[&address.key().0, &epoch.to_be_bytes()])
}

fn derived(context: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    parts.iter().for_each(|part| _ = hasher.update(part));
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex;

    /// Tor's vectors of key blinding (`ed25519_vectors.inc`): seed, public key, factor, blinded public key, and the
    /// first half of the blinded secret key.
    const VECTORS: [[&str; 5]; 4] = [
        [
            "26c76712d89d906e6672dafa614c42e5cb1caac8c6568e4d2493087db51f0d36",
            "c2247870536a192d142d056abefca68d6193158e7c1a59c1654c954eccaff894",
            "54a513898b471d1d448a2f3c55c1de2c0ef718c447b04497eeb999ed32027823",
            "1fc1fa4465bd9d4956fdbdc9d3acb3c7019bb8d5606b951c2e1dfe0b42eaeb41",
            "293c3acff4e902f6f63ddc5d5caa2a57e771db4f24de65d4c28df3232f47fa01",
        ],
        [
            "fba7a5366b5cb98c2667a18783f5cf8f4f8d1a2ce939ad22a6e685edde85128d",
            "1519a3b15816a1aafab0b213892026ebf5c0dc232c58b21088d88cb90e9b940d",
            "831e9b5325b5d31b7ae6197e9c7a7baf2ec361e08248bce055908971047a2347",
            "1cbbd4a88ce8f165447f159d9f628ada18674158c4f7c5ead44ce8eb0fa6eb7e",
            "38b88f9f9440358da544504ee152fb475528f7c51c285bd1c68b14ade8e29a07",
        ],
        [
            "c6bbcce615839756aed2cc78b1de13884dd3618f48367a17597a16c1cd7a290b",
            "95126f14d86494020665face03f2d42ee2b312a85bc729903eb17522954a1c4a",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "312404d06a0a9de489904b18d5233e83a50b225977fa8734f2c897a73c067952",
            "e5cd03eb4cc456e11bc36724b558873df0045729b22d8b748360067a7770ac02",
        ],
        [
            "c6bbcce615839756aed2cc78b1de13884dd3618f48367a17597a16c1cd7a290b",
            "95126f14d86494020665face03f2d42ee2b312a85bc729903eb17522954a1c4a",
            "1111111111111111111111111111111111111111111111111111111111111111",
            "952a908a4a9e0e5176a2549f8f328955aca6817a9fdc59e3acec5dec50838108",
            "2cf7ed8b163f5af960d2fc62e1883aa422a6090736b4f18a5456ddcaf78ede0c",
        ],
    ];

    #[test]
    fn p16_blinding_is_as_published() {
        for vector in VECTORS {
            let [seed, public, factor, blinded, secret] =
                vector.map(|digits| -> [u8; 32] { hex(digits).try_into().unwrap() });
            let expanded = ExpandedSecretKey::from(&seed);
            assert_eq!(VerifyingKey::from(&expanded).to_bytes(), public);
            let of_secret = BlindedSecret::new(&expanded, factor, [7; 32]);
            assert_eq!((of_secret.public().0, multiplied(&public, factor)), (blinded, Some(blinded)));
            assert_eq!(of_secret.expanded.scalar.to_bytes(), secret);
            let signature = of_secret.sign(Context::Hidden, b"hello");
            assert!(PublicKey(blinded).verifies(Context::Hidden, b"hello", &signature));
        }
    }

    #[test]
    fn each_epoch_has_its_key_which_the_address_yields_and_the_owner_signs_for() {
        let secret = ReceiverSecret::from_seed(&[3; 32]);
        let (one, other) = (secret.blinded(4), secret.blinded(5));
        assert_ne!(one.public(), other.public());
        assert_eq!(
            (one.public(), other.public()),
            (blinded_key(&secret.address(), 4), blinded_key(&secret.address(), 5))
        );
        let signature = one.sign(Context::Hidden, b"message");
        assert!(one.public().verifies(Context::Hidden, b"message", &signature));
        assert!(!other.public().verifies(Context::Hidden, b"message", &signature));
        assert!(!one.public().verifies(Context::Mailbox, b"message", &signature));
        assert!(!one.public().verifies(Context::Hidden, b"massage", &signature));
        assert!(!secret.address().key().verifies(Context::Hidden, b"message", &signature));
    }
}

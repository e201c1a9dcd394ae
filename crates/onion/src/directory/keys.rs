//! Ed25519 keys (RFC 8032) of relays, families and authorities, and what they sign.
//!
//! Every signature is over a context, a zero byte and the message, so that none that was made for
//! one purpose is good for another.

use core::fmt;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

/// A public key: it names a relay, a family or an authority.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PublicKey(pub [u8; 32]);

/// An Ed25519 signature: its two halves, R and S.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Signature([[u8; 32]; 2]);

impl Signature {
    /// The signature that these bytes are, good or not.
    pub(crate) fn from_bytes(bytes: &[u8; 64]) -> Signature {
        let (r, s) = bytes.split_at(32);
        let half = |bytes: &[u8]| bytes.try_into().expect("each half has 32 bytes");
        Signature([half(r), half(s)])
    }

    /// Its bytes.
    pub(crate) fn to_bytes(self) -> [u8; 64] {
        self.0.as_flattened().try_into().expect("two halves have 64 bytes")
    }
}

/// What a signature is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// A relay's descriptor.
    Descriptor,
    /// That a relay belongs to a family.
    Family,
    /// An authority's vote, and that another one has seen it in time.
    Vote,
    /// That an authority has made this document of the votes, or follows who has.
    Prepare,
    /// The document of an epoch.
    Document,
    /// That a mailbox is to be opened.
    Mailbox,
    /// A part of what a hidden receiver says of itself.
    Hidden,
}

impl Context {
    fn label(self) -> &'static [u8] {
        match self {
            Context::Descriptor => b"anabranch onion descriptor 1",
            Context::Family => b"anabranch onion family 1",
            Context::Vote => b"anabranch onion vote 1",
            Context::Prepare => b"anabranch onion prepared document 2",
            Context::Document => b"anabranch onion document 3",
            Context::Mailbox => b"anabranch onion mailbox 1",
            Context::Hidden => b"anabranch onion hidden receiver 1",
        }
    }

    pub(crate) fn bytes(self, message: &[u8]) -> Vec<u8> {
        [self.label(), &[0], message].concat()
    }
}

/// A key pair. Its secret is shown by no formatter.
pub struct SecretKey {
    pair: Ed25519KeyPair,
}

impl SecretKey {
    /// The pair that belongs to a secret of 32 bytes, which a driver has drawn and keeps.
    pub fn from_seed(seed: &[u8; 32]) -> SecretKey {
        SecretKey { pair: Ed25519KeyPair::from_seed_unchecked(seed).expect("every 32 bytes are an Ed25519 secret") }
    }

    /// Its public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.pair.public_key().as_ref().try_into().expect("an Ed25519 key has 32 bytes"))
    }

    /// Signs `message` for one purpose.
    pub fn sign(&self, context: Context, message: &[u8]) -> Signature {
        let signature = self.pair.sign(&context.bytes(message));
        Signature::from_bytes(signature.as_ref().try_into().expect("an Ed25519 signature has 64 bytes"))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey of {}", self.public())
    }
}

impl PublicKey {
    /// Whether `signature` is this key's, of `message` for that purpose.
    pub fn verifies(&self, context: Context, message: &[u8], signature: &Signature) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.0);
        key.verify(&context.bytes(message), signature.0.as_flattened()).is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The first eight of its bytes, in hexadecimal digits: enough to tell keys apart.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({:02x}{:02x}…)", self.0[0][0], self.0[0][1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_good_for_one_key_message_and_purpose_alone() {
        let (key, other) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
        let signature = key.sign(Context::Vote, b"message");
        assert!(key.public().verifies(Context::Vote, b"message", &signature));
        assert!(!key.public().verifies(Context::Document, b"message", &signature));
        assert!(!key.public().verifies(Context::Vote, b"massage", &signature));
        assert!(!other.public().verifies(Context::Vote, b"message", &signature));
    }

    /// RFC 8032 7.1, test 1: the public key of the seed, which says that the pair is Ed25519's.
    #[test]
    fn the_published_pair() {
        let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        assert_eq!(SecretKey::from_seed(&seed).public().0, public);
    }

    fn hex(text: &str) -> [u8; 32] {
        let byte = |i: usize| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("two digits");
        core::array::from_fn(byte)
    }
}

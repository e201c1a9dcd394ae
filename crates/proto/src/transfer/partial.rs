//! A file of which a part has come, and that its sender may go on with in a later session.
//!
//! It is known by who may go on with it and by what it is: the name, the length and the hash of all of
//! it. So nobody goes on with a file that somebody else's key has begun, and files of one name do not
//! mix. The size of blocks is not part of it: another path may have room for other ones.

use std::fmt;

use crate::overlay::message::Offer;
use crate::seal::PublicKey;

/// Mixed into what a file is known by: no other hash of the same bytes is the same.
const CONTEXT: &str = "anabranch 2026 partial file";

/// What a file on its way is known by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartialId(pub [u8; 16]);

impl fmt::Display for PartialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PartialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Who may go on with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Any sender that shows no key.
    Anybody,
    /// Who proves to hold the secret of this key.
    Key(PublicKey),
    /// Whom a code has brought to this receiver. The key in such a session may be good for that one
    /// alone: it is the receiver's user who says, by the next code, that it is the same file.
    Code,
}

impl Owner {
    /// The sender that has proved to hold the secret of `key`, or that has shown none.
    pub fn of(key: Option<PublicKey>) -> Owner {
        key.map_or(Owner::Anybody, Owner::Key)
    }

    /// The owner's kind in one byte, and its key, or zeros.
    pub fn encode(&self) -> (u8, [u8; 32]) {
        match self {
            Owner::Anybody => (0, [0; 32]),
            Owner::Key(key) => (1, key.0),
            Owner::Code => (2, [0; 32]),
        }
    }

    /// What [`Owner::encode`] gives; none if it can't have given that.
    pub fn decode(kind: u8, key: [u8; 32]) -> Option<Owner> {
        match kind {
            0 => Some(Owner::Anybody),
            1 => Some(Owner::Key(PublicKey(key))),
            2 => Some(Owner::Code),
            _ => None,
        }
    }
}

/// A file on its way, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// What it is known by.
    pub id: PartialId,
    /// Who may go on with it.
    pub owner: Owner,
}

impl Partial {
    /// The file of `owner` that `offer` describes.
    pub fn of(owner: Owner, offer: &Offer) -> Partial {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        // Each part has its length or a fixed one, so that no two files give the same bytes.
        let (kind, key) = owner.encode();
        hasher.update(&[kind]);
        hasher.update(&key);
        hasher.update(&offer.length.to_be_bytes());
        hasher.update(&offer.hash);
        hasher.update(offer.name.as_str().as_bytes());
        let id = *hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes");
        Partial { id: PartialId(id), owner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::message::FileName;

    #[test]
    fn another_owner_name_length_or_content_is_another_file_and_other_blocks_are_the_same() {
        let offer = |name: &str, length, block, hash| Offer { name: FileName::sanitised(name), length, block, hash };
        let [own, other, zeros] = [1, 2, 0].map(|byte| Owner::Key(PublicKey([byte; 32])));
        let same = offer("a", 9, 2, [3; 32]);
        let files = [
            Partial::of(own, &same),
            Partial::of(other, &same),
            Partial::of(Owner::Anybody, &same),
            Partial::of(Owner::Code, &same),
            Partial::of(zeros, &same),
            Partial::of(own, &offer("b", 9, 2, [3; 32])),
            Partial::of(own, &offer("a", 8, 2, [3; 32])),
            Partial::of(own, &offer("a", 9, 2, [4; 32])),
        ];
        for (place, file) in files.iter().enumerate() {
            assert!(files[..place].iter().all(|before| before.id != file.id), "{place}");
        }
        assert_eq!(Partial::of(own, &offer("a", 9, 7, [3; 32])), files[0]);
        for Partial { owner, .. } in files {
            let (kind, key) = owner.encode();
            assert_eq!(Owner::decode(kind, key), Some(owner));
        }
        assert_eq!(Owner::decode(3, [0; 32]), None);
    }
}

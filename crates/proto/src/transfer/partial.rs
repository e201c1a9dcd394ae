//! A file of which a part has come, and that its sender may go on with in a later session.
//!
//! It is known by who sends it and by what it is: the key that the sender has proved to hold, or
//! that it has shown none, the name, the length and the hash of all of it. So nobody goes on with
//! a file that somebody else's key has begun, and files of one name do not mix. The size of blocks
//! is not part of it: another path may have room for other ones.

use std::fmt;

use crate::message::Offer;
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

/// A file on its way, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// What it is known by.
    pub id: PartialId,
    /// Who sends it, if a key was shown.
    pub sender: Option<PublicKey>,
}

impl Partial {
    /// The file that `sender` offers.
    pub fn of(sender: Option<PublicKey>, offer: &Offer) -> Partial {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        // Each part has its length or a fixed one, so that no two files give the same bytes.
        hasher.update(&[u8::from(sender.is_some())]);
        hasher.update(&sender.map_or([0; 32], |key| key.0));
        hasher.update(&offer.length.to_be_bytes());
        hasher.update(&offer.hash);
        hasher.update(offer.name.as_str().as_bytes());
        let id = *hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes");
        Partial { id: PartialId(id), sender }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::FileName;

    #[test]
    fn another_sender_name_length_or_content_is_another_file_and_other_blocks_are_the_same() {
        let offer = |name: &str, length, block, hash| Offer { name: FileName::sanitised(name), length, block, hash };
        let [own, other] = [1, 2].map(|byte| Some(PublicKey([byte; 32])));
        let same = offer("a", 9, 2, [3; 32]);
        let files = [
            Partial::of(own, &same),
            Partial::of(other, &same),
            Partial::of(None, &same),
            Partial::of(Some(PublicKey([0; 32])), &same),
            Partial::of(own, &offer("b", 9, 2, [3; 32])),
            Partial::of(own, &offer("a", 8, 2, [3; 32])),
            Partial::of(own, &offer("a", 9, 2, [4; 32])),
        ];
        for (place, file) in files.iter().enumerate() {
            assert!(files[..place].iter().all(|before| before.id != file.id), "{place}");
        }
        assert_eq!(Partial::of(own, &offer("a", 9, 7, [3; 32])), files[0]);
    }
}

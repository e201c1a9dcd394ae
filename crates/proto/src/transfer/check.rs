//! The last step of every file that arrives, whatever carried it: only one that is whole and
//! has the hash of its offer gets its place. Its sender asks the same of its own file when the receiver
//! has found another hash.

use super::around::{Source, Store};
use super::error::TransferError;
use crate::overlay::message::Offer;
use crate::seal::SessionId;

/// Bytes of a file that are read and hashed in one step.
const STEP: u64 = 1 << 20;

/// A file that is being hashed, from its beginning on.
#[derive(Clone, Debug)]
pub struct FileCheck {
    offer: Offer,
    hashed: u64,
    hasher: Box<blake3::Hasher>,
}

impl FileCheck {
    /// Nothing is hashed yet of the file of `offer`.
    pub fn new(offer: Offer) -> FileCheck {
        FileCheck { offer, hashed: 0, hasher: Box::new(blake3::Hasher::new()) }
    }

    /// What was offered.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Bytes that are hashed.
    pub fn hashed(&self) -> u64 {
        self.hashed
    }

    /// Bytes that are not hashed yet.
    pub fn left(&self) -> u64 {
        self.offer.length - self.hashed
    }

    /// The next bytes of the file.
    ///
    /// # Errors
    ///
    /// When they are more than was offered.
    pub fn update(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        if bytes.len() as u64 > self.left() {
            return Err(TransferError::Malformed("more than it has offered"));
        }
        self.hasher.update(bytes);
        self.hashed += bytes.len() as u64;
        Ok(())
    }

    /// How many bytes the next step hashes.
    pub fn next_part(&self) -> u64 {
        self.left().min(STEP)
    }

    /// The next bytes of the file of `session`, as `store` keeps it: a step of them.
    ///
    /// # Errors
    ///
    /// When they can't be read.
    pub fn update_from(&mut self, store: &mut dyn Store, session: SessionId) -> Result<(), TransferError> {
        let mut part = vec![0; self.next_part() as usize];
        store.read(session, self.hashed, &mut part)?;
        self.update(&part)
    }

    /// The next bytes of the file that is sent: a step of them.
    ///
    /// # Errors
    ///
    /// When they can't be read.
    pub fn update_from_source(&mut self, source: &mut dyn Source) -> Result<(), TransferError> {
        let mut part = vec![0; self.next_part() as usize];
        source.read(self.hashed, &mut part).map_err(TransferError::unreadable)?;
        self.update(&part)
    }

    /// Whether all that is hashed has the hash of the offer.
    pub fn has_its_hash(&self) -> bool {
        self.hasher.finalize() == blake3::Hash::from_bytes(self.offer.hash)
    }

    /// Puts the file of `session` in its place, and says its name there.
    ///
    /// # Errors
    ///
    /// When it is not whole, its hash is wrong, or the store fails.
    pub fn publish(&self, store: &mut dyn Store, session: SessionId) -> Result<String, TransferError> {
        if self.left() > 0 {
            return Err(TransferError::Malformed("less than it has offered"));
        }
        if !self.has_its_hash() {
            return Err(TransferError::WrongHash);
        }
        Ok(store.publish(session, &self.offer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::StoreError;
    use super::*;
    use crate::overlay::message::FileName;

    /// Counts what gets its place.
    #[derive(Clone, Default)]
    struct Counting(usize);

    impl Store for Counting {
        fn create(&mut self, _: SessionId, _: &Offer) -> Result<(), StoreError> {
            Ok(())
        }

        fn write(&mut self, _: SessionId, _: u64, _: &[u8]) -> Result<(), StoreError> {
            Ok(())
        }

        fn read(&mut self, _: SessionId, _: u64, _: &mut [u8]) -> Result<(), StoreError> {
            Ok(())
        }

        fn publish(&mut self, _: SessionId, offer: &Offer) -> Result<String, StoreError> {
            self.0 += 1;
            Ok(offer.name.to_string())
        }

        fn discard(&mut self, _: SessionId) {}
    }

    #[test]
    fn only_a_whole_file_with_its_hash_gets_its_place() {
        let hash = *blake3::hash(b"whole").as_bytes();
        let offer = Offer { name: FileName::sanitised("a"), length: 5, block: 2, hash };
        let made_of = |pieces: &[&[u8]]| {
            let (mut check, mut store) = (FileCheck::new(offer.clone()), Counting::default());
            let all: Result<(), TransferError> = pieces.iter().try_for_each(|piece| check.update(piece));
            let name = all.and_then(|()| check.publish(&mut store, SessionId(1)));
            (name.map_err(|error| error.to_string()), store.0)
        };
        assert_eq!(made_of(&[b"who", b"le"]), (Ok("a".into()), 1));
        for (pieces, says) in [
            (&[&b"who"[..]][..], "less than it has offered"),
            (&[b"whole", b"r"], "more than it has offered"),
            (&[b"whale"], "the hash is wrong"),
        ] {
            let (name, placed) = made_of(pieces);
            assert!(name.unwrap_err().contains(says) && placed == 0, "{pieces:?}");
        }
    }
}

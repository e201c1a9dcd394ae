//! A file that comes over a stream, whatever carries the stream: what is there of it from before, where each byte of the
//! stream belongs, and its last step.
//!
//! The receiver reports which blocks are there, and the others come in their order. If a part was there from before and
//! the hash of the whole is wrong, all of it comes again, once, behind what has come over the same stream.

use std::ops::Range;

use super::around::{Store, StoreError};
use super::block_ranges;
use super::check::FileCheck;
use super::error::TransferError;
use super::extents::Extents;
use super::partial::Partial;
use crate::overlay::message::Offer;
use crate::seal::SessionId;

/// A file that is being written. Who gives it up has the store suspend or discard it.
#[derive(Debug)]
pub struct Streamed {
    session: SessionId,
    check: FileCheck,
    /// By what its sender may go on with it in another session.
    partial: Option<Partial>,
    /// What its sender is told to be there.
    reported: String,
    /// What was missing, in its order.
    parts: Vec<Part>,
    wanted: u64,
    /// Bytes of it that are still to come.
    left: u64,
}

/// A part of the file, and where it is in what the sender sends.
#[derive(Debug)]
struct Part {
    sent: u64,
    place: Range<u64>,
}

/// What became of a file all of which has come.
#[derive(Debug)]
pub enum Finished {
    /// It is in its place, under this name.
    Whole(String),
    /// It has another hash than was offered, and a part was there from before: that is discarded, and all of it is
    /// wanted again.
    Again,
}

impl Streamed {
    /// Makes room in `store` for the file of `offer`, or finds what is there of it from before if its sender may go on
    /// with it as `partial`.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn begin(
        store: &mut dyn Store,
        session: SessionId,
        offer: Offer,
        partial: Option<Partial>,
    ) -> Result<Streamed, StoreError> {
        let extents = match &partial {
            Some(partial) => store.resume(session, &offer, partial)?,
            None => store.create(session, &offer).map(|()| Extents::default())?,
        };
        let whole = block_ranges::whole_blocks(&offer, &extents);
        let reported = block_ranges::write(&whole, block_ranges::MOST_BLOCK_RANGES);
        // What is not reported comes again.
        let (mut parts, mut wanted) = (Vec::new(), 0);
        for place in block_ranges::missing(&offer, &reported) {
            let sent = wanted;
            wanted += place.end - place.start;
            parts.push(Part { sent, place });
        }
        Ok(Streamed { session, check: FileCheck::new(offer), partial, reported, parts, wanted, left: wanted })
    }

    /// Whose it is.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// What was offered.
    pub fn offer(&self) -> &Offer {
        self.check.offer()
    }

    /// By what its sender may go on with it in another session.
    pub fn partial(&self) -> Option<&Partial> {
        self.partial.as_ref()
    }

    /// The blocks that its sender need not send, as a report says them.
    pub fn reported(&self) -> &str {
        &self.reported
    }

    /// Bytes that were wanted when it began.
    pub fn wanted(&self) -> u64 {
        self.wanted
    }

    /// Bytes that are still to come.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Bytes that were there from before.
    pub fn resumed(&self) -> u64 {
        self.offer().length - self.wanted
    }

    /// Bytes that are there.
    pub fn done(&self) -> u64 {
        self.offer().length - self.left
    }

    /// The next bytes of the stream, which comes in its order.
    ///
    /// # Errors
    ///
    /// When they are more than is wanted, or the store fails.
    pub fn take_next(&mut self, store: &mut dyn Store, bytes: &[u8]) -> Result<(), TransferError> {
        self.take(store, self.wanted - self.left, bytes)
    }

    /// The bytes of the stream from `sent` on, counted from the first that is wanted; none comes twice.
    ///
    /// # Errors
    ///
    /// When they are more than is wanted, or the store fails.
    pub fn take(&mut self, store: &mut dyn Store, mut sent: u64, mut bytes: &[u8]) -> Result<(), TransferError> {
        let mut next = self.parts.partition_point(|part| part.sent <= sent).saturating_sub(1);
        while !bytes.is_empty() {
            let part = self.parts.get(next).ok_or(TransferError::Malformed("more than it has offered"))?;
            let offset = part.place.start.saturating_add(sent - part.sent);
            let room = part.place.end.saturating_sub(offset).min(bytes.len() as u64) as usize;
            let (here, behind) = bytes.split_at(room);
            if !here.is_empty() {
                if offset == self.check.hashed() {
                    self.check.update(here)?;
                }
                store.write(self.session, offset, here)?;
                self.left -= here.len() as u64;
            }
            (sent, bytes, next) = (sent + here.len() as u64, behind, next + 1);
        }
        Ok(())
    }

    /// Hashes a step of what has come and has not been hashed; whether nothing is left of that. For who has other things
    /// to do than [`finish`](Self::finish) a long file of which a part was there from before.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn hash_step(&mut self, store: &mut dyn Store) -> Result<bool, TransferError> {
        if self.left == 0 && self.check.left() > 0 {
            self.check.update_from(store, self.session)?;
        }
        Ok(self.check.left() == 0)
    }

    /// Hashes what has not been, and puts the file in its place.
    ///
    /// # Errors
    ///
    /// When it is not whole, its hash is wrong though all of it has come in this session, or the store fails.
    pub fn finish(&mut self, store: &mut dyn Store) -> Result<Finished, TransferError> {
        if self.left > 0 {
            return Err(TransferError::Malformed("less than it has offered"));
        }
        while self.check.left() > 0 {
            self.check.update_from(store, self.session)?;
        }
        match self.check.publish(store, self.session) {
            Ok(name) => Ok(Finished::Whole(name)),
            Err(TransferError::WrongHash) if self.resumed() > 0 => {
                store.discard(self.session);
                *self = Streamed::begin(store, self.session, self.offer().clone(), self.partial)?;
                Ok(Finished::Again)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::partial::Owner;
    use super::*;
    use crate::overlay::message::FileName;

    const SESSION: SessionId = SessionId(7);

    /// One file, of which a part may be there from before.
    #[derive(Clone, Debug, Default)]
    struct Memory {
        bytes: Vec<u8>,
        before: Extents,
        discarded: usize,
        published: usize,
    }

    impl Store for Memory {
        fn create(&mut self, _: SessionId, offer: &Offer) -> Result<(), StoreError> {
            self.bytes = vec![0; offer.length as usize];
            Ok(())
        }

        fn resume(&mut self, session: SessionId, offer: &Offer, _: &Partial) -> Result<Extents, StoreError> {
            if self.before.is_empty() {
                self.create(session, offer)?;
            }
            Ok(self.before.clone())
        }

        fn write(&mut self, _: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
            self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }

        fn read(&mut self, _: SessionId, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
            bytes.copy_from_slice(&self.bytes[offset as usize..][..bytes.len()]);
            Ok(())
        }

        fn publish(&mut self, _: SessionId, offer: &Offer) -> Result<String, StoreError> {
            self.published += 1;
            Ok(offer.name.to_string())
        }

        fn discard(&mut self, _: SessionId) {
            self.discarded += 1;
            self.before = Extents::default();
        }
    }

    const FILE: &[u8] = b"0123456789abcdefghij";

    fn offer() -> Offer {
        let hash = *blake3::hash(FILE).as_bytes();
        Offer { name: FileName::sanitised("a"), length: FILE.len() as u64, block: 4, hash }
    }

    /// Blocks 1 and 3 of five are there, of `bytes`.
    fn with_blocks(bytes: &[u8]) -> (Memory, Streamed) {
        let before = [4..8, 12..16].into_iter().collect();
        let mut store = Memory { bytes: bytes.to_vec(), before, ..Memory::default() };
        let partial = Partial::of(Owner::Anybody, &offer());
        let streamed = Streamed::begin(&mut store, SESSION, offer(), Some(partial)).expect("there is room");
        (store, streamed)
    }

    #[test]
    fn what_is_missing_comes_in_any_order_and_each_byte_finds_its_place() {
        let mut known = FILE.to_vec();
        for gap in [0..4, 8..12, 16..20] {
            known[gap].fill(b'-');
        }
        for cuts in [[0, 12, 12, 12], [0, 3, 7, 12], [0, 1, 6, 12], [0, 4, 8, 12]] {
            for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
                let (mut store, mut streamed) = with_blocks(&known);
                assert_eq!((streamed.reported(), streamed.wanted(), streamed.resumed()), ("1+1 3+1", 12, 8));
                let stream = b"012389abghij";
                for piece in order {
                    let range = cuts[piece]..cuts[piece + 1];
                    streamed.take(&mut store, range.start as u64, &stream[range]).expect("it is wanted");
                }
                assert_eq!((streamed.left(), streamed.done()), (0, 20));
                let Ok(Finished::Whole(name)) = streamed.finish(&mut store) else { panic!("it is whole") };
                assert_eq!((name.as_str(), store.bytes.as_slice(), store.discarded), ("a", FILE, 0));
            }
        }
    }

    #[test]
    fn a_wrong_hash_makes_all_of_it_come_again_once_where_a_part_was_there_before() {
        let (mut store, mut streamed) = with_blocks(&[b'?'; 20]);
        streamed.take_next(&mut store, b"012389ab").expect("it is wanted");
        streamed.take_next(&mut store, b"ghij").expect("it is wanted");
        assert!(matches!(streamed.finish(&mut store), Ok(Finished::Again)));
        assert_eq!((streamed.reported(), streamed.left(), streamed.resumed(), store.discarded), ("", 20, 0, 1));
        let (mut other, mut wrong) = (store.clone(), Streamed::begin(&mut store, SESSION, offer(), None).unwrap());
        streamed.take_next(&mut other, FILE).expect("it is wanted");
        assert!(matches!(streamed.finish(&mut other), Ok(Finished::Whole(_))));
        wrong.take_next(&mut store, &[b'?'; 20]).expect("it is wanted");
        assert!(matches!(wrong.finish(&mut store), Err(TransferError::WrongHash)));
        assert_eq!((other.published, store.published), (1, 0));
    }

    #[test]
    fn more_or_less_than_was_wanted_is_refused() {
        let (mut store, mut streamed) = with_blocks(FILE);
        assert!(streamed.take(&mut store, 12, b"x").is_err() && streamed.take(&mut store, u64::MAX - 9, b"x").is_err());
        streamed.take_next(&mut store, b"012").expect("it is wanted");
        assert!(streamed.finish(&mut store).is_err());
        assert!(streamed.take_next(&mut store, b"389abghij+").is_err());
        assert_eq!(store.published, 0);
    }
}

//! Slow work on files that a receiver and a sender hand out: disk and hashes. Of one file that
//! arrives there is one job at a time, so that a pool of several threads needs no order; reads of a
//! file that is sent may end in any.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::around::{Source, Store, StoreError};
use super::check::FileCheck;
use super::error::TransferError;
use super::extents::Extents;
use super::partial::{Partial, PartialId};
use crate::overlay::message::Offer;
use crate::seal::SessionId;

/// Work on the file of one session.
#[derive(Clone, Debug)]
pub struct FileJob {
    /// Whose.
    pub session: SessionId,
    /// What.
    pub task: FileTask,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum FileTask {
    /// Make room for it, or look up what is there of it from before.
    Create(Creation),
    /// Keep these blocks.
    Write(Batch),
    /// Hash its next part.
    Check(FileCheck),
    /// Put it in its place, if its hash is right.
    Publish(FileCheck),
    /// Forget what is kept of it.
    Discard,
    /// Close it, and keep what has come of it for a later session.
    Suspend(PartialId),
    /// Read this part of the file that is sent.
    Read(Range<u64>),
    /// Hash the next part of the file that is sent.
    CheckSource(FileCheck),
}

impl FileTask {
    /// Whether it is about the file that is sent, not about one that arrives.
    pub fn is_of_sender(&self) -> bool {
        matches!(self, FileTask::Read(_) | FileTask::CheckSource(_))
    }
}

/// A file that arrives.
#[derive(Clone, Debug)]
pub struct Creation {
    /// What was offered.
    pub offer: Offer,
    /// What it is known by in a later session; none if nothing is kept for one.
    pub partial: Option<Partial>,
    /// What is there of it is of no use: it begins anew.
    pub is_anew: bool,
}

/// A job that is done.
#[derive(Clone, Debug)]
pub struct FileDone {
    /// Whose.
    pub session: SessionId,
    /// What came of it.
    pub result: FileResult,
}

/// What came of a job.
#[derive(Clone, Debug)]
pub enum FileResult {
    /// There is room for it, and these bytes are there from before; or why there is none.
    Created(Result<Extents, StoreError>),
    /// Its blocks are kept, or why not.
    Written(Result<(), StoreError>),
    /// It is hashed so far, or why not.
    Checked(Result<FileCheck, TransferError>),
    /// Its name in its place, or why it has none.
    Published(Result<String, TransferError>),
    /// Nothing is kept of it.
    Discarded,
    /// It is closed; what it is known by, if it is kept.
    Suspended(Option<PartialId>),
    /// What was read from this offset on, or why not.
    Read(u64, Result<Vec<u8>, Arc<io::Error>>),
    /// The file that is sent is hashed so far, or why not.
    SourceChecked(Result<FileCheck, TransferError>),
}

impl FileResult {
    /// Whether it is about the file that is sent, not about one that arrives.
    pub fn is_of_sender(&self) -> bool {
        matches!(self, FileResult::Read(..) | FileResult::SourceChecked(_))
    }
}

impl FileJob {
    /// Does it with `store`, where a receiver's files are, or `source`, the file that is sent.
    pub fn work(self, store: &mut dyn Store, source: &mut dyn Source) -> FileDone {
        let session = self.session;
        let result = match self.task {
            FileTask::Create(Creation { offer, partial, is_anew }) => {
                if is_anew {
                    store.discard(session);
                }
                FileResult::Created(match partial {
                    Some(partial) => store.resume(session, &offer, &partial),
                    None => store.create(session, &offer).map(|()| Extents::default()),
                })
            }
            FileTask::Write(batch) => FileResult::Written(batch.write(store, session)),
            FileTask::Check(mut check) => {
                let checked = check.update_from(store, session);
                FileResult::Checked(checked.map(|()| check))
            }
            FileTask::Publish(check) => FileResult::Published(check.publish(store, session)),
            FileTask::Discard => {
                store.discard(session);
                FileResult::Discarded
            }
            FileTask::Suspend(id) => FileResult::Suspended(store.suspend(session).then_some(id)),
            FileTask::Read(part) => {
                let mut bytes = vec![0; (part.end - part.start) as usize];
                let read = source.read(part.start, &mut bytes);
                FileResult::Read(part.start, read.map(|()| bytes).map_err(Arc::new))
            }
            FileTask::CheckSource(mut check) => {
                let checked = check.update_from_source(source);
                FileResult::SourceChecked(checked.map(|()| check))
            }
        };
        FileDone { session, result }
    }

    /// Bytes of the file that it writes or reads.
    pub fn bytes(&self) -> u64 {
        match &self.task {
            FileTask::Write(batch) => batch.bytes.len() as u64,
            FileTask::Check(check) | FileTask::CheckSource(check) => check.next_part(),
            FileTask::Read(part) => part.end - part.start,
            FileTask::Create(_) | FileTask::Publish(_) | FileTask::Discard | FileTask::Suspend(_) => 0,
        }
    }
}

/// Bytes that are put together for one write: what is copied for it beside the blocks, which count by
/// themselves, fits a processor's second cache.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// Blocks that are written together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Where each goes, and how many bytes it has; neighbours are one.
    pieces: Vec<(u64, usize)>,
}

impl Batch {
    /// Bytes of memory that a block of `length` bytes takes at most.
    pub(super) fn cost_of(length: usize) -> usize {
        length + size_of::<(u64, usize)>()
    }

    pub(super) fn push(&mut self, offset: u64, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        match self.pieces.last_mut() {
            Some((start, length)) if *start + *length as u64 == offset => *length += bytes.len(),
            _ => self.pieces.push((offset, bytes.len())),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Writes its blocks in the order of the file, neighbours together: over many paths they come in
    /// another one, and a system call for each costs more than a copy.
    fn write(&self, store: &mut dyn Store, session: SessionId) -> Result<(), StoreError> {
        let (mut pieces, mut rest) = (Vec::with_capacity(self.pieces.len()), &self.bytes[..]);
        for &(offset, length) in &self.pieces {
            let (piece, behind) = rest.split_at(length);
            pieces.push((offset, piece));
            rest = behind;
        }
        pieces.sort_unstable_by_key(|&(offset, _)| offset);
        let (mut start, mut joined) = (0, Vec::new());
        for (offset, piece) in pieces {
            let is_next = offset == start + joined.len() as u64 && joined.len() + piece.len() <= WRITTEN_AT_ONCE;
            if !is_next && !joined.is_empty() {
                store.write(session, start, &joined)?;
                joined.clear();
            }
            if joined.is_empty() {
                start = offset;
            }
            joined.extend_from_slice(piece);
        }
        if joined.is_empty() { Ok(()) } else { store.write(session, start, &joined) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes what is written, and where.
    #[derive(Clone, Default)]
    struct Notes(Vec<(u64, Vec<u8>)>);

    impl Store for Notes {
        fn create(&mut self, _: SessionId, _: &Offer) -> Result<(), StoreError> {
            Ok(())
        }

        fn write(&mut self, _: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
            self.0.push((offset, bytes.to_vec()));
            Ok(())
        }

        fn read(&mut self, _: SessionId, _: u64, _: &mut [u8]) -> Result<(), StoreError> {
            Ok(())
        }

        fn publish(&mut self, _: SessionId, _: &Offer) -> Result<String, StoreError> {
            Ok(String::new())
        }

        fn discard(&mut self, _: SessionId) {}
    }

    fn written(pieces: &[(u64, &[u8])]) -> Vec<(u64, Vec<u8>)> {
        let mut batch = Batch::default();
        pieces.iter().for_each(|(offset, bytes)| batch.push(*offset, bytes));
        let mut notes = Notes::default();
        batch.write(&mut notes, SessionId(1)).unwrap();
        notes.0
    }

    #[test]
    fn neighbours_are_written_together_in_whatever_order_they_came() {
        let came: [(u64, &[u8]); 5] = [(30, b"de"), (10, b"abc"), (13, b"f"), (28, b"xy"), (14, b"g")];
        assert_eq!(written(&came), [(10, b"abcfg".to_vec()), (28, b"xyde".to_vec())]);
        assert_eq!(written(&[]), []);
    }

    #[test]
    fn what_is_written_at_once_is_bounded() {
        let half = vec![1; WRITTEN_AT_ONCE / 2];
        let (second, third) = (half.len() as u64, 2 * half.len() as u64);
        let lengths: Vec<_> = written(&[(third, &half), (0, &half), (second, &half)])
            .into_iter()
            .map(|(offset, bytes)| (offset, bytes.len()))
            .collect();
        assert_eq!(lengths, [(0, WRITTEN_AT_ONCE), (third, half.len())]);
    }
}

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
use crate::message::Offer;
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
        };
        FileDone { session, result }
    }

    /// Bytes of the file that it writes or reads.
    pub fn bytes(&self) -> u64 {
        match &self.task {
            FileTask::Write(batch) => batch.bytes.len() as u64,
            FileTask::Check(check) => check.next_part(),
            FileTask::Read(part) => part.end - part.start,
            FileTask::Create(_) | FileTask::Publish(_) | FileTask::Discard | FileTask::Suspend(_) => 0,
        }
    }
}

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

    fn write(&self, store: &mut dyn Store, session: SessionId) -> Result<(), StoreError> {
        let mut rest = &self.bytes[..];
        for &(offset, length) in &self.pieces {
            let (piece, behind) = rest.split_at(length);
            store.write(session, offset, piece)?;
            rest = behind;
        }
        Ok(())
    }
}

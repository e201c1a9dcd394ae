//! Files in memory: a receiver's store with a disk that may be full, and a sender's source that
//! may change or break.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_proto::message::Offer;
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{Source, Store, StoreError};

/// A published file.
#[derive(Clone, Debug)]
pub struct Published {
    /// As it was offered.
    pub offer: Offer,
    /// What has arrived.
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Disk {
    /// By their names there.
    published: BTreeMap<String, Published>,
    arriving: BTreeMap<SessionId, Vec<u8>>,
    /// Bytes of files that are arriving.
    used: u64,
}

/// A disk: stores that come one after another share it, and whoever looks at it.
#[derive(Clone, Debug, Default)]
pub struct Shelf(Arc<Mutex<Disk>>);

impl Shelf {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        // A machine that panicked is reported as such; what is on the disk stays as it is.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was published since the last call, by name there.
    pub fn take_published(&self) -> BTreeMap<String, Published> {
        std::mem::take(&mut self.disk().published)
    }

    /// Files that are arriving.
    pub fn arriving(&self) -> usize {
        self.disk().arriving.len()
    }

    /// Forgets what is arriving: nobody knows to whom it belongs any more.
    pub fn clear_arriving(&self) {
        let mut disk = self.disk();
        disk.arriving.clear();
        disk.used = 0;
    }
}

/// Keeps files on a shelf: what does receivers' jobs. A clone has a shelf of its own, with the same files on it.
#[derive(Debug)]
pub struct MemoryStore {
    shelf: Shelf,
    /// The bytes of unpublished files that fit.
    room: u64,
}

impl MemoryStore {
    /// Files go to `shelf`, which has room for `room` bytes of unpublished ones.
    pub fn new(shelf: Shelf, room: u64) -> MemoryStore {
        MemoryStore { shelf, room }
    }
}

impl Clone for MemoryStore {
    fn clone(&self) -> MemoryStore {
        let disk = self.shelf.disk().clone();
        MemoryStore { shelf: Shelf(Arc::new(Mutex::new(disk))), room: self.room }
    }
}

fn unknown() -> StoreError {
    StoreError("no such file is arriving".into())
}

impl Store for MemoryStore {
    fn create(&mut self, session: SessionId, _: &Offer) -> Result<(), StoreError> {
        self.shelf.disk().arriving.insert(session, Vec::new());
        Ok(())
    }

    fn write(&mut self, session: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let disk = &mut *self.shelf.disk();
        let file = disk.arriving.get_mut(&session).ok_or_else(unknown)?;
        if disk.used + bytes.len() as u64 > self.room {
            return Err(StoreError("no space left".into()));
        }
        disk.used += bytes.len() as u64;
        let end = offset as usize + bytes.len();
        file.resize(file.len().max(end), 0);
        file[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, session: SessionId, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let disk = self.shelf.disk();
        let file = disk.arriving.get(&session).ok_or_else(unknown)?;
        let part = file.get(offset as usize..).and_then(|rest| rest.get(..bytes.len())).ok_or_else(unknown)?;
        bytes.copy_from_slice(part);
        Ok(())
    }

    /// A second file of a name gets a number behind it.
    fn publish(&mut self, session: SessionId, offer: &Offer) -> Result<String, StoreError> {
        let disk = &mut *self.shelf.disk();
        let bytes = disk.arriving.remove(&session).ok_or_else(unknown)?;
        disk.used = disk.used.saturating_sub(offer.length);
        let names =
            std::iter::once(offer.name.to_string()).chain((1..).map(|number| format!("{}.{number}", offer.name)));
        let mut free = names.filter(|name| !disk.published.contains_key(name));
        let name = free.next().expect("there is always another number");
        disk.published.insert(name.clone(), Published { offer: offer.clone(), bytes });
        Ok(name)
    }

    fn discard(&mut self, session: SessionId) {
        let disk = &mut *self.shelf.disk();
        if let Some(file) = disk.arriving.remove(&session) {
            disk.used = disk.used.saturating_sub(file.len() as u64);
        }
    }
}

/// What is wrong with a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceFault {
    /// Nothing.
    #[default]
    None,
    /// One byte has changed since the file was hashed.
    Changed,
    /// It can't be read from this offset on.
    Broken(u64),
}

/// A file to send: what does a sender's jobs.
#[derive(Clone, Debug)]
pub struct MemorySource {
    file: Arc<[u8]>,
    fault: SourceFault,
}

impl MemorySource {
    /// `file`, with a fault.
    pub fn new(file: Arc<[u8]>, fault: SourceFault) -> MemorySource {
        MemorySource { file, fault }
    }
}

impl Source for MemorySource {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if let SourceFault::Broken(from) = self.fault
            && end > from
        {
            return Err(io::Error::other("the disk is broken"));
        }
        let part = self.file.get(offset as usize..end as usize).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(part);
        let changed = self.file.len() as u64 / 2;
        if self.fault == SourceFault::Changed && (offset..end).contains(&changed) {
            bytes[(changed - offset) as usize] ^= 1;
        }
        Ok(())
    }
}

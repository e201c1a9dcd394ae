//! Files in memory: a receiver's store with a disk that may be full, and a sender's source that
//! may change or break.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_proto::overlay::message::Offer;
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{Extents, Partial, PartialId, Source, Store, StoreError};

#[cfg(test)]
use super::{invariants::Invariant, sabotage::Sabotage};

/// A published file.
#[derive(Clone, Debug)]
pub struct Published {
    /// As it was offered.
    pub offer: Offer,
    /// What has arrived.
    pub bytes: Vec<u8>,
}

/// A file on its way.
#[derive(Clone, Debug, Default)]
struct Arriving {
    bytes: Vec<u8>,
    /// What of it is written.
    extents: Extents,
    /// What it is known by, if its sender may go on with it.
    partial: Option<PartialId>,
}

#[derive(Clone, Debug, Default)]
struct Disk {
    /// By their names there.
    published: BTreeMap<String, Published>,
    arriving: BTreeMap<SessionId, Arriving>,
    /// Those that nobody sends now.
    kept: BTreeMap<PartialId, Arriving>,
}

impl Disk {
    /// Bytes of files that are arriving.
    fn used(&self) -> u64 {
        self.arriving.values().map(|file| file.extents.bytes()).sum()
    }

    fn keep(&mut self, file: Arriving) -> bool {
        match file.partial {
            Some(partial) if !file.extents.is_empty() => {
                self.kept.insert(partial, file);
                true
            }
            _ => false,
        }
    }
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

    /// The most bytes that are there of any file.
    pub fn most_bytes(&self) -> u64 {
        let disk = self.disk();
        disk.arriving.values().chain(disk.kept.values()).map(|file| file.extents.bytes()).max().unwrap_or(0)
    }

    /// The receiver was killed. What is known of each file that was arriving is a journal that may be
    /// older than the file: of its longest range the first half, and all others.
    pub fn crash(&self) {
        let mut disk = self.disk();
        for (_, mut file) in std::mem::take(&mut disk.arriving) {
            let longest = file.extents.longest(1).iter().next().unwrap_or_default();
            let others = file.extents.iter().filter(|range| *range != longest);
            let half = longest.start..longest.start + (longest.end - longest.start) / 2;
            file.extents = others.chain([half]).collect();
            disk.keep(file);
        }
    }

    /// Files of which a part is kept.
    pub fn kept(&self) -> Vec<PartialId> {
        self.disk().kept.keys().copied().collect()
    }
}

/// Keeps files on a shelf: what does receivers' jobs. A clone has a shelf of its own, with the same files on it.
#[derive(Debug)]
pub struct MemoryStore {
    shelf: Shelf,
    /// The bytes of unpublished files that fit.
    room: u64,
    #[cfg(test)]
    sabotage: Option<Sabotage>,
}

impl MemoryStore {
    /// Files go to `shelf`, which has room for `room` bytes of unpublished ones.
    pub fn new(shelf: Shelf, room: u64) -> MemoryStore {
        MemoryStore {
            shelf,
            room,
            #[cfg(test)]
            sabotage: None,
        }
    }

    /// The same with a bug.
    #[cfg(test)]
    pub fn sabotaged(self, sabotage: Option<Sabotage>) -> MemoryStore {
        MemoryStore { sabotage, ..self }
    }
}

impl Clone for MemoryStore {
    fn clone(&self) -> MemoryStore {
        let disk = self.shelf.disk().clone();
        MemoryStore {
            shelf: Shelf(Arc::new(Mutex::new(disk))),
            room: self.room,
            #[cfg(test)]
            sabotage: self.sabotage,
        }
    }
}

fn unknown() -> StoreError {
    StoreError("no such file is arriving".into())
}

impl Store for MemoryStore {
    fn create(&mut self, session: SessionId, _: &Offer) -> Result<(), StoreError> {
        self.shelf.disk().arriving.insert(session, Arriving::default());
        Ok(())
    }

    fn resume(&mut self, session: SessionId, _: &Offer, partial: &Partial) -> Result<Extents, StoreError> {
        let disk = &mut *self.shelf.disk();
        let kept = disk.kept.remove(&partial.id);
        let file = kept.unwrap_or_else(|| Arriving { partial: Some(partial.id), ..Arriving::default() });
        let extents = file.extents.clone();
        disk.arriving.insert(session, file);
        Ok(extents)
    }

    fn suspend(&mut self, session: SessionId) -> bool {
        let disk = &mut *self.shelf.disk();
        disk.arriving.remove(&session).is_some_and(|file| disk.keep(file))
    }

    fn write(&mut self, session: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let disk = &mut *self.shelf.disk();
        let used = disk.used();
        let file = disk.arriving.get_mut(&session).ok_or_else(unknown)?;
        if used + bytes.len() as u64 > self.room {
            return Err(StoreError("no space left".into()));
        }
        let end = offset as usize + bytes.len();
        file.bytes.resize(file.bytes.len().max(end), 0);
        file.bytes[offset as usize..end].copy_from_slice(bytes);
        file.extents.insert(offset..end as u64);
        Ok(())
    }

    fn read(&mut self, session: SessionId, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let disk = self.shelf.disk();
        let file = disk.arriving.get(&session).ok_or_else(unknown)?;
        let part = file.bytes.get(offset as usize..).and_then(|rest| rest.get(..bytes.len())).ok_or_else(unknown)?;
        bytes.copy_from_slice(part);
        Ok(())
    }

    /// A second file of a name gets a number behind it.
    fn publish(&mut self, session: SessionId, offer: &Offer) -> Result<String, StoreError> {
        let disk = &mut *self.shelf.disk();
        let Arriving { bytes, .. } = disk.arriving.remove(&session).ok_or_else(unknown)?;
        #[cfg(test)]
        let bytes = match self.sabotage {
            // It is damaged after it was checked.
            Some(Sabotage::Breaks(Invariant::Whole)) => bytes.into_iter().map(|byte| byte ^ 1).collect(),
            // It is forgotten on the disk.
            Some(Sabotage::Breaks(Invariant::Memory)) => {
                disk.arriving.insert(session, Arriving::default());
                bytes
            }
            _ => bytes,
        };
        let names =
            std::iter::once(offer.name.to_string()).chain((1..).map(|number| format!("{}.{number}", offer.name)));
        let mut free = names.filter(|name| !disk.published.contains_key(name));
        let name = free.next().expect("there is always another number");
        disk.published.insert(name.clone(), Published { offer: offer.clone(), bytes });
        Ok(name)
    }

    fn discard(&mut self, session: SessionId) {
        self.shelf.disk().arriving.remove(&session);
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

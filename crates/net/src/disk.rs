//! Files: where a sender reads, and where a receiver keeps what arrives.
//!
//! A file arrives under a name that begins with a dot and ends in `.part`; it gets its
//! own name when its hash was found right, and never that of a file that is there. Beside one that
//! its sender may go on with stands a [journal] of what has come; it outlives the process.

mod journal;
mod kept;
pub(crate) mod naming;
mod room;
mod scribe;
mod source;
mod unpacking;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_proto::overlay::message::Offer;
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{Extents, FileDone, FileJob, Partial, PartialId, Store, StoreError};

use self::journal::Journal;
pub use self::kept::is_hidden;
use self::naming::{MAX_SUFFIX, rename_without_replacing, with_suffix};
use self::scribe::{Coming, Scribe};
pub use self::source::{DiskSource, offer, offer_of};
use self::unpacking::Unpacking;
use crate::archive::Bounds;
use crate::loopback::NoFiles;
use crate::pool::Work;

/// A folder that receives files: what does receivers' jobs in a pool of threads. Clones share it,
/// and the files that arrive there.
#[derive(Clone, Debug)]
pub struct DiskStore {
    folder: PathBuf,
    /// Bytes that all files in the folder may have together.
    max_total: u64,
    /// What is whole is an archive, of which only what is in it gets a place.
    unpacking: Option<Unpacking>,
    arriving: Arc<Mutex<Arriving>>,
    scribe: Arc<Scribe>,
}

/// Files that arrive.
#[derive(Debug, Default)]
struct Arriving(BTreeMap<SessionId, Arc<Coming>>);

impl Arriving {
    fn has(&self, path: &Path) -> bool {
        self.0.values().any(|coming| coming.path == path)
    }
}

impl DiskStore {
    /// Receives into `folder`, which is made if it is missing; what earlier receivers left there that
    /// is of no use is removed. An error if it is no folder, or nothing can be written there.
    pub fn open(folder: &Path) -> io::Result<DiskStore> {
        fs::create_dir_all(folder)?;
        let probe = folder.join(format!(".anabranch-{}.probe", std::process::id()));
        File::create_new(&probe)?;
        fs::remove_file(&probe)?;
        kept::tidy(folder)?;
        Ok(DiskStore {
            folder: folder.to_owned(),
            max_total: u64::MAX,
            unpacking: None,
            arriving: Arc::default(),
            scribe: Arc::default(),
        })
    }

    /// The same, but no file is taken with which all files in the folder, those that were there
    /// before and those that arrive too, would have more than `bytes`.
    pub fn with_max_total(self, bytes: u64) -> DiskStore {
        DiskStore { max_total: bytes, ..self }
    }

    /// The same, but what comes is an archive in which is what was `announced`: it has come when that is in its
    /// place, and there must be room for both. Until then it stays hidden; if it can't be unpacked, it is
    /// [kept](DiskStore::keeps_archive), unless the fault is its own or `is_given_up` says so.
    pub fn unpacking(self, announced: Bounds, is_given_up: impl Fn() -> bool + Send + Sync + 'static) -> DiskStore {
        DiskStore { unpacking: Some(Unpacking::new(announced, is_given_up)), ..self }
    }

    /// Files of which a part is there, and with which their senders may go on.
    ///
    /// # Errors
    ///
    /// When the folder can't be read.
    pub fn kept(&self) -> io::Result<Vec<PartialId>> {
        Ok(kept::tidy(&self.folder)?.iter().map(|file| file.id).collect())
    }

    fn arriving(&self) -> MutexGuard<'_, Arriving> {
        // Whoever panicked has left each file as it was found.
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of `session`; others are not kept waiting by who works at it.
    fn file(&self, session: SessionId) -> Result<Arc<Coming>, StoreError> {
        let arriving = self.arriving();
        let coming = arriving.0.get(&session).ok_or_else(|| StoreError("the file is not open any more".into()))?;
        Ok(Arc::clone(coming))
    }

    /// Unpacks the archive of `session`, of which nothing is left then unless it is of use another time.
    fn unpack(&self, session: SessionId, coming: &Coming, unpacking: &Unpacking) -> Result<(), StoreError> {
        // Who is killed from here on finds all of it.
        coming.is_whole();
        let is_kept = coming.keep();
        match unpacking.unpack(&coming.path, &self.folder) {
            Err((true, error)) if is_kept => {
                unpacking.is_kept();
                self.arriving().0.remove(&session);
                Err(error)
            }
            done => {
                coming.remove();
                self.arriving().0.remove(&session);
                done.map_err(|(_, error)| error)
            }
        }
    }

    /// What is there of the file of `partial` and `length` bytes, which is open now as `file`.
    fn look_up(path: &Path, file: &File, partial: &Partial, length: u64) -> io::Result<Extents> {
        let journal = Journal::read(&path.with_extension("journal"), file.metadata()?.len());
        let journal = journal.filter(|journal| journal.partial == *partial && journal.length == length);
        if journal.is_none() {
            file.set_len(0)?;
        }
        Ok(journal.map(|journal| journal.extents).unwrap_or_default())
    }
}

/// Without the path: the sender is told this too, and need not know our folders.
fn failed(what: &str, error: &io::Error) -> StoreError {
    StoreError(format!("cannot {what} the file: {error}"))
}

impl Store for DiskStore {
    fn create(&mut self, session: SessionId, offer: &Offer) -> Result<(), StoreError> {
        // Nobody else gets the same room meanwhile.
        let mut arriving = self.arriving();
        let path = self.folder.join(format!(".anabranch-{:016x}.part", session.0));
        self.find_room(&arriving, &path, offer.length)?;
        let file = kept::open_locked(&path).and_then(|file| file.set_len(0).map(|()| file));
        let file = file.map_err(|error| failed("create", &error))?;
        let coming = Coming::new(file, path, offer.length, None, Extents::default());
        arriving.0.insert(session, Arc::new(coming));
        Ok(())
    }

    fn resume(&mut self, session: SessionId, offer: &Offer, partial: &Partial) -> Result<Extents, StoreError> {
        if let Some(unpacking) = &self.unpacking {
            unpacking.is_offered(offer);
        }
        let path = kept::path_of(&self.folder, partial.id);
        let mut arriving = self.arriving();
        // Another receiver of this folder may have it: here it comes from the beginning, and once.
        let Ok(file) = kept::open_locked(&path) else {
            drop(arriving);
            return self.create(session, offer).map(|()| Extents::default());
        };
        let extents = DiskStore::look_up(&path, &file, partial, offer.length);
        let extents = extents.map_err(|error| failed("create", &error))?;
        let coming = Coming::new(file, path, offer.length, Some(*partial), extents.clone());
        if let Err(error) = self.find_room(&arriving, &coming.path, offer.length) {
            if extents.is_empty() {
                coming.remove();
            }
            return Err(error);
        }
        arriving.0.insert(session, Arc::new(coming));
        Ok(extents)
    }

    fn suspend(&mut self, session: SessionId) -> bool {
        let Some(coming) = self.arriving().0.remove(&session) else { return false };
        let is_kept = coming.keep();
        if !is_kept {
            coming.remove();
        }
        // Its lock goes with it.
        drop(coming);
        let _ = kept::tidy(&self.folder);
        is_kept
    }

    fn write(&mut self, session: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let coming = self.file(session)?;
        coming.file.write_all_at(bytes, offset).map_err(|error| failed("write", &error))?;
        if coming.wrote(offset, bytes.len()) {
            self.scribe.write(coming);
        }
        Ok(())
    }

    fn read(&mut self, session: SessionId, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let read = self.file(session)?.file.read_exact_at(bytes, offset);
        read.map_err(|error| failed("read", &error))
    }

    fn publish(&mut self, session: SessionId, offer: &Offer) -> Result<String, StoreError> {
        let coming = self.file(session)?;
        // A part from before may have been longer, though never by its journal.
        let whole = coming.file.set_len(offer.length).and_then(|()| coming.file.sync_all());
        whole.map_err(|error| failed("write", &error))?;
        if let Some(unpacking) = &self.unpacking {
            return self.unpack(session, &coming, unpacking).map(|()| offer.name.to_string());
        }
        for suffix in 0..MAX_SUFFIX {
            let name = with_suffix(offer.name.as_str(), suffix);
            match rename_without_replacing(&coming.path, &self.folder.join(&name)) {
                Ok(()) => {
                    coming.forget_journal();
                    self.arriving().0.remove(&session);
                    return Ok(name);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("rename", &error)),
            }
        }
        Err(StoreError(format!("there are {MAX_SUFFIX} files named {} already", offer.name)))
    }

    fn discard(&mut self, session: SessionId) {
        let removed = self.arriving().0.remove(&session);
        if let Some(coming) = removed {
            coming.remove();
        }
    }
}

impl Work<FileJob, FileDone> for DiskStore {
    fn work(&mut self, _: usize, job: FileJob) -> FileDone {
        job.work(self, &mut NoFiles)
    }
}

/// Of a runtime in which one peer receives and one sends.
impl Work<FileJob, FileDone> for (DiskStore, DiskSource) {
    fn work(&mut self, _: usize, job: FileJob) -> FileDone {
        job.work(&mut self.0, &mut self.1)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        for coming in self.0.values() {
            if !coming.keep() {
                coming.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests;

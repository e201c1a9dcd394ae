//! A folder's archive, once all of it has come: it is unpacked beside its place, and what is in it moves there
//! before anybody is told that it has come.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_proto::overlay::message::Offer;
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{FileCheck, Owner, Partial, Store, StoreError, TransferError};

use super::DiskStore;
use crate::archive::{self, Bounds};

/// What [`DiskStore::kept_archive`] does it for, where there is no sender.
const NOBODYS: SessionId = SessionId(0);

/// Whether it is given up.
type GivenUp = dyn Fn() -> bool + Send + Sync;

/// How a store unpacks.
#[derive(Clone)]
pub(super) struct Unpacking {
    /// What will be in the archive.
    pub announced: Bounds,
    is_given_up: Arc<GivenUp>,
    progress: Arc<Mutex<Progress>>,
}

/// How far an archive is.
#[derive(Debug, Default)]
struct Progress {
    offer: Option<Offer>,
    /// All of it has come.
    is_whole: bool,
    /// It could not be unpacked, and all of it is kept.
    is_kept: bool,
    names: Option<Vec<String>>,
}

impl std::fmt::Debug for Unpacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unpacking({:?}, {:?})", self.announced, self.progress)
    }
}

impl Unpacking {
    pub(super) fn new(announced: Bounds, is_given_up: impl Fn() -> bool + Send + Sync + 'static) -> Unpacking {
        Unpacking { announced, is_given_up: Arc::new(is_given_up), progress: Arc::default() }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Each field is whole at any time.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The archive that is to come.
    pub(super) fn is_offered(&self, offer: &Offer) {
        self.progress().offer = Some(offer.clone());
    }

    /// Unpacks the archive at `packed` and puts what is in it into `folder`; whether the archive is of use if that
    /// fails.
    pub(super) fn unpack(&self, packed: &Path, folder: &Path) -> Result<(), (bool, StoreError)> {
        self.progress().is_whole = true;
        let unpacked = packed.with_extension("unpacked");
        let done = self.unpack_into(&unpacked, packed, folder);
        // Whoever finds remains of it removes them.
        let _ = fs::remove_dir_all(&unpacked);
        match done {
            Ok(names) => {
                self.progress().names = Some(names);
                Ok(())
            }
            Err(_) if (self.is_given_up)() => Err((false, StoreError("it was interrupted".into()))),
            Err(error) => {
                // What is wrong with the archive itself stays wrong; a disk may have room another time.
                let is_of_use = error.kind() != ErrorKind::InvalidData;
                Err((is_of_use, StoreError(format!("cannot unpack it: {error}"))))
            }
        }
    }

    fn unpack_into(&self, unpacked: &Path, packed: &Path, folder: &Path) -> io::Result<Vec<String>> {
        match fs::remove_dir_all(unpacked) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(unpacked)?;
        let bytes = Interruptible { bytes: File::open(packed)?, is_given_up: &*self.is_given_up };
        archive::unpack(BufReader::new(bytes), unpacked, self.announced)?;
        archive::put_in_place(unpacked, folder)
    }

    pub(super) fn is_kept(&self) {
        self.progress().is_kept = true;
    }
}

/// Reads until it is given up.
struct Interruptible<'a> {
    bytes: File,
    is_given_up: &'a GivenUp,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // Not `Interrupted`, after which readers try again.
        if (self.is_given_up)() { Err(ErrorKind::Other.into()) } else { self.bytes.read(bytes) }
    }
}

impl DiskStore {
    /// The archive that was offered last.
    pub fn offered_archive(&self) -> Option<Offer> {
        self.unpacking.as_ref()?.progress().offer.clone()
    }

    /// All of an archive has come; it is being unpacked, or was.
    pub fn has_whole_archive(&self) -> bool {
        self.unpacking.as_ref().is_some_and(|unpacking| unpacking.progress().is_whole)
    }

    /// An archive could not be unpacked and is kept: who has it sent again, or calls
    /// [`unpack_kept`](DiskStore::unpack_kept), goes on from there.
    pub fn keeps_archive(&self) -> bool {
        self.unpacking.as_ref().is_some_and(|unpacking| unpacking.progress().is_kept)
    }

    /// What was in the archive that has come, by its names in the folder.
    pub fn unpacked_names(&self) -> Option<Vec<String>> {
        self.unpacking.as_ref()?.progress().names.clone()
    }

    /// Unpacks the archive of `offer`, which a code has brought to an earlier receiver of this folder, if all of it is
    /// there and right; whether it is.
    ///
    /// # Errors
    ///
    /// When it can't be unpacked.
    pub fn unpack_kept(&mut self, offer: &Offer) -> Result<bool, TransferError> {
        let partial = Partial::of(Owner::Code, offer);
        if !self.kept().map_err(TransferError::unreadable)?.contains(&partial.id) {
            return Ok(false);
        }
        let there = self.resume(NOBODYS, offer, &partial)?;
        if there.bytes() < offer.length {
            self.suspend(NOBODYS);
            return Ok(false);
        }
        let mut check = FileCheck::new(offer.clone());
        while check.left() > 0 {
            check.update_from(self, NOBODYS)?;
        }
        match check.publish(self, NOBODYS) {
            Ok(_) => Ok(true),
            Err(TransferError::WrongHash) => {
                self.discard(NOBODYS);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

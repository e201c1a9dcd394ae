//! Files: where a sender reads, and where a receiver keeps what arrives.
//!
//! A file arrives under a name that begins with a dot and ends in `.part`; it gets its
//! own name when its hash was found right, and never that of a file that is there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_proto::message::{FileName, Offer};
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{FileDone, FileJob, Source, Store, StoreError};

use crate::loopback::NoFiles;
use crate::pool::Work;

/// Bytes that are hashed before it is asked again whether they are wanted: some hundredths of a
/// second, of a slow disk a few tenths.
const HASHED_AT_ONCE: u64 = 16 << 20;

/// How many other names are tried for a file whose name is taken.
pub(crate) const MAX_SUFFIX: u32 = 1000;

/// A folder that receives files: what does receivers' jobs in a pool of threads. Clones share it,
/// and the files that arrive there.
#[derive(Clone, Debug)]
pub struct DiskStore {
    folder: PathBuf,
    /// Bytes that all files in the folder may have together.
    max_total: u64,
    arriving: Arc<Mutex<Arriving>>,
}

/// Files that arrive, with their paths and the bytes that they will have.
#[derive(Debug, Default)]
struct Arriving(BTreeMap<SessionId, (SharedFile, PathBuf, u64)>);

/// A file at which one thread works at a time.
type SharedFile = Arc<Mutex<File>>;

impl DiskStore {
    /// Receives into `folder`, which is made if it is missing. An error if it is no
    /// folder, or nothing can be written there.
    pub fn open(folder: &Path) -> io::Result<DiskStore> {
        fs::create_dir_all(folder)?;
        let probe = folder.join(format!(".anabranch-{}.probe", std::process::id()));
        File::create_new(&probe)?;
        fs::remove_file(&probe)?;
        Ok(DiskStore { folder: folder.to_owned(), max_total: u64::MAX, arriving: Arc::default() })
    }

    /// The same, but no file is taken with which all files in the folder, those that were there
    /// before and those that arrive too, would have more than `bytes`.
    pub fn with_max_total(self, bytes: u64) -> DiskStore {
        DiskStore { max_total: bytes, ..self }
    }

    /// Refuses a file of `length` bytes for which there is no room beside those of `arriving`.
    fn check_room(&self, arriving: &Arriving, length: u64) -> Result<(), StoreError> {
        let expected = arriving.0.values().fold(length, |all, (_, _, length)| all.saturating_add(*length));
        if self.max_total < u64::MAX {
            let is_arriving = |path: &Path| arriving.0.values().any(|(_, other, _)| other == path);
            let kept = kept_in(&self.folder, is_arriving).map_err(|error| failed("find room for", &error))?;
            if kept.saturating_add(expected) > self.max_total {
                return Err(StoreError(format!("the folder is full: at most {} bytes are kept", self.max_total)));
            }
        }
        // What has been written of the others is not free any more.
        let written = arriving.0.values().map(|(_, path, length)| allocated(path).min(*length)).sum();
        match free_in(&self.folder) {
            Some(free) if expected.saturating_sub(written) > free => Err(StoreError("no space left for it".into())),
            _ => Ok(()),
        }
    }

    fn arriving(&self) -> MutexGuard<'_, Arriving> {
        // Whoever panicked has left each file as it was found.
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of `session` and its path; others are not kept waiting by who works at it.
    fn file(&self, session: SessionId) -> Result<(SharedFile, PathBuf), StoreError> {
        let arriving = self.arriving();
        let (file, path, _) =
            arriving.0.get(&session).ok_or_else(|| StoreError("the file is not open any more".into()))?;
        Ok((Arc::clone(file), path.clone()))
    }
}

fn lock(file: &SharedFile) -> MutexGuard<'_, File> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of all files in `folder`, but for those that are left out.
fn kept_in(folder: &Path, is_left_out: impl Fn(&Path) -> bool) -> io::Result<u64> {
    let mut kept = 0u64;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) if metadata.is_file() && !is_left_out(&entry.path()) => {
                kept = kept.saturating_add(metadata.len());
            }
            Ok(_) => {}
            // It has gone meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(kept)
}

/// Bytes that a user may still write to the disk of `folder`, where the system says so.
#[cfg(unix)]
fn free_in(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
fn free_in(_: &Path) -> Option<u64> {
    None
}

/// Bytes that the file at `path` takes on its disk: what was not written takes none. Who works at
/// the file is not waited for.
#[cfg(unix)]
fn allocated(path: &Path) -> u64 {
    // In units of 512 bytes, whatever the disk's own (POSIX, st_blocks as Linux and BSD have it).
    fs::metadata(path).map_or(0, |metadata| std::os::unix::fs::MetadataExt::blocks(&metadata) * 512)
}

#[cfg(not(unix))]
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Without the path: the sender is told this too, and need not know our folders.
fn failed(what: &str, error: &io::Error) -> StoreError {
    StoreError(format!("cannot {what} the file: {error}"))
}

impl Store for DiskStore {
    fn create(&mut self, session: SessionId, offer: &Offer) -> Result<(), StoreError> {
        // Nobody else gets the same room meanwhile.
        let mut arriving = self.arriving();
        self.check_room(&arriving, offer.length)?;
        let path = self.folder.join(format!(".anabranch-{:016x}.part", session.0));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(|error| failed("create", &error))?;
        arriving.0.insert(session, (Arc::new(Mutex::new(file)), path, offer.length));
        Ok(())
    }

    fn write(&mut self, session: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let (file, _) = self.file(session)?;
        let mut file = lock(&file);
        let written = file.seek(SeekFrom::Start(offset)).and_then(|_| file.write_all(bytes));
        written.map_err(|error| failed("write", &error))
    }

    fn read(&mut self, session: SessionId, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let (file, _) = self.file(session)?;
        let mut file = lock(&file);
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(bytes));
        read.map_err(|error| failed("read", &error))
    }

    fn publish(&mut self, session: SessionId, offer: &Offer) -> Result<String, StoreError> {
        let (file, path) = self.file(session)?;
        lock(&file).sync_all().map_err(|error| failed("write", &error))?;
        for suffix in 0..MAX_SUFFIX {
            let name = with_suffix(&offer.name, suffix);
            match rename_without_replacing(&path, &self.folder.join(&name)) {
                Ok(()) => {
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
        if let Some((_, path, _)) = removed {
            // It is of no use to anybody, and its name is never looked at.
            let _ = fs::remove_file(path);
        }
    }
}

impl Work<FileJob, FileDone> for DiskStore {
    fn work(&mut self, _: usize, job: FileJob) -> FileDone {
        job.work(self, &mut NoFiles)
    }
}

impl Work<FileJob, FileDone> for DiskSource {
    fn work(&mut self, _: usize, job: FileJob) -> FileDone {
        job.work(&mut NoFiles, self)
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
        for (_, path, _) in self.0.values() {
            let _ = fs::remove_file(path);
        }
    }
}

/// `photo.jpg`, then `photo (1).jpg`, and so on.
pub(crate) fn with_suffix(name: &FileName, suffix: u32) -> String {
    let name = name.as_str();
    match (suffix, name.rsplit_once('.')) {
        (0, _) => name.to_owned(),
        (_, Some((stem, extension))) if !stem.is_empty() => format!("{stem} ({suffix}).{extension}"),
        _ => format!("{name} ({suffix})"),
    }
}

/// Renames, unless something has the new name.
pub(crate) fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => {
            // A file system without links: take the name first, then replace what we made.
            File::create_new(to)?;
            fs::rename(from, to).inspect_err(|_| {
                let _ = fs::remove_file(to);
            })
        }
    }
}

/// A file that is sent: what does a sender's jobs in a pool of threads. Clones read the same one.
#[derive(Clone, Debug)]
pub struct DiskSource(SharedFile);

impl Source for DiskSource {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut file = lock(&self.0);
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(bytes)
    }
}

/// Reads the file at `path` once for its hash; the offer of it in blocks of `block`
/// bytes, and the file itself. A long file takes its time: `is_given_up` is asked again and again.
///
/// # Errors
///
/// If the file can't be read or is no plain file; [`io::ErrorKind::Interrupted`] once it is given up.
pub fn offer(path: &Path, block: u16, is_given_up: impl Fn() -> bool) -> io::Result<(Offer, DiskSource)> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
    }
    let (mut hasher, mut length) = (blake3::Hasher::new(), 0);
    while hasher.update_reader((&mut file as &mut dyn Read).take(HASHED_AT_ONCE))?.count() > length {
        length = hasher.count();
        if is_given_up() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let offer = Offer { name: FileName::sanitised(&name), length, block, hash: *hasher.finalize().as_bytes() };
    Ok((offer, DiskSource(Arc::new(Mutex::new(file)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(1);

    fn offer_of(name: &str) -> Offer {
        Offer { name: FileName::sanitised(name), length: 4, block: 2, hash: [0; 32] }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_gets_its_name_last_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), "mine").unwrap();
        let mut store = DiskStore::open(folder.path()).unwrap();
        let offer = offer_of("a.txt");
        store.create(SESSION, &offer).unwrap();
        store.write(SESSION, 2, b"cd").unwrap();
        store.write(SESSION, 0, b"ab").unwrap();
        assert_eq!(names(folder.path()), [".anabranch-0000000000000001.part", "a.txt"]);
        assert_eq!(store.publish(SESSION, &offer).unwrap(), "a (1).txt");
        assert_eq!(names(folder.path()), ["a (1).txt", "a.txt"]);
        assert_eq!(fs::read(folder.path().join("a (1).txt")).unwrap(), b"abcd");
        assert_eq!(fs::read(folder.path().join("a.txt")).unwrap(), b"mine");
    }

    #[test]
    fn what_does_not_arrive_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = DiskStore::open(&folder.path().join("new")).unwrap();
        store.create(SESSION, &offer_of("a")).unwrap();
        store.create(SessionId(2), &offer_of("b")).unwrap();
        store.discard(SESSION);
        drop(store);
        assert!(names(&folder.path().join("new")).is_empty());
    }

    fn long(length: u64) -> Offer {
        Offer { length, ..offer_of("a") }
    }

    #[test]
    fn a_folder_takes_no_more_than_it_may_whoever_brings_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine"), [7; 40]).unwrap();
        let mut store = DiskStore::open(folder.path()).unwrap().with_max_total(100);
        let full = |result: Result<(), StoreError>| result.unwrap_err().0.contains("at most 100 bytes");
        assert!(full(store.create(SESSION, &long(61))));
        assert_eq!(names(folder.path()), ["mine"], "nothing is left of it");
        store.create(SESSION, &long(30)).unwrap();
        // What is on its way counts as a whole, however much of it has come.
        store.write(SESSION, 0, &[1; 20]).unwrap();
        assert!(full(store.clone().create(SessionId(2), &long(31))));
        assert!(full(store.create(SessionId(2), &long(u64::MAX))));
        store.create(SessionId(2), &long(30)).unwrap();
        assert!(full(store.create(SessionId(3), &long(1))));
        store.discard(SessionId(2));
        store.write(SESSION, 20, &[1; 10]).unwrap();
        store.publish(SESSION, &long(30)).unwrap();
        assert!(full(store.create(SessionId(3), &long(31))), "it counts once, as what it is now");
        store.create(SessionId(3), &long(30)).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_not_taken_that_the_disk_has_no_room_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = DiskStore::open(folder.path()).unwrap();
        let free = free_in(folder.path()).unwrap();
        for length in [free.saturating_mul(2), u64::MAX] {
            assert_eq!(store.create(SESSION, &long(length)), Err(StoreError("no space left for it".into())));
        }
        // Two that would fit alone: the first has its room, though nothing of it is written.
        store.create(SESSION, &long(free / 4 * 3)).unwrap();
        assert!(store.create(SessionId(2), &long(free / 4 * 3)).is_err());
        store.discard(SESSION);
        store.create(SessionId(2), &long(free / 4 * 3)).unwrap();
    }

    #[test]
    fn a_file_is_hashed_to_its_end_unless_it_is_given_up_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for length in [0, 1, HASHED_AT_ONCE, HASHED_AT_ONCE + 1] {
            let bytes = vec![7; length as usize];
            fs::write(&path, &bytes).unwrap();
            let (offer, _) = offer(&path, 1000, || false).unwrap();
            assert_eq!((offer.length, offer.hash), (length, *blake3::hash(&bytes).as_bytes()));
        }
        assert_eq!(offer(&path, 1000, || true).unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_folder_that_is_a_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(DiskStore::open(file.path()).is_err());
        assert!(offer(Path::new("/"), 1000, || false).is_err());
    }
}

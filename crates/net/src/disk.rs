//! Files: where a sender reads, and where a receiver keeps what arrives.
//!
//! A file arrives under a name that begins with a dot and ends in `.part`; it gets its
//! own name when its hash was found right, and never that of a file that is there. Beside one that
//! its sender may go on with stands a [journal] of what has come; it outlives the process.

mod journal;
mod kept;
mod naming;
mod room;
mod scribe;
mod source;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_proto::message::Offer;
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{Extents, FileDone, FileJob, Partial, PartialId, Store, StoreError};

use self::journal::Journal;
pub(crate) use self::naming::{MAX_SUFFIX, rename_without_replacing, with_suffix};
use self::scribe::{Coming, Scribe};
pub use self::source::{DiskSource, offer};
use crate::loopback::NoFiles;
use crate::pool::Work;

/// A folder that receives files: what does receivers' jobs in a pool of threads. Clones share it,
/// and the files that arrive there.
#[derive(Clone, Debug)]
pub struct DiskStore {
    folder: PathBuf,
    /// Bytes that all files in the folder may have together.
    max_total: u64,
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
            arriving: Arc::default(),
            scribe: Arc::default(),
        })
    }

    /// The same, but no file is taken with which all files in the folder, those that were there
    /// before and those that arrive too, would have more than `bytes`.
    pub fn with_max_total(self, bytes: u64) -> DiskStore {
        DiskStore { max_total: bytes, ..self }
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
        for suffix in 0..MAX_SUFFIX {
            let name = with_suffix(&offer.name, suffix);
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
mod tests {
    use anabranch_proto::message::FileName;

    use super::room::free_in;
    use super::*;

    const SESSION: SessionId = SessionId(1);

    fn offer_of(name: &str) -> Offer {
        Offer { name: FileName::sanitised(name), length: 4, block: 2, hash: [0; 32] }
    }

    fn part_of(partial: &Partial) -> String {
        format!(".anabranch-{}.part", partial.id)
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
    fn what_has_come_outlives_the_store_and_is_gone_on_with_by_the_same_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let offer = Offer { hash: *blake3::hash(b"abcd").as_bytes(), ..offer_of("a") };
        let partial = Partial::of(None, &offer);
        for end in ["suspend", "drop"] {
            let mut store = DiskStore::open(folder.path()).unwrap();
            let before = store.resume(SESSION, &offer, &partial).unwrap();
            assert_eq!(before.bytes(), if end == "suspend" { 0 } else { 2 });
            store.write(SESSION, 2, b"cd").unwrap();
            if end == "suspend" {
                assert!(store.suspend(SESSION));
            }
        }
        let other = Offer { hash: [0; 32], ..offer.clone() };
        let mut store = DiskStore::open(folder.path()).unwrap();
        assert_eq!(store.kept().unwrap(), [partial.id]);
        assert!(store.resume(SessionId(2), &other, &Partial::of(None, &other)).unwrap().is_empty());
        store.discard(SessionId(2));
        let extents = store.resume(SESSION, &offer, &partial).unwrap();
        assert!(extents.iter().eq([(2, 4)].map(|(start, end)| start..end)));
        assert!(store.kept().unwrap().is_empty(), "somebody works at it");
        store.write(SESSION, 0, b"ab").unwrap();
        assert_eq!(store.publish(SESSION, &offer).unwrap(), "a");
        drop(store);
        assert_eq!(
            (names(folder.path()), fs::read(folder.path().join("a")).unwrap()),
            (vec!["a".into()], b"abcd".into())
        );
    }

    #[test]
    fn of_a_file_of_which_nothing_has_come_nothing_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = DiskStore::open(folder.path()).unwrap();
        for session in 1..4 {
            let offer = offer_of(&session.to_string());
            store.resume(SessionId(session), &offer, &Partial::of(None, &offer)).unwrap();
        }
        assert!(!store.suspend(SESSION));
        store.write(SessionId(2), 0, b"ab").unwrap();
        store.discard(SessionId(2));
        drop(store);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn two_receivers_of_one_folder_do_not_write_to_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let offer = offer_of("a");
        let partial = Partial::of(None, &offer);
        let mut stores = [(); 2].map(|()| DiskStore::open(folder.path()).unwrap());
        for (store, content) in stores.iter_mut().zip([b"abcd", b"efgh"]) {
            assert!(store.resume(SESSION, &offer, &partial).unwrap().is_empty());
            store.write(SESSION, 0, content).unwrap();
        }
        assert_eq!(names(folder.path()), [".anabranch-0000000000000001.part".to_owned(), part_of(&partial)]);
        let published = stores.each_mut().map(|store| store.publish(SESSION, &offer).unwrap());
        assert_eq!(published, ["a", "a (1)"]);
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"abcd");
    }

    #[test]
    fn a_kept_part_counts_and_makes_room_for_a_file_that_comes() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = DiskStore::open(folder.path()).unwrap().with_max_total(1000);
        let (first, second) = (long(600), Offer { name: FileName::sanitised("b"), ..long(600) });
        let [one, two] = [&first, &second].map(|offer| Partial::of(None, offer));
        store.resume(SESSION, &first, &one).unwrap();
        store.write(SESSION, 500, &[1; 100]).unwrap();
        assert!(store.resume(SessionId(2), &second, &two).is_err(), "the other is on its way");
        assert!(store.suspend(SESSION));
        // It counts once when it goes on, and not for itself.
        assert_eq!(store.resume(SESSION, &first, &one).unwrap().bytes(), 100);
        assert!(store.suspend(SESSION));
        assert!(store.resume(SessionId(2), &second, &two).unwrap().is_empty());
        assert_eq!(names(folder.path()), [part_of(&two)], "nobody sends the other");
    }

    #[test]
    fn a_part_with_a_journal_of_another_length_or_none_begins_from_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let offer = offer_of("a");
        let partial = Partial::of(None, &offer);
        let path = kept::path_of(folder.path(), partial.id);
        let mut store = DiskStore::open(folder.path()).unwrap();
        let extents: Extents = std::iter::once(0..2).collect();
        for length in [None, Some(5), Some(4)] {
            fs::write(&path, b"ab").unwrap();
            if let Some(length) = length {
                let journal = Journal { partial, length, extents: extents.clone() };
                journal.write(&path.with_extension("journal")).unwrap();
            }
            let is_held = length == Some(4);
            assert_eq!(store.resume(SESSION, &offer, &partial).unwrap().is_empty(), !is_held, "{length:?}");
            assert_eq!(fs::metadata(&path).unwrap().len(), if is_held { 2 } else { 0 });
            store.discard(SESSION);
        }
    }

    #[test]
    fn a_receiver_that_is_killed_has_a_journal_of_what_was_there_a_moment_before() {
        let folder = tempfile::tempdir().unwrap();
        let offer = long(1_000_000);
        let partial = Partial::of(None, &offer);
        let mut store = DiskStore::open(folder.path()).unwrap();
        store.resume(SESSION, &offer, &partial).unwrap();
        let path = kept::path_of(folder.path(), partial.id);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let mut written = 0;
        // No clean end: the journal is what the thread has written by now.
        let journal = loop {
            store.write(SESSION, written, &[7; 1000]).unwrap();
            written += 1000;
            match Journal::read(&path.with_extension("journal"), written) {
                Some(journal) => break journal,
                None => assert!(std::time::Instant::now() < deadline, "no journal"),
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert_eq!(journal.extents.len(), 1);
        assert!((written / 2..=written).contains(&journal.extents.bytes()), "{journal:?}");
    }

    #[test]
    fn a_folder_that_is_a_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(DiskStore::open(file.path()).is_err());
        assert!(offer(Path::new("/"), 1000, |_| false).is_err());
    }
}

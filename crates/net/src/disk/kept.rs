//! Files in a folder of which a part is kept: those that are of use, and the remains of those that
//! are not.
//!
//! ```text
//! .anabranch-<32 digits>.part       of a file that its sender may go on with
//! .anabranch-<32 digits>.journal    what of it is there
//! .anabranch-<16 digits>.part       of a file that comes once
//! .anabranch-<digits>.unpacked      a folder: what is being unpacked of an archive that has come whole
//! ```
//!
//! A process that receives into a file holds a lock on it. What nobody holds and nobody can go on with
//! is removed: without a journal that holds, older than a week, or more than sixteen. Of these the
//! owner who has most loses the one that is oldest; all that have shown no key are one owner here, and so
//! are all whom codes have brought.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anabranch_proto::transfer::{Owner, PartialId};
use rustix::fs::{FlockOperation, flock};

use super::journal::Journal;

/// Files that are kept in a folder while nobody sends them: as many as are received at once.
pub const MAX_KEPT: usize = 16;

/// So long a file is kept after something of it has come.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

const PREFIX: &str = ".anabranch-";

const UNPACKED: &str = ".unpacked";

/// Whether a file or folder of that name is of no use to anybody but who receives into the folder: it goes
/// when room is needed.
pub fn is_hidden(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX))
}

/// A file that its sender may go on with.
#[derive(Debug)]
pub struct Kept {
    pub id: PartialId,
    owner: Owner,
    changed: SystemTime,
    path: PathBuf,
    /// Held as long as this value lives.
    _lock: File,
}

impl Kept {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that it and its journal take on their disk.
    pub fn allocated(&self) -> u64 {
        allocated(&self.path) + allocated(&self.path.with_extension("journal"))
    }

    fn remove(&self) {
        let _ = fs::remove_file(self.path.with_extension("journal"));
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens the file at `path`, which is made if it is missing, unless somebody works at it.
pub fn open_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // Somebody may have removed it before it was locked.
        let (open, there) = (rustix::fs::fstat(&file)?, rustix::fs::stat(path));
        if there.is_ok_and(|there| (there.st_dev, there.st_ino) == (open.st_dev, open.st_ino)) {
            return Ok(file);
        }
    }
}

/// Where the file of `id` is.
pub fn path_of(folder: &Path, id: PartialId) -> PathBuf {
    folder.join(format!("{PREFIX}{id}.part"))
}

fn id_of(path: &Path) -> Option<PartialId> {
    let digits = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(".part")?;
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()) {
        return None;
    }
    Some(PartialId(u128::from_str_radix(digits, 16).ok()?.to_be_bytes()))
}

/// The files in `folder` that are kept and at which nobody works; what is of no use is removed.
///
/// # Errors
///
/// When the folder can't be read.
pub fn tidy(folder: &Path) -> io::Result<Vec<Kept>> {
    let (mut names, mut unpacked) = (BTreeSet::new(), Vec::new());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && name.starts_with(PREFIX)
            && let Ok(kind) = entry.file_type()
        {
            if kind.is_file() {
                names.insert(name);
            } else if kind.is_dir() && name.ends_with(UNPACKED) {
                unpacked.push(entry.path());
            }
        }
    }
    let mut kept = Vec::new();
    for name in names.iter().filter(|name| name.ends_with(".part")) {
        let path = folder.join(name);
        // Somebody works at it, or it has gone.
        let Ok(lock) = open_locked(&path) else { continue };
        match read(&path, lock) {
            Some(file) => kept.push(file),
            None => {
                let _ = fs::remove_file(path.with_extension("journal"));
                let _ = fs::remove_file(&path);
            }
        }
    }
    let is_journal = |name: &&String| name.ends_with(".journal") || name.ends_with(".journal.new");
    for name in names.iter().filter(is_journal) {
        let part = folder.join(name.trim_end_matches(".new")).with_extension("part");
        if !part.exists() {
            let _ = fs::remove_file(folder.join(name));
        }
    }
    while kept.len() > MAX_KEPT {
        drop_one(&mut kept);
    }
    // Whoever unpacks an archive has it still.
    for folder in unpacked.iter().filter(|folder| !folder.with_extension("part").exists()) {
        let _ = fs::remove_dir_all(folder);
    }
    Ok(kept)
}

/// The file at `path`, if its sender can go on with it.
fn read(path: &Path, lock: File) -> Option<Kept> {
    let id = id_of(path)?;
    let journal = path.with_extension("journal");
    // One that was being written when the process was killed.
    let _ = fs::remove_file(journal.with_extension("journal.new"));
    let read = Journal::read(&journal, lock.metadata().ok()?.len())?;
    let changed = fs::metadata(&journal).and_then(|metadata| metadata.modified()).ok()?;
    // A clock that was set back makes nothing old.
    let age = SystemTime::now().duration_since(changed).unwrap_or_default();
    let is_of_use = read.partial.id == id && !read.extents.is_empty() && age <= MAX_AGE;
    is_of_use.then(|| Kept { id, owner: read.partial.owner, changed, path: path.to_owned(), _lock: lock })
}

/// Removes the oldest file of the owner who has most of them.
pub fn drop_one(kept: &mut Vec<Kept>) {
    let share = |owner: Owner| kept.iter().filter(|file| file.owner == owner).count();
    let worst = (0..kept.len()).max_by_key(|&place| (share(kept[place].owner), Reverse(kept[place].changed)));
    if let Some(worst) = worst {
        kept.remove(worst).remove();
    }
}

/// Bytes that the file at `path` takes on its disk: what was not written takes none. Who works at
/// the file is not waited for.
#[cfg(unix)]
pub fn allocated(path: &Path) -> u64 {
    // In units of 512 bytes, whatever the disk's own (POSIX, st_blocks as Linux and BSD have it).
    fs::metadata(path).map_or(0, |metadata| std::os::unix::fs::MetadataExt::blocks(&metadata) * 512)
}

#[cfg(not(unix))]
pub fn allocated(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[cfg(test)]
mod tests {
    use anabranch_proto::seal::PublicKey;
    use anabranch_proto::transfer::{Extents, Partial};

    use super::*;

    /// Keeps 10 of 20 bytes of the file `id`, this many seconds old.
    fn keep(folder: &Path, id: u8, key: Option<u8>, age: u64) -> PathBuf {
        let owner = key.map_or(Owner::Anybody, |byte| Owner::Key(PublicKey([byte; 32])));
        let partial = Partial { id: PartialId([id; 16]), owner };
        let path = path_of(folder, partial.id);
        fs::write(&path, [id; 10]).unwrap();
        let extents: Extents = std::iter::once(0..10).collect();
        Journal { partial, length: 20, extents }.write(&path.with_extension("journal")).unwrap();
        let journal = File::options().write(true).open(path.with_extension("journal")).unwrap();
        journal.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        path
    }

    fn ids(folder: &Path) -> Vec<u8> {
        let mut ids: Vec<u8> = tidy(folder).unwrap().iter().map(|file| file.id.0[0]).collect();
        ids.sort_unstable();
        ids
    }

    fn count(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn what_can_be_gone_on_with_stays_and_what_is_of_no_use_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        keep(path, 1, None, 0);
        keep(path, 2, Some(7), MAX_AGE.as_secs() - 60);
        assert_eq!((ids(path), count(path)), (vec![1, 2], 4));
        // Too old; without a journal; with a damaged one, or that of another; shorter than told.
        keep(path, 3, None, MAX_AGE.as_secs() + 60);
        fs::remove_file(keep(path, 4, None, 0).with_extension("journal")).unwrap();
        fs::write(keep(path, 5, None, 0).with_extension("journal"), "damaged").unwrap();
        let other = keep(path, 6, None, 0).with_extension("journal");
        fs::copy(path_of(path, PartialId([1; 16])).with_extension("journal"), other).unwrap();
        File::options().write(true).open(keep(path, 7, None, 0)).unwrap().set_len(9).unwrap();
        // Of a receiver that was killed: a file that comes once, and journals without one.
        fs::write(path.join(".anabranch-00000000000000ff.part"), "x").unwrap();
        fs::remove_file(keep(path, 8, None, 0)).unwrap();
        fs::write(path.join(".anabranch-01010101010101010101010101010101.journal.new"), "x").unwrap();
        fs::write(path.join(".anabranch-09090909090909090909090909090909.journal.new"), "x").unwrap();
        // Of receivers that were killed while they unpacked: of the first the archive is there.
        for id in [1, 8] {
            let unpacked = path_of(path, PartialId([id; 16])).with_extension("unpacked");
            fs::create_dir(&unpacked).unwrap();
            fs::write(unpacked.join("x"), "x").unwrap();
        }
        // These are none of ours.
        fs::write(path.join("a.part"), "x").unwrap();
        fs::create_dir(path.join(".anabranch-folder.part")).unwrap();
        assert_eq!((ids(path), count(path)), (vec![1, 2], 7));
    }

    #[test]
    fn nobody_takes_away_a_file_at_which_somebody_works() {
        let folder = tempfile::tempdir().unwrap();
        let lock = open_locked(&keep(folder.path(), 1, None, MAX_AGE.as_secs() * 2)).unwrap();
        assert!(open_locked(&path_of(folder.path(), PartialId([1; 16]))).is_err());
        assert_eq!((ids(folder.path()), count(folder.path())), (vec![], 2));
        drop(lock);
        assert_eq!((ids(folder.path()), count(folder.path())), (vec![], 0));
    }

    #[test]
    fn of_too_many_the_sender_with_most_loses_its_oldest() {
        let folder = tempfile::tempdir().unwrap();
        keep(folder.path(), 100, Some(1), 5000);
        for number in 0..MAX_KEPT as u8 + 1 {
            keep(folder.path(), number, None, 1000 - u64::from(number));
        }
        let left: Vec<u8> = (2..MAX_KEPT as u8 + 1).chain([100]).collect();
        assert_eq!((ids(folder.path()), count(folder.path())), (left, 2 * MAX_KEPT));
    }
}

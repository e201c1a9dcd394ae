//! What must outlive a restart, in a folder for its owner alone.

use std::env;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::identity_file::{self, IdentityError, KeyPair};
use crate::setup;

/// A longer file is none of ours: an authority that knows ten thousand relays has some 30 MB to remember.
const LONGEST: u64 = 256 << 20;

/// 32 secret bytes that keys are made of.
pub struct Seed([u8; 32]);

impl KeyPair for Seed {
    fn generate() -> Seed {
        Seed(setup::secret())
    }

    fn from_secret(secret: [u8; 32]) -> Seed {
        Seed(secret)
    }

    fn secret(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Why something is not remembered.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system.
    #[error("cannot {what} {path}: {why}")]
    File {
        /// What was tried.
        what: &'static str,
        /// Which file.
        path: String,
        /// Why not.
        why: io::Error,
    },
    /// Somebody else has it to itself.
    #[error(
        "the folder {path} is in use by {by}: what one of two wrote there the other would not know of; end that, or name \
         another folder"
    )]
    InUse {
        /// Which folder.
        path: String,
        /// Who has it.
        by: String,
    },
    /// It holds something else.
    #[error("{path} does not hold what was written there ({why}); move it away to begin anew")]
    Damaged {
        /// Which file.
        path: String,
        /// What is wrong.
        why: serde_json::Error,
    },
    /// A key.
    #[error(transparent)]
    Key(#[from] IdentityError),
}

/// Where `name` is kept unless somebody says otherwise (XDG Base Directory Specification); none if the environment names
/// no folder.
pub fn default_path(name: &str) -> Option<PathBuf> {
    // Paths that are not absolute are to be ignored, as that specification has it.
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    Some(state?.join("anabranch").join(name))
}

/// The file that whoever has a folder to itself holds a lock on.
const LOCK: &str = "lock";

/// A folder of such files.
#[derive(Clone, Debug)]
pub struct StateFolder {
    path: PathBuf,
    /// The system gives the lock up with the last copy of this, or with the process, however that ends.
    _lock: Option<Arc<File>>,
}

impl StateFolder {
    /// The folder at `path`, which is made, for its owner alone, if it is missing.
    ///
    /// # Errors
    ///
    /// When it can't be made.
    pub fn open(path: &Path) -> Result<StateFolder, StateError> {
        make(path)?;
        Ok(StateFolder { path: path.to_owned(), _lock: None })
    }

    /// The same, which nobody else opens so while this is there, nor a copy of it.
    ///
    /// # Errors
    ///
    /// When it can't be made, or somebody else has it.
    pub fn open_alone(path: &Path) -> Result<StateFolder, StateError> {
        make(path)?;
        let lock = path.join(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&lock).map_err(|why| failed("open", &lock, why))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut by = String::new();
                // It may be about to be written.
                let _ = file.take(20).read_to_string(&mut by);
                let by = if by.is_empty() { "another process".to_owned() } else { format!("process {by}") };
                return Err(StateError::InUse { path: path.display().to_string(), by });
            }
            Err(TryLockError::Error(why)) => return Err(failed("lock", &lock, why)),
        }
        let named = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        named.map_err(|why| failed("write", &lock, why))?;
        Ok(StateFolder { path: path.to_owned(), _lock: Some(Arc::new(file)) })
    }

    /// The secret bytes in the file `name`, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// As [`identity_file::load_or_make`].
    pub fn seed(&self, name: &str) -> Result<[u8; 32], StateError> {
        let seed: Seed = identity_file::load_or_make(&self.path.join(name))?;
        Ok(*seed.secret())
    }

    /// What was written into the file `name`; nothing if there is none.
    ///
    /// # Errors
    ///
    /// When it can't be read, or holds something else.
    pub fn load<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T, StateError> {
        let path = self.path.join(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(T::default()),
            Err(why) => return Err(failed("read", &path, why)),
        };
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes).map_err(|why| failed("read", &path, why))?;
        serde_json::from_slice(&bytes).map_err(|why| StateError::Damaged { path: path.display().to_string(), why })
    }

    /// Writes `value` into the file `name`, whole or not at all.
    ///
    /// # Errors
    ///
    /// When the system does not let us; what was there stays.
    pub fn save<T: Serialize>(&self, name: &str, value: &T) -> Result<(), StateError> {
        let path = self.path.join(name);
        let new = self.path.join(format!(".{name}.{:016x}.new", setup::random_seed()));
        let bytes = serde_json::to_vec(value).expect("what is remembered has only keys that are text");
        let saved = write_whole(&new, &bytes).and_then(|()| fs::rename(&new, &path));
        saved.map_err(|why| {
            // Nothing half-written stays; what can't be removed was not written.
            let _ = fs::remove_file(&new);
            failed("write", &path, why)
        })
    }

    /// The file `name` counts as written now.
    ///
    /// # Errors
    ///
    /// When it is not there, or the system does not let us.
    pub fn touch(&self, name: &str) -> Result<(), StateError> {
        let path = self.path.join(name);
        let file = OpenOptions::new().write(true).open(&path);
        let touched = file.and_then(|file| file.set_modified(SystemTime::now()));
        touched.map_err(|why| failed("write", &path, why))
    }

    /// Removes the file `name`, if it is there.
    ///
    /// # Errors
    ///
    /// When the system does not let us.
    pub fn remove(&self, name: &str) -> Result<(), StateError> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(why) if why.kind() != ErrorKind::NotFound => Err(failed("remove", &path, why)),
            _ => Ok(()),
        }
    }

    /// Removes all files that were written longer ago than `age`.
    ///
    /// # Errors
    ///
    /// When the folder can't be read.
    pub fn forget_older(&self, age: Duration) -> Result<(), StateError> {
        let entries = fs::read_dir(&self.path).map_err(|why| failed("read", &self.path, why))?;
        for entry in entries.filter_map(Result::ok) {
            let is_old = |data: fs::Metadata| {
                data.is_file() && data.modified().is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed > age))
            };
            if entry.metadata().is_ok_and(is_old) {
                // Somebody else may have been faster.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

fn make(path: &Path) -> Result<(), StateError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|why| failed("make the folder", path, why))
}

fn failed(what: &'static str, path: &Path, why: io::Error) -> StateError {
    StateError::File { what, path: path.display().to_string(), why }
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_was_not_is_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::open(&folder.path().join("a/b")).expect("it is made");
        assert_eq!(state.load::<Vec<u32>>("seen").expect("nothing yet"), Vec::<u32>::new());
        state.save("seen", &[1, 2]).expect("it is written");
        state.save("seen", &[3]).expect("it is written again");
        assert_eq!(state.load::<Vec<u32>>("seen").expect("it is read"), [3]);
        assert_eq!(fs::read_dir(folder.path().join("a/b")).expect("a folder").count(), 1, "nothing else stays");
        let seed = state.seed("key").expect("it is made");
        assert_eq!(state.seed("key").expect("it is there"), seed);
    }

    #[test]
    fn what_is_old_is_forgotten_and_what_is_new_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::open(folder.path()).expect("it is there");
        ["old", "new", "touched", "removed"].iter().for_each(|name| state.save(name, &[1]).expect("it is written"));
        let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
        for name in ["old", "touched"] {
            File::options().write(true).open(folder.path().join(name)).unwrap().set_modified(an_hour_ago).unwrap();
        }
        state.touch("touched").expect("it is there");
        state.remove("removed").expect("it goes");
        state.remove("removed").expect("it has gone");
        state.forget_older(Duration::from_secs(3599)).expect("it is read");
        let there = |name: &str| folder.path().join(name).exists();
        assert_eq!(["old", "new", "touched", "removed"].map(there), [false, true, true, false]);
        assert!(state.touch("removed").is_err());
    }

    #[test]
    fn who_has_a_folder_to_itself_keeps_others_out_until_it_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::open_alone(folder.path()).expect("it is free");
        let copy = state.clone();
        for _ in 0..2 {
            let said = StateFolder::open_alone(folder.path()).expect_err("it is taken").to_string();
            let by = format!("is in use by process {}:", std::process::id());
            assert!(said.contains(&by) && said.contains(&folder.path().display().to_string()), "{said}");
        }
        StateFolder::open(folder.path()).expect("who shares it asks nobody");
        drop(state);
        assert!(StateFolder::open_alone(folder.path()).is_err(), "a copy is there");
        drop(copy);
        StateFolder::open_alone(folder.path()).expect("what is left of the file locks nobody out");
    }

    #[test]
    fn a_file_that_holds_something_else_is_reported_and_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::open(folder.path()).expect("it is there");
        fs::write(folder.path().join("seen"), "[1, 2").expect("it is written");
        let said = state.load::<Vec<u32>>("seen").expect_err("it is damaged").to_string();
        assert!(said.contains("seen does not hold what was written there"), "{said}");
        assert_eq!(fs::read(folder.path().join("seen")).expect("it is there"), b"[1, 2");
    }
}

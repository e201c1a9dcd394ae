//! Results on disk: whole or not at all.
//!
//! A file is written under a temporary name beside its final one and renamed
//! when it is complete, so that a reader never finds half a result and a
//! failed run never destroys an older one.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;
use thiserror::Error;

pub use table::{Column, Table};

mod table;

/// Why a result could not be written. Nothing is left behind in any case, and a
/// file that had the name before is untouched.
#[derive(Debug, Error)]
pub enum OutputError {
    /// There is no room left, on the device or in the user's quota.
    #[error("cannot write {}: the disk is full ({source})", path.display())]
    DiskFull {
        /// The file that was to be written.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The operating system refused for another reason.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file that was to be written.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The columns of a table do not describe the same rows.
    #[error(
        "cannot write {}: column \"{column}\" has {rows} rows, but \"{first}\" has {expected}",
        path.display()
    )]
    UnequalColumns {
        /// The file that was to be written.
        path: PathBuf,
        /// Name of the first column.
        first: String,
        /// How many rows the first column has.
        expected: usize,
        /// Name of the column that differs.
        column: String,
        /// How many rows it has.
        rows: usize,
    },
    /// Two columns of a table have the same name.
    #[error("cannot write {}: two columns are named \"{column}\"", path.display())]
    DuplicateColumn {
        /// The file that was to be written.
        path: PathBuf,
        /// The name they share.
        column: String,
    },
    /// The Parquet library refused for a reason other than the disk.
    #[error("cannot write {}: {source}", path.display())]
    Parquet {
        /// The file that was to be written.
        path: PathBuf,
        /// What the library said.
        source: parquet::errors::ParquetError,
    },
}

impl OutputError {
    /// Names the path, and tells a full disk from everything else.
    pub fn from_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path, source },
            _ => Self::Io { path, source },
        }
    }
}

/// Creates the directory `path` with what is missing above it, and makes sure that
/// files can be created in it, so that a long run need not end to find out.
///
/// # Errors
///
/// What the operating system refused, with the path.
pub fn create_dir(path: &Path) -> Result<(), OutputError> {
    let failed = |source| OutputError::from_io(path, source);
    std::fs::create_dir_all(path).map_err(|source| match source.kind() {
        kind @ io::ErrorKind::AlreadyExists => failed(io::Error::new(kind, "it is a file; expected a folder")),
        _ => failed(source),
    })?;
    // Removed again at once.
    tempfile::Builder::new().prefix(".unfinished-").tempfile_in(path).map(drop).map_err(failed)
}

/// Creates or replaces the file at `path` with what `fill` writes, in one step.
///
/// The directory must exist. The bytes go to a temporary file in the same
/// directory, which is flushed to the device and renamed to `path` when `fill`
/// has returned `Ok`.
///
/// # Errors
///
/// The error of `fill`, or of the operating system, with the path. The
/// temporary file is removed then, and whatever was at `path` stays.
pub fn write_atomically<F>(path: &Path, fill: F) -> Result<(), OutputError>
where
    F: FnOnce(&mut BufWriter<File>) -> io::Result<()>,
{
    stage(path, fill)?.commit()
}

/// A whole file that has not its name yet. Several results that belong together are
/// staged first and committed when all of them had room: a rename takes none. One that
/// is dropped leaves nothing behind.
#[derive(Debug)]
pub struct Staged {
    path: PathBuf,
    temporary: TempPath,
}

impl Staged {
    /// Gives the file its name, in place of an older one.
    ///
    /// # Errors
    ///
    /// What the operating system said; the older file stays then.
    pub fn commit(self) -> Result<(), OutputError> {
        self.temporary.persist(&self.path).map_err(|error| OutputError::from_io(&self.path, error.error))
    }
}

/// Writes what [`write_atomically`] would, up to the last step.
///
/// # Errors
///
/// As [`write_atomically`].
pub fn stage<F>(path: &Path, fill: F) -> Result<Staged, OutputError>
where
    F: FnOnce(&mut BufWriter<File>) -> io::Result<()>,
{
    stage_or(path, |writer| fill(writer).map_err(|source| OutputError::from_io(path, source)))
}

/// [`stage`] for a `fill` that has more to report than `io::Error` can say.
fn stage_or<F>(path: &Path, fill: F) -> Result<Staged, OutputError>
where
    F: FnOnce(&mut BufWriter<File>) -> Result<(), OutputError>,
{
    let mut unfinished = begin(path)?;
    // On every early return the temporary file is removed.
    if let Err(error) = fill(&mut unfinished.writer) {
        // Dropping the writer would try to write the rest of its buffer once more.
        drop(unfinished.writer.into_parts());
        return Err(error);
    }
    unfinished.finish()
}

/// A file that is being written under a temporary name, a piece at a time. One that is
/// dropped leaves nothing behind.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    temporary: TempPath,
    writer: BufWriter<File>,
}

/// Begins a file that [`write_atomically`] would write in one call.
///
/// # Errors
///
/// As [`write_atomically`].
pub fn begin(path: &Path) -> Result<Unfinished, OutputError> {
    let failed = |source| OutputError::from_io(path, source);
    let directory = match path.parent() {
        // A bare file name has an empty parent, which the system does not take for ".".
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".unfinished-").suffix(".tmp");
    if let Some(permissions) = usual_permissions() {
        builder.permissions(permissions);
    }
    let (file, temporary) = builder.tempfile_in(directory).map_err(failed)?.into_parts();
    Ok(Unfinished { path: path.to_path_buf(), temporary, writer: BufWriter::new(file) })
}

impl Unfinished {
    /// The name that the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file is complete.
    ///
    /// # Errors
    ///
    /// As [`write_atomically`].
    pub fn finish(self) -> Result<Staged, OutputError> {
        let Unfinished { path, temporary, mut writer } = self;
        let failed = |source| OutputError::from_io(&path, source);
        writer.flush().map_err(failed)?;
        // Some file systems allocate only here, and a rename that reaches the device
        // before its data leaves an empty file after a power cut.
        writer.get_ref().sync_all().map_err(failed)?;
        Ok(Staged { path, temporary })
    }
}

impl Write for Unfinished {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// What a file gets that is created in the usual way, and not the private mode of
/// a temporary one: others may read results, as far as the umask lets them.
fn usual_permissions() -> Option<Permissions> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        Some(Permissions::from_mode(0o666))
    }
    #[cfg(not(unix))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_file_appears_whole_and_replaces_the_old() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.txt");
        fs::write(&path, "old").unwrap();
        write_atomically(&path, |writer| {
            writer.write_all(b"new")?;
            assert_eq!(fs::read(&path)?, b"old");
            Ok(())
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(directory.path()), ["result.txt"]);
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.txt");
        fs::write(&path, "old").unwrap();
        let error = write_atomically(&path, |writer| {
            writer.write_all(b"half of it")?;
            Err(io::Error::other("the simulation stopped"))
        })
        .unwrap_err();
        assert!(matches!(error, OutputError::Io { .. }));
        let message = error.to_string();
        assert!(message.contains("result.txt") && message.contains("the simulation stopped"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["result.txt"]);
    }

    #[test]
    fn what_is_staged_has_no_name_until_all_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&a, "old").unwrap();
        let staged = stage(&a, |writer| writer.write_all(b"new")).unwrap();
        assert!(stage(&b, |_| Err(io::Error::other("no room"))).is_err());
        drop(staged);
        assert_eq!(fs::read(&a).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["a"]);
        stage(&a, |writer| writer.write_all(b"new")).unwrap().commit().unwrap();
        assert_eq!(fs::read(&a).unwrap(), b"new");
        assert_eq!(names(directory.path()), ["a"]);
    }

    #[test]
    fn a_file_that_is_begun_has_no_name_until_it_is_finished_and_committed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut file = begin(&path).unwrap();
        file.write_all(b"one ").unwrap();
        file.write_all(b"two").unwrap();
        assert!(!path.exists());
        drop(begin(&path).unwrap());
        let staged = file.finish().unwrap();
        assert!(!path.exists());
        staged.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one two");
        assert_eq!(names(directory.path()), ["log"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_called_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.txt");
        let error = write_atomically(&path, |_| {
            // A device that is always full: the error is the kernel's own.
            let mut full = File::options().write(true).open("/dev/full")?;
            full.write_all(b"x")
        })
        .unwrap_err();
        assert!(matches!(error, OutputError::DiskFull { .. }));
        assert!(error.to_string().contains("the disk is full"));
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn a_missing_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("absent").join("result.txt");
        let error = write_atomically(&path, |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("absent"));
        assert!(names(directory.path()).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn results_may_be_read_as_any_other_file() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let (ours, usual) = (directory.path().join("a"), directory.path().join("b"));
        write_atomically(&ours, |_| Ok(())).unwrap();
        fs::write(&usual, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&usual));
    }
}

//! A file that has come whole and stays hidden until somebody has made of it what it is for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use super::scribe::Coming;

/// A file that has come whole, under its hidden name; it goes with this value, and with it what was
/// unpacked beside it.
#[derive(Debug)]
pub struct Hidden(Arc<Coming>);

impl Hidden {
    pub(super) fn of(coming: Arc<Coming>) -> Hidden {
        Hidden(coming)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Makes an empty folder beside it, on the same disk. If the process is killed, the folder goes when
    /// the file goes, or with the next one.
    ///
    /// # Errors
    ///
    /// When there can't be one.
    pub fn folder(&self) -> io::Result<PathBuf> {
        let folder = self.0.path.with_extension("unpacked");
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(&folder)?;
        Ok(folder)
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // Whoever finds remains of it removes them.
        let _ = fs::remove_dir_all(self.0.path.with_extension("unpacked"));
        self.0.remove();
    }
}

//! Names in a folder that replace nothing.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// How many other names are tried for a file whose name is taken.
pub(crate) const MAX_SUFFIX: u32 = 1000;

/// `photo.jpg`, then `photo (1).jpg`, and so on.
pub(crate) fn with_suffix(name: &str, suffix: u32) -> String {
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

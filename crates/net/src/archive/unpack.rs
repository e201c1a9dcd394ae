//! An archive as its receiver has it: what somebody else says that files are called.
//!
//! Only files and folders are taken: no links, so that no path leads elsewhere than it says; no devices.
//! Every part of a path is a plain name, of which what could mislead is made harmless, nothing is written twice, modes are those of files and programs
//! of the user's own, and no more comes than was announced.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anabranch_proto::overlay::message::{FileName, safe_part};

use super::{LONGEST_PATH, MOST_ENTRIES, problem_of_path};
use crate::disk::naming::{MAX_SUFFIX, rename_without_replacing, with_suffix};

/// What was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Unpacks `archive` into `folder`, which is empty and nobody else's.
///
/// # Errors
///
/// When something in it is not as it should be, or can't be written. What has been unpacked stays for
/// whoever owns the folder to remove.
pub fn unpack(archive: impl Read, folder: &Path, announced: Bounds) -> io::Result<()> {
    unpack_within(archive, folder, announced, MOST_ENTRIES)
}

/// The same, but for the folders that are made, at most `folders`.
pub(super) fn unpack_within(
    archive: impl Read,
    folder: &Path,
    announced: Bounds,
    mut folders: usize,
) -> io::Result<()> {
    let mut archive = tar::Archive::new(archive);
    let mut left = announced;
    let mut long_name: Option<Vec<u8>> = None;
    let mut seen = BTreeSet::new();
    // Raw: the library would keep the longest of names in memory.
    for (number, entry) in archive.entries()?.raw(true).enumerate() {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let size = entry.header().entry_size()?;
        if kind.is_gnu_longname() {
            if size > LONGEST_PATH as u64 + 1 || long_name.is_some() {
                return Err(wrong("it has a path of more than 4096 bytes"));
            }
            let mut name = Vec::new();
            entry.read_to_end(&mut name)?;
            while name.last() == Some(&0) {
                name.pop();
            }
            long_name = Some(name);
            continue;
        }
        if number > 2 * MOST_ENTRIES {
            return Err(wrong("it has more files and folders than are taken"));
        }
        let name = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let name = String::from_utf8(name).map_err(|_| wrong("it has a name that is not UTF-8"))?;
        // A folder's path may end in a slash.
        let name = if kind.is_dir() { name.strip_suffix('/').unwrap_or(&name) } else { &name };
        if let Some(problem) = problem_of_path(name) {
            return Err(wrong(&format!("it has {problem}")));
        }
        // Its sender has made them so, unless it is an old one or lies.
        let parts: Vec<String> = name.split('/').map(safe_part).collect();
        let (parent, last) = match parts.split_last() {
            Some((last, before)) => (before.iter().fold(folder.to_owned(), |path, part| path.join(part)), last),
            None => return Err(wrong("it has an empty path")),
        };
        let at = |error: io::Error| io::Error::new(error.kind(), format!("cannot write {name}: {error}"));
        // Each costs the disk, whatever was announced, and one path makes many.
        let mut make_folders = |path: &Path| {
            let new = path.ancestors().take_while(|path| !path.is_dir()).count();
            let over = || wrong("it has more folders than are taken");
            folders = folders.checked_sub(new).ok_or_else(over)?;
            fs::create_dir_all(path).map_err(at)
        };
        if kind.is_dir() {
            make_folders(&parent.join(last))?;
        } else if kind.is_file() {
            let over = || wrong("it has more than was announced");
            left.files = left.files.checked_sub(1).ok_or_else(over)?;
            left.bytes = left.bytes.checked_sub(size).ok_or_else(over)?;
            if !seen.insert(name.to_owned()) {
                return Err(wrong(&format!("{name} comes twice")));
            }
            make_folders(&parent)?;
            let mode = entry.header().mode().unwrap_or(0);
            let modified = entry.header().mtime().unwrap_or(0);
            let file = create(&parent, last, mode & 0o100 != 0).map_err(at)?;
            write(&mut entry, size, file, modified).map_err(at)?;
        } else {
            return Err(wrong(&format!("{name} is neither a file nor a folder")));
        }
    }
    if left != (Bounds { files: 0, bytes: 0 }) {
        return Err(wrong("it has less than was announced"));
    }
    Ok(())
}

/// Moves what is in `from` into `folder`, on the same disk, each under its own name or the next that is
/// free; nothing there is replaced. Their names there.
///
/// # Errors
///
/// When something can't be moved: then all is where it was.
pub fn put_in_place(from: &Path, folder: &Path) -> io::Result<Vec<String>> {
    let mut inside = fs::read_dir(from)?.collect::<io::Result<Vec<_>>>()?;
    inside.sort_by_key(fs::DirEntry::file_name);
    let mut placed: Vec<(PathBuf, String)> = Vec::new();
    for entry in inside {
        let name = FileName::sanitised(&entry.file_name().to_string_lossy());
        match place(&entry.path(), folder, name.as_str()) {
            Ok(called) => placed.push((entry.path(), called)),
            Err(error) => {
                for (before, called) in placed {
                    // What can't be moved back stays where it is: nothing of anybody else's is touched.
                    let _ = fs::rename(folder.join(called), before);
                }
                return Err(error);
            }
        }
    }
    Ok(placed.into_iter().map(|(_, called)| called).collect())
}

fn place(path: &Path, folder: &Path, name: &str) -> io::Result<String> {
    for suffix in 0..MAX_SUFFIX {
        let called = with_suffix(name, suffix);
        let to = folder.join(&called);
        let moved = if path.is_dir() {
            // A folder takes the place of an empty one, which is ours.
            fs::create_dir(&to).and_then(|()| fs::rename(path, &to))
        } else {
            rename_without_replacing(path, &to)
        };
        match moved {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            moved => return moved.map(|()| called),
        }
    }
    Err(taken(name))
}

/// A new file in `parent`, called `name` unless another one, whose name was made harmless, is called so.
fn create(parent: &Path, name: &str, is_program: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, if is_program { 0o777 } else { 0o666 });
    #[cfg(not(unix))]
    let _ = is_program;
    for suffix in 0..MAX_SUFFIX {
        match options.open(parent.join(with_suffix(name, suffix))) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened,
        }
    }
    Err(taken(name))
}

fn write(content: &mut impl Read, size: u64, mut file: File, modified: u64) -> io::Result<()> {
    if io::copy(content, &mut file)? != size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    file.flush()?;
    // A time that the disk can't keep is none that matters.
    if let Some(modified) = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(modified)) {
        let _ = file.set_modified(modified);
    }
    Ok(())
}

fn taken(name: &str) -> io::Error {
    let taken = format!("there are {MAX_SUFFIX} files named {name} already");
    io::Error::new(io::ErrorKind::AlreadyExists, taken)
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

//! An archive as its sender has it: where each part of it lies.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anabranch_proto::overlay::message::{FileName, Offer, safe_part};
use anabranch_proto::printable::printable;
use anabranch_proto::transfer::{FileDone, FileJob, Source};

use super::{BLOCK, MOST_DEPTH, MOST_ENTRIES, problem_of_path};
use crate::disk::naming::with_suffix;
use crate::loopback::NoFiles;
use crate::pool::Work;

/// Bytes that are hashed before it is asked again whether they are wanted.
const HASHED_AT_ONCE: usize = 1 << 20;

/// Names that are not safe everywhere and are told one by one.
const MOST_NAMED: usize = 3;

/// Bytes of zeros at an archive's end.
const END: u64 = 2 * BLOCK;

/// A file or a folder.
#[derive(Debug)]
struct Entry {
    /// Where it begins in the archive, with its header.
    start: u64,
    /// Bytes of its header.
    header: u64,
    /// Where it lies on the disk.
    path: PathBuf,
    /// What it is called in the archive.
    name: String,
    /// Bytes of its content; none for a folder.
    length: Option<u64>,
    is_program: bool,
    /// Seconds since 1970.
    modified: u64,
}

/// Files and folders that travel as one.
#[derive(Debug)]
pub struct Archive {
    entries: Vec<Entry>,
    names: Vec<String>,
    length: u64,
    files: u64,
    bytes: u64,
    left_out: u64,
    renamed: Renamed,
}

/// Names that are not safe everywhere, and what they are in an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renamed {
    /// How many.
    pub count: u64,
    /// The first of them: what each is called here, and there.
    pub first: Vec<(String, String)>,
}

impl Renamed {
    /// `here` is `there` in the archive.
    fn note(&mut self, here: &str, there: &str) {
        self.count += 1;
        if self.first.len() < MOST_NAMED {
            self.first.push((here.to_owned(), there.to_owned()));
        }
    }
}

impl Archive {
    /// Of what lies at `paths`, folders with all that is in them. Links and devices within are left out.
    ///
    /// # Errors
    ///
    /// When something can't be read, has a name that can't be sent, or two of `paths` have the same.
    pub fn plan(paths: &[PathBuf]) -> io::Result<Arc<Archive>> {
        let (names, entries) = (Vec::new(), Vec::new());
        let mut archive =
            Archive { entries, names, length: 0, files: 0, bytes: 0, left_out: 0, renamed: Renamed::default() };
        let (mut seen, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for path in paths {
            let whole = fs::canonicalize(path).map_err(|error| at(path, &error))?;
            let own = whole.file_name().unwrap_or(OsStr::new("folder"));
            if !seen.insert(own.to_owned()) {
                let name = own.to_string_lossy();
                return Err(invalid(format!("two that are both called {name}: send one after the other")));
            }
            let name = archive.rename(own, FileName::of_own(&own.to_string_lossy()).as_str(), &mut taken);
            let metadata = fs::metadata(&whole).map_err(|error| at(path, &error))?;
            if !metadata.is_file() && !metadata.is_dir() {
                return Err(invalid(format!("{}: neither a file nor a folder", shown(path))));
            }
            archive.add(&whole, name.clone(), &metadata, 1)?;
            archive.names.push(name);
        }
        archive.length += END;
        Ok(Arc::new(archive))
    }

    fn add(&mut self, path: &Path, name: String, metadata: &fs::Metadata, depth: usize) -> io::Result<()> {
        if let Some(problem) = problem_of_path(&name) {
            return Err(invalid(format!("{}: {problem} can't be sent", shown(path))));
        }
        if self.entries.len() == MOST_ENTRIES {
            return Err(invalid(format!("there are more than {MOST_ENTRIES} files and folders")));
        }
        let length = metadata.is_file().then_some(metadata.len());
        if length.is_some() {
            // Before anybody is told a code.
            File::open(path).map_err(|error| at(path, &error))?;
        }
        let modified = metadata.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let mut entry = Entry {
            start: self.length,
            header: 0,
            path: path.to_owned(),
            name,
            length,
            is_program: is_program(metadata),
            modified: modified.map_or(0, |since| since.as_secs()),
        };
        entry.header = entry.header()?.len() as u64;
        let content = length.unwrap_or(0);
        self.length += entry.header + content.next_multiple_of(BLOCK);
        let name = entry.name.clone();
        self.entries.push(entry);
        if length.is_some() {
            self.files += 1;
            self.bytes += content;
            return Ok(());
        }
        let mut inside =
            fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(|e| at(path, &e))?;
        inside.sort_by_key(fs::DirEntry::file_name);
        // A name that stays is not given to another that does not.
        let own: Vec<String> = inside.iter().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let mut taken: BTreeSet<String> = own.into_iter().filter(|own| safe_part(own) == *own).collect();
        for entry in inside {
            let (path, file_name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().map_err(|error| at(&path, &error))?;
            if !kind.is_file() && !kind.is_dir() {
                self.left_out += 1;
                continue;
            }
            if depth == MOST_DEPTH {
                return Err(invalid(format!("{}: more than {MOST_DEPTH} folders in each other", shown(&path))));
            }
            let metadata = entry.metadata().map_err(|error| at(&path, &error))?;
            let part = safe_part(&file_name.to_string_lossy());
            let part = if file_name == *part { part } else { self.rename(&file_name, &part, &mut taken) };
            self.add(&path, format!("{name}/{part}"), &metadata, depth + 1)?;
        }
        Ok(())
    }

    /// The name in the archive, `safe` or the next that is not `taken`, of what is called `own`.
    fn rename(&mut self, own: &OsStr, safe: &str, taken: &mut BTreeSet<String>) -> String {
        let mut suffix = 0;
        let name = loop {
            let name = with_suffix(safe, suffix);
            if taken.insert(name.clone()) {
                break name;
            }
            suffix += 1;
        };
        if own != OsStr::new(&name) {
            self.renamed.note(&own.to_string_lossy(), &name);
        }
        name
    }

    /// Names that are not safe everywhere.
    pub fn renamed(&self) -> &Renamed {
        &self.renamed
    }

    /// What was named, as it is called.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Bytes of the archive.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Files in it.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Links, devices and the like that are not in it.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// It, to be read.
    pub fn source(self: &Arc<Self>) -> ArchiveSource {
        ArchiveSource { archive: self.clone(), open: None }
    }

    /// Reads all of it once for its hash: the offer of it under `name` in blocks of `block` bytes, and the
    /// archive. `is_given_up` is asked again and again, and told how many bytes are hashed.
    ///
    /// # Errors
    ///
    /// If something can't be read; [`io::ErrorKind::Interrupted`] once it is given up.
    pub fn offer(
        self: &Arc<Self>,
        name: &str,
        block: u16,
        mut is_given_up: impl FnMut(u64) -> bool,
    ) -> io::Result<(Offer, ArchiveSource)> {
        let mut source = self.source();
        let (mut hasher, mut offset) = (blake3::Hasher::new(), 0);
        let mut bytes = vec![0; HASHED_AT_ONCE];
        while offset < self.length {
            let part = (self.length - offset).min(HASHED_AT_ONCE as u64) as usize;
            source.read(offset, &mut bytes[..part])?;
            hasher.update(&bytes[..part]);
            offset += part as u64;
            if is_given_up(offset) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        let hash = *hasher.finalize().as_bytes();
        Ok((Offer { name: FileName::sanitised(name), length: self.length, block, hash }, source))
    }
}

impl Entry {
    /// Its header, which says whose content follows: nobody's in particular.
    fn header(&self) -> io::Result<Vec<u8>> {
        let mut header = tar::Header::new_gnu();
        let kind = if self.length.is_some() { tar::EntryType::Regular } else { tar::EntryType::Directory };
        header.set_entry_type(kind);
        header.set_size(self.length.unwrap_or(0));
        header.set_mode(if self.is_program || self.length.is_none() { 0o755 } else { 0o644 });
        header.set_mtime(self.modified);
        header.set_uid(0);
        header.set_gid(0);
        let mut builder = tar::Builder::new(Vec::new());
        builder.append_data(&mut header, &self.name, io::empty())?;
        Ok(builder.get_ref().clone())
    }
}

/// Reads an archive. Clones read the same one.
#[derive(Debug)]
pub struct ArchiveSource {
    archive: Arc<Archive>,
    /// The entry that was read last.
    open: Option<(usize, File)>,
}

impl Clone for ArchiveSource {
    fn clone(&self) -> ArchiveSource {
        self.archive.source()
    }
}

impl ArchiveSource {
    /// Fills the beginning of `bytes` from `offset` on: how many.
    fn read_some(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let archive = self.archive.clone();
        let number = archive.entries.partition_point(|entry| entry.start <= offset).saturating_sub(1);
        let end = archive.length - END;
        let Some(entry) = archive.entries.get(number).filter(|_| offset < end) else {
            let left = archive.length.checked_sub(offset).filter(|&left| left > 0);
            let some = left.ok_or(io::ErrorKind::UnexpectedEof)?.min(bytes.len() as u64) as usize;
            bytes[..some].fill(0);
            return Ok(some);
        };
        let within = offset - entry.start;
        if within < entry.header {
            let header = entry.header()?;
            let part = &header[within as usize..];
            let some = part.len().min(bytes.len());
            bytes[..some].copy_from_slice(&part[..some]);
            return Ok(some);
        }
        let (within, length) = (within - entry.header, entry.length.unwrap_or(0));
        if within >= length {
            let some = (length.next_multiple_of(BLOCK) - within).min(bytes.len() as u64) as usize;
            bytes[..some].fill(0);
            return Ok(some);
        }
        let some = (length - within).min(bytes.len() as u64) as usize;
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            self.open = Some((number, File::open(&entry.path).map_err(|error| at(&entry.path, &error))?));
        }
        let Some((_, file)) = &mut self.open else { return Err(io::ErrorKind::NotFound.into()) };
        let read = file.seek(SeekFrom::Start(within)).and_then(|_| file.read_exact(&mut bytes[..some]));
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => invalid(format!("{} has become shorter", shown(&entry.path))),
            _ => at(&entry.path, &error),
        })?;
        Ok(some)
    }
}

impl Source for ArchiveSource {
    fn read(&mut self, mut offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let some = self.read_some(offset, rest)?;
            offset += some as u64;
            rest = &mut rest[some..];
        }
        Ok(())
    }
}

impl Work<FileJob, FileDone> for ArchiveSource {
    fn work(&mut self, _: usize, job: FileJob) -> FileDone {
        job.work(&mut NoFiles, self)
    }
}

#[cfg(unix)]
fn is_program(metadata: &fs::Metadata) -> bool {
    metadata.is_file() && std::os::unix::fs::MetadataExt::mode(metadata) & 0o100 != 0
}

#[cfg(not(unix))]
fn is_program(_: &fs::Metadata) -> bool {
    false
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", shown(path)))
}

/// `path` as it may be shown: the user's own files may have been named by others.
fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

//! What is sent: one file as it is, what comes on standard input, or several files and folders as an
//! archive.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anabranch_net::archive::{Archive, ArchiveSource};
use anabranch_net::disk::DiskSource;
use anabranch_net::pool::Work;
use anabranch_proto::overlay::message::{FileName, Offer};
use anabranch_proto::printable::printable;
use anabranch_proto::transfer::{FileDone, FileJob, Source};
use anabranch_rendezvous::agreement::Packing;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::stderr::eprint_line;
use crate::{network, transfer_bar};

/// Stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Files and folders, gathered but not read yet.
#[derive(Debug)]
pub struct Parcel {
    content: Content,
    /// What it is called in messages.
    pub title: String,
    /// How many files and folders were named.
    named: usize,
    /// What was named, as it is called.
    pub names: Vec<String>,
    /// Files, folders apart.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

#[derive(Debug)]
enum Content {
    Plain {
        path: PathBuf,
        name: Option<String>,
    },
    /// What came on standard input, in a file without a name, which is gone however this process ends.
    Input {
        file: File,
        name: String,
    },
    Archive(Arc<Archive>),
}

impl Parcel {
    /// What is at `paths`; `name` is what one file shall be called.
    pub fn gather(paths: &[PathBuf], name: Option<&str>, interrupt: &Interrupt) -> Result<Parcel, Failure> {
        let is_input = |path: &PathBuf| path.as_os_str() == STANDARD_INPUT;
        match paths {
            [path] if is_input(path) => Parcel::of_input(name, interrupt),
            _ if paths.iter().any(is_input) => {
                Err(Failure::new("standard input is sent alone: expected nothing beside -"))
            }
            [path] if !path.is_dir() => Parcel::of_file(path, name),
            _ if name.is_some() => {
                Err(Failure::new("--name is for one file: folders and several files keep their names"))
            }
            _ => Parcel::of_several(paths),
        }
    }

    fn of_file(path: &Path, name: Option<&str>) -> Result<Parcel, Failure> {
        let title = network::shown_path(path);
        let cannot = |why: &str| Failure::new(format!("cannot read {title}: {why}"));
        let metadata = path.metadata().map_err(|error| cannot(&error.to_string()))?;
        if !metadata.is_file() {
            return Err(cannot("neither a file nor a folder"));
        }
        // Before anybody is told a code.
        File::open(path).map_err(|error| cannot(&error.to_string()))?;
        let own = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let called = FileName::of_own(name.unwrap_or(&own)).to_string();
        if name.unwrap_or(&own) != called {
            say_renamed(1, &[(name.unwrap_or(&own).to_owned(), called.clone())]);
        }
        Ok(Parcel {
            content: Content::Plain { path: path.to_owned(), name: name.map(str::to_owned) },
            title,
            named: 1,
            names: vec![called],
            files: 1,
            bytes: metadata.len(),
        })
    }

    /// All of it comes before anything is sent: its length and hash are announced first.
    fn of_input(name: Option<&str>, interrupt: &Interrupt) -> Result<Parcel, Failure> {
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::Interrupted => Failure::interrupted("standard input was not sent"),
            _ => Failure::new(format!("cannot keep standard input: {error}")),
        };
        let mut file = tempfile::tempfile().map_err(failed)?;
        let (sender, receiver) = std::sync::mpsc::sync_channel(4);
        // Nothing ends a read of a terminal or a pipe but what it waits for; Ctrl-C does not wait.
        std::thread::spawn(move || {
            let mut input = io::stdin().lock();
            loop {
                let mut piece = vec![0; 1 << 16];
                let read = io::Read::read(&mut input, &mut piece);
                let is_last =
                    !matches!(&read, Ok(1..)) && !matches!(&read, Err(e) if e.kind() == ErrorKind::Interrupted);
                let sent = sender.send(read.map(|length| {
                    piece.truncate(length);
                    piece
                }));
                if is_last || sent.is_err() {
                    return;
                }
            }
        });
        let mut bytes = 0;
        loop {
            match receiver.recv_timeout(std::time::Duration::from_millis(100)) {
                Ok(Ok(piece)) if piece.is_empty() => break,
                Ok(Ok(piece)) => {
                    file.write_all(&piece).map_err(failed)?;
                    bytes += piece.len() as u64;
                }
                Ok(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(Failure::new(format!("cannot read standard input: {error}"))),
                Err(_) if interrupt.is_raised() => return Err(failed(ErrorKind::Interrupted.into())),
                Err(_) => {}
            }
        }
        file.flush().map_err(failed)?;
        let name = name.unwrap_or("standard-input").to_owned();
        let names = vec![FileName::of_own(&name).to_string()];
        let content = Content::Input { file, name };
        Ok(Parcel { content, title: "standard input".into(), named: 1, names, files: 1, bytes })
    }

    fn of_several(paths: &[PathBuf]) -> Result<Parcel, Failure> {
        let archive = Archive::plan(paths)
            .map_err(|error| Failure::new(format!("cannot send {}", printable(&error.to_string()))))?;
        if archive.left_out() > 0 {
            eprint_line!("anabranch: links, devices and the like are not sent: {} are left out", archive.left_out());
        }
        if archive.renamed().count > 0 {
            say_renamed(archive.renamed().count, &archive.renamed().first);
        }
        let title = match paths {
            [one] => network::shown_path(one),
            several => format!("{} files and folders", several.len()),
        };
        let (names, files, bytes) = (archive.names().to_vec(), archive.files(), archive.bytes());
        Ok(Parcel { content: Content::Archive(archive), title, named: paths.len(), names, files, bytes })
    }

    /// That it was not sent.
    pub fn not_sent(&self) -> String {
        let were = if self.named > 1 { "were" } else { "was" };
        format!("{} {were} not sent", self.title)
    }

    /// How it travels.
    pub fn packing(&self) -> Packing {
        match self.content {
            Content::Plain { .. } | Content::Input { .. } => Packing::Plain,
            Content::Archive(_) => Packing::Tar,
        }
    }

    /// Bytes that travel.
    pub fn travelling(&self) -> u64 {
        match &self.content {
            Content::Plain { .. } | Content::Input { .. } => self.bytes,
            Content::Archive(archive) => archive.length(),
        }
    }

    /// The offer of it in blocks of `block` bytes, and what reads it; while it is hashed, a terminal
    /// shows how far that is, and Ctrl-C is heard.
    pub fn offer(&self, block: u16, interrupt: &Interrupt) -> Result<(Offer, ParcelSource), Failure> {
        match &self.content {
            Content::Input { file, name } => {
                let failed = |error| Failure::new(format!("cannot read standard input: {error}"));
                let file = file.try_clone().map_err(failed)?;
                let (offer, source) = network::offer_of(file, name, &self.title, block, interrupt)?;
                Ok((offer, ParcelSource::Plain(source)))
            }
            Content::Plain { path, name } => {
                let (mut offer, source) = network::offer(path, block, interrupt)?;
                if let Some(name) = name {
                    offer.name = FileName::of_own(name);
                }
                Ok((offer, ParcelSource::Plain(source)))
            }
            Content::Archive(archive) => {
                let name = match archive.names() {
                    [one] => format!("{one}.tar"),
                    _ => "files.tar".to_owned(),
                };
                let bar = transfer_bar::hashing(archive.length());
                let offered = archive.offer(&name, block, |hashed| {
                    bar.set_position(hashed);
                    interrupt.is_raised()
                });
                bar.finish_and_clear();
                let offer = offered.map_err(|error| match error.kind() {
                    ErrorKind::Interrupted => Failure::interrupted(self.not_sent()),
                    _ => Failure::new(format!("cannot read {error}")),
                })?;
                Ok((offer.0, ParcelSource::Archive(offer.1)))
            }
        }
    }
}

/// Says that `count` names are not safe everywhere, and what the `first` of them become.
fn say_renamed(count: u64, first: &[(String, String)]) {
    let each: Vec<String> = first.iter().map(|(here, there)| format!("{} as {there}", printable(here))).collect();
    let (names, more) = (if count == 1 { "name" } else { "names" }, count - first.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    eprint_line!("anabranch: {count} {names} not safe in every folder: sending {}{more}", each.join(", "));
}

/// Reads what is sent.
#[derive(Clone, Debug)]
pub enum ParcelSource {
    Plain(DiskSource),
    Archive(ArchiveSource),
}

impl Source for ParcelSource {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            ParcelSource::Plain(source) => source.read(offset, bytes),
            ParcelSource::Archive(source) => source.read(offset, bytes),
        }
    }
}

impl Work<FileJob, FileDone> for ParcelSource {
    fn work(&mut self, number: usize, job: FileJob) -> FileDone {
        match self {
            ParcelSource::Plain(source) => source.work(number, job),
            ParcelSource::Archive(source) => source.work(number, job),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[cfg(unix)]
    #[test]
    fn the_users_own_names_move_no_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (odd, shown) = ("a\x1b[2J\n", r"a\u{1b}[2J\n");
        let error = Parcel::of_file(&path(odd), None).unwrap_err();
        assert!(error.words().contains(shown), "{}", error.words());
        fs::write(path(odd), "x").unwrap();
        assert!(Parcel::of_file(&path(odd), None).unwrap().title.ends_with(shown));
        fs::create_dir(path("b\x1b")).unwrap();
        let parcel = Parcel::of_several(&[path("b\x1b")]).unwrap();
        assert!(parcel.not_sent().ends_with(r"b\u{1b} was not sent"), "{}", parcel.not_sent());
    }
}

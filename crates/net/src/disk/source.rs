//! The file that is sent.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anabranch_proto::overlay::message::{FileName, Offer};
use anabranch_proto::transfer::{FileDone, FileJob, Source};

use crate::loopback::NoFiles;
use crate::pool::Work;

/// Bytes that are hashed before it is asked again whether they are wanted: some hundredths of a
/// second, of a slow disk a few tenths.
const HASHED_AT_ONCE: u64 = 16 << 20;

/// A file that is sent: what does a sender's jobs in a pool of threads. Clones read the same one.
#[derive(Clone, Debug)]
pub struct DiskSource(Arc<File>);

impl Source for DiskSource {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
            kind @ io::ErrorKind::UnexpectedEof => io::Error::new(
                kind,
                "the file has become shorter while it was sent; once it stays as it is, send it again",
            ),
            _ => error,
        })
    }
}

/// Reads the file at `path` once for its hash; the offer of it in blocks of `block`
/// bytes, and the file itself. A long file takes its time: `is_given_up` is asked again and again, and told
/// how many bytes are hashed.
///
/// # Errors
///
/// If the file can't be read or is no plain file; [`io::ErrorKind::Interrupted`] once it is given up.
pub fn offer(path: &Path, block: u16, is_given_up: impl FnMut(u64) -> bool) -> io::Result<(Offer, DiskSource)> {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    offer_of(File::open(path)?, &name, block, is_given_up)
}

/// The same of a file that is open, from its beginning on, and need have no name on the disk; it is offered as `name`.
///
/// # Errors
///
/// As [`offer`].
pub fn offer_of(
    mut file: File,
    name: &str,
    block: u16,
    mut is_given_up: impl FnMut(u64) -> bool,
) -> io::Result<(Offer, DiskSource)> {
    file.rewind()?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
    }
    let (mut hasher, mut length) = (blake3::Hasher::new(), 0);
    while hasher.update_reader((&mut file as &mut dyn Read).take(HASHED_AT_ONCE))?.count() > length {
        length = hasher.count();
        if is_given_up(length) {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    let offer = Offer { name: FileName::of_own(name), length, block, hash: *hasher.finalize().as_bytes() };
    Ok((offer, DiskSource(Arc::new(file))))
}

impl Work<FileJob, FileDone> for DiskSource {
    fn work(&mut self, _: usize, job: FileJob) -> FileDone {
        job.work(&mut NoFiles, self)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_hashed_to_its_end_unless_it_is_given_up_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for length in [0, 1, HASHED_AT_ONCE, HASHED_AT_ONCE + 1] {
            let bytes = vec![7; length as usize];
            fs::write(&path, &bytes).unwrap();
            let mut progress = Vec::new();
            let (offer, _) = offer(&path, 1000, |hashed| {
                progress.push(hashed);
                false
            })
            .unwrap();
            assert!(progress.is_sorted() && progress.last().copied().unwrap_or(0) == length, "{progress:?}");
            assert_eq!((offer.length, offer.hash), (length, *blake3::hash(&bytes).as_bytes()));
        }
        assert_eq!(offer(&path, 1000, |_| true).unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}

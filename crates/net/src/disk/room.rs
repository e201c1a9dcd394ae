//! Whether there is room for a file: in its folder's share, and on the disk, for an archive with what is in it.

use std::path::Path;
use std::{fs, io};

use anabranch_proto::transfer::StoreError;

use super::kept::{Kept, allocated};
use super::{Arriving, DiskStore, failed, kept};

impl DiskStore {
    /// Refuses a file of `length` bytes at `path` for which there is no room beside those of
    /// `arriving`. Parts of files that nobody sends make room for it, and stay where all of them would not.
    pub(super) fn find_room(&self, arriving: &Arriving, path: &Path, length: u64) -> Result<(), StoreError> {
        if self.check_room(arriving, path, length, &[]).is_ok() {
            return Ok(());
        }
        let mut idle = kept::tidy(&self.folder).map_err(|error| failed("find room for", &error))?;
        self.check_room(arriving, path, length, &idle)?;
        while self.check_room(arriving, path, length, &[]).is_err() && !idle.is_empty() {
            kept::drop_one(&mut idle);
        }
        self.check_room(arriving, path, length, &[])
    }

    /// Whether there is room once the parts in `gone` are.
    fn check_room(&self, arriving: &Arriving, path: &Path, length: u64, gone: &[Kept]) -> Result<(), StoreError> {
        let expected = arriving.0.values().fold(length, |all, coming| all.saturating_add(coming.length));
        if self.max_total < u64::MAX {
            let is_left_out = |other: &Path| {
                // A journal goes with its file, and when that has come.
                let is_journal = other.extension().is_some_and(|end| end == "journal");
                let part = if is_journal { &other.with_extension("part") } else { other };
                part == path || arriving.has(part) || gone.iter().any(|kept| kept.path() == part)
            };
            let kept = kept_in(&self.folder, is_left_out).map_err(|error| failed("find room for", &error))?;
            if kept.saturating_add(expected) > self.max_total {
                return Err(StoreError(format!("the folder is full: at most {} bytes are kept", self.max_total)));
            }
        }
        // What has been written of them is not free any more.
        let written = |path: &Path, length: u64| allocated(path).min(length);
        let others: u64 = arriving.0.values().map(|coming| written(&coming.path, coming.length)).sum();
        let written = others.saturating_add(written(path, length));
        let freed: u64 = gone.iter().map(|kept| kept.allocated()).sum();
        let left = expected.saturating_sub(written);
        match (free_in(&self.folder).map(|free| free.saturating_add(freed)), &self.unpacking) {
            (Some(free), Some(unpacking)) if left.saturating_add(unpacking.announced.bytes) > free => {
                let unpacked = unpacking.announced.bytes;
                Err(StoreError(format!(
                    "no space left for it: {left} bytes are to come and {unpacked} to be unpacked, {free} are free"
                )))
            }
            (Some(free), _) if left > free => Err(StoreError("no space left for it".into())),
            _ => Ok(()),
        }
    }
}

/// The bytes of all files in `folder`, but for those that are left out.
fn kept_in(folder: &Path, is_left_out: impl Fn(&Path) -> bool) -> io::Result<u64> {
    let mut kept = 0u64;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) if metadata.is_file() && !is_left_out(&entry.path()) => {
                kept = kept.saturating_add(metadata.len());
            }
            Ok(_) => {}
            // It has gone meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(kept)
}

/// Bytes that a user may still write to the disk of `folder`, where the system says so.
#[cfg(unix)]
pub(super) fn free_in(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
pub(super) fn free_in(_: &Path) -> Option<u64> {
    None
}

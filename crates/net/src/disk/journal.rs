//! What of a file is on the disk, in a small file beside it: a sender that is started again, or a
//! receiver, goes on from there.
//!
//! ```text
//! magic            "anabranch journal 1\n"
//! name             16     what the file is known by
//! owner            1 + 32 who may go on with it: 0 anybody, 1 the holder of this key, 2 whom a code brings
//! length           8      of the whole file
//! ranges           4      how many, at most 4096
//! range            8 + 8  from where to where, in order and with gaps between; as many as there are
//! checksum         32     BLAKE3 of all before
//! ```
//!
//! It is written under another name, and renamed when it is on the disk with all that it tells of; so
//! there is the old one or the new one, whenever the machine stops. One that is damaged, or tells of
//! more than there is, is none: everything comes again. A journal that tells less than there is costs
//! blocks that come twice. Whether the file is right, the hash of all of it says in the end.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;

use anabranch_proto::transfer::{Extents, Owner, Partial, PartialId};

const MAGIC: &[u8] = b"anabranch journal 1\n";

/// Ranges that a journal tells of, the longest ones: it is no longer than 64 KiB and a little.
pub const MAX_RANGES: usize = 4096;

const RANGE: usize = 8 + 8;
const CHECKSUM: usize = 32;
const FIXED: usize = MAGIC.len() + 16 + 1 + 32 + 8 + 4 + CHECKSUM;
const MAX_LENGTH: usize = FIXED + MAX_RANGES * RANGE;

/// What is kept of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Which, and whose.
    pub partial: Partial,
    /// Bytes of the whole file.
    pub length: u64,
    /// What of it is there.
    pub extents: Extents,
}

impl Journal {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let Partial { id, owner } = self.partial;
        bytes.extend_from_slice(&id.0);
        let (kind, key) = owner.encode();
        bytes.push(kind);
        bytes.extend_from_slice(&key);
        bytes.extend_from_slice(&self.length.to_be_bytes());
        let extents = self.extents.longest(MAX_RANGES);
        bytes.extend_from_slice(&(extents.len() as u32).to_be_bytes());
        for range in extents.iter() {
            bytes.extend_from_slice(&range.start.to_be_bytes());
            bytes.extend_from_slice(&range.end.to_be_bytes());
        }
        let checksum = blake3::hash(&bytes);
        bytes.extend_from_slice(checksum.as_bytes());
        bytes
    }

    /// Reads a journal; none if it is damaged, of another version, or makes no sense.
    pub fn decode(bytes: &[u8]) -> Option<Journal> {
        let (contents, checksum) = bytes.split_last_chunk::<CHECKSUM>()?;
        if blake3::hash(contents) != blake3::Hash::from_bytes(*checksum) {
            return None;
        }
        let rest = contents.strip_prefix(MAGIC)?;
        let (id, rest) = rest.split_first_chunk::<16>()?;
        let ([kind], rest) = rest.split_first_chunk::<1>()?;
        let (key, rest) = rest.split_first_chunk::<32>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (count, ranges) = rest.split_first_chunk::<4>()?;
        let (length, count) = (u64::from_be_bytes(*length), u32::from_be_bytes(*count) as usize);
        if count > MAX_RANGES || ranges.len() != count * RANGE {
            return None;
        }
        let (mut extents, mut last) = (Extents::default(), None);
        for range in ranges.as_chunks::<RANGE>().0 {
            let (start, end) = range.split_first_chunk::<8>()?;
            let Range { start, end } = u64::from_be_bytes(*start)..u64::from_be_bytes(end.try_into().ok()?);
            if start >= end || end > length || last.is_some_and(|last| start <= last) {
                return None;
            }
            last = Some(end);
            extents.insert(start..end);
        }
        let owner = Owner::decode(*kind, *key)?;
        Some(Journal { partial: Partial { id: PartialId(*id), owner }, length, extents })
    }

    /// Reads that at `path`, of a file that has `written` bytes now; none if there is none that holds.
    pub fn read(path: &Path, written: u64) -> Option<Journal> {
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(MAX_LENGTH as u64 + 1).read_to_end(&mut bytes).ok()?;
        let journal = Journal::decode(&bytes)?;
        let is_there = journal.extents.iter().all(|range| range.end <= written);
        is_there.then_some(journal)
    }

    /// Writes it at `path`, in place of the one that is there.
    ///
    /// # Errors
    ///
    /// As the disk says; the old one is still there.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("journal.new");
        let mut file = File::create(&new)?;
        let written = file.write_all(&self.encode()).and_then(|()| file.sync_all());
        written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })
    }
}

#[cfg(test)]
mod tests {
    use anabranch_proto::seal::PublicKey;
    use proptest::prelude::*;

    use super::*;

    fn journal(ranges: &[(u64, u64)]) -> Journal {
        let partial = Partial { id: PartialId([7; 16]), owner: Owner::Key(PublicKey([9; 32])) };
        Journal { partial, length: 5000, extents: ranges.iter().map(|&(start, end)| start..end).collect() }
    }

    #[test]
    fn a_journal_is_read_as_it_was_written_and_takes_the_place_of_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.journal");
        let of = |owner| Journal { partial: Partial { owner, ..journal(&[]).partial }, ..journal(&[(0, 1)]) };
        for journal in [journal(&[]), journal(&[(0, 10), (20, 5000)]), of(Owner::Anybody), of(Owner::Code)] {
            journal.write(&path).unwrap();
            assert_eq!(Journal::read(&path, 5000), Some(journal));
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn one_that_lists_more_than_there_is_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.journal");
        journal(&[(0, 10), (20, 30)]).write(&path).unwrap();
        assert!(Journal::read(&path, 30).is_some());
        assert_eq!(Journal::read(&path, 29), None);
        assert_eq!(Journal::read(&folder.path().join("none"), 30), None);
    }

    /// Whoever can write a right checksum still tells no nonsense.
    #[test]
    fn ranges_that_make_no_sense_are_no_journal() {
        let with = |ranges: &[(u64, u64)], count: u32| {
            let mut bytes = journal(&[]).encode();
            bytes.truncate(bytes.len() - CHECKSUM - 4);
            bytes.extend_from_slice(&count.to_be_bytes());
            for (start, end) in ranges {
                bytes.extend_from_slice(&[start.to_be_bytes(), end.to_be_bytes()].concat());
            }
            bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
            Journal::decode(&bytes)
        };
        assert!(with(&[(0, 5), (6, 7)], 2).is_some());
        for ranges in [&[(5, 5)][..], &[(6, 5)], &[(0, 5001)], &[(0, 5), (5, 6)], &[(6, 7), (0, 5)], &[(0, u64::MAX)]] {
            assert_eq!(with(ranges, ranges.len() as u32), None, "{ranges:?}");
        }
        assert_eq!((with(&[(0, 5)], 2), with(&[(0, 5)], 0), with(&[], u32::MAX)), (None, None, None));
    }

    #[test]
    fn a_scattered_file_keeps_its_longest_ranges() {
        let ranges = (0..3 * MAX_RANGES as u64).map(|place| 10 * place..10 * place + 1 + u64::from(place % 3 == 0));
        let scattered = Journal { length: u64::MAX, extents: ranges.collect(), ..journal(&[]) };
        let bytes = scattered.encode();
        assert!(bytes.len() <= MAX_LENGTH);
        let read = Journal::decode(&bytes).unwrap();
        assert_eq!(read.extents, scattered.extents.longest(MAX_RANGES));
        assert_eq!(read.extents.bytes(), 2 * MAX_RANGES as u64);
    }

    proptest! {
        #[test]
        fn a_torn_or_damaged_journal_is_none(
            cut in 0usize..150,
            place in 0usize..150,
            flip in 1u8..,
        ) {
            let bytes = journal(&[(0, 10), (20, 5000)]).encode();
            prop_assert_eq!(Journal::decode(&bytes[..cut.min(bytes.len() - 1)]), None);
            let mut damaged = bytes.clone();
            damaged[place.min(bytes.len() - 1)] ^= flip;
            prop_assert_eq!(Journal::decode(&damaged), None);
        }

        #[test]
        fn arbitrary_bytes_are_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Journal::decode(&bytes), None);
        }
    }
}

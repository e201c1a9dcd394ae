//! What a receiver has of a file, and what its journal tells of that: whoever kills it counts on no more.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A journal before its ranges and behind them, as docs of `anabranch_net` have it: what it begins with, a name, an
/// owner, a length, and how many ranges; a checksum.
const BEFORE: usize = 20 + 16 + 33 + 8 + 4;
const CHECKSUM: usize = 32;

/// No block is longer.
const BLOCK: u64 = 1400;

/// At this rate 4 MB take 26 s: a journal is on the disk before, even one that is busy for ten.
pub const SLOWLY: &str = "150 kB/s";

/// What has come of a file.
#[derive(Clone, Copy, Debug)]
pub struct Had {
    /// The length of the part.
    pub written: u64,
    /// Bytes of it that the journal on the disk lists, but for a block at either end of each range: who goes on with
    /// blocks of another size, as where a busy machine lost the first packets of 1400 bytes, sends those again. The next
    /// journal tells of more; until when that is written, no test can say: a busy disk takes seconds.
    pub journaled: u64,
}

impl Had {
    /// Waits until a journal in `folder` tells of `least` bytes of the part there that has most.
    pub fn wait(folder: &Path, least: u64) -> Had {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let written = with_extension(folder, "part").filter_map(|part| Some(part.metadata().ok()?.len())).max();
            let journaled = with_extension(folder, "journal").filter_map(|journal| journaled(&journal)).max();
            if let (Some(written), Some(journaled @ 1..)) = (written, journaled)
                && journaled >= least
            {
                return Had { written, journaled };
            }
            if Instant::now() >= deadline {
                let there: Vec<_> =
                    fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.file_name()).collect();
                panic!("written {written:?}, journaled {journaled:?}, there {there:?}");
            }
            sleep(Duration::from_millis(20));
        }
    }
}

fn with_extension(folder: &Path, extension: &str) -> impl Iterator<Item = PathBuf> {
    let paths = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(move |path| path.extension().is_some_and(|is| is == extension))
}

/// Bytes that the journal at `path` lists, but for the ends of ranges; none if it has gone meanwhile.
fn journaled(path: &Path) -> Option<u64> {
    let bytes = fs::read(path).ok()?;
    let ranges = &bytes[BEFORE..bytes.len() - CHECKSUM];
    let numbers = ranges.as_chunks::<8>().0.iter().map(|number| u64::from_be_bytes(*number));
    let numbers: Vec<u64> = numbers.collect();
    Some(numbers.as_chunks::<2>().0.iter().map(|[from, to]| (to - from).saturating_sub(2 * BLOCK)).sum())
}

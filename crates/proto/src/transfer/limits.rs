//! What strangers can't make a receiver hold or do.

use anabranch_control::time::Duration;

use crate::message::Offer;

/// What strangers can't exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files that are received at once.
    pub files: usize,
    /// Sessions without a file on its way that are remembered: greeted, refused, complete.
    pub greetings: usize,
    /// Handshakes that are answered in a second; each costs about 0.1 ms of computing.
    pub greetings_per_second: u32,
    /// The longest file in bytes.
    pub file_bytes: u64,
    /// The most blocks of a file: an eighth of it is the memory in bytes for each file.
    pub blocks: u64,
    /// The most memory in bytes that one file's blocks take until they are written; more are not
    /// acknowledged. Room for a block at least.
    pub file_writes: usize,
    /// The same of all files together.
    pub writes: usize,
    /// A session that is not heard of for so long is over.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            files: 16,
            greetings: 64,
            greetings_per_second: 200,
            file_bytes: 16 << 30,
            blocks: 1 << 25,
            // What 1 Gbit/s brings while a disk stands still for 32 ms.
            file_writes: 4 << 20,
            writes: 16 << 20,
            idle: Duration::from_millis(60_000),
        }
    }
}

impl Limits {
    /// Why a file is not taken, if it is too long.
    pub fn refusal(&self, offer: &Offer) -> Option<String> {
        let is_long = offer.length > self.file_bytes;
        is_long.then(|| format!("the file has {} bytes; {} are taken", offer.length, self.file_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::FileName;

    #[test]
    fn a_file_that_is_too_long_is_refused_with_the_longest_that_is_taken() {
        let limits = Limits { file_bytes: 4, ..Limits::default() };
        let offer = |length| Offer { name: FileName::sanitised("a"), length, block: 2, hash: [0; 32] };
        assert_eq!(limits.refusal(&offer(4)), None);
        assert_eq!(limits.refusal(&offer(5)).unwrap(), "the file has 5 bytes; 4 are taken");
    }
}

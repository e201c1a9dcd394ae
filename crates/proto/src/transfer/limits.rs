//! What strangers can't make a receiver hold or do.

use anabranch_control::time::Duration;

use crate::overlay::message::Offer;

/// Files that are received at once.
pub const FILES: usize = 16;

/// Of them, of one source's address: a quarter.
pub const FILES_OF_ONE: usize = FILES / 4;

/// Files that wait for one of these places.
pub const WAITING: usize = 64;

/// Files that have come, and whose senders have not taken leave yet.
pub const COMPLETE: usize = 64;

/// Sessions without a file: greeted, refused, failed.
pub const GREETINGS: usize = 64;

/// Sessions of any kind of one source's address: a quarter of those without a file.
pub const SESSIONS_OF_ONE: usize = GREETINGS / 4;

/// Sessions of who has not proved to be heard at its address: while there are fewer, a hello is answered without a
/// cookie, which saves its sender a round trip. As many as one source's address may send files at once: senders
/// that come at once are few, and what a flood of spoofed hellos gets beyond is a cookie.
pub const HALF_OPEN: usize = FILES_OF_ONE;

/// Handshakes that are answered in a second; each costs about 0.1 ms of computing, together 2 % of
/// a processor.
pub const GREETINGS_PER_SECOND: u32 = 200;

/// Of them, of one source's address: a tenth. A file takes one.
pub const GREETINGS_PER_SECOND_OF_ONE: u32 = GREETINGS_PER_SECOND / 10;

/// Handshakes that are answered in a second of who has not proved to be heard at its address, one that is none included:
/// a tenth of those of others, which a flood of made-up ones takes nothing from.
pub const UNPROVED_GREETINGS_PER_SECOND: u32 = GREETINGS_PER_SECOND / 10;

/// A session that is not heard of for so long is over: twice as long as a sender hears nothing
/// before it gives up.
pub const IDLE: Duration = Duration::from_millis(60_000);

/// A file of which nothing new has come for so long is given up, whatever else its sender says: time
/// for a slow disk, or a bad path, between two blocks of a sender that is heard of.
pub const STALLED: Duration = Duration::from_millis(120_000);

/// What strangers can't exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files that are received at once.
    pub files: usize,
    /// Of them, of one source's address.
    pub files_of_one: usize,
    /// Files that wait until one of these has come; more are refused.
    pub waiting: usize,
    /// Files that have come and whose senders have not taken leave yet; while there are this many of
    /// them and of those that are received, others wait.
    pub complete: usize,
    /// Sessions without a file that are remembered: greeted, refused, failed.
    pub greetings: usize,
    /// Sessions of any kind of one source's address.
    pub sessions_of_one: usize,
    /// Sessions of who has not proved to be heard at its address; none if a cookie is asked for always.
    pub half_open: usize,
    /// Handshakes that are answered in a second, of those who have proved to be heard at their addresses.
    pub greetings_per_second: u32,
    /// Of them, of one source's address.
    pub greetings_per_second_of_one: u32,
    /// Handshakes that are answered in a second without that proof, besides; the others are given a cookie.
    pub unproved_greetings_per_second: u32,
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
    /// A file of which nothing new has come for so long, though there was room for it, is given up.
    pub stalled: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            files: FILES,
            files_of_one: FILES_OF_ONE,
            waiting: WAITING,
            complete: COMPLETE,
            greetings: GREETINGS,
            sessions_of_one: SESSIONS_OF_ONE,
            half_open: HALF_OPEN,
            greetings_per_second: GREETINGS_PER_SECOND,
            greetings_per_second_of_one: GREETINGS_PER_SECOND_OF_ONE,
            unproved_greetings_per_second: UNPROVED_GREETINGS_PER_SECOND,
            file_bytes: 16 << 30,
            blocks: 1 << 25,
            // What 1 Gbit/s brings while a disk stands still for 32 ms.
            file_writes: 4 << 20,
            writes: 16 << 20,
            idle: IDLE,
            stalled: STALLED,
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
    use crate::overlay::message::FileName;

    #[test]
    fn a_file_that_is_too_long_is_refused_with_the_longest_that_is_taken() {
        let limits = Limits { file_bytes: 4, ..Limits::default() };
        let offer = |length| Offer { name: FileName::sanitised("a"), length, block: 2, hash: [0; 32] };
        assert_eq!(limits.refusal(&offer(4)), None);
        assert_eq!(limits.refusal(&offer(5)).unwrap(), "the file has 5 bytes; 4 are taken");
    }
}

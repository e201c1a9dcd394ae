//! What sender and receiver say to each other inside the seal.
//!
//! ```text
//! to the receiver:  proof 8, tag 1, then
//!   1 offer         length 8, block size 2, BLAKE3 hash 32, name: the rest, UTF-8
//!   2 block         index 4, bytes: the rest
//!   3 finish        -
//!   4 close         -
//!   5 filler        anything: load without a file
//! to the sender:    proof 8, code 1, text: the rest, UTF-8
//! ```

use std::fmt;

use crate::overlay::wire::DecodeError;
use crate::printable::is_printable;

/// Bytes of a block's message before the block.
pub const BLOCK_PREFIX: usize = 8 + 1 + 4;

/// Bytes of a filler's message before the filling.
pub const FILLER_PREFIX: usize = 8 + 1;

/// The longest file name in bytes, as most file systems have it, with room for a suffix.
pub const MAX_NAME: usize = 200;

/// The longest name of a file or folder within a folder in bytes, which needs no suffix.
const MAX_PART: usize = 255;

/// The longest extension in bytes, with its dot, that a name keeps which is cut.
const MAX_EXTENSION: usize = 16;

/// The longest text of a report in bytes.
pub const MAX_TEXT: usize = 240;

/// The longest text in bytes that tells which blocks a receiver has from before: with a tag and the
/// header of an answer over 8 IPv6 relays it fits 1200 bytes, which every path of IPv6 carries.
pub const MAX_BLOCK_RANGES: usize = 880;

/// A file name that is safe in any folder and on any terminal: no path, nothing hidden, nothing that
/// is not [printable](crate::printable), no reserved characters, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName(String);

impl FileName {
    /// The nearest safe name to what somebody else calls a file: of a path its last part, on any system.
    pub fn sanitised(name: &str) -> FileName {
        FileName::of_own(name.rsplit(['/', '\\']).next().unwrap_or(""))
    }

    /// The nearest safe name to what a file of this machine is called, where a backslash is a character like others.
    pub fn of_own(name: &str) -> FileName {
        let mut safe = safe_name(name, MAX_NAME);
        if safe.starts_with('.') {
            safe.insert(0, '_');
        }
        cut(&mut safe, MAX_NAME);
        FileName(safe)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The nearest safe name to what a file or folder within a folder is called: the same as outside, but for a dot at
/// its beginning, which there hides nothing of what is sent, and for its length.
pub fn safe_part(name: &str) -> String {
    safe_name(name, MAX_PART)
}

/// The nearest safe name, which is cut if it has more than `longest` bytes.
fn safe_name(name: &str, longest: usize) -> String {
    let allowed = |c: char| if !is_printable(c) || "/\\<>:\"|?*".contains(c) { '_' } else { c };
    let mut safe: String = name.trim_start().chars().map(allowed).collect();
    trim(&mut safe);
    if safe.len() > longest {
        cut(&mut safe, MAX_NAME);
    }
    let stem = safe.split('.').next().unwrap_or("").trim_end().to_ascii_uppercase();
    let numbered = stem.strip_prefix("COM").or(stem.strip_prefix("LPT")).is_some_and(|number| number.len() == 1);
    if safe.is_empty() {
        safe.push_str("file");
    } else if numbered || ["CON", "PRN", "AUX", "NUL"].contains(&stem.as_str()) {
        safe.insert(0, '_');
    }
    safe
}

/// Windows drops dots and spaces at the end, and keeps names for devices.
fn trim(name: &mut String) {
    name.truncate(name.trim_end_matches(['.', ' ']).len());
}

/// At most `most` bytes of `name`, in whole characters: a short extension stays, for it says with what a file is opened.
fn cut(name: &mut String, most: usize) {
    if name.len() <= most {
        return;
    }
    let dot = name.rfind('.').filter(|&dot| dot > 0 && name.len() - dot <= MAX_EXTENSION);
    let extension = dot.map_or_else(String::new, |dot| name.split_off(dot));
    let mut end = name.len().min(most - extension.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    trim(name);
    name.push_str(&extension);
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A file that a sender wants to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What it is called.
    pub name: FileName,
    /// Its length in bytes.
    pub length: u64,
    /// Bytes of each block; the last one may be shorter.
    pub block: u16,
    /// BLAKE3 hash of the whole file.
    pub hash: [u8; 32],
}

impl Offer {
    /// How many blocks it has.
    pub fn blocks(&self) -> u64 {
        self.length.div_ceil(u64::from(self.block.max(1)))
    }

    /// Where block `index` begins in the file, and its length in bytes; none beyond the end.
    pub fn span(&self, index: u32) -> Option<(u64, usize)> {
        let start = u64::from(index) * u64::from(self.block);
        let left = self.length.checked_sub(start).filter(|&left| left > 0)?;
        Some((start, left.min(u64::from(self.block)) as usize))
    }
}

/// What a sender says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A file to come.
    Offer(Offer),
    /// A part of the file.
    Block {
        /// Which part.
        index: u32,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// All has been sent: is it whole?
    Finish,
    /// The session is over, whatever its state.
    Close,
    /// Load without a file.
    Filler,
}

impl<'a> Message<'a> {
    /// Replaces what is in `out` by the bytes of `proof` and this message.
    pub fn encode(&self, proof: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&proof.to_be_bytes());
        match self {
            Message::Offer(offer) => {
                out.push(1);
                out.extend_from_slice(&offer.length.to_be_bytes());
                out.extend_from_slice(&offer.block.to_be_bytes());
                out.extend_from_slice(&offer.hash);
                out.extend_from_slice(offer.name.0.as_bytes());
            }
            Message::Block { index, bytes } => {
                out.push(2);
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(bytes);
            }
            Message::Finish => out.push(3),
            Message::Close => out.push(4),
            Message::Filler => out.push(5),
        }
    }

    /// Reads a proof and a message.
    pub fn decode(bytes: &'a [u8]) -> Result<(u64, Message<'a>), DecodeError> {
        let (proof, rest) = split::<8>(bytes)?;
        let ([tag], rest) = split::<1>(rest)?;
        let message = match tag {
            1 => {
                let (length, rest) = split::<8>(rest)?;
                let (block, rest) = split::<2>(rest)?;
                let (hash, name) = split::<32>(rest)?;
                let name = str::from_utf8(name).map_err(|_| DecodeError::Malformed("a name that is not UTF-8"))?;
                Message::Offer(Offer {
                    name: FileName::sanitised(name),
                    length: u64::from_be_bytes(length),
                    block: u16::from_be_bytes(block),
                    hash,
                })
            }
            2 => {
                let (index, bytes) = split::<4>(rest)?;
                Message::Block { index: u32::from_be_bytes(index), bytes }
            }
            3 => Message::Finish,
            4 => Message::Close,
            5 => Message::Filler,
            _ => return Err(DecodeError::Malformed("unknown message")),
        };
        Ok((u64::from_be_bytes(proof), message))
    }
}

/// What a receiver says about a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The offer is accepted; blocks may come. The text says which of them are there from before
    /// ([`transfer`](crate::transfer)).
    Accepted = 1,
    /// The offer is refused; the text says why.
    Refused = 2,
    /// The file is being checked.
    Checking = 3,
    /// The file is in its place; the text is its name there.
    Complete = 4,
    /// The file could not be kept; the text says why.
    Failed = 5,
    /// Blocks are missing; in answer to an offer, the text is that of [`Code::Accepted`].
    Incomplete = 6,
    /// There is no place for the file yet; the text is its place in the queue, from 1 on. Without a
    /// text, what is kept of it is being looked up.
    Waiting = 7,
}

/// A receiver's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// What was sealed in the message that this answers.
    pub proof: u64,
    /// What it says.
    pub code: Code,
    /// More about it, for people.
    pub text: &'a str,
}

impl<'a> Report<'a> {
    /// Replaces what is in `out` by the bytes of this report; a long text is cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let most = if let Code::Accepted | Code::Incomplete = self.code { MAX_BLOCK_RANGES } else { MAX_TEXT };
        let mut end = self.text.len().min(most);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        out.clear();
        out.extend_from_slice(&self.proof.to_be_bytes());
        out.push(self.code as u8);
        out.extend_from_slice(&self.text.as_bytes()[..end]);
    }

    /// Reads a report.
    pub fn decode(bytes: &'a [u8]) -> Result<Report<'a>, DecodeError> {
        let (proof, rest) = split::<8>(bytes)?;
        let ([code], text) = split::<1>(rest)?;
        let code = match code {
            1 => Code::Accepted,
            2 => Code::Refused,
            3 => Code::Checking,
            4 => Code::Complete,
            5 => Code::Failed,
            6 => Code::Incomplete,
            7 => Code::Waiting,
            _ => return Err(DecodeError::Malformed("unknown report")),
        };
        let text = str::from_utf8(text).map_err(|_| DecodeError::Malformed("a text that is not UTF-8"))?;
        Ok(Report { proof: u64::from_be_bytes(proof), code, text })
    }
}

fn split<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), DecodeError> {
    bytes.split_first_chunk().map(|(head, rest)| (*head, rest)).ok_or(DecodeError::Truncated)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_are_read_as_they_were_written(
            (proof, length, block, hash, index) in any::<(u64, u64, u16, [u8; 32], u32)>(),
            name in ".{0,80}",
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let offer = Offer { name: FileName::sanitised(&name), length, block, hash };
            let block = Message::Block { index, bytes: &bytes };
            for message in [Message::Offer(offer), block, Message::Finish, Message::Close, Message::Filler] {
                let mut out = Vec::new();
                message.encode(proof, &mut out);
                prop_assert_eq!(Message::decode(&out), Ok((proof, message)));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok((_, Message::Offer(offer))) = Message::decode(&bytes) {
                offer.span(0);
                offer.span(u32::MAX);
                offer.blocks();
            }
            let _ = Report::decode(&bytes);
        }

        #[test]
        fn a_sanitised_name_is_one_harmless_component(name in any::<String>()) {
            let safe = FileName::sanitised(&name);
            let text = safe.as_str();
            prop_assert!(!text.is_empty() && text.len() <= MAX_NAME && !text.starts_with('.'));
            prop_assert!(!text.contains(['/', '\\', '\0', ':']));
            prop_assert_eq!(FileName::sanitised(text), safe.clone());
        }
    }

    #[test]
    fn names_that_would_leave_the_folder_or_hide_do_not() {
        for (name, safe) in [
            ("../../etc/passwd", "passwd"),
            ("C:\\Windows\\win.ini", "win.ini"),
            (".bashrc", "_.bashrc"),
            ("..", "file"),
            ("", "file"),
            ("a\nb\u{1b}[2J", "a_b_[2J"),
            ("invoice\u{202e}gpj.exe", "invoice_gpj.exe"),
            ("con.txt", "_con.txt"),
            ("con .txt", "_con .txt"),
            ("report (1).pdf", "report (1).pdf"),
        ] {
            assert_eq!(FileName::sanitised(name).as_str(), safe);
        }
    }

    #[test]
    fn within_a_folder_only_a_dot_at_the_beginning_is_another_rule() {
        for (name, outside, within) in [
            (".git", "_.git", ".git"),
            ("a\\b", "a_b", "a_b"),
            ("new\nline", "new_line", "new_line"),
            ("invoice\u{202e}gpj.exe", "invoice_gpj.exe", "invoice_gpj.exe"),
            ("12:30?", "12_30_", "12_30_"),
            ("nul", "_nul", "_nul"),
            ("..", "file", "file"),
            ("Dr.", "Dr", "Dr"),
        ] {
            assert_eq!((FileName::of_own(name).as_str(), &*safe_part(name)), (outside, within));
            assert_eq!(safe_part(within), within);
        }
        assert_eq!(safe_part(&"a".repeat(255)).len(), 255);
        assert_eq!(safe_part(&"é".repeat(128)).len(), MAX_NAME);
    }

    /// A fuzzer found that a long hidden name grew by a character each time, and that
    /// one behind many spaces came out empty.
    #[test]
    fn a_long_name_is_cut_once_and_for_all() {
        assert_eq!(FileName::sanitised(&format!("{}a", " ".repeat(300))).as_str(), "a");
        let safe = FileName::sanitised(&format!(".{}", "a".repeat(300)));
        assert_eq!(safe.as_str().len(), MAX_NAME);
        assert_eq!(FileName::sanitised(safe.as_str()), safe);
    }

    #[test]
    fn a_long_name_keeps_its_extension_and_its_characters_whole() {
        let l = |count| "L".repeat(count);
        for (name, safe) in [
            (format!("{}.pdf", l(240)), format!("{}.pdf", l(196))),
            (format!("{}.tar.gz", l(240)), format!("{}.gz", l(197))),
            (format!("{}.{}", l(240), "x".repeat(15)), format!("{}.{}", l(184), "x".repeat(15))),
            // What is longer is no extension.
            (format!("{}.{}", l(240), "x".repeat(16)), l(200)),
            (format!("{}é.pdf", l(195)), format!("{}.pdf", l(195))),
            (format!("{}. .pdf", l(195)), format!("{}.pdf", l(195))),
        ] {
            let cut = FileName::of_own(&name);
            assert_eq!(cut.as_str(), safe);
            assert_eq!(FileName::sanitised(&safe), cut);
        }
        assert_eq!(safe_part(&format!("{}.pdf", l(251))), format!("{}.pdf", l(251)));
        assert_eq!(safe_part(&format!("{}.pdf", l(252))), format!("{}.pdf", l(196)));
    }

    #[test]
    fn what_is_left_of_a_long_name_is_never_empty_nor_a_device() {
        for (name, outside, within) in [
            (format!("{}a{}", ".".repeat(300), "b".repeat(20)), "file", "file"),
            (format!("con{}a.txt", " ".repeat(300)), "_con.txt", "_con.txt"),
        ] {
            assert_eq!((FileName::of_own(&name).as_str(), &*safe_part(&name)), (outside, within));
        }
        assert_eq!(FileName::of_own(&format!("con{}a.txt", " ".repeat(220))).as_str(), "_con.txt");
    }

    #[test]
    fn blocks_cover_a_file_exactly() {
        let offer = Offer { name: FileName::sanitised("a"), length: 2500, block: 1000, hash: [0; 32] };
        assert_eq!(offer.blocks(), 3);
        let spans: Vec<_> = (0..4).map(|index| offer.span(index)).collect();
        assert_eq!(spans, [Some((0, 1000)), Some((1000, 1000)), Some((2000, 500)), None]);
        assert_eq!(Offer { length: 0, ..offer }.span(0), None);
    }

    #[test]
    fn a_report_cuts_a_long_text_between_characters() {
        let (text, mut out) = ("é".repeat(200), Vec::new());
        Report { proof: 3, code: Code::Failed, text: &text }.encode(&mut out);
        let report = Report::decode(&out).unwrap();
        assert_eq!((report.proof, report.code, report.text.len()), (3, Code::Failed, MAX_TEXT));
        let ranges = "1".repeat(MAX_BLOCK_RANGES);
        Report { proof: 3, code: Code::Accepted, text: &ranges }.encode(&mut out);
        assert_eq!(Report::decode(&out).unwrap().text, ranges);
    }
}

//! A file over a stream of an onion session: the same conversation as over QUIC, on whatever a session's end is.
//!
//! ```text
//! to the receiver:  length 2, offer (proto::overlay::message)
//! to the sender:    length 2, report: accepted, and what is there from before
//! to the receiver:  what of the file is not there, in its order
//! to the sender:    length 2, report: complete; or accepted, and all of it comes again, once
//! ```
//!
//! A stream and no datagrams of our own: a session's streams already have what the datagram transfer would bring
//! (losses known path by path, credit, a rate apart from placement), under a key that only the two ends have, and
//! what relays see of a file is then what they see of anything.
//!
//! What has come of a file is kept when its session is lost, for whoever offers the same file again: by its name, its
//! length and its hash. Who resets the stream wants nothing to be kept.

mod receiving;
mod sending;

use anabranch_onion::session::{ReadOutcome, StreamId};

pub use receiving::Files;
pub use sending::{Sending, SendingState};

use super::streams::End;

/// What is read from a file, or written to one, at once.
pub const PIECE: u16 = 1 << 15;

/// The longest message: an offer with the longest name is shorter.
const LONGEST_MESSAGE: usize = 512;

/// Appends `message` with its length.
fn frame(message: &[u8], out: &mut Vec<u8>) {
    let length = u16::try_from(message.len()).expect("names and texts are cut to a few hundred bytes");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
}

/// The message at the front of `bytes`, which is taken off.
///
/// # Errors
///
/// When it is longer than any.
fn take_message(bytes: &mut Vec<u8>) -> Result<Option<Vec<u8>>, &'static str> {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*length));
    if length > LONGEST_MESSAGE {
        return Err("a message that is too long");
    }
    let Some(message) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
    bytes.drain(..2 + length);
    Ok(Some(message))
}

/// What a stream has to read, up to `most` bytes, appended to `bytes`; whether it has ended. One that was reset has not:
/// that is said for itself.
fn read(end: &mut impl End, stream: StreamId, most: usize, bytes: &mut Vec<u8>) -> bool {
    let start = bytes.len();
    bytes.resize(start + most, 0);
    let mut length = start;
    let mut is_over = false;
    while length < start + most {
        match end.read(stream, &mut bytes[length..]) {
            Ok(ReadOutcome::Bytes(count)) => length += count,
            Ok(ReadOutcome::Pending) | Err(_) => break,
            Ok(ReadOutcome::End) => {
                is_over = true;
                break;
            }
        }
    }
    bytes.truncate(length);
    is_over
}

/// Writes what is in `bytes` as far as the stream takes it; whether that was all.
fn write(end: &mut impl End, stream: StreamId, bytes: &mut Vec<u8>) -> bool {
    if !bytes.is_empty() {
        let taken = end.write(stream, bytes).unwrap_or(0);
        bytes.drain(..taken);
    }
    bytes.is_empty()
}

#[cfg(test)]
mod tests;

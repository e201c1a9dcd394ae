//! A file over QUIC: one connection, one stream each way, TLS 1.3. The sender offers, the
//! receiver agrees, the bytes follow, and the receiver says under which name it keeps them
//! once their hash is right.
//!
//! ```text
//! to the receiver:  length 2, offer (proto::overlay::message)
//! to the sender:    length 2, report: waiting, and its place in the queue, as often as need be
//! to the sender:    length 2, report: accepted, and what is there from before
//! to the receiver:  what of the file is not there, in its order
//! to the sender:    length 2, report: complete; or accepted, and all of it comes again, once
//! ```
//!
//! noq carries it, for there a controller's rate holds. Any QUIC library can answer.
//!
//! What has come of a file is kept when its connection is lost or the receiver dies, for whoever offers
//! the same file again: by its name, its length, the hash of all of it and, where its sender has shown one,
//! its key, as over relays. The hash of the whole file decides in the end. Who closes the connection wants nothing
//! to be kept.
//!
//! Who has not shown that it hears what is sent to its address is told to come again (a Retry packet;
//! RFC 9000, 8.1.2): until then nothing is computed and nothing is counted. A file takes its place, or waits for
//! one, once it is offered. No address gets more than its share of either.

mod arriving;
mod claim;
mod places;
mod receiving;
mod sending;
mod shared;
mod throttle;

use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anabranch_proto::overlay::message::{Code, Message, Offer, Report};
use anabranch_proto::printable::printable;
use anabranch_proto::transfer::TransferError;
use noq::{ConnectionError, RecvStream, SendStream, VarInt};

pub use self::receiving::Receiver;
pub use self::sending::{Done, Sender};

/// What both sides say that they speak.
pub const PROTOCOL: &[u8] = b"anabranch-file/3";

/// What is read from a file, or written to one, at once.
const PIECE: u16 = 1 << 15;

/// Pieces that wait at most between a sender's disk and QUIC: half a megabyte a file.
const MOST_WAITING: usize = 16;

/// The longest message: an offer with the longest name is shorter.
const LONGEST_MESSAGE: u16 = 512;

/// Data that may be on its way: 1 Gbit/s over 200 ms.
const MOST_UNACKNOWLEDGED: u32 = 25_000_000;

/// So long a receiver waits for a sender to say what it wants, and to take leave.
const PATIENCE: Duration = Duration::from_secs(10);

/// So long a side tries to tell the other that it is over.
const LEAVE: Duration = Duration::from_secs(1);

/// How a connection that was given up says so, and by whom.
const GIVEN_UP: VarInt = VarInt::from_u32(1);
const BY_SENDER: &[u8] = b"given up by the sender";
const BY_RECEIVER: &[u8] = b"given up by the receiver";

/// A connection that says by whom it is given up. Its streams end as if all had been said: it is to be dropped before
/// them, so to be declared after them.
#[derive(Debug)]
struct Held {
    connection: noq::Connection,
    farewell: &'static [u8],
}

impl Deref for Held {
    type Target = noq::Connection;

    fn deref(&self) -> &noq::Connection {
        &self.connection
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Of one that is closed this changes nothing.
        self.connection.close(GIVEN_UP, self.farewell);
    }
}

/// A connection that is over, by an error of noq's.
fn lost(error: impl std::error::Error + 'static) -> TransferError {
    // What has ended the connection, where the error says no more than that it was lost.
    let errors = std::iter::successors(Some(&error as &(dyn std::error::Error + 'static)), |error| error.source());
    let text = match errors.into_iter().find_map(|error| error.downcast_ref()) {
        Some(ConnectionError::ApplicationClosed(closed)) if closed.reason.is_empty() => {
            "the other side has closed it".to_owned()
        }
        Some(ConnectionError::ApplicationClosed(closed)) => {
            format!("the other side has closed it: {}", String::from_utf8_lossy(&closed.reason))
        }
        Some(other) => other.to_string(),
        None => error.to_string(),
    };
    TransferError::Connection(printable(&text))
}

fn no_tls(error: impl std::fmt::Display) -> TransferError {
    TransferError::Tls(error.to_string())
}

/// How far a transfer is, for who looks from outside.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of the file that is to be sent of which the hash is known: it is read once before.
    pub hashed: AtomicU64,
    /// Bytes that were handed over to QUIC, or taken from it, and those that were there from before.
    pub done: AtomicU64,
    /// Bytes of the files.
    pub total: AtomicU64,
    /// Of a file that is to be sent, its place among those that wait for the receiver, from 1 on; 0 while it does not.
    pub place: AtomicU64,
}

async fn report(to: &mut SendStream, code: Code, text: &str) -> Result<(), TransferError> {
    let mut message = Vec::new();
    Report { proof: 0, code, text }.encode(&mut message);
    write_message(to, &message).await
}

/// The report that comes next, which must be one of `expected`, and its text.
async fn expect(from: &mut RecvStream, expected: &[Code]) -> Result<(Code, String), TransferError> {
    let message = read_message(from).await?;
    let report = Report::decode(&message).map_err(|_| TransferError::Malformed("a report that cannot be read"))?;
    if expected.contains(&report.code) {
        return Ok((report.code, printable(report.text)));
    }
    Err(TransferError::reported(&report).unwrap_or(TransferError::Malformed("a report out of turn")))
}

/// The offer with which a stream begins, and where in the stream it ends.
async fn read_offer(from: &mut RecvStream) -> Result<(Offer, u64), TransferError> {
    let message = read_message(from).await?;
    match Message::decode(&message) {
        Ok((_, Message::Offer(offer))) => Ok((offer, 2 + message.len() as u64)),
        _ => Err(TransferError::Malformed("something other than an offer")),
    }
}

async fn write_message(to: &mut SendStream, message: &[u8]) -> Result<(), TransferError> {
    let length = u16::try_from(message.len()).expect("names and texts are cut to a few hundred bytes");
    to.write_all(&length.to_be_bytes()).await.map_err(lost)?;
    to.write_all(message).await.map_err(lost)?;
    Ok(())
}

async fn read_message(from: &mut RecvStream) -> Result<Vec<u8>, TransferError> {
    let mut length = [0; 2];
    from.read_exact(&mut length).await.map_err(lost)?;
    let length = u16::from_be_bytes(length);
    if length > LONGEST_MESSAGE {
        return Err(TransferError::Malformed("a message that is too long"));
    }
    let mut message = vec![0; usize::from(length)];
    from.read_exact(&mut message).await.map_err(lost)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use noq::{ApplicationClose, ReadError, ReadExactError};

    use super::*;

    #[test]
    fn who_has_closed_a_connection_and_why_is_said_in_words_that_can_be_printed() {
        let closed = |reason: &'static [u8]| {
            let close = ApplicationClose { error_code: VarInt::from_u32(0), reason: reason.into() };
            let closed = ConnectionError::ApplicationClosed(close);
            lost(ReadExactError::ReadError(ReadError::ConnectionLost(closed))).to_string()
        };
        assert_eq!(closed(b""), "the connection was lost: the other side has closed it");
        let said = closed(b"given up\x1b[2J");
        assert!(said.starts_with("the connection was lost: the other side has closed it: given up"), "{said}");
        assert!(!said.contains('\x1b'), "{said}");
        assert!(lost(ReadExactError::FinishedEarly(0)).to_string().contains("early"));
    }
}

//! A file over QUIC: one connection, one stream each way, TLS 1.3. The sender offers, the
//! receiver agrees, the bytes follow, and the receiver says under which name it keeps them
//! once their hash is right.
//!
//! ```text
//! to the receiver:  length 2, offer (proto::message)    then the file, then the end
//! to the sender:    length 2, report                    then length 2, report
//! ```
//!
//! noq carries it, for there a controller's rate holds. Any QUIC library can answer.
//!
//! Who has not shown that it hears what is sent to its address is told to come again (a Retry packet;
//! RFC 9000, 8.1.2): until then nothing is computed and no place is taken. No address gets more than its
//! share of the places.

mod receiving;
mod sending;

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anabranch_proto::message::{Code, Message, Offer, Report};
use anabranch_proto::printable::printable;
use anabranch_proto::transfer::TransferError;
use noq::{ConnectionError, RecvStream, SendStream, VarInt};

pub use self::receiving::{Event, Receiver};
pub use self::sending::{Done, Sender};
use super::identity;

/// What both sides say that they speak.
pub const PROTOCOL: &[u8] = b"anabranch-file/1";

/// What is read from a file, or written to one, at once.
const PIECE: u16 = 1 << 15;

/// Pieces that wait at most between a disk and QUIC: half a megabyte a file.
const MOST_WAITING: usize = 16;

/// The longest message: an offer with the longest name is shorter.
const LONGEST_MESSAGE: u16 = 512;

/// Data that may be on its way: 1 Gbit/s over 200 ms.
const MOST_UNACKNOWLEDGED: u32 = 25_000_000;

/// So long a receiver waits for a sender to say what it wants, and to take leave.
const PATIENCE: Duration = Duration::from_secs(10);

/// So long a side tries to tell the other that it is over.
const LEAVE: Duration = Duration::from_secs(1);

/// How a connection that was given up says so.
const GIVEN_UP: VarInt = VarInt::from_u32(1);

/// Why a file was not transferred over QUIC.
#[derive(Debug, thiserror::Error)]
pub enum QuicError {
    /// For a reason that does not come of QUIC.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// There is no socket.
    #[error("cannot use {address}: {why}")]
    Socket {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: std::io::Error,
    },
    /// Somebody else answered.
    #[error(
        "the receiver at {to} has the fingerprint {answered}, not the expected one: check what it printed, it is \
         another one after each start; if it did print the expected one, somebody else answers in its place"
    )]
    Stranger {
        /// Where.
        to: SocketAddr,
        /// Their fingerprint.
        answered: identity::Fingerprint,
    },
    /// Nobody answers.
    #[error("nobody answers at {0}: is the receiver running, and does UDP pass on the way?")]
    NobodyAnswers(SocketAddr),
    /// The connection is over.
    #[error("the connection was lost: {0}")]
    Connection(String),
    /// TLS does not work here.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

macro_rules! lost_connection {
    ($($error:ty),*) => {$(
        impl From<$error> for QuicError {
            fn from(error: $error) -> QuicError {
                QuicError::Connection(printable(&error.to_string()))
            }
        }
    )*};
}
lost_connection!(ConnectionError, noq::ReadError, noq::ReadExactError, noq::WriteError, noq::ClosedStream);

/// How far a transfer is, for who looks from outside.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes that were handed over to QUIC, or taken from it.
    pub done: AtomicU64,
    /// Bytes of the files.
    pub total: AtomicU64,
}

async fn report(to: &mut SendStream, code: Code, text: &str) -> Result<(), QuicError> {
    let mut message = Vec::new();
    Report { proof: 0, code, text }.encode(&mut message);
    write_message(to, &message).await
}

/// The text of the report that must come next.
async fn expect(from: &mut RecvStream, expected: Code) -> Result<String, QuicError> {
    let message = read_message(from).await?;
    let report = Report::decode(&message).map_err(|_| TransferError::Malformed("a report that cannot be read"))?;
    if report.code == expected {
        return Ok(printable(report.text));
    }
    Err(TransferError::reported(&report).unwrap_or(TransferError::Malformed("a report out of turn")).into())
}

async fn read_offer(from: &mut RecvStream) -> Result<Offer, QuicError> {
    let message = read_message(from).await?;
    match Message::decode(&message) {
        Ok((_, Message::Offer(offer))) => Ok(offer),
        _ => Err(TransferError::Malformed("something other than an offer").into()),
    }
}

async fn write_message(to: &mut SendStream, message: &[u8]) -> Result<(), QuicError> {
    let length = u16::try_from(message.len()).expect("names and texts are cut to a few hundred bytes");
    to.write_all(&length.to_be_bytes()).await?;
    to.write_all(message).await?;
    Ok(())
}

async fn read_message(from: &mut RecvStream) -> Result<Vec<u8>, QuicError> {
    let mut length = [0; 2];
    from.read_exact(&mut length).await?;
    let length = u16::from_be_bytes(length);
    if length > LONGEST_MESSAGE {
        return Err(TransferError::Malformed("a message that is too long").into());
    }
    let mut message = vec![0; usize::from(length)];
    from.read_exact(&mut message).await?;
    Ok(message)
}

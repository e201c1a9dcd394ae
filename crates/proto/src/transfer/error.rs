//! Why a file does not arrive, in the same words whatever carries it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_control::time::Duration;

use super::around::StoreError;
use super::phase::{PATIENCE, Phase};
use crate::overlay::message::{Code, Report};
use crate::printable::printable;
use crate::seal::PublicKey;

/// Why a file did not arrive.
#[derive(Clone, Debug)]
pub enum TransferError {
    /// Nothing was heard of the receiver for 30 s.
    NoAnswer(Phase),
    /// The receiver answers what is short, and no block has reached it for a while: the path may carry no
    /// packets of this length.
    BlackHole,
    /// The receiver does not want the file.
    Refused(String),
    /// The receiver could not keep the file, or its hash was wrong.
    Failed(String),
    /// The other side sends what makes no sense.
    Malformed(&'static str),
    /// The file could not be read.
    Unreadable(Arc<io::Error>),
    /// The file could not be kept.
    Store(StoreError),
    /// What has arrived is not what was offered.
    WrongHash,
    /// The file that is sent is no longer what was offered.
    Changed,
    /// Nothing of the file has come for so long, though there was room for it.
    Stalled(Duration),
    /// It was given up on this side.
    Cancelled,
    /// Nobody answers at the receiver's address.
    NobodyAnswers(SocketAddr),
    /// Somebody else than the receiver answers there.
    Stranger {
        /// Where.
        to: SocketAddr,
        /// Their key.
        answered: PublicKey,
    },
    /// The receiver's key is no point of the curve that has an owner.
    NobodysKey,
    /// The connection, where there is one, was lost.
    Connection(String),
    /// There is no socket.
    Socket {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: Arc<io::Error>,
    },
    /// TLS does not work here.
    Tls(String),
}

impl TransferError {
    /// For `map_err`: reading the file that is sent failed.
    pub fn unreadable(error: io::Error) -> TransferError {
        TransferError::Unreadable(Arc::new(error))
    }

    /// What a receiver's report says went wrong, if it says so.
    pub fn reported(report: &Report<'_>) -> Option<TransferError> {
        match report.code {
            Code::Refused => Some(TransferError::Refused(printable(report.text))),
            Code::Failed => Some(TransferError::Failed(printable(report.text))),
            Code::Accepted | Code::Waiting | Code::Incomplete | Code::Checking | Code::Complete => None,
        }
    }
}

impl From<StoreError> for TransferError {
    fn from(error: StoreError) -> TransferError {
        TransferError::Store(error)
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = PATIENCE.as_secs_f64();
        match self {
            TransferError::NoAnswer(Phase::Greeting) => {
                write!(
                    f,
                    "no answer from the receiver for {seconds} s: is it running at this address, do the relays run, and is the key its own?"
                )
            }
            TransferError::NoAnswer(Phase::Finishing) => {
                write!(f, "all blocks have arrived, but the receiver did not confirm the file for {seconds} s")
            }
            TransferError::NoAnswer(_) => write!(f, "nothing was heard of the receiver for {seconds} s"),
            TransferError::BlackHole => f.write_str(
                "the receiver answers, but no block reaches it: packets of this length are lost on the way; send \
                 shorter ones with --packet (1232 bytes pass wherever IPv6 does)",
            ),
            TransferError::Refused(reason) => write!(f, "the receiver refuses the file: {reason}"),
            TransferError::Failed(reason) => write!(f, "the receiver could not keep the file: {reason}"),
            TransferError::Malformed(what) => write!(f, "the other side sends {what}"),
            TransferError::Unreadable(error) => write!(f, "cannot read the file: {error}"),
            TransferError::Store(error) => error.fmt(f),
            TransferError::WrongHash => {
                f.write_str("the hash is wrong: the file has changed while it was sent, or was damaged")
            }
            TransferError::Changed => {
                f.write_str("the file has changed since its transfer began; once it stays as it is, send it again")
            }
            TransferError::Stalled(time) => write!(f, "nothing of the file has come for {} s", time.as_secs_f64()),
            TransferError::Cancelled => f.write_str("the transfer was given up"),
            TransferError::NobodyAnswers(to) => {
                write!(f, "nobody answers at {to}: is the receiver running, and does UDP pass on the way?")
            }
            TransferError::Stranger { to, answered } => write!(
                f,
                "the receiver at {to} has the public key {answered}, not the expected one: check what it printed; if \
                 it did print the expected one, somebody else answers in its place"
            ),
            TransferError::NobodysKey => {
                f.write_str("the receiver's key cannot be right, for nobody can have it: check what it printed")
            }
            TransferError::Connection(why) => write!(f, "the connection was lost: {why}"),
            TransferError::Socket { address, why } => write!(f, "cannot use {address}: {why}"),
            TransferError::Tls(why) => write!(f, "cannot set up TLS: {why}"),
        }
    }
}

impl std::error::Error for TransferError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_receiver_says_moves_no_terminal() {
        let said = |code| {
            let report = Report { proof: 0, code, text: "no\x1b[2J\n" };
            TransferError::reported(&report).map(|error| error.to_string())
        };
        assert_eq!(said(Code::Refused).unwrap(), r"the receiver refuses the file: no\u{1b}[2J\n");
        assert_eq!(said(Code::Failed).unwrap(), r"the receiver could not keep the file: no\u{1b}[2J\n");
        assert_eq!(said(Code::Complete), None);
    }
}

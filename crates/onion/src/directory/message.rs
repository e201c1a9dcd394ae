//! What relays, users and authorities say to authorities, and what these answer.
//!
//! All of it goes over sessions that prove the sender's address: nothing here is answered with more
//! bytes than it had before that.

use anabranch_proto::machine::Wire;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::ballot::Ballot;
use super::descriptor::SignedDescriptor;
use super::document::{MOST_DOCUMENT, SignedDocument};
use super::hash::DocumentHash;
use super::keys::{Context, PublicKey, SecretKey, Signature};
use super::vote::EndorsedVote;

/// Bytes of a message from a relay or a user; a driver takes longer ones from authorities alone.
pub const MOST_FROM_STRANGERS: usize = 8192;

/// Bytes of any message: a vote that lists all relays a document can have, each with a long descriptor, and the document
/// that its author is locked on.
pub const MOST_MESSAGE: usize = (48 << 20) + MOST_DOCUMENT;

/// Why an authority does not take a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Refusal {
    /// The session's address is another one.
    #[error(
        "the descriptor's address is not the one that the session comes from: --address must be where others reach the \
         relay, and what it sends must leave by that address, as behind a NAT of one address for one"
    )]
    OtherAddress,
    /// A signature or a bound is wrong.
    #[error("the descriptor is not signed, or breaks a bound")]
    Invalid,
    /// One is known that is as new.
    #[error("another descriptor is known that is as new or newer")]
    NotNewer,
    /// It was made after now.
    #[error("the descriptor was made later than now: is the relay's clock right?")]
    FromTheFuture,
    /// Too many relays are known in its network.
    #[error("too many relays in this /24 or /48 are known")]
    NetworkIsFull,
    /// Too many relays are known.
    #[error("too many relays are known")]
    Full,
}

/// What an authority says of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// In which ballot.
    pub ballot: Ballot,
    /// Of which document.
    pub hash: DocumentHash,
    /// Who says so.
    pub signer: PublicKey,
    /// Its signature.
    pub signature: Signature,
}

impl Statement {
    /// What `key` says in `ballot` of the document with this hash.
    pub fn new(context: Context, ballot: Ballot, hash: DocumentHash, key: &SecretKey) -> Statement {
        let signature = key.sign(context, &ballot.signed_bytes(&hash));
        Statement { ballot, hash, signer: key.public(), signature }
    }

    /// Whether its signer has said that.
    pub fn is_signed(&self, context: Context) -> bool {
        self.signer.verifies(context, &self.ballot.signed_bytes(&self.hash), &self.signature)
    }
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Asks for the document, if there is one of a later epoch.
    Fetch {
        /// The epoch of the newest that is known; 0 before the first.
        newer_than: u64,
    },
    /// There is none.
    #[default]
    NoNewer,
    /// The document.
    Document(SignedDocument),
    /// What a relay says of itself, of an authority to list it.
    Upload(Box<SignedDescriptor>),
    /// The authority will vouch for it.
    Taken,
    /// The authority will not.
    Refused(Refusal),
    /// What an authority has seen.
    Vote(Box<EndorsedVote>),
    /// That an authority has signed a document which enough have prepared.
    Signed(Statement),
    /// That an authority has made a document of the votes, or follows who has.
    Prepared(Statement),
}

/// The bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("these bytes are no message of a directory")]
pub struct Unreadable;

impl Wire for Message {
    type Error = Unreadable;
    type Unreadable = u64;

    fn write(&self, out: &mut Vec<u8>) {
        *out = postcard::to_allocvec(self).expect("a message's parts can all be written");
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Unreadable> {
        if bytes.len() > MOST_MESSAGE {
            return Err(Unreadable);
        }
        let (message, rest) = postcard::take_from_bytes::<Message>(bytes).map_err(|_| Unreadable)?;
        if !rest.is_empty() {
            return Err(Unreadable);
        }
        *self = message;
        Ok(())
    }

    fn count(_: Unreadable, unreadable: &mut u64) {
        *unreadable += 1;
    }
}

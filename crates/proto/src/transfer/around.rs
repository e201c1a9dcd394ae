//! What is around a receiver and a sender: a receiver's limits, the store that keeps its files, what
//! it tells of them, and the source of a file that is sent.

use std::fmt;
use std::io;

use dyn_clone::{DynClone, clone_trait_object};

use super::extents::Extents;
use super::partial::Partial;
use crate::overlay::message::Offer;
use crate::seal::SessionId;

/// Why a store could not do something, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError(pub String);

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoreError {}

/// Where files are kept while they arrive and afterwards: what does a receiver's
/// [jobs](super::FileJob).
///
/// A clone of a store in memory has files of its own. A folder on a disk is one and the same for
/// all clones: no snapshot of a machine holds it.
pub trait Store: DynClone + Send {
    /// Makes room for the file of `session`, under a name that nobody takes for the file.
    fn create(&mut self, session: SessionId, offer: &Offer) -> Result<(), StoreError>;
    /// The same for a file that its sender may go on with later: what is there of it from before.
    /// Whoever keeps nothing from before need not say more than `create`.
    fn resume(&mut self, session: SessionId, offer: &Offer, partial: &Partial) -> Result<Extents, StoreError> {
        let _ = partial;
        self.create(session, offer).map(|()| Extents::default())
    }
    /// The file of `session` does not come for now: closes it, and keeps what has come of it if it is
    /// one that its sender may go on with; whether it is kept.
    fn suspend(&mut self, session: SessionId) -> bool {
        self.discard(session);
        false
    }
    /// Keeps `bytes` at `offset`.
    fn write(&mut self, session: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError>;
    /// Fills `bytes` with what is kept at `offset`.
    fn read(&mut self, session: SessionId, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError>;
    /// The file is whole: puts it in its place, replacing nothing, and says its name there.
    fn publish(&mut self, session: SessionId, offer: &Offer) -> Result<String, StoreError>;
    /// The file of `session` will not come: forgets what is kept of it.
    fn discard(&mut self, session: SessionId);
}

clone_trait_object!(Store);

/// How a datagram is answered; the body of the answer has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An ACK with this proof and no body.
    Ack(u64),
    /// A report.
    Report,
}

/// What has happened to a file, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A file is to come.
    Offered {
        /// Whose.
        session: SessionId,
        /// Which.
        offer: Offer,
    },
    /// The first of its blocks are kept; an empty file has none.
    Begun {
        /// Whose.
        session: SessionId,
    },
    /// Its sender goes on with it in another session, which takes the place of this one.
    Continued {
        /// The session that is over.
        session: SessionId,
        /// The one that takes its place.
        by: SessionId,
    },
    /// What carried it is lost: what has come is kept, and its sender, who knows, looks for another way to go on.
    Suspended {
        /// Whose.
        session: SessionId,
    },
    /// It is in its place.
    Complete {
        /// Whose.
        session: SessionId,
        /// Its name there.
        name: String,
        /// Its length in bytes.
        length: u64,
    },
    /// It will not come.
    Failed {
        /// Whose.
        session: SessionId,
        /// Why.
        reason: String,
    },
    /// The sender has closed the session, or was not heard of any more.
    Closed {
        /// Whose.
        session: SessionId,
        /// Whether its file had arrived.
        complete: bool,
    },
}

impl Event {
    /// Whose file it is about.
    pub fn session(&self) -> SessionId {
        match *self {
            Event::Offered { session, .. }
            | Event::Begun { session }
            | Event::Suspended { session }
            | Event::Continued { session, .. }
            | Event::Complete { session, .. }
            | Event::Failed { session, .. }
            | Event::Closed { session, .. } => session,
        }
    }
}

/// What a receiver has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Hellos that were answered by a cookie.
    pub cookies: u64,
    /// Sessions that were begun.
    pub greetings: u64,
    /// Hellos that were damaged or beyond the limit for a second.
    pub greetings_refused: u64,
    /// Blocks that were new.
    pub blocks: u64,
    /// Blocks that were not taken, as too many waited to be written.
    pub deferred: u64,
    /// Blocks that had been there.
    pub duplicates: u64,
    /// Blocks that were there from a session before.
    pub resumed: u64,
    /// Fillers.
    pub fillers: u64,
    /// Data of a session that is not known.
    pub unknown_session: u64,
    /// Data that had come before, bit for bit.
    pub replayed: u64,
    /// Data that did not open, or says nothing that makes sense.
    pub unreadable: u64,
}

/// Where the file comes from: what does a sender's [jobs](super::FileJob).
pub trait Source: DynClone + Send {
    /// Fills `bytes` from `offset` on.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

clone_trait_object!(Source);

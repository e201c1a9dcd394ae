//! What a receiver tells of files.

use super::QuicError;

/// What became of a file at a receiver. Connections are numbered in the order in which they come.
#[derive(Debug)]
pub enum Event {
    /// A file comes.
    Offered {
        /// Over which connection.
        connection: u64,
        /// Its name, as the sender calls it.
        name: String,
        /// Its bytes.
        length: u64,
    },
    /// The first of its bytes have come; an empty file has none.
    Begun {
        /// Over which connection.
        connection: u64,
    },
    /// It is in its place, its hash right.
    Complete {
        /// Over which connection.
        connection: u64,
        /// Its name in the folder.
        name: String,
        /// Its bytes.
        length: u64,
    },
    /// Its sender goes on with it over another connection: this one is over.
    Continued {
        /// Over which connection it came.
        connection: u64,
        /// Over which it comes now.
        by: u64,
    },
    /// It did not arrive. What has come of it may be kept for who offers it again.
    Failed {
        /// Over which connection.
        connection: u64,
        /// Why.
        why: QuicError,
    },
}

impl Event {
    /// Over which connection it has happened.
    pub fn connection(&self) -> u64 {
        match *self {
            Event::Offered { connection, .. }
            | Event::Begun { connection }
            | Event::Complete { connection, .. }
            | Event::Continued { connection, .. }
            | Event::Failed { connection, .. } => connection,
        }
    }
}

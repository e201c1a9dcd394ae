//! Which agreement among the authorities something belongs to.

use serde::{Deserialize, Serialize};

use super::hash::DocumentHash;

/// One agreement on votes. An epoch has further ones for as long as none has led to its document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ballot {
    /// The epoch that the document is for.
    pub epoch: u64,
    /// 0 is the one before the epoch begins.
    pub number: u32,
}

impl Ballot {
    /// The first of `epoch`.
    pub fn first(epoch: u64) -> Ballot {
        Ballot { epoch, number: 0 }
    }

    /// What an authority signs to say something of a document in this ballot.
    pub fn signed_bytes(&self, hash: &DocumentHash) -> Vec<u8> {
        [&self.epoch.to_le_bytes()[..], &self.number.to_le_bytes(), &hash.0].concat()
    }
}

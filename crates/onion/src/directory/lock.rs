//! What keeps two ballots of one epoch from giving two documents, and lets a later one end what an earlier one left open.
//!
//! An authority that has made a document of the votes *prepares* it. Once it has seen t prepare the same one in the same
//! ballot it is *locked* on that, and only then signs it. A document is good with t signatures of one ballot. In later
//! ballots of the epoch a vote shows its author's lock, with the t that had prepared it, and all prepare the document of
//! the newest lock among the votes, if there is one, instead of making another. Who is locked prepares another document
//! only with a newer lock than its own before its eyes.
//!
//! Why there are never two: let document D be signed by t in ballot b, and let b' > b be the first later ballot in which
//! t prepare another one. Two times t of a authorities have 2t − a ≥ 1 in common. Such a one was locked on D in b, and
//! prepared the other in b' because it saw a lock on another document, newer than b. That was prepared by t between
//! b and b', against the choice of b'. So nobody is locked on anything else from b on, and nothing else is signed. It
//! takes 2t − a that lie to break this, however long messages take and whoever stands still: as many as it takes anyway
//! to sign twice. A lock that is shown cannot be made up by fewer than t liars, since t must have prepared its document.
//!
//! Why there is one in the end: once clocks and delays differ by less than a round again, all honest authorities count
//! the same votes, and so find the same newest lock; their own are among them, so that nobody is held back by one.
//!
//! These are the rules of Castro and Liskov ("Practical Byzantine fault tolerance", OSDI 1999) as Tendermint has them
//! (Buchman, Kwon and Milosevic, "The latest gossip on BFT consensus", 2018), without a leader: votes that all count
//! alike (`vote.rs`) take its place.

use serde::{Deserialize, Serialize};

use super::ballot::Ballot;
use super::document::{Document, MOST_RELAYS};
use super::hash::DocumentHash;
use super::keys::{Context, PublicKey, Signature};
use super::trust::{MOST_AUTHORITIES, Trust};

/// A document that enough authorities have prepared in one ballot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// The ballot's number; its epoch is the document's.
    pub number: u32,
    /// Which document.
    pub document: Document,
    /// Who has prepared it.
    pub prepared: Vec<(PublicKey, Signature)>,
}

impl Lock {
    /// When it was made.
    pub fn ballot(&self) -> Ballot {
        Ballot { epoch: self.document.epoch, number: self.number }
    }

    /// Whether it is no longer than a lock can be.
    pub fn is_within_bounds(&self) -> bool {
        self.document.members.len() <= MOST_RELAYS && self.prepared.len() <= MOST_AUTHORITIES
    }

    /// Whether it decides what a ballot is to prepare: it is of the same epoch and an earlier ballot, and enough have
    /// prepared its document.
    fn counts_in(&self, ballot: Ballot, hash: &DocumentHash, trust: &Trust) -> bool {
        let of = self.ballot();
        of.epoch == ballot.epoch
            && of.number < ballot.number
            && self.document.check().is_ok()
            && trust.count(Context::Prepare, of, hash, &self.prepared) >= trust.threshold()
    }

    /// The newest of these locks that decide what `ballot` is to prepare, and its document's hash.
    pub fn newest<'a>(
        locks: impl Iterator<Item = &'a Lock>,
        ballot: Ballot,
        trust: &Trust,
    ) -> Option<(&'a Lock, DocumentHash)> {
        let hashed = locks.map(|lock| (lock, lock.document.hash()));
        // Two of one ballot take 2t - a liars; then all still choose the same.
        hashed
            .filter(|(lock, hash)| lock.counts_in(ballot, hash, trust))
            .max_by_key(|(lock, hash)| (lock.number, *hash))
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::SecretKey;
    use super::super::testing::{authorities, document};
    use super::*;

    fn lock(number: u32, relays: usize, by: &[SecretKey]) -> Lock {
        let document = document(1, relays);
        let bytes = Ballot { epoch: 1, number }.signed_bytes(&document.hash());
        let prepared = by.iter().map(|key| (key.public(), key.sign(Context::Prepare, &bytes))).collect();
        Lock { number, document, prepared }
    }

    #[test]
    fn the_newest_lock_that_enough_have_prepared_decides() {
        let (keys, trust) = authorities(4, 3);
        let old = lock(1, 3, &keys[..3]);
        let new = lock(2, 4, &keys[1..]);
        let ballot = Ballot { epoch: 1, number: 3 };
        let of = |locks: &[&Lock], ballot| {
            Lock::newest(locks.iter().copied(), ballot, &trust).map(|(lock, hash)| {
                assert_eq!(hash, lock.document.hash());
                (lock.number, lock.document.len())
            })
        };
        assert_eq!(of(&[], ballot), None);
        assert_eq!(of(&[&new, &old], ballot), Some((2, 4)));
        assert_eq!(of(&[&old, &new], ballot), Some((2, 4)));
        assert_eq!(of(&[&old, &new], Ballot { epoch: 1, number: 2 }), Some((1, 3)), "only those before it");
        assert_eq!(of(&[&old, &new], Ballot { epoch: 2, number: 3 }), None, "of the same epoch");
        // What too few have prepared, what was prepared twice by one, and what was prepared elsewhere.
        let few = lock(2, 5, &keys[..2]);
        let mut twice = few.clone();
        twice.prepared.push(few.prepared[0]);
        let other_ballot = Lock { number: 2, ..old.clone() };
        let other_document = Lock { document: document(1, 5), ..new.clone() };
        assert_eq!(of(&[&few, &twice, &other_ballot, &other_document, &old], ballot), Some((1, 3)));
        // A signature of the document is not one that it is prepared.
        let mut signed = lock(2, 5, &keys);
        let bytes = signed.ballot().signed_bytes(&signed.document.hash());
        for (signature, key) in signed.prepared.iter_mut().zip(&keys) {
            signature.1 = key.sign(Context::Document, &bytes);
        }
        assert_eq!(of(&[&signed], ballot), None);
    }
}

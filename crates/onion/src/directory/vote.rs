//! What one authority has seen, and how all honest ones come to count the same votes.
//!
//! An authority that lies may send different votes to different others. Each vote therefore travels
//! with endorsements: who takes one in adds its own signature and passes it on at once, and in round r
//! a vote needs r endorsements, its author's among them. With f authorities that lie, f + 1 rounds are
//! enough: a vote that is taken in the last round bears the signature of an honest one, who has shown
//! it to everybody (Dolev and Strong, "Authenticated algorithms for Byzantine agreement", SIAM Journal
//! on Computing 12, 1983). Of whom two votes are found, none is counted.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::ballot::Ballot;
use super::clock::UnixTime;
use super::descriptor::SignedDescriptor;
use super::document::MOST_RELAYS;
use super::hash::DocumentHash;
use super::keys::{Context, PublicKey, SecretKey, Signature};
use super::lock::Lock;
use super::trust::{MOST_AUTHORITIES, Trust};

/// A relay that an authority vouches for: its address was proved to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seen {
    /// What the relay says of itself.
    pub relay: SignedDescriptor,
    /// Since when the authority has known it.
    pub since: UnixTime,
}

/// A document that was signed by enough authorities, without the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// By which ballot it came.
    pub ballot: Ballot,
    /// Which.
    pub hash: DocumentHash,
    /// Who signed.
    pub signatures: Vec<(PublicKey, Signature)>,
}

impl Proof {
    /// Whether enough have signed.
    pub fn holds(&self, trust: &Trust) -> bool {
        trust.count(Context::Document, self.ballot, &self.hash, &self.signatures) >= trust.threshold()
    }
}

/// What one authority has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// Whose it is.
    pub author: PublicKey,
    /// What it is cast in.
    pub ballot: Ballot,
    /// The newest document before it that the author knows, if there was one.
    pub previous: Option<Proof>,
    /// What the author is locked on in this epoch, by an earlier ballot.
    pub lock: Option<Box<Lock>>,
    /// The relays, by identity.
    pub relays: Vec<Seen>,
}

impl Vote {
    fn signed_bytes(&self) -> Vec<u8> {
        let bytes = postcard::to_allocvec(self).expect("a vote's parts can all be written");
        [&self.ballot.epoch.to_le_bytes()[..], blake3::hash(&bytes).as_bytes()].concat()
    }
}

/// Why a vote is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VoteError {
    /// Its author is no authority, or has not signed it.
    #[error("the vote is not signed by the authority that it names")]
    NoAuthor,
    /// An endorsement is none, or there twice.
    #[error("an endorsement of the vote is not an authority's, or is there twice")]
    BadEndorsement,
    /// It has come later than its endorsements say.
    #[error("the vote comes too late: in round {round} it has {endorsements} endorsements")]
    Late {
        /// In which round it has come.
        round: usize,
        /// Who had seen it.
        endorsements: usize,
    },
    /// A bound is broken.
    #[error("the vote lists too many relays, or not in the order of their identities")]
    OutOfBounds,
}

/// A vote, and who has seen it in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndorsedVote {
    /// The vote.
    pub vote: Vote,
    endorsements: Vec<(PublicKey, Signature)>,
}

impl EndorsedVote {
    /// `vote`, signed by its author.
    pub fn new(vote: Vote, author: &SecretKey) -> EndorsedVote {
        let mut endorsed = EndorsedVote { vote, endorsements: Vec::new() };
        endorsed.endorse(author);
        endorsed
    }

    /// Says that the authority with `key` has seen it; once.
    pub fn endorse(&mut self, key: &SecretKey) {
        let public = key.public();
        if self.endorsements.iter().all(|(other, _)| *other != public) {
            self.endorsements.push((public, key.sign(Context::Vote, &self.vote.signed_bytes())));
        }
    }

    /// Whether it counts when it comes in `round`, from 1.
    ///
    /// # Errors
    ///
    /// Why it does not.
    pub fn check(&self, trust: &Trust, round: usize) -> Result<(), VoteError> {
        let EndorsedVote { vote, endorsements } = self;
        let count = endorsements.len();
        if count > MOST_AUTHORITIES {
            return Err(VoteError::BadEndorsement);
        }
        if count < round {
            return Err(VoteError::Late { round, endorsements: count });
        }
        let by_identity = |a: &Seen, b: &Seen| a.relay.descriptor.identity < b.relay.descriptor.identity;
        let is_bounded =
            vote.relays.len() <= MOST_RELAYS && vote.lock.as_ref().is_none_or(|lock| lock.is_within_bounds());
        if !is_bounded || !vote.relays.is_sorted_by(by_identity) {
            return Err(VoteError::OutOfBounds);
        }
        if !endorsements.iter().any(|(key, _)| *key == vote.author) {
            return Err(VoteError::NoAuthor);
        }
        let message = vote.signed_bytes();
        for (place, (key, signature)) in endorsements.iter().enumerate() {
            let is_there_before = endorsements[..place].iter().any(|(other, _)| other == key);
            if is_there_before || !trust.includes(key) || !key.verifies(Context::Vote, &message, signature) {
                return Err(VoteError::BadEndorsement);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::authorities;
    use super::*;

    #[test]
    fn a_vote_needs_as_many_endorsements_as_rounds_have_passed() {
        let (keys, trust) = authorities(4, 3);
        let vote =
            Vote { author: keys[0].public(), ballot: Ballot::first(1), previous: None, lock: None, relays: Vec::new() };
        let mut endorsed = EndorsedVote::new(vote.clone(), &keys[0]);
        assert_eq!(endorsed.check(&trust, 1), Ok(()));
        assert_eq!(endorsed.check(&trust, 2), Err(VoteError::Late { round: 2, endorsements: 1 }));
        endorsed.endorse(&keys[0]);
        assert_eq!(endorsed.check(&trust, 2), Err(VoteError::Late { round: 2, endorsements: 1 }), "once each");
        endorsed.endorse(&keys[1]);
        assert_eq!(endorsed.check(&trust, 2), Ok(()));
        for other in [Ballot::first(2), Ballot { epoch: 1, number: 1 }] {
            endorsed.vote.ballot = other;
            assert_eq!(endorsed.check(&trust, 2), Err(VoteError::BadEndorsement), "of one ballot alone");
        }
        assert_eq!(EndorsedVote::new(vote.clone(), &keys[1]).check(&trust, 1), Err(VoteError::NoAuthor));
        let stranger = super::super::testing::key(7);
        let strange = Vote { author: stranger.public(), ..vote };
        assert_eq!(EndorsedVote::new(strange, &stranger).check(&trust, 1), Err(VoteError::BadEndorsement));
    }
}

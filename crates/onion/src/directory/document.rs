//! The document of an epoch: every relay, in one order, and what each weighs.
//!
//! Relays stand in the order of their identity keys, so that a place in the list names a relay for
//! everybody alike, in packets too. Two documents are the same if and only if their hashes are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::ballot::Ballot;
use super::clock::{DAY, UnixTime};
use super::descriptor::{Descriptor, DescriptorError};
use super::hash::DocumentHash;
use super::keys::{Context, PublicKey, Signature};
use super::network::Network;
use super::trust::{MOST_AUTHORITIES, Trust};
use crate::RelayIndex;

/// Relays of a document. Tor has about as many; a place fits 16 bits with room to spare.
pub const MOST_RELAYS: usize = 10_000;

/// Relays of one family that a document lists: its oldest. Of a path, it could still be on but one place.
pub const MOST_PER_FAMILY: usize = 64;

/// Relays in one network that a document lists: its oldest. Tor's authorities list up to eight relays
/// at one IPv4 address (`AuthDirMaxServersPerAddr`); ours, up to eight in a whole /24 or /48.
pub const MOST_PER_NETWORK: usize = 8;

/// No document is good for longer, in seconds: a user who gets none for a week knows nobody any more.
pub const LONGEST_VALIDITY: u64 = 7 * DAY;

/// Bytes of a document with its signatures, at most; longer ones are refused unread.
pub const MOST_DOCUMENT: usize = 16 << 20;

/// A relay in the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// What it says of itself.
    pub descriptor: Descriptor,
    /// Since when enough authorities have known it.
    pub since: UnixTime,
    /// How much of the traffic it is to get, relative to the others'; above 0.
    pub weight: u64,
    /// Whether it has been there for long enough to be a guard.
    pub guard: bool,
}

impl Member {
    /// Where in the internet it is.
    pub fn network(&self) -> Network {
        Network::of(self.descriptor.address.ip())
    }

    /// The family that it is of, if any.
    pub fn family(&self) -> Option<PublicKey> {
        self.descriptor.family.map(|family| family.key)
    }

    /// Whether both are of one family or in one network: no path has both.
    pub fn is_near(&self, other: &Member) -> bool {
        let family = self.family();
        self.network() == other.network() || (family.is_some() && other.family() == family)
    }
}

/// What all of a network must have alike besides the list: whoever has another k is understood by no relay, and whoever
/// has other epochs uses keys of another time, and neither would learn why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Length of an epoch, in seconds.
    pub epoch_s: u64,
    /// k.
    pub packets_per_key: u16,
}

/// What a network's file says and its list does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the network's file has {name} = {own}, and the list of relays that its authorities have signed {listed}: take the \
     file that all others of this network have"
)]
pub struct OtherTerms {
    /// Which key of the file.
    pub name: &'static str,
    /// What the file has.
    pub own: u64,
    /// What the list has.
    pub listed: u64,
}

impl Terms {
    /// Whether somebody of these terms, by a network's file, can use a list of `listed`.
    ///
    /// # Errors
    ///
    /// What differs first.
    pub fn check(self, listed: Terms) -> Result<(), OtherTerms> {
        let all = [
            ("epoch_s", self.epoch_s, listed.epoch_s),
            ("packets_per_key", self.packets_per_key.into(), listed.packets_per_key.into()),
        ];
        let other = all.into_iter().find(|(_, own, listed)| own != listed);
        other.map_or(Ok(()), |(name, own, listed)| Err(OtherTerms { name, own, listed }))
    }
}

/// All relays of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Which one.
    pub epoch: u64,
    /// From when on it may be used.
    pub valid_from: UnixTime,
    /// From when on it may not any more.
    pub valid_until: UnixTime,
    /// The hash of the document before this one, of whatever epoch that was; zero in the first.
    pub previous: DocumentHash,
    /// What goes for all who use it. What was written down before lists had any is read, and is not signed.
    #[serde(default)]
    pub terms: Terms,
    /// The relays, by identity: their places are their indices.
    pub members: Vec<Member>,
}

/// Why a document is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DocumentError {
    /// The bytes are none.
    #[error("these bytes are no document of at most {MOST_DOCUMENT} bytes in its one form")]
    Unreadable,
    /// A bound is broken.
    #[error("the document of epoch {epoch}: {problem}")]
    OutOfBounds {
        /// Whose it would be.
        epoch: u64,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A relay's own part is wrong.
    #[error("the document of epoch {epoch}: {error}")]
    Member {
        /// Whose it would be.
        epoch: u64,
        /// What is wrong with that.
        error: DescriptorError,
    },
    /// Too few authorities have signed.
    #[error("the document of epoch {epoch} is signed by {signed} of the {needed} authorities that must have")]
    TooFewSignatures {
        /// Whose it would be.
        epoch: u64,
        /// How many have.
        signed: usize,
        /// How many must have.
        needed: usize,
    },
}

impl Document {
    /// Checks order and bounds. That relays and families have signed what is said of them, the
    /// authorities that signed the document have checked.
    ///
    /// # Errors
    ///
    /// What is wrong first.
    pub fn check(&self) -> Result<(), DocumentError> {
        let epoch = self.epoch;
        let wrong = |problem| Err(DocumentError::OutOfBounds { epoch, problem });
        if self.valid_until <= self.valid_from {
            return wrong("it is never valid");
        }
        if self.valid_until.since(self.valid_from) > LONGEST_VALIDITY {
            return wrong("it would be valid for more than a week");
        }
        if self.members.len() > MOST_RELAYS {
            return wrong("it lists more than 10 000 relays");
        }
        if !self.members.is_sorted_by(|a, b| a.descriptor.identity < b.descriptor.identity) {
            return wrong("its relays are not in the order of their identities, each once");
        }
        let mut families = BTreeMap::new();
        let mut networks = BTreeMap::new();
        for member in &self.members {
            member.descriptor.check_bounds().map_err(|error| DocumentError::Member { epoch, error })?;
            if member.weight == 0 || member.weight > member.descriptor.bytes_per_s {
                return wrong("a relay weighs nothing, or more than it says that it carries");
            }
            if member.descriptor.key_of(epoch).is_none() {
                return wrong("a relay has no key for the epoch");
            }
            let of_family = member.family().map_or(0, |family| count(&mut families, family));
            if of_family > MOST_PER_FAMILY {
                return wrong("it lists more than 64 relays of one family");
            }
            if count(&mut networks, member.network()) > MOST_PER_NETWORK {
                return wrong("it lists more than 8 relays in one /24 or /48");
            }
        }
        Ok(())
    }

    /// Its one form in bytes, without signatures.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a document's parts can all be written")
    }

    /// What tells it from any other.
    pub fn hash(&self) -> DocumentHash {
        DocumentHash(blake3::hash(&self.encode()).into())
    }

    /// How many relays there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The relay at a place; none if the document is shorter.
    pub fn member(&self, relay: RelayIndex) -> Option<&Member> {
        self.members.get(usize::from(relay.0))
    }

    /// The place of a relay.
    pub fn index_of(&self, identity: &PublicKey) -> Option<RelayIndex> {
        let place = self.members.binary_search_by(|member| member.descriptor.identity.cmp(identity)).ok()?;
        Some(RelayIndex(place as u16))
    }

    /// Every place, with its relay.
    pub fn relays(&self) -> impl ExactSizeIterator<Item = (RelayIndex, &Member)> {
        self.members.iter().enumerate().map(|(place, member)| (RelayIndex(place as u16), member))
    }
}

/// Counts one more of `key`; how many there are now.
pub(super) fn count<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) -> usize {
    let count = counts.entry(key).or_insert(0);
    *count += 1;
    *count
}

/// A document and who has signed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedDocument {
    document: Document,
    /// Of the ballot in which it was signed. What was written down before ballots had numbers is read, and is not signed.
    #[serde(default)]
    number: u32,
    /// By key.
    signatures: Vec<(PublicKey, Signature)>,
}

impl SignedDocument {
    /// The document with these signatures of this ballot of its epoch, good or not.
    pub fn new(document: Document, number: u32, mut signatures: Vec<(PublicKey, Signature)>) -> SignedDocument {
        signatures.sort_unstable();
        SignedDocument { document, number, signatures }
    }

    /// As it travels.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a document's parts can all be written")
    }

    /// Reads one. What it says counts for nothing before [`SignedDocument::verify`].
    ///
    /// # Errors
    ///
    /// When the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<SignedDocument, DocumentError> {
        if bytes.len() > MOST_DOCUMENT {
            return Err(DocumentError::Unreadable);
        }
        let (signed, rest) =
            postcard::take_from_bytes::<SignedDocument>(bytes).map_err(|_| DocumentError::Unreadable)?;
        // Of one document there is one form: no number is written with more digits than it has.
        if !rest.is_empty() || signed.signatures.len() > MOST_AUTHORITIES || signed.encode() != bytes {
            return Err(DocumentError::Unreadable);
        }
        Ok(signed)
    }

    /// Who has signed, by what the document says: good signatures or not.
    pub fn signatures(&self) -> &[(PublicKey, Signature)] {
        &self.signatures
    }

    /// The ballot by which it says that it came.
    pub fn ballot(&self) -> Ballot {
        Ballot { epoch: self.document.epoch, number: self.number }
    }

    /// The epoch that it says it is of.
    pub fn epoch(&self) -> u64 {
        self.document.epoch
    }

    /// The document, if enough authorities have signed it and it keeps its bounds.
    ///
    /// # Errors
    ///
    /// What is wrong first.
    pub fn verify(self, trust: &Trust) -> Result<(Document, DocumentHash), DocumentError> {
        let (epoch, hash) = (self.document.epoch, self.document.hash());
        let signed = trust.count(Context::Document, self.ballot(), &hash, &self.signatures);
        if signed < trust.threshold() {
            return Err(DocumentError::TooFewSignatures { epoch, signed, needed: trust.threshold() });
        }
        self.document.check()?;
        Ok((self.document, hash))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, authorities, document, sign};
    use super::*;

    #[test]
    fn a_document_is_what_enough_authorities_have_signed() {
        let (keys, trust) = authorities(3, 2);
        let good = sign(&document(1, 5), &keys[..2]);
        let bytes = good.encode();
        let (read, hash) = SignedDocument::decode(&bytes).unwrap().verify(&trust).unwrap();
        assert_eq!((read.clone(), hash), (document(1, 5), document(1, 5).hash()));
        let alone = sign(&document(1, 5), &keys[..1]);
        let refused = DocumentError::TooFewSignatures { epoch: 1, signed: 1, needed: 2 };
        assert_eq!(alone.verify(&trust), Err(refused));
        for bit in 0..8 * bytes.len() {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let verified = SignedDocument::decode(&changed).and_then(|signed| signed.verify(&trust));
            assert!(verified.is_err(), "bit {bit} is not signed");
        }
    }

    #[test]
    fn who_has_other_terms_than_the_list_learns_which() {
        let listed = document(1, 5).terms;
        assert_eq!(listed.check(listed), Ok(()));
        let said = |own: Terms| own.check(listed).unwrap_err().to_string();
        assert!(said(Terms { packets_per_key: 16, ..listed }).starts_with(
            "the network's file has packets_per_key = 16, and the list of relays that its authorities have signed 64:"
        ));
        assert!(said(Terms { epoch_s: 60, ..listed }).starts_with("the network's file has epoch_s = 60, and"));
    }

    #[test]
    fn places_follow_identities() {
        let document = document(1, 20);
        for (relay, member) in document.relays() {
            assert_eq!(document.index_of(&member.descriptor.identity), Some(relay));
        }
        assert_eq!(document.index_of(&testing::key(200).public()), None);
        assert_eq!(document.member(RelayIndex(20)), None);
    }

    #[test]
    fn bounds_are_kept() {
        type Break = (&'static str, fn(&mut Document));
        let broken: [Break; 7] = [
            ("order", |d| d.members.swap(0, 1)),
            ("twice", |d| d.members[1] = d.members[0].clone()),
            ("never", |d| d.valid_until = d.valid_from),
            ("week", |d| d.valid_until = d.valid_from.after(LONGEST_VALIDITY + 1)),
            ("weight", |d| d.members[0].weight = 0),
            ("heavier", |d| d.members[0].weight = d.members[0].descriptor.bytes_per_s + 1),
            ("key", |d| d.members[0].descriptor.epoch_keys[0].epoch = 9),
        ];
        assert_eq!(document(1, 5).check(), Ok(()));
        for (name, breaks) in broken {
            let mut document = document(1, 5);
            breaks(&mut document);
            assert!(document.check().is_err(), "{name}");
        }
        let mut crowded = document(1, 9);
        for (last, member) in crowded.members.iter_mut().enumerate() {
            member.descriptor.address = ([192, 0, 2, last as u8 + 1], 9).into();
        }
        assert!(crowded.check().unwrap_err().to_string().contains("8 relays in one /24"));
        crowded.members.pop();
        assert_eq!(crowded.check(), Ok(()));
    }

    #[test]
    fn a_family_has_a_bounded_part_of_the_document() {
        let family = testing::key(99);
        let mut document = document(1, MOST_PER_FAMILY + 1);
        for member in &mut document.members {
            let identity = member.descriptor.identity;
            member.descriptor.family = Some(super::super::Family::admit(&family, &identity));
        }
        assert!(document.check().unwrap_err().to_string().contains("one family"));
        document.members.pop();
        assert_eq!(document.check(), Ok(()));
    }
}

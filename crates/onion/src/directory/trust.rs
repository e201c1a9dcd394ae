//! Whom a user believes: this many of these authorities.

use std::collections::BTreeSet;

use thiserror::Error;

use super::ballot::Ballot;
use super::hash::DocumentHash;
use super::keys::{Context, PublicKey, Signature};

/// Authorities that there may be.
pub const MOST_AUTHORITIES: usize = 16;

/// A set of a authorities, of which t must have signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    authorities: Vec<PublicKey>,
    threshold: usize,
}

/// Why there is nobody to believe.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TrustError {
    /// Too few or too many.
    #[error("there are {0} authorities; expected 1 to {MOST_AUTHORITIES}")]
    Count(usize),
    /// One is there twice.
    #[error("authority {0} is named twice; expected different keys")]
    Twice(PublicKey),
    /// The threshold is none.
    #[error(
        "a threshold of {threshold} of {authorities} authorities; expected more than half, so that no two \
         documents of one epoch have enough signatures, and no more than there are"
    )]
    Threshold {
        /// Signatures that were to be asked for.
        threshold: usize,
        /// How many there can be.
        authorities: usize,
    },
}

impl Trust {
    /// Believes `threshold` of `authorities`, in whatever order they are named.
    ///
    /// # Errors
    ///
    /// When there are none or too many, when one is named twice, or when the threshold is no majority.
    pub fn new(authorities: &[PublicKey], threshold: usize) -> Result<Trust, TrustError> {
        let count = authorities.len();
        if !(1..=MOST_AUTHORITIES).contains(&count) {
            return Err(TrustError::Count(count));
        }
        let mut sorted = authorities.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TrustError::Twice(pair[0]));
        }
        if 2 * threshold <= count || threshold > count {
            return Err(TrustError::Threshold { threshold, authorities: count });
        }
        Ok(Trust { authorities: sorted, threshold })
    }

    /// The authorities, by their keys.
    pub fn authorities(&self) -> &[PublicKey] {
        &self.authorities
    }

    /// How many must have signed, t.
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// How many may be silent or lie, a − t.
    pub fn faulty(&self) -> usize {
        self.authorities.len() - self.threshold
    }

    /// Whether `key` is an authority's.
    pub fn includes(&self, key: &PublicKey) -> bool {
        self.authorities.binary_search(key).is_ok()
    }

    /// How many of the authorities have signed this of the document with this hash in `ballot`. What
    /// others have signed, and what one has signed twice, counts for nothing.
    pub fn count(
        &self,
        context: Context,
        ballot: Ballot,
        hash: &DocumentHash,
        signatures: &[(PublicKey, Signature)],
    ) -> usize {
        let message = ballot.signed_bytes(hash);
        let mut good = BTreeSet::new();
        // More than there are authorities are not looked at: each costs a multiplication on the curve.
        for (key, signature) in signatures.iter().take(MOST_AUTHORITIES) {
            if self.includes(key) && !good.contains(key) && key.verifies(context, &message, signature) {
                good.insert(*key);
            }
        }
        good.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::SecretKey;
    use super::*;

    fn keys(count: u8) -> Vec<SecretKey> {
        (0..count).map(|n| SecretKey::from_seed(&[n; 32])).collect()
    }

    #[test]
    fn only_a_majority_of_different_authorities_is_a_trust() {
        let keys: Vec<PublicKey> = keys(4).iter().map(SecretKey::public).collect();
        assert_eq!(Trust::new(&[], 1), Err(TrustError::Count(0)));
        assert_eq!(Trust::new(&keys, 2), Err(TrustError::Threshold { threshold: 2, authorities: 4 }));
        assert_eq!(Trust::new(&keys, 5), Err(TrustError::Threshold { threshold: 5, authorities: 4 }));
        assert_eq!(Trust::new(&[keys[0], keys[1], keys[0]], 2), Err(TrustError::Twice(keys[0])));
        let trust = Trust::new(&keys, 3).unwrap();
        assert_eq!((trust.threshold(), trust.faulty()), (3, 1));
        let other_way: Vec<PublicKey> = keys.iter().rev().copied().collect();
        assert_eq!(Trust::new(&other_way, 3).unwrap(), trust);
    }

    #[test]
    fn a_signature_counts_once_and_only_for_its_purpose_ballot_and_hash() {
        let keys = keys(3);
        let public: Vec<PublicKey> = keys.iter().map(SecretKey::public).collect();
        let trust = Trust::new(&public[..2], 2).unwrap();
        let (ballot, hash) = (Ballot { epoch: 7, number: 1 }, DocumentHash([5; 32]));
        let sign = |key: &SecretKey| (key.public(), key.sign(Context::Document, &ballot.signed_bytes(&hash)));
        let signatures = [sign(&keys[0]), sign(&keys[0]), sign(&keys[2])];
        let count = |ballot, hash, signatures: &[_]| trust.count(Context::Document, ballot, &hash, signatures);
        assert_eq!(count(ballot, hash, &signatures), 1);
        assert_eq!(count(Ballot { epoch: 8, ..ballot }, hash, &signatures), 0);
        assert_eq!(count(Ballot { number: 2, ..ballot }, hash, &signatures), 0);
        assert_eq!(count(ballot, DocumentHash([6; 32]), &signatures), 0);
        assert_eq!(trust.count(Context::Prepare, ballot, &hash, &signatures), 0);
        assert_eq!(count(ballot, hash, &[sign(&keys[0]), sign(&keys[1])]), 2);
    }
}

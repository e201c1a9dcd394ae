//! What a user believes: the newest document that was ever seen, and never one before it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::clock::UnixTime;
use super::document::{Document, DocumentError, SignedDocument};
use super::hash::DocumentHash;
use super::trust::Trust;

/// How far a document's beginning may lie ahead of the user's clock, in seconds.
pub const CLOCK_SKEW: u64 = 300;

/// What must outlive a restart, or an old document could be passed off as the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The epoch of the newest document seen.
    pub epoch: u64,
    /// Its hash.
    pub hash: DocumentHash,
}

/// Why a document is not taken, or none is to be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ViewError {
    /// It is none that the authorities have signed.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// It is older than what was seen before.
    #[error("the document is of epoch {epoch}, and one of epoch {seen} was seen before: somebody rolls back")]
    RolledBack {
        /// Whose it is.
        epoch: u64,
        /// The newest that was seen.
        seen: u64,
    },
    /// There are two of one epoch, both signed by enough authorities.
    #[error(
        "there are two documents of epoch {epoch}, {seen} and {other}, both signed by enough authorities: \
         some of them show different users different relays"
    )]
    TwoViews {
        /// Whose they are.
        epoch: u64,
        /// The one that was seen first.
        seen: DocumentHash,
        /// The one that is refused.
        other: DocumentHash,
    },
    /// It does not follow the one before.
    #[error("the document of epoch {epoch} follows {previous}, and that of the epoch before was {seen}")]
    NotTheNext {
        /// Whose it is.
        epoch: u64,
        /// What it says that it follows.
        previous: DocumentHash,
        /// What was seen.
        seen: DocumentHash,
    },
    /// It is too old.
    #[error(
        "the document of epoch {epoch} was valid until {until}, and now it is {now}: get a newer one, or set this machine's clock if that is wrong"
    )]
    Stale {
        /// Whose it is.
        epoch: u64,
        /// When it ended.
        until: UnixTime,
        /// The user's clock.
        now: UnixTime,
    },
    /// It is not yet valid.
    #[error("the document of epoch {epoch} is valid from {from}, and now it is {now}: is the clock right?")]
    Early {
        /// Whose it is.
        epoch: u64,
        /// When it begins.
        from: UnixTime,
        /// The user's clock.
        now: UnixTime,
    },
    /// None was taken yet.
    #[error("there is no document yet")]
    None,
}

/// A user's view of who the relays are.
#[derive(Clone, Debug)]
pub struct View {
    trust: Trust,
    remembered: Remembered,
    current: Option<Document>,
}

impl View {
    /// Believes `trust`, and remembers what was seen before a restart.
    pub fn new(trust: Trust, remembered: Remembered) -> View {
        View { trust, remembered, current: None }
    }

    /// Takes the document in `bytes` if it is signed, valid at `now`, and none before what was seen.
    /// True if it is another one than the view had: [`View::remembered`] is then to be written down
    /// before the document is used.
    ///
    /// # Errors
    ///
    /// Why it is not taken; the view stays as it was.
    pub fn accept(&mut self, bytes: &[u8], now: UnixTime) -> Result<bool, ViewError> {
        let (document, hash) = SignedDocument::decode(bytes)?.verify(&self.trust)?;
        let Remembered { epoch: seen, hash: seen_hash } = self.remembered;
        let epoch = document.epoch;
        let knows_one = self.remembered != Remembered::default();
        if epoch < seen {
            return Err(ViewError::RolledBack { epoch, seen });
        }
        if knows_one && epoch == seen && hash != seen_hash {
            return Err(ViewError::TwoViews { epoch, seen: seen_hash, other: hash });
        }
        if knows_one && epoch.checked_sub(1) == Some(seen) && document.previous != seen_hash {
            return Err(ViewError::NotTheNext { epoch, previous: document.previous, seen: seen_hash });
        }
        check_time(&document, now)?;
        let is_new = self.current.as_ref().is_none_or(|current| current.epoch < epoch);
        if is_new {
            self.remembered = Remembered { epoch, hash };
            self.current = Some(document);
        }
        Ok(is_new)
    }

    /// The document to use at `now`.
    ///
    /// # Errors
    ///
    /// When there is none, or it is too old by now.
    pub fn document(&self, now: UnixTime) -> Result<&Document, ViewError> {
        let document = self.current.as_ref().ok_or(ViewError::None)?;
        check_time(document, now)?;
        Ok(document)
    }

    /// What must outlive a restart; its hash is what users compare.
    pub fn remembered(&self) -> Remembered {
        self.remembered
    }

    /// Whom it believes.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }
}

fn check_time(document: &Document, now: UnixTime) -> Result<(), ViewError> {
    let Document { epoch, valid_from: from, valid_until: until, .. } = *document;
    if now >= until {
        return Err(ViewError::Stale { epoch, until, now });
    }
    if now.after(CLOCK_SKEW) < from {
        return Err(ViewError::Early { epoch, from, now });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{authorities, document, sign};
    use super::*;

    /// Within the first hour of `epoch`.
    fn during(epoch: u64) -> UnixTime {
        UnixTime(3600 * epoch + 60)
    }

    #[test]
    fn p11_stale_and_rolled_back_documents_are_refused_and_all_see_one() {
        let (keys, trust) = authorities(3, 2);
        let mut view = View::new(trust.clone(), Remembered::default());
        assert_eq!(view.document(during(1)), Err(ViewError::None));
        let first = document(1, 5);
        let second = Document { previous: first.hash(), ..document(2, 6) };
        let bytes = |document: &Document| sign(document, &keys).encode();
        assert_eq!(view.accept(&bytes(&first), during(1)), Ok(true));
        assert_eq!(view.accept(&bytes(&first), during(1)), Ok(false), "it is known already");
        let other = document(1, 4);
        let two = ViewError::TwoViews { epoch: 1, seen: first.hash(), other: other.hash() };
        assert_eq!(view.accept(&bytes(&other), during(1)), Err(two));
        let unlinked = document(2, 6);
        assert!(matches!(view.accept(&bytes(&unlinked), during(2)), Err(ViewError::NotTheNext { epoch: 2, .. })));
        assert_eq!(view.document(during(2)).unwrap().len(), 5, "what is refused changes nothing");
        assert_eq!(view.accept(&bytes(&second), during(2)), Ok(true));
        assert_eq!(view.accept(&bytes(&first), during(2)), Err(ViewError::RolledBack { epoch: 1, seen: 2 }));

        // Also after a restart, with what was remembered.
        let mut restarted = View::new(trust, view.remembered());
        assert_eq!(restarted.accept(&bytes(&first), during(2)), Err(ViewError::RolledBack { epoch: 1, seen: 2 }));
        assert!(matches!(restarted.accept(&bytes(&unlinked), during(2)), Err(ViewError::TwoViews { .. })));
        assert_eq!(restarted.accept(&bytes(&second), during(2)), Ok(true));

        let late = during(9);
        assert!(matches!(view.document(late), Err(ViewError::Stale { epoch: 2, .. })));
        let stale = view.document(late).unwrap_err().to_string();
        assert!(stale.contains("this machine's clock"), "an honest list, and a clock that is wrong: {stale}");
        assert!(matches!(view.accept(&bytes(&document(3, 5)), late), Err(ViewError::NotTheNext { .. })));
        assert!(matches!(view.accept(&bytes(&document(4, 5)), late), Err(ViewError::Stale { epoch: 4, .. })));
        assert!(matches!(view.accept(&bytes(&document(4, 5)), during(2)), Err(ViewError::Early { epoch: 4, .. })));
        assert_eq!(view.remembered().epoch, 2);
    }

    #[test]
    fn who_was_away_for_epochs_takes_the_newest() {
        let (keys, trust) = authorities(3, 2);
        let mut view = View::new(trust, Remembered { epoch: 1, hash: document(1, 5).hash() });
        // That of epoch 2 was never seen; what links the third to it cannot be checked.
        assert_eq!(view.accept(&sign(&document(3, 5), &keys).encode(), during(3)), Ok(true));
    }
}

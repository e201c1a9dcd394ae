//! Whose files a receiver takes.

use crate::seal::PublicKey;

/// Whose files a receiver takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Senders {
    /// Anybody's.
    #[default]
    Anybody,
    /// Those of who proves to hold the secret of one of these keys.
    Only(Vec<PublicKey>),
}

impl Senders {
    /// Why nothing is taken from who has proved to hold `key`, or has shown none.
    pub fn refusal(&self, key: Option<&PublicKey>) -> Option<String> {
        const ONLY: &str = "only senders whose keys are known here may send";
        match (self, key) {
            (Senders::Only(known), Some(key)) if !known.contains(key) => Some(format!("{ONLY}, and {key} is not")),
            (Senders::Only(_), None) => Some(format!("{ONLY}, and this one has shown none")),
            _ => None,
        }
    }
}

impl From<Vec<PublicKey>> for Senders {
    /// Anybody's, if no key is named.
    fn from(keys: Vec<PublicKey>) -> Senders {
        if keys.is_empty() { Senders::Anybody } else { Senders::Only(keys) }
    }
}

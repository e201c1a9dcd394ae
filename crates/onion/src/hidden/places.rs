//! Which relays keep the descriptor of an address: those whose hash with its blinded key is least (rendezvous
//! hashing, Thaler and Ravishankar 1998).
//!
//! There is nothing to be asked and no hash table to be joined: everybody has the same list of an epoch, and with it
//! the same answer. A relay that goes changes the places that it had and no other. Whose places will be where, nobody
//! can know before the epoch's list without the address; whoever has it can know, and who would make relays with
//! matching keys must have had them listed before.

use crate::RelayIndex;
use crate::directory::{Document, PublicKey};

/// Relays that keep a descriptor: with a fifth of all relays silent, all six are in one case in 15 000.
pub const STORES: usize = 6;

const CONTEXT: &str = "anabranch onion descriptor places 1";

/// The relays of `document` that keep what is signed by `blinded`, fewer where there are fewer.
pub fn stores(document: &Document, blinded: &PublicKey) -> Vec<RelayIndex> {
    let base = {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&document.epoch.to_be_bytes()).update(&blinded.0);
        hasher
    };
    let distance = |identity: &PublicKey| *base.clone().update(&identity.0).finalize().as_bytes();
    let mut all: Vec<([u8; 32], RelayIndex)> =
        document.relays().map(|(relay, member)| (distance(&member.descriptor.identity), relay)).collect();
    all.sort_unstable();
    all.truncate(STORES);
    all.into_iter().map(|(_, relay)| relay).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::directory::testing::document;

    #[test]
    fn places_differ_by_key_and_epoch_and_are_spread_evenly() {
        let (one, other) = (document(1, 60), document(2, 60));
        let key = |number: u16| PublicKey(core::array::from_fn(|place| number.to_be_bytes()[place % 2]));
        assert_eq!(stores(&one, &key(1)), stores(&one, &key(1)));
        assert_ne!(stores(&one, &key(1)), stores(&one, &key(2)));
        assert_ne!(stores(&one, &key(1)), stores(&other, &key(1)));
        assert_eq!(stores(&document(1, 4), &key(1)).len(), 4);
        let mut loads = BTreeMap::new();
        for number in 0..1000 {
            stores(&one, &key(number)).into_iter().for_each(|relay| *loads.entry(relay).or_insert(0) += 1);
        }
        // 6000 places over 60 relays: 100 each, σ about 10.
        assert!(loads.len() == 60 && loads.values().all(|load| (55..150).contains(load)), "{loads:?}");
    }

    #[test]
    fn a_relay_that_goes_moves_no_places_but_its_own() {
        let all = document(1, 40);
        let names = |document: &Document, key: &PublicKey| -> Vec<PublicKey> {
            let identity = |relay| document.member(relay).unwrap().descriptor.identity;
            stores(document, key).into_iter().map(identity).collect()
        };
        let mut fewer = all.clone();
        let gone = fewer.members.remove(7).descriptor.identity;
        for number in 0..50 {
            let key = PublicKey([number; 32]);
            let before: Vec<_> = names(&all, &key).into_iter().filter(|name| *name != gone).collect();
            assert_eq!(before[..], names(&fewer, &key)[..before.len()]);
        }
    }
}

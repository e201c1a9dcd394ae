//! The relays that one authority has heard of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::clock::{DAY, UnixTime};
use super::descriptor::SignedDescriptor;
use super::document::{MOST_PER_NETWORK, MOST_RELAYS, count};
use super::keys::PublicKey;
use super::message::Refusal;
use super::network::Network;
use super::view::CLOCK_SKEW;
use super::vote::Seen;

/// Relays that one authority remembers: all that a document lists, and as many that wait for a place.
const MOST_KNOWN: usize = 2 * MOST_RELAYS;

/// And of one network.
const MOST_KNOWN_PER_NETWORK: usize = 2 * MOST_PER_NETWORK;

/// A relay that was silent for so long begins anew, in seconds.
const FORGOTTEN_AFTER: u64 = 7 * DAY;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownRelay {
    relay: SignedDescriptor,
    since: UnixTime,
    heard: UnixTime,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Known {
    relays: BTreeMap<PublicKey, KnownRelay>,
    networks: BTreeMap<Network, usize>,
    /// Descriptors whose signatures were checked.
    hashes: BTreeMap<[u8; 32], PublicKey>,
}

impl Known {
    /// What was written down before a restart; what breaks a bound is left out.
    pub fn restore(relays: Vec<KnownRelay>) -> Known {
        let mut known = Known::default();
        for relay in relays {
            if known.room_for(&relay.relay).is_ok() && relay.relay.check().is_ok() {
                known.insert(relay);
            }
        }
        known
    }

    /// To be written down.
    pub fn state(&self) -> Vec<KnownRelay> {
        self.relays.values().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.relays.len()
    }

    /// Whether a descriptor with this hash was checked.
    pub fn has_checked(&self, hash: &[u8; 32]) -> bool {
        self.hashes.contains_key(hash)
    }

    /// A relay has handed in what it says of itself, over a session that proves its address. True if that is another
    /// descriptor than was known, so that there is something to write down.
    pub fn take(&mut self, relay: &SignedDescriptor, now: UnixTime) -> Result<bool, Refusal> {
        let descriptor = &relay.descriptor;
        if descriptor.published > now.after(CLOCK_SKEW) {
            return Err(Refusal::FromTheFuture);
        }
        let before = self.relays.get(&descriptor.identity);
        if let Some(before) = before {
            if before.relay == *relay {
                self.relays.get_mut(&descriptor.identity).expect("it is there").heard = now;
                return Ok(false);
            }
            if descriptor.published <= before.relay.descriptor.published {
                return Err(Refusal::NotNewer);
            }
        }
        relay.check().map_err(|_| Refusal::Invalid)?;
        let since = before.map_or(now, |before| before.since);
        let removed = self.remove(&descriptor.identity);
        if let Err(refusal) = self.room_for(relay) {
            if let Some(removed) = removed {
                self.insert(removed);
            }
            return Err(refusal);
        }
        self.insert(KnownRelay { relay: relay.clone(), since, heard: now });
        Ok(true)
    }

    /// What a vote for `epoch` lists: relays that were heard within `within` seconds, by identity. Of more
    /// than a document lists, the oldest, or who makes many keys could choose which ones.
    pub fn seen(&self, epoch: u64, now: UnixTime, within: u64) -> Vec<Seen> {
        let lives =
            |known: &&KnownRelay| now.since(known.heard) <= within && known.relay.descriptor.key_of(epoch).is_some();
        let mut alive: Vec<&KnownRelay> = self.relays.values().filter(lives).collect();
        let identity = |known: &KnownRelay| known.relay.descriptor.identity;
        alive.sort_by_key(|known| (known.since, identity(known)));
        alive.truncate(MOST_RELAYS);
        alive.sort_by_key(|known| identity(known));
        alive.into_iter().map(|known| Seen { relay: known.relay.clone(), since: known.since }).collect()
    }

    /// Forgets who was silent for too long.
    pub fn forget(&mut self, now: UnixTime) {
        let silent = |known: &&KnownRelay| now.since(known.heard) > FORGOTTEN_AFTER;
        let gone: Vec<PublicKey> =
            self.relays.values().filter(silent).map(|known| known.relay.descriptor.identity).collect();
        for identity in gone {
            self.remove(&identity);
        }
    }

    fn room_for(&self, relay: &SignedDescriptor) -> Result<(), Refusal> {
        let network = Network::of(relay.descriptor.address.ip());
        if self.networks.get(&network).is_some_and(|&count| count >= MOST_KNOWN_PER_NETWORK) {
            return Err(Refusal::NetworkIsFull);
        }
        match self.relays.len() < MOST_KNOWN {
            true => Ok(()),
            false => Err(Refusal::Full),
        }
    }

    fn insert(&mut self, known: KnownRelay) {
        count(&mut self.networks, Network::of(known.relay.descriptor.address.ip()));
        let identity = known.relay.descriptor.identity;
        self.hashes.insert(known.relay.hash(), identity);
        self.relays.insert(identity, known);
    }

    fn remove(&mut self, identity: &PublicKey) -> Option<KnownRelay> {
        let removed = self.relays.remove(identity)?;
        self.hashes.remove(&removed.relay.hash());
        let network = Network::of(removed.relay.descriptor.address.ip());
        if let Some(count) = self.networks.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.networks.remove(&network);
            }
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{descriptor, key};
    use super::*;

    const NOW: UnixTime = UnixTime(100_000);

    #[test]
    fn a_newer_descriptor_takes_the_place_of_the_older_and_age_stays() {
        let mut known = Known::default();
        let first = descriptor(1).sign(&key(1)).unwrap();
        assert_eq!(known.take(&first, NOW), Ok(true));
        assert_eq!(known.take(&first, NOW.after(50)), Ok(false));
        let mut moved = descriptor(1);
        moved.address.set_port(9);
        assert_eq!(known.take(&moved.clone().sign(&key(1)).unwrap(), NOW), Err(Refusal::NotNewer));
        moved.published = NOW;
        let moved = moved.sign(&key(1)).unwrap();
        assert_eq!(known.take(&moved, NOW.after(60)), Ok(true));
        assert_eq!(known.seen(1, NOW.after(60), 10), [Seen { relay: moved, since: NOW }]);
        assert!(!known.has_checked(&first.hash()));
        assert!(known.seen(1, NOW.after(100), 10).is_empty(), "it was silent");
        let mut future = descriptor(2);
        future.published = NOW.after(CLOCK_SKEW + 1);
        assert_eq!(known.take(&future.sign(&key(2)).unwrap(), NOW), Err(Refusal::FromTheFuture));
    }

    #[test]
    fn one_network_fills_its_own_places_alone() {
        let mut known = Known::default();
        let mut refused = 0;
        for number in 0..20u16 {
            let mut crowded = descriptor(number);
            crowded.address = ([192, 0, 2, number as u8 + 1], 9).into();
            refused +=
                usize::from(known.take(&crowded.sign(&key(number)).unwrap(), NOW) == Err(Refusal::NetworkIsFull));
        }
        assert_eq!((known.len(), refused), (16, 4));
        assert_eq!(known.take(&descriptor(30).sign(&key(30)).unwrap(), NOW), Ok(true));
        known.forget(NOW.after(FORGOTTEN_AFTER + 1));
        assert_eq!((known.len(), known.networks.len(), known.hashes.len()), (0, 0, 0));
    }
}

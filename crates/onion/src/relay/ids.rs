//! The keys that were set up, and the ids of the packets that may come under them.
//!
//! Keys stand in the order in which they were set up; an id leads to its key and its index. The ids of a key
//! are derived some ahead of the newest seen, in order, each once: an id that was used is deleted and never
//! comes back. When there is no room, the oldest keys go, with what is left of their ids.

use std::collections::VecDeque;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::crypto::{Cryptography, HopKey, OneTimeId};
use crate::packet::{AHEAD, AHEAD_AT_FIRST, PacketsPerKey};
use crate::relay::Limits;

/// Ids are derived this many at once, for less work each.
const STEP: u16 = 8;

/// Keys that one call of [`Installed::forget_others`] looks at.
const SWEPT_AT_ONCE: usize = 256;

/// The packet that an id is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    id: OneTimeId,
    /// The key's number; numbers wrap, and no two kept ones are equal.
    key: u32,
    pub index: u16,
}

#[derive(Debug)]
struct Key {
    key: HopKey,
    epoch: u64,
    /// The first index whose id was not derived yet.
    derived: u16,
    /// Ids in the table.
    awaited: u16,
}

#[derive(Debug)]
pub(super) struct Installed<C> {
    packets: PacketsPerKey,
    /// Parts of the table. Each grows for itself, so that no packet waits for more than a small one.
    shards: Box<[HashTable<Found>]>,
    /// Keyed: nobody can make ids that all go to one place.
    hasher: ahash::RandomState,
    most_in_shard: usize,
    keys: VecDeque<Key>,
    most_keys: usize,
    /// The number of the first of `keys`.
    first: u32,
    /// The number of the next key to look at, while those of another epoch are taken away.
    sweep: Option<u32>,
    cryptography: core::marker::PhantomData<C>,
}

impl<C: Cryptography> Installed<C> {
    pub fn new(limits: &Limits, packets: PacketsPerKey, [one, other]: [u64; 2]) -> Installed<C> {
        let shards = limits.shards.max(1);
        Installed {
            packets,
            shards: (0..shards).map(|_| HashTable::new()).collect(),
            hasher: ahash::RandomState::with_seeds(one, !other, other, !one),
            most_in_shard: (limits.ids / shards).max(usize::from(AHEAD) + usize::from(STEP)),
            keys: VecDeque::new(),
            most_keys: limits.keys.max(1),
            first: 0,
            sweep: None,
            cryptography: core::marker::PhantomData,
        }
    }

    /// Where `id` leads, if it is awaited.
    pub fn find(&self, id: OneTimeId) -> Option<Found> {
        let hash = self.hasher.hash_one(id);
        self.shards[self.shard_of(hash)].find(hash, |found| found.id == id).copied()
    }

    pub fn key(&self, found: &Found) -> &HopKey {
        &self.at(found.key).key
    }

    pub fn epoch(&self, found: &Found) -> u64 {
        self.at(found.key).epoch
    }

    /// Deletes an id, and derives further ones of its key; how many keys went for them before their time.
    pub fn spend(&mut self, found: Found) -> u64 {
        self.delete(found.id, found.key);
        let most = self.packets.get();
        let place = self.place(found.key);
        let key = &mut self.keys[place];
        key.awaited -= 1;
        // A sender that knows of this packet uses ids up to index + AHEAD.
        let until = found.index.saturating_add(1 + AHEAD + STEP).min(most);
        let lacks = until.saturating_sub(key.derived);
        let evicted = if lacks >= STEP || (lacks > 0 && until == most) { self.derive(found.key, until) } else { 0 };
        self.tidy();
        evicted
    }

    /// Takes `key` in, whose packet 0 has come; how many keys went for it before their time.
    pub fn install(&mut self, key: HopKey, epoch: u64) -> u64 {
        let most = self.packets.get();
        if most == 1 {
            return 0;
        }
        let mut evicted = 0;
        while self.keys.len() >= self.most_keys {
            evicted += u64::from(self.keys[0].awaited > 0);
            self.forget_oldest();
        }
        let number = self.first.wrapping_add(self.keys.len() as u32);
        self.keys.push_back(Key { key, epoch, derived: 1, awaited: 0 });
        evicted + self.derive(number, (1 + AHEAD_AT_FIRST).min(most))
    }

    /// Derives the ids of a key up to `until`; how many others went for it before their time.
    fn derive(&mut self, number: u32, until: u16) -> u64 {
        let mut ids = [0; (AHEAD + STEP) as usize];
        let place = self.place(number);
        let first = self.keys[place].derived;
        let ids = &mut ids[..usize::from(until - first)];
        C::ids(&self.keys[place].key, first, ids);
        self.keys[place].derived = until;
        let (mut evicted, mut awaited) = (0, 0);
        for (&mut id, index) in ids.iter_mut().zip(first..) {
            let hash = self.hasher.hash_one(id);
            let shard = self.shard_of(hash);
            // The oldest key may be the one that needs room: then it makes do with less.
            while self.shards[shard].len() >= self.most_in_shard && self.first != number {
                evicted += u64::from(self.keys[0].awaited > 0);
                self.forget_oldest();
            }
            let shard = &mut self.shards[shard];
            if shard.len() >= self.most_in_shard {
                continue;
            }
            let rehash = |found: &Found| self.hasher.hash_one(found.id);
            if let Entry::Vacant(vacant) = shard.entry(hash, |found| found.id == id, rehash) {
                vacant.insert(Found { id, key: number, index });
                awaited += 1;
            }
        }
        // It is there still: whoever needs room takes others.
        let place = self.place(number);
        self.keys[place].awaited += awaited;
        evicted
    }

    /// Takes the oldest keys away that await nothing.
    fn tidy(&mut self) {
        while self.keys.front().is_some_and(|key| key.awaited == 0) {
            self.forget_oldest();
        }
    }

    /// All keys here now are to be looked at by [`forget_others`](Installed::forget_others).
    pub fn begin_sweep(&mut self) {
        self.sweep = Some(self.first);
    }

    /// Whether some are still to be looked at.
    pub fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// Looks at some keys, and takes those away that are of none of `epochs`.
    pub fn forget_others(&mut self, epochs: [u64; 2]) {
        let Some(next) = self.sweep else { return };
        // The oldest may have gone since.
        let begin = if self.place(next) < self.keys.len() { self.place(next) } else { 0 };
        let end = (begin + SWEPT_AT_ONCE).min(self.keys.len());
        for place in begin..end {
            if !epochs.contains(&self.keys[place].epoch) {
                self.empty(place);
            }
        }
        self.sweep = (end < self.keys.len()).then(|| self.first.wrapping_add(end as u32));
        self.tidy();
    }

    fn forget_oldest(&mut self) {
        self.empty(0);
        self.keys.pop_front();
        self.first = self.first.wrapping_add(1);
    }

    /// Takes away what is left of a key's ids, and wipes it.
    fn empty(&mut self, place: usize) {
        let number = self.first.wrapping_add(place as u32);
        let derived = self.keys[place].derived;
        let mut ids = [0; STEP as usize];
        for first in (1..derived).step_by(usize::from(STEP)) {
            if self.keys[place].awaited == 0 {
                break;
            }
            let ids = &mut ids[..usize::from((derived - first).min(STEP))];
            C::ids(&self.keys[place].key, first, ids);
            for &mut id in ids {
                let deleted = self.delete(id, number);
                self.keys[place].awaited -= u16::from(deleted);
            }
        }
        self.keys[place].key = HopKey([0; HopKey::BYTES]);
        self.keys[place].awaited = 0;
    }

    /// Deletes an id of this key; whether it was there.
    fn delete(&mut self, id: OneTimeId, key: u32) -> bool {
        let hash = self.hasher.hash_one(id);
        let shard = self.shard_of(hash);
        let entry = self.shards[shard].find_entry(hash, |found| found.id == id && found.key == key);
        entry.map(|entry| entry.remove()).is_ok()
    }

    /// By bits of the hash that a small table makes no use of.
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize % self.shards.len()
    }

    fn place(&self, number: u32) -> usize {
        number.wrapping_sub(self.first) as usize
    }

    fn at(&self, number: u32) -> &Key {
        &self.keys[self.place(number)]
    }

    pub fn ids(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    /// Bytes that are taken.
    pub fn memory(&self) -> usize {
        let ids: usize = self.shards.iter().map(HashTable::allocation_size).sum();
        ids + self.keys.capacity() * size_of::<Key>()
    }
}

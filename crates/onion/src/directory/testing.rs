//! Relays, documents and authorities for tests.

use super::ballot::Ballot;
use super::clock::UnixTime;
use super::descriptor::{Descriptor, EpochKey, ExitPolicy};
use super::document::{Document, Member, SignedDocument, Terms};
use super::hash::DocumentHash;
use super::keys::{Context, PublicKey, SecretKey};
use super::trust::Trust;

/// The key pair of relay `number`.
pub fn key(number: u16) -> SecretKey {
    let mut seed = [0x51; 32];
    seed[..2].copy_from_slice(&number.to_le_bytes());
    SecretKey::from_seed(&seed)
}

/// Relay `number`, in a network of its own, with keys for the first three epochs.
pub fn descriptor(number: u16) -> Descriptor {
    let [low, high] = number.to_le_bytes();
    Descriptor {
        identity: key(number).public(),
        published: UnixTime(1_000),
        address: ([10, high, low, 1], 4000).into(),
        bytes_per_s: 1_000_000,
        epoch_keys: (1..=3).map(|epoch| EpochKey { epoch, key: [low; 32] }).collect(),
        family: None,
        exit: ExitPolicy::default(),
        service: None,
    }
}

/// A document of this many relays of equal weight, numbered from 0.
pub fn document(epoch: u64, relays: usize) -> Document {
    let mut members: Vec<Member> = (0..relays as u16)
        .map(|number| {
            let epoch_keys = (epoch..epoch + 3).map(|epoch| EpochKey { epoch, key: [1; 32] }).collect();
            let descriptor = Descriptor { epoch_keys, ..descriptor(number) };
            Member { descriptor, since: UnixTime(0), weight: 1_000_000, guard: true }
        })
        .collect();
    members.sort_by_key(|member| member.descriptor.identity);
    Document {
        epoch,
        valid_from: UnixTime(3600 * epoch),
        valid_until: UnixTime(3600 * (epoch + 3)),
        previous: DocumentHash::default(),
        terms: Terms { epoch_s: 3600, packets_per_key: 64 },
        members,
    }
}

/// This many authorities, by key, of which `threshold` must sign.
pub fn authorities(count: u16, threshold: usize) -> (Vec<SecretKey>, Trust) {
    let mut keys: Vec<SecretKey> = (0..count).map(|number| key(1000 + number)).collect();
    keys.sort_by_key(SecretKey::public);
    let public: Vec<PublicKey> = keys.iter().map(SecretKey::public).collect();
    let trust = Trust::new(&public, threshold).expect("a majority");
    (keys, trust)
}

/// The document, signed by `keys`.
pub fn sign(document: &Document, keys: &[SecretKey]) -> SignedDocument {
    let message = Ballot::first(document.epoch).signed_bytes(&document.hash());
    let signatures = keys.iter().map(|key| (key.public(), key.sign(Context::Document, &message)));
    SignedDocument::new(document.clone(), 0, signatures.collect())
}

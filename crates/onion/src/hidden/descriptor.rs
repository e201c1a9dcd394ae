//! What a receiver says of itself: the keys of its sessions, and where its mailboxes are.
//!
//! It travels in two parts, since the key of ML-KEM alone has 1184 bytes. Each part is signed by the receiver's key of
//! the epoch, so that a relay can check each as it comes. What is in it is encrypted under a key that follows from the
//! address:
//!
//! ```text
//! plain   = X25519 key (32) | ML-KEM-768 key (1184) | how many (1) | 4 × (relay (2) | label (8)) | 0
//! sealed  = ChaCha20-Poly1305 of it under BLAKE3-KDF(A ‖ A' ‖ epoch ‖ version ‖ salt)
//! part    = A' (32) | epoch (8) | version (8) | salt (16) | which (1) | half of sealed (637) | signature (64)
//! ```
//!
//! Numbers are big-endian. A version takes the place of all lower ones.

use anabranch_proto::codec::{CodecError, Reader, Writer};
use anabranch_proto::seal;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use super::{Address, BlindedSecret};
use crate::RelayIndex;
use crate::directory::{Context, PublicKey, Signature};
use crate::packet::{LABEL, LAST_INDEX, Label};
use crate::session::ServiceKeys;
use crate::session::handshake::KEM_KEY;

/// Mailboxes that a descriptor names at most.
pub const MOST_MAILBOXES_NAMED: usize = 4;

/// Bytes of one mailbox.
pub const MAILBOX_BYTES: usize = 2 + LABEL;

/// Bytes of what makes each sealing another.
pub const SALT: usize = 16;

const TAG: usize = 16;

const PLAIN: usize = 32 + KEM_KEY + 1 + MOST_MAILBOXES_NAMED * MAILBOX_BYTES + 1;

/// Bytes of half of what is sealed.
pub const HALF: usize = (PLAIN + TAG) / 2;

const _: () = assert!(2 * HALF == PLAIN + TAG);

/// Parts of a descriptor.
pub const PARTS: usize = 2;

const CONTEXT: &str = "anabranch onion descriptor of a receiver 1";

/// Where somebody leaves what is for a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailboxAt {
    /// The relay.
    pub relay: RelayIndex,
    /// What the mailbox is found by there.
    pub label: Label,
}

impl MailboxAt {
    /// Appends it.
    pub fn write(&self, writer: &mut Writer<'_>) {
        writer.u16(self.relay.0);
        writer.bytes(&self.label.0);
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// When there is too little, or no relay has this index.
    pub fn read(reader: &mut Reader<'_>) -> Result<MailboxAt, CodecError> {
        let relay = RelayIndex(reader.u16()?);
        if relay > LAST_INDEX {
            return Err(CodecError::Value("relay"));
        }
        Ok(MailboxAt { relay, label: Label(reader.array()?) })
    }
}

/// What a receiver says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The keys of its sessions.
    pub keys: ServiceKeys,
    /// Its mailboxes, one to four.
    pub mailboxes: Vec<MailboxAt>,
}

/// A part as relays keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// By whose key of the epoch it is signed.
    pub key: PublicKey,
    /// Which epoch.
    pub epoch: u64,
    /// Which version.
    pub version: u64,
    /// What makes its sealing another.
    pub salt: [u8; SALT],
    /// Whether it is the second.
    pub is_second: bool,
    /// Half of what is sealed.
    pub half: Box<[u8; HALF]>,
    /// The signature.
    pub signature: Signature,
}

impl Part {
    /// Its length in bytes.
    pub const BYTES: usize = 32 + 8 + 8 + SALT + 1 + HALF + 64;

    fn signed(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Part::BYTES);
        let mut writer = Writer::new(&mut bytes);
        writer.bytes(&self.key.0);
        writer.u64(self.epoch);
        writer.u64(self.version);
        writer.bytes(&self.salt);
        writer.u8(u8::from(self.is_second));
        writer.bytes(&self.half[..]);
        bytes
    }

    /// Whether the holder of its key has signed it.
    pub fn is_signed(&self) -> bool {
        self.key.verifies(Context::Hidden, &self.signed(), &self.signature)
    }

    /// Appends its bytes.
    pub fn write(&self, writer: &mut Writer<'_>) {
        writer.bytes(&self.signed());
        writer.bytes(&self.signature.to_bytes());
    }

    /// Reads it; whether it is signed is not looked at.
    ///
    /// # Errors
    ///
    /// When the bytes are no part.
    pub fn read(reader: &mut Reader<'_>) -> Result<Part, CodecError> {
        let (key, epoch, version) = (PublicKey(reader.array()?), reader.u64()?, reader.u64()?);
        let (salt, which) = (reader.array()?, reader.u8()?);
        if which > 1 {
            return Err(CodecError::Value("part"));
        }
        let half = Box::new(reader.array()?);
        let signature = Signature::from_bytes(&reader.array()?);
        Ok(Part { key, epoch, version, salt, is_second: which == 1, half, signature })
    }
}

fn key_of(address: &Address, key: &PublicKey, epoch: u64, version: u64, salt: &[u8; SALT]) -> LessSafeKey {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(&address.key().0).update(&key.0).update(&epoch.to_be_bytes()).update(&version.to_be_bytes());
    let bytes = *hasher.update(salt).finalize().as_bytes();
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &bytes).expect("the key has the cipher's length"))
}

/// Each key seals one text.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

impl Descriptor {
    /// Its two parts, for relays to keep in `epoch`, of which `secret` is the receiver's key.
    ///
    /// # Panics
    ///
    /// When there is no mailbox, or there are more than [`MOST_MAILBOXES_NAMED`].
    pub fn seal(
        &self,
        address: &Address,
        secret: &BlindedSecret,
        epoch: u64,
        version: u64,
        salt: [u8; SALT],
    ) -> [Part; PARTS] {
        assert!((1..=MOST_MAILBOXES_NAMED).contains(&self.mailboxes.len()), "a descriptor names one to four mailboxes");
        let mut bytes = Vec::with_capacity(PLAIN + TAG);
        let mut writer = Writer::new(&mut bytes);
        writer.bytes(&self.keys.dh.0);
        writer.bytes(&self.keys.kem[..]);
        writer.u8(self.mailboxes.len() as u8);
        self.mailboxes.iter().for_each(|mailbox| mailbox.write(&mut writer));
        bytes.resize(PLAIN, 0);
        let key = secret.public();
        let sealing = key_of(address, &key, epoch, version, &salt);
        sealing.seal_in_place_append_tag(nonce(), Aad::empty(), &mut bytes).expect("it is far below 256 GiB");
        let (first, second) = bytes.split_at(HALF);
        [(first, false), (second, true)].map(|(half, is_second)| {
            let half = Box::new(half.try_into().expect("both halves have their length"));
            let unsigned = Signature::from_bytes(&[0; 64]);
            let mut part = Part { key, epoch, version, salt, is_second, half, signature: unsigned };
            part.signature = secret.sign(Context::Hidden, &part.signed());
            part
        })
    }

    /// Opens the two parts of what the receiver at `address` says of itself.
    ///
    /// # Errors
    ///
    /// When they do not belong together, or to that address, or are not signed.
    pub fn open(address: &Address, first: &Part, second: &Part) -> Result<Descriptor, CodecError> {
        const WRONG: CodecError = CodecError::Value("descriptor");
        let belong = |part: &Part| (part.key, part.epoch, part.version, part.salt);
        let is_right = belong(first) == belong(second)
            && !first.is_second
            && second.is_second
            && first.key == super::blind::blinded_key(address, first.epoch)
            && first.is_signed()
            && second.is_signed();
        if !is_right {
            return Err(WRONG);
        }
        let mut bytes = [&first.half[..], &second.half[..]].concat();
        let sealing = key_of(address, &first.key, first.epoch, first.version, &first.salt);
        let plain = sealing.open_in_place(nonce(), Aad::empty(), &mut bytes).map_err(|_| WRONG)?;
        let mut reader = Reader::new(plain);
        let dh = seal::PublicKey(reader.array()?);
        let kem: Box<[u8; KEM_KEY]> = Box::new(reader.array()?);
        let count = usize::from(reader.u8()?);
        if !(1..=MOST_MAILBOXES_NAMED).contains(&count) {
            return Err(CodecError::Value("mailboxes"));
        }
        let mailboxes = (0..count).map(|_| MailboxAt::read(&mut reader)).collect::<Result<_, _>>()?;
        if reader.rest().iter().any(|byte| *byte != 0) {
            return Err(CodecError::Value("padding"));
        }
        Ok(Descriptor { keys: ServiceKeys { dh, kem }, mailboxes })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::hidden::ReceiverSecret;
    use crate::session::ServiceSecret;

    /// A receiver's descriptor in parts.
    pub fn parts(seed: u8, epoch: u64, version: u64) -> (ReceiverSecret, Descriptor, [Part; PARTS]) {
        let secret = ReceiverSecret::from_seed(&[seed; 32]);
        let mailbox = |relay| MailboxAt { relay: RelayIndex(relay), label: Label([relay as u8; LABEL]) };
        let descriptor = Descriptor {
            keys: ServiceSecret::from_seed(&[seed; 32]).keys(),
            mailboxes: vec![mailbox(3), mailbox(500), mailbox(7)],
        };
        let parts = descriptor.seal(&secret.address(), &secret.blinded(epoch), epoch, version, [9; SALT]);
        (secret, descriptor, parts)
    }

    /// The same part as the receiver of another key would have signed it.
    pub fn signed_by(part: &Part, secret: &BlindedSecret) -> Part {
        let mut part = Part { key: secret.public(), ..part.clone() };
        part.signature = secret.sign(Context::Hidden, &part.signed());
        part
    }

    #[test]
    fn who_has_the_address_reads_it_and_nobody_else() {
        let (secret, descriptor, [first, second]) = parts(1, 5, 8);
        assert_eq!(Descriptor::open(&secret.address(), &first, &second), Ok(descriptor.clone()));
        assert!(Descriptor::open(&ReceiverSecret::from_seed(&[2; 32]).address(), &first, &second).is_err());
        assert!(Descriptor::open(&secret.address(), &second, &first).is_err());
        let (_, _, [_, older]) = parts(1, 5, 7);
        assert!(Descriptor::open(&secret.address(), &first, &older).is_err());
        // What the label is does not stand in it, nor the address.
        let plain = [&first.half[..], &second.half[..]].concat();
        let label = descriptor.mailboxes[1].label.0;
        assert!(!plain.windows(8).any(|part| part == label || part == &secret.address().key().0[..8]));
    }

    #[test]
    fn a_part_is_read_as_written_and_every_bit_of_it_is_signed() {
        let (_, _, both) = parts(1, 5, 8);
        for part in both {
            let mut bytes = Vec::new();
            part.write(&mut Writer::new(&mut bytes));
            assert_eq!(bytes.len(), Part::BYTES);
            assert!(part.is_signed());
            assert_eq!(Part::read(&mut Reader::new(&bytes)), Ok(part));
            for bit in (0..8 * bytes.len()).step_by(5) {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(!Part::read(&mut Reader::new(&changed)).is_ok_and(|part| part.is_signed()), "bit {bit}");
            }
            assert!(Part::read(&mut Reader::new(&bytes[1..])).is_err());
        }
    }
}

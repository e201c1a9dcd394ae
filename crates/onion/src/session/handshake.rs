//! The handshake of a session, and how its cells are sealed.
//!
//! The client knows two keys of the service: one of X25519 and one of ML-KEM-768 (FIPS 203). It
//! encapsulates a secret to the latter and uses it as the pre-shared key of
//! `Noise_NKpsk0_25519_ChaChaPoly_BLAKE2s` (revision 34 of the Noise specification, 7.5 and 9.4), so
//! that whoever breaks one of the two learns nothing; the ciphertext is part of the prologue.
//!
//! ```text
//! opening = ciphertext (1088) | e (32) | payload | tag (16)      in two cells: one does not hold it
//! answer  = e (32) | tag (16)                                    in one cell
//! ```
//!
//! The payload is what the answer needs: reply blocks. Whoever records an opening and later gets the service's
//! keys reads those blocks, but no cell of the session: cells need the answer's ephemeral key, which is gone by
//! then. Whoever has a quantum computer as well reads them too, since the key of ML-KEM is not ephemeral: against
//! them, forward secrecy begins when the service changes its keys.
//!
//! After it, cells are sealed with their number as nonce (Noise 11.4), so that they may be lost and
//! overtake each other.

use std::fmt;
use std::sync::Arc;

use anabranch_proto::key_text;
use anabranch_proto::noise::resolver;
use anabranch_proto::seal::{Identity, PublicKey, SealError, TAG};
use ml_kem::ml_kem_768::{Ciphertext, DecapsulationKey, EncapsulationKey};
use ml_kem::{Decapsulate, Encapsulate, KeyExport};
use rand_core::{TryCryptoRng, TryRng};
use snow::{Builder, HandshakeState, StatelessTransportState};

const PATTERN: &str = "Noise_NKpsk0_25519_ChaChaPoly_BLAKE2s";

/// Mixed into every handshake: other protocols, and other versions of this one, can't be confused with it.
const PROLOGUE: &[u8] = b"anabranch onion session 1";

/// Bytes of a key to encapsulate to (FIPS 203, table 3).
pub const KEM_KEY: usize = 1184;

/// Bytes of what carries an encapsulated secret (FIPS 203, table 3).
pub const KEM_CIPHERTEXT: usize = 1088;

/// Bytes of an opening beyond its payload.
pub const OPENING_OVERHEAD: usize = KEM_CIPHERTEXT + 32 + TAG;

/// Bytes of an answer.
pub const ANSWER: usize = 32 + TAG;

/// What others know of a service: an exit, or a hidden receiver.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceKeys {
    /// Of X25519.
    pub dh: PublicKey,
    /// Of ML-KEM-768.
    pub kem: Box<[u8; KEM_KEY]>,
}

impl fmt::Debug for ServiceKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceKeys({})", self.dh)
    }
}

/// What the service alone knows.
#[derive(Clone)]
pub struct ServiceSecret {
    dh: Identity,
    kem: DecapsulationKey,
}

impl fmt::Debug for ServiceSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceSecret({})", self.dh.public())
    }
}

impl ServiceSecret {
    /// The keys that follow from 32 random bytes, which nobody else may know.
    pub fn from_seed(seed: &[u8; 32]) -> ServiceSecret {
        let dh = Identity::from_secret(derived(seed, "anabranch onion service x25519"));
        let kem_seed: [u8; 64] = derived(seed, "anabranch onion service ml-kem-768");
        ServiceSecret { dh, kem: DecapsulationKey::from_seed(kem_seed.into()) }
    }

    /// What others may know.
    pub fn keys(&self) -> ServiceKeys {
        let encoded = self.kem.encapsulation_key().to_bytes();
        let kem = encoded.as_slice().try_into().expect("an encapsulation key has its length");
        ServiceKeys { dh: self.dh.public(), kem: Box::new(kem) }
    }
}

/// 32 random bytes for one use: from the operating system on a network, from a seed in a simulation.
#[derive(Clone, Copy)]
pub struct Entropy(pub [u8; 32]);

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

impl Entropy {
    /// Other random bytes that follow from these, for use number `number`.
    #[must_use]
    pub fn numbered(&self, number: u64) -> Entropy {
        let mut material = self.0.to_vec();
        material.extend_from_slice(&number.to_be_bytes());
        Entropy(derived(&material, "anabranch onion entropy"))
    }
}

fn derived<const N: usize>(material: &[u8], context: &str) -> [u8; N] {
    let mut bytes = [0; N];
    blake3::Hasher::new_derive_key(context).update(material).finalize_xof().fill(&mut bytes);
    bytes
}

/// Whether cells are truly sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Secrecy {
    /// They are.
    #[default]
    Sealed,
    /// Equal lengths and no secrecy at all: for simulations, where encryption is time and nothing else.
    Transparent,
}

/// A session's name: a hash of its opening, so that nobody can take the name of another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionName(pub u64);

impl SessionName {
    fn of(opening: &[u8]) -> SessionName {
        let hash = blake3::hash(opening);
        SessionName(u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes")))
    }
}

/// Keys that two ends share; a number must never seal two cells.
#[derive(Clone)]
pub enum Sealing {
    /// As Noise does.
    Sealed(Arc<StatelessTransportState>),
    /// Not at all.
    Transparent,
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sealing::Sealed(_) => "Sealed",
            Sealing::Transparent => "Transparent",
        })
    }
}

impl Sealing {
    /// Appends what `plain` is sealed as under `number`: [`TAG`] bytes more.
    pub fn seal(&self, number: u64, plain: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        match self {
            Sealing::Sealed(noise) => {
                out.resize(start + plain.len() + TAG, 0);
                noise.write_message(number, plain, &mut out[start..]).expect("a cell is far below 64 KiB");
            }
            Sealing::Transparent => {
                out.extend_from_slice(plain);
                out.resize(start + plain.len() + TAG, 0);
            }
        }
    }

    /// Replaces what is in `plain` by what was sealed.
    ///
    /// # Errors
    ///
    /// When it was not sealed under `number` by the other end.
    pub fn open(&self, number: u64, sealed: &[u8], plain: &mut Vec<u8>) -> Result<(), SealError> {
        plain.clear();
        match self {
            Sealing::Sealed(noise) => {
                plain.resize(sealed.len(), 0);
                let length = noise.read_message(number, sealed, plain)?;
                plain.truncate(length);
            }
            Sealing::Transparent => {
                let (content, tag) = sealed.split_last_chunk::<TAG>().ok_or(SealError::Damaged)?;
                if *tag != [0; TAG] {
                    return Err(SealError::Damaged);
                }
                plain.extend_from_slice(content);
            }
        }
        Ok(())
    }
}

/// A client's handshake that waits for its answer.
#[derive(Clone)]
pub struct Opening {
    name: SessionName,
    bytes: Vec<u8>,
    secrets: Option<Secrets>,
}

/// All that the first message follows from. The library's state of a handshake can't be copied; it is
/// made again from this when the answer has come.
#[derive(Clone)]
struct Secrets {
    dh: PublicKey,
    psk: [u8; 32],
    ephemeral: [u8; 32],
    payload: Vec<u8>,
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opening({:?})", self.name)
    }
}

impl Opening {
    /// Begins a handshake with the holder of `keys`, who alone reads `payload`.
    ///
    /// # Errors
    ///
    /// When the service's key of ML-KEM is none.
    pub fn new(keys: &ServiceKeys, payload: &[u8], entropy: Entropy, secrecy: Secrecy) -> Result<Opening, SealError> {
        if secrecy == Secrecy::Transparent {
            let mut bytes = vec![0; KEM_CIPHERTEXT];
            bytes.extend_from_slice(&entropy.0);
            Sealing::Transparent.seal(0, payload, &mut bytes);
            return Ok(Opening { name: SessionName::of(&bytes), bytes, secrets: None });
        }
        let key = EncapsulationKey::new(&(*keys.kem).into()).map_err(|_| SealError::Damaged)?;
        let (ciphertext, shared) = key.encapsulate_with_rng(&mut Stream::new(&entropy));
        let ephemeral = derived(&entropy.0, "anabranch onion session ephemeral");
        let psk = shared.as_slice().try_into().expect("a shared secret has 32 bytes");
        let secrets = Secrets { dh: keys.dh, psk, ephemeral, payload: payload.to_vec() };
        let mut bytes = ciphertext.to_vec();
        secrets.write(&mut bytes);
        Ok(Opening { name: SessionName::of(&bytes), bytes, secrets: Some(secrets) })
    }

    /// The session's name.
    pub fn name(&self) -> SessionName {
        self.name
    }

    /// What the service must get: [`OPENING_OVERHEAD`] bytes and the payload.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The answer has come.
    ///
    /// # Errors
    ///
    /// When it is not an answer to this opening, which goes on waiting.
    pub fn complete(&self, answer: &[u8; ANSWER]) -> Result<Sealing, SealError> {
        let Some(secrets) = &self.secrets else {
            let is_answer = *answer == [0; ANSWER];
            return if is_answer { Ok(Sealing::Transparent) } else { Err(SealError::Damaged) };
        };
        let mut bytes = self.bytes[..KEM_CIPHERTEXT].to_vec();
        let mut noise = secrets.write(&mut bytes);
        noise.read_message(answer, &mut [0; ANSWER])?;
        Ok(Sealing::Sealed(Arc::new(noise.into_stateless_transport_mode()?)))
    }
}

impl Secrets {
    /// Appends the first message of Noise to the ciphertext in `out`.
    fn write(&self, out: &mut Vec<u8>) -> HandshakeState {
        const VALID: &str = "the pattern and its keys are known to be valid";
        let prologue = [PROLOGUE, out].concat();
        let mut noise = builder(self.ephemeral)
            .prologue(&prologue)
            .and_then(|builder| builder.psk(0, &self.psk))
            .and_then(|builder| builder.remote_public_key(&self.dh.0)?.build_initiator())
            .expect(VALID);
        let mut message = vec![0; 32 + self.payload.len() + TAG];
        let length = noise.write_message(&self.payload, &mut message).expect(VALID);
        out.extend_from_slice(&message[..length]);
        noise
    }
}

/// What the service makes of an opening.
#[derive(Debug)]
pub struct Answered {
    /// The session's name.
    pub name: SessionName,
    /// The keys that both share.
    pub sealing: Sealing,
    /// What the client must get.
    pub answer: [u8; ANSWER],
    /// What the client sent with it.
    pub payload: Vec<u8>,
}

/// Answers an opening.
///
/// # Errors
///
/// When it is none, or for another service.
pub fn answer(
    secret: &ServiceSecret,
    opening: &[u8],
    entropy: Entropy,
    secrecy: Secrecy,
) -> Result<Answered, SealError> {
    let name = SessionName::of(opening);
    let (ciphertext, message) = opening.split_at_checked(KEM_CIPHERTEXT).ok_or(SealError::Damaged)?;
    let mut answer = [0; ANSWER];
    if secrecy == Secrecy::Transparent {
        let mut payload = Vec::new();
        Sealing::Transparent.open(0, message.get(32..).ok_or(SealError::Damaged)?, &mut payload)?;
        return Ok(Answered { name, sealing: Sealing::Transparent, answer, payload });
    }
    let encapsulated = Ciphertext::try_from(ciphertext).map_err(|_| SealError::Damaged)?;
    let psk: [u8; 32] = secret.kem.decapsulate(&encapsulated).as_slice().try_into().expect("a secret has 32 bytes");
    let prologue = [PROLOGUE, ciphertext].concat();
    let ephemeral = derived(&entropy.0, "anabranch onion session ephemeral");
    let mut noise = builder(ephemeral)
        .prologue(&prologue)?
        .psk(0, &psk)?
        .local_private_key(secret.dh.secret())?
        .build_responder()?;
    let mut payload = vec![0; message.len()];
    let length = noise.read_message(message, &mut payload)?;
    payload.truncate(length);
    let written = noise.write_message(&[], &mut answer)?;
    if written != ANSWER {
        return Err(SealError::Damaged);
    }
    let sealing = Sealing::Sealed(Arc::new(noise.into_stateless_transport_mode()?));
    Ok(Answered { name, sealing, answer, payload })
}

fn builder<'a>(ephemeral: [u8; 32]) -> Builder<'a> {
    Builder::with_resolver(PATTERN.parse().expect("the pattern's name is valid"), resolver(Some(ephemeral)))
}

/// What random numbers an encapsulation draws: the output of BLAKE3 from the entropy.
struct Stream(blake3::OutputReader);

impl Stream {
    fn new(entropy: &Entropy) -> Stream {
        let mut hasher = blake3::Hasher::new_derive_key("anabranch onion session encapsulation");
        Stream(hasher.update(&entropy.0).finalize_xof())
    }
}

impl TryRng for Stream {
    type Error = core::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Self::Error> {
        self.0.fill(dst);
        Ok(())
    }
}

impl TryCryptoRng for Stream {}

impl fmt::Display for ServiceKeys {
    /// The key of X25519 alone, as keys are written elsewhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        key_text::write(&self.dh.0, f)
    }
}

#[cfg(test)]
mod tests {
    use ml_kem::KeyInit;
    use shake::{ExtendableOutput, Shake128, Update, XofReader};

    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn service() -> ServiceSecret {
        ServiceSecret::from_seed(&SECRET)
    }

    #[test]
    fn both_ends_share_keys_and_the_payload_arrives() {
        for secrecy in [Secrecy::Sealed, Secrecy::Transparent] {
            let opening = Opening::new(&service().keys(), b"blocks", Entropy([1; 32]), secrecy).unwrap();
            assert_eq!(opening.bytes().len(), OPENING_OVERHEAD + 6);
            let answered = answer(&service(), opening.bytes(), Entropy([2; 32]), secrecy).unwrap();
            assert_eq!((answered.name, &answered.payload[..]), (opening.name(), &b"blocks"[..]));
            let client = opening.complete(&answered.answer).unwrap();
            let (mut sealed, mut plain) = (Vec::new(), Vec::new());
            for number in [5, 2, 900] {
                sealed.clear();
                client.seal(number, b"hello", &mut sealed);
                assert_eq!(sealed.len(), 5 + TAG);
                answered.sealing.open(number, &sealed, &mut plain).unwrap();
                assert_eq!(plain, b"hello");
                assert_eq!(answered.sealing.open(number + 1, &sealed, &mut plain).is_err(), secrecy == Secrecy::Sealed);
            }
        }
    }

    #[test]
    fn a_changed_byte_anywhere_in_the_opening_or_answer_is_noticed() {
        let opening = Opening::new(&service().keys(), b"blocks", Entropy([1; 32]), Secrecy::Sealed).unwrap();
        for place in (0..opening.bytes().len()).step_by(61).chain([opening.bytes().len() - 1]) {
            let mut changed = opening.bytes().to_vec();
            changed[place] ^= 1;
            assert!(answer(&service(), &changed, Entropy([2; 32]), Secrecy::Sealed).is_err(), "byte {place}");
        }
        let answered = answer(&service(), opening.bytes(), Entropy([2; 32]), Secrecy::Sealed).unwrap();
        for place in 0..ANSWER {
            let mut changed = answered.answer;
            changed[place] ^= 1;
            assert!(opening.complete(&changed).is_err(), "byte {place}");
        }
        assert!(opening.complete(&answered.answer).is_ok(), "it still waits");
    }

    #[test]
    fn another_service_and_too_few_bytes_give_no_session() {
        let opening = Opening::new(&service().keys(), b"", Entropy([1; 32]), Secrecy::Sealed).unwrap();
        let other = ServiceSecret::from_seed(&[8; 32]);
        assert!(answer(&other, opening.bytes(), Entropy([2; 32]), Secrecy::Sealed).is_err());
        // The right key of X25519 alone does not do.
        let half = ServiceSecret { dh: service().dh, kem: other.kem };
        assert!(answer(&half, opening.bytes(), Entropy([2; 32]), Secrecy::Sealed).is_err());
        for length in [0, 1, KEM_CIPHERTEXT, OPENING_OVERHEAD - 1] {
            for secrecy in [Secrecy::Sealed, Secrecy::Transparent] {
                assert!(answer(&service(), &opening.bytes()[..length], Entropy([2; 32]), secrecy).is_err());
            }
        }
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// The vector of this pattern among those of the library cacophony, which others take over.
    #[test]
    fn p16_noise_gives_the_published_vector() {
        let array = |hex: &str| -> [u8; 32] { bytes(hex).try_into().unwrap() };
        let psk = array("54686973206973206d7920417573747269616e20706572737065637469766521");
        let prologue = bytes("4a6f686e2047616c74");
        let remote = bytes("31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62");
        let own = bytes("4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893");
        let mut initiator = builder(array("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a"))
            .prologue(&prologue)
            .and_then(|b| b.psk(0, &psk)?.remote_public_key(&remote)?.build_initiator())
            .unwrap();
        let mut responder = builder(array("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b"))
            .prologue(&prologue)
            .and_then(|b| b.psk(0, &psk)?.local_private_key(&own)?.build_responder())
            .unwrap();
        let (mut message, mut read) = ([0; 200], [0; 200]);
        let length = initiator.write_message(&bytes("4c756477696720766f6e204d69736573"), &mut message).unwrap();
        assert_eq!(
            message[..length],
            bytes(
                "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944\
                 27635ede06947b2d3acd77a36788aaaf17e9f5a8ac252e560fb421ba161a2cf8"
            )
        );
        responder.read_message(&message[..length], &mut read).unwrap();
        let length = responder.write_message(&bytes("4d757272617920526f746862617264"), &mut message).unwrap();
        assert_eq!(
            message[..length],
            bytes(
                "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843\
                 d682eb9cf4fee6816c8c8cfd34c15774321e234e3a426d7cfd3f13e5e84d04"
            )
        );
        initiator.read_message(&message[..length], &mut read).unwrap();
        let initiator = initiator.into_stateless_transport_mode().unwrap();
        let length = initiator.write_message(0, &bytes("462e20412e20486179656b"), &mut message).unwrap();
        assert_eq!(message[..length], bytes("b6645684db57679aa08f0b3352d58f32ec7f1e1a02083d5bd54277"));
    }

    /// What the vector's random numbers are.
    struct Fixed([u8; 32]);

    impl TryRng for Fixed {
        type Error = core::convert::Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            unreachable!("an encapsulation draws bytes")
        }

        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            unreachable!("an encapsulation draws bytes")
        }

        fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Self::Error> {
            dst.copy_from_slice(&self.0);
            Ok(())
        }
    }

    impl TryCryptoRng for Fixed {}

    /// A hundred keys, ciphertexts, secrets and refusals in one hash, as Go's crypto/mlkem publishes it.
    #[test]
    fn p16_ml_kem_gives_the_published_accumulated_hash() {
        let mut drawn = Shake128::default().finalize_xof();
        let mut all = Shake128::default();
        for _ in 0..100 {
            let (mut seed, mut message, mut other) = ([0; 64], [0; 32], [0; KEM_CIPHERTEXT]);
            drawn.read(&mut seed);
            let key = DecapsulationKey::new(&seed.into());
            all.update(&key.encapsulation_key().to_bytes());
            drawn.read(&mut message);
            let (ciphertext, shared) = key.encapsulation_key().encapsulate_with_rng(&mut Fixed(message));
            all.update(&ciphertext);
            all.update(&shared);
            assert_eq!(key.decapsulate(&ciphertext), shared);
            drawn.read(&mut other);
            all.update(&key.decapsulate(&other.into()));
        }
        let mut hash = [0; 32];
        all.finalize_xof().read(&mut hash);
        assert_eq!(hash[..], bytes("1114b1b6699ed191734fa339376afa7e285c9e6acf6ff0177d346696ce564415"));
    }
}

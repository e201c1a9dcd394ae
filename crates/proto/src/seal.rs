//! Sealing: a Noise handshake over relays, then messages that only the other end reads.
//!
//! With the receiver's public key the handshake is `Noise_NK`: nobody but the holder of
//! the secret key can answer it. Without it, it is `Noise_NN`: that protects from
//! whoever only listens, and from relays that join later, but a relay that sits in the
//! middle of the handshake itself can pose as the receiver. Revision 34 of the Noise
//! specification, 7.5; 25519, ChaChaPoly, BLAKE2s.
//!
//! Messages are sealed with an explicit counter (Noise 11.4), so that they may be lost
//! and overtake each other. A replayed one opens again; those who use this module make
//! that harmless. A session's name is a hash of its first message, so that nobody can
//! take the name of another's.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver, FallbackResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::key_text;

/// Bytes that sealing adds to a message.
pub const TAG: usize = 16;

/// Bytes of a session's name and of a counter before what is sealed for the receiver.
pub const DATA_PREFIX: usize = 8 + 8;

const NK: &str = "Noise_NK_25519_ChaChaPoly_BLAKE2s";
const NN: &str = "Noise_NN_25519_ChaChaPoly_BLAKE2s";

/// Mixed into every handshake: other protocols, and other versions of this one, can't be confused with it.
const PROLOGUE: &[u8] = b"anabranch transfer 1";

/// Longest handshake message: an ephemeral key, a proof and a tag, and the pattern's byte.
const MAX_HELLO: usize = 128;

/// A session's name, chosen by nobody: a hash of the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The key by which a receiver is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub [u8; 32]);

/// What the holder of a public key knows.
#[derive(Clone)]
pub struct Identity {
    secret: [u8; 32],
    public: PublicKey,
}

/// A message did not open: it was damaged, forged, or of another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealError;

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message does not open with this session's keys")
    }
}

impl std::error::Error for SealError {}

impl From<snow::Error> for SealError {
    fn from(_: snow::Error) -> SealError {
        SealError
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        key_text::write(&self.0, f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = String;

    fn from_str(text: &str) -> Result<PublicKey, String> {
        key_text::parse(text).map(PublicKey)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

impl Identity {
    /// A new key pair, from the operating system's random numbers.
    pub fn generate() -> Identity {
        let keys = Builder::new(pattern(NK)).generate_keypair().expect("the system has random numbers");
        let array = |bytes: Vec<u8>| bytes.try_into().expect("a key of 25519 has 32 bytes");
        Identity { secret: array(keys.private), public: PublicKey(array(keys.public)) }
    }

    /// What others may know.
    pub fn public(&self) -> PublicKey {
        self.public
    }
}

/// A handshake that waits for its answer.
#[derive(Clone)]
pub struct Hello {
    id: SessionId,
    opening: Opening,
}

/// All that a handshake's first message follows from. The library's state of a handshake can't be
/// copied; it is made again from this when the answer has come.
#[derive(Clone)]
struct Opening {
    key: Option<PublicKey>,
    proof: u64,
    ephemeral: [u8; 32],
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hello({:?})", self.id)
    }
}

impl Hello {
    /// Begins a handshake with the holder of `key`, or with whoever answers, and appends
    /// its first message, with `proof` in it, to `out`.
    pub fn new(key: Option<&PublicKey>, proof: u64, out: &mut Vec<u8>) -> Hello {
        let mut ephemeral = [0; 32];
        let mut system = DefaultResolver.resolve_rng().expect("the library has the system's random numbers");
        system.try_fill_bytes(&mut ephemeral).expect("the system has random numbers");
        let opening = Opening { key: key.copied(), proof, ephemeral };
        let start = out.len();
        out.push(u8::from(key.is_some()));
        opening.write(out);
        Hello { id: name_of(&out[start..]), opening }
    }

    /// The answer has come: the session, and the proof that came with it. On an error
    /// the handshake goes on waiting is not possible: it is over.
    pub fn complete(self, reply: &[u8]) -> Result<(Session, u64), SealError> {
        let mut noise = self.opening.write(&mut Vec::new());
        let mut proof = [0; MAX_HELLO];
        let length = noise.read_message(reply, &mut proof)?;
        let proof = u64::from_be_bytes(proof[..length].try_into().map_err(|_| SealError)?);
        let noise = noise.into_stateless_transport_mode()?;
        Ok((Session { id: self.id, noise: Arc::new(noise), counter: 0 }, proof))
    }
}

impl Opening {
    /// Appends the first message to `out`; the handshake that waits for the second.
    fn write(&self, out: &mut Vec<u8>) -> HandshakeState {
        const VALID: &str = "the pattern and its keys are known to be valid";
        let resolver = || Box::new(FallbackResolver::new(Box::new(Drawn(self.ephemeral)), Box::new(DefaultResolver)));
        let builder = |name| Builder::with_resolver(pattern(name), resolver()).prologue(PROLOGUE).expect("set once");
        let noise = match &self.key {
            Some(key) => builder(NK).remote_public_key(&key.0).expect(VALID).build_initiator(),
            None => builder(NN).build_initiator(),
        };
        let mut noise = noise.expect(VALID);
        let mut message = [0; MAX_HELLO];
        let length = noise.write_message(&self.proof.to_be_bytes(), &mut message).expect(VALID);
        out.extend_from_slice(&message[..length]);
        noise
    }
}

/// Random numbers that were drawn before: the secret of one ephemeral key.
struct Drawn([u8; 32]);

impl CryptoResolver for Drawn {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0))))
    }

    fn resolve_dh(&self, _: &DHChoice) -> Option<Box<dyn Dh>> {
        None
    }

    fn resolve_hash(&self, _: &HashChoice) -> Option<Box<dyn Hash>> {
        None
    }

    fn resolve_cipher(&self, _: &CipherChoice) -> Option<Box<dyn Cipher>> {
        None
    }
}

/// Gives its bytes once, to whoever asks for exactly as many: a key is never used twice.
struct Once(Option<[u8; 32]>);

impl Random for Once {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        let bytes = self.0.take().filter(|bytes| bytes.len() == dest.len()).ok_or(snow::Error::Rng)?;
        dest.copy_from_slice(&bytes);
        Ok(())
    }
}

/// The name of the session that `hello` would begin.
pub fn name_of(hello: &[u8]) -> SessionId {
    let hash = blake3::hash(hello);
    let name = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    SessionId(u64::from_be_bytes(*name))
}

/// Answers the handshake message `hello`: the session; the answer is appended to `out`.
pub fn answer(identity: &Identity, hello: &[u8], out: &mut Vec<u8>) -> Result<Session, SealError> {
    let mut noise = match hello.first() {
        Some(0) => builder(NN).build_responder()?,
        Some(1) => builder(NK).local_private_key(&identity.secret)?.build_responder()?,
        _ => return Err(SealError),
    };
    let mut proof = [0; MAX_HELLO];
    let length = noise.read_message(&hello[1..], &mut proof)?;
    if length != size_of::<u64>() {
        return Err(SealError);
    }
    let mut message = [0; MAX_HELLO];
    let written = noise.write_message(&proof[..length], &mut message)?;
    let noise = noise.into_stateless_transport_mode()?;
    out.extend_from_slice(&message[..written]);
    Ok(Session { id: name_of(hello), noise: Arc::new(noise), counter: 0 })
}

fn pattern(name: &str) -> snow::params::NoiseParams {
    name.parse().expect("the pattern's name is valid")
}

fn builder(name: &str) -> Builder<'static> {
    Builder::new(pattern(name)).prologue(PROLOGUE).expect("the prologue is set once")
}

/// Keys that two ends share.
///
/// A clone seals with the counters that the original seals with too, as a copy of a world needs
/// it. Never let both send on one network: two messages under one counter betray each other
/// (Noise 14).
#[derive(Clone)]
pub struct Session {
    id: SessionId,
    /// The keys, which never change.
    noise: Arc<StatelessTransportState>,
    /// Messages sealed by this end.
    counter: u64,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?}, {} sealed)", self.id, self.counter)
    }
}

impl Session {
    /// Its name.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Appends the session's name and the sealed `message` to `out`: what a sender sends.
    pub fn seal_data(&mut self, message: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.0.to_be_bytes());
        self.seal(message, out);
    }

    /// Appends the sealed `message` to `out`: what a receiver sends.
    pub fn seal(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let counter = self.counter;
        // 2^64 messages are never sent.
        self.counter += 1;
        out.extend_from_slice(&counter.to_be_bytes());
        let start = out.len();
        out.resize(start + message.len() + TAG, 0);
        self.noise.write_message(counter, message, &mut out[start..]).expect("a message is far below 64 KiB");
    }

    /// Replaces what is in `message` by what was sealed in `sealed` (without the session's name).
    pub fn open(&self, sealed: &[u8], message: &mut Vec<u8>) -> Result<(), SealError> {
        let (counter, sealed) = sealed.split_first_chunk().ok_or(SealError)?;
        message.clear();
        message.resize(sealed.len(), 0);
        let length = self.noise.read_message(u64::from_be_bytes(*counter), sealed, message)?;
        message.truncate(length);
        Ok(())
    }
}

/// The name of the session that the body of a data datagram belongs to, and the rest.
pub fn split_session(body: &[u8]) -> Option<(SessionId, &[u8])> {
    let (name, rest) = body.split_first_chunk()?;
    Some((SessionId(u64::from_be_bytes(*name)), rest))
}

/// A session between two ends in this process, without datagrams: the sender's half and
/// the receiver's.
pub fn local_session(identity: &Identity) -> (Session, Session) {
    const WORKS: &str = "a handshake with oneself succeeds";
    let (mut hello, mut reply) = (Vec::new(), Vec::new());
    let waiting = Hello::new(Some(&identity.public()), 0, &mut hello);
    let theirs = answer(identity, &hello, &mut reply).expect(WORKS);
    (waiting.complete(&reply).expect(WORKS).0, theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(key: Option<PublicKey>, identity: &Identity) -> Result<(Session, Session), SealError> {
        let (mut hello, mut reply) = (Vec::new(), Vec::new());
        let waiting = Hello::new(key.as_ref(), 42, &mut hello);
        let theirs = answer(identity, &hello, &mut reply)?;
        let (ours, proof) = waiting.complete(&reply)?;
        assert_eq!(proof, 42);
        Ok((ours, theirs))
    }

    #[test]
    fn both_ends_open_what_the_other_sealed_in_any_order_and_again() {
        let identity = Identity::generate();
        for key in [None, Some(identity.public())] {
            let (mut ours, theirs) = handshake(key, &identity).unwrap();
            assert_eq!(ours.id(), theirs.id());
            let sealed: Vec<Vec<u8>> = (0..3u8)
                .map(|message| {
                    let mut out = Vec::new();
                    ours.seal_data(&[message; 5], &mut out);
                    out
                })
                .collect();
            let mut message = Vec::new();
            for which in [2, 0, 1, 2] {
                let (id, rest) = split_session(&sealed[which]).unwrap();
                assert_eq!(id, theirs.id());
                theirs.open(rest, &mut message).unwrap();
                assert_eq!(message, [which as u8; 5]);
            }
        }
    }

    #[test]
    fn a_clone_of_a_waiting_handshake_completes_to_the_same_session() {
        let identity = Identity::generate();
        for key in [None, Some(identity.public())] {
            let (mut hello, mut reply) = (Vec::new(), Vec::new());
            let waiting = Hello::new(key.as_ref(), 42, &mut hello);
            let mut theirs = answer(&identity, &hello, &mut reply).unwrap();
            let mut sealed = Vec::new();
            theirs.seal(b"answer", &mut sealed);
            for waiting in [waiting.clone(), waiting] {
                let (mut ours, proof) = waiting.complete(&reply).unwrap();
                let mut message = Vec::new();
                ours.open(&sealed, &mut message).unwrap();
                assert_eq!((proof, &*message), (42, &b"answer"[..]));
                let mut data = Vec::new();
                ours.clone().seal(b"block", &mut data);
                theirs.open(&data, &mut message).unwrap();
                let mut again = Vec::new();
                ours.seal(b"block", &mut again);
                assert_eq!(data, again, "a clone seals as the original would have");
            }
        }
    }

    #[test]
    fn two_handshakes_have_two_ephemeral_keys() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        Hello::new(None, 42, &mut one);
        Hello::new(None, 42, &mut other);
        assert_ne!(one, other);
    }

    #[test]
    fn whoever_lacks_the_secret_key_can_not_answer() {
        let key = Identity::generate().public();
        assert!(handshake(Some(key), &Identity::generate()).is_err());
    }

    #[test]
    fn what_was_changed_or_cut_does_not_open() {
        let (mut ours, theirs) = local_session(&Identity::generate());
        let mut sealed = Vec::new();
        ours.seal(b"block", &mut sealed);
        let mut message = Vec::new();
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(theirs.open(&changed, &mut message), Err(SealError));
            assert_eq!(theirs.open(&sealed[..place], &mut message), Err(SealError));
        }
        assert_eq!(ours.open(&sealed, &mut message), Err(SealError), "each direction has its own key");
    }

    #[test]
    fn arbitrary_handshakes_are_refused() {
        let (identity, mut out) = (Identity::generate(), Vec::new());
        for hello in [&[][..], &[0], &[1], &[2; 60], &[1; 57], &[0; 2000]] {
            assert!(answer(&identity, hello, &mut out).is_err(), "{}", hello.len());
        }
        assert!(out.is_empty());
    }

    #[test]
    fn a_public_key_is_read_as_it_is_printed() {
        let key = Identity::generate().public();
        assert_eq!(key.to_string().parse(), Ok(key));
        for wrong in ["", "12", &"g".repeat(64), &"é".repeat(32)] {
            assert!(wrong.parse::<PublicKey>().unwrap_err().contains("64 hexadecimal digits"));
        }
    }
}

//! Sealing: a Noise handshake over relays, then messages that only the other end reads.
//!
//! With the receiver's public key the handshake is `Noise_NK`: nobody but the holder of
//! the secret key can answer it. If the sender has a key too and shows it, it is `Noise_IK`: the
//! receiver can be sure who sends. Without the receiver's key, it is `Noise_NN`: that protects from
//! whoever only listens, and from relays that join later, but a relay that sits in the
//! middle of the handshake itself can pose as the receiver. Revision 34 of the Noise
//! specification, 7.5; 25519, ChaChaPoly, BLAKE2s.
//!
//! Messages are sealed with an explicit counter (Noise 11.4), so that they may be lost
//! and overtake each other; each opens once ([`ReplayWindow`]). A session's name is a hash of its
//! first message, so that nobody can take the name of another's.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use snow::params::NoiseParams;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::noise::resolver;
use crate::replay::ReplayWindow;
use crate::{key_text, x25519};

/// Bytes that sealing adds to a message.
pub const TAG: usize = 16;

/// Bytes of a session's name and of a counter before what is sealed for the receiver.
pub const DATA_PREFIX: usize = 8 + 8;

/// Mixed into every handshake: other protocols, and other versions of this one, can't be confused with it.
const PROLOGUE: &[u8] = b"anabranch transfer 2";

/// Bytes of the longest pattern and first message: e, s and its tag, the tag of an empty payload.
pub const MAX_OPENING: usize = 1 + 32 + 32 + TAG + TAG;

/// Bytes of a handshake's second message: e, and the tag of an empty payload.
pub const ANSWER: usize = 32 + TAG;

/// Who is known to whom before a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Pattern {
    /// Nobody.
    Nn = 0,
    /// The receiver to the sender.
    Nk = 1,
    /// The same, and the sender shows who it is.
    Ik = 2,
}

impl Pattern {
    fn read(byte: u8) -> Option<Pattern> {
        [Pattern::Nn, Pattern::Nk, Pattern::Ik].into_iter().find(|&pattern| pattern as u8 == byte)
    }

    fn parameters(self) -> NoiseParams {
        let name = match self {
            Pattern::Nn => "Noise_NN_25519_ChaChaPoly_BLAKE2s",
            Pattern::Nk => "Noise_NK_25519_ChaChaPoly_BLAKE2s",
            Pattern::Ik => "Noise_IK_25519_ChaChaPoly_BLAKE2s",
        };
        name.parse().expect("the pattern's name is valid")
    }
}

/// Bytes of a pattern and its first message, if there is such a pattern.
pub(crate) fn opening_len(pattern: u8) -> Option<usize> {
    Some(match Pattern::read(pattern)? {
        Pattern::Nn => 1 + 32,
        Pattern::Nk => 1 + 32 + TAG,
        Pattern::Ik => MAX_OPENING,
    })
}

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

/// Why a message does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// It was damaged, forged, or of another session.
    Damaged,
    /// It was opened before, or is so old that this can't be known.
    Replayed,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SealError::Damaged => "the message does not open with this session's keys",
            SealError::Replayed => "the message was opened before",
        })
    }
}

impl std::error::Error for SealError {}

impl From<snow::Error> for SealError {
    fn from(_: snow::Error) -> SealError {
        SealError::Damaged
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
        Identity::from_secret(random_bytes())
    }

    /// The key pair of a secret, which any 32 random bytes are (RFC 7748, 5).
    pub fn from_secret(secret: [u8; 32]) -> Identity {
        Identity { secret, public: PublicKey(x25519::Secret::new(&secret).public()) }
    }

    /// What nobody else may know.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// What others may know.
    pub fn public(&self) -> PublicKey {
        self.public
    }
}

/// A handshake that waits for its answer. Its first message is sent again and again until there is
/// one: it is always the same, and so begins one session and no more.
#[derive(Clone)]
pub struct Hello {
    id: SessionId,
    secrets: Secrets,
    opening: Vec<u8>,
}

/// All that a handshake's first message follows from. The library's state of a handshake can't be
/// copied; it is made again from this when the answer has come.
#[derive(Clone)]
struct Secrets {
    key: Option<PublicKey>,
    own: Option<Identity>,
    ephemeral: [u8; 32],
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hello({:?})", self.id)
    }
}

impl Hello {
    /// Begins a handshake with the holder of `key`, or with whoever answers. The holder of `key`,
    /// and nobody else, learns and can be sure of `own`'s public key; whoever answers learns nothing.
    pub fn new(key: Option<&PublicKey>, own: Option<&Identity>) -> Hello {
        let secrets = Secrets { key: key.copied(), own: own.cloned(), ephemeral: random_bytes() };
        let mut opening = vec![secrets.pattern() as u8];
        secrets.write(&mut opening);
        Hello { id: name_of(&opening), secrets, opening }
    }

    /// Another handshake between the same two.
    #[must_use]
    pub fn renewed(&self) -> Hello {
        Hello::new(self.secrets.key.as_ref(), self.secrets.own.as_ref())
    }

    /// The handshake's pattern and first message.
    pub fn opening(&self) -> &[u8] {
        &self.opening
    }

    /// The second message has come: the session.
    ///
    /// # Errors
    ///
    /// When it is not an answer to this handshake, which goes on waiting.
    pub fn complete(&self, answer: &[u8]) -> Result<Session, SealError> {
        let mut noise = self.secrets.write(&mut Vec::new());
        noise.read_message(answer, &mut [0; ANSWER])?;
        Ok(Session::new(self.id, noise.into_stateless_transport_mode()?))
    }
}

impl Secrets {
    fn pattern(&self) -> Pattern {
        match (&self.key, &self.own) {
            (None, _) => Pattern::Nn,
            (Some(_), None) => Pattern::Nk,
            (Some(_), Some(_)) => Pattern::Ik,
        }
    }

    /// Appends the first message to `out`; the handshake that waits for the second.
    fn write(&self, out: &mut Vec<u8>) -> HandshakeState {
        const VALID: &str = "the pattern and its keys are known to be valid";
        let pattern = self.pattern();
        let resolver = resolver(Some(self.ephemeral));
        let mut builder = Builder::with_resolver(pattern.parameters(), resolver).prologue(PROLOGUE).expect(VALID);
        if let Some(key) = &self.key {
            builder = builder.remote_public_key(&key.0).expect(VALID);
        }
        if let (Some(own), Pattern::Ik) = (&self.own, pattern) {
            builder = builder.local_private_key(&own.secret).expect(VALID);
        }
        let mut noise = builder.build_initiator().expect(VALID);
        let mut message = [0; MAX_OPENING];
        let length = noise.write_message(&[], &mut message).expect(VALID);
        out.extend_from_slice(&message[..length]);
        noise
    }
}

/// The name of the session that a handshake's pattern and first message would begin.
pub fn name_of(opening: &[u8]) -> SessionId {
    let hash = blake3::hash(opening);
    let name = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    SessionId(u64::from_be_bytes(*name))
}

/// A handshake that was answered.
#[derive(Debug)]
pub struct Answered {
    /// What both ends share.
    pub session: Session,
    /// The second message, of [`ANSWER`] bytes.
    pub answer: Vec<u8>,
    /// The key by which the other end is known, if it has shown one. It may be an old message that
    /// somebody repeats: it is sure only when the session has opened one.
    pub sender: Option<PublicKey>,
}

/// Answers a handshake's pattern and first message.
///
/// # Errors
///
/// When it is none.
pub fn answer(identity: &Identity, opening: &[u8]) -> Result<Answered, SealError> {
    let (&byte, message) = opening.split_first().ok_or(SealError::Damaged)?;
    let pattern = Pattern::read(byte).ok_or(SealError::Damaged)?;
    let mut builder = Builder::with_resolver(pattern.parameters(), resolver(None)).prologue(PROLOGUE)?;
    if pattern != Pattern::Nn {
        builder = builder.local_private_key(&identity.secret)?;
    }
    let mut noise = builder.build_responder()?;
    if noise.read_message(message, &mut [0; MAX_OPENING])? != 0 {
        return Err(SealError::Damaged);
    }
    let sender = noise.get_remote_static().and_then(|key| key.try_into().ok()).map(PublicKey);
    let mut answer = vec![0; ANSWER];
    let written = noise.write_message(&[], &mut answer)?;
    answer.truncate(written);
    let session = Session::new(name_of(opening), noise.into_stateless_transport_mode()?);
    Ok(Answered { session, answer, sender })
}

/// 32 bytes from the operating system's random numbers.
pub(crate) fn random_bytes() -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut system = DefaultResolver.resolve_rng().expect("the library has the system's random numbers");
    system.try_fill_bytes(&mut bytes).expect("the system has random numbers");
    bytes
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
    /// Messages opened by this end.
    opened: ReplayWindow,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?}, {} sealed)", self.id, self.counter)
    }
}

impl Session {
    fn new(id: SessionId, noise: StatelessTransportState) -> Session {
        Session { id, noise: Arc::new(noise), counter: 0, opened: ReplayWindow::default() }
    }

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
    ///
    /// # Errors
    ///
    /// When it was not sealed by the other end, or was opened before.
    pub fn open(&mut self, sealed: &[u8], message: &mut Vec<u8>) -> Result<(), SealError> {
        let (counter, sealed) = sealed.split_first_chunk().ok_or(SealError::Damaged)?;
        let counter = u64::from_be_bytes(*counter);
        if !self.opened.is_new(counter) {
            return Err(SealError::Replayed);
        }
        message.clear();
        message.resize(sealed.len(), 0);
        let length = self.noise.read_message(counter, sealed, message)?;
        message.truncate(length);
        // Only now: whoever forges a message must not use up its counter.
        self.opened.note(counter);
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
    let waiting = Hello::new(Some(&identity.public()), None);
    let Answered { session, answer, .. } = answer(identity, waiting.opening()).expect(WORKS);
    (waiting.complete(&answer).expect(WORKS), session)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(
        key: Option<PublicKey>,
        own: Option<&Identity>,
        identity: &Identity,
    ) -> Result<(Session, Answered), SealError> {
        let waiting = Hello::new(key.as_ref(), own);
        let theirs = answer(identity, waiting.opening())?;
        assert_eq!(
            (theirs.answer.len(), waiting.opening().len()),
            (ANSWER, opening_len(waiting.opening()[0]).unwrap())
        );
        Ok((waiting.complete(&theirs.answer)?, theirs))
    }

    #[test]
    fn both_ends_open_what_the_other_sealed_in_any_order_and_once() {
        let (identity, own) = (Identity::generate(), Identity::generate());
        for (key, own) in [(None, None), (Some(identity.public()), None), (Some(identity.public()), Some(&own))] {
            let (mut ours, Answered { session: mut theirs, .. }) = handshake(key, own, &identity).unwrap();
            assert_eq!(ours.id(), theirs.id());
            let sealed: Vec<Vec<u8>> = (0..3u8)
                .map(|message| {
                    let mut out = Vec::new();
                    ours.seal_data(&[message; 5], &mut out);
                    out
                })
                .collect();
            let mut message = Vec::new();
            for which in [2, 0, 1] {
                let (id, rest) = split_session(&sealed[which]).unwrap();
                assert_eq!(id, theirs.id());
                theirs.open(rest, &mut message).unwrap();
                assert_eq!(message, [which as u8; 5]);
                assert_eq!(theirs.open(rest, &mut message), Err(SealError::Replayed));
            }
            let mut again = Vec::new();
            ours.seal(&[2; 5], &mut again);
            theirs.open(&again, &mut message).unwrap();
            assert_eq!(message, [2; 5], "the same words under a new counter are no replay");
        }
    }

    #[test]
    fn a_clone_of_a_waiting_handshake_completes_to_the_same_session() {
        let identity = Identity::generate();
        for key in [None, Some(identity.public())] {
            let waiting = Hello::new(key.as_ref(), None);
            let Answered { session: mut theirs, answer, .. } = answer(&identity, waiting.opening()).unwrap();
            let mut sealed = Vec::new();
            theirs.seal(b"answer", &mut sealed);
            for waiting in [waiting.clone(), waiting] {
                let mut ours = waiting.complete(&answer).unwrap();
                let mut message = Vec::new();
                ours.open(&sealed, &mut message).unwrap();
                assert_eq!(message, b"answer");
                let mut data = Vec::new();
                ours.clone().seal(b"block", &mut data);
                theirs.clone().open(&data, &mut message).unwrap();
                let mut again = Vec::new();
                ours.seal(b"block", &mut again);
                assert_eq!(data, again, "a clone seals as the original would have");
            }
        }
    }

    #[test]
    fn two_handshakes_have_two_ephemeral_keys() {
        assert_ne!(Hello::new(None, None).opening(), Hello::new(None, None).opening());
    }

    #[test]
    fn whoever_lacks_the_secret_key_can_not_answer() {
        let (key, own) = (Identity::generate().public(), Identity::generate());
        for own in [None, Some(&own)] {
            assert!(handshake(Some(key), own, &Identity::generate()).is_err());
        }
    }

    #[test]
    fn a_receiver_learns_who_sends_from_those_who_show_it_and_who_lacks_the_key_can_not() {
        let (identity, own) = (Identity::generate(), Identity::generate());
        let sender_of = |key, own| handshake(key, own, &identity).unwrap().1.sender;
        assert_eq!(sender_of(Some(identity.public()), Some(&own)), Some(own.public()));
        assert_eq!(sender_of(Some(identity.public()), None), None);
        assert_eq!(sender_of(None, Some(&own)), None, "whoever answers learns nothing");
        // With the public key alone nothing can be shown.
        let pretends = Identity { secret: Identity::generate().secret, public: own.public() };
        let sender = handshake(Some(identity.public()), Some(&pretends), &identity).map(|(_, theirs)| theirs.sender);
        assert_ne!(sender, Ok(Some(own.public())));
    }

    #[test]
    fn what_was_changed_or_cut_does_not_open_and_uses_up_no_counter() {
        let (mut ours, mut theirs) = local_session(&Identity::generate());
        let mut sealed = Vec::new();
        ours.seal(b"message", &mut sealed);
        let mut message = Vec::new();
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(theirs.open(&changed, &mut message), Err(SealError::Damaged));
            assert_eq!(theirs.open(&sealed[..place], &mut message), Err(SealError::Damaged));
        }
        assert_eq!(ours.open(&sealed, &mut message), Err(SealError::Damaged), "each direction has its own key");
        assert_eq!(theirs.open(&sealed, &mut message), Ok(()));
    }

    #[test]
    fn arbitrary_handshakes_are_refused() {
        let identity = Identity::generate();
        for opening in [&[][..], &[0], &[1], &[2; 60], &[1; 57], &[2; MAX_OPENING], &[3; 33], &[0; 2000]] {
            assert!(answer(&identity, opening).is_err(), "{}", opening.len());
        }
    }

    #[test]
    fn a_secrets_public_key_is_that_of_the_standard() {
        // RFC 7748, 6.1: Alice's keys.
        let hex = |text: &str| crate::key_text::parse(text).unwrap();
        let alice = Identity::from_secret(hex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"));
        let public = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
        assert_eq!(alice.public(), PublicKey(hex(public)));
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

//! What the Noise library computes with: [`x25519`], ring's ciphers, its own hash, and random numbers that
//! may have been drawn before.

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{BoxedCryptoResolver, CryptoResolver, DefaultResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use zeroize::Zeroizing;

use crate::x25519::Secret;

/// Bytes of a key, secret or public.
const KEY: usize = 32;

/// For a [`snow::Builder`]. The next ephemeral secret is `ephemeral`, once: no other can be made then. Without one the
/// system's random numbers are asked.
///
/// Patterns of 25519, ChaChaPoly or AESGCM, BLAKE2 or SHA-2 can be computed.
pub fn resolver(ephemeral: Option<[u8; 32]>) -> BoxedCryptoResolver {
    Box::new(Resolver(ephemeral))
}

struct Resolver(Option<[u8; KEY]>);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        match self.0 {
            Some(drawn) => Some(Box::new(Once(Some(drawn)))),
            None => DefaultResolver.resolve_rng(),
        }
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        match choice {
            DHChoice::Curve25519 => Some(Box::new(Keys::default())),
            _ => None,
        }
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    // In assembly a packet takes less than half of the time, and each is sealed.
    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        RingResolver.resolve_cipher(choice)
    }
}

/// Gives its bytes once, to whoever asks for exactly as many: a key is never used twice.
struct Once(Option<[u8; KEY]>);

impl Random for Once {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        let bytes = self.0.take().filter(|bytes| bytes.len() == dest.len()).ok_or(snow::Error::Rng)?;
        dest.copy_from_slice(&bytes);
        Ok(())
    }
}

/// A key pair of X25519. The library's own multiplies several times slower, and whoever answers strangers pays for it.
#[derive(Default)]
struct Keys {
    secret: Zeroizing<[u8; KEY]>,
    public: [u8; KEY],
}

impl Dh for Keys {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY
    }

    fn priv_len(&self) -> usize {
        KEY
    }

    fn set(&mut self, secret: &[u8]) {
        self.secret.copy_from_slice(secret);
        self.public = Secret::new(&self.secret).public();
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), snow::Error> {
        random.try_fill_bytes(&mut *self.secret)?;
        self.public = Secret::new(&self.secret).public();
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.secret
    }

    /// With a point of low order the result is zero, as Noise has it (12.1): no handshake's secrecy hangs on one result.
    ///
    /// The library gives room for the longest of all curves' keys and results; ours come first.
    fn dh(&self, theirs: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let theirs = theirs.first_chunk().ok_or(snow::Error::Dh)?;
        let out = out.first_chunk_mut().ok_or(snow::Error::Dh)?;
        *out = Secret::new(&self.secret).agree(theirs).map_or([0; KEY], |shared| *shared);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snow::Builder;

    use super::*;
    use crate::x25519::LOW_ORDER;

    const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";

    fn builder<'a>(ephemeral: Option<[u8; KEY]>) -> Builder<'a> {
        Builder::with_resolver(PATTERN.parse().unwrap(), resolver(ephemeral))
    }

    fn public(secret: &[u8; KEY]) -> [u8; KEY] {
        Secret::new(secret).public()
    }

    proptest! {
        #[test]
        fn handshakes_are_those_of_the_librarys_own_curve(ours: [u8; KEY], theirs: [u8; KEY], drawn: [u8; KEY]) {
            let own = || Builder::new(PATTERN.parse().unwrap());
            for ours_begins in [true, false] {
                let (begins, answers) = if ours_begins { (builder(Some(drawn)), own()) } else { (own(), builder(None)) };
                let remote = public(&theirs);
                let begins = begins.local_private_key(&ours).unwrap().remote_public_key(&remote).unwrap();
                let mut begins = begins.build_initiator().unwrap();
                let mut answers = answers.local_private_key(&theirs).unwrap().build_responder().unwrap();
                let (mut message, mut read) = ([0; 256], [0; 256]);
                let length = begins.write_message(b"opening", &mut message).unwrap();
                let length = answers.read_message(&message[..length], &mut read).unwrap();
                prop_assert_eq!(&read[..length], b"opening");
                prop_assert_eq!(answers.get_remote_static().unwrap(), public(&ours));
                let length = answers.write_message(b"answer", &mut message).unwrap();
                let length = begins.read_message(&message[..length], &mut read).unwrap();
                prop_assert_eq!(&read[..length], b"answer");
            }
        }
    }

    #[test]
    fn an_ephemeral_secret_is_the_one_that_was_drawn_and_is_used_once() {
        let mut noise = builder(Some([7; KEY]));
        let remote = public(&[1; KEY]);
        noise = noise.local_private_key(&[2; KEY]).unwrap().remote_public_key(&remote).unwrap();
        let mut message = [0; 256];
        noise.build_initiator().unwrap().write_message(&[], &mut message).unwrap();
        assert_eq!(message[..KEY], public(&[7; KEY]));
        let mut random = resolver(Some([7; KEY])).resolve_rng().unwrap();
        let mut bytes = [0; KEY];
        random.try_fill_bytes(&mut bytes).unwrap();
        assert_eq!(bytes, [7; KEY]);
        assert!(random.try_fill_bytes(&mut bytes).is_err());
    }

    #[test]
    fn with_a_point_of_low_order_the_result_is_zero() {
        let mut keys = Keys::default();
        keys.set(&[7; KEY]);
        for point in LOW_ORDER {
            let mut out = [1; 56];
            keys.dh(&point, &mut out).unwrap();
            assert_eq!(out[..KEY], [0; KEY]);
        }
    }
}

//! Who the ends of a transfer are over QUIC: by the same keys as over relays, so that a user has one key,
//! which `anabranch key` prints.
//!
//! Those keys are of Curve25519 (RFC 7748), for Noise's exchanges; TLS wants signatures. The curve of
//! Ed25519 is the same in another form (RFC 7748, 4.1), and the same secret signs there, as
//! XEdDSA has it (T. Perrin, "The XEdDSA and VXEdDSA signature schemes", revision 1, 2.3): of the two points with a key's
//! coordinate u, the one with an even x is the Ed25519 key. Signatures are those of RFC 8032, with a prefix for
//! their nonces that only the secret gives.

use std::fmt;
use std::sync::Arc;

use anabranch_proto::session::PeerKey;
use curve25519_dalek::edwards::{CompressedEdwardsY, EdwardsPoint};
use curve25519_dalek::montgomery::MontgomeryPoint;
use curve25519_dalek::scalar::{Scalar, clamp_integer};
use ed25519_dalek::VerifyingKey;
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};
use sha2::Sha512;

pub use crate::tls::Shown;
use crate::tls::{self, Clients};
pub use anabranch_proto::seal::{Identity, PublicKey};

/// What the nonces of signatures are made for (BLAKE3's key derivation).
const NONCES: &str = "anabranch 2026-11-26 Ed25519 signatures by a Curve25519 key: the prefix of nonces";

/// Whom a sender takes for its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Who proves to hold the secret of this key.
    Only(PublicKey),
    /// Whoever answers.
    Anybody,
}

impl Trust {
    /// The name under which TLS asks for the receiver; none if the key is no point of the curve, and so nobody's.
    pub fn name(&self) -> Option<String> {
        match self {
            Trust::Only(key) => Some(tls::server_name(Some(&signing_key(key)?))),
            Trust::Anybody => Some(tls::server_name(None)),
        }
    }
}

/// The key in TLS of the holder of `key`; none if that is no point of the curve, or one of small order.
fn signing_key(key: &PublicKey) -> Option<PeerKey> {
    let point = MontgomeryPoint(key.0).to_edwards(0)?;
    (!point.is_small_order()).then(|| PeerKey(point.compress().0))
}

/// Whose key in TLS this is.
fn public_key(key: PeerKey) -> Option<PublicKey> {
    let point = CompressedEdwardsY(key.0).decompress()?;
    // A signature under a point of small order proves nothing.
    (!point.is_small_order()).then(|| PublicKey(point.to_montgomery().0))
}

/// The key that the other end of a connection has proved to hold, of what the QUIC library says of that end.
pub fn shown_by(peer: Option<Box<dyn std::any::Any>>) -> Option<PublicKey> {
    let shown = peer?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    public_key(tls::key_of(shown.first()?)?)
}

/// The key of who has answered.
pub fn answered(shown: &Shown) -> Option<PublicKey> {
    shown.key().and_then(public_key)
}

/// TLS 1.3 as `identity` where others begin, speaking `protocol`. Who begins may show a key.
///
/// # Errors
///
/// When TLS cannot be set up on this machine.
pub fn server_tls(identity: &Identity, protocol: &[u8]) -> Result<rustls::ServerConfig, rustls::Error> {
    tls::server(certified(identity), Clients::Any, protocol)
}

/// TLS 1.3 where this end begins, as `own` or as nobody, speaking `protocol`; says who has answered.
/// The receiver is asked for by [`Trust::name`].
///
/// # Errors
///
/// When TLS cannot be set up on this machine.
pub fn client_tls(own: Option<&Identity>, protocol: &[u8]) -> Result<(rustls::ClientConfig, Shown), rustls::Error> {
    tls::client(own.map(certified), protocol)
}

fn certified(identity: &Identity) -> Arc<CertifiedKey> {
    let key = Arc::new(Key::of(identity));
    tls::certified(&PeerKey(key.public.to_bytes()), Arc::new(SharedKey(key)))
}

/// A Curve25519 key that signs.
struct Key {
    secret: ExpandedSecretKey,
    public: VerifyingKey,
}

impl Key {
    fn of(identity: &Identity) -> Key {
        let scalar = Scalar::from_bytes_mod_order(clamp_integer(*identity.secret()));
        let point = EdwardsPoint::mul_base(&scalar);
        // The point with an even x: the other one's secret is the negative of this one's.
        let is_odd = point.compress().0[31] >> 7 == 1;
        let (scalar, point) = if is_odd { (-scalar, -point) } else { (scalar, point) };
        let hash_prefix = blake3::derive_key(NONCES, identity.secret());
        Key { secret: ExpandedSecretKey { scalar, hash_prefix }, public: VerifyingKey::from(point) }
    }
}

#[derive(Clone)]
struct SharedKey(Arc<Key>);

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret is never shown.
        f.debug_tuple("SharedKey").field(&self.0.public).finish()
    }
}

impl SigningKey for SharedKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let signer = || Box::new(self.clone()) as Box<dyn Signer>;
        offered.contains(&SignatureScheme::ED25519).then(signer)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for SharedKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(raw_sign::<Sha512>(&self.0.secret, message, &self.0.public).to_bytes().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_form_on_each_curve_and_signs_for_both() {
        for _ in 0..50 {
            let identity = Identity::generate();
            let key = Key::of(&identity);
            let shown = PeerKey(key.public.to_bytes());
            assert_eq!(signing_key(&identity.public()), Some(shown), "who asks for it finds it");
            assert_eq!(public_key(shown), Some(identity.public()), "who sees it knows whose it is");
            let signer = SharedKey(Arc::new(key)).choose_scheme(&[SignatureScheme::ED25519]).unwrap();
            let signature = signer.sign(b"proof").unwrap();
            let public = ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, shown.0);
            assert!(public.verify(b"proof", &signature).is_ok(), "another library takes the signature");
            assert!(public.verify(b"prove", &signature).is_err());
        }
    }

    #[test]
    fn what_is_no_point_or_a_small_one_is_nobodys_key() {
        // u = 2 is on the twist, u = 0 has order 2.
        for first in [2, 0] {
            let mut key = [0; 32];
            key[0] = first;
            assert_eq!((signing_key(&PublicKey(key)), Trust::Only(PublicKey(key)).name()), (None, None));
        }
        // y = 1 is the neutral element, y = 0 has order 4.
        for first in [1, 0] {
            let mut small = [0; 32];
            small[0] = first;
            assert_eq!(public_key(PeerKey(small)), None);
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let identity = Identity::from_secret([0xab; 32]);
        assert!(!format!("{:?}", SharedKey(Arc::new(Key::of(&identity)))).contains("abab"));
    }
}

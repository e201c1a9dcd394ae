//! Who a peer is: an Ed25519 key (RFC 8032). Both ends of a session prove theirs ([`crate::tls`]).

use std::fmt;
use std::sync::Arc;

use anabranch_proto::session::PeerKey;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::CertifiedKey;

use crate::tls::{self, Clients};
pub use crate::tls::{key_of, server_name};

/// What is before an Ed25519 secret key in PKCS #8 (RFC 8410, 7).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A peer's key pair.
#[derive(Clone)]
pub struct PeerIdentity {
    secret: [u8; 32],
    pair: Arc<Ed25519KeyPair>,
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret is never shown.
        f.debug_tuple("PeerIdentity").field(&self.public()).finish()
    }
}

impl PeerIdentity {
    /// A new one, by random numbers of the system.
    ///
    /// # Panics
    ///
    /// When the system gives no random numbers.
    pub fn generate() -> PeerIdentity {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("the system gives random numbers");
        PeerIdentity::from_secret(secret)
    }

    /// The one of `secret`.
    pub fn from_secret(secret: [u8; 32]) -> PeerIdentity {
        let pair = Ed25519KeyPair::from_seed_unchecked(&secret).expect("every 32 bytes are an Ed25519 secret");
        PeerIdentity { secret, pair: Arc::new(pair) }
    }

    /// What it is made of.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// What others know it by.
    pub fn public(&self) -> PeerKey {
        PeerKey(self.pair.public_key().as_ref().try_into().expect("an Ed25519 key has 32 bytes"))
    }

    /// Signs `message`.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.pair.sign(message).as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }

    fn certified(&self) -> Result<Arc<CertifiedKey>, rustls::Error> {
        let secret = PrivatePkcs8KeyDer::from([&PKCS8_PREFIX[..], &self.secret].concat());
        let signer = tls::provider().key_provider.load_private_key(secret.into())?;
        Ok(tls::certified(&self.public(), signer))
    }

    /// TLS 1.3 as this peer where others begin, speaking `protocol`.
    ///
    /// # Errors
    ///
    /// When TLS cannot use the key.
    pub fn server_tls(&self, protocol: &[u8]) -> Result<rustls::ServerConfig, rustls::Error> {
        tls::server(self.certified()?, Clients::Known, protocol)
    }

    /// TLS 1.3 as this peer where it begins, speaking `protocol`.
    ///
    /// # Errors
    ///
    /// When TLS cannot use the key.
    pub fn client_tls(&self, protocol: &[u8]) -> Result<rustls::ClientConfig, rustls::Error> {
        tls::client(Some(self.certified()?), protocol).map(|(config, _)| config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_key_that_rfc_8032_says() {
        // RFC 8032, 7.1, test 1.
        let secret =
            anabranch_proto::key_text::parse("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public =
            anabranch_proto::key_text::parse("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        let identity = PeerIdentity::from_secret(secret.unwrap());
        assert_eq!(identity.public(), PeerKey(public.unwrap()));
        assert_eq!(identity.sign(&[])[..4], [0xe5, 0x56, 0x43, 0x00]);
        assert!(!format!("{identity:?}").contains("9d61"));
    }
}

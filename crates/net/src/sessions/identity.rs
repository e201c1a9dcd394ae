//! Who a peer is: an Ed25519 key (RFC 8032), shown in TLS as it is, without a certificate (RFC 7250).
//! Both ends prove theirs. A peer that is asked for by its key is told nothing before it has
//! proved to have it: the key stands in the name that TLS checks, which does not leave this machine.

use std::fmt;
use std::sync::Arc;

use anabranch_proto::session::PeerKey;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, PeerMisbehaved, SignatureScheme};

/// What is before an Ed25519 public key in its SubjectPublicKeyInfo (RFC 8410, 4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

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
        let signer = provider().key_provider.load_private_key(secret.into())?;
        let public = CertificateDer::from([&SPKI_PREFIX[..], &self.public().0].concat());
        Ok(Arc::new(CertifiedKey::new(vec![public], signer)))
    }

    /// TLS 1.3 as this peer where others begin, speaking `protocol`.
    ///
    /// # Errors
    ///
    /// When TLS cannot use the key.
    pub fn server_tls(&self, protocol: &[u8]) -> Result<rustls::ServerConfig, rustls::Error> {
        let resolver = rustls::server::AlwaysResolvesServerRawPublicKeys::new(self.certified()?);
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(Verifier))
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![protocol.to_vec()];
        // A session is not resumed: its ends prove their keys each time.
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// TLS 1.3 as this peer where it begins, speaking `protocol`.
    ///
    /// # Errors
    ///
    /// When TLS cannot use the key.
    pub fn client_tls(&self, protocol: &[u8]) -> Result<rustls::ClientConfig, rustls::Error> {
        let resolver = rustls::client::AlwaysResolvesClientRawPublicKeys::new(self.certified()?);
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier))
            .with_client_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![protocol.to_vec()];
        config.enable_sni = false;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The name under which TLS asks for a peer with `key`, or for any.
pub fn server_name(key: Option<&PeerKey>) -> String {
    let Some(key) = key else { return "any.invalid".to_owned() };
    // A label of a name has at most 63 characters.
    let half = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{}.{}.invalid", half(&key.0[..16]), half(&key.0[16..]))
}

/// The key in what the other end has shown and proved to have.
pub fn key_of(shown: &CertificateDer<'_>) -> Option<PeerKey> {
    let key = shown.strip_prefix(&SPKI_PREFIX[..])?;
    Some(PeerKey(key.try_into().ok()?))
}

/// Takes any Ed25519 key, or the one that is asked for. That the other end has its secret is for TLS to
/// check by the signature.
#[derive(Debug)]
struct Verifier;

impl Verifier {
    fn check(shown: &CertificateDer<'_>) -> Result<PeerKey, rustls::Error> {
        key_of(shown).ok_or_else(|| CertificateError::BadEncoding.into())
    }

    fn signature(
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signed, &algorithms)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let key = Verifier::check(end_entity)?;
        let name = name.to_str();
        if name == server_name(None) || name == server_name(Some(&key)) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::NotValidForName.into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Verifier::signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Verifier::check(end_entity).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Verifier::signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
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

    #[test]
    fn a_peer_that_is_asked_for_by_its_key_must_show_that_one() {
        let [one, other] = [PeerIdentity::generate(), PeerIdentity::generate()];
        let shown = CertificateDer::from([&SPKI_PREFIX[..], &one.public().0].concat());
        let verify = |asked: Option<PeerKey>, shown: &CertificateDer<'_>| {
            let name = ServerName::try_from(server_name(asked.as_ref())).unwrap();
            Verifier.verify_server_cert(shown, &[], &name, &[], UnixTime::now()).is_ok()
        };
        assert!(verify(None, &shown) && verify(Some(one.public()), &shown));
        assert!(!verify(Some(other.public()), &shown));
        let longer = CertificateDer::from([&SPKI_PREFIX[..], &one.public().0, &[0]].concat());
        assert!(!verify(None, &longer) && !verify(None, &CertificateDer::from(vec![0; 44])));
    }
}

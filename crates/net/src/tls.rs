//! TLS 1.3 by Ed25519 keys (RFC 8032) that are shown as they are, without certificates (RFC 7250).
//! Who is asked for by its key is told nothing before it has proved to have it: the key stands in the
//! name that TLS checks, which does not leave this machine.

use std::sync::{Arc, Mutex, PoisonError};

use anabranch_proto::session::PeerKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, PeerMisbehaved, SignatureScheme};

/// What is before an Ed25519 public key in its SubjectPublicKeyInfo (RFC 8410, 4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Whether those who begin a connection show a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Each must.
    Known,
    /// Who has one and wants to.
    Any,
}

/// The key that the other end has shown, once there is one. Whether it has its secret is known when
/// the handshake is over.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<Mutex<Option<PeerKey>>>);

impl Shown {
    /// That key.
    pub fn key(&self) -> Option<PeerKey> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, key: PeerKey) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
    }
}

/// Ring's algorithms.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// `key` as TLS shows it, and what signs for it.
pub fn certified(key: &PeerKey, signer: Arc<dyn SigningKey>) -> Arc<CertifiedKey> {
    Arc::new(CertifiedKey::new(vec![shown(key)], signer))
}

/// Where others begin: as `own`, speaking `protocol`. A connection is not resumed: its ends prove their
/// keys each time.
///
/// # Errors
///
/// When TLS cannot be set up on this machine.
pub fn server(
    own: Arc<CertifiedKey>,
    clients: Clients,
    protocol: &[u8],
) -> Result<rustls::ServerConfig, rustls::Error> {
    let verifier = Verifier { shown: None, is_mandatory: clients == Clients::Known };
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(rustls::server::AlwaysResolvesServerRawPublicKeys::new(own)));
    config.alpn_protocols = vec![protocol.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Where this end begins: as `own`, or as nobody, speaking `protocol`. Says which key the other end has shown.
///
/// # Errors
///
/// When TLS cannot be set up on this machine.
pub fn client(own: Option<Arc<CertifiedKey>>, protocol: &[u8]) -> Result<(rustls::ClientConfig, Shown), rustls::Error> {
    let answered = Shown::default();
    let verifier = Verifier { shown: Some(answered.clone()), is_mandatory: true };
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(Own(own)));
    config.alpn_protocols = vec![protocol.to_vec()];
    config.enable_sni = false;
    config.resumption = rustls::client::Resumption::disabled();
    Ok((config, answered))
}

/// The name under which TLS asks for who has `key`, or for anybody.
pub fn server_name(key: Option<&PeerKey>) -> String {
    let Some(key) = key else { return "any.invalid".to_owned() };
    // A label of a name has at most 63 characters.
    let half = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{}.{}.invalid", half(&key.0[..16]), half(&key.0[16..]))
}

/// The key in what the other end has shown.
pub fn key_of(shown: &CertificateDer<'_>) -> Option<PeerKey> {
    let key = shown.strip_prefix(&SPKI_PREFIX[..])?;
    Some(PeerKey(key.try_into().ok()?))
}

fn shown(key: &PeerKey) -> CertificateDer<'static> {
    CertificateDer::from([&SPKI_PREFIX[..], &key.0].concat())
}

/// The key that a client shows, if it shows one.
#[derive(Debug)]
struct Own(Option<Arc<CertifiedKey>>);

impl rustls::client::ResolvesClientCert for Own {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        self.0.is_some()
    }
}

/// Takes any Ed25519 key, or the one that is asked for. That the other end has its secret is for TLS to
/// check by the signature.
#[derive(Debug)]
struct Verifier {
    /// Where the other end's key is noted.
    shown: Option<Shown>,
    /// Whether the other end must show one.
    is_mandatory: bool,
}

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
        self.shown.iter().for_each(|shown| shown.set(key));
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

    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
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
    fn who_is_asked_for_by_its_key_must_show_that_one() {
        let [one, other] = [PeerKey([1; 32]), PeerKey([2; 32])];
        let answered = Shown::default();
        let verifier = Verifier { shown: Some(answered.clone()), is_mandatory: true };
        let verify = |asked: Option<PeerKey>, shown: &CertificateDer<'_>| {
            let name = ServerName::try_from(server_name(asked.as_ref())).unwrap();
            verifier.verify_server_cert(shown, &[], &name, &[], UnixTime::now()).is_ok()
        };
        assert!(verify(None, &shown(&one)) && verify(Some(one), &shown(&one)));
        assert!(!verify(Some(other), &shown(&one)));
        assert_eq!(answered.key(), Some(one));
        let longer = CertificateDer::from([&SPKI_PREFIX[..], &one.0, &[0]].concat());
        assert!(!verify(None, &longer) && !verify(None, &CertificateDer::from(vec![0; 44])));
    }
}

//! Who a receiver is: a key made anew, in a certificate that nobody else has signed, known
//! by the BLAKE3 hash of it. A sender that was told the hash reaches that receiver or nobody.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_proto::key_text;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};

/// The name in a certificate: none is looked at.
pub const NAME: &str = "anabranch";

/// The hash of a receiver's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Fingerprint {
        Fingerprint(*blake3::hash(certificate).as_bytes())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        key_text::write(&self.0, f)
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    /// Reads the 64 hexadecimal digits that a receiver prints.
    fn from_str(text: &str) -> Result<Fingerprint, String> {
        key_text::parse(text).map(Fingerprint)
    }
}

/// Whom a sender takes for its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Who has this fingerprint.
    Only(Fingerprint),
    /// Whoever answers.
    Anybody,
}

/// A receiver's certificate and its key.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Identity {
    /// A new one.
    ///
    /// # Errors
    ///
    /// When the system gives no random numbers.
    pub fn generate() -> Result<Identity, rcgen::Error> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Identity { certificate: made.cert.der().clone(), key })
    }

    /// What it is known by.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// TLS 1.3 as this receiver, for connections that speak `protocol`.
    ///
    /// # Errors
    ///
    /// When TLS cannot use the key.
    pub fn tls(&self, protocol: &[u8]) -> Result<rustls::ServerConfig, rustls::Error> {
        let builder = rustls::ServerConfig::builder_with_provider(provider());
        let mut config = builder
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key().into())?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }
}

/// Who answered, once somebody has.
#[derive(Clone, Debug, Default)]
pub struct Answered(Arc<Mutex<Option<Fingerprint>>>);

impl Answered {
    /// Their fingerprint.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// TLS 1.3 to a receiver that `trust` accepts; says who answered.
///
/// # Errors
///
/// When TLS cannot be set up on this machine.
pub fn tls_to(trust: Trust, protocol: &[u8]) -> Result<(rustls::ClientConfig, Answered), rustls::Error> {
    let answered = Answered::default();
    let verifier = Verifier { trust, answered: answered.clone(), provider: provider() };
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok((config, answered))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Compares fingerprints. That the other side holds the certificate's key is TLS's to check.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    answered: Answered,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let fingerprint = Fingerprint::of(end_entity);
        *self.answered.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(fingerprint);
        match self.trust {
            Trust::Only(expected) if expected != fingerprint => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            Trust::Only(_) | Trust::Anybody => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC speaks TLS 1.3".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_printed() {
        let one = Identity::generate().unwrap().fingerprint();
        assert_eq!(one.to_string().parse(), Ok(one));
        assert_eq!(one.to_string().to_uppercase().parse(), Ok(one));
        assert_ne!(Identity::generate().unwrap().fingerprint(), one);
        for wrong in ["", "12", &"g".repeat(64), &"é".repeat(32)] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}

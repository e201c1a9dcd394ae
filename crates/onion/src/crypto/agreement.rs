//! X25519 (RFC 7748), by graviola's verified assembly where the processor has what it needs, else by
//! curve25519-dalek.
//!
//! Both give the same; which one runs is decided once, when a secret is made. Shared secrets that are
//! zero, as points of low order give them, are refused (RFC 7748, 6.1).

use core::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A secret scalar.
#[derive(Clone)]
pub struct Secret {
    scalar: Zeroizing<[u8; 32]>,
    fast: bool,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Any 32 random bytes are one.
    pub(super) fn new(random: &[u8; 32]) -> Secret {
        Secret { scalar: Zeroizing::new(*random), fast: fast::is_supported() }
    }

    /// The same by the portable implementation.
    #[cfg(test)]
    fn portable(random: &[u8; 32]) -> Secret {
        Secret { scalar: Zeroizing::new(*random), fast: false }
    }

    /// The public key's bytes.
    pub(super) fn public(&self) -> [u8; 32] {
        if self.fast { fast::public(&self.scalar) } else { portable::public(&self.scalar) }
    }

    /// The shared secret; none if it is zero.
    pub(super) fn agree(&self, theirs: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
        if self.fast { fast::agree(&self.scalar, theirs) } else { portable::agree(&self.scalar, theirs) }
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod fast {
    use graviola::key_agreement::x25519::{PublicKey, StaticPrivateKey};
    use zeroize::Zeroizing;

    pub fn is_supported() -> bool {
        graviola::util::is_cpu_supported()
    }

    pub fn public(scalar: &[u8; 32]) -> [u8; 32] {
        StaticPrivateKey::from_array(scalar).public_key().as_bytes()
    }

    pub fn agree(scalar: &[u8; 32], theirs: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
        let theirs = PublicKey::from_array(theirs);
        let shared = StaticPrivateKey::from_array(scalar).diffie_hellman(&theirs).ok()?;
        Some(Zeroizing::new(shared.0))
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod fast {
    pub use super::portable::{agree, public};

    pub fn is_supported() -> bool {
        false
    }
}

mod portable {
    use curve25519_dalek::MontgomeryPoint;
    use zeroize::Zeroizing;

    use super::ConstantTimeEq;

    pub fn public(scalar: &[u8; 32]) -> [u8; 32] {
        MontgomeryPoint::mul_base_clamped(*scalar).to_bytes()
    }

    pub fn agree(scalar: &[u8; 32], theirs: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
        let shared = Zeroizing::new(MontgomeryPoint(*theirs).mul_clamped(*scalar).to_bytes());
        (!bool::from(shared.ct_eq(&[0; 32]))).then_some(shared)
    }
}

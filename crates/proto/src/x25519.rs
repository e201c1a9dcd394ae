//! X25519 (RFC 7748), by graviola's verified assembly where the processor has what it needs, else by
//! curve25519-dalek.
//!
//! Both give the same; which one runs is decided once, when a secret is made. Shared secrets that are
//! zero, as points of low order give them, are refused (RFC 7748, 6.1).

use core::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// All points of low order on the curve and its twist, in all encodings (RFC 7748, 7; the orders are 1, 2, 4, 8): whoever
/// takes one for a public key agrees on zero.
pub const LOW_ORDER: [[u8; 32]; 7] = [
    bytes("0000000000000000000000000000000000000000000000000000000000000000"),
    bytes("0100000000000000000000000000000000000000000000000000000000000000"),
    bytes("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
];

/// The bytes of 64 hexadecimal digits.
const fn bytes(digits: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut place = 0;
    while place < 2 * bytes.len() {
        let digit = (digits.as_bytes()[place] as char).to_digit(16).expect("a hexadecimal digit");
        bytes[place / 2] = bytes[place / 2] << 4 | digit as u8;
        place += 1;
    }
    bytes
}

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
    pub fn new(random: &[u8; 32]) -> Secret {
        Secret { scalar: Zeroizing::new(*random), fast: fast::is_supported() }
    }

    /// The same by the portable implementation.
    #[cfg(test)]
    fn portable(random: &[u8; 32]) -> Secret {
        Secret { scalar: Zeroizing::new(*random), fast: false }
    }

    /// The public key's bytes.
    pub fn public(&self) -> [u8; 32] {
        if self.fast { fast::public(&self.scalar) } else { portable::public(&self.scalar) }
    }

    /// The shared secret; none if it is zero.
    pub fn agree(&self, theirs: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Both implementations, where the processor has both.
    fn secrets(random: &[u8; 32]) -> [Secret; 2] {
        [Secret::new(random), Secret::portable(random)]
    }

    #[test]
    fn p16_published_vectors_of_x25519_hold() {
        // RFC 7748, 5.2.
        for (scalar, point, shared) in [
            (
                "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
                "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
                "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
            ),
            (
                "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
                "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
                "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
            ),
        ] {
            for secret in secrets(&bytes(scalar)) {
                assert_eq!(*secret.agree(&bytes(point)).unwrap(), bytes(shared), "fast: {}", secret.fast);
            }
        }
        // RFC 7748, 6.1.
        let alice = bytes("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
        let bob = bytes("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let shared = bytes("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
        for (alice, bob) in secrets(&alice).into_iter().zip(secrets(&bob)) {
            assert_eq!(alice.public(), bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"));
            assert_eq!(bob.public(), bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));
            assert_eq!(*alice.agree(&bob.public()).unwrap(), shared);
            assert_eq!(*bob.agree(&alice.public()).unwrap(), shared);
        }
    }

    #[test]
    fn p16_a_thousand_iterations_of_x25519_give_the_published_point() {
        // RFC 7748, 5.2: the scalar becomes the next point, and the result the next scalar.
        let mut base = [0; 32];
        base[0] = 9;
        for fast in [true, false] {
            let (mut scalar, mut point) = (base, base);
            for _ in 0..1_000 {
                let secret = if fast { Secret::new(&scalar) } else { Secret::portable(&scalar) };
                (scalar, point) = (*secret.agree(&point).unwrap(), scalar);
            }
            assert_eq!(scalar, bytes("684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"));
        }
    }

    #[test]
    fn p08_points_of_low_order_are_refused() {
        for point in LOW_ORDER {
            for secret in secrets(&[7; 32]) {
                assert!(secret.agree(&point).is_none(), "{point:02x?}, fast: {}", secret.fast);
            }
        }
    }
}

//! What people tell each other: a receiver's public key, in digits with a checksum.
//!
//! ```text
//! 64 hexadecimal digits   the Ed25519 key
//! 4 digits                the first two bytes of a hash of it
//! ```

use core::fmt;
use core::str::FromStr;

use anabranch_proto::key_text;
use curve25519_dalek::edwards::CompressedEdwardsY;
use thiserror::Error;

use crate::directory::PublicKey;

const CONTEXT: &str = "anabranch onion address checksum 1";

/// Digits of the key, and of the checksum.
const DIGITS: [usize; 2] = [64, 4];

/// Whose file a sender's file becomes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(PublicKey);

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// It has other digits, or another number of them.
    #[error("an address has 68 hexadecimal digits, as `anabranch onion receive` prints it; got {0}")]
    Digits(String),
    /// The checksum is another.
    #[error("the address is mistyped: its last four digits do not belong to the others")]
    Mistyped,
    /// No receiver can have this key.
    #[error("the address is no key of a receiver")]
    NoKey,
}

fn checksum(key: &[u8; 32]) -> [u8; 2] {
    let hash = blake3::Hasher::new_derive_key(CONTEXT).update(key).finalize();
    [hash.as_bytes()[0], hash.as_bytes()[1]]
}

impl Address {
    /// The address that is this key.
    ///
    /// # Errors
    ///
    /// When it is no point of the curve, or one of a low order: anybody could sign for it.
    pub fn new(key: PublicKey) -> Result<Address, AddressError> {
        let point = CompressedEdwardsY(key.0).decompress().ok_or(AddressError::NoKey)?;
        if point.is_small_order() { Err(AddressError::NoKey) } else { Ok(Address(key)) }
    }

    /// The key.
    pub fn key(&self) -> PublicKey {
        self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        key_text::write(&self.0.0, f)?;
        checksum(&self.0.0).iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Its first digits: enough to tell it from others, and not enough to send to it.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.0)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let trimmed = text.trim().to_ascii_lowercase();
        let wrong = || AddressError::Digits(if text.is_empty() { "nothing".into() } else { format!("{text:?}") });
        let is_long_enough = trimmed.len() == DIGITS[0] + DIGITS[1] && trimmed.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_long_enough {
            return Err(wrong());
        }
        let (key, sum) = trimmed.split_at(DIGITS[0]);
        let key = key_text::parse(key).map_err(|_| wrong())?;
        let sum = u16::from_str_radix(sum, 16).map_err(|_| wrong())?;
        if sum.to_be_bytes() != checksum(&key) {
            return Err(AddressError::Mistyped);
        }
        Address::new(PublicKey(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hidden::ReceiverSecret;

    #[test]
    fn an_address_is_read_as_it_was_printed_and_a_wrong_digit_is_seen() {
        let address = ReceiverSecret::from_seed(&[7; 32]).address();
        let text = address.to_string();
        assert_eq!((text.len(), text.parse()), (68, Ok(address)));
        assert_eq!(format!(" {} \n", text.to_uppercase()).parse(), Ok(address));
        for place in 0..text.len() {
            let mut digits = text.clone().into_bytes();
            digits[place] = if digits[place] == b'3' { b'4' } else { b'3' };
            let wrong = String::from_utf8(digits).unwrap().parse::<Address>();
            assert!(wrong.is_err(), "digit {place}");
        }
        for text in ["", "12", &text[1..], &format!("{text}0"), &text.replace(&text[..1], "g"), &"ä".repeat(34)] {
            let said = text.parse::<Address>().unwrap_err().to_string();
            assert!(said.starts_with("an address has 68 hexadecimal digits"), "{said}");
        }
    }

    #[test]
    fn a_key_for_which_anybody_could_sign_is_no_address() {
        let mut identity = [0; 32];
        identity[0] = 1;
        assert_eq!(Address::new(PublicKey(identity)), Err(AddressError::NoKey));
        let no_point = (0..=255).map(|byte| [byte; 32]).find(|key| CompressedEdwardsY(*key).decompress().is_none());
        assert_eq!(Address::new(PublicKey(no_point.expect("half of all are none"))), Err(AddressError::NoKey));
    }
}

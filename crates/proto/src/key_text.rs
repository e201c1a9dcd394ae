//! How a receiver is named to people, whatever carries a file to it: 32 bytes that it prints
//! when it starts, and that a sender pins, in 64 hexadecimal digits. Over relays they are its
//! public key, over QUIC the hash of its certificate.

use std::fmt;

/// Writes the digits.
///
/// # Errors
///
/// As the formatter says.
pub fn write(bytes: &[u8; 32], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Reads the digits, of either case, with or without space around them.
///
/// # Errors
///
/// What was expected, and what was found.
pub fn parse(text: &str) -> Result<[u8; 32], String> {
    let hash = blake3::Hash::from_hex(text.trim().to_ascii_lowercase());
    let hash =
        hash.map_err(|_| format!("expected the 64 hexadecimal digits that the receiver prints; got {text:?}"))?;
    Ok(*hash.as_bytes())
}

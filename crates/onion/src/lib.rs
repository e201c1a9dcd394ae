//! MORE: an onion overlay in which every packet takes another path ([Raiber 2010] 3.1).
//!
//! A path has two halves: the sender chooses the first, the receiver the second. Relays keep no state
//! of a flow. What is here are machines and formats without IO; simulations and sockets drive the same.
//!
//! It does not hide a user from whoever runs relays at both ends of its paths: of c colluding relays among n, a user
//! with two guards enters by one with probability 1 − (1 − c/n)², and is then as good as linked.

pub mod crypto;
pub mod directory;
pub mod guards;
pub mod hidden;
pub mod link;
pub mod node;
pub mod packet;
pub mod relay;
pub mod reply;
pub mod routes;
pub mod session;
pub mod size;

/// What names a relay in the document of an epoch: its place in the list there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayIndex(pub u16);

/// The bytes of hexadecimal digits.
#[cfg(test)]
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.trim().as_bytes().chunks(2).map(|pair| core::str::from_utf8(pair).expect("digits are ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two hexadecimal digits")).collect()
}

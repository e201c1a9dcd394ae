//! How two people who share a short code find each other: `7-crowfoot-orlando`.
//!
//! The number names a mailbox at a rendezvous that both can reach, which any relay offers; the words
//! are the password of a key exchange in which a guess can be tried once (SPAKE2). Over the
//! key that comes of it the two tell each other, authenticated and sealed, what is to be sent, where to,
//! and the keys by which the transfer itself knows them. The rendezvous learns none of it: it can
//! refuse its service, and it sees who talks to whom and when.
//!
//! ```text
//! sender                    rendezvous                  receiver
//!   open a mailbox  ------->
//!                   <------- its number
//!   (the code is said over the phone)
//!                            <------- claim that number
//!   PAKE  <------------------------------------------->  PAKE
//!         <--------------------------------------------  Noise, first message: knows the key
//!   Noise, second message, the offer  ---------------->
//!         <--------------------------------------------  the answer: yes and where, or no
//! ```
//!
//! The design, and the order of trust, follow magic-wormhole's. What differs: both sides stay connected
//! (a mailbox is a pipe, nothing is stored for later), sessions are QUIC's, and the receiver shows first
//! that it knows the words.

pub mod agreement;
pub mod client;
pub mod code;
mod connection_id;
pub mod frame;
pub mod limits;
pub mod mailboxes;
pub mod pake;
pub mod server;
mod shared_socket;

/// What both ends of a session say that they speak.
pub const PROTOCOL: &[u8] = b"anabranch-rendezvous/1";

pub use shared_socket::{Inlet, KEEPALIVE, is_quic};

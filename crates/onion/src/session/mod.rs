//! Sessions.

pub mod cell;
pub mod handshake;

//! Connection IDs that tell QUIC's datagrams from an overlay's at one socket.

use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

use anabranch_net::setup::secret;

/// The first byte of every connection ID of a rendezvous. Short headers begin with a byte from 0x40 to
/// 0x7f and then the connection ID (RFC 9000, 17.3); the overlay's datagrams begin with 0x41, 0x42.
pub const MARK: u8 = b'R';

/// Bytes of a connection ID: the mark, and 56 random bits.
const LENGTH: usize = 8;

/// Makes them.
#[derive(Debug)]
pub struct Marked;

impl ConnectionIdGenerator for Marked {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; LENGTH];
        bytes.copy_from_slice(&secret()[..LENGTH]);
        bytes[0] = MARK;
        ConnectionId::new(&bytes)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if id.first() == Some(&MARK) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

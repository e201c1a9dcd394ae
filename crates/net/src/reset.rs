//! Connections that outlive one of their ends, over QUIC: a peer that has crashed and begins again knows nothing of them,
//! and whoever is at their other ends waits out the idle timeout, unless it is told by a stateless reset (RFC 9000, 10.3).
//! Such a reset proves itself by a token, which is a keyed hash of the connection's ID:
//!
//! ```text
//! token = HMAC-SHA256(k_reset, ID)          ID = nonce (5 bytes) | BLAKE3(k_id, nonce) (3 bytes)
//! k_reset, k_id = BLAKE3 derive_key(context, secret | address of the socket)
//! ```
//!
//! - Keys of the peer's secret are the same in each of its lives, so that the next one can reset what the last one left.
//! - The address is in them since peers of one secret at two sockets would reset each other's connections, for whoever
//!   sends one of them a packet of the other (RFC 9000, 21.11). It does not tell two hosts apart that listen at all
//!   their addresses at one port: one key is for one host.
//! - What is no ID of this peer is dropped, so that garbage does not use up the resets that there may be. Five random
//!   bytes come again too seldom for somebody to know the token of another's connection from one of its own (10.3.2).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use noq_proto::{ConnectionId, ConnectionIdGenerator, EndpointConfig, InvalidCid};

/// What the key of tokens is for (BLAKE3's key derivation).
const TOKENS: &str = "anabranch 2026-11-30 QUIC: tokens of stateless resets";
/// What the key of connection IDs is for.
const IDS: &str = "anabranch 2026-11-30 QUIC: connection IDs";

/// Bytes of an ID: as many as QUIC's library has.
const ID: usize = 8;
/// Of them at random.
const NONCE: usize = 5;

/// Resets leave so far apart at least: a thousand viewers of a server that begins again have theirs within a second. Each is
/// shorter than the packet that it answers, so that none is worth a flood, and two peers that reset each other come to
/// an end (RFC 9000, 10.3.3).
const RESETS_APART: Duration = Duration::from_millis(1);

/// An endpoint of the peer with `secret`, at a socket that is bound to `local`.
pub fn endpoint_config(secret: &[u8; 32], local: SocketAddr) -> EndpointConfig {
    let ids = derive(IDS, secret, local);
    let mut config =
        EndpointConfig::new(Arc::new(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &derive(TOKENS, secret, local))));
    config.min_reset_interval(RESETS_APART).cid_generator(Arc::new(move || Box::new(OwnIds(ids))));
    config
}

fn derive(what_for: &str, secret: &[u8; 32], local: SocketAddr) -> [u8; 32] {
    let address = match local.ip().to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut hasher = blake3::Hasher::new_derive_key(what_for);
    hasher.update(secret).update(&address.octets()).update(&local.port().to_be_bytes());
    hasher.finalize().into()
}

/// IDs that this peer knows for its own in its next life.
#[derive(Debug)]
struct OwnIds([u8; 32]);

impl OwnIds {
    fn of(&self, nonce: &[u8]) -> [u8; ID] {
        let proof = blake3::keyed_hash(&self.0, nonce);
        let mut id = [0; ID];
        id[..NONCE].copy_from_slice(nonce);
        id[NONCE..].copy_from_slice(&proof.as_bytes()[..ID - NONCE]);
        id
    }
}

impl ConnectionIdGenerator for OwnIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).expect("the system gives random numbers");
        ConnectionId::new(&self.of(&nonce))
    }

    fn validate(&self, id: ConnectionId) -> Result<(), InvalidCid> {
        if self.of(&id[..NONCE]) == id[..] { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        ID
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_last_and_are_others_for_each_use_socket_and_secret() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let key = derive(TOKENS, &[7; 32], at("192.0.2.1:7443"));
        assert_eq!(key, derive(TOKENS, &[7; 32], at("192.0.2.1:7443")));
        assert_eq!(key, derive(TOKENS, &[7; 32], at("[::ffff:192.0.2.1]:7443")));
        let others = [
            derive(IDS, &[7; 32], at("192.0.2.1:7443")),
            derive(TOKENS, &[8; 32], at("192.0.2.1:7443")),
            derive(TOKENS, &[7; 32], at("192.0.2.1:7444")),
            derive(TOKENS, &[7; 32], at("192.0.2.2:7443")),
            [7; 32],
        ];
        assert!(others.iter().all(|other| *other != key));
    }

    #[test]
    fn a_peer_knows_its_ids_in_its_next_life_and_takes_no_others() {
        let id = OwnIds([1; 32]).generate_cid();
        assert!(OwnIds([1; 32]).validate(id).is_ok());
        assert!(OwnIds([2; 32]).validate(id).is_err());
        let mut bytes = id.to_vec();
        bytes[ID - 1] ^= 1;
        assert!(OwnIds([1; 32]).validate(ConnectionId::new(&bytes)).is_err());
        assert_ne!(OwnIds([1; 32]).generate_cid()[..], id[..]);
    }
}

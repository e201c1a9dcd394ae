//! How QUIC is set up for sessions.

use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_proto::session::SessionConfig;
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{AckFrequencyConfig, ClientConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};

use super::identity::PeerIdentity;
use super::window::SharedWindow;

/// What both ends say that they speak (ALPN, RFC 7301).
pub const PROTOCOL: &[u8] = b"anabranch-session/1";

/// Bytes of a stream that the other end may send before they are read: as much as waits for a lost packet
/// over a round trip of 200 ms at 10 Mbit/s.
pub const RECEIVE_WINDOW: u32 = 256 << 10;

/// Bytes of messages that QUIC holds until they are acknowledged. What is more waits before it.
const SEND_WINDOW: u64 = 128 << 10;

/// Bytes of datagrams that wait at either end of a connection. None wait long: they are taken when they come,
/// and given when the window has room.
pub const DATAGRAM_BUFFER: usize = 64 << 10;

/// UDP payload with which a connection begins: a datagram with seven packets of an MPEG transport stream, and
/// no more, so that with IP's and UDP's headers it is the 1400 bytes that Ethernet carries in the usual
/// tunnels.
pub const LEAST_MTU: u16 = 1372;

/// How long a handshake may take.
pub const HANDSHAKE_TIME: Duration = Duration::from_millis(10_000);

/// Packets that come out of order before an ACK leaves at once: one fewer than make one lost (RFC 9002, 6.1.1).
const REORDERING: u32 = 2;

/// How a session ends, in the words of a CONNECTION_CLOSE frame.
pub const GOODBYE: VarInt = VarInt::from_u32(0);
/// The application does not want the session.
pub const REFUSED: VarInt = VarInt::from_u32(1);
/// The other end has done what it must not.
pub const MISUSED: VarInt = VarInt::from_u32(2);

/// What noq calls so long a time.
pub fn std(duration: Duration) -> std::time::Duration {
    std::time::Duration::from_nanos(duration.as_nanos())
}

/// What we call so long a time.
pub fn ours(duration: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

fn transport(config: &SessionConfig, window: &SharedWindow) -> TransportConfig {
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(config.ack.every.saturating_sub(1)))
        .max_ack_delay(Some(std(config.ack.max_delay)))
        .reordering_threshold(VarInt::from_u32(REORDERING));
    let idle = IdleTimeout::try_from(std(config.idle_timeout)).expect("an idle timeout is below 2^62 ms");
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(1))
        .stream_receive_window(VarInt::from_u32(RECEIVE_WINDOW))
        .receive_window(VarInt::from_u32(RECEIVE_WINDOW))
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER))
        .datagram_send_buffer_size(DATAGRAM_BUFFER)
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(std(config.keep_alive)))
        .initial_mtu(LEAST_MTU)
        .ack_frequency_config(Some(acks))
        .enable_segmentation_offload(false)
        // No datagram is longer than what a connection begins with: to look for more would be for nothing.
        .mtu_discovery_config(None)
        .congestion_controller_factory(window.factory());
    transport
}

/// For sessions that this peer begins, and for those that others begin.
pub fn configs(
    config: &SessionConfig,
    identity: &PeerIdentity,
    window: &SharedWindow,
) -> Result<(ClientConfig, ServerConfig), rustls::Error> {
    let transport = Arc::new(transport(config, window));
    let suite = "TLS 1.3 has the cipher suite of QUIC's first packets";
    let crypto = QuicClientConfig::try_from(identity.client_tls(PROTOCOL)?).expect(suite);
    let mut client = ClientConfig::new(Arc::new(crypto));
    client.transport_config(Arc::clone(&transport));
    let crypto = QuicServerConfig::try_from(identity.server_tls(PROTOCOL)?).expect(suite);
    let mut server = ServerConfig::with_crypto(Arc::new(crypto));
    // A peer is where the tracker has said: whoever moves begins anew.
    server.transport_config(transport).migration(false);
    Ok((client, server))
}

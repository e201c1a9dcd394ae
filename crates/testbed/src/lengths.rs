//! How long real packets are on the links.

use anabranch_scenario::flows::PacketSpec;

/// What a packet of ours, and of TCP with timestamps, has beside its data: 20 bytes of IPv4,
/// and 8 of UDP with 24 of ours, or 32 of TCP.
pub const HEADER: i32 = 52;

/// What a QUIC packet has around it: 20 bytes of IPv4 and 8 of UDP.
pub const UDP_HEADERS: i32 = 28;

/// Bytes of a full QUIC packet, which shall be as long on the links as a full one of ours.
pub fn quic_packet(packets: &PacketSpec) -> u16 {
    (packets.data.get() as i32 + HEADER - UDP_HEADERS) as u16
}

//! How long real packets are on the links.

use anabranch_lab::flows::FlowScenario;
use anabranch_scenario::flows::{PacketSpec, Stack};

/// What a packet of ours, and of TCP with timestamps, has beside its data: 20 bytes of IPv4,
/// and 8 of UDP with 24 of ours, or 32 of TCP.
pub const HEADER: i32 = 52;

/// What a QUIC packet has around it: 20 bytes of IPv4 and 8 of UDP.
pub const UDP_HEADERS: i32 = 28;

/// Bytes of a full QUIC packet, which shall be as long on the links as a full one of ours.
pub fn quic_packet(packets: &PacketSpec) -> u16 {
    (packets.data.get() as i32 + HEADER - UDP_HEADERS) as u16
}

/// The share of a full packet on the link that a flow's window counts.
pub fn share(scenario: &FlowScenario, flow: usize) -> f64 {
    let packets = &scenario.packets;
    let counted = match scenario.flows[flow].stack {
        // QUIC counts its packets with their headers.
        Stack::Quic => u64::from(quic_packet(packets)),
        Stack::Ours | Stack::Kernel(_) => packets.data.get(),
    };
    counted as f64 / (packets.data + packets.header).get() as f64
}

//! What a stream takes on the wire, with all headers: whoever plans, spends or counts bytes takes them from here.

use super::content::{Content, HASH, MANIFEST_HEADER, SIGNATURE};
use super::message::{DATAGRAM_TAG, Datagram, EXPLORATION_HEADER, PACKET_HEADER};
use super::packet::MAX_PACKET;
use crate::session::{ACK_ALONE, DATAGRAM_HEADERS, WireLength};

/// Bytes of a packet of the stream.
pub const PACKET: usize = MAX_PACKET + PACKET_HEADER + DATAGRAM_HEADERS;

/// Bytes of one that explores.
pub const EXPLORATION: usize = MAX_PACKET + EXPLORATION_HEADER + DATAGRAM_HEADERS;

/// Packets of a generation that a stream of 2 Mbit/s has.
const USUAL_GENERATION: usize = 19;

/// Bytes of the manifest of `packets` packets.
const fn manifest(packets: usize) -> usize {
    DATAGRAM_HEADERS + DATAGRAM_TAG + MANIFEST_HEADER + SIGNATURE + HASH * packets
}

/// Bytes for each byte of a stream of full packets, manifests included.
pub const STREAM: f64 =
    (PACKET as f64 + manifest(USUAL_GENERATION) as f64 / USUAL_GENERATION as f64) / MAX_PACKET as f64;

/// Bytes of ACKs that a viewer sends for each byte of the stream that it gets: one alone for each packet.
pub const ACKS: f64 = ACK_ALONE as f64 / MAX_PACKET as f64;

/// Bytes of any datagram.
#[inline]
pub fn of<C: Content>(datagram: &Datagram<C>) -> usize {
    DATAGRAM_HEADERS + datagram.wire_length()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::content::{Broadcast, Manifest};
    use super::super::packet::{PacketId, Stamp};
    use super::super::testing::{TestPacket, Tested};
    use super::*;

    #[test]
    fn what_is_planned_is_what_datagrams_take() {
        let (id, stamp, packet) = (PacketId(7), Stamp(7), TestPacket { is_genuine: true });
        assert_eq!(of::<Tested>(&Datagram::Packet { id, stamp, packet }), PACKET);
        assert_eq!(of::<Tested>(&Datagram::Explore { chain: 1, nonce: 1, id, stamp, packet }), EXPLORATION);
        // The manifests of tests are as long as those of 38 packets.
        let announced = Manifest::<Tested> { generation: 1, first: id, packets: 38, proofs: (true, Broadcast(1)) };
        assert_eq!(of(&Datagram::Manifest(Arc::new(announced))), manifest(38));
    }

    #[test]
    fn a_stream_takes_seven_per_cent_more_than_its_bytes() {
        // Of 1316 bytes: 58 of IPv4, UDP and QUIC, 13 of ours, a hash of 16, and a nineteenth of 137.
        assert!((STREAM - (1.0 + (58.0 + 13.0 + 16.0 + 137.0 / 19.0) / 1316.0)).abs() < 1e-12, "{STREAM}");
        assert!((ACKS - 65.0 / 1316.0).abs() < 1e-12, "{ACKS}");
    }
}

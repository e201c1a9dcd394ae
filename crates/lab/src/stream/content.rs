//! Packets without bytes, which know by themselves whether they are genuine.

use anabranch_proto::session::PeerKey;
use anabranch_proto::stream::content::{Broadcast, ClientId, Content, HASH, Manifest, SIGNATURE, Ticket};
use anabranch_proto::stream::packet::{MAX_PACKET, PacketId, Stamp};

#[cfg(test)]
use crate::soak::{planted, streams::Rule};

/// The content of simulated streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulated;

/// A packet, all of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedPacket {
    /// Whether it is the source's.
    pub is_genuine: bool,
}

impl Content for Simulated {
    type Packet = SimulatedPacket;
    /// How many packets the generation has.
    type Proofs = u16;
    type Signature = ();
    type Secret = PeerKey;

    const SIGNATURE_LENGTH: usize = SIGNATURE;

    fn public(secret: &PeerKey) -> PeerKey {
        *secret
    }

    fn prove(_: &PeerKey, _: Broadcast, _: u32, _: PacketId, packets: &[(Stamp, SimulatedPacket)]) -> u16 {
        packets.len() as u16
    }

    fn sign_ticket(_: &PeerKey, _: Broadcast, _: ClientId, _: &PeerKey, _: Stamp) {}

    #[inline]
    fn packet_length(_: &SimulatedPacket) -> usize {
        MAX_PACKET
    }

    fn proofs_length(packets: &u16) -> usize {
        SIGNATURE + HASH * usize::from(*packets)
    }

    fn is_signed(_: &PeerKey, _: Broadcast, _: &Manifest<Simulated>) -> bool {
        true
    }

    #[inline]
    fn is_genuine(_: &Manifest<Simulated>, _: PacketId, _: Stamp, packet: &SimulatedPacket) -> bool {
        #[cfg(test)]
        if planted::in_streams(Rule::Genuine) {
            // It believes whatever comes.
            return true;
        }
        packet.is_genuine
    }

    fn is_ticket(_: &PeerKey, _: Broadcast, _: &Ticket<Simulated>) -> bool {
        true
    }
}

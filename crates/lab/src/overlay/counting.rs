//! Counts what happens in an overlay, second by second.

use anabranch_control::time::Time;
use anabranch_proto::overlay::overlay_peer::{OverlayEvent, OverlayPeer};
use anabranch_proto::overlay::packet::{Kind, Packet, TelemetryField};
use anabranch_sim::fabric::NodeId;

use super::measured::Second;
use crate::world::{Observer, Transit};

/// The counts of the present second.
#[derive(Clone, Debug, Default)]
pub struct Counting {
    /// Since it was taken last.
    pub second: Second,
    /// ACKs in time by sender, since the count began; empty if they are not counted.
    pub acked_by_sender: Box<[u32]>,
}

impl<T: TelemetryField> Observer<OverlayPeer<u32, T>> for Counting {
    #[inline]
    fn on_arrival(&mut self, _: Time, _: Transit, _: &Packet<u32, T>) {
        self.second.packet_hops += 1;
    }

    #[inline]
    fn on_lost(&mut self, _: Time, _: NodeId, packet: &Packet<u32, T>) {
        match packet.kind {
            Kind::Data => self.second.lost += 1,
            Kind::Ack => self.second.lost_acks += 1,
        }
    }

    #[inline]
    fn on_event(&mut self, _: Time, node: NodeId, event: OverlayEvent) {
        let second = &mut self.second;
        match event {
            OverlayEvent::Sent => second.sent += 1,
            OverlayEvent::Delivered => second.delivered += 1,
            OverlayEvent::Refused(Kind::Data) => second.refused += 1,
            OverlayEvent::Refused(Kind::Ack) => second.refused_acks += 1,
            OverlayEvent::Swallowed(Kind::Data) => second.swallowed += 1,
            OverlayEvent::Swallowed(Kind::Ack) => second.swallowed_acks += 1,
            OverlayEvent::Acked { early } => {
                second.acked += 1;
                if let Some(count) = self.acked_by_sender.get_mut(node.index()) {
                    *count += 1;
                }
                second.early_us += early.as_nanos() / 1000;
            }
            OverlayEvent::LateAck => second.late_acks += 1,
            OverlayEvent::ForgedAck => second.forged_acks += 1,
            OverlayEvent::TimedOut => second.timed_out += 1,
        }
    }
}

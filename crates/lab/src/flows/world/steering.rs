//! What happens before and above a connection: its handshake, and its coordinator.

use anabranch_control::flow::PeerId;
use anabranch_control::time::Duration;
use anabranch_sim::network::LinkId;

use super::{Payload, PayloadBox, World};
use anabranch_scenario::flows::PacketSpec;

/// The first wait for the answer to a connection's first packet (RFC 6298, 2.1).
const HANDSHAKE_TIMEOUT: Duration = Duration::SECOND;

impl<const RECORDED: bool> World<'_, RECORDED> {
    /// Sends a connection's first packet, again after each wait for its answer, which doubles.
    pub(super) fn shake_hands(&mut self, flow: u32) {
        let now = self.network.now();
        let this = &mut self.flows[flow as usize];
        let wait = this.handshake.map_or(HANDSHAKE_TIMEOUT, |(wait, _)| wait * 2);
        this.handshake = Some((wait, now));
        let payload = PayloadBox(Payload::Syn { flow, connection: this.connection });
        self.network.send(this.ways[0].there, self.packets.ack.get() as u32, false, payload);
        self.network.set_timer(this.sender_timer, now + wait);
    }

    /// A connection's first packet was answered.
    pub(super) fn on_handshake(&mut self, flow: u32, connection: u32) {
        let now = self.network.now();
        let this = &mut self.flows[flow as usize];
        let (Some(sender), Some((_, sent))) = (&mut this.sender, this.handshake) else { return };
        if this.connection != connection {
            return;
        }
        this.handshake = None;
        sender.on_handshake(PeerId(0), now.since(sent));
        this.application.begin(now, sender);
        self.network.set_timer(this.application_timer, this.application.wake);
        self.steer_one(flow);
        self.pump(flow);
    }

    /// The coordinator looks at the network and sets every steered flow's window.
    pub(super) fn steer(&mut self) {
        let Some(coordinator) = &mut self.coordinator else { return };
        let cross = self.sources.iter().map(|source| source.count.arrived * u64::from(source.size)).sum();
        coordinator.observe(self.network.now(), cross);
        for flow in 0..self.flows.len() as u32 {
            self.steer_one(flow);
            self.pump(flow);
        }
    }

    /// Sets one flow's window, if it is steered and has a connection.
    pub(super) fn steer_one(&mut self, flow: u32) {
        let Some(coordinator) = &self.coordinator else { return };
        let steered = |flow: usize| self.scenario.flows[flow].steered;
        if !steered(flow as usize) {
            return;
        }
        let is_active = |&flow: &usize| steered(flow) && self.flows[flow].application.is_on();
        let active = (0..self.flows.len()).filter(is_active).count();
        let link = coordinator.link();
        let Some(capacity) = self.network.rate(LinkId(link as u32)) else { return };
        let PacketSpec { data, header, .. } = self.packets;
        let data_share = data.get() as f64 / (data + header).get() as f64;
        let this = &mut self.flows[flow as usize];
        let Some(sender) = &mut this.sender else { return };
        if let Some(min_rtt) = sender.min_rtt(PeerId(0)) {
            sender.set_bounds(coordinator.bounds(capacity, active, data_share, min_rtt));
        }
    }
}

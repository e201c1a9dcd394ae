//! What a recorder is told.

use anabranch_control::flow::PeerId;
use anabranch_proto::flow::{Ack, Data, FlowSender};

use super::super::events::{FlowEvent, What};
use super::World;

impl<const RECORDED: bool> World<'_, RECORDED> {
    /// Tells the recorder `what` for each receiver of a flow that has a connection.
    pub(super) fn record_connection(&mut self, flow: u32, what: impl Fn(&FlowSender, PeerId) -> What<'static>) {
        let Some(recorder) = &mut self.recorder else { return };
        let at = self.network.now();
        let this = &self.flows[flow as usize];
        let Some(sender) = &this.sender else { return };
        for peer in (0..this.ways.len() as u32).map(PeerId) {
            let (flow, connection) = (flow as usize, this.connection);
            recorder.on_flow(&FlowEvent { at, flow, connection, peer, what: what(sender, peer) });
        }
    }

    pub(super) fn record_metrics(&mut self, flow: u32) {
        self.record_connection(flow, |sender, peer| What::Metrics(sender.metrics(peer)));
    }

    pub(super) fn record_losses(&mut self, flow: u32) {
        let Some(recorder) = &mut self.recorder else { return };
        let at = self.network.now();
        let this = &self.flows[flow as usize];
        let Some(sender) = &this.sender else { return };
        for &(peer, number, cause) in sender.newly_lost() {
            let what = What::Lost { number, cause };
            recorder.on_flow(&FlowEvent { at, flow: flow as usize, connection: this.connection, peer, what });
        }
    }

    pub(super) fn record_data_received(&mut self, flow: u32, connection: u32, peer: PeerId, data: &Data, marked: bool) {
        let Some(recorder) = &mut self.recorder else { return };
        let this = &self.flows[flow as usize];
        if this.connection == connection && !this.receivers.is_empty() {
            let size = data.length + self.packets.header.get() as u32;
            let what = What::DataReceived { data, size, marked };
            recorder.on_flow(&FlowEvent { at: self.network.now(), flow: flow as usize, connection, peer, what });
        }
    }

    pub(super) fn record_ack_received(&mut self, low: u16, flow: u32, connection: u32, peer: PeerId, ack: &Ack) {
        let Some(recorder) = &mut self.recorder else { return };
        let this = &self.flows[flow as usize];
        let Some(receiver) = this.receivers.get(peer.0 as usize) else { return };
        if this.connection == connection {
            // The number with this low end that was sent last (as RFC 9000, 17.1).
            let last = receiver.acks_sent() - 1;
            let number = last - u64::from((last as u16).wrapping_sub(low));
            let what = What::AckReceived { number, ack, size: self.packets.ack.get() as u32 };
            recorder.on_flow(&FlowEvent { at: self.network.now(), flow: flow as usize, connection, peer, what });
        }
    }
}

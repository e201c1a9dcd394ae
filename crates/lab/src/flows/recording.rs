//! Tells a recorder of each event of a run that is measured.

use anabranch_control::flow::PeerId;
use anabranch_control::time::Time;
use anabranch_proto::flow::{FlowBody, FlowEvent as EndEvent, FlowMessage, WireSizes};
use anabranch_sim::fabric::NodeId;

use super::events::{CrossEvent, CrossWhat, FlowEvent, Recorder, Stream, What};
use super::measuring::Measuring;
use super::node::{FlowNode, NodeEvent, wire_sizes};
use super::world::Role;
use crate::world::{Observer, Transit};

/// A measurement whose packets are recorded too.
#[derive(Debug)]
pub struct Recording<'a> {
    /// The measurement.
    pub measuring: Measuring,
    /// Who records.
    pub recorder: &'a mut dyn Recorder,
    /// The ACK that the machine at work has sent.
    ack: Option<FlowMessage>,
    /// The number of the last ACK of each flow's receivers.
    last_acks: Vec<Vec<u64>>,
}

impl<'a> Recording<'a> {
    /// `measuring`, and all of it recorded by `recorder`.
    pub fn new(measuring: Measuring, recorder: &'a mut dyn Recorder) -> Recording<'a> {
        let last_acks = measuring.scenario().flows.iter().map(|flow| vec![0; flow.receivers.len()]).collect();
        Recording { measuring, recorder, ack: None, last_acks }
    }

    fn receivers(&self, flow: usize) -> impl Iterator<Item = PeerId> + use<> {
        (0..self.measuring.scenario().flows[flow].receivers.len() as u32).map(PeerId)
    }

    fn sizes(&self) -> WireSizes {
        wire_sizes(&self.measuring.scenario().packets)
    }

    fn record_cross(&mut self, at: Time, source: usize, what: CrossWhat) {
        let size = self.measuring.scenario().cross_traffic[source].packet.get() as u32;
        self.recorder.on_cross(&CrossEvent { at, source, size, what });
    }

    fn record(&mut self, at: Time, flow: usize, connection: u32, peer: PeerId, what: What<'_>) {
        self.recorder.on_flow(&FlowEvent { at, flow, connection, peer, what });
    }

    /// Records the same of each of a flow's receivers.
    fn record_each(&mut self, at: Time, flow: usize, connection: u32, what: What<'static>) {
        self.receivers(flow).for_each(|peer| self.record(at, flow, connection, peer, what));
    }
}

impl Observer<FlowNode> for Recording<'_> {
    fn on_sent(&mut self, now: Time, from: NodeId, _: NodeId, message: &FlowMessage) {
        let connection = message.connection;
        let peer = PeerId(u32::from(message.receiver));
        match (self.measuring.role(from), &message.body) {
            (Role::Source(flow), FlowBody::Data(data)) => {
                let size = data.length + self.sizes().header;
                self.record(now, flow, connection, peer, What::DataSent { data, size });
            }
            // What the receiver had of the stream then is recorded once it has acted.
            (Role::Sink(..), FlowBody::Ack(_)) => self.ack = Some(*message),
            (Role::Cross(source), FlowBody::Datagram) => self.record_cross(now, source, CrossWhat::Sent),
            _ => {}
        }
    }

    fn on_arrival(&mut self, now: Time, transit: Transit, message: &FlowMessage) {
        self.measuring.on_arrival(now, transit, message);
        let connection = message.connection;
        let peer = PeerId(u32::from(message.receiver));
        let sizes = self.sizes();
        let is_open = |flow| self.measuring.connection(flow) == Some(connection);
        match (self.measuring.role(transit.to), &message.body) {
            (Role::Sink(flow, _), FlowBody::Data(data)) if is_open(flow) => {
                let what = What::DataReceived { data, size: data.length + sizes.header, marked: transit.marked };
                self.record(now, flow, connection, peer, what);
            }
            (Role::Source(flow), FlowBody::Ack(ack)) if is_open(flow) => {
                // The number with this low end that was sent last (as RFC 9000, 17.1).
                let last = self.last_acks[flow][peer.0 as usize];
                let number = last - u64::from((last as u16).wrapping_sub(message.ack_number));
                self.record(now, flow, connection, peer, What::AckReceived { number, ack, size: sizes.control });
            }
            (Role::Absorber(source), FlowBody::Datagram) => {
                self.record_cross(now, source, CrossWhat::Received { marked: transit.marked });
            }
            _ => {}
        }
    }

    fn on_event(&mut self, now: Time, node: NodeId, event: NodeEvent) {
        if let Role::Source(flow) = self.measuring.role(node) {
            match &event {
                NodeEvent::Opened { connection } => self.record_each(now, flow, *connection, What::Opened),
                NodeEvent::Closed { connection, .. } => self.record_each(now, flow, *connection, What::Closed),
                NodeEvent::Flow(EndEvent::Lost { to, number, cause }) => {
                    if let Some(connection) = self.measuring.connection(flow) {
                        self.record(now, flow, connection, *to, What::Lost { number: *number, cause: *cause });
                    }
                }
                _ => {}
            }
        }
        self.measuring.on_event(now, node, event);
    }

    fn on_acted(&mut self, now: Time, node: NodeId, machine: &FlowNode) {
        match (self.measuring.role(node), machine) {
            (Role::Source(flow), FlowNode::Source(source)) => {
                let Some((sender, connection)) = source.sender().zip(self.measuring.connection(flow)) else { return };
                for peer in self.receivers(flow) {
                    self.record(now, flow, connection, peer, What::Metrics(sender.metrics(peer)));
                }
            }
            (Role::Sink(flow, peer), FlowNode::Sink(sink)) => {
                let Some(FlowMessage { connection, body: FlowBody::Ack(ack), .. }) = self.ack.take() else { return };
                let receiver = sink.receiver();
                let number = receiver.acks_sent() - 1;
                self.last_acks[flow][peer.0 as usize] = number;
                if self.measuring.connection(flow) == Some(connection) {
                    let stream = Stream {
                        contiguous: receiver.contiguous(),
                        complete: receiver.is_complete(),
                        pieces: receiver.pieces(),
                    };
                    let size = self.sizes().control;
                    self.record(now, flow, connection, peer, What::AckSent { number, ack: &ack, size, stream });
                }
            }
            _ => {}
        }
    }

    fn calls_agent(&self) -> bool {
        self.measuring.calls_agent()
    }
}

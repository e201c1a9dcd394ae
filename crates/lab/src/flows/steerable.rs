//! What lies before a coordinator that has learned, or is learning: flows and the link that it divides among them,
//! simulated or on real packets. All that such a coordinator sees and does passes through here, so that a policy sees
//! and does the same in both.

use anabranch_control::flow::{Bounds, PeerId};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_scenario::flows::{FlowScenario, PacketSpec};
use anabranch_sim::network::LinkId;

use super::node::{FlowNode, Sent};
use super::world::FlowWorld;
use crate::world::Observer;

/// A link at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// How long a packet would wait for it.
    pub waits: Duration,
    /// Packets that it has transmitted since the beginning.
    pub transmitted: u64,
    /// Packets that found no room since the beginning.
    pub dropped: u64,
}

/// Round-trip times of a flow's connection to its first receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTripSeen {
    /// Exponentially weighted mean.
    pub smoothed: Duration,
    /// The least since the connection began.
    pub min: Duration,
}

/// Flows that can be steered, and the links that they share.
pub trait Steerable {
    /// The time up to which all of it is known.
    fn now(&self) -> Time;

    /// What is run.
    fn scenario(&self) -> &FlowScenario;

    /// Whether a flow's application has something to send.
    fn is_on(&self, flow: usize) -> bool;

    /// What a flow has sent since the beginning, in all its connections. Acknowledged bytes are those of the data in
    /// packets of the scenario's lengths.
    fn sent(&self, flow: usize) -> Sent;

    /// The round trips of a flow's connection; none without a connection, and before its first sample.
    fn round_trip(&self, flow: usize) -> Option<RoundTripSeen>;

    /// What a link transmits; none if a packet takes no time.
    fn rate(&mut self, link: usize) -> Option<Rate>;

    /// A link as it is now.
    fn link(&mut self, link: usize) -> LinkState;

    /// Bytes of all cross traffic that have arrived since the beginning.
    fn cross_bytes(&self) -> u64;

    /// Bytes that cross traffic will send before `until`; none where nobody can know.
    fn cross_to_come(&mut self, until: Time) -> Option<u64>;

    /// The share of what a link carries that a flow's rate and window count.
    fn data_share(&self, _flow: usize) -> f64 {
        let PacketSpec { data, header, .. } = self.scenario().packets;
        data.get() as f64 / (data + header).get() as f64
    }

    /// Bounds that hold for a flow's window and rate from now on.
    fn set_bounds(&mut self, flow: usize, bounds: Bounds);
}

impl<O: Observer<FlowNode>> Steerable for FlowWorld<O> {
    fn now(&self) -> Time {
        FlowWorld::now(self)
    }

    fn scenario(&self) -> &FlowScenario {
        FlowWorld::scenario(self)
    }

    fn is_on(&self, flow: usize) -> bool {
        self.source(flow).is_on()
    }

    fn sent(&self, flow: usize) -> Sent {
        FlowWorld::sent(self, flow)
    }

    fn round_trip(&self, flow: usize) -> Option<RoundTripSeen> {
        let rtt = self.sender(flow)?.metrics(PeerId(0)).rtt?;
        Some(RoundTripSeen { smoothed: rtt.smoothed, min: rtt.min })
    }

    fn rate(&mut self, link: usize) -> Option<Rate> {
        self.network().rate(LinkId(link as u32))
    }

    fn link(&mut self, link: usize) -> LinkState {
        let (network, link) = (self.network(), LinkId(link as u32));
        let count = network.count(link);
        LinkState { waits: network.backlog(link), transmitted: count.packets, dropped: count.dropped }
    }

    fn cross_bytes(&self) -> u64 {
        let cross = FlowWorld::scenario(self).cross_traffic.iter().enumerate();
        cross.map(|(number, cross)| self.cross(number).1 * cross.packet.get()).sum()
    }

    fn cross_to_come(&mut self, until: Time) -> Option<u64> {
        let sources = 0..FlowWorld::scenario(self).cross_traffic.len();
        Some(sources.map(|number| FlowWorld::cross_to_come(self, number, until)).sum())
    }

    fn set_bounds(&mut self, flow: usize, bounds: Bounds) {
        FlowWorld::set_bounds(self, flow, bounds);
    }
}

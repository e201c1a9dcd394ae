//! The coordinator as an agent of the world: it looks at the network at equal spans, and bounds
//! the flows that it steers.

use anabranch_control::flow::PeerId;
use anabranch_control::time::Time;
use anabranch_scenario::flows::{FlowScenario, PacketSpec};
use anabranch_sim::network::LinkId;

use super::coordinator::Coordinator;
use super::node::FlowNode;
use super::world::FlowWorld;
use crate::world::Observer;

/// The agent.
#[derive(Clone, Debug)]
pub struct Steering {
    coordinator: Coordinator,
}

impl Steering {
    /// As the scenario wants it, if it does.
    pub fn new(scenario: &FlowScenario) -> Option<Steering> {
        scenario.steering.as_ref().map(|steering| Steering { coordinator: Coordinator::new(steering) })
    }

    /// When it acts next.
    pub fn due(&self) -> Time {
        self.coordinator.due()
    }

    /// Looks at the network and bounds every steered flow.
    pub fn act<O: Observer<FlowNode>>(&mut self, world: &mut FlowWorld<O>) {
        let sources = world.scenario().cross_traffic.iter().enumerate();
        let arrived = sources.map(|(number, cross)| world.cross(number).1 * cross.packet.get()).sum();
        self.coordinator.observe(world.now(), arrived);
        for flow in 0..world.scenario().flows.len() {
            self.act_on(flow, world);
        }
    }

    /// Bounds one flow, if it is steered and has a connection with a round-trip time.
    pub fn act_on<O: Observer<FlowNode>>(&self, flow: usize, world: &mut FlowWorld<O>) {
        let scenario = world.scenario().clone();
        if !scenario.flows[flow].steered {
            return;
        }
        let is_active = |&flow: &usize| scenario.flows[flow].steered && world.source(flow).is_on();
        let active = (0..scenario.flows.len()).filter(is_active).count();
        let Some(min_rtt) = world.sender(flow).and_then(|sender| sender.min_rtt(PeerId(0))) else { return };
        let link = LinkId(self.coordinator.link() as u32);
        let Some(capacity) = world.network().rate(link) else { return };
        let PacketSpec { data, header, .. } = scenario.packets;
        let data_share = data.get() as f64 / (data + header).get() as f64;
        world.set_bounds(flow, self.coordinator.bounds(capacity, active, data_share, min_rtt));
    }
}

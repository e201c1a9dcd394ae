//! The coordinator as an agent of the world: it looks at the network at equal spans, and bounds
//! the flows that it steers, by a rule or as it has learned.

use anabranch_control::time::Time;
use anabranch_control::units::Rate;
use anabranch_scenario::flows::{FlowScenario, PacketSpec};

use super::acting::Acting;
use super::coordinator::Coordinator;
use super::node::FlowNode;
use super::world::FlowWorld;
use crate::monitor::Monitor;
use crate::world::Observer;

/// The agent.
#[derive(Clone, Debug)]
pub enum Steering {
    /// By the rule.
    Rule(Box<Coordinator>),
    /// By a policy.
    Policy(Box<Acting>),
}

impl Steering {
    /// As the scenario wants it, if it does.
    pub fn new(scenario: &FlowScenario) -> Option<Steering> {
        let steering = scenario.steering.as_ref()?;
        Some(match Acting::new(scenario) {
            Some(acting) => Steering::Policy(Box::new(acting)),
            None => Steering::Rule(Box::new(Coordinator::new(steering))),
        })
    }

    /// When it acts next.
    pub fn due(&self) -> Time {
        match self {
            Steering::Rule(coordinator) => coordinator.due(),
            Steering::Policy(acting) => acting.due(),
        }
    }

    /// What is to be known of it when the run is over.
    pub fn notes(self) -> Vec<String> {
        match self {
            Steering::Rule(_) => Vec::new(),
            Steering::Policy(acting) => acting.into_note().into_iter().collect(),
        }
    }

    /// Looks at the network and bounds every steered flow.
    pub fn act<O: Observer<FlowNode>>(&mut self, world: &mut FlowWorld<O>, monitor: &dyn Monitor) {
        match self {
            Steering::Rule(coordinator) => {
                let sources = world.scenario().cross_traffic.iter().enumerate();
                let arrived = sources.map(|(number, cross)| world.cross(number).1 * cross.packet.get()).sum();
                let capacity = world.network().rate(coordinator.link()).unwrap_or(Rate::ZERO);
                coordinator.observe(world.now(), arrived, capacity);
                for flow in 0..world.scenario().flows.len() {
                    bound(coordinator, flow, world);
                }
            }
            Steering::Policy(acting) => {
                if let Some(rates) = acting.act(world) {
                    monitor.on_decision(world.now(), rates);
                }
            }
        }
    }

    /// Bounds one flow that has just been established, or has begun or ended to send.
    pub fn on_changed<O: Observer<FlowNode>>(&self, flow: usize, world: &mut FlowWorld<O>) {
        match self {
            Steering::Rule(coordinator) => bound(coordinator, flow, world),
            Steering::Policy(acting) => acting.on_changed(flow, world),
        }
    }
}

/// Bounds one flow by the rule, if it is steered and has a connection over a path whose round trip is known.
fn bound<O: Observer<FlowNode>>(coordinator: &Coordinator, flow: usize, world: &mut FlowWorld<O>) {
    let scenario = world.scenario().clone();
    if !scenario.flows[flow].steered {
        return;
    }
    let is_active = |&flow: &usize| scenario.flows[flow].steered && world.source(flow).is_on();
    let active = (0..scenario.flows.len()).filter(is_active).count();
    let Some(min_rtt) = world.sender(flow).and_then(|_| world.source(flow).min_rtt()) else { return };
    let Some(capacity) = world.network().rate(coordinator.link()) else { return };
    let PacketSpec { data, header, .. } = scenario.packets;
    let data_share = data.get() as f64 / (data + header).get() as f64;
    world.set_bounds(flow, coordinator.bounds(capacity, active, data_share, min_rtt));
}

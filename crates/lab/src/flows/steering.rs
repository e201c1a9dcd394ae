//! The coordinator as an agent of the world: it looks at the network at equal spans, and bounds
//! the flows that it steers, by a rule or as it has learned.

use std::sync::Arc;

use anabranch_control::policy::Scratch;
use anabranch_control::time::Time;
use anabranch_scenario::flows::{FlowScenario, Learned, PacketSpec};
use anabranch_sim::network::LinkId;

use super::coordinator::Coordinator;
use super::node::FlowNode;
use super::view::View;
use super::world::FlowWorld;
use crate::monitor::Monitor;
use crate::world::Observer;

/// The agent.
#[derive(Clone, Debug)]
pub enum Steering {
    /// By the rule.
    Rule(Coordinator),
    /// By a policy.
    Policy(Box<Acting>),
}

/// A policy that acts.
#[derive(Clone, Debug)]
pub struct Acting {
    learned: Arc<Learned>,
    view: View,
    due: Time,
    scratch: Scratch,
    observation: Vec<f32>,
    rates: Vec<f32>,
    /// That it has seen what no training had shown it, told once.
    note: Option<String>,
}

impl Steering {
    /// As the scenario wants it, if it does.
    pub fn new(scenario: &FlowScenario) -> Option<Steering> {
        let steering = scenario.steering.as_ref()?;
        let Some(learned) = &steering.policy else { return Some(Steering::Rule(Coordinator::new(steering))) };
        let view = View::new(learned.sight.clone(), scenario);
        Some(Steering::Policy(Box::new(Acting {
            due: Time::ZERO,
            scratch: Scratch::default(),
            observation: vec![0.0; view.observation_len()],
            rates: vec![0.0; view.agents().len()],
            note: None,
            view,
            learned: Arc::clone(learned),
        })))
    }

    /// When it acts next.
    pub fn due(&self) -> Time {
        match self {
            Steering::Rule(coordinator) => coordinator.due(),
            Steering::Policy(acting) => acting.due.min(acting.view.divides()),
        }
    }

    /// What is to be known of it when the run is over.
    pub fn notes(self) -> Vec<String> {
        match self {
            Steering::Rule(_) => Vec::new(),
            Steering::Policy(acting) => acting.note.into_iter().collect(),
        }
    }

    /// Looks at the network and bounds every steered flow.
    pub fn act<O: Observer<FlowNode>>(&mut self, world: &mut FlowWorld<O>, monitor: &dyn Monitor) {
        match self {
            Steering::Rule(coordinator) => {
                let sources = world.scenario().cross_traffic.iter().enumerate();
                let arrived = sources.map(|(number, cross)| world.cross(number).1 * cross.packet.get()).sum();
                coordinator.observe(world.now(), arrived);
                for flow in 0..world.scenario().flows.len() {
                    bound(coordinator, flow, world);
                }
            }
            Steering::Policy(acting) => acting.act(world, monitor),
        }
    }

    /// Bounds one flow that has just been established, or has begun or ended to send.
    pub fn on_changed<O: Observer<FlowNode>>(&self, flow: usize, world: &mut FlowWorld<O>) {
        match self {
            Steering::Rule(coordinator) => bound(coordinator, flow, world),
            Steering::Policy(acting) => acting.view.on_changed(flow, world),
        }
    }
}

impl Acting {
    fn act<O: Observer<FlowNode>>(&mut self, world: &mut FlowWorld<O>, monitor: &dyn Monitor) {
        let Acting { learned, view, due, scratch, observation, rates, note } = self;
        if world.now() < *due {
            // Those below divide what they were told.
            view.divide(world);
            return;
        }
        view.look(world);
        view.observe(observation);
        let (policy, reading) = (&learned.saved.policy, learned.reading);
        if note.is_none()
            && let Some(beyond) = policy.beyond(reading, observation, scratch)
        {
            let (name, feature) = (&learned.name, learned.sight.features[reading.feature(beyond.input)].name());
            let (value, least, most) = (beyond.value, beyond.least, beyond.most);
            *note = Some(format!(
                "{name}: at {} {feature} is {value}, and was from {least} to {most} in its training: it is cut there, \
                 and what the policy says of it was never tried",
                world.now()
            ));
        }
        policy.rates(reading, observation, scratch, rates);
        view.tell(rates, world);
        monitor.on_decision(world.now(), rates);
        let (next, end) = (world.now() + learned.sight.interval, Time::ZERO + world.scenario().length);
        // At the end nobody would act on it.
        *due = if next < end { next } else { Time::MAX };
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
    let link = LinkId(coordinator.link() as u32);
    let Some(capacity) = world.network().rate(link) else { return };
    let PacketSpec { data, header, .. } = scenario.packets;
    let data_share = data.get() as f64 / (data + header).get() as f64;
    world.set_bounds(flow, coordinator.bounds(capacity, active, data_share, min_rtt));
}

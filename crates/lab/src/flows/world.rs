//! A world of flows: senders, receivers and cross traffic on a network of links.
//!
//! Whoever learns in it steps it, observes each flow by numbers with fixed places, and bounds its
//! window and rate; [`FlowWorld::reset`] begins anew without building the network again, and a
//! clone is a snapshot that goes on as the original would.

use std::sync::Arc;

use anabranch_control::flow::{Bounds, PeerId};
use anabranch_control::time::Time;
use anabranch_proto::flow::{FlowMessage, FlowSender, ReceivingEnd};
use anabranch_scenario::flows::FlowScenario;
use anabranch_sim::fabric::NodeId;
use anabranch_sim::network::{LinkId, Links, Network, NetworkBuilder, Way};

use super::FlowRunError;
use super::cross::CrossSource;
use super::node::{Absorber, FlowNode, FlowSource, Sent, wire_sizes};
use super::observation::{OBSERVATION_LENGTH, Observed};
use crate::world::{Carrier, Observer, World};

/// Packets as they are.
#[derive(Clone, Copy, Debug)]
pub struct AsTheyAre;

impl Carrier<FlowNode> for AsTheyAre {
    type Payload = FlowMessage;

    const REUSES_MEMORY: bool = false;

    #[inline(always)]
    fn pack(&mut self, message: &FlowMessage, slot: &mut FlowMessage) {
        *slot = *message;
    }

    #[inline(always)]
    fn unpack(&mut self, slot: &FlowMessage, message: &mut FlowMessage) -> bool {
        *message = *slot;
        true
    }
}

/// What a node of a scenario's world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The sending end of the flow with this number.
    Source(usize),
    /// A receiving end of the flow with this number, and which.
    Sink(usize, PeerId),
    /// The source of cross traffic with this number.
    Cross(usize),
    /// Where the cross traffic with this number goes.
    Absorber(usize),
}

/// The roles of a scenario's nodes, by node: each flow's sending end and its receiving ends, flow
/// by flow, then the sources of cross traffic, then where it goes.
pub fn roles(scenario: &FlowScenario) -> Vec<Role> {
    let flows = scenario.flows.iter().enumerate().flat_map(|(flow, spec)| {
        let sinks = (0..spec.receivers.len() as u32).map(move |to| Role::Sink(flow, PeerId(to)));
        [Role::Source(flow)].into_iter().chain(sinks)
    });
    let cross = 0..scenario.cross_traffic.len();
    flows.chain(cross.clone().map(Role::Cross)).chain(cross.map(Role::Absorber)).collect()
}

/// A scenario's world, seen by `O`.
#[derive(Clone, Debug)]
pub struct FlowWorld<O = ()> {
    scenario: Arc<FlowScenario>,
    roles: Vec<Role>,
    /// The node of each flow's sending end.
    sources: Vec<NodeId>,
    world: World<FlowNode, Links<FlowMessage>, AsTheyAre, O>,
    /// What was last observed of each flow.
    observed: Vec<Observed>,
}

impl<O: Observer<FlowNode>> FlowWorld<O> {
    /// The world of `scenario` before its first event.
    ///
    /// # Errors
    ///
    /// When a controller refuses its parameters, or the scenario is longer than times can be.
    pub fn new(scenario: Arc<FlowScenario>, observer: O) -> Result<FlowWorld<O>, FlowRunError> {
        let steered = || scenario.steering.iter().filter(|steering| steering.policy.is_some()).map(|by| by.link);
        let is_sampled = scenario.sample_every.is_some();
        let watched = if is_sampled { (0..scenario.links.len()).collect() } else { steered().collect::<Vec<_>>() };
        FlowWorld::watching(scenario, &watched, observer)
    }

    /// The same, in which the links with the numbers `watched` alone are looked at: a link that is not may count a
    /// packet before it happens.
    ///
    /// # Errors
    ///
    /// As [`FlowWorld::new`].
    pub fn watching(scenario: Arc<FlowScenario>, watched: &[usize], observer: O) -> Result<FlowWorld<O>, FlowRunError> {
        let roles = roles(&scenario);
        let fabric = links(&scenario, &roles, watched);
        let longest = fabric.network().horizon().since(Time::ZERO);
        if scenario.length >= longest {
            return Err(FlowRunError::TooLong { longest });
        }
        let sources = (0..).zip(&roles).filter(|(_, role)| matches!(role, Role::Source(_)));
        let mut world = FlowWorld {
            sources: sources.map(|(node, _)| NodeId(node)).collect(),
            observed: vec![Observed::default(); scenario.flows.len()],
            world: World::new(fabric, AsTheyAre, observer, ()),
            roles,
            scenario,
        };
        world.join_all(world.scenario.seed);
        // Parameters are refused before anything runs.
        for (flow, spec) in world.scenario.flows.iter().enumerate() {
            world.source(flow).new_sender(Time::ZERO).map_err(|error| FlowRunError::refused(spec, error))?;
        }
        Ok(world)
    }

    /// Back to the beginning, with the random streams of `seed`. The network and its memory stay;
    /// whoever observes is not reset.
    pub fn reset(&mut self, seed: u64) {
        self.world.reset(seed);
        self.observed.fill(Observed::default());
        self.join_all(seed);
    }

    fn join_all(&mut self, seed: u64) {
        let scenario = &self.scenario;
        let ecn = scenario.packets.ecn;
        let absorbers = self.roles.len() - scenario.cross_traffic.len();
        for (node, role) in (0u32..).zip(&self.roles) {
            let machine = match *role {
                Role::Source(flow) => {
                    let receivers = node + 1..=node + scenario.flows[flow].receivers.len() as u32;
                    FlowNode::Source(Box::new(FlowSource::new(scenario, flow, seed, receivers)))
                }
                Role::Sink(flow, PeerId(number)) => {
                    let (sizes, policy) = (wire_sizes(&scenario.packets), scenario.packets.receiver_policy());
                    FlowNode::Sink(Box::new(ReceivingEnd::new(sizes, policy, self.sources[flow].0, number as u16)))
                }
                Role::Cross(number) => {
                    let to = (absorbers + number) as u32;
                    FlowNode::Cross(Box::new(CrossSource::new(&scenario.cross_traffic[number], to, ecn, seed)))
                }
                Role::Absorber(_) => FlowNode::Absorber(Absorber::default()),
            };
            self.world.join(machine);
        }
    }

    /// What it runs.
    pub fn scenario(&self) -> &Arc<FlowScenario> {
        &self.scenario
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// Lets everything happen that happens before `until`.
    pub fn step(&mut self, until: Time) {
        self.world.step(until);
        self.world.debug_assert_no_late_timers();
    }

    /// The same, but returns when the observer calls an agent, and after `events` events: whether
    /// everything has happened.
    pub fn step_until_called(&mut self, until: Time, events: u64) -> bool {
        let is_over = self.world.step_until_called(until, events);
        self.world.debug_assert_no_late_timers();
        is_over
    }

    /// A flow's sending end.
    ///
    /// # Panics
    ///
    /// When there is no such flow.
    pub fn source(&self, flow: usize) -> &FlowSource {
        match self.world.node(self.sources[flow]) {
            Some(FlowNode::Source(source)) => source,
            _ => unreachable!("a source stays where it joined"),
        }
    }

    /// The sender of a flow's connection, while there is one.
    ///
    /// # Panics
    ///
    /// When there is no such flow.
    pub fn sender(&self, flow: usize) -> Option<&FlowSender> {
        self.source(flow).sender()
    }

    /// Bounds that hold for a flow's window and rate from now on: what a coordinator or a learning
    /// agent decides. A flow without a connection is not bounded.
    ///
    /// # Panics
    ///
    /// When there is no such flow.
    pub fn set_bounds(&mut self, flow: usize, bounds: Bounds) {
        self.world.act(self.sources[flow], |node, now, out| {
            if let FlowNode::Source(source) = node {
                source.set_bounds(now, bounds, out);
            }
        });
    }

    /// Ends a flow's connection, if it has one.
    ///
    /// # Panics
    ///
    /// When there is no such flow.
    pub fn close(&mut self, flow: usize) {
        self.world.act(self.sources[flow], |node, _, out| {
            if let FlowNode::Source(source) = node {
                source.close(out);
            }
        });
    }

    /// Writes what is to be seen of a flow since it was observed last, in the order of
    /// [`OBSERVATION`](super::observation::OBSERVATION).
    ///
    /// # Panics
    ///
    /// When there is no such flow, or `into` is shorter than that.
    pub fn observe(&mut self, flow: usize, into: &mut [f32]) {
        let now = self.now();
        let source = match self.world.node(self.sources[flow]) {
            Some(FlowNode::Source(source)) => source,
            _ => unreachable!("a source stays where it joined"),
        };
        let into: &mut [f32; OBSERVATION_LENGTH] =
            (&mut into[..OBSERVATION_LENGTH]).try_into().expect("a slice of that length");
        self.observed[flow].observe(now, source, into);
    }

    /// What has become of the packets of the cross traffic with number `number`: those that were
    /// sent, and those that arrived.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn cross(&self, number: usize) -> (u64, u64) {
        let absorbers = self.roles.len() - self.scenario.cross_traffic.len();
        let absorber = self.world.node(NodeId((absorbers + number) as u32));
        let cross = self.world.node(NodeId((absorbers - self.scenario.cross_traffic.len() + number) as u32));
        match (cross, absorber) {
            (Some(FlowNode::Cross(cross)), Some(FlowNode::Absorber(absorber))) => (cross.sent(), absorber.packets),
            _ => unreachable!("cross traffic stays where it joined"),
        }
    }

    /// Bytes on the wire that the source of cross traffic with number `number` sends from now on before `until`, if
    /// nothing changes it: what only an oracle knows.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn cross_to_come(&self, number: usize, until: Time) -> u64 {
        let first = self.roles.len() - 2 * self.scenario.cross_traffic.len();
        let Some(FlowNode::Cross(source)) = self.world.node(NodeId((first + number) as u32)) else {
            unreachable!("cross traffic stays where it joined")
        };
        let (mut source, before) = (CrossSource::clone(source), source.sent());
        while source.due() < until {
            source.next(source.due());
        }
        (source.sent() - before) * u64::from(source.size)
    }

    /// The links.
    pub fn network(&mut self) -> &mut Network<FlowMessage> {
        self.world.fabric_mut().network_mut()
    }

    /// Who sees what happens.
    pub fn observer(&self) -> &O {
        self.world.observer()
    }

    /// Who sees what happens, to read out.
    pub fn observer_mut(&mut self) -> &mut O {
        self.world.observer_mut()
    }

    /// What a flow has sent so far.
    ///
    /// # Panics
    ///
    /// When there is no such flow.
    pub fn sent(&self, flow: usize) -> Sent {
        self.source(flow).sent()
    }
}

/// The scenario's links, with a way for each pair of nodes that send to one another.
fn links(scenario: &FlowScenario, roles: &[Role], watched: &[usize]) -> Links<FlowMessage> {
    let mut network = NetworkBuilder::new();
    for link in &scenario.links {
        network.link(link.config());
    }
    for &link in watched {
        network.watch(LinkId(link as u32));
    }
    let mut ways = Vec::new();
    let mut way = |from: u32, to: u32, path: &[usize]| {
        let links: Vec<LinkId> = path.iter().map(|&link| LinkId(link as u32)).collect();
        ways.push(Way { from: NodeId(from), to: NodeId(to), route: network.route(&links) });
    };
    let mut source = 0;
    for (node, role) in (0u32..).zip(roles) {
        match *role {
            Role::Source(_) => source = node,
            Role::Sink(flow, PeerId(number)) => {
                let receiver = &scenario.flows[flow].receivers[number as usize];
                way(source, node, &receiver.there);
                way(node, source, &receiver.back);
            }
            Role::Cross(number) => {
                way(node, node + scenario.cross_traffic.len() as u32, &scenario.cross_traffic[number].path);
            }
            Role::Absorber(_) => {}
        }
    }
    Links::new(network, roles.len(), &ways, scenario.seed)
}

//! Measures a run of flows as it goes on.

use std::sync::Arc;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::{FlowEvent, FlowMessage};
use anabranch_scenario::flows::FlowScenario;
use anabranch_sim::fabric::NodeId;

use super::FlowRunError;
use super::measured::{Delays, FlowMeasured, ReceiverMeasured};
use super::node::{FlowNode, NodeEvent};
use super::shares::Shares;
use super::world::{Role, roles};
use crate::world::{Observer, Transit};

/// A flow's connection as it is seen.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// The number of the one that is open.
    open: Option<u32>,
    /// When the transfer began whose end is awaited.
    transfer_since: Time,
}

/// Bytes of one flow.
#[derive(Clone, Debug)]
struct Delivered {
    all: u64,
    to_each: Vec<u64>,
}

/// What is seen of flows.
#[derive(Clone, Debug)]
pub struct Measuring {
    scenario: Arc<FlowScenario>,
    roles: Vec<Role>,
    connections: Vec<Connection>,
    shares: Shares,
    /// What each flow, and each of its receivers, had delivered when goodput began to count; it
    /// counts if this is there.
    uncounted: Option<Vec<Delivered>>,
    /// The delay of the packet that has arrived last.
    delay: Duration,
    /// What was measured of each flow; goodput is there once the measurement has ended.
    pub flows: Vec<FlowMeasured>,
    /// Flows whose handshake is over, or that have begun without one, and for a policy those that have begun or ended to
    /// send, whom no coordinator has bounded since, if one wants to.
    changed: Vec<usize>,
    /// Whether a coordinator wants to know of flows that begin or end to send. The rule waits for its next look.
    reports_activity: bool,
    /// What each flow's controller had to say.
    notes: Vec<Option<String>>,
    error: Option<FlowRunError>,
}

impl Measuring {
    /// Before the run.
    pub fn new(scenario: &Arc<FlowScenario>) -> Measuring {
        let flows = scenario.flows.iter().map(|spec| FlowMeasured {
            controller: spec.controller.name.into(),
            goodput_bytes: 0,
            delivered_bytes: 0,
            receivers: ReceiverMeasured::of_each(spec.receivers.len()),
            one_way: Delays::default(),
            packets_sent: 0,
            packets_lost: 0,
            spurious_losses: 0,
            on_time: Duration::ZERO,
            share_time: Duration::ZERO,
            late_bytes: 0,
            completion: Vec::new(),
            completion_acked: Vec::new(),
        });
        Measuring {
            roles: roles(scenario),
            connections: vec![Connection::default(); scenario.flows.len()],
            shares: Shares::new(scenario.flows.len()),
            uncounted: None,
            delay: Duration::ZERO,
            flows: flows.collect(),
            changed: Vec::new(),
            reports_activity: scenario.steering.as_ref().is_some_and(|steering| steering.policy.is_some()),
            notes: vec![None; scenario.flows.len()],
            error: None,
            scenario: Arc::clone(scenario),
        }
    }

    /// What flows' controllers had to say.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.notes.iter().flatten().cloned()
    }

    /// What is measured.
    pub fn scenario(&self) -> &FlowScenario {
        &self.scenario
    }

    /// What a node is.
    pub fn role(&self, node: NodeId) -> Role {
        self.roles[node.index()]
    }

    /// The number of a flow's connection, while one is open.
    pub fn connection(&self, flow: usize) -> Option<u32> {
        self.connections[flow].open
    }

    /// Whether goodput is counted.
    pub fn is_counting(&self) -> bool {
        self.uncounted.is_some()
    }

    /// Goodput counts from now on.
    pub fn count(&mut self) {
        let delivered = |flow: &FlowMeasured| Delivered {
            all: flow.delivered_bytes,
            to_each: flow.receivers.iter().map(|receiver| receiver.delivered_bytes).collect(),
        };
        self.uncounted = Some(self.flows.iter().map(delivered).collect());
    }

    /// What went wrong, if anything did.
    pub fn take_error(&mut self) -> Option<FlowRunError> {
        self.error.take()
    }

    /// A flow that the coordinator must bound before its data leaves.
    pub fn pop_changed(&mut self) -> Option<usize> {
        self.changed.pop()
    }

    /// Ends the measurement at `end`.
    pub fn finish(&mut self, end: Time) {
        for (flow, measured) in self.flows.iter_mut().enumerate() {
            self.shares.note(end, flow, false);
            measured.share_time = self.shares.of(flow);
        }
        for (measured, before) in self.flows.iter_mut().zip(self.uncounted.iter().flatten()) {
            measured.goodput_bytes = measured.delivered_bytes - before.all;
            for (receiver, before) in measured.receivers.iter_mut().zip(&before.to_each) {
                receiver.goodput_bytes = receiver.delivered_bytes - before;
            }
        }
    }

    #[inline(always)]
    fn on_received(&mut self, now: Time, node: NodeId, connection: u32, bytes: u32, new_bytes: u64, completed: bool) {
        let Role::Sink(flow, to) = self.roles[node.index()] else { return };
        let (measured, this) = (&mut self.flows[flow], &self.connections[flow]);
        if this.open != Some(connection) {
            measured.late_bytes += u64::from(bytes);
            return;
        }
        measured.delivered_bytes += new_bytes;
        if let Some(receiver) = measured.receivers.get_mut(to.0 as usize) {
            receiver.delivered_bytes += new_bytes;
        }
        if now >= self.scenario.delays_from {
            measured.one_way.record(self.delay);
        }
        if completed {
            measured.completion.push(now.since(this.transfer_since));
        }
    }

    #[cold]
    fn on_seldom(&mut self, now: Time, node: NodeId, event: NodeEvent) {
        let (Role::Source(flow) | Role::Sink(flow, _)) = self.roles[node.index()] else { return };
        let (measured, this) = (&mut self.flows[flow], &mut self.connections[flow]);
        let spec = &self.scenario.flows[flow];
        match event {
            NodeEvent::Flow(FlowEvent::Received { .. } | FlowEvent::Lost { .. }) => {}
            NodeEvent::Flow(FlowEvent::Stale { bytes }) => measured.late_bytes += u64::from(bytes),
            NodeEvent::Flow(FlowEvent::Established) => {
                if spec.steered && self.scenario.steering.is_some() {
                    self.changed.push(flow);
                }
            }
            NodeEvent::Flow(FlowEvent::Stopped(fault)) => {
                self.error.get_or_insert_with(|| FlowRunError::stuck(spec, now, fault));
            }
            NodeEvent::Opened { connection } => {
                this.open = Some(connection);
                // Its data leave now, and no handshake's end will be reported.
                if spec.steered && !spec.handshake && !self.reports_activity && self.scenario.steering.is_some() {
                    self.changed.push(flow);
                }
            }
            // The first of a flow's connections speaks for all.
            NodeEvent::Noted(note) => {
                self.notes[flow].get_or_insert_with(|| format!("flow \"{}\": {note}", spec.name));
            }
            NodeEvent::Closed { count, .. } => {
                this.open = None;
                measured.packets_sent += count.packets;
                measured.packets_lost += count.lost;
                measured.spurious_losses += count.spurious;
            }
            NodeEvent::Began => this.transfer_since = now,
            NodeEvent::Finished { took } => measured.completion_acked.push(took),
            NodeEvent::Active(is_on) => {
                self.shares.note(now, flow, is_on);
                if self.reports_activity && spec.steered {
                    self.changed.push(flow);
                }
            }
            NodeEvent::Refused(error) => {
                self.error.get_or_insert(FlowRunError::refused(spec, error));
            }
        }
    }
}

impl Observer<FlowNode> for Measuring {
    #[inline(always)]
    fn on_arrival(&mut self, now: Time, transit: Transit, _: &FlowMessage) {
        self.delay = transit.departed.map_or(Duration::ZERO, |departed| now.since(departed));
    }

    #[inline(always)]
    fn on_event(&mut self, now: Time, node: NodeId, event: NodeEvent) {
        match event {
            NodeEvent::Flow(FlowEvent::Received { connection, bytes, new_bytes, completed }) => {
                self.on_received(now, node, connection, bytes, new_bytes, completed);
            }
            NodeEvent::Flow(FlowEvent::Lost { .. }) => {}
            event => self.on_seldom(now, node, event),
        }
    }

    fn on_acted(&mut self, _: Time, _: NodeId, machine: &FlowNode) {
        debug_assert!(
            !matches!(machine, FlowNode::Source(source) if source.untrue() > 0),
            "a simulated receiver acknowledges what it received"
        );
    }

    #[inline(always)]
    fn calls_agent(&self) -> bool {
        !self.changed.is_empty() || self.error.is_some()
    }
}

//! Sees when a host's flows change, so that it divides its rate anew at once, as a sender does; and when transfers end.

use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::FlowRunError;
use anabranch_lab::flows::node::{FlowNode, NodeEvent};
use anabranch_lab::flows::world::Role;
use anabranch_lab::world::Observer;
use anabranch_proto::flow::FlowEvent;
use anabranch_scenario::flows::FlowScenario;
use anabranch_sim::fabric::NodeId;

/// The observer.
#[derive(Clone, Debug)]
pub struct Watcher {
    roles: Vec<Role>,
    /// Flows that have begun or ended, or whose round trip is known now.
    changed: Vec<usize>,
    /// Flows of which a transfer has ended, and how long it took.
    finished: Vec<(usize, Duration)>,
    /// What is said of a flow that can't go on, and which.
    error: Option<(usize, Failed)>,
}

#[derive(Clone, Debug)]
enum Failed {
    Refused(anabranch_control::registry::ParameterError),
    Stopped(Time, anabranch_proto::flow::Fault),
}

impl Watcher {
    /// Before anything has happened.
    pub fn new(scenario: &FlowScenario) -> Watcher {
        Watcher {
            roles: anabranch_lab::flows::world::roles(scenario),
            changed: Vec::new(),
            finished: Vec::new(),
            error: None,
        }
    }

    /// The same again.
    pub fn reset(&mut self) {
        self.changed.clear();
        self.finished.clear();
        self.error = None;
    }

    /// A flow that has changed.
    pub fn pop_changed(&mut self) -> Option<usize> {
        self.changed.pop()
    }

    /// A flow of which a transfer has ended, and how long it took. It is called at that instant.
    pub fn pop_finished(&mut self) -> Option<(usize, Duration)> {
        self.finished.pop()
    }

    /// Why a flow can't go on.
    pub fn take_error(&mut self, scenario: &FlowScenario) -> Option<FlowRunError> {
        let (flow, failed) = self.error.take()?;
        let spec = &scenario.flows[flow];
        Some(match failed {
            Failed::Refused(error) => FlowRunError::refused(spec, error),
            Failed::Stopped(now, fault) => FlowRunError::stuck(spec, now, fault),
        })
    }
}

impl Observer<FlowNode> for Watcher {
    #[inline]
    fn on_event(&mut self, now: Time, node: NodeId, event: NodeEvent) {
        if let NodeEvent::Flow(FlowEvent::Received { .. } | FlowEvent::Lost { .. } | FlowEvent::Stale { .. }) = event {
            return;
        }
        let Role::Source(flow) = self.roles[node.index()] else { return };
        match event {
            NodeEvent::Flow(FlowEvent::Established) | NodeEvent::Active(_) => self.changed.push(flow),
            NodeEvent::Finished { took } => self.finished.push((flow, took)),
            NodeEvent::Flow(FlowEvent::Stopped(fault)) => {
                self.error.get_or_insert((flow, Failed::Stopped(now, fault)));
            }
            NodeEvent::Refused(error) => {
                self.error.get_or_insert((flow, Failed::Refused(error)));
            }
            _ => {}
        }
    }

    #[inline]
    fn calls_agent(&self) -> bool {
        !self.changed.is_empty() || !self.finished.is_empty() || self.error.is_some()
    }
}

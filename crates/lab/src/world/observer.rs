//! The door for whoever sees what happens and changes nothing.

use anabranch_control::time::Time;
use anabranch_proto::machine::Machine;
use anabranch_sim::fabric::NodeId;

/// A message's way through the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Who sent it.
    pub from: NodeId,
    /// Who gets it.
    pub to: NodeId,
    /// When it departed, where the fabric keeps that.
    pub departed: Option<Time>,
    /// Whether a queue has marked it.
    pub marked: bool,
}

/// Sees what happens.
pub trait Observer<M: Machine> {
    /// A message leaves `from` for `to`.
    #[inline]
    fn on_sent(&mut self, now: Time, from: NodeId, to: NodeId, message: &M::Message) {
        let _ = (now, from, to, message);
    }

    /// A message was lost as it left `from`.
    #[inline]
    fn on_lost(&mut self, now: Time, from: NodeId, message: &M::Message) {
        let _ = (now, from, message);
    }

    /// A message has arrived, and the machine there has not seen it yet.
    #[inline]
    fn on_arrival(&mut self, now: Time, transit: Transit, message: &M::Message) {
        let _ = (now, transit, message);
    }

    /// A machine tells of `event`.
    #[inline]
    fn on_event(&mut self, now: Time, node: NodeId, event: M::Event) {
        let _ = (now, node, event);
    }

    /// `machine` has acted: on a message, a timer, a job's end, or an agent's command.
    #[inline]
    fn on_acted(&mut self, now: Time, node: NodeId, machine: &M) {
        let _ = (now, node, machine);
    }

    /// Whether an agent should act before anything else happens: [`World::step_until_called`] then
    /// returns early.
    ///
    /// [`World::step_until_called`]: super::World::step_until_called
    #[inline]
    fn calls_agent(&self) -> bool {
        false
    }
}

impl<M: Machine> Observer<M> for () {}

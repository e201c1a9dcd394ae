//! The door for whoever sees what happens and changes nothing.

use anabranch_control::time::Time;
use anabranch_proto::machine::Machine;
use anabranch_sim::fabric::NodeId;

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

    /// A message has arrived at `to`, which has not seen it yet.
    #[inline]
    fn on_arrival(&mut self, now: Time, from: NodeId, to: NodeId, message: &M::Message) {
        let _ = (now, from, to, message);
    }

    /// A machine tells of `event`.
    #[inline]
    fn on_event(&mut self, now: Time, node: NodeId, event: M::Event) {
        let _ = (now, node, event);
    }
}

impl<M: Machine> Observer<M> for () {}

//! Slow work that machines hand out: who does it, and results on their way.

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::Machine;
use anabranch_sim::fabric::NodeId;

/// Does what machines hand out.
pub trait Worker<M: Machine> {
    /// Does `job` for `node`: its result, and how long it takes.
    fn work(&mut self, now: Time, node: NodeId, job: M::Job) -> (Duration, M::Done);
}

/// For machines that hand out nothing.
impl<M: Machine<Job = core::convert::Infallible>> Worker<M> for () {
    fn work(&mut self, _: Time, _: NodeId, job: M::Job) -> (Duration, M::Done) {
        match job {}
    }
}

/// A result on its way to the node that asked for it.
#[derive(Clone, Debug)]
pub(super) struct Pending<D> {
    pub at: Time,
    pub sequence: u64,
    pub node: NodeId,
    /// Which of the machines that the node has had asked for it.
    pub life: u32,
    pub done: D,
}

impl<D> PartialEq for Pending<D> {
    fn eq(&self, other: &Pending<D>) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl<D> Eq for Pending<D> {}

impl<D> PartialOrd for Pending<D> {
    fn partial_cmp(&self, other: &Pending<D>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<D> Ord for Pending<D> {
    fn cmp(&self, other: &Pending<D>) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

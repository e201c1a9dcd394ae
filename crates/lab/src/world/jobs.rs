//! Slow work that machines hand out: who does it, and what is under way.

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::Machine;
use anabranch_sim::fabric::NodeId;

/// Does what machines hand out.
pub trait Worker<M: Machine> {
    /// How long `job` of `node` takes, which is handed out now.
    fn takes(&mut self, now: Time, node: NodeId, job: &M::Job) -> Duration;

    /// Does `job` for `node`, whose time is over now. A job of a node that has left is never done.
    fn work(&mut self, now: Time, node: NodeId, job: M::Job) -> M::Done;
}

/// For machines that hand out nothing.
impl<M: Machine<Job = core::convert::Infallible>> Worker<M> for () {
    fn takes(&mut self, _: Time, _: NodeId, job: &M::Job) -> Duration {
        match *job {}
    }

    fn work(&mut self, _: Time, _: NodeId, job: M::Job) -> M::Done {
        match job {}
    }
}

/// A job under way, for the node that asked for it.
#[derive(Clone, Debug)]
pub(super) struct Pending<J> {
    pub at: Time,
    pub sequence: u64,
    pub node: NodeId,
    /// Which of the machines that the node has had asked for it.
    pub life: u32,
    pub job: J,
}

impl<J> PartialEq for Pending<J> {
    fn eq(&self, other: &Pending<J>) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl<J> Eq for Pending<J> {}

impl<J> PartialOrd for Pending<J> {
    fn partial_cmp(&self, other: &Pending<J>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<J> Ord for Pending<J> {
    fn cmp(&self, other: &Pending<J>) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

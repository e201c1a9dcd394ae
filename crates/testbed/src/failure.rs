//! Why a scenario does not run on real packets.

use std::io;

use crate::namespace::TestbedError;
use anabranch_lab::flows::FlowRunError;

/// Why there is no run, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum TestbedFailure {
    /// The coordinator that steers the run's flows, or an agent of it.
    #[error("the coordinator of this run: {0}")]
    Coordination(#[from] anabranch_net::coordination::node::CoordinationError),
    /// The scenario asks for what real packets cannot do here.
    #[error("{0}")]
    Scenario(String),
    /// The system does not give what it takes.
    #[error(transparent)]
    System(#[from] TestbedError),
    /// Sockets fail.
    #[error("cannot {doing}: {source}")]
    Sockets {
        /// What was being done.
        doing: String,
        /// What the system says.
        source: io::Error,
    },
    /// A controller refuses its parameters.
    #[error(transparent)]
    Controller(#[from] FlowRunError),
    /// A flow has ended that should not have.
    #[error("flow \"{flow}\": at {at} {why}")]
    Flow {
        /// The flow.
        flow: String,
        /// When.
        at: anabranch_control::time::Time,
        /// Why.
        why: String,
    },
}

impl TestbedFailure {
    /// For `map_err`: what was being done when a socket failed.
    pub fn sockets(doing: impl Into<String>) -> impl FnOnce(io::Error) -> TestbedFailure {
        move |source| TestbedFailure::Sockets { doing: doing.into(), source }
    }
}

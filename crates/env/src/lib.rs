//! Learning environments over simulated flows, after [C3]: a coordinator sees a link and the hosts that
//! send over it, and tells each host the rate that its flows may have together.
//!
//! [`Session`] is one environment: a world of flows that is stepped by equal spans, observed by
//! numbers with fixed places, and rewarded by terms. [`Vector`] steps many on several threads; what
//! each of them sees does not depend on how many there are. [`Sender`] is an environment of another kind: one flow from
//! end to end. [`catalogue`] has the environments by name.

pub mod catalogue;
pub mod options;
pub mod oracle;
pub mod reward;
pub mod rollout;
pub mod sender;
pub mod session;
pub mod spec;
mod steps;
pub mod vector;
mod watcher;

pub use anabranch_control::policy::{self, Policy};
pub use anabranch_scenario::policy::{
    Actuator, Agents, Feature, SightError, action, feature, file as policy_file, sight,
};
pub use reward::{Terms, Weights};
pub use sender::Sender;
pub use session::Session;
pub use spec::{Spec, SpecError};
pub use steps::{Ended, Steps};
pub use vector::{Autoreset, Seeds, Vector, VectorError};

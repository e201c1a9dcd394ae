//! Policies that are learned, as files, and the hosts of a scenario that they steer. [`anabranch_proto::coordination::policy`]
//! has what they see and what their rates become.

pub mod file;
pub mod flow;
pub mod host;

pub use anabranch_proto::coordination::policy::{
    Actuator, Agents, Feature, Sight, SightError, action, error, feature, sight,
};
pub use file::Saved;
pub use host::{agents_of, check_in, hosts};

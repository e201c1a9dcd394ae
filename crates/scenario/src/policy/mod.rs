//! Policies that are learned: what they see of a link and its hosts, what their rates become, and the files that keep
//! them. [`anabranch_control::policy`] has the network.

pub mod action;
pub mod error;
pub mod feature;
pub mod file;
pub mod flow;
pub mod host;
pub mod sight;

pub use action::Actuator;
pub use error::SightError;
pub use feature::Feature;
pub use file::Saved;
pub use host::{Agents, hosts};
pub use sight::Sight;

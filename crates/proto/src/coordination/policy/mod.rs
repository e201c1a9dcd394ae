//! A coordinator that has learned: what it sees of a link and of the hosts that send over it, and what its rates become.
//! Environments, simulated runs, emulated links and coordinators of real hosts see and tell by this code, so that a policy
//! sees the same in all. [`anabranch_control::policy`] has the network.

pub mod action;
pub mod agents;
mod cross_course;
pub mod deciding;
pub mod error;
pub mod feature;
pub mod learned;
pub mod sight;
pub mod view;

pub use action::Actuator;
pub use agents::Agents;
pub use cross_course::CrossCourse;
pub use error::SightError;
pub use feature::Feature;
pub use learned::Learned;
pub use sight::Sight;

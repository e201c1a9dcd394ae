//! Flows over links: the flow machines on a simulated network.

pub mod coordinator;
pub mod cross;
pub mod events;
pub mod measured;
pub mod record;
pub mod run_files;
pub mod sample;
pub mod shares;
pub mod summary;
pub mod traffic;
mod world;

pub use anabranch_scenario::flows::FlowScenario;
pub use measured::FlowsMeasured;
pub use world::{FlowRunError, run, run_recorded};

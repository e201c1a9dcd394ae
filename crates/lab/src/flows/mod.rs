//! Flows over links: the flow machines on a simulated network.

pub mod coordinator;
pub mod cross;
pub mod dumbbell;
pub mod events;
mod links;
pub mod measured;
pub mod record;
pub mod run_files;
pub mod sample;
pub mod scenario;
pub mod shares;
pub mod sizes;
pub mod summary;
pub mod topology;
pub mod traffic;
mod world;

pub use measured::FlowsMeasured;
pub use scenario::FlowScenario;
pub use world::{FlowRunError, run, run_recorded};

//! Flows over links: the flow machines on a simulated network.

pub mod coordinator;
mod cross;
pub mod dumbbell;
pub mod events;
pub mod measured;
pub mod record;
pub mod run_files;
mod sample;
pub mod scenario;
mod shares;
pub mod sizes;
pub mod summary;
pub mod topology;
mod traffic;
mod world;

pub use measured::FlowsMeasured;
pub use scenario::FlowScenario;
pub use world::{FlowRunError, run, run_recorded};

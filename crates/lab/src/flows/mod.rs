//! Flows over links: the flow machines on a simulated network.

mod cross;
pub mod dumbbell;
pub mod measured;
pub mod run_files;
mod sample;
pub mod scenario;
pub mod summary;
pub mod topology;
mod traffic;
mod world;

pub use measured::FlowsMeasured;
pub use scenario::FlowScenario;
pub use world::{FlowRunError, run};

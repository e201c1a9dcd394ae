//! Flows over links: the flow machines on a simulated network.

pub mod coordinator;
mod cross;
pub mod dumbbell;
pub mod measured;
mod sample;
pub mod scenario;
mod shares;
pub mod topology;
mod traffic;
mod world;

pub use measured::FlowsMeasured;
pub use scenario::FlowScenario;
pub use world::{FlowRunError, run};

//! Streams in the simulated world: the machines of `proto::stream`, over sessions without bytes, behind
//! access links.

mod content;
mod delays;
mod error;
#[cfg(test)]
mod flooder;
mod liar;
mod measuring;
pub(crate) mod run;
mod run_files;
pub mod script;
pub mod stepped;
#[cfg(test)]
mod tests;
mod trees;
mod viewers;

pub use content::{Simulated, SimulatedPacket};
pub use delays::ReleaseDelays;
pub use error::StreamRunError;
pub use liar::{Lie, Viewer};
pub use measuring::{StreamMeasured, StreamMetrics, StreamSecond, quantile};
pub use run::{measure, run};
pub use trees::Trees;
pub use viewers::{Death, Monitored, ViewerMeasured};

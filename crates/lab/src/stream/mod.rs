//! Streams in the simulated world: the machines of `proto::stream`, over sessions without bytes, behind
//! access links.

mod content;
mod liar;
mod measuring;
pub(crate) mod run;
pub mod run_files;
mod trees;

pub use content::{Simulated, SimulatedPacket};
pub use liar::{Lie, Viewer};
pub use measuring::{PACKET_ON_WIRE, Sent, StreamMeasured, StreamMetrics, StreamSecond};
pub use run::run;
pub use trees::Trees;

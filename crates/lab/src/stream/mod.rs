//! Streams in the simulated world: the machines of `proto::stream`, over sessions without bytes, behind
//! access links.

mod content;
mod liar;
mod measuring;
mod run;

pub use content::{Simulated, SimulatedPacket};
pub use liar::{Lie, Viewer};
pub use measuring::{Sent, StreamMetrics};
pub use run::run;

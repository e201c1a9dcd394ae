//! Machines that run: relays and what hangs on them, over any driver.

mod frame;
mod members;
mod relay;

pub use frame::{Frame, Kind, NoFrame};
pub use members::Members;
pub use relay::{RelayNode, RelayNodeCounts, Service};

//! Q-Stream on sockets: a stream's packets as bytes, its links, and peers that run.

pub mod content;
pub mod events;
pub mod liar;
pub mod link;
pub mod node;
pub mod outages;
mod run;
pub mod snapshot;
mod tally;

pub use events::{NodeEvent, Video};
pub use node::{Input, InputError, ServeOptions, StreamError, StreamNode, WatchOptions};
pub use snapshot::Snapshot;

//! Q-Stream on sockets: a stream's packets as bytes, its links, and peers that run.

pub mod content;
pub mod liar;
pub mod link;
pub mod node;
pub mod outages;
mod run;
pub mod snapshot;
mod tally;

pub use node::{Input, InputError, NodeEvent, ServeOptions, StreamError, StreamNode, Video, WatchOptions};
pub use snapshot::Snapshot;

//! How video gets into a stream's server, and out of each viewer to players; and the pages of a [`coordinator`] of hosts and
//! of a user of the [`onion`] overlay.
//!
//! Nothing here knows of peers: an [`input`] gives cuts of a transport stream, an [`outlet`] takes pieces of one,
//! and a [`server`] serves it with what else there is to tell. Each has a thread of its own with a runtime, and
//! bounded channels to the rest.
//!
//! ```text
//! http, udp, PUT, file, ffmpeg --> Input --cuts--> [ peer ] --pieces--> Outlet --> Gateway --> players, pages
//! ```

pub mod coordinator;
pub mod figures;
pub mod input;
pub mod onion;
pub mod outlet;
pub mod overview;
pub mod server;

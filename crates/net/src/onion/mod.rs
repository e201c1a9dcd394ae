//! The onion overlay on real networks: authorities behind TCP ports, relays behind UDP ports, and the edges where it
//! meets ordinary programs: a SOCKS5 server for those who use it, and connections to hosts at an exit.
//!
//! Sockets of programs and hosts are served by tasks. A task talks with whoever drives the sessions over bounded
//! channels ([`pipe`]), and the driver needs no task of its own: [`Streams`] holds what a session's streams owe their
//! sockets. No address and no target is logged, and no error that a user sees of a task holds one.

pub mod association;
mod associations;
pub mod authority;
pub mod exchange;
pub mod exit;
pub mod exit_edge;
pub mod file;
pub mod flow;
pub mod follow;
mod gone_exits;
pub mod hidden_edge;
pub mod network_file;
pub mod pipe;
pub mod policy;
pub mod relay;
pub mod socks;
mod streams;
pub mod user_edge;

pub use exit::{Connector, ExitStreams};
pub use pipe::{ConnectionId, FromTask, Inbox, ToTask};
pub use policy::{Policy, Rule};
pub use socks::{SocksServer, SocksUser};
pub use streams::{End, Streams};

#[cfg(test)]
mod tests;

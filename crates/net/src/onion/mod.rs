//! Where the onion overlay meets ordinary programs: a SOCKS5 server for those who use it, connections to hosts at
//! an exit, and what joins both to the sessions of [`anabranch_onion::session`].
//!
//! Sockets are served by tasks. A task talks with whoever drives the sessions over bounded channels
//! ([`pipe`]), and the driver needs no task of its own: [`Streams`] holds what a session's streams owe their sockets.
//! [`Proxy`] does so for clients, one session for each user, and [`ExitStreams`] for the sessions of an exit.
//!
//! No address and no target is logged, and no error that a user sees of a task holds one.

pub mod exit;
pub mod pipe;
pub mod policy;
pub mod proxy;
pub mod socks;
mod streams;
#[cfg(test)]
mod tests;

pub use exit::{Connector, ExitStreams};
pub use pipe::{ConnectionId, FromTask, Inbox, ToTask};
pub use policy::{Policy, Rule};
pub use proxy::{Proxy, User};
pub use socks::SocksServer;
pub use streams::{End, Streams};

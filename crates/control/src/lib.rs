//! The controllers: what decides how much to send, and over which peers.
//!
//! Nothing here does IO, reads a clock, or allocates for each packet. `now` and
//! `rng` are passed in, so that the same code runs in a simulator and in a
//! process with sockets.

pub mod delivery_rate;
pub mod filter;
pub mod flow;
pub mod pacer;
pub mod path;
pub mod policy;
pub mod registry;
pub mod rng;
pub mod round_trip;
pub mod rtt;
pub mod time;
pub mod units;
pub mod wake;

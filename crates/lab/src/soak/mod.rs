//! Simulation testing of what ships: file transfers over relays, with the machines, wire format,
//! sealing and timers of a real network, while messages are lost, doubled, overtaken and damaged,
//! queues overflow, nodes crash and come back, networks fall apart and heal, disks are full or
//! slow and relays lie.
//!
//! Live streams have cases of their own ([`streams`]), and so have coordinators ([`coordination`]).
//!
//! A case is a function of its seed. Keys alone come from the operating system, and nothing that is
//! reported depends on them: datagrams have the same sizes and times whatever they are.

pub mod case;
pub mod coordination;
pub mod disks;
mod draw;
pub mod invariants;
pub mod liar;
pub mod network;
pub mod node;
mod ordered;
#[cfg(test)]
pub(crate) mod planted;
pub mod runner;
#[cfg(test)]
mod sabotage;
pub mod store;
pub mod streams;
pub mod transfer;

//! Mounts the protocol machines on simulated nodes, runs scenarios, and turns what happened into
//! statistics and files.

pub mod flows;
pub mod overlay;
pub mod parallel;
pub mod soak;
pub mod sweep;
pub mod world;

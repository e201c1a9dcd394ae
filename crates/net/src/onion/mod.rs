//! The onion overlay on real networks: authorities behind TCP ports, relays behind UDP ports, and edges.

pub mod authority;
pub mod exchange;
pub mod follow;
pub mod network_file;
pub mod relay;
pub mod state;

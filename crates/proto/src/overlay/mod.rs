//! The overlay: relays that hold to a limit, and peers that send over several of them.

pub mod bound;
pub mod courier;
pub mod fair_share;
pub mod forward_policy;
pub mod granted_rate;
pub mod hello;
pub mod load;
pub mod message;
pub mod overlay_peer;
pub mod packet;
pub mod path_mtu;
pub mod path_sender;
pub mod peer;
pub mod relay;
pub mod relay_node;
pub mod sources;
pub mod wire;

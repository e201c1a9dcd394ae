//! Protocol machines without IO: they take structs and the time, and answer with
//! structs. A simulator and a socket task drive the same ones.

pub mod bound;
pub mod codec;
pub mod coordination;
pub mod courier;
pub mod fair_share;
pub mod flow;
pub mod forward_policy;
pub mod granted_rate;
pub mod hello;
pub mod key_text;
pub mod limiter;
pub mod load;
pub mod machine;
pub mod message;
pub mod network;
pub mod noise;
pub mod overlay_peer;
pub mod packet;
pub mod path_mtu;
pub mod path_sender;
pub mod peer;
pub mod printable;
pub mod relay;
pub mod relay_node;
pub mod replay;
pub mod seal;
pub mod session;
pub mod sources;
pub mod stream;
pub mod transfer;
pub mod wire;
pub mod x25519;

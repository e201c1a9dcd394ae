//! Protocol machines without IO: they take structs and the time, and answer with
//! structs. A simulator and a socket task drive the same ones.

pub mod codec;
pub mod coordination;
pub mod flow;
pub mod key_text;
pub mod limiter;
pub mod machine;
pub mod network;
pub mod noise;
pub mod overlay;
pub mod printable;
pub mod replay;
pub mod seal;
pub mod session;
pub mod stream;
pub mod token_bucket;
pub mod transfer;
pub mod x25519;

//! Protocol machines without IO: they take structs and the time, and answer with
//! structs. A simulator and a socket task drive the same ones.

pub mod limiter;
pub mod packet;
pub mod path_sender;
pub mod relay;

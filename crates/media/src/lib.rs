//! What Q-Stream needs to know of video: how a transport stream is cut into packets, where players can
//! begin, and what they need first.
//!
//! Nothing is decoded and nothing is changed: the bytes that leave are the bytes that came, in order.

pub mod alignment;
pub mod clock;
pub mod cutter;
pub mod entry_points;
pub mod playout;
mod programme;
pub mod repetition;
pub mod segments;

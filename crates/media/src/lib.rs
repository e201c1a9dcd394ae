//! What Q-Stream needs to know of video: how a transport stream is cut into packets, where players can
//! begin, and what they need first.
//!
//! What comes in is not decoded and not changed: the bytes that leave are the bytes that came, in order. The only
//! video that is made here is a [test picture](pattern).

pub mod alignment;
pub mod clock;
pub mod cutter;
pub mod entry_points;
pub mod pattern;
pub mod playout;
mod programme;
pub mod repetition;
pub mod segments;

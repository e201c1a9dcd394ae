//! Q-Stream: live video from one source to many viewers over the viewers themselves. Trees push
//! ([Raiber 2010], 3.2, 6.4), a mesh repairs ([Efthymiopoulos 2015], 2).

pub mod answers;
mod beginning;
pub mod buffer;
pub mod chains;
pub mod client;
pub mod content;
pub mod contribution;
pub mod enabler;
pub mod exploration;
pub mod feeds;
mod following;
pub mod gossip;
mod manifest_holes;
pub mod matching;
pub mod measured;
pub mod mesh;
pub mod message;
pub mod on_wire;
pub mod overlay;
pub mod packet;
pub mod peer;
pub mod peers;
pub mod pushes;
pub mod pushing;
pub mod receiving;
mod reclaims;
pub mod report_history;
pub mod server;
mod serving;
pub mod source;
pub mod source_clock;
pub mod tracker;
mod trading;
pub mod traffic;
pub mod tree;
mod upkeep;
pub mod uplink;
pub mod wire;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

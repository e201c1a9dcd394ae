//! What a queue is asked: who may wait, and who goes next.

mod codel;
mod fifo;
mod fq_codel;
mod red;
#[cfg(test)]
mod testing;

use core::fmt::Debug;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use dyn_clone::{DynClone, clone_trait_object};

pub use codel::{Codel, CodelConfig, CodelLaw};
pub use fq_codel::{FqCodel, FqCodelConfig};
pub use red::{Red, RedConfig, RedMeasure};

/// How much may wait for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Anything.
    Unlimited,
    /// Bytes; a packet is accepted if it fits whole.
    Bytes(u64),
    /// Packets.
    Packets(u64),
    /// The wait of the packet that arrives.
    Time(Duration),
}

/// How much a discipline keeps at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes; a packet is accepted if it fits whole.
    Bytes(u64),
    /// Packets.
    Packets(u64),
}

/// A packet that waits, as a discipline sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its number in the network.
    pub packet: u32,
    /// On the wire, in bytes.
    pub size: u32,
    /// Packets of one flow in one direction have this in common.
    pub flow: u64,
    /// When it came.
    pub since: Time,
    /// Whether a mark may take the place of a drop.
    pub ecn_capable: bool,
    /// Whether it bears a congestion-experienced mark; a discipline sets it.
    pub marked: bool,
}

/// Decides who waits, who goes next and who is dropped. The packet in transmission is
/// no longer in the queue.
pub trait Discipline: Debug + Send + Sync + DynClone {
    /// `packet` arrives; whoever is dropped for it, itself perhaps, is added to `dropped`.
    fn enqueue(&mut self, now: Time, packet: Waiting, dropped: &mut Vec<Waiting>, rng: &mut Rng);

    /// The packet to transmit next; whoever is dropped on the way is added to `dropped`.
    fn dequeue(&mut self, now: Time, dropped: &mut Vec<Waiting>) -> Option<Waiting>;

    /// Bytes that wait.
    fn bytes(&self) -> u64;
}

clone_trait_object!(Discipline);

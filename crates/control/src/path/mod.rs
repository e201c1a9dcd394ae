//! Path controllers: a rate for every peer, and paths through peers.
//!
//! A sender reaches its destination over `h` of the `n` peers it knows, by other
//! ones for each packet. A *rate learner* estimates what one peer can forward for
//! us; a *path controller* holds a learner for each peer and chooses the relays of
//! each packet. One ACK or timeout is evidence about every relay on the path.

mod aimd;
pub mod burst_credit;
pub mod candidates;
mod ceiling;
mod credits;
mod delays;
mod delivered;
mod explicit_rate;
mod flow_peers;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod ladder;
pub mod learner;
mod losses;
pub mod paced_credit;
pub mod per_peer;
pub mod perfect;
pub mod q_learning;
mod queue_delays;
mod random;
#[cfg(test)]
mod refused;
pub mod registry;
pub mod report;
mod round_trips;
mod rounds;
pub mod setup;
pub mod slot;
mod stamp_changes;
mod timeouts;
mod tomography;
mod train;

use core::fmt::Debug;
use std::sync::{Arc, Mutex};

use dyn_clone::{DynClone, clone_trait_object};
use perfect::Manager;
pub use report::{Outcome, Report, Stamp};
pub use slot::Slot;

use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};
use crate::wake::Wake;

/// The most relays a packet may pass.
pub const MAX_RELAYS: usize = 8;

/// The most peers one sender may know; the highest `u16` marks "none".
pub const MAX_KNOWN_PEERS: usize = u16::MAX as usize - 1;

/// What a learner noted when a packet left; it comes back with the outcome.
/// Only the learner that wrote it knows what it means: see [`RateLearner::Note`](learner::RateLearner::Note).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket(pub u32);

/// One relay of a packet's path. In six bytes, none of which is padding: senders remember many, and make many anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(Rust, packed(2))]
pub struct Hop {
    /// The relay.
    pub slot: Slot,
    /// What its learner noted.
    pub ticket: Ticket,
}

/// Decides which relays a packet takes, and whether any may be used now.
///
/// A controller is a value: a clone goes on from where the original stands, and neither knows of
/// the other. The exception is [`perfect::Perfect`], whose senders all ask one manager.
pub trait PathController: Debug + DynClone + Send {
    /// Fills `path` with distinct relays, none of which is `destination`, for a
    /// packet of `size` that leaves now; false, and nothing changed, when the
    /// rates leave no room yet.
    fn select(&mut self, now: Time, destination: Slot, size: Bytes, path: &mut [Hop], rng: &mut Rng) -> bool;

    /// A packet of `size` leaves now over relays that somebody else has chosen: notes it in the tickets
    /// of `path`, as `select` does, whether or not the rates have room for it. For who takes rates for
    /// shares, and decides elsewhere how much leaves in all.
    fn adopt(&mut self, _now: Time, _size: Bytes, _path: &mut [Hop], _rng: &mut Rng) {}

    /// Learns what became of a packet that `select` gave `path` to, or that `adopt` was told of.
    fn on_outcome(&mut self, report: &Report<'_>, rng: &mut Rng);

    /// Learns that a packet has arrived whose loss was reported before: nothing had been lost on
    /// its way there.
    fn on_late(&mut self, _report: &Report<'_>, _rng: &mut Rng) {}

    /// From now on it asks this manager, if it asks any: its network is a copy of another.
    fn set_manager(&mut self, _manager: &Arc<Mutex<Manager>>) {}

    /// What `select` waits for, once it has returned false: the earliest instant at which it may
    /// succeed again, or an outcome. Never an instant before `now`.
    fn wake(&self, now: Time) -> Wake;

    /// After so long the ACK of a packet over `path` to `destination` is late. What is known of the pairs of
    /// nodes on its way says `by_pairs`.
    fn timeout(&self, _path: &[Slot], _destination: Slot, by_pairs: Duration) -> Duration {
        by_pairs
    }

    /// The rate that the relay is believed to forward for us; none if nothing limits it.
    fn rate(&self, peer: Slot) -> Option<Rate>;

    /// Memory in bytes, this value and all that it owns.
    fn memory_bytes(&self) -> usize;

    /// Named values of one peer's learner, in a fixed order.
    fn trace(&self, peer: Slot, record: &mut dyn FnMut(&'static str, f64));
}

clone_trait_object!(PathController);

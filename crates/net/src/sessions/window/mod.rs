//! One congestion controller for all connections of a peer: a window that they share.
//!
//! To QUIC's library each connection has a controller of its own. Here that is a *share*: its window is
//! what the connection has in flight and what is left of the common window,
//!
//! ```text
//! share = in flight of the connection + (window - in flight of all)
//! ```
//!
//! so that whoever sends next takes what is left, and all of them together never have more in flight than
//! the one controller allows. The library tells shares what leaves, arrives and is lost; they tell the
//! controller, to which every connection is a receiver.
//!
//! A handshake may have two packets in flight whatever others have (RFC 9002, 7.2, has no connection's window smaller):
//! peers that open sessions to each other at once have their windows full of handshakes, and if none answered before its
//! own are answered, all would wait until those are given up.
//!
//! A receiver is *silent* once a packet to it has waited for a probe timeout, counted from the last ACK or the
//! first packet behind it. At the second one in a row, three after the last sign of life, what is in flight
//! to it counts no more: it would hold up the others until the connection is over. Both are as in the
//! simulated sessions (`anabranch_proto::session`).

mod member;
mod share;
mod state;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anabranch_control::flow::{Bounds, FlowController, Limits};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::session::SessionConfig;

pub use share::Factory;
pub use state::Silence;
use state::State;

/// A window that connections share. Clones are the same.
#[derive(Clone, Debug)]
pub struct SharedWindow(Arc<Mutex<State>>);

impl SharedWindow {
    /// That of `controller`, which draws from `rng`; our time is zero at `began`.
    pub fn new(config: &SessionConfig, controller: Box<dyn FlowController>, rng: Rng, began: Instant) -> SharedWindow {
        SharedWindow(Arc::new(Mutex::new(State::new(config, controller, rng, began))))
    }

    /// A controller that panicked leaves its last state, and numbers stay numbers.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a share for each connection.
    pub fn factory(&self) -> Arc<Factory> {
        Arc::new(Factory(self.clone()))
    }

    /// The member of the connection that has just begun.
    pub fn take_newest(&self) -> Option<u32> {
        self.lock().newest.take()
    }

    /// The handshake of a connection is over.
    pub fn set_established(&self, member: u32) {
        self.lock().member(member).is_established = true;
    }

    /// A connection ends: nobody answers any more to what is in flight over it.
    pub fn end(&self, member: u32) {
        self.lock().end(member);
    }

    /// Reports to the controller what a connection has brought, whose mean round trip is `mean` to the library.
    pub fn report(&self, now: Time, member: u32, mean: Option<Duration>) {
        self.lock().report(now, member, mean);
    }

    /// Whether a packet of `size` may leave now, whoever it goes to, if there is any; `waiting` waits for that.
    pub fn has_room(&self, now: Time, size: Bytes, waiting: Bytes) -> bool {
        self.lock().has_room(now, size, waiting)
    }

    /// There is nothing to send although the window has room.
    pub fn set_app_limited(&self) {
        self.lock().shared.set_app_limited();
    }

    /// Whether a connection wanted to send and the window did not let it; asked once for each time.
    pub fn take_blocked(&self, member: u32) -> bool {
        let mut state = self.lock();
        state.find(member).is_some() && std::mem::take(&mut state.member(member).is_blocked)
    }

    /// Whether a receiver is silent.
    pub fn is_silent(&self, member: u32) -> bool {
        self.lock().find(member).is_some_and(|member| member.is_silent)
    }

    /// What is due by time; whose silence has begun or ended since the last call.
    pub fn poll(&self, now: Time, silences: &mut Vec<Silence>) {
        let mut state = self.lock();
        state.run_timer(now);
        state.look_for_silence(now);
        silences.append(&mut state.silences);
    }

    /// When to call [`SharedWindow::poll`], or to ask again for room that the pacer has denied.
    pub fn timer(&self) -> Time {
        self.lock().timer()
    }

    /// The least round trip to a receiver, once there is a sample.
    pub fn least_round_trip(&self, member: u32) -> Option<Duration> {
        let state = self.lock();
        let member = state.find(member)?;
        member.rtt.is_sampled().then(|| member.rtt.report(false).min)
    }

    /// Bounds that hold for the controller's window from now on.
    pub fn set_bounds(&self, bounds: Bounds) {
        self.lock().set_bounds(bounds);
    }

    /// What the controller allows.
    pub fn limits(&self) -> Limits {
        self.lock().limits
    }

    /// What is in flight over all connections.
    pub fn in_flight(&self) -> Bytes {
        self.lock().shared.in_flight()
    }

    /// Sent, delivered and lost since the beginning.
    pub fn totals(&self) -> (Bytes, Bytes, Bytes) {
        let state = self.lock();
        (state.sent_bytes, state.shared.delivered(), state.shared.lost())
    }

    /// The controller's named values; see `FlowController::trace`.
    pub fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.lock().shared.trace(record);
    }
}

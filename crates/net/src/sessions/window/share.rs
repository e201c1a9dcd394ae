//! What each connection of QUIC's library takes for a controller of its own.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use anabranch_control::units::Bytes;
use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

use super::SharedWindow;
use super::state::State;

/// What the library's own pacer, of each connection, takes for a window: it does not pace by one that
/// is so large. The common pacer paces.
const UNPACED: u64 = 1 << 40;

/// Packets that a handshake may have in flight, whatever others have.
const HANDSHAKE_PACKETS: u64 = 2;

/// Makes shares.
#[derive(Debug)]
pub struct Factory(pub(super) SharedWindow);

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, _: Instant, mtu: u16) -> Box<dyn Controller> {
        let number = self.0.lock().join(mtu);
        Box::new(Share(Arc::new(Membership { window: self.0.clone(), number })))
    }
}

/// A connection's place, until all that speak for it are gone.
#[derive(Debug)]
struct Membership {
    window: SharedWindow,
    number: u32,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.window.lock().leave(self.number);
    }
}

/// What a connection's controller is.
#[derive(Clone, Debug)]
struct Share(Arc<Membership>);

impl Share {
    fn with<R>(&self, act: impl FnOnce(&mut State, u32) -> R) -> R {
        act(&mut self.0.window.lock(), self.0.number)
    }
}

impl Controller for Share {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, packet: u64) {
        self.with(|state, number| state.on_sent(state.time(now), number, packet, Bytes::new(u64::from(bytes))));
    }

    fn on_ack(&mut self, _: Instant, sent: Instant, bytes: u64, packet: u64, _: bool, _: &RttEstimator) {
        self.with(|state, number| state.on_ack(number, packet, state.time(sent), Bytes::new(bytes)));
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        self.with(|state, number| state.on_end_acks(state.time(now), number, Bytes::new(in_flight)));
    }

    fn on_packet_lost(&mut self, bytes: u16, packet: u64, _: Instant) {
        self.with(|state, number| {
            let is_by_ack = !state.member(number).acked.is_empty();
            state.on_packet_lost(number, packet, Bytes::new(u64::from(bytes)), is_by_ack);
        });
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, is_persistent: bool, is_ecn: bool, _: u64, _: u64) {
        self.with(|state, number| {
            let member = state.member(number);
            member.is_persistent |= is_persistent;
            member.marked += u64::from(is_ecn);
            member.is_unreported = true;
        });
    }

    fn on_cwnd_limited(&mut self) {
        self.with(|state, number| state.member(number).is_blocked = true);
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.with(|state, number| state.member(number).mtu = Bytes::new(u64::from(mtu)));
    }

    fn window(&self) -> u64 {
        self.with(|state, number| {
            let member = state.member(number);
            let own = member.in_flight;
            let least = if member.is_established { Bytes::ZERO } else { member.mtu * HANDSHAKE_PACKETS };
            // A window above 0 always admits one packet to an empty network, however small it is.
            if state.is_empty() {
                return u64::MAX / 2;
            }
            (own + state.left()).max(least).get()
        })
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = UNPACED;
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        UNPACED
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

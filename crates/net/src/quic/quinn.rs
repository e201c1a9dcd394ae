//! The adapter to quinn, which asks for a window and nothing else: it paces at five quarters
//! of a window a round trip, whatever rate a controller has in mind.
//!
//! Controllers that pace take a window of about twice what their rate keeps in flight, and
//! quinn would use all of it. So their window here is what the rate keeps in flight, rate
//! times smoothed round trip, if that is less: on average that much leaves, in bursts of up
//! to five quarters of the rate. It holds BBR near what it does when it is paced, but not the
//! PCC family, which compares rates a few percent apart.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{self, Controller, ControllerMetrics};

use anabranch_control::units::Bytes;

use super::Factory;
use super::flow::{AckEnd, Flow};

impl congestion::ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Adapter::new(self.flow(now, current_mtu)))
    }
}

/// The controller of a connection that was made with ours; none for another.
pub fn flow_of(connection: &quinn::Connection) -> Option<Flow> {
    let adapter = connection.congestion_state().into_any().downcast::<Adapter>().ok()?;
    Some(adapter.flow)
}

/// Tells a `Flow` what quinn says.
#[derive(Debug)]
struct Adapter {
    flow: Flow,
    /// Of the ACK that is being reported.
    acked: Vec<(Instant, u16)>,
    smoothed_rtt: std::time::Duration,
}

impl Adapter {
    fn new(flow: Flow) -> Adapter {
        Adapter { flow, acked: Vec::new(), smoothed_rtt: std::time::Duration::ZERO }
    }
}

impl Controller for Adapter {
    fn on_sent(&mut self, now: Instant, bytes: u64, _: u64) {
        self.flow.on_sent(now, bytes);
    }

    fn on_ack(&mut self, _: Instant, sent: Instant, bytes: u64, _: bool, rtt: &RttEstimator) {
        self.acked.push((sent, u16::try_from(bytes).unwrap_or(u16::MAX)));
        self.smoothed_rtt = rtt.get();
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _: Option<u64>) {
        let end = AckEnd { in_flight: Bytes::new(in_flight), app_limited, smoothed_rtt: self.smoothed_rtt };
        self.flow.on_acks(now, &self.acked, end);
        self.acked.clear();
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        self.flow.on_congestion(now, sent, lost_bytes, is_persistent_congestion);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.flow.set_mtu(new_mtu);
    }

    /// quinn sends while `in_flight + packet < window`, ours while it is no more: one byte
    /// makes up for it. Less than a packet would let nothing leave ever.
    fn window(&self) -> u64 {
        self.flow.window_at_rate().max(self.flow.mtu()).saturating_add(1)
    }

    fn metrics(&self) -> ControllerMetrics {
        let (window, rate, _) = self.flow.limits();
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = window;
        // For logs only, in bits a second here.
        metrics.pacing_rate = rate.map(|rate| rate.saturating_mul(8));
        metrics
    }

    /// The same controller, not a copy: quinn asks for one when the peer's address changes
    /// but the network does not, and `flow_of` to look at it.
    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Adapter::new(self.flow.clone()))
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::flow::Bounds;

    use super::*;
    use crate::quic::controller;

    #[test]
    fn quinn_sends_what_the_window_holds_and_at_least_a_packet() {
        let factory = Arc::new(controller("fixed").unwrap());
        let steering = factory.steering();
        let mut adapter = congestion::ControllerFactory::build(factory, Instant::now(), 1200);
        // quinn sends while in_flight + 1200 < window: ten packets leave.
        assert_eq!((adapter.window(), adapter.initial_window()), (12_001, 12_001));
        let bounds = |fixed| Bounds { fixed: Some(Bytes::new(fixed)), ..Bounds::default() };
        steering.set(bounds(5000));
        assert_eq!(adapter.window(), 5001);
        adapter.on_mtu_update(1452);
        steering.set(bounds(1));
        assert_eq!(adapter.window(), 1453);
    }

    #[test]
    fn a_connection_that_moves_keeps_its_controller() {
        let factory = Arc::new(controller("cubic").unwrap());
        let (steering, now) = (factory.steering(), Instant::now());
        let mut adapter = congestion::ControllerFactory::build(factory, now, 1200);
        let mut moved = adapter.clone_box();
        moved.on_sent(now, 12_000, 9);
        moved.on_congestion_event(now, now, false, 1200);
        let window = moved.window();
        assert!(window < 12_000 && adapter.window() == window, "{window}");
        adapter.on_congestion_event(now, now, true, 1200);
        assert_eq!(moved.window(), 2401);
        assert_eq!(steering.flows().len(), 1);
        drop((adapter, moved));
        assert!(steering.flows().is_empty());
    }
}

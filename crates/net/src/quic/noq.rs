//! The adapter to noq, which asks for a window and, beyond quinn, for a rate and for how
//! much may leave at once, paces by them, and tells of each packet that leaves.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use noq_proto::congestion::{self, Controller, ControllerMetrics};
use noq_proto::{PathId, RttEstimator};

use anabranch_control::units::Bytes;

use super::Factory;
use super::flow::{AckEnd, Flow};

impl congestion::ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let paced = self.paced;
        Box::new(Adapter::new(self.flow(now, current_mtu), paced))
    }
}

/// Bytes a second that hold nothing up.
const UNPACED: u64 = 1 << 40;

/// The controller of a connection's path that was made with ours; none for another.
pub fn flow_of(connection: &noq::Connection, path: PathId) -> Option<Flow> {
    let adapter = connection.congestion_state(path)?.into_any().downcast::<Adapter>().ok()?;
    Some(adapter.flow)
}

/// Tells a `Flow` what noq says.
#[derive(Debug)]
struct Adapter {
    flow: Flow,
    paced: bool,
    /// Of the ACK that is being reported.
    acked: Vec<(Instant, u16)>,
    smoothed_rtt: std::time::Duration,
    /// What has left at one instant and was not reported yet.
    sent: Option<(Instant, u64)>,
}

impl Adapter {
    fn new(flow: Flow, paced: bool) -> Adapter {
        Adapter { flow, paced, acked: Vec::new(), smoothed_rtt: std::time::Duration::ZERO, sent: None }
    }

    fn flush(&mut self) {
        if let Some((at, bytes)) = self.sent.take() {
            self.flow.on_sent(at, bytes);
        }
    }
}

impl Controller for Adapter {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, _: u64) {
        match &mut self.sent {
            Some((at, sum)) if *at == now => *sum += u64::from(bytes),
            _ => {
                self.flush();
                self.sent = Some((now, u64::from(bytes)));
            }
        }
    }

    /// Comes once for the packets of a burst.
    fn on_sent(&mut self, _: Instant, _: u64, _: u64) {
        self.flush();
    }

    fn on_ack(&mut self, _: Instant, sent: Instant, bytes: u64, _: u64, _: bool, rtt: &RttEstimator) {
        self.acked.push((sent, u16::try_from(bytes).unwrap_or(u16::MAX)));
        self.smoothed_rtt = rtt.get();
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _: Option<u64>) {
        self.flush();
        let end = AckEnd { in_flight: Bytes::new(in_flight), app_limited, smoothed_rtt: self.smoothed_rtt };
        self.flow.on_acks(now, &self.acked, end);
        self.acked.clear();
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        _: bool,
        lost_bytes: u64,
        _: u64,
    ) {
        self.flush();
        self.flow.on_congestion(now, sent, lost_bytes, is_persistent_congestion);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.flow.set_mtu(new_mtu);
    }

    /// noq sends while `in_flight + packet <= window`, as ours do. Less than a packet would
    /// let nothing leave ever.
    fn window(&self) -> u64 {
        self.flow.window().max(self.flow.mtu())
    }

    fn metrics(&self) -> ControllerMetrics {
        let (window, rate, burst) = self.flow.limits();
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = window.max(self.flow.mtu());
        // Bytes a second; noq sends at least one packet at once, whatever the burst.
        metrics.pacing_rate = rate.or((!self.paced).then_some(UNPACED));
        metrics.send_quantum = rate.map(|_| burst);
        metrics
    }

    /// The same controller, not a copy: noq asks for one when the peer's address changes
    /// but the network does not, and `flow_of` to look at it.
    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Adapter::new(self.flow.clone(), self.paced))
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
    fn noq_gets_the_rate_in_bytes_and_what_may_leave_at_once() {
        let factory = Arc::new(controller("vivace").unwrap());
        let adapter = congestion::ControllerFactory::build(factory.clone(), Instant::now(), 1200);
        let asked = factory.steering().flows()[0].snapshot();
        let metrics = adapter.metrics();
        assert_eq!(metrics.congestion_window, asked.window.get());
        assert_eq!(metrics.pacing_rate, asked.rate.map(|rate| rate.bits_per_sec() / 8));
        assert_eq!(metrics.send_quantum, Some(1200));
        let cubic = congestion::ControllerFactory::build(Arc::new(controller("cubic").unwrap()), Instant::now(), 1200);
        assert_eq!((cubic.metrics().pacing_rate, cubic.metrics().send_quantum), (None, None));
        let unpaced = Arc::new(controller("cubic").unwrap().unpaced());
        let cubic = congestion::ControllerFactory::build(unpaced, Instant::now(), 1200);
        assert_eq!((cubic.metrics().pacing_rate, cubic.metrics().send_quantum), (Some(UNPACED), None));
    }

    #[test]
    fn packets_of_one_instant_are_reported_together_and_count_once() {
        let factory = Arc::new(controller("cubic").unwrap());
        let now = Instant::now();
        let mut adapter = congestion::ControllerFactory::build(factory.clone(), now, 1200);
        for number in 0..3 {
            adapter.on_packet_sent(now, 1200, number);
        }
        let flow = factory.steering().flows().remove(0);
        assert_eq!(flow.snapshot().in_flight, Bytes::ZERO);
        adapter.on_sent(now, 3600, 2);
        assert_eq!(flow.snapshot().in_flight, Bytes::new(3600));
        // A probe for the path's MTU leaves without such an end.
        adapter.on_packet_sent(now, 1452, 3);
        adapter.on_congestion_event(now, now, false, false, 1200, 1);
        assert_eq!(flow.snapshot().in_flight, Bytes::new(3852));
    }

    #[test]
    fn a_packet_may_always_leave() {
        let factory = Arc::new(controller("cubic").unwrap());
        factory.steering().set(Bounds { fixed: Some(Bytes::new(1)), ..Bounds::default() });
        let mut adapter = congestion::ControllerFactory::build(factory, Instant::now(), 1200);
        adapter.on_mtu_update(1452);
        assert_eq!((adapter.window(), adapter.metrics().congestion_window), (1452, 1452));
    }
}

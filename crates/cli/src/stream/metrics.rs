//! A peer's figures as metrics, for Prometheus. No label names anybody: metrics are kept for long, and who feeds whom
//! is nobody's business.

use std::fmt;

use anabranch_net::stream::snapshot::{Snapshot, State};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::overview::HEADERS;

/// The latest snapshot of a peer, which scrapes read.
#[derive(Debug)]
struct Peer(watch::Receiver<Snapshot>);

/// The peer of which `snapshots` tell, to be served.
pub fn registry(snapshots: watch::Receiver<Snapshot>) -> Registry {
    let mut registry = Registry::default();
    registry.sub_registry_with_prefix("anabranch_stream").register_collector(Box::new(Peer(snapshots)));
    registry
}

impl Collector for Peer {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let snapshot = self.0.borrow().clone();
        let seconds = |duration: anabranch_control::time::Duration| duration.as_secs_f64();
        let watching = snapshot.overlay.as_ref().map(|(_, view)| f64::from(view.watching));
        let gauges = [
            ("uptime_seconds", "Since the peer runs", Some(seconds(snapshot.uptime))),
            ("is_live", "1 if the stream runs here", Some(f64::from(u8::from(snapshot.state == State::Live)))),
            ("sessions", "Sessions with other peers", Some(snapshot.sessions as f64)),
            ("feeds", "Slices that this peer pushes to others, one for each child", Some(snapshot.children as f64)),
            ("viewers", "Viewers of the stream, where they are known", watching),
            (
                "narrow_sessions",
                "Sessions whose network does not carry the stream's packets",
                Some(snapshot.narrow_sessions as f64),
            ),
            (
                "narrowest_path_bytes",
                "UDP payload that the narrowest of these carries",
                snapshot.narrowest.map(f64::from),
            ),
            ("window_bytes", "What may be in flight", Some(snapshot.window_bytes as f64)),
            ("in_flight_bytes", "What is in flight", Some(snapshot.in_flight_bytes as f64)),
            (
                "delay_seconds",
                "Age of what goes to players, beyond the fastest way from the source",
                snapshot.delay.map(seconds),
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
            }
        }
        let counters = [
            ("played_packets", "Packets that went to players", snapshot.played_packets),
            ("skipped_packets", "Packets that players miss", snapshot.skipped_packets),
            ("forged_packets", "Packets that were not the source's, and were thrown away", snapshot.forged_packets),
            (
                "withheld_datagrams",
                "Datagrams that were longer than a network carries, and did not leave",
                snapshot.too_long,
            ),
            ("received_bytes", "Datagrams of sessions that came, without headers", snapshot.received_bytes),
            (
                "sent_bytes",
                "All that left: UDP datagrams, and 28 bytes of headers for each",
                snapshot.sent_bytes + HEADERS * snapshot.sent_packets,
            ),
            ("sent_datagrams", "UDP datagrams that left", snapshot.sent_packets),
            ("lost_bytes", "Of those that ask for an ACK, lost", snapshot.lost_bytes),
        ];
        let source = snapshot
            .server
            .as_ref()
            .map(|server| ("source_bytes", "Video that came from the source", server.source_bytes));
        for (name, help, count) in counters.into_iter().chain(source) {
            ConstCounter::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::units::Rate;
    use anabranch_net::sessions::identity::PeerIdentity;
    use anabranch_net::stream::node::{ServeOptions, StreamNode};
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn paths_that_are_too_narrow_and_what_they_cost_are_reported() {
        let options =
            ServeOptions::new(([127, 0, 0, 1], 0).into(), PeerIdentity::generate(), Rate::from_bits_per_sec(1_000_000));
        let (node, _video, _events) = StreamNode::serve(options).unwrap();
        let of = |snapshot| {
            let mut text = String::new();
            encode(&mut text, &registry(watch::channel(snapshot).1)).unwrap();
            text
        };
        let wide = of(node.snapshot());
        assert!(wide.contains("anabranch_stream_narrow_sessions 0.0\n"), "{wide}");
        assert!(!wide.contains("narrowest"), "what is unknown is no number: {wide}");
        let narrow = Snapshot { too_long: 7, narrow_sessions: 2, narrowest: Some(1252), ..node.snapshot() };
        let narrow = of(narrow);
        for line in [
            "anabranch_stream_narrow_sessions 2.0",
            "anabranch_stream_narrowest_path_bytes 1252.0",
            "anabranch_stream_withheld_datagrams_total 7",
        ] {
            assert!(narrow.lines().any(|found| found == line), "no {line} in {narrow}");
        }
    }
}

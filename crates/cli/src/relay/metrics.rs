//! A relay's counters as metrics. No label names anybody: metrics are kept for long, and who talks to
//! whom is nobody's business.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_control::units::Rate;
use anabranch_net::endpoint::RuntimeCounters;
use anabranch_proto::overlay::relay_node::RelayCounters;
use anabranch_proto::overlay::wire::Unreadable;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::network;

/// What the relay has done when it was last looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    pub relay: RelayCounters,
    pub runtime: RuntimeCounters<Unreadable>,
}

/// The latest snapshot, which the relay renews and scrapes read.
#[derive(Clone, Debug)]
pub struct Metrics {
    latest: Arc<Mutex<Snapshot>>,
    limit: Rate,
}

impl Metrics {
    /// Of a relay of `limit` that has done nothing yet.
    pub fn new(limit: Rate) -> Metrics {
        Metrics { latest: Arc::default(), limit }
    }

    /// The relay has come so far.
    pub fn renew(&self, snapshot: Snapshot) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }

    /// They, to be served.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("anabranch_relay");
        registry.register_collector(Box::new(self.clone()));
        registry
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Snapshot { relay, runtime } = *self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = ConstGauge::new(self.limit.bytes_per_sec());
        limit.encode(encoder.encode_descriptor(
            "limit_bytes_per_second",
            "The most that is forwarded",
            None,
            MetricType::Gauge,
        )?)?;
        for (name, help, count) in [
            ("received_datagrams", "Datagrams that arrived, readable or not", runtime.received),
            ("forwarded_datagrams", "Datagrams that were sent on to the next node", relay.forwarded),
            ("forwarded_bytes", "UDP payload of those that were sent on", relay.forwarded_bytes),
            ("sent_datagrams", "Datagrams that the system took", runtime.out.sent),
            ("unsent_datagrams", "Datagrams that the system refused", runtime.out.refused),
            ("overflowed_datagrams", "Datagrams dropped because too many waited", runtime.overflowed),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(metric)?;
        }
        let help = "Datagrams that were discarded, by reason";
        let mut discarded = encoder.encode_descriptor("discarded_datagrams", help, None, MetricType::Counter)?;
        for discard in network::discards(&relay, &runtime.unreadable) {
            let labels = [("reason", discard.reason)];
            ConstCounter::new(discard.count).encode(discarded.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn every_counter_is_a_metric_and_every_discard_has_a_reason() {
        let metrics = Metrics::new(Rate::from_bytes_per_sec(4_000_000));
        let relay = RelayCounters { forwarded: 7, forwarded_bytes: 700, barred: 3, ..RelayCounters::default() };
        let mut runtime: RuntimeCounters<Unreadable> = RuntimeCounters { received: 12, ..RuntimeCounters::default() };
        runtime.unreadable.foreign = 2;
        metrics.renew(Snapshot { relay, runtime });
        let mut text = String::new();
        encode(&mut text, &metrics.registry()).unwrap();
        for line in [
            "anabranch_relay_limit_bytes_per_second 4000000.0",
            "anabranch_relay_received_datagrams_total 12",
            "anabranch_relay_forwarded_datagrams_total 7",
            "anabranch_relay_forwarded_bytes_total 700",
            "anabranch_relay_discarded_datagrams_total{reason=\"barred\"} 3",
            "anabranch_relay_discarded_datagrams_total{reason=\"foreign\"} 2",
            "anabranch_relay_discarded_datagrams_total{reason=\"over_share\"} 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in {text}");
        }
    }
}

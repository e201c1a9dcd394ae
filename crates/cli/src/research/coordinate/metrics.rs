//! A coordinator's figures as metrics, for Prometheus. Labels are names of the coordinator's own file.

use std::fmt;

use anabranch_gateway::coordinator::{DecidedBy, Host, Link, Monitor, Overview};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

/// The latest figures, which scrapes read.
#[derive(Debug)]
struct Figures(watch::Receiver<Overview>);

/// The coordinator of which `overviews` tell, to be served.
pub fn registry(overviews: watch::Receiver<Overview>) -> Registry {
    let mut registry = Registry::default();
    let figures = registry.sub_registry_with_prefix("anabranch_coordinator");
    figures.register_collector(Box::new(Figures(overviews)));
    registry
}

/// A figure of each link, host or monitor; none of those of which it is not known.
struct Family<'a> {
    name: &'static str,
    help: &'static str,
    values: Vec<(&'a [(&'static str, String)], f64)>,
}

impl Family<'_> {
    fn write(&self, encoder: &mut DescriptorEncoder<'_>, kind: MetricType) -> Result<(), fmt::Error> {
        if self.values.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for (labels, value) in &self.values {
            let one = family.encode_family(labels)?;
            match kind {
                MetricType::Counter => ConstCounter::new(*value as u64).encode(one)?,
                _ => ConstGauge::new(*value).encode(one)?,
            }
        }
        Ok(())
    }
}

/// Names of one thing, each with what it names.
type Labels = Vec<(&'static str, String)>;

/// A name as it stands in quotes: the library writes it as it is.
fn quoted(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The figures of one thing by their names and words.
type Column<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

fn write<'a, T>(
    encoder: &mut DescriptorEncoder<'_>,
    (all, labels): (&'a [T], &'a [Labels]),
    kind: MetricType,
    columns: &[Column<T>],
) -> Result<(), fmt::Error> {
    for (name, help, value) in columns {
        let values = all.iter().zip(labels).filter_map(|(one, labels)| Some((labels.as_slice(), value(one)?)));
        Family { name, help, values: values.collect() }.write(encoder, kind)?;
    }
    Ok(())
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let overview = self.0.borrow().clone();
        let uptime = encoder.encode_descriptor("uptime_seconds", "Since it began", None, MetricType::Gauge)?;
        ConstGauge::new(overview.uptime_s).encode(uptime)?;
        let links: Vec<_> = overview.links.iter().map(|link| vec![("link", quoted(&link.name))]).collect();
        let links = (overview.links.as_slice(), links.as_slice());
        write(
            &mut encoder,
            links,
            MetricType::Gauge,
            &[
                ("link_capacity_bits_per_second", "What the link carries", |link| Some(link.capacity_mbit_s * 1e6)),
                (
                    "link_others_expected_bits_per_second",
                    "What the rule takes others to send until it decides again",
                    |link| link.expected_mbit_s.map(|rate| rate * 1e6),
                ),
                ("link_others_bits_per_second", "What others than the hosts send over it", |link| {
                    link.other_mbit_s.map(|rate| rate * 1e6)
                }),
                ("link_given_bits_per_second", "What hosts may send over it", |link| Some(link.given_mbit_s * 1e6)),
                ("link_decided_by_policy", "1 if a policy decided last, 0 if the rule did", |link| {
                    Some(f64::from(u8::from(link.decided_by == DecidedBy::Policy)))
                }),
                ("link_passes_bits_per_second", "What passes over it", |link| {
                    link.passes_mbit_s.map(|rate| rate * 1e6)
                }),
                ("link_queued_bytes", "What waits before it", |link| link.queued_bytes.map(|bytes| bytes as f64)),
            ],
        )?;
        let dropped: [Column<Link>; 1] = [("link_dropped_packets", "What it has dropped", |link| {
            link.dropped_packets.map(|packets| packets as f64)
        })];
        write(&mut encoder, links, MetricType::Counter, &dropped)?;
        let hosts: Vec<_> = overview
            .hosts
            .iter()
            .map(|host| vec![("host", quoted(&host.name)), ("link", quoted(&host.link))])
            .collect();
        let hosts = (overview.hosts.as_slice(), hosts.as_slice());
        write(
            &mut encoder,
            hosts,
            MetricType::Gauge,
            &[
                ("host_is_here", "1 if there is a session with its agent", |host| {
                    Some(f64::from(u8::from(host.is_here)))
                }),
                ("host_flows", "Flows that have something to send", |host| host.flows.map(f64::from)),
                ("host_sends_bits_per_second", "What it sends, while its reports are new", |host| {
                    host.sends_mbit_s.map(|rate| rate * 1e6)
                }),
                ("host_budget_bits_per_second", "What it may send, while it has a lease", |host| {
                    host.budget_mbit_s.map(|rate| rate * 1e6)
                }),
                ("host_lease_seconds", "How long that holds", |host| host.lease_s),
                ("host_report_age_seconds", "How old its last report is", |host| host.report_age_s),
                ("host_round_trip_seconds", "The mean round trip of its flows", |host| host.round_trip_s),
            ],
        )?;
        let sent: [Column<Host>; 1] =
            [("host_sent_bytes", "What it has sent", |host| host.sent_bytes.map(|bytes| bytes as f64))];
        write(&mut encoder, hosts, MetricType::Counter, &sent)?;
        let monitors: Vec<_> = overview
            .monitors
            .iter()
            .map(|monitor| vec![("monitor", quoted(&monitor.name)), ("link", quoted(&monitor.link))])
            .collect();
        let monitors = (overview.monitors.as_slice(), monitors.as_slice());
        let is_here: [Column<Monitor>; 1] =
            [("monitor_is_here", "1 if there is a session with its agent", |monitor| {
                Some(f64::from(u8::from(monitor.is_here)))
            })];
        write(&mut encoder, monitors, MetricType::Gauge, &is_here)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn what_is_known_is_given_by_name_and_what_is_not_is_no_number() {
        let host = Host {
            name: "alpha".to_owned(),
            link: "uplink".to_owned(),
            is_here: true,
            flows: Some(3),
            sends_mbit_s: Some(4.5),
            budget_mbit_s: None,
            lease_s: None,
            report_age_s: Some(0.25),
            round_trip_s: None,
            least_round_trip_s: None,
            sent_bytes: Some(7),
        };
        let link = Link {
            name: "uplink".to_owned(),
            capacity_mbit_s: 10.0,
            decided_by: DecidedBy::Policy,
            rule_because: None,
            beyond: None,
            awaits_monitor: false,
            other_mbit_s: Some(1.0),
            expected_mbit_s: Some(1.5),
            given_mbit_s: 8.5,
            passes_mbit_s: None,
            queued_bytes: None,
            dropped_packets: Some(2),
        };
        let monitor = Monitor {
            name: "gateway \"1\"".to_owned(),
            link: "uplink".to_owned(),
            is_here: false,
            passes_mbit_s: None,
            report_age_s: None,
        };
        let overview = Overview {
            version: "1",
            uptime_s: 1.5,
            link: "anabranch://".to_owned(),
            page: None,
            every_s: 0.1,
            utilisation: 0.95,
            share: "per-flow",
            policy: Some("cross.safetensors".to_owned()),
            links: vec![link],
            hosts: vec![host.clone(), Host { name: "gone".to_owned(), is_here: false, sends_mbit_s: None, ..host }],
            monitors: vec![monitor],
            events: Vec::new(),
        };
        let mut text = String::new();
        encode(&mut text, &registry(watch::channel(overview).1)).unwrap();
        let at = "host=\"alpha\",link=\"uplink\"";
        for line in [
            "anabranch_coordinator_uptime_seconds 1.5".to_owned(),
            "anabranch_coordinator_link_capacity_bits_per_second{link=\"uplink\"} 10000000.0".to_owned(),
            "anabranch_coordinator_link_decided_by_policy{link=\"uplink\"} 1.0".to_owned(),
            "anabranch_coordinator_link_dropped_packets_total{link=\"uplink\"} 2".to_owned(),
            format!("anabranch_coordinator_host_flows{{{at}}} 3.0"),
            format!("anabranch_coordinator_host_sends_bits_per_second{{{at}}} 4500000.0"),
            format!("anabranch_coordinator_host_sent_bytes_total{{{at}}} 7"),
            "anabranch_coordinator_monitor_is_here{monitor=\"gateway \\\"1\\\"\",link=\"uplink\"} 0.0".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in {text}");
        }
        for unknown in ["host_budget", "host_lease", "link_passes", "link_queued", "host_round_trip"] {
            assert!(!text.contains(unknown), "{unknown} in {text}");
        }
        assert!(!text.contains("host_sends_bits_per_second{host=\"gone\""), "{text}");
    }
}

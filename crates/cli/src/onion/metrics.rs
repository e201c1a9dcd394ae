//! Figures of an authority, a relay or a user's edge as metrics, for Prometheus.
//!
//! Labels are words of ours, never what came over a network: metrics are kept for long, and who talks to whom is
//! nobody's business. So a [`Row`] can hold no address, no target and no name of a user.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_net::metrics_server::{self, Bounds};
use anabranch_onion::directory::{Authority, AuthorityEvent};
use anabranch_onion::node::RelayNodeCounts;
use anabranch_onion::relay::{Counts, DropReason};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::failure::Failure;
use crate::stderr::eprint_line;

/// One figure, or one for each of some words.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    name: &'static str,
    help: &'static str,
    is_counter: bool,
    /// What the label of several is called.
    label: &'static str,
    values: Vec<(&'static str, f64)>,
}

/// What only grows.
pub fn counter(name: &'static str, help: &'static str, value: u64) -> Row {
    Row { name, help, is_counter: true, label: "", values: vec![("", value as f64)] }
}

/// What comes and goes.
pub fn gauge(name: &'static str, help: &'static str, value: impl Into<f64>) -> Row {
    Row { name, help, is_counter: false, label: "", values: vec![("", value.into())] }
}

/// The latest figures, which are renewed by whoever has them, and which scrapes read.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Mutex<Vec<Row>>>);

impl Metrics {
    /// It has come so far.
    pub fn renew(&self, rows: Vec<Row>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = rows;
    }

    /// They, to be served, with names that begin with `prefix`.
    pub fn registry(&self, prefix: &'static str) -> Registry {
        let mut registry = Registry::default();
        registry.sub_registry_with_prefix(prefix).register_collector(Box::new(self.clone()));
        registry
    }

    /// Serves them at `listener` for the rest of the process, and says where.
    pub fn serve(&self, listener: TcpListener, prefix: &'static str) -> Result<(), Failure> {
        let served = metrics_server::serve(listener, self.registry(prefix), Bounds::default())
            .map_err(|why| Failure::new(format!("cannot serve metrics: {why}")))?;
        eprint_line!("metrics at http://{served}{}", metrics_server::PATH);
        Ok(())
    }
}

/// Where metrics are to be served: taken before anything else is begun, which somebody else's port would end again.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address)
        .map_err(|why| Failure::new(format!("cannot serve metrics on {address}: {why}; see --metrics")))
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for Row { name, help, is_counter, label, values } in rows {
            let kind = if is_counter { MetricType::Counter } else { MetricType::Gauge };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            match (label, values.as_slice()) {
                ("", [(_, value)]) => write(family, is_counter, *value)?,
                _ => {
                    for (word, value) in values {
                        let labels: &[(&str, &str)] = &[(label, word)];
                        write(family.encode_family(&labels)?, is_counter, value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn write(encoder: MetricEncoder<'_>, is_counter: bool, value: f64) -> Result<(), fmt::Error> {
    match is_counter {
        true => ConstCounter::new(value as u64).encode(encoder),
        false => ConstGauge::new(value).encode(encoder),
    }
}

/// What there is of a relay.
#[derive(Clone, Copy, Debug, Default)]
pub struct RelayFigures {
    /// The epoch whose list it has; 0 for none.
    pub epoch: u64,
    /// Whether it carries packets in that epoch.
    pub is_listed: bool,
    /// What its node has done.
    pub node: RelayNodeCounts,
    /// What its keys have done.
    pub keys: Counts,
    /// Datagrams that were neither packets nor about a link.
    pub unreadable: u64,
    /// Links of clients.
    pub clients: usize,
    /// Sessions of its exit.
    pub sessions: usize,
    /// Connections to hosts.
    pub connections: usize,
    /// Bytes of memory, about.
    pub memory: usize,
}

impl RelayFigures {
    /// As metrics.
    pub fn rows(&self) -> Vec<Row> {
        let RelayFigures { node, keys, .. } = self;
        let dropped = DropReason::ALL.iter().map(|reason| (reason.name(), keys.dropped[*reason as usize] as f64));
        vec![
            gauge("epoch", "The epoch whose list of relays it has, 0 for none", self.epoch as f64),
            gauge("listed", "1 if that list has it with its keys", f64::from(u8::from(self.is_listed))),
            counter("received_bytes", "UDP payload that came", node.received),
            counter("sent_bytes", "UDP payload that left", node.sent),
            counter("forwarded_packets", "Packets to other relays", keys.forwarded),
            counter("client_packets", "Packets to clients that hang on it", keys.to_clients),
            counter("service_packets", "Packets to its own exit", keys.delivered),
            counter("sent_service_packets", "Packets of its own exit", node.from_service),
            counter("set_up_keys", "Keys set up", keys.set_up),
            counter("evicted_keys", "Keys forgotten for want of room", keys.evicted),
            Row {
                name: "dropped_packets",
                help: "Packets dropped",
                is_counter: true,
                label: "reason",
                values: dropped.collect(),
            },
            counter("limited_packets", "Packets beyond the limit", node.refused),
            counter("unattached_packets", "Packets to clients that do not hang on it", node.no_client),
            counter("unreadable_datagrams", "Datagrams that were nothing known", self.unreadable),
            gauge("clients", "Links of clients", self.clients as f64),
            gauge("sessions", "Sessions of its exit", self.sessions as f64),
            gauge("connections", "Connections of its exit to hosts", self.connections as f64),
            gauge("memory_bytes", "What keys, ids, sessions and mailboxes take, about", self.memory as f64),
        ]
    }
}

/// What there is of an authority.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuthorityFigures {
    /// The epoch of its last list; 0 for none.
    pub epoch: u64,
    /// Relays in it.
    pub listed: usize,
    /// Relays that it has heard of.
    pub known: usize,
    /// Lists that enough authorities have signed.
    pub published: u64,
    /// Ballots that led to none.
    pub without_agreement: u64,
    /// Authorities that were found to vote twice.
    pub lies: u64,
    /// Votes that it did not take.
    pub refused_votes: u64,
}

impl AuthorityFigures {
    /// Something has happened to `authority`.
    pub fn on_event(&mut self, authority: &Authority, event: &AuthorityEvent) {
        (self.known, self.refused_votes) = (authority.known(), authority.refused_votes());
        match event {
            AuthorityEvent::Keep => {}
            AuthorityEvent::Published { epoch, relays, .. } => {
                (self.epoch, self.listed) = (*epoch, *relays);
                self.published += 1;
            }
            AuthorityEvent::NoAgreement { .. } => self.without_agreement += 1,
            AuthorityEvent::Lies(_) => self.lies += 1,
        }
    }

    /// As metrics.
    pub fn rows(&self) -> Vec<Row> {
        vec![
            gauge("epoch", "The epoch of its last list of relays, 0 for none", self.epoch as f64),
            gauge("listed_relays", "Relays in that list", self.listed as f64),
            gauge("known_relays", "Relays that it has heard of", self.known as f64),
            counter("published_lists", "Lists that enough authorities have signed", self.published),
            counter("missing_agreements", "Ballots that led to no list", self.without_agreement),
            counter("double_votes", "Authorities that were found to vote twice", self.lies),
            counter("refused_votes", "Votes that were not taken", self.refused_votes),
        ]
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn written(rows: Vec<Row>) -> String {
        let metrics = Metrics::default();
        metrics.renew(rows);
        let mut text = String::new();
        encode(&mut text, &metrics.registry("anabranch_onion_relay")).unwrap();
        text
    }

    #[test]
    fn figures_of_a_relay_are_given_by_name_and_drops_by_their_reason() {
        let mut figures = RelayFigures { clients: 3, ..RelayFigures::default() };
        figures.keys.dropped[DropReason::Replayed as usize] = 7;
        figures.keys.forwarded = 12;
        let text = written(figures.rows());
        for line in [
            "# TYPE anabranch_onion_relay_forwarded_packets counter",
            "anabranch_onion_relay_forwarded_packets_total 12",
            "anabranch_onion_relay_dropped_packets_total{reason=\"replayed\"} 7",
            "anabranch_onion_relay_dropped_packets_total{reason=\"header\"} 0",
            "anabranch_onion_relay_clients 3.0",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line:?} in {text}");
        }
    }

    #[test]
    fn every_figure_has_a_name_of_its_own() {
        let rows = [RelayFigures::default().rows(), AuthorityFigures::default().rows()];
        for rows in rows {
            let mut names: Vec<&str> = rows.iter().map(|row| row.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
            assert!(rows.iter().all(|row| !row.help.is_empty() && !row.values.is_empty()));
        }
    }
}

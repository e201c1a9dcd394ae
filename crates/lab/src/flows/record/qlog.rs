//! qlog: each end's events as JSON, one record after another (draft-ietf-quic-qlog-main-schema
//! with the sequential schema in JSON text sequences, RFC 7464; the events of
//! draft-ietf-quic-qlog-quic-events). Our packets are no QUIC packets, but have what these
//! events tell: numbers, stream data, ranges of acknowledged numbers.
//!
//! Times are in ms since the run began. A packet's `raw.length` is what the simulated wire
//! carries, headers of all layers included; windows and bytes in flight count data alone.

use std::io::{self, Write};
use std::path::Path;

use anabranch_control::flow::LossCause;
use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::{Ack, AckRanges, Data, Metrics};
use serde::{Serialize, Serializer};

use super::address::{Addresses, SERVER_PORT};
use crate::flows::FlowScenario;
use crate::flows::events::{FlowEvent, Recorder, What};
use anabranch_report::output::{OutputError, Staged, Unfinished, begin};
use anabranch_scenario::flows::{FlowSpec, Workload};

/// The events' schema: the draft's number is part of its name until it is an RFC.
const EVENT_SCHEMA: &str = "urn:ietf:params:qlog:events:quic-13";

/// What begins each record (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;

/// The largest integer that any JSON reader keeps (RFC 7493, 2.2).
const LARGEST_INTEGER: u64 = (1 << 53) - 1;

/// Writes qlog files: for each flow one of its sender, the client, and one of each receiver,
/// a server.
#[derive(Debug)]
pub struct Qlog {
    addresses: Addresses,
    flows: Vec<FlowLog>,
    ecn: bool,
    error: Option<OutputError>,
}

#[derive(Debug)]
struct FlowLog {
    name: String,
    /// Numbers begin anew with each connection and receiver: each event names its own.
    grouped: bool,
    client: Unfinished,
    servers: Vec<Unfinished>,
    /// What was last written of each receiver.
    metrics: Vec<Option<Metrics>>,
}

impl Qlog {
    /// Begins the files in `dir`, which must exist. All stay open: the system limits how
    /// many may be.
    ///
    /// # Errors
    ///
    /// When a file cannot be begun.
    pub fn create(dir: &Path, scenario: &FlowScenario) -> Result<Qlog, OutputError> {
        let mut flows = Vec::new();
        for (i, spec) in scenario.flows.iter().enumerate() {
            let file = |end: &str| begin(&dir.join(format!("{i}-{}-{end}.sqlog", plain(&spec.name))));
            let begins_anew =
                matches!(spec.workload, Workload::OnOff { new_connections: true, .. } | Workload::Repeated { .. });
            let grouped = spec.receivers.len() > 1 || begins_anew;
            let mut log = FlowLog {
                name: spec.name.clone(),
                grouped,
                client: file("client")?,
                servers: Vec::new(),
                metrics: vec![None; spec.receivers.len()],
            };
            head(&mut log.client, spec, "client", grouped)?;
            for server in 0..spec.receivers.len() {
                let end = if spec.receivers.len() > 1 { format!("server{server}") } else { "server".to_owned() };
                let mut server = file(&end)?;
                head(&mut server, spec, "server", grouped)?;
                log.servers.push(server);
            }
            flows.push(log);
        }
        let addresses = Addresses::new(scenario);
        Ok(Qlog { addresses, flows, ecn: scenario.packets.ecn, error: None })
    }

    /// The files, which have no names yet.
    ///
    /// # Errors
    ///
    /// When something could not be written.
    pub fn finish(self) -> Result<Vec<Staged>, OutputError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let files = self.flows.into_iter().flat_map(|flow| std::iter::once(flow.client).chain(flow.servers));
        files.map(Unfinished::finish).collect()
    }

    fn write(&mut self, event: &FlowEvent<'_>) -> Result<(), OutputError> {
        let FlowEvent { at, flow, connection, peer, what } = *event;
        let addresses = &self.addresses;
        let ecn = self.ecn;
        let log = &mut self.flows[flow];
        let group = log.grouped.then(|| format!("{}/{connection}/{}", log.name, peer.0));
        let record = |file: &mut Unfinished, name: &'static str, data: &dyn erased::Data| {
            let written = file.write_all(&[RECORD_SEPARATOR]).and_then(|()| {
                data.write(file, milliseconds(at), name, group.as_deref())?;
                file.write_all(b"\n")
            });
            written.map_err(|error| OutputError::from_io(file.path(), error))
        };
        let server = &mut log.servers[peer.0 as usize];
        match what {
            What::Opened => {
                log.metrics[peer.0 as usize] = None;
                let client = EndPoint { ip_v4: addresses.client(flow), port_v4: addresses.client_port(connection) };
                let far = EndPoint { ip_v4: addresses.server(flow, peer), port_v4: SERVER_PORT };
                let started = ConnectionStarted { local: client, remote: far };
                record(&mut log.client, "quic:connection_started", &started)?;
                record(server, "quic:connection_started", &ConnectionStarted { local: far, remote: client })
            }
            What::Closed => {
                let closed = |initiator| ConnectionClosed { initiator, trigger: "application" };
                record(&mut log.client, "quic:connection_closed", &closed("local"))?;
                record(server, "quic:connection_closed", &closed("remote"))
            }
            What::DataSent { data, size } => record(&mut log.client, "quic:packet_sent", &Packet::data(data, size)),
            What::DataReceived { data, size, .. } => record(server, "quic:packet_received", &Packet::data(data, size)),
            What::AckSent { number, ack, size, .. } => {
                record(server, "quic:packet_sent", &Packet::ack(number, ack, size, ecn))
            }
            What::AckReceived { number, ack, size } => {
                record(&mut log.client, "quic:packet_received", &Packet::ack(number, ack, size, ecn))
            }
            What::Lost { number, cause } => {
                let trigger = match cause {
                    LossCause::PacketThreshold => "reordering_threshold",
                    LossCause::TimeThreshold => "time_threshold",
                    LossCause::RetransmissionTimeout => "pto_expired",
                };
                let lost = PacketLost { header: Header::new(number), trigger };
                record(&mut log.client, "quic:packet_lost", &lost)
            }
            What::Metrics(metrics) => {
                let before = log.metrics[peer.0 as usize].replace(metrics);
                match MetricsUpdated::between(before, &metrics) {
                    Some(updated) => record(&mut log.client, "quic:recovery_metrics_updated", &updated),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Recorder for Qlog {
    fn on_flow(&mut self, event: &FlowEvent<'_>) {
        if self.error.is_none() {
            self.error = self.write(event).err();
        }
    }

    fn has_failed(&self) -> bool {
        self.error.is_some()
    }
}

/// `name` as a part of a file's name.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' }).collect()
}

/// Exact up to 104 days.
fn milliseconds(at: Time) -> f64 {
    at.as_nanos() as f64 / 1e6
}

fn float_milliseconds(duration: Duration) -> f32 {
    duration.as_millis_f64() as f32
}

/// Writes the record that a file begins with.
fn head(file: &mut Unfinished, spec: &FlowSpec, end: &'static str, grouped: bool) -> Result<(), OutputError> {
    let head = LogFile {
        file_schema: "urn:ietf:params:qlog:file:sequential",
        serialization_format: "application/qlog+json-seq",
        title: &spec.name,
        description: spec.controller.name,
        trace: Trace {
            common_fields: CommonFields {
                group_id: (!grouped).then_some(&spec.name),
                time_format: "relative_to_epoch",
                reference_time: ReferenceTime { clock_type: "monotonic", epoch: "unknown" },
            },
            vantage_point: VantagePoint { name: &spec.name, r#type: end },
            event_schemas: [EVENT_SCHEMA],
        },
    };
    let written = file.write_all(&[RECORD_SEPARATOR]).and_then(|()| {
        serde_json::to_writer(&mut *file, &head)?;
        file.write_all(b"\n")
    });
    written.map_err(|error| OutputError::from_io(file.path(), error))
}

/// Events' data behind one type.
mod erased {
    use super::{Event, Serialize, Unfinished, io};

    pub trait Data {
        fn write(&self, file: &mut Unfinished, time: f64, name: &'static str, group_id: Option<&str>)
        -> io::Result<()>;
    }

    impl<D: Serialize> Data for D {
        fn write(
            &self,
            file: &mut Unfinished,
            time: f64,
            name: &'static str,
            group_id: Option<&str>,
        ) -> io::Result<()> {
            Ok(serde_json::to_writer(file, &Event { time, name, group_id, data: self })?)
        }
    }
}

#[derive(Serialize)]
struct LogFile<'a> {
    file_schema: &'static str,
    serialization_format: &'static str,
    title: &'a str,
    description: &'a str,
    trace: Trace<'a>,
}

#[derive(Serialize)]
struct Trace<'a> {
    common_fields: CommonFields<'a>,
    vantage_point: VantagePoint<'a>,
    event_schemas: [&'static str; 1],
}

#[derive(Serialize)]
struct CommonFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    group_id: Option<&'a String>,
    time_format: &'static str,
    reference_time: ReferenceTime,
}

#[derive(Serialize)]
struct ReferenceTime {
    clock_type: &'static str,
    epoch: &'static str,
}

#[derive(Serialize)]
struct VantagePoint<'a> {
    name: &'a str,
    r#type: &'static str,
}

#[derive(Serialize)]
struct Event<'a, D: ?Sized> {
    time: f64,
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_id: Option<&'a str>,
    data: &'a D,
}

#[derive(Clone, Copy, Serialize)]
struct EndPoint {
    ip_v4: std::net::Ipv4Addr,
    port_v4: u16,
}

#[derive(Serialize)]
struct ConnectionStarted {
    local: EndPoint,
    remote: EndPoint,
}

#[derive(Serialize)]
struct ConnectionClosed {
    initiator: &'static str,
    trigger: &'static str,
}

#[derive(Serialize)]
struct Header {
    packet_type: &'static str,
    packet_number: u64,
}

impl Header {
    fn new(packet_number: u64) -> Header {
        Header { packet_type: "1RTT", packet_number }
    }
}

#[derive(Serialize)]
struct Raw {
    length: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_length: Option<u32>,
}

#[derive(Serialize)]
struct Packet {
    header: Header,
    frames: [Frame; 1],
    raw: Raw,
}

impl Packet {
    fn data(data: &Data, size: u32) -> Packet {
        let frame = Frame::Stream {
            stream_id: 0,
            offset: data.offset,
            fin: data.fin,
            raw: Raw { length: data.length, payload_length: None },
        };
        let raw = Raw { length: size, payload_length: Some(data.length) };
        Packet { header: Header::new(data.number), frames: [frame], raw }
    }

    fn ack(number: u64, ack: &Ack, size: u32, ecn: bool) -> Packet {
        let frame = Frame::Ack {
            ack_delay: float_milliseconds(ack.delay),
            acked_ranges: Ranges(ack.ranges),
            ce: ecn.then_some(ack.ce_count),
        };
        Packet { header: Header::new(number), frames: [frame], raw: Raw { length: size, payload_length: None } }
    }
}

#[derive(Serialize)]
#[serde(tag = "frame_type", rename_all = "snake_case")]
enum Frame {
    Stream {
        stream_id: u64,
        offset: u64,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        fin: bool,
        raw: Raw,
    },
    Ack {
        ack_delay: f32,
        acked_ranges: Ranges,
        #[serde(skip_serializing_if = "Option::is_none")]
        ce: Option<u64>,
    },
}

/// `[first, last]`, or `[only]` for a range of one number.
struct Ranges(AckRanges);

impl Serialize for Ranges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(first, last)| {
            // A slice of one number or two.
            RangeEnds { ends: [first, last], count: if first == last { 1 } else { 2 } }
        }))
    }
}

struct RangeEnds {
    ends: [u64; 2],
    count: usize,
}

impl Serialize for RangeEnds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.ends[..self.count])
    }
}

#[derive(Serialize)]
struct PacketLost {
    header: Header,
    trigger: &'static str,
}

/// What has changed; times in ms, windows in bytes, the rate in bits a second.
#[derive(Default, Serialize, PartialEq)]
struct MetricsUpdated {
    #[serde(skip_serializing_if = "Option::is_none")]
    min_rtt: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    smoothed_rtt: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latest_rtt: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_variance: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pto_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion_window: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_in_flight: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packets_in_flight: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pacing_rate: Option<u64>,
}

impl MetricsUpdated {
    fn of(metrics: &Metrics) -> MetricsUpdated {
        let rtt = metrics.rtt;
        MetricsUpdated {
            min_rtt: rtt.map(|rtt| float_milliseconds(rtt.min)),
            smoothed_rtt: rtt.map(|rtt| float_milliseconds(rtt.smoothed)),
            latest_rtt: rtt.and_then(|rtt| rtt.latest).map(float_milliseconds),
            rtt_variance: rtt.map(|rtt| float_milliseconds(rtt.variation)),
            pto_count: Some(metrics.probe_timeouts),
            congestion_window: Some(metrics.limits.window.get().min(LARGEST_INTEGER)),
            bytes_in_flight: Some(metrics.in_flight.get()),
            packets_in_flight: Some(metrics.packets_in_flight),
            pacing_rate: metrics.limits.rate.map(|rate| rate.bits_per_sec().min(LARGEST_INTEGER)),
        }
    }

    /// What of `now` is new; none if nothing is.
    fn between(before: Option<Metrics>, now: &Metrics) -> Option<MetricsUpdated> {
        let mut updated = MetricsUpdated::of(now);
        if let Some(before) = before.as_ref().map(MetricsUpdated::of) {
            fn keep_new<T: PartialEq>(value: &mut Option<T>, before: &Option<T>) {
                if value == before {
                    *value = None;
                }
            }
            keep_new(&mut updated.min_rtt, &before.min_rtt);
            keep_new(&mut updated.smoothed_rtt, &before.smoothed_rtt);
            keep_new(&mut updated.latest_rtt, &before.latest_rtt);
            keep_new(&mut updated.rtt_variance, &before.rtt_variance);
            keep_new(&mut updated.pto_count, &before.pto_count);
            keep_new(&mut updated.congestion_window, &before.congestion_window);
            keep_new(&mut updated.bytes_in_flight, &before.bytes_in_flight);
            keep_new(&mut updated.packets_in_flight, &before.packets_in_flight);
            keep_new(&mut updated.pacing_rate, &before.pacing_rate);
        }
        (updated != MetricsUpdated::default()).then_some(updated)
    }
}

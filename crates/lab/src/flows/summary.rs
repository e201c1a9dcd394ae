//! What a run of flows says in numbers: each flow's, each link's, and those of the whole.

use std::borrow::Cow;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::{LossRecovery, TcpOptions};
use anabranch_sim::network::rate_stream;
use anabranch_sim::varying::Varying;
use serde_json::{Map, Value, json};

use super::measured::{CrossMeasured, Delays, FlowMeasured, FlowsMeasured, LinkMeasured};
use anabranch_scenario::flows::{FlowScenario, FlowSpec, LinkSpec, Receiver, Stack};
use anabranch_stats::{jain_fairness, mean, percentile};

/// How many links are listed, those with the highest utilisation.
const BUSIEST_LINKS: usize = 3;

/// What the columns of [`FlowsSummary::receivers`] are.
pub const RECEIVER_HEADERS: [&str; 4] = ["flow", "receiver", "last link", "goodput, Mbit/s"];

/// A run's numbers. Each is none where it would divide by nothing.
#[derive(Clone, Debug)]
pub struct FlowsSummary {
    /// One for each flow, in the scenario's order.
    pub flows: Vec<FlowSummary>,
    /// One for each link, in the scenario's order.
    pub links: Vec<LinkSummary>,
    /// One for each source of cross traffic, in the scenario's order.
    pub cross_traffic: Vec<(String, CrossMeasured)>,
    /// The time in which goodput and utilisation were counted.
    pub counted: Duration,
    /// How long the run was.
    pub simulated: Duration,
    /// Whether it ran on real packets over emulated links.
    pub is_emulated: bool,
    /// Why its links were not those that were asked for.
    pub warnings: Vec<String>,
    /// What is to be known before the figures are believed.
    pub notes: Vec<String>,
    /// Jain's index of the flows' goodputs.
    pub jain_index: Option<f64>,
    /// All flows' goodput together, in Mbit/s.
    pub goodput_mbit_s: Option<f64>,
    /// One-way delays of all flows' packets.
    pub one_way: OneWay,
    /// Packets of all flows that their senders declared lost, in per cent of those sent.
    pub loss_percent: Option<f64>,
    /// How losses of our flows were found and repaired; none where only a library's and the kernel's senders ran, which have
    /// recoveries of their own.
    pub recovery: Option<LossRecovery>,
    /// What TCP's recoveries leave open, where one of them ran.
    pub tcp: Option<TcpOptions>,
    /// Packets, ACKs and cross traffic that links transmitted.
    pub packet_hops: u64,
}

/// A flow's numbers.
#[derive(Clone, Debug)]
pub struct FlowSummary {
    /// Its name.
    pub name: String,
    /// The name of the controller that ran: registered, or the operating system's.
    pub controller: Cow<'static, str>,
    /// Parameters of its controller that TCP's recovery settles where the scenario does not, as they held; none where
    /// another recovery ran or nothing is left open.
    pub reading: toml::Table,
    /// Data delivered for the first time in the counted span, in Mbit/s.
    pub goodput_mbit_s: Option<f64>,
    /// Data delivered over the whole run, in Mbit/s of the time in which the application
    /// was on.
    pub while_on_mbit_s: Option<f64>,
    /// From sender to receiver.
    pub one_way: OneWay,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets that the sender declared lost.
    pub packets_lost: u64,
    /// Of those, packets that were acknowledged later: they were only late.
    pub spurious_losses: u64,
    /// Time in which the application was on, in seconds.
    pub on_s: f64,
    /// How long each transfer with an end took, in seconds.
    pub completion_s: Vec<f64>,
    /// Its receivers, if it has several; else none.
    pub receivers: Vec<ReceiverSummary>,
}

/// What one of a flow's receivers got.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverSummary {
    /// The last link on the way to it, by its name.
    pub link: String,
    /// Data delivered to it for the first time in the counted span, in Mbit/s.
    pub goodput_mbit_s: Option<f64>,
}

/// One-way delays of packets in ms; each is none without a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OneWay {
    /// The least.
    pub least_ms: Option<f64>,
    /// The mean.
    pub mean_ms: Option<f64>,
    /// The median.
    pub p50_ms: Option<f64>,
    /// What 95 % did not exceed.
    pub p95_ms: Option<f64>,
    /// What 99 % did not exceed.
    pub p99_ms: Option<f64>,
}

impl From<&Delays> for OneWay {
    fn from(delays: &Delays) -> OneWay {
        let [p50_ms, p95_ms, p99_ms] = delays.quantiles_ms([0.5, 0.95, 0.99]);
        OneWay { least_ms: delays.least_ms(), mean_ms: delays.mean_ms(), p50_ms, p95_ms, p99_ms }
    }
}

/// A link's numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSummary {
    /// Its name.
    pub name: String,
    /// Transmitted in the counted span, in Mbit/s.
    pub mbit_s: Option<f64>,
    /// That as a share of what it could have transmitted; none for a link without a rate.
    pub utilisation: Option<f64>,
    /// What happened in the whole run.
    pub measured: LinkMeasured,
}

impl FlowsSummary {
    /// What `measured` says of `scenario`.
    pub fn of(scenario: &FlowScenario, measured: &FlowsMeasured) -> FlowsSummary {
        let end = Time::ZERO + measured.length;
        let counted = end.since(scenario.goodput_from);
        let flows: Vec<FlowSummary> = scenario
            .flows
            .iter()
            .zip(&measured.flows)
            .map(|(spec, flow)| FlowSummary::of(scenario, spec, flow, counted, measured.events.is_none()))
            .collect();
        let links = scenario.links.iter().zip(&measured.links).map(|(spec, link)| {
            let mbit_s = rate(link.counted_bytes, counted);
            let possible = possible_bits(spec, scenario.seed, scenario.goodput_from, end);
            let utilisation = possible.and_then(|bits| ratio(link.counted_bytes as f64 * 8.0, bits));
            LinkSummary { name: spec.name.clone(), mbit_s, utilisation, measured: *link }
        });
        let is_emulated = measured.events.is_none();
        let runs_ours = scenario.flows.iter().any(|spec| !is_emulated || spec.stack == Stack::Ours);
        let recovery = runs_ours.then_some(scenario.packets.recovery);
        let goodputs: Option<Vec<f64>> = flows.iter().map(|flow| flow.goodput_mbit_s).collect();
        let mut one_way = Delays::default();
        measured.flows.iter().for_each(|flow| one_way.merge(&flow.one_way));
        let sum = |count: fn(&FlowMeasured) -> u64| measured.flows.iter().map(count).sum::<u64>() as f64;
        FlowsSummary {
            links: links.collect(),
            cross_traffic: scenario
                .cross_traffic
                .iter()
                .zip(&measured.cross_traffic)
                .map(|(spec, count)| (spec.name.clone(), *count))
                .collect(),
            counted,
            simulated: measured.length,
            is_emulated,
            warnings: measured.warnings.clone(),
            notes: measured.notes.clone(),
            jain_index: goodputs.as_deref().and_then(jain_fairness),
            goodput_mbit_s: goodputs.map(|goodputs| goodputs.iter().sum()),
            one_way: OneWay::from(&one_way),
            loss_percent: ratio(100.0 * sum(|flow| flow.packets_lost), sum(|flow| flow.packets_sent)),
            recovery,
            tcp: recovery.filter(|recovery| recovery.is_tcp()).map(|_| scenario.packets.tcp),
            packet_hops: measured.links.iter().map(|link| link.count.packets).sum(),
            flows,
        }
    }

    /// The links with the highest utilisation, the first one of equals first.
    pub fn busiest(&self) -> Vec<&LinkSummary> {
        let mut links: Vec<&LinkSummary> = self.links.iter().filter(|link| link.utilisation.is_some()).collect();
        let key = |link: &LinkSummary| link.utilisation.unwrap_or(0.0);
        links.sort_by(|a, b| key(b).total_cmp(&key(a)));
        links.truncate(BUSIEST_LINKS);
        links
    }

    /// The names of the controllers that ran, each once.
    pub fn controllers(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for flow in &self.flows {
            if !names.contains(&&*flow.controller) {
                names.push(&flow.controller);
            }
        }
        names.join(", ")
    }

    /// What holds of the window rules that TCP's recovery settles, each controller's once.
    fn readings(&self) -> Vec<String> {
        let mut readings: Vec<String> = Vec::new();
        for flow in self.flows.iter().filter(|flow| !flow.reading.is_empty()) {
            let values: Vec<String> = flow.reading.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            let reading = format!("{} with {}", flow.controller, values.join(", "));
            if !readings.contains(&reading) {
                readings.push(reading);
            }
        }
        readings
    }

    /// The numbers of the whole by their names, in a fixed order; none becomes null.
    pub fn metrics(&self) -> Map<String, Value> {
        let completion_s: Vec<f64> = self.flows.iter().flat_map(|flow| flow.completion_s.iter().copied()).collect();
        let named = [
            ("goodput_mbit_s", self.goodput_mbit_s),
            ("jain_index", self.jain_index),
            ("busiest_link_utilisation", self.busiest().first().and_then(|link| link.utilisation)),
            ("one_way_mean_ms", self.one_way.mean_ms),
            ("one_way_p50_ms", self.one_way.p50_ms),
            ("one_way_p95_ms", self.one_way.p95_ms),
            ("one_way_p99_ms", self.one_way.p99_ms),
            ("loss_percent", self.loss_percent),
            ("completed", Some(completion_s.len() as f64)),
            ("completion_mean_s", mean(&completion_s)),
            ("completion_p95_s", percentile(&completion_s, 0.95)),
            ("simulated_s", Some(self.simulated.as_secs_f64())),
            ("counted_s", Some(self.counted.as_secs_f64())),
        ];
        named.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
    }

    /// Everything in one object.
    pub fn to_json(&self) -> Value {
        let links = self.links.iter().map(|link| {
            let count = link.measured.count;
            json!({
                "name": link.name,
                "mbit_s": link.mbit_s,
                "utilisation": link.utilisation,
                "packets": count.packets,
                "bytes": count.bytes,
                "dropped": count.dropped,
                "lost": count.lost,
                "marked": count.marked,
            })
        });
        let cross = self
            .cross_traffic
            .iter()
            .map(|(name, count)| json!({ "name": name, "packets_sent": count.sent, "packets_arrived": count.arrived }));
        json!({
            "metrics": self.metrics(),
            "flows": self.flows.iter().map(FlowSummary::to_json).collect::<Vec<_>>(),
            "links": links.collect::<Vec<_>>(),
            "cross_traffic": cross.collect::<Vec<_>>(),
            "recovery": self.recovery.map(LossRecovery::name),
            "least_timeout_ms": self.tcp.map(|tcp| tcp.least_timeout.as_secs_f64() * 1e3),
            "restart_after_idle": self.tcp.map(|tcp| tcp.restart_after_idle),
            "reduction": self.tcp_of_sack().map(|tcp| tcp.reduction.name()),
            "partial_ack": self.tcp_of_sack().map(|tcp| tcp.partial_ack.name()),
            "packet_hops": self.packet_hops,
            "warnings": self.warnings,
            "notes": self.notes,
        })
    }

    /// What TCP's recovery leaves open, of one with selective ACKs.
    fn tcp_of_sack(&self) -> Option<TcpOptions> {
        self.tcp.filter(|_| self.recovery == Some(LossRecovery::Rfc6675))
    }

    /// Whether any transfer came to its end.
    fn has_completions(&self) -> bool {
        self.flows.iter().any(|flow| !flow.completion_s.is_empty())
    }

    /// Whether any packet that was declared lost was only late.
    fn has_spurious_losses(&self) -> bool {
        self.flows.iter().any(|flow| flow.spurious_losses > 0)
    }

    /// What the columns of [`rows`](Self::rows) are.
    pub fn headers(&self) -> Vec<&'static str> {
        let mut headers =
            vec!["flow", "controller", "goodput, Mbit/s", "one-way p50, ms", "p95, ms", "p99, ms", "lost, %"];
        if self.has_spurious_losses() {
            headers.push("of them late, %");
        }
        if self.has_completions() {
            headers.extend(["completed", "completion mean, s", "p95, s"]);
        }
        headers
    }

    /// A row for each flow.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |flow: &FlowSummary| {
            let loss = ratio(100.0 * flow.packets_lost as f64, flow.packets_sent as f64);
            let mut cells = vec![flow.name.clone(), flow.controller.to_string(), number(flow.goodput_mbit_s, 3)];
            let OneWay { p50_ms, p95_ms, p99_ms, .. } = flow.one_way;
            cells.extend([number(p50_ms, 2), number(p95_ms, 2), number(p99_ms, 2), number(loss, 3)]);
            if self.has_spurious_losses() {
                cells.push(number(ratio(100.0 * flow.spurious_losses as f64, flow.packets_lost as f64), 1));
            }
            if self.has_completions() {
                cells.push(flow.completion_s.len().to_string());
                cells.extend([number(mean(&flow.completion_s), 3), number(percentile(&flow.completion_s, 0.95), 3)]);
            }
            cells
        };
        self.flows.iter().map(row).collect()
    }

    /// A row for each receiver of the flows that have several: the flow, the receiver's number
    /// from 1, the last link on the way to it, and its goodput.
    pub fn receivers(&self) -> Vec<[String; 4]> {
        let of = |flow: &FlowSummary| -> Vec<[String; 4]> {
            let rows = (1..).zip(&flow.receivers);
            rows.map(|(i, to)| [flow.name.clone(), format!("{i}"), to.link.clone(), number(to.goodput_mbit_s, 3)])
                .collect()
        };
        self.flows.iter().flat_map(of).collect()
    }

    /// The whole's numbers with their labels, as a reader wants them.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let from = self.simulated - self.counted;
        let counted = match from {
            Duration::ZERO => format!("{}", self.simulated),
            from => format!("{}, goodput and utilisation from {from} on", self.simulated),
        };
        let mut lines = vec![(if self.is_emulated { "on real packets" } else { "simulated" }, counted)];
        lines.extend(self.warnings.iter().map(|why| ("INVALID", why.clone())));
        lines.extend(self.notes.iter().map(|note| ("note", note.clone())));
        if self.flows.len() > 1 {
            lines.push(("all flows", format!("{} Mbit/s", number(self.goodput_mbit_s, 3))));
            lines.push(("Jain's index", number(self.jain_index, 4)));
        }
        let recovery = self.recovery.map(|recovery| match self.tcp {
            Some(TcpOptions { least_timeout, restart_after_idle, .. }) => {
                let sack = match self.tcp_of_sack() {
                    Some(TcpOptions { reduction, partial_ack, .. }) => {
                        let (reduction, partial_ack) = (reduction.name(), partial_ack.name());
                        format!("SACK, reduction {reduction}, partial ACKs {partial_ack}")
                    }
                    None => "no SACK".to_owned(),
                };
                let restarts = if restart_after_idle { ", the first window again after idle times" } else { "" };
                format!("{} ({sack}, a timer of {least_timeout} at least{restarts})", recovery.name())
            }
            None => format!("{} (RFC 9002 and 8985)", recovery.name()),
        });
        lines.extend(recovery.map(|recovery| ("loss recovery", recovery)));
        for (i, reading) in self.readings().into_iter().enumerate() {
            lines.push((if i == 0 { "window rules" } else { "" }, reading));
        }
        for (i, link) in self.busiest().into_iter().enumerate() {
            let dropped = link.measured.count.dropped;
            let offered = (dropped + link.measured.count.packets) as f64;
            let mut text = format!(
                "{}: {} % of its rate, {} Mbit/s, {} % dropped",
                link.name,
                number(link.utilisation.map(|share| 100.0 * share), 2),
                number(link.mbit_s, 3),
                number(ratio(100.0 * dropped as f64, offered), 3)
            );
            if link.measured.count.marked > 0 {
                text.push_str(&format!(", {} marked", link.measured.count.marked));
            }
            lines.push((if i == 0 { "busiest links" } else { "" }, text));
        }
        for (i, (name, count)) in self.cross_traffic.iter().enumerate() {
            let text = format!("{name}: {} of {} packets arrived", count.arrived, count.sent);
            lines.push((if i == 0 { "cross traffic" } else { "" }, text));
        }
        lines
    }
}

impl FlowSummary {
    fn of(
        scenario: &FlowScenario,
        spec: &FlowSpec,
        measured: &FlowMeasured,
        counted: Duration,
        is_emulated: bool,
    ) -> FlowSummary {
        let last =
            |way: &Receiver| way.there.last().map_or_else(String::new, |&link| scenario.links[link].name.clone());
        let receivers = spec.receivers.iter().zip(&measured.receivers).map(|(way, receiver)| ReceiverSummary {
            link: last(way),
            goodput_mbit_s: rate(receiver.goodput_bytes, counted),
        });
        FlowSummary {
            receivers: receivers.collect(),
            name: spec.name.clone(),
            controller: measured.controller.clone(),
            // On real packets a library's or the kernel's sender has a recovery of its own.
            reading: match (&spec.stack, is_emulated) {
                (Stack::Quic | Stack::Kernel(_), true) => toml::Table::new(),
                _ => spec.reading_under(scenario.packets.recovery),
            },
            goodput_mbit_s: rate(measured.goodput_bytes, counted),
            while_on_mbit_s: rate(measured.delivered_bytes, measured.on_time),
            one_way: OneWay::from(&measured.one_way),
            packets_sent: measured.packets_sent,
            packets_lost: measured.packets_lost,
            spurious_losses: measured.spurious_losses,
            on_s: measured.on_time.as_secs_f64(),
            completion_s: measured.completion.iter().map(|span| span.as_secs_f64()).collect(),
        }
    }

    fn to_json(&self) -> Value {
        let mut flow = json!({
            "name": self.name,
            "controller": self.controller,
            "goodput_mbit_s": self.goodput_mbit_s,
            "while_on_mbit_s": self.while_on_mbit_s,
            "one_way_least_ms": self.one_way.least_ms,
            "one_way_mean_ms": self.one_way.mean_ms,
            "one_way_p50_ms": self.one_way.p50_ms,
            "one_way_p95_ms": self.one_way.p95_ms,
            "one_way_p99_ms": self.one_way.p99_ms,
            "packets_sent": self.packets_sent,
            "packets_lost": self.packets_lost,
            "spurious_losses": self.spurious_losses,
            "loss_percent": ratio(100.0 * self.packets_lost as f64, self.packets_sent as f64),
            "on_s": self.on_s,
            "completed": self.completion_s.len(),
            "completion_mean_s": mean(&self.completion_s),
            "completion_p50_s": percentile(&self.completion_s, 0.5),
            "completion_p95_s": percentile(&self.completion_s, 0.95),
        });
        if !self.reading.is_empty() {
            flow["reading"] = json!(self.reading);
        }
        if !self.receivers.is_empty() {
            let receiver = |to: &ReceiverSummary| json!({ "link": to.link, "goodput_mbit_s": to.goodput_mbit_s });
            flow["receivers"] = self.receivers.iter().map(receiver).collect();
        }
        flow
    }
}

/// Bytes over a span, in Mbit/s.
fn rate(bytes: u64, span: Duration) -> Option<f64> {
    ratio(bytes as f64 * 8.0 / 1e6, span.as_secs_f64())
}

/// What a link can transmit between two instants of a run with `seed`; none if that is
/// unlimited.
fn possible_bits(link: &LinkSpec, seed: u64, from: Time, to: Time) -> Option<f64> {
    let mut rate = Varying::new(link.rate.as_ref()?, rate_stream(seed, &link.name));
    let (mut at, mut bits) = (from, 0.0);
    while at < to {
        let present = rate.at(at);
        let until = rate.next_change().min(to);
        bits += present.bits_per_sec() as f64 * until.since(at).as_secs_f64();
        at = until;
    }
    Some(bits)
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::measured::Series;
    use anabranch_scenario::file::parse_flows;

    /// Two flows in 10 s, of which 8 s count.
    const TEXT: &str = r#"
[run]
seconds = 10
goodput_from_s = 2
[dumbbell]
rate = { at_s = [0, 4], values = ["8 Mbit/s", "4 Mbit/s"] }
delay_ms = 10
access_rate = "100 Mbit/s"
[[flow]]
controller = "reno"
[[flow]]
controller = "fixed"
"#;

    fn measured(scenario: &FlowScenario) -> FlowsMeasured {
        let flow = |controller: &'static str, goodput_bytes: u64, completion: Vec<Duration>| {
            let mut one_way = Delays::default();
            (1..=100).for_each(|ms| one_way.record(Duration::from_millis(ms)));
            FlowMeasured {
                controller: controller.into(),
                goodput_bytes,
                delivered_bytes: 2 * goodput_bytes,
                receivers: Vec::new(),
                one_way,
                packets_sent: 1000,
                packets_lost: 25,
                spurious_losses: 0,
                on_time: Duration::SECOND * 4,
                share_time: Duration::SECOND * 4,
                late_bytes: 0,
                completion_acked: Vec::new(),
                completion,
            }
        };
        let mut links = vec![LinkMeasured { count: Default::default(), counted_bytes: 0 }; scenario.links.len()];
        links[0].counted_bytes = 4_000_000;
        links[0].count.packets = 300;
        links[0].count.dropped = 100;
        links[1].counted_bytes = 40_000;
        FlowsMeasured {
            flows: vec![
                flow("reno", 3_000_000, vec![Duration::SECOND, Duration::SECOND * 3]),
                flow("fixed", 1_000_000, Vec::new()),
            ],
            links,
            cross_traffic: Vec::new(),
            series: Series::default(),
            length: Duration::SECOND * 10,
            events: Some(0),
            warnings: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn counts_become_rates_of_the_counted_span() {
        let scenario = parse_flows(TEXT, "f.toml", &[]).unwrap();
        let summary = FlowsSummary::of(&scenario, &measured(&scenario));
        assert_eq!(summary.counted, Duration::SECOND * 8);
        let [reno, fixed] = &summary.flows[..] else { panic!("two flows") };
        assert_eq!((reno.goodput_mbit_s, fixed.goodput_mbit_s), (Some(3.0), Some(1.0)));
        assert_eq!(reno.while_on_mbit_s, Some(12.0));
        assert_eq!(summary.goodput_mbit_s, Some(4.0));
        // Jain's index of 3 and 1: 16 / (2 * 10).
        assert!((summary.jain_index.unwrap() - 0.8).abs() < 1e-12);
        // 2 s at 8 Mbit/s and 6 s at 4 Mbit/s count: 40 Mbit, of which 32 passed.
        let bottleneck = summary.busiest()[0];
        assert_eq!((bottleneck.name.as_str(), bottleneck.utilisation), ("bottleneck", Some(0.8)));
        assert_eq!(bottleneck.mbit_s, Some(4.0));
        assert_eq!(summary.loss_percent, Some(2.5));
        assert_eq!((summary.packet_hops, summary.controllers().as_str()), (300, "reno, fixed"));
        assert!(summary.lines().iter().all(|(label, _)| *label != "INVALID"));
        let metrics = summary.metrics();
        assert_eq!((&metrics["completed"], &metrics["completion_mean_s"]), (&json!(2.0), &json!(2.0)));
        assert!((metrics["one_way_p50_ms"].as_f64().unwrap() - 50.0).abs() < 0.1);
    }

    #[test]
    fn a_rate_that_is_drawn_at_random_is_the_one_that_the_link_had() {
        let text = TEXT.replace(
            "{ at_s = [0, 4], values = [\"8 Mbit/s\", \"4 Mbit/s\"] }",
            "{ uniform = [\"1 Mbit/s\", \"9 Mbit/s\"], every_s = 3 }",
        );
        let text = text
            .replace("delay_ms = 10", "delay_ms = 10\nqueue = { packets = 20 }")
            .replace("controller = \"fixed\"", "controller = \"fixed\"\nparameters = { window = 60 }");
        for seed in 1..4 {
            let scenario = FlowScenario { seed, ..parse_flows(&text, "f.toml", &[]).unwrap() };
            let measured = crate::flows::run(&scenario, &()).unwrap();
            let summary = FlowsSummary::of(&scenario, &measured);
            // 60 packets in flight are more than 15 on the way and 20 in the queue. What
            // waits when the counting begins and ends is over before the rate changes.
            let bottleneck = summary.busiest()[0];
            let utilisation = bottleneck.utilisation.unwrap();
            assert!((utilisation - 1.0).abs() < 0.002, "{} with seed {seed}: {utilisation}", bottleneck.name);
        }
    }

    #[test]
    fn rows_have_a_cell_for_every_header_and_completions_where_there_are_some() {
        let scenario = parse_flows(TEXT, "f.toml", &[]).unwrap();
        let mut measured = measured(&scenario);
        for columns in [10, 7] {
            let summary = FlowsSummary::of(&scenario, &measured);
            assert_eq!(summary.headers().len(), columns);
            assert!(summary.rows().iter().all(|row| row.len() == columns));
            assert_eq!(summary.rows()[1][..4], ["flow1", "fixed", "1.000", "50.00"]);
            measured.flows[0].completion.clear();
        }
    }

    #[test]
    fn losses_that_were_spurious_have_a_column_where_there_are_some() {
        let scenario = parse_flows(TEXT, "f.toml", &[]).unwrap();
        let mut measured = measured(&scenario);
        measured.flows[0].spurious_losses = 20;
        let summary = FlowsSummary::of(&scenario, &measured);
        let column = summary.headers().iter().position(|header| *header == "of them late, %").unwrap();
        assert_eq!((&*summary.rows()[0][column], &*summary.rows()[1][column]), ("80.0", "0.0"));
        assert_eq!(summary.to_json()["flows"][0]["spurious_losses"], json!(20));
    }

    #[test]
    fn the_recovery_that_ran_is_named_wherever_it_is_reported() {
        for (name, _) in LossRecovery::ALL {
            let text = format!("{TEXT}[packets]\nrecovery = \"{name}\"\n");
            let scenario = parse_flows(&text, "f.toml", &[]).unwrap();
            let summary = FlowsSummary::of(&scenario, &measured(&scenario));
            assert_eq!(summary.to_json()["recovery"], json!(name));
            assert!(summary.lines().iter().any(|(label, text)| *label == "loss recovery" && text.starts_with(name)));
        }
    }

    #[test]
    fn no_recovery_is_named_where_none_of_ours_ran() {
        let named = |kernels: usize, events| {
            let text = TEXT.replacen("\"reno\"", "\"kernel:reno\"", kernels.min(1));
            let text = if kernels > 1 { text.replace("\"fixed\"", "\"quic:reno\"") } else { text };
            let scenario = parse_flows(&text, "f.toml", &[]).unwrap();
            let summary = FlowsSummary::of(&scenario, &FlowsMeasured { events, ..measured(&scenario) });
            let has_line = summary.lines().iter().any(|(label, _)| *label == "loss recovery");
            assert_eq!(has_line, !summary.to_json()["recovery"].is_null());
            has_line
        };
        assert!(named(2, Some(1)), "in a simulation ours stand for them");
        assert!(named(1, None) && !named(2, None));
    }

    #[test]
    fn what_tcps_recovery_settles_of_the_window_rules_is_reported_whoever_settled_it() {
        let reported = |more: &str| {
            let text = TEXT.replace("\"reno\"", &format!("\"reno\"\n{more}")) + "[packets]\nrecovery = \"rfc6675\"\n";
            let scenario = parse_flows(&text, "f.toml", &[]).unwrap();
            let summary = FlowsSummary::of(&scenario, &measured(&scenario));
            let rules: Vec<String> =
                summary.lines().into_iter().filter(|(label, _)| *label == "window rules").map(|line| line.1).collect();
            (summary.to_json()["flows"].clone(), rules)
        };
        let (flows, rules) = reported("");
        assert_eq!(flows[0]["reading"], json!({ "counting": "acks", "halving": "in-flight" }));
        assert!(flows[1].get("reading").is_none(), "a fixed window has nothing to settle");
        assert_eq!(rules, ["reno with counting = \"acks\", halving = \"in-flight\""]);
        let (flows, rules) = reported("parameters = { halving = \"window\" }");
        assert_eq!(flows[0]["reading"], json!({ "counting": "acks", "halving": "window" }));
        assert_eq!(rules, ["reno with counting = \"acks\", halving = \"window\""]);
    }

    #[test]
    fn nothing_counted_is_none_not_zero() {
        let scenario = parse_flows(TEXT, "f.toml", &[]).unwrap();
        let mut measured = measured(&scenario);
        measured.length = Duration::SECOND;
        let summary = FlowsSummary::of(&scenario, &measured);
        assert_eq!((summary.goodput_mbit_s, summary.jain_index), (None, None));
        assert!(summary.metrics()["busiest_link_utilisation"].is_null());
    }

    #[test]
    fn what_was_not_carried_as_asked_is_called_invalid_wherever_it_is_reported() {
        let scenario = parse_flows(TEXT, "f.toml", &[]).unwrap();
        let why = "7 packets found no buffer".to_owned();
        let measured = FlowsMeasured { warnings: vec![why.clone()], events: None, ..measured(&scenario) };
        let summary = FlowsSummary::of(&scenario, &measured);
        assert!(summary.lines().contains(&("INVALID", why.clone())));
        assert_eq!(summary.to_json()["warnings"], json!([why]));
    }

    #[test]
    fn what_is_to_be_known_is_reported_and_does_not_make_a_run_invalid() {
        let scenario = parse_flows(TEXT, "f.toml", &[]).unwrap();
        let note = "the queue was longer than ever before".to_owned();
        let measured = FlowsMeasured { notes: vec![note.clone()], ..measured(&scenario) };
        let summary = FlowsSummary::of(&scenario, &measured);
        assert!(summary.lines().contains(&("note", note.clone())));
        assert_eq!((&summary.to_json()["notes"], &summary.to_json()["warnings"]), (&json!([note]), &json!([])));
    }
}

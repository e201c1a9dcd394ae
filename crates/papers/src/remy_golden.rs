//! Remy's tables in the network that Remy's own simulator has: a queue without a limit
//! behind which all delay lies, and ACKs that take no time.
//!
//! Throughput as that simulator gives it: what a sender's packets bring, over its share of
//! the time (a second with `n` senders on counts `1 / n`), over the link's rate; packets that
//! arrive after their sender went off count. Delay: what a packet takes, over the least.
//! Both are means over senders.

use anabranch_control::flow::registry::find;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_sim::varying::Varying;

use super::remy_tables::{self, Trained};
use super::{ExperimentError, Findings, FlowLab, Row};
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_report::{Axis, Cell, Figure, Report, Series, Table, XyChart};
use anabranch_stats::mean;

/// The scenario's packets, and other ones, which are reported and not judged. Remy's simulator
/// knows no bytes and counts a link in packets a millisecond. The figures come from the test
/// `maintain-2013-results` of Remy's repository, which runs a link of 15 Mbit/s as 1.5 of
/// them: packets of 1250 B. With 1500 B there would be 1.25.
const PACKETS: [(&str, Option<Bytes>); 2] = [("", None), (", 1500 B", Some(Bytes::new(1500)))];

/// What one table did in one run.
#[derive(Clone, Copy, Debug)]
struct Normalised {
    throughput: f64,
    delay: f64,
}

impl Normalised {
    /// Over runs; none without any.
    fn mean(runs: &[Normalised]) -> Option<Normalised> {
        let over = |value: fn(&Normalised) -> f64| mean(&runs.iter().map(value).collect::<Vec<f64>>());
        Some(Normalised { throughput: over(|run| run.throughput)?, delay: over(|run| run.delay)? })
    }
}

/// Runs it.
pub fn run(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let others = lab.others(&["remy"])?;
    let tables = remy_tables::all()?;
    let there: Vec<&Trained> = tables.iter().filter(|table| table.parameters.is_ok()).collect();
    let runs = lab.choose(&[10], &[2])[0];
    let mut scenarios = Vec::new();
    for (_, packet) in PACKETS {
        for table in &there {
            for i in 0..runs {
                scenarios.push(scenario(lab, table, packet, lab.scenario.seed + i));
            }
        }
    }
    for entry in &others {
        scenarios.extend((0..runs).map(|i| with_length(lab, lab.with_controller(entry, lab.scenario.seed + i))));
    }
    let measured = lab.run_all(&scenarios)?;
    let mut by_table = measured.chunks(runs as usize);
    let mut compared: Vec<(String, Normalised)> = Vec::new();
    let mut rows = Vec::new();
    let mut chart = XyChart::new(
        Axis::new("delay over the least", "").reversed(),
        Axis::new("throughput over an equal share", "").from_zero(),
    );
    for (suffix, table) in PACKETS.iter().flat_map(|(suffix, _)| tables.iter().map(move |table| (suffix, table))) {
        let name = format!("{}{suffix}", table.name);
        let throughput = format!("normalised_throughput[{name}]");
        let delay = format!("normalised_delay[{name}]");
        match &table.parameters {
            Err(why) => {
                rows.push(remy_tables::skipped(lab, &throughput, "", why));
                rows.push(remy_tables::skipped(lab, &delay, "", why));
            }
            Ok(_) => {
                let runs = by_table.next().expect("a table that is there has run");
                let all: Vec<Normalised> = runs.iter().filter_map(|run| normalised(&lab.scenario, run)).collect();
                let throughputs: Vec<f64> = all.iter().map(|one| one.throughput).collect();
                let delays: Vec<f64> = all.iter().map(|one| one.delay).collect();
                rows.push(row(lab, "remy", &throughput, &throughputs));
                rows.push(row(lab, "remy", &delay, &delays));
                compared.extend(Normalised::mean(&all).map(|mean| (format!("remy, {name}"), mean)));
                chart = chart.series(Series::points(
                    format!("{name}: ours, a point a run"),
                    all.iter().map(|one| (one.delay, one.throughput)).collect(),
                ));
            }
        }
        if !suffix.is_empty() {
            continue;
        }
        let golden = lab.expected.paper("remy", &delay).zip(lab.expected.paper("remy", &throughput));
        chart = chart.series(Series::points(format!("{}: Remy's simulator", table.name), golden.into_iter().collect()));
    }
    let mut report = Report::new("Remy's tables in Remy's network").section("Throughput and delay");
    if let Some(missing) = remy_tables::missing(&tables) {
        report = report.paragraph(missing);
    }
    let mut report = report.figure(Figure::chart("Eight senders, on and off in turn.", chart));
    for (entry, runs) in others.iter().zip(by_table) {
        let all: Vec<Normalised> = runs.iter().filter_map(|run| normalised(&lab.scenario, run)).collect();
        let of = |value: fn(&Normalised) -> f64| all.iter().map(value).collect::<Vec<f64>>();
        rows.push(row(lab, entry.name, "normalised_throughput", &of(|one| one.throughput)));
        rows.push(row(lab, entry.name, "normalised_delay", &of(|one| one.delay)));
        compared.extend(Normalised::mean(&all).map(|mean| (entry.name.to_owned(), mean)));
    }
    if !others.is_empty() {
        report = report.table(table(compared));
    }
    Ok(Findings { rows, report })
}

/// The most throughput first.
fn table(mut compared: Vec<(String, Normalised)>) -> Table {
    compared.sort_by(|(_, one), (_, other)| other.throughput.total_cmp(&one.throughput));
    let headers = ["controller", "throughput over an equal share", "delay over the least"];
    let table = Table::new("Other controllers beside the tables: means over senders and runs", headers);
    compared.into_iter().fold(table, |table, (name, Normalised { throughput, delay })| {
        table.row([Cell::text(name), Cell::number(throughput, 3), Cell::number(delay, 3)])
    })
}

fn with_length(lab: &FlowLab, mut scenario: FlowScenario) -> FlowScenario {
    scenario.length = Duration::SECOND * lab.seconds(1000, 200);
    scenario
}

fn scenario(lab: &FlowLab, table: &Trained, packet: Option<Bytes>, seed: u64) -> FlowScenario {
    let mut scenario = with_length(lab, lab.with_controller(find("remy").expect("it is registered"), seed));
    scenario.packets.data = packet.unwrap_or(scenario.packets.data);
    for flow in &mut scenario.flows {
        flow.parameters = table.parameters.clone().unwrap_or_default();
    }
    scenario
}

fn row(lab: &FlowLab, subject: &str, metric: &str, values: &[f64]) -> Row {
    lab.mean_row(subject, metric, "", values)
}

/// Means over senders; none where nobody sent. The first link is the bottleneck.
fn normalised(scenario: &FlowScenario, run: &FlowsMeasured) -> Option<Normalised> {
    let link = &scenario.links[0];
    let rate = Varying::new(link.rate.as_ref()?, Rng::stream(0, "unused")).at(Time::ZERO);
    let delay_ms = Varying::new(&link.delay, Rng::stream(0, "unused")).at(Time::ZERO).as_millis_f64();
    let wire_share = |bytes: u64| {
        let spec = scenario.packets;
        bytes as f64 * (spec.data + spec.header).get() as f64 / spec.data.get() as f64
    };
    let throughputs: Vec<f64> = run
        .flows
        .iter()
        .filter(|flow| flow.share_time > Duration::ZERO)
        .map(|flow| {
            let bytes = wire_share(flow.delivered_bytes + flow.late_bytes);
            bytes / flow.share_time.as_secs_f64() / rate.bytes_per_sec()
        })
        .collect();
    let delays: Vec<f64> = run.flows.iter().filter_map(|flow| Some(flow.one_way.mean_ms()? / delay_ms)).collect();
    Some(Normalised { throughput: mean(&throughputs)?, delay: mean(&delays)? })
}

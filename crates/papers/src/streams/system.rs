//! The system around [Efthymiopoulos 2015]'s controller (section 2), alone: a mesh, its two properties, what
//! gossip knows of it, and a server that only helps.

use anabranch_control::units::Rate;
use anabranch_lab::stream::{StreamMeasured, ViewerMeasured};
use anabranch_proto::stream::packet::MAX_PACKET;
use anabranch_report::{Axis, Figure, Reference, Report, Series, XyChart};
use anabranch_scenario::stream::{Helper, Rates, StreamScenario};

use super::super::runs::OfRuns;
use super::super::{ExperimentError, Findings, Row, StreamLab};
use super::{DELIVERED, LATENCY, Metric, OVERHEAD, PACKET_ON_WIRE, SAVINGS};

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (5, 2);

/// Viewers of a quick run.
const QUICK_CLIENTS: usize = 20;

/// Who was due fewer packets is not judged by itself: ten seconds of two megabits a second.
const ENOUGH: u64 = 1900;

/// Subject of rows.
const MESH: &str = "mesh";

/// What all could send together over the demand, of the properties.
const CAPACITIES: [f64; 6] = [0.8, 0.9, 1.1, 1.25, 1.5, 2.0];
const QUICK_CAPACITIES: [f64; 3] = [0.8, 1.25, 2.0];

/// Viewers' own uploads over the demand, where a server helps: too little, and enough.
const HELPED: [(&str, f64); 2] = [("too little", 0.7), ("enough", 1.4)];

/// What the helper may send at most, over the demand.
const MOST_HELP: f64 = 0.6;

/// The last part of a run, in which the law is at rest.
const AT_REST: f64 = 0.4;

/// A mesh of different lines whose viewers stay.
pub fn steady(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    whole(lab, "A mesh alone")
}

/// A mesh of lines that change.
pub fn changing(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    whole(lab, "A mesh alone, over lines that change")
}

/// A mesh whose viewers go.
pub fn churn(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    whole(lab, "A mesh alone, whose viewers go")
}

/// The share of the packets that the viewer has got who got least, of those who were due enough.
fn worst(run: &StreamMeasured) -> Option<f64> {
    let judged = run.viewers.iter().filter(|viewer| viewer.played + viewer.skipped >= ENOUGH);
    judged.filter_map(ViewerMeasured::delivered_percent).reduce(f64::min)
}

fn whole(lab: &StreamLab, title: &str) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let scenario = lab.shortened(QUICK_CLIENTS);
    let runs = lab.run_seeds(std::slice::from_ref(&scenario), lab.seconds(SEEDS.0, SEEDS.1))?.remove(0);
    let mut rows = vec![lab.mean_row(MESH, "worst_viewer_percent", "%", OfRuns::of(&runs, worst).values())];
    for (name, unit, of) in [DELIVERED, SAVINGS, OVERHEAD, LATENCY] {
        rows.push(lab.mean_row(MESH, name, unit, OfRuns::of(&runs, |run| Some(of(run))).values()));
    }
    let shares = |run: &StreamMeasured| {
        let mut shares: Vec<f64> = run.viewers.iter().filter_map(ViewerMeasured::delivered_percent).collect();
        shares.sort_by(f64::total_cmp);
        shares
    };
    let sorted = shares(&runs[0]);
    let count = sorted.len() as f64;
    let points = sorted.iter().enumerate().map(|(i, share)| (100.0 * (i + 1) as f64 / count, *share)).collect();
    let chart = XyChart::new(Axis::new("viewers", "%"), Axis::new("got", "%"))
        .series(Series::line("packets in time", points))
        .reference(Reference::horizontal("99 %", 99.0));
    let caption = "What each viewer has got of the first seed's stream, those who got least first.";
    Ok(Findings { rows, report: Report::new(title).figure(Figure::chart(caption, chart)) })
}

/// What a viewer takes, with all headers.
fn taken(scenario: &StreamScenario) -> f64 {
    scenario.stream.bitrate.bytes_per_sec() * PACKET_ON_WIRE / MAX_PACKET as f64
}

/// The same lines, all `share` times as fast: such that viewers and server together could send `times` the demand.
fn scaled(scenario: &StreamScenario, times: f64) -> StreamScenario {
    let mut scenario = scenario.clone();
    let clients = scenario.audience.clients as f64;
    let wanted = times * taken(&scenario) - scenario.audience.server_upload.bytes_per_sec() / clients;
    let share = wanted / scenario.audience.upload.mean().bytes_per_sec();
    if let Rates::InTurn(rates) = &mut scenario.audience.upload {
        for rate in rates {
            *rate = Rate::from_bytes_per_sec_f64(share * rate.bytes_per_sec());
        }
    }
    scenario
}

/// Idle shares of those who stayed, in percent.
fn idle(run: &StreamMeasured) -> Vec<f64> {
    let stayed = run.viewers.iter().filter(|viewer| viewer.stayed && viewer.played + viewer.skipped >= ENOUGH);
    stayed.map(|viewer| 100.0 * viewer.idle_share()).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let middle = mean(values);
    libm::sqrt(mean(&values.iter().map(|value| (value - middle) * (value - middle)).collect::<Vec<f64>>()))
}

/// Whether bandwidth is idle only if all have the stream, and equally at all.
pub fn properties(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let scenario = lab.shortened(QUICK_CLIENTS);
    let capacities = lab.choose(&CAPACITIES, &QUICK_CAPACITIES);
    let scenarios: Vec<StreamScenario> = capacities.iter().map(|&times| scaled(&scenario, times)).collect();
    let measured = lab.run_seeds(&scenarios, lab.seconds(SEEDS.0, SEEDS.1))?;
    let metrics: [Metric; 3] = [
        ("idle_percent", "%", |run| mean(&idle(run))),
        ("idle_spread_points", "%", |run| deviation(&idle(run))),
        DELIVERED,
    ];
    let mut rows = Vec::new();
    for (times, runs) in capacities.iter().zip(&measured) {
        for (name, unit, of) in metrics {
            let values = OfRuns::of(runs, |run| Some(of(run)));
            rows.push(lab.mean_row(MESH, &format!("{name}[{times} times]"), unit, values.values()));
        }
    }
    let mut chart = XyChart::new(Axis::new("upload of the line", "Mbit/s"), Axis::new("idle", "%"));
    for (slot, (times, runs)) in capacities.iter().zip(&measured).enumerate() {
        let stayed = runs[0].viewers.iter().filter(|viewer| viewer.stayed);
        let mut points: Vec<(f64, f64)> =
            stayed.map(|viewer| (viewer.upload.bytes_per_sec() * 8e-6, 100.0 * viewer.idle_share())).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart = chart.series(Series::line(format!("{times} times"), points).slot(slot));
    }
    let caption = "What of each line is idle, by what all can send together over the demand, of the first seed.";
    Ok(Findings { rows, report: Report::new("The mesh's two properties").figure(Figure::chart(caption, chart)) })
}

/// The last part of a run's monitoring.
fn at_rest<T>(all: &[T]) -> &[T] {
    &all[all.len() - (all.len() as f64 * AT_REST) as usize..]
}

/// Whether the server sends what viewers cannot, and what it knows of them is so.
pub fn helper(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let scenario = StreamScenario { duration: lab.scenario.duration, ..lab.shortened(QUICK_CLIENTS) };
    let demand = scenario.audience.clients as f64 * taken(&scenario);
    let scenarios: Vec<StreamScenario> = HELPED
        .iter()
        .map(|(_, share)| {
            let mut scenario = scenario.clone();
            scenario.audience.server_upload = Rate::from_bytes_per_sec_f64((MOST_HELP + 0.2) * demand);
            let times = share + scenario.audience.server_upload.bytes_per_sec() / demand;
            let mut scenario = scaled(&scenario, times);
            let most = Rate::from_bytes_per_sec_f64(MOST_HELP * demand);
            scenario.helper = Some(Helper { least: scenario.stream.bitrate, most });
            scenario
        })
        .collect();
    let measured = lab.run_seeds(&scenarios, lab.seconds(SEEDS.0, SEEDS.1))?;
    let mut rows = Vec::new();
    for ((name, share), runs) in HELPED.iter().zip(&measured) {
        rows.extend(helped(lab, name, *share, demand, runs));
    }
    let mut chart = XyChart::new(Axis::new("time", "s"), Axis::new("helper over demand", "%").from_zero());
    for (slot, ((name, share), runs)) in HELPED.iter().zip(&measured).enumerate() {
        let points = runs[0]
            .monitored
            .iter()
            .map(|second| (second.at.as_nanos() as f64 * 1e-9, 100.0 * second.helper.bytes_per_sec() / demand));
        let named = format!("{name}: viewers send {share} times the demand");
        chart = chart.series(Series::line(named, points.collect()).slot(slot));
    }
    let caption = "What the server sends at most, of the first seed: the law acts each five seconds.";
    Ok(Findings { rows, report: Report::new("A server that only helps").figure(Figure::chart(caption, chart)) })
}

fn helped(lab: &StreamLab, name: &str, share: f64, demand: f64, runs: &[StreamMeasured]) -> Vec<Row> {
    let of = |value: &dyn Fn(&StreamMeasured) -> f64| OfRuns::of(runs, |run| Some(value(run)));
    let helper = |run: &StreamMeasured| {
        mean(&at_rest(&run.monitored).iter().map(|second| second.helper.bytes_per_sec()).collect::<Vec<f64>>())
    };
    let capacity = |run: &StreamMeasured| {
        let error = |second: &anabranch_lab::stream::Monitored| {
            100.0 * (second.mean.capacity.bytes_per_sec() / second.mean_of_lines.bytes_per_sec() - 1.0).abs()
        };
        mean(&at_rest(&run.monitored).iter().map(error).collect::<Vec<f64>>())
    };
    // What lines bear beyond what was taken, all bytes counted, against what the law acted on.
    let surplus = |run: &StreamMeasured| {
        let peers = run.viewers.iter().filter(|viewer| viewer.stayed).count() as f64 + 1.0;
        let sent: f64 = run.viewers.iter().map(|viewer| viewer.sent.bytes_per_sec()).sum();
        let error = |second: &anabranch_lab::stream::Monitored| {
            let lines = second.mean_of_lines.bytes_per_sec() * peers - second.helper.bytes_per_sec();
            let idle = second.mean.idle.bytes_per_sec() * peers;
            100.0 * (idle - (lines - sent).max(0.0)).abs() / demand
        };
        mean(&at_rest(&run.monitored).iter().map(error).collect::<Vec<f64>>())
    };
    let delivered = |run: &StreamMeasured| {
        let last = at_rest(&run.seconds);
        let (played, skipped) = last.iter().fold((0, 0), |(p, s), second| (p + second.played, s + second.skipped));
        100.0 * played as f64 / ((played + skipped) as f64).max(1.0)
    };
    // The law's fixed point: the demand and a margin, less what viewers send.
    let needed = (1.05 - share).max(0.0) * demand;
    vec![
        lab.mean_row(name, "delivered_at_end_percent", "%", of(&delivered).values()),
        lab.mean_row(name, "helper_percent_of_demand", "%", of(&|run| 100.0 * helper(run) / demand).values()),
        lab.mean_row(name, "helper_over_needed", "", of(&|run| helper(run) / needed).values()),
        lab.mean_row(name, "capacity_error_percent", "%", of(&capacity).values()),
        lab.mean_row(name, "surplus_error_percent", "%", of(&surplus).values()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_ratio_and_add_up_to_what_was_asked_for() {
        let mut scenario = StreamScenario::standard();
        let mbit = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
        scenario.audience.upload = Rates::InTurn(vec![mbit(1), mbit(2), mbit(3), mbit(4), mbit(5)]);
        let half = scaled(&scenario, 0.5);
        let Rates::InTurn(rates) = &half.audience.upload else { panic!("they are in turn") };
        // Rates are whole bits a second.
        assert!((rates[4].bytes_per_sec() / rates[0].bytes_per_sec() - 5.0).abs() < 1e-3);
        let all = 20.0 * rates.iter().map(|rate| rate.bytes_per_sec()).sum::<f64>() + 2.5e6;
        assert!((all / (100.0 * taken(&scenario)) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn a_spread_is_a_standard_deviation() {
        assert!((deviation(&[1.0, 3.0]) - 1.0).abs() < 1e-12);
        assert_eq!(at_rest(&[1, 2, 3, 4, 5]), [4, 5]);
    }
}

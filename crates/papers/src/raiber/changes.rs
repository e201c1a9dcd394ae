//! [Raiber 2010] table 7.7 and figures 7.9 and 7.10: peers that join, limits that are
//! exchanged.

use crate::runs::OfRuns;
use crate::{ExperimentError, Findings, Lab};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::overlay::{Measured, Second};
use anabranch_report::{Axis, Figure, Reference, Report, Series, XyChart};
use anabranch_scenario::overlay::{LimitChange, Scenario};
use anabranch_stats as stats;

/// Means over `window` seconds, at their middle.
fn smoothed(values: &[f64], window: usize) -> Vec<(f64, f64)> {
    let means = values.chunks_exact(window).enumerate();
    means.map(|(i, chunk)| ((i as f64 + 0.5) * window as f64, chunk.iter().sum::<f64>() / window as f64)).collect()
}

fn received(run: &Measured) -> Vec<f64> {
    run.received_bytes_per_s().collect()
}

fn drops(run: &Measured) -> Vec<f64> {
    run.seconds.iter().map(|second: &Second| f64::from(second.refused + second.refused_acks)).collect()
}

/// Seeds of a full run and of a quick one. The charts show the first.
const SEEDS: (u64, u64) = (5, 2);

/// The runs of each controller, one a seed.
type Runs = Vec<Vec<Measured>>;

fn run_seeds(lab: &Lab, scenarios: &[Scenario]) -> Result<Runs, ExperimentError> {
    lab.run_seeds(scenarios, lab.seconds(SEEDS.0, SEEDS.1))
}

fn chart(runs: &Runs, label: &str, unit: &str, window: usize, of: fn(&Measured) -> Vec<f64>) -> XyChart {
    let mut chart = XyChart::new(Axis::new("time", "s"), Axis::new(label, unit).from_zero());
    for (slot, run) in runs.iter().map(|runs| &runs[0]).enumerate() {
        chart = chart.series(Series::line(run.controller, smoothed(&of(run), window)).slot(slot));
    }
    chart
}

/// Table 7.7: every 500 s another peer begins to send.
pub fn joining(lab: &Lab) -> Result<Findings, ExperimentError> {
    let every = lab.seconds(500, 40);
    let scenarios: Vec<Scenario> = lab
        .controllers()?
        .into_iter()
        .filter(|entry| entry.name != "random")
        .map(|entry| {
            let mut scenario = lab.with_controller(entry);
            scenario.overlay.join_every = Duration::SECOND * every;
            scenario.seconds = every * scenario.overlay.peers as u64;
            scenario
        })
        .collect();
    let measured = run_seeds(lab, &scenarios)?;
    let means = |runs: &Vec<Measured>, of: fn(&Measured) -> Vec<f64>| OfRuns::of(runs, |run| stats::mean(&of(run)));
    let of = |name: &str| {
        let runs = measured.iter().find(|runs| runs[0].controller == name);
        runs.map_or_else(OfRuns::default, |runs| means(runs, received))
    };
    let mut rows = Vec::new();
    for runs in &measured {
        let (name, ours) = (runs[0].controller, means(runs, received));
        rows.push(lab.mean_row(name, "received_bytes_per_s", "B/s", ours.values()));
        rows.push(lab.mean_row(name, "share_of_perfect", "", ours.over(&of("perfect")).values()));
        rows.push(lab.mean_row(name, "drops_per_s", "1/s", means(runs, drops).values()));
    }
    for aimd in ["aimd-literal", "aimd"] {
        let over = of("q-learning").over(&of(aimd));
        rows.push(lab.mean_row("q-learning", &format!("received_over_{aimd}"), "", over.values()));
    }
    let window = (every / 10).max(5) as usize;
    let report = Report::new("Raiber 2010, table 7.7")
        .paragraph(format!(
            "Every {every} s another peer begins to send. The thesis: Q-learning above AIMD and below perfect, with many \
             drops; AIMD's slow start costs everyone."
        ))
        .figures_side_by_side(vec![
            Figure::chart("Received.", chart(&measured, "received", "B/s per peer", window, received)),
            Figure::chart("Drops.", chart(&measured, "drops", "1/s", window, drops)),
        ]);
    Ok(Findings { rows, report })
}

/// Runs every learner through the exchange of limits, in the middle of each run.
fn exchange(lab: &Lab) -> Result<Runs, ExperimentError> {
    let rate = Rate::from_bytes_per_sec;
    let (low, high) = (rate(200_000), rate(400_000));
    let change = |at: u64, peers: std::ops::Range<u32>, limit| LimitChange {
        at: Time::ZERO + Duration::SECOND * at,
        peers: peers.collect(),
        limit,
    };
    let scenarios: Vec<Scenario> = lab
        .learners()?
        .into_iter()
        .map(|entry| {
            let half = match entry.name {
                // With consistent units it settles in seconds, and sends a hundred times as
                // much as arrives.
                "aimd" => lab.seconds(1_000, 150),
                _ => lab.seconds(10_000, 800),
            };
            let mut scenario = lab.with_controller(entry);
            scenario.seconds = 2 * half;
            scenario.overlay.limit_changes =
                vec![change(0, 10..20, low), change(half, 0..10, low), change(half, 10..20, high)];
            scenario
        })
        .collect();
    run_seeds(lab, &scenarios)
}

/// When limits are exchanged in these runs.
fn exchanged_at(runs: &[Measured]) -> usize {
    runs[0].seconds.len() / 2
}

/// Values of the longest runs over time; shorter ones have their exchange elsewhere.
fn exchange_chart(measured: &Runs, label: &str, unit: &str, points: usize, of: fn(&Measured) -> Vec<f64>) -> XyChart {
    let half = measured.iter().map(|runs| exchanged_at(runs)).max().unwrap_or(0);
    let longest: Runs = measured.iter().filter(|runs| exchanged_at(runs) == half).cloned().collect();
    chart(&longest, label, unit, (half / points).max(5), of).reference(Reference::vertical("exchange", half as f64))
}

/// Figure 7.9: throughput before and after the exchange.
pub fn exchange_throughput(lab: &Lab) -> Result<Findings, ExperimentError> {
    let measured = exchange(lab)?;
    let mut rows = Vec::new();
    for runs in &measured {
        let (name, half) = (runs[0].controller, exchanged_at(runs));
        let window = half / 5;
        let over = |from: usize, to: usize| OfRuns::of(runs, |run| stats::mean(&received(run)[from..to]));
        let before = over(half - window, half);
        rows.push(lab.mean_row(name, "received_before_bytes_per_s", "B/s", before.values()));
        let (soon, end) = (over(half, half + window).over(&before), over(2 * half - window, 2 * half).over(&before));
        rows.push(lab.mean_row(name, "share_of_before_in_the_first_fifth", "", soon.values()));
        rows.push(lab.mean_row(name, "share_of_before_in_the_last_fifth", "", end.values()));
    }
    let over_time = exchange_chart(&measured, "received", "B/s per peer", 100, received);
    let report = Report::new("Raiber 2010, figure 7.9")
        .paragraph(
            "Ten peers at 400 000 B/s and ten at 200 000 B/s change places in the middle. The thesis: AIMD recovers \
             fast, Q-learning has not recovered at the end.",
        )
        .figure(Figure::chart("Received, the first seed.", over_time));
    Ok(Findings { rows, report })
}

/// Figure 7.10: drops before and after the exchange.
pub fn exchange_drops(lab: &Lab) -> Result<Findings, ExperimentError> {
    let measured = exchange(lab)?;
    let mut rows = Vec::new();
    for runs in &measured {
        let (name, half) = (runs[0].controller, exchanged_at(runs));
        let over = |from: usize, to: usize| OfRuns::of(runs, |run| stats::mean(&drops(run)[from..to]));
        let before = over(half / 2, half);
        rows.push(lab.mean_row(name, "drops_before_per_s", "1/s", before.values()));
        let after = over(half, half + 100);
        rows.push(lab.mean_row(name, "drops_in_the_first_100_s_per_s", "1/s", after.values()));
        let settled = OfRuns::of(runs, |run| {
            let drops = drops(run);
            settle(&drops[half..], stats::mean(&drops[half / 2..half])?)
        });
        rows.push(lab.mean_row(name, "drops_settle_s", "s", settled.values()));
    }
    let over_time = exchange_chart(&measured, "drops", "1/s", 200, drops);
    let report = Report::new("Raiber 2010, figure 7.10")
        .paragraph("The thesis: about 250 s after the exchange Q-learning drops as much as before it.")
        .figure(Figure::chart("Drops, the first seed.", over_time));
    Ok(Findings { rows, report })
}

/// Seconds until a mean over 50 s is first at most a tenth above `level`.
fn settle(drops: &[f64], level: f64) -> Option<f64> {
    const WINDOW: usize = 50;
    let calm = |window: &[f64]| window.iter().sum::<f64>() / WINDOW as f64 <= 1.1 * level;
    drops.windows(WINDOW).position(calm).map(|start| start as f64)
}

//! [Raiber 2010] table 7.7 and figures 7.9 and 7.10: peers that join, limits that are
//! exchanged.

use super::{ExperimentError, Findings, Lab};
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

fn chart(runs: &[Measured], label: &str, unit: &str, window: usize, of: fn(&Measured) -> Vec<f64>) -> XyChart {
    let mut chart = XyChart::new(Axis::new("time", "s"), Axis::new(label, unit).from_zero());
    for (slot, run) in runs.iter().enumerate() {
        chart = chart.series(Series::line(run.controller, smoothed(&of(run), window)).slot(slot));
    }
    chart
}

/// Table 7.7: every 500 s another peer begins to send.
pub fn joining(lab: &Lab) -> Result<Findings, ExperimentError> {
    let every = lab.seconds(500, 60);
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
    let measured = lab.run_all(&scenarios)?;
    let mean = |values: Vec<f64>| stats::mean(&values);
    let perfect = measured.iter().find(|run| run.controller == "perfect").and_then(|run| mean(received(run)));
    let mut rows = Vec::new();
    for run in &measured {
        let ours = mean(received(run));
        rows.push(lab.row(run.controller, "received_bytes_per_s", "B/s", ours));
        rows.push(lab.row(run.controller, "share_of_perfect", "", ours.zip(perfect).map(|(o, p)| o / p)));
        rows.push(lab.row(run.controller, "drops_per_s", "1/s", mean(drops(run))));
    }
    let of = |name: &str| measured.iter().find(|run| run.controller == name).and_then(|run| mean(received(run)));
    for aimd in ["aimd-literal", "aimd"] {
        let over = of("q-learning").zip(of(aimd)).map(|(q, aimd)| q / aimd);
        rows.push(lab.row("q-learning", &format!("received_over_{aimd}"), "", over));
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

/// Runs every learner through the exchange of limits; the answer is the time of the exchange.
fn exchange(lab: &Lab) -> Result<(Vec<Measured>, usize), ExperimentError> {
    let half = lab.seconds(10_000, 1_500);
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
            let mut scenario = lab.with_controller(entry);
            scenario.seconds = 2 * half;
            scenario.overlay.limit_changes =
                vec![change(0, 10..20, low), change(half, 0..10, low), change(half, 10..20, high)];
            scenario
        })
        .collect();
    Ok((lab.run_all(&scenarios)?, half as usize))
}

/// Figure 7.9: throughput before and after the exchange.
pub fn exchange_throughput(lab: &Lab) -> Result<Findings, ExperimentError> {
    let (measured, half) = exchange(lab)?;
    let window = half / 5;
    let mut rows = Vec::new();
    for run in &measured {
        let received = received(run);
        let before = stats::mean(&received[half - window..half]);
        let share = |slice: &[f64]| stats::mean(slice).zip(before).map(|(after, before)| after / before);
        rows.push(lab.row(run.controller, "received_before_bytes_per_s", "B/s", before));
        let (soon, end) = (share(&received[half..half + window]), share(&received[2 * half - window..]));
        rows.push(lab.row(run.controller, "share_of_before_in_the_first_fifth", "", soon));
        rows.push(lab.row(run.controller, "share_of_before_in_the_last_fifth", "", end));
    }
    let over_time = chart(&measured, "received", "B/s per peer", (half / 100).max(10), received)
        .reference(Reference::vertical("exchange", half as f64));
    let report = Report::new("Raiber 2010, figure 7.9")
        .paragraph(
            "Ten peers at 400 000 B/s and ten at 200 000 B/s change places in the middle. The thesis: AIMD recovers \
             fast, Q-learning has not recovered at the end.",
        )
        .figure(Figure::chart("Received.", over_time));
    Ok(Findings { rows, report })
}

/// Figure 7.10: drops before and after the exchange.
pub fn exchange_drops(lab: &Lab) -> Result<Findings, ExperimentError> {
    let (measured, half) = exchange(lab)?;
    let mut rows = Vec::new();
    for run in &measured {
        let drops = drops(run);
        let before = stats::mean(&drops[half / 2..half]);
        rows.push(lab.row(run.controller, "drops_before_per_s", "1/s", before));
        let after = stats::mean(&drops[half..half + 100]);
        rows.push(lab.row(run.controller, "drops_in_the_first_100_s_per_s", "1/s", after));
        rows.push(lab.row(
            run.controller,
            "drops_settle_s",
            "s",
            before.and_then(|level| settle(&drops[half..], level)),
        ));
    }
    let over_time = chart(&measured, "drops", "1/s", (half / 200).max(5), drops)
        .reference(Reference::vertical("exchange", half as f64));
    let report = Report::new("Raiber 2010, figure 7.10")
        .paragraph("The thesis: about 250 s after the exchange Q-learning drops as much as before it.")
        .figure(Figure::chart("Drops.", over_time));
    Ok(Findings { rows, report })
}

/// Seconds until a mean over 50 s is first at most a tenth above `level`.
fn settle(drops: &[f64], level: f64) -> Option<f64> {
    const WINDOW: usize = 50;
    let calm = |window: &[f64]| window.iter().sum::<f64>() / WINDOW as f64 <= 1.1 * level;
    drops.windows(WINDOW).position(calm).map(|start| start as f64)
}

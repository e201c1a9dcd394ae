//! [Raiber 2010] table 7.4: throughput, convergence and drops of every controller
//! in the standard scenario, and what holds AIMD where the thesis found it.

use anabranch_control::path::registry::{self, Entry};
use anabranch_control::time::Duration;
use anabranch_sim::delay::DelayModel;

use super::parameter::{drops, received};
use crate::runs::{Estimate, OfRuns};
use crate::{ExperimentError, Findings, Lab, Row};
use anabranch_lab::overlay::Measured;
use anabranch_lab::overlay::summary::Summary;
use anabranch_report::{Axis, BarChart, BarSeries, Cell, Figure, Report, Series, Table, XyChart};
use anabranch_scenario::overlay::Scenario;
use anabranch_stats::PAPER_WINDOW_S;

const RECEIVED: &str = "received_bytes_per_s";

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (5, 2);

/// Simulated seconds of each run, full and quick: with five seeds as long as the thesis's runs
/// all together where it tells them (appendix A).
fn seconds(lab: &Lab, controller: &Entry) -> u64 {
    match controller.name {
        "q-learning" => lab.seconds(60_000, 2_000),
        "perfect" | "random" => lab.seconds(1_000, 200),
        // With consistent units it is at its mean within seconds, and is far from the thesis's.
        "aimd" => lab.seconds(4_000, 300),
        // Ours, for the question of section 8.2; the thesis has no length for them.
        name if name.starts_with("flow:") => lab.seconds(4_000, 200),
        _ => lab.seconds(40_000, 2_000),
    }
}

/// The runs of one controller or variant, one a seed.
struct Runs {
    name: &'static str,
    summaries: Vec<Summary>,
    /// Means over 100 s of the first seed.
    over_time: Vec<(f64, f64)>,
}

impl Runs {
    fn new(runs: &[Measured]) -> Runs {
        Runs {
            name: runs[0].controller,
            summaries: runs.iter().map(Summary::of).collect(),
            over_time: smoothed(&runs[0]),
        }
    }

    fn row(&self, lab: &Lab, metric: &str, unit: &str, of: fn(&Summary) -> Option<f64>) -> Row {
        lab.mean_row(self.name, metric, unit, OfRuns::of(&self.summaries, of).values())
    }
}

pub fn run(lab: &Lab) -> Result<Findings, ExperimentError> {
    let mut scenarios: Vec<Scenario> = lab
        .controllers()?
        .into_iter()
        .map(|entry| Scenario { seconds: seconds(lab, entry), ..lab.with_controller(entry) })
        .collect();
    let asked = scenarios.iter().any(|scenario| scenario.overlay.controller.name == "aimd-literal");
    let variants = if asked { variants(lab) } else { Vec::new() };
    scenarios.extend(variants.iter().map(|(_, scenario)| scenario.clone()));
    let measured = lab.run_seeds(&scenarios, lab.seconds(SEEDS.0, SEEDS.1))?;
    let mut measured: Vec<Runs> = measured.iter().map(|runs| Runs::new(runs)).collect();
    let varied = measured.split_off(measured.len() - variants.len());

    let mut rows = Vec::new();
    for runs in &measured {
        rows.push(runs.row(lab, RECEIVED, "B/s", received));
        rows.push(runs.row(lab, "drop_percent", "%", |summary| summary.whole.drop_percent));
        rows.push(runs.row(lab, "convergence_s", "s", |summary| summary.convergence_s));
    }
    for ((name, _), runs) in variants.iter().zip(&varied) {
        let metric = |metric: &str| format!("{metric}[{name}]");
        rows.push(runs.row(lab, &metric(RECEIVED), "B/s", received));
        rows.push(runs.row(lab, &metric("drop_percent"), "%", |summary| summary.steady.drop_percent));
        rows.push(runs.row(lab, &metric("convergence_s"), "s", |summary| summary.convergence_s));
        rows.push(runs.row(lab, &metric("late_acks_per_s"), "1/s", |summary| summary.steady.late_acks_per_s));
    }
    let report = report(lab, &measured, &variants, &varied, &rows);
    Ok(Findings { rows, report })
}

/// AIMD to the letter where only the timeout or the delays differ: what decides its
/// throughput is how often a timeout fires though nothing was lost.
fn variants(lab: &Lab) -> Vec<(&'static str, Scenario)> {
    let entry = registry::find("aimd-literal").expect("the thesis's AIMD is registered");
    let base = Scenario { seconds: lab.seconds(6_000, 1_000), ..lab.with_controller(entry) };
    let with = |name, change: fn(&mut Scenario)| {
        let mut scenario = base.clone();
        change(&mut scenario);
        (name, scenario)
    };
    let plane = |span_ms, stretch| DelayModel::Plane {
        span: Duration::from_millis(span_ms),
        access: Duration::from_millis(5),
        stretch,
    };
    let mut all = vec![
        with("constant delay 60 ms", |s| s.overlay.delay = DelayModel::Constant(Duration::from_millis(60))),
        with("timeout at 3.3 deviations", |s| s.overlay.rtt.deviations = 3.3),
        with("timeout at 3 deviations", |s| s.overlay.rtt.deviations = 3.0),
    ];
    let mut heavy = base.clone();
    heavy.overlay.delay = plane(100, 3.0);
    all.push(("distances to the power of 3", heavy));
    all
}

fn report(
    lab: &Lab,
    measured: &[Runs],
    variants: &[(&'static str, Scenario)],
    varied: &[Runs],
    rows: &[Row],
) -> Report {
    let names: Vec<String> = measured.iter().map(|runs| runs.name.to_owned()).collect();
    let of = |metric: &str| -> Vec<Option<f64>> {
        names.iter().map(|name| rows.iter().find(|r| r.subject == *name && r.metric == metric)?.ours).collect()
    };
    let paper: Vec<Option<f64>> = names.iter().map(|name| lab.expected.paper(name, RECEIVED)).collect();
    let bars = |title: &str, values| {
        BarChart::new(title, Axis::new("received", "B/s per peer").from_zero(), names.clone()).series(values)
    };
    let reach = names
        .iter()
        .map(|name| {
            rows.iter().find(|r| r.subject == *name && r.metric == RECEIVED).and_then(|r| r.ci95).unwrap_or(0.0)
        })
        .collect();
    let ours = Figure::chart(
        "Ours: payload received at each peer, with 95 % intervals over the seeds.",
        bars("Ours", BarSeries::new("ours", of(RECEIVED)).intervals(reach)),
    );
    let theirs = Figure::chart(
        "The thesis, table 7.4; it has one AIMD, shown at both readings of equation 4.7.",
        bars("Thesis", BarSeries::new("thesis", paper).hollow()),
    );
    let mut over_time = XyChart::new(Axis::new("time", "s"), Axis::new("received", "B/s per peer").from_zero());
    for (slot, runs) in measured.iter().enumerate() {
        over_time = over_time.series(Series::line(runs.name, runs.over_time.clone()).slot(slot));
    }
    let mut table = Table::new(
        "AIMD to the letter: what its throughput depends on",
        ["variant", "received (B/s)", "drops (1/s)", "late ACKs (1/s)"],
    );
    for ((name, _), runs) in variants.iter().zip(varied) {
        let cell = |of: fn(&Summary) -> Option<f64>| {
            let Estimate { mean, half_width } = OfRuns::of(&runs.summaries, of).estimate();
            half_width.map_or(Cell::number(mean, 3), |half| Cell::interval(mean, half))
        };
        let late: fn(&Summary) -> Option<f64> = |summary| summary.steady.late_acks_per_s;
        table = table.row([Cell::text(*name), cell(received), cell(drops), cell(late)]);
    }
    Report::new("Raiber 2010, table 7.4")
        .section("Throughput")
        .figures_side_by_side(vec![ours, theirs])
        .figure(Figure::chart(
            "Means over 100 s of the first seed. Runs differ in length as the thesis's do.",
            over_time,
        ))
        .section("What holds AIMD")
        .paragraph(
            "With consistent units the rate climbs until relays refuse, and half of all packets are lost. To the \
             letter an ACK adds about a byte a second: a rate that one timeout took needs minutes to come back, and \
             timeouts that fire although nothing was lost decide where it stays. Their share depends on the delays \
             and on the deviations that the timeout allows; refusals vanish as throughput falls to the thesis's.",
        )
        .table(table)
}

/// Means over 100 s, at their middle.
fn smoothed(run: &Measured) -> Vec<(f64, f64)> {
    let received: Vec<f64> = run.received_bytes_per_s().collect();
    let window = PAPER_WINDOW_S.min(received.len().max(1));
    let means = received.chunks_exact(window).enumerate();
    means.map(|(i, chunk)| ((i as f64 + 0.5) * window as f64, chunk.iter().sum::<f64>() / window as f64)).collect()
}

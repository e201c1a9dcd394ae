//! [Raiber 2010] table 7.5 and figure 7.7: the rate that one sender learns for one peer.

use anabranch_control::path::registry;
use anabranch_control::time::Duration;
use anabranch_sim::delay::DelayModel;

use crate::runs::OfRuns;
use crate::{ExperimentError, Findings, Lab};
use anabranch_lab::overlay::{Measured, RateTrace};
use anabranch_report::{Axis, Figure, Report, Series, XyChart};
use anabranch_scenario::overlay::Scenario;
use anabranch_stats as stats;

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (5, 2);

/// The watched sender and, of those that it knows, the watched peer.
const SENDER: u32 = 0;
const PEER: usize = 0;

/// The rate for the watched peer in each second, in bytes a second.
fn rate(run: &Measured) -> Vec<f64> {
    let Some(RateTrace { known, rates_bytes_per_s, .. }) = &run.rates else {
        return Vec::new();
    };
    rates_bytes_per_s.iter().skip(PEER).step_by(known.len()).map(|&rate| f64::from(rate)).collect()
}

/// How far the rate falls in one second at most, as a share of itself.
fn deepest_fall(rates: &[f64]) -> Option<f64> {
    rates.windows(2).map(|pair| 1.0 - pair[1] / pair[0]).reduce(f64::max)
}

/// Standard deviation over mean.
fn relative_deviation(rates: &[f64]) -> Option<f64> {
    Some(stats::std_dev(rates)? / stats::mean(rates)?)
}

fn chart(series: impl Iterator<Item = (String, Vec<f64>, usize)>) -> XyChart {
    let mut chart = XyChart::new(Axis::new("time", "s"), Axis::new("rate for one peer", "B/s").from_zero());
    for (slot, (name, rates, from)) in series.enumerate() {
        let points = rates.iter().enumerate().map(|(second, rate)| ((from + second) as f64, *rate));
        chart = chart.series(Series::line(name, points.collect()).slot(slot));
    }
    chart
}

/// Table 7.5: 600 s of every learner's rate, after it has converged.
pub fn progression(lab: &Lab) -> Result<Findings, ExperimentError> {
    const SHOWN: usize = 600;
    let before = lab.seconds(10_000, 800) as usize;
    let scenarios: Vec<Scenario> = lab
        .learners()?
        .into_iter()
        .map(|entry| {
            let mut scenario = lab.with_controller(entry);
            scenario.seconds = (before + SHOWN) as u64;
            scenario.overlay.watch = Some(SENDER);
            scenario
        })
        .collect();
    let measured = lab.run_seeds(&scenarios, lab.seconds(SEEDS.0, SEEDS.1))?;
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for (runs, scenario) in measured.iter().zip(&scenarios) {
        let name = scenario.overlay.controller.name;
        let shown: Vec<Vec<f64>> = runs.iter().map(|run| rate(run).split_off(before)).collect();
        let mut add = |metric: &str, unit: &str, of: &dyn Fn(&[f64]) -> Option<f64>| {
            rows.push(lab.mean_row(name, metric, unit, OfRuns::of(&shown, |rates| of(rates)).values()));
        };
        add("mean_rate", "B/s", &stats::mean);
        add("relative_deviation", "", &relative_deviation);
        add("deepest_fall_in_a_second", "", &deepest_fall);
        let one = std::iter::once((name.to_owned(), shown[0].clone(), before));
        figures.push(Figure::chart(format!("{name}, the first seed."), chart(one)));
    }
    let report = Report::new("Raiber 2010, table 7.5")
        .paragraph(
            "The thesis shows AIMD's saw-tooth and Q-learning's plateau: one peer's rate as one sender learns it, \
             over 600 s.",
        )
        .figures_side_by_side(figures);
    Ok(Findings { rows, report })
}

/// Figure 7.7: AIMD's rate under different constant delays.
pub fn under_delay(lab: &Lab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let delays_ms: &[u64] = lab.choose(&[10, 50, 100, 200], &[10, 50, 200]);
    let mut rows = Vec::new();
    let mut report = Report::new("Raiber 2010, figure 7.7")
        .paragraph("The thesis: the longer the delay, the more slowly AIMD's rate climbs.");
    for name in ["aimd-literal", "aimd"] {
        let entry = registry::find(name).expect("a registered controller");
        // With consistent units the rate settles in seconds, and costs a hundred times as much.
        let seconds = if name == "aimd" { lab.seconds(100, 40) } else { lab.seconds(2_000, 600) };
        let scenarios: Vec<Scenario> = delays_ms
            .iter()
            .map(|&delay| {
                let mut scenario = Scenario { seconds, ..lab.with_controller(entry) };
                scenario.overlay.delay = DelayModel::Constant(Duration::from_millis(delay));
                scenario.overlay.watch = Some(SENDER);
                scenario
            })
            .collect();
        let measured = lab.run_seeds(&scenarios, lab.seconds(SEEDS.0, SEEDS.1))?;
        let climbs: Vec<OfRuns> = measured.iter().map(|runs| OfRuns::of(runs, |run| climb(&rate(run)))).collect();
        for (delay, climb) in delays_ms.iter().zip(&climbs) {
            rows.push(lab.mean_row(name, &format!("climb[delay_ms={delay}]"), "B/s per s", climb.values()));
        }
        let slower = climbs[climbs.len() - 1].over(&climbs[0]);
        rows.push(lab.mean_row(name, "climb_at_longest_over_shortest_delay", "", slower.values()));
        let series = delays_ms.iter().zip(&measured).map(|(delay, runs)| (format!("{delay} ms"), rate(&runs[0]), 0));
        report = report.section(name).figure(Figure::chart("Rate for one peer, the first seed.", chart(series)));
    }
    Ok(Findings { rows, report })
}

/// The mean rise in the seconds in which the rate rises, after slow start: the first
/// tenth is left out.
fn climb(rates: &[f64]) -> Option<f64> {
    let steady = &rates[rates.len() / 10..];
    let rises: Vec<f64> = steady.windows(2).map(|pair| pair[1] - pair[0]).filter(|rise| *rise > 0.0).collect();
    stats::mean(&rises)
}

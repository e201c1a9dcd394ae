//! [Raiber 2010] table 7.5 and figure 7.7: the rate that one sender learns for one peer.

use anabranch_control::path::registry;
use anabranch_control::time::Duration;
use anabranch_sim::delay::DelayModel;

use super::{ExperimentError, Findings, Lab};
use anabranch_lab::overlay::{Measured, RateTrace};
use anabranch_report::{Axis, Figure, Report, Series, XyChart};
use anabranch_scenario::overlay::Scenario;
use anabranch_stats as stats;

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
    let before = lab.seconds(10_000, 1_400) as usize;
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
    let measured = lab.run_all(&scenarios)?;
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for run in &measured {
        let shown = rate(run).split_off(before);
        rows.push(lab.row(run.controller, "mean_rate", "B/s", stats::mean(&shown)));
        rows.push(lab.row(run.controller, "relative_deviation", "", relative_deviation(&shown)));
        rows.push(lab.row(run.controller, "deepest_fall_in_a_second", "", deepest_fall(&shown)));
        let one = std::iter::once((run.controller.to_owned(), shown, before));
        figures.push(Figure::chart(format!("{}.", run.controller), chart(one)));
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
        let seconds = if name == "aimd" { lab.seconds(400, 60) } else { lab.seconds(2_000, 800) };
        let scenarios: Vec<Scenario> = delays_ms
            .iter()
            .map(|&delay| {
                let mut scenario = Scenario { seconds, ..lab.with_controller(entry) };
                scenario.overlay.delay = DelayModel::Constant(Duration::from_millis(delay));
                scenario.overlay.watch = Some(SENDER);
                scenario
            })
            .collect();
        let rates: Vec<Vec<f64>> = lab.run_all(&scenarios)?.iter().map(rate).collect();
        let climbs: Vec<Option<f64>> = rates.iter().map(|rates| climb(rates)).collect();
        for (delay, climb) in delays_ms.iter().zip(&climbs) {
            rows.push(lab.row(name, &format!("climb[delay_ms={delay}]"), "B/s per s", *climb));
        }
        let slower = climbs.last().copied().flatten().zip(climbs[0]).map(|(long, short)| long / short);
        rows.push(lab.row(name, "climb_at_longest_over_shortest_delay", "", slower));
        let series = delays_ms.iter().zip(rates).map(|(delay, rates)| (format!("{delay} ms"), rates, 0));
        report = report.section(name).figure(Figure::chart("Rate for one peer.", chart(series)));
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

//! [Raiber 2010] table 7.1: the weight γ of a sample and the number α of deviations
//! in the round-trip time estimate, against convergence and late ACKs.

use anabranch_control::path::registry;

use super::{ExperimentError, Findings, Lab};
use anabranch_lab::overlay::{Measured, Second};
use anabranch_report::{Axis, Figure, Report, Series, XyChart};
use anabranch_scenario::overlay::Scenario;
use anabranch_stats as stats;

/// The thesis averages over three runs.
const RUNS: u64 = 3;

/// The time to the timeout has converged when two seconds' means of it differ by less
/// than this, in seconds (7.1.4).
const SETTLED_S: f64 = 1e-5;

/// One parameter value: means over the runs.
struct Point {
    value: f64,
    convergence_s: Option<f64>,
    late_acks_per_s: Option<f64>,
    early_ms: Option<f64>,
}

pub fn run(lab: &Lab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let gains: &[f64] = lab.choose(&[0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5], &[0.05, 0.1, 0.15, 0.3, 0.5]);
    let deviations: &[f64] = lab.choose(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0], &[2.0, 3.0, 4.0, 6.0]);
    let by_gain = measure(lab, gains, |scenario, gain| scenario.overlay.rtt.gain = gain)?;
    let by_deviations = measure(lab, deviations, |scenario, alpha| scenario.overlay.rtt.deviations = alpha)?;
    let mut rows = Vec::new();
    for (name, points) in [("gain", &by_gain), ("deviations", &by_deviations)] {
        for point in points {
            let mut add = |metric: &str, unit: &str, ours| {
                rows.push(lab.row("aimd-literal", &format!("{metric}[{name}={}]", point.value), unit, ours));
            };
            add("late_acks_per_s", "1/s", point.late_acks_per_s);
            add("convergence_s", "s", point.convergence_s);
            add("early_ms", "ms", point.early_ms);
        }
    }
    let at = |points: &[Point], value: f64, of: fn(&Point) -> Option<f64>| {
        points.iter().find(|p| p.value == value).and_then(of)
    };
    let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    let late = |point: &Point| point.late_acks_per_s;
    let converged = |point: &Point| point.convergence_s;
    let mut claim = |metric: &str, ours| rows.push(lab.row("aimd-literal", metric, "", ours));
    claim("late_acks_at_gain_0.5_over_0.15", ratio(at(&by_gain, 0.5, late), at(&by_gain, 0.15, late)));
    claim("convergence_at_gain_0.3_over_0.15", ratio(at(&by_gain, 0.3, converged), at(&by_gain, 0.15, converged)));
    claim("late_acks_at_deviations_4_over_2", ratio(at(&by_deviations, 4.0, late), at(&by_deviations, 2.0, late)));
    let figures = |label: &'static str, points: &[Point]| {
        let chart = |y: Axis, of: fn(&Point) -> Option<f64>| {
            let points = points.iter().filter_map(|point| Some((point.value, of(point)?)));
            XyChart::new(Axis::new(label, ""), y).series(Series::line("aimd-literal", points.collect()).markers())
        };
        vec![
            Figure::chart("Convergence of the time to the timeout.", chart(Axis::new("time", "s"), converged)),
            Figure::chart(
                "ACKs that came after their timeout.",
                chart(Axis::new("late ACKs", "1/s").from_zero(), late),
            ),
            Figure::chart(
                "How long before its timeout an ACK comes.",
                chart(Axis::new("time left", "ms").from_zero(), |p| p.early_ms),
            ),
        ]
    };
    let report = Report::new("Raiber 2010, table 7.1")
        .paragraph(
            "The thesis: a weight beyond 0.15 gains little speed and costs late ACKs; four deviations are a good value.",
        )
        .section("Weight of a sample")
        .figures_side_by_side(figures("weight of a sample", &by_gain))
        .section("Deviations in the timeout")
        .figures_side_by_side(figures("deviations in the timeout", &by_deviations));
    Ok(Findings { rows, report })
}

fn measure(lab: &Lab, values: &[f64], set: fn(&mut Scenario, f64)) -> Result<Vec<Point>, ExperimentError> {
    let entry = registry::find("aimd-literal").expect("the thesis's AIMD is registered");
    let mut scenarios = Vec::new();
    for &value in values {
        for run in 0..RUNS {
            let mut scenario = lab.with_controller(entry);
            // Positions are the same in each of the thesis's runs; ours differ by seed.
            scenario.seed += run;
            scenario.seconds = lab.seconds(10_000, 600);
            set(&mut scenario, value);
            scenarios.push(scenario);
        }
    }
    let measured = lab.run_all(&scenarios)?;
    let point = |(&value, runs): (&f64, &[Measured])| {
        let mean = |of: fn(&Measured) -> Option<f64>| stats::mean(&runs.iter().filter_map(of).collect::<Vec<f64>>());
        Point {
            value,
            convergence_s: mean(convergence_s),
            late_acks_per_s: mean(|run| settled_mean(run, |second| f64::from(second.late_acks))),
            early_ms: mean(|run| settled_mean(run, |second| early_s(second) * 1e3)),
        }
    };
    Ok(values.iter().zip(measured.chunks(RUNS as usize)).map(point).collect())
}

/// The mean time between an ACK and its timeout in one second, in seconds.
fn early_s(second: &Second) -> f64 {
    second.early_us as f64 / 1e6 / f64::from(second.acked.max(1))
}

/// The first second whose mean time to the timeout is that of the second before.
fn convergence_s(run: &Measured) -> Option<f64> {
    let settled = |pair: &[Second]| (early_s(&pair[1]) - early_s(&pair[0])).abs() < SETTLED_S;
    run.seconds.windows(2).position(settled).map(|index| index as f64 + 1.0)
}

/// The mean over the second half of the run, when the estimates have long settled.
fn settled_mean(run: &Measured, of: fn(&Second) -> f64) -> Option<f64> {
    let half = &run.seconds[run.seconds.len() / 2..];
    stats::mean(&half.iter().map(of).collect::<Vec<f64>>())
}

//! [Raiber 2010] table 7.1: the weight γ of a sample and the number α of deviations
//! in the round-trip time estimate, against convergence and late ACKs.

use anabranch_control::path::registry;

use crate::runs::{Estimate, OfRuns};
use crate::{ExperimentError, Findings, Lab};
use anabranch_lab::overlay::{Measured, Second};
use anabranch_report::{Axis, Figure, Report, Series, XyChart};
use anabranch_scenario::overlay::Scenario;
use anabranch_stats as stats;

/// Runs of a full form and of a quick one; the thesis averages over three.
const RUNS: (u64, u64) = (5, 2);

/// The time to the timeout has converged when two seconds' means of it differ by less
/// than this, in seconds (7.1.4).
const SETTLED_S: f64 = 1e-5;

/// One parameter value.
struct Point {
    value: f64,
    convergence_s: OfRuns,
    late_acks_per_s: OfRuns,
    early_ms: OfRuns,
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
            let mut add = |metric: &str, unit: &str, ours: &OfRuns| {
                let metric = format!("{metric}[{name}={}]", point.value);
                rows.push(lab.mean_row("aimd-literal", &metric, unit, ours.values()));
            };
            add("late_acks_per_s", "1/s", &point.late_acks_per_s);
            add("convergence_s", "s", &point.convergence_s);
            add("early_ms", "ms", &point.early_ms);
        }
    }
    let late = |point: &Point| point.late_acks_per_s.clone();
    let converged = |point: &Point| point.convergence_s.clone();
    let mut claim = |metric: &str, points: &[Point], of: &dyn Fn(&Point) -> OfRuns, one: f64, other: f64| {
        let at = |value: f64| points.iter().find(|point| point.value == value).map(of).unwrap_or_default();
        rows.push(lab.mean_row("aimd-literal", metric, "", at(one).over(&at(other)).values()));
    };
    claim("late_acks_at_gain_0.5_over_0.15", &by_gain, &late, 0.5, 0.15);
    claim("convergence_at_gain_0.3_over_0.15", &by_gain, &converged, 0.3, 0.15);
    claim("late_acks_at_deviations_4_over_2", &by_deviations, &late, 4.0, 2.0);
    let figures = |label: &'static str, points: &[Point]| {
        let chart = |y: Axis, of: fn(&Point) -> &OfRuns| {
            let points = points.iter().filter_map(|point| {
                let Estimate { mean, half_width } = of(point).estimate();
                mean.is_finite().then(|| (point.value, mean, half_width.unwrap_or(0.0)))
            });
            XyChart::new(Axis::new(label, ""), y).series(Series::intervals("aimd-literal", points.collect()).markers())
        };
        vec![
            Figure::chart(
                "Convergence of the time to the timeout.",
                chart(Axis::new("time", "s"), |p| &p.convergence_s),
            ),
            Figure::chart(
                "ACKs that came after their timeout.",
                chart(Axis::new("late ACKs", "1/s").from_zero(), |p| &p.late_acks_per_s),
            ),
            Figure::chart(
                "How long before its timeout an ACK comes.",
                chart(Axis::new("time left", "ms").from_zero(), |p| &p.early_ms),
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
    let scenario = |&value: &f64| {
        let mut scenario = lab.with_controller(entry);
        scenario.seconds = lab.seconds(4_000, 500);
        set(&mut scenario, value);
        scenario
    };
    // Positions are the same in each of the thesis's runs; ours differ by seed.
    let scenarios: Vec<Scenario> = values.iter().map(scenario).collect();
    let measured = lab.run_seeds(&scenarios, lab.seconds(RUNS.0, RUNS.1))?;
    let point = |(&value, runs): (&f64, &Vec<Measured>)| Point {
        value,
        convergence_s: OfRuns::of(runs, convergence_s),
        late_acks_per_s: OfRuns::of(runs, |run| settled_mean(run, |second| f64::from(second.late_acks))),
        early_ms: OfRuns::of(runs, |run| settled_mean(run, |second| early_s(second) * 1e3)),
    };
    Ok(values.iter().zip(&measured).map(point).collect())
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

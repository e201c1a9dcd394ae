//! [LearningCC] section III: the fluid model's throughput against simulation.
//!
//! ```text
//! (9)   x = sqrt((1 - p) / (β p)) / rtt                                        Reno, β = 1/2
//! (11)  x = sqrt(α (1 - p) / p) / sqrt(rtt (rtt - β_l rtt_min))                LearningCC
//! ```
//!
//! One flow on links without a rate: `rtt` is `rtt_min` for every packet, and there is no
//! congestion but the random losses. `p` is the model's probability of a congestion event for each ACK.
//! Losses of one round trip are one event, so that it is below the rate of loss where a
//! window meets several; for LearningCC back-offs are counted.
//!
//! What the model assumes, and where it is kept:
//!
//! - `rtt / W` between two steps: each packet has an ACK of its own. The scenario's receiver.
//! - Each ACK adds `α / W` or takes `D`, with a probability that does not depend on the last
//!   ones. The algorithm has one back-off a round trip and adds nothing for a round trip
//!   after it (algorithms 1 and 2; RFC 6675 for Reno), so events must be rare: `p W << 1`.
//! - `Bw = x`, where `Bw` is a maximum over ten round trips (II): what was before the last
//!   back-off must have left it at the next one, so `p W <= 1/10`. This gives `<<` its value.
//! - Nothing else moves the window: no smallest window, no timeout. At `p W <= 1/10`
//!   (9) gives 20 packets at least, (11) more.
//! - The mean of the change of `W` is zero where `W` is its own mean, although the change is
//!   not linear in `W`. Never so: this is the model's own error.
//!
//! A figure beyond `p W = 1/10`, `W` and `p` the model's, is reported and not judged.

use anabranch_control::flow::registry::{self, Entry};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_sim::loss::LossModel;
use anabranch_sim::varying::{Change, Course};

use super::row;
use crate::runs::{self, Estimate, OfRuns};
use crate::{ExperimentError, Findings, FlowLab, Row};
use anabranch_lab::flows::FlowsMeasured;
use anabranch_report::{Axis, Cell, Figure, Report, Series, Table, XyChart};
use anabranch_scenario::flows::FlowScenario;

/// Rates of random loss. The lowest two leave LearningCC ten round trips between losses even
/// with the highest α: `sqrt(5 p / 0.1) <= 1/10` up to `p = 0.0002`.
const LOSSES: [f64; 8] = [0.000_03, 0.000_1, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05];
/// LearningCC's start-up ends where three round trips hardly grow what arrives, whatever is
/// lost. On links without a rate only losses can bring that: most packets of the beginning.
const LOSS_AT_FIRST: f64 = 0.6;
const FIRST: Duration = Duration::SECOND;
/// Events a round trip, `p W`, up to which the model's assumptions are kept: see above.
const MOST_EVENTS: f64 = 0.1;
/// The links of controllers that the model is not about; above what Reno and LearningCC
/// reach.
const OTHERS_RATE: Rate = Rate::from_bits_per_sec(1_000_000_000);
/// β of Reno.
const RENO_BETA: f64 = 0.5;
/// β_l, which `learningcc` has by default.
const LEARNING_BETA: f64 = 0.9;

/// One run.
struct Point {
    /// Packets a second.
    rate: f64,
    /// The model's, with the rate of loss as `p`, and with the measured rate of events.
    by_loss: f64,
    by_events: f64,
    mean_alpha: f64,
    /// `p W` of the model, `p` the rate of events if they were counted.
    events_a_round: f64,
}

/// Runs it.
pub fn run(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let (reno, learning) = (registry::find("reno")?, registry::find("learningcc")?);
    let (seeds, seconds) = (lab.seconds(5, 2), lab.seconds(100, 30));
    let losses: Vec<f64> = LOSSES.to_vec();
    let mut scenarios = Vec::new();
    let others = lab.others(&["reno", "learningcc"])?;
    for controller in [reno, learning].into_iter().chain(others.iter().copied()) {
        let has_model = [reno.name, learning.name].contains(&controller.name);
        for loss in &losses {
            for seed in 0..seeds {
                let mut scenario = scenario(lab, controller, *loss, lab.scenario.seed + seed, seconds);
                if !has_model {
                    scenario.links.iter_mut().for_each(|link| link.rate = Some(Course::constant(OTHERS_RATE)));
                }
                scenarios.push(scenario);
            }
        }
    }
    let measured = lab.run_all(&scenarios)?;
    let points: Vec<Point> = measured
        .iter()
        .zip(&scenarios)
        .enumerate()
        .map(|(i, (run, scenario))| point(run, scenario, losses[i / seeds as usize % losses.len()]))
        .collect();
    let groups: Vec<&[Point]> = points.chunks(seeds as usize).collect();
    let (of_reno, of_learning) = groups.split_at(losses.len());
    let (of_learning, of_others) = of_learning.split_at(losses.len());

    let of_runs = |points: &[Point], value: &dyn Fn(&Point) -> f64| OfRuns::new(points.iter().map(value).collect());
    let over = |points: &[Point], value: &dyn Fn(&Point) -> f64| -> Estimate { of_runs(points, value).estimate() };
    let mut rows = Vec::new();
    let mut alphas = Vec::new();
    for ((loss, reno), learning) in losses.iter().zip(of_reno).zip(of_learning) {
        let metric = |name: &str| format!("{name}[loss={loss}]");
        let of = |points| over(points, &|p| p.events_a_round);
        let (reno_events, learning_events) = (of(reno), of(learning));
        let equation_9 = row(lab, "reno", &metric("over_equation_9"), "", over(reno, &|p| p.rate / p.by_loss));
        rows.push(inside(equation_9, reno_events.mean));
        let by_events = over(learning, &|p| p.rate / p.by_events);
        let equation_11 = row(lab, "learningcc", &metric("over_equation_11"), "", by_events);
        rows.push(inside(equation_11, learning_events.mean));
        let by_loss = over(learning, &|p| p.rate / p.by_loss);
        rows.push(row(lab, "learningcc", &metric("over_equation_11_by_loss"), "", by_loss));
        rows.push(row(lab, "reno", &metric("events_a_round"), "", reno_events));
        rows.push(row(lab, "learningcc", &metric("events_a_round"), "", learning_events));
        let alpha = over(learning, &|p| p.mean_alpha);
        rows.push(row(lab, "learningcc", &metric("mean_alpha"), "", alpha));
        alphas.push(of_runs(learning, &|p| p.mean_alpha));
        let ratio = of_runs(learning, &|p| p.rate).over(&of_runs(reno, &|p| p.rate));
        let over_reno = row(lab, "learningcc", &metric("over_reno"), "", ratio.estimate());
        rows.push(inside(over_reno, reno_events.mean.max(learning_events.mean)));
    }
    rows.push(runs::lowest(lab, "learningcc", "lowest_mean_alpha", "", &alphas));

    let line = |groups: &[&[Point]], value: &dyn Fn(&Point) -> f64| -> Vec<(f64, f64)> {
        losses.iter().zip(groups).map(|(loss, points)| (loss * 100.0, over(points, value).mean)).collect()
    };
    let chart = XyChart::new(Axis::new("random loss", "%").log(), Axis::new("throughput", "packets/s").log())
        .series(Series::points("reno", line(of_reno, &|p| p.rate)).slot(0))
        .series(Series::line("equation 9", line(of_reno, &|p| p.by_loss)).slot(1))
        .series(Series::points("learningcc", line(of_learning, &|p| p.rate)).slot(2))
        .series(Series::line("equation 11, loss as p", line(of_learning, &|p| p.by_loss)).slot(3))
        .series(Series::line("equation 11, back-offs as p", line(of_learning, &|p| p.by_events)).slot(4));
    let report = Report::new("LearningCC, the fluid model")
        .figure(Figure::chart("One flow on links without a rate, with a round trip of 10 ms.", chart));
    if others.is_empty() {
        return Ok(Findings { rows, report });
    }
    let rates = |groups: &[&[Point]]| groups.iter().map(|points| over(points, &|p| p.rate)).collect::<Vec<Estimate>>();
    let of_reno_rates = rates(of_reno);
    let model =
        |groups: &[&[Point]], value: &dyn Fn(&Point) -> f64| groups.iter().map(|points| over(points, value)).collect();
    let mut lines: Vec<(String, Vec<Estimate>)> = vec![
        ("equation 9 (Reno)".to_owned(), model(of_reno, &|p| p.by_loss)),
        ("equation 11, loss as p (LearningCC)".to_owned(), model(of_learning, &|p| p.by_loss)),
        ("reno".to_owned(), of_reno_rates.clone()),
        ("learningcc".to_owned(), rates(of_learning)),
    ];
    for (entry, groups) in others.iter().zip(of_others.chunks(losses.len())) {
        let rates = rates(groups);
        for ((loss, ours), reno) in losses.iter().zip(&rates).zip(&of_reno_rates) {
            rows.push(row(lab, entry.name, &format!("packets_per_s[loss={loss}]"), "", *ours));
            rows.push(lab.row(entry.name, &format!("over_reno[loss={loss}]"), "", Some(ours.mean / reno.mean)));
        }
        lines.push((entry.name.to_owned(), rates));
    }
    let last = |rates: &[Estimate]| rates.last().map_or(f64::NAN, |rate| rate.mean);
    lines.sort_by(|(_, one), (_, other)| last(other).total_cmp(&last(one)));
    let headers = ["".to_owned()].into_iter().chain(losses.iter().map(|loss| format!("{} % loss", loss * 100.0)));
    let table = Table::new("Packets a second, the most at the highest loss first", headers);
    let table = lines.into_iter().fold(table, |table, (name, rates)| {
        table.row([Cell::text(name)].into_iter().chain(rates.iter().map(|rate| Cell::number(rate.mean, 0))))
    });
    let report = report
        .paragraph(format!(
            "Other controllers beside the model, which is not theirs. Their links carry {:.0} packets a second, \
             since one that does not take losses for congestion would never stop growing without a rate.",
            others_packets_per_s(&lab.scenario)
        ))
        .table(table);
    Ok(Findings { rows, report })
}

/// `row`, not judged where the model's assumptions are not kept.
fn inside(row: Row, events_a_round: f64) -> Row {
    if events_a_round <= MOST_EVENTS {
        return row;
    }
    let why = format!("{events_a_round:.2} events a round trip, the model assumes at most {MOST_EVENTS}");
    row.outside(&why)
}

/// What the links of other controllers carry.
fn others_packets_per_s(scenario: &FlowScenario) -> f64 {
    OTHERS_RATE.bytes_per_sec() / (scenario.packets.data + scenario.packets.header).get() as f64
}

fn scenario(lab: &FlowLab, controller: &'static Entry, loss: f64, seed: u64, seconds: u64) -> FlowScenario {
    let mut scenario = lab.with_controller(controller, seed);
    scenario.length = Duration::SECOND * seconds;
    // A row when the start is over, and one at the end: the controller's counts at both.
    let warm = scenario.goodput_from.since(Time::ZERO);
    scenario.sample_every = Some(warm);
    let change = Change::At(vec![(Time::ZERO + FIRST, loss)]);
    scenario.links[0].loss = LossModel::Random(Course { first: LOSS_AT_FIRST, change });
    scenario
}

fn point(run: &FlowsMeasured, scenario: &FlowScenario, p: f64) -> Point {
    let flow = &run.flows[0];
    let span = run.length.as_secs_f64() - scenario.goodput_from.as_secs_f64();
    let packets = flow.goodput_bytes as f64 / scenario.packets.data.get() as f64;
    // The ways there and back are alike.
    let rtt = 2.0 * flow.one_way.least_ms().unwrap_or(f64::NAN) / 1e3;
    let grown = |name: &str| {
        let column = run.series.flows[0].trace.iter().find(|(known, _)| *known == name).map(|(_, column)| column);
        column.and_then(|column| Some((*column.first()?, *column.last()?)))
    };
    let odds = |p: f64| (1.0 - p) / p;
    let Some((before, after)) = grown("back_offs") else {
        // x = sqrt((1 - p) / (β p)) / rtt (9)
        let model = libm::sqrt(odds(p) / RENO_BETA) / rtt;
        let events_a_round = p * model * rtt;
        return Point { rate: packets / span, by_loss: model, by_events: model, mean_alpha: 1.0, events_a_round };
    };
    let (acks, alphas) = (grown("counted_acks").unwrap_or_default(), grown("mean_alpha").unwrap_or_default());
    let mean_alpha = (acks.1 * alphas.1 - acks.0 * alphas.0) / (acks.1 - acks.0);
    // x = sqrt(α (1 - p) / p) / sqrt(rtt (rtt - β_l rtt_min)) (11), where rtt = rtt_min
    let model = |p: f64| libm::sqrt(mean_alpha * odds(p)) / (rtt * libm::sqrt(1.0 - LEARNING_BETA));
    let sampled = (run.series.at.len() as f64 - 1.0) / (span / scenario.goodput_from.as_secs_f64());
    let events = (after - before) / (packets * sampled);
    let events_a_round = events * model(events) * rtt;
    Point { rate: packets / span, by_loss: model(p), by_events: model(events), mean_alpha, events_a_round }
}

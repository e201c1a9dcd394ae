//! [C3]'s baseline without learning: Cubic against Cubic whose window a coordinator sets.

use anabranch_control::flow::registry::Entry;
use anabranch_control::time::Duration;
use anabranch_proto::coordination::forecast::Expected;
use anabranch_sim::loss::LossModel;
use anabranch_sim::varying::Course;

use crate::{ExperimentError, Findings, FlowLab, Row};
use anabranch_lab::flows::{FlowsMeasured, measured::FlowMeasured};
use anabranch_report::{Axis, BarChart, BarSeries, Cell, Figure, Report, Series, Table, XyChart};
use anabranch_scenario::flows::{FlowScenario, Pattern};
use anabranch_stats as stats;

/// The paper compares these two.
const PAPER: [&str; 2] = ["cubic", STEERED];

/// The controller that the coordinator steers; all others are left alone.
const STEERED: &str = "c3-cubic";

/// The same where the coordinator expects cross traffic to come and go as the last time: ours, not the paper's.
const EXPECTING: &str = "c3-cubic-last-period";

/// Seeds on real packets, of a full run and a quick one: two runs with one seed differ there.
/// In the simulator nothing is random.
const SEEDS_ON_PACKETS: (u64, u64) = (3, 2);

/// A figure over the seeds: in the simulator nothing is random, and one run is exact.
fn row(lab: &FlowLab, subject: &str, metric: &str, unit: &str, of_seeds: &[f64]) -> Row {
    match of_seeds {
        [exact] => lab.row(subject, metric, unit, Some(*exact)),
        of_seeds => lab.mean_row(subject, metric, unit, of_seeds),
    }
}

/// The seeds that are run.
fn seeds(lab: &FlowLab) -> Vec<u64> {
    let count = lab.form((1, 1), SEEDS_ON_PACKETS);
    (lab.scenario.seed..lab.scenario.seed + count).collect()
}

/// The scenario under `controller`.
fn case(lab: &FlowLab, controller: &'static Entry, seed: u64, seconds: u64) -> FlowScenario {
    let mut scenario = lab.with_controller(controller, seed);
    scenario.length = Duration::SECOND * seconds;
    if controller.name != STEERED {
        scenario.steering = None;
        scenario.flows.iter_mut().for_each(|flow| flow.steered = false);
    }
    lab.as_carried(scenario)
}

/// Data delivered a second over the counted part of a run, in Mbit/s.
fn goodput(scenario: &FlowScenario, run: &FlowsMeasured) -> f64 {
    let counted = scenario.length.as_secs_f64() - scenario.goodput_from.as_secs_f64();
    run.flows[0].goodput_bytes as f64 * 8.0 / counted / 1e6
}

/// Short flows, one after the other: how long each takes.
pub fn completion(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let controllers = lab.controllers(&PAPER)?;
    let (seeds, seconds) = (seeds(lab), lab.form((300, 30), (60, 10)));
    let cases = |entry| seeds.iter().map(move |&seed| case(lab, entry, seed, seconds));
    let scenarios: Vec<FlowScenario> = controllers.iter().flat_map(|&entry| cases(entry)).collect();
    let runs = lab.run_all(&scenarios)?;
    // On real packets the handshake is the stack's.
    let mut with_0rtt = Vec::new();
    if lab.form((true, true), (false, false)) {
        with_0rtt = lab.run_all(&scenarios.into_iter().map(with_0rtt_of).collect::<Vec<_>>())?;
    }
    let of_seeds = |runs: &[FlowsMeasured], of: fn(&FlowMeasured) -> &[Duration]| -> Vec<Vec<f64>> {
        let mean = |run: &FlowsMeasured| mean_ms(of(&run.flows[0]));
        runs.chunks(seeds.len()).map(|runs| runs.iter().map(mean).collect()).collect()
    };
    let acked = of_seeds(&runs, |flow| &flow.completion_acked);
    let arrived = of_seeds(&runs, |flow| &flow.completion);
    let acked_0rtt = of_seeds(&with_0rtt, |flow| &flow.completion_acked);
    let cubic = controllers.iter().position(|entry| entry.name == "cubic");
    let mut rows = Vec::new();
    for (place, entry) in controllers.iter().enumerate() {
        rows.push(row(lab, entry.name, "completion_ms", "ms", &acked[place]));
        rows.push(row(lab, entry.name, "completion_at_receiver_ms", "ms", &arrived[place]));
        let over = |cubic: usize| acked[place].iter().zip(&acked[cubic]).map(|(ours, cubic)| ours / cubic).collect();
        let over: Vec<f64> = cubic.map_or_else(Vec::new, over);
        rows.push(row(lab, entry.name, "completion_over_cubic", "", &over));
        if let Some(of_seeds) = acked_0rtt.get(place) {
            rows.push(row(lab, entry.name, "completion_0rtt_ms", "ms", of_seeds));
        }
    }
    let names: Vec<String> = controllers.iter().map(|entry| lab.name(entry.name)).collect();
    let ours: Vec<Option<f64>> = acked.iter().map(|times| stats::mean(times)).collect();
    let mut chart = BarChart::new("Completion of 50 KiB", Axis::new("completion", "ms").from_zero(), names.clone())
        .series(BarSeries::new("ours", ours));
    for controller in PAPER {
        if let Some(paper) = lab.expected.paper(controller, "completion_ms") {
            chart = chart.reference(format!("paper, {controller}"), paper);
        }
    }
    let report = Report::new("C3, flow completion times").paragraph(
        "Each flow is a connection of its own: a round trip of handshake, then 50 KiB, until its sender knows that \
             all has arrived.",
    );
    let report = match controllers.len() > BarChart::MOST_SERIES {
        true => report.table(completions(&names, &runs.chunks(seeds.len()).collect::<Vec<_>>())),
        false => report.figure(Figure::chart("Mean completion time.", chart)),
    };
    Ok(Findings { rows, report })
}

/// The same connections, whose first data leave at once: 0-RTT (RFC 9001, 4.6), or a session that is there already.
fn with_0rtt_of(mut scenario: FlowScenario) -> FlowScenario {
    scenario.flows.iter_mut().for_each(|flow| flow.handshake = false);
    scenario
}

/// The mean in ms; NaN of none.
fn mean_ms(times: &[Duration]) -> f64 {
    stats::mean(&times.iter().map(|time| time.as_millis_f64()).collect::<Vec<f64>>()).unwrap_or(f64::NAN)
}

/// The quickest first, of all seeds together: bars of this many could not be told apart.
fn completions(names: &[String], runs: &[&[FlowsMeasured]]) -> Table {
    let all = |runs: &[FlowsMeasured], of: fn(&FlowMeasured) -> &[Duration]| -> Vec<Duration> {
        runs.iter().flat_map(|run| of(&run.flows[0])).copied().collect()
    };
    let times =
        |runs: &&[FlowsMeasured]| [all(runs, |flow| &flow.completion_acked), all(runs, |flow| &flow.completion)];
    let mut rows: Vec<(&String, [Vec<Duration>; 2])> = names.iter().zip(runs.iter().map(times)).collect();
    rows.sort_by(|(_, [one, _]), (_, [other, _])| mean_ms(one).total_cmp(&mean_ms(other)));
    let headers = ["controller", "completion (ms)", "at the receiver (ms)", "completed"];
    rows.into_iter().fold(Table::new("Mean completion time of 50 KiB", headers), |table, (name, [acked, arrived])| {
        table.row([
            Cell::text(name),
            Cell::number(mean_ms(&acked), 1),
            Cell::number(mean_ms(&arrived), 1),
            Cell::number(acked.len() as f64, 0),
        ])
    })
}

/// On times of the cross traffic, in seconds; it is off four times as long.
///
/// The paper does not tell them. That it is on a fifth of the time follows from its own
/// figure: 82.3 Mbit/s of goodput leave at most that of 100 Mbit/s beside 70 Mbit/s.
const ON_S: [f64; 5] = [0.2, 0.5, 1.0, 2.0, 5.0];
const OFF_OVER_ON: f64 = 4.0;

/// Periodic cross traffic: what is left of the link, and who takes it.
pub fn cross_traffic(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let controllers = lab.controllers(&PAPER)?;
    // Real packets: whole periods after the first ten seconds.
    let (seeds, seconds) = (seeds(lab), lab.form((400, 100), (60, 20)));
    let on = lab.form((&ON_S[..], &ON_S[..4]), (&ON_S[..4], &ON_S[1..3]));
    let mut contenders: Vec<(&str, &'static Entry, Expected)> =
        controllers.iter().map(|&entry| (entry.name, entry, Expected::LastSpan)).collect();
    let steered = controllers.iter().find(|entry| entry.name == STEERED);
    contenders.extend(steered.map(|&entry| (EXPECTING, entry, Expected::LastPeriod)));
    let mut scenarios = Vec::new();
    for &(_, entry, expected) in &contenders {
        for &on in on {
            for &seed in &seeds {
                let mut scenario = case(lab, entry, seed, seconds);
                scenario.steering.iter_mut().for_each(|steering| steering.expected = expected);
                let (on, off) = (Duration::from_secs_f64(on), Duration::from_secs_f64(on * OFF_OVER_ON));
                scenario.cross_traffic.iter_mut().for_each(|cross| cross.pattern = Pattern::Periodic { on, off });
                scenarios.push(scenario);
            }
        }
    }
    let runs = lab.run_all(&scenarios)?;
    let of_runs: Vec<f64> = scenarios.iter().zip(&runs).map(|(scenario, run)| goodput(scenario, run)).collect();
    let of_seeds: Vec<&[f64]> = of_runs.chunks(seeds.len()).collect();
    let goodputs: Vec<f64> = of_seeds.iter().map(|of_seeds| stats::mean(of_seeds).unwrap_or(f64::NAN)).collect();
    let mut rows = Vec::new();
    let mut chart =
        XyChart::new(Axis::new("on time of the cross traffic", "s").log(), Axis::new("goodput", "Mbit/s").from_zero());
    let place = |name: &str| contenders.iter().position(|&(other, ..)| other == name);
    let of = |contender: usize| &goodputs[contender * on.len()..][..on.len()];
    for (i, &(name, entry, expected)) in contenders.iter().enumerate() {
        for (&on, ours) in on.iter().zip(&of_seeds[i * on.len()..]) {
            rows.push(row(lab, name, &format!("goodput_mbit_s[on_s={on}]"), "Mbit/s", ours));
        }
        let points = on.iter().copied().zip(of(i).iter().copied()).collect();
        let said = lab.name(entry.name);
        let said = if expected == Expected::LastPeriod { format!("{said}, expects the last period") } else { said };
        chart = chart.series(Series::line(said, points).markers());
    }
    for name in [STEERED, EXPECTING] {
        let (Some(cubic), Some(steered)) = (place("cubic"), place(name)) else { continue };
        let of_seed = |contender: usize, seed: usize| -> Vec<f64> {
            of_seeds[contender * on.len()..][..on.len()].iter().map(|of_seeds| of_seeds[seed]).collect()
        };
        let over_seeds = |of: &dyn Fn(&[f64], &[f64]) -> f64| -> Vec<f64> {
            (0..seeds.len()).map(|seed| of(&of_seed(steered, seed), &of_seed(cubic, seed))).collect()
        };
        let gains = |steered: &[f64], cubic: &[f64]| -> Vec<f64> {
            steered.iter().zip(cubic).map(|(steered, cubic)| steered / cubic).collect()
        };
        let least = over_seeds(&|steered, cubic| gains(steered, cubic).into_iter().fold(f64::INFINITY, f64::min));
        let most = over_seeds(&|steered, cubic| gains(steered, cubic).into_iter().fold(0.0, f64::max));
        let best = over_seeds(&|steered, _| steered.iter().copied().fold(0.0, f64::max));
        rows.push(row(lab, name, "least_gain_over_cubic", "", &least));
        rows.push(row(lab, name, "largest_gain_over_cubic", "", &most));
        rows.push(row(lab, name, "largest_goodput_mbit_s", "Mbit/s", &best));
    }
    let report = Report::new("C3, periodic cross traffic")
        .paragraph(
            "70 Mbit/s of UDP are on a fifth of the time over a link of 100 Mbit/s. The paper: 59.0 Mbit/s for Cubic, \
             82.3 Mbit/s for Cubic steered; it does not tell the period.",
        )
        .small_multiples("Goodput over the cross traffic's on time.", chart);
    Ok(Findings { rows, report })
}

/// Seeds of a full run and a quick one where losses are random.
const SEEDS_OF_LOSS: (u64, u64) = (10, 3);

/// Probabilities of random loss behind the bottleneck.
const LOSSES: [f64; 5] = [0.0, 0.000_1, 0.001, 0.01, 0.03];

/// Random loss: who keeps the goodput that a link without losses gives.
pub fn loss(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let controllers = lab.controllers(&PAPER)?;
    let (seconds, seeds) = (lab.seconds(300, 60), lab.seconds(SEEDS_OF_LOSS.0, SEEDS_OF_LOSS.1));
    let mut scenarios = Vec::new();
    for entry in &controllers {
        for loss in LOSSES {
            for seed in lab.scenario.seed..lab.scenario.seed + seeds {
                let mut scenario = case(lab, entry, seed, seconds);
                if loss > 0.0 {
                    scenario.links[0].loss = LossModel::Random(Course::constant(loss));
                }
                scenarios.push(scenario);
            }
        }
    }
    let runs = lab.run_all(&scenarios)?;
    let of_runs: Vec<f64> = scenarios.iter().zip(&runs).map(|(scenario, run)| goodput(scenario, run)).collect();
    let of_losses: Vec<&[f64]> = of_runs.chunks(seeds as usize).collect();
    let mut rows = Vec::new();
    let mut chart = XyChart::new(Axis::new("random loss", "%"), Axis::new("goodput", "Mbit/s").from_zero());
    for (goodputs, entry) in of_losses.chunks(LOSSES.len()).zip(&controllers) {
        for (loss, ours) in LOSSES.iter().zip(goodputs) {
            let metric = format!("goodput_mbit_s[loss_percent={}]", loss * 100.0);
            rows.push(lab.mean_row(entry.name, &metric, "Mbit/s", ours));
        }
        // Of what is sent, at most the share that is not lost can be kept.
        let kept = goodputs[3].iter().zip(goodputs[0]).map(|(lossy, whole)| lossy / whole / (1.0 - LOSSES[3]));
        rows.push(lab.mean_row(entry.name, "kept_at_1_percent", "", &kept.collect::<Vec<f64>>()));
        let means = goodputs.iter().map(|of_seeds| stats::mean(of_seeds).unwrap_or(f64::NAN));
        let points = LOSSES.iter().map(|loss| loss * 100.0).zip(means).collect();
        chart = chart.series(Series::line(entry.name, points).markers());
    }
    let report = Report::new("C3, random loss")
        .paragraph("The paper gives no number: a steered flow keeps its goodput where losses are not congestion.")
        .small_multiples("Goodput over random loss.", chart);
    Ok(Findings { rows, report })
}

//! Figures 3 to 9: the block window alone, under changing delays, to several receivers,
//! and under a changing rate.

use anabranch_control::time::Time;
use anabranch_sim::varying::{Change, Course};

use super::super::{ExperimentError, Findings, FlowLab, Row};
use super::run::{BEGINNING_S, Run};
use super::{highest_row, lowest_row, others, with_seeds};
use anabranch_report::Report;
use anabranch_scenario::flows::Workload;
use anabranch_stats::{mean, std_dev};

const SUBJECT: &str = "block-window";

/// Seeds of a full and of a quick run.
const SEEDS: (u64, u64) = (30, 8);

/// What the paper leaves open in figure 6: parameters, and packets in a block.
const OPEN: [(&str, &str, u64); 5] = [
    ("blocks of 1 packet", "", 1),
    ("blocks of 4 packets", "", 4),
    ("blocks of 64 packets", "", 64),
    ("T = 1 ms", "period_ms = 1.0", 16),
    ("T = 1 ms, blocks of 1 packet", "period_ms = 1.0", 1),
];

/// `U` follows once it is so near what is available.
const NEAR: f64 = 0.1;

/// How long a change of rate or latency counts as new, in seconds.
const NEW_S: f64 = 1.0;

fn means(values: impl Iterator<Item = f64>) -> f64 {
    mean(&values.collect::<Vec<f64>>()).unwrap_or(f64::NAN)
}

/// Each run's value of `of`.
fn each(runs: &[Run<'_>], of: impl Fn(&Run<'_>) -> f64) -> Vec<f64> {
    runs.iter().map(of).collect()
}

fn dropped(runs: &[Run<'_>]) -> Vec<f64> {
    each(runs, |run| run.dropped() as f64)
}

/// Figures 3 to 5: the delay of the path changes every 10 s.
pub fn latency(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let scenarios = with_seeds(lab, SEEDS.0, SEEDS.1);
    let measured = lab.run_all(&scenarios)?;
    let runs = Run::all(&scenarios, &measured);
    let over = |run: &Run<'_>, of: &dyn Fn(usize) -> f64| -> Vec<f64> { run.rows_from(BEGINNING_S).map(of).collect() };
    let to_reference = |run: &Run<'_>| over(run, &|row| run.trace("rtt_0")[row] / run.reference_rtt(row));
    let settled = |run: &Run<'_>| -> Vec<f64> {
        let rows = changes(&run.scenario.links[run.scenario.flows[0].receivers[0].there[1]].delay, run);
        let rows = rows.into_iter().flat_map(|(from, to)| run.rows((from + NEW_S).max(BEGINNING_S), to));
        rows.map(|row| run.trace("rtt_0")[row] / run.reference_rtt(row)).collect()
    };
    let to_path = |run: &Run<'_>| over(run, &|row| run.trace("rtt_0")[row] / run.path_rtt(0, run.at(row)));
    let available = |run: &Run<'_>| run.available(Time::ZERO);
    let upload = |run: &Run<'_>| over(run, &|row| run.trace("upload_rate")[row] / 1e6 / available(run));
    let window = |run: &Run<'_>| over(run, &|row| run.trace("window")[row]);
    let empty = |run: &Run<'_>| over(run, &|row| f64::from(run.measured.series.backlog_ms[run.upload()][row] == 0.0));
    let average = |of: &dyn Fn(&Run<'_>) -> Vec<f64>| each(&runs, |run| means(of(run).into_iter()));
    let extreme = |of: &dyn Fn(&Run<'_>) -> Vec<f64>, choose: fn(f64, f64) -> f64| {
        each(&runs, |run| of(run).into_iter().reduce(choose).unwrap_or(f64::NAN))
    };
    let variation = each(&runs, |run| {
        let window = window(run);
        std_dev(&window).zip(mean(&window)).map_or(f64::NAN, |(deviation, mean)| deviation / mean)
    });
    let rows = vec![
        lab.never_row(SUBJECT, "lost_packets", "", &dropped(&runs)),
        lab.mean_row(SUBJECT, "rtt_over_reference_mean", "", &average(&to_reference)),
        highest_row(lab, SUBJECT, "rtt_over_reference_max", "", &extreme(&to_reference, f64::max)),
        highest_row(lab, SUBJECT, "rtt_over_reference_max_between_changes", "", &extreme(&settled, f64::max)),
        lowest_row(lab, SUBJECT, "rtt_over_path_min", "", &extreme(&to_path, f64::min)),
        lab.never_row(SUBJECT, "empty_queue_share", "", &average(&empty)),
        lab.mean_row(SUBJECT, "window_variation", "", &variation),
        lab.mean_row(SUBJECT, "upload_rate_over_available", "", &average(&upload)),
    ];
    let report = Report::new("Efthymiopoulos 2015, figures 3 to 5")
        .paragraph(
            "The latency from the router to the receiver is uniform between 2 and 22 ms, anew every 10 s. The paper: \
             the round trip stays at the reference and above the path's own, the window is stable, U is 4 Mbit/s. \
             The charts show the first seed.",
        )
        .figure(runs[0].round_trip_figure())
        .figures_side_by_side(vec![runs[0].window_figure(), runs[0].rate_figure()]);
    others::beside(lab, &scenarios, &measured, Findings { rows, report })
}

/// Each receiver's delay of the queue over `d_ref`.
fn queue_shares(run: &Run<'_>) -> Vec<f64> {
    let of = |receiver: usize| {
        let share = |row: usize| Some(run.new_queue_delay(receiver, row)? / run.trace("queue_reference")[row]);
        means(run.rows_from(BEGINNING_S).filter_map(share))
    };
    (0..run.receivers()).map(of).collect()
}

/// How far apart the receivers' are.
fn spread(shares: &[f64]) -> f64 {
    let extreme = |choose: fn(f64, f64) -> f64| shares.iter().copied().reduce(choose).unwrap_or(f64::NAN);
    extreme(f64::max) - extreme(f64::min)
}

fn queue_rows(lab: &FlowLab, runs: &[Run<'_>]) -> Vec<Row> {
    let shares: Vec<Vec<f64>> = runs.iter().map(queue_shares).collect();
    let row = |metric: &str, of: &dyn Fn(&[f64]) -> f64| {
        let of_runs: Vec<f64> = shares.iter().map(|shares| of(shares)).collect();
        // Where nothing is random there is one run.
        if let [exact] = of_runs[..] {
            lab.row(SUBJECT, metric, "", Some(exact))
        } else {
            lab.mean_row(SUBJECT, metric, "", &of_runs)
        }
    };
    let mut rows: Vec<Row> = (0..runs[0].receivers())
        .map(|receiver| row(&format!("queue_over_reference[receiver={receiver}]"), &|shares| shares[receiver]))
        .collect();
    rows.push(row("mean_queue_over_reference", &|shares| mean(shares).unwrap_or(f64::NAN)));
    rows.push(row("spread_over_reference", &spread));
    rows
}

/// Figure 6: four receivers at different distances.
pub fn receivers(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    // Nothing in it is random.
    let scenarios = with_seeds(lab, 1, 1);
    let measured = lab.run_all(&scenarios)?;
    let runs = Run::all(&scenarios, &measured);
    let mut rows = queue_rows(lab, &runs);
    rows.push(lab.row(SUBJECT, "lost_packets", "", Some(runs[0].dropped() as f64)));
    for (name, parameters, packets) in OPEN {
        let mut scenario = scenarios[0].clone();
        scenario.flows[0].parameters = parameters.parse().expect("the parameters are TOML");
        scenario.flows[0].workload = Workload::Blocks(scenario.packets.data * packets);
        let (scenarios, measured) = ([scenario.clone()], lab.run_all(&[scenario])?);
        let run = Run { scenario: &scenarios[0], measured: &measured[0] };
        let (shares, subject) = (queue_shares(&run), format!("{SUBJECT}, {name}"));
        rows.push(lab.row(&subject, "mean_queue_over_reference", "", mean(&shares)));
        rows.push(lab.row(&subject, "spread_over_reference", "", Some(spread(&shares))));
    }
    let report = Report::new("Efthymiopoulos 2015, figure 6")
        .paragraph(
            "Blocks go to receivers 12, 22, 7 and 16 ms behind the router in turn. The paper: the queue's delays \
             coincide near d_ref.",
        )
        .figure(runs[0].queue_figure());
    others::beside(lab, &scenarios, &measured, Findings { rows, report })
}

/// Figures 7 to 9: the rate of the upload changes every 10 s.
pub fn bandwidth(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let scenarios = with_seeds(lab, SEEDS.0, SEEDS.1);
    let measured = lab.run_all(&scenarios)?;
    let runs = Run::all(&scenarios, &measured);
    let utilisation = |run: &Run<'_>| {
        let rows = run.rows_from(BEGINNING_S);
        let available = rows.clone().map(|row| run.available(run.before(row))).sum::<f64>();
        run.goodput(0)[rows].iter().sum::<f64>() / available
    };
    let error =
        |run: &Run<'_>, row: usize| (run.trace("upload_rate")[row] / 1e6 / run.available(run.before(row)) - 1.0).abs();
    let settled = |run: &Run<'_>| {
        let spans = spans(run);
        means(spans.iter().flat_map(|&(from, to)| run.rows(from + NEW_S, to)).map(|row| error(run, row)))
    };
    let follow = |run: &Run<'_>| {
        let spans = spans(run);
        means(spans.iter().skip(1).map(|&(from, to)| {
            let first = run.rows(from, to).find(|&row| run.at(row).as_secs_f64() > from && error(run, row) < NEAR);
            first.map_or(to, |row| run.at(row).as_secs_f64()) - from
        }))
    };
    let mut rows = vec![
        lab.mean_row(SUBJECT, "utilisation", "", &each(&runs, utilisation)),
        lab.mean_row(SUBJECT, "follow_s", "s", &each(&runs, follow)),
        lab.mean_row(SUBJECT, "upload_rate_error", "", &each(&runs, settled)),
        lab.mean_row(SUBJECT, "lost_packets", "", &dropped(&runs)),
        lab.mean_row(SUBJECT, "runs_with_a_loss", "", &each(&runs, |run| f64::from(run.dropped() > 0))),
        lab.mean_row(
            SUBJECT,
            "reference_changes",
            "",
            &each(&runs, |run| run.reference_changes(run.rows_from(BEGINNING_S))),
        ),
    ];
    rows.extend(queue_rows(lab, &runs));
    // One in which packets were lost shows more, as the paper's figure does.
    let shown = runs.iter().find(|run| run.dropped() > 0).unwrap_or(&runs[0]);
    let report = Report::new("Efthymiopoulos 2015, figures 7 to 9")
        .paragraph(format!(
            "The rate of the upload is uniform between 1 and 5 Mbit/s, anew every 10 s. The paper: U follows at once, \
             and d_ref is calibrated again when packets are lost. The charts show seed {}, the first with a loss.",
            shown.scenario.seed
        ))
        .figures_side_by_side(vec![shown.rate_figure(), shown.window_figure()])
        .figure(shown.queue_figure());
    others::beside(lab, &scenarios, &measured, Findings { rows, report })
}

/// Between two changes of the upload's rate, in seconds.
fn spans(run: &Run<'_>) -> Vec<(f64, f64)> {
    changes(run.scenario.links[run.upload()].rate.as_ref().expect("the upload has a rate"), run)
}

/// Between two changes of `course`, in seconds.
fn changes<T>(course: &Course<T>, run: &Run<'_>) -> Vec<(f64, f64)> {
    let Change::At(changes) = &course.change else { return Vec::new() };
    let mut begins = vec![0.0];
    begins.extend(changes.iter().map(|(at, _)| at.as_secs_f64()));
    let ends = begins[1..].iter().copied().chain([run.measured.length.as_secs_f64()]);
    begins.iter().copied().zip(ends).collect()
}

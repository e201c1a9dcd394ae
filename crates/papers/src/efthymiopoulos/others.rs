//! Other controllers in the block window's place: the same blocks to the same receivers. Each
//! traces values of its own, so what is compared is what the network shows of all of them:
//! what is delivered, what waits at the upload, and what is dropped there.

use super::super::{ExperimentError, Findings, FlowLab};
use super::run::{BEGINNING_S, Run};
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_report::{Cell, Table};
use anabranch_stats::{mean, percentile};

/// What is compared: metric, unit, and the digits of a table.
const METRICS: [(&str, &str, usize); 5] = [
    ("utilisation", "", 3),
    ("upload_wait_mean_ms", "ms", 1),
    ("upload_wait_p95_ms", "ms", 1),
    ("empty_queue_share", "", 3),
    ("lost_packets", "", 0),
];

/// Adds each other controller that was asked for to what the block window's runs found, if
/// any was.
pub fn beside(
    lab: &FlowLab,
    scenarios: &[FlowScenario],
    own: &[FlowsMeasured],
    findings: Findings,
) -> Result<Findings, ExperimentError> {
    let Findings { mut rows, report } = findings;
    let others = lab.others(&[scenarios[0].flows[0].controller.name])?;
    if others.is_empty() {
        return Ok(Findings { rows, report });
    }
    let mut compared = vec![(&*own[0].flows[0].controller, shown(&Run::all(scenarios, own)))];
    for entry in others {
        let mut scenarios = scenarios.to_vec();
        for scenario in &mut scenarios {
            scenario.flows[0].controller = entry;
            scenario.flows[0].parameters = toml::Table::new();
        }
        let measured = lab.run_all(&scenarios)?;
        let shown = shown(&Run::all(&scenarios, &measured));
        for ((metric, unit, _), of_runs) in METRICS.iter().zip(&shown) {
            rows.push(lab.mean_row(entry.name, metric, unit, of_runs));
        }
        compared.push((entry.name, shown));
    }
    Ok(Findings { rows, report: report.table(table(compared)) })
}

/// Each metric over the runs.
fn shown(runs: &[Run<'_>]) -> [Vec<f64>; METRICS.len()] {
    let each = |of: &dyn Fn(&Run<'_>) -> f64| runs.iter().map(of).collect::<Vec<f64>>();
    let waits = |run: &Run<'_>| run.measured.series.backlog_ms[run.upload()][run.rows_from(BEGINNING_S)].to_vec();
    [
        each(&|run| {
            let rows = run.rows_from(BEGINNING_S);
            let available: f64 = rows.clone().map(|row| run.available(run.before(row))).sum();
            run.goodput(0)[rows].iter().sum::<f64>() / available
        }),
        each(&|run| mean(&waits(run)).unwrap_or(f64::NAN)),
        each(&|run| percentile(&waits(run), 0.95).unwrap_or(f64::NAN)),
        each(&|run| {
            mean(&waits(run).into_iter().map(|wait| f64::from(wait == 0.0)).collect::<Vec<f64>>()).unwrap_or(f64::NAN)
        }),
        each(&|run| run.dropped() as f64),
    ]
}

/// The highest utilisation first.
fn table(compared: Vec<(&str, [Vec<f64>; METRICS.len()])>) -> Table {
    let means =
        |shown: &[Vec<f64>]| shown.iter().map(|of_runs| mean(of_runs).unwrap_or(f64::NAN)).collect::<Vec<f64>>();
    let mut lines: Vec<(&str, Vec<f64>)> = compared.iter().map(|(name, shown)| (*name, means(shown))).collect();
    lines.sort_by(|(_, one), (_, other)| other[0].total_cmp(&one[0]));
    let headers = [
        "controller",
        "delivered of what is available",
        "mean wait at the upload (ms)",
        "95th percentile (ms)",
        "share of time with an empty queue",
        "dropped packets",
    ];
    let table = Table::new("Every controller with the same blocks and receivers: means over the runs", headers);
    lines.into_iter().fold(table, |table, (name, values)| {
        let cells = values.iter().zip(METRICS).map(|(value, (_, _, digits))| Cell::number(*value, digits));
        table.row([Cell::text(name)].into_iter().chain(cells))
    })
}

//! A sweep's numbers: a row for each point, and a mean over the seeds for each
//! combination.

use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Outcome, Sweep};
use anabranch_report::output::{Column, OutputError, Staged, Table, stage};
use anabranch_scenario::file::AnyScenario;
use anabranch_stats::{estimate_of_runs, mean};

/// A number that tables, pages and summaries show of a combination, with label and unit.
pub type Metric = (&'static str, &'static str, &'static str);

/// Those of an overlay; the first ones are drawn.
const OVERLAY_METRICS: &[Metric] = &[
    ("received_bytes_per_s", "received by a node", "bytes/s"),
    ("drop_percent", "drops", "%"),
    ("convergence_s", "convergence", "s"),
    ("timeouts_per_s", "timeouts", "1/s"),
    ("late_acks_per_s", "late ACKs", "1/s"),
];

/// Those of flows over links; the first ones are drawn.
const FLOW_METRICS: &[Metric] = &[
    ("goodput_mbit_s", "goodput of all flows", "Mbit/s"),
    ("one_way_p50_ms", "median one-way delay", "ms"),
    ("jain_index", "Jain's index", ""),
    ("busiest_link_utilisation", "utilisation of the busiest link", ""),
    ("loss_percent", "lost", "%"),
    ("completion_mean_s", "mean completion time", "s"),
];

/// Those of a stream; the first ones are drawn.
const STREAM_METRICS: &[Metric] = &[
    ("delivered_percent", "delivered to honest viewers", "%"),
    ("savings_percent", "saved at the server", "%"),
    ("overhead_percent", "overhead", "%"),
    ("startup_p95_s", "start, 95 %", "s"),
    ("latency_p95_s", "delay, 95 %", "s"),
    ("slices_back_p99_s", "slices back, 99 %", "s"),
];

/// Those of an onion overlay; the first ones are drawn.
const ONION_METRICS: &[Metric] = &[
    ("limit_percent", "of what relays can carry", "%"),
    ("goodput_bytes_per_s", "read by users and services", "bytes/s"),
    ("refused_percent", "refused by relays", "%"),
    ("lost_percent", "lost of what users sent", "%"),
    ("stall_max_s", "longest stall", "s"),
    ("jain_index", "Jain's index", ""),
    ("greedy_attraction", "greedy relays attract, over their weight", ""),
    ("dropper_attraction", "droppers attract, over their weight", ""),
    ("draw_entropy_bits", "entropy of a drawn relay", "bits"),
];

/// The column that says why a point has no run.
const FAILED: &str = "failed";

/// The confidence of intervals over seeds.
const CONFIDENCE: f64 = 0.95;

/// The outcomes of one combination, one for each seed.
#[derive(Clone, Copy, Debug)]
pub struct Combination<'s> {
    /// The values, in the order of the keys.
    pub values: &'s [String],
    /// One for each seed.
    pub outcomes: &'s [Outcome],
}

impl Combination<'_> {
    /// With how many seeds there was a run.
    pub fn seeds(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.failed().is_none()).count()
    }

    /// The mean of a number over the seeds, and half the width of its 95 % interval if
    /// there are two seeds or more; none if no seed has the number.
    pub fn mean(&self, metric: &str) -> Option<(f64, Option<f64>)> {
        let values: Vec<f64> = self.outcomes.iter().filter_map(|outcome| outcome.metric(metric)).collect();
        let center = mean(&values)?;
        Some((center, estimate_of_runs(&values, CONFIDENCE).map(|interval| interval.half_width)))
    }
}

impl Sweep {
    /// The numbers that are shown of a combination.
    pub fn metrics(&self) -> &'static [Metric] {
        match self.points.first().map(|point| &point.scenario) {
            Some(AnyScenario::Flows(_)) => FLOW_METRICS,
            Some(AnyScenario::Stream(_)) => STREAM_METRICS,
            Some(AnyScenario::Onion(_)) => ONION_METRICS,
            _ => OVERLAY_METRICS,
        }
    }

    /// The combinations in order, with what was measured at `self.points`.
    pub fn combinations<'s>(&'s self, outcomes: &'s [Outcome]) -> Vec<Combination<'s>> {
        assert_eq!(outcomes.len(), self.points.len(), "every point has an outcome");
        let mut start = 0;
        let groups = self.points.chunk_by(|a, b| a.values == b.values);
        groups
            .map(|points| {
                let outcomes = &outcomes[start..start + points.len()];
                start += points.len();
                Combination { values: &points[0].values, outcomes }
            })
            .collect()
    }

    /// Every point, every combination, and the points that have no run, in one object.
    pub fn to_json(&self, outcomes: &[Outcome]) -> Value {
        let set = |values: &[String]| -> Map<String, Value> {
            self.grid.iter().zip(values).map(|(key, value)| (key.key.clone(), json!(value))).collect()
        };
        let points = self.points.iter().zip(outcomes).map(|(point, outcome)| {
            let is_there = outcome.failed().is_none();
            let mut object = json!({
                "set": set(&point.values),
                "seed": point.seed,
                "controller": is_there.then_some(&outcome.controller),
                "metrics": outcome.metrics,
                "packet_hops": is_there.then_some(outcome.packet_hops),
            });
            if let Some(failed) = outcome.failed() {
                object["failed"] = json!(failed);
            }
            object
        });
        let combinations = self.combinations(outcomes).into_iter().map(|combination| {
            let means: Map<String, Value> = self
                .metrics()
                .iter()
                .map(|(metric, ..)| {
                    let found = combination.mean(metric);
                    let (mean, ci95) = (found.map(|found| found.0), found.and_then(|found| found.1));
                    ((*metric).to_owned(), json!({ "mean": mean, "ci95": ci95 }))
                })
                .collect();
            json!({ "set": set(combination.values), "seeds": combination.seeds(), "metrics": means })
        });
        json!({
            "points": points.collect::<Vec<_>>(),
            "combinations": combinations.collect::<Vec<_>>(),
            "failed": self.failures(outcomes),
        })
    }

    /// A row for each point: the grid's values as they were written, the seed, every number. Where points have no run,
    /// a column says why; their numbers are none.
    pub fn table(&self, outcomes: &[Outcome]) -> Table {
        let mut table = Table::new().meta("version", env!("CARGO_PKG_VERSION")).meta("scenario", &self.text);
        if let Some(point) = self.points.first() {
            table = table.meta("first_point", point.scenario.to_toml());
        }
        for (index, key) in self.grid.iter().enumerate() {
            let values = self.points.iter().map(|point| point.values[index].clone()).collect();
            table = table.column(&key.key, Column::Str(values));
        }
        table = table
            .column("seed", Column::U64(self.points.iter().map(|point| point.seed).collect()))
            .column("controller", Column::Str(outcomes.iter().map(|outcome| outcome.controller.clone()).collect()))
            .column("packet_hops", Column::U64(outcomes.iter().map(|outcome| outcome.packet_hops).collect()));
        for metric in metric_names(outcomes) {
            let values = outcomes.iter().map(|outcome| outcome.metric(metric).unwrap_or(f64::NAN));
            table = table.column(metric, Column::F64(values.collect()));
        }
        if outcomes.iter().any(|outcome| outcome.failed().is_some()) {
            let why = outcomes.iter().map(|outcome| outcome.failed().unwrap_or_default().to_owned());
            table = table.column(FAILED, Column::Str(why.collect()));
        }
        table
    }

    /// A row for each combination: the grid's values, how many seeds, and of each number that is shown the mean over the
    /// seeds and half the width of its 95 % interval, in a column of its own with `_ci95` behind the name.
    pub fn means_table(&self, outcomes: &[Outcome]) -> Table {
        let combinations = self.combinations(outcomes);
        let mut table = Table::new().meta("version", env!("CARGO_PKG_VERSION")).meta("scenario", &self.text);
        for (index, key) in self.grid.iter().enumerate() {
            let values = combinations.iter().map(|combination| combination.values[index].clone()).collect();
            table = table.column(&key.key, Column::Str(values));
        }
        let seeds = combinations.iter().map(|combination| combination.seeds() as u64).collect();
        table = table.column("seeds", Column::U64(seeds));
        for (metric, ..) in self.metrics() {
            let found: Vec<_> = combinations.iter().map(|combination| combination.mean(metric)).collect();
            let mean = found.iter().map(|found| found.map_or(f64::NAN, |(mean, _)| mean)).collect();
            let half = found.iter().map(|found| found.and_then(|(_, half)| half).unwrap_or(f64::NAN)).collect();
            table = table.column(*metric, Column::F64(mean)).column(format!("{metric}_ci95"), Column::F64(half));
        }
        table
    }

    pub(super) fn stage_csv(&self, outcomes: &[Outcome], path: &Path) -> Result<Staged, OutputError> {
        let metrics: Vec<&str> = metric_names(outcomes).collect();
        let keys = self.grid.iter().map(|key| key.key.as_str());
        let has_failed = outcomes.iter().any(|outcome| outcome.failed().is_some());
        let header = keys.chain(["seed", "controller", "packet_hops"]).chain(metrics.iter().copied());
        let header = header.chain(has_failed.then_some(FAILED));
        let mut lines = vec![header.map(quoted).collect::<Vec<_>>().join(",")];
        for (point, outcome) in self.points.iter().zip(outcomes) {
            let numbers = metrics.iter().map(|metric| outcome.metric(metric).map_or(String::new(), |n| n.to_string()));
            let cells = point.values.iter().map(|value| quoted(value)).chain([
                point.seed.to_string(),
                quoted(&outcome.controller),
                if outcome.failed().is_some() { String::new() } else { outcome.packet_hops.to_string() },
            ]);
            let why = has_failed.then(|| quoted(outcome.failed().unwrap_or_default()));
            lines.push(cells.chain(numbers).chain(why).collect::<Vec<_>>().join(","));
        }
        stage(path, |writer| lines.iter().try_for_each(|line| writeln!(writer, "{line}")))
    }
}

fn metric_names(outcomes: &[Outcome]) -> impl Iterator<Item = &str> {
    let measured = outcomes.iter().find(|outcome| outcome.failed().is_none());
    measured.into_iter().flat_map(|outcome| outcome.metrics.keys().map(String::as_str))
}

/// A cell of a CSV file. RFC 4180, 2.6 and 2.7.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_with_a_comma_is_quoted() {
        assert_eq!(quoted("a"), "a");
        assert_eq!(quoted("[1, \"b\"]"), "\"[1, \"\"b\"\"]\"");
    }
}

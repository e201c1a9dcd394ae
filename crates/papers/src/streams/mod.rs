//! Live streams over their viewers: what those get and what it costs, case by case.
//!
//! Rows have the name of the mode that ran as their subject: `hybrid`, `trees` (the thesis's system alone) or
//! `mesh` (that of [Efthymiopoulos 2015] alone).

pub mod churn;
pub mod controllers;
pub mod crowd;
pub mod liars;
pub mod live_trees;
mod matrix;
pub mod modes;
pub mod steady;
pub mod system;
pub mod trees;

use anabranch_control::units::Rate;
use anabranch_lab::stream::StreamMeasured;
use anabranch_proto::stream::message::Mode;
use anabranch_proto::stream::on_wire;
use anabranch_proto::stream::packet::MAX_PACKET;
use anabranch_report::{Cell, Table};
use anabranch_scenario::stream::{Rates, StreamScenario};

use super::runs::{Estimate, OfRuns};
use super::{ExperimentError, Row, StreamLab};

/// Bytes of a packet of the stream with all headers.
const PACKET_ON_WIRE: f64 = on_wire::PACKET as f64;

/// Something that is measured of a run: name, unit, and how. Not a number where the run has none.
type Metric = (&'static str, &'static str, fn(&StreamMeasured) -> f64);

const DELIVERED: Metric = ("delivered_percent", "%", |run| run.metrics.delivered_percent);
const SAVINGS: Metric = ("savings_percent", "%", |run| run.metrics.savings_percent);
const OVERHEAD: Metric = ("overhead_percent", "%", |run| run.metrics.overhead_percent);
const STARTUP: Metric = ("startup_p95_s", "s", |run| run.metrics.startup_p95_s);
const LATENCY: Metric = ("latency_p95_s", "s", |run| run.metrics.latency_p95_s);
const SLICES_BACK: Metric = ("slices_back_p99_s", "s", |run| run.metrics.slices_back_p99_s);
/// Of those that came, who never had a second of the stream whole.
const NOT_STARTED: Metric = ("not_started", "", |run| (run.metrics.clients - run.metrics.started) as f64);
/// From the beginning on, also while others come.
const SKIPPED_EVER: Metric =
    ("skipped_ever", "packets", |run| run.seconds.iter().map(|second| second.skipped as f64).sum());

/// What a setting changes in the experiment's scenario.
type Change = fn(&mut StreamScenario);

/// The name of a mode in scenarios and rows.
fn name_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Trees => "trees",
        Mode::Mesh => "mesh",
        Mode::Hybrid => "hybrid",
    }
}

/// Gives all viewers the same upload, such that server and viewers together can send `times` what all viewers
/// take, with the headers of its packets.
fn set_capacity(scenario: &mut StreamScenario, times: f64) {
    let (stream, audience) = (&scenario.stream, &mut scenario.audience);
    let clients = audience.clients as f64;
    let demand = stream.bitrate.bytes_per_sec() * (PACKET_ON_WIRE / MAX_PACKET as f64) * clients;
    let upload = (times * demand - audience.server_upload.bytes_per_sec()) / clients;
    audience.upload = Rates::InTurn(vec![Rate::from_bytes_per_sec_f64(upload.max(1.0))]);
}

/// One setting of an experiment, and the scenario that it is.
struct Setting {
    name: String,
    subject: &'static str,
    scenario: StreamScenario,
}

impl Setting {
    fn new(name: impl Into<String>, scenario: StreamScenario) -> Setting {
        Setting { name: name.into(), subject: name_of(scenario.stream.mode), scenario }
    }
}

/// Runs every setting with the same seeds; each metric's mean is a row.
fn run_settings(
    lab: &StreamLab,
    settings: &[Setting],
    seeds: u64,
    metrics: &[Metric],
) -> Result<(Vec<Row>, Table), ExperimentError> {
    let scenarios: Vec<StreamScenario> = settings.iter().map(|setting| setting.scenario.clone()).collect();
    Ok(rows_of(lab, settings, &lab.run_seeds(&scenarios, seeds)?, metrics))
}

/// Of each metric of each setting's runs, the mean as a row.
fn rows_of(
    lab: &StreamLab,
    settings: &[Setting],
    measured: &[Vec<StreamMeasured>],
    metrics: &[Metric],
) -> (Vec<Row>, Table) {
    let headers = ["setting", "mode"].map(str::to_owned).into_iter();
    let labels = metrics.iter().map(|(name, unit, _)| match *unit {
        "" => (*name).to_owned(),
        unit => format!("{name} ({unit})"),
    });
    let mut table = Table::new("Every setting", headers.chain(labels));
    let mut rows = Vec::new();
    for (setting, runs) in settings.iter().zip(measured) {
        let mut cells = vec![Cell::text(&setting.name), Cell::text(setting.subject)];
        for (name, unit, of) in metrics {
            let values = OfRuns::of(runs, |run| Some(of(run)));
            rows.push(lab.mean_row(setting.subject, &format!("{name}[{}]", setting.name), unit, values.values()));
            let Estimate { mean, half_width } = values.estimate();
            cells.push(half_width.map_or(Cell::number(mean, 3), |half| Cell::interval(mean, half)));
        }
        table = table.row(cells);
    }
    (rows, table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_viewers_can_send_as_many_times_the_demand_as_was_asked_for() {
        let mut scenario = StreamScenario::standard();
        set_capacity(&mut scenario, 1.25);
        let Rates::InTurn(uploads) = &scenario.audience.upload else { panic!("all have the same") };
        let all = uploads[0].bytes_per_sec() * 100.0 + scenario.audience.server_upload.bytes_per_sec();
        // 2 Mbit/s of video, and 71 bytes of headers for each 1316.
        let demand = 100.0 * 250_000.0 * 1387.0 / 1316.0;
        assert!((all / demand - 1.25).abs() < 1e-6, "{}", all / demand);
    }
}

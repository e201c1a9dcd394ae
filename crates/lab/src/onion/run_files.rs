//! What a run of an onion scenario leaves behind: its numbers as JSON, every second as a table, and a report.

use std::io::Write;
use std::path::{Path, PathBuf};

use anabranch_report::output::{Column, OutputError, Staged, Table, create_dir, stage};
use anabranch_report::{Axis, Cell, Figure, Report, Series, Table as ReportTable, XyChart};
use anabranch_scenario::file::onion_run_to_toml;
use anabranch_scenario::onion_run::OnionRunScenario;
use serde_json::{Map, Value, json};

use super::{OnionMeasured, OnionMetrics, OnionSecond};

/// A run that is over, or was interrupted.
#[derive(Clone, Copy, Debug)]
pub struct OnionFinished<'r> {
    /// What was to be run.
    pub scenario: &'r OnionRunScenario,
    /// What happened.
    pub measured: &'r OnionMeasured,
    /// What the user calls the scenario.
    pub name: &'r str,
    /// How long it took on the clock, in seconds.
    pub wall_s: f64,
}

/// A line of a chart over time: its name, and what it shows of a second.
type Line = (&'static str, fn(&OnionSecond) -> u64);

/// A number that was measured, or none where nothing was: not a number is none.
fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}

impl OnionMetrics {
    /// Bytes a second that users and services read.
    pub fn goodput_bytes_per_s(&self) -> f64 {
        self.download_bytes_per_s + self.upload_bytes_per_s
    }

    /// Each number by its name; null where there was nothing to measure.
    pub fn to_map(&self) -> Map<String, Value> {
        [
            ("simulated_s", number(self.simulated.as_secs_f64())),
            ("counted_s", number(self.counted.as_secs_f64())),
            ("users", json!(self.users)),
            ("goodput_bytes_per_s", number(self.goodput_bytes_per_s())),
            ("download_bytes_per_s", number(self.download_bytes_per_s)),
            ("upload_bytes_per_s", number(self.upload_bytes_per_s)),
            ("limit_bytes_per_s", number(self.limit_bytes_per_s)),
            ("limit_percent", number(100.0 * self.limit_share)),
            ("jain_index", number(self.jain_index)),
            ("refused_percent", number(self.refused_percent)),
            ("lost_percent", number(self.lost_percent)),
            ("stall_max_s", number(self.stall_max_s)),
            ("stall_p95_s", number(self.stall_p95_s)),
            ("finished", json!(self.finished)),
            ("finish_p50_s", number(self.finish_p50_s)),
            ("greedy_attraction", number(self.greedy_attraction)),
            ("dropper_attraction", number(self.dropper_attraction)),
            ("draw_entropy_bits", number(self.draw_entropy_bits)),
            ("loops", json!(self.loops)),
            ("loops_returned_percent", number(self.loops_returned_percent)),
            ("overhead_percent", number(self.overhead_percent)),
            ("ended_sessions", json!(self.ended_sessions)),
            ("wrong", json!(self.wrong)),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    /// The numbers for people, with their labels.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let seconds = |value: f64| if value.is_finite() { format!("{value:.2} s") } else { "-".to_owned() };
        let percent = |value: f64| if value.is_finite() { format!("{value:.2} %") } else { "-".to_owned() };
        let rate = |value: f64| if value.is_finite() { format!("{:.1} kB/s", value / 1e3) } else { "-".to_owned() };
        let times =
            |value: f64| if value.is_finite() { format!("{value:.2} times its weight") } else { "-".to_owned() };
        let mut rows = vec![
            ("users", self.users.to_string()),
            ("downloaded", rate(self.download_bytes_per_s)),
            ("uploaded", rate(self.upload_bytes_per_s)),
            ("of what relays can carry", percent(100.0 * self.limit_share)),
            ("Jain's index of users", format!("{:.3}", self.jain_index)),
            ("refused by relays", percent(self.refused_percent)),
            ("lost of what users sent", percent(self.lost_percent)),
            ("longest stall", seconds(self.stall_max_s)),
            ("entropy of a drawn relay", format!("{:.2} bits", self.draw_entropy_bits)),
            ("packets beyond the least", percent(self.overhead_percent)),
        ];
        if self.greedy_attraction.is_finite() {
            rows.push(("greedy relays attract", times(self.greedy_attraction)));
        }
        if self.dropper_attraction.is_finite() {
            rows.push(("droppers attract", times(self.dropper_attraction)));
        }
        if self.finished > 0 {
            rows.push(("downloads that are whole", format!("{} in {}", self.finished, seconds(self.finish_p50_s))));
        }
        if self.loops > 0 {
            rows.push(("loops that came back", format!("{} of {}", percent(self.loops_returned_percent), self.loops)));
        }
        if self.ended_sessions > 0 {
            rows.push(("sessions that ended early", self.ended_sessions.to_string()));
        }
        rows
    }
}

impl OnionFinished<'_> {
    /// Whether the run was stopped before its end.
    pub fn interrupted(&self) -> bool {
        self.measured.metrics.simulated < self.scenario.duration
    }

    /// What placed packets, there and back.
    fn placement(&self) -> String {
        self.scenario.onion.controllers()
    }

    /// The run in one object.
    pub fn to_json(&self) -> Value {
        json!({
            "metrics": self.measured.metrics.to_map(),
            "packet_hops": self.measured.metrics.packet_hops,
            "wall_s": self.wall_s,
            "seed": self.scenario.seed,
            "controller": self.placement(),
            "scenario": self.name,
            "interrupted": self.interrupted(),
        })
    }

    /// Every second as a row.
    pub fn series(&self) -> Table {
        let seconds = &self.measured.seconds;
        let column = |of: fn(&OnionSecond) -> u64| Column::U64(seconds.iter().map(of).collect());
        Table::new()
            .meta("scenario", onion_run_to_toml(self.scenario))
            .meta("controller", self.placement())
            .meta("seed", self.scenario.seed.to_string())
            .meta("interrupted", self.interrupted().to_string())
            .column("begin_s", Column::U32((0..seconds.len() as u32).collect()))
            .column("downloaded_bytes", column(|second| second.downloaded))
            .column("uploaded_bytes", column(|second| second.uploaded))
            .column("relayed_packets", column(|second| second.packets))
            .column("refused_packets", column(|second| second.refused))
    }

    /// The run as a page. Equal runs make equal pages.
    pub fn report(&self) -> Report {
        let metrics = &self.measured.metrics;
        let mut report = Report::new(self.name)
            .meta("seed", self.scenario.seed.to_string())
            .meta("placement", self.placement())
            .meta("version", env!("CARGO_PKG_VERSION"));
        if self.interrupted() {
            report = report.paragraph(format!(
                "Interrupted: these are the first {} of {}.",
                metrics.simulated, self.scenario.duration
            ));
        }
        let rows = metrics.rows().into_iter();
        let table = rows.fold(ReportTable::new("What users got", ["", ""]), |table, (label, value)| {
            table.row([Cell::text(label), Cell::text(value)])
        });
        report
            .paragraph(
                "What is measured here is what users can have. It says nothing of what hides them: whoever runs a \
                 user's guard and the service's relay links both (anabranch onion attack).",
            )
            .table(table)
            .section("Over time")
            .figures_side_by_side(vec![
                self.over_time(
                    "Bytes that were read",
                    "bytes/s",
                    [("down", |second| second.downloaded), ("up", |second| second.uploaded)],
                ),
                self.over_time(
                    "Packets at relays",
                    "1/s",
                    [("came", |second| second.packets), ("refused", |second| second.refused)],
                ),
            ])
            .listing("The whole scenario", onion_run_to_toml(self.scenario))
    }

    fn over_time(&self, caption: &str, unit: &str, lines: [Line; 2]) -> Figure {
        let chart = XyChart::new(Axis::new("time", "s"), Axis::new(caption, unit).from_zero());
        let line = |of: fn(&OnionSecond) -> u64| {
            self.measured.seconds.iter().enumerate().map(|(at, second)| (at as f64, of(second) as f64)).collect()
        };
        let chart = lines.into_iter().fold(chart, |chart, (name, of)| chart.series(Series::line(name, line(of))));
        Figure::chart(caption, chart)
    }

    /// Writes `summary.json`, `series.parquet` and `report.html` into `dir`, which is created if it is
    /// missing; says what each file is.
    ///
    /// # Errors
    ///
    /// What the operating system refused. All files are there then, or none.
    pub fn write(&self, dir: &Path) -> Result<Vec<(PathBuf, &'static str)>, OutputError> {
        create_dir(dir)?;
        let [summary, series, report] = ["summary.json", "series.parquet", "report.html"].map(|name| dir.join(name));
        let staged = [
            stage(&summary, |writer| writeln!(writer, "{:#}", self.to_json()))?,
            self.series().stage_parquet(&series)?,
            self.report().stage(&report)?,
        ];
        staged.into_iter().try_for_each(Staged::commit)?;
        Ok(vec![(summary, "the numbers"), (series, "every second"), (report, "to look at in a browser")])
    }
}

//! What a stream's run leaves behind: its numbers as JSON, every second as a table, and a report to look at.

use std::io::Write;
use std::path::{Path, PathBuf};

use anabranch_report::output::{Column, OutputError, Staged, Table, create_dir, stage};
use anabranch_report::{Axis, BarChart, BarSeries, Cell, Figure, Report, Series, Table as ReportTable, XyChart};
use anabranch_scenario::file::AnyScenario;
use anabranch_scenario::stream::StreamScenario;
use serde_json::{Map, Value, json};

use super::{StreamMeasured, StreamMetrics};

/// More classes of delays cannot be told apart in a chart.
const MOST_CLASSES: usize = 40;

/// A run that is over, or was interrupted.
#[derive(Clone, Copy, Debug)]
pub struct StreamFinished<'r> {
    /// What was to be run.
    pub scenario: &'r StreamScenario,
    /// What happened.
    pub measured: &'r StreamMeasured,
    /// What the user calls the scenario.
    pub name: &'r str,
    /// How long it took on the clock, in seconds.
    pub wall_s: f64,
}

/// A number that was measured, or none where nothing was: not a number is none.
fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}

impl StreamMetrics {
    /// Each number by its name; null where there was nothing to measure.
    pub fn to_map(&self) -> Map<String, Value> {
        let kinds = self.overhead.unwrap_or_default().kinds();
        let kinds = kinds.map(|(name, _, percent)| (name, number(self.overhead.map_or(f64::NAN, |_| percent))));
        [
            ("simulated_s", number(self.simulated.as_secs_f64())),
            ("clients", json!(self.clients)),
            ("started", json!(self.started)),
            ("killed", json!(self.killed)),
            ("delivered_percent", number(self.delivered_percent)),
            ("skipped_packets", json!(self.skipped_packets)),
            ("savings_percent", number(self.savings_percent)),
            ("startup_p95_s", number(self.startup_p95_s)),
            ("startup_p50_s", number(self.startup_p50_s)),
            ("let_in_p95_s", number(self.let_in_p95_s)),
            ("first_packet_p95_s", number(self.first_packet_p95_s)),
            ("latency_p95_s", number(self.latency_p95_s)),
            ("release_p50_s", number(self.release_p50_s)),
            ("release_p95_s", number(self.release_p95_s)),
            ("slices_back_p99_s", number(self.slices_back_p99_s)),
            ("overhead_percent", number(self.overhead_percent)),
            ("server_bytes", json!(self.server_bytes)),
            ("source_bytes", json!(self.source_bytes)),
            ("forged_packets", json!(self.forged_packets)),
            ("parent_changes", json!(self.parent_changes)),
            ("silent_feeds", json!(self.silent_feeds)),
            ("overloaded", json!(self.overloaded)),
        ]
        .into_iter()
        .chain(kinds)
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    /// The numbers for people, with their labels.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let seconds = |value: f64| if value.is_finite() { format!("{value:.2} s") } else { "-".to_owned() };
        let percent = |value: f64| if value.is_finite() { format!("{value:.2} %") } else { "-".to_owned() };
        let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
        let mut rows = vec![
            ("viewers", format!("{}, of whom {} have begun to play", self.clients, self.started)),
            ("delivered to honest viewers", percent(self.delivered_percent)),
            ("packets they missed", self.skipped_packets.to_string()),
            ("saved at the server", percent(self.savings_percent)),
            ("start, 95 %", seconds(self.startup_p95_s)),
            ("delay, 95 %", seconds(self.latency_p95_s)),
            ("overhead", percent(self.overhead_percent)),
            ("sent by the server", megabytes(self.server_bytes)),
            ("the stream itself", megabytes(self.source_bytes)),
            ("changes of parents", self.parent_changes.to_string()),
        ];
        if let Some(overhead) = self.overhead {
            rows.insert(7, ("of that", overhead.in_words()));
        }
        if self.killed > 0 {
            rows.insert(1, ("killed at once", self.killed.to_string()));
            rows.push(("slices back, 99 %", seconds(self.slices_back_p99_s)));
        }
        if self.forged_packets > 0 {
            rows.push(("forged packets found", self.forged_packets.to_string()));
        }
        if let Some(overloaded) = self.overloaded.filter(|count| *count > 0) {
            rows.push(("refused for want of room", overloaded.to_string()));
        }
        rows
    }
}

impl StreamFinished<'_> {
    /// Whether the run was stopped before its end.
    pub fn interrupted(&self) -> bool {
        self.measured.metrics.simulated < self.scenario.duration
    }

    /// The run in one object.
    pub fn to_json(&self) -> Value {
        json!({
            "metrics": self.measured.metrics.to_map(),
            "packet_hops": self.measured.metrics.packet_hops,
            "wall_s": self.wall_s,
            "seed": self.scenario.seed,
            "controller": self.scenario.stream.controller.name,
            "scenario": self.name,
            "interrupted": self.interrupted(),
        })
    }

    fn text(&self) -> String {
        AnyScenario::Stream(self.scenario.clone()).to_toml()
    }

    /// Every second as a row.
    pub fn series(&self) -> Table {
        let seconds = &self.measured.seconds;
        Table::new()
            .meta("scenario", self.text())
            .meta("controller", self.scenario.stream.controller.name)
            .meta("seed", self.scenario.seed.to_string())
            .meta("interrupted", self.interrupted().to_string())
            .column("begin_s", Column::U32((0..seconds.len() as u32).collect()))
            .column("played_packets", Column::U64(seconds.iter().map(|second| second.played).collect()))
            .column("skipped_packets", Column::U64(seconds.iter().map(|second| second.skipped).collect()))
    }

    /// The run as a page. Equal runs make equal pages.
    pub fn report(&self) -> Report {
        let metrics = &self.measured.metrics;
        let mut report = Report::new(self.name)
            .meta("seed", self.scenario.seed.to_string())
            .meta("controller", self.scenario.stream.controller.name)
            .meta("version", env!("CARGO_PKG_VERSION"));
        if self.interrupted() {
            report = report.paragraph(format!(
                "Interrupted: these are the first {} of {}.",
                metrics.simulated, self.scenario.duration
            ));
        }
        let rows = metrics.rows().into_iter();
        let table = rows.fold(ReportTable::new("What viewers got", ["", ""]), |table, (label, value)| {
            table.row([Cell::text(label), Cell::text(value)])
        });
        report
            .table(table)
            .section("Over time")
            .figures_side_by_side(vec![self.over_time(), self.delays()])
            .listing("The whole scenario", self.text())
    }

    fn over_time(&self) -> Figure {
        let seconds = &self.measured.seconds;
        let line = |name: &str, count: fn(&super::StreamSecond) -> u64| {
            let points = seconds.iter().enumerate().map(|(at, second)| (at as f64, count(second) as f64));
            Series::line(name, points.collect())
        };
        let chart = XyChart::new(Axis::new("time", "s"), Axis::new("packets", "1/s").from_zero())
            .series(line("played", |second| second.played))
            .series(line("missed", |second| second.skipped));
        Figure::chart("Packets that went to players and that players missed, all viewers together", chart)
    }

    /// Classes are put together until a chart can show them.
    fn delays(&self) -> Figure {
        let delays = &self.measured.delays;
        let each = delays.len().div_ceil(MOST_CLASSES).max(1);
        let all: u64 = delays.iter().map(|(_, count)| count).sum();
        let share = |counts: &[(f64, u64)]| {
            100.0 * counts.iter().map(|(_, count)| count).sum::<u64>() as f64 / all.max(1) as f64
        };
        let (names, values): (Vec<_>, Vec<_>) = delays
            .chunks(each)
            .map(|counts| (format!("{:.2}", counts[counts.len() - 1].0), Some(share(counts))))
            .unzip();
        let chart = BarChart::new("seconds at most", Axis::new("packets", "%"), names)
            .series(BarSeries::new("share of the packets", values));
        Figure::chart("From the source to the release, without what players hold", chart)
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

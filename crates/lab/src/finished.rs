//! What the run of an application's scenario leaves behind: its numbers as JSON, every second as a table, and a report
//! to look at.

use std::io::Write;
use std::path::{Path, PathBuf};

use anabranch_control::time::Duration;
use anabranch_report::output::{Column, OutputError, Staged, Table, create_dir, stage};
use anabranch_report::{Axis, Cell, Figure, Report, Series, Table as ReportTable, XyChart};
use serde_json::{Map, Value, json};

use crate::parallel::Job;

/// The numbers of a run.
pub trait Metrics {
    /// How much of the scenario was run.
    fn simulated(&self) -> Duration;

    /// Packets that were sent, each as often as it came to a node.
    fn packet_hops(&self) -> u64;

    /// Each number by its name; null where there was nothing to measure.
    fn to_map(&self) -> Map<String, Value>;

    /// The numbers for people, with their labels.
    fn rows(&self) -> Vec<(&'static str, String)>;
}

/// A count of each second of a run.
pub type Counts = Vec<u64>;

/// A scenario of an application: a live stream, an onion overlay.
pub trait Application: Job {
    /// What its run is told in numbers.
    type Metrics: Metrics;
    /// What the table of the numbers is called on the page.
    const CAPTION: &'static str;
    /// What a reader has to know before the numbers.
    const INTRODUCTION: Option<&'static str>;

    /// Its seed.
    fn seed(&self) -> u64;

    /// What decides when and where packets leave, by name.
    fn controller(&self) -> String;

    /// How long it is.
    fn duration(&self) -> Duration;

    /// The whole scenario as a file has it.
    fn to_toml(&self) -> String;

    /// The numbers of its run.
    fn metrics(measured: &Self::Measured) -> &Self::Metrics;

    /// What is counted each second, by the columns' names: at least one, all of one length.
    fn each_second(measured: &Self::Measured) -> Vec<(&'static str, Counts)>;

    /// What is drawn of it.
    fn figures(measured: &Self::Measured) -> Vec<Figure>;
}

/// A run that is over, or was interrupted.
#[derive(Debug)]
pub struct FinishedRun<'r, S: Application> {
    /// What was to be run.
    pub scenario: &'r S,
    /// What happened.
    pub measured: &'r S::Measured,
    /// What the user calls the scenario.
    pub name: &'r str,
    /// How long it took on the clock, in seconds.
    pub wall_s: f64,
}

/// A number that was measured, or none where nothing was: not a number is none.
pub fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}

/// Numbers by their names.
pub fn by_name(numbers: impl IntoIterator<Item = (&'static str, Value)>) -> Map<String, Value> {
    numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A chart over the seconds of a run, with its lines' names.
pub fn over_time<const N: usize>(caption: &str, axis: &str, unit: &str, lines: [(&str, Counts); N]) -> Figure {
    let chart = XyChart::new(Axis::new("time", "s"), Axis::new(axis, unit).from_zero());
    let chart = lines.into_iter().fold(chart, |chart, (name, counts)| {
        let points = counts.into_iter().enumerate().map(|(at, count)| (at as f64, count as f64));
        chart.series(Series::line(name, points.collect()))
    });
    Figure::chart(caption, chart)
}

/// Writes `summary.json`, `series.parquet` (which holds `series_is`) and `report.html` into `dir`, which is created if it
/// is missing; says what each file is.
///
/// # Errors
///
/// What the operating system refused. All files are there then, or none.
pub fn write_files(
    dir: &Path,
    numbers: &Value,
    series: &Table,
    series_is: &'static str,
    report: &Report,
) -> Result<Vec<(PathBuf, &'static str)>, OutputError> {
    create_dir(dir)?;
    let paths = ["summary.json", "series.parquet", "report.html"].map(|name| dir.join(name));
    let staged = [
        stage(&paths[0], |writer| writeln!(writer, "{numbers:#}"))?,
        series.stage_parquet(&paths[1])?,
        report.stage(&paths[2])?,
    ];
    staged.into_iter().try_for_each(Staged::commit)?;
    Ok(paths.into_iter().zip(["the numbers", series_is, "to look at in a browser"]).collect())
}

impl<S: Application> FinishedRun<'_, S> {
    /// Its numbers.
    pub fn metrics(&self) -> &S::Metrics {
        S::metrics(self.measured)
    }

    /// Whether the run was stopped before its end.
    pub fn interrupted(&self) -> bool {
        self.metrics().simulated() < self.scenario.duration()
    }

    /// The run in one object.
    pub fn to_json(&self) -> Value {
        json!({
            "metrics": self.metrics().to_map(),
            "packet_hops": self.metrics().packet_hops(),
            "wall_s": self.wall_s,
            "seed": self.scenario.seed(),
            "controller": self.scenario.controller(),
            "scenario": self.name,
            "interrupted": self.interrupted(),
        })
    }

    /// Every second as a row.
    pub fn series(&self) -> Table {
        let columns = S::each_second(self.measured);
        let count = columns.first().map_or(0, |(_, counts)| counts.len());
        let table = Table::new()
            .meta("scenario", self.scenario.to_toml())
            .meta("controller", self.scenario.controller())
            .meta("seed", self.scenario.seed().to_string())
            .meta("interrupted", self.interrupted().to_string())
            .column("begin_s", Column::U32((0..count as u32).collect()));
        columns.into_iter().fold(table, |table, (name, counts)| table.column(name, Column::U64(counts)))
    }

    /// The run as a page. Equal runs make equal pages.
    pub fn report(&self) -> Report {
        let mut report = Report::new(self.name)
            .meta("seed", self.scenario.seed().to_string())
            .meta("controller", self.scenario.controller())
            .meta("version", env!("CARGO_PKG_VERSION"));
        if self.interrupted() {
            let (done, all) = (self.metrics().simulated(), self.scenario.duration());
            report = report.paragraph(format!("Interrupted: these are the first {done} of {all}."));
        }
        let rows = self.metrics().rows().into_iter();
        let table = rows.fold(ReportTable::new(S::CAPTION, ["", ""]), |table, (label, value)| {
            table.row([Cell::text(label), Cell::text(value)])
        });
        S::INTRODUCTION
            .into_iter()
            .fold(report, |report, words| report.paragraph(words))
            .table(table)
            .section("Over time")
            .figures_side_by_side(S::figures(self.measured))
            .listing("The whole scenario", self.scenario.to_toml())
    }

    /// Writes `summary.json`, `series.parquet` and `report.html` into `dir`, which is created if it is
    /// missing; says what each file is.
    ///
    /// # Errors
    ///
    /// What the operating system refused. All files are there then, or none.
    pub fn write(&self, dir: &Path) -> Result<Vec<(PathBuf, &'static str)>, OutputError> {
        write_files(dir, &self.to_json(), &self.series(), "every second", &self.report())
    }
}

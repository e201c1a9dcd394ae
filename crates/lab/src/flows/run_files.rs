//! What a run of flows leaves behind: its numbers as JSON, its series as a table, and a
//! report to look at.

use std::path::{Path, PathBuf};

use anabranch_control::time::Time;
use serde_json::{Value, json};

use super::measured::{FlowSeries, FlowsMeasured};
use super::summary::{FlowsSummary, RECEIVER_HEADERS};
use crate::finished::write_files;
use anabranch_report::output::{Column, OutputError, Table};
use anabranch_report::{Axis, Cell, Figure, Report, Series, XyChart};
use anabranch_scenario::file::flows_to_toml;
use anabranch_scenario::flows::FlowScenario;

/// More lines in one chart cannot be told apart.
const MOST_SHOWN: usize = 7;

/// A run that is over, or was interrupted.
#[derive(Clone, Copy, Debug)]
pub struct FlowsFinished<'r> {
    /// What was to be run.
    pub scenario: &'r FlowScenario,
    /// What happened.
    pub measured: &'r FlowsMeasured,
    /// What that says.
    pub summary: &'r FlowsSummary,
    /// What the user calls the scenario.
    pub name: &'r str,
    /// How long it took on the clock, in seconds.
    pub wall_s: f64,
}

impl FlowsFinished<'_> {
    /// Whether the run was stopped before its end.
    pub fn interrupted(&self) -> bool {
        self.measured.length < self.scenario.length
    }

    /// The run in one object.
    pub fn to_json(&self) -> Value {
        let mut object = self.summary.to_json();
        let hops = self.summary.packet_hops as f64;
        object["packet_hops_per_s"] = json!((self.wall_s > 0.0).then(|| hops / self.wall_s));
        object["wall_s"] = json!(self.wall_s);
        object["seed"] = json!(self.scenario.seed);
        object["scenario"] = json!(self.name);
        object["interrupted"] = json!(self.interrupted());
        object
    }

    /// The series: a row for each sample, with columns for each flow and each link.
    pub fn series(&self) -> Table {
        let series = &self.measured.series;
        let mut table = Table::new()
            .meta("scenario", flows_to_toml(self.scenario))
            .meta("seed", self.scenario.seed.to_string())
            .meta("interrupted", self.interrupted().to_string())
            .column("at_s", Column::F64(series.at.iter().map(|at| at.as_secs_f64()).collect()));
        for (spec, flow) in self.scenario.flows.iter().zip(&series.flows) {
            for (what, values) in columns(flow) {
                table = table.column(format!("{what}/{}", spec.name), Column::F64(values.clone()));
            }
            for (i, values) in (1..).zip(&flow.receivers_mbit_s) {
                table = table.column(format!("goodput_mbit_s/{}/receiver{i}", spec.name), Column::F64(values.clone()));
            }
            for (what, values) in &flow.trace {
                table = table.column(format!("trace.{what}/{}", spec.name), Column::F64(values.clone()));
            }
        }
        for (spec, backlog) in self.scenario.links.iter().zip(&series.backlog_ms) {
            table = table.column(format!("backlog_ms/{}", spec.name), Column::F64(backlog.clone()));
        }
        table
    }

    /// The run as a page. It says nothing about the clock: equal runs make equal pages.
    pub fn report(&self) -> Report {
        let summary = self.summary;
        let flows = match summary.flows.len() {
            1 => "one flow".to_owned(),
            count => format!("{count} flows"),
        };
        let mut report = Report::new(format!("{flows}: {}", summary.controllers()))
            .meta("scenario", self.name)
            .meta("controllers", summary.controllers())
            .meta("seed", self.scenario.seed.to_string())
            .meta("wall clock", format!("{:.2} s", self.wall_s))
            .meta("version", env!("CARGO_PKG_VERSION"));
        if self.interrupted() {
            let (done, all) = (self.measured.length, self.scenario.length);
            report = report.paragraph(format!("This run was interrupted after {done} of its {all}."));
        }
        let rows = summary.rows();
        let table = anabranch_report::Table::new("Each flow", summary.headers());
        let table = rows.iter().fold(table, |table, row| table.row(row.iter().map(Cell::text)));
        let lines = summary.lines().into_iter().map(|(label, value)| [Cell::text(label), Cell::text(value)]);
        let whole = lines.fold(anabranch_report::Table::new("The whole", ["", ""]), anabranch_report::Table::row);
        report = report.table(table).table(whole);
        let receivers = summary.receivers();
        if !receivers.is_empty() {
            let table = anabranch_report::Table::new("Each receiver", RECEIVER_HEADERS);
            report = report.table(receivers.iter().fold(table, |table, row| table.row(row.iter().map(Cell::text))));
        }
        if !self.measured.series.at.is_empty() {
            report = self.over_time(report.section("Over time"));
        }
        report.listing("The whole scenario, with what the file leaves to its defaults", flows_to_toml(self.scenario))
    }

    fn over_time(&self, report: Report) -> Report {
        let mut figures = Vec::new();
        for (label, unit, pick) in CHARTS {
            let lines: Vec<(&str, &[f64])> = self
                .scenario
                .flows
                .iter()
                .zip(&self.measured.series.flows)
                .map(|(spec, flow)| (spec.name.as_str(), pick(flow)))
                .filter(|(_, values)| values.iter().any(|value| value.is_finite()))
                .collect();
            if !lines.is_empty() {
                figures.push(self.chart(label, unit, &lines, "flows"));
            }
        }
        let received = self.received();
        if !received.is_empty() {
            let lines: Vec<(&str, &[f64])> = received.iter().map(|(name, mb)| (name.as_str(), mb.as_slice())).collect();
            figures.push(self.chart("delivered to each receiver", "MB", &lines, "receivers"));
        }
        let mut queues: Vec<(&str, &[f64])> = self
            .scenario
            .links
            .iter()
            .zip(&self.measured.series.backlog_ms)
            .map(|(spec, backlog)| (spec.name.as_str(), backlog.as_slice()))
            .filter(|(_, backlog)| backlog.iter().any(|wait| *wait > 0.0))
            .collect();
        // The longest queues first; the sort keeps the links' order where they are equal.
        queues.sort_by(|a, b| total(b.1).total_cmp(&total(a.1)));
        if !queues.is_empty() {
            figures.push(self.chart("wait for the link", "ms", &queues, "links with a queue"));
        }
        report.figures_side_by_side(figures)
    }

    /// What each receiver of the flows that have several has got since the beginning, in MB:
    /// its blocks come in turn, so that its rates go up and down by themselves.
    fn received(&self) -> Vec<(String, Vec<f64>)> {
        let every_s = self.scenario.sample_every.unwrap_or_default().as_secs_f64();
        let sum = |rates: &[f64]| -> Vec<f64> {
            let add = |sum: &mut f64, rate: &f64| {
                *sum += rate * every_s / 8.0;
                Some(*sum)
            };
            rates.iter().scan(0.0, add).collect()
        };
        let flows = self.scenario.flows.iter().zip(&self.measured.series.flows);
        flows
            .flat_map(|(spec, flow)| {
                let receivers = (1..).zip(&flow.receivers_mbit_s);
                receivers.map(|(i, rates)| (format!("{}, receiver {i}", spec.name), sum(rates)))
            })
            .collect()
    }

    /// A chart of the first of `lines` over time.
    fn chart(&self, label: &str, unit: &str, lines: &[(&str, &[f64])], of_what: &str) -> Figure {
        let at = &self.measured.series.at;
        let caption = match lines.len() {
            all if all > MOST_SHOWN => {
                format!("{label}, {MOST_SHOWN} of {all} {of_what}; the rest is in series.parquet")
            }
            _ => label.to_owned(),
        };
        let chart = XyChart::new(Axis::new("time", "s"), Axis::new(label, unit).from_zero());
        let chart = lines.iter().take(MOST_SHOWN).fold(chart, |chart, (name, values)| {
            let points = at.iter().map(|at: &Time| at.as_secs_f64()).zip(values.iter().copied());
            chart.series(Series::line(*name, points.collect()))
        });
        Figure::chart(capitalised(&caption), chart)
    }

    /// Writes `summary.json`, `series.parquet` and `report.html` into `dir`, which is
    /// created if it is missing; says what each file is.
    ///
    /// # Errors
    ///
    /// What the operating system refused. All files are there then, or none.
    pub fn write(&self, dir: &Path) -> Result<Vec<(PathBuf, &'static str)>, OutputError> {
        write_files(dir, &self.to_json(), &self.series(), "the series", &self.report())
    }
}

/// A chart over time: its label, its unit, and each flow's values.
type OverTime = (&'static str, &'static str, fn(&FlowSeries) -> &[f64]);

const CHARTS: [OverTime; 5] = [
    ("goodput", "Mbit/s", |flow| &flow.goodput_mbit_s),
    ("one-way delay", "ms", |flow| &flow.one_way_ms),
    ("window", "bytes", |flow| &flow.window),
    ("data in flight", "bytes", |flow| &flow.in_flight),
    ("pacing rate", "Mbit/s", |flow| &flow.rate_mbit_s),
];

/// The columns that every flow has.
fn columns(flow: &FlowSeries) -> [(&'static str, &Vec<f64>); 6] {
    [
        ("goodput_mbit_s", &flow.goodput_mbit_s),
        ("one_way_ms", &flow.one_way_ms),
        ("in_flight_bytes", &flow.in_flight),
        ("window_bytes", &flow.window),
        ("rate_mbit_s", &flow.rate_mbit_s),
        ("srtt_ms", &flow.srtt_ms),
    ]
}

fn total(values: &[f64]) -> f64 {
    values.iter().sum()
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::flows::run;
    use crate::monitor::tests::Until;
    use anabranch_control::time::Duration;
    use anabranch_scenario::file::parse_flows;

    const TEXT: &str = r#"
[run]
seconds = 6
goodput_from_s = 1
sample_every_s = 0.05
[dumbbell]
rate = "5 Mbit/s"
delay_ms = 10
queue = { ms = 60 }
[[flow]]
name = "first & <best>"
controller = "reno"
[[flow]]
controller = "fixed"
parameters = { window = 20 }
"#;

    fn finished<T>(stop_after: u64, look: impl FnOnce(&FlowsFinished<'_>) -> T) -> T {
        let scenario = parse_flows(TEXT, "f.toml", &[]).unwrap();
        let measured = run(&scenario, &Until::second(stop_after)).unwrap();
        let summary = FlowsSummary::of(&scenario, &measured);
        let (scenario, measured, summary) = (&scenario, &measured, &summary);
        look(&FlowsFinished { scenario, measured, summary, name: "f.toml", wall_s: 0.5 })
    }

    #[test]
    fn the_series_has_a_row_a_sample_and_columns_for_flows_and_links() {
        finished(100, |run| {
            let table = run.series();
            assert!(table.columns.iter().all(|(_, column)| column.len() == 120));
            for name in ["goodput_mbit_s/first & <best>", "trace.window/flow1", "backlog_ms/bottleneck"] {
                assert!(table.columns.iter().any(|(column, _)| column == name), "{name}");
            }
        });
    }

    #[test]
    fn receivers_of_one_flow_are_distinguished() {
        let text = "[run]\nseconds = 6\ngoodput_from_s = 1\n[star]\nhosts = 4\nrate = \"2 Mbit/s\"\n\
                    delay_ms = [5, 10, 20, 40]\nqueue = { packets = 20 }\n[[flow]]\ncontroller = \"reno\"\n\
                    from = \"h0\"\nto = [\"h1\", \"h2\", \"h3\"]\nworkload = { block_bytes = 3000 }\n[[flow]]\n\
                    controller = \"reno\"\nfrom = \"h1\"\nto = \"h0\"\n";
        let scenario = parse_flows(text, "f.toml", &[]).unwrap();
        let measured = run(&scenario, &()).unwrap();
        let summary = FlowsSummary::of(&scenario, &measured);
        let [blocks, single] = &measured.flows[..] else { panic!("two flows") };
        assert_eq!(blocks.receivers.iter().map(|to| to.goodput_bytes).sum::<u64>(), blocks.goodput_bytes);
        assert_eq!(blocks.receivers.iter().map(|to| to.delivered_bytes).sum::<u64>(), blocks.delivered_bytes);
        assert!(blocks.receivers.iter().all(|to| 0 < to.goodput_bytes && to.goodput_bytes < to.delivered_bytes));
        // Blocks in turn: as much for each, but for those that are on their way.
        let bytes = || blocks.receivers.iter().map(|to| to.delivered_bytes);
        assert!(bytes().max().unwrap() - bytes().min().unwrap() < 100_000, "{:?}", blocks.receivers);
        assert!(single.receivers.is_empty());
        let finished =
            FlowsFinished { scenario: &scenario, measured: &measured, summary: &summary, name: "f.toml", wall_s: 0.5 };
        let json = finished.to_json();
        let receivers = json["flows"][0]["receivers"].as_array().unwrap();
        assert_eq!(
            receivers.iter().map(|to| to["link"].as_str().unwrap()).collect::<Vec<_>>(),
            ["hub-h1", "hub-h2", "hub-h3"]
        );
        let mbit_s = receivers.iter().map(|to| to["goodput_mbit_s"].as_f64().unwrap()).sum::<f64>();
        assert!((mbit_s - json["flows"][0]["goodput_mbit_s"].as_f64().unwrap()).abs() < 1e-9);
        assert!(json["flows"][1].get("receivers").is_none());
        assert_eq!(summary.receivers()[2][..3], ["flow0", "3", "hub-h3"]);
        let series = &measured.series.flows[0];
        for row in 0..series.goodput_mbit_s.len() {
            let sum: f64 = series.receivers_mbit_s.iter().map(|column| column[row]).sum();
            assert!((sum - series.goodput_mbit_s[row]).abs() < 1e-9, "row {row}");
        }
        let columns = finished.series().columns;
        let of_receivers = columns.iter().filter(|(name, _)| name.starts_with("goodput_mbit_s/flow0/receiver"));
        assert_eq!(of_receivers.count(), 3);
        let page = finished.report().to_html();
        assert!(page.contains("Each receiver") && page.contains("Delivered to each receiver"));
    }

    #[test]
    fn the_files_are_there_and_equal_runs_make_equal_ones() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a/deep"), dir.path().join("b"));
        finished(100, |run| assert_eq!(run.write(&a).unwrap().len(), 3));
        finished(100, |run| run.write(&b).unwrap());
        for name in ["summary.json", "series.parquet", "report.html"] {
            assert_eq!(fs::read(a.join(name)).unwrap(), fs::read(b.join(name)).unwrap(), "{name}");
        }
        let page = fs::read_to_string(a.join("report.html")).unwrap();
        for expected in ["first &amp; &lt;best&gt;", "Wait for the link", "One-way delay", "[[flow]]", "reno, fixed"] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("Pacing rate"), "neither controller has one");
    }

    #[test]
    fn a_run_that_was_interrupted_within_a_second_has_what_was_measured_until_then() {
        let scenario = parse_flows(
            &TEXT.replace("5 Mbit/s", "10 Gbit/s").replace("fixed", "reno").replace("parameters", "#"),
            "f.toml",
            &[],
        )
        .unwrap();
        let monitor = Until::question(12);
        let measured = run(&scenario, &monitor).unwrap();
        assert_eq!((monitor.seconds.get(), monitor.questions.get()), (0, 12));
        assert!(measured.length < Duration::SECOND, "{}", measured.length);
        let samples = measured.series.at.len() as u64;
        assert_eq!(samples, measured.length.as_nanos() / Duration::from_millis(50).as_nanos());
        let (bytes, rate) = (measured.flows.iter().map(|flow| flow.delivered_bytes).sum::<u64>(), 10e9 / 8.0);
        assert!(0 < bytes && bytes as f64 <= rate * measured.length.as_secs_f64(), "{bytes} B in {}", measured.length);
    }

    #[test]
    fn a_run_that_was_interrupted_before_it_began_has_files_of_nothing() {
        let scenario = parse_flows(&TEXT.replace("goodput_from_s = 1", ""), "f.toml", &[]).unwrap();
        let measured = run(&scenario, &Until::question(1)).unwrap();
        assert_eq!((measured.length, measured.series.at.len()), (Duration::ZERO, 0));
        let summary = FlowsSummary::of(&scenario, &measured);
        let run =
            FlowsFinished { scenario: &scenario, measured: &measured, summary: &summary, name: "f.toml", wall_s: 0.5 };
        assert!(run.to_json()["metrics"]["goodput_mbit_s"].is_null());
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(run.write(dir.path()).unwrap().len(), 3);
    }

    #[test]
    fn what_was_interrupted_says_so_and_has_what_there_is() {
        finished(3, |run| {
            assert!(run.interrupted());
            assert_eq!(run.to_json()["interrupted"], true);
            assert_eq!(run.series().columns[0].1.len(), 60);
            let goodput = run.to_json()["metrics"]["goodput_mbit_s"].as_f64().unwrap();
            assert!((3.0..5.0).contains(&goodput), "{goodput}");
            assert!(run.report().to_html().contains("This run was interrupted after 3 s of its 6 s."));
        });
    }
}

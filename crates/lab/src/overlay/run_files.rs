//! What a run leaves behind: its numbers as JSON, every second as a table, and a
//! report to look at.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::finished::write_files;
use crate::overlay::summary::Summary;
use crate::overlay::{Measured, RateTrace, Second};
use anabranch_report::output::{Column, OutputError, Table};
use anabranch_report::{Axis, BarChart, BarSeries, Cell, Chart, Figure, Reference, Report, Series, XyChart};
use anabranch_scenario::file::to_toml;
use anabranch_scenario::overlay::Scenario;
use anabranch_stats::{autocorrelation, normality};

/// More rates in one chart cannot be told apart.
const MOST_RATES_SHOWN: usize = 7;

/// Lags of the autocorrelation that are shown.
const LAGS: usize = 15;

/// The name of something that is counted each second, and its count.
type Count = (&'static str, fn(&Second) -> u32);

/// Why what was sent did not arrive, or was worth nothing when it did.
const CAUSES: [Count; 5] = [
    ("data over a limit", |s| s.refused),
    ("ACKs over a limit", |s| s.refused_acks),
    ("lost on a link", |s| s.lost + s.lost_acks),
    ("swallowed by a relay", |s| s.swallowed + s.swallowed_acks),
    ("forged ACKs", |s| s.forged_acks),
];

/// A run that is over, or was interrupted.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'r> {
    /// What was to be run.
    pub scenario: &'r Scenario,
    /// What happened.
    pub measured: &'r Measured,
    /// What that says.
    pub summary: &'r Summary,
    /// What the user calls the scenario.
    pub name: &'r str,
    /// How long it took on the clock, in seconds.
    pub wall_s: f64,
}

impl Finished<'_> {
    /// Whether the run was stopped before its end.
    pub fn interrupted(&self) -> bool {
        (self.measured.seconds.len() as u64) < self.scenario.seconds
    }

    /// The run in one object.
    pub fn to_json(&self) -> Value {
        let hops = self.summary.packet_hops;
        json!({
            "metrics": self.summary.metrics(),
            "packet_hops": hops,
            "packet_hops_per_s": (self.wall_s > 0.0).then(|| hops as f64 / self.wall_s),
            "wall_s": self.wall_s,
            "seed": self.scenario.seed,
            "controller": self.summary.controller,
            "scenario": self.name,
            "interrupted": self.interrupted(),
        })
    }

    /// Every second as a row, with the watched sender's rates.
    pub fn series(&self) -> Table {
        let seconds = &self.measured.seconds;
        let counts: [Count; 13] = [
            ("sent_packets", |s| s.sent),
            ("delivered_packets", |s| s.delivered),
            ("packet_hops", |s| s.packet_hops),
            ("refused_packets", |s| s.refused),
            ("refused_acks", |s| s.refused_acks),
            ("lost_packets", |s| s.lost),
            ("lost_acks", |s| s.lost_acks),
            ("swallowed_packets", |s| s.swallowed),
            ("swallowed_acks", |s| s.swallowed_acks),
            ("acked_packets", |s| s.acked),
            ("timed_out_packets", |s| s.timed_out),
            ("late_acks", |s| s.late_acks),
            ("forged_acks", |s| s.forged_acks),
        ];
        let mut table = Table::new()
            .meta("scenario", to_toml(self.scenario))
            .meta("controller", self.summary.controller)
            .meta("seed", self.scenario.seed.to_string())
            .meta("interrupted", self.interrupted().to_string())
            .column("begin_s", Column::U32((0..seconds.len() as u32).collect()))
            .column("received_bytes_per_s_per_peer", Column::F64(self.measured.received_bytes_per_s().collect()));
        for (name, count) in counts {
            table = table.column(name, Column::U32(seconds.iter().map(count).collect()));
        }
        table = table.column("ack_early_us", Column::U64(seconds.iter().map(|s| s.early_us).collect()));
        let Some(trace) = &self.measured.rates else {
            return table;
        };
        for (slot, node) in trace.known.iter().enumerate() {
            let rates = trace.of(slot).collect();
            table = table.column(format!("rate_{}_to_{node}_bytes_per_s", trace.sender), Column::F32(rates));
        }
        for (name, values) in &trace.traced {
            for (slot, node) in trace.known.iter().enumerate() {
                let values = trace.of_slot(values, slot).collect();
                table = table.column(format!("{name}_{}_of_{node}", trace.sender), Column::F32(values));
            }
        }
        table
    }

    /// The run as a page. It says nothing about the clock: equal runs make equal pages.
    pub fn report(&self) -> Report {
        let overlay = &self.scenario.overlay;
        let title = format!("{}, {} peers, {} relays a packet", self.summary.controller, overlay.peers, overlay.relays);
        let mut report = Report::new(title)
            .meta("scenario", self.name)
            .meta("controller", self.summary.controller)
            .meta("seed", self.scenario.seed.to_string())
            .meta("wall clock", format!("{:.2} s", self.wall_s))
            .meta("version", env!("CARGO_PKG_VERSION"));
        if self.interrupted() {
            let (done, all) = (self.measured.seconds.len(), self.scenario.seconds);
            report = report.paragraph(format!("This run was interrupted after {done} of its {all} s."));
        }
        let rows = self.summary.rows().into_iter().map(|(label, value)| [Cell::text(label), Cell::text(value)]);
        let table =
            rows.fold(anabranch_report::Table::new("What was measured", ["", ""]), anabranch_report::Table::row);
        report = report.table(table).section("Throughput").figure(Figure::chart(
            "Payload received by a node each second, and its mean after the warm-up",
            self.throughput(),
        ));
        if let Some(trace) = &self.measured.rates {
            report = report.section(format!("Learned rates of sender {}", trace.sender)).figure(rates(trace));
        }
        report = report
            .section("Drops")
            .figures_side_by_side(vec![self.drops_by_cause(), self.drops_over_time()])
            .section("Can the interval be trusted?");
        let means = &self.summary.received.batch_means;
        report = match (normality(means), autocorrelation(means, LAGS)) {
            (Some(check), Some(acf)) => {
                let verdict = if check.is_plausible() { "may be taken for normal" } else { "are not normal" };
                report
                    .paragraph(format!(
                        "The means of {} batches of {} s {verdict} (correlation with normal quantiles {:.4}, critical \
                         {:.4}). For independent batches the autocorrelation stays within the band at 19 of 20 lags.",
                        means.len(),
                        self.summary.received.batch_s,
                        check.ppcc,
                        check.critical_ppcc
                    ))
                    .figures_side_by_side(vec![
                        Figure::chart(
                            "Quantiles of the batch means",
                            Chart::quantile_quantile(&check, "batch mean", "bytes/s"),
                        ),
                        Figure::chart("Autocorrelation of the batch means", Chart::autocorrelation(&acf, "batches")),
                    ])
            }
            _ => report.paragraph("The run is too short, or too even, to say anything about its batch means."),
        };
        report.listing("The whole scenario, with what the file leaves to its defaults", to_toml(self.scenario))
    }

    fn throughput(&self) -> XyChart {
        let received = self.measured.received_bytes_per_s().enumerate().map(|(t, value)| (t as f64, value));
        let summary = self.summary;
        let batch = |index: usize| summary.warmup_s as f64 + (index as f64 + 0.5) * summary.received.batch_s as f64;
        let means = summary.received.batch_means.iter().enumerate().map(|(index, mean)| (batch(index), *mean));
        let mut chart = XyChart::new(Axis::new("time", "s"), Axis::new("received", "bytes/s").from_zero())
            .series(Series::line("each second", received.collect()))
            .series(Series::points("batch means", means.collect()));
        if let Some(mean) = summary.received.estimate.mean() {
            chart = chart.reference(Reference::horizontal("mean", mean));
            if let Some(half) = summary.received_ci95() {
                chart = chart
                    .reference(Reference::horizontal("95 % from", mean - half))
                    .reference(Reference::horizontal("95 % to", mean + half));
            }
        }
        match summary.convergence_s {
            Some(seconds) => chart.reference(Reference::vertical("converged", seconds)),
            None => chart,
        }
    }

    fn drops_by_cause(&self) -> Figure {
        let span = self.measured.seconds.len().max(1) as f64;
        let mean = |count: fn(&Second) -> u32| {
            self.measured.seconds.iter().map(|s| u64::from(count(s))).sum::<u64>() as f64 / span
        };
        let (names, values): (Vec<_>, Vec<_>) =
            CAUSES.into_iter().map(|(name, count)| (name.to_owned(), Some(mean(count)))).unzip();
        Figure::chart(
            "By cause, over the whole run, all nodes together",
            BarChart::new("", Axis::new("packets and ACKs", "1/s"), names).series(BarSeries::new("mean", values)),
        )
    }

    fn drops_over_time(&self) -> Figure {
        let chart = XyChart::new(Axis::new("time", "s"), Axis::new("packets and ACKs", "1/s").from_zero());
        let seconds = &self.measured.seconds;
        let with_drops = CAUSES.into_iter().filter(|(_, count)| seconds.iter().any(|s| count(s) > 0));
        let chart = with_drops.fold(chart, |chart, (name, count)| {
            let points = seconds.iter().enumerate().map(|(t, second)| (t as f64, f64::from(count(second))));
            chart.series(Series::line(name, points.collect()))
        });
        Figure::chart("Each second, all nodes together", chart)
    }

    /// Writes `summary.json`, `series.parquet` and `report.html` into `dir`, which is
    /// created if it is missing; says what each file is.
    ///
    /// # Errors
    ///
    /// What the operating system refused. All files are there then, or none.
    pub fn write(&self, dir: &Path) -> Result<Vec<(PathBuf, &'static str)>, OutputError> {
        write_files(dir, &self.to_json(), &self.series(), "every second", &self.report())
    }
}

impl RateTrace {
    /// The rates for the peer in `slot`, one a second.
    pub fn of(&self, slot: usize) -> impl Iterator<Item = f32> + '_ {
        self.of_slot(&self.rates_bytes_per_s, slot)
    }

    /// Those of `values`, one for each second and each known peer, of the peer in `slot`.
    pub fn of_slot<'a>(&self, values: &'a [f32], slot: usize) -> impl Iterator<Item = f32> + use<'a> {
        values.iter().skip(slot).step_by(self.known.len()).copied()
    }
}

fn rates(trace: &RateTrace) -> Figure {
    let shown = trace.known.len().min(MOST_RATES_SHOWN);
    let caption = match trace.known.len() {
        all if all > shown => {
            format!("For {shown} of the {all} peers that it knows; the rest is in series.parquet")
        }
        _ => "For each peer that it knows".to_owned(),
    };
    let chart = XyChart::new(Axis::new("time", "s"), Axis::new("rate", "bytes/s").from_zero());
    let chart = trace.known.iter().enumerate().take(shown).fold(chart, |chart, (slot, node)| {
        let points = trace.of(slot).enumerate().map(|(t, rate)| (t as f64, f64::from(rate)));
        chart.series(Series::line(format!("peer {node}"), points.collect()))
    });
    Figure::chart(caption, chart)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::monitor::tests::Until;
    use crate::overlay;
    use crate::parallel::{Progress, run_one};
    use anabranch_control::path::registry;
    use anabranch_control::time::Duration;
    use anabranch_control::units::Rate;
    use anabranch_scenario::overlay::Misbehaviour;

    fn finished<T>(seconds: u64, stop_early: bool, look: impl FnOnce(&Finished<'_>) -> T) -> T {
        let mut scenario = Scenario::standard();
        (scenario.seconds, scenario.overlay.watch) = (seconds, Some(2));
        scenario.overlay.misbehaving = vec![(vec![3], Misbehaviour { drop: 0.5, ..Misbehaviour::default() })];
        let measured = run_one(&scenario, &Progress::default()).unwrap();
        if stop_early {
            scenario.seconds += 1;
        }
        let summary = Summary::of(&measured);
        look(&Finished { scenario: &scenario, measured: &measured, summary: &summary, name: "s.toml", wall_s: 0.5 })
    }

    #[test]
    fn the_object_has_what_was_promised() {
        let json = finished(20, false, |run| run.to_json());
        for key in ["received_bytes_per_s", "drop_percent", "convergence_s", "timeouts_per_s", "spurious_share"] {
            assert!(json["metrics"].as_object().unwrap().contains_key(key), "{key}");
        }
        assert!(json["metrics"]["received_bytes_per_s"].as_f64().unwrap() > 1000.0);
        assert!(json["packet_hops"].as_u64().unwrap() > 1000);
        assert_eq!((&json["seed"], &json["controller"]), (&json!(1), &json!("q-learning")));
        assert_eq!((&json["scenario"], &json["interrupted"]), (&json!("s.toml"), &json!(false)));
        assert_eq!(finished(3, true, |run| run.to_json())["interrupted"], true);
    }

    #[test]
    fn the_table_has_a_row_a_second_and_a_column_a_rate() {
        finished(20, false, |run| {
            let table = run.series();
            assert!(table.columns.iter().all(|(_, column)| column.len() == 20));
            let rates: Vec<_> = table.columns.iter().filter(|(name, _)| name.starts_with("rate_2_to_")).collect();
            assert_eq!(rates.len(), 19);
            // The last known peer's last rate stands at the end of the trace.
            let trace = run.measured.rates.as_ref().unwrap();
            assert_eq!(trace.of(18).last(), trace.rates_bytes_per_s.last().copied());
        });
    }

    #[test]
    fn a_run_that_was_interrupted_in_its_first_second_has_files_without_rows() {
        let mut scenario = Scenario::standard();
        (scenario.overlay.limit, scenario.overlay.watch) = (Rate::from_bits_per_sec(10_000_000_000), Some(2));
        scenario.overlay.controller = registry::find("perfect").unwrap();
        scenario.overlay.join_every = Duration::ZERO;
        let monitor = Until::question(3);
        let measured = overlay::run(&scenario, &monitor).unwrap();
        assert_eq!((monitor.seconds.get(), monitor.questions.get(), measured.seconds.len()), (0, 3, 0));
        let summary = Summary::of(&measured);
        let run = Finished { scenario: &scenario, measured: &measured, summary: &summary, name: "s.toml", wall_s: 0.5 };
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(run.write(dir.path()).unwrap().len(), 3);
        assert_eq!(run.to_json()["metrics"]["simulated_s"], 0.0);
        assert!(run.series().columns.iter().all(|(_, column)| column.is_empty()));
    }

    #[test]
    fn the_files_are_there_and_equal_runs_make_equal_ones() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a/deep"), dir.path().join("b"));
        finished(200, false, |run| assert_eq!(run.write(&a).unwrap().len(), 3));
        finished(200, false, |run| run.write(&b).unwrap());
        for name in ["summary.json", "series.parquet", "report.html"] {
            assert_eq!(fs::read(a.join(name)).unwrap(), fs::read(b.join(name)).unwrap(), "{name}");
        }
        let page = fs::read_to_string(a.join("report.html")).unwrap();
        for expected in ["Learned rates of sender 2", "swallowed by a relay", "[[overlay.misbehave]]", "q-learning"] {
            assert!(page.contains(expected), "{expected}");
        }
    }
}

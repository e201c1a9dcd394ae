//! `anabranch reproduce --emulated`: an experiment on real packets, beside a simulation of the
//! same runs. A run that the emulator could not carry is made again; where none of the
//! attempts was carried, the figures are shown, but are not judged, and the verb fails.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_lab::monitor::Monitor;
use anabranch_lab::parallel::{Job, Progress};
use anabranch_papers::{Experiment, Kind, Length, Medium, Request, Row, Testbed, Verdict};
use anabranch_report::output::create_dir;
use anabranch_report::{Cell, Report, Table};
use anabranch_testbed::kernel_tcp;
use serde::Serialize;

use super::{Args, Facts, in_order, verdict_cell, whole, write_files};
use crate::failure::Failure;
use crate::number::short;
use crate::printer::{on_stdout, print_line};
use crate::research::progress::{self, Lines};
use crate::table;
use anabranch_testbed::{self as testbed, Emulated};

/// How often a run is made until the emulator carries it.
const ATTEMPTS: usize = 3;

/// What is said of everything that was measured.
const WHAT: &str = "Simulated and emulated are the same runs: the same scenarios, lengths and seeds. Emulated, our \
                    controllers run over UDP (quic: over QUIC), TCP is the kernel's, and the links are an emulator \
                    between two network namespaces. Simulated, our controller of the same name runs in its place.";

/// Carries runs, and remembers how.
#[derive(Debug)]
struct Bed {
    progress: Arc<Progress>,
    lines: Lines,
    at_a_time: usize,
    runs: Mutex<Vec<Carried>>,
}

/// How a run was carried.
#[derive(Clone, Debug, Serialize)]
struct Carried {
    controllers: Vec<String>,
    seed: u64,
    /// Attempts that were not carried, the last of them included if none was.
    failed: usize,
    late_p99_ms: f64,
    /// Why the links were not those that were asked for; nothing if they were.
    saturated: Vec<String>,
}

impl Bed {
    fn carried(&self) -> Vec<Carried> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Testbed for Bed {
    fn run(&self, scenario: &FlowScenario, monitor: &dyn Monitor) -> Result<FlowsMeasured, String> {
        let mut failed = 0;
        loop {
            let emulated = testbed::run(scenario, monitor);
            let Emulated { measured, emulator } = emulated.map_err(|failure| failure.to_string())?;
            let saturated = emulator.warnings();
            failed += usize::from(!saturated.is_empty());
            let late_p99_ms = emulator.lateness.value_at_quantile(0.99) as f64 / 1e6;
            let names: Vec<_> = scenario.flows.iter().map(|flow| flow.controller_name()).collect();
            let what = if saturated.is_empty() { String::new() } else { format!(": saturated, {}", saturated[0]) };
            self.lines.say(&format!(
                "{} s of {}, seed {}: {} packets, late by {late_p99_ms:.2} ms (p99){what}",
                scenario.seconds(),
                names.join(" + "),
                scenario.seed,
                emulator.lateness.len()
            ));
            let again = !saturated.is_empty() && failed < ATTEMPTS && scenario.is_whole(&measured);
            if !again {
                let controllers = names.iter().map(ToString::to_string).collect();
                let carried = Carried { controllers, seed: scenario.seed, failed, late_p99_ms, saturated };
                self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(carried);
                return Ok(measured);
            }
            self.progress.total.fetch_add(scenario.seconds(), Ordering::Relaxed);
        }
    }

    fn at_a_time(&self) -> usize {
        self.at_a_time
    }
}

/// A figure, simulated and emulated.
#[derive(Debug, Serialize)]
struct Both {
    subject: String,
    metric: String,
    unit: String,
    simulated: Option<f64>,
    simulated_ci95: Option<f64>,
    emulated: Option<f64>,
    emulated_ci95: Option<f64>,
    /// Whether the interval of their difference leaves out 0; none without intervals.
    apart: Option<bool>,
    paper: Option<f64>,
    /// How the expected range came to be.
    kind: Option<Kind>,
    /// What the emulated figure says to it.
    verdict: Option<Verdict>,
    note: String,
}

#[derive(Serialize)]
struct Json<'a> {
    id: &'a str,
    seed: u64,
    quick: bool,
    wall_s: f64,
    rows: &'a [Both],
    /// Runs that no attempt carried: if there are any, the emulated figures are not those of
    /// these links.
    saturated: usize,
    runs: &'a [Carried],
}

/// Runs each of `experiments` on real packets and in the simulator.
pub fn run(args: &Args, experiments: &[&Experiment], progress: &Arc<Progress>) -> Result<(), Failure> {
    if let Some(other) = experiments.iter().find(|experiment| !experiment.is_on_packets()) {
        return Err(other.not_on_packets().into());
    }
    let known = kernel_tcp::available()
        .map_err(|error| Failure::new(format!("the kernel's congestion controls can't be read: {error}")))?;
    let mut needed = experiments.iter().flat_map(|experiment| experiment.kernel_controls());
    if let Some(name) = needed.find(|name| !known.iter().any(|known| known == *name)) {
        return Err(Failure::new(format!(
            "the kernel has no congestion control \"{name}\" (it has {}); load it: modprobe tcp_{name}",
            known.join(", ")
        )));
    }
    let mut saturated = Vec::new();
    for experiment in experiments {
        if !one(args, experiment, progress)? {
            saturated.push(experiment.id);
        }
    }
    if saturated.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the emulator could not carry all runs of {}: what was measured is not these links'; expected a machine with \
         less else to do",
        saturated.join(", ")
    )))
}

/// Whether all of it was carried.
fn one(args: &Args, experiment: &Experiment, progress: &Arc<Progress>) -> Result<bool, Failure> {
    let out = args.out.as_ref().map(|out| out.join(experiment.id).join("emulated"));
    if let Some(out) = &out {
        create_dir(out)?;
    }
    let length = if args.quick { Length::Quick } else { Length::Full };
    let request = Request {
        length,
        seed: args.seed,
        controllers: args.controllers.clone(),
        medium: Medium::SimulatedTwin,
        progress: progress.clone(),
        ..Request::default()
    };
    let seed = experiment.seed(&request)?;
    let started = Instant::now();
    let bar = progress::show(progress, &format!("{}, emulated", experiment.id));
    let bed = Arc::new(Bed {
        progress: progress.clone(),
        lines: bar.lines(),
        at_a_time: args.jobs as usize,
        runs: Mutex::default(),
    });
    let emulated = experiment.run(&Request { medium: Medium::RealPackets(bed.clone()), ..request.clone() });
    bar.end();
    let emulated = whole(emulated, experiment)?;
    let bar = progress::show(progress, &format!("{}, simulated", experiment.id));
    let simulated = experiment.run(&request);
    bar.end();
    let simulated = whole(simulated, experiment)?;
    let runs = bed.carried();
    let saturated = runs.iter().filter(|run| !run.saturated.is_empty()).count();
    let rows = beside(&simulated.rows, &emulated.rows, saturated);
    let json = Json {
        id: experiment.id,
        seed,
        quick: args.quick,
        wall_s: started.elapsed().as_secs_f64(),
        rows: &rows,
        saturated,
        runs: &runs,
    };
    // First, for the same reason as a simulation's.
    let written = out.map_or(Ok(()), |out| write(&out, experiment, &json, simulated.report, emulated.report));
    let printed = match args.json {
        true => print_line!("{}", serde_json::to_string(&json)?),
        false => on_stdout(|stdout| print(&json, experiment, stdout)),
    };
    written?;
    printed?;
    Ok(saturated == 0)
}

/// The figures of both, without those that neither has.
fn beside(simulated: &[Row], emulated: &[Row], saturated: usize) -> Vec<Both> {
    let both = |row: &Row| {
        let twin = simulated.iter().find(|twin| twin.subject == row.subject && twin.metric == row.metric)?;
        if row.ours.is_none() && twin.ours.is_none() {
            return None;
        }
        let distance = row.ours.zip(twin.ours).map(|(one, other)| (one - other).abs());
        // The half width of the interval of a difference of two independent means.
        let reach = row.ci95.zip(twin.ci95).map(|(one, other)| one.hypot(other));
        let note = if saturated == 0 {
            row.note.clone()
        } else {
            format!("INVALID: {saturated} runs saturated the emulator; {}", row.note)
        };
        Some(Both {
            subject: row.subject.clone(),
            metric: row.metric.clone(),
            unit: row.unit.clone(),
            simulated: twin.ours,
            simulated_ci95: twin.ci95,
            emulated: row.ours,
            emulated_ci95: row.ci95,
            apart: distance.zip(reach).map(|(distance, reach)| distance > reach),
            paper: row.paper,
            kind: row.kind,
            verdict: row.verdict.filter(|_| saturated == 0),
            note,
        })
    };
    emulated.iter().filter_map(both).collect()
}

fn yes_or_no(value: Option<bool>) -> String {
    value.map_or("-", |yes| if yes { "yes" } else { "no" }).to_owned()
}

fn print(json: &Json, experiment: &Experiment, stdout: &mut impl Write) -> io::Result<()> {
    writeln!(stdout, "{}: {} (seed {}, {:.1} s)", json.id, experiment.title, json.seed, json.wall_s)?;
    let number = |value: Option<f64>, half: Option<f64>| match (value, half) {
        (None, _) => "-".to_owned(),
        (Some(value), None) => short(value),
        (Some(value), Some(half)) => format!("{} ± {}", short(value), short(half)),
    };
    let headers = ["subject", "metric", "unit", "simulated", "emulated", "paper", "apart", "verdict", "kind"];
    let rows = json.rows.iter().map(|row| {
        vec![
            row.subject.clone(),
            row.metric.clone(),
            row.unit.clone(),
            number(row.simulated, row.simulated_ci95),
            number(row.emulated, row.emulated_ci95),
            number(row.paper, None),
            yes_or_no(row.apart),
            row.verdict.map_or("-", Verdict::name).to_owned(),
            row.kind.map_or("-", Kind::name).to_owned(),
        ]
    });
    let rows: Vec<Vec<String>> = [headers.map(str::to_owned).to_vec()].into_iter().chain(rows).collect();
    table::print(&rows, 3.., stdout)?;
    writeln!(stdout, "{}", carried(json))
}

/// How the runs were carried, in a sentence.
fn carried(json: &Json) -> String {
    let latest = json.runs.iter().map(|run| run.late_p99_ms).fold(0.0, f64::max);
    let again: usize = json.runs.iter().map(|run| run.failed).sum();
    let mut text = format!(
        "{} runs on real packets; the 99th percentile of lateness is {latest:.2} ms in the worst",
        json.runs.len()
    );
    if again > 0 {
        text += &format!("; {again} attempts saturated the emulator");
    }
    if json.saturated > 0 {
        text += &format!(
            "; INVALID: {} runs saturated it in each of {ATTEMPTS} attempts, and what was measured is not these links'",
            json.saturated
        );
    }
    text + "."
}

fn write(out: &Path, experiment: &Experiment, json: &Json, simulated: Report, emulated: Report) -> Result<(), Failure> {
    let headers = ["subject", "metric", "unit", "simulated", "emulated", "paper", "apart", "verdict", "kind", "note"];
    let (said, other) = in_order(json.rows, |row| (row.paper.is_some(), row.kind.is_some()));
    let table = |caption: &str, rows: &[&Both]| {
        rows.iter().fold(Table::new(caption, headers), |table, row| table.row(cells(row)))
    };
    let report = Facts { experiment, seed: json.seed, quick: json.quick, wall_s: json.wall_s }
        .head(Report::new(format!("{}, on real packets", experiment.id)))
        .paragraph(WHAT)
        .paragraph(carried(json))
        .append("On real packets", emulated)
        .append("Simulated", simulated)
        .section("Figures");
    let (said, other) = (
        table("Simulated, on real packets, and the paper's", &said),
        table("Simulated and on real packets: figures that no paper speaks of", &other),
    );
    let report = if said.is_empty() { report } else { report.table(said) };
    let report = if other.is_empty() { report } else { report.folded_table("All other figures", other) };
    write_files(out, &report.listing("Scenario", experiment.scenario), json)
}

/// A row of the page's table.
fn cells(row: &Both) -> [Cell; 10] {
    let digits = if row.emulated.is_some_and(|value| value.abs() >= 1000.0) { 0 } else { 4 };
    let number = |value: Option<f64>, half: Option<f64>| match (value, half) {
        (None, _) => Cell::text("–"),
        (Some(value), None) => Cell::number(value, digits),
        (Some(value), Some(half)) => Cell::interval(value, half),
    };
    [
        Cell::text(&row.subject),
        Cell::text(&row.metric),
        Cell::text(&row.unit),
        number(row.simulated, row.simulated_ci95),
        number(row.emulated, row.emulated_ci95),
        number(row.paper, None),
        Cell::text(yes_or_no(row.apart)),
        verdict_cell(row.verdict),
        Cell::text(row.kind.map_or("", Kind::name)),
        Cell::text(&row.note),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(metric: &str, ours: Option<f64>, ci95: Option<f64>) -> Row {
        Row {
            subject: "kernel:reno".to_owned(),
            metric: metric.to_owned(),
            unit: String::new(),
            ours,
            ci95,
            paper: None,
            range: (0.0, 2.0),
            kind: Some(Kind::Predeclared),
            verdict: Some(Verdict::Agrees),
            note: "said".to_owned(),
        }
    }

    #[test]
    fn figures_are_apart_where_the_interval_of_their_difference_leaves_out_0() {
        let simulated = [row("a", Some(1.0), Some(0.7)), row("b", Some(1.0), Some(0.8)), row("c", Some(1.0), None)];
        let emulated = [row("a", Some(2.0), Some(0.7)), row("b", Some(2.0), Some(0.7)), row("c", Some(2.0), None)];
        let apart: Vec<_> = beside(&simulated, &emulated, 0).iter().map(|both| both.apart).collect();
        assert_eq!(apart, [Some(true), Some(false), None]);
    }

    #[test]
    fn what_saturated_the_emulator_is_not_judged_and_says_so() {
        let rows = [row("a", Some(1.0), None)];
        let [valid] = &beside(&rows, &rows, 0)[..] else { panic!("one row") };
        let [invalid] = &beside(&rows, &rows, 2)[..] else { panic!("one row") };
        assert_eq!((valid.verdict, &*valid.note), (Some(Verdict::Agrees), "said"));
        assert_eq!((invalid.verdict, &*invalid.note), (None, "INVALID: 2 runs saturated the emulator; said"));
    }

    #[test]
    fn what_neither_has_is_left_out() {
        let (none, one) = ([row("a", None, None)], [row("a", Some(1.0), None)]);
        assert!(beside(&none, &none, 0).is_empty());
        assert_eq!(beside(&none, &one, 0).len(), 1);
    }
    #[test]
    fn rows_with_a_papers_number_come_first_and_what_no_paper_speaks_of_folds_away() {
        let of = |metric: &str, paper: Option<f64>, kind: Option<Kind>| Row {
            paper,
            kind,
            verdict: None,
            ..row(metric, Some(1.0), None)
        };
        let (number, range) = (Some(2.0), Some(Kind::Predeclared));
        let rows = [of("unsaid", None, None), of("ranged", None, range), of("numbered", number, range)];
        let rows = beside(&rows, &rows, 0);
        let (out, experiment) = (tempfile::tempdir().unwrap(), anabranch_papers::find("c3-fct").unwrap());
        let json = Json { id: experiment.id, seed: 1, quick: true, wall_s: 0.0, rows: &rows, saturated: 0, runs: &[] };
        write(out.path(), experiment, &json, Report::new("simulated"), Report::new("emulated")).unwrap();
        let page = std::fs::read_to_string(out.path().join("report.html")).unwrap();
        let [before, folded] = super::super::tests::shown(&page, &["unsaid", "ranged", "numbered"]);
        assert_eq!((before, folded), (vec!["numbered", "ranged"], vec!["unsaid"]));
    }
}

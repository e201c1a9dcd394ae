//! What the quick forms of the experiments say is what they said when they were last looked at:
//! a change that turns a verdict is seen. Those that take longest are a test of their own, which
//! `make test` leaves out and `make long-verdicts`, behind it in continuous integration, runs.
//!
//! `UPDATE_VERDICTS=1 cargo test -p anabranch-papers --test quick_verdicts` (or `make verdicts`)
//! writes `experiments/quick-verdicts.csv` anew, without touching the rows of experiments that it did
//! not run; look at the difference before it is committed.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anabranch_papers::{EXPERIMENTS, Experiment, Length, Request, Row};
use anabranch_scenario::remy_table::DIRECTORY_VARIABLE;
use rayon::prelude::*;

/// Experiments with rows that are there only where Remy's tables are.
const WITH_TABLES: [&str; 3] = ["xavier-fig-1", "xavier-fig-2", "remy-golden"];

/// Experiments whose quick form takes ten seconds of a processor or more, or is of the same kind as another's.
const LONG: [&str; 19] = [
    "anabranch-learners",
    "c3-delayed",
    "c3-fairness",
    "efthymiopoulos-system-helper",
    "onion-constant-rate",
    "raiber-table-7.2",
    "raiber-table-7.4",
    "raiber-table-7.5",
    "raiber-fig-7.3",
    "raiber-fig-7.4",
    "raiber-fig-7.5",
    "raiber-fig-7.6",
    "raiber-fig-7.8",
    "raiber-fig-7.9",
    "raiber-fig-7.10",
    "raiber-table-7.6",
    "raiber-table-7.7",
    "raiber-appendix-a",
    "raiber-more",
];

const HEADER: &str = "experiment,subject,metric,range,verdict";

/// A row of the table, if the experiment judges it.
fn said_of(experiment: &str, row: &Row) -> Option<String> {
    let (kind, verdict) = (row.kind?.name(), row.verdict?.name());
    let metric = if row.metric.contains(',') { format!("\"{}\"", row.metric) } else { row.metric.clone() };
    Some(format!("{experiment},{},{metric},{kind},{verdict}", row.subject))
}

/// Whoever reads and writes the table: two tests may run beside each other.
static TABLE: Mutex<()> = Mutex::new(());

#[test]
fn quick_runs_say_what_they_said() {
    hold(|experiment| !LONG.contains(&experiment.id));
}

#[test]
#[ignore = "takes minutes: make long-verdicts"]
fn long_quick_runs_say_what_they_said() {
    hold(|experiment| LONG.contains(&experiment.id));
}

/// Runs the experiments that `is_chosen` names, and holds what they say to their rows of the table.
fn hold(is_chosen: impl Fn(&Experiment) -> bool) {
    let has_tables = std::env::var_os(DIRECTORY_VARIABLE).is_some();
    if has_tables {
        eprintln!("{DIRECTORY_VARIABLE} is set: {} are left out", WITH_TABLES.join(", "));
    }
    let is_chosen =
        |experiment: &Experiment| is_chosen(experiment) && !(has_tables && WITH_TABLES.contains(&experiment.id));
    let request = Request { length: Length::Quick, ..Request::default() };
    let experiments: Vec<_> = EXPERIMENTS.iter().filter(|experiment| is_chosen(experiment)).collect();
    // Many have a part that is a single run.
    let said = experiments.par_iter().map(|experiment| {
        let started = Instant::now();
        let findings = experiment.run(&request).unwrap_or_else(|error| panic!("{}: {error}", experiment.id));
        eprintln!("{:24} {:6.1} s", experiment.id, started.elapsed().as_secs_f64());
        findings.rows.iter().filter_map(|row| said_of(experiment.id, row)).collect::<Vec<String>>()
    });
    let said: Vec<String> = said.collect::<Vec<_>>().concat();
    assert!(!said.is_empty());

    let _one_at_a_time = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/quick-verdicts.csv");
    let text = fs::read_to_string(&path).expect("experiments/quick-verdicts.csv is part of the project");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let (kept, of_others): (Vec<&str>, Vec<&str>) =
        lines.partition(|line| experiments.iter().any(|experiment| experiment.id == experiment_of(line)));
    if std::env::var_os("UPDATE_VERDICTS").is_some() {
        assert!(!has_tables, "unset {DIRECTORY_VARIABLE} first: not everybody has these tables");
        let mut all: Vec<&str> = said.iter().map(String::as_str).chain(of_others).collect();
        all.sort_by_key(|line| EXPERIMENTS.iter().position(|experiment| experiment.id == experiment_of(line)));
        fs::write(&path, format!("{HEADER}\n{}\n", all.join("\n"))).unwrap();
        return;
    }
    let mut changed = String::new();
    for line in kept.iter().filter(|line| !said.iter().any(|now| now == *line)) {
        writeln!(changed, "- {line}").unwrap();
    }
    for line in said.iter().filter(|line| !kept.contains(&line.as_str())) {
        writeln!(changed, "+ {line}").unwrap();
    }
    assert!(changed.is_empty(), "verdicts changed; if they should, `make verdicts`:\n{changed}");
}

/// The experiment that a line of the table is of.
fn experiment_of(line: &str) -> &str {
    line.split(',').next().unwrap_or("")
}

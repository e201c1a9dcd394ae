//! What the quick forms of the experiments say is what they said when they were last looked at:
//! a change that turns a verdict is seen. Overlays that take longest are left out: `make quick`
//! runs them too.
//!
//! `UPDATE_VERDICTS=1 cargo test -p anabranch-papers --test quick_verdicts` (or `make verdicts`)
//! writes `experiments/quick-verdicts.csv` anew; look at the difference before it is committed.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anabranch_papers::{EXPERIMENTS, Length, Request, Row};
use anabranch_scenario::remy_table::DIRECTORY_VARIABLE;
use rayon::prelude::*;

/// Experiments with rows that are there only where Remy's tables are.
const WITH_TABLES: [&str; 3] = ["xavier-fig-1", "xavier-fig-2", "remy-golden"];

/// Experiments on overlays whose quick form takes half a minute or more, or is of the same kind as
/// another's.
const LONG: [&str; 10] = [
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

#[test]
fn quick_runs_say_what_they_said() {
    let has_tables = std::env::var_os(DIRECTORY_VARIABLE).is_some();
    if has_tables {
        eprintln!("{DIRECTORY_VARIABLE} is set: {} are left out", WITH_TABLES.join(", "));
    }
    let is_left_out = |id: &str| LONG.contains(&id) || (has_tables && WITH_TABLES.contains(&id));
    let request = Request { length: Length::Quick, ..Request::default() };
    let experiments: Vec<_> = EXPERIMENTS.iter().filter(|experiment| !is_left_out(experiment.id)).collect();
    // Many have a part that is a single run.
    let said = experiments.par_iter().map(|experiment| {
        let started = Instant::now();
        let findings = experiment.run(&request).unwrap_or_else(|error| panic!("{}: {error}", experiment.id));
        eprintln!("{:24} {:6.1} s", experiment.id, started.elapsed().as_secs_f64());
        findings.rows.iter().filter_map(|row| said_of(experiment.id, row)).collect::<Vec<String>>()
    });
    let said: Vec<String> = said.collect::<Vec<_>>().concat();
    assert!(!said.is_empty());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/quick-verdicts.csv");
    if std::env::var_os("UPDATE_VERDICTS").is_some() {
        assert!(!has_tables, "unset {DIRECTORY_VARIABLE} first: not everybody has these tables");
        fs::write(&path, format!("{HEADER}\n{}\n", said.join("\n"))).unwrap();
    }
    let text = fs::read_to_string(&path).expect("experiments/quick-verdicts.csv is part of the project");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let kept: Vec<&str> = lines.filter(|line| !is_left_out(line.split(',').next().unwrap_or(""))).collect();
    let mut changed = String::new();
    for line in kept.iter().filter(|line| !said.iter().any(|now| now == *line)) {
        writeln!(changed, "- {line}").unwrap();
    }
    for line in said.iter().filter(|line| !kept.contains(&line.as_str())) {
        writeln!(changed, "+ {line}").unwrap();
    }
    assert!(changed.is_empty(), "verdicts changed; if they should, `make verdicts`:\n{changed}");
}

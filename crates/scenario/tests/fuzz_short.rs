//! Scenario files and Remy's tables under a short fuzz run that any compiler can do, as that
//! of the network's decoders: each input of the corpus is mutated a fixed number of times by
//! a seeded generator. A scenario's lines are mutated too, since most changes of a byte only
//! make it no TOML.
//!
//! `UPDATE_CORPUS=1 cargo test -p anabranch-scenario --test fuzz_short` writes the corpus anew;
//! `FUZZ_ITERATIONS=1000000` makes the run longer, `FUZZ_SEED=2` another one.

#[path = "../../../fuzz/scenario_checks.rs"]
mod checks;
#[path = "../../../fuzz/short_run.rs"]
mod short_run;

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_control::rng::Rng;
use short_run::{Target, mutate};

/// How many inputs of other targets cost as much as a scenario, which may have thousands of
/// flows.
const SCENARIO_COST: usize = 10;

/// Values that replace others.
const VALUES: [&str; 20] = [
    "0",
    "-1",
    "1",
    "4096",
    "20001",
    "1e308",
    "-0.0",
    "nan",
    "inf",
    "9223372036854775807",
    "true",
    "\"\"",
    "\"{i}\"",
    "\"unlimited\"",
    "\"100 Gbit/s\"",
    "[]",
    "{}",
    "{ uniform = [1, 2], every_s = 1 }",
    "{ sizes = \"web-search\" }",
    "{ sizes = { cdf = [[1, 0.5], [1, 1]] }, off_mean_s = 0 }",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The project's own scenarios.
fn scenarios() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for folder in ["scenarios", "scenarios/flows", "scenarios/stream"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "toml") {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                all.push((name, fs::read(path).unwrap()));
            }
        }
    }
    all.sort();
    all
}

/// A protobuf field with bytes in it.
fn nested(number: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(number < 16 && bytes.len() < 128);
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

/// A protobuf field with a double in it.
fn double(number: u16, value: f64) -> Vec<u8> {
    let key = number << 3 | 1;
    [&[(key as u8 & 0x7f) | 0x80, (key >> 7) as u8][..], &value.to_le_bytes()].concat()
}

/// A box: lower and upper bounds of the round-trip time over the least.
fn domain(from: f64, to: f64) -> Vec<u8> {
    [nested(11, &double(23, from)), nested(12, &double(23, to))].concat()
}

/// A leaf whose rule adds a packet with each ACK.
fn leaf(from: f64, to: f64) -> Vec<u8> {
    let rule = [&[0xf8, 0x01, 0x02][..], &double(32, 0.9), &double(33, 1.5)].concat();
    [nested(1, &domain(from, to)), nested(3, &rule)].concat()
}

/// Tables: one rule, a rule without bounds, a cut, and cuts that leave a gap and overlap.
fn tables() -> Vec<(String, Vec<u8>)> {
    let cut = |middle: f64, other: f64| {
        [nested(1, &domain(0.0, 9.0)), nested(2, &leaf(0.0, middle)), nested(2, &leaf(other, 9.0))].concat()
    };
    let all = [
        ("rule", leaf(0.0, 9.0)),
        ("boundless", nested(3, &[0xf8, 0x01, 0x02])),
        ("cut", cut(2.0, 2.0)),
        ("gap", cut(2.0, 3.0)),
        ("overlap", cut(3.0, 2.0)),
        ("beyond-the-beginning", leaf(1.0, 9.0)),
    ];
    all.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

fn remy_table() -> Target {
    Target { name: "remy_table", check: checks::remy_table, cost: 1, own: tables() }
}

fn scenario() -> Target {
    Target { name: "scenario", check: checks::scenario, cost: SCENARIO_COST, own: scenarios() }
}

#[test]
fn the_corpus_is_what_the_project_has() {
    [remy_table(), scenario()].iter().for_each(Target::check_corpus);
}

#[test]
fn the_tables_of_the_corpus_are_what_their_names_say() {
    for (name, bytes) in tables() {
        let rules = anabranch_scenario::remy_table::decode(&bytes).map(|rules| rules.len());
        match name.as_str() {
            "gap" | "overlap" => assert!(rules.is_err(), "{name}: {rules:?}"),
            "cut" => assert!(matches!(rules, Ok(2)), "{name}: {rules:?}"),
            _ => assert!(matches!(rules, Ok(1)), "{name}: {rules:?}"),
        }
    }
}

#[test]
fn mutated_tables_break_no_rule() {
    remy_table().run();
}

#[test]
fn mutated_scenarios_break_no_rule() {
    scenario().run_changed(|input, inputs, rng| {
        if rng.below(4) == 0 {
            mutate(input, inputs, rng);
        } else {
            *input = mutate_lines(input, inputs, rng);
        }
    });
}

/// Drops or doubles a line, takes one from another scenario, or gives a key another value.
fn mutate_lines(input: &[u8], inputs: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let text = String::from_utf8_lossy(input).into_owned();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return input.to_vec();
    }
    let place = rng.below(lines.len());
    match rng.below(5) {
        0 => drop(lines.remove(place)),
        1 => lines.insert(place, lines[place].clone()),
        2 => {
            let other = String::from_utf8_lossy(&inputs[rng.below(inputs.len())]).into_owned();
            let others: Vec<&str> = other.lines().collect();
            if !others.is_empty() {
                lines.insert(place, others[rng.below(others.len())].to_owned());
            }
        }
        _ => {
            let value = VALUES[rng.below(VALUES.len())];
            if let Some((key, _)) = lines[place].split_once('=') {
                lines[place] = format!("{key}= {value}");
            }
        }
    }
    lines.join("\n").into_bytes()
}

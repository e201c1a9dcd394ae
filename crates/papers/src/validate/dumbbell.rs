//! Reno and Cubic over the dumbbell that other people's simulators were measured on.
//!
//! Programs differ. For Reno we follow ns-3: it counts ACKs, as RFC 5681 allows, and halves
//! what is in flight once a loss is known. With both read so, ours agrees with it in every
//! figure; by default ours follows RFC 9002, which counts bytes and halves the window.
//! Cubic is ours by default, RFC 9438's: ns-3-dev has RFC 8312's Reno-friendly region, and
//! ns-3.37 none at all (docs/flow/cubic.md shows which reading explains which version).
//!
//! Each runs under the recoveries that these programs have. Under `rfc6675`, TCP as most of them have it, goodput is
//! compared, at every loss, with nothing else set: the word brings ns-3's reading of the window's rule and of recovery
//! with it. For ns-2 the RFCs' are set; its NewReno has no selective ACKs (`rfc6582`). Under our default recovery
//! everything is compared, as long as a window's rule and not the repair of its losses decides.

use std::path::{Path, PathBuf};

use anabranch_control::flow::registry;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::flow::{LossRecovery, TcpOptions};
use serde::Deserialize;

use super::{Check, ValidationError, run_all};
use anabranch_lab::flows::FlowsMeasured;
use anabranch_lab::parallel::Progress;
use anabranch_scenario::flows::dumbbell::Bulk;
use anabranch_stats as stats;

/// The figures that come with the program.
const OURS: &str = include_str!("dumbbell.csv");

/// Seeds of our runs.
const SEEDS: u64 = 10;

/// Simulated seconds, and those before goodput is counted.
const SECONDS: u64 = 300;
const START_UP: u64 = 20;

/// How a named controller of other programs reads here.
struct Reading {
    theirs: &'static str,
    ours: &'static str,
    parameters: &'static str,
    /// The programs whose figures are followed.
    programs: &'static [&'static str],
    recovery: LossRecovery,
    setting: Setting,
}

/// What programs do otherwise with the same dumbbell.
struct Setting {
    /// What a packet has on the wire beside its data.
    header: u64,
    /// Seconds from which on goodput counts.
    from_s: u64,
    /// What TCP's recovery leaves open; none is as the recovery's name has it.
    tcp: Option<TcpOptions>,
}

const NS_3: Setting = Setting { header: 54, from_s: START_UP, tcp: None };

/// Without timestamps, and counting from the beginning.
const NS_2: Setting = Setting { header: 40, from_s: 0, tcp: Some(TcpOptions::RFC) };

/// The same with its own timer.
const NS_2_TIMER: Setting =
    Setting { tcp: Some(TcpOptions { least_timeout: Duration::from_millis(200), ..TcpOptions::RFC }), ..NS_2 };

const NS_3_READING: &str = "counting = \"acks\"\nhalving = \"in-flight\"";

/// Programs without RACK.
const CLASSIC_NS_3: &[&str] = &["ns-3-dev", "ns-3.37", "ns-3.44"];

const READINGS: [Reading; 7] = [
    Reading {
        theirs: "NewReno",
        ours: "reno",
        parameters: NS_3_READING,
        programs: &["ns-3-dev"],
        recovery: LossRecovery::Rack,
        setting: NS_3,
    },
    Reading {
        theirs: "Cubic",
        ours: "cubic",
        parameters: "",
        programs: &["ns-3-dev"],
        recovery: LossRecovery::Rack,
        setting: NS_3,
    },
    Reading {
        theirs: "NewReno",
        ours: "reno",
        parameters: "",
        programs: CLASSIC_NS_3,
        recovery: LossRecovery::Rfc6675,
        setting: NS_3,
    },
    Reading {
        theirs: "Cubic",
        ours: "cubic",
        parameters: "",
        programs: CLASSIC_NS_3,
        recovery: LossRecovery::Rfc6675,
        setting: NS_3,
    },
    // ns-2 halves the window and not what is in flight.
    Reading {
        theirs: "Sack1",
        ours: "reno",
        parameters: "halving = \"window\"",
        programs: &["ns-2.35"],
        recovery: LossRecovery::Rfc6675,
        setting: NS_2,
    },
    // Without selective ACKs.
    Reading {
        theirs: "Newreno",
        ours: "reno",
        parameters: "halving = \"window\"",
        programs: &["ns-2.35"],
        recovery: LossRecovery::Rfc6582,
        setting: NS_2_TIMER,
    },
    Reading {
        theirs: "Linux cubic",
        ours: "cubic",
        parameters: "reno_friendly = \"rfc-8312\"",
        programs: &["ns-2.35"],
        recovery: LossRecovery::Rfc6675,
        setting: NS_2,
    },
];

/// TCP's recovery without RACK must agree with that of a simulator that has no other to this
/// share, with loss and without: set before the comparison was made.
const CLASSIC: f64 = 0.05;

/// Random loss above which ours and a program without RACK are not compared under our default
/// recovery: retransmissions are lost too, which costs the program a timeout each.
const MOST_LOSS_UNDER_RACK: f64 = 0.01;

/// A line of the table.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    program: String,
    flows: usize,
    controller: String,
    bottleneck_mbit_s: u64,
    loss: f64,
    goodput_sum_mbit_s: f64,
    owd_flow1_ms: Option<f64>,
    /// None where goodput alone was measured.
    retransmits: Option<f64>,
}

/// A table of other programs' figures does not read.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// It is not there.
    #[error("{}: {error}; expected a table of dumbbell figures", .path.display())]
    Unreadable {
        /// Where it should be.
        path: PathBuf,
        /// Why it can't be read.
        error: std::io::Error,
    },
    /// It is not such a table.
    #[error("{}: {error}; expected the columns program, flows, controller, bottleneck_mbit_s, loss, \
             goodput_sum_mbit_s, owd_flow1_ms and retransmits", .path.display())]
    Malformed {
        /// Where it is.
        path: PathBuf,
        /// What is wrong, with its line.
        error: csv::Error,
    },
    /// It says nothing, so that whatever is held against it would hold.
    #[error("{}: it has no row; expected a table of dumbbell figures", .path.display())]
    Empty {
        /// Where it is.
        path: PathBuf,
    },
}

fn lines(reference: Option<&Path>) -> Result<Vec<Line>, ReferenceError> {
    let path = reference.unwrap_or(Path::new("dumbbell.csv"));
    let text = match reference {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| ReferenceError::Unreadable { path: path.to_owned(), error })?,
        None => OURS.to_owned(),
    };
    let lines = parse(&text).map_err(|error| ReferenceError::Malformed { path: path.to_owned(), error })?;
    if lines.is_empty() {
        return Err(ReferenceError::Empty { path: path.to_owned() });
    }
    Ok(lines)
}

fn parse(text: &str) -> Result<Vec<Line>, csv::Error> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    reader.deserialize().collect()
}

/// What our runs of one case give, in the table's units.
struct Case {
    goodput_mbit_s: f64,
    one_way_ms: f64,
    retransmits: f64,
}

impl Case {
    fn of(runs: &[FlowsMeasured], setting: &Setting) -> Case {
        let mean = |of: &dyn Fn(&FlowsMeasured) -> f64| {
            stats::mean(&runs.iter().map(of).collect::<Vec<f64>>()).unwrap_or(f64::NAN)
        };
        let counted = (SECONDS - setting.from_s) as f64;
        Case {
            goodput_mbit_s: mean(&|run| {
                let bytes: u64 = run.flows.iter().map(|flow| flow.goodput_bytes).sum();
                bytes as f64 * 8.0 / counted / 1e6
            }),
            one_way_ms: mean(&|run| run.flows[0].one_way.mean_ms().unwrap_or(f64::NAN)),
            retransmits: mean(&|run| run.flows.iter().map(|flow| flow.packets_lost as f64).sum()),
        }
    }
}

/// The checks, and what is reported only: what lies outside of what a comparison assumes.
pub fn checks(reference: Option<&Path>, progress: &Progress) -> Result<(Vec<Check>, Vec<Check>), ValidationError> {
    compare(&lines(reference)?, progress)
}

fn compare(lines: &[Line], progress: &Progress) -> Result<(Vec<Check>, Vec<Check>), ValidationError> {
    let mut cases = Vec::new();
    let mut scenarios = Vec::new();
    for reading in &READINGS {
        let followed = |line: &&Line| line.controller == reading.theirs && reading.programs.contains(&&*line.program);
        for line in lines.iter().filter(followed) {
            cases.push((reading, line));
            scenarios.extend((1..=SEEDS).map(|seed| {
                let mut scenario = Bulk {
                    flows: line.flows,
                    controller: registry::find(reading.ours).expect("a registered controller"),
                    parameters: reading.parameters.parse().expect("parameters are TOML"),
                    rate: Rate::from_bits_per_sec(line.bottleneck_mbit_s * 1_000_000),
                    loss: line.loss,
                    length: Duration::SECOND * SECONDS,
                    seed,
                }
                .scenario();
                scenario.packets.recovery = reading.recovery;
                scenario.packets.tcp = reading.setting.tcp.unwrap_or(TcpOptions::under(reading.recovery));
                scenario.packets.header = Bytes::new(reading.setting.header);
                scenario.goodput_from = Time::ZERO + Duration::SECOND * reading.setting.from_s;
                scenario
            }));
        }
    }
    let runs = run_all(&scenarios, progress)?;
    let (mut checks, mut outside) = (Vec::new(), Vec::new());
    for ((reading, line), runs) in cases.into_iter().zip(runs.chunks(SEEDS as usize)) {
        assert!(runs.iter().all(|run| run.flows[0].controller == reading.ours), "another controller ran");
        let of_case = of_case(reading, line, &Case::of(runs, &reading.setting), lines);
        if reading.recovery == LossRecovery::Rack && line.loss > MOST_LOSS_UNDER_RACK {
            let bound = format!("{} repairs losses without RACK: see rfc6675", line.program);
            outside.extend(of_case.into_iter().map(|check| Check { bound: bound.clone(), ..check }));
        } else {
            checks.extend(of_case);
        }
    }
    Ok((checks, outside))
}

fn of_case(reading: &Reading, line: &Line, ours: &Case, lines: &[Line]) -> Vec<Check> {
    let flows = if line.flows == 1 { "1 flow".to_owned() } else { format!("{} flows", line.flows) };
    let loss = if line.loss > 0.0 { format!(", {} % loss", (line.loss * 1e6).round() / 1e4) } else { String::new() };
    let rate = match line.bottleneck_mbit_s {
        5 => String::new(),
        other => format!(", {other} Mbit/s"),
    };
    let recovery = match reading.recovery {
        LossRecovery::Rack => String::new(),
        other => format!(", {}", other.name()),
    };
    // What is not the word's own reading.
    let set = match reading.recovery {
        recovery if recovery.is_tcp() && !reading.parameters.is_empty() => format!(" ({})", reading.parameters),
        _ => String::new(),
    };
    let check = |quantity: &str, unit, ours, reference| Check {
        model: format!("{}{recovery}{set}, {flows}{rate}{loss}", reading.ours),
        against: line.program.clone(),
        quantity: quantity.to_owned(),
        unit,
        ours,
        reference,
        low: f64::NEG_INFINITY,
        high: f64::INFINITY,
        bound: String::new(),
    };
    let goodput = check("goodput", "Mbit/s", ours.goodput_mbit_s, line.goodput_sum_mbit_s);
    if reading.recovery.is_tcp() {
        return vec![goodput.within(CLASSIC)];
    }
    if line.loss > 0.0 {
        return vec![inside_span(goodput, line, lines)];
    }
    let mut checks = vec![goodput.within(0.01)];
    if let Some(delay) = line.owd_flow1_ms {
        let delay = check("one-way delay", "ms", ours.one_way_ms, delay);
        match (reading.theirs, line.flows) {
            ("NewReno", 1) => checks.push(delay.within(0.01)),
            // A fraction of a packet decides whether fast convergence fires (docs/flow/cubic.md).
            (_, 1) => {}
            _ => checks.push(delay.within(0.03)),
        }
    }
    if let ("NewReno", 1, Some(retransmits)) = (reading.theirs, line.flows, line.retransmits) {
        let losses = check("losses", "packets", ours.retransmits, retransmits);
        let (low, high) = (retransmits - 5.0, retransmits + 5.0);
        checks.push(Check { low, high, bound: "within 5 packets".to_owned(), ..losses });
    }
    checks
}

/// Under loss the programs differ by more than a few percent: inside what they span, and 3 %.
fn inside_span(check: Check, line: &Line, lines: &[Line]) -> Check {
    let family = |name: &str| name.to_lowercase().contains("cubic");
    let same = |other: &&Line| {
        (other.flows, other.loss) == (line.flows, line.loss)
            && family(&other.controller) == family(&line.controller)
            && other.controller != "BBR"
            // Of these goodput alone was measured, for the other recovery, after this bound was set.
            && other.retransmits.is_some()
    };
    let goodputs: Vec<f64> = lines.iter().filter(same).map(|other| other.goodput_sum_mbit_s).collect();
    let low = goodputs.iter().copied().fold(f64::INFINITY, f64::min) * 0.97;
    let high = goodputs.iter().copied().fold(0.0, f64::max) * 1.03;
    Check { low, high, bound: format!("in what {} programs span, and 3 %", goodputs.len()), ..check }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_one_percent_of_loss_only_recovery_without_rack_is_held_against_a_program_without_it() {
        let header = OURS.lines().find(|line| line.starts_with("program,")).expect("the table has a header");
        let row = "ns-3-dev,4,NewReno,5,0.035,1,2.25,0,0.47,1,35,0,2100,0,10";
        let (checks, outside) = compare(&parse(&format!("{header}\n{row}\n")).unwrap(), &Progress::default()).unwrap();
        let [check] = &checks[..] else { panic!("{checks:?}") };
        assert!(check.model.contains("rfc6675") && check.holds(), "{check:?}");
        let [unjudged] = &outside[..] else { panic!("{outside:?}") };
        assert!(!unjudged.model.contains("rfc6675") && unjudged.bound.contains("without RACK"), "{unjudged:?}");
    }
}

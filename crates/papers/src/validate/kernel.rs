//! Reno, Cubic and BBR of a running kernel beside ours, over one dumbbell: what is compared,
//! and the verdicts. The kernel's runs are made elsewhere, on real packets; ours are
//! simulated, over the same links.
//!
//! ```text
//! 4 senders --100 Mbit/s, 10 ms-- bottleneck, 10 ms, queue of 60 ms, loss -- 4 receivers
//! ```
//!
//! The bound was set before the first comparison. A difference is within it or beyond it only if
//! its whole 99 % interval is: there are two dozen, and 95 % ones would miss by chance too often
//! (set after a first quick run).

use std::fmt;
use std::str::FromStr;

use anabranch_control::flow::registry;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::flows::FlowsMeasured;
use anabranch_lab::parallel::Progress;
use anabranch_proto::flow::AckPolicy;
use anabranch_report::{Axis, Figure, Report, Series, XyChart};
use anabranch_scenario::flows::dumbbell::Bulk;
use anabranch_scenario::flows::{FlowScenario, PacketSpec, Stack};
use anabranch_stats as stats;
use serde::Serialize;

use super::{ValidationError, run_all};

/// Random losses behind the bottleneck.
const LOSSES: [f64; 4] = [0.0, 0.01, 0.035, 0.05];

/// Rates of the bottleneck, Mbit/s.
const RATES: [u64; 2] = [5, 20];

/// Flows, all of one kind.
const FLOWS: usize = 4;

/// Seeds of our simulations, at the least.
const SEEDS: u64 = 20;

/// Our simulations for each run of the kernel's, at the least: its spread shall be the larger part.
const SEEDS_EACH: u64 = 3;

/// The kernel's goodput may lie this far from ours.
const BOUND: f64 = 0.05;

/// Of the intervals that are shown, and of those that judge.
const SHOWN: f64 = 0.95;
const JUDGED: f64 = 0.99;

/// Between two points of a window curve.
const EVERY: Duration = Duration::from_millis(100);

/// Bytes of IPv4 and TCP with its timestamps.
const HEADERS: Bytes = Bytes::new(52);

/// Linux's receiver waits at least this long for a second packet (its TCP_DELACK_MIN).
const ACK_DELAY: Duration = Duration::from_millis(40);

/// A reading of ours that a congestion control of the kernel's is held against.
#[derive(Debug)]
struct Reading {
    /// The name in the kernel's list.
    theirs: &'static str,
    ours: &'static str,
    parameters: &'static str,
    /// Whether the bound holds for it, or the difference is reported alone.
    judged: bool,
}

const READINGS: [Reading; 4] = [
    Reading { theirs: "reno", ours: "reno", parameters: "", judged: true },
    Reading { theirs: "cubic", ours: "cubic", parameters: "linux = [\"all\"]", judged: true },
    // RFC 9438's Reno-friendly region is not Linux's.
    Reading { theirs: "cubic", ours: "cubic", parameters: "", judged: false },
    Reading { theirs: "bbr", ours: "bbr", parameters: "", judged: true },
];

/// How long, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Seconds of a run.
    pub seconds: u64,
    /// Seconds before goodput counts.
    pub start_up: u64,
    /// Runs of the kernel's for each case.
    pub repeats: u64,
}

impl Extent {
    /// About ten minutes on real packets.
    pub const FULL: Extent = Extent { seconds: 40, start_up: 10, repeats: 4 };
    /// About two.
    pub const QUICK: Extent = Extent { seconds: 15, start_up: 5, repeats: 2 };

    /// Our simulations of each case.
    fn seeds(&self) -> u64 {
        SEEDS.max(SEEDS_EACH * self.repeats)
    }
}

/// The kernel's congestion controls that can be compared.
pub fn subjects() -> Vec<&'static str> {
    let mut names: Vec<&str> = READINGS.iter().map(|reading| reading.theirs).collect();
    names.dedup();
    names
}

/// A congestion control under one rate and one loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Case {
    /// The name in the kernel's list.
    pub congestion: &'static str,
    /// The bottleneck's rate.
    pub rate_mbit_s: u64,
    /// The share of packets that is lost behind the bottleneck.
    pub loss: f64,
}

impl fmt::Display for Case {
    /// As [`Only`] takes it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{},{},{}", self.congestion, self.rate_mbit_s, short(self.loss))
    }
}

/// Cases that are asked for: those of a congestion control, or with one rate or loss alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Only {
    text: String,
    congestion: String,
    rate_mbit_s: Option<u64>,
    loss: Option<f64>,
}

impl FromStr for Only {
    type Err = String;

    /// As in `reno`, `reno,20` and `reno,20,3.5`: Mbit/s and per cent.
    fn from_str(text: &str) -> Result<Only, String> {
        let mut parts = text.split(',').map(str::trim);
        let congestion = parts.next().unwrap_or_default().to_owned();
        let wrong = |what: &str| format!("{what}: expected a congestion control, Mbit/s and per cent, as in reno,20,1");
        let rate_mbit_s = parts.next().map(|rate| rate.parse().map_err(|_| wrong(rate))).transpose()?;
        let loss = parts.next().map(|loss| loss.parse::<f64>().map_err(|_| wrong(loss))).transpose()?;
        match parts.next() {
            Some(more) => Err(wrong(more)),
            None => Ok(Only { text: text.to_owned(), congestion, rate_mbit_s, loss: loss.map(|loss| loss / 100.0) }),
        }
    }
}

impl Only {
    fn holds(&self, case: &Case) -> bool {
        self.congestion == case.congestion
            && self.rate_mbit_s.is_none_or(|rate| rate == case.rate_mbit_s)
            && self.loss.is_none_or(|loss| (loss - case.loss).abs() < 1e-9)
    }
}

/// Those of `cases` that `asked` names, all if it names none.
///
/// # Errors
///
/// When it names one that there is not: which there are.
pub fn only(asked: &[Only], cases: Vec<Case>) -> Result<Vec<Case>, String> {
    if let Some(unknown) = asked.iter().find(|asked| !cases.iter().any(|case| asked.holds(case))) {
        let losses = LOSSES.map(|loss| short(loss).to_string()).join(", ");
        let rates = RATES.map(|rate| rate.to_string()).join(" and ");
        let names = subjects().join(", ");
        let text = &unknown.text;
        return Err(format!(
            "--only {text}: there is no such case; there are {names}, each at {rates} Mbit/s and {losses} % loss"
        ));
    }
    let is_asked = |case: &Case| asked.is_empty() || asked.iter().any(|asked| asked.holds(case));
    Ok(cases.into_iter().filter(is_asked).collect())
}

/// All cases of these congestion controls.
pub fn cases(congestion: &[&'static str]) -> Vec<Case> {
    let each = |&congestion: &&'static str| {
        RATES.into_iter().flat_map(move |rate_mbit_s| LOSSES.map(|loss| Case { congestion, rate_mbit_s, loss }))
    };
    congestion.iter().flat_map(each).collect()
}

impl Case {
    fn readings(&self) -> impl Iterator<Item = &'static Reading> {
        READINGS.iter().filter(|reading| reading.theirs == self.congestion)
    }

    fn ours(&self, extent: Extent, reading: &Reading, seed: u64) -> FlowScenario {
        let bulk = Bulk {
            flows: FLOWS,
            controller: registry::find(reading.ours).expect("a registered controller"),
            parameters: reading.parameters.parse().expect("parameters are TOML"),
            rate: Rate::from_bits_per_sec(self.rate_mbit_s * 1_000_000),
            loss: self.loss,
            length: Duration::SECOND * extent.seconds,
            seed,
        };
        let goodput_from = Time::ZERO + Duration::SECOND * extent.start_up;
        let ack_policy = AckPolicy { every: 2, max_delay: ACK_DELAY, filled_gap: true, ..AckPolicy::default() };
        let scenario = bulk.scenario();
        let packets = PacketSpec { header: HEADERS, ack: HEADERS, ack_policy, push: true, ..scenario.packets };
        let sample_every = (seed == 1).then_some(EVERY);
        FlowScenario { goodput_from, sample_every, packets, ..scenario }
    }

    /// The kernel's run number `repeat`, from 1.
    pub fn theirs(&self, extent: Extent, repeat: u64) -> FlowScenario {
        let reading = self.readings().next().expect("each case has a reading");
        let mut scenario = self.ours(extent, reading, repeat);
        scenario.flows.iter_mut().for_each(|flow| {
            flow.stack = Stack::Kernel(self.congestion.to_owned());
            flow.parameters.clear();
        });
        scenario
    }
}

/// One flow's window over time: seconds and packets.
type Curve = Vec<(f64, f64)>;

/// A run in short.
#[derive(Clone, Debug)]
pub struct Run {
    goodput_mbit_s: f64,
    jain: f64,
    curve: Curve,
}

impl Run {
    /// What `measured` says of `scenario`.
    pub fn of(scenario: &FlowScenario, measured: &FlowsMeasured) -> Run {
        let bytes: u64 = measured.flows.iter().map(|flow| flow.goodput_bytes).sum();
        let counted = (Time::ZERO + measured.length).since(scenario.goodput_from);
        let packet = scenario.packets.data.get() as f64;
        let windows = measured.series.flows.first().map_or(&[][..], |flow| &flow.window);
        let at = measured.series.at.iter().map(|at| at.as_secs_f64());
        let each: Vec<f64> = measured.flows.iter().map(|flow| flow.goodput_bytes as f64).collect();
        Run {
            jain: stats::jain_fairness(&each).unwrap_or(f64::NAN),
            goodput_mbit_s: bytes as f64 * 8.0 / counted.as_secs_f64() / 1e6,
            curve: at.zip(windows.iter().map(|window| window / packet)).collect(),
        }
    }
}

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval of the difference is within the bound.
    Holds,
    /// It is on both sides of an end of it: more runs would tell.
    Unsettled,
    /// The whole interval is beyond.
    Differs,
    /// No bound was set.
    NotJudged,
    /// There are not two runs.
    Unknown,
}

/// The kernel beside one reading of ours.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What was compared.
    #[serde(flatten)]
    pub case: Case,
    /// The controller, and its parameters as TOML.
    pub ours: String,
    /// The kernel's goodputs, Mbit/s, one for each run that counts.
    pub kernel_mbit_s: Vec<f64>,
    /// Ours, one for each seed.
    pub ours_mbit_s: Vec<f64>,
    /// Jain's index of the four flows of the kernel's, the mean of its runs.
    pub kernel_jain: Option<f64>,
    /// Of ours.
    pub ours_jain: Option<f64>,
    /// The kernel's mean less ours, as a share of ours.
    pub difference: Option<f64>,
    /// Half of its 95 % interval.
    pub half_width: Option<f64>,
    /// What that says.
    pub verdict: Verdict,
    #[serde(skip)]
    curves: [(String, Curve); 2],
}

/// Our simulations of a case.
#[derive(Debug)]
pub struct Ours {
    case: Case,
    readings: Vec<(&'static Reading, Vec<Run>)>,
}

/// Simulates ours.
///
/// # Errors
///
/// When one misbehaves, or at an interruption.
pub fn simulate(cases: &[Case], extent: Extent, progress: &Progress) -> Result<Vec<Ours>, ValidationError> {
    let mut all = Vec::new();
    for case in cases {
        let mut readings = Vec::new();
        for reading in case.readings() {
            let scenarios: Vec<FlowScenario> =
                (1..=extent.seeds()).map(|seed| case.ours(extent, reading, seed)).collect();
            let runs = run_all(&scenarios, progress)?;
            assert!(runs.iter().all(|run| run.flows[0].controller == reading.ours), "another controller ran");
            readings
                .push((reading, scenarios.iter().zip(&runs).map(|(scenario, run)| Run::of(scenario, run)).collect()));
        }
        all.push(Ours { case: *case, readings });
    }
    Ok(all)
}

impl Ours {
    /// What the links will carry, Mbit/s: the most of its readings.
    pub fn load_mbit_s(&self) -> f64 {
        let runs = self.readings.iter().flat_map(|(_, runs)| runs);
        runs.map(|run| run.goodput_mbit_s).fold(0.0, f64::max)
    }

    /// Beside the kernel's runs.
    pub fn beside(&self, kernel: &[Run]) -> Vec<Comparison> {
        let each = |(reading, runs): &(&Reading, Vec<Run>)| compare(self.case, reading, runs, kernel);
        self.readings.iter().map(each).collect()
    }
}

fn compare(case: Case, reading: &Reading, ours: &[Run], kernel: &[Run]) -> Comparison {
    let goodputs = |runs: &[Run]| runs.iter().map(|run| run.goodput_mbit_s).collect::<Vec<f64>>();
    let (ours_mbit_s, kernel_mbit_s) = (goodputs(ours), goodputs(kernel));
    let verdict = match difference(&ours_mbit_s, &kernel_mbit_s, JUDGED) {
        None => Verdict::Unknown,
        Some(_) if !reading.judged => Verdict::NotJudged,
        Some((share, half)) => judge(share, half),
    };
    let difference = difference(&ours_mbit_s, &kernel_mbit_s, SHOWN);
    let name = match reading.parameters {
        "" => reading.ours.to_owned(),
        parameters => format!("{}, {parameters}", reading.ours),
    };
    let jain = |runs: &[Run]| stats::mean(&runs.iter().map(|run| run.jain).collect::<Vec<f64>>());
    let curve = |runs: &[Run]| runs.first().map_or_else(Vec::new, |run| run.curve.clone());
    Comparison {
        case,
        curves: [(format!("kernel's {}", case.congestion), curve(kernel)), (name.clone(), curve(ours))],
        ours: name,
        kernel_mbit_s,
        ours_mbit_s,
        kernel_jain: jain(kernel),
        ours_jain: jain(ours),
        difference: difference.map(|(share, _)| share),
        half_width: difference.map(|(_, half)| half),
        verdict,
    }
}

/// The mean of `kernel` less that of `ours` as a share of ours, and half of its interval:
/// the root of the sum of both halves' squares (Zou, Donner 2008).
fn difference(ours: &[f64], kernel: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let ours = stats::estimate_of_runs(ours, confidence)?;
    let kernel = stats::estimate_of_runs(kernel, confidence)?;
    let half = libm::hypot(ours.half_width, kernel.half_width);
    Some((kernel.mean / ours.mean - 1.0, half / ours.mean))
}

fn judge(share: f64, half: f64) -> Verdict {
    if share.abs() + half <= BOUND {
        Verdict::Holds
    } else if share.abs() - half > BOUND {
        Verdict::Differs
    } else {
        Verdict::Unsettled
    }
}

/// A page with both windows of each comparison in one chart.
pub fn kernel_page(comparisons: &[Comparison]) -> Report {
    let figure = |comparison: &Comparison| {
        let Case { congestion, rate_mbit_s, loss } = comparison.case;
        let chart = XyChart::new(Axis::new("time", "s"), Axis::new("window", "packets").from_zero());
        let chart = comparison.curves.iter().fold(chart, |chart, (name, curve)| {
            let known = curve.iter().copied().filter(|(_, window)| window.is_finite());
            chart.series(Series::line(&**name, known.collect::<Curve>()))
        });
        let title = format!("{congestion}, {rate_mbit_s} Mbit/s, {} % loss", short(loss));
        Figure::chart(format!("{title}: {}", comparison.ours), chart)
    };
    let figures: Vec<Figure> = comparisons.iter().map(figure).collect();
    let title = Report::new("Windows beside the kernel's").paragraph(
        "The first of four flows over a bottleneck with a round trip of 60 ms and a queue of 60 ms: the kernel's on \
         real packets, ours simulated, ten points a second. Losses come at other instants in each.",
    );
    figures.chunks(2).fold(title, |report, pair| report.figures_side_by_side(pair.to_vec()))
}

/// A share in per cent.
fn short(share: f64) -> f64 {
    (share * 1000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent { seconds: 6, start_up: 2, repeats: 2 };

    fn run(goodput_mbit_s: f64) -> Run {
        Run { goodput_mbit_s, jain: 1.0, curve: vec![(0.1, 10.0), (0.2, f64::NAN)] }
    }

    #[test]
    fn a_difference_is_within_or_beyond_its_bound_only_if_its_whole_interval_is() {
        assert_eq!(judge(-0.02, 0.029), Verdict::Holds);
        assert_eq!(judge(-0.02, 0.031), Verdict::Unsettled);
        assert_eq!(judge(0.0, 0.2), Verdict::Unsettled);
        assert_eq!(judge(0.08, 0.031), Verdict::Unsettled);
        assert_eq!(judge(-0.08, 0.029), Verdict::Differs);
    }

    #[test]
    fn cases_are_asked_for_by_name_rate_and_loss() {
        let asked = |texts: &[&str]| {
            let asked: Result<Vec<Only>, String> = texts.iter().map(|text| text.parse()).collect();
            only(&asked?, cases(&subjects()))
        };
        assert_eq!(asked(&[]).unwrap(), cases(&subjects()));
        assert_eq!(asked(&["cubic"]).unwrap(), cases(&["cubic"]));
        let case = |congestion, rate_mbit_s, loss| Case { congestion, rate_mbit_s, loss };
        let three = [case("reno", 5, 0.035), case("reno", 20, 0.01), case("reno", 20, 0.035)];
        assert_eq!(asked(&["reno,20,3.5", "reno,20,1", "reno,5,3.5"]).unwrap(), three);
        assert!(asked(&["reno,20", "vegas"]).unwrap_err().contains("--only vegas: there is no such case"));
        assert!(asked(&["reno,20,2"]).unwrap_err().contains("0, 1, 3.5, 5 % loss"));
        assert!(asked(&["reno,20,much"]).unwrap_err().starts_with("much: expected"));
        assert!(asked(&["reno,20,1,1"]).is_err() && asked(&["reno,fast"]).is_err());
    }

    #[test]
    fn the_interval_of_a_difference_has_both_sides_spread() {
        let (share, half) = difference(&[1.0, 1.0, 1.0], &[1.1, 1.3], 0.95).unwrap();
        // Student's t for one degree of freedom is 12.706; s / sqrt(2) is 0.1.
        assert!((share - 0.2).abs() < 1e-12 && (half - 1.2706).abs() < 1e-3, "{share} {half}");
        let (_, wider) = difference(&[0.9, 1.0, 1.1], &[1.1, 1.3], 0.95).unwrap();
        assert!(wider > half);
        assert_eq!(difference(&[1.0, 1.0], &[1.0], 0.95), None, "one run has no interval");
    }

    #[test]
    fn the_kernels_runs_are_ours_under_its_own_congestion_control() {
        for case in cases(&subjects()) {
            let theirs = case.theirs(EXTENT, 1);
            assert!(theirs.flows.iter().all(|flow| flow.stack == Stack::Kernel(case.congestion.to_owned())));
            for reading in case.readings() {
                let ours = case.ours(EXTENT, reading, 1);
                assert_eq!((&ours.links, ours.packets), (&theirs.links, theirs.packets));
            }
        }
    }

    #[test]
    fn a_reading_that_is_not_judged_is_reported_and_one_run_alone_says_nothing() {
        let case = Case { congestion: "cubic", rate_mbit_s: 5, loss: 0.01 };
        let ours = simulate(&[case], EXTENT, &Progress::default()).unwrap().remove(0);
        assert!((1.0..5.0).contains(&ours.load_mbit_s()), "{}", ours.load_mbit_s());
        let verdicts = |kernel: &[Run]| ours.beside(kernel).iter().map(|one| one.verdict).collect::<Vec<Verdict>>();
        assert_eq!(verdicts(&[run(1.0), run(1.0)]), [Verdict::Differs, Verdict::NotJudged]);
        assert_eq!(verdicts(&[run(1.0)]), [Verdict::Unknown, Verdict::Unknown]);
        let page = kernel_page(&ours.beside(&[run(1.0)])).to_html();
        assert!(page.contains("kernel&#39;s cubic") || page.contains("kernel's cubic"));
    }
}

//! [Raiber 2010] 8.2: what congestion control does inside MORE.
//!
//! The thesis asks for controllers of peers inside MORE against "individual path control", and for the number of hops.
//! Rows have the name of what placed packets as their subject. What is measured is the share of what relays can carry at
//! most, ACKs and reply blocks counted (`anabranch_lab::onion::Cells`), of the relays that carry anything.

use anabranch_control::flow::registry as flow;
use anabranch_lab::onion::OnionMeasured;
use anabranch_report::{Axis, BarChart, BarSeries, Cell, Figure, Report, Table};
use anabranch_scenario::onion_run::{OnionRunScenario, RateRule};

use super::runs::{Estimate, OfRuns};
use super::{ExperimentError, Findings, OnionLab, Row};

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (5, 2);

/// Our own learners, then what the thesis has and asks for; `per-path` is its individual path control.
const PLACEMENTS: [&str; 7] = ["timeouts", "tomography", "q-learning", "aimd", "flow:cubic", "random", "per-path"];

/// Those that are ours.
const OWN: [&str; 2] = ["timeouts", "tomography"];

/// The setting that others are held against.
const PLAIN: &str = "3 hops";

/// What a setting changes in the experiment's scenario.
type Change = fn(&mut OnionRunScenario);

const SETTINGS: [(&str, Change); 9] = [
    (PLAIN, |_| {}),
    ("2 hops", |scenario| scenario.onion.hops = 2),
    ("4 hops", |scenario| scenario.onion.hops = 4),
    ("30 % receive only", |scenario| scenario.users.receive_only = 0.3),
    ("60 % receive only", |scenario| scenario.users.receive_only = 0.6),
    ("90 % receive only", |scenario| scenario.users.receive_only = 0.9),
    ("20 % drop", |scenario| scenario.relays.droppers = 0.2),
    ("10 % greedy", |scenario| scenario.relays.greedy = 0.1),
    ("2 guards", |scenario| scenario.onion.guards = 2),
];

/// In a quick run those placements that are not ours run in these settings alone: of the others no goal is said of them.
const QUICK_OF_OTHERS: [&str; 4] = [PLAIN, "90 % receive only", "20 % drop", "10 % greedy"];

/// Total rates that flow controllers decide, beside the first of our learners; in a full run.
const RATES: [&str; 3] = ["cubic", "bbr3", "vivace"];

/// Something that is measured of a run: name, unit, and how. Not a number where the run has none.
type Metric = (&'static str, &'static str, fn(&OnionMeasured) -> f64);

const LIMIT: Metric = ("limit_percent", "%", |run| 100.0 * run.metrics.limit_share);
const REFUSED: Metric = ("refused_percent", "%", |run| run.metrics.refused_percent);
const OVERHEAD: Metric = ("overhead_percent", "%", |run| run.metrics.overhead_percent);
const STALL: Metric = ("stall_max_s", "s", |run| run.metrics.stall_max_s);
const JAIN: Metric = ("jain_index", "", |run| run.metrics.jain_index);
const GREEDY: Metric = ("greedy_attraction", "", |run| run.metrics.greedy_attraction);
const DROPPERS: Metric = ("dropper_attraction", "", |run| run.metrics.dropper_attraction);

const METRICS: [Metric; 5] = [LIMIT, REFUSED, OVERHEAD, STALL, JAIN];

/// The runs of one placement in one setting.
struct Ran {
    subject: &'static str,
    setting: String,
    runs: Vec<OnionMeasured>,
}

impl Ran {
    fn of(&self, metric: &Metric) -> OfRuns {
        OfRuns::of(&self.runs, |run| Some((metric.2)(run)))
    }
}

/// Runs every placement in every setting, and our first one at every total rate; in a quick run fewer of both.
pub fn run(lab: &OnionLab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let base = lab.shortened();
    let placed = |placement: &str, change: Change| {
        let mut scenario = base.clone();
        (scenario.onion.placement, scenario.onion.placement_back) = (placement.to_owned(), placement.to_owned());
        change(&mut scenario);
        scenario
    };
    let mut settings: Vec<(&'static str, String, OnionRunScenario)> = Vec::new();
    let all = SETTINGS.map(|(setting, _)| setting);
    let of_others = lab.choose(&all, &QUICK_OF_OTHERS);
    for (setting, change) in SETTINGS {
        let runs = |placement: &&str| OWN.contains(placement) || of_others.contains(&setting);
        let placements = PLACEMENTS.into_iter().filter(runs);
        settings.extend(placements.map(|placement| (placement, setting.to_owned(), placed(placement, change))));
    }
    for rate in lab.choose(&RATES, &[]) {
        let mut scenario = placed(OWN[0], |_| {});
        scenario.onion.total_rate = RateRule::Flow(flow::find(rate)?);
        settings.push((OWN[0], format!("rate by {rate}"), scenario));
    }
    let scenarios: Vec<OnionRunScenario> = settings.iter().map(|(.., scenario)| scenario.clone()).collect();
    let runs = lab.run_seeds(&scenarios, lab.seconds(SEEDS.0, SEEDS.1))?;
    let all: Vec<Ran> =
        settings.into_iter().zip(runs).map(|((subject, setting, _), runs)| Ran { subject, setting, runs }).collect();
    Ok(Findings { rows: rows(lab, &all), report: report(&all) })
}

fn find<'r>(all: &'r [Ran], subject: &str, setting: &str) -> Option<&'r Ran> {
    all.iter().find(|ran| ran.subject == subject && ran.setting == setting)
}

/// In the setting in which every placement runs.
fn plain<'r>(all: &'r [Ran], subject: &str) -> &'r Ran {
    find(all, subject, PLAIN).expect("every placement runs there")
}

fn rows(lab: &OnionLab, all: &[Ran]) -> Vec<Row> {
    let mut rows = Vec::new();
    for ran in all {
        let extra: &[Metric] = match ran.setting.as_str() {
            "10 % greedy" => &[GREEDY],
            "20 % drop" => &[DROPPERS],
            _ => &[],
        };
        for metric @ (name, unit, _) in METRICS.iter().chain(extra) {
            let name = format!("{name}[{}]", ran.setting);
            rows.push(lab.mean_row(ran.subject, &name, unit, ran.of(metric).values()));
        }
    }
    for subject in PLACEMENTS {
        let plain = plain(all, subject).of(&LIMIT);
        for (setting, _) in SETTINGS.iter().filter(|(setting, _)| setting.ends_with("receive only")) {
            let Some(ran) = find(all, subject, setting) else { continue };
            let kept = ran.of(&LIMIT).with(&plain, |here, plain| 100.0 * here / plain);
            rows.push(lab.mean_row(subject, &format!("kept_percent[{setting}]"), "%", kept.values()));
        }
    }
    let per_path = plain(all, "per-path").of(&LIMIT);
    for subject in PLACEMENTS.into_iter().filter(|subject| *subject != "per-path") {
        let over = plain(all, subject).of(&LIMIT).over(&per_path);
        rows.push(lab.mean_row(subject, "over_per_path", "", over.values()));
    }
    rows
}

fn report(all: &[Ran]) -> Report {
    let labels = METRICS.iter().map(|(name, unit, _)| match *unit {
        "" => (*name).to_owned(),
        unit => format!("{name} ({unit})"),
    });
    let headers = ["setting", "placement"].map(str::to_owned).into_iter().chain(labels);
    let table = all.iter().fold(Table::new("Every setting", headers), |table, ran| {
        let numbers = METRICS.iter().map(|metric| {
            let Estimate { mean, half_width } = ran.of(metric).estimate();
            half_width.map_or(Cell::number(mean, 3), |half| Cell::interval(mean, half))
        });
        table.row([Cell::text(&ran.setting), Cell::text(ran.subject)].into_iter().chain(numbers))
    });
    let names: Vec<String> = SETTINGS.iter().map(|(setting, _)| (*setting).to_owned()).collect();
    let chart = BarChart::new("setting", Axis::new("of what relays can carry", "%").from_zero(), names);
    let chart = PLACEMENTS.iter().fold(chart, |chart, subject| {
        let estimates = SETTINGS.map(|(setting, _)| Some(find(all, subject, setting)?.of(&LIMIT).estimate()));
        let half = |estimate: &Option<Estimate>| estimate.as_ref()?.half_width;
        let halves = estimates.iter().map(|estimate| half(estimate).unwrap_or(f64::NAN)).collect();
        let means = estimates.iter().map(|estimate| estimate.as_ref().map(|estimate| estimate.mean)).collect();
        chart.series(BarSeries::new(*subject, means).intervals(halves))
    });
    Report::new("Congestion control inside MORE")
        .figures_side_by_side(vec![Figure::chart("What users and services read of what relays can carry", chart)])
        .table(table)
}

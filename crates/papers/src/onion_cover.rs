//! What counting packets tells of users of an onion overlay who send at a constant rate.
//!
//! The goal is that at most 2 flows in a thousand are linked, at one wrong accusation in a thousand, by an adversary
//! that has a fifth of the relays and counts for 300 s. It is a model of traffic alone (`anabranch_lab::attack`).
//! Rows have the name of what placed packets as their subject.

use anabranch_control::time::Duration;
use anabranch_lab::attack::{self, Found};
use anabranch_report::{Axis, BarChart, BarSeries, Cell, Figure, Report, Table};
use anabranch_scenario::onion::{Cover, Exit, OnionScenario};

use super::runs::{Estimate, OfRuns};
use super::{AttackLab, ExperimentError, Findings, Length, Row};

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (5, 2);

/// How long a quick run counts, and of how many senders.
const QUICK: (Duration, u64) = (Duration::from_millis(60_000), 200);

/// What a setting changes in the experiment's scenario.
type Change = fn(&mut OnionScenario);

const SETTINGS: [(&str, Change); 4] = [
    ("2 guards", |_| {}),
    ("2 guards, one exit a session", |scenario| scenario.overlay.exit = Exit::PerSession),
    ("no guards", |scenario| scenario.overlay.guards = 0),
    ("2 guards, no cover", |scenario| scenario.overlay.cover = Cover::Off),
];

/// What places packets.
const PLACEMENT: &str = "random";

/// Something that is measured of a run: name, unit, and how.
type Metric = (&'static str, &'static str, fn(&Found) -> f64);

const LINKED: Metric = ("linked_by_counts_percent", "%", |found| 100.0 * found.linked_by_counts);

const METRICS: [Metric; 3] =
    [LINKED, ("false_positives_percent", "%", |found| 100.0 * found.false_positives), ("auc", "", |found| found.auc)];

/// The runs of one setting.
struct Ran {
    setting: &'static str,
    runs: Vec<Found>,
}

impl Ran {
    fn of(&self, metric: &Metric) -> OfRuns {
        OfRuns::of(&self.runs, |found| Some((metric.2)(found)))
    }
}

/// Runs every setting with every seed.
pub fn run(lab: &AttackLab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let mut base = lab.scenario.clone();
    base.repetitions = 1;
    if lab.length == Length::Quick {
        (base.duration, base.senders.count) = QUICK;
    }
    let mut all = Vec::new();
    for (setting, change) in SETTINGS {
        let mut scenario = base.clone();
        change(&mut scenario);
        let runs = (0..lab.seconds(SEEDS.0, SEEDS.1)).map(|i| {
            let scenario = OnionScenario { seed: scenario.seed + i, ..scenario.clone() };
            let found = attack::run(&scenario, &[scenario.adversary.share], &lab.progress);
            Ok(found.ok_or(ExperimentError::Interrupted)?.remove(0))
        });
        all.push(Ran { setting, runs: runs.collect::<Result<_, ExperimentError>>()? });
    }
    Ok(Findings { rows: rows(lab, &all), report: report(&all) })
}

fn rows(lab: &AttackLab, all: &[Ran]) -> Vec<Row> {
    let of_setting = |ran: &Ran| {
        METRICS.map(|metric| {
            let name = format!("{}[{}]", metric.0, ran.setting);
            lab.mean_row(PLACEMENT, &name, metric.1, ran.of(&metric).values())
        })
    };
    all.iter().flat_map(of_setting).collect()
}

fn report(all: &[Ran]) -> Report {
    let labels = METRICS.iter().map(|(name, unit, _)| match *unit {
        "" => (*name).to_owned(),
        unit => format!("{name} ({unit})"),
    });
    let headers = std::iter::once("setting".to_owned()).chain(labels);
    let table = all.iter().fold(Table::new("Every setting", headers), |table, ran| {
        let numbers = METRICS.iter().map(|metric| {
            let Estimate { mean, half_width } = ran.of(metric).estimate();
            half_width.map_or(Cell::number(mean, 4), |half| Cell::interval(mean, half))
        });
        table.row(std::iter::once(Cell::text(ran.setting)).chain(numbers))
    });
    let names: Vec<String> = all.iter().map(|ran| ran.setting.to_owned()).collect();
    let chart = BarChart::new("setting", Axis::new("flows that are linked by counts", "%").from_zero(), names);
    let estimates: Vec<Estimate> = all.iter().map(|ran| ran.of(&LINKED).estimate()).collect();
    let halves = estimates.iter().map(|estimate| estimate.half_width.unwrap_or(f64::NAN)).collect();
    let means = estimates.iter().map(|estimate| Some(estimate.mean)).collect();
    let chart = chart.series(BarSeries::new(PLACEMENT, means).intervals(halves));
    Report::new("Counting packets that are sent at a constant rate")
        .figures_side_by_side(vec![Figure::chart("Linked by counts", chart)])
        .table(table)
}

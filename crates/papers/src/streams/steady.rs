//! Nobody lies: a steady audience, one that comes and goes, and one of which a quarter dies at once.

use anabranch_control::time::Duration;
use anabranch_report::Report;

use super::super::{ExperimentError, Findings, StreamLab};
use super::{
    Change, DELIVERED, LATENCY, Metric, NOT_STARTED, OVERHEAD, SAVINGS, SLICES_BACK, STARTUP, Setting, run_settings,
    set_capacity,
};

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (10, 2);

/// Viewers of a quick run.
const QUICK_CLIENTS: usize = 20;

/// What is measured.
const METRICS: [Metric; 6] = [DELIVERED, NOT_STARTED, SAVINGS, OVERHEAD, STARTUP, LATENCY];

/// Where viewers die at once: when what they pushed comes again, and what survivors missed.
const OF_DEATHS: [Metric; 2] = [SLICES_BACK, ("skipped_packets", "packets", |run| run.metrics.skipped_packets as f64)];

const SETTINGS: [(&str, Change); 4] = [
    ("steady, 1.15 times", |scenario| set_capacity(scenario, 1.15)),
    ("steady, 1.5 times", |scenario| set_capacity(scenario, 1.5)),
    ("steady, 1.5 times, buffer 1 s", |scenario| {
        set_capacity(scenario, 1.5);
        scenario.stream.buffer = Duration::from_millis(1000);
    }),
    ("stay 120 s, 1.5 times", |scenario| {
        set_capacity(scenario, 1.5);
        scenario.churn.mean_stay = Some(Duration::from_millis(120_000));
    }),
];

const DEATHS: [(&str, Change); 1] = [("a quarter dies, 1.25 times", |scenario| {
    set_capacity(scenario, 1.25);
    scenario.churn.kill_share = 0.25;
    scenario.churn.kill_at = Duration::from_nanos(scenario.duration.as_nanos() * 3 / 5);
})];

/// Runs every setting.
pub fn run(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let settings = |all: &[(&'static str, Change)]| -> Vec<Setting> {
        let setting = |(name, change): &(&'static str, Change)| {
            let mut scenario = lab.shortened(QUICK_CLIENTS);
            change(&mut scenario);
            Setting::new(*name, scenario)
        };
        all.iter().map(setting).collect()
    };
    let seeds = lab.seconds(SEEDS.0, SEEDS.1);
    let (mut rows, table) = run_settings(lab, &settings(&SETTINGS), seeds, &METRICS)?;
    let metrics: Vec<Metric> = METRICS.into_iter().chain(OF_DEATHS).collect();
    let (of_deaths, deaths) = run_settings(lab, &settings(&DEATHS), seeds, &metrics)?;
    rows.extend(of_deaths);
    Ok(Findings { rows, report: Report::new("A stream whose viewers tell the truth").table(table).table(deaths) })
}

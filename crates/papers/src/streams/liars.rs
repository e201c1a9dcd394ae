//! What honest viewers get beside those who lie: one kind at a time, and all together.

use anabranch_report::Report;
use anabranch_scenario::stream::Liars;

use super::super::{ExperimentError, Findings, StreamLab};
use super::{DELIVERED, Metric, OVERHEAD, SAVINGS, Setting, run_settings, set_capacity};

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (10, 2);

/// Viewers of a quick run.
const QUICK_CLIENTS: usize = 20;

/// What all could send if they told the truth and passed on what they should, over the demand.
const CAPACITY: f64 = 2.0;

const METRICS: [Metric; 3] = [DELIVERED, SAVINGS, OVERHEAD];

/// What each setting's liars are.
fn settings() -> [(&'static str, Liars); 6] {
    let none = Liars::default();
    [
        ("none", none),
        ("20 % free riders", Liars { free_riders: 0.2, ..none }),
        ("20 % claim ten times", Liars { claimers: 0.2, claim_factor: 10.0, ..none }),
        ("20 % drop half", Liars { droppers: 0.2, ..none }),
        ("5 % poison", Liars { poisoners: 0.05, ..none }),
        ("all together", Liars { free_riders: 0.2, claimers: 0.2, claim_factor: 10.0, droppers: 0.2, poisoners: 0.05 }),
    ]
}

/// Runs every setting.
pub fn run(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let settings: Vec<Setting> = settings()
        .into_iter()
        .map(|(name, liars)| {
            let mut scenario = lab.shortened(QUICK_CLIENTS);
            set_capacity(&mut scenario, CAPACITY);
            scenario.liars = liars;
            Setting::new(name, scenario)
        })
        .collect();
    let (rows, table) = run_settings(lab, &settings, lab.seconds(SEEDS.0, SEEDS.1), &METRICS)?;
    Ok(Findings { rows, report: Report::new("A stream some of whose viewers lie").table(table) })
}

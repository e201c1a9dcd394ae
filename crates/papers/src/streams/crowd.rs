//! A thousand viewers within ten seconds: how soon they see something, and who is disturbed.

use anabranch_report::Report;

use super::super::{ExperimentError, Findings, StreamLab};
use super::{DELIVERED, Metric, NOT_STARTED, OVERHEAD, SAVINGS, SKIPPED_EVER, STARTUP, Setting, run_settings};

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (5, 2);

/// Viewers of a quick run.
const QUICK_CLIENTS: usize = 50;

const METRICS: [Metric; 6] = [STARTUP, NOT_STARTED, SKIPPED_EVER, DELIVERED, SAVINGS, OVERHEAD];

/// Runs it.
pub fn run(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let scenario = lab.shortened(QUICK_CLIENTS);
    let setting = Setting::new("within ten seconds", scenario);
    let (rows, table) = run_settings(lab, &[setting], lab.seconds(SEEDS.0, SEEDS.1), &METRICS)?;
    Ok(Findings { rows, report: Report::new("A crowd comes at once").table(table) })
}

//! Which flow controllers carry a stream: every peer has one window for all whom it sends to.

use anabranch_control::flow::registry::Entry;
use anabranch_report::Report;

use super::super::{ExperimentError, Findings, StreamLab};
use super::{Change, DELIVERED, LATENCY, Metric, OVERHEAD, STARTUP, Setting, rows_of, set_capacity};

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (5, 2);

/// Viewers of a quick run.
const QUICK_CLIENTS: usize = 20;

/// The controllers of a run that asks for none.
const SHOWN: [&str; 8] = ["block-window", "bbr3", "copa", "cubic", "ledbat++", "reno", "learningcc", "vivace"];
/// With the one whose figures are judged.
const SHOWN_QUICKLY: [&str; 4] = ["block-window", "bbr3", "cubic", "copa"];

const METRICS: [Metric; 4] = [DELIVERED, LATENCY, STARTUP, OVERHEAD];

const SETTINGS: [(&str, Change); 2] =
    [("nothing lost", |_| {}), ("1 % lost", |scenario| scenario.audience.loss = 0.01)];

/// Runs every controller in every setting.
pub fn run(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    let controllers: Vec<&'static Entry> = lab.flow_controllers(lab.choose(&SHOWN, &SHOWN_QUICKLY))?;
    let mut settings = Vec::new();
    for controller in controllers {
        for (name, change) in SETTINGS {
            let mut scenario = lab.shortened(QUICK_CLIENTS);
            set_capacity(&mut scenario, 1.5);
            change(&mut scenario);
            (scenario.stream.controller, scenario.stream.parameters) = (controller, toml::Table::new());
            settings.push(Setting { subject: controller.name, ..Setting::new(name, scenario) });
        }
    }
    let scenarios: Vec<_> = settings.iter().map(|setting| setting.scenario.clone()).collect();
    // Which of them carry a stream is what is asked: some deliver nothing.
    let measured = lab.measure_seeds(&scenarios, lab.seconds(SEEDS.0, SEEDS.1))?;
    let (rows, table) = rows_of(lab, &settings, &measured, &METRICS);
    Ok(Findings { rows, report: Report::new("Flow controllers under a stream").table(table) })
}

//! `anabranch compare`: a scenario in the simulator and on real packets, side by side.

mod stream;

use std::io::{self, Write};

use anabranch_lab::flows::FlowScenario;
use anabranch_lab::flows::summary::FlowsSummary;
use serde_json::json;

use crate::failure::Failure;
use crate::printer::{on_stdout, print_line};
use crate::research::emulate::{Emulable, OnRealPackets, read, say};
use crate::research::progress;
use crate::research::run::{ScenarioArgs, timed_under};
use crate::table;
use anabranch_testbed::Emulated;

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: ScenarioArgs,
    /// Runs on real packets, each beside a simulation with the same seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: u64,
}

/// A figure of one flow or of the whole, simulated and emulated, over the repeats.
struct Line {
    subject: String,
    controller: String,
    metric: &'static str,
    simulated: Vec<f64>,
    emulated: Vec<f64>,
}

/// Runs both until their ends or Ctrl-C.
pub fn run(args: &Args) -> Result<(), Failure> {
    match read(&args.what)? {
        Emulable::Flows(scenario) => flows(args, &scenario),
        Emulable::Stream(scenario) => stream::run(args, &scenario),
    }
}

fn flows(args: &Args, scenario: &FlowScenario) -> Result<(), Failure> {
    let name = args.what.name();
    let mut lines: Vec<Line> = Vec::new();
    let (mut saturated, mut warnings) = (0, Vec::new());
    let progress = progress::until_interrupted()?;
    for repeat in 0..args.repeat {
        let mut scenario = scenario.clone();
        scenario.seed += repeat;
        scenario.sample_every = None;
        let (simulated, _) = timed_under(&progress, &scenario, &format!("{name}, simulated"))?;
        let (Emulated { measured, emulator }, _) =
            timed_under(&progress, &OnRealPackets(&scenario), &format!("{name}, emulated"))?;
        if measured.length < scenario.length {
            return Err(Failure::interrupted("there is nothing to compare yet"));
        }
        say(&emulator);
        saturated += u64::from(emulator.is_saturated());
        warnings.extend(emulator.warnings());
        let both = [FlowsSummary::of(&scenario, &simulated), FlowsSummary::of(&scenario, &measured)];
        add(&mut lines, &scenario, &both);
    }
    if args.what.json {
        let lines: Vec<_> = lines.iter().map(Line::to_json).collect();
        print_line!(
            "{}",
            json!({ "repeats": args.repeat, "saturated": saturated, "warnings": warnings, "lines": lines })
        )?;
    } else {
        let headers = ["flow", "controller", "", "simulated", "emulated", "difference"].map(str::to_owned).to_vec();
        let rows: Vec<Vec<String>> = [headers].into_iter().chain(lines.iter().map(Line::to_row)).collect();
        on_stdout(|stdout| {
            table::print(&rows, 3.., stdout)?;
            print_invalid(&warnings, stdout)
        })?;
    }
    if saturated > 0 {
        return Err(Failure::new(format!(
            "in {saturated} of {} runs the emulator could not carry these links: what was measured is not theirs; \
             expected lower rates, or a machine with less else to do",
            args.repeat
        )));
    }
    Ok(())
}

/// Why figures on real packets are not those of the links that were asked for, in a line each.
fn print_invalid(warnings: &[String], stdout: &mut impl Write) -> io::Result<()> {
    warnings.iter().try_for_each(|why| writeln!(stdout, "INVALID  {why}"))
}

fn add(lines: &mut Vec<Line>, scenario: &FlowScenario, [simulated, emulated]: &[FlowsSummary; 2]) {
    let mut put = |subject: &str, controller: &str, metric: &'static str, values: [Option<f64>; 2]| {
        let [Some(ours), Some(theirs)] = values else { return };
        let known = lines.iter_mut().find(|line| line.subject == subject && line.metric == metric);
        match known {
            Some(line) => {
                line.simulated.push(ours);
                line.emulated.push(theirs);
            }
            None => lines.push(Line {
                subject: subject.to_owned(),
                controller: controller.to_owned(),
                metric,
                simulated: vec![ours],
                emulated: vec![theirs],
            }),
        }
    };
    for ((spec, one), other) in scenario.flows.iter().zip(&simulated.flows).zip(&emulated.flows) {
        let mut each = |metric, of: &dyn Fn(&anabranch_lab::flows::summary::FlowSummary) -> Option<f64>| {
            put(&spec.name, &spec.controller_name(), metric, [of(one), of(other)]);
        };
        each("goodput, Mbit/s", &|flow| flow.goodput_mbit_s);
        each("one-way p50, ms", &|flow| flow.one_way.p50_ms);
        each("one-way p99, ms", &|flow| flow.one_way.p99_ms);
        each("lost, %", &|flow| {
            (flow.packets_sent > 0).then(|| 100.0 * flow.packets_lost as f64 / flow.packets_sent as f64)
        });
    }
}

impl Line {
    fn to_row(&self) -> Vec<String> {
        let (simulated, emulated) = (mean(&self.simulated), mean(&self.emulated));
        let share = 100.0 * (emulated / simulated - 1.0);
        vec![
            self.subject.clone(),
            self.controller.clone(),
            self.metric.to_owned(),
            with_spread(&self.simulated),
            with_spread(&self.emulated),
            if simulated > 0.0 { format!("{share:+.1} %") } else { "-".to_owned() },
        ]
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "flow": self.subject,
            "controller": self.controller,
            "metric": self.metric,
            "simulated": self.simulated,
            "emulated": self.emulated,
        })
    }
}

fn mean(values: &[f64]) -> f64 {
    anabranch_stats::mean(values).unwrap_or(f64::NAN)
}

/// The mean, and from where to where the repeats went.
fn with_spread(values: &[f64]) -> String {
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    match values {
        [one] => format!("{one:.3}"),
        _ => format!("{:.3} ({low:.3} to {high:.3})", mean(values)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_why_its_figures_are_not_those_of_the_links() {
        let printed = |warnings: &[&str]| {
            let (mut text, warnings) = (Vec::new(), warnings.iter().map(|why| (*why).to_owned()).collect::<Vec<_>>());
            print_invalid(&warnings, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(printed(&[]), "");
        assert_eq!(printed(&["late", "later"]), "INVALID  late\nINVALID  later\n");
    }
}

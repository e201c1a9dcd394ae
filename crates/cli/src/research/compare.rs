//! `anabranch compare`: a scenario in the simulator and on real packets, side by side.

mod stream;

use std::io::{self, Write};

use anabranch_lab::flows::FlowScenario;
use anabranch_lab::flows::summary::{FlowSummary, FlowsSummary};
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

/// A figure of one flow, simulated and emulated, in each repeat; none where there was nothing to measure.
struct Line {
    subject: String,
    controller: String,
    metric: &'static str,
    simulated: Vec<Option<f64>>,
    emulated: Vec<Option<f64>>,
}

/// Runs both until their ends or Ctrl-C.
pub fn run(args: &Args) -> Result<(), Failure> {
    match read(&args.what)? {
        Emulable::Flows(scenario) => flows(args, &scenario),
        Emulable::Stream(scenario) => stream::run(args, &scenario),
    }
}

/// The repeats of a comparison that came to their ends.
#[derive(Debug)]
struct Repeats {
    /// So many.
    whole: u64,
    /// Of so many.
    asked: u64,
    /// Why the others did not.
    ended: Ended,
}

#[derive(Debug)]
enum Ended {
    AtLast,
    Interrupted,
    Failed(Failure),
}

impl Repeats {
    /// Makes each of `asked` by `one`, which says whether it was not interrupted.
    ///
    /// # Errors
    ///
    /// What ended the first.
    fn make(asked: u64, mut one: impl FnMut(u64) -> Result<bool, Failure>) -> Result<Repeats, Failure> {
        for whole in 0..asked {
            let ended = match one(whole) {
                Ok(true) => continue,
                Ok(false) if whole == 0 => return Err(Failure::interrupted("there is nothing to compare yet")),
                Err(failure) if whole == 0 => return Err(failure),
                Ok(false) => Ended::Interrupted,
                Err(failure) => Ended::Failed(failure),
            };
            return Ok(Repeats { whole, asked, ended });
        }
        Ok(Repeats { whole: asked, asked, ended: Ended::AtLast })
    }

    fn is_interrupted(&self) -> bool {
        matches!(self.ended, Ended::Interrupted)
    }

    /// How the verb ends, after all is printed.
    fn end(self) -> Result<(), Failure> {
        let Repeats { whole, asked, ended } = self;
        let these = format!("these are {whole} of {asked} repeats");
        match ended {
            Ended::AtLast => Ok(()),
            Ended::Interrupted => Err(Failure::interrupted(these)),
            Ended::Failed(failure) => Err(failure.with(format_args!("; {these}"))),
        }
    }
}

fn flows(args: &Args, scenario: &FlowScenario) -> Result<(), Failure> {
    let name = args.what.name();
    let mut lines: Vec<Line> = Vec::new();
    let (mut saturated, mut warnings) = (0, Vec::new());
    let progress = progress::until_interrupted()?;
    let repeats = Repeats::make(args.repeat, |repeat| {
        let mut scenario = scenario.clone();
        scenario.seed += repeat;
        scenario.sample_every = None;
        let (simulated, _) = timed_under(&progress, &scenario, &format!("{name}, simulated"))?;
        if progress.is_interrupted() {
            return Ok(false);
        }
        let (Emulated { measured, emulator }, _) =
            timed_under(&progress, &OnRealPackets(&scenario), &format!("{name}, emulated"))?;
        if measured.length < scenario.length {
            return Ok(false);
        }
        say(&emulator);
        saturated += u64::from(emulator.is_saturated());
        // A controller that cannot judge says so on both sides.
        for warning in measured.warnings.iter().chain(&simulated.warnings) {
            if !warnings.contains(warning) {
                warnings.push(warning.clone());
            }
        }
        let both = [FlowsSummary::of(&scenario, &simulated), FlowsSummary::of(&scenario, &measured)];
        add(&mut lines, &scenario, &both);
        Ok(true)
    })?;
    lines.retain(Line::is_measured);
    if args.what.json {
        let lines: Vec<_> = lines.iter().map(Line::to_json).collect();
        let object = json!({
            "repeats": repeats.whole,
            "interrupted": repeats.is_interrupted(),
            "saturated": saturated,
            "warnings": warnings,
            "lines": lines,
        });
        print_line!("{object}")?;
    } else {
        let headers = ["flow", "controller", "", "simulated", "emulated", "difference"].map(str::to_owned).to_vec();
        let rows: Vec<Vec<String>> = [headers].into_iter().chain(lines.iter().map(Line::to_row)).collect();
        on_stdout(|stdout| {
            table::print(&rows, 3.., stdout)?;
            print_invalid(&warnings, stdout)
        })?;
    }
    let whole = repeats.whole;
    repeats.end()?;
    if saturated > 0 {
        return Err(Failure::new(format!(
            "in {saturated} of {whole} runs the emulator could not carry these links: what was measured is not theirs; \
             expected lower rates, or a machine with less else to do"
        )));
    }
    Ok(())
}

/// Why figures on real packets are not those of the links that were asked for, in a line each.
fn print_invalid(warnings: &[String], stdout: &mut impl Write) -> io::Result<()> {
    warnings.iter().try_for_each(|why| writeln!(stdout, "INVALID  {why}"))
}

/// Adds a repeat: each adds the same lines in the same order.
fn add(lines: &mut Vec<Line>, scenario: &FlowScenario, [simulated, emulated]: &[FlowsSummary; 2]) {
    let is_first = lines.is_empty();
    let mut next = 0;
    for ((spec, one), other) in scenario.flows.iter().zip(&simulated.flows).zip(&emulated.flows) {
        let mut each = |metric, of: &dyn Fn(&FlowSummary) -> Option<f64>| {
            if is_first {
                lines.push(Line {
                    subject: spec.name.clone(),
                    controller: spec.controller_name().into_owned(),
                    metric,
                    simulated: Vec::new(),
                    emulated: Vec::new(),
                });
            }
            lines[next].simulated.push(of(one));
            lines[next].emulated.push(of(other));
            next += 1;
        };
        each("goodput, Mbit/s", &|flow| flow.goodput_mbit_s);
        each("one-way p50, ms", &|flow| flow.one_way.p50_ms);
        each("one-way p99, ms", &|flow| flow.one_way.p99_ms);
        each("lost, %", &|flow| {
            (flow.packets_sent > 0).then(|| 100.0 * flow.packets_lost as f64 / flow.packets_sent as f64)
        });
        each("completion mean, s", &|flow| anabranch_stats::mean(&flow.completion_s));
    }
}

impl Line {
    /// Whether there is a figure in any repeat, on either side.
    fn is_measured(&self) -> bool {
        self.simulated.iter().chain(&self.emulated).any(Option::is_some)
    }

    fn to_row(&self) -> Vec<String> {
        let [simulated, emulated] = [&self.simulated, &self.emulated].map(|values| known(values));
        let difference = match [mean(&simulated), mean(&emulated)] {
            [simulated, emulated] if simulated > 0.0 && emulated.is_finite() => {
                format!("{:+.1} %", 100.0 * (emulated / simulated - 1.0))
            }
            _ => "-".to_owned(),
        };
        vec![
            self.subject.clone(),
            self.controller.clone(),
            self.metric.to_owned(),
            of_repeats(&simulated, self.simulated.len()),
            of_repeats(&emulated, self.emulated.len()),
            difference,
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

fn known(values: &[Option<f64>]) -> Vec<f64> {
    values.iter().copied().flatten().collect()
}

fn mean(values: &[f64]) -> f64 {
    anabranch_stats::mean(values).unwrap_or(f64::NAN)
}

/// What is known of `all` repeats; of how many of them, if not of all.
fn of_repeats(known: &[f64], all: usize) -> String {
    match known.len() {
        0 => "-".to_owned(),
        known_of if known_of < all => format!("{}, {known_of} of {all}", with_spread(known)),
        _ => with_spread(known),
    }
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

    #[test]
    fn repeats_that_were_whole_stay_whatever_ends_a_later_one() {
        let outcomes = |third: fn() -> Result<bool, Failure>| {
            Repeats::make(5, |repeat| if repeat == 2 { third() } else { Ok(true) }).unwrap()
        };
        let interrupted = outcomes(|| Ok(false));
        assert!(interrupted.is_interrupted() && interrupted.whole == 2);
        assert_eq!(interrupted.end().unwrap_err().words(), "interrupted: these are 2 of 5 repeats");
        let failed = outcomes(|| Err(Failure::new("no room"))).end();
        assert_eq!(failed.unwrap_err().words(), "no room; these are 2 of 5 repeats");
        assert!(outcomes(|| Ok(true)).end().is_ok());
        assert!(Repeats::make(5, |_| Ok(false)).unwrap_err().words().contains("nothing to compare yet"));
    }

    #[test]
    fn a_mean_of_fewer_repeats_says_of_how_many() {
        let line = |simulated: &[Option<f64>], emulated: &[Option<f64>]| Line {
            subject: String::new(),
            controller: String::new(),
            metric: "",
            simulated: simulated.to_vec(),
            emulated: emulated.to_vec(),
        };
        let row =
            |simulated: &[Option<f64>], emulated: &[Option<f64>]| line(simulated, emulated).to_row()[3..].to_vec();
        assert_eq!(
            row(&[Some(1.0), Some(3.0)], &[None, Some(4.0)]),
            ["2.000 (1.000 to 3.000)", "4.000, 1 of 2", "+100.0 %"]
        );
        assert_eq!(row(&[Some(1.0)], &[None]), ["1.000", "-", "-"]);
        assert!(line(&[None], &[Some(1.0)]).is_measured() && !line(&[None], &[None]).is_measured());
        assert_eq!(line(&[None], &[Some(1.0)]).to_json()["simulated"], json!([null]));
    }
}

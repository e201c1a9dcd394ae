//! `anabranch emulate`: a scenario on real packets, over emulated links.

pub mod stream;

use std::path::PathBuf;

use anabranch_lab::flows::FlowScenario;
use anabranch_lab::monitor::Monitor;
use anabranch_lab::parallel::Job;
use anabranch_report::output::create_dir;
use anabranch_scenario::file::{self as scenario_file, AnyScenario};
use anabranch_scenario::stream::StreamScenario;
use anabranch_testbed::emulator::Report;

use crate::failure::Failure;
use crate::research::run::flows::Shown;
use crate::research::run::{ScenarioArgs, timed};
use crate::stderr::eprint_line;
use anabranch_testbed::{self as testbed, Emulated, TestbedFailure};

/// Arguments of `emulate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: ScenarioArgs,
    /// Write summary.json, series.parquet and report.html into DIR
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A run on real packets.
pub struct OnRealPackets<'a>(pub &'a FlowScenario);

impl Job for OnRealPackets<'_> {
    type Measured = Emulated;
    type Error = TestbedFailure;

    fn seconds(&self) -> u64 {
        self.0.seconds()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<Emulated, TestbedFailure> {
        testbed::run(self.0, monitor)
    }

    fn is_whole(&self, emulated: &Emulated) -> bool {
        self.0.is_whole(&emulated.measured)
    }
}

/// What runs on real packets.
pub enum Emulable {
    /// Flows over links.
    Flows(FlowScenario),
    /// A stream and its viewers.
    Stream(StreamScenario),
}

/// Reads a scenario of flows, or of a stream.
pub fn read(what: &ScenarioArgs) -> Result<Emulable, Failure> {
    match scenario_file::read_any(&what.scenario, &what.overrides()?)? {
        AnyScenario::Flows(scenario) => Ok(Emulable::Flows(scenario)),
        AnyScenario::Stream(scenario) => Ok(Emulable::Stream(scenario)),
        AnyScenario::Onion(_) => Err(Failure::new(format!(
            "{}: this is an onion overlay; expected flows over links, or a stream (`anabranch onion demo` runs an \
             onion overlay on sockets)",
            what.name()
        ))),
        AnyScenario::Overlay(_) => Err(Failure::new(format!(
            "{}: this is an overlay; expected flows over links, or a stream (`anabranch demo --senders` puts an \
             overlay on sockets)",
            what.name()
        ))),
    }
}

/// Runs the scenario in real time until its end or Ctrl-C.
pub fn run(args: &Args) -> Result<(), Failure> {
    match read(&args.what)? {
        Emulable::Flows(scenario) => flows(args, scenario),
        Emulable::Stream(scenario) => stream::run(args, &scenario),
    }
}

fn flows(args: &Args, mut scenario: FlowScenario) -> Result<(), Failure> {
    let name = args.what.name();
    // Before there is a folder for what will not be.
    testbed::check(&scenario)?;
    match &args.out {
        Some(out) => create_dir(out)?,
        // Only files show it.
        None => scenario.sample_every = None,
    }
    let (Emulated { measured, emulator }, wall_s) = timed(&OnRealPackets(&scenario), &name)?;
    let shown = Shown {
        scenario: &scenario,
        measured: &measured,
        name: &name,
        heading: "",
        wall_s,
        out: args.out.as_deref(),
        json: args.what.json,
    };
    let interrupted = shown.show()?;
    say(&emulator);
    interrupted?;
    if emulator.is_saturated() {
        return Err(Failure::new(
            "the emulator could not carry these links: what was measured is not theirs; expected lower rates, or a \
             machine with less else to do",
        ));
    }
    Ok(())
}

/// What the emulator did, and whether its links were those that were asked for.
pub fn say(emulator: &Report) {
    let at = |share: f64| emulator.lateness.value_at_quantile(share) as f64 / 1e6;
    let busy = 100.0 * emulator.busy.as_secs_f64() / emulator.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    eprint_line!(
        "emulator: {} packets, late by {:.3} ms (p50), {:.3} ms (p99), {:.3} ms (most), {busy:.0} % of a processor",
        emulator.lateness.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    for warning in emulator.warnings() {
        eprint_line!("warning: these links were not carried as asked: {warning}");
    }
}

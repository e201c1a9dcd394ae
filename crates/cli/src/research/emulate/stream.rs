//! A stream on real packets: its viewers are processes of this very program.

use std::io::{StdoutLock, Write};
use std::path::PathBuf;
use std::process::Command;

use anabranch_lab::finished::FinishedRun;
use anabranch_lab::monitor::Monitor;
use anabranch_lab::parallel::Job;
use anabranch_report::output::create_dir;
use anabranch_scenario::stream::StreamScenario;
use anabranch_testbed::TestbedFailure;
use anabranch_testbed::stream::{self as testbed, StreamOnPackets, Viewing};
use serde_json::json;

use super::{Args, say};
use crate::failure::Failure;
use crate::research::run::application::{rows, whole};
use crate::research::run::{print_labelled, timed, write_then_print};
use crate::stderr::eprint_line;

/// A run with real peers.
pub struct OnRealPeers<'a> {
    scenario: &'a StreamScenario,
    /// This program.
    program: PathBuf,
}

impl<'a> OnRealPeers<'a> {
    /// Of `scenario`.
    pub fn new(scenario: &'a StreamScenario) -> Result<OnRealPeers<'a>, Failure> {
        Ok(OnRealPeers { scenario, program: std::env::current_exe()? })
    }

    fn command(&self, viewing: &Viewing) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["stream", "watch", &viewing.link, "--json", "--no-http"]);
        command.args(["--listen", &viewing.listen.to_string(), "--controller", viewing.controller]);
        command.args(["--upload", &format!("{} bit/s", viewing.upload.bits_per_sec())]);
        command.args(["--buffer", &viewing.buffer.as_secs_f64().to_string()]);
        command
    }
}

impl Job for OnRealPeers<'_> {
    type Measured = StreamOnPackets;
    type Error = TestbedFailure;

    fn seconds(&self) -> u64 {
        self.scenario.seconds()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<StreamOnPackets, TestbedFailure> {
        testbed::run(self.scenario, monitor, &|viewing| self.command(viewing))
    }

    fn is_whole(&self, on_packets: &StreamOnPackets) -> bool {
        self.scenario.is_whole(&on_packets.measured)
    }
}

/// What the emulator and the machine did, and whether peers and links were those that were asked for.
pub fn say_all(on_packets: &StreamOnPackets) {
    say(&on_packets.emulator);
    let load = &on_packets.load;
    eprint_line!(
        "viewers: {:.1} s of processors, waited {:.2} ms for one each time on average",
        load.ran.as_secs_f64(),
        load.mean_wait().as_millis_f64()
    );
}

/// What of a run on real packets is in no simulation.
pub fn extra(on_packets: &StreamOnPackets) -> serde_json::Value {
    let uploads = on_packets.uploads.iter().map(|upload| {
        let bits = |rate: anabranch_control::units::Rate| rate.bits_per_sec();
        json!({
            "viewer": upload.node,
            "line_bits_per_s": bits(upload.line),
            "first_after_s": upload.first.map(|(after, _)| after.as_secs_f64()),
            "first_bits_per_s": upload.first.map(|(_, rate)| bits(rate)),
            "last_bits_per_s": upload.last.map(bits),
        })
    });
    json!({
        "uploads": uploads.collect::<Vec<_>>(),
        "emulator_late_p99_ms": on_packets.emulator.lateness.value_at_quantile(0.99) as f64 / 1e6,
        "viewers_ran_s": on_packets.load.ran.as_secs_f64(),
        "viewers_mean_wait_ms": on_packets.load.mean_wait().as_millis_f64(),
        "warnings": on_packets.warnings(),
    })
}

/// The words for figures that are not those of what was asked for.
pub fn verdict(warnings: &[String]) -> Result<(), Failure> {
    match warnings {
        [] => Ok(()),
        warnings => Err(Failure::new(format!(
            "this machine could not carry these peers and links, so what was measured is not theirs: {}; expected fewer \
             viewers, a lower bitrate, or a machine with less else to do",
            warnings.join("; ")
        ))),
    }
}

/// Runs the scenario until its end or Ctrl-C.
pub fn run(args: &Args, scenario: &StreamScenario) -> Result<(), Failure> {
    let name = args.what.name();
    // Before there is a folder for what will not be.
    testbed::check(scenario)?;
    if let Some(out) = &args.out {
        create_dir(out)?;
    }
    let (on_packets, wall_s) = timed(&OnRealPeers::new(scenario)?, &name)?;
    let finished = FinishedRun { scenario, measured: &on_packets.measured, name: &name, wall_s };
    let print = |stdout: &mut StdoutLock<'_>| {
        if args.what.json {
            let mut object = finished.to_json();
            object["on_packets"] = extra(&on_packets);
            return writeln!(stdout, "{object}");
        }
        print_labelled(&rows(&finished, []), stdout)
    };
    write_then_print(args.out.as_deref(), finished.interrupted(), |out| finished.write(out), print)?;
    say_all(&on_packets);
    whole(&finished)?;
    verdict(&on_packets.warnings())
}

//! A run of an onion overlay and its users.

use std::io::{self, Write};

use anabranch_lab::onion::run_files::OnionFinished;
use anabranch_scenario::onion_run::OnionRunScenario;

use super::{Args, print_labelled, timed};
use crate::failure::Failure;

/// Runs the scenario until its end or Ctrl-C.
pub fn run(args: &Args, scenario: &OnionRunScenario, name: &str) -> Result<(), Failure> {
    let (measured, wall_s) = timed(scenario, name)?;
    let finished = OnionFinished { scenario, measured: &measured, name, wall_s };
    let written = args.out.as_ref().map(|out| finished.write(out)).transpose()?;
    let mut stdout = io::stdout().lock();
    if args.what.json {
        writeln!(stdout, "{}", finished.to_json())?;
    } else {
        let mut rows = measured.metrics.rows();
        let hops = measured.metrics.packet_hops as f64;
        rows.push(("wall clock", format!("{wall_s:.2} s, {:.2} million packet-hops a second", hops / wall_s / 1e6)));
        rows.push(("seed", scenario.seed.to_string()));
        print_labelled(&rows, &mut stdout)?;
    }
    for (path, what) in written.into_iter().flatten() {
        eprintln!("wrote {}: {what}", path.display());
    }
    match finished.interrupted() {
        true => {
            let (done, all) = (measured.metrics.simulated, scenario.duration);
            Err(Failure::interrupted(format!("these are the first {done} of {all}")))
        }
        false => Ok(()),
    }
}

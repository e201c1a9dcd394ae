//! A run of an application: of a stream and its viewers, of an onion overlay and its users.

use std::io::{StdoutLock, Write};
use std::sync::Arc;

use anabranch_lab::finished::{Application, FinishedRun, Metrics};
use anabranch_lab::parallel::Progress;

use super::{Asked, print_labelled, timed_under, write_then_print};
use crate::failure::Failure;

/// Runs the scenario until its end or Ctrl-C.
pub fn run<S: Application>(asked: &Asked, scenario: &S, progress: &Arc<Progress>) -> Result<(), Failure>
where
    Failure: From<S::Error>,
{
    let (measured, wall_s) = timed_under(progress, scenario, &asked.name)?;
    let finished = FinishedRun { scenario, measured: &measured, name: &asked.name, wall_s };
    let print = |stdout: &mut StdoutLock<'_>| {
        if asked.json {
            return writeln!(stdout, "{}", finished.to_json());
        }
        let hops = finished.metrics().packet_hops() as f64;
        let clock = format!("{wall_s:.2} s, {:.2} million packet-hops a second", hops / wall_s / 1e6);
        write!(stdout, "{}", asked.heading)?;
        print_labelled(&rows(&finished, [("wall clock", clock)]), stdout)
    };
    write_then_print(asked.out.as_deref(), finished.interrupted(), |out| finished.write(out), print)?;
    whole(&finished)
}

/// What was measured with its labels, `besides` and the seed.
pub fn rows<S: Application, const N: usize>(
    finished: &FinishedRun<'_, S>,
    besides: [(&'static str, String); N],
) -> Vec<(&'static str, String)> {
    let seed = ("seed", finished.scenario.seed().to_string());
    finished.metrics().rows().into_iter().chain(besides).chain([seed]).collect()
}

/// The word for a run that was stopped before its end.
pub fn whole<S: Application>(finished: &FinishedRun<'_, S>) -> Result<(), Failure> {
    if !finished.interrupted() {
        return Ok(());
    }
    let (done, all) = (finished.metrics().simulated(), finished.scenario.duration());
    Err(Failure::interrupted(format!("these are the first {done} of {all}")))
}

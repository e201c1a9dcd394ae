//! A run of flows over links.

use std::io::{self, StdoutLock, Write};
use std::path::Path;
use std::sync::Arc;

use anabranch_lab::flows::record::{Formats, RecordError, record};
use anabranch_lab::flows::run_files::FlowsFinished;
use anabranch_lab::flows::summary::{FlowsSummary, RECEIVER_HEADERS};
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_lab::monitor::Monitor;
use anabranch_lab::parallel::{Job, Progress};
use anabranch_report::output::Staged;
use anabranch_scenario::flows::Stack;

use super::{Asked, holds_whole_run, print_labelled, timed_under, write_then_print};
use crate::failure::Failure;
use crate::stderr::eprint_line;
use crate::table;

/// More flows do not fit on a screen.
const MOST_ROWS: usize = 40;

/// A run that is written down packet by packet.
struct Recorded<'a> {
    scenario: &'a FlowScenario,
    dir: &'a Path,
    formats: Formats,
}

impl Job for Recorded<'_> {
    type Measured = (FlowsMeasured, Vec<Staged>);
    type Error = RecordError;

    fn seconds(&self) -> u64 {
        self.scenario.seconds()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<Self::Measured, RecordError> {
        record(self.dir, self.scenario, self.formats, monitor)
    }

    fn is_whole(&self, (measured, _): &Self::Measured) -> bool {
        self.scenario.is_whole(measured)
    }
}

/// Says which flows of ours stand for those of another stack.
pub fn say_stand_ins(scenario: &FlowScenario) {
    let mut flows: Vec<_> = scenario.flows.iter().collect();
    flows.dedup_by_key(|flow| flow.controller_name());
    for flow in flows {
        let (named, ours) = (flow.controller_name(), flow.controller.name);
        match flow.stack {
            Stack::Kernel(_) => {
                eprint_line!("{named} is simulated by our {ours}; `anabranch emulate` runs the kernel's");
            }
            Stack::Quic => {
                eprint_line!("{named} is simulated by our flows under {ours}; `anabranch emulate` runs it under QUIC");
            }
            Stack::Ours => {}
        }
    }
}

/// Runs the scenario until its end or Ctrl-C.
pub fn run(asked: &Asked, mut scenario: FlowScenario, progress: &Arc<Progress>) -> Result<(), Failure> {
    let name = &asked.name;
    if asked.out.is_none() {
        // Only files show it.
        scenario.sample_every = None;
    }
    say_stand_ins(&scenario);
    let formats = asked.formats;
    let (measured, records, wall_s) = match &asked.out {
        Some(dir) if formats != Formats::default() => {
            let recorded = Recorded { scenario: &scenario, dir, formats };
            let ((measured, records), wall_s) = timed_under(progress, &recorded, name)?;
            (measured, records, wall_s)
        }
        _ => {
            let (measured, wall_s) = timed_under(progress, &scenario, name)?;
            (measured, Vec::new(), wall_s)
        }
    };
    let shown = Shown {
        scenario: &scenario,
        measured: &measured,
        name,
        heading: &asked.heading,
        wall_s,
        out: asked.out.as_deref(),
        json: asked.json,
    };
    // What was interrupted leaves a whole run's files alone.
    let stays = measured.length < scenario.length && asked.out.as_deref().is_some_and(holds_whole_run);
    let records = if stays { Vec::new() } else { records };
    let files = records.len();
    let recorded = records.into_iter().try_for_each(Staged::commit);
    if let (Some(out), Ok(()), 1..) = (&asked.out, &recorded, files) {
        eprint_line!("wrote {files} files of packets and events into {}", out.display());
    }
    let interrupted = shown.show()?;
    recorded?;
    interrupted
}

/// A run that is over, simulated or not.
pub struct Shown<'a> {
    /// What was run.
    pub scenario: &'a FlowScenario,
    /// What it measured.
    pub measured: &'a FlowsMeasured,
    /// The scenario's name.
    pub name: &'a str,
    /// What is printed before its figures.
    pub heading: &'a str,
    /// How long it took.
    pub wall_s: f64,
    /// Where files go.
    pub out: Option<&'a Path>,
    /// One JSON object on standard output in place of tables.
    pub json: bool,
}

impl Shown<'_> {
    /// Writes its files and prints it; inside, whether it was interrupted.
    pub fn show(&self) -> Result<Result<(), Failure>, Failure> {
        let Shown { scenario, measured, name, wall_s, .. } = *self;
        let summary = FlowsSummary::of(scenario, measured);
        let finished = FlowsFinished { scenario, measured, summary: &summary, name, wall_s };
        let print = |stdout: &mut StdoutLock<'_>| match self.json {
            true => writeln!(stdout, "{}", finished.to_json()),
            false => write!(stdout, "{}", self.heading).and_then(|()| print(&finished, stdout)),
        };
        write_then_print(self.out, finished.interrupted(), |out| finished.write(out), print)?;
        Ok(match finished.interrupted() {
            true => {
                let (done, all) = (measured.length, scenario.length);
                Err(Failure::interrupted(format!("these are the first {done} of {all}")))
            }
            false => Ok(()),
        })
    }
}

fn print(finished: &FlowsFinished<'_>, stdout: &mut impl Write) -> io::Result<()> {
    let summary = finished.summary;
    let mut rows = vec![summary.headers().into_iter().map(str::to_owned).collect()];
    rows.extend(summary.rows().into_iter().take(MOST_ROWS));
    table::print(&rows, 2.., stdout)?;
    if summary.flows.len() > MOST_ROWS {
        writeln!(stdout, "and {} flows more, all of which --json has", summary.flows.len() - MOST_ROWS)?;
    }
    let receivers = summary.receivers();
    if !receivers.is_empty() {
        writeln!(stdout)?;
        let mut rows = vec![RECEIVER_HEADERS.map(str::to_owned).to_vec()];
        rows.extend(receivers.iter().take(MOST_ROWS).map(|row| row.to_vec()));
        table::print(&rows, 3.., stdout)?;
        if receivers.len() > MOST_ROWS {
            writeln!(stdout, "and {} receivers more, all of which --json has", receivers.len() - MOST_ROWS)?;
        }
    }
    writeln!(stdout)?;
    let mut lines = summary.lines();
    let (hops, wall_s) = (summary.packet_hops as f64, finished.wall_s);
    lines.push((
        "wall clock",
        match finished.measured.events {
            None => format!("{wall_s:.2} s"),
            Some(_) => format!("{wall_s:.2} s, {:.2} million packet-hops a second", hops / wall_s / 1e6),
        },
    ));
    lines.push(("seed", finished.scenario.seed.to_string()));
    print_labelled(&lines, stdout)
}

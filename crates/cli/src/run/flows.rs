//! A run of flows over links.

use std::io::{self, Write};
use std::path::Path;

use anabranch_lab::flows::record::{Formats, RecordError, record};
use anabranch_lab::flows::run_files::FlowsFinished;
use anabranch_lab::flows::summary::{FlowsSummary, RECEIVER_HEADERS};
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_lab::output::Staged;
use anabranch_lab::parallel::Job;

use super::{Args, print_labelled, timed};
use crate::failure::Failure;
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

    fn run(&self, mut goes_on: impl FnMut() -> bool) -> Result<Self::Measured, RecordError> {
        record(self.dir, self.scenario, self.formats, |_| goes_on())
    }

    fn is_whole(&self, (measured, _): &Self::Measured) -> bool {
        self.scenario.is_whole(measured)
    }
}

/// Runs the scenario until its end or Ctrl-C.
pub fn run(args: &Args, mut scenario: FlowScenario, name: &str) -> Result<(), Failure> {
    if args.out.is_none() {
        // Only files show it.
        scenario.sample_every = None;
    }
    let formats = Formats { qlog: args.qlog, pcap: args.pcap };
    let (measured, records, wall_s) = match &args.out {
        Some(dir) if formats != Formats::default() => {
            let ((measured, records), wall_s) = timed(&Recorded { scenario: &scenario, dir, formats }, name)?;
            (measured, records, wall_s)
        }
        _ => {
            let (measured, wall_s) = timed(&scenario, name)?;
            (measured, Vec::new(), wall_s)
        }
    };
    let summary = FlowsSummary::of(&scenario, &measured);
    let finished = FlowsFinished { scenario: &scenario, measured: &measured, summary: &summary, name, wall_s };
    let written = args.out.as_ref().map(|out| finished.write(out)).transpose()?;
    let mut stdout = io::stdout().lock();
    if args.json {
        writeln!(stdout, "{}", finished.to_json())?;
    } else {
        print(&finished, &mut stdout)?;
    }
    for (path, what) in written.into_iter().flatten() {
        eprintln!("wrote {}: {what}", path.display());
    }
    if let (Some(out), false) = (&args.out, records.is_empty()) {
        let files = records.len();
        records.into_iter().try_for_each(Staged::commit)?;
        eprintln!("wrote {files} files of packets and events into {}", out.display());
    }
    if finished.interrupted() {
        let (done, all) = (measured.length, scenario.length);
        return Err(Failure::interrupted(format!("these are the first {done} of {all}, simulated")));
    }
    Ok(())
}

fn print(finished: &FlowsFinished<'_>, stdout: &mut impl Write) -> io::Result<()> {
    let summary = finished.summary;
    let mut rows = vec![summary.headers().into_iter().map(str::to_owned).collect()];
    rows.extend(summary.rows().into_iter().take(MOST_ROWS));
    table::print(&rows, 2, stdout)?;
    if summary.flows.len() > MOST_ROWS {
        writeln!(stdout, "and {} flows more, all of which --json has", summary.flows.len() - MOST_ROWS)?;
    }
    let receivers = summary.receivers();
    if !receivers.is_empty() {
        writeln!(stdout)?;
        let mut rows = vec![RECEIVER_HEADERS.map(str::to_owned).to_vec()];
        rows.extend(receivers.iter().take(MOST_ROWS).map(|row| row.to_vec()));
        table::print(&rows, 3, stdout)?;
        if receivers.len() > MOST_ROWS {
            writeln!(stdout, "and {} receivers more, all of which --json has", receivers.len() - MOST_ROWS)?;
        }
    }
    writeln!(stdout)?;
    let mut lines = summary.lines();
    let (hops, wall_s) = (summary.packet_hops as f64, finished.wall_s);
    lines.push(("wall clock", format!("{wall_s:.2} s, {:.2} million packet-hops a second", hops / wall_s / 1e6)));
    lines.push(("seed", finished.scenario.seed.to_string()));
    print_labelled(&lines, stdout)
}

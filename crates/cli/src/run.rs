//! `anabranch run`: one scenario, and what it measured.

pub mod application;
pub mod flows;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anabranch_lab::overlay::run_files::Finished;
use anabranch_lab::overlay::summary::Summary;
use anabranch_lab::parallel::{Job, Progress, run_one};
use anabranch_report::output::create_dir;
use anabranch_scenario::file::{self as scenario_file, AnyScenario, Override};
use anabranch_scenario::overlay::Scenario;

use crate::failure::Failure;
use crate::memory;
use crate::progress;
use crate::table;

/// Which scenario, what it says otherwise, and how the answer looks.
#[derive(Debug, clap::Args)]
pub struct ScenarioArgs {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    pub scenario: PathBuf,
    /// Says something else than the scenario does, as in run.seconds=10
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The seed of every random stream instead of the scenario's
    #[arg(long)]
    pub seed: Option<u64>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,
}

impl ScenarioArgs {
    /// The scenario's name for people.
    pub fn name(&self) -> String {
        self.scenario.display().to_string()
    }

    /// What `--set` and `--seed` say instead of the scenario.
    pub fn overrides(&self) -> Result<Vec<Override>, Failure> {
        overrides(&self.set, self.seed)
    }
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: ScenarioArgs,
    /// Write summary.json, series.parquet and report.html into DIR
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write each flow's events as qlog into DIR too
    #[arg(long, requires = "out")]
    qlog: bool,
    /// Write every packet as a capture for Wireshark into DIR too
    #[arg(long, requires = "out")]
    pcap: bool,
}

/// Runs the scenario until its end or Ctrl-C.
pub fn run(args: &Args) -> Result<(), Failure> {
    let name = args.what.name();
    let scenario = scenario_file::read_any(&args.what.scenario, &args.what.overrides()?)?;
    if let AnyScenario::Overlay(scenario) = &scenario {
        memory::check_overlay(scenario, 1)?;
    }
    if let Some(out) = &args.out {
        create_dir(out)?;
    }
    match scenario {
        AnyScenario::Overlay(_) if args.qlog || args.pcap => Err(Failure::new(format!(
            "{name}: --qlog and --pcap are for flows over links; this is an overlay, whose report --out writes"
        ))),
        AnyScenario::Overlay(scenario) => overlay(args, &scenario, &name),
        AnyScenario::Stream(_) if args.qlog || args.pcap => Err(Failure::new(format!(
            "{name}: --qlog and --pcap are for flows over links; this is a stream, whose report --out writes"
        ))),
        AnyScenario::Onion(_) if args.qlog || args.pcap => Err(Failure::new(format!(
            "{name}: --qlog and --pcap are for flows over links; this is an onion overlay, whose report --out writes"
        ))),
        AnyScenario::Onion(scenario) => application::run(args, &scenario, &name),
        AnyScenario::Flows(scenario) => flows::run(args, scenario, &name),
        AnyScenario::Stream(scenario) => application::run(args, &scenario, &name),
    }
}

/// Runs `job` under a bar; says what it measured and how long it took, in seconds.
pub fn timed<J: Job>(job: &J, name: &str) -> Result<(J::Measured, f64), Failure>
where
    Failure: From<J::Error>,
{
    timed_under(&progress::until_interrupted()?, job, name)
}

/// The same under a progress that there is.
pub fn timed_under<J: Job>(progress: &Arc<Progress>, job: &J, name: &str) -> Result<(J::Measured, f64), Failure>
where
    Failure: From<J::Error>,
{
    progress.total.fetch_add(job.seconds(), Ordering::Relaxed);
    let bar = progress::show(progress, name);
    let started = Instant::now();
    let measured = run_one(job, progress);
    let wall_s = started.elapsed().as_secs_f64();
    bar.end();
    Ok((measured?, wall_s))
}

fn overlay(args: &Args, scenario: &Scenario, name: &str) -> Result<(), Failure> {
    let (measured, wall_s) = timed(scenario, name)?;
    let summary = Summary::of(&measured);
    let finished = Finished { scenario, measured: &measured, summary: &summary, name, wall_s };
    let written = args.out.as_ref().map(|out| finished.write(out)).transpose()?;
    let mut stdout = io::stdout().lock();
    if args.what.json {
        writeln!(stdout, "{}", finished.to_json())?;
    } else {
        print(&finished, &mut stdout)?;
    }
    for (path, what) in written.into_iter().flatten() {
        eprintln!("wrote {}: {what}", path.display());
    }
    if finished.interrupted() {
        let (done, all) = (measured.seconds.len(), scenario.seconds);
        return Err(Failure::interrupted(format!("these are the first {done} of {all} simulated seconds")));
    }
    Ok(())
}

/// What `--set` and `--seed` say instead of the scenario.
pub fn overrides(set: &[String], seed: Option<u64>) -> Result<Vec<Override>, Failure> {
    let mut overrides = set.iter().map(|change| Override::set(change)).collect::<Result<Vec<_>, _>>()?;
    overrides.extend(seed.map(|seed| Override::new(format!("--seed {seed}"), "run.seed", seed.to_string())));
    Ok(overrides)
}

fn print(finished: &Finished<'_>, stdout: &mut impl Write) -> io::Result<()> {
    let mut rows = finished.summary.rows();
    let (hops, wall_s) = (finished.summary.packet_hops as f64, finished.wall_s);
    rows.push(("wall clock", format!("{wall_s:.2} s, {:.2} million packet-hops a second", hops / wall_s / 1e6)));
    rows.push(("seed", finished.scenario.seed.to_string()));
    print_labelled(&rows, stdout)
}

/// Values in a column beside their labels.
pub fn print_labelled(rows: &[(&str, String)], stdout: &mut impl Write) -> io::Result<()> {
    let rows: Vec<Vec<String>> = rows.iter().map(|(label, value)| vec![(*label).to_owned(), value.clone()]).collect();
    table::print(&rows, 2.., stdout)
}

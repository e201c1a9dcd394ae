//! `anabranch run`: scenarios, one after the other, and what each measured.

pub mod application;
pub mod flows;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, StdoutLock, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anabranch_lab::flows::record::Formats;
use anabranch_lab::overlay::run_files::Finished;
use anabranch_lab::overlay::summary::Summary;
use anabranch_lab::parallel::{Job, Progress, run_alone};
use anabranch_report::output::{OutputError, create_dir};
use anabranch_scenario::file::{self as scenario_file, AnyScenario, Override};
use anabranch_scenario::overlay::Scenario;

use crate::failure::Failure;
use crate::printer::on_stdout;
use crate::research::memory;
use crate::research::progress;
use crate::research::threads;
use crate::stderr::eprint_line;
use crate::table;

/// A scenario's key for its seed.
pub const SEED: &str = "run.seed";

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
    /// More of them, run after it: with --json each says one line, with --out each has a folder in DIR
    #[arg(value_name = "SCENARIO.toml")]
    more: Vec<PathBuf>,
    /// Write summary.json, series.parquet and report.html into DIR
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Threads that run a large overlay together, as many as there are cores if not given: the result is the same
    #[arg(long, value_parser = threads::parse)]
    threads: Option<NonZeroUsize>,
    /// Write each flow's events as qlog into DIR too
    #[arg(long, requires = "out")]
    qlog: bool,
    /// Write every packet as a capture for Wireshark into DIR too
    #[arg(long, requires = "out")]
    pcap: bool,
}

/// A scenario that shall be run, and where what it measured goes.
#[derive(Debug)]
pub struct Asked {
    /// Its name for people.
    name: String,
    /// What is printed before its figures: its name, if there are several.
    heading: String,
    scenario: AnyScenario,
    out: Option<PathBuf>,
    json: bool,
    threads: Option<NonZeroUsize>,
    formats: Formats,
}

/// Runs the scenarios until the last one's end or Ctrl-C. All are read before the first is run.
pub fn run(args: &Args) -> Result<(), Failure> {
    let paths: Vec<&PathBuf> = std::iter::once(&args.what.scenario).chain(&args.more).collect();
    let overrides = args.what.overrides()?;
    let folders = folders(&paths, args.out.as_deref())?;
    let asked = paths.iter().zip(folders).map(|(path, out)| args.ask(path, out, &overrides));
    let mut asked: Vec<Asked> = asked.collect::<Result<_, Failure>>()?;
    for out in asked.iter().filter_map(|asked| asked.out.as_ref()) {
        create_dir(out)?;
    }
    let progress = progress::until_interrupted()?;
    for (index, asked) in asked.iter_mut().enumerate() {
        if !args.what.json && !args.more.is_empty() {
            asked.heading = format!("{}{}\n", if index > 0 { "\n" } else { "" }, asked.name);
        }
        match &asked.scenario {
            AnyScenario::Overlay(scenario) => overlay(asked, scenario, &progress),
            AnyScenario::Onion(scenario) => application::run(asked, scenario, &progress),
            AnyScenario::Flows(scenario) => flows::run(asked, scenario.clone(), &progress),
            AnyScenario::Stream(scenario) => application::run(asked, scenario, &progress),
        }?;
    }
    Ok(())
}

impl Args {
    fn ask(&self, path: &Path, out: Option<PathBuf>, overrides: &[Override]) -> Result<Asked, Failure> {
        let name = path.display().to_string();
        let scenario = scenario_file::read_any(path, overrides)?;
        let formats = Formats { qlog: self.qlog, pcap: self.pcap };
        let is = match &scenario {
            AnyScenario::Flows(_) => None,
            AnyScenario::Overlay(scenario) => {
                memory::check_overlay(scenario, 1)?;
                Some("an overlay")
            }
            AnyScenario::Stream(_) => Some("a stream"),
            AnyScenario::Onion(scenario) => {
                memory::check_onion(scenario)?;
                Some("an onion overlay")
            }
        };
        match is {
            Some(is) if formats != Formats::default() => Err(Failure::new(format!(
                "{name}: --qlog and --pcap are for flows over links; this is {is}, whose report --out writes"
            ))),
            _ => Ok(Asked {
                name,
                heading: String::new(),
                scenario,
                out,
                json: self.what.json,
                threads: self.threads,
                formats,
            }),
        }
    }
}

/// Where each scenario's files go: one's into `out`, those of several into folders there that have the
/// scenarios' names.
fn folders(paths: &[&PathBuf], out: Option<&Path>) -> Result<Vec<Option<PathBuf>>, Failure> {
    let Some(out) = out.filter(|_| paths.len() > 1) else { return Ok(vec![out.map(Path::to_owned); paths.len()]) };
    let mut taken = BTreeMap::new();
    let mut folder = |path: &&PathBuf| {
        let folder = out.join(path.file_stem().unwrap_or(path.as_os_str()));
        match taken.insert(folder.clone(), path.display().to_string()) {
            Some(before) => Err(Failure::new(format!(
                "{before} and {} would both be written into {}: run them one at a time",
                path.display(),
                folder.display()
            ))),
            None => Ok(Some(folder)),
        }
    };
    paths.iter().map(&mut folder).collect()
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
    timed_on(None, progress, job, name)
}

/// The same on `threads` threads, or as many as there are cores if none is given, where the job can use several.
fn timed_on<J: Job>(
    threads: Option<NonZeroUsize>,
    progress: &Arc<Progress>,
    job: &J,
    name: &str,
) -> Result<(J::Measured, f64), Failure>
where
    Failure: From<J::Error>,
{
    progress.total.fetch_add(job.seconds(), Ordering::Relaxed);
    let bar = progress::show(progress, name);
    let started = Instant::now();
    let measured = run_alone(job, threads, progress);
    let wall_s = started.elapsed().as_secs_f64();
    bar.end();
    Ok((measured?, wall_s))
}

fn overlay(asked: &Asked, scenario: &Scenario, progress: &Arc<Progress>) -> Result<(), Failure> {
    let (measured, wall_s) = timed_on(asked.threads, progress, scenario, &asked.name)?;
    let summary = Summary::of(&measured);
    let finished = Finished { scenario, measured: &measured, summary: &summary, name: &asked.name, wall_s };
    let print = |stdout: &mut StdoutLock<'_>| match asked.json {
        true => writeln!(stdout, "{}", finished.to_json()),
        false => write!(stdout, "{}", asked.heading).and_then(|()| print(&finished, stdout)),
    };
    write_then_print(asked.out.as_deref(), finished.interrupted(), |out| finished.write(out), print)?;
    if finished.interrupted() {
        let (done, all) = (measured.seconds.len(), scenario.seconds);
        return Err(Failure::interrupted(format!("these are the first {done} of {all} simulated seconds")));
    }
    Ok(())
}

/// Whether a run that came to its end was written into `dir`: what was interrupted does not replace it.
pub fn holds_whole_run(dir: &Path) -> bool {
    let summary = fs::read(dir.join("summary.json")).ok();
    let summary = summary.and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
    summary.is_some_and(|summary| summary.get("interrupted") == Some(&false.into()))
}

/// Where what was interrupted is written beside a whole run.
const PART: &str = "interrupted";

/// Writes the files of a run that is over, says which, and prints its figures. Files come first: where nobody reads standard
/// output any more, printing ends the program. Where there is no room for files, the figures are printed all the same.
pub fn write_then_print(
    out: Option<&Path>,
    interrupted: bool,
    write: impl FnOnce(&Path) -> Result<Vec<(PathBuf, &'static str)>, OutputError>,
    print: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<()>,
) -> Result<(), Failure> {
    let stays = out.filter(|out| interrupted && holds_whole_run(out));
    if let Some(out) = stays {
        eprint_line!("{} holds a whole run, which stays", out.display());
    }
    let written = match stays {
        Some(out) => Some(write(&out.join(PART))).transpose(),
        None => out.map(write).transpose(),
    };
    for (path, what) in written.iter().flatten().flatten() {
        eprint_line!("wrote {}: {what}", path.display());
    }
    let printed = on_stdout(print);
    written?;
    printed
}

/// What `--set` and `--seed` say instead of the scenario.
pub fn overrides(set: &[String], seed: Option<u64>) -> Result<Vec<Override>, Failure> {
    let mut overrides = set.iter().map(|change| Override::set(change)).collect::<Result<Vec<_>, _>>()?;
    if let (Some(seed), Some(set)) = (seed, overrides.iter().find(|set| set.key() == SEED)) {
        return Err(Failure::new(format!(
            "--seed {seed}: --set {SEED}={} gives a seed, too; expected one of them",
            set.value()
        )));
    }
    overrides.extend(seed.map(|seed| Override::new(format!("--seed {seed}"), SEED, seed.to_string())));
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

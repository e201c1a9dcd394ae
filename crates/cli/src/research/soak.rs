//! `anabranch soak`: what ships, in simulated networks in which everything goes wrong.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anabranch_lab::parallel::Progress;
use anabranch_lab::soak::case::Case;
use anabranch_lab::soak::runner::{Failure as Found, Length, Soaked, soak};
use anabranch_lab::soak::{coordination, streams};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::failure::Failure;
use crate::number::short;
use crate::printer::print_line;
use crate::research::progress;
use crate::research::threads;

/// Arguments of `soak`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Simulated hours
    #[arg(long, default_value_t = 1.0, value_parser = positive, conflicts_with_all = ["cases", "repeat"])]
    hours: f64,
    /// Cases to run, in place of hours
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "repeat")]
    cases: Option<u64>,
    /// The first case's seed; the others follow it
    #[arg(long, default_value_t = 1, conflicts_with = "repeat")]
    seed: u64,
    /// Run the case of this seed alone, and say what happens in it
    #[arg(long, value_name = "SEED")]
    repeat: Option<u64>,
    /// How many cases run at once [default: the number of cores]
    #[arg(long, value_parser = threads::parse)]
    threads: Option<NonZeroUsize>,
    /// Soak live streams instead of file transfers
    #[arg(long, conflicts_with = "hours")]
    streams: bool,
    /// Soak a coordinator and its agents instead
    #[arg(long, conflicts_with_all = ["hours", "streams"])]
    coordination: bool,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// Cases of streams, if nobody says how many.
const STREAMS: u64 = 100;

/// Cases of coordinators, if nobody says how many.
const COORDINATORS: u64 = 1000;

fn positive(text: &str) -> Result<f64, String> {
    let expected = || format!("expected a number of simulated hours above 0, got {text:?}");
    text.parse().ok().filter(|&hours: &f64| hours > 0.0 && hours.is_finite()).ok_or_else(expected)
}

#[derive(Serialize)]
struct Json<'a> {
    seed: u64,
    wall_s: f64,
    processor_s: f64,
    #[serde(flatten)]
    soaked: &'a Soaked,
    repeat: Vec<String>,
}

/// Runs the cases, until their end or Ctrl-C; fails when a rule was broken.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.streams {
        return streams(args);
    }
    if args.coordination {
        return coordination(args);
    }
    let (first, length) = match (args.repeat, args.cases) {
        (Some(seed), _) => (seed, Length::Cases(1)),
        (None, Some(cases)) => (args.seed, Length::Cases(cases)),
        (None, None) => (args.seed, Length::Hours(args.hours)),
    };
    if let Some(seed) = args.repeat.filter(|_| !args.json) {
        print_line!("{:#?}", Case::draw(seed))?;
    }
    let progress = progress::until_interrupted()?;
    let bar = progress::show(&progress, "soak");
    let started = (Instant::now(), processor_time());
    let progress: &Progress = &progress;
    let soaked = soak(first, length, args.threads.map(NonZeroUsize::get), progress);
    let wall_s = started.0.elapsed().as_secs_f64();
    let processor_s = (processor_time() - started.1).as_secs_f64();
    bar.end();
    if args.json {
        let repeat = soaked.failures.iter().map(command).collect();
        let json = Json { seed: first, wall_s, processor_s, soaked: &soaked, repeat };
        print_line!("{}", serde_json::to_string(&json)?)?;
    } else {
        print(&soaked, wall_s, processor_s)?;
    }
    verdict(soaked.failures.len(), soaked.interrupted, soaked.cases)
}

/// How the command ends.
fn verdict(failed: usize, is_interrupted: bool, cases: u64) -> Result<(), Failure> {
    match failed {
        0 if is_interrupted => Err(Failure::interrupted(format!("{cases} cases were over"))),
        0 => Ok(()),
        failed => Err(Failure::new(format!("{failed} of {cases} cases broke a rule"))),
    }
}

/// The same for live streams.
fn streams(args: &Args) -> Result<(), Failure> {
    let (first, cases) = args.repeat.map_or((args.seed, args.cases.unwrap_or(STREAMS)), |seed| (seed, 1));
    if let Some(seed) = args.repeat.filter(|_| !args.json) {
        print_line!("{:#?}", streams::draw(seed))?;
    }
    let progress = progress::until_interrupted()?;
    let bar = progress::show(&progress, "soak");
    let started = Instant::now();
    let soaked = streams::soak(first, cases, args.threads.map(NonZeroUsize::get), &progress);
    bar.end();
    if args.json {
        print_line!("{}", serde_json::to_string(&soaked)?)?;
    } else {
        let streams::Soaked { cases, viewers, started: playing, killed, overloaded, forged, packet_hops, .. } = &soaked;
        let hours = short(soaked.simulated_hours);
        print_line!("{cases} cases, {hours} simulated hours of live streams, seeds from {first} on")?;
        print_line!("viewers  {viewers} came, {playing} began to play, {killed} died at once")?;
        print_line!("refused  {overloaded} attempts to join, for want of room")?;
        print_line!("forged   {forged} packets were found to be")?;
        print_line!("no miss  in {} cases", soaked.without_a_miss)?;
        print_line!("{packet_hops} packets in {} s", short(started.elapsed().as_secs_f64()))?;
        for found in &soaked.failures {
            print_line!("BROKEN   {}: {}", serde_json::to_string(&found.rule)?, found.what)?;
            print_line!("         anabranch soak --streams --repeat {}", found.seed)?;
        }
    }
    verdict(soaked.failures.len(), soaked.interrupted, soaked.cases)
}

/// The same for coordinators.
fn coordination(args: &Args) -> Result<(), Failure> {
    let (first, cases) = args.repeat.map_or((args.seed, args.cases.unwrap_or(COORDINATORS)), |seed| (seed, 1));
    if let Some(seed) = args.repeat.filter(|_| !args.json) {
        print_line!("{:#?}", coordination::Case::draw(seed))?;
    }
    let progress = progress::until_interrupted()?;
    let bar = progress::show(&progress, "soak");
    let started = Instant::now();
    let soaked = coordination::soak(first, cases, args.threads.map(NonZeroUsize::get), &progress);
    bar.end();
    if args.json {
        print_line!("{}", serde_json::to_string(&soaked)?)?;
    } else {
        let coordination::Soaked { cases, directives, ignored, leases_ended, lost, .. } = &soaked;
        let coordination::Soaked { coordinator_crashes, agent_crashes, partitions, .. } = &soaked;
        let hours = short(soaked.simulated_hours);
        print_line!("{cases} cases, {hours} simulated hours of coordinators, seeds from {first} on")?;
        print_line!("directives  {directives} were followed, {ignored} came too late, {leases_ended} leases ended")?;
        print_line!("faults      {lost} messages lost, {partitions} partitions")?;
        if soaked.never_at_rest > 0 {
            print_line!("not judged  {} links, at which leases ended to the end and beyond", soaked.never_at_rest)?;
        }
        print_line!("crashes     {coordinator_crashes} of coordinators, {agent_crashes} of agents")?;
        print_line!("in {} s", short(started.elapsed().as_secs_f64()))?;
        for found in &soaked.failures {
            print_line!("BROKEN   {}: {}", serde_json::to_string(&found.rule)?, found.what)?;
            print_line!("         anabranch soak --coordination --repeat {}", found.seed)?;
        }
    }
    verdict(soaked.failures.len(), soaked.interrupted, soaked.cases)
}

/// What this process has computed, on all cores.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Repeats a failure.
fn command(found: &Found) -> String {
    format!("anabranch soak --repeat {}", found.seed)
}

/// Names and numbers in a line.
fn list<K: Serialize, N: ToString>(entries: impl IntoIterator<Item = (K, N)>) -> Result<String, Failure> {
    let name = |key: &K| match serde_json::to_value(key) {
        Ok(serde_json::Value::String(name)) => Ok(name.replace(['-', '_'], " ")),
        other => Err(Failure::new(format!("a name in a report is no text: {other:?}"))),
    };
    let entries: Result<Vec<String>, Failure> =
        entries.into_iter().map(|(key, number)| Ok(format!("{} {}", number.to_string(), name(&key)?))).collect();
    Ok(entries?.join(", "))
}

fn print(soaked: &Soaked, wall_s: f64, processor_s: f64) -> Result<(), Failure> {
    let Soaked { cases, simulated_hours, under_way_hours, transfers, published, events, troubles, .. } = soaked;
    let busy = 100.0 * under_way_hours / simulated_hours.max(f64::MIN_POSITIVE);
    let hours = short(*simulated_hours);
    print_line!("{cases} cases, {hours} simulated hours, {} % of them with a transfer under way", short(busy))?;
    print_line!("over     {}", list(&soaked.fabrics)?)?;
    print_line!("{transfers} transfers begun, {published} files published")?;
    print_line!("ended    {}", list(&soaked.endings)?)?;
    let mut wrong = serde_json::to_value(troubles)?;
    if let Some(liars) = wrong.as_object_mut() {
        liars.remove("liars");
        print_line!("faults   {}", list(liars.iter())?)?;
    }
    print_line!("liars    {}", list(&troubles.liars)?)?;
    let (longest, seed) = soaked.longest_after_calm_s;
    print_line!("longest  {} s from the last trouble to the end, with seed {seed}", short(longest))?;
    let speed = simulated_hours / processor_s;
    print_line!(
        "{events} events in {} s, {} s of processor time: {} simulated hours a second of it",
        short(wall_s),
        short(processor_s),
        short(speed)
    )?;
    for found in &soaked.failures {
        print_line!("BROKEN   {}: {}", found.invariant, found.what)?;
        print_line!("         {}", command(found))?;
    }
    Ok(())
}

//! `anabranch sweep`: one scenario over a grid of values and seeds.

mod on_ray;

use std::fs;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

use anabranch_lab::sweep::{GridKey, Options, Outcome, Seeds, Sweep, points};
use anabranch_report::output::create_dir;
use anabranch_scenario::file::ScenarioError;
use serde_json::json;

use crate::failure::Failure;
use crate::number::short;
use crate::printer::{on_stdout, print_line};
use crate::research::progress;
use crate::research::run::{SEED, overrides};
use crate::research::threads;
use crate::stderr::eprint_line;
use crate::table;

/// Arguments of `sweep`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// A key and its values, as in overlay.relays=1,2,3; every combination of all grids is run
    #[arg(long, value_name = "KEY=V1,V2,...")]
    grid: Vec<GridKey>,
    /// Says something else than the scenario does, as in run.seconds=500
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The seeds of every combination: 10 or 1..10, both from 1 to 10 [default: the scenario's]
    #[arg(long, value_name = "SEEDS")]
    seeds: Option<Seeds>,
    /// Where results go; points that are there already are not run again
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Run all points again, as after a change of a controller's code
    #[arg(long)]
    again: bool,
    /// How many points run at once [default: the number of cores]
    #[arg(long, value_parser = threads::parse)]
    threads: Option<NonZeroUsize>,
    /// On Ray's workers, of the cluster at ADDRESS or else begun on this machine; Python 3.11 or later with
    /// this version's module and Ray does it (pip install '.[ray]')
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1)]
    ray: Option<Option<String>>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// Runs what is missing of the sweep, until its end or Ctrl-C.
pub fn run(args: &Args) -> Result<(), Failure> {
    check_said_once(args)?;
    if let Some(address) = &args.ray {
        return on_ray::run(args, address.as_deref());
    }
    let name = args.scenario.display().to_string();
    let text = fs::read_to_string(&args.scenario)
        .map_err(|source| ScenarioError::Unreadable { path: args.scenario.clone(), source })?;
    let points = points(&text, &name, &overrides(&args.set, None)?, &args.grid, args.seeds.as_ref())?;
    let sweep = Sweep { name, text, grid: args.grid.clone(), points };
    create_dir(&args.out)?;

    let progress = progress::until_interrupted()?;
    let bar = progress::show(&progress, &sweep.name);
    let started = Instant::now();
    let options = Options { threads: args.threads.map(NonZeroUsize::get), again: args.again };
    let swept = sweep.run(&args.out, options, &progress);
    let wall_s = started.elapsed().as_secs_f64();
    bar.end();

    let swept = swept?;
    let all = sweep.points.len();
    if swept.skipped > 0 {
        eprint_line!("{} of {all} points were there already; --again runs them again", swept.skipped);
    }
    let finished = swept.outcomes.iter().flatten().filter(|outcome| outcome.failed().is_none()).count();
    let outcomes: Option<Vec<Outcome>> = swept.outcomes.into_iter().collect();
    let mut object = json!({
        "scenario": sweep.name, "points": [], "combinations": [], "failed": [], "finished": finished, "skipped": swept.skipped,
        "wall_s": wall_s, "interrupted": outcomes.is_none(),
    });
    let Some(outcomes) = outcomes else {
        if args.json {
            print_line!("{object}")?;
        }
        let out = args.out.display();
        return Err(Failure::interrupted(match args.again {
            // Which of them are of this time is written nowhere.
            true => format!(
                "{finished} of {all} points were run again and are kept in {out}; the same command runs all of them again, \
                 and without --again what {out} has of the others counts"
            ),
            false => {
                format!("{finished} of {all} points are over and kept in {out}; the same command goes on from there")
            }
        }));
    };
    let written = sweep.write(&args.out, &outcomes)?;
    if args.json {
        let results = sweep.to_json(&outcomes);
        for key in ["points", "combinations", "failed"] {
            object[key] = results[key].clone();
        }
        print_line!("{object}")?;
    } else {
        on_stdout(|stdout| print(&sweep, &outcomes, stdout))?;
        print_line!("{all} points, {wall_s:.2} s")?;
    }
    for (path, what) in written {
        eprint_line!("wrote {}: {what}", path.display());
    }
    let failures = sweep.failures(&outcomes);
    if failures.is_empty() {
        return Ok(());
    }
    for failure in &failures {
        eprint_line!("{failure}");
    }
    Err(Failure::new(format!(
        "{} of {all} points have no run, and no figures in {}; the same command tries them again",
        failures.len(),
        args.out.display()
    )))
}

/// Refuses a key that `--set` gives one value and `--grid` or `--seeds` several.
fn check_said_once(args: &Args) -> Result<(), Failure> {
    for set in overrides(&args.set, None)? {
        let key = set.key();
        let other = match args.grid.iter().any(|grid| grid.key == key) {
            true => "--grid",
            false if key == SEED && args.seeds.is_some() => "--seeds",
            false => continue,
        };
        return Err(Failure::new(format!(
            "--set {key}={}: {other} gives values of {key}, too; expected one of them",
            set.value()
        )));
    }
    Ok(())
}

/// A line for each combination, with means over the seeds.
fn print(sweep: &Sweep, outcomes: &[Outcome], stdout: &mut impl Write) -> io::Result<()> {
    let keys = sweep.grid.iter().map(|key| key.key.clone());
    let labels = sweep.metrics().iter().map(|(_, label, unit)| match *unit {
        "" => (*label).to_owned(),
        unit => format!("{label}, {unit}"),
    });
    let mut lines = vec![keys.chain(labels).collect()];
    for combination in sweep.combinations(outcomes) {
        let mut cells: Vec<String> = combination.values.to_vec();
        cells.extend(sweep.metrics().iter().map(|(metric, ..)| match combination.mean(metric) {
            Some((mean, Some(half))) => format!("{} ± {}", short(mean), short(half)),
            Some((mean, None)) => short(mean),
            None => "-".to_owned(),
        }));
        lines.push(cells);
    }
    let columns = lines[0].len();
    table::print(&lines, columns.., stdout)
}

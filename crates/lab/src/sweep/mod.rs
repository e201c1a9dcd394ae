//! Sweeps: one scenario over a grid of values and seeds, on all cores.
//!
//! Every point that is over is a file of its own, named after its scenario, so that a
//! sweep which was interrupted, or whose grid grows, goes on with what is missing.
//! Tables and the page are made from the points in the order of the grid, and do not
//! depend on threads, on time or on what was there before.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

pub use elsewhere::{Elsewhere, KeepError, MeasureError, measure};
pub use grid::{GridError, GridKey, Point, Seeds, as_number, points};
pub use numbers::{Numbers, PointError};
pub use store::{Outcome, StrangeOutcome};
pub use table::{Combination, Metric};

use crate::monitor::Monitor;
use crate::parallel::{Job, Progress, run_all};
use anabranch_report::output::{OutputError, Staged, create_dir};

mod elsewhere;
mod figures;
mod grid;
mod numbers;
mod store;
mod table;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// What the user calls the scenario.
    pub name: String,
    /// The scenario as it was written.
    pub text: String,
    /// The keys that take several values.
    pub grid: Vec<GridKey>,
    /// Every combination with every seed.
    pub points: Vec<Point>,
}

/// How a sweep runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Threads; as many as there are cores if none is given.
    pub threads: Option<usize>,
    /// Measures points anew that are there already.
    pub again: bool,
}

/// What was measured of a sweep.
#[derive(Clone, Debug)]
pub struct Swept {
    /// In the order of the points; none where the sweep was interrupted before.
    pub outcomes: Vec<Option<Outcome>>,
    /// How many were there from before.
    pub skipped: usize,
}

/// Why a sweep did not end.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A result could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// A point as it is run here.
struct PointJob<'a>(&'a Point);

impl Job for PointJob<'_> {
    /// None if it was stopped before its end.
    type Measured = Option<Outcome>;
    type Error = Infallible;

    fn seconds(&self) -> u64 {
        self.0.scenario.seconds()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<Option<Outcome>, Infallible> {
        let PointJob(point) = *self;
        Ok(match point.scenario.run(monitor) {
            Ok(numbers) => point.scenario.is_whole(&numbers).then(|| Outcome::new(point, numbers)),
            // What is stopped early may have delivered nothing yet.
            Err(_) if monitor.is_interrupted() => None,
            Err(error) => Some(Outcome::of_failure(point, &error)),
        })
    }

    fn is_whole(&self, outcome: &Option<Outcome>) -> bool {
        outcome.is_some()
    }
}

/// Where the outcomes of a sweep in `dir` are kept, which is made if it is not there.
fn points_of(dir: &Path) -> Result<PathBuf, OutputError> {
    let dir = dir.join("points");
    create_dir(&dir)?;
    Ok(dir)
}

impl Sweep {
    /// Measures the points that are not yet in `dir`, and keeps each there as soon as it
    /// is over. Those that have no run say so in their outcomes, and are not kept.
    ///
    /// # Errors
    ///
    /// The first result that could not be written, which ends the sweep; what was written before is whole and
    /// stays.
    pub fn run(&self, dir: &Path, options: Options, progress: &Progress) -> Result<Swept, SweepError> {
        let dir = points_of(dir)?;
        let mut outcomes = self.there(&dir, options.again);
        let missing: Vec<usize> = (0..outcomes.len()).filter(|&index| outcomes[index].is_none()).collect();
        let jobs: Vec<PointJob<'_>> = missing.iter().map(|&index| PointJob(&self.points[index])).collect();
        // More than there are jobs would have nothing to do.
        let threads = options.threads.map(|threads| threads.min(jobs.len().max(1)));
        let Ok(measured) = run_all(&jobs, threads, progress, |job, outcome| {
            let Some(outcome) = outcome else { return Ok(None) };
            if let Err(error) = outcome.write(&dir, &self.points[missing[job]]) {
                // Where one cannot be written, the next ones cannot either.
                progress.interrupted.store(true, Ordering::Relaxed);
                return Err(error);
            }
            Ok(Some(outcome))
        });
        let skipped = outcomes.len() - missing.len();
        for (index, outcome) in missing.into_iter().zip(measured) {
            outcomes[index] = outcome.transpose()?.flatten();
        }
        Ok(Swept { outcomes, skipped })
    }

    /// The points that have no run, each by its values and its seed, with why.
    pub fn failures(&self, outcomes: &[Outcome]) -> Vec<String> {
        let all = self.points.iter().zip(outcomes);
        all.filter_map(|(point, outcome)| Some(format!("{}: {}", self.name_of(point), outcome.failed()?))).collect()
    }

    /// A point by its values and its seed, as an error names it.
    fn name_of(&self, point: &Point) -> String {
        let values = self.grid.iter().zip(&point.values).map(|(key, value)| format!("{}={value}, ", key.key));
        format!("{}seed {}", values.collect::<String>(), point.seed)
    }

    /// What is in `dir` of each point already; nothing if all are to be measured `again`.
    fn there(&self, dir: &Path, again: bool) -> Vec<Option<Outcome>> {
        let there = |point| if again { None } else { Outcome::read(dir, point) };
        self.points.iter().map(there).collect()
    }

    /// Writes `results.csv`, `results.parquet` and `report.html` into `dir` once every
    /// point is there, or has no run; says what each file is. There is none if no point has a run.
    ///
    /// # Errors
    ///
    /// What the operating system refused. All files are there then, or none.
    pub fn write(&self, dir: &Path, outcomes: &[Outcome]) -> Result<Vec<(PathBuf, &'static str)>, OutputError> {
        if outcomes.iter().all(|outcome| outcome.failed().is_some()) {
            return Ok(Vec::new());
        }
        let [csv, parquet, report] = ["results.csv", "results.parquet", "report.html"].map(|name| dir.join(name));
        let staged = [
            self.stage_csv(outcomes, &csv)?,
            self.table(outcomes).stage_parquet(&parquet)?,
            self.report(outcomes).stage(&report)?,
        ];
        staged.into_iter().try_for_each(Staged::commit)?;
        Ok(vec![(csv, "a row for each point"), (parquet, "the same"), (report, "to look at in a browser")])
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use anabranch_scenario::file::AnyScenario;

    use super::*;

    const TEXT: &str = "[run]\nseconds = 8\n[overlay]\npeers = 6\nrelays = 2\ncontroller = \"aimd\"\n";

    fn sweep(grid: &[&str], seeds: &str) -> Sweep {
        let grid: Vec<GridKey> = grid.iter().map(|key| key.parse().unwrap()).collect();
        let points = points(TEXT, "s.toml", &[], &grid, Some(&seeds.parse().unwrap())).unwrap();
        Sweep { name: "s.toml".to_owned(), text: TEXT.to_owned(), grid, points }
    }

    fn run(sweep: &Sweep, dir: &Path, threads: usize) -> Swept {
        sweep.run(dir, Options { threads: Some(threads), again: false }, &Progress::default()).unwrap()
    }

    fn all(swept: Swept) -> Vec<Outcome> {
        swept.outcomes.into_iter().map(Option::unwrap).collect()
    }

    #[test]
    fn files_are_the_same_on_any_number_of_threads_and_after_any_interruption() {
        let dir = tempfile::tempdir().unwrap();
        let sweep = sweep(&["overlay.relays=1,2", "overlay.controller=aimd,q-learning"], "3");
        let dirs = ["one", "three", "resumed"].map(|name| dir.path().join(name));
        for (dir, threads) in dirs.iter().zip([1, 3, 2]) {
            if dir.ends_with("resumed") {
                let part = Sweep { points: sweep.points[4..7].to_vec(), ..sweep.clone() };
                assert_eq!(run(&part, dir, 1).skipped, 0);
            }
            let swept = run(&sweep, dir, threads);
            assert_eq!(swept.skipped, if dir.ends_with("resumed") { 3 } else { 0 });
            assert_eq!(sweep.write(dir, &all(swept)).unwrap().len(), 3);
        }
        for name in ["results.csv", "results.parquet", "report.html"] {
            let read = |dir: &PathBuf| fs::read(dir.join(name)).unwrap();
            assert!(read(&dirs[0]) == read(&dirs[1]) && read(&dirs[0]) == read(&dirs[2]), "{name} differs");
        }
        assert_eq!(fs::read_dir(dirs[0].join("points")).unwrap().count(), 12);
    }

    #[test]
    fn what_is_interrupted_keeps_the_points_that_are_over() {
        let dir = tempfile::tempdir().unwrap();
        let sweep = sweep(&[], "4");
        let progress = Progress::default();
        progress.interrupted.store(true, Ordering::Relaxed);
        let swept = sweep.run(dir.path(), Options::default(), &progress).unwrap();
        assert_eq!(swept.outcomes.iter().flatten().count(), 0);
        assert_eq!(run(&sweep, dir.path(), 1).skipped, 0);
        assert_eq!(run(&sweep, dir.path(), 1).skipped, 4);
        let again = Options { threads: None, again: true };
        assert_eq!(sweep.run(dir.path(), again, &Progress::default()).unwrap().skipped, 0);
    }

    /// Of one combination no packet arrives before the run is over.
    #[test]
    fn a_point_without_a_run_keeps_no_other_from_the_table_and_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let text = "[run]\nseconds = 12\n[dumbbell]\nrate = \"2 Mbit/s\"\ndelay_ms = 5\nqueue = { ms = 50 }\n\
                    [[flow]]\ncontroller = \"reno\"\n";
        let grid: Vec<GridKey> = vec!["dumbbell.delay_ms=20000,5".parse().unwrap()];
        let points = points(text, "f.toml", &[], &grid, Some(&"2".parse().unwrap())).unwrap();
        let sweep = Sweep { name: "f.toml".to_owned(), text: text.to_owned(), grid, points };
        let dirs = ["one", "two"].map(|name| dir.path().join(name));
        for (dir, threads) in dirs.iter().zip([1, 2]) {
            let outcomes = all(run(&sweep, dir, threads));
            let failures = sweep.failures(&outcomes);
            assert_eq!(failures.len(), 2);
            assert!(
                failures[0].starts_with("dumbbell.delay_ms=20000, seed 1: in 12 s no flow has delivered anything"),
                "{failures:?}"
            );
            let seeds: Vec<usize> = sweep.combinations(&outcomes).iter().map(Combination::seeds).collect();
            assert_eq!(seeds, [0, 2]);
            assert_eq!(sweep.to_json(&outcomes)["points"][1]["metrics"], serde_json::json!({}));
            sweep.write(dir, &outcomes).unwrap();
            assert_eq!(run(&sweep, dir, threads).skipped, 2, "what failed is tried again");
        }
        for name in ["results.csv", "results.parquet", "report.html"] {
            let read = |dir: &PathBuf| fs::read(dir.join(name)).unwrap();
            assert!(read(&dirs[0]) == read(&dirs[1]), "{name} differs");
        }
        let csv = fs::read_to_string(dirs[0].join("results.csv")).unwrap();
        let lines: Vec<&str> = csv.lines().collect();
        assert!(lines[0].ends_with(",failed") && lines[1].starts_with("20000,1,,,,"), "{csv}");
        assert!(lines[1].contains("no flow has delivered") && lines[3].starts_with("5,1,reno,"), "{csv}");
        let page = fs::read_to_string(dirs[0].join("report.html")).unwrap();
        assert!(page.contains("2 of 4 points have no run"));
    }

    #[test]
    fn a_sweep_of_flows_has_their_numbers_and_draws_starts_anew_for_each_seed() {
        let dir = tempfile::tempdir().unwrap();
        let text = "[run]\nseconds = 5\n[dumbbell]\nrate = \"2 Mbit/s\"\ndelay_ms = 5\nqueue = { ms = 50 }\n\
                    [[flow]]\ncontroller = \"reno\"\nstart_within_s = 1\n";
        let grid: Vec<GridKey> = vec!["flow.all.controller=reno,min-delay".parse().unwrap()];
        let points = points(text, "f.toml", &[], &grid, Some(&"2".parse().unwrap())).unwrap();
        let starts: Vec<_> = points
            .iter()
            .map(|point| match &point.scenario {
                AnyScenario::Flows(scenario) => scenario.flows[0].start,
                AnyScenario::Overlay(_) | AnyScenario::Stream(_) | AnyScenario::Onion(_) => panic!("flows"),
            })
            .collect();
        assert_ne!(starts[0], starts[1]);
        assert_eq!(starts[..2], starts[2..], "equal seeds");
        let sweep = Sweep { name: "f.toml".to_owned(), text: text.to_owned(), grid, points };
        let outcomes = all(run(&sweep, dir.path(), 2));
        let goodput = |index: usize| outcomes[index].metric("goodput_mbit_s").unwrap();
        assert!(goodput(0) > 1.5 && goodput(2) < 1.0, "{} and {}", goodput(0), goodput(2));
        assert_eq!((outcomes[0].controller.as_str(), outcomes[3].controller.as_str()), ("reno", "min-delay"));
        sweep.write(dir.path(), &outcomes).unwrap();
        let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
        assert!(page.contains("goodput of all flows") && !page.contains("late ACKs"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_result_that_cannot_be_written_ends_the_sweep() {
        let dir = tempfile::tempdir().unwrap();
        let sweep = sweep(&[], "2");
        assert!(matches!(
            sweep.run(Path::new("/proc/none"), Options::default(), &Progress::default()),
            Err(SweepError::Output(_))
        ));
        fs::write(dir.path().join("points"), "in the way").unwrap();
        let error = sweep.run(dir.path(), Options::default(), &Progress::default()).unwrap_err();
        assert!(error.to_string().contains("points"), "{error}");
    }
}

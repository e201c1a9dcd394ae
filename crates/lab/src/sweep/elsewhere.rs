//! A sweep whose points other processes measure, on this machine or others: they are sent a point's text and
//! answer by the outcome's, and whoever began the sweep alone writes. Files are those of a sweep on one thread.

use std::path::{Path, PathBuf};

use super::{Outcome, Point, PointJob, StrangeOutcome, Sweep, points_of};
use crate::parallel::{Progress, run_one};
use anabranch_report::output::OutputError;
use anabranch_scenario::file::{ScenarioError, parse_any};

/// What stands of a sweep.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    sweep: Sweep,
    /// Where outcomes are kept.
    dir: PathBuf,
    outcomes: Vec<Option<Outcome>>,
    /// How many were there from before.
    skipped: usize,
}

/// Why an outcome is not kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It can't be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// It is none of this point.
    #[error(transparent)]
    Strange(#[from] StrangeOutcome),
}

impl Elsewhere {
    /// Takes what is in `dir` already, unless all is to be measured `again`.
    ///
    /// # Errors
    ///
    /// When nothing can be written there.
    pub fn begin(sweep: Sweep, dir: &Path, again: bool) -> Result<Elsewhere, OutputError> {
        let dir = points_of(dir)?;
        let outcomes = sweep.there(&dir, again);
        let skipped = outcomes.iter().flatten().count();
        Ok(Elsewhere { sweep, dir, outcomes, skipped })
    }

    /// The sweep.
    pub fn sweep(&self) -> &Sweep {
        &self.sweep
    }

    /// How many points were there from before.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// How many points are there.
    pub fn finished(&self) -> usize {
        self.outcomes.iter().flatten().filter(|outcome| outcome.failed().is_none()).count()
    }

    /// The places of the points that are not there and were not tried, and what is to be measured.
    pub fn missing(&self) -> impl Iterator<Item = (usize, &str)> {
        let points = self.sweep.points.iter().zip(&self.outcomes).enumerate();
        points.filter(|(_, (_, outcome))| outcome.is_none()).map(|(place, (point, _))| (place, point.text.as_str()))
    }

    /// Keeps what was measured of the point at `place`, as [`measure`] says it. What is kept already stays. Of a point that
    /// has no run, this sweep alone knows so: the next one tries it again.
    ///
    /// # Errors
    ///
    /// When it is not this point's, was measured by another version, or can't be written.
    ///
    /// # Panics
    ///
    /// When there is no such point.
    pub fn keep(&mut self, place: usize, text: &str) -> Result<(), KeepError> {
        let point = &self.sweep.points[place];
        let outcome = Outcome::of_text(text, point)?;
        if self.outcomes[place].is_none() {
            outcome.write(&self.dir, point)?;
            self.outcomes[place] = Some(outcome);
        }
        Ok(())
    }

    /// All outcomes, once each point has one.
    pub fn outcomes(&self) -> Option<Vec<Outcome>> {
        self.outcomes.iter().cloned().collect()
    }
}

/// Why a point was not measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// Its text is no scenario here.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// It was interrupted.
    #[error("the run was interrupted")]
    Interrupted,
}

/// Measures the point of which `text` is the whole scenario; its outcome as [`Elsewhere::keep`] takes it, also if it
/// has no run.
///
/// # Errors
///
/// When `text` is no scenario, or `progress` interrupts it.
pub fn measure(text: &str, progress: &Progress) -> Result<String, MeasureError> {
    let scenario = parse_any(text, "the point", &[])?;
    let point = Point { values: Vec::new(), seed: scenario.seed(), scenario, text: text.to_owned() };
    let Ok(outcome) = run_one(&PointJob(&point), progress);
    outcome.map(|outcome| outcome.to_text()).ok_or(MeasureError::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::sweep::{GridKey, Options, points};

    const OVERLAY: &str = "[run]\nseconds = 6\n[overlay]\npeers = 6\nrelays = 2\ncontroller = \"aimd\"\n";
    const FLOWS: &str = "[run]\nseconds = 3\n[dumbbell]\nrate = \"2 Mbit/s\"\ndelay_ms = 5\n\
                         [[flow]]\ncontroller = \"reno\"\nstart_within_s = 1\n";

    const LONG_FLOWS: &str = "[run]\nseconds = 12\n[dumbbell]\nrate = \"2 Mbit/s\"\ndelay_ms = 5\n\
                              [[flow]]\ncontroller = \"reno\"\n";

    fn sweep(text: &str, grid: &str) -> Sweep {
        let grid: Vec<GridKey> = vec![grid.parse().unwrap()];
        let points = points(text, "s.toml", &[], &grid, Some(&"2".parse().unwrap())).unwrap();
        Sweep { name: "s.toml".to_owned(), text: text.to_owned(), grid, points }
    }

    #[test]
    fn files_are_those_of_a_sweep_on_one_thread() {
        for (text, grid, failed) in [
            (OVERLAY, "overlay.relays=1,2", 0),
            (FLOWS, "flow.all.controller=reno,cubic", 0),
            (LONG_FLOWS, "dumbbell.delay_ms=5,20000", 2),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let [here, elsewhere] = ["here", "elsewhere"].map(|name| dir.path().join(name));
            let sweep = sweep(text, grid);
            let options = Options { threads: Some(1), again: false };
            let swept = sweep.run(&here, options, &Progress::default()).unwrap();
            let outcomes: Vec<Outcome> = swept.outcomes.into_iter().map(Option::unwrap).collect();
            sweep.write(&here, &outcomes).unwrap();

            let mut part = Elsewhere::begin(sweep.clone(), &elsewhere, false).unwrap();
            let missing: Vec<(usize, String)> = part.missing().map(|(place, text)| (place, text.to_owned())).collect();
            assert_eq!(missing.len(), 4);
            // The last comes first, and one comes twice.
            for (place, text) in missing.iter().rev().chain(&missing[..1]) {
                assert!(part.outcomes().is_none() || part.finished() == 4 - failed);
                part.keep(*place, &measure(text, &Progress::default()).unwrap()).unwrap();
            }
            assert_eq!((part.finished(), part.skipped(), part.missing().count()), (4 - failed, 0, 0));
            sweep.write(&elsewhere, &part.outcomes().unwrap()).unwrap();
            let files = |dir: &Path| {
                let listed = |dir: &Path| {
                    let mut found: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
                    found.sort();
                    found
                };
                let all = listed(dir).into_iter().chain(listed(&dir.join("points"))).filter(|path| path.is_file());
                all.map(|path| (path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap()))
                    .collect::<Vec<_>>()
            };
            assert!(files(&here) == files(&elsewhere), "{grid}");
            // Each goes on from the other.
            assert_eq!(Elsewhere::begin(sweep.clone(), &here, false).unwrap().skipped(), 4 - failed);
            assert_eq!(sweep.run(&elsewhere, options, &Progress::default()).unwrap().skipped, 4 - failed);
            assert_eq!(Elsewhere::begin(sweep, &here, true).unwrap().skipped(), 0, "again");
        }
    }

    #[test]
    fn what_is_not_the_points_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut part = Elsewhere::begin(sweep(OVERLAY, "overlay.relays=1,2"), dir.path(), false).unwrap();
        let texts: Vec<String> = part.missing().map(|(_, text)| text.to_owned()).collect();
        let outcome = measure(&texts[1], &Progress::default()).unwrap();
        assert!(matches!(part.keep(0, &outcome), Err(KeepError::Strange(StrangeOutcome::Scenario))));
        assert_eq!((part.finished(), part.missing().count()), (0, 4));
        assert_eq!(fs::read_dir(dir.path().join("points")).unwrap().count(), 0);
        let stopped = Progress::default();
        stopped.interrupted.store(true, Ordering::Relaxed);
        assert!(matches!(measure(&texts[0], &stopped), Err(MeasureError::Interrupted)));
        assert!(matches!(measure("[run]", &stopped), Err(MeasureError::Scenario(_))));
    }
}

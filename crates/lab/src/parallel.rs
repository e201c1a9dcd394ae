//! Many runs at once, on all cores.
//!
//! A run is one thread's work and shares nothing with another, so results do not
//! depend on how many threads there are; they come back in the order of the jobs.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anabranch_control::registry::ParameterError;
use anabranch_control::time::Duration;
use rayon::prelude::*;

use crate::flows::{self, FlowRunError, FlowScenario, FlowsMeasured};
use crate::overlay::{self, Measured};
use crate::scenario::Scenario;

/// Simulated seconds done and to do, for whoever shows progress.
#[derive(Debug, Default)]
pub struct Progress {
    /// Simulated seconds done.
    pub done: AtomicU64,
    /// Simulated seconds that were asked for so far.
    pub total: AtomicU64,
    /// Set to stop every run at its next simulated second.
    pub interrupted: AtomicBool,
}

impl Progress {
    /// Whether runs shall stop.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// A scenario that can be run.
pub trait Job: Sync {
    /// What it measures.
    type Outcome: Send;
    /// Why it may not run.
    type Error: Send;

    /// Whole seconds that it simulates.
    fn seconds(&self) -> u64;

    /// Runs it on this thread; when it is stopped, what it measured until then.
    ///
    /// # Errors
    ///
    /// What a controller says of its parameters, or what is wrong with it.
    fn run(&self, progress: &Progress) -> Result<Self::Outcome, Self::Error>;

    /// Whether `outcome` is that of the whole run.
    fn is_whole(&self, outcome: &Self::Outcome) -> bool;
}

impl Job for Scenario {
    type Outcome = Measured;
    type Error = ParameterError;

    fn seconds(&self) -> u64 {
        self.seconds
    }

    fn run(&self, progress: &Progress) -> Result<Measured, ParameterError> {
        overlay::run(self, |_| {
            progress.done.fetch_add(1, Ordering::Relaxed);
            if progress.is_interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    fn is_whole(&self, outcome: &Measured) -> bool {
        outcome.seconds.len() as u64 == self.seconds
    }
}

impl Job for FlowScenario {
    type Outcome = FlowsMeasured;
    type Error = FlowRunError;

    fn seconds(&self) -> u64 {
        self.length.as_nanos() / Duration::SECOND.as_nanos()
    }

    fn run(&self, progress: &Progress) -> Result<FlowsMeasured, FlowRunError> {
        flows::run(self, |_| {
            progress.done.fetch_add(1, Ordering::Relaxed);
            !progress.is_interrupted()
        })
    }

    fn is_whole(&self, outcome: &FlowsMeasured) -> bool {
        outcome.length == self.length
    }
}

/// Runs all `jobs` on `threads` threads, as many as there are cores if none is given.
/// Each one's outcome goes to `finish` as soon as it is there, on any thread; what
/// `finish` makes of them is returned in the order of the jobs.
///
/// A job that was stopped before its end is none, and is not finished.
///
/// # Errors
///
/// The first that a job's run gives.
///
/// # Panics
///
/// When the system has no thread left.
pub fn run_all<J: Job, T: Send>(
    jobs: &[J],
    threads: Option<usize>,
    progress: &Progress,
    finish: impl Fn(usize, J::Outcome) -> T + Sync,
) -> Result<Vec<Option<T>>, J::Error> {
    progress.total.fetch_add(jobs.iter().map(Job::seconds).sum(), Ordering::Relaxed);
    let one = |(index, job): (usize, &J)| {
        if progress.is_interrupted() {
            return Ok(None);
        }
        let outcome = job.run(progress)?;
        let whole = job.is_whole(&outcome);
        Ok(whole.then(|| finish(index, outcome)))
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
    let pool = pool.expect("a process may start as many threads as there are cores");
    // One job a task: they are long, and of different length.
    pool.install(|| jobs.par_iter().enumerate().with_max_len(1).map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs() -> Vec<Scenario> {
        let job = |seed| {
            let mut scenario = Scenario::standard();
            (scenario.seconds, scenario.seed) = (5 + seed, seed);
            scenario
        };
        (0..6).map(job).collect()
    }

    #[test]
    fn results_come_in_the_order_of_the_jobs_on_any_number_of_threads() {
        let progress = Progress::default();
        let on =
            |threads| run_all(&jobs(), Some(threads), &progress, |index, measured| (index, measured.seconds)).unwrap();
        let (one, three) = (on(1), on(3));
        assert_eq!(one, three);
        assert_eq!((progress.done.into_inner(), progress.total.into_inner()), (90, 90));
        for (index, job) in jobs().iter().enumerate() {
            let (place, rows) = one[index].as_ref().unwrap();
            assert_eq!((*place, rows.len() as u64), (index, job.seconds));
        }
        assert_ne!(one[0].as_ref().unwrap().1[..5], one[1].as_ref().unwrap().1[..5], "seeds differ");
    }

    #[test]
    fn what_is_stopped_is_none_and_what_was_over_stays() {
        let progress = Progress::default();
        let done = run_all(&jobs(), Some(1), &progress, |index, _| {
            progress.interrupted.store(index == 1, Ordering::Relaxed);
        });
        assert_eq!(done.unwrap().iter().flatten().count(), 2);
        assert_eq!(progress.done.into_inner(), 5 + 6, "no second of the others was simulated");
    }
}

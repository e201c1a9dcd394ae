//! Many runs at once, on all cores.
//!
//! A run is one thread's work and shares nothing with another, so results do not
//! depend on how many threads there are; they come back in the order of the jobs.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_control::path::registry::ParameterError;
use rayon::prelude::*;

use crate::overlay::{self, Measured};
use crate::scenario::Scenario;

/// How runs are watched and stopped.
#[derive(Clone, Copy)]
pub struct Control<'c> {
    /// Threads; as many as there are cores if none is given.
    pub threads: Option<usize>,
    /// Once this is true, every run stops at its next simulated second.
    pub stop: &'c AtomicBool,
    /// Called for every simulated second of any run.
    pub on_second: &'c (dyn Fn() + Sync),
}

impl std::fmt::Debug for Control<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("threads", &self.threads).field("stop", self.stop).finish_non_exhaustive()
    }
}

impl Control<'_> {
    /// All cores, not to be stopped, not watched.
    pub fn unwatched() -> Control<'static> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Control { threads: None, stop: &NEVER, on_second: &|| {} }
    }

    /// Runs one scenario on this thread; when it is stopped, what it measured until then.
    ///
    /// # Errors
    ///
    /// What the controller says of its parameters.
    pub fn run(&self, scenario: &Scenario) -> Result<Measured, ParameterError> {
        overlay::run(scenario, |_| {
            (self.on_second)();
            if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }
}

/// Runs all `jobs` and gives each one's outcome to `finish` as soon as it is there, on
/// any thread; returns what `finish` makes of them, in the order of the jobs.
///
/// A job that was stopped before its last second is none, and is not finished.
///
/// # Errors
///
/// What a controller says of its parameters, if it refuses them.
///
/// # Panics
///
/// When the system has no thread left.
pub fn run_all<T: Send>(
    jobs: &[Scenario],
    control: &Control<'_>,
    finish: impl Fn(usize, Measured) -> T + Sync,
) -> Result<Vec<Option<T>>, ParameterError> {
    let one = |(index, scenario): (usize, &Scenario)| {
        if control.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let measured = control.run(scenario)?;
        let whole = measured.seconds.len() as u64 == scenario.seconds;
        Ok(whole.then(|| finish(index, measured)))
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(control.threads.unwrap_or(0)).build();
    let pool = pool.expect("a process may start as many threads as there are cores");
    // One job a task: they are long, and of different length.
    pool.install(|| jobs.par_iter().enumerate().with_max_len(1).map(one).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

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
        let seconds = AtomicU64::new(0);
        let count = || {
            seconds.fetch_add(1, Ordering::Relaxed);
        };
        let on = |threads| {
            let control = Control { threads: Some(threads), on_second: &count, ..Control::unwatched() };
            run_all(&jobs(), &control, |index, measured| (index, measured.seconds)).unwrap()
        };
        let (one, three) = (on(1), on(3));
        assert_eq!(one, three);
        assert_eq!(seconds.into_inner(), 2 * (5 + 6 + 7 + 8 + 9 + 10));
        for (index, job) in jobs().iter().enumerate() {
            let (place, rows) = one[index].as_ref().unwrap();
            assert_eq!((*place, rows.len() as u64), (index, job.seconds));
        }
        assert_ne!(one[0].as_ref().unwrap().1[..5], one[1].as_ref().unwrap().1[..5], "seeds differ");
    }

    #[test]
    fn what_is_stopped_is_none_and_what_was_over_stays() {
        let (stop, seconds) = (AtomicBool::new(false), AtomicU64::new(0));
        let on_second = || {
            // In the third job, 5 and 6 seconds after the first two.
            if seconds.fetch_add(1, Ordering::Relaxed) == 13 {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let control = Control { threads: Some(1), stop: &stop, on_second: &on_second };
        let done = run_all(&jobs(), &control, |index, _| index).unwrap();
        assert_eq!(done.iter().flatten().count(), 2);
    }
}

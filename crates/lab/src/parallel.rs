//! Many runs at once, on all cores.
//!
//! A run shares nothing with another, so results do not depend on how many threads there are; they come back in the
//! order of the jobs. Of many runs each is one thread's work; one that is alone may be that of several.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anabranch_control::time::Duration;

use crate::flows::{self, FlowRunError, FlowScenario, FlowsMeasured};
use crate::monitor::Monitor;
use crate::onion::{self, OnionMeasured, OnionRunError};
use crate::overlay::{self, Measured, OverlayRunError, Sharding};
use crate::stream::{self, StreamMeasured, StreamRunError};
use crate::workers::in_order;
use anabranch_scenario::onion_run::OnionRunScenario;
use anabranch_scenario::overlay::Scenario;
use anabranch_scenario::stream::StreamScenario;

/// What can be run: a scenario of any kind.
pub trait Job: Sync {
    /// What a run measures.
    type Measured: Send;
    /// Why there is no run.
    type Error: Send;

    /// The whole simulated seconds of a run.
    fn seconds(&self) -> u64;

    /// Runs it until its end, or until `monitor` interrupts it.
    ///
    /// # Errors
    ///
    /// What a controller does wrong, or says of its parameters; that nothing was delivered.
    fn run(&self, monitor: &dyn Monitor) -> Result<Self::Measured, Self::Error>;

    /// The same on up to `threads` threads, where one run can use several: what it measures is the same.
    ///
    /// # Errors
    ///
    /// As [`Job::run`].
    fn run_on(&self, threads: usize, monitor: &dyn Monitor) -> Result<Self::Measured, Self::Error> {
        let _ = threads;
        self.run(monitor)
    }

    /// Whether `measured` is the whole run.
    fn is_whole(&self, measured: &Self::Measured) -> bool;
}

impl Job for Scenario {
    type Measured = Measured;
    type Error = OverlayRunError;

    fn seconds(&self) -> u64 {
        self.seconds
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<Measured, OverlayRunError> {
        overlay::run(self, monitor)
    }

    fn run_on(&self, threads: usize, monitor: &dyn Monitor) -> Result<Measured, OverlayRunError> {
        overlay::run_sharded(self, Sharding::of_run_alone(self, threads), monitor)
    }

    fn is_whole(&self, measured: &Measured) -> bool {
        measured.seconds.len() as u64 == self.seconds
    }
}

impl Job for FlowScenario {
    type Measured = FlowsMeasured;
    type Error = FlowRunError;

    fn seconds(&self) -> u64 {
        self.length.as_nanos() / Duration::SECOND.as_nanos()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<FlowsMeasured, FlowRunError> {
        flows::run(self, monitor)
    }

    fn is_whole(&self, measured: &FlowsMeasured) -> bool {
        measured.length == self.length
    }
}

impl Job for StreamScenario {
    type Measured = StreamMeasured;
    type Error = StreamRunError;

    fn seconds(&self) -> u64 {
        self.duration.as_nanos() / Duration::SECOND.as_nanos()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<StreamMeasured, StreamRunError> {
        stream::run(self, monitor)
    }

    fn is_whole(&self, measured: &StreamMeasured) -> bool {
        measured.metrics.simulated >= self.duration
    }
}

impl Job for OnionRunScenario {
    type Measured = OnionMeasured;
    type Error = OnionRunError;

    fn seconds(&self) -> u64 {
        self.duration.as_nanos() / Duration::SECOND.as_nanos()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<OnionMeasured, OnionRunError> {
        onion::run(self, monitor)
    }

    fn is_whole(&self, measured: &OnionMeasured) -> bool {
        measured.metrics.simulated >= self.duration
    }
}

/// Simulated seconds done and to do, for whoever shows progress.
#[derive(Debug, Default)]
pub struct Progress {
    /// Simulated seconds done.
    pub done: AtomicU64,
    /// Simulated seconds that were asked for so far.
    pub total: AtomicU64,
    /// Set to stop every run.
    pub interrupted: AtomicBool,
}

impl Progress {
    /// Whether runs shall stop.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl Monitor for Progress {
    fn on_second(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn is_interrupted(&self) -> bool {
        Progress::is_interrupted(self)
    }
}

/// Runs one scenario that has the machine for itself, on `threads` threads, as many as there are cores if none is
/// given; when it is stopped, what it measured until then.
///
/// # Errors
///
/// As [`Job::run`].
pub fn run_alone<J: Job>(job: &J, threads: Option<NonZeroUsize>, progress: &Progress) -> Result<J::Measured, J::Error> {
    let threads = threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    job.run_on(threads, progress)
}

/// Runs one scenario on this thread; when it is stopped, what it measured until then.
///
/// # Errors
///
/// As [`Job::run`].
pub fn run_one<J: Job>(job: &J, progress: &Progress) -> Result<J::Measured, J::Error> {
    job.run(progress)
}

/// Runs all `jobs` on `threads` threads, as many as there are cores if none is given.
/// Each one's outcome goes to `finish` as soon as it is there, on any thread; what
/// `finish` makes of them is returned in the order of the jobs.
///
/// A job that was stopped before its last second is none, and is not finished.
///
/// # Errors
///
/// The first job's that has one, as [`Job::run`].
pub fn run_all<J: Job, T: Send>(
    jobs: &[J],
    threads: Option<usize>,
    progress: &Progress,
    finish: impl Fn(usize, J::Measured) -> T + Sync,
) -> Result<Vec<Option<T>>, J::Error> {
    progress.total.fetch_add(jobs.iter().map(Job::seconds).sum(), Ordering::Relaxed);
    let one = |job: &J, index| {
        if progress.is_interrupted() {
            return Ok(None);
        }
        let measured = run_one(job, progress)?;
        Ok(job.is_whole(&measured).then(|| finish(index, measured)))
    };
    let (mut ended, mut failed) = (Vec::with_capacity(jobs.len()), None);
    let work = |number: u64| jobs.get(number as usize).map(|job| one(job, number as usize));
    in_order(threads, work, |made| match made {
        Ok(made) => {
            ended.push(made);
            ControlFlow::Continue(())
        }
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    });
    failed.map_or(Ok(ended), Err)
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
    fn flows_run_as_overlays_do() {
        let text =
            "[run]\nseconds = 3.5\n[dumbbell]\nrate = \"1 Mbit/s\"\ndelay_ms = 5\n[[flow]]\ncontroller = \"reno\"";
        let jobs = [1, 2]
            .map(|seed| FlowScenario { seed, ..anabranch_scenario::file::parse_flows(text, "f.toml", &[]).unwrap() });
        let progress = Progress::default();
        let lengths = run_all(&jobs, Some(2), &progress, |index, measured| (index, measured.length)).unwrap();
        assert_eq!(lengths, [Some((0, jobs[0].length)), Some((1, jobs[1].length))]);
        assert_eq!((progress.done.into_inner(), progress.total.into_inner()), (6, 6));
        let stopped = Progress::default();
        stopped.interrupted.store(true, Ordering::Relaxed);
        assert_eq!(run_one(&jobs[0], &stopped).unwrap().length, Duration::ZERO);
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

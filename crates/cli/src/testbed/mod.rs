//! A scenario on real packets: its flows' machines and the kernel's TCP on sockets in two
//! network namespaces, its links in the emulator between them.
//!
//! All senders are in one namespace and all receivers in the other, each flow and each
//! receiver at an address of its own, by which the emulator knows the way. What is measured
//! is what a simulation measures, in the same types; delays are taken where packets enter
//! and leave the emulator.

mod failure;
mod kernel;
mod measure;
mod plan;
mod receivers;
mod senders;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};

use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::scenario::Stack;
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_net::clock::{Clock, std_duration};
use anabranch_net::emulator::Report;

pub use failure::TestbedFailure;
use plan::Plan;

/// What a run on real packets gave.
#[derive(Debug)]
pub struct Emulated {
    /// What its flows and links did.
    pub measured: FlowsMeasured,
    /// What the emulator did, and whether it could.
    pub emulator: Report,
}

/// What all threads of a run share.
#[derive(Debug)]
struct Run<'a> {
    scenario: &'a FlowScenario,
    plan: &'a Plan,
    clock: Clock,
    stop: &'a AtomicBool,
}

impl Run<'_> {
    /// Whether the run goes on at `now`.
    fn goes_on(&self, now: Time) -> bool {
        now < self.end() && !self.stop.load(Ordering::Relaxed)
    }

    fn end(&self) -> Time {
        Time::ZERO + self.scenario.length
    }

    /// How long a thread that has nothing to do before `wake` may wait at `now`: not beyond
    /// the run's end, and no longer than it may take to see that the run is over.
    fn until(&self, now: Time, wake: Time) -> Time {
        wake.min(self.end()).min(now + Duration::from_nanos(LONGEST_WAIT.as_nanos() as u64))
    }

    /// The flows that are the kernel's, or those that are ours.
    fn flows(&self, kernel: bool) -> Vec<usize> {
        let is_kernel = |flow: &usize| matches!(self.scenario.flows[*flow].stack, Stack::Kernel(_)) == kernel;
        (0..self.scenario.flows.len()).filter(is_kernel).collect()
    }
}

/// When rows of the series are due, and goodput begins to count: the same for every thread.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    every: Option<Duration>,
    row: Time,
    goodput_from: Time,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tick {
    Row,
    Goodput,
}

impl Ticks {
    fn new(scenario: &FlowScenario) -> Ticks {
        let every = scenario.sample_every;
        let row = every.map_or(Time::MAX, |every| Time::ZERO + every);
        Ticks { every, row, goodput_from: scenario.goodput_from }
    }

    /// When something is due.
    fn next(&self) -> Time {
        self.row.min(self.goodput_from)
    }

    /// What is due at `now`, in order; none if nothing is any more.
    fn pop(&mut self, now: Time) -> Option<Tick> {
        if self.next() > now {
            return None;
        }
        if self.goodput_from <= self.row {
            self.goodput_from = Time::MAX;
            return Some(Tick::Goodput);
        }
        self.row += self.every.expect("rows are due only where there are any");
        Some(Tick::Row)
    }
}

/// Runs `scenario` on real packets, in real time. `goes_on` is asked each second, and ends
/// the run by answering false.
pub fn run(scenario: &FlowScenario, mut goes_on: impl FnMut() -> bool) -> Result<Emulated, TestbedFailure> {
    plan::check(scenario)?;
    let (plan, ready) = plan::prepare(scenario)?;
    let stop = AtomicBool::new(false);
    let clock = Clock::start();
    let emulator = ready.emulator.start(clock)?;
    let run = Run { scenario, plan: &plan, clock, stop: &stop };
    let run = &run;
    let (ours, theirs, arrivals, kernel_arrivals) = std::thread::scope(|scope| {
        let sockets = ready.sockets;
        let receiving = spawn(scope, run, move || receivers::run(run, sockets.receivers));
        let kernel_receiving = spawn(scope, run, move || kernel::receive(run, sockets.listeners));
        let sending = spawn(scope, run, move || senders::run(run, sockets.senders));
        let left = &ready.left;
        let kernel: Vec<_> = run
            .flows(true)
            .into_iter()
            .map(|flow| spawn(scope, run, move || left.run(|| kernel::send(run, flow))?))
            .collect();
        let mut second = Time::ZERO + Duration::SECOND;
        while run.goes_on(clock.now()) && !emulator.has_ended() {
            std::thread::sleep(std_duration(second.min(run.end()).since(clock.now())).min(LONGEST_WAIT));
            if clock.now() >= second {
                second += Duration::SECOND;
                if !goes_on() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
        let end = clock.now().min(run.end());
        stop.store(true, Ordering::Relaxed);
        let kernel: Result<Vec<_>, _> = kernel.into_iter().map(join).collect();
        Ok::<_, TestbedFailure>(((join(sending)?, end), kernel?, join(receiving)?, join(kernel_receiving)?))
    })?;
    let emulator = emulator.stop()?;
    let (ours, end) = ours;
    let seen = measure::Seen { ours, theirs, arrivals, kernel_arrivals, watched: plan.watched.take(), end };
    Ok(Emulated { measured: measure::assemble(scenario, &plan, seen, &emulator), emulator })
}

/// The longest that anything waits before it looks whether the run is over.
const LONGEST_WAIT: std::time::Duration = std::time::Duration::from_millis(20);

type Joined<'scope, T> = ScopedJoinHandle<'scope, Result<T, TestbedFailure>>;

/// Starts a thread whose failure ends the run.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: &'scope Run<'_>,
    work: impl FnOnce() -> Result<T, TestbedFailure> + Send + 'scope,
) -> Joined<'scope, T> {
    scope.spawn(move || {
        let done = work();
        if done.is_err() {
            run.stop.store(true, Ordering::Relaxed);
        }
        done
    })
}

fn join<T>(thread: Joined<'_, T>) -> Result<T, TestbedFailure> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

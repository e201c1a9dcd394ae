//! A scenario on real packets: its flows' machines, QUIC and the kernel's TCP on sockets in two
//! network namespaces, its links in the emulator between them.
//!
//! All senders are in one namespace and all receivers in the other, each flow and each
//! receiver at an address of its own, by which the emulator knows the way. What is measured
//! is what a simulation measures, in the same types; delays are taken where packets enter
//! and leave the emulator.

pub mod bottleneck;
pub mod bulk;
pub mod emulator;
mod failure;
mod kernel;
mod kernel_info;
pub mod kernel_tcp;
mod measure;
pub mod namespace;
mod netlink;
mod pending;
mod plan;
pub mod probe;
mod quic;
mod realtime;
mod receivers;
mod senders;
mod steering;
pub mod tun;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};

use crate::emulator::Report;
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_net::clock::{Clock, std_duration};
use anabranch_scenario::flows::Stack;

pub use failure::TestbedFailure;
use pending::Pending;
use plan::Plan;
use steering::Steered;
use watch::Sights;

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
    /// Its coordinator.
    steered: Option<Steered<'a>>,
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

    /// The flows that are the kernel's.
    fn of_kernel(&self) -> Vec<usize> {
        let is_kernel = |flow: &usize| matches!(self.scenario.flows[*flow].stack, Stack::Kernel(_));
        (0..self.scenario.flows.len()).filter(is_kernel).collect()
    }
}

/// When rows of the series are due, and goodput begins to count: the same for every thread.
/// Senders make their coordinator's decisions beside.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    every: Option<Duration>,
    row: Time,
    goodput_from: Time,
    steer_every: Duration,
    steering: Time,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tick {
    Row,
    Goodput,
    Steering,
}

impl Ticks {
    fn new(scenario: &FlowScenario) -> Ticks {
        let every = scenario.sample_every;
        let row = every.map_or(Time::MAX, |every| Time::ZERO + every);
        let (steer_every, steering) = (Duration::ZERO, Time::MAX);
        Ticks { every, row, goodput_from: scenario.goodput_from, steer_every, steering }
    }

    fn steered(scenario: &FlowScenario) -> Ticks {
        match &scenario.steering {
            Some(steering) => Ticks { steer_every: steering.every, steering: Time::ZERO, ..Ticks::new(scenario) },
            None => Ticks::new(scenario),
        }
    }

    /// When something is due.
    fn next(&self) -> Time {
        self.row.min(self.goodput_from).min(self.steering)
    }

    /// What is due at `now`, in order; none if nothing is any more.
    fn pop(&mut self, now: Time) -> Option<Tick> {
        let next = self.next();
        if next > now {
            return None;
        }
        if next == self.goodput_from {
            self.goodput_from = Time::MAX;
            return Some(Tick::Goodput);
        }
        if next == self.row {
            self.row += self.every.expect("rows are due only where there are any");
            return Some(Tick::Row);
        }
        // Decisions that were missed are not made up for.
        while self.steering <= now {
            self.steering += self.steer_every;
        }
        Some(Tick::Steering)
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
    let steered = Steered::new(scenario, plan.cross_bytes.clone());
    let run = Run { scenario, plan: &plan, clock, stop: &stop, steered };
    let run = &run;
    let mut seen = std::thread::scope(|scope| {
        let sockets = ready.sockets;
        let (identity, fingerprint) = (&ready.identity, ready.identity.fingerprint());
        let receiving = spawn(scope, run, move || receivers::run(run, sockets.receivers));
        let quic_receiving = spawn(scope, run, move || quic::receivers::receive(run, sockets.quic_receivers, identity));
        let kernel_receiving = spawn(scope, run, move || kernel::receive(run, sockets.listeners));
        let sending = spawn(scope, run, move || senders::run(run, sockets.senders));
        let quic_sending = spawn(scope, run, move || quic::senders::send(run, sockets.quic_senders, fingerprint));
        let left = &ready.left;
        let kernel: Vec<_> = run
            .of_kernel()
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
        Ok::<_, TestbedFailure>(measure::Seen {
            ours: join(sending)?,
            quic: join(quic_sending)?,
            theirs: kernel?,
            arrivals: join(receiving)?,
            quic_arrivals: join(quic_receiving)?,
            kernel_arrivals: join(kernel_receiving)?,
            watched: Sights::default(),
            end,
        })
    })?;
    let emulator = emulator.stop()?;
    seen.watched = plan.watched.take();
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

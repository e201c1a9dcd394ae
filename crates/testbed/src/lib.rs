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
mod learned;
mod lengths;
mod measure;
pub mod namespace;
mod netlink;
mod pending;
mod plan;
pub mod probe;
mod quic;
mod realtime;
mod receiving;
mod sending;
pub mod service;
mod steering;
pub mod stream;
mod ticks;
pub mod tun;
mod udp;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};

use crate::emulator::Report;
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::{FlowScenario, FlowsMeasured, delivered};
use anabranch_lab::monitor::Monitor;
use anabranch_net::clock::{Clock, std_duration};
use anabranch_scenario::flows::Stack;

pub use failure::TestbedFailure;
use kernel::KernelSender;
use pending::Pending;
use plan::Plan;
use quic::{QuicReceivers, QuicSenders};
use receiving::{Arrived, receive};
use sending::{Sent, send};
use service::Service;
use steering::Steered;
use udp::{UdpReceivers, UdpSenders};
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

    /// For `map_err`: why a flow has failed now.
    fn failed(&self, flow: usize, why: impl ToString) -> TestbedFailure {
        let (flow, at) = (self.scenario.flows[flow].name.clone(), self.clock.now());
        TestbedFailure::Flow { flow, at, why: why.to_string() }
    }

    /// The flows that are the kernel's.
    fn of_kernel(&self) -> Vec<usize> {
        let is_kernel = |flow: &usize| matches!(self.scenario.flows[*flow].stack, Stack::Kernel(_));
        (0..self.scenario.flows.len()).filter(is_kernel).collect()
    }
}

/// Whether `scenario` can run on real packets here.
///
/// # Errors
///
/// What it asks for that real packets cannot do, or what the system does not allow.
pub fn check(scenario: &FlowScenario) -> Result<(), TestbedFailure> {
    plan::check(scenario)?;
    emulator::testbed_available().map_err(TestbedFailure::Scenario)
}

/// Runs `scenario` on real packets, in real time, until its end or until `monitor` interrupts it.
///
/// # Errors
///
/// What the system does not allow, or what went wrong; as of a simulation, that a whole run has delivered nothing, unless the
/// emulator says why.
pub fn run(scenario: &FlowScenario, monitor: &dyn Monitor) -> Result<Emulated, TestbedFailure> {
    let Emulated { measured, emulator } = run_with(scenario, monitor, None)?;
    let is_told = measured.length < scenario.length || emulator.is_saturated();
    let measured = if is_told { measured } else { delivered(scenario, measured)? };
    Ok(Emulated { measured, emulator })
}

/// The same, with flows steered by a service in place of the scenario's own coordinator, if there is one.
fn run_with(
    scenario: &FlowScenario,
    monitor: &dyn Monitor,
    service: Option<&Service<'_>>,
) -> Result<Emulated, TestbedFailure> {
    plan::check(scenario)?;
    let (plan, ready) = plan::prepare(scenario, service.map(Service::link).or_else(|| watch::divided(scenario)))?;
    let stop = AtomicBool::new(false);
    let clock = Clock::start();
    let emulator = ready.emulator.start(clock)?;
    let steered = match service {
        Some(service) => {
            service.begin(clock);
            Some(Steered::Service(service))
        }
        None => Steered::new(scenario, &plan),
    };
    let run = Run { scenario, plan: &plan, clock, stop: &stop, steered };
    let report_decisions = |run: &Run<'_>| {
        let decisions = run.steered.as_ref().map(Steered::take_decisions);
        decisions.iter().flatten().for_each(|decision| monitor.on_decision(decision.at, &decision.rates));
    };
    let mut seen = std::thread::scope(|scope| {
        let run = &run;
        let (sockets, left, identity) = (ready.sockets, &ready.left, &ready.identity);
        let receivers: Vec<Joined<'_, Vec<Arrived>>> = vec![
            spawn(scope, run, || receive(run, sockets.receivers, |sockets| UdpReceivers::new(run, sockets))),
            spawn(scope, run, || {
                receive(run, sockets.quic_receivers, |sockets| QuicReceivers::new(run, sockets, identity))
            }),
            spawn(scope, run, || receive(run, sockets.listeners, |listeners| kernel::receivers(run, listeners))),
        ];
        let mut senders: Vec<Joined<'_, Vec<Sent>>> = vec![
            spawn(scope, run, || send(run, sockets.senders, |sockets| UdpSenders::new(run, sockets))),
            spawn(scope, run, || {
                send(run, sockets.quic_senders, |sockets| QuicSenders::new(run, sockets, identity.public()))
            }),
        ];
        senders.extend(run.of_kernel().into_iter().map(|flow| {
            spawn(scope, run, move || left.run(|| send(run, vec![(flow, ())], |_| KernelSender::new(run, flow)))?)
        }));
        let mut second = Time::ZERO + Duration::SECOND;
        while run.goes_on(clock.now()) && !emulator.has_ended() {
            std::thread::sleep(std_duration(second.min(run.end()).since(clock.now())).min(LONGEST_WAIT));
            if clock.now() >= second {
                second += Duration::SECOND;
                monitor.on_second();
            }
            report_decisions(run);
            if monitor.is_interrupted() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let end = clock.now().min(run.end());
        stop.store(true, Ordering::Relaxed);
        emulator.end_counting();
        // Receivers first: where one fails, its senders' connections are reset.
        let arrived = join(receivers)?;
        Ok::<_, TestbedFailure>(measure::Seen {
            sent: join(senders)?,
            arrived,
            watched: Sights::default(),
            notes: Vec::new(),
            end,
        })
    })?;
    report_decisions(&run);
    seen.notes.extend(run.steered.and_then(Steered::into_note));
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

/// What all of `threads` have brought.
fn join<T>(threads: Vec<Joined<'_, Vec<T>>>) -> Result<Vec<T>, TestbedFailure> {
    let joined =
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    Ok(joined.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

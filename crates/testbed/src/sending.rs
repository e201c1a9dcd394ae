//! What a run's senders do, by whichever stack: their applications, their coordinator and
//! their series.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_control::flow::{Bounds, PeerId};
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::measured::FlowSeries;
use anabranch_lab::flows::steerable::RoundTripSeen;
use anabranch_lab::flows::traffic::{Action, Application, Outlet};
use anabranch_scenario::flows::FlowSpec;

use super::Run;
use super::failure::TestbedFailure;
use super::ticks::{Tick, Ticks};

/// What a sender counts.
pub use anabranch_lab::flows::node::Sent as Packets;

/// An application, which its flow's stack may ask for more while packets leave.
pub type Shared = Arc<Mutex<Application>>;

/// Whoever holds it cannot leave it half changed.
pub fn lock(application: &Shared) -> MutexGuard<'_, Application> {
    application.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Senders by one stack, known here by their place among those that it was made for. Each
/// has one connection at a time.
pub trait SenderStack {
    /// Begins a connection, the `connection`-th of the stack: true if it takes data now, else
    /// it says when it does.
    fn open(&mut self, flow: usize, connection: u32, application: &Shared) -> Result<bool, TestbedFailure>;

    /// Hands over `bytes` for receiver `to`, the last of the stream to it if `last`;
    /// `u64::MAX` never end.
    fn write(&mut self, flow: usize, to: PeerId, bytes: u64, last: bool);

    /// Bytes that were handed over and wait.
    fn unsent(&self, flow: usize) -> u64;

    /// Takes back what waits.
    fn pause(&mut self, flow: usize);

    /// Ends the connection, if there is one; what is on its way is not waited for.
    fn close(&mut self, flow: usize) -> Result<(), TestbedFailure>;

    /// Sends what may leave, waits for something to happen, until `until` at most, and says
    /// what has.
    fn turn(&mut self, until: Time, events: &mut Vec<Event>) -> Result<(), TestbedFailure>;

    /// Adds to `series` a row of what the sender says of itself; one that nobody asked for in
    /// time if `is_late`.
    fn sample(&mut self, flow: usize, series: &mut FlowSeries, is_late: bool);

    /// Packets of all connections that are closed; none if the stack does not count them.
    fn packets(&self, flow: usize) -> Option<Packets>;

    /// What the controllers of connections that are closed have to say, where the stack asks them: the first one's.
    fn note(&self, _flow: usize) -> Option<String> {
        None
    }

    /// What all connections have counted so far, the one that there is among them.
    fn counted(&self, flow: usize) -> Packets;

    /// The round trips of the connection, once there was a sample.
    fn round_trip(&self, flow: usize) -> Option<RoundTripSeen>;

    /// Bounds the window, or the pace.
    fn set_bounds(&mut self, flow: usize, bounds: Bounds);
}

/// Something that has happened to a connection.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Its flow.
    pub flow: usize,
    /// When.
    pub at: Time,
    /// What.
    pub happened: Happened,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It takes data.
    Established,
    /// All that was handed over has been acknowledged.
    Delivered,
}

/// What a flow's sender did.
#[derive(Debug)]
pub struct Sent {
    /// The flow.
    pub flow: usize,
    /// The name of the controller that ran.
    pub controller: Cow<'static, str>,
    /// Its packets, if its stack counts them.
    pub packets: Option<Packets>,
    /// What its controller has to say.
    pub note: Option<String>,
    /// How long transfers with an end took until all was acknowledged.
    pub completion_acked: Vec<Duration>,
    /// When each connection began.
    pub since: Vec<Time>,
    /// How long it was on.
    pub on_time: Duration,
    /// When it went on and off.
    pub notes: Vec<(Time, bool)>,
    /// What its sender said of itself.
    pub series: FlowSeries,
}

/// A flow at work.
struct Working {
    application: Shared,
    /// Whether there is a connection that takes data.
    established: bool,
    /// When the transfer began whose end is awaited.
    since: Time,
    /// The least round trip of the last connection that has ended and had one: a host remembers it for the next one to
    /// the same destination, as in a simulation.
    known_min_rtt: Option<Duration>,
    sent: Sent,
}

/// Sends until the run is over, with the stack that `make` makes of `sockets`, each of them a
/// flow's.
pub fn send<T, S: SenderStack>(
    run: &Run<'_>,
    sockets: Vec<(usize, T)>,
    make: impl FnOnce(Vec<(usize, T)>) -> Result<S, TestbedFailure>,
) -> Result<Vec<Sent>, TestbedFailure> {
    if sockets.is_empty() {
        return Ok(Vec::new());
    }
    let flows: Vec<usize> = sockets.iter().map(|(flow, _)| *flow).collect();
    let mut driver = Driver::new(run, &flows, make(sockets)?);
    let mut ticks = run.steered.as_ref().map_or_else(|| Ticks::new(run.scenario), |by| by.ticks(run.scenario));
    loop {
        let now = run.clock.now();
        driver.look(&mut ticks, now);
        if !run.goes_on(now) {
            return driver.finish();
        }
        driver.step(now, ticks.next())?;
    }
}

/// Steps one stack's flows.
pub struct Driver<'a, S> {
    run: &'a Run<'a>,
    stack: S,
    flows: Vec<Working>,
    /// Connections so far.
    connections: u32,
    events: Vec<Event>,
}

/// Where an application's data goes.
struct Hand<'a, S> {
    stack: &'a mut S,
    flow: usize,
}

impl<S: SenderStack> Outlet for Hand<'_, S> {
    fn write(&mut self, to: PeerId, bytes: u64, last: bool) {
        self.stack.write(self.flow, to, bytes, last);
    }

    fn unsent(&self) -> u64 {
        self.stack.unsent(self.flow)
    }
}

impl Working {
    fn new(flow: usize, spec: &FlowSpec, seed: u64) -> Working {
        let sent = Sent {
            flow,
            controller: spec.controller_name(),
            packets: None,
            note: None,
            completion_acked: Vec::new(),
            since: Vec::new(),
            on_time: Duration::ZERO,
            notes: Vec::new(),
            series: FlowSeries::of(spec),
        };
        let application = Arc::new(Mutex::new(Application::new(spec, seed)));
        Working { application, established: false, since: Time::ZERO, known_min_rtt: None, sent }
    }
}

impl<'a, S: SenderStack> Driver<'a, S> {
    /// Nothing has left yet of `flows`, which `stack` was made for.
    pub fn new(run: &'a Run<'a>, flows: &[usize], stack: S) -> Driver<'a, S> {
        let working = |&flow: &usize| Working::new(flow, &run.scenario.flows[flow], run.scenario.seed);
        Driver { run, stack, flows: flows.iter().map(working).collect(), connections: 0, events: Vec::new() }
    }

    /// Does what is due at `now`: rows and decisions.
    fn look(&mut self, ticks: &mut Ticks, now: Time) {
        while let Some(tick) = ticks.pop(now) {
            if let (Tick::Steering, Some(steered)) = (tick, &self.run.steered) {
                (0..self.flows.len()).for_each(|flow| self.report(flow, now));
                steered.observe(now, self.run.plan);
            }
            for flow in 0..self.flows.len() {
                match tick {
                    Tick::Row => {
                        let series = &mut self.flows[flow].sent.series;
                        self.stack.sample(flow, series, ticks.next_row() <= now);
                    }
                    Tick::Steering => self.steer(flow, now),
                    Tick::Goodput => {}
                }
            }
        }
    }

    /// Wakes applications, and lets the stack turn until `until` at most. The receivers end
    /// with the run, so that what a connection says after it is no failure.
    pub fn step(&mut self, now: Time, until: Time) -> Result<(), TestbedFailure> {
        let done = self.work(now, until);
        if self.run.goes_on(self.run.clock.now()) { done } else { Ok(()) }
    }

    fn work(&mut self, now: Time, until: Time) -> Result<(), TestbedFailure> {
        let mut wake = until;
        for flow in 0..self.flows.len() {
            if lock(&self.flows[flow].application).wake <= now {
                self.wake(flow, now)?;
            }
            let this = &self.flows[flow];
            let mut application = lock(&this.application);
            if this.established {
                application.refill(&mut Hand { stack: &mut self.stack, flow });
            }
            wake = wake.min(application.wake);
        }
        self.stack.turn(self.run.until(now, wake), &mut self.events)?;
        for event in std::mem::take(&mut self.events) {
            self.on_event(event);
        }
        Ok(())
    }

    fn wake(&mut self, flow: usize, now: Time) -> Result<(), TestbedFailure> {
        let action = lock(&self.flows[flow].application).wake(now);
        match action {
            Action::Open => self.open(flow, now)?,
            Action::Resume => {
                self.flows[flow].since = now;
                self.begin(flow, now);
            }
            Action::Pause => self.stack.pause(flow),
            Action::Close => self.close(flow)?,
        }
        self.note(flow, now);
        Ok(())
    }

    fn open(&mut self, flow: usize, now: Time) -> Result<(), TestbedFailure> {
        self.close(flow)?;
        self.report(flow, now);
        let this = &mut self.flows[flow];
        this.since = now;
        this.sent.since.push(now);
        lock(&this.application).await_handshake(now);
        let connection = self.connections;
        self.connections += 1;
        if self.stack.open(flow, connection, &this.application)? {
            let now = self.run.clock.now();
            // Before anything leaves.
            self.report_activity(flow, now);
            self.steer(flow, now);
            self.begin(flow, now);
        }
        Ok(())
    }

    /// The application hands over what it sends.
    fn begin(&mut self, flow: usize, now: Time) {
        self.flows[flow].established = true;
        lock(&self.flows[flow].application).begin(now, &mut Hand { stack: &mut self.stack, flow });
    }

    fn close(&mut self, flow: usize) -> Result<(), TestbedFailure> {
        self.flows[flow].known_min_rtt = self.min_rtt(flow);
        self.flows[flow].established = false;
        self.stack.close(flow)
    }

    /// The least round trip of the connection or, before it has one, of the last one.
    fn min_rtt(&self, flow: usize) -> Option<Duration> {
        self.stack.round_trip(flow).map(|round_trip| round_trip.min).or(self.flows[flow].known_min_rtt)
    }

    fn note(&mut self, flow: usize, at: Time) {
        let this = &mut self.flows[flow];
        this.sent.notes.push((at, lock(&this.application).is_on()));
        self.report_activity(flow, at);
    }

    /// Reports to the coordinator what a flow has counted.
    fn report(&self, flow: usize, now: Time) {
        let Some(steered) = &self.run.steered else { return };
        steered.report(now, self.flows[flow].sent.flow, || (self.stack.counted(flow), self.stack.round_trip(flow)));
    }

    /// Reports to the coordinator whether a flow is on, which it may just have become, or that it has a connection.
    fn report_activity(&self, flow: usize, now: Time) {
        self.report(flow, now);
        let this = &self.flows[flow];
        if let Some(steered) = &self.run.steered {
            steered.note(now, this.sent.flow, lock(&this.application).is_on());
        }
    }

    /// Sets a flow's bounds, if there is a coordinator and it is steered.
    fn steer(&mut self, flow: usize, now: Time) {
        let Some(steered) = &self.run.steered else { return };
        if let Some(bounds) = steered.bounds(now, self.flows[flow].sent.flow, self.min_rtt(flow)) {
            self.stack.set_bounds(flow, bounds);
        }
    }

    fn on_event(&mut self, Event { flow, at, happened }: Event) {
        if happened == Happened::Established {
            // Before any data leaves.
            self.report_activity(flow, at);
            self.steer(flow, at);
            self.begin(flow, at);
            return;
        }
        let this = &mut self.flows[flow];
        let mut application = lock(&this.application);
        if !application.ends_with_its_data() {
            return;
        }
        this.sent.completion_acked.push(at.since(this.since));
        application.finished(at);
        drop(application);
        self.note(flow, at);
    }

    fn finish(mut self) -> Result<Vec<Sent>, TestbedFailure> {
        let end = self.run.clock.now().min(self.run.end());
        for flow in 0..self.flows.len() {
            self.close(flow)?;
            let this = &mut self.flows[flow];
            this.sent.on_time = lock(&this.application).on_time(end);
            this.sent.packets = self.stack.packets(flow);
            this.sent.note = self.stack.note(flow);
        }
        Ok(self.flows.into_iter().map(|flow| flow.sent).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use anabranch_net::clock::Clock;
    use anabranch_scenario::file::parse_flows;

    use super::super::plan::Plan;
    use super::super::steering::{ByRule, Steered};
    use super::super::watch::CrossBytes;
    use super::*;

    /// Connections without a handshake, the first of which alone measures a round trip; what is done to each, in order.
    #[derive(Default)]
    struct Unmeasured {
        connection: u32,
        done: Arc<Mutex<Vec<(u32, &'static str)>>>,
    }

    impl Unmeasured {
        fn note(&self, what: &'static str) {
            self.done.lock().unwrap().push((self.connection, what));
        }
    }

    impl SenderStack for Unmeasured {
        fn open(&mut self, _: usize, connection: u32, _: &Shared) -> Result<bool, TestbedFailure> {
            self.connection = connection;
            Ok(true)
        }

        fn write(&mut self, _: usize, _: PeerId, _: u64, _: bool) {
            self.note("write");
        }

        fn unsent(&self, _: usize) -> u64 {
            0
        }

        fn pause(&mut self, _: usize) {}

        fn close(&mut self, _: usize) -> Result<(), TestbedFailure> {
            Ok(())
        }

        fn turn(&mut self, _: Time, _: &mut Vec<Event>) -> Result<(), TestbedFailure> {
            Ok(())
        }

        fn sample(&mut self, _: usize, _: &mut FlowSeries, _: bool) {}

        fn packets(&self, _: usize) -> Option<Packets> {
            None
        }

        fn counted(&self, _: usize) -> Packets {
            Packets::default()
        }

        fn round_trip(&self, _: usize) -> Option<RoundTripSeen> {
            let measured = RoundTripSeen { smoothed: Duration::from_millis(50), min: Duration::from_millis(40) };
            let is_measured = self.connection == 0 && !self.done.lock().unwrap().is_empty();
            is_measured.then_some(measured)
        }

        fn set_bounds(&mut self, _: usize, bounds: Bounds) {
            assert!(bounds.maximum.is_some());
            self.note("bound");
        }
    }

    #[test]
    fn a_connection_without_a_handshake_is_bounded_by_the_last_ones_round_trip() {
        let text = "[run]\nseconds = 1000\n[dumbbell]\nrate = \"20 Mbit/s\"\ndelay_ms = 20\n[[flow]]\n\
                    controller = \"cubic\"\nsteered = true\n\
                    workload = { on_mean_s = 0.01, off_mean_s = 0.01, new_connections = true }\n\
                    [steering]\nlink = \"bottleneck\"\nevery_ms = 5000";
        let scenario = parse_flows(text, "f.toml", &[]).unwrap();
        let (plan, stop) = (Plan::of_nobody(), AtomicBool::new(false));
        let steered = ByRule::new(&scenario, CrossBytes::default()).map(Box::new).map(Steered::Rule);
        let run = Run { scenario: &scenario, plan: &plan, clock: Clock::start(), stop: &stop, steered };
        let stack = Unmeasured::default();
        let done = Arc::clone(&stack.done);
        let mut driver = Driver::new(&run, &[0], stack);
        // Each on and off is over by the next step: open, close, open.
        for second in 1..=3 {
            driver.step(Time::ZERO + Duration::SECOND * second, Time::MAX).unwrap();
        }
        assert_eq!(*done.lock().unwrap(), [(0, "write"), (1, "bound"), (1, "write")]);
    }
}

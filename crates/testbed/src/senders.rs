//! Our flows' senders and their applications, on one thread.

use std::borrow::Cow;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_control::flow::PeerId;
use anabranch_control::flow::registry::Setup;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::FlowRunError;
use anabranch_lab::flows::measured::FlowSeries;
use anabranch_lab::flows::traffic::{Action, Application, Outlet};
use anabranch_net::flow::{EndReason, FlowId, FlowSpec, Pattern, SenderEvent, Senders, Source};
use anabranch_proto::flow::{FlowSender, SenderConfig};
use anabranch_scenario::flows::{FlowSpec as Flow, Workload};

use super::failure::TestbedFailure;
use super::{Run, Tick, Ticks};

/// A receiver's silence ends no flow before the run does.
const PATIENCE: Duration = Duration::from_millis(86_400_000);

/// What a flow of ours did.
#[derive(Debug)]
pub struct Sent {
    /// The flow.
    pub flow: usize,
    /// The name of the controller that ran.
    pub controller: Cow<'static, str>,
    /// Packets that left.
    pub packets_sent: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Of those, packets that were only late.
    pub spurious_losses: u64,
    /// How long transfers with an end took until all was acknowledged.
    pub completion_acked: Vec<Duration>,
    /// How long it was on.
    pub on_time: Duration,
    /// What its sender said of itself.
    pub series: FlowSeries,
}

impl Sent {
    /// Nothing yet.
    pub fn none(flow: usize, spec: &Flow) -> Sent {
        Sent {
            flow,
            controller: spec.controller_name(),
            packets_sent: 0,
            packets_lost: 0,
            spurious_losses: 0,
            completion_acked: Vec::new(),
            on_time: Duration::ZERO,
            series: FlowSeries::of(spec),
        }
    }
}

/// What all flows of ours did.
#[derive(Debug, Default)]
pub struct Sending {
    /// The flows.
    pub flows: Vec<Sent>,
    /// For each connection by its number: its flow, and when its transfer began.
    pub connections: Vec<(usize, Time)>,
    /// When flows went on and off.
    pub notes: Vec<(Time, usize, bool)>,
}

/// A flow at work.
struct Working<'a> {
    number: usize,
    spec: &'a Flow,
    port: usize,
    application: Arc<Mutex<Application>>,
    id: Option<FlowId>,
    awaits_handshake: bool,
    since: Time,
    sent: Sent,
}

impl Working<'_> {
    fn application(&self) -> MutexGuard<'_, Application> {
        self.application.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where an application's data goes: a flow of the senders.
struct Hand<'a> {
    senders: &'a mut Senders,
    id: FlowId,
}

impl Outlet for Hand<'_> {
    fn write(&mut self, to: PeerId, bytes: u64, last: bool) {
        self.senders.write(self.id, to, bytes, last);
    }

    fn unsent(&self) -> u64 {
        self.senders.sender(self.id).map_or(0, FlowSender::unsent)
    }
}

/// Keeps blocks coming while packets leave.
struct Blocks(Arc<Mutex<Application>>);

impl Source for Blocks {
    fn fill(&mut self, to: PeerId, offset: u64, bytes: &mut [u8]) {
        Pattern.fill(to, offset, bytes);
    }

    fn refill(&mut self, _: Time, sender: &mut FlowSender) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refill(sender);
    }
}

/// Sends until the run is over.
pub fn run(run: &Run<'_>, sockets: Vec<(usize, UdpSocket)>) -> Result<Sending, TestbedFailure> {
    let mut senders = Senders::new(run.clock).map_err(TestbedFailure::sockets("drive UDP senders"))?;
    let mut flows = Vec::new();
    for (port, (number, socket)) in sockets.into_iter().enumerate() {
        // One by one: a queue on the way must see each packet.
        senders.add_socket(socket, false).map_err(TestbedFailure::sockets("send on a UDP socket"))?;
        let spec = &run.scenario.flows[number];
        let mut working = Working {
            number,
            spec,
            port,
            application: Arc::new(Mutex::new(Application::new(spec, run.scenario.seed))),
            id: None,
            awaits_handshake: false,
            since: Time::ZERO,
            sent: Sent::none(number, spec),
        };
        // Parameters are refused before anything leaves.
        new_sender(run, &mut working, 0)?;
        flows.push(working);
    }
    let mut driver = Driver { run, senders, flows, sending: Sending::default() };
    driver.drive()?;
    Ok(driver.finish())
}

fn new_sender(run: &Run<'_>, flow: &mut Working<'_>, connection: u64) -> Result<FlowSender, TestbedFailure> {
    let (spec, packets) = (flow.spec, &run.scenario.packets);
    let mut setup = Setup::new(packets.data, run.clock.now());
    setup.initial_window = spec.initial_window.unwrap_or(setup.initial_window);
    let controller = (spec.controller.build)(&setup, &spec.parameters).map_err(|error| FlowRunError::Parameter {
        flow: spec.name.clone(),
        controller: spec.controller.name,
        error,
    })?;
    let config = SenderConfig {
        packet: packets.data,
        max_ack_delay: packets.ack_policy.max_delay,
        paced: packets.paced,
        ecn: packets.ecn,
        recovery: packets.recovery,
    };
    let rng = Rng::indexed(run.scenario.seed, &format!("controller/{}", spec.name), connection);
    Ok(FlowSender::new(config, controller, spec.receivers.len(), rng))
}

struct Driver<'a> {
    run: &'a Run<'a>,
    senders: Senders,
    flows: Vec<Working<'a>>,
    sending: Sending,
}

impl Driver<'_> {
    fn drive(&mut self) -> Result<(), TestbedFailure> {
        let mut ticks = Ticks::steered(self.run.scenario);
        loop {
            let now = self.senders.now();
            if !self.run.goes_on(now) {
                return Ok(());
            }
            while let Some(tick) = ticks.pop(now) {
                match tick {
                    Tick::Row => self.row(),
                    Tick::Steering => {
                        self.run.steered.iter().for_each(|steered| steered.observe(now));
                        (0..self.flows.len()).for_each(|flow| self.steer(flow, now));
                    }
                    Tick::Goodput => {}
                }
            }
            for flow in 0..self.flows.len() {
                if self.flows[flow].application().wake <= now {
                    self.wake(flow, now)?;
                }
            }
            while let Some(event) = self.senders.poll_event() {
                self.on_event(event)?;
            }
            let wake = self.flows.iter().map(|flow| flow.application().wake).min().unwrap_or(Time::MAX);
            self.senders
                .turn(self.run.until(now, wake.min(ticks.next())))
                .map_err(TestbedFailure::sockets("send packets"))?;
        }
    }

    /// Sets a flow's bounds, if there is a coordinator and it is steered.
    fn steer(&mut self, flow: usize, now: Time) {
        let (Some(steered), Some(id)) = (&self.run.steered, self.flows[flow].id) else { return };
        let min_rtt = self.senders.sender(id).and_then(|sender| sender.min_rtt(PeerId(0)));
        if let Some(bounds) = steered.bounds(now, self.flows[flow].number, min_rtt) {
            self.senders.set_bounds(id, bounds);
        }
    }

    fn row(&mut self) {
        for flow in &mut self.flows {
            flow.sent.series.push_sender(flow.id.and_then(|id| self.senders.sender(id)));
        }
    }

    fn wake(&mut self, flow: usize, now: Time) -> Result<(), TestbedFailure> {
        let action = self.flows[flow].application().wake(now);
        match action {
            Action::Open => self.open(flow, now)?,
            Action::Resume => self.begin(flow, now),
            Action::Pause => {
                if let Some(id) = self.flows[flow].id {
                    self.senders.pause(id);
                }
            }
            Action::Close => self.close(flow),
        }
        self.note(flow, now);
        Ok(())
    }

    fn note(&mut self, flow: usize, now: Time) {
        let (number, is_on) = (self.flows[flow].number, self.flows[flow].application().is_on());
        self.sending.notes.push((now, number, is_on));
        if let Some(steered) = &self.run.steered {
            steered.note(number, is_on);
        }
    }

    fn open(&mut self, flow: usize, now: Time) -> Result<(), TestbedFailure> {
        self.close(flow);
        let connection = self.sending.connections.len() as u32;
        let sender = new_sender(self.run, &mut self.flows[flow], u64::from(connection))?;
        let this = &mut self.flows[flow];
        let plan = self.run.plan;
        let receivers: Vec<SocketAddr> = plan.receivers[this.number].iter().map(|&to| plan.receiver(to)).collect();
        let source: Box<dyn Source> = match this.spec.workload {
            Workload::Blocks(_) => Box::new(Blocks(Arc::clone(&this.application))),
            _ => Box::new(Pattern),
        };
        let spec = FlowSpec {
            port: this.port,
            handshake: this.spec.handshake,
            patience: PATIENCE,
            source,
            receivers: receivers.clone(),
            ..FlowSpec::new(connection, receivers[0], sender)
        };
        let id = self.senders.open(spec).map_err(|error| TestbedFailure::Flow {
            flow: this.spec.name.clone(),
            at: now,
            why: error.to_string(),
        })?;
        this.id = Some(id);
        this.awaits_handshake = this.spec.handshake;
        self.sending.connections.push((this.number, now));
        this.since = now;
        if this.awaits_handshake {
            this.application().await_handshake(now);
        } else {
            self.begin(flow, now);
        }
        Ok(())
    }

    /// The application goes on and hands over what it sends.
    fn begin(&mut self, flow: usize, now: Time) {
        let this = &mut self.flows[flow];
        let Some(id) = this.id else { return };
        if !this.awaits_handshake {
            this.since = now;
        }
        this.awaits_handshake = false;
        this.application().begin(now, &mut Hand { senders: &mut self.senders, id });
    }

    fn close(&mut self, flow: usize) {
        let this = &mut self.flows[flow];
        if let Some(sender) = this.id.take().and_then(|id| self.senders.close(id)) {
            this.sent.packets_sent += sender.packets_sent();
            this.sent.packets_lost += sender.packets_lost();
            this.sent.spurious_losses += sender.spurious_losses();
        }
    }

    fn on_event(&mut self, event: SenderEvent) -> Result<(), TestbedFailure> {
        let (SenderEvent::Established { flow: id, at }
        | SenderEvent::Delivered { flow: id, at }
        | SenderEvent::Ended { flow: id, at, .. }) = event;
        let Some(flow) = self.flows.iter().position(|flow| flow.id == Some(id)) else { return Ok(()) };
        match event {
            SenderEvent::Established { .. } => {
                if self.flows[flow].awaits_handshake {
                    self.begin(flow, at);
                    self.steer(flow, at);
                }
            }
            SenderEvent::Delivered { .. } => {
                let this = &mut self.flows[flow];
                if this.application().ends_with_its_data() {
                    this.sent.completion_acked.push(at.since(this.since));
                    this.application().finished(at);
                    self.note(flow, at);
                }
            }
            SenderEvent::Ended { reason, .. } => {
                let spec = self.flows[flow].spec;
                return Err(match reason {
                    EndReason::Fault(fault) => FlowRunError::stuck(spec, at, fault).into(),
                    EndReason::NoAnswer { .. } => {
                        TestbedFailure::Flow { flow: spec.name.clone(), at, why: "its receiver is silent".into() }
                    }
                });
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Sending {
        let end = self.senders.now().min(self.run.end());
        for flow in 0..self.flows.len() {
            self.close(flow);
            let this = &mut self.flows[flow];
            let on_time = this.application().on_time(end);
            this.sent.on_time = on_time;
        }
        self.sending.flows = self.flows.into_iter().map(|flow| flow.sent).collect();
        self.sending
    }
}

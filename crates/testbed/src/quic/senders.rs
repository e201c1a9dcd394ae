//! Senders of flows under QUIC, and their applications.

use std::cell::RefCell;
use std::net::UdpSocket;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use anabranch_control::flow::Limits;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_lab::flows::measured::FlowSeries;
use anabranch_lab::flows::sample::SenderState;
use anabranch_lab::flows::traffic::{Action, Application};
use anabranch_net::quic::identity::Fingerprint;
use anabranch_net::quic::stream::{OutStream, StreamSender};
use anabranch_net::quic::{self, Factory, Flow};
use anabranch_scenario::flows::FlowSpec;
use futures_util::future::try_join_all;

use super::super::failure::TestbedFailure;
use super::super::senders::Sent;
use super::super::{LONGEST_WAIT, Pending, Run, Tick, Ticks};
use super::{CHUNK, runtime, sleep_until};

/// Bytes that QUIC may hold beyond its window, as the kernel's TCP may here: it never runs
/// out between two looks.
const UNSENT: u64 = 131_072;

/// Between two looks whether all is acknowledged.
const LOOK: StdDuration = StdDuration::from_millis(1);

/// What a flow under QUIC did.
#[derive(Debug)]
pub struct QuicSent {
    /// As of any flow of ours; packets are QUIC's, those of handshakes included.
    pub sent: Sent,
    /// When each connection began.
    pub since: Vec<Time>,
    /// When it went on and off.
    pub notes: Vec<(Time, usize, bool)>,
}

/// A flow at work.
struct Working<'a> {
    run: &'a Run<'a>,
    number: usize,
    spec: &'a FlowSpec,
    sender: StreamSender,
    application: Application,
    stream: Option<OutStream>,
    /// When the transfer began whose end is awaited.
    since: Time,
    pending: Pending,
    did: &'a Did,
}

/// What a flow has done so far: rows are added while it works.
struct Did {
    live: RefCell<Option<Flow>>,
    did: RefCell<QuicSent>,
}

/// Sends until the run is over. Each socket belongs to a flow.
pub fn send(run: &Run<'_>, sockets: Vec<(usize, UdpSocket)>, to: Fingerprint) -> Result<Vec<QuicSent>, TestbedFailure> {
    if sockets.is_empty() {
        return Ok(Vec::new());
    }
    let runtime = runtime()?;
    runtime.block_on(async {
        let did: Vec<Did> = sockets.iter().map(|(flow, _)| Did::new(run, *flow)).collect();
        let mut flows = Vec::new();
        for ((number, socket), did) in sockets.into_iter().zip(&did) {
            flows.push(Working::new(run, number, socket, to, did)?);
        }
        let sending = try_join_all(flows.iter_mut().map(Working::drive));
        let watching = async {
            watch(run, &did).await;
            Ok(())
        };
        tokio::try_join!(sending, watching)?;
        drop(flows);
        Ok(did.into_iter().map(|did| did.did.into_inner()).collect())
    })
}

/// Takes rows and steers until the run is over.
async fn watch(run: &Run<'_>, flows: &[Did]) {
    let mut ticks = Ticks::steered(run.scenario);
    loop {
        let now = run.clock.now();
        while let Some(tick) = ticks.pop(now) {
            if let (Tick::Steering, Some(steered)) = (tick, &run.steered) {
                steered.observe(now);
            }
            for flow in flows {
                match tick {
                    Tick::Row => flow.row(),
                    Tick::Steering => flow.steer(run, now),
                    Tick::Goodput => {}
                }
            }
        }
        if !run.goes_on(now) {
            return;
        }
        sleep_until(run.clock, run.until(now, ticks.next()), LONGEST_WAIT).await;
    }
}

/// What a connection's controller says, as a sender of ours would.
struct Live<'a>(&'a Flow);

impl SenderState for Live<'_> {
    fn limits(&self) -> Limits {
        let snapshot = self.0.snapshot();
        Limits { rate: snapshot.rate, ..Limits::window(snapshot.window) }
    }

    fn in_flight(&self) -> Bytes {
        self.0.snapshot().in_flight
    }

    fn smoothed_rtt(&self) -> Option<Duration> {
        self.0.snapshot().smoothed_rtt
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.0.trace(record);
    }
}

impl Did {
    fn new(run: &Run<'_>, flow: usize) -> Did {
        let spec = &run.scenario.flows[flow];
        let sent = Sent::none(flow, spec);
        Did { live: RefCell::new(None), did: RefCell::new(QuicSent { sent, since: Vec::new(), notes: Vec::new() }) }
    }

    /// What the connection may have in flight; nothing without one.
    fn window(&self) -> u64 {
        self.live.borrow().as_ref().map_or(0, |flow| flow.snapshot().window.get())
    }

    fn row(&self) {
        let live = self.live.borrow();
        let series: &mut FlowSeries = &mut self.did.borrow_mut().sent.series;
        series.push_sender(live.as_ref().map(Live).as_ref());
    }

    /// Waits until nothing is in flight. What was handed over leaves meanwhile.
    async fn drained(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            if self.live.borrow().as_ref().is_none_or(|flow| flow.snapshot().in_flight == Bytes::ZERO) {
                return;
            }
        }
    }

    fn steer(&self, run: &Run<'_>, now: Time) {
        let (Some(steered), Some(flow)) = (&run.steered, &*self.live.borrow()) else { return };
        let number = self.did.borrow().sent.flow;
        if let Some(bounds) = steered.bounds(now, number, flow.snapshot().min_rtt) {
            flow.set(bounds);
        }
    }
}

impl<'a> Working<'a> {
    fn new(
        run: &'a Run<'a>,
        number: usize,
        socket: UdpSocket,
        to: Fingerprint,
        did: &'a Did,
    ) -> Result<Working<'a>, TestbedFailure> {
        let spec = &run.scenario.flows[number];
        let plan = run.plan;
        let address = plan.receiver(plan.receivers[number][0]);
        let factory = Arc::new(factory(run, spec)?);
        let sender = StreamSender::new(socket, address, to, factory, plan.quic_packet);
        Ok(Working {
            run,
            number,
            spec,
            sender: sender.map_err(TestbedFailure::sockets("send QUIC"))?,
            application: Application::new(spec, run.scenario.seed),
            stream: None,
            since: Time::ZERO,
            pending: Pending::default(),
            did,
        })
    }

    fn failed(&self, why: impl ToString) -> TestbedFailure {
        TestbedFailure::Flow { flow: self.spec.name.clone(), at: self.run.clock.now(), why: why.to_string() }
    }

    async fn drive(&mut self) -> Result<(), TestbedFailure> {
        let chunk = vec![0x5a; CHUNK];
        while self.run.goes_on(self.run.clock.now()) {
            let done = self.step(&chunk).await;
            // The receivers end with the run: what a connection says after it is no failure.
            if self.run.goes_on(self.run.clock.now()) {
                done?;
            }
        }
        let end = self.run.clock.now().min(self.run.end());
        self.close();
        self.did.did.borrow_mut().sent.on_time = self.application.on_time(end);
        Ok(())
    }

    /// Does what is due, or waits a moment.
    async fn step(&mut self, chunk: &[u8]) -> Result<(), TestbedFailure> {
        let now = self.run.clock.now();
        if self.application.wake <= now {
            self.wake(now).await?;
        }
        self.application.refill(&mut self.pending);
        let window = self.did.window();
        let Some(stream) = self.stream.as_mut().filter(|_| self.pending.bytes > 0) else {
            sleep_until(self.run.clock, self.application.wake.min(self.run.end()), LONGEST_WAIT).await;
            return Ok(());
        };
        let length = self.pending.bytes.min(chunk.len() as u64) as usize;
        stream.set_room(window.saturating_add(UNSENT));
        match tokio::time::timeout(LONGEST_WAIT, stream.write(&chunk[..length])).await {
            Ok(Ok(written)) => self.pending.took(written as u64),
            Ok(Err(error)) => return Err(self.failed(error)),
            Err(_) => {}
        }
        if self.pending.bytes == 0 && self.application.ends_with_its_data() {
            self.finish().await?;
        }
        Ok(())
    }

    fn note(&mut self) {
        let (now, is_on) = (self.run.clock.now(), self.application.is_on());
        self.did.did.borrow_mut().notes.push((now, self.number, is_on));
        if let Some(steered) = &self.run.steered {
            steered.note(self.number, is_on);
        }
    }

    async fn wake(&mut self, now: Time) -> Result<(), TestbedFailure> {
        match self.application.wake(now) {
            Action::Open => self.open(now).await?,
            Action::Resume => {
                self.since = now;
                self.application.begin(now, &mut self.pending);
                self.note();
            }
            Action::Pause => {
                self.pending = Pending::default();
                self.note();
            }
            Action::Close => {
                self.close();
                self.note();
            }
        }
        Ok(())
    }

    async fn open(&mut self, now: Time) -> Result<(), TestbedFailure> {
        self.close();
        self.since = now;
        self.did.did.borrow_mut().since.push(now);
        self.application.await_handshake(now);
        self.note();
        let connected = before(self.run, self.application.wake, self.sender.connect()).await;
        let Some(stream) = connected else { return Ok(()) };
        let stream = stream.map_err(|error| self.failed(error))?;
        let flow = stream.flow().filter(|flow| flow.controller() == self.spec.controller.name);
        let Some(flow) = flow else { return Err(self.failed("QUIC runs another controller")) };
        *self.did.live.borrow_mut() = Some(flow);
        self.stream = Some(stream);
        self.did.steer(self.run, self.run.clock.now());
        self.application.begin(self.run.clock.now(), &mut self.pending);
        Ok(())
    }

    fn close(&mut self) {
        self.pending = Pending::default();
        let Some(stream) = self.stream.take() else { return };
        let (packets, lost) = stream.packets();
        let mut did = self.did.did.borrow_mut();
        did.sent.packets_sent += packets;
        did.sent.packets_lost += lost;
        *self.did.live.borrow_mut() = None;
    }

    /// The last byte is handed over: waits until all is acknowledged.
    async fn finish(&mut self) -> Result<(), TestbedFailure> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if self.pending.last {
            let done = before(self.run, self.application.wake, stream.finish()).await;
            let Some(done) = done else { return Ok(()) };
            done.map_err(|error| self.failed(error))?;
        } else if before(self.run, self.application.wake, self.did.drained()).await.is_none() {
            return Ok(());
        }
        let mut did = self.did.did.borrow_mut();
        let since = self.since;
        did.sent.completion_acked.push(self.run.clock.now().since(since));
        drop(did);
        if self.pending.last {
            self.close();
        }
        self.application.finished(self.run.clock.now());
        self.note();
        Ok(())
    }
}

/// What comes of `future` before `end` and before the run is over.
async fn before<T>(run: &Run<'_>, end: Time, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    loop {
        tokio::select! {
            done = &mut future => return Some(done),
            () = sleep_until(run.clock, end, LONGEST_WAIT) => {}
        }
        let now = run.clock.now();
        if now >= end || !run.goes_on(now) {
            return None;
        }
    }
}

fn factory(run: &Run<'_>, spec: &FlowSpec) -> Result<Factory, TestbedFailure> {
    let factory = quic::controller_with(spec.controller.name, &spec.parameters);
    let factory = factory.map_err(|error| TestbedFailure::Flow {
        flow: spec.name.clone(),
        at: Time::ZERO,
        why: error.to_string(),
    })?;
    let factory = factory.with_stream(run.scenario.seed, format!("controller/{}", spec.name));
    let factory = if run.scenario.packets.paced { factory } else { factory.unpaced() };
    Ok(match spec.initial_window {
        Some(window) => factory.with_initial_window(window),
        None => factory,
    })
}

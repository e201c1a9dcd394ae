//! Flows under QUIC. A connection has one stream, and always shakes hands.

use std::net::UdpSocket;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use anabranch_control::flow::{Bounds, Limits, PeerId};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_lab::flows::measured::FlowSeries;
use anabranch_lab::flows::sample::SenderState;
use anabranch_lab::flows::steerable::RoundTripSeen;
use anabranch_lab::flows::traffic::Outlet;
use anabranch_net::clock::{Clock, std_duration};
use anabranch_net::quic::identity::{Identity, PublicKey};
use anabranch_net::quic::stream::{InStream, OutStream, StreamError, StreamReceiver, StreamSender};
use anabranch_net::quic::{self, Factory, Flow};
use anabranch_scenario::flows::FlowSpec;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::Runtime;

use super::failure::TestbedFailure;
use super::receiving::ReceiverStack;
use super::sending::{Event, Happened, Packets, SenderStack, Shared};
use super::{Pending, Run};

/// Bytes written or read at once.
const CHUNK: usize = 1 << 16;

/// Bytes that QUIC may hold beyond its window, as the kernel's TCP may here: it never runs
/// out between two looks.
const UNSENT: u64 = 131_072;

/// Between two looks whether all is acknowledged.
const LOOK: Duration = Duration::from_millis(1);

fn runtime() -> Result<Runtime, TestbedFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(TestbedFailure::sockets("drive QUIC"))
}

async fn sleep_until(clock: Clock, at: Time) {
    tokio::time::sleep(std_duration(at.since(clock.now()))).await;
}

/// Senders under QUIC.
pub struct QuicSenders<'a> {
    run: &'a Run<'a>,
    // Before the runtime, which its sockets need to the end.
    flows: Vec<Sender<'a>>,
    runtime: Runtime,
    chunk: Vec<u8>,
}

struct Sender<'a> {
    number: usize,
    spec: &'a FlowSpec,
    clock: Clock,
    sender: Arc<StreamSender>,
    connecting: Option<Connecting>,
    live: Option<Live>,
    pending: Pending,
    /// When something was written last, until all of that is acknowledged.
    written: Option<Time>,
    packets: Packets,
}

type Connecting = Pin<Box<dyn Future<Output = Result<OutStream, StreamError>>>>;

/// A connection, which says of itself what a sender of ours would.
struct Live {
    stream: OutStream,
    flow: Flow,
}

impl Live {
    /// Whole packets of QUIC are acknowledged, with what is in them beside data.
    fn counted(&self) -> Packets {
        let (packets, lost) = self.stream.packets();
        Packets { packets, lost, spurious: 0, acked_bytes: self.flow.snapshot().delivered.get() }
    }
}

impl SenderState for Live {
    fn limits(&self) -> Limits {
        let snapshot = self.flow.snapshot();
        Limits { rate: snapshot.rate, ..Limits::window(snapshot.window) }
    }

    fn in_flight(&self) -> Bytes {
        self.flow.snapshot().in_flight
    }

    fn smoothed_rtt(&self) -> Option<Duration> {
        self.flow.snapshot().smoothed_rtt
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.flow.trace(record);
    }
}

impl<'a> QuicSenders<'a> {
    /// Each socket is a flow's; receivers have this key.
    pub fn new(
        run: &'a Run<'a>,
        sockets: Vec<(usize, UdpSocket)>,
        to: PublicKey,
    ) -> Result<QuicSenders<'a>, TestbedFailure> {
        let runtime = runtime()?;
        let within = runtime.enter();
        let mut flows = Vec::new();
        for (number, socket) in sockets {
            let (spec, plan) = (&run.scenario.flows[number], run.plan);
            let address = plan.receiver(plan.receivers[number][0]);
            let sender = StreamSender::new(socket, address, to, Arc::new(factory(run, spec)?), plan.quic_packet);
            flows.push(Sender {
                number,
                spec,
                clock: run.clock,
                sender: Arc::new(sender.map_err(TestbedFailure::sockets("send QUIC"))?),
                connecting: None,
                live: None,
                pending: Pending::default(),
                written: None,
                packets: Packets::default(),
            });
        }
        drop(within);
        Ok(QuicSenders { run, flows, runtime, chunk: vec![0x5a; CHUNK] })
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

impl Sender<'_> {
    /// Works until something has happened, or all is handed over. Nothing is lost when this
    /// is given up.
    async fn step(&mut self, chunk: &[u8]) -> Result<Option<Happened>, String> {
        if let Some(connecting) = &mut self.connecting {
            let stream = connecting.await;
            self.connecting = None;
            let stream = stream.map_err(|error| error.to_string())?;
            let flow = stream.flow().filter(|flow| flow.controller() == self.spec.controller.name);
            let Some(flow) = flow else { return Err("QUIC runs another controller".into()) };
            self.live = Some(Live { stream, flow });
            return Ok(Some(Happened::Established));
        }
        let Some(Live { stream, flow }) = &mut self.live else { return std::future::pending().await };
        while self.pending.bytes > 0 {
            let length = self.pending.bytes.min(chunk.len() as u64) as usize;
            stream.set_room(flow.snapshot().window.get().saturating_add(UNSENT));
            let written = stream.write(&chunk[..length]).await.map_err(|error| error.to_string())?;
            self.pending.took(written as u64);
            self.written = Some(self.clock.now());
            if self.pending.bytes == 0 {
                // There may be more to come before the end is waited for.
                return Ok(None);
            }
        }
        let Some(written) = self.written else { return std::future::pending().await };
        if self.pending.last {
            stream.finish().await.map_err(|error| error.to_string())?;
            self.close();
        } else {
            // What was handed over leaves meanwhile.
            sleep_until(self.clock, written + LOOK).await;
            while flow.snapshot().in_flight > Bytes::ZERO {
                sleep_until(self.clock, self.clock.now() + LOOK).await;
            }
            self.written = None;
        }
        Ok(Some(Happened::Delivered))
    }

    fn idle(&mut self) {
        self.pending = Pending::default();
        self.written = None;
    }

    fn close(&mut self) {
        self.idle();
        self.connecting = None;
        let live = self.live.take();
        self.packets = self.packets.plus(live.as_ref().map(Live::counted).unwrap_or_default());
    }
}

impl SenderStack for QuicSenders<'_> {
    fn open(&mut self, flow: usize, _: u32, _: &Shared) -> Result<bool, TestbedFailure> {
        let sender = Arc::clone(&self.flows[flow].sender);
        self.flows[flow].connecting = Some(Box::pin(async move { sender.connect().await }));
        Ok(false)
    }

    fn write(&mut self, flow: usize, to: PeerId, bytes: u64, last: bool) {
        self.flows[flow].pending.write(to, bytes, last);
    }

    fn unsent(&self, flow: usize) -> u64 {
        self.flows[flow].pending.bytes
    }

    fn pause(&mut self, flow: usize) {
        self.flows[flow].idle();
    }

    fn close(&mut self, flow: usize) -> Result<(), TestbedFailure> {
        let _within = self.runtime.enter();
        self.flows[flow].close();
        Ok(())
    }

    fn turn(&mut self, until: Time, events: &mut Vec<Event>) -> Result<(), TestbedFailure> {
        let (run, chunk) = (self.run, &self.chunk[..]);
        let flows = self.flows.iter_mut().enumerate();
        let step = async |(flow, sender): (usize, &mut Sender<'_>)| (flow, sender.number, sender.step(chunk).await);
        let done = self.runtime.block_on(async {
            let mut steps: FuturesUnordered<_> = flows.map(step).collect();
            tokio::select! {
                done = steps.next() => done,
                () = sleep_until(run.clock, until) => None,
            }
        });
        let Some((flow, number, done)) = done else { return Ok(()) };
        let happened = done.map_err(|why| run.failed(number, why))?;
        events.extend(happened.map(|happened| Event { flow, at: run.clock.now(), happened }));
        Ok(())
    }

    fn sample(&mut self, flow: usize, series: &mut FlowSeries, _: bool) {
        series.push_sender(self.flows[flow].live.as_ref());
    }

    fn packets(&self, flow: usize) -> Option<Packets> {
        Some(self.flows[flow].packets)
    }

    fn counted(&self, flow: usize) -> Packets {
        let Sender { packets, live, .. } = &self.flows[flow];
        packets.plus(live.as_ref().map(Live::counted).unwrap_or_default())
    }

    fn round_trip(&self, flow: usize) -> Option<RoundTripSeen> {
        let snapshot = self.flows[flow].live.as_ref()?.flow.snapshot();
        Some(RoundTripSeen { smoothed: snapshot.smoothed_rtt?, min: snapshot.min_rtt? })
    }

    fn set_bounds(&mut self, flow: usize, bounds: Bounds) {
        let Some(Live { flow, .. }) = &self.flows[flow].live else { return };
        // The lease is on the run's clock, the connection has its own.
        match bounds.expires {
            Some(expires) => flow.lease(bounds, expires.since(self.run.clock.now())),
            None => flow.set(bounds),
        }
    }
}

/// Receivers under QUIC, each a task of the runtime.
pub struct QuicReceivers {
    clock: Clock,
    runtime: Runtime,
    delivered: Vec<Arc<AtomicU64>>,
    completed: mpsc::Receiver<(usize, Time)>,
}

impl QuicReceivers {
    /// Each socket is a receiver's.
    pub fn new(
        run: &Run<'_>,
        sockets: Vec<(usize, UdpSocket)>,
        identity: &Identity,
    ) -> Result<QuicReceivers, TestbedFailure> {
        let runtime = runtime()?;
        let within = runtime.enter();
        let (ends, completed) = mpsc::channel();
        let mut delivered = Vec::new();
        for (number, (_, socket)) in sockets.into_iter().enumerate() {
            let receiver = StreamReceiver::new(socket, identity, run.plan.quic_packet);
            let receiver = receiver.map_err(TestbedFailure::sockets("receive QUIC"))?;
            let count = Arc::new(AtomicU64::new(0));
            delivered.push(Arc::clone(&count));
            let (clock, ends) = (run.clock, ends.clone());
            let ended = move || {
                // Nobody hears of it once the run is over.
                let _ = ends.send((number, clock.now()));
            };
            tokio::spawn(accept(receiver, count, ended));
        }
        drop(within);
        Ok(QuicReceivers { clock: run.clock, runtime, delivered, completed })
    }
}

impl ReceiverStack for QuicReceivers {
    fn turn(&mut self, until: Time) -> Result<(), TestbedFailure> {
        self.runtime.block_on(sleep_until(self.clock, until));
        Ok(())
    }

    fn delivered(&self, receiver: usize) -> u64 {
        self.delivered[receiver].load(Ordering::Relaxed)
    }

    fn poll_completed(&mut self) -> Option<(usize, Time)> {
        self.completed.try_recv().ok()
    }
}

/// Receives one connection after the other: a new one is the old one's end, whose farewell
/// may be lost.
async fn accept(receiver: StreamReceiver, delivered: Arc<AtomicU64>, ended: impl Fn()) {
    let mut next = pin!(receiver.accept());
    let mut stream: Option<InStream> = None;
    let mut chunk = vec![0; CHUNK];
    loop {
        let reading = async {
            match &mut stream {
                Some(stream) => stream.read(&mut chunk).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = &mut next => {
                let Some(accepted) = accepted else { return };
                // Who has given up before its stream began has another try.
                stream = accepted.ok().or(stream);
                next.set(receiver.accept());
            }
            read = reading => match read {
                Ok(Some(length)) => {
                    delivered.fetch_add(length as u64, Ordering::Relaxed);
                }
                Ok(None) => {
                    ended();
                    if let Some(stream) = stream.take() {
                        // It stays until its sender knows that all has arrived.
                        tokio::spawn(async move { stream.closed().await });
                    }
                }
                Err(_) => stream = None,
            },
        }
    }
}

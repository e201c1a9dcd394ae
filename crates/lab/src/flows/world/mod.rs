//! One run: the flow machines, their applications and the network, moved by its events.

mod connections;
mod error;
mod recording;
mod setup;
mod steering;

use anabranch_control::flow::PeerId;
use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::{Ack, Data, FlowReceiver, FlowSender};
use anabranch_sim::network::{Event, LinkId, Network, RouteId, TimerId};

use super::coordinator::Coordinator;
use super::cross::Source;
use super::events::{CrossEvent, CrossWhat, FlowEvent, Recorder, Stream, What};
use super::measured::{FlowMeasured, FlowsMeasured, LinkMeasured};
use super::sample::Sampler;
use super::shares::Shares;
use super::traffic::Application;
use anabranch_scenario::flows::{FlowScenario, FlowSpec, PacketSpec};
pub use error::FlowRunError;

/// What a packet carries; a connection is known by its flow and its number in it.
#[derive(Clone, Copy, Debug)]
enum Payload {
    Data {
        flow: u32,
        connection: u32,
        to: PeerId,
        data: Data,
    },
    /// `number` is the low end of the ACK's number: it takes no room in a packet.
    Ack {
        number: u16,
        flow: u32,
        connection: u32,
        from: PeerId,
        ack: Ack,
    },
    Cross {
        source: u32,
    },
    /// A connection's first packet, and the answer to it.
    Syn {
        flow: u32,
        connection: u32,
    },
    SynAck {
        flow: u32,
        connection: u32,
    },
}

/// Whom a timer wakes.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Application(u32),
    Sender(u32),
    Receiver(u32, PeerId),
    Cross(u32),
}

/// The routes to a receiver and back.
#[derive(Clone, Copy, Debug)]
struct Ways {
    there: RouteId,
    back: RouteId,
}

/// A flow at work.
#[derive(Debug)]
pub struct Flow {
    ways: Vec<Ways>,
    /// None while there is no connection.
    pub sender: Option<FlowSender>,
    receivers: Vec<FlowReceiver>,
    /// The wait for the answer to the connection's first packet, and when that left.
    handshake: Option<(Duration, Time)>,
    application: Application,
    connection: u32,
    /// When the transfer began whose end is awaited.
    transfer_since: Time,
    pub measured: FlowMeasured,
    sender_timer: TimerId,
    receiver_timer: TimerId,
    application_timer: TimerId,
}

/// A run at work. What tells the recorder is not even compiled into a run without one.
#[derive(Debug)]
pub struct World<'a, const RECORDED: bool> {
    scenario: &'a FlowScenario,
    pub network: Network<PayloadBox>,
    pub flows: Vec<Flow>,
    sources: Vec<Source>,
    owners: Vec<Owner>,
    packets: PacketSpec,
    counting: bool,
    coordinator: Option<Coordinator>,
    shares: Shares,
    error: Option<FlowRunError>,
    recorder: Option<&'a mut dyn Recorder>,
}

/// Within this a flow that can deliver anything has begun to: longer than any path.
const TO_DELIVER: Duration = Duration::from_millis(10_000);

/// Keeps the payload's type private while the network is seen by the sampler.
#[derive(Clone, Copy, Debug)]
pub struct PayloadBox(Payload);

const _: () = assert!(size_of::<Payload>() == 72, "packets are copied often: keep them small");

/// Runs `scenario`. `each_second` is told how many simulated seconds have passed, and ends
/// the run by answering false.
///
/// # Errors
///
/// When a controller refuses its parameters, or misbehaves.
pub fn run(scenario: &FlowScenario, each_second: impl FnMut(u64) -> bool) -> Result<FlowsMeasured, FlowRunError> {
    run_world(World::<false>::new(scenario)?, each_second)
}

/// Runs `scenario` as [`run`] does, and tells `recorder` of each event. A recorder that has
/// failed ends the run at the next whole second.
///
/// # Errors
///
/// As [`run`].
pub fn run_recorded(
    scenario: &FlowScenario,
    recorder: &mut dyn Recorder,
    each_second: impl FnMut(u64) -> bool,
) -> Result<FlowsMeasured, FlowRunError> {
    let mut world = World::<true>::new(scenario)?;
    world.recorder = Some(recorder);
    run_world(world, each_second)
}

fn run_world<const RECORDED: bool>(
    mut world: World<'_, RECORDED>,
    mut each_second: impl FnMut(u64) -> bool,
) -> Result<FlowsMeasured, FlowRunError> {
    let scenario = world.scenario;
    let end = Time::ZERO + scenario.length;
    let mut sampler = Sampler::new(scenario);
    let mut second = Time::ZERO + Duration::SECOND;
    let mut snapshot = vec![0; scenario.links.len()];
    loop {
        let counting_from = if world.counting { Time::MAX } else { scenario.goodput_from };
        let steering = world.coordinator.as_ref().map_or(Time::MAX, Coordinator::due);
        let stop = end.min(second).min(sampler.due()).min(counting_from).min(steering);
        world.advance(stop)?;
        if stop == counting_from {
            world.counting = true;
            for (link, bytes) in snapshot.iter_mut().enumerate() {
                *bytes = world.network.transmitted(LinkId(link as u32)).get();
            }
        }
        if stop == steering {
            world.steer();
        }
        if stop == sampler.due() {
            sampler.sample(&mut world)?;
        }
        let interrupted = stop == second && {
            second += Duration::SECOND;
            let failed = world.recorder.as_ref().is_some_and(|recorder| recorder.has_failed());
            !each_second(stop.as_nanos() / Duration::SECOND.as_nanos()) || failed
        };
        if stop == end || interrupted {
            world.check_traces()?;
            let measured = world.finish(stop, &snapshot, sampler);
            return if stop == end { delivered(scenario, measured) } else { Ok(measured) };
        }
    }
}

/// Refuses what a whole run measured if none of its flows has delivered anything, though one had
/// [`TO_DELIVER`].
fn delivered(scenario: &FlowScenario, measured: FlowsMeasured) -> Result<FlowsMeasured, FlowRunError> {
    let first = scenario.flows.iter().map(|flow| flow.start).min();
    let had_time = first.is_some_and(|start| start + TO_DELIVER <= Time::ZERO + scenario.length);
    if had_time && measured.flows.iter().all(|flow| flow.delivered_bytes == 0) {
        let sent = measured.flows.iter().map(|flow| flow.packets_sent).sum();
        return Err(FlowRunError::NothingDelivered { length: scenario.length, sent });
    }
    Ok(measured)
}

impl<'a, const RECORDED: bool> World<'a, RECORDED> {
    fn spec(&self, flow: u32) -> &'a FlowSpec {
        &self.scenario.flows[flow as usize]
    }

    /// Lets everything happen that happens before `stop`.
    fn advance(&mut self, stop: Time) -> Result<(), FlowRunError> {
        while let Some(event) = self.network.next(stop) {
            match event {
                Event::Arrived => self.on_arrival(),
                Event::Timer(timer) => self.on_timer(self.owners[timer.0 as usize])?,
            }
            if self.error.is_some() {
                break;
            }
        }
        self.error.take().map_or(Ok(()), Err)
    }

    #[inline]
    fn on_arrival(&mut self) {
        let now = self.network.now();
        let arrived = self.network.arrived();
        let marked = arrived.marked;
        match arrived.payload.0 {
            Payload::Data { flow, connection, to, data } => {
                let delay = now.since(arrived.sent_at);
                if RECORDED {
                    self.record_data_received(flow, connection, to, &data, marked);
                }
                self.on_data(flow, connection, to, &data, delay, marked);
            }
            Payload::Ack { number, flow, connection, from, ack } => {
                if RECORDED {
                    self.record_ack_received(number, flow, connection, from, &ack);
                }
                self.on_ack(flow, connection, from, &ack);
            }
            Payload::Cross { source } => {
                let this = &mut self.sources[source as usize];
                this.count.arrived += 1;
                if RECORDED && let Some(recorder) = &mut self.recorder {
                    let size = this.size;
                    let what = CrossWhat::Received { marked };
                    recorder.on_cross(&CrossEvent { at: now, source: source as usize, size, what });
                }
            }
            Payload::Syn { flow, connection } => {
                let back = self.flows[flow as usize].ways[0].back;
                let size = self.packets.ack.get() as u32;
                self.network.send(back, size, false, PayloadBox(Payload::SynAck { flow, connection }));
            }
            Payload::SynAck { flow, connection } => self.on_handshake(flow, connection),
        }
    }

    #[inline]
    fn on_data(&mut self, flow: u32, connection: u32, to: PeerId, data: &Data, delay: Duration, marked: bool) {
        let now = self.network.now();
        let this = &mut self.flows[flow as usize];
        if this.connection != connection || this.receivers.is_empty() {
            this.measured.late_bytes += u64::from(data.length);
            return;
        }
        let received = this.receivers[to.0 as usize].on_data(now, data, marked);
        let measured = &mut this.measured;
        measured.delivered_bytes += received.new_bytes;
        if self.counting {
            measured.goodput_bytes += received.new_bytes;
        }
        if let Some(receiver) = measured.receivers.get_mut(to.0 as usize) {
            receiver.delivered_bytes += received.new_bytes;
            receiver.goodput_bytes += if self.counting { received.new_bytes } else { 0 };
        }
        if now >= self.scenario.delays_from {
            measured.one_way.record(delay);
        }
        if received.completed {
            measured.completion.push(now.since(this.transfer_since));
        }
        self.answer(flow, to);
    }

    /// Sends the ACK that is due, or waits until it is.
    #[inline]
    fn answer(&mut self, flow: u32, from: PeerId) {
        let this = &mut self.flows[flow as usize];
        let Some(receiver) = this.receivers.get_mut(from.0 as usize) else { return };
        if let Some(ack) = receiver.poll_ack(self.network.now()) {
            let number = receiver.acks_sent() - 1;
            let payload = Payload::Ack { number: number as u16, flow, connection: this.connection, from, ack };
            let size = self.packets.ack.get() as u32;
            if RECORDED && let Some(recorder) = &mut self.recorder {
                let stream = Stream {
                    contiguous: receiver.contiguous(),
                    complete: receiver.is_complete(),
                    pieces: receiver.pieces(),
                };
                let what = What::AckSent { number, ack: &ack, size, stream };
                let (at, connection) = (self.network.now(), this.connection);
                recorder.on_flow(&FlowEvent { at, flow: flow as usize, connection, peer: from, what });
            }
            self.network.send(this.ways[from.0 as usize].back, size, false, PayloadBox(payload));
        }
        let timer = TimerId(this.receiver_timer.0 + from.0);
        self.network.set_timer(timer, receiver.timer().unwrap_or(Time::MAX));
    }

    #[inline]
    fn on_ack(&mut self, flow: u32, connection: u32, from: PeerId, ack: &Ack) {
        let now = self.network.now();
        let this = &mut self.flows[flow as usize];
        if this.connection != connection {
            return;
        }
        let Some(sender) = &mut this.sender else { return };
        sender.on_ack(now, from, ack).expect("a simulated receiver acknowledges what it received");
        if this.application.ends_with_its_data() && sender.is_done() {
            this.measured.completion_acked.push(now.since(this.transfer_since));
            this.application.finished(now);
            self.network.set_timer(this.application_timer, this.application.wake);
            self.shares.note(now, flow as usize, false);
        }
        if RECORDED {
            self.record_losses(flow);
        }
        self.pump(flow);
    }

    /// Sends all that may leave now, and waits until more may.
    #[inline]
    fn pump(&mut self, flow: u32) {
        let now = self.network.now();
        let this = &mut self.flows[flow as usize];
        let Some(sender) = &mut this.sender else { return };
        if this.handshake.is_some() {
            // The timer is the first packet's, which would not leave again.
            return;
        }
        this.application.refill(sender);
        while let Some(transmit) = sender.poll(now) {
            let payload = Payload::Data { flow, connection: this.connection, to: transmit.to, data: transmit.data };
            let size = transmit.data.length + self.packets.header.get() as u32;
            let route = this.ways[transmit.to.0 as usize].there;
            if RECORDED && let Some(recorder) = &mut self.recorder {
                let what = What::DataSent { data: &transmit.data, size };
                let (flow, connection, peer) = (flow as usize, this.connection, transmit.to);
                recorder.on_flow(&FlowEvent { at: now, flow, connection, peer, what });
            }
            self.network.send(route, size, transmit.ecn_capable, PayloadBox(payload));
            this.application.refill(sender);
        }
        if let Some(fault) = sender.fault() {
            self.error = Some(FlowRunError::stuck(&self.scenario.flows[flow as usize], now, fault));
        }
        self.network.set_timer(this.sender_timer, sender.timer().unwrap_or(Time::MAX));
        if RECORDED {
            self.record_metrics(flow);
        }
    }

    fn on_timer(&mut self, owner: Owner) -> Result<(), FlowRunError> {
        let now = self.network.now();
        match owner {
            Owner::Sender(flow) if self.flows[flow as usize].handshake.is_some() => self.shake_hands(flow),
            Owner::Sender(flow) => {
                if let Some(sender) = &mut self.flows[flow as usize].sender {
                    sender.on_timer(now);
                    if RECORDED {
                        self.record_losses(flow);
                    }
                    self.pump(flow);
                }
            }
            Owner::Receiver(flow, from) => self.answer(flow, from),
            Owner::Application(flow) => self.wake(flow)?,
            Owner::Cross(source) => {
                let this = &mut self.sources[source as usize];
                let next = this.next(now);
                let (route, size) = (this.route, this.size);
                if RECORDED && let Some(recorder) = &mut self.recorder {
                    let (source, what) = (source as usize, CrossWhat::Sent);
                    recorder.on_cross(&CrossEvent { at: now, source, size, what });
                }
                self.network.send(route, size, self.packets.ecn, PayloadBox(Payload::Cross { source }));
                let timer = TimerId(self.owners.len() as u32 - self.sources.len() as u32 + source);
                self.network.set_timer(timer, next);
            }
        }
        Ok(())
    }

    /// Each flow's own values must be numbers.
    pub fn check_traces(&self) -> Result<(), FlowRunError> {
        for (flow, spec) in self.flows.iter().zip(&self.scenario.flows) {
            let Some(sender) = &flow.sender else { continue };
            let mut wrong = None;
            sender.trace(&mut |name, value| {
                if !value.is_finite() {
                    wrong.get_or_insert((name, value));
                }
            });
            if let Some((name, value)) = wrong {
                let (flow, controller, at) = (spec.name.clone(), spec.controller.name, self.network.now());
                return Err(FlowRunError::NotANumber { flow, controller, at, name, value });
            }
        }
        Ok(())
    }

    fn finish(mut self, end: Time, snapshot: &[u64], sampler: Sampler) -> FlowsMeasured {
        for flow in 0..self.flows.len() {
            self.shares.note(end, flow, false);
            let this = &mut self.flows[flow];
            this.measured.on_time = this.application.on_time(end);
            this.measured.share_time = self.shares.of(flow);
            self.close(flow as u32);
        }
        let links = snapshot.iter().enumerate().map(|(link, before)| {
            let link = LinkId(link as u32);
            let counted_bytes = self.network.transmitted(link).get().saturating_sub(*before);
            LinkMeasured { count: self.network.count(link), counted_bytes }
        });
        FlowsMeasured {
            links: links.collect(),
            cross_traffic: self.sources.iter().map(|source| source.count).collect(),
            series: sampler.into_series(),
            length: end.since(Time::ZERO),
            events: Some(self.network.events()),
            warnings: Vec::new(),
            flows: self.flows.into_iter().map(|flow| flow.measured).collect(),
        }
    }
}

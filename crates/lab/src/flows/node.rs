//! The nodes of a world of flows: the two ends of each flow, with the application at its sending
//! end, and cross traffic with where it goes.

use std::convert::Infallible;
use std::sync::Arc;

use anabranch_control::flow::registry::Setup;
use anabranch_control::flow::{Bounds, PeerId};
use anabranch_control::registry::ParameterError;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::{
    FlowBody, FlowEvent, FlowMessage, FlowSender, Heard, ReceivingEnd, SenderConfig, SendingEnd, WireSizes,
};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out};
use anabranch_scenario::flows::{FlowScenario, FlowSpec, PacketSpec};

use super::cross::CrossSource;
use super::traffic::{Action, Application};

/// A node of a world of flows.
#[derive(Clone, Debug)]
pub enum FlowNode {
    /// A flow's sending end.
    Source(Box<FlowSource>),
    /// One of a flow's receiving ends.
    Sink(Box<ReceivingEnd<u32>>),
    /// A source of cross traffic.
    Cross(Box<CrossSource>),
    /// Where a source's cross traffic goes.
    Absorber(Absorber),
}

/// What a node tells of.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// Of a flow's connection.
    Flow(FlowEvent),
    /// A connection was opened.
    Opened {
        /// Its number.
        connection: u32,
    },
    /// The connection has ended.
    Closed {
        /// Its number.
        connection: u32,
        /// What it has sent.
        count: Sent,
    },
    /// The controller of the connection that ends has something to say.
    Noted(String),
    /// A transfer has begun.
    Began,
    /// All of a transfer has been acknowledged.
    Finished {
        /// Since it began.
        took: Duration,
    },
    /// The application is on or off from now on.
    Active(bool),
    /// The controller refuses its parameters.
    Refused(ParameterError),
}

impl From<FlowEvent> for NodeEvent {
    #[inline]
    fn from(event: FlowEvent) -> NodeEvent {
        NodeEvent::Flow(event)
    }
}

/// Packets of a connection, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Sent.
    pub packets: u64,
    /// Declared lost.
    pub lost: u64,
    /// Of those, only late.
    pub spurious: u64,
    /// Data bytes that were acknowledged.
    pub acked_bytes: u64,
}

impl Sent {
    /// Of a sender's connection so far.
    pub fn of(sender: &FlowSender) -> Sent {
        Sent {
            packets: sender.packets_sent(),
            lost: sender.packets_lost(),
            spurious: sender.spurious_losses(),
            acked_bytes: sender.delivered().get(),
        }
    }

    /// Both together.
    pub fn plus(self, other: Sent) -> Sent {
        Sent {
            packets: self.packets + other.packets,
            lost: self.lost + other.lost,
            spurious: self.spurious + other.spurious,
            acked_bytes: self.acked_bytes + other.acked_bytes,
        }
    }
}

/// Bytes on the wire beside data, as a scenario has them.
pub fn wire_sizes(packets: &PacketSpec) -> WireSizes {
    WireSizes { header: packets.header.get() as u32, control: packets.ack.get() as u32 }
}

/// The sender of a flow's connection with number `connection`, which begins at `now`, with a new
/// controller that draws from a stream of `seed`; simulated or not.
///
/// # Errors
///
/// What the controller says of its parameters.
pub fn new_sender(
    spec: &FlowSpec,
    packets: &PacketSpec,
    seed: u64,
    now: Time,
    connection: u32,
) -> Result<FlowSender, ParameterError> {
    let PacketSpec { data, ack_policy, paced, ecn, recovery, tcp, push, .. } = *packets;
    let mut setup = Setup::new(data, now);
    setup.initial_window = spec.initial_window.unwrap_or(setup.initial_window);
    let controller = spec.controller.make(&setup, &spec.parameters_under(recovery))?;
    let config = SenderConfig { packet: data, max_ack_delay: ack_policy.max_delay, paced, ecn, recovery, tcp };
    let rng = Rng::indexed(seed, &format!("controller/{}", spec.name), u64::from(connection));
    let mut sender = FlowSender::new(config, controller, spec.receivers.len(), rng);
    if push {
        sender.push_bursts();
    }
    Ok(sender)
}

/// A flow's sending end with its application.
#[derive(Clone, Debug)]
pub struct FlowSource {
    scenario: Arc<FlowScenario>,
    flow: usize,
    seed: u64,
    application: Application,
    end: SendingEnd<u32>,
    transfer_since: Time,
    /// Of the connections that have ended.
    ended: Sent,
    /// The least round trip of the last connection that has ended and had one: a host remembers it for the next one to
    /// the same destination (RFC 9002, 6.2.2; RFC 9040, 6).
    known_min_rtt: Option<Duration>,
}

impl FlowSource {
    /// The flow with number `flow` of `scenario`, to the nodes `receivers`, with the random streams
    /// of `seed`.
    pub fn new(
        scenario: &Arc<FlowScenario>,
        flow: usize,
        seed: u64,
        receivers: impl IntoIterator<Item = u32>,
    ) -> FlowSource {
        FlowSource {
            application: Application::new(&scenario.flows[flow], seed),
            end: SendingEnd::new(wire_sizes(&scenario.packets), receivers),
            scenario: Arc::clone(scenario),
            flow,
            seed,
            transfer_since: Time::ZERO,
            ended: Sent::default(),
            known_min_rtt: None,
        }
    }

    fn spec(&self) -> &FlowSpec {
        &self.scenario.flows[self.flow]
    }

    /// The connection's sender, while there is one.
    pub fn sender(&self) -> Option<&FlowSender> {
        self.end.sender()
    }

    /// Whether the application has something to send or in flight.
    pub fn is_on(&self) -> bool {
        self.application.is_on()
    }

    /// Whether the application will never send anything again, and all that it sent has been acknowledged.
    pub fn is_over(&self) -> bool {
        !self.application.is_on() && self.application.wake == Time::MAX
    }

    /// How long the application has been on, until `now`.
    pub fn on_time(&self, now: Time) -> Duration {
        self.application.on_time(now)
    }

    /// Answers that no honest receiver gives.
    pub fn untrue(&self) -> u64 {
        self.end.untrue()
    }

    /// What it has sent so far, over all its connections.
    pub fn sent(&self) -> Sent {
        self.end.sender().map_or(self.ended, |sender| self.ended.plus(Sent::of(sender)))
    }

    /// The least round trip to the first receiver: this connection's or, before it has one, the last one's.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.end.sender().and_then(|sender| sender.min_rtt(PeerId(0))).or(self.known_min_rtt)
    }

    /// A sender with a new controller, for a connection that begins at `now`.
    ///
    /// # Errors
    ///
    /// What the controller says of its parameters.
    pub fn new_sender(&self, now: Time) -> Result<FlowSender, ParameterError> {
        new_sender(self.spec(), &self.scenario.packets, self.seed, now, self.end.connection())
    }

    /// Bounds that hold for the connection's window from now on; what may leave then leaves.
    pub fn set_bounds(&mut self, now: Time, bounds: Bounds, out: &mut impl Out<FlowNode>) {
        self.end.set_bounds(bounds);
        self.pump(now, out);
    }

    /// Ends the connection, if there is one: packets that are still on their way are nobody's.
    pub fn close(&mut self, out: &mut impl Out<FlowNode>) {
        let connection = self.end.connection();
        self.known_min_rtt = self.min_rtt();
        if let Some(sender) = self.end.sender() {
            let count = Sent::of(sender);
            self.ended = self.ended.plus(count);
            if let Some(note) = sender.note() {
                out.event(NodeEvent::Noted(note));
            }
            out.event(NodeEvent::Closed { connection, count });
            self.end.close();
        }
    }

    #[inline]
    fn pump(&mut self, now: Time, out: &mut impl Out<FlowNode>) {
        let FlowSource { application, end, .. } = self;
        end.pump(now, |sender| application.refill(sender), out);
    }

    #[inline]
    fn on_message(&mut self, now: Time, from: u32, message: &FlowMessage, out: &mut impl Out<FlowNode>) {
        match self.end.hear(now, from, message, out) {
            Heard::Nothing => {}
            Heard::Acked => {
                if self.application.ends_with_its_data() && self.end.sender().is_some_and(FlowSender::is_done) {
                    out.event(NodeEvent::Finished { took: now.since(self.transfer_since) });
                    self.application.finished(now);
                    out.event(NodeEvent::Active(false));
                }
                self.pump(now, out);
            }
            Heard::Established => {
                if let Some(sender) = self.end.sender_mut() {
                    self.application.begin(now, sender);
                }
            }
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<FlowNode>) {
        if self.application.wake <= now {
            self.wake_application(now, out);
            if self.end.due(now) > now {
                return;
            }
        }
        self.end.on_due(now, out);
        self.pump(now, out);
    }

    /// The application begins, ends or goes on.
    fn wake_application(&mut self, now: Time, out: &mut impl Out<FlowNode>) {
        let action = self.application.wake(now);
        match action {
            Action::Open => {
                self.close(out);
                match self.new_sender(now) {
                    Ok(sender) => {
                        out.event(NodeEvent::Opened { connection: self.end.connection() });
                        let handshake = self.spec().handshake;
                        self.end.open(now, sender, handshake);
                    }
                    Err(error) => out.event(NodeEvent::Refused(error)),
                }
            }
            Action::Resume | Action::Pause => {}
            Action::Close => self.close(out),
        }
        if matches!(action, Action::Open | Action::Resume) {
            self.transfer_since = now;
            out.event(NodeEvent::Began);
        }
        let is_shaking_hands = self.end.is_shaking_hands();
        if let Some(sender) = self.end.sender_mut() {
            match action {
                // With a handshake, its end begins.
                Action::Open if is_shaking_hands => self.application.await_handshake(now),
                Action::Open | Action::Resume => self.application.begin(now, sender),
                Action::Pause => sender.take_back(),
                Action::Close => {}
            }
        }
        out.event(NodeEvent::Active(self.application.is_on()));
        self.pump(now, out);
    }

    #[inline(always)]
    fn due(&self, now: Time) -> Time {
        self.application.wake.min(self.end.due(now))
    }
}

/// Takes cross traffic and counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absorber {
    /// Packets that have arrived.
    pub packets: u64,
}

impl Machine for FlowNode {
    type Address = u32;
    type Message = FlowMessage;
    type Event = NodeEvent;
    type Job = Infallible;
    type Done = Infallible;

    #[inline]
    fn on_message(&mut self, now: Time, arrival: Arrival<u32>, message: &mut FlowMessage, out: &mut impl Out<Self>) {
        match self {
            FlowNode::Source(source) => source.on_message(now, arrival.from, message, out),
            FlowNode::Sink(sink) => sink.hear(now, arrival, message, out),
            FlowNode::Cross(_) => {}
            FlowNode::Absorber(absorber) => {
                absorber.packets += u64::from(message.body == FlowBody::Datagram);
                out.keep_timer();
            }
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<Self>) {
        match self {
            FlowNode::Source(source) => source.on_timer(now, out),
            FlowNode::Sink(sink) => sink.answer(now, out),
            FlowNode::Cross(cross) => {
                let departure = Departure { ecn_capable: cross.ecn_capable, ..Departure::now(cross.to, cross.size) };
                cross.next(now);
                out.send(departure, &FlowMessage::default());
            }
            FlowNode::Absorber(_) => {}
        }
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<Self>) {
        match done {}
    }

    #[inline(always)]
    fn timer(&self, now: Time) -> Time {
        match self {
            FlowNode::Source(source) => source.due(now),
            FlowNode::Sink(sink) => sink.due(),
            FlowNode::Cross(cross) => cross.due(),
            FlowNode::Absorber(_) => Time::MAX,
        }
    }
}

//! The sending end: any number of flows in one thread.
//!
//! A turn wakes the flows whose time has come, lets each flow that may send do so in small
//! portions, waits for the next instant or datagram, and lets flows learn from what came.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use anabranch_control::flow::{Bounds, PeerId};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::flow::wire::{self, Body, Label, Nonce};
use anabranch_proto::flow::{CatchUp, FlowBody, FlowEvent, FlowMessage, FlowSender, Heard, SendingEnd, WireSizes};
use anabranch_proto::machine::{Departure, Out};

use super::content::Source;
use super::port::Port;
use super::spec::{EndReason, FlowId, FlowSpec, MAX_RECEIVERS, OpenError, SenderEvent};
use super::timers::{Alarm, Timers};
use super::wait::{Waiter, Waker};
use super::{Counters, Events};
use crate::clock::Clock;
use crate::udp::Batch;

/// Packets of one flow that leave before another flow has its turn.
const PORTION: usize = 64;

/// What a pacer makes up for when this thread wakes late: a millisecond's worth, 64 kB at
/// most. As much as BBR lets leave at once (draft-ietf-ccwg-bbr, 5.6.3: send quantum).
const CATCH_UP: CatchUp = CatchUp { span: Duration::from_millis(1), most: Bytes::new(64_000) };

/// One receiver, and what completes the numbers of its ACKs.
#[derive(Debug)]
struct Remote {
    address: SocketAddr,
    /// The number above the largest that it has acknowledged.
    expected: u64,
    ce_count: u64,
}

struct Flow {
    port: usize,
    remotes: Vec<Remote>,
    nonce: Nonce,
    end: SendingEnd<SocketAddr>,
    source: Box<dyn Source>,
    patience: Duration,
    ended: Option<EndReason>,
    /// Since when something is on its way and nobody has answered.
    silent_since: Option<Time>,
    /// Something was handed over whose end has not been told.
    busy: bool,
    /// It is among those that may send.
    ready: bool,
    alarm: Alarm,
}

impl Flow {
    /// Whether all that was handed over has been acknowledged since the last call.
    #[inline]
    fn is_delivered(&mut self) -> bool {
        let delivered = self.busy && self.end.sender().is_some_and(FlowSender::is_done);
        self.busy &= !delivered;
        delivered
    }

    fn due(&self, now: Time) -> Option<Time> {
        if self.ended.is_some() {
            return None;
        }
        let gives_up = self.silent_since.map_or(Time::MAX, |since| since + self.patience);
        let due = gives_up.min(self.end.due(now));
        (due < Time::MAX).then_some(due)
    }
}

/// A flow's way out for the first packets of its connection; data leaves in portions. What it
/// hears is answered later, without a port.
struct Control<'a>(Option<&'a mut Port>);

impl Out<SendingEnd<SocketAddr>> for Control<'_> {
    fn send(&mut self, departure: Departure<SocketAddr>, message: &FlowMessage) {
        let (Some(port), FlowBody::Syn(handshake)) = (&mut self.0, message.body) else { return };
        if let Some(room) = port.queue.push(departure.to, false, wire::HEADER) {
            room.copy_from_slice(&wire::syn(message.label(), handshake));
        }
    }

    /// What happens is read from the sender.
    fn event(&mut self, _: FlowEvent) {}

    fn job(&mut self, job: std::convert::Infallible) {
        match job {}
    }
}

/// Flows to send, their sockets, and the clock.
pub struct Senders {
    clock: Clock,
    waiter: Waiter,
    ports: Vec<Port>,
    flows: HashMap<u32, Flow>,
    ready: VecDeque<u32>,
    timers: Timers,
    batch: Batch,
    events: Events<SenderEvent>,
    counters: Counters,
}

impl fmt::Debug for Senders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Senders({} flows, {} sockets)", self.flows.len(), self.ports.len())
    }
}

impl Senders {
    /// No flow yet, on `clock`.
    ///
    /// # Errors
    ///
    /// When the system has no room for another descriptor.
    pub fn new(clock: Clock) -> io::Result<Senders> {
        Ok(Senders {
            clock,
            waiter: Waiter::new()?,
            ports: Vec::new(),
            flows: HashMap::new(),
            ready: VecDeque::new(),
            timers: Timers::default(),
            batch: Batch::default(),
            events: Events::default(),
            counters: Counters::default(),
        })
    }

    /// Adds a socket, whose number is how many there were before. With `segmentation`,
    /// packets that leave together travel the system as one until a network device, or the
    /// receiving socket, takes them apart: faster, and coarser for a queue on the way.
    ///
    /// # Errors
    ///
    /// When the system refuses an option that receiving needs.
    pub fn add_socket(&mut self, socket: UdpSocket, segmentation: bool) -> io::Result<usize> {
        self.ports.push(Port::new(socket, segmentation)?);
        Ok(self.ports.len() - 1)
    }

    /// Where socket `port` is bound.
    ///
    /// # Errors
    ///
    /// As the system says.
    ///
    /// # Panics
    ///
    /// When there is no such socket.
    pub fn local_addr(&self, port: usize) -> io::Result<SocketAddr> {
        self.ports[port].socket.local_addr()
    }

    /// Ends a `turn` of another thread early.
    pub fn waker(&self) -> Waker {
        self.waiter.waker()
    }

    /// Now, on the clock that all times of these senders are of.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Opens a flow; what is written to it leaves in the next turns.
    ///
    /// # Errors
    ///
    /// When it can't be; nothing has changed then.
    pub fn open(&mut self, spec: FlowSpec) -> Result<FlowId, OpenError> {
        let FlowSpec { connection, port, receivers, mut sender, handshake, patience, source } = spec;
        let (addresses, served, packet) = (receivers.len(), sender.receivers(), sender.packet());
        if self.flows.contains_key(&connection) {
            return Err(OpenError::InUse { connection });
        }
        if port >= self.ports.len() {
            return Err(OpenError::NoPort { port });
        }
        if addresses != served || !(1..=MAX_RECEIVERS).contains(&served) {
            return Err(OpenError::Receivers { addresses, served });
        }
        if !(1..=(wire::MAX_DATAGRAM - wire::HEADER) as u64).contains(&packet.get()) {
            return Err(OpenError::PacketTooLong { packet });
        }
        sender.set_catch_up(CATCH_UP);
        let mut nonce = Nonce::default();
        if handshake {
            getrandom::fill(&mut nonce).expect("the system has random numbers");
        }
        let now = self.clock.now();
        let remote = |address: SocketAddr| Remote {
            address: anabranch_proto::wire::canonical(address),
            expected: 0,
            ce_count: 0,
        };
        let remotes: Vec<Remote> = receivers.into_iter().map(remote).collect();
        let sizes = WireSizes { header: wire::HEADER as u32, control: wire::HEADER as u32 };
        let mut end = SendingEnd::new(sizes, remotes.iter().map(|remote| remote.address)).numbered(connection, nonce);
        end.open(now, sender, handshake);
        let flow = Flow {
            port,
            remotes,
            nonce,
            end,
            source,
            patience,
            ended: None,
            silent_since: handshake.then_some(now),
            busy: false,
            ready: true,
            alarm: None,
        };
        self.flows.insert(connection, flow);
        self.ready.push_back(connection);
        self.retime(connection);
        Ok(FlowId(connection))
    }

    /// Hands over `bytes` for receiver `to` of `flow`; the stream ends with them if `last`.
    /// `u64::MAX` bytes never end. False if there is no such flow, or it has ended.
    ///
    /// # Panics
    ///
    /// When the flow has no such receiver.
    pub fn write(&mut self, flow: FlowId, to: PeerId, bytes: u64, last: bool) -> bool {
        let Some(this) = self.flows.get_mut(&flow.0).filter(|this| this.ended.is_none()) else { return false };
        assert!((to.0 as usize) < this.remotes.len(), "a receiver that the flow has");
        if let Some(sender) = this.end.sender_mut() {
            sender.write(to, bytes, last);
        }
        this.busy = true;
        self.make_ready(flow.0);
        true
    }

    /// Takes back what was handed over to `flow` and has not left yet: the flow goes idle
    /// until more is written.
    pub fn pause(&mut self, flow: FlowId) {
        if let Some(this) = self.flows.get_mut(&flow.0) {
            if let Some(sender) = this.end.sender_mut() {
                sender.take_back();
            }
            self.make_ready(flow.0);
        }
    }

    /// Bounds that hold for the flow's window from now on.
    pub fn set_bounds(&mut self, flow: FlowId, bounds: Bounds) {
        if let Some(this) = self.flows.get_mut(&flow.0) {
            this.end.set_bounds(bounds);
            self.make_ready(flow.0);
        }
    }

    /// Ends a flow, tells its receivers, and gives back its sender with all it has counted.
    /// What is on its way is not waited for.
    pub fn close(&mut self, flow: FlowId) -> Option<FlowSender> {
        let mut this = self.flows.remove(&flow.0)?;
        self.timers.clear(flow.0, &mut this.alarm);
        let port = &mut self.ports[this.port];
        for (remote, receiver) in this.remotes.iter().zip(0..) {
            let label = Label { connection: flow.0, receiver };
            if let Some(room) = port.queue.push(remote.address, false, wire::HEADER) {
                room.copy_from_slice(&wire::close(label, this.nonce));
            }
        }
        port.flush(&mut self.counters.out);
        this.end.close()
    }

    /// The sender of a flow that was not closed yet: its limits, counts and trace.
    pub fn sender(&self, flow: FlowId) -> Option<&FlowSender> {
        self.flows.get(&flow.0).and_then(|this| this.end.sender())
    }

    /// Why a flow has ended, if it has.
    pub fn ended(&self, flow: FlowId) -> Option<EndReason> {
        self.flows.get(&flow.0)?.ended
    }

    /// The next thing that has happened.
    pub fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events.pop()
    }

    /// Datagrams so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sends what may leave, then waits for something to happen, at most until `until`, and
    /// learns from it.
    ///
    /// # Errors
    ///
    /// When a socket is no longer usable.
    pub fn turn(&mut self, until: Time) -> io::Result<()> {
        let now = self.clock.now();
        while let Some(connection) = self.timers.pop(now) {
            self.on_timer(now, connection);
        }
        // Each flow that is ready now has one turn.
        for _ in 0..self.ready.len() {
            let Some(connection) = self.ready.pop_front() else { break };
            self.pump(connection);
        }
        for port in &mut self.ports {
            port.flush(&mut self.counters.out);
        }
        let may_send =
            |connection| self.flows.get(connection).is_some_and(|flow: &Flow| !self.ports[flow.port].blocked);
        let busy = self.events.fresh || self.ready.iter().any(may_send);
        let wake = self.timers.first().min(until);
        let longest = if busy { Duration::ZERO } else { wake.since(self.clock.now()) };
        Port::wait(&mut self.ports, &mut self.waiter, (busy || wake != Time::MAX).then_some(longest))?;
        self.receive()?;
        self.events.fresh = false;
        Ok(())
    }

    fn make_ready(&mut self, connection: u32) {
        if let Some(flow) = self.flows.get_mut(&connection)
            && !std::mem::replace(&mut flow.ready, true)
        {
            self.ready.push_back(connection);
        }
    }

    fn retime(&mut self, connection: u32) {
        if let Some(flow) = self.flows.get_mut(&connection) {
            let due = flow.due(self.clock.now());
            self.timers.set(connection, &mut flow.alarm, due);
        }
    }

    fn on_timer(&mut self, now: Time, connection: u32) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        flow.alarm = None;
        if flow.ended.is_some() {
            return;
        }
        if flow.silent_since.is_some_and(|since| since + flow.patience <= now) {
            let reason = EndReason::NoAnswer { patience: flow.patience };
            flow.ended = Some(reason);
            self.events.push(SenderEvent::Ended { flow: FlowId(connection), at: now, reason }, &mut self.counters);
            return;
        }
        if flow.end.due(now) <= now {
            flow.end.on_due(now, &mut Control(Some(&mut self.ports[flow.port])));
        }
        self.make_ready(connection);
    }

    /// Sends a portion of what may leave of one flow.
    fn pump(&mut self, connection: u32) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        flow.ready = false;
        if flow.ended.is_some() {
            return;
        }
        let now = self.clock.now();
        let port = &mut self.ports[flow.port];
        let packet = flow.end.sender().map_or(0, |sender| sender.packet().get() as usize);
        let longest = wire::HEADER + packet;
        let mut more = true;
        for _ in 0..PORTION {
            if !port.queue.has_room(longest) {
                port.flush(&mut self.counters.out);
            }
            if port.blocked || !port.queue.has_room(longest) {
                break;
            }
            if let Some(sender) = flow.end.sender_mut() {
                flow.source.refill(now, sender);
            }
            let Some((departure, FlowMessage { receiver, body: FlowBody::Data(data), .. })) = flow.end.poll(now) else {
                more = false;
                break;
            };
            let length = wire::HEADER + data.length as usize;
            let room = port.queue.push(departure.to, departure.ecn_capable, length);
            let (header, body) = room.expect("there is room for the longest packet").split_at_mut(wire::HEADER);
            header.copy_from_slice(&wire::data_header(Label { connection, receiver }, &data));
            flow.source.fill(PeerId(u32::from(receiver)), data.offset, body);
            flow.silent_since.get_or_insert(now);
            flow.busy = true;
        }
        if let Some(fault) = flow.end.sender().and_then(FlowSender::fault) {
            let reason = EndReason::Fault(fault);
            flow.ended = Some(reason);
            self.events.push(SenderEvent::Ended { flow: FlowId(connection), at: now, reason }, &mut self.counters);
            return;
        }
        // What was taken back may have been all that was left.
        if flow.is_delivered() {
            self.events.push(SenderEvent::Delivered { flow: FlowId(connection), at: now }, &mut self.counters);
        }
        if more {
            flow.ready = true;
            self.ready.push_back(connection);
        }
        let due = flow.due(now);
        self.timers.set(connection, &mut flow.alarm, due);
    }

    /// Takes a batch from each socket that has one.
    fn receive(&mut self) -> io::Result<()> {
        let Senders { clock, ports, flows, ready, batch, events, counters, timers, .. } = self;
        let now = clock.now();
        for (number, port) in ports.iter_mut().enumerate() {
            let received = port.receive(batch, |from, bytes, _| {
                let (label, body) = match wire::decode(bytes) {
                    Ok((label, body @ (Body::Ack(_) | Body::SynAck(_)))) => (label, body),
                    _ => {
                        counters.unreadable += 1;
                        return;
                    }
                };
                let from = anabranch_proto::wire::canonical(from);
                let known = flows.get_mut(&label.connection).filter(|flow| {
                    let remote = flow.remotes.get(usize::from(label.receiver));
                    flow.port == number && remote.is_some_and(|remote| remote.address == from)
                });
                let Some(flow) = known else {
                    counters.strangers += 1;
                    return;
                };
                if flow.ended.is_some() {
                    return;
                }
                let body = match body {
                    Body::Ack(short) => complete(&flow.remotes[usize::from(label.receiver)], &short),
                    Body::SynAck(answer) => Some(FlowBody::SynAck(answer)),
                    _ => None,
                };
                let learned = body.and_then(|body| learn(now, flow, from, label, body));
                let Some(learned) = learned else {
                    counters.untrue += 1;
                    return;
                };
                let (flow_id, at) = (FlowId(label.connection), now);
                match learned {
                    Learned::Established => events.push(SenderEvent::Established { flow: flow_id, at }, counters),
                    Learned::Delivered => events.push(SenderEvent::Delivered { flow: flow_id, at }, counters),
                    Learned::Nothing => {}
                }
                if !std::mem::replace(&mut flow.ready, true) {
                    ready.push_back(label.connection);
                }
                let due = flow.due(now);
                timers.set(label.connection, &mut flow.alarm, due);
            })?;
            counters.received += received as u64;
        }
        Ok(())
    }
}

/// What a datagram made a flow learn, for the events.
enum Learned {
    Established,
    Delivered,
    Nothing,
}

/// An ACK with the high halves of its numbers; none if it cannot be true.
fn complete(remote: &Remote, short: &wire::ShortAck) -> Option<FlowBody> {
    short.complete(remote.expected, remote.ce_count).ok().map(FlowBody::Ack)
}

/// A receiver has said `body`; none if that cannot be true.
#[inline]
fn learn(now: Time, flow: &mut Flow, from: SocketAddr, label: Label, body: FlowBody) -> Option<Learned> {
    let untrue = flow.end.untrue();
    let Label { connection, receiver } = label;
    let message = FlowMessage { connection, receiver, ack_number: 0, body };
    match flow.end.hear(now, from, &message, &mut Control(None)) {
        Heard::Nothing => (flow.end.untrue() == untrue).then_some(Learned::Nothing),
        Heard::Established => {
            flow.silent_since = None;
            Some(Learned::Established)
        }
        Heard::Acked => {
            if let FlowBody::Ack(ack) = &message.body {
                let remote = &mut flow.remotes[usize::from(receiver)];
                remote.expected = remote.expected.max(ack.ranges.largest().map_or(0, |largest| largest + 1));
                remote.ce_count = remote.ce_count.max(ack.ce_count);
            }
            let in_flight = flow.end.sender().is_some_and(|sender| sender.in_flight() > Bytes::ZERO);
            flow.silent_since = in_flight.then_some(now);
            Some(if flow.is_delivered() { Learned::Delivered } else { Learned::Nothing })
        }
    }
}

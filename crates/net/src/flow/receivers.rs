//! The receiving end: any number of flows in one thread.
//!
//! A turn sends the ACKs whose time has come, waits for the next instant or datagram, and
//! answers what has come, one batch of each socket at a time.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::wire::{self, AckBytes, Body, Handshake, Nonce};
use anabranch_proto::flow::{Ack, AckPolicy, Data, FlowReceiver};

use super::content::Sink;
use super::port::Port;
use super::received::{FlowKey, ReceiverConfig, ReceiverEvent, Report};
use super::timers::{Alarm, Timers};
use super::wait::{Waiter, Waker};
use super::{Counters, Events};
use crate::clock::Clock;
use crate::send_queue::SendCounters;
use crate::udp::Batch;

struct Flow {
    key: FlowKey,
    machine: FlowReceiver,
    /// Of the handshake, or zeros.
    nonce: Nonce,
    sink: Option<Box<dyn Sink>>,
    report: Report,
    /// Offsets that shall be told, ascending.
    marks: VecDeque<u64>,
    /// When something of it came last; None if nothing has.
    heard: Option<Time>,
    /// A first packet that waits for its answer.
    shaking: Option<Handshake>,
    /// ACKs that wait to leave, where each packet is answered on its own.
    acks: Vec<Ack>,
    /// It waits for `answer`.
    touched: bool,
    alarm: Alarm,
}

impl Flow {
    /// Whether a first packet with `nonce` is its own: any is before data has come.
    fn accepts(&mut self, nonce: Nonce) -> bool {
        if self.report.packets == 0 && self.nonce == Nonce::default() {
            self.nonce = nonce;
        }
        self.nonce == nonce
    }

    fn report(&self) -> Report {
        Report { contiguous: self.machine.contiguous(), acks: self.machine.acks_sent(), ..self.report }
    }

    fn due(&self, patience: Option<Duration>) -> Option<Time> {
        let forgotten = self.heard.zip(patience).map(|(heard, patience)| heard + patience);
        [self.machine.timer(), forgotten].into_iter().flatten().min()
    }
}

/// The flows and how they are found.
#[derive(Default)]
struct Flows {
    slots: Vec<Option<Flow>>,
    free: Vec<u32>,
    places: HashMap<FlowKey, u32>,
    /// The one that was asked for last: packets come in trains.
    last: Option<(FlowKey, u32)>,
}

impl Flows {
    #[inline]
    fn find(&mut self, key: &FlowKey) -> Option<u32> {
        match self.last {
            Some((last, place)) if last == *key => Some(place),
            _ => {
                let place = *self.places.get(key)?;
                self.last = Some((*key, place));
                Some(place)
            }
        }
    }

    fn get(&mut self, place: u32) -> Option<&mut Flow> {
        self.slots.get_mut(place as usize)?.as_mut()
    }

    fn insert(&mut self, flow: Flow) -> u32 {
        let place = self.free.pop().unwrap_or(self.slots.len() as u32);
        self.places.insert(flow.key, place);
        if place as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[place as usize] = Some(flow);
        place
    }

    fn remove(&mut self, place: u32) -> Option<Flow> {
        let flow = self.slots.get_mut(place as usize)?.take()?;
        self.places.remove(&flow.key);
        self.free.push(place);
        self.last = None;
        Some(flow)
    }
}

/// Makes the sink of a flow that was accepted.
type MakeSink = Box<dyn FnMut(FlowKey) -> Option<Box<dyn Sink>> + Send>;

/// Flows to receive, their sockets, and the clock.
pub struct Receivers {
    config: ReceiverConfig,
    clock: Clock,
    waiter: Waiter,
    ports: Vec<Port>,
    flows: Flows,
    make_sink: Option<MakeSink>,
    touched: Vec<u32>,
    timers: Timers,
    batch: Batch,
    events: Events<ReceiverEvent>,
    counters: Counters,
}

impl fmt::Debug for Receivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receivers({} flows, {} sockets)", self.flows.places.len(), self.ports.len())
    }
}

impl Receivers {
    /// No flow yet, on `clock`.
    ///
    /// # Errors
    ///
    /// When the system has no room for another descriptor.
    pub fn new(clock: Clock, config: ReceiverConfig) -> io::Result<Receivers> {
        Ok(Receivers {
            config,
            clock,
            waiter: Waiter::new()?,
            ports: Vec::new(),
            flows: Flows::default(),
            make_sink: None,
            touched: Vec::new(),
            timers: Timers::default(),
            batch: Batch::default(),
            events: Events::default(),
            counters: Counters::default(),
        })
    }

    /// Adds a socket, whose number is how many there were before.
    ///
    /// # Errors
    ///
    /// When the system refuses an option that receiving needs.
    pub fn add_socket(&mut self, socket: UdpSocket) -> io::Result<usize> {
        // ACKs are of several lengths and to several senders: segments would rarely match.
        self.ports.push(Port::new(socket, false)?);
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

    /// Now, on the clock that all times of these receivers are of.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Where the data of flows goes that are accepted from now on; without, it goes nowhere.
    pub fn set_sinks(&mut self, make: impl FnMut(FlowKey) -> Option<Box<dyn Sink>> + Send + 'static) {
        self.make_sink = Some(Box::new(make));
    }

    /// Receives a flow whatever `accept` says, with or without a handshake; false if there are
    /// too many flows, or this one is known.
    pub fn expect(&mut self, key: FlowKey, sink: Option<Box<dyn Sink>>) -> bool {
        let key = FlowKey { from: anabranch_proto::wire::canonical(key.from), ..key };
        let fits = self.flows.places.len() < self.config.max_flows && !self.flows.places.contains_key(&key);
        if fits {
            self.flows.insert(new_flow(key, self.config.policy, sink));
        }
        fits
    }

    /// Asks for a [`ReceiverEvent::Reached`] once the flow's stream has arrived up to
    /// `offset`, higher than all that were asked for before; at once if it has already.
    pub fn notify_at(&mut self, flow: FlowKey, offset: u64) {
        let now = self.clock.now();
        let Some(place) = self.flows.find(&flow) else { return };
        if let Some(this) = self.flows.get(place) {
            this.marks.push_back(offset);
            tell_marks(now, this, &mut self.events, &mut self.counters);
        }
    }

    /// Forgets a flow: what still comes of it comes from a stranger.
    pub fn close(&mut self, flow: FlowKey) -> Option<Report> {
        let place = self.flows.find(&flow)?;
        Some(self.forget(place)?.report())
    }

    /// What a flow has received.
    pub fn report(&self, flow: FlowKey) -> Option<Report> {
        let place = *self.flows.places.get(&flow)?;
        Some(self.flows.slots[place as usize].as_ref()?.report())
    }

    /// The flows that are received.
    pub fn flows(&self) -> impl Iterator<Item = FlowKey> {
        self.flows.slots.iter().flatten().map(|flow| flow.key)
    }

    /// The next thing that has happened.
    pub fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop()
    }

    /// Datagrams so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sends the ACKs that are due, waits for something to happen, at most until `until`,
    /// takes what has come and answers it.
    ///
    /// # Errors
    ///
    /// When a socket is no longer usable.
    pub fn turn(&mut self, until: Time) -> io::Result<()> {
        let now = self.clock.now();
        while let Some(place) = self.timers.pop(now) {
            self.on_timer(now, place);
        }
        self.flush();
        let wake = if self.events.fresh { now } else { self.timers.first().min(until) };
        let longest = (wake != Time::MAX).then(|| wake.since(self.clock.now()));
        Port::wait(&mut self.ports, &mut self.waiter, longest)?;
        for port in 0..self.ports.len() {
            self.receive(port)?;
        }
        self.flush();
        self.events.fresh = false;
        Ok(())
    }

    fn flush(&mut self) {
        for port in &mut self.ports {
            port.flush(&mut self.counters.out);
        }
    }

    fn forget(&mut self, place: u32) -> Option<Flow> {
        let mut flow = self.flows.remove(place)?;
        self.timers.clear(place, &mut flow.alarm);
        Some(flow)
    }

    fn on_timer(&mut self, now: Time, place: u32) {
        let Some(flow) = self.flows.get(place) else { return };
        flow.alarm = None;
        let silent = flow.heard.zip(self.config.patience).is_some_and(|(heard, patience)| heard + patience <= now);
        if silent {
            let report = flow.report();
            let flow = flow.key;
            self.forget(place);
            self.events.push(ReceiverEvent::Silent { flow, at: now, report }, &mut self.counters);
            return;
        }
        answer(now, flow, &mut self.ports[flow.key.port], &mut self.counters.out);
        let due = flow.due(self.config.patience);
        self.timers.set(place, &mut flow.alarm, due);
    }

    /// Takes a batch of what has come to one socket, and answers it.
    fn receive(&mut self, port: usize) -> io::Result<()> {
        let now = self.clock.now();
        let Receivers { config, ports, flows, make_sink, touched, timers, batch, events, counters, .. } = self;
        let this_port = &mut ports[port];
        let received = this_port.receive(batch, |from, bytes, ce| {
            let Ok((label, body)) = wire::decode(bytes) else {
                counters.unreadable += 1;
                return;
            };
            let key = FlowKey { port, from: anabranch_proto::wire::canonical(from), label };
            let place = match flows.find(&key) {
                Some(place) => place,
                None if !config.accept.begins_with(&body) => {
                    counters.strangers += 1;
                    return;
                }
                None if flows.places.len() >= config.max_flows => {
                    counters.flows_refused += 1;
                    return;
                }
                None => {
                    let sink = make_sink.as_mut().and_then(|make| make(key));
                    events.push(ReceiverEvent::Accepted { flow: key, at: now }, counters);
                    flows.insert(new_flow(key, config.policy, sink))
                }
            };
            let Some(flow) = flows.get(place) else { return };
            match body {
                Body::Data(data, bytes) => on_data(now, flow, &data, bytes, ce, events, counters),
                Body::Syn(handshake) if flow.accepts(handshake.nonce) => flow.shaking = Some(handshake),
                Body::Close(nonce) if flow.nonce == nonce => {
                    let report = flow.report();
                    timers.clear(place, &mut flow.alarm);
                    flows.remove(place);
                    events.push(ReceiverEvent::Closed { flow: key, at: now, report }, counters);
                    return;
                }
                Body::Syn(_) | Body::Close(_) => {
                    counters.untrue += 1;
                    return;
                }
                Body::Ack(_) | Body::SynAck(_) => {
                    counters.unreadable += 1;
                    return;
                }
            }
            flow.heard = Some(now);
            if !config.together {
                flow.acks.extend(flow.machine.poll_ack(now));
            }
            if !std::mem::replace(&mut flow.touched, true) {
                touched.push(place);
            }
        })?;
        counters.received += received as u64;
        for place in touched.drain(..) {
            let Some(flow) = flows.get(place) else { continue };
            flow.touched = false;
            answer(now, flow, this_port, &mut counters.out);
            let due = flow.due(config.patience);
            timers.set(place, &mut flow.alarm, due);
        }
        Ok(())
    }
}

fn new_flow(key: FlowKey, policy: AckPolicy, sink: Option<Box<dyn Sink>>) -> Flow {
    Flow {
        key,
        machine: FlowReceiver::new(policy),
        nonce: Nonce::default(),
        sink,
        report: Report::default(),
        marks: VecDeque::new(),
        heard: None,
        shaking: None,
        acks: Vec::new(),
        touched: false,
        alarm: None,
    }
}

#[inline]
fn on_data(
    now: Time,
    flow: &mut Flow,
    data: &Data,
    bytes: &[u8],
    ce: bool,
    events: &mut Events<ReceiverEvent>,
    counters: &mut Counters,
) {
    let received = flow.machine.on_data(now, data, ce);
    let report = &mut flow.report;
    report.packets += 1;
    report.marked += u64::from(ce);
    report.first.get_or_insert(now);
    report.last = Some(now);
    report.delivered += received.new_bytes;
    if received.new_bytes > 0 {
        if let Some(sink) = &mut flow.sink {
            sink.take(data.offset, bytes);
        }
        tell_marks(now, flow, events, counters);
    }
    if flow.machine.is_complete() && flow.report.completed.is_none() {
        flow.report.completed = Some(now);
        let event = ReceiverEvent::Completed { flow: flow.key, at: now, bytes: flow.machine.contiguous() };
        events.push(event, counters);
    }
}

/// Tells which offsets the stream has reached.
fn tell_marks(now: Time, flow: &mut Flow, events: &mut Events<ReceiverEvent>, counters: &mut Counters) {
    while let Some(&offset) = flow.marks.front()
        && flow.machine.contiguous() >= offset
    {
        flow.marks.pop_front();
        events.push(ReceiverEvent::Reached { flow: flow.key, at: now, offset }, counters);
    }
}

/// Sends what is due to a flow's sender.
fn answer(now: Time, flow: &mut Flow, port: &mut Port, counters: &mut SendCounters) {
    let Flow { key: FlowKey { from, label, .. }, machine, shaking, acks, .. } = flow;
    let mut send = |bytes: &[u8]| {
        if !port.queue.has_room(bytes.len()) {
            port.flush(counters);
        }
        match port.queue.push(*from, false, bytes.len()) {
            Some(room) => room.copy_from_slice(bytes),
            // The socket has been full for long; the next ACK says the same and more.
            None => counters.refused += 1,
        }
    };
    if let Some(handshake) = shaking.take() {
        send(&wire::syn_ack(*label, handshake));
    }
    for ack in acks.drain(..).chain(machine.poll_ack(now)) {
        if let Some(bytes) = AckBytes::new(*label, &ack) {
            send(bytes.as_slice());
        }
    }
}

//! The receiving end behind one socket: any number of flows.
//!
//! What came in one system call is answered together, unless each packet shall be answered as if
//! it had come alone.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::wire::{self, AckBytes, Body};
use anabranch_proto::flow::{FlowBody, FlowEvent, FlowMessage, ReceivingEnd, WireSizes};
use anabranch_proto::machine::{Arrival, Departure, Out};

use super::Refused;
use super::content::Sink;
use super::received::{FlowKey, ReceiverConfig, ReceiverEvent, Report};
use super::timers::{Alarm, Timers};
use crate::endpoint::{Endpoint, Port};

/// Bytes of the packets that a receiver sends, beside an ACK's further ranges.
const SIZES: WireSizes = WireSizes { header: wire::HEADER as u32, control: wire::HEADER as u32 };

struct Flow {
    key: FlowKey,
    end: ReceivingEnd<SocketAddr>,
    sink: Option<Box<dyn Sink>>,
    report: Report,
    /// Offsets that shall be reported, ascending.
    marks: VecDeque<u64>,
    /// When something of it came last; None if nothing has.
    heard: Option<Time>,
    /// It waits for an answer.
    touched: bool,
    alarm: Alarm,
}

impl Flow {
    fn report(&self) -> Report {
        let receiver = self.end.receiver();
        Report { contiguous: receiver.contiguous(), acks: receiver.acks_sent(), ..self.report }
    }

    fn due(&self, patience: Option<Duration>) -> Option<Time> {
        let forgotten = self.heard.zip(patience).map_or(Time::MAX, |(heard, patience)| heard + patience);
        let due = forgotten.min(self.end.due());
        (due < Time::MAX).then_some(due)
    }

    /// Reports which offsets the stream has reached.
    fn report_marks(&mut self, now: Time, port: &mut Port<'_, ReceivingEndpoint>) {
        while let Some(&offset) = self.marks.front()
            && self.end.receiver().contiguous() >= offset
        {
            self.marks.pop_front();
            port.emit(ReceiverEvent::Reached { flow: self.key, at: now, offset });
        }
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
pub type MakeSink = Box<dyn FnMut(FlowKey) -> Option<Box<dyn Sink>> + Send>;

/// What the sockets of one receiver share.
#[derive(Default)]
pub struct Shared {
    make_sink: Mutex<Option<MakeSink>>,
    flows: AtomicUsize,
}

impl Shared {
    /// Where the data of flows goes that are accepted from now on.
    pub fn set_sinks(&self, make: MakeSink) {
        *self.make_sink.lock().unwrap_or_else(PoisonError::into_inner) = Some(make);
    }

    fn sink(&self, key: FlowKey) -> Option<Box<dyn Sink>> {
        self.make_sink.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(|make| make(key))
    }

    /// Flows of all sockets.
    pub fn flows(&self) -> usize {
        self.flows.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} flows)", self.flows())
    }
}

/// The flows that come to one socket.
pub struct ReceivingEndpoint {
    config: ReceiverConfig,
    /// Its socket's number.
    port: usize,
    shared: Arc<Shared>,
    flows: Flows,
    touched: Vec<u32>,
    timers: Timers,
    refused: Refused,
}

impl ReceivingEndpoint {
    /// No flow yet at socket `port`.
    pub fn new(config: ReceiverConfig, port: usize, shared: Arc<Shared>) -> ReceivingEndpoint {
        ReceivingEndpoint {
            config,
            port,
            shared,
            flows: Flows::default(),
            touched: Vec::new(),
            timers: Timers::default(),
            refused: Refused::default(),
        }
    }

    /// As [`Receivers::expect`](super::Receivers::expect).
    pub fn expect(&mut self, key: FlowKey, sink: Option<Box<dyn Sink>>) -> bool {
        let fits = self.shared.flows() < self.config.max_flows && !self.flows.places.contains_key(&key);
        if fits {
            self.insert(key, sink);
        }
        fits
    }

    /// As [`Receivers::notify_at`](super::Receivers::notify_at).
    pub fn notify_at(&mut self, now: Time, flow: FlowKey, offset: u64, port: &mut Port<'_, ReceivingEndpoint>) {
        let Some(place) = self.flows.find(&flow) else { return };
        if let Some(flow) = self.flows.get(place) {
            flow.marks.push_back(offset);
            flow.report_marks(now, port);
        }
    }

    /// As [`Receivers::close`](super::Receivers::close).
    pub fn close(&mut self, flow: FlowKey) -> Option<Report> {
        let place = self.flows.find(&flow)?;
        Some(self.forget(place)?.report())
    }

    /// As [`Receivers::report`](super::Receivers::report).
    pub fn report(&self, flow: FlowKey) -> Option<Report> {
        let place = *self.flows.places.get(&flow)?;
        Some(self.flows.slots[place as usize].as_ref()?.report())
    }

    /// The flows that are received.
    pub fn flows(&self) -> impl Iterator<Item = FlowKey> {
        self.flows.slots.iter().flatten().map(|flow| flow.key)
    }

    /// What was not believed.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    fn insert(&mut self, key: FlowKey, sink: Option<Box<dyn Sink>>) -> u32 {
        let FlowKey { from, label, .. } = key;
        self.shared.flows.fetch_add(1, Ordering::Relaxed);
        self.flows.insert(Flow {
            key,
            end: ReceivingEnd::new(SIZES, self.config.policy, from, label.receiver).numbered(label.connection),
            sink,
            report: Report::default(),
            marks: VecDeque::new(),
            heard: None,
            touched: false,
            alarm: None,
        })
    }

    fn forget(&mut self, place: u32) -> Option<Flow> {
        let mut flow = self.flows.remove(place)?;
        self.shared.flows.fetch_sub(1, Ordering::Relaxed);
        self.timers.clear(place, &mut flow.alarm);
        Some(flow)
    }

    /// The place of the flow of `key`, which `body` may begin; none if it is not received.
    fn admit(&mut self, now: Time, key: FlowKey, body: &Body<'_>, port: &mut Port<'_, Self>) -> Option<u32> {
        if let Some(place) = self.flows.find(&key) {
            return Some(place);
        }
        if !self.config.accept.begins_with(body) {
            self.refused.strangers += 1;
            return None;
        }
        if self.shared.flows() >= self.config.max_flows {
            self.refused.flows += 1;
            return None;
        }
        let sink = self.shared.sink(key);
        port.emit(ReceiverEvent::Accepted { flow: key, at: now });
        Some(self.insert(key, sink))
    }

    fn on_alarm(&mut self, now: Time, place: u32, port: &mut Port<'_, Self>) {
        let Some(flow) = self.flows.get(place) else { return };
        flow.alarm = None;
        let silent = flow.heard.zip(self.config.patience).is_some_and(|(heard, patience)| heard + patience <= now);
        if silent {
            let (key, report) = (flow.key, flow.report());
            self.forget(place);
            port.emit(ReceiverEvent::Silent { flow: key, at: now, report });
            return;
        }
        self.answer(now, place, port);
    }

    /// Sends the ACK that is due, and sets the alarm for the next.
    fn answer(&mut self, now: Time, place: u32, port: &mut Port<'_, Self>) {
        let Some(flow) = self.flows.get(place) else { return };
        flow.touched = false;
        flow.end.answer(now, &mut Answers { port, new_bytes: None });
        let due = flow.due(self.config.patience);
        self.timers.set(place, &mut flow.alarm, due);
    }
}

/// A flow's way out, and what it has just received.
struct Answers<'a, 'p> {
    port: &'a mut Port<'p, ReceivingEndpoint>,
    /// Of a packet with data, bytes of it that had not arrived before.
    new_bytes: Option<u64>,
}

impl Out<ReceivingEnd<SocketAddr>> for Answers<'_, '_> {
    #[inline]
    fn send(&mut self, departure: Departure<SocketAddr>, message: &FlowMessage) {
        let mut leave = |bytes: &[u8]| self.port.send(departure, bytes.len(), |room| room.copy_from_slice(bytes));
        match &message.body {
            FlowBody::Ack(ack) => {
                if let Some(bytes) = AckBytes::new(message.label(), ack) {
                    leave(bytes.as_slice());
                }
            }
            FlowBody::SynAck(handshake) => leave(&wire::syn_ack(message.label(), *handshake)),
            FlowBody::Data(_) | FlowBody::Syn(_) | FlowBody::Datagram => {}
        }
    }

    #[inline]
    fn event(&mut self, event: FlowEvent) {
        if let FlowEvent::Received { new_bytes, .. } = event {
            self.new_bytes = Some(new_bytes);
        }
    }

    fn job(&mut self, job: Infallible) {
        match job {}
    }
}

impl Endpoint for ReceivingEndpoint {
    type Inbox = ();
    type Unreadable = u64;
    type Event = ReceiverEvent;
    type Job = Infallible;
    type Done = Infallible;

    fn on_datagram(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        bytes: &[u8],
        (): &mut (),
        port: &mut Port<'_, ReceivingEndpoint>,
    ) {
        let Ok((label, body @ (Body::Data(..) | Body::Syn(_) | Body::Close(_)))) = wire::decode(bytes) else {
            *port.unreadable() += 1;
            return;
        };
        let arrival = Arrival { from: anabranch_proto::overlay::wire::canonical(arrival.from), ..arrival };
        let key = FlowKey { port: self.port, from: arrival.from, label };
        let Some(place) = self.admit(now, key, &body, port) else { return };
        let Some(flow) = self.flows.get(place) else { return };
        let (body, content) = match body {
            Body::Data(data, content) => (FlowBody::Data(data), content),
            Body::Syn(handshake) => (FlowBody::Syn(handshake), &[][..]),
            Body::Close(nonce) if flow.end.accepts(nonce) => {
                let report = flow.report();
                self.forget(place);
                port.emit(ReceiverEvent::Closed { flow: key, at: now, report });
                return;
            }
            Body::Ack(_) | Body::SynAck(_) | Body::Close(_) => {
                self.refused.untrue += 1;
                return;
            }
        };
        let untrue = flow.end.untrue();
        let message = FlowMessage { connection: label.connection, receiver: label.receiver, ack_number: 0, body };
        let mut answers = Answers { port, new_bytes: None };
        if self.config.together {
            flow.end.take(now, arrival, &message, &mut answers);
        } else {
            flow.end.hear(now, arrival, &message, &mut answers);
        }
        if flow.end.untrue() != untrue {
            self.refused.untrue += 1;
            return;
        }
        let new_bytes = answers.new_bytes;
        flow.heard = Some(now);
        if !std::mem::replace(&mut flow.touched, true) {
            self.touched.push(place);
        }
        let (Some(new_bytes), FlowBody::Data(data)) = (new_bytes, &message.body) else { return };
        let report = &mut flow.report;
        report.packets += 1;
        report.marked += u64::from(arrival.marked);
        report.first.get_or_insert(now);
        report.last = Some(now);
        report.delivered += new_bytes;
        if new_bytes > 0 {
            if let Some(sink) = &mut flow.sink {
                sink.take(data.offset, content);
            }
            flow.report_marks(now, port);
        }
        // Streams without a byte have an end too.
        if flow.report.completed.is_none() && flow.end.receiver().is_complete() {
            flow.report.completed = Some(now);
            port.emit(ReceiverEvent::Completed { flow: key, at: now, bytes: flow.end.receiver().contiguous() });
        }
    }

    fn on_timer(&mut self, now: Time, port: &mut Port<'_, ReceivingEndpoint>) {
        let mut touched = std::mem::take(&mut self.touched);
        for place in touched.drain(..) {
            self.answer(now, place, port);
        }
        self.touched = touched;
        while let Some(place) = self.timers.pop(now) {
            self.on_alarm(now, place, port);
        }
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut Port<'_, ReceivingEndpoint>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        if self.touched.is_empty() { self.timers.first() } else { now }
    }
}

//! The sending end behind one socket: any number of flows.
//!
//! Each flow that may send does so in small portions, in turn with the others, while the socket
//! has room.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;

use anabranch_control::flow::{Bounds, PeerId};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::flow::wire::{self, Body, Label, Nonce};
use anabranch_proto::flow::{CatchUp, FlowBody, FlowEvent, FlowMessage, FlowSender, Heard, SendingEnd, WireSizes};
use anabranch_proto::machine::{Arrival, Departure, Out};

use super::Refused;
use super::content::Source;
use super::spec::{EndReason, FlowId, FlowSpec, SenderEvent};
use super::timers::{Alarm, Timers};
use crate::endpoint::{Endpoint, Port};

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
    remotes: Vec<Remote>,
    nonce: Nonce,
    end: SendingEnd<SocketAddr>,
    source: Box<dyn Source>,
    patience: Duration,
    ended: Option<EndReason>,
    /// Since when something is on its way and nobody has answered.
    silent_since: Option<Time>,
    /// Something was handed over whose end has not been reported.
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

    /// When to wake it. What it may send already waits for the socket, not for an alarm, if that is
    /// `full`.
    fn due(&self, now: Time, full: bool) -> Option<Time> {
        if self.ended.is_some() {
            return None;
        }
        let gives_up = self.silent_since.map_or(Time::MAX, |since| since + self.patience);
        let next = Some(self.end.due(now)).filter(|&next| next > now || !full).unwrap_or(Time::MAX);
        let due = gives_up.min(next);
        (due < Time::MAX).then_some(due)
    }

    /// A receiver has said `body`; none if that cannot be true.
    #[inline]
    fn learn(
        &mut self,
        now: Time,
        from: SocketAddr,
        label: Label,
        body: FlowBody,
        port: &mut Port<'_, SendingEndpoint>,
    ) -> Option<Learned> {
        let untrue = self.end.untrue();
        let Label { connection, receiver } = label;
        let message = FlowMessage { connection, receiver, ack_number: 0, body };
        match self.end.hear(now, from, &message, &mut Control(port)) {
            Heard::Nothing => (self.end.untrue() == untrue).then_some(Learned::Nothing),
            Heard::Established => {
                self.silent_since = None;
                Some(Learned::Established)
            }
            Heard::Acked => {
                if let FlowBody::Ack(ack) = &message.body {
                    let remote = &mut self.remotes[usize::from(receiver)];
                    remote.expected = remote.expected.max(ack.ranges.largest().map_or(0, |largest| largest + 1));
                    remote.ce_count = remote.ce_count.max(ack.ce_count);
                }
                let in_flight = self.end.sender().is_some_and(|sender| sender.in_flight() > Bytes::ZERO);
                self.silent_since = in_flight.then_some(now);
                Some(if self.is_delivered() { Learned::Delivered } else { Learned::Nothing })
            }
        }
    }
}

/// What a datagram made a flow learn, for the events.
enum Learned {
    Established,
    Delivered,
    Nothing,
}

/// A flow's way out for the first packets of its connection; data leaves in portions.
struct Control<'a, 'p>(&'a mut Port<'p, SendingEndpoint>);

impl Out<SendingEnd<SocketAddr>> for Control<'_, '_> {
    fn send(&mut self, departure: Departure<SocketAddr>, message: &FlowMessage) {
        if let FlowBody::Syn(handshake) = message.body {
            let packet = wire::syn(message.label(), handshake);
            self.0.send(departure, packet.len(), |room| room.copy_from_slice(&packet));
        }
    }

    /// What happens is read from the sender.
    fn event(&mut self, _: FlowEvent) {}

    fn job(&mut self, job: Infallible) {
        match job {}
    }
}

/// The flows that leave by one socket.
#[derive(Default)]
pub struct SendingEndpoint {
    flows: HashMap<u32, Flow>,
    ready: VecDeque<u32>,
    /// Those that are ready wait for room at the socket.
    stalled: bool,
    timers: Timers,
    refused: Refused,
}

impl SendingEndpoint {
    /// Opens a flow; what is written to it leaves from the next turn on.
    pub fn open(&mut self, now: Time, spec: FlowSpec) {
        let FlowSpec { connection, port: _, receivers, mut sender, handshake, patience, source } = spec;
        sender.set_catch_up(CATCH_UP);
        let mut nonce = Nonce::default();
        if handshake {
            getrandom::fill(&mut nonce).expect("the system has random numbers");
        }
        let remote = |address: SocketAddr| Remote {
            address: anabranch_proto::overlay::wire::canonical(address),
            expected: 0,
            ce_count: 0,
        };
        let remotes: Vec<Remote> = receivers.into_iter().map(remote).collect();
        let sizes = WireSizes { header: wire::HEADER as u32, control: wire::HEADER as u32 };
        let mut end = SendingEnd::new(sizes, remotes.iter().map(|remote| remote.address)).numbered(connection, nonce);
        end.open(now, sender, handshake);
        let mut flow = Flow {
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
        self.ready.push_back(connection);
        let due = flow.due(now, self.stalled);
        self.timers.set(connection, &mut flow.alarm, due);
        self.flows.insert(connection, flow);
    }

    /// As [`Senders::write`](super::Senders::write).
    pub fn write(&mut self, connection: u32, to: PeerId, bytes: u64, last: bool) -> bool {
        let Some(flow) = self.flows.get_mut(&connection).filter(|flow| flow.ended.is_none()) else { return false };
        assert!((to.0 as usize) < flow.remotes.len(), "a receiver that the flow has");
        if let Some(sender) = flow.end.sender_mut() {
            sender.write(to, bytes, last);
        }
        flow.busy = true;
        make_ready(&mut self.ready, connection, flow);
        true
    }

    /// As [`Senders::pause`](super::Senders::pause).
    pub fn pause(&mut self, connection: u32) {
        if let Some(flow) = self.flows.get_mut(&connection) {
            if let Some(sender) = flow.end.sender_mut() {
                sender.take_back();
            }
            make_ready(&mut self.ready, connection, flow);
        }
    }

    /// As [`Senders::set_bounds`](super::Senders::set_bounds).
    pub fn set_bounds(&mut self, connection: u32, bounds: Bounds) {
        if let Some(flow) = self.flows.get_mut(&connection) {
            flow.end.set_bounds(bounds);
            make_ready(&mut self.ready, connection, flow);
        }
    }

    /// As [`Senders::close`](super::Senders::close).
    pub fn close(&mut self, connection: u32, port: &mut Port<'_, SendingEndpoint>) -> Option<FlowSender> {
        let mut flow = self.flows.remove(&connection)?;
        self.timers.clear(connection, &mut flow.alarm);
        for (remote, receiver) in flow.remotes.iter().zip(0..) {
            let packet = wire::close(Label { connection, receiver }, flow.nonce);
            port.send(Departure::now(remote.address, packet.len() as u32), packet.len(), |room| {
                room.copy_from_slice(&packet);
            });
        }
        flow.end.close()
    }

    /// The sender of a flow that was not closed yet.
    pub fn sender(&self, connection: u32) -> Option<&FlowSender> {
        self.flows.get(&connection).and_then(|flow| flow.end.sender())
    }

    /// Why a flow has ended, if it has.
    pub fn ended(&self, connection: u32) -> Option<EndReason> {
        self.flows.get(&connection)?.ended
    }

    /// What was not believed.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    fn on_alarm(&mut self, now: Time, connection: u32, port: &mut Port<'_, SendingEndpoint>) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        flow.alarm = None;
        if flow.ended.is_some() {
            return;
        }
        if flow.silent_since.is_some_and(|since| since + flow.patience <= now) {
            let reason = EndReason::NoAnswer { patience: flow.patience };
            flow.ended = Some(reason);
            port.emit(SenderEvent::Ended { flow: FlowId(connection), at: now, reason });
            return;
        }
        if flow.end.due(now) <= now {
            flow.end.on_due(now, &mut Control(port));
        }
        make_ready(&mut self.ready, connection, flow);
        // Its turn sets the alarm, as soon as there is room for one.
        if self.stalled {
            let due = flow.due(now, true);
            self.timers.set(connection, &mut flow.alarm, due);
        }
    }

    /// Each flow that is ready has one turn.
    fn take_turns(&mut self, now: Time, port: &mut Port<'_, SendingEndpoint>) {
        for _ in 0..self.ready.len() {
            if self.stalled {
                break;
            }
            let Some(connection) = self.ready.pop_front() else { break };
            self.pump(now, connection, port);
        }
    }

    /// Sends a portion of what may leave of one flow.
    fn pump(&mut self, now: Time, connection: u32, port: &mut Port<'_, SendingEndpoint>) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        flow.ready = false;
        if flow.ended.is_some() {
            return;
        }
        let packet = flow.end.sender().map_or(0, |sender| sender.packet().get() as usize);
        let longest = wire::HEADER + packet;
        let mut more = true;
        for _ in 0..PORTION {
            if !port.has_room(longest) {
                self.stalled = true;
                break;
            }
            if let Some(sender) = flow.end.sender_mut() {
                flow.source.refill(now, sender);
            }
            let Some((departure, FlowMessage { receiver, body: FlowBody::Data(data), .. })) = flow.end.poll(now) else {
                more = false;
                break;
            };
            port.send(departure, wire::HEADER + data.length as usize, |room| {
                let (header, body) = room.split_at_mut(wire::HEADER);
                header.copy_from_slice(&wire::data_header(Label { connection, receiver }, &data));
                flow.source.fill(PeerId(u32::from(receiver)), data.offset, body);
            });
            flow.silent_since.get_or_insert(now);
            flow.busy = true;
        }
        if let Some(fault) = flow.end.sender().and_then(FlowSender::fault) {
            let reason = EndReason::Fault(fault);
            flow.ended = Some(reason);
            port.emit(SenderEvent::Ended { flow: FlowId(connection), at: now, reason });
            return;
        }
        // What was taken back may have been all that was left.
        if flow.is_delivered() {
            port.emit(SenderEvent::Delivered { flow: FlowId(connection), at: now });
        }
        if more {
            make_ready(&mut self.ready, connection, flow);
        }
        let due = flow.due(now, self.stalled);
        self.timers.set(connection, &mut flow.alarm, due);
    }
}

fn make_ready(ready: &mut VecDeque<u32>, connection: u32, flow: &mut Flow) {
    if !std::mem::replace(&mut flow.ready, true) {
        ready.push_back(connection);
    }
}

impl Endpoint for SendingEndpoint {
    type Inbox = ();
    type Unreadable = u64;
    type Event = SenderEvent;
    type Job = Infallible;
    type Done = Infallible;

    fn on_datagram(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        bytes: &[u8],
        (): &mut (),
        port: &mut Port<'_, SendingEndpoint>,
    ) {
        let Ok((label, body @ (Body::Ack(_) | Body::SynAck(_)))) = wire::decode(bytes) else {
            *port.unreadable() += 1;
            return;
        };
        let from = anabranch_proto::overlay::wire::canonical(arrival.from);
        let Label { connection, receiver } = label;
        let is_from = |flow: &&mut Flow| {
            let remote = flow.remotes.get(usize::from(receiver));
            remote.is_some_and(|remote| remote.address == from)
        };
        let Some(flow) = self.flows.get_mut(&connection).filter(is_from) else {
            self.refused.strangers += 1;
            return;
        };
        if flow.ended.is_some() {
            return;
        }
        let body = match body {
            Body::Ack(short) => {
                let Remote { expected, ce_count, .. } = flow.remotes[usize::from(receiver)];
                short.complete(expected, ce_count).ok().map(FlowBody::Ack)
            }
            Body::SynAck(answer) => Some(FlowBody::SynAck(answer)),
            Body::Data(..) | Body::Syn(_) | Body::Close(_) => None,
        };
        let Some(learned) = body.and_then(|body| flow.learn(now, from, label, body, port)) else {
            self.refused.untrue += 1;
            return;
        };
        let (id, at) = (FlowId(connection), now);
        match learned {
            Learned::Established => port.emit(SenderEvent::Established { flow: id, at }),
            Learned::Delivered => port.emit(SenderEvent::Delivered { flow: id, at }),
            Learned::Nothing => {}
        }
        make_ready(&mut self.ready, connection, flow);
        let due = flow.due(now, self.stalled);
        self.timers.set(connection, &mut flow.alarm, due);
    }

    fn on_timer(&mut self, now: Time, port: &mut Port<'_, SendingEndpoint>) {
        while let Some(connection) = self.timers.pop(now) {
            self.on_alarm(now, connection, port);
        }
        self.take_turns(now, port);
    }

    fn on_room(&mut self, now: Time, port: &mut Port<'_, SendingEndpoint>) {
        self.stalled = false;
        self.take_turns(now, port);
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut Port<'_, SendingEndpoint>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        if self.ready.is_empty() || self.stalled { self.timers.first() } else { now }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use anabranch_control::flow::registry::{Setup, find};
    use anabranch_control::rng::Rng;
    use anabranch_proto::flow::{LossRecovery, SenderConfig, TcpOptions};

    use crate::pool::NoWork;
    use crate::runtime::Runtime;
    use crate::udp::Socket;

    use super::*;

    const PACKET: Bytes = Bytes::new(1000);

    fn paced(controller: &str) -> FlowSender {
        let config = SenderConfig {
            packet: PACKET,
            max_ack_delay: Duration::from_millis(25),
            paced: true,
            ecn: false,
            recovery: LossRecovery::Rack,
            tcp: TcpOptions::default(),
        };
        let controller = find(controller).unwrap();
        let controller = controller.make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
        FlowSender::new(config, controller, 1, Rng::stream(1, "controller"))
    }

    #[test]
    fn a_paced_flow_waits_for_a_full_socket_without_an_alarm_that_is_always_due() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut runtime = Runtime::new(NoWork).unwrap();
        let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        runtime.add(socket, SendingEndpoint::default(), None).unwrap();
        let ms = |ms| Time::ZERO + Duration::from_millis(ms);
        let left = |endpoint: &SendingEndpoint| endpoint.sender(7).unwrap().in_flight();
        runtime.act(0, |endpoint, _, port| {
            let mut spec = FlowSpec::new(7, receiver.local_addr().unwrap(), paced("bbr"));
            spec.handshake = false;
            endpoint.open(ms(0), spec);
            assert!(endpoint.write(7, PeerId(0), u64::MAX, false));
            endpoint.on_timer(ms(0), port);
            let released = endpoint.timer(ms(0));
            assert!(ms(0) < released && released < ms(1000), "the pacer says when to go on");

            *port.blocked = true;
            let before = left(endpoint);
            endpoint.on_timer(released, port);
            assert_eq!(left(endpoint), before, "the socket is full");
            // Whether there is room or not, the flow's patience ends.
            let patience = Duration::SECOND * 30;
            assert_eq!(endpoint.timer(released), ms(0) + patience, "nothing else can be done");
            endpoint.on_room(released, port);
            assert_eq!(endpoint.timer(released), ms(0) + patience, "nor after room for less than a packet");

            *port.blocked = false;
            endpoint.on_room(released, port);
            assert!(left(endpoint) > before);

            *port.blocked = true;
            endpoint.on_timer(ms(0) + patience, port);
            assert_eq!(endpoint.ended(7), Some(EndReason::NoAnswer { patience }));
            *port.blocked = false;
        });
    }
}

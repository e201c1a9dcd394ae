//! Sessions over flows of packets without bytes, for simulations: one window for all receivers of a
//! peer, repairs and ACKs as QUIC has them (RFC 9002, RFC 9000 13.2), and the sizes that QUIC's
//! packets would have.
//!
//! Where QUIC has one receiver to a window, and an application that writes before there is room, this
//! differs:
//!
//! - A receiver is *silent* once a packet to it has waited for a probe timeout, counted from the
//!   last ACK or the first packet behind it, as a retransmission timer is (RFC 6298, 5). RFC 9002
//!   (6.2.1) counts from the last packet: while others free the window, and it is spent on
//!   everybody, that would never end. Nothing but probes leaves for a silent receiver.
//! - At the second probe timeout in a row, three after the last sign of life, what is in flight to it
//!   counts in the window no more: RFC 9002 lets such packets count until an ACK tells of their
//!   loss, which would hold up the other receivers until the session is over. That span is the one
//!   that makes a congestion persistent (7.6.1); it is one here if nothing that left later has
//!   arrived anywhere (7.6.2).
//! - What is in flight over a session that is closed counts no more from that instant on (6.4).

use core::convert::Infallible;

use anabranch_control::flow::{Bounds, FlowController, Limits, PeerId};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;

use super::books::{self, Books, SessionConfig, SessionCounters, State};
use super::packet::{ConnectionId, Content, Messages, Packet};
use super::stream::{Entry, Outbound};
use super::{Application, Closed, PeerKey, SessionId, Sessions, WireLength};
use crate::flow::Ack;
use crate::flow::acknowledger::Arrived;
use crate::flow::answer::Piece;
use crate::machine::{Arrival, Departure, Machine, Out};

/// Datagrams in a row over sessions on which none may leave, after which an application is asked for
/// no more before the next call.
const MOST_WITHHELD: u32 = 64;

/// A peer: an application, and its sessions.
#[derive(Clone, Debug)]
pub struct FlowSessions<A: Application> {
    pub(super) app: A,
    pub(super) books: Books<A>,
    /// Slots in which something was due when the timer came.
    due: Vec<u32>,
}

/// What an application acts on.
#[derive(Debug)]
pub struct Acting<'a, A: Application, O> {
    now: Time,
    books: &'a mut Books<A>,
    out: &'a mut O,
}

impl<A: Application, O: Out<FlowSessions<A>>> Sessions<A> for Acting<'_, A, O> {
    fn open(&mut self, to: A::Address, key: Option<PeerKey>) -> Option<SessionId> {
        self.books.ask(self.now, to, key).map(SessionId)
    }

    fn send(&mut self, session: SessionId, message: A::Message) {
        let Some(open) = self.books.session_mut(session.0) else { return };
        if open.outbound.get_or_insert_with(|| Box::new(Outbound::default())).push(message) {
            self.books.get_in_line(session.0);
        } else {
            self.books.finish(session.0, Closed::Misused);
        }
    }

    fn close(&mut self, session: SessionId) {
        if self.books.session(session.0).is_some() {
            say_goodbye(self.books, session.0, self.out);
            self.books.remove(self.now, session.0);
            self.books.vacate(session.0);
        }
    }

    fn least_round_trip(&self, session: SessionId) -> Option<Duration> {
        self.books.session(session.0).and_then(|_| self.books.window.min_rtt(PeerId(session.0)))
    }

    fn delivered(&self) -> Bytes {
        self.books.window.delivered()
    }

    fn event(&mut self, event: A::Event) {
        self.out.event(event);
    }
}

impl<A: Application, O: Out<FlowSessions<A>>> books::PacketOut<A> for O {
    #[inline]
    fn send(&mut self, departure: Departure<A::Address>, packet: &Packet<A::Message, A::Datagram>) {
        Out::send(self, departure, packet);
    }
}

/// The other end learns that the session in `slot` is over, unless it has not said yet what it calls
/// it.
fn say_goodbye<A: Application>(books: &mut Books<A>, slot: u32, out: &mut impl Out<FlowSessions<A>>) {
    let Some(session) = books.session(slot) else { return };
    let (address, peer) = (session.remote.address, session.peer);
    if peer != ConnectionId::default() {
        books.reply((address, peer), Content::Close, out);
    }
}

impl<A: Application> FlowSessions<A> {
    /// `app` and its sessions, none yet, of a peer with `key`. All sessions share `controller`;
    /// random numbers are functions of `rng`, which differs from that of an earlier life of the
    /// same node.
    pub fn new(
        app: A,
        config: SessionConfig,
        key: PeerKey,
        controller: Box<dyn FlowController>,
        rng: &Rng,
    ) -> FlowSessions<A> {
        FlowSessions { app, books: Books::new(config, key, controller, rng), due: Vec::new() }
    }

    /// The application.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// Lets a driver act on the application.
    pub fn act<O: Out<Self>, R>(
        &mut self,
        now: Time,
        out: &mut O,
        act: impl FnOnce(&mut A, &mut Acting<'_, A, O>) -> R,
    ) -> R {
        let result = act(&mut self.app, &mut Acting { now, books: &mut self.books, out });
        self.settle(now, out);
        self.pump(now, out);
        result
    }

    /// What its sessions have done.
    pub fn counters(&self) -> SessionCounters {
        self.books.counters
    }

    /// Bounds that hold for the controller's window from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.books.window.set_bounds(bounds);
    }

    /// What the controller allows.
    pub fn limits(&self) -> Limits {
        self.books.window.limits()
    }

    /// Data in flight to all receivers.
    pub fn in_flight(&self) -> Bytes {
        self.books.window.in_flight()
    }

    /// How many sessions there are, those that are being opened included.
    pub fn sessions(&self) -> usize {
        self.books.len()
    }

    /// The controller's named values.
    pub fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.books.window.trace(record);
    }

    pub(super) fn notify_open(&mut self, now: Time, slot: u32, out: &mut impl Out<Self>) {
        let Some(session) = self.books.session(slot) else { return };
        let remote = session.remote;
        self.app.on_open(now, SessionId(slot), &remote, &mut Acting { now, books: &mut self.books, out });
    }

    /// A packet has come that belongs to a session.
    #[inline]
    fn on_packet(
        &mut self,
        now: Time,
        arrival: Arrival<A::Address>,
        packet: &Packet<A::Message, A::Datagram>,
        out: &mut impl Out<Self>,
    ) {
        let slot = packet.to.slot;
        let is_here = self.books.slots.get(slot as usize).is_some_and(|slot| {
            let is_from_peer = slot.session.as_ref().is_some_and(|session| session.remote.address == arrival.from);
            is_from_peer && slot.token == packet.to.token
        });
        if !is_here {
            return self.on_stray(arrival.from, packet, out);
        }
        match self.books.session(slot).map(|session| session.state) {
            Some(State::Answering) if matches!(packet.content, Content::Close) => {
                // The application has never heard of it.
                self.books.remove(now, slot);
                return self.books.vacate(slot);
            }
            Some(State::Answering) => self.on_confirmed(now, slot, out),
            Some(State::Asking(_)) => {
                // Nobody knows its name yet.
                self.books.counters.untrue += 1;
                return;
            }
            _ => {}
        }
        // The application may have closed it.
        let most_delay = self.books.config.ack.max_delay;
        let Some(session) = self.books.session_mut(slot) else { return };
        session.heard = now;
        if packet.asked.delay_ms > 0 {
            let asked = Duration::from_millis(u64::from(packet.asked.delay_ms));
            session.acks.set_max_delay(asked.min(most_delay));
        }
        if let Some(ack) = &packet.ack {
            self.on_ack(now, slot, ack);
        }
        match &packet.content {
            Content::Datagram(datagram) => {
                if !self.arrives(now, slot, packet.number, arrival.marked) {
                    return;
                }
                self.books.counters.datagrams_received += 1;
                let acting = &mut Acting { now, books: &mut self.books, out };
                self.app.on_datagram(now, SessionId(slot), datagram.clone(), acting);
            }
            Content::Messages(part) => self.on_messages(now, slot, part, (packet.number, arrival.marked), out),
            Content::Ping => {
                self.arrives(now, slot, packet.number, arrival.marked);
            }
            Content::Close => self.books.finish(slot, Closed::ByPeer),
            _ => {}
        }
    }

    /// A packet of a session that is not here: whoever sent it learns that.
    #[cold]
    fn on_stray(&mut self, from: A::Address, packet: &Packet<A::Message, A::Datagram>, out: &mut impl Out<Self>) {
        self.books.counters.stray += 1;
        if !matches!(packet.content, Content::Close) {
            self.books.reply((from, packet.to), Content::Reset, out);
        }
    }

    /// Packet `number` has come over the session in `slot`, whose ACK is due sometime: whether it is
    /// no copy.
    #[inline(always)]
    fn arrives(&mut self, now: Time, slot: u32, number: u64, marked: bool) -> bool {
        let Some(session) = self.books.session_mut(slot) else { return false };
        let arrived = session.acks.on_packet(now, number, marked);
        if arrived != Arrived::Again {
            // RFC 9000, 13.2.1: at once where packets are missing or marked.
            session.acks.wait(now, arrived == Arrived::OutOfOrder || marked);
        }
        let due = session.acks.timer().unwrap_or(Time::MAX);
        self.books.set_due(slot, due);
        arrived != Arrived::Again
    }

    fn on_messages(
        &mut self,
        now: Time,
        slot: u32,
        part: &Messages<A::Message>,
        (number, marked): (u64, bool),
        out: &mut impl Out<Self>,
    ) {
        let Some(session) = self.books.session_mut(slot) else { return };
        let inbound = session.inbound.get_or_insert_default();
        match inbound.insert(part) {
            // What there is no room for is not acknowledged: it must come again.
            Entry::NoRoom => return,
            Entry::Untrue => {
                self.books.counters.untrue += 1;
                return self.books.finish(slot, Closed::Misused);
            }
            Entry::Kept => {}
        }
        self.arrives(now, slot, number, marked);
        let id = self.books.id(slot);
        loop {
            // The application may close it with any of them.
            if self.books.id(slot) != id {
                return;
            }
            let Some(session) = self.books.session_mut(slot) else { return };
            let Some(message) = session.inbound.as_mut().and_then(|inbound| inbound.next()) else { return };
            self.books.counters.messages_received += 1;
            self.app.on_message(now, SessionId(slot), message, &mut Acting { now, books: &mut self.books, out });
        }
    }

    #[inline]
    fn on_ack(&mut self, now: Time, slot: u32, ack: &Ack) {
        let books = &mut self.books;
        let was_silent = books.is_silent(slot);
        let Books { window, arrived, .. } = books;
        let note = |piece: Piece| {
            if !piece.is_none() {
                arrived.push(piece);
            }
        };
        if window.on_ack(now, PeerId(slot), ack, note).is_err() {
            books.counters.untrue += 1;
            return;
        }
        let Books { window, slots, arrived, .. } = books;
        let Some(session) = slots[slot as usize].session.as_mut() else { return };
        if window.has_acked() {
            session.waiting_since = now;
        }
        let again = &mut window.space_mut(PeerId(slot)).again;
        for piece in arrived.drain(..) {
            // Nothing that was sent again and arrived after all waits to be sent.
            again.retain(|waiting| *waiting != piece);
            if session.outbound.as_mut().is_some_and(|outbound| !outbound.on_arrived(piece)) {
                again.push_back(piece);
            }
        }
        let is_behind = !again.is_empty();
        let is_heard = was_silent && !books.is_silent(slot);
        if is_heard {
            books.silent.push((SessionId(slot), false));
        }
        if is_heard || is_behind {
            books.get_in_line(slot);
        }
        let due = books.recovery_due(slot);
        books.set_due(slot, due);
    }

    /// Tells the application what it does not know yet.
    #[inline]
    fn settle(&mut self, now: Time, out: &mut impl Out<Self>) {
        if !self.books.over.is_empty() || !self.books.silent.is_empty() {
            self.settle_seldom(now, out);
        }
    }

    #[cold]
    fn settle_seldom(&mut self, now: Time, out: &mut impl Out<Self>) {
        loop {
            if let Some((session, is_silent)) = self.books.silent.pop() {
                let acting = &mut Acting { now, books: &mut self.books, out };
                self.app.on_silent(now, session, is_silent, acting);
            } else if let Some((session, why)) = self.books.over.pop() {
                if matches!(why, Closed::Misused | Closed::Refused) {
                    say_goodbye(&mut self.books, session.0, out);
                }
                self.books.remove(now, session.0);
                self.app.on_closed(now, session, why, &mut Acting { now, books: &mut self.books, out });
                self.books.vacate(session.0);
            } else {
                return;
            }
        }
    }

    /// Sends what may leave: messages, then datagrams.
    #[inline]
    fn pump(&mut self, now: Time, out: &mut impl Out<Self>) {
        let FlowSessions { app, books, .. } = self;
        let mut withheld = 0;
        loop {
            let probe = books.window.take_probe();
            debug_assert!(probe.is_none(), "probes leave with the timer that asks for them");
            if !books.ready.is_empty() {
                if !send_messages(books, now, out) {
                    return;
                }
                continue;
            }
            if !books.window.has_room(now, books.config.packet, || app.waiting()) {
                return;
            }
            let Some((SessionId(slot), datagram)) = app.next_datagram(now) else {
                books.window.set_app_limited();
                return;
            };
            let size = Bytes::new(datagram.wire_length() as u64);
            let is_open = books.session(slot).is_some_and(|session| session.state == State::Open);
            let is_withheld = books.is_silent(slot) && !books.config.datagrams_to_silent;
            if !is_open || size > books.config.packet || is_withheld {
                books.counters.datagrams_withheld += 1;
                withheld += 1;
                if withheld == MOST_WITHHELD {
                    return;
                }
                continue;
            }
            books.window.pace_for(PeerId(slot));
            books.counters.datagrams_sent += 1;
            books.transmit(now, slot, (Piece::NONE, size), Content::Datagram(datagram), out);
        }
    }

    /// Something is due in `slot`; ACKs are not sent here, for they may ride.
    fn on_due(&mut self, now: Time, slot: u32, out: &mut impl Out<Self>) {
        let books = &mut self.books;
        let Some(state) = books.session(slot).map(|session| session.state) else { return };
        if books.idle_at(slot) <= now {
            if state == State::Answering {
                // The application has never heard of it.
                books.remove(now, slot);
                books.vacate(slot);
            } else {
                books.finish(slot, Closed::TimedOut);
            }
            return;
        }
        if state != State::Open {
            let attempt = books.session(slot).map(|session| session.attempt);
            if attempt.is_some_and(|attempt| attempt.sent + attempt.wait <= now) {
                books.shake_hands(now, slot, None, out);
            }
            return;
        }
        if books.recovery_due(slot) <= now {
            if books.window.space(PeerId(slot)).loss_time().is_some() {
                books.window.on_loss_time(now, PeerId(slot));
                books.get_in_line(slot);
            } else {
                self.on_probe_timeout(now, slot, out);
            }
        } else if books.keep_alive_at(slot) <= now {
            books.ping(now, slot, out);
        }
    }

    /// The other end has not answered for a probe timeout.
    fn on_probe_timeout(&mut self, now: Time, slot: u32, out: &mut impl Out<Self>) {
        let books = &mut self.books;
        let was_silent = books.is_silent(slot);
        if was_silent {
            books.counters.given_up += 1;
            books.window.give_up(now, PeerId(slot));
        } else {
            books.silent.push((SessionId(slot), true));
        }
        books.window.space_mut(PeerId(slot)).back_off();
        if let Some(session) = books.session_mut(slot) {
            session.waiting_since = now;
        }
        books.probe(now, slot, out);
    }
}

/// Sends a packet of the stream that is first in line; false if the window has no room for it.
fn send_messages<A: Application>(books: &mut Books<A>, now: Time, out: &mut impl Out<FlowSessions<A>>) -> bool {
    let Some(&slot) = books.ready.front() else { return true };
    let piece = books.upcoming(slot).filter(|_| !books.is_silent(slot));
    if let Some(piece) = piece {
        let size = Bytes::new(u64::from(piece.length));
        if !books.window.admits(now, PeerId(slot), size) {
            return false;
        }
        let content = books.take_content(slot, piece);
        books.counters.message_packets_sent += 1;
        books.transmit(now, slot, (piece, size), content, out);
    }
    books.ready.pop_front();
    let has_more = piece.is_some() && books.upcoming(slot).is_some();
    if let Some(session) = books.session_mut(slot) {
        session.is_ready = has_more;
    }
    if has_more {
        books.ready.push_back(slot);
    }
    true
}

impl<A: Application> Machine for FlowSessions<A> {
    type Address = A::Address;
    type Message = Packet<A::Message, A::Datagram>;
    type Event = A::Event;
    type Job = Infallible;
    type Done = Infallible;

    #[inline]
    fn on_message(
        &mut self,
        now: Time,
        arrival: Arrival<A::Address>,
        packet: &mut Packet<A::Message, A::Datagram>,
        out: &mut impl Out<Self>,
    ) {
        if packet.content.is_handshake() {
            match &packet.content {
                Content::Hello(hello) => self.on_hello(now, arrival.from, **hello, out),
                Content::Welcome(welcome) => self.on_welcome(now, arrival.from, packet.to, **welcome, out),
                Content::Refusal => self.books.on_refusal(arrival.from, packet.to),
                _ => self.books.on_reset(arrival.from, packet.to),
            }
        } else {
            self.on_packet(now, arrival, packet, out);
        }
        self.settle(now, out);
        self.pump(now, out);
        self.books.acknowledge(now, packet.to.slot, out);
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<Self>) {
        let mut due = core::mem::take(&mut self.due);
        let is_due = self.books.earliest <= now;
        if is_due {
            self.books.dues.due(now, &mut due);
            for &slot in &due {
                self.on_due(now, slot, out);
            }
        }
        self.books.window.on_controller_timer(now);
        if self.app.timer(now) <= now {
            self.app.on_timer(now, &mut Acting { now, books: &mut self.books, out });
        }
        self.settle(now, out);
        self.pump(now, out);
        if is_due {
            for slot in due.drain(..) {
                self.books.acknowledge(now, slot, out);
                self.books.dues.set(slot, self.books.due(slot));
            }
            self.books.earliest = self.books.dues.earliest();
        }
        self.due = due;
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<Self>) {
        match done {}
    }

    #[inline]
    fn timer(&self, now: Time) -> Time {
        self.books.earliest.min(self.books.window.controller_timer()).min(self.app.timer(now))
    }
}

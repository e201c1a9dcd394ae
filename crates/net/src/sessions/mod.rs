//! Sessions (`anabranch_proto::session`) over QUIC: what carries an application between sockets.
//!
//! - Each session is a connection of noq (RFC 9000), an IO-free machine as ours are. Both ends prove their
//!   keys in its handshake ([`identity`]).
//! - Messages are one unidirectional stream each way ([`stream`]), datagrams those of RFC 9221.
//! - All connections share one window ([`window`]). The application is asked for a datagram when that has room,
//!   and the datagram leaves within the same call: none waits in a connection's queue. What has waited because
//!   the window was full (handshakes, messages, repairs) goes before.
//! - Who begins a session first shows by a Retry that it is where its packets say (RFC 9000, 8.1.2): before,
//!   nothing is remembered of it. Then its network's handshakes are counted ([`admission`]), and those that are
//!   not complete are few and end soon.
//!
//! - A peer that begins again with its key at its address resets the sessions that it had ([`crate::reset`]).
//! - Of a peer that sends more than anybody needs the rest is thrown away unread ([`budget`]).
//!
//! What one peer can have kept here: [`MOST_BACKLOG`](anabranch_proto::session::MOST_BACKLOG) of messages that
//! it does not read, [`RECEIVE_WINDOW`] of a stream with gaps, a message that is not whole, and two buffers of
//! [`DATAGRAM_BUFFER`].

pub mod admission;
mod books;
mod budget;
mod config;
pub mod identity;
pub mod stream;
mod window;
mod wire;

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use anabranch_control::flow::{Bounds, FlowController, Limits};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::machine::{Arrival, Departure};
use anabranch_proto::session::{Closed, PeerKey, Remote, SessionConfig, SessionCounters, SessionId, Sessions};
use bytes::BytesMut;
use noq_proto::{ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Event, FourTuple, Incoming, PathId, StreamEvent};

use crate::endpoint::{Endpoint, Port};

pub use self::books::Traffic;
use self::books::{Books, Stage, reason};
pub use self::config::{DATAGRAM_BUFFER, HANDSHAKE_TIME, LEAST_MTU, PROTOCOL, RECEIVE_WINDOW};
use self::identity::PeerIdentity;
use self::window::Silence;
pub use self::wire::WireApplication;

/// The longest packet that leaves.
const LONGEST_PACKET: usize = LEAST_MTU as usize;

/// What a connection that the window has blocked has to send, which its library does not say: more than any window.
const UNKNOWN: Bytes = Bytes::new(u64::MAX / 2);

/// Ways that are opened between two calls at most.
const MOST_WAYS: usize = 64;

/// What opens a way through a NAT: no packet of QUIC begins so (RFC 9000, 17.2 and 17.3: the fixed bit), and whoever gets it
/// drops it.
const OPENS_WAY: [u8; 1] = [0];

/// Datagrams in a row over sessions on which none may leave, after which an application is asked for no
/// more before the next call.
const MOST_WITHHELD: u32 = 64;

/// All that has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// UDP datagrams, those with nothing but an ACK included.
    pub packets: u64,
    /// Their payload in bytes.
    pub bytes: u64,
}

/// A peer: an application, and its sessions.
#[derive(Debug)]
pub struct QuicSessions<A: WireApplication> {
    app: A,
    books: Books<A>,
    /// A packet as it leaves.
    packet: Vec<u8>,
    silences: Vec<Silence>,
    sent: Sent,
    /// The socket was full; [`Endpoint::on_room`] goes on.
    is_stalled: bool,
}

/// What an application acts on.
#[derive(Debug)]
pub struct Acting<'a, A: WireApplication> {
    now: Time,
    books: &'a mut Books<A>,
}

impl<A: WireApplication> Sessions<A> for Acting<'_, A> {
    fn open(&mut self, to: SocketAddr, key: Option<PeerKey>) -> Option<SessionId> {
        self.books.begin(self.now, to, key)
    }

    fn open_way(&mut self, from: SocketAddr) {
        if self.books.ways.len() < MOST_WAYS {
            self.books.ways.push(from);
        }
    }

    fn send(&mut self, session: SessionId, message: A::Message) {
        self.books.send(self.now, session, |bytes| A::write_message(&message, bytes));
    }

    fn close(&mut self, session: SessionId) {
        if let Some(handle) = self.books.handle_of(session) {
            self.books.close(self.now, handle, config::GOODBYE);
            self.books.vacate(session);
        }
    }

    fn least_round_trip(&self, session: SessionId) -> Option<Duration> {
        let handle = self.books.handle_of(session)?;
        self.books.window.least_round_trip(self.books.connection(handle)?.member)
    }

    fn delivered(&self) -> Bytes {
        self.books.window.totals().1
    }

    fn event(&mut self, event: A::Event) {
        self.books.events.push(event);
    }
}

impl<A: WireApplication> QuicSessions<A> {
    /// `app` and its sessions, none yet, of the peer `identity`, at a socket that is bound to `local`. All sessions share
    /// `controller`; random numbers are functions of `rng`.
    ///
    /// # Errors
    ///
    /// When TLS cannot use the key.
    pub fn new(
        app: A,
        config: SessionConfig,
        identity: &PeerIdentity,
        local: SocketAddr,
        controller: Box<dyn FlowController>,
        rng: &Rng,
    ) -> Result<QuicSessions<A>, rustls::Error> {
        let books = Books::new(config, identity, local, controller, Rng::indexed(rng.numbered(0), "sessions", 0))?;
        Ok(QuicSessions {
            app,
            books,
            packet: Vec::new(),
            silences: Vec::new(),
            sent: Sent::default(),
            is_stalled: false,
        })
    }

    /// The application.
    pub fn app(&self) -> &A {
        &self.app
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

    /// Data in QUIC packets since the beginning: sent, acknowledged, and lost.
    pub fn totals(&self) -> (Bytes, Bytes, Bytes) {
        self.books.window.totals()
    }

    /// All that has left since the beginning.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// How many sessions there are, those that are being opened included.
    pub fn sessions(&self) -> usize {
        self.books.sessions()
    }

    /// Connections that are kept, those that are over and await the last packets of the other end included.
    pub fn connections(&self) -> usize {
        self.books.connections()
    }

    /// The sessions that are open, who is at their other ends, and what has passed over each.
    pub fn open_sessions(&self) -> impl Iterator<Item = (SessionId, Remote<SocketAddr>, Traffic)> {
        self.books.open_sessions()
    }

    /// The least round trip over a session, once there is a sample.
    pub fn least_round_trip(&self, session: SessionId) -> Option<Duration> {
        let handle = self.books.handle_of(session)?;
        self.books.window.least_round_trip(self.books.connection(handle)?.member)
    }

    /// Why the last session was over of which the application was notified.
    pub fn last_end(&self) -> Option<Closed> {
        self.books.last_end
    }

    /// The controller's named values.
    pub fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.books.window.trace(record);
    }

    /// Lets a driver act on the application.
    pub fn act<R>(
        &mut self,
        now: Time,
        port: &mut Port<'_, QuicSessions<A>>,
        act: impl FnOnce(&mut A, &mut Acting<'_, A>) -> R,
    ) -> R {
        let result = act(&mut self.app, &mut Acting { now, books: &mut self.books });
        self.settle(now, port);
        result
    }

    /// Ends all sessions; the other ends are notified.
    pub fn close_all(&mut self, now: Time, port: &mut Port<'_, QuicSessions<A>>) {
        for handle in self.books.handles() {
            self.books.close(now, handle, config::GOODBYE);
        }
        self.settle(now, port);
    }

    /// Somebody at an address that is proved, or not yet, asks for a session.
    fn on_incoming(&mut self, now: Time, incoming: Incoming, port: &mut Port<'_, QuicSessions<A>>) {
        self.packet.clear();
        let answer = if incoming.remote_address_validated() {
            let remote = incoming.remote_address();
            if self.books.admits(now, remote.ip()) {
                self.books.admit(now, incoming, &mut self.packet)
            } else {
                self.books.counters.refused += 1;
                Some(self.books.endpoint.refuse(incoming, &mut self.packet))
            }
        } else if incoming.may_retry() {
            self.books.endpoint.retry(incoming, &mut self.packet).ok()
        } else {
            self.books.endpoint.ignore(incoming);
            None
        };
        if let Some(transmit) = answer {
            self.sent.send(&transmit, &self.packet, port);
        }
    }

    /// Hands on what a connection has to tell.
    fn process(&mut self, now: Time, handle: ConnectionHandle) {
        let Some(connection) = self.books.connection(handle) else { return };
        let mean = connection.quic.rtt(PathId::ZERO).map(config::ours);
        self.books.window.report(now, connection.member, mean);
        self.books.set_dirty(handle);
        while let Some(event) = self.books.connection_mut(handle).and_then(|connection| connection.quic.poll()) {
            match event {
                Event::Connected => self.on_connected(now, handle),
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    self.books.accept_stream(handle);
                    self.read(now, handle);
                }
                Event::Stream(StreamEvent::Readable { .. }) => self.read(now, handle),
                Event::Stream(StreamEvent::Writable { .. }) => self.books.write(handle),
                Event::Stream(StreamEvent::Stopped { .. } | StreamEvent::Finished { .. }) => {
                    self.books.finish(now, handle, Closed::Misused);
                }
                Event::DatagramReceived => self.take_datagrams(now, handle),
                Event::ConnectionLost { reason: lost } => {
                    let is_open = self.books.connection(handle).is_some_and(|one| one.stage == Stage::Open);
                    self.books.finish(now, handle, reason(&lost, is_open));
                }
                _ => {}
            }
        }
        self.books.run_endpoint_events(handle);
        self.notify_closed(now);
    }

    fn on_connected(&mut self, now: Time, handle: ConnectionHandle) {
        let Some((remote, session)) = self.books.on_connected(handle) else { return };
        let session = match session {
            Some(session) => session,
            None => {
                let has_room = self.books.sessions() < self.books.config.most_sessions;
                if !has_room || !self.app.accepts(now, &remote) {
                    self.books.counters.refused += 1;
                    return self.books.close(now, handle, config::REFUSED);
                }
                self.books.accepted(now, &remote);
                self.books.seat(handle)
            }
        };
        self.books.open(handle);
        self.notify_open(now, session, &remote);
    }

    fn notify_open(&mut self, now: Time, session: SessionId, remote: &Remote<SocketAddr>) {
        self.app.on_open(now, session, remote, &mut Acting { now, books: &mut self.books });
    }

    /// Takes all datagrams that have come over a connection.
    fn take_datagrams(&mut self, now: Time, handle: ConnectionHandle) {
        while let Some((session, bytes)) = self.books.take_datagram(handle) {
            match A::read_datagram(&bytes) {
                Ok(datagram) => {
                    self.books.counters.datagrams_received += 1;
                    self.app.on_datagram(now, session, datagram, &mut Acting { now, books: &mut self.books });
                }
                Err(_) => {
                    self.books.counters.untrue += 1;
                    self.books.finish(now, handle, Closed::Misused);
                }
            }
        }
    }

    /// Reads what has come of a stream, and hands on the messages that are whole.
    fn read(&mut self, now: Time, handle: ConnectionHandle) {
        while self.books.read_chunk(handle) {
            loop {
                let message = match self.books.next_message(handle) {
                    None => break,
                    Some(Ok((session, bytes))) => A::read_message(bytes).map(|message| (session, message)),
                    Some(Err(error)) => Err(error),
                };
                match message {
                    Ok((session, message)) => {
                        self.books.counters.messages_received += 1;
                        self.app.on_message(now, session, message, &mut Acting { now, books: &mut self.books });
                    }
                    Err(_) => {
                        self.books.counters.untrue += 1;
                        return self.books.finish(now, handle, Closed::Misused);
                    }
                }
            }
        }
    }

    /// Notifies the application of sessions that are over without it knowing.
    fn notify_closed(&mut self, now: Time) {
        while let Some((session, why)) = self.books.over.pop_front() {
            self.app.on_closed(now, session, why, &mut Acting { now, books: &mut self.books });
            self.books.vacate(session);
        }
    }

    fn notify_silences(&mut self, now: Time) {
        let mut silences = std::mem::take(&mut self.silences);
        self.books.window.poll(now, &mut silences);
        for Silence { member, has_begun } in silences.drain(..) {
            if let Some(session) = self.books.open_session_of(member) {
                self.app.on_silent(now, session, has_begun, &mut Acting { now, books: &mut self.books });
            }
        }
        self.silences = silences;
    }

    /// Sends what is to be sent: what connections have to say, then datagrams as long as the window has room.
    fn settle(&mut self, now: Time, port: &mut Port<'_, QuicSessions<A>>) {
        self.notify_silences(now);
        self.notify_closed(now);
        self.is_stalled = false;
        for way in std::mem::take(&mut self.books.ways) {
            if port.has_room(LONGEST_PACKET) {
                self.sent.send_to(way, &OPENS_WAY, port);
            }
        }
        let (mut withheld, mut waiting) = (0, self.books.blocked());
        loop {
            if !port.has_room(LONGEST_PACKET) {
                self.is_stalled = true;
                break;
            }
            if let Some(handle) = self.books.next_dirty() {
                self.transmit(now, handle, port);
                continue;
            }
            let held = if self.books.blocked() > 0 { UNKNOWN } else { self.app.waiting() };
            if !self.books.window.has_room(now, Bytes::new(LONGEST_PACKET as u64), held) {
                break;
            }
            // Each once: what one needs may be more than there is room for.
            if waiting > 0 {
                waiting -= 1;
                self.books.wake_blocked();
                continue;
            }
            let Some((session, datagram)) = self.app.next_datagram(now) else {
                self.books.window.set_app_limited();
                break;
            };
            match self.books.give_datagram(session, |bytes| A::write_datagram(&datagram, bytes)) {
                Some(handle) => self.transmit(now, handle, port),
                None => {
                    withheld += 1;
                    if withheld == MOST_WITHHELD {
                        break;
                    }
                }
            }
        }
        self.notify_closed(now);
        for event in self.books.events.drain(..) {
            port.emit(event);
        }
    }

    /// Sends what a connection has to send and the window allows.
    fn transmit(&mut self, now: Time, handle: ConnectionHandle, port: &mut Port<'_, QuicSessions<A>>) {
        let instant = self.books.instant(now);
        let mut is_done = false;
        while !is_done && port.has_room(LONGEST_PACKET) {
            self.packet.clear();
            let Some(connection) = self.books.connection_mut(handle) else { return };
            match connection.quic.poll_transmit(instant, NonZeroUsize::MIN, &mut self.packet) {
                Some(transmit) => self.sent.send(&transmit, &self.packet, port),
                None => is_done = true,
            }
        }
        self.books.on_transmitted(handle);
        if !is_done {
            self.books.set_dirty(handle);
        }
    }
}

impl Sent {
    /// A packet leaves.
    fn send<A: WireApplication>(
        &mut self,
        transmit: &noq_proto::Transmit,
        packet: &[u8],
        port: &mut Port<'_, QuicSessions<A>>,
    ) {
        port.at = transmit.src_ip;
        self.send_to(transmit.destination, packet, port);
    }

    /// Bytes leave for an address.
    fn send_to<A: WireApplication>(&mut self, to: SocketAddr, packet: &[u8], port: &mut Port<'_, QuicSessions<A>>) {
        self.packets += 1;
        self.bytes += packet.len() as u64;
        let departure = Departure::now(to, packet.len() as u32);
        port.send(departure, packet.len(), |room| room.copy_from_slice(packet));
    }
}

impl<A: WireApplication> Endpoint for QuicSessions<A> {
    type Inbox = ();
    /// QUIC's library does not say why it drops a packet.
    type Unreadable = ();
    type Event = A::Event;
    type Job = core::convert::Infallible;
    type Done = core::convert::Infallible;

    fn on_datagram(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        bytes: &[u8],
        (): &mut (),
        port: &mut Port<'_, QuicSessions<A>>,
    ) {
        // A socket of IPv6 says where IPv4 packets come from in its own way.
        let from = SocketAddr::new(arrival.from.ip().to_canonical(), arrival.from.port());
        let path = FourTuple::new(from, arrival.at.map(|at| at.ip().to_canonical()));
        let ecn = arrival.marked.then_some(EcnCodepoint::Ce);
        self.packet.clear();
        let instant = self.books.instant(now);
        match self.books.endpoint.handle(instant, path, ecn, BytesMut::from(bytes), &mut self.packet) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if self.books.is_flooded(now, handle) {
                    self.books.counters.dropped += 1;
                } else if let Some(connection) = self.books.connection_mut(handle) {
                    connection.quic.handle_event(event);
                    self.process(now, handle);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.on_incoming(now, incoming, port),
            Some(DatagramEvent::Response(transmit)) => {
                self.books.counters.stray += 1;
                self.sent.send(&transmit, &self.packet, port);
            }
            None => {}
        }
    }

    fn on_timer(&mut self, now: Time, port: &mut Port<'_, QuicSessions<A>>) {
        let instant = self.books.instant(now);
        while let Some(handle) = self.books.next_due(now) {
            if let Some(connection) = self.books.connection_mut(handle) {
                connection.quic.handle_timeout(instant);
                self.process(now, handle);
            }
        }
        for handle in self.books.overdue_handshakes(now) {
            self.books.finish(now, handle, Closed::TimedOut);
        }
        self.notify_silences(now);
        self.notify_closed(now);
        if self.app.timer(now) <= now {
            self.app.on_timer(now, &mut Acting { now, books: &mut self.books });
        }
        self.settle(now, port);
    }

    fn on_room(&mut self, now: Time, port: &mut Port<'_, QuicSessions<A>>) {
        self.settle(now, port);
    }

    fn on_done(&mut self, _: Time, done: core::convert::Infallible, _: &mut Port<'_, QuicSessions<A>>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        if self.books.has_dirty() && !self.is_stalled {
            return now;
        }
        self.books.timer().min(self.app.timer(now))
    }
}

#[cfg(test)]
mod tests;

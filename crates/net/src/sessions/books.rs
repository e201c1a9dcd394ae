//! What a peer knows of its connections.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use anabranch_control::flow::FlowController;
use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_proto::codec::CodecError;
use anabranch_proto::session::{Closed, PeerKey, Remote, SessionConfig, SessionCounters, SessionId};
use bytes::Bytes;
use noq_proto::{
    ClientConfig, Connection as Quic, ConnectionError, ConnectionHandle, Dir, Incoming, SendDatagramError, StreamId,
    Transmit, TransportErrorCode, VarInt,
};
use rustls::pki_types::CertificateDer;

use super::admission::Admission;
use super::budget::Budget;
use super::config::{self, HANDSHAKE_TIME};
use super::identity::{self, PeerIdentity};
use super::stream::{Inbound, Outbound};
use super::window::SharedWindow;
use super::wire::WireApplication;
use crate::reset::endpoint_config;

/// What is free of an empty buffer of datagrams, at least.
const MOST_SPACE: usize = config::DATAGRAM_BUFFER - 256;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its handshake goes on, and this end has begun it or not.
    Handshake { is_ours: bool },
    /// It stands.
    Open,
    /// It is over, and stays until the other end's last packets have come.
    Over,
}

/// Datagrams of a session, without QUIC's headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that have come.
    pub received_bytes: u64,
    /// Bytes that have left.
    pub sent_bytes: u64,
    /// Datagrams that were longer than the path carries, and did not leave.
    pub too_long: u64,
    /// UDP payload that the path carries, as far as is known.
    pub mtu: u16,
}

/// A connection, and the session over it.
#[derive(Debug)]
pub struct Connection {
    pub quic: Quic,
    /// Whose the window's share is.
    pub member: u32,
    pub stage: Stage,
    remote: Remote<SocketAddr>,
    session: Option<SessionId>,
    traffic: Traffic,
    budget: Budget,
    outbound: Outbound,
    inbound: Inbound,
    sending: Option<StreamId>,
    receiving: Option<StreamId>,
    /// When its timer is set to.
    due: Time,
    /// When its handshake must be over.
    deadline: Time,
    /// It was begun here, its session is over, and it is kept until the other end must have heard (RFC 9000, 10.2).
    is_ending: bool,
    is_dirty: bool,
    is_blocked: bool,
}

/// Connections that this end began and whose sessions are over, at most, when it begins another one: each is kept for three probe timeouts,
/// of a second each where nobody has answered, and takes some 50 kB.
const MOST_ENDING: usize = 256;

/// All but the application.
pub struct Books<A: WireApplication> {
    pub config: SessionConfig,
    pub endpoint: noq_proto::Endpoint,
    pub window: SharedWindow,
    pub counters: SessionCounters,
    pub events: Vec<A::Event>,
    /// Sessions that are over without the application knowing.
    pub over: VecDeque<(SessionId, Closed)>,
    /// Why the last session was over of which the application was notified.
    pub last_end: Option<Closed>,
    /// From where NATs are to let something in.
    pub ways: Vec<SocketAddr>,
    began: Instant,
    client: ClientConfig,
    admission: Admission,
    /// By QUIC's handle.
    connections: Vec<Option<Box<Connection>>>,
    /// By session; none of one that is over, or whose number is free.
    sessions: Vec<Option<ConnectionHandle>>,
    free: Vec<SessionId>,
    /// By the window's member.
    members: Vec<Option<ConnectionHandle>>,
    /// Handshakes, the ones that must be over first in front.
    handshakes: BTreeSet<(Time, usize)>,
    /// Handshakes that others have begun.
    half_open: usize,
    /// Connections begun here that are kept although their sessions are over.
    ending: usize,
    dues: BTreeSet<(Time, usize)>,
    /// Connections that may have something to send.
    dirty: VecDeque<ConnectionHandle>,
    /// Connections that the window did not let send, in turn.
    blocked: VecDeque<ConnectionHandle>,
}

impl<A: WireApplication> fmt::Debug for Books<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Books({} sessions)", self.sessions())
    }
}

/// Why a connection is over, as the application is notified.
pub fn reason(error: &ConnectionError, is_open: bool) -> Closed {
    match error {
        ConnectionError::TimedOut => Closed::TimedOut,
        ConnectionError::ApplicationClosed(close) if close.error_code == config::REFUSED => Closed::Refused,
        ConnectionError::ConnectionClosed(close) if close.error_code == TransportErrorCode::CONNECTION_REFUSED => {
            Closed::Refused
        }
        ConnectionError::ApplicationClosed(_) | ConnectionError::Reset => Closed::ByPeer,
        ConnectionError::ConnectionClosed(_) if is_open => Closed::ByPeer,
        ConnectionError::TransportError(_) if is_open => Closed::Misused,
        _ => Closed::Refused,
    }
}

impl<A: WireApplication> Books<A> {
    pub fn new(
        config: SessionConfig,
        identity: &PeerIdentity,
        local: SocketAddr,
        controller: Box<dyn FlowController>,
        rng: Rng,
    ) -> Result<Books<A>, rustls::Error> {
        let began = Instant::now();
        let window = SharedWindow::new(&config, controller, rng, began);
        let (client, server) = config::configs(&config, identity, &window)?;
        let endpoint = endpoint_config(identity.secret(), local);
        let endpoint = noq_proto::Endpoint::new(Arc::new(endpoint), Some(Arc::new(server)), true);
        Ok(Books {
            config,
            endpoint,
            window,
            counters: SessionCounters::default(),
            events: Vec::new(),
            over: VecDeque::new(),
            last_end: None,
            ways: Vec::new(),
            began,
            client,
            admission: Admission::default(),
            connections: Vec::new(),
            sessions: Vec::new(),
            free: Vec::new(),
            members: Vec::new(),
            handshakes: BTreeSet::new(),
            half_open: 0,
            ending: 0,
            dues: BTreeSet::new(),
            dirty: VecDeque::new(),
            blocked: VecDeque::new(),
        })
    }

    /// Our time as the library's.
    pub fn instant(&self, now: Time) -> Instant {
        self.began + std::time::Duration::from_nanos(now.as_nanos())
    }

    fn time(&self, at: Instant) -> Time {
        let since = at.saturating_duration_since(self.began);
        Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    pub fn connection(&self, handle: ConnectionHandle) -> Option<&Connection> {
        self.connections.get(handle.0)?.as_deref()
    }

    pub fn connection_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        self.connections.get_mut(handle.0)?.as_deref_mut()
    }

    /// A packet of a connection has come: whether it is one too many to read it.
    pub fn is_flooded(&mut self, now: Time, handle: ConnectionHandle) -> bool {
        let most = self.config.most_packets_per_s;
        self.connection_mut(handle).is_some_and(|connection| !connection.budget.admit(now, most))
    }

    pub fn handle_of(&self, session: SessionId) -> Option<ConnectionHandle> {
        *self.sessions.get(session.index())?
    }

    /// Sessions, those that are being opened from here included.
    pub fn sessions(&self) -> usize {
        self.sessions.len() - self.free.len()
    }

    pub fn connections(&self) -> usize {
        self.connections.iter().flatten().count()
    }

    pub fn handles(&self) -> Vec<ConnectionHandle> {
        (0..self.connections.len()).filter(|&place| self.connections[place].is_some()).map(ConnectionHandle).collect()
    }

    /// The session over the connection of the window's `member`, if it is open.
    pub fn open_session_of(&self, member: u32) -> Option<SessionId> {
        let handle = (*self.members.get(member as usize)?)?;
        let connection = self.connection(handle)?;
        connection.session.filter(|_| connection.stage == Stage::Open)
    }

    /// The sessions that are open, who is at their other ends, and what has passed.
    pub fn open_sessions(&self) -> impl Iterator<Item = (SessionId, Remote<SocketAddr>, Traffic)> {
        let open = self.connections.iter().flatten().filter(|connection| connection.stage == Stage::Open);
        open.filter_map(|connection| {
            let traffic = Traffic { mtu: connection.quic.current_mtu(), ..connection.traffic };
            Some((connection.session?, connection.remote, traffic))
        })
    }

    /// Whether another handshake may begin, of somebody who has proved to be at `address`.
    pub fn admits(&mut self, now: Time, address: IpAddr) -> bool {
        self.half_open < self.config.most_half_open
            && self.sessions() + self.half_open < self.config.most_sessions
            && self.admission.admit(now, address)
    }

    /// The application has accepted one whose handshake was admitted.
    pub fn accepted(&mut self, now: Time, remote: &Remote<SocketAddr>) {
        if self.config.knows_who_comes {
            self.admission.spare(now, remote.address.ip(), remote.key);
        }
    }

    /// A connection that others have begun; what leaves at once if it does not come about.
    pub fn admit(&mut self, now: Time, incoming: Incoming, packet: &mut Vec<u8>) -> Option<Transmit> {
        let address = incoming.remote_address();
        let instant = self.instant(now);
        match self.endpoint.accept(incoming, instant, packet, None) {
            Ok((handle, quic)) => {
                let remote = Remote { address, key: PeerKey::default(), is_initiator: true };
                self.half_open += 1;
                self.add(now, handle, quic, remote, Stage::Handshake { is_ours: false });
                None
            }
            Err(error) => {
                self.counters.untrue += 1;
                error.response
            }
        }
    }

    /// Begins a session.
    pub fn begin(&mut self, now: Time, to: SocketAddr, key: Option<PeerKey>) -> Option<SessionId> {
        if self.sessions() + self.half_open >= self.config.most_sessions || self.ending >= MOST_ENDING {
            return None;
        }
        let name = identity::server_name(key.as_ref());
        let instant = self.instant(now);
        let (handle, quic) = self.endpoint.connect(instant, self.client.clone(), to, &name).ok()?;
        let remote = Remote { address: to, key: key.unwrap_or_default(), is_initiator: false };
        self.add(now, handle, quic, remote, Stage::Handshake { is_ours: true });
        Some(self.seat(handle))
    }

    fn add(&mut self, now: Time, handle: ConnectionHandle, quic: Quic, remote: Remote<SocketAddr>, stage: Stage) {
        let member = self.window.take_newest().expect("a connection that begins takes a share of the window");
        if self.members.len() <= member as usize {
            self.members.resize(member as usize + 1, None);
        }
        self.members[member as usize] = Some(handle);
        if self.connections.len() <= handle.0 {
            self.connections.resize_with(handle.0 + 1, || None);
        }
        let deadline = now + HANDSHAKE_TIME;
        self.handshakes.insert((deadline, handle.0));
        self.connections[handle.0] = Some(Box::new(Connection {
            quic,
            member,
            stage,
            remote,
            session: None,
            traffic: Traffic::default(),
            budget: Budget::default(),
            outbound: Outbound::default(),
            inbound: Inbound::default(),
            sending: None,
            receiving: None,
            due: Time::MAX,
            deadline,
            is_ending: false,
            is_dirty: false,
            is_blocked: false,
        }));
        self.set_dirty(handle);
    }

    /// A number for the session over a connection.
    pub fn seat(&mut self, handle: ConnectionHandle) -> SessionId {
        let session = self.free.pop().unwrap_or_else(|| {
            self.sessions.push(None);
            SessionId(self.sessions.len() as u32 - 1)
        });
        self.sessions[session.index()] = Some(handle);
        if let Some(connection) = self.connection_mut(handle) {
            connection.session = Some(session);
        }
        session
    }

    /// The application knows that a session is over.
    pub fn vacate(&mut self, session: SessionId) {
        self.sessions[session.index()] = None;
        self.free.push(session);
    }

    /// Both ends have proved who they are: who it is, and the session if this end has asked for it.
    pub fn on_connected(&mut self, handle: ConnectionHandle) -> Option<(Remote<SocketAddr>, Option<SessionId>)> {
        self.end_handshake(handle);
        let connection = self.connection_mut(handle)?;
        let shown = connection.quic.crypto_session().peer_identity()?;
        let shown = shown.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        connection.remote.key = identity::key_of(shown.first()?)?;
        Some((connection.remote, connection.session))
    }

    /// The session stands.
    pub fn open(&mut self, handle: ConnectionHandle) {
        if let Some(connection) = self.connection_mut(handle) {
            connection.stage = Stage::Open;
            connection.sending = connection.quic.streams().open(Dir::Uni);
            let member = connection.member;
            self.window.set_established(member);
        }
        self.write(handle);
    }

    fn end_handshake(&mut self, handle: ConnectionHandle) {
        let Some(connection) = self.connection(handle) else { return };
        let (stage, deadline) = (connection.stage, connection.deadline);
        self.handshakes.remove(&(deadline, handle.0));
        if stage == (Stage::Handshake { is_ours: false }) {
            self.half_open -= 1;
        }
        if let Some(connection) = self.connection_mut(handle) {
            // Whatever comes next, it is none of the handshakes that are counted.
            connection.stage = Stage::Handshake { is_ours: true };
        }
    }

    /// Handshakes whose time is over.
    pub fn overdue_handshakes(&self, now: Time) -> Vec<ConnectionHandle> {
        self.handshakes
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .map(|&(_, at)| ConnectionHandle(at))
            .collect()
    }

    /// This end is done with a connection, for the reason in `code`.
    pub fn close(&mut self, now: Time, handle: ConnectionHandle, code: VarInt) {
        self.end_handshake(handle);
        let instant = self.instant(now);
        let Some(connection) = self.connection_mut(handle) else { return };
        connection.stage = Stage::Over;
        // What others begin and end must not keep this end from beginning sessions.
        let is_counted = !connection.remote.is_initiator && !std::mem::replace(&mut connection.is_ending, true);
        connection.session = None;
        connection.quic.close(instant, code, Bytes::new());
        (connection.outbound, connection.inbound) = Default::default();
        let member = connection.member;
        self.ending += usize::from(is_counted);
        self.window.end(member);
        self.set_dirty(handle);
    }

    /// A session is over, and the application is to be notified.
    pub fn finish(&mut self, now: Time, handle: ConnectionHandle, why: Closed) {
        let Some(session) = self.connection(handle).map(|connection| connection.session) else { return };
        if let Some(session) = session {
            self.last_end = Some(why);
            self.over.push_back((session, why));
            // Its number stays taken until the application knows.
            self.sessions[session.index()] = None;
        }
        let code = if why == Closed::Misused { config::MISUSED } else { config::GOODBYE };
        self.close(now, handle, code);
    }

    /// Sends the message that `write` writes.
    pub fn send(&mut self, now: Time, session: SessionId, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(handle) = self.handle_of(session) else { return };
        let Some(connection) = self.connection_mut(handle) else { return };
        if connection.outbound.push(write) {
            self.write(handle);
        } else {
            self.finish(now, handle, Closed::Misused);
        }
    }

    /// Hands messages to QUIC, as many as it takes.
    pub fn write(&mut self, handle: ConnectionHandle) {
        let Some(connection) = self.connection_mut(handle) else { return };
        let Some(stream) = connection.sending else { return };
        while !connection.outbound.next().is_empty() {
            match connection.quic.send_stream(stream).write(connection.outbound.next()) {
                Ok(count) if count > 0 => connection.outbound.take(count),
                _ => break,
            }
        }
        self.set_dirty(handle);
    }

    /// The other end's stream has begun.
    pub fn accept_stream(&mut self, handle: ConnectionHandle) {
        if let Some(connection) = self.connection_mut(handle) {
            connection.receiving = connection.quic.streams().accept(Dir::Uni).or(connection.receiving);
        }
    }

    /// Reads more of the other end's stream; false if there is nothing more now.
    pub fn read_chunk(&mut self, handle: ConnectionHandle) -> bool {
        let Some(connection) = self.connection_mut(handle) else { return false };
        let Some(stream) = connection.receiving.filter(|_| connection.stage == Stage::Open) else { return false };
        let mut receiving = connection.quic.recv_stream(stream);
        let Ok(mut chunks) = receiving.read(true) else { return false };
        let chunk = chunks.next(usize::MAX);
        // What was read makes room for more, which the other end is granted with the next packet.
        let _ = chunks.finalize();
        match chunk {
            Ok(Some(chunk)) => {
                connection.inbound.push(&chunk.bytes);
                true
            }
            _ => false,
        }
    }

    /// The next message that has come whole.
    pub fn next_message(&mut self, handle: ConnectionHandle) -> Option<Result<(SessionId, &[u8]), CodecError>> {
        let connection = self.connections.get_mut(handle.0)?.as_deref_mut()?;
        let session = connection.session?;
        let message = connection.inbound.next_message().map_err(|_| CodecError::TooMany("message"));
        message.transpose().map(|message| message.map(|bytes| (session, bytes)))
    }

    /// The next datagram that has come.
    pub fn take_datagram(&mut self, handle: ConnectionHandle) -> Option<(SessionId, Bytes)> {
        let connection = self.connection_mut(handle)?;
        let session = connection.session.filter(|_| connection.stage == Stage::Open)?;
        let bytes = connection.quic.datagrams().recv()?;
        connection.traffic.received_bytes += bytes.len() as u64;
        Some((session, bytes))
    }

    /// Gives a session the datagram that `write` writes; none if none may leave over it, or not this one.
    pub fn give_datagram(&mut self, session: SessionId, write: impl FnOnce(&mut Vec<u8>)) -> Option<ConnectionHandle> {
        let (window, withholds) = (self.window.clone(), !self.config.datagrams_to_silent);
        let given = self.handle_of(session).filter(|&handle| {
            let Some(connection) = self.connection_mut(handle) else { return false };
            if connection.stage != Stage::Open || withholds && window.is_silent(connection.member) {
                return false;
            }
            // One that QUIC has not sent yet waits for more than the window.
            if connection.quic.datagrams().send_buffer_space() < MOST_SPACE {
                return false;
            }
            let mut bytes = Vec::with_capacity(usize::from(config::LEAST_MTU));
            write(&mut bytes);
            let length = bytes.len() as u64;
            let sent = connection.quic.datagrams().send(Bytes::from(bytes), true);
            connection.traffic.sent_bytes += if sent.is_ok() { length } else { 0 };
            connection.traffic.too_long += u64::from(sent == Err(SendDatagramError::TooLarge));
            sent.is_ok()
        });
        match given {
            Some(_) => self.counters.datagrams_sent += 1,
            None => self.counters.datagrams_withheld += 1,
        }
        given
    }

    /// Tells QUIC's endpoint what a connection wants of it; a connection of which nothing is left goes.
    pub fn run_endpoint_events(&mut self, handle: ConnectionHandle) {
        let Some(connection) = self.connections.get_mut(handle.0).and_then(Option::as_deref_mut) else { return };
        while let Some(event) = connection.quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(handle, event) {
                connection.quic.handle_event(event);
            }
        }
        if connection.quic.is_drained() {
            let (due, member, session) = (connection.due, connection.member, connection.session);
            self.ending -= usize::from(connection.is_ending);
            self.end_handshake(handle);
            if let Some(session) = session {
                self.sessions[session.index()] = None;
                self.over.push_back((session, Closed::TimedOut));
            }
            self.dues.remove(&(due, handle.0));
            self.members[member as usize] = None;
            self.connections[handle.0] = None;
        }
    }

    pub fn set_dirty(&mut self, handle: ConnectionHandle) {
        if let Some(connection) = self.connection_mut(handle)
            && !std::mem::replace(&mut connection.is_dirty, true)
        {
            self.dirty.push_back(handle);
        }
    }

    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.over.is_empty()
    }

    pub fn next_dirty(&mut self) -> Option<ConnectionHandle> {
        loop {
            let handle = self.dirty.pop_front()?;
            if self.connection(handle).is_some() {
                return Some(handle);
            }
        }
    }

    /// How many connections wait for the window.
    pub fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// The connection that has waited longest for the window sends next.
    pub fn wake_blocked(&mut self) {
        if let Some(handle) = self.blocked.pop_front()
            && let Some(connection) = self.connection_mut(handle)
        {
            connection.is_blocked = false;
            self.set_dirty(handle);
        }
    }

    /// A connection has sent what it may.
    pub fn on_transmitted(&mut self, handle: ConnectionHandle) {
        let Some(connection) = self.connection_mut(handle) else { return };
        connection.is_dirty = false;
        let member = connection.member;
        let timeout = connection.quic.poll_timeout();
        if self.window.take_blocked(member)
            && let Some(connection) = self.connection_mut(handle)
            && !std::mem::replace(&mut connection.is_blocked, true)
        {
            self.blocked.push_back(handle);
        }
        let due = timeout.map_or(Time::MAX, |at| self.time(at));
        let Some(connection) = self.connection_mut(handle) else { return };
        let before = std::mem::replace(&mut connection.due, due);
        if before != due {
            self.dues.remove(&(before, handle.0));
            if due < Time::MAX {
                self.dues.insert((due, handle.0));
            }
        }
        self.run_endpoint_events(handle);
    }

    /// A connection whose timer has come.
    pub fn next_due(&mut self, now: Time) -> Option<ConnectionHandle> {
        let &(due, place) = self.dues.first()?;
        if due > now {
            return None;
        }
        self.dues.pop_first();
        let handle = ConnectionHandle(place);
        if let Some(connection) = self.connection_mut(handle) {
            connection.due = Time::MAX;
        }
        Some(handle)
    }

    /// When something is due by time.
    pub fn timer(&self) -> Time {
        let first = |set: &BTreeSet<(Time, usize)>| set.first().map_or(Time::MAX, |&(due, _)| due);
        first(&self.dues).min(first(&self.handshakes)).min(self.window.timer())
    }
}

//! What a peer knows of its sessions, and what leaves over them.

use std::collections::VecDeque;

use anabranch_control::flow::{Bounds, FlowController, PeerId};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;

use super::dues::Dues;
use super::packet::{AckRequest, ConnectionId, Content, Packet};
use super::stream::{Inbound, Outbound};
use super::{Application, Closed, PeerKey, Remote, SessionId};
use crate::flow::acknowledger::{Acknowledger, asked_ack_delay};
use crate::flow::answer::Piece;
use crate::flow::shared_window::SharedWindow;
use crate::flow::{AckForm, AckPolicy, LossRecovery, SenderConfig, TcpOptions};
use crate::machine::Departure;

/// Takes the packets that leave.
pub(super) trait PacketOut<A: Application> {
    /// `packet` leaves.
    fn send(&mut self, departure: Departure<A::Address>, packet: &Packet<A::Message, A::Datagram>);
}

/// What is settled before a peer's first session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// The most data in a packet: no datagram is longer.
    pub packet: Bytes,
    /// When what arrives is acknowledged.
    pub ack: AckPolicy,
    /// Spread a window over the round trip where the controller sets no rate.
    pub paced: bool,
    /// Let queues mark packets in place of dropping them.
    pub ecn: bool,
    /// How long a session lives without a packet from the other end; three probe timeouts at
    /// least (RFC 9000, 10.1).
    pub idle_timeout: Duration,
    /// How long after the last packet from the other end it is asked whether it is there (RFC 9000,
    /// 10.1.2).
    pub keep_alive: Duration,
    /// Sessions at one time, those that are being opened included.
    pub most_sessions: usize,
    /// Sessions at one time that others have begun and not confirmed.
    pub most_half_open: usize,
    /// Whether the application knows by their keys who may come: handshakes of those that it accepts are then no burden
    /// on their network's share, where networks have one.
    pub knows_who_comes: bool,
    /// Whether datagrams leave for a receiver that is silent, too. They are wasted on one that is gone, so that who has
    /// many of them for many receivers withholds them. Where each says all that counts, and few are sent, the first one
    /// that arrives again is worth more than what the others cost.
    pub datagrams_to_silent: bool,
    /// No window is smaller, whatever the controller says, for an application that bounds by itself what it sends.
    pub least_window: Bytes,
    /// Packets a second of one peer that are read, where reading them costs time.
    pub most_packets_per_s: u32,
}

impl SessionConfig {
    /// Each tenth packet is acknowledged: a tenth of the packets is what a fast flow's ACKs should
    /// cost (draft-ietf-quic-ack-frequency, 3), and what a controller needs is one a round trip.
    pub const ACK_EVERY: u32 = 10;

    /// No packet waits longer for its ACK: RFC 9000's own bound (18.2). Where receivers get few
    /// packets each, it and not the tenth packet decides, and what waits counts against the window
    /// that all share. Longer was measured, and is worse (docs/streams.md).
    pub const ACK_DELAY: Duration = Duration::from_millis(25);

    /// Ethernet's 1500 B less UDP's and IP's headers and those of a QUIC packet with an ACK: room for
    /// seven packets of an MPEG transport stream (1316 B) and what describes them.
    pub const PACKET: Bytes = Bytes::new(1400);
}

impl SessionConfig {
    /// What the controller's window keeps to from the beginning.
    pub fn bounds(&self) -> Bounds {
        Bounds { minimum: (self.least_window > Bytes::ZERO).then_some(self.least_window), ..Bounds::default() }
    }
}

impl Default for SessionConfig {
    fn default() -> SessionConfig {
        SessionConfig {
            packet: SessionConfig::PACKET,
            ack: AckPolicy {
                every: SessionConfig::ACK_EVERY,
                max_delay: SessionConfig::ACK_DELAY,
                form: AckForm::Ranges,
                filled_gap: false,
            },
            paced: false,
            ecn: false,
            // RFC 9308, 3.2: NATs forget UDP's bindings after 30 s; RFC 8085, 3.5, asks each 15 s at
            // most.
            idle_timeout: Duration::from_millis(30_000),
            keep_alive: Duration::from_millis(15_000),
            most_sessions: 4096,
            most_half_open: 64,
            knows_who_comes: false,
            datagrams_to_silent: false,
            least_window: Bytes::ZERO,
            // More than 200 Mbit/s of video, and a tenth of what a core reads.
            most_packets_per_s: 20_000,
        }
    }
}

/// What a peer's sessions have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Datagrams that have left.
    pub datagrams_sent: u64,
    /// Datagrams that have arrived.
    pub datagrams_received: u64,
    /// Datagrams that the application gave for a session over which none may leave, or that were too
    /// long.
    pub datagrams_withheld: u64,
    /// Packets with messages that have left, those sent again included.
    pub message_packets_sent: u64,
    /// Messages that were given to the application.
    pub messages_received: u64,
    /// Packets with nothing but an ACK.
    pub acks_alone: u64,
    /// ACKs that left with something else.
    pub acks_riding: u64,
    /// Packets for sessions that are not there.
    pub stray: u64,
    /// Packets that were thrown away unread, for their peer sends too many.
    pub dropped: u64,
    /// Packets that no honest peer sends.
    pub untrue: u64,
    /// Sessions that were refused to others.
    pub refused: u64,
    /// Times at which what was in flight to a silent receiver was given up.
    pub given_up: u64,
}

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The other end has been asked, and must have this key if one is given.
    Asking(Option<PeerKey>),
    /// The other end has asked, and must show that it has got the answer.
    Answering,
    /// It stands.
    Open,
}

/// The last packet of a handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub number: u32,
    pub sent: Time,
    pub wait: Duration,
}

/// A session. What each packet needs stands first.
#[derive(Clone, Debug)]
pub(super) struct Session<A: Application> {
    pub acks: Acknowledger,
    pub state: State,
    pub remote: Remote<A::Address>,
    /// What the other end calls it.
    pub peer: ConnectionId,
    /// When a packet last came.
    pub heard: Time,
    /// Since when an ACK is awaited: since the last one, or since the first packet after it.
    pub waiting_since: Time,
    /// How long the other end was asked to put off its ACKs.
    pub asked: Duration,
    /// It is in the line of those that have something of a stream to send.
    pub is_ready: bool,
    pub begun: Time,
    pub attempt: Attempt,
    /// What messages there were; few sessions have many.
    pub outbound: Option<Box<Outbound<A::Message>>>,
    pub inbound: Option<Box<Inbound<A::Message>>>,
}

impl<A: Application> Session<A> {
    /// How long the other end, `rtt` away, shall put off its ACKs, `most` at most. It is asked anew once
    /// that differs by a fifth from what it knows, as QUIC libraries do.
    #[inline]
    fn ask(&mut self, most: Duration, rtt: Duration) -> AckRequest {
        let wanted = asked_ack_delay(most, rtt);
        let is_new = wanted.as_nanos().abs_diff(self.asked.as_nanos()) > self.asked.as_nanos() / 5;
        if is_new {
            self.asked = wanted;
        }
        AckRequest { delay_ms: (self.asked.as_nanos() / 1_000_000) as u16, is_new }
    }
}

/// A place for a session.
#[derive(Clone, Debug)]
pub(super) struct Slot<A: Application> {
    /// The token of the session that is here, or of the next one.
    pub token: u32,
    pub session: Option<Session<A>>,
}

/// All but the application.
#[derive(Clone, Debug)]
pub(super) struct Books<A: Application> {
    pub config: SessionConfig,
    pub key: PeerKey,
    pub window: SharedWindow,
    pub tokens: Rng,
    pub slots: Vec<Slot<A>>,
    pub dues: Dues,
    /// No due is earlier.
    pub earliest: Time,
    pub free: Vec<u32>,
    pub half_open: usize,
    /// Sessions with something of a stream to send, in turn.
    pub ready: VecDeque<u32>,
    /// Sessions that are over without the application knowing.
    pub over: Vec<(SessionId, Closed)>,
    /// Sessions whose silence has begun or ended.
    pub silent: Vec<(SessionId, bool)>,
    /// What the last ACK acknowledged of a stream.
    pub arrived: Vec<Piece>,
    pub counters: SessionCounters,
}

impl<A: Application> Books<A> {
    pub fn new(config: SessionConfig, key: PeerKey, controller: Box<dyn FlowController>, rng: &Rng) -> Books<A> {
        let sender = SenderConfig {
            packet: config.packet,
            max_ack_delay: config.ack.max_delay,
            paced: config.paced,
            ecn: config.ecn,
            recovery: LossRecovery::Rack,
            tcp: TcpOptions::default(),
        };
        let [controls, tokens] = [0, 1].map(|which| Rng::indexed(rng.numbered(which), "sessions", which));
        let mut window = SharedWindow::without_receivers(sender, controller, controls);
        window.set_bounds(config.bounds());
        Books {
            window,
            config,
            key,
            tokens,
            slots: Vec::new(),
            dues: Dues::default(),
            earliest: Time::MAX,
            free: Vec::new(),
            half_open: 0,
            ready: VecDeque::new(),
            over: Vec::new(),
            silent: Vec::new(),
            arrived: Vec::new(),
            counters: SessionCounters::default(),
        }
    }

    /// How many sessions there are, those that are being opened included.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn session(&self, slot: u32) -> Option<&Session<A>> {
        self.slots.get(slot as usize)?.session.as_ref()
    }

    pub fn session_mut(&mut self, slot: u32) -> Option<&mut Session<A>> {
        self.slots.get_mut(slot as usize)?.session.as_mut()
    }

    /// What this end calls the session in `slot`.
    pub fn id(&self, slot: u32) -> ConnectionId {
        ConnectionId { slot, token: self.slots[slot as usize].token }
    }

    /// A place for a session, which stands in it from now on.
    pub fn admit(&mut self, now: Time, state: State, remote: Remote<A::Address>, peer: ConnectionId) -> u32 {
        let attempt = Attempt { number: 0, sent: now, wait: Duration::ZERO };
        let session = Session {
            acks: Acknowledger::new(self.config.ack),
            state,
            remote,
            peer,
            heard: now,
            waiting_since: now,
            asked: Duration::ZERO,
            is_ready: false,
            begun: now,
            attempt,
            outbound: None,
            inbound: None,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { token: 0, session: None });
            self.dues.add_slot();
            self.slots.len() as u32 - 1
        });
        self.window.join(PeerId(slot));
        self.slots[slot as usize] = Slot { token: self.tokens.bits() as u32, session: Some(session) };
        self.half_open += usize::from(state == State::Answering);
        slot
    }

    /// The session in `slot` is over. Its place is free from [`Books::vacate`] on.
    pub fn remove(&mut self, now: Time, slot: u32) {
        let Some(session) = self.slots.get_mut(slot as usize).and_then(|slot| slot.session.take()) else { return };
        self.half_open -= usize::from(session.state == State::Answering);
        self.window.leave(now, PeerId(slot));
        if session.is_ready {
            self.ready.retain(|ready| *ready != slot);
        }
        self.dues.set(slot, Time::MAX);
        self.silent.retain(|(silent, _)| silent.0 != slot);
        self.over.retain(|(over, _)| over.0 != slot);
    }

    /// The place of a session that was removed may be another's.
    pub fn vacate(&mut self, slot: u32) {
        debug_assert!(self.slots[slot as usize].session.is_none() && !self.free.contains(&slot));
        self.free.push(slot);
    }

    /// The session in `slot` is over, and the application is to hear of it. Its place is free once it
    /// has.
    pub fn finish(&mut self, slot: u32, why: Closed) {
        let id = SessionId(slot);
        if !self.over.iter().any(|(over, _)| *over == id) {
            self.over.push((id, why));
        }
    }

    /// Something is due in `slot` at `at`, perhaps.
    #[inline(always)]
    pub fn set_due(&mut self, slot: u32, at: Time) {
        self.dues.lower(slot, at);
        self.earliest = at.min(self.earliest);
    }

    /// When the oldest packet in flight over the session in `slot` is lost or probed for.
    #[inline]
    pub fn recovery_due(&self, slot: u32) -> Time {
        let space = self.window.space(PeerId(slot));
        if let Some(loss_time) = space.loss_time() {
            return loss_time;
        }
        match self.session(slot) {
            Some(session) if space.packets_in_flight() > 0 => {
                let most = MOST_BETWEEN_PROBES.max(space.rtt.report(false).smoothed * 3 / 2);
                space.probe_time(session.waiting_since, session.asked).min(session.waiting_since + most)
            }
            _ => Time::MAX,
        }
    }

    /// When the session in `slot` is over for want of packets.
    pub fn idle_at(&self, slot: u32) -> Time {
        let Some(session) = self.session(slot) else { return Time::MAX };
        match session.state {
            State::Open => {
                // RFC 9000, 10.1.
                let probes = self.window.space(PeerId(slot)).rtt.probe_timeout(self.config.ack.max_delay) * 3;
                session.heard + self.config.idle_timeout.max(probes)
            }
            State::Asking(_) | State::Answering => session.begun + self.config.idle_timeout,
        }
    }

    /// When to ask whether the other end is there: while an ACK is awaited, that is asked already.
    pub fn keep_alive_at(&self, slot: u32) -> Time {
        match self.session(slot) {
            Some(session) if self.window.space(PeerId(slot)).packets_in_flight() == 0 => {
                session.heard + self.config.keep_alive
            }
            _ => Time::MAX,
        }
    }

    /// When something is due in `slot`.
    pub fn due(&self, slot: u32) -> Time {
        let Some(session) = self.session(slot) else { return Time::MAX };
        let idle = self.idle_at(slot);
        match session.state {
            State::Open => {
                let ack = session.acks.timer().unwrap_or(Time::MAX);
                ack.min(self.recovery_due(slot)).min(self.keep_alive_at(slot)).min(idle)
            }
            State::Asking(_) | State::Answering => idle.min(session.attempt.sent + session.attempt.wait),
        }
    }

    /// Whether the other end has not answered for a probe timeout.
    #[inline]
    pub fn is_silent(&self, slot: u32) -> bool {
        self.window.space(PeerId(slot)).probe_timeouts() > 0
    }

    /// What of the stream over `slot` leaves next.
    pub fn upcoming(&self, slot: u32) -> Option<Piece> {
        let lost = self.window.space(PeerId(slot)).again.front().copied();
        lost.or_else(|| self.session(slot)?.outbound.as_ref()?.upcoming(self.config.packet.get()))
    }

    /// Takes what was upcoming out of the stream over `slot`, to send it.
    pub fn take_content(&mut self, slot: u32, piece: Piece) -> Content<A::Message, A::Datagram> {
        let again = &mut self.window.space_mut(PeerId(slot)).again;
        if again.front() == Some(&piece) {
            again.pop_front();
        }
        let outbound = self.session_mut(slot).and_then(|session| session.outbound.as_mut());
        Content::Messages(outbound.expect("who has a piece of a stream has a stream").take(piece))
    }

    /// The session in `slot` gets in line if it has something of a stream to send.
    pub fn get_in_line(&mut self, slot: u32) {
        let waits = self.upcoming(slot).is_some();
        if let Some(session) = self.session_mut(slot)
            && waits
            && session.state == State::Open
            && !session.is_ready
        {
            session.is_ready = true;
            self.ready.push_back(slot);
        }
    }

    /// A packet with a number leaves over the session in `slot`.
    #[inline(always)]
    pub fn transmit(
        &mut self,
        now: Time,
        slot: u32,
        (piece, size): (Piece, Bytes),
        content: Content<A::Message, A::Datagram>,
        out: &mut impl PacketOut<A>,
    ) {
        let Books { window, slots, counters, config, .. } = self;
        let Some(session) = slots[slot as usize].session.as_mut() else { return };
        let space = window.space(PeerId(slot));
        let is_first = space.packets_in_flight() == 0;
        let asked = session.ask(config.ack.max_delay, space.rtt.report(false).smoothed);
        let (number, ecn_capable) = window.send(now, PeerId(slot), piece, size);
        // QUIC libraries that we know (quinn, noq) let an ACK leave with other frames only once it is due.
        let ack = session.acks.poll_ack(now);
        counters.acks_riding += u64::from(ack.is_some());
        let packet = Packet { to: session.peer, number, ack, asked, content };
        let departure = Departure { ecn_capable, ..Departure::now(session.remote.address, packet.size()) };
        if is_first {
            session.waiting_since = now;
            let due = self.recovery_due(slot);
            self.set_due(slot, due);
        }
        out.send(departure, &packet);
    }

    /// A packet leaves whatever the window says: lost data, new data, or a ping.
    pub fn probe(&mut self, now: Time, slot: u32, out: &mut impl PacketOut<A>) {
        let Some(piece) = self.upcoming(slot) else { return self.ping(now, slot, out) };
        let content = self.take_content(slot, piece);
        self.counters.message_packets_sent += 1;
        self.transmit(now, slot, (piece, Bytes::new(u64::from(piece.length))), content, out);
    }

    /// Asks for an ACK.
    pub fn ping(&mut self, now: Time, slot: u32, out: &mut impl PacketOut<A>) {
        self.transmit(now, slot, (Piece::NONE, PING_SIZE), Content::Ping, out);
    }

    /// A packet without a number leaves.
    pub fn reply(
        &mut self,
        to: (A::Address, ConnectionId),
        content: Content<A::Message, A::Datagram>,
        out: &mut impl PacketOut<A>,
    ) {
        let packet = Packet { to: to.1, content, ..Packet::default() };
        out.send(Departure::now(to.0, packet.size()), &packet);
    }

    /// The ACK leaves that is due over the session in `slot`, if one is.
    #[inline]
    pub fn acknowledge(&mut self, now: Time, slot: u32, out: &mut impl PacketOut<A>) {
        let Some(session) = self.session_mut(slot).filter(|session| session.state == State::Open) else { return };
        let Some(ack) = session.acks.poll_ack(now) else { return };
        let packet = Packet { to: session.peer, ack: Some(ack), ..Packet::default() };
        let departure = Departure::now(session.remote.address, packet.size());
        self.counters.acks_alone += 1;
        out.send(departure, &packet);
    }
}

/// The longest wait for an ACK before the next probe, where one and a half round trips are not longer: noq's
/// bound, for RFC 9002 leaves it to us. Without one, probe timeouts that double keep a receiver silent for minutes
/// after some losses in a row, in a session that its own packets keep alive.
const MOST_BETWEEN_PROBES: Duration = Duration::from_millis(2_000);

/// A ping counts in the window as its frame.
const PING_SIZE: Bytes = Bytes::new(1);

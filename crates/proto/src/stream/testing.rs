//! A stream's peers in tests: sessions that stand after a round trip and lose nothing but what a test
//! says, over a constant delay, and uplinks of a rate.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_sim::agenda::Agenda;

use super::buffer::BufferConfig;
use super::content::{Broadcast, ClientId, Content, Manifest, Ticket};
use super::message::{Datagram, Message, Mode};
use super::packet::{PacketId, Stamp};
use super::peer::{StreamEvent, StreamPeer};
use super::server::{MOST_OF_NETWORK, ServerConfig};
use super::tracker::TrackerConfig;
use super::tree::Moves;
use crate::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions, WireLength};

/// Buffers of three seconds, less a tenth.
pub fn buffer() -> BufferConfig {
    BufferConfig { patience: Duration::from_millis(2700), capacity: 2048 }
}

/// A server of ten slices that can send `upload`, and has room for 200.
pub fn server_config(mode: Mode, upload: Rate) -> ServerConfig {
    let tracker = TrackerConfig {
        slices: 10,
        moves: Moves::ALL,
        upload,
        reserve: 0.1,
        silence: Duration::from_millis(10_000),
        has_backups: mode == Mode::Hybrid,
        most_clients: 200,
    };
    ServerConfig {
        broadcast: Broadcast(1),
        mode,
        tracker,
        most_of_network: MOST_OF_NETWORK,
        begin_behind: Duration::from_millis(1000),
        buffer: buffer(),
        exploration: None,
        helper: None,
    }
}

/// Packets that know themselves whether they are genuine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tested;

/// A packet without bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestPacket {
    /// Whether it is the source's.
    pub is_genuine: bool,
}

impl Content for Tested {
    type Packet = TestPacket;
    /// Whether the source's secret was there, and for which broadcast.
    type Proofs = (bool, Broadcast);
    type Signature = (bool, Broadcast);
    type Secret = u8;

    const SIGNATURE_LENGTH: usize = 64;

    fn public(secret: &u8) -> PeerKey {
        PeerKey([*secret; 32])
    }

    fn prove(_: &u8, broadcast: Broadcast, _: u32, _: PacketId, _: &[(Stamp, TestPacket)]) -> (bool, Broadcast) {
        (true, broadcast)
    }

    fn sign_ticket(_: &u8, broadcast: Broadcast, _: ClientId, _: &PeerKey, _: Stamp) -> (bool, Broadcast) {
        (true, broadcast)
    }

    fn packet_length(_: &TestPacket) -> usize {
        1316
    }

    fn proofs_length(_: &(bool, Broadcast)) -> usize {
        64 + 38 * 16
    }

    fn is_signed(_: &PeerKey, broadcast: Broadcast, manifest: &Manifest<Tested>) -> bool {
        manifest.proofs == (true, broadcast)
    }

    fn is_genuine(_: &Manifest<Tested>, _: PacketId, _: Stamp, packet: &TestPacket) -> bool {
        packet.is_genuine
    }

    fn is_ticket(_: &PeerKey, broadcast: Broadcast, ticket: &Ticket<Tested>) -> bool {
        ticket.signature == (true, broadcast)
    }
}

/// A peer of a test.
pub type TestPeer = StreamPeer<u32, Tested>;

#[derive(Debug)]
enum Parcel {
    /// With whose key, and how often it was not let in.
    Open(PeerKey, u32),
    Accept,
    Close,
    Message(Box<Message<u32, Tested>>),
    Datagram(Datagram<Tested>),
}

/// What happens at a node: something comes over a session, named by its two ends' addresses and the
/// number that the one who opened it gave it.
#[derive(Debug)]
struct Coming {
    to: u32,
    from: u32,
    opening: u64,
    parcel: Parcel,
}

#[derive(Debug)]
struct End {
    with: u32,
    opening: u64,
    is_open: bool,
    initiated: bool,
    key: Option<PeerKey>,
    waiting: Vec<Message<u32, Tested>>,
}

/// Sessions of one node.
#[derive(Debug, Default)]
struct Ends {
    ends: Vec<Option<End>>,
}

impl Ends {
    fn add(&mut self, end: End) -> SessionId {
        let place = self.ends.iter().position(Option::is_none).unwrap_or(self.ends.len());
        if place == self.ends.len() {
            self.ends.push(None);
        }
        self.ends[place] = Some(end);
        SessionId(place as u32)
    }

    fn find(&self, opening: u64) -> Option<SessionId> {
        let is_it = |end: &Option<End>| end.as_ref().is_some_and(|end| end.opening == opening);
        self.ends.iter().position(is_it).map(|place| SessionId(place as u32))
    }
}

/// The key of a node.
pub fn key_of(node: u32) -> PeerKey {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&node.to_be_bytes());
    PeerKey(key)
}

/// What a test may do to a datagram on its way: false if it is lost.
pub type Fate = Box<dyn FnMut(Time, u32, u32, &mut Datagram<Tested>) -> bool>;

/// What happened, when and where.
pub type Happened = (Time, u32, StreamEvent<TestPacket>);

/// Peers and what is between them.
pub struct TestNetwork {
    now: Time,
    peers: BTreeMap<u32, TestPeer>,
    ends: BTreeMap<u32, Ends>,
    uploads: BTreeMap<u32, (Rate, Time)>,
    /// Bytes of datagrams that have left each peer, which arrive or not.
    sent: BTreeMap<u32, Bytes>,
    coming: Agenda<Coming>,
    /// Sessions that were begun: each has the number of its opening.
    openings: u64,
    delay: Duration,
    /// Decides what becomes of datagrams.
    pub fate: Fate,
    /// What was told.
    pub events: Vec<Happened>,
    /// From whom anything at all has come to whom.
    pub met: BTreeSet<(u32, u32)>,
    /// Nothing arrives at these, and nobody is told.
    pub dark: BTreeSet<u32>,
    /// Before these is a NAT, which lets in what comes from where something has gone to (RFC 4787, 5).
    pub nats: BTreeSet<u32>,
    /// From where something is let in: at whom, and from whom.
    ways: BTreeSet<(u32, u32)>,
    /// First packets of sessions that were not let in.
    pub kept_out: usize,
}

/// Who begins a session repeats its first packet so often, each time after so long (RFC 9002, 6.2.2).
const REPEATED: u32 = 3;
const PROBE_TIMEOUT: Duration = Duration::from_millis(1000);

struct TestSessions<'a> {
    node: u32,
    now: Time,
    delay: Duration,
    delivered: Bytes,
    ends: &'a mut Ends,
    coming: &'a mut Agenda<Coming>,
    openings: &'a mut u64,
    events: &'a mut Vec<Happened>,
    ways: &'a mut BTreeSet<(u32, u32)>,
}

impl TestSessions<'_> {
    fn post(&mut self, to: u32, opening: u64, parcel: Parcel) {
        self.coming.add(self.now + self.delay, Coming { to, from: self.node, opening, parcel });
    }
}

impl Sessions<TestPeer> for TestSessions<'_> {
    fn open(&mut self, to: u32, key: Option<PeerKey>) -> Option<SessionId> {
        *self.openings += 1;
        let opening = *self.openings;
        let end = End { with: to, opening, is_open: false, initiated: true, key, waiting: Vec::new() };
        self.open_way(to);
        self.post(to, opening, Parcel::Open(key_of(self.node), 0));
        Some(self.ends.add(end))
    }

    fn open_way(&mut self, from: u32) {
        self.ways.insert((self.node, from));
    }

    fn send(&mut self, session: SessionId, message: Message<u32, Tested>) {
        let Some(end) = self.ends.ends[session.index()].as_mut() else { panic!("{session:?} is over") };
        if !end.is_open {
            return end.waiting.push(message);
        }
        let (to, opening) = (end.with, end.opening);
        self.post(to, opening, Parcel::Message(Box::new(message)));
    }

    fn close(&mut self, session: SessionId) {
        let end = self.ends.ends[session.index()].take().expect("the session is there");
        self.post(end.with, end.opening, Parcel::Close);
    }

    fn least_round_trip(&self, _: SessionId) -> Option<Duration> {
        Some(self.delay * 2)
    }

    fn delivered(&self) -> Bytes {
        self.delivered
    }

    fn event(&mut self, event: StreamEvent<TestPacket>) {
        self.events.push((self.now, self.node, event));
    }
}

impl TestNetwork {
    /// Nobody yet; everything takes `delay`.
    pub fn new(delay: Duration) -> TestNetwork {
        TestNetwork {
            now: Time::ZERO,
            peers: BTreeMap::new(),
            ends: BTreeMap::new(),
            uploads: BTreeMap::new(),
            sent: BTreeMap::new(),
            coming: Agenda::default(),
            openings: 0,
            delay,
            fate: Box::new(|_, _, _, _| true),
            events: Vec::new(),
            met: BTreeSet::new(),
            dark: BTreeSet::new(),
            nats: BTreeSet::new(),
            ways: BTreeSet::new(),
            kept_out: 0,
        }
    }

    /// Adds a peer that can send `upload`.
    pub fn join(&mut self, node: u32, peer: TestPeer, upload: Rate) {
        self.peers.insert(node, peer);
        self.ends.insert(node, Ends::default());
        self.uploads.insert(node, (upload, self.now));
    }

    /// A peer dies: nobody is told. Its sessions end elsewhere when `idle` has passed.
    pub fn kill(&mut self, node: u32, idle: Duration) {
        self.peers.remove(&node);
        for end in self.ends.remove(&node).into_iter().flat_map(|ends| ends.ends).flatten() {
            let coming = Coming { to: end.with, from: node, opening: end.opening, parcel: Parcel::Close };
            self.coming.add(self.now + idle, coming);
        }
    }

    /// A peer.
    pub fn peer(&self, node: u32) -> &TestPeer {
        &self.peers[&node]
    }

    /// Lets a peer act.
    pub fn act<R>(&mut self, node: u32, act: impl FnOnce(&mut TestPeer, Time, &mut dyn FnMut()) -> R) -> R {
        let result = act(self.peers.get_mut(&node).unwrap(), self.now, &mut || {});
        self.pump(node);
        result
    }

    fn with(&mut self, node: u32, act: impl FnOnce(&mut TestPeer, Time, &mut TestSessions<'_>)) {
        let (Some(peer), Some(ends)) = (self.peers.get_mut(&node), self.ends.get_mut(&node)) else { return };
        let mut sessions = TestSessions {
            node,
            now: self.now,
            delay: self.delay,
            delivered: self.sent.get(&node).copied().unwrap_or_default(),
            ends,
            coming: &mut self.coming,
            openings: &mut self.openings,
            events: &mut self.events,
            ways: &mut self.ways,
        };
        act(peer, self.now, &mut sessions);
    }

    /// Datagrams leave as long as the uplink is free.
    fn pump(&mut self, node: u32) {
        loop {
            let Some((rate, free)) = self.uploads.get_mut(&node) else { return };
            if *free > self.now {
                return;
            }
            let Some(peer) = self.peers.get_mut(&node) else { return };
            let Some((session, mut datagram)) = peer.next_datagram(self.now) else { return };
            let size = Bytes::new(datagram.wire_length() as u64);
            *free = self.now + size / *rate;
            *self.sent.entry(node).or_default() += size;
            let (with, opening, at) = {
                let end = self.ends[&node].ends[session.index()].as_ref().expect("it sends to who is there");
                assert!(end.is_open, "it sends over a session that stands");
                (end.with, end.opening, *free + self.delay)
            };
            if (self.fate)(self.now, node, with, &mut datagram) {
                let parcel = Parcel::Datagram(datagram);
                self.coming.add(at, Coming { to: with, from: node, opening, parcel });
            }
        }
    }

    /// Lets everything happen until `end`.
    pub fn run(&mut self, end: Time) {
        loop {
            let timers = self.peers.iter().map(|(&node, peer)| {
                let free = self.uploads[&node].1;
                let free = if free > self.now { free } else { Time::MAX };
                (peer.timer(self.now).max(self.now).min(free), node)
            });
            let (timer, node) = timers.min().unwrap_or((Time::MAX, 0));
            let coming = self.coming.next_at().unwrap_or(Time::MAX);
            if timer.min(coming) >= end {
                self.now = end;
                return;
            }
            if coming <= timer {
                let (at, coming) = self.coming.take().unwrap();
                self.now = at;
                self.deliver(coming);
            } else {
                self.now = timer;
                if self.peers[&node].timer(timer) <= timer {
                    self.with(node, |peer, now, sessions| peer.on_timer(now, sessions));
                }
                self.pump(node);
            }
        }
    }

    fn deliver(&mut self, coming: Coming) {
        let Coming { to, from, opening, parcel, .. } = coming;
        if self.dark.contains(&to) {
            return;
        }
        if let Parcel::Open(key, tries) = parcel
            && self.nats.contains(&to)
            && !self.ways.contains(&(to, from))
        {
            self.kept_out += 1;
            if tries == REPEATED {
                return self.refuse(to, from, opening);
            }
            let parcel = Parcel::Open(key, tries + 1);
            return self.coming.add(self.now + PROBE_TIMEOUT, Coming { to, from, opening, parcel });
        }
        self.met.insert((from, to));
        let session = self.ends.get(&to).and_then(|ends| ends.find(opening));
        match (parcel, session) {
            (Parcel::Open(key, _), None) => {
                let remote = Remote { address: from, key, is_initiator: true };
                let now = self.now;
                let accepts = self.peers.get_mut(&to).is_some_and(|peer| peer.accepts(now, &remote));
                if !accepts {
                    return self.refuse(to, from, opening);
                }
                let end = End { with: from, opening, is_open: true, initiated: false, key: None, waiting: Vec::new() };
                let session = self.ends.get_mut(&to).unwrap().add(end);
                self.with(to, |peer, now, sessions| {
                    sessions.post(from, opening, Parcel::Accept);
                    peer.on_open(now, session, &remote, sessions);
                });
            }
            (Parcel::Accept, Some(session)) => {
                let end = self.ends.get_mut(&to).unwrap().ends[session.index()].as_mut().unwrap();
                if end.key.is_some_and(|key| key != key_of(from)) {
                    return self.close(to, session, Closed::Refused);
                }
                assert!(end.initiated);
                end.is_open = true;
                let waiting = std::mem::take(&mut end.waiting);
                let remote = Remote { address: from, key: key_of(from), is_initiator: false };
                self.with(to, |peer, now, sessions| {
                    for message in waiting {
                        sessions.send(session, message);
                    }
                    peer.on_open(now, session, &remote, sessions);
                });
            }
            (Parcel::Close, Some(session)) => return self.close(to, session, Closed::ByPeer),
            (Parcel::Message(message), Some(session)) => {
                self.with(to, |peer, now, sessions| peer.on_message(now, session, *message, sessions));
            }
            (Parcel::Datagram(datagram), Some(session)) => {
                self.with(to, |peer, now, sessions| peer.on_datagram(now, session, datagram, sessions));
            }
            _ => {}
        }
        self.pump(to);
    }

    fn refuse(&mut self, to: u32, from: u32, opening: u64) {
        self.coming.add(self.now + self.delay, Coming { to: from, from: to, opening, parcel: Parcel::Close });
    }

    fn close(&mut self, node: u32, session: SessionId, why: Closed) {
        self.ends.get_mut(&node).unwrap().ends[session.index()] = None;
        self.with(node, |peer, now, sessions| peer.on_closed(now, session, why, sessions));
        self.pump(node);
    }
}

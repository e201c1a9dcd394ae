use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, UdpSocket};

use anabranch_control::flow::registry::{self, Setup};
use anabranch_proto::codec::CodecError;
use anabranch_proto::session::{Application, WireLength};

use super::*;
use crate::pool::NoWork;
use crate::runtime::Runtime;
use crate::udp::Socket;

/// Bytes and their length.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Blob(Vec<u8>);

impl WireLength for Blob {
    fn wire_length(&self) -> usize {
        self.0.len()
    }
}

/// What an application was notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Open(SessionId, PeerKey, bool),
    Message(SessionId, Vec<u8>),
    Datagram(SessionId, usize),
    Silent(SessionId, bool),
    Closed(SessionId, Closed),
}

/// Notes its events, and sends as many datagrams as it shall.
#[derive(Debug, Default)]
struct Notes {
    events: Vec<Event>,
    refuses: bool,
    /// To whom, and how many more.
    datagrams: BTreeMap<SessionId, u32>,
    silent: BTreeSet<SessionId>,
    length: usize,
}

impl Notes {
    fn datagrams_from(&self, session: SessionId) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Datagram(of, _) if *of == session)).count()
    }

    fn opened(&self) -> Vec<SessionId> {
        let opened = self.events.iter();
        opened.filter_map(|event| if let Event::Open(session, ..) = event { Some(*session) } else { None }).collect()
    }

    fn closed(&self) -> Vec<Closed> {
        let closed = self.events.iter();
        closed.filter_map(|event| if let Event::Closed(_, why) = event { Some(*why) } else { None }).collect()
    }
}

impl Application for Notes {
    type Address = SocketAddr;
    type Message = Blob;
    type Datagram = Blob;
    type Event = ();

    fn accepts(&mut self, _: Time, _: &Remote<SocketAddr>) -> bool {
        !self.refuses
    }

    fn on_open(&mut self, _: Time, session: SessionId, remote: &Remote<SocketAddr>, _: &mut impl Sessions<Notes>) {
        self.events.push(Event::Open(session, remote.key, remote.is_initiator));
    }

    fn on_message(&mut self, _: Time, session: SessionId, message: Blob, _: &mut impl Sessions<Notes>) {
        self.events.push(Event::Message(session, message.0));
    }

    fn on_datagram(&mut self, _: Time, session: SessionId, datagram: Blob, _: &mut impl Sessions<Notes>) {
        self.events.push(Event::Datagram(session, datagram.0.len()));
    }

    fn on_silent(&mut self, _: Time, session: SessionId, is_silent: bool, _: &mut impl Sessions<Notes>) {
        self.events.push(Event::Silent(session, is_silent));
        if is_silent {
            self.silent.insert(session);
        } else {
            self.silent.remove(&session);
        }
    }

    fn on_closed(&mut self, _: Time, session: SessionId, why: Closed, _: &mut impl Sessions<Notes>) {
        self.events.push(Event::Closed(session, why));
    }

    fn on_timer(&mut self, _: Time, _: &mut impl Sessions<Notes>) {}

    fn timer(&self, _: Time) -> Time {
        Time::MAX
    }

    fn waiting(&self) -> Bytes {
        let waiting = self.datagrams.iter().filter(|(session, _)| !self.silent.contains(*session));
        Bytes::new(waiting.map(|(_, left)| u64::from(*left) * self.length as u64).sum())
    }

    fn next_datagram(&mut self, _: Time) -> Option<(SessionId, Blob)> {
        let (session, left) =
            self.datagrams.iter_mut().find(|(session, left)| **left > 0 && !self.silent.contains(session))?;
        *left -= 1;
        Some((*session, Blob(vec![0; self.length])))
    }
}

/// What no peer sends begins with this.
const GARBAGE: u8 = 0xff;

fn read(bytes: &[u8]) -> Result<Blob, CodecError> {
    if bytes.first() == Some(&GARBAGE) { Err(CodecError::Value("blob")) } else { Ok(Blob(bytes.to_vec())) }
}

impl WireApplication for Notes {
    fn write_message(message: &Blob, out: &mut Vec<u8>) {
        out.extend_from_slice(&message.0);
    }

    fn read_message(bytes: &[u8]) -> Result<Blob, CodecError> {
        read(bytes)
    }

    fn write_datagram(datagram: &Blob, out: &mut Vec<u8>) {
        out.extend_from_slice(&datagram.0);
    }

    fn read_datagram(bytes: &[u8]) -> Result<Blob, CodecError> {
        read(bytes)
    }
}

/// Peers in one runtime, over sockets of this host.
struct World {
    runtime: Runtime<QuicSessions<Notes>>,
    identities: Vec<PeerIdentity>,
}

/// Long enough for anything that is expected, so that only what never comes fails.
const PATIENCE: Duration = Duration::from_millis(20_000);

impl World {
    fn new() -> World {
        World { runtime: Runtime::new(NoWork).unwrap(), identities: Vec::new() }
    }

    fn with_peers(count: usize) -> World {
        let mut world = World::new();
        (0..count).for_each(|_| _ = world.add(SessionConfig::default()));
        world
    }

    fn add(&mut self, config: SessionConfig) -> usize {
        let local = (Ipv4Addr::LOCALHOST, 0).into();
        self.add_at(local, PeerIdentity::generate(), config)
    }

    fn add_at(&mut self, local: SocketAddr, identity: PeerIdentity, config: SessionConfig) -> usize {
        let cubic = registry::find("cubic").unwrap();
        let controller = cubic.make(&Setup::new(config.packet, Time::ZERO), &toml::Table::new()).unwrap();
        let app = Notes { length: 1200, ..Notes::default() };
        let socket = Socket::bind(local).unwrap();
        let (local, rng) = (socket.local_addr().unwrap(), Rng::stream(1, "test"));
        let peer = QuicSessions::new(app, config, &identity, local, controller, &rng).unwrap();
        self.identities.push(identity);
        self.runtime.add_gathering_in_order(socket, peer).unwrap()
    }

    fn address(&self, peer: usize) -> SocketAddr {
        self.runtime.local_addr(peer).unwrap()
    }

    fn key(&self, peer: usize) -> PeerKey {
        self.identities[peer].public()
    }

    fn app(&self, peer: usize) -> &Notes {
        &self.runtime.machine(peer).app
    }

    fn act<R>(&mut self, peer: usize, act: impl FnOnce(&mut Notes, &mut Acting<'_, Notes>) -> R) -> R {
        self.runtime.act(peer, |machine, now, port| machine.act(now, port, act))
    }

    fn open(&mut self, from: usize, to: SocketAddr, key: Option<PeerKey>) -> SessionId {
        self.act(from, |_, sessions| sessions.open(to, key)).unwrap()
    }

    fn send(&mut self, from: usize, session: SessionId, bytes: Vec<u8>) {
        self.act(from, |_, sessions| sessions.send(session, Blob(bytes)));
    }

    #[track_caller]
    fn until(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        let end = self.runtime.now() + PATIENCE;
        while !holds(self) {
            if self.runtime.now() >= end {
                for machine in self.runtime.machines() {
                    println!("{:?} in flight {:?} {:?}", machine.limits(), machine.in_flight(), machine.counters());
                }
                panic!("{what} never came; {:?}", self.last_events());
            }
            let next = self.runtime.now() + Duration::from_millis(50);
            self.runtime.turn(next).unwrap();
        }
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.runtime.now() + span;
        self.runtime.run_until(end).unwrap();
    }

    fn last_events(&self) -> Vec<&[Event]> {
        let last = |events: &'_ Vec<Event>| events.len().saturating_sub(10);
        self.runtime.machines().map(|machine| &machine.app.events[last(&machine.app.events)..]).collect()
    }

    /// A session from the first peer to the second, open at both ends.
    fn opened(&mut self, from: usize, to: usize) -> (SessionId, SessionId) {
        let before = (self.app(from).opened().len(), self.app(to).opened().len());
        let (address, key) = (self.address(to), self.key(to));
        self.open(from, address, Some(key));
        self.until("a session", |world| {
            world.app(from).opened().len() > before.0 && world.app(to).opened().len() > before.1
        });
        (self.app(from).opened()[before.0], self.app(to).opened()[before.1])
    }

    /// Somebody opens a session to the first peer whose runtime nobody turns afterwards, and what the peer calls it.
    fn joined_by_another(&mut self, config: SessionConfig) -> (World, SessionId) {
        let before = self.app(0).opened().len();
        let mut other = World::new();
        other.add(config);
        let (address, key) = (self.address(0), self.key(0));
        other.open(0, address, Some(key));
        let end = other.runtime.now() + PATIENCE;
        while self.app(0).opened().len() == before {
            assert!(other.runtime.now() < end, "no session");
            for runtime in [&mut self.runtime, &mut other.runtime] {
                let soon = runtime.now() + Duration::from_millis(5);
                runtime.turn(soon).unwrap();
            }
        }
        (other, self.app(0).opened()[before])
    }
}

#[test]
fn a_session_opens_and_both_ends_know_the_other_by_its_key() {
    let mut world = World::with_peers(2);
    let (one, other) = world.opened(0, 1);
    assert_eq!(world.app(0).events, [Event::Open(one, world.key(1), false)]);
    assert_eq!(world.app(1).events, [Event::Open(other, world.key(0), true)]);
    let round_trip = world.act(0, |_, sessions| sessions.least_round_trip(one)).unwrap();
    assert!(round_trip > Duration::ZERO && round_trip < PATIENCE);
}

#[test]
fn messages_come_in_order_and_whole_both_ways_and_datagrams_too() {
    let mut world = World::with_peers(2);
    let (one, other) = world.opened(0, 1);
    let messages: Vec<Vec<u8>> = (0..100u8).map(|number| vec![number; usize::from(number) * 180]).collect();
    for message in &messages {
        world.send(0, one, message.clone());
        world.send(1, other, message.clone());
    }
    let received = |notes: &Notes| -> Vec<Vec<u8>> {
        let message = |event: &Event| if let Event::Message(_, bytes) = event { Some(bytes.clone()) } else { None };
        notes.events.iter().filter_map(message).collect()
    };
    world.until("messages", |world| [0, 1].iter().all(|&peer| received(world.app(peer)).len() == messages.len()));
    assert!(received(world.app(0)) == messages && received(world.app(1)) == messages);
    world.act(0, |notes, _| _ = notes.datagrams.insert(one, 500));
    world.act(1, |notes, _| _ = notes.datagrams.insert(other, 500));
    // A socket's buffer may lose some.
    world.until("datagrams", |world| {
        world.app(1).datagrams_from(other) >= 400 && world.app(0).datagrams_from(one) >= 400
    });
}

#[test]
fn a_peer_with_another_key_is_refused_and_learns_nothing() {
    let mut world = World::with_peers(3);
    let (address, key) = (world.address(1), world.key(2));
    let session = world.open(0, address, Some(key));
    world.until("a refusal", |world| !world.app(0).events.is_empty());
    assert_eq!(world.app(0).events, [Event::Closed(session, Closed::Refused)]);
    world.run_for(Duration::from_millis(200));
    assert_eq!(world.app(1).events, []);
}

#[test]
fn who_is_not_accepted_learns_so() {
    let mut world = World::with_peers(2);
    world.act(1, |notes, _| notes.refuses = true);
    let (address, key) = (world.address(1), world.key(1));
    let session = world.open(0, address, Some(key));
    world.until("a refusal", |world| world.app(0).events.contains(&Event::Closed(session, Closed::Refused)));
    assert_eq!(world.app(1).events, []);
    assert_eq!(world.runtime.machine(1).sessions(), 0);
}

#[test]
fn a_session_that_is_closed_is_over_at_the_other_end_and_leaves_nothing() {
    let mut world = World::with_peers(2);
    let (one, other) = world.opened(0, 1);
    world.act(0, |_, sessions| sessions.close(one));
    world.until("a goodbye", |world| world.app(1).events.contains(&Event::Closed(other, Closed::ByPeer)));
    world.until("an end", |world| world.runtime.machines().all(|machine| machine.connections() == 0));
    let counts: Vec<_> = world.runtime.machines().map(|machine| (machine.sessions(), machine.in_flight())).collect();
    assert_eq!(counts, [(0, Bytes::ZERO), (0, Bytes::ZERO)]);
    assert_eq!(world.opened(0, 1), (one, other), "numbers are used again");
}

#[test]
fn who_vanishes_is_silent_then_gone_and_holds_nobody_up() {
    let [idle_timeout, keep_alive] = [3000, 1000].map(Duration::from_millis);
    let config = SessionConfig { idle_timeout, keep_alive, ..SessionConfig::default() };
    let mut world = World::new();
    (0..2).for_each(|_| _ = world.add(config));
    let (to_second, at_second) = world.opened(0, 1);
    let (_other, gone) = world.joined_by_another(config);
    world.act(0, |notes, _| notes.datagrams = [(gone, 20_000), (to_second, 3000)].into());
    world.until("its silence", |world| world.app(0).events.contains(&Event::Silent(gone, true)));
    // What nobody answers has left the window to the other one.
    world.until("the other's datagrams", |world| world.app(1).datagrams_from(at_second) > 2000);
    world.until("its end", |world| world.app(0).events.contains(&Event::Closed(gone, Closed::TimedOut)));
}

/// A session's idle timeout is longer than these tests wait.
#[test]
fn who_begins_again_with_its_key_at_its_address_resets_the_sessions_that_it_had() {
    let mut world = World::with_peers(1);
    let (other, at_first) = world.joined_by_another(SessionConfig::default());
    let (address, identity) = (other.address(0), other.identities[0].clone());
    drop(other);
    world.add_at(address, identity, SessionConfig::default());
    let begun = world.runtime.now();
    world.send(0, at_first, vec![1]);
    world.until("its reset", |world| world.app(0).events.contains(&Event::Closed(at_first, Closed::ByPeer)));
    let took = world.runtime.now().since(begun);
    assert!(took < Duration::SECOND * 5, "{took:?}");
    world.opened(0, 1);
}

#[test]
fn nobody_else_at_its_address_resets_the_sessions_of_one_that_is_gone() {
    let mut world = World::with_peers(1);
    let (other, at_first) = world.joined_by_another(SessionConfig::default());
    let address = other.address(0);
    drop(other);
    world.add_at(address, PeerIdentity::generate(), SessionConfig::default());
    world.send(0, at_first, vec![1]);
    world.run_for(Duration::SECOND * 3);
    assert_eq!(world.app(0).closed(), []);
}

/// Others withhold them from one that is silent.
#[test]
fn where_each_datagram_counts_alone_they_leave_for_the_silent_too() {
    for datagrams_to_silent in [false, true] {
        let mut world = World::new();
        let config = SessionConfig { datagrams_to_silent, ..SessionConfig::default() };
        world.add(config);
        let (_other, gone) = world.joined_by_another(config);
        world.act(0, |notes, _| _ = notes.datagrams.insert(gone, 1));
        world.until("its silence", |world| world.app(0).events.contains(&Event::Silent(gone, true)));
        let before = world.runtime.machine(0).counters();
        world.act(0, |notes, _| {
            notes.silent.clear();
            notes.datagrams.insert(gone, 3);
        });
        world.run_for(Duration::from_millis(50));
        let after = world.runtime.machine(0).counters();
        let [sent, withheld] =
            [after.datagrams_sent - before.datagrams_sent, after.datagrams_withheld - before.datagrams_withheld];
        assert_eq!([sent, withheld], if datagrams_to_silent { [3, 0] } else { [0, 3] });
    }
}

/// Where all of a crowd open sessions to each other at once, each has its window full of handshakes that the others do not
/// answer, as theirs are.
#[test]
fn who_waits_for_handshakes_of_its_own_answers_those_of_others() {
    let mut world = World::with_peers(2);
    let packet = SessionConfig::default().packet;
    for peer in 0..2 {
        world.runtime.machine_mut(peer).set_bounds(Bounds { fixed: Some(packet), ..Bounds::default() });
    }
    let deaf = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = deaf.local_addr().unwrap();
    (0..2).for_each(|peer| _ = world.open(peer, to, None));
    let begun = world.runtime.now();
    world.run_for(Duration::from_millis(50));
    world.opened(0, 1);
    // What nobody answers is given up after three probe timeouts, of a second each before anything is known.
    let took = world.runtime.now().since(begun);
    assert!(took < Duration::SECOND, "{took:?}");
}

#[test]
fn who_has_ended_very_many_sessions_begins_another_once_they_are_gone() {
    let mut world = World::with_peers(2);
    let deaf = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = deaf.local_addr().unwrap();
    let mut begun = 0;
    while let Some(session) = world.act(0, |_, sessions| sessions.open(to, None)) {
        world.act(0, |_, sessions| sessions.close(session));
        begun += 1;
        assert!(begun < 10_000, "nothing bounds what they take");
    }
    assert_eq!(world.runtime.machine(0).connections(), begun);
    world.until("their end", |world| world.runtime.machine(0).connections() == 0);
    world.opened(0, 1);
}

#[test]
fn nobody_answers_and_the_attempt_ends() {
    let mut world = World::with_peers(1);
    let deaf = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let session = world.open(0, deaf.local_addr().unwrap(), None);
    world.until("an end", |world| !world.app(0).events.is_empty());
    assert_eq!(world.app(0).events, [Event::Closed(session, Closed::TimedOut)]);
}

#[test]
fn who_sends_garbage_is_closed_and_others_are_not() {
    let mut world = World::with_peers(4);
    let sessions: Vec<_> = (1..4).map(|peer| world.opened(peer, 0)).collect();
    world.send(1, sessions[0].0, vec![GARBAGE, 1, 2]);
    world.until("its end", |world| world.app(0).events.contains(&Event::Closed(sessions[0].1, Closed::Misused)));
    world.act(2, |notes, _| notes.events.clear());
    world.send(3, sessions[2].0, vec![7]);
    world.until("a message", |world| world.app(0).events.contains(&Event::Message(sessions[2].1, vec![7])));
    world.until("what it is told", |world| world.app(1).closed() == [Closed::ByPeer]);
    assert_eq!((world.app(0).closed(), world.runtime.machine(0).counters().untrue), (vec![Closed::Misused], 1));
}

#[test]
fn who_reads_nothing_is_closed_once_the_backlog_is_full() {
    let mut world = World::new();
    world.add(SessionConfig::default());
    let mut deaf = World::with_peers(1);
    let (address, key) = (world.address(0), world.key(0));
    deaf.open(0, address, Some(key));
    let end = deaf.runtime.now() + PATIENCE;
    while world.app(0).opened().is_empty() {
        assert!(deaf.runtime.now() < end, "no session");
        for runtime in [&mut world.runtime, &mut deaf.runtime] {
            let soon = runtime.now() + Duration::from_millis(5);
            runtime.turn(soon).unwrap();
        }
    }
    let session = world.app(0).opened()[0];
    let mut sent = 0;
    while world.app(0).closed().is_empty() {
        world.send(0, session, vec![0; 10_000]);
        sent += 1;
        assert!(sent < 1000, "nothing bounds what waits");
    }
    assert_eq!(world.app(0).closed(), [Closed::Misused]);
    assert!(sent > 100, "a megabyte may wait: {sent}");
}

#[test]
fn datagrams_share_one_window_and_none_waits_in_a_queue() {
    let mut world = World::with_peers(4);
    let sessions: Vec<_> = (1..4).map(|peer| world.opened(0, peer)).collect();
    let most = Bytes::new(30_000);
    world.runtime.machine_mut(0).set_bounds(Bounds { fixed: Some(most), ..Bounds::default() });
    world.act(0, |notes, _| notes.datagrams = sessions.iter().map(|&(here, _)| (here, 2000)).collect());
    let total = |world: &World| -> usize {
        sessions.iter().zip(1..).map(|(&(_, there), peer)| world.app(peer).datagrams_from(there)).sum()
    };
    let end = world.runtime.now() + PATIENCE;
    while total(&world) < 5500 && world.runtime.now() < end {
        let soon = world.runtime.now() + Duration::from_millis(20);
        world.runtime.turn(soon).unwrap();
        let machine = world.runtime.machine(0);
        // A repair leaves whatever the window says.
        assert!(machine.in_flight() <= most + Bytes::new(3 * 1500), "{:?}", machine.in_flight());
    }
    assert!(total(&world) >= 5500, "{}", total(&world));
}

#[test]
fn of_a_peer_that_floods_no_more_is_read_than_may_be_and_others_are_heard() {
    let mut world = World::with_peers(2);
    let most_packets_per_s = 1000;
    let flooded = world.add(SessionConfig { most_packets_per_s, ..SessionConfig::default() });
    let (flood, there) = world.opened(0, flooded);
    let (other, others) = world.opened(1, flooded);
    // It does not care for losses.
    let bounds = Bounds { fixed: Some(Bytes::new(1_000_000)), ..Bounds::default() };
    world.runtime.machine_mut(0).set_bounds(bounds);
    let began = world.runtime.now();
    while world.runtime.machine(flooded).counters().dropped < 100 {
        assert!(world.runtime.now() < began + PATIENCE, "a flood never came");
        world.act(0, |notes, _| notes.datagrams = [(flood, 1000)].into_iter().collect());
        let soon = world.runtime.now() + Duration::from_millis(20);
        world.runtime.turn(soon).unwrap();
    }
    let read = world.app(flooded).datagrams_from(there) as f64;
    let span = world.runtime.now().since(began).as_secs_f64();
    assert!(read <= 1000.0 * (span + 0.1) + 1.0, "{read} in {span} s");
    world.act(1, |notes, _| notes.datagrams = [(other, 50)].into_iter().collect());
    world.until("what another one sends", |world| world.app(flooded).datagrams_from(others) == 50);
}

#[test]
fn packets_of_strangers_cost_nothing_and_a_flood_of_handshakes_disturbs_nobody() {
    let mut world = World::with_peers(2);
    let (one, other) = world.opened(1, 0);
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = world.address(0);
    let mut rng = Rng::stream(1, "garbage");
    for number in 0..2000usize {
        let mut bytes: Vec<u8> = (0..1200).map(|_| rng.bits() as u8).collect();
        if number % 2 == 0 {
            // The beginning of a first packet of QUIC version 1, and lengths that are true.
            bytes[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]);
            bytes[14] = 0;
        }
        let _ = stranger.send_to(&bytes, to);
        if number % 50 == 0 {
            world.run_for(Duration::from_millis(1));
        }
    }
    world.send(1, one, vec![1]);
    world.until("a message", |world| world.app(0).events.contains(&Event::Message(other, vec![1])));
    assert_eq!((world.runtime.machine(0).connections(), world.app(0).closed()), (1, vec![]));
}

#[test]
fn a_way_is_opened_by_what_is_no_session_and_who_gets_it_answers_nothing() {
    let mut world = World::with_peers(2);
    let there = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    there.set_nonblocking(true).unwrap();
    let (to, peer) = (there.local_addr().unwrap(), world.address(1));
    world.act(0, |_, sessions| (0..2 * MOST_WAYS).for_each(|_| sessions.open_way(to)));
    world.act(0, |_, sessions| sessions.open_way(peer));
    world.run_for(Duration::from_millis(50));
    let mut bytes = [0; 100];
    let came: Vec<_> = std::iter::from_fn(|| there.recv_from(&mut bytes).ok()).collect();
    assert_eq!(came, vec![(1, world.address(0)); MOST_WAYS]);
    assert_eq!(world.runtime.machine(1).sent().packets, 0);
    assert_eq!(world.runtime.machine(1).connections(), 0);
    world.opened(1, 0);
}

#[test]
fn no_more_sessions_are_there_than_may_be_nor_handshakes_of_one_network() {
    let mut world = World::new();
    world.add(SessionConfig { most_sessions: 3, ..SessionConfig::default() });
    (0..5).for_each(|_| _ = world.add(SessionConfig::default()));
    let (address, key) = (world.address(0), world.key(0));
    for peer in 1..6 {
        world.open(peer, address, Some(key));
    }
    let is_settled = |world: &World, peer: usize| !world.app(peer).events.is_empty();
    world.until("answers", |world| (1..6).all(|peer| is_settled(world, peer)));
    world.run_for(Duration::from_millis(300));
    let refused = (1..6).filter(|&peer| world.app(peer).closed() == [Closed::Refused]).count();
    assert_eq!((refused, world.runtime.machine(0).sessions()), (2, 3));
    assert_eq!(world.runtime.machine(0).counters().refused, 2);
    // The first may not begin another one either.
    let (address, key) = (world.address(4), world.key(4));
    assert!(world.act(0, |_, sessions| sessions.open(address, Some(key))).is_none());
}

/// All are at one address here.
#[test]
fn peers_that_may_come_do_not_wait_for_others_of_their_network() {
    for knows_who_comes in [true, false] {
        let mut world = World::new();
        world.add(SessionConfig { knows_who_comes, ..SessionConfig::default() });
        (0..100).for_each(|_| _ = world.add(SessionConfig::default()));
        let (address, key) = (world.address(0), world.key(0));
        let refused = |world: &World| (1..101).filter(|&peer| !world.app(peer).closed().is_empty()).count();
        // No more at once than may have begun and not confirmed.
        for peers in [1..51, 51..101] {
            peers.clone().for_each(|peer| _ = world.open(peer, address, Some(key)));
            let all = peers.end - 1;
            world.until("answers", |world| world.runtime.machine(0).sessions() + refused(world) == all);
        }
        assert_eq!(refused(&world) > 0, !knows_who_comes, "{}", refused(&world));
    }
}

#[test]
fn a_network_begins_no_more_handshakes_than_its_bucket_has() {
    let mut world = World::with_peers(2);
    let (address, key) = (world.address(1), world.key(1));
    let answers = |world: &World| world.app(0).opened().len() + world.app(0).closed().len();
    for round in 1..=2 {
        let sessions: Vec<_> = (0..60).map(|_| world.open(0, address, Some(key))).collect();
        world.until("answers", |world| answers(world) >= 60 * round);
        for session in sessions {
            world.act(0, |_, acting| acting.close(session));
        }
    }
    let refused = world.app(0).closed().iter().filter(|&&why| why == Closed::Refused).count();
    // Some are put back into the bucket while it is emptied.
    assert!(refused > 20, "{refused}");
    assert_eq!(world.runtime.machine(1).counters().refused as usize, refused);
}

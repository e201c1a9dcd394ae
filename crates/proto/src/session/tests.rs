use core::convert::Infallible;
use std::sync::{Arc, Mutex};

use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::flow::{Feedback, FlowController, Limits};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use proptest::prelude::*;

use super::books::State;
use super::packet::{Content, Hello, Messages, Welcome};
use super::*;
use crate::flow::{Ack, AckRanges};
use crate::machine::{Arrival, Departure, Machine, Out};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Note(usize);

impl WireLength for Note {
    fn wire_length(&self) -> usize {
        self.0
    }
}

/// What an application was notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Open(u32, u32, bool),
    Message(u32, usize),
    Datagram(u32, usize),
    Closed(u32, Closed),
}

#[derive(Clone, Debug, Default)]
struct Log {
    refuses: bool,
    events: Vec<Event>,
    datagrams: Vec<(SessionId, Note)>,
}

impl Application for Log {
    type Address = u32;
    type Message = Note;
    type Datagram = Note;
    type Event = Infallible;

    fn accepts(&mut self, _: Time, _: &Remote<u32>) -> bool {
        !self.refuses
    }

    fn on_open(&mut self, _: Time, session: SessionId, remote: &Remote<u32>, _: &mut impl Sessions<Log>) {
        self.events.push(Event::Open(session.0, remote.address, remote.is_initiator));
    }

    fn on_message(&mut self, _: Time, session: SessionId, message: Note, _: &mut impl Sessions<Log>) {
        self.events.push(Event::Message(session.0, message.0));
    }

    fn on_datagram(&mut self, _: Time, session: SessionId, datagram: Note, _: &mut impl Sessions<Log>) {
        self.events.push(Event::Datagram(session.0, datagram.0));
    }

    fn on_closed(&mut self, _: Time, session: SessionId, why: Closed, _: &mut impl Sessions<Log>) {
        self.events.push(Event::Closed(session.0, why));
    }

    fn on_timer(&mut self, _: Time, _: &mut impl Sessions<Log>) {}

    fn timer(&self, _: Time) -> Time {
        Time::MAX
    }

    fn waiting(&self) -> Bytes {
        SessionConfig::PACKET * self.datagrams.len() as u64
    }

    fn next_datagram(&mut self, _: Time) -> Option<(SessionId, Note)> {
        self.datagrams.pop()
    }
}

type Peer = FlowSessions<Log>;
type Carried = Packet<Note, Note>;

fn key(node: u32) -> PeerKey {
    PeerKey([node as u8; 32])
}

fn peer(node: u32, config: SessionConfig) -> Peer {
    let setup = Setup::new(SessionConfig::PACKET, Time::ZERO);
    let controller = find("cubic").unwrap().make(&setup, &toml::Table::new()).unwrap();
    FlowSessions::new(Log::default(), config, key(node), controller, &Rng::indexed(1, "peer", u64::from(node)))
}

/// What leaves a peer.
#[derive(Default)]
struct Left(Vec<(u32, u32, Carried)>);

impl Out<Peer> for Left {
    fn send(&mut self, departure: Departure<u32>, packet: &Carried) {
        self.0.push((departure.to, departure.size, packet.clone()));
    }

    fn event(&mut self, event: Infallible) {
        match event {}
    }

    fn job(&mut self, job: Infallible) {
        match job {}
    }
}

/// Peers with 10 ms between them. What `passes` says no to is lost.
struct Net {
    now: Time,
    peers: Vec<Peer>,
    on_way: Vec<(Time, u32, u32, Carried)>,
    sent: u64,
    bytes: u64,
    passes: fn(&Carried) -> bool,
}

impl Net {
    fn new(configs: &[SessionConfig]) -> Net {
        let peers = (0..).zip(configs).map(|(node, config)| peer(node, *config)).collect();
        Net { now: Time::ZERO, peers, on_way: Vec::new(), sent: 0, bytes: 0, passes: |_| true }
    }

    fn carry(&mut self, from: u32, left: Left) {
        for (to, size, packet) in left.0 {
            self.sent += 1;
            self.bytes += u64::from(size);
            if (self.passes)(&packet) {
                self.on_way.push((self.now + MS(10), from, to, packet));
            }
        }
    }

    fn act<R>(&mut self, node: u32, act: impl FnOnce(&mut Log, &mut Acting<'_, Log, Left>) -> R) -> R {
        let mut left = Left::default();
        let result = self.peers[node as usize].act(self.now, &mut left, act);
        self.carry(node, left);
        result
    }

    fn open(&mut self, from: u32, to: u32, key: Option<PeerKey>) -> Option<SessionId> {
        self.act(from, |_, sessions| sessions.open(to, key))
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let timers = self.peers.iter().map(|peer| peer.timer(self.now));
            let next = timers.chain(self.on_way.iter().map(|(at, ..)| *at)).min().unwrap_or(Time::MAX);
            if next > end {
                self.now = end;
                return;
            }
            assert!(next >= self.now, "a timer in the past");
            self.now = next;
            if let Some(place) = self.on_way.iter().position(|(at, ..)| *at == next) {
                let (_, from, to, mut packet) = self.on_way.remove(place);
                let mut left = Left::default();
                self.peers[to as usize].on_message(next, Arrival::new(from), &mut packet, &mut left);
                self.carry(to, left);
                continue;
            }
            for node in 0..self.peers.len() as u32 {
                if self.peers[node as usize].timer(next) <= next {
                    let mut left = Left::default();
                    self.peers[node as usize].on_timer(next, &mut left);
                    self.carry(node, left);
                }
            }
        }
    }

    fn take_events(&mut self, node: u32) -> Vec<Event> {
        core::mem::take(&mut self.peers[node as usize].app.events)
    }
}

fn two() -> Net {
    Net::new(&[SessionConfig::default(); 2])
}

/// Two with a session that 0 has begun.
fn connected() -> (Net, SessionId) {
    let mut net = two();
    let session = net.open(0, 1, Some(key(1))).unwrap();
    net.run(MS(100));
    assert_eq!(net.take_events(0), [Event::Open(0, 1, false)]);
    assert_eq!(net.take_events(1), [Event::Open(0, 0, true)]);
    (net, session)
}

#[test]
fn a_session_stands_after_one_round_trip_and_half_a_one_more_there() {
    let mut net = two();
    net.open(0, 1, None).unwrap();
    net.run(MS(19));
    assert_eq!((net.take_events(0), net.take_events(1)), (vec![], vec![]));
    net.run(MS(1));
    assert_eq!((net.take_events(0), net.take_events(1)), (vec![Event::Open(0, 1, false)], vec![]));
    net.run(MS(10));
    assert_eq!(net.take_events(1), [Event::Open(0, 0, true)]);
    let round_trip = net.act(1, |_, sessions| sessions.least_round_trip(SessionId(0)));
    assert_eq!(round_trip, Some(MS(20)));
}

/// Lets a packet leave each 8 ms, and notes whether it was told that the application limits the sender.
#[derive(Clone, Debug, Default)]
struct Paced(Arc<Mutex<Vec<bool>>>);

impl FlowController for Paced {
    fn on_feedback(&mut self, _: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        self.0.lock().unwrap().push(feedback.app_limited);
    }

    fn limits(&self) -> Limits {
        let packet = SessionConfig::PACKET;
        Limits { rate: Some(packet / MS(8)), burst: packet, ..Limits::window(packet * 100) }
    }

    fn trace(&self, _: &mut dyn FnMut(&'static str, f64)) {}
}

#[test]
fn a_pacer_that_holds_back_nothing_limits_nobody() {
    let mut net = two();
    let paced = Paced::default();
    let rng = Rng::indexed(1, "peer", 0);
    net.peers[0] = FlowSessions::new(Log::default(), SessionConfig::default(), key(0), Box::new(paced.clone()), &rng);
    let session = net.open(0, 1, Some(key(1))).unwrap();
    net.run(MS(200));
    // The ACK of the first comes while the pacer waits after two more, 5 ms later.
    let send = |net: &mut Net, datagrams: usize| {
        net.act(0, |app, _| app.datagrams.extend((0..datagrams).map(|_| (session, Note(1000)))));
    };
    send(&mut net, 1);
    net.run(MS(40));
    paced.0.lock().unwrap().clear();
    send(&mut net, 2);
    net.run(MS(7));
    assert_eq!(*paced.0.lock().unwrap(), [true]);
    net.run(MS(200));
    paced.0.lock().unwrap().clear();
    // Ten wait for it, and three of them fill a round trip.
    send(&mut net, 10);
    net.run(MS(60));
    assert_eq!(paced.0.lock().unwrap().first(), Some(&false));
}

#[test]
fn whoever_is_not_accepted_or_has_another_key_is_refused() {
    let mut net = two();
    net.peers[1].app.refuses = true;
    net.open(0, 1, None).unwrap();
    net.run(MS(100));
    assert_eq!((net.take_events(0), net.take_events(1)), (vec![Event::Closed(0, Closed::Refused)], vec![]));
    net.peers[1].app.refuses = false;
    net.open(0, 1, Some(key(7))).unwrap();
    net.run(MS(100));
    assert_eq!((net.take_events(0), net.take_events(1)), (vec![Event::Closed(0, Closed::Refused)], vec![]));
    assert_eq!((net.peers[0].sessions(), net.peers[1].sessions()), (0, 0));
    // An honest end refuses by itself; a dishonest one is found out.
    let mut hello = two();
    hello.peers[1].books.key = key(7);
    hello.passes = |packet| !matches!(packet.content, Content::Refusal);
    hello.open(0, 1, None).unwrap();
    hello.run(MS(5));
    if let State::Asking(asked) = &mut hello.peers[0].books.session_mut(0).unwrap().state {
        *asked = Some(key(1));
    }
    hello.run(MS(100));
    assert_eq!((hello.take_events(0), hello.take_events(1)), (vec![Event::Closed(0, Closed::Refused)], vec![]));
    assert_eq!(hello.peers[1].sessions(), 0, "it was told");
}

#[test]
fn messages_go_before_datagrams_and_wait_for_the_session() {
    let mut net = two();
    let session = net.open(0, 1, None).unwrap();
    net.act(0, |app, sessions| {
        for length in [0, 3000, 5] {
            sessions.send(session, Note(length));
        }
        app.datagrams.push((session, Note(1316)));
    });
    net.run(MS(15));
    // The session did not stand: a datagram was for nobody.
    assert_eq!(net.peers[0].counters().datagrams_withheld, 1);
    net.act(0, |app, _| app.datagrams.push((session, Note(1200))));
    net.run(MS(100));
    let messages = [0, 3000, 5].map(|length| Event::Message(0, length));
    let events = net.take_events(1);
    assert_eq!(events[..4], [[Event::Open(0, 0, true)].as_slice(), &messages].concat());
    assert_eq!(net.peers[0].counters().message_packets_sent, 3, "3011 bytes with lengths");
}

#[test]
fn a_session_with_too_much_that_waits_is_closed_at_both_ends() {
    let (mut net, session) = connected();
    net.passes = |packet| !matches!(packet.content, Content::Messages(_));
    net.act(0, |_, sessions| (0..1100).for_each(|_| sessions.send(session, Note(1000))));
    assert_eq!(net.take_events(0), [Event::Closed(0, Closed::Misused)]);
    net.run(MS(100));
    assert_eq!(net.take_events(1), [Event::Closed(0, Closed::ByPeer)]);
    assert_eq!((net.peers[0].in_flight(), net.peers[0].sessions()), (Bytes::ZERO, 0));
}

#[test]
fn a_number_is_used_again_once_its_session_is_over_and_begins_anew() {
    let (mut net, session) = connected();
    net.act(0, |app, sessions| {
        app.datagrams.extend((0..5).map(|_| (session, Note(1000))));
        sessions.send(session, Note(10));
    });
    net.run(MS(12));
    net.act(0, |_, sessions| sessions.close(session));
    assert_eq!(net.peers[0].in_flight(), Bytes::ZERO);
    let again = net.open(0, 1, None).unwrap();
    assert_eq!(again, session);
    net.run(MS(200));
    assert_eq!(net.take_events(0), [Event::Open(0, 1, false)]);
    let events = net.take_events(1);
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Closed(0, Closed::ByPeer))).count(), 1);
    assert_eq!(events.last(), Some(&Event::Open(0, 0, true)));
    assert_eq!(net.peers[0].counters().untrue, 0);
    net.act(0, |_, sessions| sessions.send(again, Note(77)));
    net.run(MS(100));
    assert_eq!(net.take_events(1), [Event::Message(0, 77)]);
}

#[test]
fn an_idle_session_lives_by_a_few_packets_and_a_lost_peer_is_known_after_the_timeout() {
    let (mut net, _) = connected();
    let before = net.sent;
    net.run(MS(100_000));
    assert_eq!((net.take_events(0), net.take_events(1)), (vec![], vec![]));
    // A ping of either end each 15 s, with an ACK each.
    assert!(net.sent - before <= 4 * 7, "{}", net.sent - before);
    net.passes = |_| false;
    net.run(MS(45_100));
    assert_eq!(net.take_events(0), [Event::Closed(0, Closed::TimedOut)]);
    assert_eq!(net.take_events(1), [Event::Closed(0, Closed::TimedOut)]);
}

/// What the receiver sends keeps the session alive, so that no idle timeout ends the silence.
#[test]
fn a_silent_receiver_is_probed_every_two_seconds_however_long_nothing_reaches_it() {
    let (mut net, session) = connected();
    net.passes = |packet| !matches!(packet.content, Content::Messages(_) | Content::Ping);
    net.act(0, |_, sessions| sessions.send(session, Note(77)));
    for _ in 0..6 {
        net.act(1, |app, _| app.datagrams.push((SessionId(0), Note(5))));
        net.run(MS(10_000));
    }
    assert_eq!((net.take_events(0), net.take_events(1)), (vec![Event::Datagram(0, 5); 6], vec![]));
    net.passes = |_| true;
    net.run(MS(2_100));
    assert_eq!(net.take_events(1), [Event::Message(0, 77)]);
}

#[test]
fn an_end_whose_farewell_was_lost_says_so_when_it_is_asked() {
    let (mut net, session) = connected();
    net.passes = |packet| !matches!(packet.content, Content::Close);
    net.act(0, |_, sessions| sessions.close(session));
    net.run(MS(100));
    assert_eq!(net.take_events(1), []);
    net.act(1, |_, sessions| sessions.send(SessionId(0), Note(1)));
    net.run(MS(100));
    assert_eq!(net.take_events(1), [Event::Closed(0, Closed::ByPeer)]);
}

#[test]
fn nobody_answers_after_the_idle_timeout_and_half_open_sessions_end_unheard() {
    let mut net = two();
    net.passes = |packet| !matches!(packet.content, Content::Welcome(_));
    net.open(0, 1, None).unwrap();
    net.run(MS(29_000));
    assert_eq!((net.take_events(0), net.peers[1].sessions()), (vec![], 1));
    net.run(MS(32_000));
    assert_eq!(net.take_events(0), [Event::Closed(0, Closed::TimedOut)]);
    assert_eq!((net.take_events(1), net.peers[1].sessions(), net.peers[1].books.half_open), (vec![], 0, 0));
}

#[test]
fn sessions_are_bounded_and_those_that_strangers_begin_more_so() {
    let few = SessionConfig { most_sessions: 3, most_half_open: 2, ..SessionConfig::default() };
    let mut net = Net::new(&[few, few, few, few]);
    assert!((0..3).all(|_| net.open(0, 1, None).is_some()));
    assert_eq!(net.open(0, 2, None), None);
    // Nobody confirms: the third is refused.
    net.passes = |packet| !matches!(packet.content, Content::Ping);
    net.run(MS(15));
    assert_eq!((net.peers[1].sessions(), net.peers[1].books.half_open), (2, 2));
    net.run(MS(20));
    assert_eq!(net.take_events(0).iter().filter(|event| matches!(event, Event::Closed(_, Closed::Refused))).count(), 1);
    assert_eq!(net.peers[1].counters().refused, 1);
}

#[test]
fn packets_are_as_long_as_quics() {
    let packet = |ack, content| Carried { ack, content, ..Carried::default() };
    let ack = Ack { ranges: AckRanges::new([(9, 9), (5, 7)]), delay: Duration::ZERO, ce_count: 0 };
    assert_eq!(packet(None, Content::Datagram(Note(1316))).size(), 28 + 27 + 3 + 1316);
    assert_eq!(packet(Some(ack), Content::Nothing).size(), 28 + 27 + 10 + 4);
    // The longest fits into Ethernet's 1500 B, whatever rides with it.
    let ranges = AckRanges::new([(9, 9), (7, 7), (5, 5), (3, 3)]);
    let part = Messages { offset: 0, length: SessionConfig::PACKET.get() as u32, messages: Vec::new() };
    assert!(packet(Some(Ack { ranges, ..ack }), Content::Messages(Box::new(part))).size() <= 1500);
}

/// Anything that an enemy may send.
fn hostile() -> impl Strategy<Value = Carried> {
    let small = || prop_oneof![0u64..4, any::<u64>()];
    let content = (0u8..9, small(), any::<u32>(), prop::collection::vec((small(), 0usize..2000), 0..4));
    let ack = prop::option::of((small(), 0u64..5));
    (prop_oneof![Just(0u32), 0u32..3], any::<bool>(), small(), ack, content).prop_map(
        |(slot, knows, number, ack, (kind, offset, length, notes))| {
            let from = ConnectionId { slot, token: length };
            let content = match kind {
                0 => Content::Nothing,
                1 => Content::Datagram(Note(length as usize % 3000)),
                2 => {
                    let messages = notes.into_iter().map(|(end, note)| (end, Note(note))).collect();
                    Content::Messages(Box::new(Messages { offset, length, messages }))
                }
                3 => Content::Ping,
                4 => Content::Hello(Box::new(Hello { from, attempt: length, key: key(9), asked: None })),
                5 => Content::Welcome(Box::new(Welcome { from, attempt: Some(length), key: key(9) })),
                6 => Content::Refusal,
                7 => Content::Close,
                _ => Content::Reset,
            };
            let ranges = |(low, span): (u64, u64)| AckRanges::new([(low, low.saturating_add(span))]);
            let ack = ack.map(|ack| Ack { ranges: ranges(ack), delay: MS(length.into()), ce_count: number });
            // The token is filled in by the test where the enemy knows it.
            Carried { to: ConnectionId { slot, token: u32::from(knows) }, number, ack, content, ..Packet::default() }
        },
    )
}

proptest! {
    #[test]
    fn whatever_a_peer_sends_is_borne_and_bounded(packets in prop::collection::vec(hostile(), 1..60)) {
        let (mut net, session) = connected();
        net.act(0, |_, sessions| sessions.send(session, Note(5000)));
        for mut packet in packets {
            let slots = &net.peers[0].books.slots;
            if packet.to.token == 1 && let Some(slot) = slots.get(packet.to.slot as usize) {
                packet.to.token = slot.token;
            }
            let mut left = Left::default();
            net.peers[0].on_message(net.now, Arrival::new(1), &mut packet, &mut left);
            net.carry(0, left);
            net.run(MS(7));
        }
        net.run(MS(300_000));
        prop_assert!(net.peers[0].sessions() <= 64 + 1);
        // Of those that strangers have begun, none has lasted: each was confirmed or is over.
        prop_assert_eq!(net.peers[0].books.half_open, 0);
    }
}

#[test]
fn an_ack_that_is_not_due_leaves_with_nothing_else() {
    let mut net = Net::new(&[SessionConfig::default(); 2]);
    let session = net.open(0, 1, None).unwrap();
    net.run(MS(200));
    let before = net.peers[1].counters();
    net.act(0, |log, _| log.datagrams.push((session, Note(100))));
    net.run(MS(15));
    // The datagram came 5 ms ago, and nine more may come for 20 ms.
    net.act(1, |log, _| log.datagrams.push((SessionId(0), Note(100))));
    let counters = |net: &Net| {
        let now = net.peers[1].counters();
        (
            now.datagrams_sent - before.datagrams_sent,
            now.acks_riding - before.acks_riding,
            now.acks_alone - before.acks_alone,
        )
    };
    assert_eq!(counters(&net), (1, 0, 0));
    net.run(MS(19));
    assert_eq!(counters(&net), (1, 0, 0));
    net.run(MS(2));
    assert_eq!(counters(&net), (1, 0, 1), "25 ms after the datagram came");
}

//! Transfers over a network in memory that loses, repeats and overtakes: either the file
//! arrives whole, or an error is said; and nothing depends on a real clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anabranch_control::path::Slot;
use anabranch_control::path::registry::{self, Pacing, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::RttConfig;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::courier::Courier;
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::message::{FileName, Message, Offer};
use anabranch_proto::path_sender::{PathSender, SenderConfig};
use anabranch_proto::peer::{Outbox, Peer, Sender};
use anabranch_proto::relay_node::RelayNode;
use anabranch_proto::seal::{Hello, Identity, PublicKey, SessionId};
use anabranch_proto::transfer::{
    Event, FileSender, Limits, Receiver, Source, Store, StoreError, Transferred, block_size,
};
use anabranch_proto::wire;
use proptest::prelude::*;

const RELAYS: usize = 6;
const RECEIVER: usize = RELAYS;
const SENDER: usize = RELAYS + 1;
const PACKET: usize = 600;

fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8 + 1], 4000))
}

/// What a network does to datagrams.
#[derive(Clone, Debug, Default)]
struct Weather {
    loss: f64,
    duplicates: f64,
    jitter_ms: u64,
    /// Relays that forward nothing, from a time on.
    dead: Vec<(usize, Time)>,
    /// A bit of a datagram flips.
    damage: f64,
}

/// Published files by name; what is not published does not count.
type Shelf = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

#[derive(Default)]
struct MemoryStore {
    arriving: BTreeMap<SessionId, Vec<u8>>,
    shelf: Shelf,
    /// Writing fails from this offset on: a full disk.
    full_at: Option<u64>,
}

impl Store for MemoryStore {
    fn create(&mut self, session: SessionId, offer: &Offer) -> Result<(), StoreError> {
        self.arriving.insert(session, vec![0; offer.length as usize]);
        Ok(())
    }

    fn write(&mut self, session: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if self.full_at.is_some_and(|full| offset >= full) {
            return Err(StoreError("no space left".into()));
        }
        self.arriving.get_mut(&session).unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, session: SessionId, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        bytes.copy_from_slice(&self.arriving[&session][offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn publish(&mut self, session: SessionId, offer: &Offer) -> Result<String, StoreError> {
        let name = offer.name.to_string();
        self.shelf.lock().unwrap().insert(name.clone(), self.arriving.remove(&session).unwrap());
        Ok(name)
    }

    fn discard(&mut self, session: SessionId) {
        self.arriving.remove(&session);
    }
}

struct MemorySource(Vec<u8>);

impl Source for MemorySource {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        bytes.copy_from_slice(rest.get(..bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// When, in which order it was sent, from, to, bytes.
type Arrival = Reverse<(Time, u64, usize, usize, Vec<u8>)>;

/// How the sender ended, if it did; what was published; and all that took part.
type Ended = (Option<Result<Transferred, String>>, BTreeMap<String, Vec<u8>>, Network);

struct Network {
    now: Time,
    peers: Vec<Peer>,
    weather: Weather,
    rng: Rng,
    queue: BinaryHeap<Arrival>,
    sent: u64,
}

#[derive(Default)]
struct Sent(Vec<(SocketAddr, Duration, Vec<u8>)>);

impl Outbox for Sent {
    fn send(&mut self, to: SocketAddr, wait: Duration, header: &[u8], body: &[u8]) {
        self.0.push((to, wait, [header, body].concat()));
    }
}

impl Network {
    fn deliver(&mut self, from: usize, sent: Sent) {
        for (to, wait, mut bytes) in sent.0 {
            let dead = self.weather.dead.iter().any(|&(node, since)| node == from && self.now >= since);
            let Some(to) = (0..self.peers.len()).find(|&node| address(node) == to).filter(|_| !dead) else { continue };
            if self.rng.chance(self.weather.damage) {
                let place = self.rng.below(bytes.len());
                bytes[place] ^= 1 << self.rng.below(8);
            }
            let copies = if self.rng.chance(self.weather.duplicates) { 2 } else { 1 };
            for _ in 0..copies {
                if self.rng.chance(self.weather.loss) {
                    continue;
                }
                let jitter = self.rng.below(self.weather.jitter_ms as usize + 1) as u64;
                let at = self.now + wait + Duration::from_millis(5 + jitter);
                self.sent += 1;
                self.queue.push(Reverse((at, self.sent, from, to, bytes.clone())));
            }
        }
    }

    /// Runs until the sender is over, or an hour has passed.
    fn run(&mut self) -> Option<Result<Transferred, String>> {
        while self.now < Time::from_secs_f64(3600.0) {
            for node in 0..self.peers.len() {
                let mut sent = Sent::default();
                let peer = &mut self.peers[node];
                peer.on_timer(self.now);
                while peer.poll(self.now, &mut sent) {}
                while peer.work() {}
                self.deliver(node, sent);
            }
            if let Some(sender) = self.peers[SENDER].file_sender_mut()
                && sender.is_over()
            {
                return Some(match sender.outcome()? {
                    Ok(done) => Ok(done.clone()),
                    Err(error) => Err(error.to_string()),
                });
            }
            let timers = self.peers.iter().map(Peer::timer).min()?;
            let arrival = self.queue.peek().map_or(Time::MAX, |Reverse((at, ..))| *at);
            let next = timers.min(arrival);
            assert!(next > self.now || arrival <= self.now, "a timer that has passed stays set: the driver would spin");
            self.now = next.max(self.now);
            while let Some(Reverse((at, ..))) = self.queue.peek()
                && *at <= self.now
            {
                let Some(Reverse((_, _, from, to, bytes))) = self.queue.pop() else { break };
                let mut sent = Sent::default();
                self.peers[to].on_datagram(self.now, address(from), &bytes, &mut sent);
                self.deliver(to, sent);
            }
        }
        None
    }
}

struct Case {
    file: Vec<u8>,
    hash: [u8; 32],
    weather: Weather,
    controller: &'static str,
    key: Option<PublicKey>,
    identity: Identity,
    limits: Limits,
    full_at: Option<u64>,
    seed: u64,
}

impl Case {
    fn new(length: usize, seed: u64) -> Case {
        let mut rng = Rng::stream(seed, "file");
        let file: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
        let identity = Identity::generate();
        Case {
            hash: *blake3::hash(&file).as_bytes(),
            file,
            weather: Weather::default(),
            controller: "q-learning",
            key: Some(identity.public()),
            identity,
            limits: Limits::default(),
            full_at: None,
            seed,
        }
    }

    fn run(self) -> Ended {
        let nodes: Vec<SocketAddr> =
            [wire::unknown_source(address(0))].into_iter().chain((0..3).map(address)).collect();
        let block = block_size(&nodes, PACKET).unwrap();
        let addresses: Vec<SocketAddr> = (0..=RECEIVER).map(address).collect();
        let packet = Bytes::new(PACKET as u64);
        let config = SenderConfig { peers: addresses.len(), relays: 2, packet, rtt: RttConfig::default() };
        let setup = Setup { peers: addresses.len(), packet, start: Time::ZERO, pacing: Pacing::Burst };
        let made = registry::find(self.controller).unwrap().build.make(&setup, &toml::Table::new());
        let made = made.expect("not for simulation only").unwrap();
        let machine = PathSender::new(&config, made, Rng::stream(self.seed, "s"));
        let courier = Courier::new(machine, addresses, packet, Some(Rate::from_bytes_per_sec(200_000)), [3; 32]);
        let length = self.file.len() as u64;
        let offer = Offer { name: FileName::sanitised("a.bin"), length, block, hash: self.hash };
        let source = Box::new(MemorySource(self.file));
        let sender = FileSender::new(Time::ZERO, courier, Slot(RECEIVER as u16), self.key, offer, source);
        let shelf = Shelf::default();
        let store = MemoryStore { shelf: Arc::clone(&shelf), full_at: self.full_at, ..MemoryStore::default() };
        let receiver = Receiver::new(self.identity, self.limits, Box::new(store));
        let limit = Rate::from_bytes_per_sec(50_000);
        let relay = || RelayNode::new(LimitModel::Window { phase: Duration::ZERO }, limit);
        let mut peers: Vec<Peer> = (0..RELAYS).map(|_| Peer::new(relay(), None, None)).collect();
        peers.push(Peer::new(RelayNode::end(), Some(receiver), None));
        peers.push(Peer::new(RelayNode::end(), None, Some(Sender::File(Box::new(sender)))));
        let rng = Rng::stream(self.seed, "weather");
        let mut network =
            Network { now: Time::ZERO, peers, weather: self.weather, rng, queue: BinaryHeap::new(), sent: 0 };
        let outcome = network.run();
        let shelf = shelf.lock().unwrap().clone();
        (outcome, shelf, network)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_file_arrives_whole_in_any_weather(
        length in prop_oneof![Just(0usize), Just(1), 1..60_000usize],
        loss in 0.0..0.12f64,
        duplicates in 0.0..0.3f64,
        damage in 0.0..0.05f64,
        jitter_ms in 0u64..300,
        dead in proptest::collection::btree_set(0..RELAYS, 0..3),
        dies_ms in 0u64..5000,
        controller in prop_oneof![Just("q-learning"), Just("aimd"), Just("aimd-literal"), Just("random")],
        with_key: bool,
        seed: u64,
    ) {
        let mut case = Case::new(length, seed);
        let dies = Time::ZERO + Duration::from_millis(dies_ms);
        let dead = dead.into_iter().map(|relay| (relay, dies)).collect();
        case.weather = Weather { loss, duplicates, jitter_ms, dead, damage };
        case.controller = controller;
        case.key = case.key.filter(|_| with_key);
        let file = case.file.clone();
        let (outcome, shelf, _) = case.run();
        match outcome {
            Some(Ok(done)) => {
                prop_assert_eq!(done.length, length as u64);
                prop_assert!(shelf[&done.name] == file, "what arrived differs");
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn equal_seeds_give_equal_runs_but_for_keys() {
    let run = || {
        let mut case = Case::new(30_000, 7);
        case.weather = Weather { loss: 0.05, duplicates: 0.1, jitter_ms: 40, ..Weather::default() };
        let (outcome, _, network) = case.run();
        (outcome.unwrap().unwrap(), network.sent, network.now)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_receiver_that_is_not_there_is_an_error_after_a_while() {
    let mut case = Case::new(1000, 1);
    case.weather.loss = 1.0;
    let (outcome, shelf, network) = case.run();
    assert!(outcome.unwrap().unwrap_err().contains("no answer from the receiver"));
    assert!(shelf.is_empty() && network.now <= Time::from_secs_f64(40.0), "{}", network.now);
}

#[test]
fn relays_that_all_die_in_the_middle_are_an_error_and_leave_nothing() {
    let mut case = Case::new(400_000, 2);
    let dies = Time::from_secs_f64(3.0);
    case.weather.dead = (0..RELAYS).map(|relay| (relay, dies)).collect();
    let (outcome, shelf, mut network) = case.run();
    assert!(outcome.unwrap().unwrap_err().contains("nothing was heard"));
    // The receiver gives the session up on its own.
    let receiver = network.peers[RECEIVER].receiver_mut().unwrap();
    assert_ne!(receiver.progress(), (0, 0));
    receiver.on_timer(network.now + Limits::default().idle);
    assert_eq!(receiver.progress(), (0, 0));
    assert!(shelf.is_empty());
}

#[test]
fn another_key_than_the_receivers_is_never_answered() {
    let mut case = Case::new(1000, 3);
    case.key = Some(Identity::generate().public());
    let (outcome, shelf, network) = case.run();
    assert!(outcome.unwrap().unwrap_err().contains("key"));
    assert!(shelf.is_empty());
    assert!(network.peers[RECEIVER].receiver().unwrap().counters().greetings_refused > 0);
}

#[test]
fn a_file_that_changes_while_it_is_sent_does_not_arrive() {
    let mut case = Case::new(5000, 4);
    case.hash[0] ^= 1;
    let (outcome, shelf, _) = case.run();
    assert!(outcome.unwrap().unwrap_err().contains("hash"));
    assert!(shelf.is_empty());
}

#[test]
fn a_full_disk_is_said_to_the_sender() {
    let mut case = Case::new(50_000, 5);
    case.full_at = Some(20_000);
    let (outcome, shelf, mut network) = case.run();
    assert!(outcome.unwrap().unwrap_err().contains("no space left"));
    let receiver = network.peers[RECEIVER].receiver_mut().unwrap();
    let events: Vec<Event> = std::iter::from_fn(|| receiver.next_event()).collect();
    let failures = events.iter().filter(|event| matches!(event, Event::Failed { .. })).count();
    assert_eq!(failures, 1, "it is said once, whatever blocks still come: {events:?}");
    assert!(shelf.is_empty());
}

#[test]
fn a_file_beyond_the_receivers_limits_is_refused() {
    for limits in [
        Limits { file_bytes: 999, ..Limits::default() },
        Limits { blocks: 1, ..Limits::default() },
        Limits { files: 0, ..Limits::default() },
    ] {
        let mut case = Case::new(1000, 6);
        case.limits = limits;
        let (outcome, shelf, _) = case.run();
        assert!(outcome.unwrap().unwrap_err().contains("refuses the file"));
        assert!(shelf.is_empty());
    }
}

/// Strangers who greet, send fillers, make offers that are refused, and files that are
/// empty, all day long.
#[test]
fn strangers_can_not_make_a_receiver_remember_without_bound() {
    let limits = Limits { greetings: 8, files: 4, file_bytes: 1000, ..Limits::default() };
    let identity = Identity::generate();
    let mut receiver = Receiver::new(identity.clone(), limits, Box::new(MemoryStore::default()));
    let mut now = Time::ZERO;
    let offer =
        |length: u64| Offer { name: FileName::sanitised("a"), length, block: 100, hash: *blake3::hash(&[]).as_bytes() };
    let (mut fillers, mut most) = (0, 0);
    for stranger in 0..400u64 {
        now += Duration::from_millis(20);
        receiver.on_timer(now);
        let (mut hello, mut reply) = (Vec::new(), Vec::new());
        let waiting = Hello::new(Some(&identity.public()), stranger, &mut hello);
        assert!(receiver.on_hello(now, &hello, &mut reply));
        let (mut session, _) = waiting.complete(&reply).unwrap();
        let message = match stranger % 4 {
            0 => Message::Filler,
            1 => Message::Offer(offer(2000)),
            2 => Message::Offer(offer(0)),
            _ => Message::Offer(offer(500)),
        };
        let (mut plain, mut sealed, mut report) = (Vec::new(), Vec::new(), Vec::new());
        message.encode(stranger, &mut plain);
        session.seal_data(&plain, &mut sealed);
        fillers += usize::from(receiver.on_data(now, &sealed, &mut report).is_some() && stranger % 4 == 0);
        while receiver.work() {}
        most = most.max(receiver.sessions());
    }
    assert_eq!(fillers, 0, "load is not taken from strangers");
    assert!((8..=13).contains(&most), "{most} sessions were remembered");
}

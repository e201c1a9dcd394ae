//! Transfers over a network in memory that loses, repeats and overtakes: either the file
//! arrives whole, or an error is said; and nothing depends on a real clock.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anabranch_control::path::Slot;
use anabranch_control::path::registry::{self, Pacing, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::RttConfig;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::soak::disks::{Disks, SlowDisk};
use anabranch_lab::soak::store::{MemorySource, MemoryStore, Shelf, SourceFault};
use anabranch_lab::world::{Address, OnTheWire, World};
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::overlay::courier::Courier;
use anabranch_proto::overlay::hello::{COOKIE, HelloBody, HelloReply};
use anabranch_proto::overlay::message::{FileName, Message, Offer};
use anabranch_proto::overlay::path_sender::{PathSender, SenderConfig};
use anabranch_proto::overlay::peer::{Peer, Sender};
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::overlay::wire;
use anabranch_proto::seal::{Hello, Identity, PublicKey, Session};
use anabranch_proto::transfer::{Event, FileSender, Limits, Receiver, ReceiverCounters, Transferred, block_size};
use anabranch_sim::delay::{DelayModel, JitterTail};
use anabranch_sim::fabric::NodeId;
use anabranch_sim::faults::{Faults, Faulty};
use anabranch_sim::pairs::{Letter, Pairs, PairsConfig};
use proptest::prelude::*;

const RELAYS: usize = 6;
const RECEIVER: usize = RELAYS;
const SENDER: usize = RELAYS + 1;
const PACKET: usize = 600;

fn address(number: usize) -> SocketAddr {
    SocketAddr::of(node(number))
}

/// What a network does to datagrams.
#[derive(Clone, Debug, Default)]
struct Weather {
    faults: Faults,
    /// Relays that forward nothing, from a time on.
    dead: Vec<(usize, Time)>,
    /// When the sender is told to give up.
    cancelled: Option<Time>,
}

/// How the sender ended, if it did; what was published; and all that took part.
type Ended = (Option<Result<Transferred, String>>, BTreeMap<String, Vec<u8>>, Network);

type Network = World<Peer, Faulty<Pairs<Letter<Vec<u8>>>>, OnTheWire, (), Disks>;

const fn node(number: usize) -> NodeId {
    NodeId(number as u32)
}

fn file_sender(network: &Network) -> &FileSender {
    match network.node(node(SENDER)).and_then(Peer::sender) {
        Some(Sender::File(sender)) => sender,
        other => panic!("the sender sends a file, not {other:?}"),
    }
}

fn receiver(network: &Network) -> &Receiver {
    network.node(node(RECEIVER)).and_then(Peer::receiver).unwrap()
}

/// Runs until the sender is over, or an hour has passed.
fn run(network: &mut Network, weather: &Weather) -> Option<Result<Transferred, String>> {
    while network.now() < Time::from_secs_f64(3600.0) {
        for &(relay, since) in &weather.dead {
            if network.now() >= since {
                network.leave(node(relay));
            }
        }
        if weather.cancelled.is_some_and(|at| network.now() >= at) {
            network.act(node(SENDER), |peer, _, _| peer.file_sender_mut().unwrap().cancel());
        }
        let sender = file_sender(network);
        if sender.is_over() {
            return Some(match sender.outcome()? {
                Ok(done) => Ok(done.clone()),
                Err(error) => Err(error.to_string()),
            });
        }
        let is_done = network.step_at_most(network.now() + Duration::from_millis(10), 100_000);
        assert!(is_done, "a timer that has passed stays set: the driver would spin");
    }
    None
}

struct Case {
    file: Vec<u8>,
    hash: [u8; 32],
    weather: Weather,
    controller: &'static str,
    key: Option<PublicKey>,
    identity: Identity,
    limits: Limits,
    room: u64,
    /// The receiver's, and the sender's.
    disks: [Option<SlowDisk>; 2],
    upload: Option<Rate>,
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
            room: u64::MAX,
            disks: [None; 2],
            upload: Some(Rate::from_bytes_per_sec(200_000)),
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
        let courier = Courier::new(machine, addresses, packet, self.upload, [3; 32]);
        let length = self.file.len() as u64;
        let offer = Offer { name: FileName::sanitised("a.bin"), length, block, hash: self.hash };
        let source = MemorySource::new(self.file.into(), SourceFault::None);
        let sender = FileSender::new(Time::ZERO, courier, Slot(RECEIVER as u16), self.key, offer);
        let shelf = Shelf::default();
        let store = MemoryStore::new(shelf.clone(), self.room);
        let disks = Disks::new(store, source, self.disks, self.seed);
        let receiver = Receiver::new(self.identity, self.limits);
        let limit = Rate::from_bytes_per_sec(50_000);
        let relay = || RelayNode::new(LimitModel::Window { phase: Duration::ZERO }, limit);
        let delay = DelayModel::Constant(Duration::from_millis(5));
        let pairs = Pairs::new(
            PairsConfig { delay, jitter: 0.0, jitter_tail: JitterTail::Normal, loss: 0.0 },
            SENDER + 1,
            self.seed,
        );
        let mut network = World::new(Faulty::new(pairs, self.weather.faults, self.seed), OnTheWire, (), disks);
        for _ in 0..RELAYS {
            network.join(Peer::new(relay(), None, None));
        }
        network.join(Peer::new(RelayNode::end(), Some(receiver), None));
        network.join(Peer::new(RelayNode::end(), None, Some(Sender::File(Box::new(sender)))));
        let outcome = run(&mut network, &self.weather);
        let published = shelf.take_published().into_iter().map(|(name, published)| (name, published.bytes));
        (outcome, published.collect(), network)
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
        // Every other datagram is late by up to the jitter.
        let delay = Duration::from_millis(jitter_ms);
        let faults = Faults { loss, duplication: duplicates, reordering: 0.5, delay, corruption: damage };
        case.weather = Weather { faults, dead, ..Weather::default() };
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
        let delay = Duration::from_millis(40);
        case.weather.faults = Faults { loss: 0.05, duplication: 0.1, reordering: 0.5, delay, corruption: 0.0 };
        let (outcome, _, network) = case.run();
        (outcome.unwrap().unwrap(), network.counters(), network.now(), network.fabric().counters())
    };
    assert_eq!(run(), run());
}

#[test]
fn a_receiver_that_is_not_there_is_an_error_after_a_while() {
    let mut case = Case::new(1000, 1);
    case.weather.faults.loss = 1.0;
    let (outcome, shelf, network) = case.run();
    assert!(outcome.unwrap().unwrap_err().contains("no answer from the receiver"));
    assert!(shelf.is_empty() && network.now() <= Time::from_secs_f64(40.0), "{}", network.now());
}

#[test]
fn relays_that_all_die_in_the_middle_are_an_error_and_leave_nothing() {
    let mut case = Case::new(400_000, 2);
    let dies = Time::from_secs_f64(3.0);
    case.weather.dead = (0..RELAYS).map(|relay| (relay, dies)).collect();
    let (outcome, shelf, mut network) = case.run();
    assert!(outcome.unwrap().unwrap_err().contains("nothing was heard"));
    // The receiver gives the session up on its own.
    assert_ne!(receiver(&network).progress(), (0, 0));
    network.step(network.now() + Limits::default().idle);
    assert_eq!(receiver(&network).progress(), (0, 0));
    assert!(shelf.is_empty());
}

#[test]
fn a_sender_that_gives_up_with_no_room_for_another_packet_still_comes_to_its_end() {
    for controller in ["q-learning", "aimd", "random", "flow:cubic", "flow:bbr"] {
        let mut case = Case::new(400_000, 8);
        (case.controller, case.upload) = (controller, None);
        let dies = Time::from_secs_f64(1.5);
        case.weather.dead = (0..RELAYS).map(|relay| (relay, dies)).collect();
        case.weather.cancelled = Some(dies);
        let (outcome, _, network) = case.run();
        let outcome = outcome.unwrap_or_else(|| panic!("{controller}: {:?}", file_sender(&network)));
        assert!(outcome.unwrap_err().contains("given up"), "{controller}");
        assert!(network.now() < Time::from_secs_f64(60.0), "{controller}: {}", network.now());
    }
}

#[test]
fn another_key_than_the_receivers_is_never_answered() {
    let mut case = Case::new(1000, 3);
    case.key = Some(Identity::generate().public());
    let (outcome, shelf, network) = case.run();
    assert!(outcome.unwrap().unwrap_err().contains("key"));
    assert!(shelf.is_empty());
    assert!(receiver(&network).counters().greetings_refused > 0);
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
    case.room = 20_000;
    let (outcome, shelf, mut network) = case.run();
    assert!(outcome.unwrap().unwrap_err().contains("no space left"));
    let events: Option<Vec<Event>> = network.act(node(RECEIVER), |peer, _, _| {
        let receiver = peer.receiver_mut().unwrap();
        std::iter::from_fn(|| receiver.next_event()).collect()
    });
    let events = events.unwrap();
    let failures = events.iter().filter(|event| matches!(event, Event::Failed { .. })).count();
    assert_eq!(failures, 1, "it is said once, whatever blocks still come: {events:?}");
    assert!(shelf.is_empty());
}

#[test]
fn reads_of_a_long_file_do_not_keep_a_sender_waiting_for_who_is_gone() {
    for controller in ["aimd", "q-learning", "flow:cubic"] {
        // Longer than what is kept of it: what was lost is read again and again.
        let mut case = Case::new(3_000_000, 11);
        let dies = Time::from_secs_f64(3.0);
        (case.controller, case.upload, case.weather.dead) = (controller, None, vec![(RECEIVER, dies)]);
        let (outcome, _, network) = case.run();
        assert!(outcome.unwrap().unwrap_err().contains("nothing was heard"), "{controller}");
        let waited = network.now().since(dies);
        assert!(waited < Duration::SECOND * 35, "{controller} waited for {waited}");
    }
}

fn slow(rate: Rate) -> SlowDisk {
    SlowDisk { access: Duration::from_millis(20), rate, stalls: 0.0, stall: Duration::ZERO }
}

#[test]
fn a_sender_waits_for_its_disk_however_long_that_takes_and_does_not_blame_the_receiver() {
    let mut case = Case::new(200_000, 10);
    // A part of 64 kB takes longer than an answer is waited for.
    let rate = Rate::from_bytes_per_sec(1_500);
    case.disks[1] = Some(slow(rate));
    let (outcome, shelf, _) = case.run();
    let done = outcome.unwrap().unwrap();
    assert_eq!(shelf.values().next().unwrap().len(), 200_000);
    // Two parts are read at a time.
    assert!(done.took >= Bytes::new(100_000) / rate, "{}", done.took);
}

#[test]
fn a_disk_that_is_slower_than_what_comes_holds_its_sender_back_and_memory_is_bounded() {
    let mut case = Case::new(100_000, 9);
    let rate = Rate::from_bytes_per_sec(10_000);
    case.disks[0] = Some(slow(rate));
    (case.limits.file_writes, case.limits.writes) = (5_000, 5_000);
    let (outcome, shelf, network) = case.run();
    let done = outcome.unwrap().unwrap();
    assert_eq!(shelf.values().next().unwrap().len(), 100_000);
    // It is written and read once.
    assert!(done.took >= Duration::SECOND * 20, "{}", done.took);
    let receiver = receiver(&network);
    let ReceiverCounters { deferred, blocks, .. } = *receiver.counters();
    assert!(deferred > 0 && receiver.unwritten() == 0, "{deferred} of {blocks} blocks had to come again");
    // What is not acknowledged is lost for the sender's controller.
    assert!(file_sender(&network).courier().counters().lost >= deferred);
}

#[test]
fn a_file_beyond_the_receivers_limits_is_refused() {
    for limits in [
        Limits { file_bytes: 999, ..Limits::default() },
        Limits { blocks: 1, ..Limits::default() },
        Limits { files: 0, waiting: 0, ..Limits::default() },
    ] {
        let mut case = Case::new(1000, 6);
        case.limits = limits;
        let (outcome, shelf, _) = case.run();
        assert!(outcome.unwrap().unwrap_err().contains("refuses the file"));
        assert!(shelf.is_empty());
    }
}

/// A session with `receiver`, of a sender that is at `source`.
fn greet(receiver: &mut Receiver, now: Time, source: IpAddr, hello: &Hello) -> Session {
    let mut cookie = [0; COOKIE];
    for _ in 0..2 {
        let (mut body, mut reply) = (Vec::new(), Vec::new());
        HelloBody { cookie, proof: 1, opening: hello.opening() }.encode(&mut body);
        assert!(receiver.on_hello(now, source, &body, &mut reply));
        match HelloReply::decode(&reply).unwrap() {
            HelloReply::Cookie { cookie: given, .. } => cookie = given,
            HelloReply::Answer { answer, .. } => return hello.complete(answer).unwrap(),
        }
    }
    panic!("a hello with the right cookie was not answered");
}

/// Strangers who greet, send fillers, make offers that are refused, and files that are
/// empty, all day long.
#[test]
fn strangers_can_not_make_a_receiver_remember_without_bound() {
    const HALF_OPEN: usize = 2;
    let limits = Limits {
        half_open: HALF_OPEN,
        greetings: 8,
        files: 4,
        waiting: 3,
        complete: 5,
        file_bytes: 1000,
        ..Limits::default()
    };
    let identity = Identity::generate();
    let mut store = MemoryStore::new(Shelf::default(), u64::MAX);
    let mut nothing = MemorySource::new([].into(), SourceFault::None);
    let mut receiver = Receiver::new(identity.clone(), limits);
    let mut now = Time::ZERO;
    let offer =
        |length: u64| Offer { name: FileName::sanitised("a"), length, block: 100, hash: *blake3::hash(&[]).as_bytes() };
    let (mut fillers, mut most) = (0, 0);
    for stranger in 0..400u64 {
        now += Duration::from_millis(20);
        receiver.on_timer(now);
        // From ever new addresses: each has its share.
        let source = IpAddr::from((stranger as u32).to_be_bytes());
        let mut session = greet(&mut receiver, now, source, &Hello::new(Some(&identity.public()), None));
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
        while let Some(job) = receiver.next_job() {
            receiver.on_done(job.work(&mut store, &mut nothing));
        }
        most = most.max(receiver.sessions());
    }
    assert_eq!(fillers, 0, "load is not taken from strangers");
    // Of what has come five at most, with those on their way; and one is pushed out when another comes.
    assert!((8..=HALF_OPEN + 8 + 5 + 3 + 1).contains(&most), "{most} sessions were remembered");
}

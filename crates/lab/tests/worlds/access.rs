//! The file transfer that ships, over access links: it takes what its sender's uplink takes, and
//! what goes wrong on the way besides does not keep it from arriving.

use std::net::SocketAddr;

use anabranch_control::path::Slot;
use anabranch_control::path::registry::{self, Pacing, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::RttConfig;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::soak::disks::Disks;
use anabranch_lab::soak::store::{MemorySource, MemoryStore, Shelf, SourceFault};
use anabranch_lab::world::{Address, OnTheWire, World};
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::overlay::courier::Courier;
use anabranch_proto::overlay::message::{FileName, Offer};
use anabranch_proto::overlay::path_sender::{PathSender, SenderConfig};
use anabranch_proto::overlay::peer::{Peer, Sender};
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::overlay::wire;
use anabranch_proto::seal::Identity;
use anabranch_proto::transfer::{FileSender, Limits, Receiver, block_size};
use anabranch_sim::access::{Access, AccessConfig, AccessLinks, Direction};
use anabranch_sim::delay::DelayModel;
use anabranch_sim::fabric::NodeId;
use anabranch_sim::faults::{Faults, Faulty};
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Jitter, LinkConfig};
use anabranch_sim::pairs::Letter;
use anabranch_sim::varying::Course;

const RELAYS: u32 = 4;
const RECEIVER: NodeId = NodeId(RELAYS);
const SENDER: NodeId = NodeId(RELAYS + 1);
const PACKET: usize = 1000;
const LENGTH: usize = 200_000;
/// Of relays and receiver.
const USUAL: Rate = Rate::from_bytes_per_sec(500_000);

type Network = World<Peer, Faulty<Access<Letter<Vec<u8>>>>, OnTheWire, (), Disks>;

fn links(up: Rate, down: Rate) -> AccessLinks {
    let link = |name: &str, rate| LinkConfig {
        name: name.into(),
        rate: Some(Course::constant(rate)),
        delay: Course::constant(Duration::ZERO),
        capacity: Capacity::Time(Duration::from_millis(200)),
        discipline: None,
        loss: LossModel::None,
        jitter: Jitter::NONE,
    };
    AccessLinks { up: link("up", up), down: link("down", down) }
}

/// Relays, a receiver, and a sender with an uplink of `up` that sends a file of `LENGTH` bytes.
fn network(up: Rate, faults: Faults, seed: u64) -> (Network, Shelf, Vec<u8>) {
    let mut rng = Rng::stream(seed, "file");
    let file: Vec<u8> = (0..LENGTH).map(|_| rng.bits() as u8).collect();
    let addresses: Vec<SocketAddr> = (0..=RECEIVER.0).map(|node| SocketAddr::of(NodeId(node))).collect();
    let longest = [&[wire::unknown_source(addresses[0])], &addresses[..3]].concat();
    let block = block_size(&longest, PACKET).unwrap();
    let packet = Bytes::new(PACKET as u64);
    let setup = Setup { peers: addresses.len(), packet, start: Time::ZERO, pacing: Pacing::Paced };
    let controller = registry::find("q-learning").unwrap().build.make(&setup, &toml::Table::new()).unwrap().unwrap();
    let config = SenderConfig { peers: addresses.len(), relays: 2, packet, rtt: RttConfig::default() };
    let path_sender = PathSender::new(&config, controller, Rng::stream(seed, "sender"));
    let courier = Courier::new(path_sender, addresses, packet, None, [3; 32]);
    let hash = *blake3::hash(&file).as_bytes();
    let offer = Offer { name: FileName::sanitised("a.bin"), length: LENGTH as u64, block, hash };
    let source = MemorySource::new(file.clone().into(), SourceFault::None);
    let identity = Identity::generate();
    let key = Some(identity.public());
    let sender = FileSender::new(Time::ZERO, courier, Slot(RECEIVER.0 as u16), key, offer);
    let shelf = Shelf::default();
    let disks = Disks::new(MemoryStore::new(shelf.clone(), u64::MAX), source, [None; 2], seed);
    let receiver = Receiver::new(identity, Limits::default());

    let delay = DelayModel::Constant(Duration::from_millis(15));
    let config = AccessConfig { delay, jitter: 0.05, links: links(USUAL, USUAL) };
    let access = Access::new(config, SENDER.index() + 1, seed);
    let mut world = World::new(Faulty::new(access, faults, seed), OnTheWire, (), disks);
    for _ in 0..RELAYS {
        // Relays hold to no limit of their own that their links do not have.
        let relay = RelayNode::new(LimitModel::Window { phase: Duration::ZERO }, USUAL);
        world.join(Peer::new(relay, None, None));
    }
    assert_eq!(world.join(Peer::new(RelayNode::end(), Some(receiver), None)), RECEIVER);
    world.fabric_mut().inner_mut().set_next(links(up, USUAL));
    let peer = Peer::new(RelayNode::end(), None, Some(Sender::File(Box::new(sender))));
    assert_eq!(world.join(peer), SENDER);
    (world, shelf, file)
}

/// How long the file takes.
fn took(world: &mut Network, shelf: &Shelf, file: &[u8]) -> Duration {
    while world.now() < Time::from_secs_f64(3600.0) {
        assert!(world.step_at_most(world.now() + Duration::from_millis(10), 100_000), "a timer stays in the past");
        let Some(Sender::File(sender)) = world.node(SENDER).and_then(Peer::sender) else { panic!("a file is sent") };
        if let Some(outcome) = sender.outcome() {
            let done = outcome.as_ref().expect("it arrives");
            assert_eq!(done.length, LENGTH as u64);
            assert!(shelf.take_published()[&done.name].bytes == file, "what arrived differs");
            return done.took;
        }
    }
    panic!("the file takes longer than an hour");
}

/// Before the file is whole: the disk is no part of a world, and both write the same there.
#[test]
fn a_snapshot_of_a_transfer_goes_on_as_the_original_does_and_may_be_gone_back_to() {
    let faults =
        Faults { loss: 0.05, duplication: 0.05, reordering: 0.05, delay: Duration::from_millis(50), corruption: 0.02 };
    let (mut world, ..) = network(Rate::from_bytes_per_sec(60_000), faults, 3);
    let course = |world: &mut Network| {
        let seen = |world: &Network| match world.node(SENDER).and_then(Peer::sender) {
            Some(Sender::File(sender)) => (sender.arrived_bytes(), *sender.courier().counters()),
            _ => panic!("a file is sent"),
        };
        let each = (0..20).map(|_| {
            world.step(world.now() + Duration::from_millis(200));
            seen(world)
        });
        each.collect::<Vec<_>>()
    };
    course(&mut world);
    let snapshot = world.clone();
    let original = course(&mut world);
    let (first, last) = (original[0], original[19]);
    assert!(first.0 > 0 && last.0 > first.0 && last.0 < LENGTH as u64 && last.1.lost > 0, "{original:?}");
    for _ in 0..2 {
        world = snapshot.clone();
        assert_eq!(course(&mut world), original);
    }
}

#[test]
fn a_file_takes_at_least_what_its_senders_uplink_takes() {
    for bytes_per_s in [20_000, 100_000] {
        let up = Rate::from_bytes_per_sec(bytes_per_s);
        let (mut world, shelf, file) = network(up, Faults::default(), 1);
        let took = took(&mut world, &shelf, &file);
        let least = Bytes::new(LENGTH as u64) / up;
        assert!(took >= least, "{took} at {up:?}, {least} at least");
        // The file went over that link, in no less time than its bytes take; what is in
        // transmission is counted whole.
        let sent = Bytes::new(world.fabric().inner().count(SENDER, Direction::Up).bytes);
        assert!(sent >= Bytes::new(LENGTH as u64), "{sent}");
        assert!(world.now() >= Time::ZERO + (sent - Bytes::new(PACKET as u64)) / up, "{sent} until {}", world.now());
    }
}

#[test]
fn a_faster_uplink_makes_a_file_faster_and_one_that_becomes_slow_makes_it_slower() {
    const SET_AT_S: u64 = 2;
    let (slow, fast) = (15_000, 60_000);
    let took_at = |bytes_per_s, then: Option<u64>| {
        let (mut world, shelf, file) = network(Rate::from_bytes_per_sec(bytes_per_s), Faults::default(), 2);
        world.step(Time::ZERO + Duration::SECOND * SET_AT_S);
        if let Some(then) = then {
            let access = world.fabric_mut().inner_mut();
            access.set_rate(SENDER, Direction::Up, Rate::from_bytes_per_sec(then));
        }
        took(&mut world, &shelf, &file).as_secs_f64()
    };
    let (took_slow, took_fast, took_slowed) = (took_at(slow, None), took_at(fast, None), took_at(fast, Some(slow)));
    assert!(took_fast < took_slow && took_fast < took_slowed, "{took_fast} s, {took_slow} s, {took_slowed} s");
    // What could leave before, at the one rate, and the rest, but for a packet, at the other.
    let rest = LENGTH as u64 - fast * SET_AT_S - PACKET as u64;
    let least = SET_AT_S as f64 + rest as f64 / slow as f64;
    assert!(took_slowed >= least, "{took_slowed} s, {least} s at least");
}

#[test]
fn a_file_arrives_whole_over_access_links_on_which_everything_else_goes_wrong() {
    let delay = Duration::from_millis(40);
    let faults = Faults { loss: 0.05, duplication: 0.1, reordering: 0.2, delay, corruption: 0.02 };
    let run = || {
        let (mut world, shelf, file) = network(Rate::from_bytes_per_sec(50_000), faults, 3);
        let took = took(&mut world, &shelf, &file);
        (took, world.counters(), world.fabric().counters(), world.fabric().inner().count(SENDER, Direction::Up))
    };
    let first = run();
    assert!(first.2.lost > 0 && first.2.duplicated > 0 && first.2.reordered > 0 && first.2.corrupted > 0);
    assert!(first.0.as_secs_f64() >= LENGTH as f64 / 50_000.0, "{}", first.0);
    assert_eq!(first, run(), "equal seeds give equal runs");
}

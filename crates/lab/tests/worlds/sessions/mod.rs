//! Sessions between peers behind access links: what arrives, how much of an uplink several receivers
//! use who come and go, what happens when one vanishes, and what a datagram costs.

mod cost;
mod toy;

use self::toy::{Datagrams, Numbered, Plan, Toy, key_of};
use anabranch_control::flow::Bounds;
use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::world::{AsTheyAre, Carrier, Observer, World};
use anabranch_proto::session::{Closed, FlowSessions, Packet, SessionConfig};
use anabranch_sim::access::{Access, AccessConfig, AccessLinks, Direction};
use anabranch_sim::delay::DelayModel;
use anabranch_sim::fabric::{Fabric, NodeId};
use anabranch_sim::faults::{Corrupt, Faults, Faulty};
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Jitter, LinkConfig};
use anabranch_sim::varying::Course;
use proptest::prelude::*;

const MS: fn(u64) -> Duration = Duration::from_millis;
const MBIT: fn(u64) -> Rate = |mbit| Rate::from_bits_per_sec(mbit * 1_000_000);

type Peer = FlowSessions<Toy>;
type Content = Packet<Numbered, Numbered>;

/// A packet that can pass a fabric with faults; nothing damages it, since sessions have no bytes.
#[derive(Clone, Debug, Default)]
struct Safe(Content);

impl Corrupt for Safe {
    fn corrupt(&mut self, _: &mut Rng) {
        unreachable!("a packet without bytes cannot be damaged");
    }
}

struct Carried;

impl Carrier<Peer> for Carried {
    type Payload = Safe;

    const REUSES_MEMORY: bool = false;

    fn pack(&mut self, packet: &Content, slot: &mut Safe) {
        slot.0.clone_from(packet);
    }

    fn unpack(&mut self, slot: &Safe, packet: &mut Content) -> bool {
        packet.clone_from(&slot.0);
        true
    }
}

fn at(millis: u64) -> Time {
    Time::ZERO + MS(millis)
}

fn link(name: &str, rate: Rate, queue: Duration) -> LinkConfig {
    LinkConfig {
        name: name.into(),
        rate: Some(Course::constant(rate)),
        delay: Course::constant(Duration::ZERO),
        capacity: Capacity::Time(queue),
        discipline: None,
        loss: LossModel::None,
        jitter: Jitter::NONE,
    }
}

/// Nodes behind `up` and `down`, with 4 to 46 ms between them.
fn access<P: Default>(nodes: usize, up: Rate, down: Rate, jitter: f64, seed: u64) -> Access<P> {
    let links = AccessLinks { up: link("up", up, MS(100)), down: link("down", down, MS(100)) };
    let delay = DelayModel::Plane { span: MS(30), access: MS(2), stretch: 1.0 };
    Access::new(AccessConfig { delay, jitter, links }, nodes, seed)
}

fn peer(node: u32, plan: Plan, controller: &str, config: SessionConfig, seed: u64) -> Peer {
    let entry = find(controller).unwrap();
    let controller = entry.make(&Setup::new(Bytes::new(1316), Time::ZERO), &toml::Table::new()).unwrap();
    let rng = Rng::indexed(seed, "peer", u64::from(node));
    let app = Toy::new(plan, Duration::from_nanos(Rng::indexed(seed, "phase", u64::from(node)).bits() % 50_000_000));
    FlowSessions::new(app, config, key_of(node), controller, &rng)
}

/// The most that was in flight from node 0.
#[derive(Clone, Copy, Debug, Default)]
struct MostInFlight(Bytes);

impl Observer<Peer> for MostInFlight {
    fn on_acted(&mut self, _: Time, node: NodeId, machine: &Peer) {
        if node == NodeId(0) {
            self.0 = self.0.max(machine.in_flight());
        }
    }
}

fn toy<F: Fabric, C: Carrier<Peer, Payload = F::Payload>, O: Observer<Peer>>(
    world: &World<Peer, F, C, O>,
    node: u32,
) -> &Toy {
    world.node(NodeId(node)).unwrap().app()
}

/// Everybody with everybody whose number is higher.
fn mesh(nodes: u32, node: u32) -> Vec<(Time, u32)> {
    (node + 1..nodes).map(|other| (at(u64::from(other)), other)).collect()
}

#[test]
fn messages_and_datagrams_pass_between_all_in_a_mesh_without_faults() {
    let nodes = 6;
    let mut world = World::new(access(nodes as usize, MBIT(10), MBIT(50), 0.0, 1), AsTheyAre, (), ());
    for node in 0..nodes {
        let plan = Plan {
            opens: mesh(nodes, node),
            datagrams: Datagrams::Each(MS(20)),
            messages: Some((MS(20), 4000)),
            quiet_from: at(9_000),
            ..Plan::default()
        };
        world.join(peer(node, plan, "block-window", SessionConfig::default(), 1));
    }
    world.step(at(10_000));
    for (node, machine) in world.nodes() {
        let toy = machine.app();
        assert_eq!((toy.known.iter().flatten().count(), toy.over.len()), (5, 0), "{node:?}");
        for known in toy.known.iter().flatten() {
            let other = self::toy(&world, known.remote).with(node.0).unwrap();
            assert!(other.sent.0 > 400);
            assert_eq!(known.messages, other.sent.0);
            assert!(known.datagrams.len() as u64 + 10 > other.sent.1 && other.sent.1 > 490, "{}", other.sent.1);
        }
        let counters = machine.counters();
        assert_eq!((counters.untrue, counters.stray, counters.datagrams_withheld), (0, 0, 0));
    }
    assert_eq!(world.counters().late_timers, 0);
}

#[test]
fn no_more_is_in_flight_than_the_controller_allows_however_many_receive() {
    let (nodes, packets) = (9, 30);
    let mut world =
        World::new(access(nodes as usize, MBIT(10), MBIT(50), 0.0, 1), AsTheyAre, MostInFlight::default(), ());
    for node in 0..nodes {
        let opens = if node == 0 { mesh(nodes, 0) } else { Vec::new() };
        let datagrams = if node == 0 { Datagrams::Always } else { Datagrams::None };
        let plan = Plan { opens, datagrams, messages: Some((MS(50), 3000)), ..Plan::default() };
        let mut machine = peer(node, plan, "cubic", SessionConfig::default(), 1);
        let window = Bytes::new(packets * 1316);
        machine.set_bounds(Bounds { fixed: Some(window), ..Bounds::default() });
        world.join(machine);
    }
    world.step(at(5_000));
    let most = world.observer().0;
    assert!(most <= Bytes::new(packets * 1316), "{most}");
    assert!(most + Bytes::new(1400) > Bytes::new(packets * 1316), "the window was used up: {most}");
    assert_eq!((1..nodes).map(|node| toy(&world, node).silences).sum::<u64>(), 0);
}

/// How many bytes of its uplink node 0 has used from 5 s on, as a share, while receivers come and go;
/// and the peers' machines.
fn use_of_uplink(controller: &str, config: SessionConfig, jitter: f64) -> f64 {
    let nodes = 9;
    let mut world = World::new(access(nodes as usize, MBIT(10), MBIT(50), jitter, 3), AsTheyAre, (), ());
    let server = Plan { datagrams: Datagrams::Always, ..Plan::default() };
    world.join(peer(0, server, controller, config, 3));
    for node in 1..nodes {
        // Two stay; the others come one after the other, and stay for some seconds.
        let opens: Vec<(Time, u32)> = match node {
            1 | 2 => vec![(at(100), 0)],
            _ => vec![(at(2_000 * u64::from(node)), 0)],
        };
        let closes = if node <= 2 { Time::MAX } else { at(2_000 * u64::from(node) + 5_300) };
        world.join(peer(node, Plan { opens, closes, ..Plan::default() }, controller, config, 3));
    }
    world.step(at(5_000));
    let before = world.fabric().count(NodeId(0), Direction::Up).bytes;
    world.step(at(30_000));
    let bytes = world.fabric().count(NodeId(0), Direction::Up).bytes - before;
    let came: Vec<u64> = (1..nodes).map(|node| toy(&world, node).received).collect();
    assert!(came.iter().all(|received| *received > 100), "{came:?}");
    let server = world.node(NodeId(0)).unwrap();
    assert_eq!((server.sessions(), server.app().over.len()), (2, 6));
    assert!(server.app().over.iter().all(|over| over.why == Closed::ByPeer));
    assert_eq!(world.counters().late_timers, 0);
    bytes as f64 * 8.0 / 25.0 / 10e6
}

#[test]
fn several_receivers_that_come_and_go_share_an_uplink_that_is_full() {
    for controller in ["block-window", "cubic"] {
        let share = use_of_uplink(controller, SessionConfig::default(), 0.0);
        assert!(share >= 0.95, "{controller} uses {share}");
    }
}

#[test]
#[ignore = "prints a table: how an ACK policy changes the use of an uplink"]
fn ack_policies() {
    for controller in ["block-window", "cubic", "bbr3", "copa", "ledbat++"] {
        for (every, millis) in [(1, 25), (2, 25), (10, 10), (10, 25), (10, 50), (10, 100)] {
            let mut config = SessionConfig::default();
            (config.ack.every, config.ack.max_delay) = (every, MS(millis));
            let [plain, jittered] = [0.0, 0.05].map(|jitter| use_of_uplink(controller, config, jitter));
            println!("{controller:<14} every {every:>2} or {millis:>3} ms: {plain:.3}, with jitter {jittered:.3}");
        }
    }
}

#[test]
fn a_receiver_that_vanishes_holds_up_the_others_for_its_probe_timeouts_and_no_longer() {
    for controller in ["block-window", "cubic"] {
        let mut world = World::new(access(4, MBIT(10), MBIT(50), 0.0, 2), AsTheyAre, (), ());
        for node in 0..4 {
            let plan = match node {
                0 => Plan { opens: mesh(4, 0), datagrams: Datagrams::Always, ..Plan::default() },
                _ => Plan::default(),
            };
            world.join(peer(node, plan, controller, SessionConfig::default(), 2));
        }
        world.step(at(5_000));
        world.leave(NodeId(3));
        // Three probe timeouts are below a second here.
        let got = |world: &World<_, _, _, _, _>| toy(world, 1).received + toy(world, 2).received;
        let mut per_second = Vec::new();
        for second in 5..12 {
            let before = got(&world);
            world.step(at(1000 * (second + 1)));
            per_second.push(got(&world) - before);
        }
        let full = 10e6 / 8.0 / (1316.0 + 28.0 + 27.0 + 3.0);
        assert!(per_second[1..].iter().all(|count| *count as f64 > 0.95 * full), "{controller}: {per_second:?}");
        let machine = world.node(NodeId(0)).unwrap();
        let vanished = machine.app().with(3).unwrap();
        assert!(vanished.is_silent && machine.counters().given_up > 0);
        assert_eq!(machine.counters().datagrams_withheld, 0);
        world.step(at(40_000));
        let over = &world.node(NodeId(0)).unwrap().app().over;
        assert_eq!(over.iter().map(|over| over.why).collect::<Vec<_>>(), [Closed::TimedOut]);
        assert!((at(34_000)..=at(35_100)).contains(&over[0].at), "{:?}", over[0].at);
    }
}

#[test]
fn a_node_that_is_back_without_its_sessions_says_so_and_is_asked_again() {
    let mut world = World::new(access(2, MBIT(10), MBIT(50), 0.0, 2), AsTheyAre, (), ());
    let plan = Plan { opens: vec![(at(0), 1)], messages: Some((MS(20), 500)), reopens: true, ..Plan::default() };
    world.join(peer(0, plan, "cubic", SessionConfig::default(), 2));
    world.join(peer(1, Plan::default(), "cubic", SessionConfig::default(), 2));
    world.step(at(1_000));
    world.leave(NodeId(1));
    world.step(at(1_100));
    world.rejoin(NodeId(1), peer(1, Plan::default(), "cubic", SessionConfig::default(), 3));
    world.step(at(2_000));
    let app = toy(&world, 0);
    assert_eq!(app.over.iter().map(|over| over.why).collect::<Vec<_>>(), [Closed::ByPeer]);
    assert_eq!(app.openings.len(), 2);
    assert!(toy(&world, 1).with(0).unwrap().messages > 20);
}

/// What three peers have seen after some seconds in which much goes wrong.
fn faulty(faults: Faults, seed: u64) -> String {
    let nodes = 3;
    let fabric = Faulty::new(access::<Safe>(nodes as usize, MBIT(10), MBIT(20), 0.05, seed), faults, seed);
    let mut world = World::new(fabric, Carried, (), ());
    for node in 0..nodes {
        let plan = Plan {
            opens: mesh(nodes, node),
            datagrams: Datagrams::Each(MS(13)),
            messages: Some((MS(29), 5000)),
            quiet_from: at(2_000),
            ..Plan::default()
        };
        world.join(peer(node, plan, "cubic", SessionConfig::default(), seed));
    }
    // Whatever is lost is repaired within some probe timeouts, or the session is over.
    world.step(at(300_000));
    let mut seen = format!("{:?} {:?}\n", world.counters(), world.fabric().counters());
    for (node, machine) in world.nodes() {
        let toy = machine.app();
        for known in toy.known.iter().flatten() {
            let other = self::toy(&world, known.remote);
            match other.with(node.0) {
                Some(other) => assert_eq!(known.messages, other.sent.0, "{node:?} of {}", known.remote),
                // The handshake's last packet is lost for as long as it lasts, or the end is.
                None => assert!(other.over.iter().any(|over| over.known.as_ref().is_some_and(|k| k.remote == node.0))),
            }
            seen +=
                &format!("{node:?} {} {:?} {} {}\n", known.remote, known.sent, known.messages, known.datagrams.len());
        }
        let counters = machine.counters();
        assert_eq!(counters.untrue, 0);
        // What it has begun stands or is over; of what others began and gave up it may never have heard.
        let begun = (nodes - 1 - node.0) as usize;
        assert!(toy.known.iter().flatten().count() + toy.over.len() >= begun, "{node:?}");
        seen += &format!("{counters:?}\n");
    }
    assert_eq!(world.counters().late_timers, 0);
    seen
}

/// Probes that were lost in a row, while datagrams the other way kept the sessions alive, held messages up for minutes.
#[test]
fn messages_arrive_after_probes_that_were_lost_in_a_row() {
    for (seed, loss, duplication, reordering, late) in [
        (2422, 0.2449388018085529, 0.02296416989767006, 0.2724858486766941, 194),
        (789, 0.21929693078923126, 0.07440483078371152, 0.17740413678793499, 69),
        (950, 0.26854290554166915, 0.27274006998728834, 0.254821795317587, 122),
    ] {
        faulty(Faults { loss, duplication, reordering, delay: MS(late), ..Faults::default() }, seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_come_once_and_in_order_whatever_is_lost_doubled_or_late(
        seed in 0u64..10_000, loss in 0.0f64..0.3, duplication in 0.0f64..0.3, reordering in 0.0f64..0.3, late in 1u64..200,
    ) {
        let faults = Faults { loss, duplication, reordering, delay: MS(late), ..Faults::default() };
        let seen = faulty(faults, seed);
        prop_assert_eq!(seen, faulty(faults, seed), "equal seeds give equal bytes");
    }
}

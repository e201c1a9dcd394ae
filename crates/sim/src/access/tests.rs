use anabranch_control::units::Bytes;
use proptest::prelude::*;

use super::*;
use crate::loss::LossModel;
use crate::network::{
    Capacity, Codel, CodelConfig, CodelLaw, Jitter, Limit, Links, NetworkBuilder, Red, RedConfig, Way,
};
use crate::varying::{Change, Course};

const MS: fn(u64) -> Duration = Duration::from_millis;
/// 1000 B take a millisecond.
const RATE: Rate = Rate::from_bits_per_sec(8_000_000);
const BETWEEN: Duration = Duration::from_millis(20);

/// `RATE` times `over` and divided by `under`.
fn scaled(over: u64, under: u64) -> Rate {
    Rate::from_bits_per_sec(RATE.bits_per_sec() * over / under)
}

fn at(millis: u64) -> Time {
    Time::ZERO + MS(millis)
}

fn link(name: &str, rate: Rate) -> LinkConfig {
    LinkConfig {
        name: name.into(),
        rate: Some(Course::constant(rate)),
        delay: Course::constant(Duration::ZERO),
        capacity: Capacity::Unlimited,
        discipline: None,
        loss: LossModel::None,
        jitter: Jitter::NONE,
    }
}

fn links(up: Rate, down: Rate) -> AccessLinks {
    AccessLinks { up: link("up", up), down: link("down", down) }
}

fn config(links: AccessLinks) -> AccessConfig {
    AccessConfig { delay: DelayModel::Constant(BETWEEN), jitter: 0.0, links }
}

fn access(config: AccessConfig, nodes: u32, seed: u64) -> Access<u32> {
    let mut access = Access::new(config, nodes as usize, seed);
    (0..nodes).for_each(|node| assert_eq!(access.join(), NodeId(node)));
    access
}

fn departure(from: u32, to: u32, size: u32) -> Departure {
    Departure { from: NodeId(from), to: NodeId(to), wait: Duration::ZERO, size, ecn_capable: false }
}

/// Whether it was not lost at once.
fn send(access: &mut Access<u32>, departure: Departure, content: u32) -> bool {
    access.send(departure).map(|slot| *slot = content).is_some()
}

/// What arrives until `end`: when, whence, where, what, whether marked.
fn arrivals(access: &mut Access<u32>, end: Time) -> Vec<(Time, u32, u32, u32, bool)> {
    let mut all = Vec::new();
    while let Some(event) = access.next(end) {
        let Event::Arrival { from, to, marked } = event else { panic!("no timer is set: {event:?}") };
        all.push((access.now(), from.0, to.0, *access.arrived(), marked));
    }
    all
}

#[test]
fn a_lone_message_takes_its_two_transmissions_and_the_delay_between() {
    let mut access = access(config(links(RATE, scaled(1, 4))), 2, 1);
    assert_eq!(access.next(at(5)), None);
    assert!(send(&mut access, Departure { wait: MS(3), ..departure(0, 1, 500) }, 7));
    // 500 B: half a millisecond up, two down.
    let arrival = at(8) + Duration::from_nanos(500_000) + BETWEEN + MS(2);
    assert_eq!(arrivals(&mut access, arrival), [], "an end is not yet part of the span");
    let event = access.next(Time::MAX);
    assert_eq!(event, Some(Event::Arrival { from: NodeId(0), to: NodeId(1), marked: false }));
    assert_eq!((access.now(), *access.arrived(), access.departed()), (arrival, 7, Some(at(8))));
}

#[test]
fn an_uplink_passes_its_rate_and_messages_keep_their_order() {
    let mut access = access(config(links(RATE, scaled(100, 1))), 3, 1);
    for number in 0..1000 {
        assert!(send(&mut access, departure(0, 1 + number % 2, 1000), number));
    }
    assert_eq!(access.backlog(NodeId(0), Direction::Up), Duration::SECOND);
    let all = arrivals(&mut access, Time::MAX);
    assert!(all.iter().map(|arrival| arrival.3).eq(0..1000));
    // The last leaves after a second, and takes a hundredth of a millisecond down.
    assert_eq!(access.now(), at(1000) + BETWEEN + Duration::from_nanos(10_000));
    let count = access.count(NodeId(0), Direction::Up);
    assert_eq!((count.packets, count.bytes, count.dropped, count.lost), (1000, 1_000_000, 0, 0));
}

#[test]
fn a_downlink_is_the_bottleneck_where_many_send_to_one() {
    let mut access = access(config(links(RATE, scaled(2, 1))), 9, 1);
    for number in 0..100 {
        (1..9).for_each(|from| assert!(send(&mut access, departure(from, 0, 1000), number)));
    }
    // Eight uplinks bring 8 MB/s, the downlink takes 2 MB/s: 400 ms from the first arrival on.
    let all = arrivals(&mut access, Time::MAX);
    assert_eq!((all.len(), access.now()), (800, at(1) + BETWEEN + MS(400)));
    // What came together is served in turn: each sender's hundredth is among the last eight.
    assert!(all[792..].iter().map(|arrival| (arrival.1, arrival.3)).eq((1..9).map(|from| (from, 99))));
    assert_eq!(access.count(NodeId(0), Direction::Down).bytes, 800_000);
}

#[test]
fn a_full_queue_drops_what_comes_and_the_sender_learns_it_at_the_uplink() {
    for (capacity, admitted) in [
        (Capacity::Packets(5), 6),
        (Capacity::Bytes(3500), 4),
        (Capacity::Time(MS(7)), 8),
        (Capacity::Packets(0), 1),
        (Capacity::Unlimited, 20),
    ] {
        let mut links = links(RATE, RATE);
        links.up.capacity = capacity;
        let mut access = access(config(links), 2, 1);
        let sent = (0..20).filter(|&number| send(&mut access, departure(0, 1, 1000), number)).count();
        // One is in transmission and no longer waits.
        assert_eq!(sent, admitted, "{capacity:?}");
        assert_eq!(access.count(NodeId(0), Direction::Up).dropped as usize, 20 - admitted, "{capacity:?}");
        assert_eq!(arrivals(&mut access, Time::MAX).len(), admitted, "{capacity:?}");
    }
}

#[test]
fn a_discipline_marks_what_can_be_marked_and_drops_the_rest() {
    let codel =
        Codel::new(CodelConfig { law: CodelLaw { ecn: true, ..CodelLaw::default() }, limit: Limit::Packets(1000) });
    let mut links = links(scaled(10, 1), RATE);
    links.down.discipline = Some(Box::new(codel));
    for ecn_capable in [true, false] {
        let mut access = access(config(links.clone()), 2, 1);
        for number in 0..600 {
            send(&mut access, Departure { ecn_capable, ..departure(0, 1, 1000) }, number);
        }
        let marked = arrivals(&mut access, Time::MAX).iter().filter(|arrival| arrival.4).count() as u64;
        let count = access.count(NodeId(1), Direction::Down);
        assert_eq!(marked, count.marked);
        // Half a second of queue: five intervals of CoDel and more.
        let (some, none) = if ecn_capable { (count.marked, count.dropped) } else { (count.dropped, count.marked) };
        assert!(some > 5 && none == 0, "{count:?}");
        assert_eq!(access.in_flight(), 0);
    }
}

#[test]
fn a_rate_that_is_set_holds_from_the_next_transmission_on() {
    let mut access = access(config(links(RATE, scaled(1000, 1))), 2, 1);
    (0..4).for_each(|number| assert!(send(&mut access, departure(0, 1, 1000), number)));
    assert_eq!(arrivals(&mut access, at(1) + Duration::from_nanos(500_000)), []);
    access.set_rate(NodeId(0), Direction::Up, scaled(1, 10));
    assert_eq!(access.rate(NodeId(0), Direction::Up), Some(scaled(1, 10)));
    let down = BETWEEN + Duration::from_nanos(1000);
    let times: Vec<Time> = arrivals(&mut access, Time::MAX).iter().map(|arrival| arrival.0).collect();
    assert_eq!(times, [1, 2, 12, 22].map(|millis| at(millis) + down));
    assert_eq!(access.rate(NodeId(1), Direction::Up), Some(RATE), "the others keep theirs");
    access.reset(1);
    access.join();
    assert_eq!(access.rate(NodeId(0), Direction::Up), Some(RATE), "a reset link is as new");
}

#[test]
fn the_next_node_may_have_links_of_its_own() {
    let mut access = access(config(links(RATE, RATE)), 1, 1);
    access.set_next(links(scaled(1, 2), RATE));
    let (slow, usual) = (access.join(), access.join());
    assert_eq!(access.rate(slow, Direction::Up), Some(scaled(1, 2)));
    assert_eq!(access.rate(usual, Direction::Up), Some(RATE));
    access.reset(2);
    (0..3).for_each(|node| assert_eq!(access.join(), NodeId(node)));
    assert_eq!(access.rate(slow, Direction::Up), Some(RATE), "what was its own went with the node");
}

/// Losses, jitter and a queue on both links.
fn rough() -> AccessConfig {
    let mut links = links(RATE, RATE);
    links.up.loss = LossModel::Random(Course::constant(0.2));
    links.down.capacity = Capacity::Packets(4);
    links.down.jitter = Jitter { deviation: MS(2), reorders: true };
    let low = scaled(1, 2);
    links.up.rate = Some(Course { first: RATE, change: Change::Uniform { every: MS(30), low, high: RATE } });
    links.up.discipline = Some(Box::new(Red::new(RedConfig { weight: 0.1, ..RedConfig::packets(20) }, MS(1))));
    AccessConfig { jitter: 0.1, ..config(links) }
}

#[test]
fn luck_is_a_function_of_the_sender_and_its_count() {
    let run = |others: u32| {
        let mut config = rough();
        (config.links.down.capacity, config.links.down.jitter) = (Capacity::Unlimited, Jitter::NONE);
        let mut access = access(config, 4, 7);
        for number in 0..300u32 {
            (0..others).for_each(|_| _ = send(&mut access, departure(2, 3, 400), 0));
            let wait = MS(u64::from(number));
            send(&mut access, Departure { wait, ..departure(0, 1, 400) }, number);
        }
        let mut all = arrivals(&mut access, Time::MAX);
        all.retain(|arrival| arrival.1 == 0);
        all
    };
    assert_eq!(run(0), run(3));
    // 3.2 Mbit/s leave an uplink of 4 to 8 without a queue: four in five arrive, +- 3 deviations.
    assert!((219..=261).contains(&run(0).len()), "{} of 300 arrive at 20 % loss", run(0).len());
}

/// All that happens when three nodes send to each other and each arrival is answered.
fn course(access: &mut Access<u32>) -> Vec<(Time, Event, Option<u32>)> {
    let mut course = Vec::new();
    for number in 0..300u32 {
        let end = at(u64::from(number) + 1);
        for from in 0..3 {
            send(access, departure(from, (from + 1) % 3, 700), number);
        }
        access.set_timer(NodeId(number % 3), end);
        while let Some(event) = access.next(end) {
            let content = matches!(event, Event::Arrival { .. }).then(|| *access.arrived());
            course.push((access.now(), event, content));
            if let Event::Arrival { from, to, .. } = event {
                send(access, departure(to.0, from.0, 40), 1000 + number);
            }
        }
    }
    course
}

#[test]
fn a_reset_fabric_is_as_new_and_a_copy_goes_on_as_the_original() {
    let mut old = access(rough(), 3, 1);
    let first = course(&mut old);
    old.set_next(links(RATE, RATE));
    old.reset(2);
    (0..3).for_each(|_| _ = old.join());
    let mut new = access(rough(), 3, 2);
    let mut copy = new.clone();
    let second = course(&mut new);
    assert_eq!(course(&mut old), second);
    assert_eq!(course(&mut copy), second);
    assert_ne!(first, second, "another seed has other losses");
    assert!(second.len() > 600, "{} events", second.len());
    for (node, direction) in (0..3).flat_map(|node| [(node, Direction::Up), (node, Direction::Down)]) {
        assert_eq!(old.count(NodeId(node), direction), new.count(NodeId(node), direction));
    }
}

#[test]
fn an_earlier_timer_replaces_a_later() {
    let mut access = access(config(links(RATE, RATE)), 2, 1);
    assert_eq!(access.next(at(10)), None);
    access.set_timer(NodeId(1), at(10));
    assert_eq!((access.next(Time::MAX), access.now()), (Some(Event::Timer(NodeId(1))), at(10)));
    access.set_timer(NodeId(1), at(30));
    access.set_timer(NodeId(1), at(20));
    assert_eq!((access.next(Time::MAX), access.now()), (Some(Event::Timer(NodeId(1))), at(20)));
    assert_eq!(access.next(Time::MAX), None);
}

proptest! {
    /// The same links and routes in a network, whose queues are computed in advance.
    #[test]
    fn queues_without_end_pass_what_a_network_of_the_same_links_passes(
        sends in prop::collection::vec((0u32..4, 0u32..4, 0u64..3000), 1..200),
        rates in prop::collection::vec(1_000_000u64..20_000_000, 8),
    ) {
        let rate = |node: u32, direction| Rate::from_bits_per_sec(rates[(2 * node) as usize + direction as usize]);
        let mut access: Access<u32> = Access::new(config(links(RATE, RATE)), 4, 1);
        let mut network = NetworkBuilder::new();
        let pairs = (0..4).flat_map(|from| (0..4).map(move |to| (from, to)));
        let own: Vec<_> = (0..4).map(|node| {
            let AccessLinks { mut up, down } = links(rate(node, Direction::Up), rate(node, Direction::Down));
            access.set_next(AccessLinks { up: up.clone(), down: down.clone() });
            access.join();
            up.delay = Course::constant(BETWEEN);
            (network.link(up), network.link(down))
        }).collect();
        let ways: Vec<Way> = pairs.map(|(from, to)| {
            let route = network.route(&[own[from as usize].0, own[to as usize].1]);
            Way { from: NodeId(from), to: NodeId(to), route }
        }).collect();
        let mut network: Links<u32> = Links::new(network, 4, &ways, 1);
        (0..4).for_each(|_| _ = network.join());
        let (count, mut passed) = (sends.len(), [Vec::new(), Vec::new()]);
        // Nothing comes after the last.
        let sends = sends.into_iter().map(|(from, to, wait_us)| (Some((from, to)), Duration::from_nanos(wait_us * 1000)));
        for (ends, wait) in sends.chain([(None, Duration::SECOND * 60)]) {
            let fabrics = [&mut access as &mut dyn Fabric<Payload = u32>, &mut network];
            for (fabric, passed) in fabrics.into_iter().zip(&mut passed) {
                // Messages have one size: which of two that come at one instant is first changes no time.
                if let Some((from, to)) = ends {
                    prop_assert!(fabric.send(departure(from, to, 1000)).is_some());
                }
                let end = fabric.now() + wait;
                while let Some(Event::Arrival { to, .. }) = fabric.next(end) {
                    passed.push((fabric.now(), to));
                }
            }
        }
        prop_assert_eq!(access.in_flight(), 0);
        passed.iter_mut().for_each(|passed| passed.sort());
        prop_assert_eq!(&passed[0], &passed[1]);
        prop_assert_eq!(passed[0].len(), count);
    }

    #[test]
    fn every_message_arrives_once_is_dropped_lost_or_in_flight(
        sends in prop::collection::vec((0u32..4, 0u32..4, 0u32..3000, 0u64..5, any::<bool>()), 1..200),
        rates in prop::collection::vec((0u32..4, any::<bool>(), 1u64..20_000_000), 0..8),
        stop_ms in 0u64..400,
        disciplined: bool,
        seed: u64,
    ) {
        let mut config = rough();
        if !disciplined {
            (config.links.up.discipline, config.links.up.capacity) = (None, Capacity::Bytes(5000));
        }
        let mut access = access(config, 4, seed);
        let mut all = Vec::new();
        for (number, &(from, to, size, wait_ms, ecn_capable)) in (0..).zip(&sends) {
            send(&mut access, Departure { wait: MS(wait_ms), ecn_capable, ..departure(from, to, size) }, number);
            if let Some(&(node, is_up, bits)) = rates.get(number as usize) {
                let direction = if is_up { Direction::Up } else { Direction::Down };
                access.set_rate(NodeId(node), direction, Rate::from_bits_per_sec(bits));
            }
            let end = access.now() + MS(1);
            all.extend(arrivals(&mut access, end));
        }
        let end = access.now() + MS(stop_ms);
        all.extend(arrivals(&mut access, end));
        let gone = |access: &Access<u32>| -> usize {
            let counts = (0..4).flat_map(|node| [Direction::Up, Direction::Down].map(|way| access.count(NodeId(node), way)));
            counts.map(|count| (count.dropped + count.lost) as usize).sum()
        };
        prop_assert_eq!(all.len() + gone(&access) + access.in_flight(), sends.len());
        all.extend(arrivals(&mut access, Time::MAX));
        prop_assert_eq!(access.in_flight(), 0, "nothing stays on its way");
        prop_assert_eq!(all.len() + gone(&access), sends.len());
        let mut arrived = vec![false; sends.len()];
        for (_, from, to, content, _) in all {
            let (sender, receiver, ..) = sends[content as usize];
            prop_assert_eq!((from, to), (sender, receiver), "a message keeps its ends");
            prop_assert!(!std::mem::replace(&mut arrived[content as usize], true), "a message arrives twice");
        }
    }
}

#[test]
fn what_was_transmitted_is_never_more_than_the_rate_allows() {
    let mut access = access(config(links(RATE, RATE)), 2, 1);
    (0..100).for_each(|number| _ = send(&mut access, departure(0, 1, 1000), number));
    for millis in 1..100 {
        access.next(at(millis));
        // What is in transmission is counted whole.
        let most = RATE * MS(millis) + Bytes::new(1000);
        assert!(access.count(NodeId(0), Direction::Up).bytes <= most.get());
    }
}

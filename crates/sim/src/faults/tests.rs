use anabranch_control::units::Rate;
use proptest::prelude::*;

use super::*;
use crate::access::{Access, AccessConfig, AccessLinks, Direction};
use crate::delay::{DelayModel, JitterTail};
use crate::loss::LossModel;
use crate::network::{
    Capacity, Codel, CodelConfig, CodelLaw, Jitter, Limit, LinkConfig, LinkId, Links, NetworkBuilder, Way,
};
use crate::pairs::{Pairs, PairsConfig};
use crate::varying::Course;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Node 0 sends 1000 messages to node 1, one each millisecond; when and what arrives.
fn run(faults: Faults, part: u32) -> (Vec<(Time, u64, Vec<u8>)>, FaultCounters) {
    let config =
        PairsConfig { delay: DelayModel::Constant(MS(10)), jitter: 0.0, jitter_tail: JitterTail::Normal, loss: 0.0 };
    let mut fabric: Faulty<Pairs<Letter<Vec<u8>>>> = Faulty::new(Pairs::new(config, 2, 1), faults, 1);
    let (from, to) = (fabric.join(), fabric.join());
    fabric.set_part(to, part);
    let mut arrived = Vec::new();
    for number in 0..1000u64 {
        let departure = Departure { from, to, wait: MS(number), size: 0, ecn_capable: false };
        fabric.send(departure).unwrap().content = number.to_be_bytes().to_vec();
    }
    while fabric.next(Time::MAX).is_some() {
        let content = fabric.arrived().content.clone();
        arrived.push((fabric.now(), u64::from_be_bytes(content[..].try_into().unwrap()), content));
        fabric.release();
    }
    (arrived, fabric.counters())
}

#[test]
fn without_faults_all_arrives_once_and_in_order() {
    let (arrived, counters) = run(Faults::default(), 0);
    assert!(arrived.iter().map(|(_, number, _)| *number).eq(0..1000));
    assert_eq!(counters, FaultCounters::default());
}

#[test]
fn each_fault_happens_as_often_as_it_is_counted() {
    let (arrived, counters) = run(Faults { loss: 0.2, ..Faults::default() }, 0);
    assert_eq!((arrived.len() as u64 + counters.lost, (150..250).contains(&counters.lost)), (1000, true));
    let (arrived, counters) = run(Faults { duplication: 0.2, ..Faults::default() }, 0);
    let twice = arrived.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert!(twice == counters.duplicated && (200..330).contains(&twice), "{twice} {counters:?}");
    let (arrived, counters) = run(Faults { reordering: 0.2, delay: MS(50), ..Faults::default() }, 0);
    assert!(arrived.len() == 1000 && counters.reordered > 150);
    assert!(arrived.windows(2).any(|pair| pair[0].1 > pair[1].1), "none overtakes another");
    let (arrived, counters) = run(Faults { corruption: 0.2, ..Faults::default() }, 0);
    let wrong = arrived.iter().zip(0..).filter(|((_, number, _), sent)| number != sent).count() as u64;
    assert!(wrong == counters.corrupted && wrong > 150, "{wrong} {counters:?}");
}

#[test]
fn a_message_that_comes_once_more_is_as_it_was_though_it_was_forwarded() {
    let config =
        PairsConfig { delay: DelayModel::Constant(MS(10)), jitter: 0.0, jitter_tail: JitterTail::Normal, loss: 0.0 };
    let faults = Faults { duplication: 1.0, ..Faults::default() };
    let mut fabric: Faulty<Pairs<Letter<Vec<u8>>>> = Faulty::new(Pairs::new(config, 2, 1), faults, 1);
    let (from, to) = (fabric.join(), fabric.join());
    let there = Departure { from, to, wait: Duration::ZERO, size: 0, ecn_capable: false };
    fabric.send(there).unwrap().content = vec![7];
    for forwarded in [8, 9] {
        assert_eq!(fabric.next(Time::MAX), Some(Event::Arrival { from, to, marked: false }));
        assert_eq!(fabric.arrived().content, [7]);
        fabric.set(Faults::default());
        match fabric.forward(Departure { from: to, to: from, ..there }).unwrap() {
            Forwarded::InPlace(letter) | Forwarded::Elsewhere(letter) => letter.content = vec![forwarded],
        }
    }
    for forwarded in [8, 9] {
        assert_eq!(fabric.next(Time::MAX), Some(Event::Arrival { from: to, to: from, marked: false }));
        assert_eq!(fabric.arrived().content, [forwarded]);
    }
}

#[test]
fn nothing_passes_between_two_parts() {
    let (arrived, counters) = run(Faults::default(), 1);
    assert_eq!((arrived.len(), counters.partitioned), (0, 1000));
}

#[test]
fn equal_seeds_give_equal_faults() {
    let faults =
        Faults { loss: 0.1, duplication: 0.1, reordering: 0.1, delay: Duration::from_millis(30), corruption: 0.1 };
    assert_eq!(run(faults, 0), run(faults, 0));
}

/// An uplink and a downlink of 1000 B a millisecond, without a queue's end.
fn access_links() -> AccessLinks {
    let link = |name: &str| LinkConfig {
        name: name.into(),
        rate: Some(Course::constant(Rate::from_bits_per_sec(8_000_000))),
        delay: Course::constant(Duration::ZERO),
        capacity: Capacity::Unlimited,
        discipline: None,
        loss: LossModel::None,
        jitter: Jitter::NONE,
    };
    AccessLinks { up: link("up"), down: link("down") }
}

fn access(links: AccessLinks, nodes: u32, faults: Faults, seed: u64) -> Faulty<Access<Vec<u8>>> {
    let config = AccessConfig { delay: DelayModel::Constant(MS(10)), jitter: 0.0, links };
    let mut fabric = Faulty::new(Access::new(config, nodes as usize, seed), faults, seed);
    (0..nodes).for_each(|node| assert_eq!(fabric.join(), NodeId(node)));
    fabric
}

/// Every pair of three nodes over the same link.
fn links(seed: u64) -> Links<Vec<u8>> {
    let mut network = NetworkBuilder::new();
    let link = network.link(LinkConfig { delay: Course::constant(MS(10)), ..access_links().up });
    let pairs = (0..3).flat_map(|from| (0..3).map(move |to| (from, to)));
    let ways: Vec<Way> =
        pairs.map(|(from, to)| Way { from: NodeId(from), to: NodeId(to), route: network.route(&[link]) }).collect();
    Links::new(network, 3, &ways, seed)
}

fn departure(from: u32, to: u32, size: u32) -> Departure {
    Departure { from: NodeId(from), to: NodeId(to), wait: Duration::ZERO, size, ecn_capable: false }
}

fn at(millis: u64) -> Time {
    Time::ZERO + MS(millis)
}

/// All messages are late, by up to this many milliseconds.
fn late(millis: u64) -> Faults {
    Faults { reordering: 1.0, delay: MS(millis), ..Faults::default() }
}

#[test]
fn over_links_a_message_may_be_late() {
    let mut fabric = Faulty::new(links(1), late(50), 1);
    (0..3).for_each(|_| _ = fabric.join());
    for number in 0..100u8 {
        *fabric.send(departure(0, 1, 1000)).unwrap() = vec![number];
    }
    let mut arrived = Vec::new();
    while let Some(event) = fabric.next(at(1000)) {
        assert_eq!(event, Event::Arrival { from: NodeId(0), to: NodeId(1), marked: false });
        arrived.push(fabric.arrived()[0]);
    }
    assert!(!arrived.is_sorted(), "none overtakes another");
    arrived.sort();
    assert!(arrived.into_iter().eq(0..100));
    assert_eq!(fabric.inner_mut().network_mut().count(LinkId(0)).packets, 100, "a late message crosses its links once");
}

#[test]
fn over_access_links_a_late_message_crosses_its_queues_once() {
    let mut fabric = access(access_links(), 2, late(50), 1);
    for number in 0..100u8 {
        *fabric.send(departure(0, 1, 1000)).unwrap() = vec![number];
    }
    let mut arrivals = 0;
    while fabric.next(at(1000)).is_some() {
        // It came after two transmissions and the way between, and is late by 50 ms at most.
        let came = MS(u64::from(fabric.arrived()[0]) + 1) + MS(10) + MS(1);
        assert!(
            (came..came + MS(50)).contains(&fabric.now().since(Time::ZERO)),
            "{:?} at {}",
            fabric.arrived(),
            fabric.now()
        );
        arrivals += 1;
    }
    let up = fabric.inner().count(NodeId(0), Direction::Up);
    let down = fabric.inner().count(NodeId(1), Direction::Down);
    assert_eq!((arrivals, up.packets, down.packets, up.bytes), (100, 100, 100, 100_000));
}

#[test]
fn a_late_message_keeps_its_mark_and_the_time_of_its_departure() {
    let law = CodelLaw { ecn: true, ..CodelLaw::default() };
    let codel = Codel::new(CodelConfig { law, limit: Limit::Packets(1000) });
    let mut links = access_links();
    links.down.rate = Some(Course::constant(Rate::from_bits_per_sec(800_000)));
    links.down.discipline = Some(Box::new(codel));
    let arrivals = |faults: Faults| {
        let mut fabric = access(links.clone(), 2, faults, 1);
        for number in 0..200u8 {
            *fabric.send(Departure { ecn_capable: true, ..departure(0, 1, 1000) }).unwrap() = vec![number];
        }
        let mut arrivals = Vec::new();
        while let Some(Event::Arrival { marked, .. }) = fabric.next(at(100_000)) {
            arrivals.push((fabric.arrived()[0], marked, fabric.departed()));
        }
        arrivals.sort();
        arrivals
    };
    let in_time = arrivals(Faults::default());
    assert!(in_time.iter().filter(|(_, marked, _)| *marked).count() > 5);
    assert!(in_time.iter().all(|(_, _, departed)| *departed == Some(Time::ZERO)), "the inner fabric knows when");
    assert_eq!(arrivals(late(50)), in_time);
}

#[test]
fn chance_is_asked_once_for_a_message_whether_it_is_late_or_not() {
    let (arrived, counters) = run(late(50), 0);
    // One each millisecond, and 10 ms of way.
    assert!(arrived.iter().all(|(now, number, _)| (at(number + 10)..at(number + 60)).contains(now)));
    assert_eq!((arrived.len(), counters.reordered), (1000, 1000));
    let (arrived, counters) = run(Faults { loss: 0.5, ..late(50) }, 0);
    assert_eq!((arrived.len() as u64, counters.reordered), (1000 - counters.lost, 1000 - counters.lost));
    // 500 +- 3 deviations.
    assert!((453..=547).contains(&counters.lost), "{counters:?}");
    let (arrived, counters) = run(Faults { corruption: 1.0, ..late(50) }, 0);
    let flipped = |number: &u64, sent: u64| (number ^ sent).count_ones();
    let mut flips: Vec<u64> = arrived.into_iter().map(|(_, number, _)| number).collect();
    flips.sort_by_key(|number| number & !(1 << 63));
    assert_eq!(counters.corrupted, 1000);
    assert!(flips.iter().all(|number| (0..1000).any(|sent| flipped(number, sent) == 1)), "one bit of each");
}

#[test]
fn a_late_message_does_not_pass_into_another_part() {
    let mut fabric = access(access_links(), 2, late(1000), 1);
    for _ in 0..10 {
        fabric.send(departure(0, 1, 100)).unwrap();
    }
    // All have crossed their links; nearly all are still late.
    let before = std::iter::from_fn(|| fabric.next(at(50))).count() as u64;
    assert_eq!(fabric.inner().in_flight(), 0);
    fabric.set_part(NodeId(1), 1);
    assert!(before < 5 && fabric.next(Time::MAX).is_none());
    assert_eq!(fabric.counters().partitioned, 10 - before);
}

#[test]
fn a_late_message_is_forwarded_as_it_is() {
    let mut fabric = access(access_links(), 2, late(50), 1);
    *fabric.send(departure(0, 1, 100)).unwrap() = vec![7];
    assert_eq!(fabric.next(Time::MAX), Some(Event::Arrival { from: NodeId(0), to: NodeId(1), marked: false }));
    assert_eq!(fabric.arrived(), &[7]);
    fabric.arrived_mut()[0] = 8;
    let content = fabric.arrived().clone();
    match fabric.forward(departure(1, 0, 100)).unwrap() {
        Forwarded::InPlace(_) => panic!("the fabric beneath has it no more"),
        Forwarded::Elsewhere(slot) => *slot = content,
    }
    assert_eq!(fabric.next(Time::MAX), Some(Event::Arrival { from: NodeId(1), to: NodeId(0), marked: false }));
    assert_eq!(fabric.arrived(), &[8]);
}

/// All that goes wrong at once.
const ROUGH: Faults =
    Faults { loss: 0.1, duplication: 0.2, reordering: 0.4, delay: Duration::from_millis(30), corruption: 0.1 };

#[test]
fn a_reset_fabric_is_as_new_uses_its_memory_again_and_a_copy_goes_on_as_the_original() {
    let course = |fabric: &mut Faulty<Access<Vec<u8>>>, from: u8, to: u8| {
        let mut course = Vec::new();
        for number in from..to {
            *fabric.send(departure(0, 1, 1000)).unwrap() = vec![number; 8];
            let end = at(u64::from(number) + 1);
            while let Some(event) = fabric.next(end) {
                course.push((fabric.now(), event, fabric.arrived().clone()));
            }
        }
        (course, fabric.counters())
    };
    let mut old = access(access_links(), 2, ROUGH, 1);
    let first = course(&mut old, 0, 200);
    let slots = old.slots.len();
    assert!(old.held.len() > 2 && slots < 40, "{} are held in {slots} slots", old.held.len());
    let mut copy = old.clone();
    assert_eq!(course(&mut copy, 200, 250), course(&mut old, 200, 250));
    old.reset(2);
    (0..2).for_each(|_| _ = old.join());
    let mut new = access(access_links(), 2, ROUGH, 2);
    let second = course(&mut new, 0, 200);
    assert_eq!(course(&mut old, 0, 200), second);
    assert_ne!(first, second, "another seed has other faults");
    assert!(old.slots.len() < 40, "{} slots", old.slots.len());
}

/// What a fabric is asked for.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: u32,
    to: u32,
    size: u32,
    wake_ms: u64,
    pause_us: u64,
}

fn step() -> impl Strategy<Value = Step> {
    (0u32..3, 0u32..3, 0u32..3000, 0u64..5, 0u64..3000).prop_map(|(from, to, size, wake_ms, pause_us)| Step {
        from,
        to,
        size,
        wake_ms,
        pause_us,
    })
}

/// When something happened, what, and what an arrival says and when it departed.
type Happened = (Time, Event, Option<(Vec<u8>, Option<Time>)>);

/// What happens and what arrives, when each third message is forwarded once.
fn happens<F: Fabric<Payload: Default + AsMut<Vec<u8>>>>(fabric: &mut F, steps: &[Step]) -> Vec<Happened> {
    (0..3).for_each(|node| assert_eq!(fabric.join(), NodeId(node)));
    let mut course = Vec::new();
    let ends = steps.iter().map(Some).chain([None]);
    for (number, step) in ends.enumerate() {
        let mut end = Time::MAX;
        if let Some(step) = step {
            if let Some(slot) = fabric.send(departure(step.from, step.to, step.size)) {
                *slot.as_mut() = vec![number as u8; 1];
            }
            fabric.set_timer(NodeId(step.from), fabric.now() + MS(step.wake_ms));
            end = fabric.now() + Duration::from_nanos(step.pause_us * 1000);
        }
        while let Some(event) = fabric.next(end) {
            let content = matches!(event, Event::Arrival { .. })
                .then(|| (fabric.arrived_mut().as_mut().clone(), fabric.departed()));
            course.push((fabric.now(), event, content.clone()));
            let (Event::Arrival { from, to, .. }, Some((mut content, _))) = (event, content) else { continue };
            if content[0] % 3 == 0 && content.len() == 1 {
                content.push(0);
                match fabric.forward(departure(to.0, from.0, 500)) {
                    Some(Forwarded::InPlace(slot) | Forwarded::Elsewhere(slot)) => *slot.as_mut() = content,
                    None => {}
                }
            }
        }
    }
    course
}

impl AsMut<Vec<u8>> for Letter<Vec<u8>> {
    fn as_mut(&mut self) -> &mut Vec<u8> {
        &mut self.content
    }
}

proptest! {
    #[test]
    fn without_faults_a_fabric_is_as_it_is_beneath(steps in prop::collection::vec(step(), 1..100), seed: u64) {
        let config = PairsConfig { delay: DelayModel::Constant(MS(3)), jitter: 0.3, jitter_tail: JitterTail::Normal, loss: 0.2 };
        let pairs: Pairs<Letter<Vec<u8>>> = Pairs::new(config, 3, seed);
        let faulty = happens(&mut Faulty::new(pairs.clone(), Faults::default(), seed), &steps);
        prop_assert_eq!(happens(&mut pairs.clone(), &steps), faulty);

        let mut rough = access_links();
        (rough.up.capacity, rough.down.capacity) = (Capacity::Bytes(5000), Capacity::Packets(3));
        rough.up.loss = LossModel::Random(Course::constant(0.2));
        let config = AccessConfig { delay: DelayModel::Constant(MS(3)), jitter: 0.3, links: rough };
        let access: Access<Vec<u8>> = Access::new(config, 3, seed);
        let faulty = happens(&mut Faulty::new(access.clone(), Faults::default(), seed), &steps);
        prop_assert_eq!(happens(&mut access.clone(), &steps), faulty);

        let faulty = happens(&mut Faulty::new(links(seed), Faults::default(), seed), &steps);
        prop_assert_eq!(happens(&mut links(seed), &steps), faulty);
    }
}

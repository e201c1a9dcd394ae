use std::collections::VecDeque;

use anabranch_control::rng::Rng;
use anabranch_control::units::Rate;
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};

use super::*;
use crate::loss::LossModel;
use crate::varying::{Change, Course};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

/// 1 Mbit/s, 10 ms, no limit: a packet of 1000 B takes 8 ms and arrives 10 ms later.
fn link(name: &str) -> LinkConfig {
    LinkConfig {
        name: name.to_owned(),
        rate: Some(Course::constant(Rate::from_bits_per_sec(1_000_000))),
        delay: Course::constant(ms(10)),
        capacity: Capacity::Unlimited,
        discipline: None,
        loss: LossModel::None,
        jitter: Jitter::NONE,
    }
}

fn one_link(config: LinkConfig) -> (Network<u32>, RouteId) {
    let mut builder = NetworkBuilder::new();
    let link = builder.link(config);
    let route = builder.route(&[link]);
    (builder.build(1, 1), route)
}

fn arrivals(network: &mut Network<u32>) -> Vec<(Time, u32)> {
    let mut all = Vec::new();
    while let Some(event) = network.next(Time::MAX) {
        if event == Event::Arrived {
            all.push((network.now(), network.arrived().payload));
        }
    }
    all
}

#[test]
fn a_packet_takes_its_transmission_and_the_delay_and_waits_for_those_before_it() {
    let (mut network, route) = one_link(link("a"));
    for packet in 0..3 {
        network.send(route, 1000, false, packet);
    }
    assert_eq!(arrivals(&mut network), [(at(18), 0), (at(26), 1), (at(34), 2)]);
    assert_eq!(network.in_flight(), 0);
}

#[test]
fn what_waits_is_not_transmitted_yet() {
    let (mut network, route) = one_link(link("a"));
    (0..3).for_each(|packet| network.send(route, 1000, false, packet));
    for (until, bytes) in [(0, 0), (12, 1500), (24, 3000), (50, 3000)] {
        while network.next(at(until)).is_some() {}
        assert_eq!(network.transmitted(LinkId(0)), Bytes::new(bytes), "after {until} ms");
    }
    assert_eq!(network.count(LinkId(0)).bytes, 3000);
}

#[test]
fn a_full_queue_drops_and_the_packet_in_transmission_does_not_count() {
    for (capacity, accepted) in [
        (Capacity::Bytes(2500), 3),
        (Capacity::Bytes(3000), 4),
        (Capacity::Packets(2), 3),
        (Capacity::Time(ms(16)), 3),
        (Capacity::Unlimited, 9),
    ] {
        let (mut network, route) = one_link(LinkConfig { capacity, ..link("a") });
        for packet in 0..9 {
            network.send(route, 1000, false, packet);
        }
        assert_eq!(arrivals(&mut network).len(), accepted, "{capacity:?}");
        assert_eq!(network.count(LinkId(0)).dropped, 9 - accepted as u64, "{capacity:?}");
    }
}

#[test]
fn a_rate_that_changes_in_a_transmission_ends_it_when_all_bits_have_left() {
    let half = Rate::from_bits_per_sec(500_000);
    let change = Change::At(vec![(at(4), half), (at(100), Rate::ZERO), (at(200), half)]);
    let rate = Some(Course { first: Rate::from_bits_per_sec(1_000_000), change });
    let (mut network, route) = one_link(LinkConfig { rate, ..link("a") });
    network.send(route, 1000, false, 0);
    assert_eq!(arrivals(&mut network), [(at(4 + 8 + 10), 0)]);
    assert_eq!(network.next(at(92)), None);
    network.send(route, 1000, false, 1);
    // 8 ms under half the rate, nothing for 100 ms, the other 8 ms.
    assert_eq!(arrivals(&mut network), [(at(208 + 10), 1)]);
}

#[test]
fn jitter_keeps_the_order_unless_it_may_reorder() {
    for reorders in [false, true] {
        let jitter = Jitter { deviation: ms(5), reorders };
        let (mut network, route) = one_link(LinkConfig { jitter, ..link("a") });
        for packet in 0..200 {
            network.send(route, 100, false, packet);
        }
        let order: Vec<u32> = arrivals(&mut network).into_iter().map(|(_, packet)| packet).collect();
        assert_eq!(order.len(), 200);
        assert_eq!(order.is_sorted(), !reorders);
    }
}

#[test]
fn jitter_in_order_keeps_the_mean_and_the_deviation_whatever_the_rate_of_packets() {
    for every_us in [100, 1000, 100_000] {
        let jitter = Jitter { deviation: ms(5), reorders: false };
        let (mut network, route) =
            one_link(LinkConfig { rate: None, delay: Course::constant(ms(20)), jitter, ..link("a") });
        // So long that the mean of what is drawn anew each 50 ms is known to 0.1 ms.
        let packets = 400_000_000 / every_us;
        let (mut delays, mut last) = (Vec::new(), 0);
        for packet in 0..packets {
            let at = Time::from_nanos(packet * every_us * 1000);
            while network.next(at).is_some() {
                let number = network.arrived().payload;
                assert!(number >= last, "packet {number} after {last}");
                last = number;
                delays.push((network.now().as_nanos() - u64::from(number) * every_us * 1000) as f64 / 1e6);
            }
            network.send(route, 100, false, packet as u32);
        }
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        let variance = delays.iter().map(|delay| (delay - mean) * (delay - mean)).sum::<f64>() / delays.len() as f64;
        assert!((mean / 20.0 - 1.0).abs() < 0.02, "a packet each {every_us} us: mean {mean} ms");
        assert!(
            (variance.sqrt() / 5.0 - 1.0).abs() < 0.05,
            "a packet each {every_us} us: deviation {}",
            variance.sqrt()
        );
    }
}

#[test]
fn a_timer_that_is_put_off_comes_at_its_last_time_and_one_that_is_stopped_never() {
    let (mut network, _) = one_link(link("a"));
    let timer = TimerId(0);
    for millis in [50, 20, 70] {
        network.set_timer(timer, at(millis));
    }
    assert_eq!(network.next(Time::MAX), Some(Event::Timer(timer)));
    assert_eq!(network.now(), at(70));
    network.set_timer(timer, at(80));
    network.set_timer(timer, Time::MAX);
    assert_eq!(network.next(at(1000)), None);
    assert_eq!(network.now(), at(1000));
}

/// First in, first out up to a number of packets, written as a discipline.
#[derive(Clone, Debug)]
struct DropTail {
    limit: usize,
    queue: VecDeque<Waiting>,
}

impl Discipline for DropTail {
    fn enqueue(&mut self, _: Time, packet: Waiting, dropped: &mut Vec<Waiting>, _: &mut Rng) {
        if self.queue.len() < self.limit { self.queue.push_back(packet) } else { dropped.push(packet) }
    }
    fn dequeue(&mut self, _: Time, _: &mut Vec<Waiting>) -> Option<Waiting> {
        self.queue.pop_front()
    }
    fn bytes(&self) -> u64 {
        self.queue.iter().map(|waiting| u64::from(waiting.size)).sum()
    }
}

#[test]
fn a_packet_that_comes_as_a_transmission_ends_finds_the_room_of_the_next_under_any_discipline() {
    for discipline in [None, Some(Box::new(DropTail { limit: 1, queue: VecDeque::new() }) as Box<dyn Discipline>)] {
        let mut builder = NetworkBuilder::new();
        let before = builder.link(LinkConfig { rate: None, delay: Course::constant(ms(8)), ..link("before") });
        let queue = builder.link(LinkConfig { capacity: Capacity::Packets(1), discipline, ..link("queue") });
        let (far, near) = (builder.route(&[before, queue]), builder.route(&[queue]));
        let mut network = builder.build(1, 1);
        for (route, packet) in [(near, 0), (near, 1), (far, 2)] {
            network.send(route, 1000, false, packet);
        }
        assert_eq!(arrivals(&mut network), [(at(18), 0), (at(26), 1), (at(34), 2)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Neither computing in advance nor serving a queue packet by packet changes anything.
    #[test]
    fn what_is_computed_in_advance_is_what_events_would_give(seed in 0u64..1000, limit in 1u64..6, loss in 0.0f64..0.2) {
        let run = |in_advance: bool, discipline: bool| {
            let mut builder = NetworkBuilder::new();
            let fast = |name: &str| LinkConfig {
                rate: Some(Course::constant(Rate::from_bits_per_sec(3_000_000))),
                loss: LossModel::Random(Course::constant(loss)),
                capacity: Capacity::Packets(limit),
                ..link(name)
            };
            let queue = || -> Option<Box<dyn Discipline>> {
                discipline.then(|| Box::new(DropTail { limit: limit as usize, queue: VecDeque::new() }) as _)
            };
            let access: Vec<LinkId> = ["a", "b"].iter().map(|name| builder.link(fast(name))).collect();
            let middle = builder.link(LinkConfig { capacity: Capacity::Packets(limit), discipline: queue(), ..link("m") });
            let slow = |name: &str| LinkConfig { capacity: Capacity::Packets(1), ..link(name) };
            let exits: Vec<LinkId> = ["x", "y"].iter().map(|name| builder.link(slow(name))).collect();
            let routes: Vec<RouteId> = (0..2).map(|i| builder.route(&[access[i], middle, exits[i]])).collect();
            if !in_advance {
                exits.iter().for_each(|&exit| builder.watch(exit));
            }
            let mut network = builder.build::<u32>(1, seed);
            let mut rng = Rng::stream(seed, "test");
            let mut all = Vec::new();
            for packet in 0..400 {
                let gap = Duration::from_nanos(rng.below(6_000_000) as u64);
                let until = network.now() + gap;
                while network.next(until).is_some() {
                    all.push((network.now(), network.arrived().payload));
                }
                network.send(routes[rng.below(2)], 200 + rng.below(1300) as u32, false, packet);
            }
            all.extend(arrivals(&mut network));
            all
        };
        let events = run(false, false);
        prop_assert_eq!(&run(true, false), &events);
        prop_assert_eq!(&run(false, true), &events);
    }

    /// Whatever the topology, links that wait for nothing to be seen change nothing.
    #[test]
    fn links_computed_in_advance_or_late_do_what_events_would_do(seed in any::<u64>(), sends in 50usize..300) {
        let run = |watched: bool| {
            let mut rng = Rng::stream(seed, "topology");
            let mut builder = NetworkBuilder::new();
            let links: Vec<LinkId> = (0..7).map(|i| {
                let reorders = rng.chance(0.1);
                let deviation = if rng.chance(0.3) { ms(2) } else { Duration::ZERO };
                let capacity = match rng.below(3) {
                    0 => Capacity::Unlimited,
                    1 => Capacity::Packets(1 + rng.below(8) as u64),
                    _ => Capacity::Time(ms(1 + rng.below(40) as u64)),
                };
                builder.link(LinkConfig {
                    rate: Some(Course::constant(Rate::from_bits_per_sec(500_000 + rng.below(4_000_000) as u64))),
                    delay: Course::constant(Duration::from_nanos(1 + rng.below(20_000_000) as u64)),
                    loss: if rng.chance(0.3) { LossModel::Random(Course::constant(0.1)) } else { LossModel::None },
                    jitter: Jitter { deviation, reorders },
                    capacity,
                    ..link(&format!("link{i}"))
                })
            }).collect();
            let routes: Vec<RouteId> = (0..5).map(|_| {
                let mut path = links.clone();
                (0..path.len()).for_each(|i| path.swap(i, rng.below(links.len())));
                builder.route(&path[..1 + rng.below(links.len())])
            }).collect();
            if watched {
                links.iter().for_each(|&link| builder.watch(link));
            }
            let mut network = builder.build::<u32>(0, seed);
            let mut all = Vec::new();
            for packet in 0..sends as u32 {
                let until = network.now() + Duration::from_nanos(rng.below(8_000_000) as u64);
                while network.next(until).is_some() {
                    all.push((network.now(), network.arrived().payload));
                }
                network.send(routes[rng.below(routes.len())], 200 + rng.below(1300) as u32, false, packet);
            }
            all.extend(arrivals(&mut network));
            let counts: Vec<LinkCount> = links.iter().map(|&link| network.count(link)).collect();
            (all, counts, network.in_flight())
        };
        let (plain, late) = (run(true), run(false));
        prop_assert_eq!((&plain.0, &plain.1, plain.2), (&late.0, &late.1, 0));
    }
}

#[test]
fn a_timer_in_the_past_comes_now_and_time_does_not_go_back() {
    let (mut network, route) = one_link(link("a"));
    assert_eq!(network.next(at(10)), None);
    network.set_timer(TimerId(0), at(3));
    assert_eq!(network.next_time(), at(10));
    assert_eq!((network.next(Time::MAX), network.now()), (Some(Event::Timer(TimerId(0))), at(10)));
    // Set again at once, as a source whose packets fell due while nobody looked.
    network.set_timer(TimerId(0), at(4));
    network.send(route, 1000, false, 0);
    assert_eq!((network.next(Time::MAX), network.now()), (Some(Event::Timer(TimerId(0))), at(10)));
    assert_eq!((network.next(Time::MAX), network.now()), (Some(Event::Arrived), at(28)));
}

#[test]
fn the_next_time_is_when_something_happens_next() {
    let (mut network, route) = one_link(link("a"));
    assert_eq!(network.next_time(), Time::MAX);
    network.send(route, 1000, false, 0);
    assert_eq!(network.next_time(), at(18));
    network.set_timer(TimerId(0), at(5));
    assert_eq!(network.next_time(), at(5));
    assert_eq!(network.next(at(10)), Some(Event::Timer(TimerId(0))));
    assert_eq!(network.next(at(10)), None);
    assert_eq!(network.next_time(), at(18));
}

#[test]
fn a_number_names_one_packet_on_its_way_and_is_given_again_when_it_is_lost() {
    let (mut network, route) = one_link(LinkConfig { capacity: Capacity::Packets(0), ..link("a") });
    let first = network.send_numbered(route, 1000, false, 0);
    let dropped = network.send_numbered(route, 1000, false, 1);
    assert_ne!(first, dropped);
    assert_eq!(network.send_numbered(route, 1000, false, 2), dropped);
    assert_eq!(network.next(Time::MAX), Some(Event::Arrived));
    assert_eq!((network.arrived_number(), network.arrived().payload), (first, 0));
}

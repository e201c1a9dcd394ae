use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn pairs(loss: f64, jitter: f64, nodes: usize, seed: u64) -> Pairs<Letter<u32>> {
    let delay = DelayModel::Plane { span: MS(100), access: MS(5), stretch: 1.0 };
    let mut pairs = Pairs::new(PairsConfig { delay, jitter, jitter_tail: JitterTail::Normal, loss }, nodes, seed);
    for _ in 0..nodes {
        pairs.join();
    }
    pairs
}

fn send<const PARTED: bool>(pairs: &mut Pairs<Letter<u32>, PARTED>, from: u32, to: u32, content: u32) -> bool {
    let (from, to) = (NodeId(from), NodeId(to));
    let departure = Departure { from, to, wait: Duration::ZERO, size: 0, ecn_capable: false };
    pairs.send(departure).map(|letter| letter.content = content).is_some()
}

/// When and what node 1 gets of what node 0 sends it.
fn received(pairs: &mut Pairs<Letter<u32>>) -> Vec<(Time, u32)> {
    let mut received = Vec::new();
    while let Some(event) = pairs.next(Time::MAX) {
        assert_eq!(event, Event::Arrival { from: NodeId(0), to: NodeId(1), marked: false });
        received.push((pairs.now(), pairs.arrived().content));
    }
    received
}

#[test]
fn luck_is_a_function_of_the_sender_and_its_count() {
    let run = |others: u32| {
        let mut pairs = pairs(0.3, 0.1, 4, 7);
        for content in 0..200 {
            for _ in 0..others {
                send(&mut pairs, 2, 0, 0);
            }
            send(&mut pairs, 0, 1, content);
        }
        let mut arrived = Vec::new();
        while let Some(Event::Arrival { from, .. }) = pairs.next(Time::MAX) {
            if from == NodeId(0) {
                arrived.push((pairs.now(), pairs.arrived().content));
            }
        }
        arrived
    };
    assert_eq!(run(0), run(3));
    assert!((100..180).contains(&run(0).len()), "{} of 200 arrive at 30 % loss", run(0).len());
}

#[test]
fn a_reset_fabric_is_as_new() {
    let mut old = pairs(0.1, 0.1, 3, 1);
    for content in 0..50 {
        send(&mut old, 0, 1, content);
    }
    old.set_timer(NodeId(2), Time::ZERO + MS(3));
    old.next(Time::MAX);
    old.reset(2);
    for _ in 0..3 {
        old.join();
    }
    let mut new = pairs(0.1, 0.1, 3, 2);
    for pairs in [&mut old, &mut new] {
        for content in 0..50 {
            send(pairs, 0, 1, content);
        }
    }
    assert_eq!(received(&mut old), received(&mut new));
}

#[test]
fn an_earlier_timer_replaces_a_later() {
    let mut pairs = pairs(0.0, 0.0, 2, 1);
    assert_eq!(pairs.next(Time::ZERO + MS(10)), None);
    pairs.set_timer(NodeId(1), Time::ZERO + MS(10));
    assert_eq!((pairs.next(Time::MAX), pairs.now()), (Some(Event::Timer(NodeId(1))), Time::ZERO + MS(10)));
    pairs.set_timer(NodeId(1), Time::ZERO + MS(30));
    pairs.set_timer(NodeId(1), Time::ZERO + MS(20));
    assert_eq!((pairs.next(Time::MAX), pairs.now()), (Some(Event::Timer(NodeId(1))), Time::ZERO + MS(20)));
    assert_eq!(pairs.next(Time::MAX), None);
}

#[test]
fn nodes_that_join_later_leave_the_others_where_they_are() {
    let mut pairs = pairs(0.0, 0.0, 3, 1);
    let before = pairs.delays().mean(0, 2);
    let joined = pairs.join();
    assert_eq!((joined, pairs.delays().mean(0, 2)), (NodeId(3), before));
    assert!(send(&mut pairs, 3, 1, 9));
    let event = pairs.next(Time::MAX);
    assert_eq!(event, Some(Event::Arrival { from: joined, to: NodeId(1), marked: false }));
    assert_eq!(pairs.now().since(Time::ZERO), pairs.delays().mean(3, 1));
}

#[test]
fn a_forwarded_message_stays_in_its_slot_and_meets_the_luck_of_one_that_is_sent() {
    let run = |forwards: bool| {
        let mut pairs = pairs(0.1, 0.1, 2, 7);
        let mut arrived = Vec::new();
        for content in 0..300 {
            send(&mut pairs, 0, 1, content);
        }
        while let Some(Event::Arrival { from, to, .. }) = pairs.next(Time::MAX) {
            let content = pairs.arrived().content;
            arrived.push((pairs.now(), from, to, content));
            let departure = Departure { from: to, to: from, wait: Duration::ZERO, size: 0, ecn_capable: false };
            if !forwards {
                pairs.release();
                send(&mut pairs, to.0, from.0, content);
                continue;
            }
            match pairs.forward(departure) {
                Some(Forwarded::InPlace(letter)) => assert_eq!(letter.content, content),
                Some(Forwarded::Elsewhere(_)) => panic!("message {content} has left its slot"),
                None => {}
            }
        }
        assert_eq!(pairs.in_flight().count(), 0);
        (arrived, pairs.slots.len())
    };
    let (forwarded, slots) = run(true);
    assert!(forwarded.len() > 1000 && slots <= 300, "{} arrivals, {slots} slots", forwarded.len());
    assert_eq!((forwarded, slots), run(false));
}

#[test]
fn a_message_that_has_left_again_is_not_forwarded_twice() {
    let mut pairs = pairs(0.0, 0.0, 2, 1);
    send(&mut pairs, 0, 1, 5);
    pairs.next(Time::MAX);
    let departure = Departure { from: NodeId(1), to: NodeId(0), wait: Duration::ZERO, size: 0, ecn_capable: false };
    assert!(matches!(pairs.forward(departure), Some(Forwarded::InPlace(_))));
    assert!(matches!(pairs.forward(departure), Some(Forwarded::Elsewhere(_))));
    assert_eq!(pairs.in_flight().count(), 2);
}

#[test]
fn what_happens_in_one_instant_happens_node_by_node_and_at_each_in_the_order_of_its_causes() {
    let delay = DelayModel::Constant(MS(10));
    let mut pairs: Pairs<Letter<u32>> =
        Pairs::new(PairsConfig { delay, jitter: 0.0, jitter_tail: JitterTail::Normal, loss: 0.0 }, 4, 1);
    (0..4).for_each(|_| _ = pairs.join());
    for (from, to, content) in [(3, 2, 1), (1, 0, 2), (0, 2, 3), (2, 0, 4)] {
        send(&mut pairs, from, to, content);
    }
    pairs.set_timer(NodeId(0), Time::ZERO + MS(10));
    send(&mut pairs, 3, 0, 5);
    let mut seen = Vec::new();
    // A step that ends in the instant leaves it for the next.
    assert_eq!(pairs.next(Time::ZERO + MS(10)), None);
    while let Some(event) = pairs.next(Time::MAX) {
        seen.push(match event {
            Event::Timer(node) => 100 + node.0,
            Event::Arrival { .. } => pairs.arrived().content,
        });
        if seen.len() == 2 {
            assert_eq!(pairs.next(Time::ZERO + MS(10)), None, "the rest of the instant is not before it");
            // What is caused within the instant comes behind it.
            pairs.set_timer(NodeId(1), Time::ZERO + MS(10));
        }
    }
    assert_eq!((seen, pairs.now()), (vec![2, 4, 100, 5, 1, 3, 101], Time::ZERO + MS(10)));
}

#[test]
fn parts_hand_over_what_arrives_in_another() {
    let delay = DelayModel::Constant(MS(10));
    let config = PairsConfig { delay, jitter: 0.0, jitter_tail: JitterTail::Normal, loss: 0.0 };
    let mut parts: Vec<Pairs<Letter<u32>, true>> = Pairs::parts(config, 5, 1, 2);
    assert_eq!(parts.iter_mut().map(|part| [part.join().0, part.join().0]).collect::<Vec<_>>(), [[0, 1], [3, 4]]);
    assert_eq!(parts[0].join(), NodeId(2));
    let [left, right] = &mut parts[..] else { panic!("two parts") };
    send(left, 0, 4, 7);
    send(left, 0, 1, 8);
    assert_eq!(left.in_flight().count(), 2);
    right.deliver(left.mail_for(1));
    assert_eq!((left.in_flight().count(), right.in_flight().count()), (1, 1));
    let arrival = |from, to| Some(Event::Arrival { from: NodeId(from), to: NodeId(to), marked: false });
    assert_eq!((right.next(Time::MAX), right.arrived().content), (arrival(0, 4), 7));
    // A message that is forwarded to another part leaves its slot.
    let departure = Departure { from: NodeId(4), to: NodeId(2), wait: MS(1), size: 0, ecn_capable: false };
    assert!(matches!(right.forward(departure), Some(Forwarded::Elsewhere(_))));
    assert_eq!((left.next(Time::MAX), left.arrived().content), (arrival(0, 1), 8));
    left.deliver(right.mail_for(0));
    assert_eq!((left.next(Time::MAX), left.now()), (arrival(4, 2), Time::ZERO + MS(21)));
    assert_eq!(right.next(Time::MAX), None);
    assert_eq!(left.next(Time::MAX), None);
    assert_eq!(left.in_flight().count() + right.in_flight().count(), 0);
}

#[test]
fn what_is_in_flight_is_what_was_sent_and_has_not_arrived() {
    let mut pairs = pairs(0.0, 0.0, 2, 1);
    for content in 0..5 {
        send(&mut pairs, 0, 1, content);
    }
    pairs.next(Time::MAX);
    assert_eq!(pairs.in_flight().map(|letter| letter.content).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

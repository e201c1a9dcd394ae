use super::*;
use crate::delay::DelayModel;
use crate::pairs::{Pairs, PairsConfig};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Node 0 sends 1000 messages to node 1, one each millisecond; when and what arrives.
fn run(faults: Faults, part: u32) -> (Vec<(Time, u64, Vec<u8>)>, FaultCounters) {
    let config = PairsConfig { delay: DelayModel::Constant(MS(10)), jitter: 0.0, loss: 0.0 };
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
    let config = PairsConfig { delay: DelayModel::Constant(MS(10)), jitter: 0.0, loss: 0.0 };
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
    let faults = Faults { loss: 0.1, duplication: 0.1, reordering: 0.1, delay: MS(30), corruption: 0.1 };
    assert_eq!(run(faults, 0), run(faults, 0));
}

//! What holds after any calls in any order.

use std::collections::BTreeMap;

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_proto::stream::tree::{Change, Effort, Moves, NodeId, Settings, Substitute, TreeBook};
use proptest::prelude::*;

use crate::worlds::Matrix;

/// Clients that there may be at once.
const MOST: usize = 40;

#[derive(Clone, Debug)]
enum Call {
    Join(usize),
    Leave(usize),
    Exclude(usize),
    Places(usize, usize),
    ServerPlaces(usize),
    Reassign(usize, usize, usize),
    Step(usize),
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => (0usize..12).prop_map(Call::Join),
        2 => any::<usize>().prop_map(Call::Leave),
        1 => any::<usize>().prop_map(Call::Exclude),
        3 => (any::<usize>(), 0usize..12).prop_map(|(node, places)| Call::Places(node, places)),
        1 => (0usize..16).prop_map(Call::ServerPlaces),
        2 => (any::<usize>(), any::<usize>(), any::<usize>()).prop_map(|(slice, node, to)| Call::Reassign(slice, node, to)),
        8 => prop_oneof![Just(usize::MAX), 1usize..200].prop_map(Call::Step),
    ]
}

fn some_settings() -> impl Strategy<Value = Settings> {
    (1usize..6, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 0u64..2, 0u64..3, 0u64..3).prop_map(
        |(slices, adopt, switch, double_switch, displace, forwarding, slack, leaf_slack)| Settings {
            slices,
            moves: Moves { adopt, switch, double_switch, displace },
            unknown: Duration::from_millis(80),
            forwarding: Duration::from_millis(forwarding * 3),
            slack: Duration::from_millis(slack * 5),
            leaf_slack: Duration::from_millis(leaf_slack * 20),
        },
    )
}

/// What someone knows who reads only the changes.
type Reader = BTreeMap<(usize, NodeId), NodeId>;

fn read(reader: &mut Reader, changes: &[Change]) {
    for change in changes {
        let before = match change.to {
            Some(parent) => reader.insert((change.slice, change.child), parent),
            None => reader.remove(&(change.slice, change.child)),
        };
        assert_eq!(before, change.from, "{change:?}");
        assert_ne!(change.from, change.to);
    }
}

/// Makes the calls, checks what must hold after each, and gives all changes.
fn run(settings: Settings, seed: u64, calls: &[Call]) -> Vec<Change> {
    let latencies = Matrix::uniform(MOST + 1, 1.0, 100.0, &mut Rng::stream(seed, "properties"));
    // Every seventh pair is unknown.
    let known = |from: usize, to: usize| {
        (!(from * 31 + to).is_multiple_of(7)).then(|| Duration::from_nanos(latencies.nanos(from, to)))
    };
    let mut book = TreeBook::new(settings, 8);
    let (mut nodes, mut excluded): (Vec<NodeId>, Vec<NodeId>) = (Vec::new(), Vec::new());
    let (mut reader, mut all) = (Reader::new(), Vec::new());
    for call in calls {
        let mut changes = Vec::new();
        let sum = |book: &TreeBook| (0..settings.slices).map(|slice| book.performance(slice).as_nanos()).sum::<u64>();
        let before = sum(&book);
        match *call {
            Call::Join(places) if nodes.len() + excluded.len() < MOST => {
                let (node, result) = book.join(places, &known, &mut changes);
                let waiting: Vec<_> = book.waiting().filter(|&(_, other)| other == node).collect();
                assert_eq!(result.map_or_else(|overloaded| overloaded.waiting, |()| Vec::new()), waiting);
                nodes.push(node);
            }
            Call::Leave(index) if !nodes.is_empty() || !excluded.is_empty() => {
                let index = index % (nodes.len() + excluded.len());
                let node = if index < nodes.len() { nodes.remove(index) } else { excluded.remove(index - nodes.len()) };
                let _ = book.leave(node, &known, &mut changes);
                assert!(!book.is_known(node));
                let again = changes.len();
                assert_eq!(book.leave(node, &known, &mut changes), Ok(()), "who is gone stays gone");
                assert_eq!(changes.len(), again);
            }
            Call::Exclude(index) if !nodes.is_empty() => {
                let node = nodes.remove(index % nodes.len());
                let _ = book.exclude(node, &known, &mut changes);
                excluded.push(node);
            }
            Call::Places(index, places) if !nodes.is_empty() => {
                let _ = book.set_places(nodes[index % nodes.len()], places, &known, &mut changes);
            }
            Call::ServerPlaces(places) => {
                let _ = book.set_places(NodeId::SERVER, places, &known, &mut changes);
            }
            Call::Reassign(slice, index, to) if !nodes.is_empty() => {
                let (slice, node) = (slice % settings.slices, nodes[index % nodes.len()]);
                let wanted = nodes[to % nodes.len()];
                let substitute = [Substitute::Asked(wanted), Substitute::Acquaintance, Substitute::Best][to % 3];
                book.set_doubtful(wanted, to % 2 == 0);
                let moved = book.reassign(slice, node, substitute, &known, &mut changes);
                let parent = book.parent(slice, node);
                let is_asked = substitute == Substitute::Asked(wanted);
                assert!(!moved || is_asked || parent.is_some_and(|parent| !book.is_doubtful(parent)), "{substitute:?}");
                let own = changes.iter().any(|change| (change.slice, change.child) == (slice, node));
                assert_eq!(moved, own, "it has another parent or nothing has changed: {changes:?}");
            }
            Call::Step(work) => {
                let waiting = book.waiting().count();
                let step = book.step(&known, Effort { work, moves: usize::MAX }, &mut changes);
                assert_eq!(waiting - book.waiting().count(), step.placed);
                if step.placed == 0 {
                    let moved = step.adopted + step.switched + step.displaced;
                    let least = moved as u64 * settings.slack.as_nanos() + u64::from(moved > 0);
                    assert!(sum(&book) + least <= before, "each move gains more than the slack: {step:?}");
                }
            }
            _ => {}
        }
        book.verify().unwrap_or_else(|wrong| panic!("{wrong} after {call:?}"));
        read(&mut reader, &changes);
        for slice in 0..settings.slices {
            for &node in nodes.iter().chain(&excluded) {
                assert_eq!(book.parent(slice, node), reader.get(&(slice, node)).copied());
            }
            for &node in &nodes {
                check_backups(&book, slice, node);
            }
        }
        assert!(reader.keys().all(|(_, node)| nodes.contains(node)), "who is gone has no parent");
        assert_eq!(book.clients().count(), nodes.len());
        all.append(&mut changes);
    }
    all
}

fn check_backups(book: &TreeBook, slice: usize, node: NodeId) {
    let backups = book.backups(slice, node);
    assert!(backups[0] != backups[1] || backups[0].is_none());
    for backup in backups.into_iter().flatten() {
        assert_ne!(Some(backup), book.parent(slice, node));
        let mut above = Some(backup);
        while let Some(other) = above {
            assert_ne!(other, node, "a backup is not below its client");
            above = book.parent(slice, other);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn trees_stay_trees_within_limits_and_sums_stay_right(
        settings in some_settings(),
        seed in any::<u64>(),
        calls in proptest::collection::vec(call(), 1..120),
    ) {
        run(settings, seed, &calls);
    }

    #[test]
    fn the_same_calls_give_the_same_changes(
        settings in some_settings(),
        calls in proptest::collection::vec(call(), 1..40),
    ) {
        prop_assert_eq!(run(settings, 1, &calls), run(settings, 1, &calls));
    }
}

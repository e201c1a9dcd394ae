//! Each rule of the book, in a world small enough to see why.

use anabranch_control::time::Duration;
use anabranch_proto::stream::tree::{BACKUPS, Change, Effort, Moves, NodeId, Settings, TreeBook};

use crate::worlds::settings;

/// Where nodes are on a line, in milliseconds; by slot, the server's first.
fn line(places: &[u64]) -> impl Fn(usize, usize) -> Option<Duration> + use<'_> {
    |from, to| Some(Duration::from_millis(places[from].abs_diff(places[to])))
}

const STILL: Moves = Moves { adopt: false, switch: false, double_switch: false, displace: false };

/// Joins clients that all find their places.
fn join<F: Fn(usize, usize) -> Option<Duration>>(book: &mut TreeBook, places: &[usize], latencies: &F) -> Vec<NodeId> {
    let mut changes = Vec::new();
    places
        .iter()
        .map(|&places| {
            let (node, result) = book.join(places, latencies, &mut changes);
            assert_eq!(result, Ok(()));
            node
        })
        .collect()
}

fn sweep<F: Fn(usize, usize) -> Option<Duration>>(book: &mut TreeBook, latencies: &F) -> Vec<Change> {
    let mut changes = Vec::new();
    book.step(latencies, Effort::SWEEP, &mut changes);
    book.verify().unwrap();
    changes
}

#[test]
fn a_client_joins_below_the_node_with_room_that_reaches_it_first() {
    let latencies = line(&[0, 10, 30, 25]);
    let mut book = TreeBook::new(settings(1, STILL), 2);
    let nodes = join(&mut book, &[1, 1, 0], &latencies);
    // The server is full. From the client at 10 it takes 10 + 15, from the one at 30 30 + 5.
    assert_eq!(book.parent(0, nodes[2]), Some(nodes[0]));
    assert_eq!(book.path_latency(0, nodes[2]), Some(Duration::from_millis(25)));
    assert_eq!(book.performance(0), Duration::from_millis(10 + 30 + 25));
}

#[test]
fn a_client_that_finds_no_place_waits_for_one_in_those_slices() {
    let latencies = line(&[0, 1, 2, 3]);
    let mut book = TreeBook::new(settings(2, Moves::PRINTED), 3);
    join(&mut book, &[0], &latencies);
    let mut changes = Vec::new();
    let (second, result) = book.join(0, &latencies, &mut changes);
    assert_eq!(result.unwrap_err().waiting, [(1, second)], "one place was left");
    assert_eq!(changes, [Change { slice: 0, child: second, from: None, to: Some(NodeId::SERVER) }]);
    changes.clear();
    assert_eq!(book.set_places(NodeId::SERVER, 4, &latencies, &mut changes), Ok(()));
    assert_eq!(changes, [Change { slice: 1, child: second, from: None, to: Some(NodeId::SERVER) }]);
    assert_eq!(book.waiting().count(), 0);
}

#[test]
fn a_node_with_room_adopts_where_the_sum_falls() {
    let latencies = line(&[0, 10, 30]);
    let mut book = TreeBook::new(settings(1, Moves { adopt: true, ..STILL }), 1);
    let nodes = join(&mut book, &[1, 0], &latencies);
    assert_eq!(sweep(&mut book, &latencies), [], "below the first it is as soon as it can be");
    // The link from the server gets better.
    let better = line(&[0, 10, 5]);
    let mut changes = Vec::new();
    book.set_places(NodeId::SERVER, 2, &better, &mut changes).unwrap();
    let adopted = Change { slice: 0, child: nodes[1], from: Some(nodes[0]), to: Some(NodeId::SERVER) };
    assert_eq!(sweep(&mut book, &better), [adopted]);
}

#[test]
fn two_nodes_switch_where_the_sum_falls_and_each_bears_the_others_children() {
    for (places, switched) in [([1, 1], true), ([1, 0], false)] {
        let latencies = line(&[0, 30, 10]);
        let mut book = TreeBook::new(settings(1, Moves { switch: true, ..STILL }), 1);
        let nodes = join(&mut book, &places, &latencies);
        sweep(&mut book, &latencies);
        let parent = if switched { NodeId::SERVER } else { nodes[0] };
        assert_eq!(book.parent(0, nodes[1]), Some(parent), "{places:?}");
    }
}

#[test]
fn free_riders_near_the_server_make_way_for_those_who_forward() {
    // Every link takes as long as any other, so that hops are what counts.
    let latencies = |_: usize, _: usize| Some(Duration::from_millis(10));
    let grow = |moves| {
        let mut book = TreeBook::new(settings(1, moves), 2);
        // The server's two places go to the first two: one forwards nothing, one to one other.
        let nodes = join(&mut book, &[0, 1, 1, 4, 4, 0, 0, 0, 0, 0], &latencies);
        assert_eq!((book.depth(0, nodes[0]), book.depth(0, nodes[3])), (Some(1), Some(3)));
        for _ in 0..40 {
            sweep(&mut book, &latencies);
        }
        (book.depth(0, nodes[0]).unwrap(), book.depth(0, nodes[3]).unwrap())
    };
    assert_eq!(grow(Moves::PRINTED).0, 1, "as printed it stays on top, since it can bear nobody's children");
    let (rider, contributor) = grow(Moves::ALL);
    assert!(rider > 1 && contributor == 1, "{rider} and {contributor}");
}

#[test]
fn the_children_of_who_leaves_rejoin_with_those_below_them() {
    let latencies = line(&[0, 10, 20, 30, 40]);
    let mut book = TreeBook::new(settings(1, STILL), 1);
    let nodes = join(&mut book, &[1, 1, 1, 1], &latencies);
    let mut changes = Vec::new();
    assert_eq!(book.leave(nodes[1], &latencies, &mut changes), Ok(()));
    assert_eq!(
        changes,
        [
            Change { slice: 0, child: nodes[1], from: Some(nodes[0]), to: None },
            Change { slice: 0, child: nodes[2], from: Some(nodes[1]), to: Some(nodes[0]) },
        ]
    );
    assert_eq!(book.depth(0, nodes[3]), Some(3));
    assert!(!book.is_known(nodes[1]) && book.parent(0, nodes[1]).is_none());
    // Its slot is taken by the next, who is another.
    let next = join(&mut book, &[0], &latencies)[0];
    assert_eq!(next.slot(), nodes[1].slot());
    assert_ne!(next, nodes[1]);
}

#[test]
fn when_places_fall_the_children_go_for_whom_the_sum_rises_least() {
    // By slot: the server, one with three places, one far away with room, and three below the first. Only for
    // the last of them the way over the far one is as short.
    let latencies = line(&[0, 10, 100, 11, 12, 113]);
    let mut book = TreeBook::new(settings(1, STILL), 2);
    let nodes = join(&mut book, &[3, 5, 0, 0, 0], &latencies);
    assert_eq!(book.children(0, nodes[0]), nodes[2..]);
    let mut changes = Vec::new();
    book.set_places(nodes[0], 2, &latencies, &mut changes).unwrap();
    assert_eq!(changes, [Change { slice: 0, child: nodes[4], from: Some(nodes[0]), to: Some(nodes[1]) }]);
    changes.clear();
    book.set_places(nodes[0], 0, &latencies, &mut changes).unwrap();
    assert_eq!(changes.len(), 2);
    assert_eq!(book.places(nodes[0]), (0, 0));
    book.verify().unwrap();
}

#[test]
fn the_server_keeps_a_place_for_every_tree_that_has_none() {
    let latencies = line(&[0, 1, 2, 3]);
    let mut book = TreeBook::new(settings(2, Moves::PRINTED), 2);
    let nodes = join(&mut book, &[4, 0, 0], &latencies);
    let mut changes = Vec::new();
    let result = book.leave(nodes[0], &latencies, &mut changes);
    book.verify().unwrap();
    // Nobody forwards any more: the two places go to one client in each tree, not to both in one.
    assert_eq!(result.unwrap_err().waiting.len(), 2);
    for slice in 0..2 {
        assert_eq!(book.children(slice, NodeId::SERVER).len(), 1, "slice {slice}");
    }
}

#[test]
fn a_newcomer_pushes_in_where_only_it_has_room() {
    let latencies = line(&[0, 1, 2]);
    for (moves, placed) in [(Moves::PRINTED, false), (Moves::ALL, true)] {
        let mut book = TreeBook::new(settings(1, moves), 1);
        join(&mut book, &[0], &latencies);
        let mut changes = Vec::new();
        let (newcomer, result) = book.join(1, &latencies, &mut changes);
        assert_eq!(result.is_ok(), placed);
        assert_eq!(book.parent(0, newcomer), placed.then_some(NodeId::SERVER));
    }
}

#[test]
fn who_is_excluded_gets_no_place_and_can_still_leave() {
    let latencies = line(&[0, 1, 2, 3]);
    let mut book = TreeBook::new(settings(1, Moves::ALL), 1);
    let nodes = join(&mut book, &[2, 2], &latencies);
    let mut changes = Vec::new();
    assert_eq!(book.exclude(nodes[0], &latencies, &mut changes), Ok(()));
    assert_eq!(book.parent(0, nodes[1]), Some(NodeId::SERVER));
    book.set_places(nodes[0], 5, &latencies, &mut changes).unwrap();
    book.set_places(NodeId::SERVER, 5, &latencies, &mut changes).unwrap();
    sweep(&mut book, &latencies);
    assert!(book.is_known(nodes[0]) && book.parent(0, nodes[0]).is_none());
    assert_eq!(book.clients().collect::<Vec<_>>(), [nodes[1]]);
    book.leave(nodes[0], &latencies, &mut changes).unwrap();
    assert!(!book.is_known(nodes[0]));
}

#[test]
fn who_gives_least_is_named_first() {
    let latencies = line(&[0, 1, 2, 3]);
    let mut book = TreeBook::new(settings(1, Moves::ALL), 4);
    let nodes = join(&mut book, &[2, 1, 1], &latencies);
    assert_eq!(book.least_contributor(), Some(nodes[2]));
}

#[test]
fn of_equal_parents_the_one_is_taken_that_is_above_the_client_in_fewer_trees() {
    // Two clients that are equally near to everyone.
    let latencies = |from: usize, to: usize| Some(Duration::from_millis(10 + from.abs_diff(to) as u64 % 2));
    let parents = |slack: u64| {
        let settings = Settings { slack: Duration::from_millis(slack), ..settings(4, STILL) };
        let mut book = TreeBook::new(settings, 8);
        let nodes = join(&mut book, &[4, 4, 0], &latencies);
        let parents: Vec<_> = (0..4).map(|slice| book.parent(slice, nodes[2]).unwrap()).collect();
        nodes[..2].iter().map(|node| parents.iter().filter(|&parent| parent == node).count()).collect::<Vec<_>>()
    };
    assert_eq!(parents(0).iter().max(), Some(&4), "the nearest, always");
    assert_eq!(parents(5), [2, 2]);
}

#[test]
fn who_has_nobody_below_it_takes_the_parent_with_room_for_the_past_and_others_the_nearest() {
    // The server at 0; one client that is near and one 15 ms behind it.
    let latencies = line(&[0, 10, 25, 11, 12, 13, 14]);
    let parent_of_last = |leaf_slack: u64, near: usize, far: usize| {
        let settings = Settings { leaf_slack: Duration::from_millis(leaf_slack), ..settings(1, STILL) };
        let mut book = TreeBook::new(settings, 2);
        let nodes = join(&mut book, &[near, far, 0], &latencies);
        nodes.iter().position(|&node| book.parent(0, nodes[2]) == Some(node)).expect("a client")
    };
    assert_eq!(parent_of_last(0, 1, 9), 0, "the nearest");
    assert_eq!(parent_of_last(20, 1, 9), 0, "what is nearer by more than the slack");
    assert_eq!(parent_of_last(100, 1, 9), 1, "the one that has more room");
    assert_eq!(parent_of_last(100, 4, 40), 0, "who claims much more than is needed is not preferred");
}

#[test]
fn backups_avoid_the_path_that_they_stand_in_for() {
    let latencies = line(&[0, 10, 11, 12, 20, 21, 30]);
    let mut book = TreeBook::new(settings(1, STILL), 3);
    // By slot: 1, 2 and 3 below the server; 4 below 1, 5 below 2, 6 below 3.
    let nodes = join(&mut book, &[1, 1, 2, 1, 1, 0], &latencies);
    let parents: Vec<_> = nodes.iter().map(|&node| book.parent(0, node).unwrap().slot()).collect();
    assert_eq!(parents, [0, 0, 0, 1, 2, 3]);
    // The parent of 6 has room and is its parent; 1 and 2 have none.
    assert_eq!(book.backups(0, nodes[5]), [Some(nodes[3]), Some(nodes[4])]);
    // Of those with room, 5 is on another branch than 4 and 6 would be on one with 3, whose path is no
    // other's: 3 is the nearer.
    assert_eq!(book.backups(0, nodes[0]), [Some(nodes[2]), Some(nodes[4])]);
    assert_eq!(book.backups(0, NodeId::SERVER), [None; BACKUPS]);
}

#[test]
fn a_link_that_nobody_knows_counts_as_it_was_set_and_hops_cost() {
    let unknown = |_: usize, _: usize| None;
    let settings = Settings { forwarding: Duration::from_millis(7), ..settings(1, STILL) };
    let mut book = TreeBook::new(settings, 1);
    let nodes = join(&mut book, &[1, 0], &unknown);
    assert_eq!(book.path_latency(0, nodes[1]), Some(Duration::from_millis(2 * 107)));
}

#[test]
fn a_sweep_sees_latencies_that_have_changed() {
    let mut book = TreeBook::new(settings(1, STILL), 2);
    join(&mut book, &[0, 0], &line(&[0, 10, 20]));
    sweep(&mut book, &line(&[0, 15, 40]));
    assert_eq!(book.performance(0), Duration::from_millis(15 + 40));
}

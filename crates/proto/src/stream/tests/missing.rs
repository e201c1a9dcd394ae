//! Players are told what they miss, also where nothing comes at all.

use super::*;
use crate::stream::message::Datagram;

#[test]
fn who_gets_manifests_alone_says_that_all_packets_are_missing() {
    let mut stage = Stage::new(Mode::Hybrid, MBIT(10));
    stage.network.fate = Box::new(|_, _, _, datagram| !matches!(datagram, Datagram::Packet { .. }));
    stage.run(at(4000));
    stage.network.join(1, client(MBIT(4)), MBIT(4));
    stage.run(at(10_000));
    let (played, skipped) = stage.played(1, at(0));
    // Of six seconds all but what has left since players wait for it.
    let waiting = (buffer().patience + Mode::Hybrid.leaves_within()).as_secs_f64();
    let due = 190.0 * (6.0 - waiting);
    assert!(played == 0 && (due - 60.0..due + 60.0).contains(&(skipped as f64)), "{played} played, {skipped} skipped");
}

#[test]
fn where_nothing_comes_any_more_players_learn_of_the_gap_and_what_comes_later_is_played() {
    let mut stage = Stage::new(Mode::Hybrid, MBIT(10));
    stage.network.fate = Box::new(|now, _, _, datagram| {
        !(at(8000)..at(14_000)).contains(&now) || !matches!(datagram, Datagram::Packet { .. })
    });
    stage.run(at(4000));
    stage.network.join(1, client(MBIT(4)), MBIT(4));
    stage.run(at(13_900));
    let (_, skipped) = stage.played(1, at(8000));
    assert!(skipped > 2 * 190, "{skipped} skipped before any comes again");
    stage.run(at(25_000));
    let (played, skipped) = stage.played(1, at(18_000));
    assert!(played > 6 * 190 && skipped == 0, "{played} played, {skipped} skipped");
}

/// Three viewers, the last of whom gets no datagram at all from the server's first packet on; the source pauses from
/// `paused` on.
fn one_that_gets_nothing(paused: Time, end: Time) -> Stage {
    let mut stage = Stage::new(Mode::Hybrid, MBIT(10));
    stage.network.fate = Box::new(|_, _, to, _| to != 3);
    stage.run(at(4000));
    for node in 1..=3 {
        stage.network.join(node, client(MBIT(4)), MBIT(4));
    }
    stage.run(paused);
    stage.network.run(end);
    stage
}

/// When viewers of `node` learned that there is no room for them.
fn overloaded_at(stage: &Stage, node: u32) -> Vec<Time> {
    let overloaded = stage
        .network
        .events
        .iter()
        .filter(|(_, of, event)| *of == node && matches!(event, StreamEvent::Client(ClientEvent::Overloaded)));
    overloaded.map(|(at, ..)| *at).collect()
}

#[test]
fn who_is_let_in_and_gets_nothing_at_all_learns_that_there_is_no_room_for_it() {
    let stage = one_that_gets_nothing(at(30_000), at(30_000));
    let times = overloaded_at(&stage, 3);
    assert!((at(14_000)..at(15_500)).contains(&times[0]), "{times:?}");
    // It asks again two seconds later, and gets nothing again.
    assert!((at(26_000)..at(28_500)).contains(&times[1]) && times.len() == 2, "{times:?}");
    for node in [1, 2] {
        let (played, skipped) = stage.played(node, at(8000));
        assert!(
            overloaded_at(&stage, node).is_empty() && played > 20 * 190 && skipped == 0,
            "{node}: {played}, {skipped}"
        );
    }
}

#[test]
fn nobody_is_sent_away_because_the_source_has_paused() {
    // What came before its pause was not enough to say that there is no room.
    let stage = one_that_gets_nothing(at(13_000), at(40_000));
    assert_eq!([1, 2, 3].map(|node| overloaded_at(&stage, node).len()), [0, 0, 0]);
}

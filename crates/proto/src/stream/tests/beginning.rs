//! What a newcomer begins with comes from the server itself, as far as it has room.

use super::*;
use crate::stream::message::Datagram;
use crate::stream::source::GENERATION;

/// Runs until `end`; a keyframe comes each second.
fn run(stage: &mut Stage, end: Time) {
    let step = anabranch_control::units::Bytes::new(1316) / BITRATE;
    while stage.next_packet < end {
        let (at, second) = (stage.next_packet, Duration::SECOND.as_nanos());
        let is_keyframe = at.as_nanos() / second != (at + step).as_nanos() / second;
        stage.network.run(at);
        stage.network.act(SERVER, |peer, now, _| {
            let StreamPeer::Server(server) = peer else { panic!("a server") };
            server.on_input(now, TestPacket { is_genuine: true }, is_keyframe);
        });
        stage.next_packet += step;
    }
    stage.network.run(end);
}

/// Four viewers who have watched for a while, and a server that can send `upload`.
fn watched(upload: Rate) -> Stage {
    watched_by(MBIT(4), upload)
}

/// The same, with what each viewer can send.
fn watched_by(viewers: Rate, upload: Rate) -> Stage {
    let mut stage = Stage::new(Mode::Hybrid, upload);
    run(&mut stage, at(4000));
    for node in 1..=4 {
        stage.network.join(node, client(viewers), viewers);
        run(&mut stage, at(4000 + 500 * u64::from(node)));
    }
    run(&mut stage, at(15_000));
    stage
}

#[test]
fn a_newcomer_plays_a_second_that_the_server_sends_it_unasked() {
    let mut stage = watched(MBIT(30));
    // Nothing but the server's packets comes to it.
    stage.network.fate =
        Box::new(|_, from, to, datagram| to != 5 || from == SERVER || !matches!(datagram, Datagram::Packet { .. }));
    stage.network.join(5, client(MBIT(4)), MBIT(4));
    run(&mut stage, at(15_500));
    let (played, skipped) = stage.played(5, at(15_000));
    assert!(played >= 190 && skipped == 0, "{played} played, {skipped} skipped");
}

#[test]
fn what_the_server_has_promised_and_is_lost_is_asked_of_others() {
    // Somebody who comes later begins with what is older.
    for offset in [0, 250, 300] {
        let mut stage = watched(MBIT(30));
        let came = at(15_000 + offset);
        run(&mut stage, came);
        stage.network.fate = Box::new(move |now, from, to, datagram| {
            to != 5
                || from != SERVER
                || now >= came + Duration::from_millis(800)
                || !matches!(datagram, Datagram::Packet { .. })
        });
        stage.network.join(5, client(MBIT(4)), MBIT(4));
        run(&mut stage, came + Duration::from_millis(10_000));
        let (played, skipped) = stage.played(5, came);
        assert!(played >= 9 * 190 && skipped == 0, "{offset}: {played} played, {skipped} skipped");
    }
}

#[test]
fn a_newcomer_whom_the_server_has_no_room_for_plays_nevertheless() {
    // Room for two streams: the first viewers have it.
    let mut stage = watched(MBIT(5));
    stage.network.join(5, client(MBIT(4)), MBIT(4));
    run(&mut stage, at(25_000));
    let (played, skipped) = stage.played(5, at(18_000));
    assert!(played >= 6 * 190 && skipped == 0, "{played} played, {skipped} skipped");
}

#[test]
fn a_newcomer_begins_with_what_has_left_only_where_parents_have_room_to_send_that() {
    // The newest keyframe is 0.2 s old, and leaves in 0.2 s.
    let begins_ahead = |viewers: Rate| {
        let mut stage = watched_by(viewers, MBIT(5));
        run(&mut stage, at(15_200));
        stage.network.join(5, client(viewers), viewers);
        run(&mut stage, at(15_400));
        let welcomed = stage.network.events.iter().find_map(|(_, node, event)| match event {
            StreamEvent::Client(ClientEvent::Welcomed(info)) if *node == 5 => Some(*info),
            _ => None,
        });
        let info = welcomed.expect("it is let in");
        info.begin.0 as i64 - info.edge.0.0 as i64
    };
    let room = begins_ahead(MBIT(4));
    // The keyframe before: 0.8 s of 190 packets a second.
    assert!((-170..=-150).contains(&room), "{room}");
    let none = begins_ahead(MBIT(2));
    assert!((20..=40).contains(&none), "{none}");
}

#[test]
fn a_newcomer_asks_for_the_manifests_of_what_it_begins_with_though_later_ones_are_here() {
    for viewers in [MBIT(2), MBIT(4)] {
        let mut stage = watched_by(viewers, MBIT(5));
        run(&mut stage, at(15_200));
        // The keyframe that it begins with is 0.2 s old. Its first two generations are told of only who asks.
        let until = (at(15_200).as_nanos() / GENERATION.as_nanos()) as u32;
        let mut has_asked = false;
        stage.network.fate = Box::new(move |_, from, to, datagram| {
            has_asked |= from == 5 && matches!(datagram, Datagram::WantManifests(..));
            has_asked || to != 5 || !matches!(datagram, Datagram::Manifest(manifest) if manifest.generation < until)
        });
        stage.network.join(5, client(viewers), viewers);
        run(&mut stage, at(25_000));
        let (played, skipped) = stage.played(5, at(15_200));
        assert!(played >= 6 * 190 && skipped == 0, "{viewers:?}: {played} played, {skipped} skipped");
    }
}

//! Who is private deals with the server alone.

use super::*;
use crate::stream::server::ServerEvent;
use crate::stream::tracker::Refusal;

fn private_client(upload: Rate) -> StreamPeer<u32, super::super::testing::Tested> {
    let StreamPeer::Client(mut viewer) = client(upload) else { panic!("a client") };
    viewer.keep_private();
    StreamPeer::Client(viewer)
}

/// Who has met whom of the viewers.
fn met(stage: &Stage) -> Vec<(u32, u32)> {
    stage.network.met.iter().copied().filter(|&(from, to)| from != SERVER && to != SERVER).collect()
}

#[test]
fn viewers_of_a_private_stream_meet_the_server_alone_and_get_it_whole_through_losses() {
    for mode in [Mode::Hybrid, Mode::Trees, Mode::Mesh] {
        let mut stage = Stage::new(mode, MBIT(12));
        stage.network.act(SERVER, |peer, _, _| {
            let StreamPeer::Server(server) = peer else { panic!("a server") };
            server.set_private();
        });
        let mut rng = anabranch_control::rng::Rng::stream(1, "loss");
        stage.network.fate = Box::new(move |_, _, _, datagram| {
            !matches!(datagram, super::super::message::Datagram::Packet { .. }) || !rng.chance(0.02)
        });
        stage.run(at(1000));
        for node in 1..=4 {
            // They have not asked for it, and could pass on much.
            stage.network.join(node, client(MBIT(20)), MBIT(20));
            stage.run(at(1000 + 200 * u64::from(node)));
        }
        stage.run(at(12_000));
        assert_eq!(met(&stage), [], "{mode:?}");
        for node in 1..=4 {
            let (played, skipped) = stage.played(node, at(6000));
            assert!(played > 5 * 190 && skipped == 0, "{mode:?}, {node}: {played} played, {skipped} skipped");
            assert!(stage.client(node).is_private() && stage.client(node).children() == 0);
        }
    }
}

#[test]
fn who_asks_for_it_is_named_to_nobody_in_a_public_stream() {
    for mode in [Mode::Hybrid, Mode::Mesh] {
        let mut stage = Stage::new(mode, MBIT(8));
        stage.run(at(1000));
        for node in 1..=8 {
            let peer = if node == 5 { private_client(MBIT(4)) } else { client(MBIT(4)) };
            stage.network.join(node, peer, MBIT(4));
            stage.run(at(1000 + 200 * u64::from(node)));
        }
        // The server's child dies, and trees change.
        stage.run(at(8000));
        stage.network.kill(1, Duration::from_millis(60_000));
        stage.run(at(20_000));
        let met = met(&stage);
        assert!(met.len() > 10 && met.iter().all(|&(from, to)| from != 5 && to != 5), "{mode:?}: {met:?}");
        let (played, skipped) = stage.played(5, at(6000));
        assert!(played > 13 * 190 && skipped == 0, "{mode:?}: {played} played, {skipped} skipped");
    }
}

#[test]
fn no_more_are_fed_than_the_server_bears_and_in_a_public_stream_half_of_that() {
    // Room for two copies of the stream, and a little.
    let mut stage = Stage::new(Mode::Hybrid, Rate::from_bits_per_sec(5_200_000));
    stage.run(at(1000));
    for node in 1..=3 {
        stage.network.join(node, private_client(MBIT(4)), MBIT(4));
        stage.run(at(1000 + 200 * u64::from(node)));
    }
    let refused = |stage: &Stage| {
        let refused = StreamEvent::Server(ServerEvent::Refused(Refusal::NoRoomForPrivate));
        stage.network.events.iter().filter(|(_, _, event)| *event == refused).count()
    };
    assert_eq!(refused(&stage), 2, "one has half of it");
    // Those who pass it on get in beside it.
    for node in 4..=6 {
        stage.network.join(node, client(MBIT(8)), MBIT(8));
        stage.run(at(2000 + 200 * u64::from(node)));
    }
    stage.run(at(12_000));
    for node in [1, 4, 5, 6] {
        let (played, skipped) = stage.played(node, at(6000));
        assert!(played > 5 * 190 && skipped < 20, "{node}: {played} played, {skipped} skipped");
    }
}

#[test]
fn places_of_a_private_viewer_that_is_gone_are_for_others() {
    let mut stage = Stage::new(Mode::Hybrid, Rate::from_bits_per_sec(5_200_000));
    stage.run(at(1000));
    stage.network.join(1, private_client(MBIT(4)), MBIT(4));
    stage.run(at(2000));
    stage.network.join(2, private_client(MBIT(4)), MBIT(4));
    stage.run(at(3000));
    stage.network.kill(1, Duration::from_millis(500));
    stage.run(at(9000));
    assert!(stage.played(2, at(7000)).0 > 190, "it asks again until there is room");
}

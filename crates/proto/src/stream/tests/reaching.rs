//! A server with several addresses.

use super::super::content::Broadcast;
use super::super::server::ServerEvent;
use super::*;

/// A client that is told of a server at these.
fn of(addresses: &[u32]) -> StreamPeer<u32, super::super::testing::Tested> {
    let StreamPeer::Client(mut viewer) = client(MBIT(4)) else { panic!("a client") };
    viewer.set_addresses(addresses.to_vec());
    StreamPeer::Client(viewer)
}

/// When the client at node 1 is let in, of a server at `addresses`; nobody answers from 98 on.
fn welcomed(addresses: &[u32]) -> Option<u64> {
    let mut stage = Stage::new(Mode::Hybrid, MBIT(10));
    stage.network.dark.extend(98..=99);
    stage.run(at(1000));
    stage.network.join(1, of(addresses), MBIT(4));
    stage.run(at(8000));
    let is_welcome = |event: &StreamEvent<TestPacket>| matches!(event, StreamEvent::Client(ClientEvent::Welcomed(_)));
    let welcomes: Vec<_> = stage.network.events.iter().filter(|(_, _, event)| is_welcome(event)).collect();
    assert!(welcomes.len() <= 1, "{welcomes:?}");
    // It has one session with the server, whichever way it came.
    let StreamPeer::Server(server) = stage.network.peer(SERVER) else { panic!("a server") };
    assert_eq!(server.tracker().watching(), welcomes.len());
    welcomes.first().map(|(at, ..)| at.since(Time::ZERO).as_nanos() / 1_000_000 - 1000)
}

#[test]
fn addresses_are_tried_in_their_order_and_no_dead_one_holds_up_the_next_for_long() {
    // A session, and the question: two round trips of 40 ms.
    let (first, second, third) = (welcomed(&[SERVER]), welcomed(&[99, SERVER]), welcomed(&[98, 99, SERVER]));
    assert_eq!((first, second, third), (Some(80), Some(250 + 80), Some(500 + 80)));
    assert_eq!(welcomed(&[SERVER, 99]), first);
    // Where somebody refuses, the next is tried at once.
    assert_eq!(welcomed(&[50, SERVER]), Some(40 + 80));
    assert_eq!(welcomed(&[99]), None);
}

#[test]
fn who_loses_its_server_tries_all_addresses_again() {
    let mut stage = Stage::new(Mode::Hybrid, MBIT(10));
    stage.network.dark.insert(99);
    stage.run(at(1000));
    stage.network.join(1, of(&[99, SERVER]), MBIT(4));
    stage.run(at(3000));
    assert!(stage.client(1).id().is_some());
    let is_lost = StreamEvent::Client(ClientEvent::Unreachable);
    stage.network.kill(SERVER, Duration::from_millis(500));
    stage.network.run(at(8000));
    assert!(stage.network.events.iter().any(|(_, node, event)| *node == 1 && *event == is_lost));
    // One address refuses again and again, the other says nothing.
    stage.network.join(SERVER, server(Mode::Hybrid, MBIT(10)), MBIT(10));
    stage.next_packet = at(8000);
    stage.run(at(16_000));
    let welcomes = stage.network.events.iter();
    let is_welcome = |event: &StreamEvent<TestPacket>| matches!(event, StreamEvent::Client(ClientEvent::Welcomed(_)));
    assert_eq!(welcomes.filter(|(_, _, event)| is_welcome(event)).count(), 2);
}

/// Numbers of packets, generations and viewers begin again; what there was before them says nothing.
#[test]
fn a_server_that_begins_again_is_watched_again_at_once_and_nobody_is_blamed_for_what_was_before() {
    for mode in [Mode::Trees, Mode::Mesh, Mode::Hybrid] {
        let mut stage = Stage::new(mode, MBIT(10));
        stage.run(at(1000));
        for node in 1..=6 {
            stage.network.join(node, of(&[SERVER]), MBIT(4));
        }
        stage.run(at(20_000));
        stage.network.kill(SERVER, Duration::from_millis(500));
        stage.network.run(at(21_000));
        let config = ServerConfig { broadcast: Broadcast(2), ..server_config(mode, MBIT(10)) };
        let rng = anabranch_control::rng::Rng::stream(2, "server");
        let again = StreamPeer::Server(Server::new(config, 0, at(21_000), rng));
        stage.network.join(SERVER, again, MBIT(10));
        stage.next_packet = at(21_000);
        stage.run(at(27_000));
        let before: Vec<u64> = (1..=6).map(|node| stage.client(node).played()).collect();
        stage.run(at(37_000));
        for (node, before) in (1..=6).zip(before) {
            // 190 packets a second.
            let played = stage.client(node).played() - before;
            assert!(played > 9 * 190, "{mode:?}: viewer {node} played {played} in ten seconds");
        }
        let is_blame = |event: &StreamEvent<TestPacket>| {
            matches!(event, StreamEvent::Client(ClientEvent::Forged(_)) | StreamEvent::Server(ServerEvent::Excluded(_)))
        };
        assert!(!stage.network.events.iter().any(|(_, _, event)| is_blame(event)), "{mode:?}");
    }
}

//! Viewers whose pages are open are told how all fare.

use super::*;
use crate::stream::content::ClientId;
use crate::stream::overlay::{Happened, MOST_LISTED, OverlayView, ServerLoad, ViewerState};

fn look(stage: &mut Stage, node: u32) {
    stage.network.act(node, |peer, now, _| {
        let StreamPeer::Client(client) = peer else { panic!("a client") };
        client.look(now);
    });
}

fn seen(stage: &Stage, node: u32) -> Option<(Time, OverlayView)> {
    stage.client(node).overlay().map(|(at, view)| (at, view.clone()))
}

#[test]
fn who_looks_sees_what_the_server_knows_and_who_does_not_is_sent_nothing() {
    let mut stage = eight(Mode::Hybrid);
    let load = ServerLoad { sent: MBIT(3), sent_bytes: 5_000_000, source_bytes: 2_500_000 };
    stage.network.act(SERVER, |peer, _, _| {
        let StreamPeer::Server(server) = peer else { panic!("a server") };
        server.set_load(load);
    });
    look(&mut stage, 3);
    stage.run(at(11_000));
    assert_eq!(seen(&stage, 4), None);
    let (_, view) = seen(&stage, 3).unwrap();
    assert_eq!((view.watching, view.viewers.len(), view.load), (8, 8, load));
    assert_eq!(view.trees.len(), usize::from(SLICES));
    let as_it_is = (0..SLICES).zip(&view.trees).filter(|(slice, tree)| {
        assert_eq!(tree.len(), 8);
        let parent = tree.iter().find(|(child, _)| Some(*child) == stage.client(3).id()).unwrap().1;
        stage.client(3).feed(*slice) == parent.map_or(Feed::Server, Feed::Client)
    });
    // It is told of its own place what it knows itself, but for changes of this second.
    assert!(as_it_is.count() >= usize::from(SLICES) * 3 / 4, "{:?}", view.trees);
    assert!(view.viewers.iter().all(|viewer| viewer.state == ViewerState::Live && viewer.played > 0), "{view:?}");
    // Eight viewers got nearly all of nine seconds.
    let copies = view.delivered_bytes as f64 / load.source_bytes as f64;
    assert!((5.0..8.0).contains(&copies), "{copies}");
    assert!(view.happenings.iter().filter(|happening| happening.what == Happened::Joined).count() == 8);
    let from = seen(&stage, 3).unwrap().0;
    stage.run(at(25_000));
    let until = seen(&stage, 3).unwrap().0;
    assert!(until.since(from) < Duration::from_millis(6000), "nobody has looked since");
}

#[test]
fn who_has_died_is_shown_for_a_while_and_what_it_got_stays_counted() {
    let mut stage = eight(Mode::Hybrid);
    let dead = stage.client(2).id().unwrap();
    let StreamPeer::Server(server) = stage.network.peer(SERVER) else { panic!("a server") };
    let before = server.overlay(at(10_000)).delivered_bytes;
    stage.network.kill(2, Duration::from_millis(60_000));
    stage.run(at(24_000));
    let view = |stage: &Stage, now| {
        let StreamPeer::Server(server) = stage.network.peer(SERVER) else { panic!("a server") };
        server.overlay(now)
    };
    let after = view(&stage, at(24_000));
    assert_eq!(after.watching, 7);
    let state =
        |view: &OverlayView| view.viewers.iter().find(|viewer| viewer.client == dead).map(|viewer| viewer.state);
    assert_eq!(state(&after), Some(ViewerState::Silent));
    assert!(after.delivered_bytes >= before, "{} and {before}", after.delivered_bytes);
    stage.run(at(60_000));
    assert_eq!(state(&view(&stage, at(60_000))), None);
}

#[test]
fn an_audience_that_is_too_large_is_listed_in_part_and_that_part_is_around_who_asks() {
    // Two chains are as long as they get: each viewer bears one copy and a little.
    let mut stage = Stage::new(Mode::Trees, MBIT(5));
    stage.run(at(1000));
    let count = MOST_LISTED as u32 + 20;
    for node in 1..=count {
        stage.network.join(node, client(MBIT(4)), MBIT(4));
    }
    stage.run(at(2500));
    let StreamPeer::Server(server) = stage.network.peer(SERVER) else { panic!("a server") };
    let all = server.overlay(at(2500));
    assert!(all.watching > MOST_LISTED as u32, "{}", all.watching);
    look(&mut stage, 70);
    stage.run(at(3500));
    let (_, view) = seen(&stage, 70).unwrap();
    let me = stage.client(70).id().unwrap();
    assert!(view.viewers.len() <= MOST_LISTED && view.viewers.iter().any(|viewer| viewer.client == me));
    for tree in &view.trees {
        let mut at: Option<ClientId> = Some(me);
        while let Some(client) = at {
            at =
                tree.iter().find(|(child, _)| *child == client).unwrap_or_else(|| panic!("{client:?} has no parent")).1;
        }
    }
}

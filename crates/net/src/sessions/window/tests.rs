use anabranch_control::flow::registry::{self, Setup};
use noq_proto::congestion::{Controller, ControllerFactory};

use super::*;

const PACKET: Bytes = Bytes::new(1000);

/// A window of this many packets.
fn shared(packets: u64) -> SharedWindow {
    let entry = registry::find("cubic").unwrap();
    let controller = entry.make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
    let window = SharedWindow::new(&SessionConfig::default(), controller, Rng::stream(1, "test"), Instant::now());
    window.set_bounds(Bounds { fixed: Some(PACKET * packets), ..Bounds::default() });
    window
}

/// Of a connection that stands.
fn share(window: &SharedWindow) -> (Box<dyn Controller>, u32) {
    let (share, member) = handshaking(window);
    window.set_established(member);
    (share, member)
}

fn handshaking(window: &SharedWindow) -> (Box<dyn Controller>, u32) {
    let share = window.factory().build(Instant::now(), 1200);
    (share, window.take_newest().unwrap())
}

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn send(window: &SharedWindow, member: u32, ms: u64, packet: u64) {
    window.lock().on_sent(at(ms), member, packet, PACKET);
}

fn ack(window: &SharedWindow, member: u32, (ms, sent): (u64, u64), packet: u64, in_flight: u64) {
    let mut state = window.lock();
    state.on_ack(member, packet, at(sent), PACKET);
    state.on_end_acks(at(ms), member, PACKET * in_flight);
    state.report(at(ms), member, None);
}

fn silences(window: &SharedWindow, ms: u64) -> Vec<(u32, bool)> {
    let mut silences = Vec::new();
    window.poll(at(ms), &mut silences);
    silences.iter().map(|silence| (silence.member, silence.has_begun)).collect()
}

#[test]
fn all_connections_together_have_no_more_in_flight_than_the_window() {
    let window = shared(4);
    let [(one, first), (other, second)] = [share(&window), share(&window)];
    send(&window, first, 0, 0);
    send(&window, first, 0, 1);
    assert_eq!((one.window(), other.window()), (4000, 2000));
    send(&window, second, 1, 0);
    send(&window, second, 1, 1);
    assert_eq!((one.window(), other.window(), window.in_flight()), (2000, 2000, PACKET * 4));
    assert!(!window.has_room(at(1), PACKET, Bytes::ZERO));
    ack(&window, first, (20, 0), 0, 1);
    assert_eq!((one.window(), other.window()), (2000, 3000), "whoever sends next takes what is left");
    assert!(window.has_room(at(20), PACKET, Bytes::ZERO) && !window.has_room(at(20), PACKET * 2, Bytes::ZERO));
    let loss = PACKET;
    window.lock().on_packet_lost(second, 0, loss, false);
    assert_eq!((one.window(), window.in_flight()), (3000, PACKET * 2));
}

#[test]
fn a_handshake_may_have_two_packets_in_flight_whatever_others_have() {
    let window = shared(2);
    let [(_one, first), (other, second)] = [share(&window), handshaking(&window)];
    (0..2).for_each(|packet| send(&window, first, 0, packet));
    assert_eq!(other.window(), 2400);
    send(&window, second, 0, 0);
    assert_eq!((other.window(), window.in_flight()), (2400, PACKET * 3));
    window.set_established(second);
    assert_eq!(other.window(), 1000, "what it has in flight, and nothing is left");
    assert!(!window.has_room(at(0), PACKET, Bytes::ZERO));
}

#[test]
fn what_is_in_flight_over_a_connection_that_ends_is_neither_missed_nor_lost() {
    let window = shared(4);
    let [(one, first), (other, second)] = [share(&window), share(&window)];
    (0..2).for_each(|packet| send(&window, first, 0, packet));
    send(&window, second, 0, 0);
    window.end(first);
    assert_eq!((window.in_flight(), other.window(), one.window()), (PACKET, 4000, 3000));
    ack(&window, second, (20, 0), 0, 0);
    assert_eq!((silences(&window, 60_000), window.totals().2), (vec![], Bytes::ZERO));
}

#[test]
fn a_connection_that_is_over_leaves_its_part_to_others() {
    let window = shared(2);
    let [(one, first), (other, second)] = [share(&window), share(&window)];
    send(&window, first, 0, 0);
    send(&window, first, 0, 1);
    assert!(!window.has_room(at(0), PACKET, Bytes::ZERO));
    let copy = one.clone_box();
    drop(one);
    assert!(!window.has_room(at(0), PACKET, Bytes::ZERO), "somebody still speaks for it");
    drop(copy);
    assert_eq!((window.in_flight(), other.window()), (Bytes::ZERO, u64::MAX / 2));
    send(&window, second, 1, 0);
    assert_eq!(share(&window).1, first, "its number is free");
}

#[test]
fn a_receiver_that_answers_nothing_is_silent_and_holds_up_the_others_no_longer_than_three_timeouts() {
    let window = shared(4);
    let [(_one, first), (_other, second)] = [share(&window), share(&window)];
    for member in [first, second] {
        send(&window, member, 0, 0);
        ack(&window, member, (20, 0), 0, 0);
    }
    // 20 ms, four times half of it, and what ACKs may wait: 85 ms.
    send(&window, first, 100, 1);
    send(&window, first, 100, 2);
    send(&window, second, 100, 1);
    ack(&window, second, (120, 100), 1, 0);
    assert_eq!((silences(&window, 184), window.timer()), (vec![], at(185)));
    // What has come already may be unread.
    assert_eq!((silences(&window, 185), window.timer()), (vec![], at(210)));
    assert_eq!(silences(&window, 210), [(first, true)]);
    assert!(window.is_silent(first) && !window.is_silent(second));
    assert_eq!((window.in_flight(), window.timer()), (PACKET * 2, at(355)));
    send(&window, second, 300, 2);
    ack(&window, second, (320, 300), 2, 0);
    assert_eq!((silences(&window, 355), window.in_flight()), (vec![], Bytes::ZERO), "it counts no more");
    ack(&window, first, (500, 100), 2, 1);
    assert_eq!((silences(&window, 500), window.in_flight()), (vec![(first, false)], PACKET));
}

#[test]
fn a_lost_probe_for_the_mtu_is_no_silence() {
    let window = shared(4);
    let (mut one, first) = share(&window);
    one.on_mtu_update(1372);
    send(&window, first, 0, 0);
    ack(&window, first, (20, 0), 0, 0);
    window.lock().on_sent(at(30), first, 1, Bytes::new(1452));
    assert_eq!((silences(&window, 10_000), window.timer()), (vec![], Time::MAX));
    send(&window, first, 10_000, 2);
    ack(&window, first, (10_020, 10_000), 2, 0);
    assert_eq!((silences(&window, 20_000), window.lock().member(first).packets.len()), (vec![], 0));
}

#[test]
fn the_controller_learns_of_losses_and_grows_by_what_arrives() {
    let window = shared(1);
    window.set_bounds(Bounds::default());
    let (_one, first) = share(&window);
    let before = window.limits().window;
    for packet in 0..5 {
        send(&window, first, packet, packet);
        assert!(window.has_room(at(packet), PACKET, Bytes::ZERO));
    }
    window.lock().shared.set_held_back();
    ack(&window, first, (20, 0), 0, 4);
    let grown = window.limits().window;
    assert!(grown > before, "{grown:?}");
    let mut state = window.lock();
    state.on_packet_lost(first, 1, PACKET, false);
    state.report(at(30), first, None);
    drop(state);
    assert!(window.limits().window < grown);
    assert_eq!(window.totals(), (PACKET * 5, PACKET, PACKET));
}

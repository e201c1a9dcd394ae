//! Server and clients together, over a network that loses what a test says.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::buffer::Release;
use super::client::{Client, ClientConfig, ClientEvent};
use super::feeds::Feed;
use super::message::Mode;
use super::packet::PacketId;
use super::peer::{StreamEvent, StreamPeer};
use super::server::{Server, ServerConfig};
use super::testing::{TestNetwork, TestPacket, buffer, key_of, server_config};

mod beginning;
mod looking;
mod maps;
mod missing;
mod nats;
mod private;
mod reaching;

const SERVER: u32 = 0;
const SLICES: u8 = 10;
/// 2 Mbit/s: 190 packets a second.
const BITRATE: Rate = Rate::from_bits_per_sec(2_000_000);
const MBIT: fn(u64) -> Rate = |megabits| Rate::from_bits_per_sec(megabits * 1_000_000);

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn server(mode: Mode, upload: Rate) -> StreamPeer<u32, super::testing::Tested> {
    let config = ServerConfig { begin_behind: Duration::from_millis(3000), ..server_config(mode, upload) };
    StreamPeer::Server(Server::new(config, 0, Time::ZERO, anabranch_control::rng::Rng::stream(1, "server")))
}

fn client(upload: Rate) -> StreamPeer<u32, super::testing::Tested> {
    StreamPeer::Client(Client::new(ClientConfig { server: SERVER, source: key_of(SERVER), upload, buffer: buffer() }))
}

/// Steps a network and its source.
struct Stage {
    network: TestNetwork,
    next_packet: Time,
}

impl Stage {
    fn new(mode: Mode, server_upload: Rate) -> Stage {
        let mut network = TestNetwork::new(Duration::from_millis(20));
        network.join(SERVER, server(mode, server_upload), server_upload);
        Stage { network, next_packet: Time::ZERO }
    }

    fn run(&mut self, end: Time) {
        let step = anabranch_control::units::Bytes::new(1316) / BITRATE;
        while self.next_packet < end {
            self.network.run(self.next_packet);
            self.network.act(SERVER, |peer, now, _| {
                let StreamPeer::Server(server) = peer else { panic!("a server") };
                server.on_input(now, TestPacket { is_genuine: true }, false);
            });
            self.next_packet += step;
        }
        self.network.run(end);
    }

    fn client(&self, node: u32) -> &Client<u32, super::testing::Tested> {
        let StreamPeer::Client(client) = self.network.peer(node) else { panic!("a client") };
        client
    }

    /// Packets that a client's players got and missed after `from`.
    fn played(&self, node: u32, from: Time) -> (u64, u64) {
        let mut counts = (0, 0);
        for (at, of, event) in &self.network.events {
            if let StreamEvent::Client(ClientEvent::Release(release)) = event
                && *of == node
                && *at >= from
            {
                match release {
                    Release::Packet(..) => counts.0 += 1,
                    Release::Skipped(_, count) => counts.1 += count,
                }
            }
        }
        counts
    }
}

#[test]
fn a_stream_comes_whole_to_clients_that_the_server_could_not_serve_alone() {
    let stage = eight(Mode::Trees);
    for node in 1..=8 {
        let (played, skipped) = stage.played(node, at(5000));
        // 190 packets a second; what was sent last is on its way.
        assert!(played > 4 * 190 && skipped == 0, "{node}: {played} played, {skipped} skipped");
    }
    let from_clients = (1..=8).flat_map(|node| (0..SLICES).map(move |slice| (node, slice)));
    let from_clients = from_clients.filter(|&(node, slice)| matches!(stage.client(node).feed(slice), Feed::Client(_)));
    // The server has room for two streams.
    assert!(from_clients.count() >= 60);
}

#[test]
fn packets_go_to_players_in_order_from_the_edge_on() {
    let mut stage = Stage::new(Mode::Trees, MBIT(10));
    stage.run(at(1000));
    stage.network.join(1, client(MBIT(4)), MBIT(4));
    stage.run(at(3000));
    let mut next = None;
    for (_, node, event) in &stage.network.events {
        let StreamEvent::Client(ClientEvent::Release(Release::Packet(PacketId(id), _))) = event else { continue };
        assert_eq!(*node, 1);
        assert!(next.is_none_or(|next| next == *id), "{id} is out of order");
        next = Some(id + 1);
    }
    assert!(next.is_some_and(|next| next > 500), "{next:?}");
}

#[test]
fn who_cannot_be_served_learns_so_and_gets_in_when_there_is_room() {
    // Room for one stream, and a client that can pass on none.
    let mut stage = Stage::new(Mode::Trees, Rate::from_bits_per_sec(2_600_000));
    stage.run(at(1000));
    stage.network.join(1, client(Rate::from_bits_per_sec(100_000)), MBIT(1));
    stage.run(at(2000));
    stage.network.join(2, client(Rate::from_bits_per_sec(100_000)), MBIT(1));
    stage.run(at(3000));
    let overloaded = StreamEvent::Client(ClientEvent::Overloaded);
    assert!(stage.network.events.iter().any(|(_, node, event)| *node == 2 && *event == overloaded));
    stage.network.kill(1, Duration::from_millis(500));
    stage.run(at(8000));
    assert!(stage.played(2, at(7000)).0 > 150);
}

/// Eight clients in `mode`, the server with room for two streams, after ten seconds.
fn eight(mode: Mode) -> Stage {
    let mut stage = Stage::new(mode, MBIT(5));
    stage.run(at(1000));
    for node in 1..=8 {
        stage.network.join(node, client(MBIT(4)), MBIT(4));
        stage.run(at(1000 + 200 * u64::from(node)));
    }
    stage.run(at(10_000));
    stage
}

#[test]
fn what_a_peer_forges_is_not_passed_on_and_it_is_named() {
    let mut stage = eight(Mode::Trees);
    // One to whom the trees give children.
    let forger = (1..=8).max_by_key(|&node| stage.client(node).children()).unwrap();
    assert!(stage.client(forger).children() > 0);
    stage.network.fate = Box::new(move |_, from, _, datagram| {
        if let super::message::Datagram::Packet { packet, .. } = datagram {
            packet.is_genuine &= from != forger;
        }
        true
    });
    stage.run(at(12_000));
    let named: Vec<_> = stage
        .network
        .events
        .iter()
        .filter_map(|(_, _, event)| match event {
            StreamEvent::Client(ClientEvent::Forged(client)) => Some(*client),
            _ => None,
        })
        .collect();
    assert!(!named.is_empty() && named.iter().all(|name| *name == stage.client(forger).id()), "{named:?}");
}

#[test]
fn a_lost_packet_is_a_hole_in_trees_alone() {
    let mut stage = eight(Mode::Trees);
    let mut rng = anabranch_control::rng::Rng::stream(1, "loss");
    stage.network.fate = Box::new(move |_, _, _, datagram| {
        !matches!(datagram, super::message::Datagram::Packet { .. }) || !rng.chance(0.01)
    });
    stage.run(at(20_000));
    let (played, skipped) =
        (1..=8).map(|node| stage.played(node, at(14_000))).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let share = skipped as f64 / (played + skipped) as f64;
    // 1 % a hop, over one to three.
    assert!((0.008..0.04).contains(&share), "{share}");
}

#[test]
fn who_falls_silent_is_replaced_within_two_seconds() {
    let mut stage = eight(Mode::Hybrid);
    let busiest = (1..=8).max_by_key(|&node| stage.client(node).children()).unwrap();
    let dead = stage.client(busiest).id().unwrap();
    stage.network.kill(busiest, Duration::from_millis(60_000));
    // Silence is seen after 0.4 s; who is then given to another that is gone waits a second more.
    stage.run(at(12_000));
    for node in (1..=8).filter(|&node| node != busiest) {
        let fed_by_dead = (0..SLICES).filter(|&slice| stage.client(node).feed(slice) == Feed::Client(dead)).count();
        assert_eq!(fed_by_dead, 0, "{node}");
    }
    stage.run(at(22_000));
    for node in (1..=8).filter(|&node| node != busiest) {
        let (played, skipped) = stage.played(node, at(10_000));
        assert!(skipped < played / 100, "{node}: {played} played, {skipped} skipped");
    }
    let left = stage
        .network
        .events
        .iter()
        .any(|(_, _, event)| *event == StreamEvent::Server(super::server::ServerEvent::Left(dead, true)));
    assert!(left, "the server has noticed");
}

#[test]
fn a_mesh_alone_brings_the_stream_whole() {
    let stage = eight(Mode::Mesh);
    for node in 1..=8 {
        let (played, skipped) = stage.played(node, at(5000));
        assert!(played > 4 * 190 && skipped == 0, "{node}: {played} played, {skipped} skipped");
        assert!((0..SLICES).all(|slice| stage.client(node).feed(slice) == Feed::None), "nobody pushes");
    }
}

#[test]
fn a_lost_packet_is_fetched_from_neighbours() {
    let mut stage = eight(Mode::Hybrid);
    let mut rng = anabranch_control::rng::Rng::stream(1, "loss");
    stage.network.fate = Box::new(move |_, _, _, datagram| {
        !matches!(datagram, super::message::Datagram::Packet { .. }) || !rng.chance(0.05)
    });
    // What leaves in the last 2.7 s may still be waited for.
    stage.run(at(33_000));
    for node in 1..=8 {
        let (played, skipped) = stage.played(node, at(14_000));
        assert!(played > 16 * 190 && skipped == 0, "{node}: {played} played, {skipped} skipped");
    }
}

#[test]
fn a_map_of_what_will_never_be_holds_nobody_up() {
    let mut stage = eight(Mode::Hybrid);
    let liar = 3;
    stage.network.fate = Box::new(move |_, from, _, datagram| {
        if let super::message::Datagram::Have(map) = datagram
            && from == liar
        {
            let words = vec![u64::MAX; 4].into();
            *map = std::sync::Arc::new(super::message::BufferMap { base: PacketId(u64::MAX - 1000), words });
        }
        true
    });
    stage.run(at(15_000));
    for node in (1..=8).filter(|&node| node != liar) {
        let (played, skipped) = stage.played(node, at(11_000));
        assert!(played > 3 * 190 && skipped == 0, "{node}: {played} played, {skipped} skipped");
    }
}

/// Calls a client as its driver would, and keeps what it sends and whom it ends.
#[derive(Default)]
struct Recorded {
    ended: Vec<crate::session::SessionId>,
}

impl crate::session::Sessions<Client<u32, super::testing::Tested>> for Recorded {
    fn open(&mut self, _: u32, _: Option<crate::session::PeerKey>) -> Option<crate::session::SessionId> {
        None
    }

    fn send(&mut self, _: crate::session::SessionId, _: super::message::Message<u32, super::testing::Tested>) {}

    fn close(&mut self, session: crate::session::SessionId) {
        self.ended.push(session);
    }

    fn least_round_trip(&self, _: crate::session::SessionId) -> Option<Duration> {
        None
    }

    fn delivered(&self) -> anabranch_control::units::Bytes {
        anabranch_control::units::Bytes::ZERO
    }

    fn event(&mut self, _: ClientEvent<TestPacket>) {}
}

#[test]
fn who_shows_no_ticket_or_an_old_one_gets_nothing() {
    use super::content::{Broadcast, ClientId, Ticket};
    use super::message::{Datagram, Message};
    use super::packet::Stamp;
    use crate::session::{Application, Remote, SessionId};

    let mut client = eight(Mode::Hybrid).client(2).clone();
    // A moment after the last packet: what its line could send meanwhile is free for an answer.
    let (session, now) = (SessionId(400), at(10_500));
    let remote = Remote { address: 77, key: key_of(77), is_initiator: true };
    let newest = client.receiving().unwrap().buffer().end().0 - 1;
    let want = || Datagram::Want([PacketId(newest)].into());
    let asked_for = |client: &mut Client<u32, super::testing::Tested>| {
        client.on_datagram(now, session, want(), &mut Recorded::default());
        std::iter::from_fn(|| client.next_datagram(now)).any(|(to, _)| to == session)
    };
    let ticket = |expires| {
        let ticket =
            Ticket { client: ClientId(77), key: key_of(77), expires: Stamp(expires), signature: (true, Broadcast(1)) };
        Message::Greet(Box::new(ticket))
    };

    // Stamps wrap after 49.7 days, and 30 days ago are as 19.7 to come.
    let days = |days: u32| 10_500_u32.wrapping_sub(days * 86_400_000);
    for expired in [9000, days(1), days(20), days(30), days(49)] {
        client.on_open(now, session, &remote, &mut Recorded::default());
        assert!(!asked_for(&mut client), "a stranger");
        let mut sessions = Recorded::default();
        client.on_message(now, session, ticket(expired), &mut sessions);
        assert_eq!(sessions.ended, [session], "the ticket has expired: {expired}");
    }

    client.on_open(now, session, &remote, &mut Recorded::default());
    let mut sessions = Recorded::default();
    client.on_message(now, session, ticket(60_000), &mut sessions);
    assert!(sessions.ended.is_empty() && asked_for(&mut client));
}

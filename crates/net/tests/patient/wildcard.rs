//! A relay that listens on all addresses of its host sends from the one that it was reached at.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration as StdDuration;

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_net::loopback::NoFiles;
use anabranch_net::runtime::Runtime;
use anabranch_net::udp::Socket;
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::overlay::forward_policy::ForwardPolicy;
use anabranch_proto::overlay::packet::{Packet, PacketId, Route};
use anabranch_proto::overlay::peer::Peer;
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::overlay::wire::{self, Datagram, Type};

/// A relay at `listen`, and its port.
fn relay(listen: &str, model: LimitModel) -> (Runtime<Peer>, u16) {
    let socket = Socket::bind(listen.parse().unwrap()).unwrap().serving().unwrap();
    let address = socket.local_addr().unwrap();
    let node = RelayNode::new(model, Rate::from_bytes_per_sec(1_000_000));
    // It may send to loopback only because it was reached there.
    let node = node.with_policy(ForwardPolicy::new(address.ip(), [], Vec::new()));
    let mut runtime = Runtime::new(NoFiles).unwrap();
    runtime.add(socket, Peer::new(node, None, None), None).unwrap();
    (runtime, address.port())
}

fn end(ip: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    socket.set_read_timeout(Some(StdDuration::from_secs(5))).unwrap();
    socket
}

fn datagram(what: Type, nodes: &[SocketAddr]) -> Vec<u8> {
    let route = Route::from_nodes(nodes, 1).unwrap();
    let packet = Packet::new(PacketId::default(), 0, what.kind(), route);
    let mut bytes = Vec::new();
    Datagram { what, packet, body: b"sealed" }.encode(&mut bytes);
    bytes
}

/// Sends `bytes` to `relay` and says from where they come on at `to`.
fn passes(
    runtime: &mut Runtime<Peer>,
    bytes: &[u8],
    from: &UdpSocket,
    relay: SocketAddr,
    to: &UdpSocket,
) -> SocketAddr {
    from.send_to(bytes, relay).unwrap();
    let before = runtime.counters().out.sent;
    let end = runtime.now() + Duration::SECOND * 5;
    while runtime.now() < end && runtime.counters().out.sent == before {
        let until = runtime.now() + Duration::from_millis(10);
        runtime.turn(until).unwrap();
    }
    to.recv_from(&mut [0; 2000])
        .unwrap_or_else(|error| panic!("{error}: {:?}", runtime.machine(0).relay().counters()))
        .1
}

#[test]
fn data_and_answers_leave_from_the_address_that_they_came_to() {
    let models = [
        LimitModel::Window { phase: Duration::ZERO },
        // Datagrams wait, and leave later.
        LimitModel::Queue { longest: Duration::from_millis(100) },
    ];
    for (listen, relay_ips) in
        [("0.0.0.0:0", &["127.0.0.1", "127.0.0.2", "127.1.2.3"][..]), ("[::]:0", &["127.0.0.2", "::1", "127.0.0.3"])]
    {
        for model in models {
            let (mut runtime, port) = relay(listen, model);
            for ip in relay_ips {
                let relay = SocketAddr::new(ip.parse().unwrap(), port);
                let local: IpAddr = if relay.is_ipv4() { [127, 0, 0, 1].into() } else { relay.ip() };
                let (source, destination) = (end(local), end(local));
                let at = |socket: &UdpSocket| socket.local_addr().unwrap();
                let data = datagram(Type::Data, &[wire::unknown_source(relay), relay, at(&destination)]);
                assert_eq!(passes(&mut runtime, &data, &source, relay, &destination), relay, "{listen}");
                let answer = datagram(Type::Report, &[at(&source), relay, at(&destination)]);
                assert_eq!(passes(&mut runtime, &answer, &destination, relay, &source), relay, "{listen}");
            }
        }
    }
}

//! A relay on a network: refuses datagrams that are not consistent, holds to its limit, and
//! says where the rest goes.
//!
//! It keeps nothing of a datagram that has passed, and nothing about who sent it. The
//! address that a datagram was seen to come from must be the neighbour that its route
//! names; as only the first relay can't know that, it writes down what it sees.

use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use crate::limiter::LimitModel;
use crate::packet::{Kind, Packet};
use crate::relay::{Relay, Verdict};
use crate::wire::{self, OwnedDatagram};

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Send it, moved on by one hop, to `to` after `wait`.
    Forward {
        /// The next node.
        to: SocketAddr,
        /// How long it waits here first.
        wait: Duration,
    },
    /// It is for us: answer it after `wait`.
    Deliver {
        /// How long it waits here first.
        wait: Duration,
    },
    /// An answer to what we sent.
    Home,
    /// Nothing: it was discarded and counted.
    Discard,
}

/// What a relay has done since its start, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Read and consistent.
    pub received: u64,
    /// Sent on to the next node.
    pub forwarded: u64,
    /// Bytes of those that were sent on.
    pub forwarded_bytes: u64,
    /// For this peer itself.
    pub delivered: u64,
    /// Data beyond the limit.
    pub refused_data: u64,
    /// ACKs and reports beyond the limit.
    pub refused_acks: u64,
    /// From another address than the neighbour on their route.
    pub misrouted: u64,
    /// To be forwarded by a peer that does not forward.
    pub unwilling: u64,
}

/// One peer's relay.
#[derive(Clone, Debug)]
pub struct RelayNode {
    relay: Relay,
    forwards: bool,
    counters: RelayCounters,
}

impl RelayNode {
    /// A relay that forwards up to `limit`, and stamps on the ACKs that it forwards the rate that it
    /// grants; what is addressed to its peer counts too.
    pub fn new(model: LimitModel, limit: Rate) -> RelayNode {
        RelayNode { relay: Relay::stamping(model, limit), forwards: true, counters: RelayCounters::default() }
    }

    /// A peer that only sends or receives: it takes all that is for it and forwards nothing.
    pub fn end() -> RelayNode {
        let unlimited = Rate::from_bits_per_sec(u64::MAX);
        let relay = Relay::new(LimitModel::Window { phase: Duration::ZERO }, unlimited);
        RelayNode { relay, forwards: false, counters: RelayCounters::default() }
    }

    /// What it has done so far.
    pub fn counters(&self) -> &RelayCounters {
        &self.counters
    }

    /// The limit in force.
    pub fn limit(&self) -> Rate {
        self.relay.limit()
    }

    /// `datagram`, of `size` bytes, has come from `from`. What is forwarded is changed in place.
    pub fn on_datagram(&mut self, now: Time, from: SocketAddr, datagram: &mut OwnedDatagram, size: Bytes) -> Handling {
        let packet = &mut datagram.packet;
        if !accept_neighbour(packet, wire::canonical(from)) {
            self.counters.misrouted += 1;
            return Handling::Discard;
        }
        let route = &packet.route;
        let at_an_end = match packet.kind {
            Kind::Data => route.position() == route.nodes().len() - 1,
            Kind::Ack => route.is_home(),
        };
        if !at_an_end && !self.forwards {
            self.counters.unwilling += 1;
            return Handling::Discard;
        }
        self.counters.received += 1;
        match self.relay.on_packet(now, packet, size) {
            Verdict::Forward { to, wait } => {
                self.counters.forwarded += 1;
                self.counters.forwarded_bytes += size.get();
                Handling::Forward { to, wait }
            }
            Verdict::Deliver { wait } => {
                self.counters.delivered += 1;
                Handling::Deliver { wait }
            }
            Verdict::Home => Handling::Home,
            Verdict::Refuse => {
                match packet.kind {
                    Kind::Data => self.counters.refused_data += 1,
                    Kind::Ack => self.counters.refused_acks += 1,
                }
                Handling::Discard
            }
        }
    }
}

/// Whether the datagram came from the node before this one on its way; at the first
/// relay, where that can't be known, `from` becomes the source.
fn accept_neighbour(packet: &mut Packet<SocketAddr>, from: SocketAddr) -> bool {
    let route = &mut packet.route;
    let position = route.position();
    match packet.kind {
        Kind::Data if position == 1 => {
            route.set_source(from);
            wire::problem_of_address(from).is_none()
        }
        Kind::Data => route.nodes()[position - 1] == from,
        // An answer that is at its destination has come from nowhere on its route.
        Kind::Ack => route.nodes().get(position + 1) == Some(&from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Wire;
    use crate::packet::{PacketId, Route};
    use crate::wire::{Datagram, Type};

    const LIMIT: Rate = Rate::from_bytes_per_sec(1_000);

    fn node(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 4000))
    }

    /// Over the relays 1 and 2 to 3, at `position`.
    fn bytes(what: Type, source: SocketAddr, position: usize) -> Vec<u8> {
        let route = Route::from_nodes(&[source, node(1), node(2), node(3)], position).unwrap();
        let packet = Packet::new(PacketId::default(), 5 * u64::from(what == Type::Ack), what.kind(), route);
        let mut out = Vec::new();
        let body: &[u8] = if what == Type::Ack { &[] } else { &[7; 300] };
        Datagram { what, packet, body }.encode(&mut out);
        out
    }

    /// What becomes of these bytes, and the datagram as it leaves.
    fn on_bytes(relay: &mut RelayNode, from: SocketAddr, bytes: &[u8]) -> (Handling, OwnedDatagram) {
        let mut datagram = OwnedDatagram::default();
        datagram.read(bytes).unwrap();
        assert_eq!(datagram.len(), bytes.len());
        let size = Bytes::new(bytes.len() as u64);
        (relay.on_datagram(Time::ZERO, from, &mut datagram, size), datagram)
    }

    fn relay() -> RelayNode {
        RelayNode::new(LimitModel::Window { phase: Duration::ZERO }, LIMIT)
    }

    #[test]
    fn the_first_relay_writes_down_who_sent_it() {
        let (mut relay, seen) = (relay(), SocketAddr::from(([192, 0, 2, 1], 777)));
        for claimed in [wire::unknown_source(node(1)), node(99)] {
            let bytes = bytes(Type::Data, claimed, 1);
            match on_bytes(&mut relay, seen, &bytes) {
                (Handling::Forward { to, .. }, datagram) => {
                    assert_eq!((to, datagram.packet.route.nodes()[0]), (node(2), seen));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_does_not_come_from_the_neighbour_on_its_route_is_discarded() {
        let source = node(9);
        for (what, position, neighbour) in
            [(Type::Data, 2, 1), (Type::Data, 3, 2), (Type::Ack, 2, 3), (Type::Ack, 0, 1)]
        {
            let (mut relay, bytes) = (relay(), bytes(what, source, position));
            assert_eq!(on_bytes(&mut relay, node(77), &bytes).0, Handling::Discard);
            assert_eq!(relay.counters().misrouted, 1);
            assert_ne!(on_bytes(&mut relay, node(neighbour), &bytes).0, Handling::Discard, "{what:?} {position}");
        }
        // An ACK at the destination was never sent by anybody.
        let bytes = bytes(Type::Ack, source, 3);
        assert_eq!(on_bytes(&mut relay(), node(2), &bytes).0, Handling::Discard);
    }

    #[test]
    fn no_more_passes_than_the_limit() {
        let (mut relay, bytes) = (relay(), bytes(Type::Data, node(9), 1));
        for _ in 0..10 {
            on_bytes(&mut relay, node(9), &bytes);
        }
        let counters = relay.counters();
        assert_eq!((counters.forwarded, counters.refused_data), (2, 8));
        assert!(counters.forwarded_bytes <= 1_000);
    }

    #[test]
    fn an_end_forwards_nothing_but_takes_what_is_its_own() {
        let mut end = RelayNode::end();
        assert_eq!(on_bytes(&mut end, node(9), &bytes(Type::Data, node(9), 1)).0, Handling::Discard);
        assert_eq!(end.counters().unwilling, 1);
        let data = bytes(Type::Data, node(9), 3);
        assert!(matches!(on_bytes(&mut end, node(2), &data).0, Handling::Deliver { .. }));
        let ack = bytes(Type::Ack, node(9), 0);
        assert_eq!(on_bytes(&mut end, node(1), &ack).0, Handling::Home);
    }
}

//! A relay on a network: reads datagrams, refuses what is not consistent, holds to its
//! limit, and says where the rest goes.
//!
//! It keeps nothing of a datagram that has passed, and nothing about who sent it. The
//! address that a datagram was seen to come from must be the neighbour that its route
//! names; as only the first relay can't know that, it writes down what it sees.

use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use crate::limiter::LimitModel;
use crate::packet::Kind;
use crate::relay::{Relay, Verdict};
use crate::wire::{self, Datagram, Unreadable};

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling<'a> {
    /// Send this datagram to `to` after `wait`.
    Forward {
        /// The next node.
        to: SocketAddr,
        /// How long it waits here first.
        wait: Duration,
        /// It, moved on by one hop.
        datagram: Datagram<'a>,
    },
    /// It is for us: answer it after `wait`.
    Deliver {
        /// How long it waits here first.
        wait: Duration,
        /// It.
        datagram: Datagram<'a>,
    },
    /// An answer to what we sent.
    Home(Datagram<'a>),
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
    /// Not readable.
    pub unreadable: Unreadable,
}

/// One peer's relay.
#[derive(Clone, Debug)]
pub struct RelayNode {
    relay: Relay,
    forwards: bool,
    counters: RelayCounters,
}

impl RelayNode {
    /// A relay that forwards up to `limit`; what is addressed to its peer counts too.
    pub fn new(model: LimitModel, limit: Rate) -> RelayNode {
        RelayNode { relay: Relay::new(model, limit), forwards: true, counters: RelayCounters::default() }
    }

    /// A peer that only sends or receives: it takes all that is for it and forwards nothing.
    pub fn end() -> RelayNode {
        let unlimited = Rate::from_bits_per_sec(u64::MAX);
        RelayNode { forwards: false, ..RelayNode::new(LimitModel::Window { phase: Duration::ZERO }, unlimited) }
    }

    /// What it has done so far.
    pub fn counters(&self) -> &RelayCounters {
        &self.counters
    }

    /// The limit in force.
    pub fn limit(&self) -> Rate {
        self.relay.limit()
    }

    /// The bytes have come from `from`.
    pub fn on_datagram<'a>(&mut self, now: Time, from: SocketAddr, bytes: &'a [u8]) -> Handling<'a> {
        let mut datagram = match wire::decode(bytes) {
            Ok(datagram) => datagram,
            Err(error) => {
                self.counters.unreadable.count(error);
                return Handling::Discard;
            }
        };
        if !accept_neighbour(&mut datagram, wire::canonical(from)) {
            self.counters.misrouted += 1;
            return Handling::Discard;
        }
        let route = &datagram.packet.route;
        let at_an_end = match datagram.packet.kind {
            Kind::Data => route.position() == route.nodes().len() - 1,
            Kind::Ack => route.is_home(),
        };
        if !at_an_end && !self.forwards {
            self.counters.unwilling += 1;
            return Handling::Discard;
        }
        self.counters.received += 1;
        let size = Bytes::new(bytes.len() as u64);
        match self.relay.on_packet(now, &mut datagram.packet, size) {
            Verdict::Forward { to, wait } => {
                self.counters.forwarded += 1;
                self.counters.forwarded_bytes += size.get();
                Handling::Forward { to, wait, datagram }
            }
            Verdict::Deliver { wait } => {
                self.counters.delivered += 1;
                Handling::Deliver { wait, datagram }
            }
            Verdict::Home => Handling::Home(datagram),
            Verdict::Refuse => {
                match datagram.packet.kind {
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
fn accept_neighbour(datagram: &mut Datagram<'_>, from: SocketAddr) -> bool {
    let route = &mut datagram.packet.route;
    let position = route.position();
    match datagram.packet.kind {
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
    use crate::packet::{Packet, PacketId, Route};
    use crate::wire::Type;

    const LIMIT: Rate = Rate::from_bytes_per_sec(1_000);

    fn node(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 4000))
    }

    /// Over the relays 1 and 2 to 3, at `position`.
    fn bytes(what: Type, source: SocketAddr, position: usize) -> Vec<u8> {
        let route = Route::from_nodes(&[source, node(1), node(2), node(3)], position).unwrap();
        let packet =
            Packet { id: PacketId::default(), nonce: 5 * u64::from(what == Type::Ack), kind: what.kind(), route };
        let mut out = Vec::new();
        let body: &[u8] = if what == Type::Ack { &[] } else { &[7; 300] };
        Datagram { what, packet, body }.encode(&mut out);
        out
    }

    fn relay() -> RelayNode {
        RelayNode::new(LimitModel::Window { phase: Duration::ZERO }, LIMIT)
    }

    #[test]
    fn the_first_relay_writes_down_who_sent_it() {
        let (mut relay, seen) = (relay(), SocketAddr::from(([192, 0, 2, 1], 777)));
        for claimed in [wire::unknown_source(node(1)), node(99)] {
            let bytes = bytes(Type::Data, claimed, 1);
            match relay.on_datagram(Time::ZERO, seen, &bytes) {
                Handling::Forward { to, datagram, .. } => {
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
            assert_eq!(relay.on_datagram(Time::ZERO, node(77), &bytes), Handling::Discard);
            assert_eq!(relay.counters().misrouted, 1);
            assert_ne!(
                relay.on_datagram(Time::ZERO, node(neighbour), &bytes),
                Handling::Discard,
                "{what:?} {position}"
            );
        }
        // An ACK at the destination was never sent by anybody.
        let bytes = bytes(Type::Ack, source, 3);
        assert_eq!(relay().on_datagram(Time::ZERO, node(2), &bytes), Handling::Discard);
    }

    #[test]
    fn no_more_passes_than_the_limit() {
        let (mut relay, bytes) = (relay(), bytes(Type::Data, node(9), 1));
        for _ in 0..10 {
            relay.on_datagram(Time::ZERO, node(9), &bytes);
        }
        let counters = relay.counters();
        assert_eq!((counters.forwarded, counters.refused_data), (2, 8));
        assert!(counters.forwarded_bytes <= 1_000);
    }

    #[test]
    fn an_end_forwards_nothing_but_takes_what_is_its_own() {
        let mut end = RelayNode::end();
        assert_eq!(end.on_datagram(Time::ZERO, node(9), &bytes(Type::Data, node(9), 1)), Handling::Discard);
        assert_eq!(end.counters().unwilling, 1);
        let data = bytes(Type::Data, node(9), 3);
        assert!(matches!(end.on_datagram(Time::ZERO, node(2), &data), Handling::Deliver { .. }));
        let ack = bytes(Type::Ack, node(9), 0);
        assert!(matches!(end.on_datagram(Time::ZERO, node(1), &ack), Handling::Home(_)));
    }

    #[test]
    fn what_is_not_readable_is_counted() {
        let mut relay = relay();
        for bytes in [&b"AB"[..], &[0; 2000], b"hello world", b"AB\x09aaaaaaaaaaaaaaaaa"] {
            assert_eq!(relay.on_datagram(Time::ZERO, node(9), bytes), Handling::Discard);
        }
        let unreadable = relay.counters().unreadable;
        assert_eq!((unreadable.truncated, unreadable.oversized), (1, 1));
        assert_eq!((unreadable.foreign, unreadable.unknown_version, unreadable.total()), (1, 1, 4));
    }
}

//! A relay on a network: refuses datagrams that are not consistent, holds to its limit, and
//! says where the rest goes.
//!
//! It keeps nothing of a datagram that has passed. The address that a datagram was seen to
//! come from must be the neighbour that its route names; as only the first relay can't know
//! that, it writes down what it sees. What a relay sends is what it has received, no byte
//! longer, and never goes back to where it came from.
//!
//! A relay for strangers also has a [`ForwardPolicy`], a [`FairShare`] of its limit for each
//! of them (for this it keeps an average for each neighbour), and perhaps a list of those who
//! may use it.

use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use ipnet::IpNet;

use crate::limiter::LimitModel;
use crate::machine::Arrival;
use crate::overlay::fair_share::FairShare;
use crate::overlay::forward_policy::ForwardPolicy;
use crate::overlay::packet::{Kind, Packet};
use crate::overlay::relay::{Relay, Verdict};
use crate::overlay::wire::{self, OwnedDatagram};

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
    /// That would have gone back to where they came from.
    pub reflected: u64,
    /// Of a sender, or of a relay before this one, that is not among those who may use it.
    pub unlisted: u64,
    /// From or to an address between which the policy forbids to forward.
    pub barred: u64,
    /// Beyond the fair share of the neighbour that they came from.
    pub over_share: u64,
}

/// One peer's relay.
#[derive(Clone, Debug)]
pub struct RelayNode {
    relay: Relay,
    forwards: bool,
    /// Those it forwards for; none for everybody.
    clients: Option<Vec<IpNet>>,
    policy: Option<Box<ForwardPolicy>>,
    counters: RelayCounters,
}

impl RelayNode {
    /// A relay that forwards up to `limit`, for anybody and anywhere, and stamps on the ACKs that it
    /// forwards the rate that it grants; what is addressed to its peer counts too.
    pub fn new(model: LimitModel, limit: Rate) -> RelayNode {
        RelayNode { forwards: true, ..RelayNode::of(Relay::stamping(model, limit)) }
    }

    /// A peer that only sends or receives: it takes all that is for it and forwards nothing.
    pub fn end() -> RelayNode {
        let unlimited = Rate::from_bits_per_sec(u64::MAX);
        RelayNode::of(Relay::new(LimitModel::Window { phase: Duration::ZERO }, unlimited))
    }

    fn of(relay: Relay) -> RelayNode {
        let counters = RelayCounters::default();
        RelayNode { relay, forwards: false, clients: None, policy: None, counters }
    }

    /// It forwards only for those in `clients`: data that has come from there, and answers that go
    /// there. They are its neighbours on the side of the source, senders or relays: of them alone it
    /// knows the address.
    #[must_use]
    pub fn with_clients(self, clients: Vec<IpNet>) -> RelayNode {
        RelayNode { clients: Some(clients), ..self }
    }

    /// It forwards only where `policy` permits.
    #[must_use]
    pub fn with_policy(self, policy: ForwardPolicy) -> RelayNode {
        RelayNode { policy: Some(Box::new(policy)), ..self }
    }

    /// Each neighbour has its share of the limit, as `share` divides it.
    #[must_use]
    pub fn with_fair_share(self, share: FairShare) -> RelayNode {
        RelayNode { relay: self.relay.with_fair_share(share), ..self }
    }

    /// What it has done so far.
    pub fn counters(&self) -> &RelayCounters {
        &self.counters
    }

    /// The limit in force.
    pub fn limit(&self) -> Rate {
        self.relay.limit()
    }

    /// The limit is `limit` from now on.
    pub fn set_limit(&mut self, now: Time, limit: Rate) {
        self.relay.set_limit(now, limit);
    }

    /// `datagram`, of `size` bytes, has arrived. What is forwarded is changed in place.
    pub fn on_datagram(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        datagram: &mut OwnedDatagram,
        size: Bytes,
    ) -> Handling {
        let (packet, from) = (&mut datagram.packet, wire::canonical(arrival.from));
        if !accept_neighbour(packet, from) {
            self.counters.misrouted += 1;
            return Handling::Discard;
        }
        let (nodes, position) = (packet.route.nodes(), packet.route.position());
        let next = match packet.kind {
            Kind::Data => nodes.get(position + 1),
            Kind::Ack => position.checked_sub(1).map(|before| &nodes[before]),
        };
        if let Some(&next) = next {
            if !self.forwards {
                self.counters.unwilling += 1;
                return Handling::Discard;
            }
            if next == from {
                self.counters.reflected += 1;
                return Handling::Discard;
            }
            let client = if packet.kind == Kind::Data { from } else { next };
            let is_client = |network: &IpNet| network.contains(&client.ip());
            if self.clients.as_ref().is_some_and(|clients| !clients.iter().any(is_client)) {
                self.counters.unlisted += 1;
                return Handling::Discard;
            }
            let at = arrival.at.map(|at| at.ip());
            if self.policy.as_ref().is_some_and(|policy| !policy.permits(at, from, next)) {
                self.counters.barred += 1;
                return Handling::Discard;
            }
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
            Verdict::OverShare => {
                self.counters.over_share += 1;
                Handling::Discard
            }
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
            // A longer address in its place would make the datagram longer.
            let fits = route.nodes()[0].is_ipv4() == from.is_ipv4();
            route.set_source(from);
            fits && wire::problem_of_address(from).is_none()
        }
        Kind::Data => route.nodes()[position - 1] == from,
        // An answer that is at its destination has come from nowhere on its route.
        Kind::Ack => route.nodes().get(position + 1) == Some(&from),
    }
}

#[cfg(test)]
mod tests {
    use core::convert::Infallible;
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::machine::{Departure, Machine, Out, Wire};
    use crate::overlay::fair_share::MAX_SOURCES;
    use crate::overlay::packet::{PacketId, Route};
    use crate::overlay::peer::Peer;
    use crate::overlay::wire::{Datagram, Type};
    use crate::transfer::FileJob;

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
        (relay.on_datagram(Time::ZERO, Arrival::new(from), &mut datagram, size), datagram)
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

    #[test]
    fn what_comes_from_another_family_than_its_source_has_room_for_is_not_made_longer() {
        let (mut relay, seen) = (relay(), SocketAddr::from(([0x2600, 0, 0, 0, 0, 0, 0, 1], 777)));
        let bytes = bytes(Type::Data, wire::unknown_source(node(1)), 1);
        assert_eq!(on_bytes(&mut relay, seen, &bytes).0, Handling::Discard);
        assert_eq!(relay.counters().misrouted, 1);
    }

    #[test]
    fn nothing_goes_back_to_where_it_came_from() {
        let (mut relay, victim) = (relay(), node(3));
        let route = Route::from_nodes(&[wire::unknown_source(node(1)), node(1), victim], 1).unwrap();
        let packet = Packet::new(PacketId::default(), 0, Kind::Data, route);
        let mut bytes = Vec::new();
        Datagram { what: Type::Data, packet, body: &[7; 300] }.encode(&mut bytes);
        assert_eq!(on_bytes(&mut relay, victim, &bytes).0, Handling::Discard);
        assert_eq!(relay.counters().reflected, 1);
        assert_ne!(on_bytes(&mut relay, node(9), &bytes).0, Handling::Discard);
    }

    #[test]
    fn what_the_policy_bars_is_counted_and_counts_against_no_limit() {
        let policy = ForwardPolicy::new(IpAddr::from([8, 8, 8, 8]), [], Vec::new());
        let mut relay = relay().with_policy(policy);
        let stranger = SocketAddr::from(([9, 9, 9, 9], 777));
        for _ in 0..10 {
            assert_eq!(on_bytes(&mut relay, stranger, &bytes(Type::Data, node(9), 1)).0, Handling::Discard);
        }
        let counters = relay.counters();
        assert_eq!((counters.barred, counters.received, counters.refused_data), (10, 0, 0));
    }

    #[test]
    fn it_forwards_data_of_its_clients_and_answers_to_them_and_nothing_else() {
        let clients = || vec!["10.0.0.8/31".parse().unwrap(), "2600::/16".parse().unwrap()];
        for (what, position, nodes, from, passes) in [
            (Type::Data, 1, [9, 1, 2, 3], 9, true),
            (Type::Data, 1, [8, 1, 2, 3], 8, true),
            (Type::Data, 1, [7, 1, 2, 3], 7, false),
            // The source that a route claims does not count, nor does who it goes to.
            (Type::Data, 1, [9, 1, 2, 3], 7, false),
            (Type::Data, 1, [7, 1, 9, 3], 7, false),
            // At a middle relay it is the relay before.
            (Type::Data, 2, [7, 9, 1, 3], 9, true),
            (Type::Data, 2, [9, 7, 1, 3], 7, false),
            (Type::Hello, 1, [7, 1, 2, 3], 7, false),
            // Answers come from anybody, and go to clients.
            (Type::Ack, 1, [9, 1, 2, 3], 2, true),
            (Type::Report, 1, [7, 1, 2, 3], 2, false),
            (Type::Ack, 2, [7, 9, 1, 3], 3, true),
            (Type::Ack, 2, [9, 7, 1, 3], 3, false),
        ] {
            let mut relay = relay().with_clients(clients());
            let route = Route::from_nodes(&nodes.map(node), position).unwrap();
            let packet = Packet::new(PacketId::default(), 0, what.kind(), route);
            let mut bytes = Vec::new();
            Datagram { what, packet, body: &[] }.encode(&mut bytes);
            let (handling, _) = on_bytes(&mut relay, node(from), &bytes);
            assert_eq!(matches!(handling, Handling::Forward { .. }), passes, "{what:?} {nodes:?} from {from}");
            assert_eq!(relay.counters().unlisted, u64::from(!passes));
        }
    }

    #[test]
    fn a_neighbour_beyond_its_share_is_refused_and_another_is_not() {
        let limit = Rate::from_bytes_per_sec(100_000);
        let model = LimitModel::Window { phase: Duration::ZERO };
        let share = FairShare::new(model, limit, MAX_SOURCES, [1, 2, 3, 4]);
        let mut relay = RelayNode::new(model, limit).with_fair_share(share);
        let bytes = bytes(Type::Data, node(9), 1);
        let size = Bytes::new(bytes.len() as u64);
        let mut passed = [0u32; 2];
        for millis in 0..10_000u64 {
            let now = Time::ZERO + Duration::from_millis(millis);
            // A thousand datagrams a second, and ten.
            for (who, passed) in passed.iter_mut().enumerate().take(1 + usize::from(millis % 100 == 0)) {
                let mut datagram = OwnedDatagram::default();
                datagram.read(&bytes).unwrap();
                let arrival = Arrival::new(node(50 + who as u8));
                let passes = relay.on_datagram(now, arrival, &mut datagram, size) != Handling::Discard;
                // After three seconds of half-life 1 s the averages are seven eighths of what comes.
                *passed += u32::from(passes && millis >= 3_000);
            }
        }
        assert!(passed[1] == 70 && passed[0] > 1_000, "{passed:?}");
        assert!(relay.counters().over_share > 5_000, "{:?}", relay.counters());
        // An answer that has come home is no load.
        let mut end = relay;
        for _ in 0..10 {
            let (handling, _) = on_bytes(&mut end, node(1), &self::bytes(Type::Ack, node(9), 0));
            assert_eq!(handling, Handling::Home);
        }
    }

    /// What a peer sends.
    #[derive(Default)]
    struct Sent(Vec<(SocketAddr, Vec<u8>)>);

    impl Out<Peer> for Sent {
        fn send(&mut self, departure: Departure<SocketAddr>, message: &OwnedDatagram) {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            self.0.push((departure.to, bytes));
        }

        fn event(&mut self, event: Infallible) {
            match event {}
        }

        fn job(&mut self, _: FileJob) {
            panic!("a relay has no files");
        }
    }

    const OWN: [u8; 4] = [5, 5, 5, 5];

    /// What an open relay at `OWN` sends on account of these bytes; none if they are no datagram.
    fn sent(arrival: Arrival<SocketAddr>, bytes: &[u8]) -> Option<Vec<(SocketAddr, Vec<u8>)>> {
        let (limit, model) = (Rate::from_bytes_per_sec(1_000_000), LimitModel::Window { phase: Duration::ZERO });
        let relay = RelayNode::new(model, limit)
            .with_policy(ForwardPolicy::new(IpAddr::from(OWN), [], Vec::new()))
            .with_fair_share(FairShare::new(model, limit, MAX_SOURCES, [1, 2, 3, 4]));
        let (mut datagram, mut sent) = (OwnedDatagram::default(), Sent::default());
        datagram.read(bytes).ok()?;
        let mut peer = Peer::new(relay, None, None);
        peer.on_message(Time::ZERO, arrival, &mut datagram, &mut sent);
        peer.on_timer(Time::from_secs_f64(1.0), &mut sent);
        Some(sent.0)
    }

    /// Mostly hosts outside; else the relay, its network, and what is nobody's.
    fn any_node() -> impl Strategy<Value = SocketAddr> {
        let one_of = |ips: &[&str]| {
            let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
            proptest::sample::select(ips)
        };
        let outside = one_of(&["7.0.0.1", "7.0.0.2", "7.0.0.3", "7.0.0.4", "2600::1", "2600::2"]);
        let barred = one_of(&["5.5.5.5", "127.0.0.1", "10.0.0.1", "::", "::1", "fe80::1"]);
        let port = prop_oneof![9 => Just(4000u16), 1 => 0..3u16];
        (prop_oneof![4 => outside, 1 => barred], port).prop_map(SocketAddr::from)
    }

    proptest! {
        // One in some dozens is forwarded.
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn a_stranger_gets_no_answer_and_no_byte_more_is_sent_than_was_received(
            what in proptest::sample::select(vec![Type::Hello, Type::HelloReply, Type::Data, Type::Ack, Type::Report]),
            nodes in proptest::collection::vec(any_node(), 3..6),
            position in 0usize..6,
            (from, is_neighbour) in (any_node(), any::<bool>()),
            body in proptest::collection::vec(any::<u8>(), 0..1400),
        ) {
            let position = position % nodes.len();
            let route = Route::from_nodes(&nodes, position).unwrap();
            let (nonce, body) = if what == Type::Ack { (7, &[][..]) } else { (0, &body[..]) };
            let packet = Packet::new(PacketId::default(), nonce, what.kind(), route);
            let mut bytes = Vec::new();
            Datagram { what, packet, body }.encode(&mut bytes);
            // Half of the time it comes from where its route says.
            let neighbour = match what.kind() {
                Kind::Data => position.checked_sub(1).map(|before| nodes[before]),
                Kind::Ack => nodes.get(position + 1).copied(),
            };
            let from = neighbour.filter(|_| is_neighbour).unwrap_or(from);
            let Some(left) = sent(Arrival::new(from), &bytes) else { return Ok(()) };
            prop_assert!(left.len() <= 1, "{left:?}");
            let Some((to, out)) = left.into_iter().next() else { return Ok(()) };
            prop_assert_eq!(out.len(), bytes.len());
            prop_assert_ne!(to, from);
            // Outside is 7.0.0.0/8 and 2600::/16 here; the host itself may use its relay towards itself.
            let is_outside = to.to_string().starts_with("7.") || to.to_string().starts_with("[2600:");
            prop_assert!(to.port() != 0 && (is_outside || to.ip() == from.ip()), "{from} to {to}");
            prop_assert!(is_outside != (from.ip() == IpAddr::from(OWN)), "{from} to {to}");
            // What goes the other way between the two passes as well: an answer to data, and data
            // where an answer passed.
            let mut back = wire::decode(&out).unwrap().packet;
            prop_assert_eq!(back.route.position().abs_diff(position), 1);
            back.kind = if back.kind == Kind::Data { Kind::Ack } else { Kind::Data };
            let what = if back.kind == Kind::Data { Type::Data } else { Type::Report };
            back.nonce = 0;
            back.route = Route::from_nodes(back.route.nodes(), position).unwrap();
            Datagram { what, packet: back, body: &[] }.encode(&mut bytes);
            let returned = sent(Arrival::new(to), &bytes).expect("it is a datagram");
            prop_assert_eq!(returned.len(), 1);
            prop_assert_eq!(returned[0].0, from);
        }
    }
}

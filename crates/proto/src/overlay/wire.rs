//! Datagrams: what peers say to each other over UDP, as structs and as bytes.
//!
//! Every datagram carries its whole route, so that a relay needs to remember nothing.
//! Integers are big-endian:
//!
//! ```text
//!  0  magic "AB"            2 bytes
//!  2  version               1        (2)
//!  3  type                  1        1 hello, 2 hello reply, 3 data, 4 ACK, 5 report
//!  4  position              1        which node of the route it is at, or on its way to
//!  5  relays                1        1 to 8
//!  6  packet                4 + 4    place in the sender's table, generation
//! 14  route                 source, relays, destination; each
//!                           family 1 (4 or 6), address 4 or 16, port 2
//!     telemetry             of hello and data, the sender's smoothed round-trip time in
//!                           microseconds, 4 bytes (0: unknown); of answers, the receiver's
//!                           clock at the arrival in microseconds, 4 bytes (0: not told), and
//!                           a stamp of each relay, 4 bytes (a binary32, 0: none)
//!     body                  the rest: of an ACK the 8-byte proof, else sealed
//! ```
//!
//! The source writes an unspecified address for itself: the first relay replaces it by
//! the address that it sees. So a source need not know how it looks from outside, and
//! answers go nowhere but where the datagram came from.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anabranch_control::path::{MAX_RELAYS, Stamp};

use crate::machine::Wire;
use crate::overlay::packet::{Kind, Packet, PacketId, Route, Telemetry};

/// The first bytes of every datagram.
pub const MAGIC: [u8; 2] = *b"AB";

/// The version that this build speaks.
pub const VERSION: u8 = 2;

/// The largest UDP payload in bytes: what fits an Ethernet frame of 1500 B behind an
/// IPv4 and a UDP header.
pub const MAX_DATAGRAM: usize = 1500 - 20 - 8;

/// Bytes before the route.
const FIXED: usize = 14;

/// Bytes of one word of telemetry.
const WORD: usize = 4;

/// Bytes of the proof in an ACK.
const PROOF: usize = 8;

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    /// The sender's half of a handshake.
    Hello = 1,
    /// The receiver's half.
    HelloReply = 2,
    /// A sealed message to the destination.
    Data = 3,
    /// The data has arrived: the proof that was sealed in it.
    Ack = 4,
    /// A sealed message to the source, which also proves that the data has arrived.
    Report = 5,
}

impl Type {
    /// Which way it goes.
    pub fn kind(self) -> Kind {
        match self {
            Type::Hello | Type::Data => Kind::Data,
            Type::HelloReply | Type::Ack | Type::Report => Kind::Ack,
        }
    }
}

/// One datagram. `packet.nonce` is the proof of an ACK, else 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// What it is.
    pub what: Type,
    /// Whose it is and where it goes.
    pub packet: Packet<SocketAddr>,
    /// What only the ends read; empty in an ACK.
    pub body: &'a [u8],
}

/// A datagram with a body of its own: what the machines take and give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedDatagram {
    /// What it is.
    pub what: Type,
    /// Whose it is and where it goes.
    pub packet: Packet<SocketAddr>,
    /// What only the ends read; empty in an ACK.
    pub body: Vec<u8>,
}

/// One that goes nowhere, to be filled in.
impl Default for OwnedDatagram {
    fn default() -> OwnedDatagram {
        let route = Route::new(UNKNOWN_V4, core::iter::empty(), UNKNOWN_V4);
        let packet = Packet::new(PacketId::default(), 0, Kind::Data, route);
        OwnedDatagram { what: Type::Data, packet, body: Vec::new() }
    }
}

impl OwnedDatagram {
    /// It, to look at.
    pub fn borrow(&self) -> Datagram<'_> {
        Datagram { what: self.what, packet: self.packet, body: &self.body }
    }

    /// Its bytes on the wire, IP and UDP headers apart.
    pub fn len(&self) -> usize {
        let proof = if self.what == Type::Ack { PROOF } else { 0 };
        header_len(self.what.kind(), self.packet.route.nodes()) + proof + self.body.len()
    }

    /// Never: it has a header.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Wire for OwnedDatagram {
    type Error = DecodeError;
    type Unreadable = Unreadable;

    fn write(&self, out: &mut Vec<u8>) {
        self.borrow().encode(out);
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let Datagram { what, packet, body } = decode(bytes)?;
        self.what = what;
        self.packet = packet;
        self.body.clear();
        self.body.extend_from_slice(body);
        Ok(())
    }

    fn count(error: DecodeError, unreadable: &mut Unreadable) {
        unreadable.count(error);
    }
}

/// Why bytes are no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// It ends before its header does.
    Truncated,
    /// It is longer than `MAX_DATAGRAM`.
    Oversized,
    /// It does not begin with `MAGIC`.
    Foreign,
    /// It speaks another version.
    UnknownVersion(u8),
    /// A field has a value that it can't have.
    Malformed(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => write!(f, "truncated"),
            DecodeError::Oversized => write!(f, "longer than {MAX_DATAGRAM} bytes"),
            DecodeError::Foreign => write!(f, "not one of our datagrams"),
            DecodeError::UnknownVersion(version) => write!(f, "version {version}, not {VERSION}"),
            DecodeError::Malformed(what) => write!(f, "malformed: {what}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Reads a datagram. What it accepts, `Datagram::encode` turns into the same bytes.
pub fn decode(bytes: &[u8]) -> Result<Datagram<'_>, DecodeError> {
    if bytes.len() > MAX_DATAGRAM {
        return Err(DecodeError::Oversized);
    }
    let mut reader = Reader(bytes);
    if reader.array()? != MAGIC {
        return Err(DecodeError::Foreign);
    }
    let [version, what, position, relays] = reader.array()?;
    if version != VERSION {
        return Err(DecodeError::UnknownVersion(version));
    }
    let what = match what {
        1 => Type::Hello,
        2 => Type::HelloReply,
        3 => Type::Data,
        4 => Type::Ack,
        5 => Type::Report,
        _ => return Err(DecodeError::Malformed("unknown type")),
    };
    let (position, relays) = (usize::from(position), usize::from(relays));
    if !(1..=MAX_RELAYS).contains(&relays) {
        return Err(DecodeError::Malformed("number of relays"));
    }
    let id = PacketId { index: reader.u32()?, generation: reader.u32()? };
    let mut nodes = [UNKNOWN_V4; MAX_RELAYS + 2];
    let nodes = &mut nodes[..relays + 2];
    for node in nodes.iter_mut() {
        *node = reader.address()?;
    }
    // A datagram that goes forth is never on its way to its source.
    if what.kind() == Kind::Data && position == 0 {
        return Err(DecodeError::Malformed("position"));
    }
    if let Some(problem) = problem_of(&nodes[1..]) {
        return Err(DecodeError::Malformed(problem));
    }
    let route = Route::from_nodes(nodes, position).ok_or(DecodeError::Malformed("position"))?;
    let mut telemetry = Telemetry::default();
    match what.kind() {
        Kind::Data => telemetry.round_trip_us = reader.u32()?,
        Kind::Ack => {
            telemetry.arrived_us = reader.u32()?;
            for stamp in &mut telemetry.stamps[..relays] {
                *stamp = Stamp::from_bits(reader.u32()?);
            }
        }
    }
    let mut nonce = 0;
    if what == Type::Ack {
        nonce = u64::from_be_bytes(reader.array::<PROOF>()?);
        if !reader.0.is_empty() {
            return Err(DecodeError::Malformed("an ACK holds nothing behind its proof"));
        }
    }
    Ok(Datagram { what, packet: Packet { id, nonce, kind: what.kind(), route, telemetry }, body: reader.0 })
}

impl Datagram<'_> {
    /// Replaces what is in `out` by the bytes of this datagram.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_header(self.what, &self.packet, out);
        out.extend_from_slice(self.body);
    }
}

/// Replaces what is in `out` by the bytes of a datagram up to its body (of an ACK: all).
pub fn encode_header(what: Type, packet: &Packet<SocketAddr>, out: &mut Vec<u8>) {
    let nodes = packet.route.nodes();
    out.clear();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, what as u8, packet.route.position() as u8, (nodes.len() - 2) as u8]);
    out.extend_from_slice(&packet.id.index.to_be_bytes());
    out.extend_from_slice(&packet.id.generation.to_be_bytes());
    for node in nodes {
        match node.ip() {
            IpAddr::V4(ip) => {
                out.push(4);
                out.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                out.push(6);
                out.extend_from_slice(&ip.octets());
            }
        }
        out.extend_from_slice(&node.port().to_be_bytes());
    }
    let telemetry = &packet.telemetry;
    match what.kind() {
        Kind::Data => out.extend_from_slice(&telemetry.round_trip_us.to_be_bytes()),
        Kind::Ack => {
            out.extend_from_slice(&telemetry.arrived_us.to_be_bytes());
            for stamp in &telemetry.stamps[..nodes.len() - 2] {
                out.extend_from_slice(&stamp.bits().to_be_bytes());
            }
        }
    }
    if what == Type::Ack {
        out.extend_from_slice(&packet.nonce.to_be_bytes());
    }
}

/// Bytes before the body of a datagram of `kind` over `nodes` (source, relays, destination).
pub fn header_len(kind: Kind, nodes: &[SocketAddr]) -> usize {
    let telemetry = match kind {
        Kind::Data => WORD,
        Kind::Ack => WORD * nodes.len().saturating_sub(1),
    };
    FIXED + telemetry + nodes.iter().map(|node| if node.is_ipv4() { 7 } else { 19 }).sum::<usize>()
}

/// Bytes of a whole ACK over `nodes`.
pub fn ack_len(nodes: &[SocketAddr]) -> usize {
    header_len(Kind::Ack, nodes) + PROOF
}

const UNKNOWN_V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
const UNKNOWN_V6: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// What a source writes for itself when its first relay is `relay`: as long as what
/// the relay will put there.
pub fn unknown_source(relay: SocketAddr) -> SocketAddr {
    if relay.is_ipv4() { UNKNOWN_V4 } else { UNKNOWN_V6 }
}

/// The one spelling of an address: IPv4 never inside IPv6, no scope, no flow label.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// What is wrong with `address` as a relay or a destination, if anything is.
pub fn problem_of_address(address: SocketAddr) -> Option<&'static str> {
    let ip = address.ip();
    if address.port() == 0 {
        Some("port 0")
    } else if ip.is_unspecified() {
        Some("the unspecified address")
    } else if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Some("an address of many hosts")
    } else {
        None
    }
}

/// What is wrong with relays and destination, if anything is: each is one host, and
/// none comes twice, or a datagram could circle.
fn problem_of(nodes: &[SocketAddr]) -> Option<&'static str> {
    let unusable = nodes.iter().find_map(|&node| problem_of_address(node));
    let twice = || (1..nodes.len()).any(|place| nodes[..place].contains(&nodes[place]));
    unusable.or_else(|| twice().then_some("an address comes twice"))
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    fn address(&mut self) -> Result<SocketAddr, DecodeError> {
        let ip = match self.array()? {
            [4] => IpAddr::from(self.array::<4>()?),
            [6] => {
                let ip = Ipv6Addr::from(self.array::<16>()?);
                if ip.to_ipv4_mapped().is_some() {
                    return Err(DecodeError::Malformed("an IPv4 address inside IPv6"));
                }
                IpAddr::from(ip)
            }
            _ => return Err(DecodeError::Malformed("address family")),
        };
        Ok(SocketAddr::new(ip, u16::from_be_bytes(self.array()?)))
    }
}

/// How many datagrams were discarded because they could not be read, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// Ended before their header did.
    pub truncated: u64,
    /// Longer than `MAX_DATAGRAM`.
    pub oversized: u64,
    /// Without our magic.
    pub foreign: u64,
    /// Of another version.
    pub unknown_version: u64,
    /// With a field that has an impossible value.
    pub malformed: u64,
}

impl Unreadable {
    /// Counts one.
    pub fn count(&mut self, error: DecodeError) {
        match error {
            DecodeError::Truncated => self.truncated += 1,
            DecodeError::Oversized => self.oversized += 1,
            DecodeError::Foreign => self.foreign += 1,
            DecodeError::UnknownVersion(_) => self.unknown_version += 1,
            DecodeError::Malformed(_) => self.malformed += 1,
        }
    }

    /// All together.
    pub fn total(&self) -> u64 {
        let Unreadable { truncated, oversized, foreign, unknown_version, malformed } = self;
        truncated + oversized + foreign + unknown_version + malformed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address() -> impl Strategy<Value = SocketAddr> {
        let ip = prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(|octets| IpAddr::from(octets).to_canonical()),
        ];
        (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
    }

    fn what() -> impl Strategy<Value = Type> {
        prop_oneof![Just(Type::Hello), Just(Type::HelloReply), Just(Type::Data), Just(Type::Ack), Just(Type::Report)]
    }

    fn encoded(datagram: &Datagram<'_>) -> Vec<u8> {
        let mut bytes = vec![9; 3];
        datagram.encode(&mut bytes);
        bytes
    }

    /// A datagram over two relays that is at the first one.
    fn example() -> Vec<u8> {
        let node = |last: u8| SocketAddr::from(([10, 0, 0, last], 4000));
        let route = Route::new(UNKNOWN_V4, [node(1), node(2)].into_iter(), node(3));
        let id = PacketId { index: 1, generation: 2 };
        encoded(&Datagram { what: Type::Data, packet: Packet::new(id, 0, Kind::Data, route), body: b"sealed" })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_unless_its_route_is_impossible(
            what in what(),
            nodes in proptest::collection::vec(address(), 3..=MAX_RELAYS + 2),
            position in 0..MAX_RELAYS + 2,
            (index, generation, proof) in any::<(u32, u32, u64)>(),
            body in proptest::collection::vec(any::<u8>(), 0..200),
            words in any::<[u32; MAX_RELAYS]>(),
        ) {
            let position = position % nodes.len();
            let route = Route::from_nodes(&nodes, position).unwrap();
            let (nonce, body) = if what == Type::Ack { (proof, &[][..]) } else { (0, &body[..]) };
            let mut telemetry = Telemetry::default();
            match what.kind() {
                Kind::Data => telemetry.round_trip_us = words[0],
                Kind::Ack => {
                    telemetry.arrived_us = words[0].rotate_left(7);
                    for (stamp, &word) in telemetry.stamps[..nodes.len() - 2].iter_mut().zip(&words) {
                        *stamp = Stamp::from_bits(word);
                    }
                }
            }
            let packet = Packet { id: PacketId { index, generation }, nonce, kind: what.kind(), route, telemetry };
            let datagram = Datagram { what, packet, body };
            let bytes = encoded(&datagram);
            let possible = problem_of(&nodes[1..]).is_none() && (what.kind() == Kind::Ack || position > 0);
            match decode(&bytes) {
                Ok(decoded) => prop_assert!(possible && decoded == datagram),
                Err(error) => prop_assert!(!possible && matches!(error, DecodeError::Malformed(_)), "{error}"),
            }
            prop_assert_eq!(bytes.len() - body.len(), header_len(what.kind(), &nodes) + if what == Type::Ack { 8 } else { 0 });
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_come_out_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(datagram) = decode(&bytes) {
                prop_assert_eq!(encoded(&datagram), bytes);
            }
        }

        #[test]
        fn a_damaged_datagram_is_refused_or_comes_out_the_same(place in 0usize..48, value: u8, cut in 0usize..60) {
            let mut bytes = example();
            bytes.truncate(cut.max(place + 1));
            if let Some(byte) = bytes.get_mut(place) {
                *byte = value;
            }
            if let Ok(datagram) = decode(&bytes) {
                prop_assert_eq!(encoded(&datagram), bytes);
            }
        }
    }

    #[test]
    fn each_kind_of_damage_has_its_name() {
        let good = example();
        assert!(decode(&good).is_ok());
        let damaged = |place: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[place] = value;
            decode(&bytes).unwrap_err()
        };
        assert_eq!(decode(&good[..20]), Err(DecodeError::Truncated));
        assert_eq!(decode(&[0; MAX_DATAGRAM + 1]), Err(DecodeError::Oversized));
        assert_eq!(damaged(0, b'X'), DecodeError::Foreign);
        assert_eq!(damaged(2, 7), DecodeError::UnknownVersion(7));
        assert_eq!(damaged(3, 0), DecodeError::Malformed("unknown type"));
        assert_eq!(damaged(4, 0), DecodeError::Malformed("position"));
        assert_eq!(damaged(4, 4), DecodeError::Malformed("position"));
        assert_eq!(damaged(5, 0), DecodeError::Malformed("number of relays"));
        assert_eq!(damaged(5, 9), DecodeError::Malformed("number of relays"));
        assert_eq!(damaged(14, 5), DecodeError::Malformed("address family"));
        assert_eq!(damaged(25, 2), DecodeError::Malformed("an address comes twice"));
        assert_eq!(damaged(22, 224), DecodeError::Malformed("an address of many hosts"));
    }

    #[test]
    fn what_is_not_readable_is_counted_by_its_reason() {
        let (mut unreadable, mut datagram) = (Unreadable::default(), OwnedDatagram::default());
        for bytes in [&b"AB"[..], &[0; 2000], b"hello world", b"AB\x09aaaaaaaaaaaaaaaaa"] {
            OwnedDatagram::count(datagram.read(bytes).unwrap_err(), &mut unreadable);
        }
        assert_eq!((unreadable.truncated, unreadable.oversized), (1, 1));
        assert_eq!((unreadable.foreign, unreadable.unknown_version, unreadable.total()), (1, 1, 4));
    }
}

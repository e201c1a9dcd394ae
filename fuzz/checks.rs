//! What must hold for any input of each decoder. Fuzz targets and an ordinary test
//! include this file, so that a short run needs neither nightly nor a sanitizer.

use std::net::SocketAddr;
use std::sync::OnceLock;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_net::loopback::NoFiles;
use anabranch_net::onion::association;
use anabranch_net::relay_list;
use anabranch_net::sessions::stream::{Inbound, MOST_MESSAGE};
use anabranch_net::stream::content::Signed;
use anabranch_net::stream::link::Link;
use anabranch_proto::coordination::wire as coordination_wire;
use anabranch_proto::flow::wire::{self as flow_wire, AckBytes, Body};
use anabranch_proto::flow::{AckPolicy, FlowReceiver};
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::machine::{Arrival, Wire};
use anabranch_proto::overlay::hello::{HelloBody, HelloReply};
use anabranch_proto::overlay::message::{Message, Offer, Report};
use anabranch_proto::overlay::packet::Kind;
use anabranch_proto::overlay::relay_node::{Handling, RelayNode};
use anabranch_proto::overlay::wire::{self, OwnedDatagram};
use anabranch_proto::seal::{self, Hello, Identity, SessionId};
use anabranch_proto::session::{PeerKey, WireLength};
use anabranch_proto::stream::content::{Broadcast, Content};
use anabranch_proto::stream::message::Datagram;
use anabranch_proto::stream::wire as stream_wire;
use anabranch_proto::transfer::{Limits, Receiver, Store, StoreError};

fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(Identity::generate)
}

/// A datagram that is read comes out the same, and a relay that forwards it sends
/// something that its neighbour can read, one hop further.
pub fn datagram(input: &[u8]) {
    let Ok(datagram) = wire::decode(input) else { return };
    let mut bytes = Vec::new();
    datagram.encode(&mut bytes);
    assert_eq!(bytes, input);
    let route = datagram.packet.route;
    let (nodes, position) = (route.nodes(), route.position());
    let neighbour: Option<SocketAddr> = match datagram.packet.kind {
        Kind::Data => nodes.get(position - 1).copied(),
        Kind::Ack => nodes.get(position + 1).copied(),
    };
    let model = LimitModel::Window { phase: Duration::ZERO };
    let mut relay = RelayNode::new(model, Rate::from_bytes_per_sec(1_000_000));
    let stranger = SocketAddr::from(([192, 0, 2, 1], 9));
    for from in [neighbour.unwrap_or(stranger), stranger] {
        let mut datagram = OwnedDatagram::default();
        datagram.read(input).expect("it was decoded before");
        let size = Bytes::new(input.len() as u64);
        if let Handling::Forward { to, .. } = relay.on_datagram(Time::ZERO, Arrival::new(from), &mut datagram, size) {
            assert_eq!(datagram.packet.route.position().abs_diff(position), 1);
            assert_eq!(to, datagram.packet.route.at());
            datagram.write(&mut bytes);
            assert_eq!(bytes.len(), input.len());
            assert_eq!(wire::decode(&bytes), Ok(datagram.borrow()));
        }
    }
}

/// A flow's packet that is read comes out the same; a receiver takes whatever data it
/// carries, and tells of it in an ACK that is read as it was meant.
pub fn flow_packet(input: &[u8]) {
    let Ok((label, body)) = flow_wire::decode(input) else { return };
    let bytes = match body {
        Body::Data(data, bytes) => {
            let mut receiver = FlowReceiver::new(AckPolicy { every: 1, ..AckPolicy::default() });
            receiver.on_data(Time::ZERO, &data, false);
            if let Some(ack) = receiver.poll_ack(Time::ZERO) {
                let answer = AckBytes::new(label, &ack).expect("it acknowledges a packet");
                let Ok((of, Body::Ack(short))) = flow_wire::decode(answer.as_slice()) else { panic!("no ACK") };
                assert_eq!((of, short.complete(data.number, 0)), (label, Ok(ack)));
            }
            [&flow_wire::data_header(label, &data)[..], bytes].concat()
        }
        Body::Ack(short) => {
            // Numbers near 0 are refused or told; those far from it are always told.
            let _ = short.complete(0, 0);
            let ack = short.complete(1 << 40, 1 << 40).expect("its ranges have room");
            AckBytes::new(label, &ack).expect("it has ranges").as_slice().to_vec()
        }
        Body::Syn(handshake) => flow_wire::syn(label, handshake).to_vec(),
        Body::SynAck(handshake) => flow_wire::syn_ack(label, handshake).to_vec(),
        Body::Close(nonce) => flow_wire::close(label, nonce).to_vec(),
    };
    assert_eq!(bytes, input);
}

/// Hellos and their replies from strangers, at a receiver that has places for half-open sessions, and at one
/// that has none left.
pub fn handshake(input: &[u8]) {
    for half_open in [Limits::default().half_open, 0] {
        hello(input, Limits { half_open, ..Limits::default() });
    }
    if let Some(HelloReply::Answer { answer, .. }) = HelloReply::decode(input) {
        assert!(Hello::new(Some(&identity().public()), None).complete(answer).is_err(), "a forged answer");
    }
}

fn hello(input: &[u8], limits: Limits) {
    let source = SocketAddr::from(([192, 0, 2, 1], 9)).ip();
    let mut receiver = Receiver::new(identity().clone(), limits);
    let mut out = Vec::new();
    if receiver.on_hello(Time::ZERO, source, input, &mut out) {
        assert!(out.len() <= input.len(), "an answer is no longer than the hello");
        let hello = HelloBody::decode(input).expect("it was answered");
        match HelloReply::decode(&out).expect("what is answered is read") {
            HelloReply::Answer { .. } => {
                assert!(limits.half_open > 0 && hello.cookie == [0; 16], "a place, and no cookie yet");
                assert_eq!((receiver.sessions(), receiver.half_open()), (1, 1));
            }
            HelloReply::Cookie { proof, cookie } => {
                assert_eq!((proof, receiver.sessions()), (hello.proof, 0), "nothing is remembered before");
                let mut again = Vec::new();
                HelloBody { cookie, ..hello }.encode(&mut again);
                out.clear();
                let is_answered = receiver.on_hello(Time::ZERO, source, &again, &mut out);
                assert_eq!((is_answered, receiver.sessions()), (!out.is_empty(), usize::from(is_answered)));
                assert!(out.len() <= again.len());
            }
        }
    }
    assert!(receiver.on_data(Time::ZERO, input, &mut out).is_none());
}

/// Messages and reports inside the seal come out the same.
pub fn message(input: &[u8]) {
    let mut out = Vec::new();
    if let Ok((proof, message)) = Message::decode(input) {
        message.encode(proof, &mut out);
        assert_eq!(Message::decode(&out), Ok((proof, message)));
    }
    if let Ok(report) = Report::decode(input) {
        report.encode(&mut out);
        let again = Report::decode(&out).expect("what was encoded is read");
        assert!(report.text.starts_with(again.text) && again.code == report.code);
    }
}

/// A receiver takes whatever a sender says: the input is cut into messages, each behind
/// its length in one byte.
pub fn receiver(input: &[u8]) {
    let (mut ours, theirs) = seal::local_session(identity());
    let limits = Limits { file_bytes: 1 << 16, blocks: 1 << 12, ..Limits::default() };
    let mut store = Memory(Vec::new());
    let mut receiver = Receiver::new(identity().clone(), limits);
    receiver.install(Time::ZERO, theirs);
    let mut rest = input;
    while let Some((&length, behind)) = rest.split_first() {
        let (message, behind) = behind.split_at(usize::from(length).min(behind.len()));
        rest = behind;
        let (mut sealed, mut reply) = (Vec::new(), Vec::new());
        ours.seal_data(message, &mut sealed);
        receiver.on_data(Time::ZERO, &sealed, &mut reply);
        while let Some(job) = receiver.next_job() {
            receiver.on_done(job.work(&mut store, &mut NoFiles));
        }
    }
    receiver.close_all(Time::ZERO, Duration::ZERO);
}

/// A stream's messages and datagrams, and its manifests, come out the same; what nobody has signed is never
/// taken for the source's.
pub fn stream(input: &[u8]) {
    let mut bytes = Vec::new();
    if let Ok(message) = stream_wire::read_message::<Signed>(input) {
        stream_wire::write_message(&message, &mut bytes);
        assert_eq!(bytes.len(), message.wire_length());
        let again = stream_wire::read_message::<Signed>(&bytes).expect("what was written is read");
        assert_eq!(format!("{again:?}"), format!("{message:?}"));
    }
    bytes.clear();
    if let Ok(datagram) = stream_wire::read_datagram::<Signed>(input) {
        stream_wire::write_datagram(&datagram, &mut bytes);
        // Whatever is wanted is counted from the first of it.
        if !matches!(datagram, Datagram::Want(_)) {
            assert_eq!(bytes, input);
            assert_eq!(bytes.len(), datagram.wire_length());
        }
        if let Datagram::Manifest(manifest) = &datagram {
            assert!(!Signed::is_signed(&PeerKey::default(), Broadcast(9), manifest));
        }
    }
}

/// What a coordinator and its agents tell each other comes out the same.
pub fn coordination(input: &[u8]) {
    let mut bytes = Vec::new();
    if let Ok(terms) = coordination_wire::read_message(input) {
        coordination_wire::write_message(&terms, &mut bytes);
        assert_eq!(bytes, input);
    }
    bytes.clear();
    if let Ok(datagram) = coordination_wire::read_datagram(input) {
        coordination_wire::write_datagram(&datagram, &mut bytes);
        assert_eq!(bytes, input);
        assert_eq!(bytes.len(), datagram.wire_length());
    }
}

/// What comes over a stream of messages, cut as the first bytes say.
pub fn session_stream(input: &[u8]) {
    let mut inbound = Inbound::default();
    let cut = input.first().map_or(1, |&cut| usize::from(cut) + 1);
    for part in input.chunks(cut) {
        inbound.push(part);
        while let Ok(Some(message)) = inbound.next_message() {
            assert!(message.len() <= MOST_MESSAGE);
        }
    }
}

/// Links to streams come out as they are printed.
pub fn stream_link(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(link) = text.parse::<Link>() {
        assert_eq!(link.to_string().parse(), Ok(link));
    }
}

/// Lists of relays.
pub fn relay_list(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match relay_list::parse(text) {
        Ok(relays) => {
            assert!(!relays.is_empty());
            assert!(relays.iter().all(|&relay| wire::problem_of_address(relay).is_none()));
        }
        Err(error) => assert!((1..=text.lines().count() + 1).contains(&error.line), "{error}"),
    }
}

/// One file in memory.
#[derive(Clone)]
struct Memory(Vec<u8>);

impl Store for Memory {
    fn create(&mut self, _: SessionId, offer: &Offer) -> Result<(), StoreError> {
        self.0 = vec![0; offer.length as usize];
        Ok(())
    }

    fn write(&mut self, _: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, _: SessionId, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        bytes.copy_from_slice(&self.0[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn publish(&mut self, _: SessionId, offer: &Offer) -> Result<String, StoreError> {
        Ok(offer.name.to_string())
    }

    fn discard(&mut self, _: SessionId) {
        self.0 = Vec::new();
    }
}

/// A program's datagram that is read can be told to a program, which reads the same.
pub fn socks_datagram(input: &[u8]) {
    let Some((target, bytes)) = association::read(input) else { return };
    let datagram = association::write(&target, bytes).expect("what can be asked for can be said");
    assert_eq!(association::read(&datagram), Some((target, bytes)));
}

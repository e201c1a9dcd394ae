//! The fuzz targets' corpus, and a short fuzz run that any compiler can do: each input of
//! the corpus is mutated a fixed number of times by a seeded generator.
//!
//! `UPDATE_CORPUS=1 cargo test -p anabranch-net --test fuzz_short` writes the corpus anew;
//! `FUZZ_ITERATIONS=1000000` makes the run longer, `FUZZ_SEED=2` another one, `FUZZ_TARGET=message` has it be
//! of that target alone.

#[path = "../../../fuzz/checks.rs"]
mod checks;
#[path = "../../../fuzz/session_checks.rs"]
mod session_checks;
#[path = "../../../fuzz/short_run.rs"]
mod short_run;

use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_net::sessions::stream::Outbound;
use anabranch_net::stream::content::Signed;
use anabranch_proto::coordination::message::{
    Actuator, Datagram as CoordinationDatagram, Directive, HostSeen, LinkSeen, Report as CoordinationReport, Seen,
    Terms,
};
use anabranch_proto::coordination::wire as coordination_wire;
use anabranch_proto::flow::wire::{self as flow_wire, AckBytes, Handshake, Label};
use anabranch_proto::flow::{Ack, AckRanges, Data};
use anabranch_proto::overlay::hello::{HelloBody, HelloReply};
use anabranch_proto::overlay::message::{FileName, Message, Offer};
use anabranch_proto::overlay::packet::{Packet, PacketId as PlacedPacket, Route};
use anabranch_proto::overlay::wire::{Datagram, Type};
use anabranch_proto::session::PeerKey;
use anabranch_proto::stream::content::{Broadcast, ClientId, Content, Manifest, Ticket};
use anabranch_proto::stream::gossip::Mass;
use anabranch_proto::stream::message::{
    Assignment, BufferMap, Children, Contact, Datagram as StreamDatagram, FeedReport, Message as StreamMessage, Mode,
    Parent, Report, SilentFeed, StreamInfo, Welcome,
};
use anabranch_proto::stream::overlay::{Happened, Happening, OverlayView, ViewerFigures, ViewerState};
use anabranch_proto::stream::packet::{PacketId, SliceSet, Stamp};
use anabranch_proto::stream::wire as stream_wire;
use short_run::Target;

fn targets() -> [Target; 13] {
    let target = |name, check, cost, own| Target { name, check, cost, own };
    [
        target("coordination", checks::coordination, 1, coordinations()),
        target("datagram", checks::datagram, 1, datagrams()),
        target("flow_packet", checks::flow_packet, 1, flow_packets()),
        target("handshake", checks::handshake, 20, handshakes()),
        target("message", checks::message, 1, messages()),
        target("receiver", checks::receiver, 20, conversations()),
        target("relay_list", checks::relay_list, 1, relay_lists()),
        target("sender", session_checks::sender, 100, against_senders()),
        target("session", session_checks::session, 200, sessions()),
        target("session_stream", checks::session_stream, 1, session_streams()),
        target("socks_datagram", checks::socks_datagram, 1, socks_datagrams()),
        target("stream", checks::stream, 1, streams()),
        target("stream_link", checks::stream_link, 1, stream_links()),
    ]
}

fn datagrams() -> Vec<(String, Vec<u8>)> {
    let v4 = |last: u8| SocketAddr::from(([10, 0, 0, last], 4000));
    let v6 = |last: u16| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, last], 4000));
    let routes = [
        ("v4", vec![v4(9), v4(1), v4(2), v4(3), v4(4)]),
        ("v6", vec![v6(9), v6(1), v6(2)]),
        ("mixed", vec![v4(9), v6(1), v4(2), v6(3)]),
    ];
    let types = [Type::Hello, Type::HelloReply, Type::Data, Type::Ack, Type::Report];
    let mut all = Vec::new();
    for (name, nodes) in &routes {
        for what in types {
            let route = Route::from_nodes(nodes, 1).expect("the route is possible");
            let id = PlacedPacket { index: 7, generation: 1 };
            let nonce = if what == Type::Ack { 42 } else { 0 };
            let packet = Packet::new(id, nonce, what.kind(), route);
            let body: &[u8] = if what == Type::Ack { &[] } else { &[5; 60] };
            let mut bytes = Vec::new();
            Datagram { what, packet, body }.encode(&mut bytes);
            all.push((format!("{name}-{what:?}").to_lowercase(), bytes));
        }
    }
    all
}

/// Each kind of address, by the RFC's picture (RFC 1928 7), and a piece of a datagram.
fn socks_datagrams() -> Vec<(String, Vec<u8>)> {
    let of =
        |fragment: u8, kind: u8, address: &[u8]| [&[0, 0, fragment, kind], address, &[0, 53], b"question"].concat();
    vec![
        ("v4".to_owned(), of(0, 1, &[192, 0, 2, 1])),
        ("v6".to_owned(), of(0, 4, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])),
        ("name".to_owned(), of(0, 3, b"\x0bexample.org")),
        ("address-as-name".to_owned(), of(0, 3, b"\x09192.0.2.1")),
        ("piece".to_owned(), of(1, 1, &[192, 0, 2, 1])),
    ]
}

/// Each kind of packet, and ACKs of one range and of all that fit.
fn flow_packets() -> Vec<(String, Vec<u8>)> {
    let label = Label { connection: 0x0102_0304, receiver: 5 };
    let data = |fin| Data { number: 9, offset: 10_000, length: 40, fin, push: false };
    let packet = |fin| [&flow_wire::data_header(label, &data(fin))[..], &[7; 40]].concat();
    let ack = |ranges: &[(u64, u64)]| {
        let ranges = AckRanges::new(ranges.iter().copied());
        let ack = Ack { ranges, delay: Duration::from_millis(3), ce_count: 2 };
        AckBytes::new(label, &ack).expect("it has ranges").as_slice().to_vec()
    };
    let handshake = Handshake { attempt: 1, nonce: *b"sixteen bytes ok" };
    vec![
        ("data".into(), packet(false)),
        ("end".into(), packet(true)),
        ("ack".into(), ack(&[(0, 9)])),
        ("ack-gaps".into(), ack(&[(50, 60), (40, 45), (20, 21), (3, 9)])),
        ("syn".into(), flow_wire::syn(label, handshake).to_vec()),
        ("syn-ack".into(), flow_wire::syn_ack(label, handshake).to_vec()),
        ("close".into(), flow_wire::close(label, handshake.nonce).to_vec()),
    ]
}

/// Hellos of each pattern, on points of the curve and with sealed ends that can't be right, and both
/// replies.
fn handshakes() -> Vec<(String, Vec<u8>)> {
    let hello = |pattern: u8, rest: usize, cookie: u8| {
        let opening = [&[pattern][..], &[9; 32], &vec![3; rest]].concat();
        let mut body = Vec::new();
        HelloBody { cookie: [cookie; 16], proof: 77, opening: &opening }.encode(&mut body);
        body
    };
    let reply = |reply: HelloReply<'_>| {
        let mut body = Vec::new();
        reply.encode(&mut body);
        body
    };
    vec![
        ("first".into(), hello(0, 0, 0)),
        ("nn".into(), hello(0, 0, 5)),
        ("nk".into(), hello(1, 16, 5)),
        ("ik".into(), hello(2, 64, 5)),
        ("reply".into(), reply(HelloReply::Answer { answer: &[9; 48], sealed: &[3; 32] })),
        ("cookie".into(), reply(HelloReply::Cookie { proof: 77, cookie: [5; 16] })),
    ]
}

/// Each as the decoders see it.
fn messages() -> Vec<(String, Vec<u8>)> {
    let hash = [0; 32];
    let offer = Offer { name: FileName::sanitised("photo.jpg"), length: 250, block: 100, hash };
    let blocks = [100usize, 100, 50].map(|length| vec![1; length]);
    let mut steps = vec![("offer".to_owned(), Message::Offer(offer))];
    for (bytes, index) in blocks.iter().zip(0..) {
        steps.push((format!("block-{index}"), Message::Block { index, bytes }));
    }
    steps.extend([
        ("finish".to_owned(), Message::Finish),
        ("close".to_owned(), Message::Close),
        ("filler".to_owned(), Message::Filler),
    ]);
    let name = FileName::sanitised(&format!(".{}", "n".repeat(250)));
    steps.push(("long-name".to_owned(), Message::Offer(Offer { name, length: 0, block: 1, hash })));
    let encoded = steps.into_iter().map(|(name, message)| {
        let mut bytes = Vec::new();
        message.encode(77, &mut bytes);
        (name, bytes)
    });
    encoded.collect()
}

/// All messages behind their lengths, and without the last block.
fn conversations() -> Vec<(String, Vec<u8>)> {
    let conversation = |without: &str| -> Vec<u8> {
        let said = messages().into_iter().filter(|(name, _)| name != without);
        said.flat_map(|(_, bytes)| [vec![u8::try_from(bytes.len()).unwrap_or(u8::MAX)], bytes].concat()).collect()
    };
    vec![("whole".into(), conversation("")), ("broken".into(), conversation("block-2"))]
}

/// What happens to a sender: a hello's answer, accepted, ACKs, reports with and without ranges.
fn against_senders() -> Vec<(String, Vec<u8>)> {
    let report = |code: u8, text: &str| [&[3, 0, code, text.len() as u8][..], text.as_bytes()].concat();
    let greeting = [[1, 0].to_vec(), [3, 0].to_vec()].concat();
    let acks = [2, 0, 2, 1, 2, 2, 2, 3].repeat(8);
    let end = report(3, "a");
    let with = |accepted: Vec<u8>| [&greeting[..], &accepted, &acks, &end].concat();
    vec![
        ("accepted".into(), with(report(0, ""))),
        ("resumed".into(), with(report(0, "0+5 7+3"))),
        ("lies".into(), [with(report(5, "0+20")), report(5, ""), acks.clone(), report(2, "")].concat()),
        ("waiting".into(), [&greeting[..], &report(6, ""), &report(6, "3"), &[0, 255], &report(1, "no")].concat()),
        ("silence".into(), [&greeting[..], &report(0, ""), &[0, 255, 0, 255, 0, 255, 0, 255]].concat()),
    ]
}

/// What happens in a session: all goes well, or somebody is started again in the middle.
fn sessions() -> Vec<(String, Vec<u8>)> {
    let going_on = |times: usize| vec![0u8; times];
    let with = |middle: &[u8]| [&[1], &going_on(5)[..], middle, &going_on(40)].concat();
    vec![
        ("whole".into(), with(&[])),
        ("sender-again".into(), with(&[14, 0, 8, 40])),
        ("receiver-again".into(), with(&[13, 0, 8, 120, 13, 1])),
        ("loss".into(), with(&[20, 20, 20, 20, 9, 1, 10, 0, 11, 3, 12, 0, 20, 3])),
        ("leave".into(), with(&[17, 0, 0, 15])),
        ("disk".into(), with(&[18, 20, 20, 11, 0, 16, 0, 18])),
    ]
}

/// Each kind of message and datagram between a coordinator and an agent.
fn coordinations() -> Vec<(String, Vec<u8>)> {
    let (at, period) = (Duration::from_millis(1234), Duration::from_millis(100));
    let report = |seen| CoordinationDatagram::Report(CoordinationReport { number: 7, at, period, seen });
    let host = HostSeen { flows: 3, sent: Bytes::new(1 << 20), rtt: Some(period), ..HostSeen::default() };
    let link = LinkSeen { capacity: Some(Rate::from_bits_per_sec(100_000_000)), dropped: 9, ..LinkSeen::default() };
    let directive = Directive {
        epoch: 2,
        number: 8,
        rate: Rate::from_bits_per_sec(5_000_000),
        minimum: Rate::ZERO,
        actuator: Actuator::Rate,
        lifetime: period,
    };
    let mut terms = Vec::new();
    coordination_wire::write_message(&Terms { epoch: 2, every: period }, &mut terms);
    let mut seeds = vec![("terms".to_owned(), terms)];
    for (name, datagram) in [
        ("host", report(Seen::Host(host))),
        ("link", report(Seen::Link(link))),
        ("directive", CoordinationDatagram::Directive(directive)),
    ] {
        let mut bytes = Vec::new();
        coordination_wire::write_datagram(&datagram, &mut bytes);
        seeds.push((name.to_owned(), bytes));
    }
    seeds
}

/// Messages of a stream behind their lengths, short and long.
fn session_streams() -> Vec<(String, Vec<u8>)> {
    let of = |lengths: &[usize]| {
        let mut out = Outbound::default();
        lengths.iter().for_each(|&length| assert!(out.push(|bytes| bytes.resize(length, 7))));
        out.next().to_vec()
    };
    vec![("short".into(), of(&[0, 1, 40, 300])), ("long".into(), of(&[16_383, 16_384, 3]))]
}

/// Each kind of message and datagram of a stream.
fn streams() -> Vec<(String, Vec<u8>)> {
    let (secret, key) = (PeerIdentity::from_secret([1; 32]), PeerKey([2; 32]));
    let (client, expires) = (ClientId(7), Stamp(60_000));
    let signature = Signed::sign_ticket(&secret, Broadcast(9), client, &key, expires);
    let ticket = Box::new(Ticket::<Signed> { client, key, expires, signature });
    let contact = |number: u32| {
        let address = SocketAddr::from(([192, 0, 2, number as u8], 7443));
        Contact { client: ClientId(number), address, key }
    };
    let info = StreamInfo {
        broadcast: Broadcast(9),
        mode: Mode::Hybrid,
        is_private: true,
        slices: 20,
        bitrate: Rate::from_bits_per_sec(2_000_000),
        begin: PacketId(100),
        edge: (PacketId(400), Stamp(9000)),
    };
    let parent = |slice, backup| Parent { slice, parent: Some(contact(3)), backups: [backup, None] };
    let assignment = Assignment {
        parents: vec![parent(0, Some(contact(4))), Parent { slice: 1, parent: None, backups: [None; 2] }],
        children: vec![Children { slice: 2, children: vec![ClientId(8), ClientId(9)] }],
        places: 12,
    };
    let feed = FeedReport { slice: 1, parent: Some(ClientId(3)), expected: 100, received: 99 };
    let (feeds, forgers) = (vec![feed], vec![ClientId(5)]);
    let report = Report { played: 5, skipped: 1, neighbours: 4, feeds, forgers, ..Report::default() };
    let silent = SilentFeed { slice: 3, parent: Some(ClientId(3)), asked: None, is_excused: true };
    let viewer = |number| ViewerFigures {
        client: ClientId(number),
        state: ViewerState::Late,
        is_private: number == 9,
        places: 20,
        children: 7,
        sent: Rate::from_bits_per_sec(2_000_000),
        capacity: Rate::ZERO,
        played: 5000,
        skipped: 60,
        delay: Some(Duration::from_millis(800)),
        round_trip: None,
    };
    let happening = Happening { ago: Duration::from_millis(1500), client: ClientId(4), what: Happened::Died };
    let view = OverlayView {
        viewers: vec![viewer(7), viewer(8), viewer(9)],
        trees: vec![vec![(ClientId(7), None), (ClientId(8), Some(ClientId(7)))]; 2],
        happenings: vec![happening],
        ..OverlayView::default()
    };
    let messages: Vec<StreamMessage<SocketAddr, Signed>> = vec![
        StreamMessage::Join { upload: Rate::from_bits_per_sec(5_000_000) },
        StreamMessage::Welcome(Box::new(Welcome { stream: info, sent: 190, ticket: (*ticket).clone() })),
        StreamMessage::Overloaded,
        StreamMessage::Ticket(ticket.clone()),
        StreamMessage::Assign(Box::new(assignment)),
        StreamMessage::Ping,
        StreamMessage::Pong,
        StreamMessage::Neighbours(vec![contact(5), contact(6)]),
        StreamMessage::Report(Box::new(report)),
        StreamMessage::Silent(vec![silent]),
        StreamMessage::Greet(ticket),
        StreamMessage::Subscribe { slices: SliceSet(5), from: PacketId(100) },
        StreamMessage::Unsubscribe(SliceSet(5)),
        StreamMessage::Full(SliceSet(1)),
        StreamMessage::Stalled(SliceSet(2)),
        StreamMessage::JoinPrivately,
        StreamMessage::WantOverlay,
        StreamMessage::Overlay(Box::new(view)),
        StreamMessage::Unanswered(client),
        StreamMessage::Caller(contact(5).address),
    ];
    let packet: Arc<[u8]> = vec![0x47; 188].into();
    let packets = [(Stamp(1), packet.clone()), (Stamp(2), packet.clone())];
    let proofs = Signed::prove(&secret, Broadcast(9), 3, PacketId(64), &packets);
    let map = BufferMap { base: PacketId(64), words: vec![u64::MAX, 1].into() };
    let datagrams: Vec<StreamDatagram<Signed>> = vec![
        StreamDatagram::Packet { id: PacketId(64), stamp: Stamp(1), packet },
        StreamDatagram::Manifest(Arc::new(Manifest { generation: 3, first: PacketId(64), packets: 2, proofs })),
        StreamDatagram::Have(Arc::new(map)),
        StreamDatagram::Want([70, 64, 69].map(PacketId).into()),
        StreamDatagram::WantManifests(PacketId(64), PacketId(127)),
        StreamDatagram::Mass(7, Mass { capacity: 6e5, idle: 1e5, received: 2e5, weight: 1.5 }),
    ];
    let mut inputs = Vec::new();
    for (number, message) in messages.iter().enumerate() {
        let mut bytes = Vec::new();
        stream_wire::write_message(message, &mut bytes);
        inputs.push((format!("message-{}", number + 1), bytes));
    }
    for (number, datagram) in datagrams.iter().enumerate() {
        let mut bytes = Vec::new();
        stream_wire::write_datagram(datagram, &mut bytes);
        inputs.push((format!("datagram-{}", number + 1), bytes));
    }
    inputs
}

fn stream_links() -> Vec<(String, Vec<u8>)> {
    let key = "9d".repeat(32);
    let v4 = format!("anabranch://{key}@192.0.2.1:7443");
    let both = format!("anabranch://{key}@[2001:db8::1]:7443,stream.example:1");
    let private = format!("{v4}/private");
    [("v4", v4), ("both", both), ("private", private)].map(|(name, text)| (name.into(), text.into())).into()
}

fn relay_lists() -> Vec<(String, Vec<u8>)> {
    let list = "[[relay]]\naddress = \"127.0.0.1:4000\"\n\n[[relay]]\naddress = \"[2001:db8::1]:4001\"\n";
    let inline = "relay = [{ address = \"10.0.0.1:1\" }, { address = \"10.0.0.2:65535\" }]\n";
    [("list", list), ("inline", inline), ("empty", "")].map(|(name, text)| (name.into(), text.into())).into()
}

#[test]
fn the_corpus_is_what_the_formats_say() {
    targets().iter().for_each(Target::check_corpus);
}

#[test]
fn mutated_inputs_break_no_rule() {
    targets().iter().for_each(Target::run);
}

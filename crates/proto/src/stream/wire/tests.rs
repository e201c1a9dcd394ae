use proptest::prelude::*;

use super::*;
use crate::session::WireLength;
use crate::stream::overlay::{
    DELAYS, Happened, Happening, MOST_HAPPENINGS, MOST_LISTED, OverlayView, ServerLoad, ViewerFigures, ViewerState,
};

/// Content with bytes and without meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plain;

impl Content for Plain {
    type Packet = Vec<u8>;
    type Proofs = Vec<u8>;
    type Signature = u32;
    type Secret = ();

    const SIGNATURE_LENGTH: usize = 4;

    fn public((): &()) -> PeerKey {
        PeerKey::default()
    }

    fn prove((): &(), _: Broadcast, _: u32, _: PacketId, packets: &[(Stamp, Vec<u8>)]) -> Vec<u8> {
        vec![0; packets.len()]
    }

    fn sign_ticket((): &(), _: Broadcast, _: ClientId, _: &PeerKey, _: Stamp) -> u32 {
        0
    }

    fn packet_length(packet: &Vec<u8>) -> usize {
        packet.len()
    }

    fn proofs_length(proofs: &Vec<u8>) -> usize {
        proofs.len()
    }

    fn is_signed(_: &PeerKey, _: Broadcast, _: &Manifest<Plain>) -> bool {
        true
    }

    fn is_genuine(_: &Manifest<Plain>, _: PacketId, _: Stamp, _: &Vec<u8>) -> bool {
        true
    }

    fn is_ticket(_: &PeerKey, _: Broadcast, _: &Ticket<Plain>) -> bool {
        true
    }
}

impl WireContent for Plain {
    fn write_packet(packet: &Vec<u8>, writer: &mut Writer<'_>) {
        writer.bytes(packet);
    }

    fn read_packet(bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
        Ok(bytes.to_vec())
    }

    fn write_proofs(proofs: &Vec<u8>, writer: &mut Writer<'_>) {
        writer.bytes(proofs);
    }

    fn read_proofs(packets: u16, reader: &mut Reader<'_>) -> Result<Vec<u8>, CodecError> {
        reader.bytes(usize::from(packets)).map(<[u8]>::to_vec)
    }

    fn write_signature(signature: &u32, writer: &mut Writer<'_>) {
        writer.u32(*signature);
    }

    fn read_signature(reader: &mut Reader<'_>) -> Result<u32, CodecError> {
        reader.u32()
    }
}

fn ids() -> impl Strategy<Value = PacketId> {
    any::<u64>().prop_map(PacketId)
}

fn clients() -> impl Strategy<Value = ClientId> {
    any::<u32>().prop_map(ClientId)
}

fn rates() -> impl Strategy<Value = Rate> {
    any::<u64>().prop_map(Rate::from_bits_per_sec)
}

fn slice_sets() -> impl Strategy<Value = SliceSet> {
    any::<u64>().prop_map(SliceSet)
}

fn tickets() -> impl Strategy<Value = Ticket<Plain>> {
    (clients(), any::<[u8; 32]>(), any::<u32>(), any::<u32>()).prop_map(|(client, key, expires, signature)| Ticket {
        client,
        key: PeerKey(key),
        expires: Stamp(expires),
        signature,
    })
}

fn contacts() -> impl Strategy<Value = Contact<SocketAddr>> {
    let v4 = any::<([u8; 4], u16)>().prop_map(SocketAddr::from);
    // An address that stands for one of IPv4 comes out as that.
    let v6 = any::<([u8; 16], u16)>().prop_map(|(ip, port)| SocketAddr::new(IpAddr::from(ip).to_canonical(), port));
    (clients(), prop_oneof![v4, v6], any::<[u8; 32]>()).prop_map(|(client, address, key)| Contact {
        client,
        address,
        key: PeerKey(key),
    })
}

fn streams() -> impl Strategy<Value = StreamInfo> {
    let modes = prop_oneof![Just(Mode::Trees), Just(Mode::Mesh), Just(Mode::Hybrid)];
    (modes, any::<bool>(), 1..=MAX_SLICES, rates(), ids(), ids(), any::<u32>(), any::<u64>()).prop_map(
        |(mode, is_private, slices, bitrate, begin, edge, stamp, broadcast)| StreamInfo {
            broadcast: Broadcast(broadcast),
            mode,
            is_private,
            slices,
            bitrate,
            begin,
            edge: (edge, Stamp(stamp)),
        },
    )
}

/// Parents and backups of a few clients, each of whom has one address: as a server names them.
fn parents() -> impl Strategy<Value = Vec<Parent<SocketAddr>>> {
    let most = usize::from(MAX_SLICES);
    let which = || prop::option::of(any::<prop::sample::Index>());
    let parent = (0..MAX_SLICES, which(), which(), which());
    let clients = prop::collection::vec(contacts(), 1..=3 * most);
    (clients, prop::collection::vec(parent, 0..=most)).prop_map(|(mut clients, parents)| {
        (0..).zip(&mut clients).for_each(|(number, contact)| contact.client = ClientId(number));
        let contact = |which: Option<prop::sample::Index>| which.map(|which| *which.get(&clients));
        let parent = |(slice, parent, first, second)| Parent {
            slice,
            parent: contact(parent),
            backups: [contact(first), contact(second)],
        };
        parents.into_iter().map(parent).collect()
    })
}

fn assignments() -> impl Strategy<Value = Assignment<SocketAddr>> {
    let children = (0..MAX_SLICES, prop::collection::vec(clients(), 0..20))
        .prop_map(|(slice, children)| Children { slice, children });
    let most = usize::from(MAX_SLICES);
    (parents(), prop::collection::vec(children, 0..=most), any::<u16>())
        .prop_map(|(parents, children, places)| Assignment { parents, children, places })
}

fn reports() -> impl Strategy<Value = Report> {
    let feed = (0..MAX_SLICES, prop::option::of(clients()), any::<[u16; 2]>())
        .prop_map(|(slice, parent, [expected, received])| FeedReport { slice, parent, expected, received });
    let feeds = prop::collection::vec(feed, 0..=usize::from(MAX_SLICES));
    let forgers = prop::collection::vec(clients(), 0..=MOST_AT_ONCE);
    let delay = prop::option::of((0..u32::MAX).prop_map(|ms| Duration::from_millis(u64::from(ms))));
    (rates(), rates(), any::<(u64, u64, u8)>(), delay, feeds, forgers).prop_map(
        |(capacity, sent, (played, skipped, neighbours), delay, feeds, forgers)| Report {
            capacity,
            sent,
            played,
            skipped,
            delay,
            neighbours,
            feeds,
            forgers,
        },
    )
}

fn views() -> impl Strategy<Value = OverlayView> {
    let rate = || any::<u32>().prop_map(|kilobits| Rate::from_bits_per_sec(1000 * u64::from(kilobits)));
    let time = || prop::option::of((0..u16::MAX).prop_map(|ms| Duration::from_millis(u64::from(ms))));
    let viewer = (prop::sample::select(&ViewerState::ALL[..]), any::<(bool, u16, u16, u64, u64)>(), rate(), rate());
    let viewer = (any::<u32>(), viewer, time(), time()).prop_map(|(client, figures, delay, round_trip)| {
        let (state, (is_private, places, children, played, skipped), sent, capacity) = figures;
        let client = ClientId(client);
        ViewerFigures {
            client,
            state,
            is_private,
            places,
            children,
            sent,
            capacity,
            played,
            skipped,
            delay,
            round_trip,
        }
    });
    let viewers = prop::collection::vec(viewer, 0..=MOST_LISTED + MOST_HAPPENINGS).prop_map(|mut viewers| {
        viewers.sort_by_key(|viewer| viewer.client);
        viewers.dedup_by_key(|viewer| viewer.client);
        viewers
    });
    let happening =
        (0..u16::MAX, clients(), prop::sample::select(&Happened::ALL[..])).prop_map(|(tenths, client, what)| {
            Happening { ago: Duration::from_millis(100 * u64::from(tenths)), client, what }
        });
    let happenings = prop::collection::vec(happening, 0..=MOST_HAPPENINGS);
    let counts = any::<(u64, u64, u32, u64, u32, [u32; DELAYS.len() + 1])>();
    // Of each slice, each viewer's parent: any of them, the server, or nobody.
    let parents = prop::collection::vec(any::<u16>(), 0..=usize::from(MAX_SLICES));
    (rates(), counts, viewers, parents, happenings).prop_map(|(sent, counts, viewers, seeds, happenings)| {
        let (sent_bytes, source_bytes, server_children, delivered_bytes, watching, delays) = counts;
        let parent = |seed: usize, child: usize| match (seed + 7 * child) % (viewers.len() + 2) {
            place if place < viewers.len() => Some(Some(viewers[place].client)),
            place => (place == viewers.len()).then_some(None),
        };
        let tree = |seed: u16| {
            let edge =
                |(place, child): (usize, &ViewerFigures)| Some((child.client, parent(usize::from(seed), place)?));
            viewers.iter().enumerate().filter_map(edge).collect()
        };
        let trees = seeds.into_iter().map(tree).collect();
        let load = ServerLoad { sent, sent_bytes, source_bytes };
        OverlayView { load, server_children, delivered_bytes, watching, delays, viewers, trees, happenings }
    })
}

fn messages() -> impl Strategy<Value = Message<SocketAddr, Plain>> {
    let silent = (0..MAX_SLICES, prop::option::of(clients()), prop::option::of(clients()), any::<bool>())
        .prop_map(|(slice, parent, asked, is_excused)| SilentFeed { slice, parent, asked, is_excused });
    prop_oneof![
        rates().prop_map(|upload| Message::Join { upload }),
        (streams(), any::<u16>(), tickets()).prop_map(|(stream, sent, ticket)| Message::Welcome(Box::new(Welcome {
            stream,
            sent,
            ticket
        }))),
        Just(Message::Overloaded),
        tickets().prop_map(|ticket| Message::Ticket(Box::new(ticket))),
        assignments().prop_map(|assignment| Message::Assign(Box::new(assignment))),
        Just(Message::Ping),
        Just(Message::Pong),
        prop::collection::vec(contacts(), 0..=MOST_AT_ONCE).prop_map(Message::Neighbours),
        reports().prop_map(|report| Message::Report(Box::new(report))),
        prop::collection::vec(silent, 0..=usize::from(MAX_SLICES)).prop_map(Message::Silent),
        tickets().prop_map(|ticket| Message::Greet(Box::new(ticket))),
        (slice_sets(), ids()).prop_map(|(slices, from)| Message::Subscribe { slices, from }),
        slice_sets().prop_map(Message::Unsubscribe),
        slice_sets().prop_map(Message::Full),
        slice_sets().prop_map(Message::Stalled),
        (any::<u32>(), prop::option::of(contacts()))
            .prop_map(|(chain, next)| Message::Chain(Box::new(ChainLink { chain, next }))),
        any::<u32>().prop_map(Message::Explored),
        Just(Message::JoinPrivately),
        Just(Message::WantOverlay),
        clients().prop_map(Message::Unanswered),
        contacts().prop_map(|contact| Message::Caller(contact.address)),
        views().prop_map(|view| Message::Overlay(Box::new(view))),
    ]
}

fn datagrams() -> impl Strategy<Value = Datagram<Plain>> {
    let wanted = (0..u64::MAX - 0xffff, prop::collection::vec(any::<u16>(), 0..=MAX_WANTED));
    prop_oneof![
        (ids(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..1400))
            .prop_map(|(id, stamp, packet)| Datagram::Packet { id, stamp: Stamp(stamp), packet }),
        (any::<u32>(), ids(), 1..=MAX_GENERATION).prop_map(|(generation, first, packets)| {
            let proofs = vec![7; usize::from(packets)];
            Datagram::Manifest(Arc::new(Manifest { generation, first, packets, proofs }))
        }),
        (ids(), 0..=20_usize, prop::collection::vec(any::<u64>(), 0..=MOST_MAP_WORDS - 20)).prop_map(
            |(base, whole, words)| {
                let words = std::iter::repeat_n(u64::MAX, whole).chain(words).collect();
                Datagram::Have(Arc::new(BufferMap { base, words }))
            }
        ),
        wanted.prop_map(|(base, offsets)| {
            Datagram::Want(offsets.iter().map(|&offset| PacketId(base + u64::from(offset))).collect())
        }),
        (ids(), ids()).prop_map(|(first, last)| Datagram::WantManifests(first, last)),
        (any::<[u32; 3]>(), ids(), prop::collection::vec(any::<u8>(), 0..1400)).prop_map(
            |([chain, nonce, stamp], id, packet)| Datagram::Explore { chain, nonce, id, stamp: Stamp(stamp), packet }
        ),
        (any::<u32>(), 1e-6..1e4, prop::array::uniform3(0.0..=1.0)).prop_map(|(epoch, weight, [can, idle, got])| {
            // What can be: at most ten gigabits for each peer that it weighs.
            let most = 1.25e9 * weight;
            let capacity = can * most;
            Datagram::Mass(epoch, Mass { capacity, idle: idle * capacity, received: got * most, weight })
        }),
    ]
}

proptest! {
    #[test]
    fn every_message_is_read_as_it_was_written_and_as_long_as_it_says(message in messages()) {
        let mut bytes = Vec::new();
        write_message(&message, &mut bytes);
        prop_assert_eq!(bytes.len(), message.wire_length(), "{:?}", message);
        let read = read_message::<Plain>(&bytes);
        prop_assert_eq!(format!("{read:?}"), format!("{:?}", Ok::<_, CodecError>(message)));
        bytes.push(0);
        prop_assert!(read_message::<Plain>(&bytes).is_err(), "a byte too many");
        bytes.truncate(bytes.len() - 2);
        prop_assert!(read_message::<Plain>(&bytes).is_err(), "a byte too few");
    }

    #[test]
    fn every_datagram_is_read_as_it_was_written_and_as_long_as_it_says(datagram in datagrams()) {
        let mut bytes = Vec::new();
        write_datagram(&datagram, &mut bytes);
        prop_assert_eq!(bytes.len(), datagram.wire_length(), "{:?}", datagram);
        let read = read_datagram::<Plain>(&bytes);
        prop_assert_eq!(format!("{read:?}"), format!("{:?}", Ok::<_, CodecError>(datagram)));
    }
}

#[test]
fn who_is_named_for_many_slices_takes_its_address_once() {
    let contact = |number| Contact { client: ClientId(number), address: (number, 1), key: PeerKey::default() };
    let parent = |slice| Parent { slice, parent: Some(contact(7)), backups: [Some(contact(8)), Some(contact(9))] };
    let parents = (0..20).map(parent).collect();
    let assignment = Assignment { parents, children: Vec::new(), places: 20 };
    let message: Message<(u32, u16), Plain> = Message::Assign(Box::new(assignment));
    // Three contacts of 54 bytes, and for each slice 2 bytes and one for each of the three.
    assert_eq!(message.wire_length(), 1 + 2 + 2 + 1 + 3 * 54 + 20 * 5);
}

#[test]
fn what_is_beyond_its_bounds_is_refused() {
    let refused = |bytes: &[u8]| read_message::<Plain>(bytes).unwrap_err();
    assert_eq!(refused(&[]), CodecError::Short);
    assert_eq!(refused(&[0]), CodecError::Value("message"));
    assert_eq!(refused(&[23]), CodecError::Value("message"));
    let view = |viewers: u16, slices: u8, rest: &[u8]| {
        let head = [&[20][..], &[0; 40 + 4 * 8], &viewers.to_be_bytes(), &[slices, 0]].concat();
        refused(&[&head, rest].concat())
    };
    let most = (MOST_LISTED + MOST_HAPPENINGS) as u16;
    assert_eq!(view(most + 1, 0, &[]), CodecError::TooMany("viewers"));
    assert_eq!(view(most, 1, &[]), CodecError::Short, "no memory for what is not there");
    assert_eq!(view(0, MAX_SLICES + 1, &[]), CodecError::TooMany("slices"));
    let viewer = |client: u32, state| [&client.to_be_bytes()[..], &[state], &[0; 32]].concat();
    assert_eq!(view(1, 0, &viewer(1, 5)), CodecError::Value("state"));
    assert_eq!(view(2, 0, &[viewer(2, 0), viewer(2, 0)].concat()), CodecError::Value("client"));
    assert_eq!(view(1, 1, &[&viewer(1, 0)[..], &[0, 1]].concat()), CodecError::Value("parent"));
    assert_eq!(refused(&[3, 0]), CodecError::Trailing);
    assert_eq!(refused(&[5, 0, 0, 3 * MAX_SLICES + 1, 0, 0]), CodecError::TooMany("contacts"));
    assert_eq!(refused(&[5, 0, 0, 3 * MAX_SLICES, 0, 0]), CodecError::Short, "no memory for what is not there");
    let contact = |address: u8| [&[0, 0, 0, 7][..], &[address; 18], &[0; 32]].concat();
    let twice = [&[5, 0, 0, 2, 0, 0][..], &contact(1), &contact(2)].concat();
    assert_eq!(refused(&twice), CodecError::Value("client"), "somebody has two addresses");
    assert_eq!(refused(&[5, 0, 0, 0, MAX_SLICES + 1, 0]), CodecError::TooMany("parents"));
    assert_eq!(refused(&[5, 0, 0, 0, 1, 0, MAX_SLICES, 0]), CodecError::Value("slice"));
    assert_eq!(refused(&[5, 0, 0, 0, 1, 0, 0, 8]), CodecError::Value("contacts"));
    assert_eq!(refused(&[5, 0, 0, 0, 1, 0, 0, 1, 0]), CodecError::Value("contact"), "nobody is named");
    assert_eq!(refused(&[5, 0, 0, 0, 0, 1, 0, 0xff, 0xff]), CodecError::TooMany("children"));
    assert_eq!(refused(&[8, 255]), CodecError::Short, "no memory for what is not there");
    assert_eq!(refused(&[10, MAX_SLICES + 1]), CodecError::TooMany("silent"));
    assert_eq!(refused(&[&[2, 3, 1][..], &[0; 80]].concat()), CodecError::Value("mode"));
    assert_eq!(refused(&[&[2, 2, 0][..], &[0; 80]].concat()), CodecError::Value("slices"));
    let refused = |bytes: &[u8]| read_datagram::<Plain>(bytes).unwrap_err();
    assert_eq!(refused(&[8]), CodecError::Value("datagram"));
    assert_eq!(refused(&[&[7][..], &[0; 36]].concat()), CodecError::Value("mass"), "of nobody");
    assert_eq!(refused(&[&[2][..], &[0; 14]].concat()), CodecError::Value("packets"));
    assert_eq!(refused(&[&[2][..], &[0; 12], &[1, 0], &[0; 256]].concat()), CodecError::Value("packets"));
    assert_eq!(refused(&[&[3][..], &[0; 8 + 1 + 8 * (MOST_MAP_WORDS + 1)]].concat()), CodecError::TooMany("words"));
    let most = MOST_MAP_WORDS as u8;
    assert_eq!(refused(&[&[3][..], &[0; 8], &[most + 1]].concat()), CodecError::TooMany("words"));
    assert_eq!(refused(&[&[3][..], &[0; 8], &[most], &[0; 8]].concat()), CodecError::TooMany("words"));
    assert_eq!(refused(&[&[3][..], &[0; 8], &[1], &[255; 8]].concat()), CodecError::Value("words"), "it is whole, too");
    assert_eq!(refused(&[&[3][..], &[0; 8 + 1 + 7]].concat()), CodecError::Short);
    assert_eq!(refused(&[&[4][..], &[0; 8 + 2 * (MAX_WANTED + 1)]].concat()), CodecError::TooMany("wanted"));
}

//! A stream's messages and datagrams as bytes. Each begins with a tag; whatever carries it says
//! how long it is. Integers are big-endian; a set of slices is a word with a bit for each.
//!
//! ```text
//! datagrams                                       messages
//!  1 packet         id 8, stamp 4, bytes           1 join         upload 8
//!  2 manifest       generation 4, first 8,         2 welcome      mode 1, slices 1, bitrate 8, begin 8,
//!                   packets 2, proofs                             edge 8 + 4, ticket
//!  3 have           base 8, words 8 each           3 overloaded
//!  4 want           base 8, offsets 2 each         4 ticket       ticket
//!  5 want manifests first 8, last 8                5 assign       places 2, counts 1 + 1; each parent: slice 1,
//!                                                                 which 1, up to 3 contacts; each slice's
//! contact: client 4, address 16, port 2, key 32                   children: slice 1, count 2, clients 4 each
//! ticket: client 4, key 32, expires 4, signature   6 ping, 7 pong
//!                                                  8 neighbours   count 1, contacts
//! An IPv4 address is written as the IPv6 address   9 report       capacity 8, sent 8, played 8, skipped 8,
//! that stands for it (RFC 4291, 2.5.5.2).                         neighbours 1; count 1, each feed: slice 1,
//!                                                                 which 1, client 4, expected 2, received 2;
//!                                                                 count 1, forgers: clients 4 each
//!                                                 10 silent       count 1; each: slice 1, which 1, parent 4, asked 4
//!                                                 11 greet        ticket
//!                                                 12 subscribe    slices 8, from 8
//!                                                 13 unsubscribe, 14 full, 15 stalled: slices 8
//!  6 explore        chain 4, nonce 4, id 8,       16 chain        chain 4, which 1, next contact
//!                   stamp 4, bytes                17 explored     nonce 4
//!  7 mass           epoch 4, capacity 8, idle 8,
//!                   received 8, weight 8, each an
//!                   IEEE 754 binary64
//! The mode of a stream whose viewers are          18 join privately, 19 want overlay
//! private has its highest bit set.                20 overlay: see wire/overlay.rs
//! ```

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::collections::BTreeSet;
use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;

use super::content::{Broadcast, ClientId, Content, MAX_GENERATION, Manifest, Ticket};
use super::gossip::Mass;
use super::message::{
    Assignment, BufferMap, ChainLink, Children, Contact, Datagram, FeedReport, MAX_WANTED, Message, Mode, Parent,
    Report, SilentFeed, StreamInfo, Welcome,
};
use super::packet::{MAX_SLICES, PacketId, SliceSet, Stamp};
use crate::codec::{CodecError, Reader, Writer};
use crate::session::PeerKey;

mod overlay;

/// Words of a map that are read: what a datagram carries, ten thousand packets.
pub const MOST_MAP_WORDS: usize = 160;

/// Children of one slice that a client is told: more than any uplink bears.
pub const MOST_CHILDREN: usize = 1024;

/// Contacts that are told at once, and forgers that are reported at once.
pub const MOST_AT_ONCE: usize = u8::MAX as usize;

/// The bit of a mode that says that all viewers are private.
const PRIVATE: u8 = 0x80;

/// Content that has bytes.
pub trait WireContent: Content {
    /// Appends a packet's bytes, [`Content::packet_length`] of them.
    fn write_packet(packet: &Self::Packet, writer: &mut Writer<'_>);

    /// The packet that `bytes` are.
    ///
    /// # Errors
    ///
    /// When no source sends such a packet.
    fn read_packet(bytes: &[u8]) -> Result<Self::Packet, CodecError>;

    /// Appends proofs, [`Content::proofs_length`] bytes.
    fn write_proofs(proofs: &Self::Proofs, writer: &mut Writer<'_>);

    /// The proofs of this many packets.
    ///
    /// # Errors
    ///
    /// When these are none.
    fn read_proofs(packets: u16, reader: &mut Reader<'_>) -> Result<Self::Proofs, CodecError>;

    /// Appends a signature, [`Content::SIGNATURE_LENGTH`] bytes.
    fn write_signature(signature: &Self::Signature, writer: &mut Writer<'_>);

    /// A signature.
    ///
    /// # Errors
    ///
    /// When this is none.
    fn read_signature(reader: &mut Reader<'_>) -> Result<Self::Signature, CodecError>;
}

/// Appends `datagram` to `out`. Packets that are wanted are within 2^16 of the first of them; others are
/// left out, since nobody holds more than 2^16.
pub fn write_datagram<C: WireContent>(datagram: &Datagram<C>, out: &mut Vec<u8>) {
    let writer = &mut Writer::new(out);
    match datagram {
        Datagram::Packet { id, stamp, packet } => {
            writer.u8(1);
            writer.u64(id.0);
            writer.u32(stamp.0);
            C::write_packet(packet, writer);
        }
        Datagram::Manifest(manifest) => {
            writer.u8(2);
            writer.u32(manifest.generation);
            writer.u64(manifest.first.0);
            writer.u16(manifest.packets);
            C::write_proofs(&manifest.proofs, writer);
        }
        Datagram::Have(map) => {
            writer.u8(3);
            writer.u64(map.base.0);
            let whole = map.whole_words().min(MOST_MAP_WORDS);
            writer.u8(whole as u8);
            map.words.iter().take(MOST_MAP_WORDS).skip(whole).for_each(|&word| writer.u64(word));
        }
        Datagram::Want(ids) => {
            let base = ids.iter().min().copied().unwrap_or_default();
            writer.u8(4);
            writer.u64(base.0);
            let offsets = ids.iter().filter_map(|id| u16::try_from(id.since(base)).ok());
            offsets.take(MAX_WANTED).for_each(|offset| writer.u16(offset));
        }
        Datagram::WantManifests(first, last) => {
            writer.u8(5);
            writer.u64(first.0);
            writer.u64(last.0);
        }
        Datagram::Explore { chain, nonce, id, stamp, packet } => {
            writer.u8(6);
            writer.u32(*chain);
            writer.u32(*nonce);
            writer.u64(id.0);
            writer.u32(stamp.0);
            C::write_packet(packet, writer);
        }
        Datagram::Mass(epoch, mass) => {
            writer.u8(7);
            writer.u32(*epoch);
            let Mass { capacity, idle, received, weight } = mass;
            [capacity, idle, received, weight].into_iter().for_each(|value| writer.u64(value.to_bits()));
        }
    }
}

/// The datagram that `bytes` are.
///
/// # Errors
///
/// When no peer sends them.
pub fn read_datagram<C: WireContent>(bytes: &[u8]) -> Result<Datagram<C>, CodecError> {
    let mut reader = Reader::new(bytes);
    let datagram = match reader.u8()? {
        1 => {
            let (id, stamp) = (packet_id(&mut reader)?, Stamp(reader.u32()?));
            Datagram::Packet { id, stamp, packet: C::read_packet(reader.rest())? }
        }
        2 => {
            let (generation, first) = (reader.u32()?, packet_id(&mut reader)?);
            let packets = reader.u16()?;
            if packets == 0 || packets > MAX_GENERATION {
                return Err(CodecError::Value("packets"));
            }
            let proofs = C::read_proofs(packets, &mut reader)?;
            Datagram::Manifest(Arc::new(Manifest { generation, first, packets, proofs }))
        }
        3 => {
            let base = packet_id(&mut reader)?;
            let whole = usize::from(reader.u8()?);
            let most = MOST_MAP_WORDS.checked_sub(whole).ok_or(CodecError::TooMany("words"))?;
            let words = reader.count("words", reader.left().div_ceil(8), most, 8)?;
            let words = (0..whole).map(|_| Ok(u64::MAX)).chain((0..words).map(|_| reader.u64()));
            let words: Box<[u64]> = words.collect::<Result<_, _>>()?;
            if words.get(whole) == Some(&u64::MAX) {
                return Err(CodecError::Value("words"));
            }
            Datagram::Have(Arc::new(BufferMap { base, words }))
        }
        4 => {
            let base = packet_id(&mut reader)?;
            let wanted = reader.count("wanted", reader.left().div_ceil(2), MAX_WANTED, 2)?;
            let offset = |_| reader.u16().map(|offset| base.after(u64::from(offset)));
            Datagram::Want((0..wanted).map(offset).collect::<Result<_, _>>()?)
        }
        5 => Datagram::WantManifests(packet_id(&mut reader)?, packet_id(&mut reader)?),
        6 => {
            let (chain, nonce) = (reader.u32()?, reader.u32()?);
            let (id, stamp) = (packet_id(&mut reader)?, Stamp(reader.u32()?));
            Datagram::Explore { chain, nonce, id, stamp, packet: C::read_packet(reader.rest())? }
        }
        7 => {
            let epoch = reader.u32()?;
            let mut value = || reader.u64().map(f64::from_bits);
            let mass = Mass { capacity: value()?, idle: value()?, received: value()?, weight: value()? };
            if !mass.is_possible() {
                return Err(CodecError::Value("mass"));
            }
            Datagram::Mass(epoch, mass)
        }
        _ => return Err(CodecError::Value("datagram")),
    };
    reader.end()?;
    Ok(datagram)
}

/// Appends `message` to `out`.
pub fn write_message<C: WireContent>(message: &Message<SocketAddr, C>, out: &mut Vec<u8>) {
    let writer = &mut Writer::new(out);
    match message {
        Message::Join { upload } => {
            writer.u8(1);
            writer.u64(upload.bits_per_sec());
        }
        Message::Welcome(welcome) => {
            writer.u8(2);
            write_stream(&welcome.stream, writer);
            writer.u16(welcome.sent);
            write_ticket(&welcome.ticket, writer);
        }
        Message::Overloaded => writer.u8(3),
        Message::Ticket(ticket) => {
            writer.u8(4);
            write_ticket(ticket, writer);
        }
        Message::Assign(assignment) => {
            writer.u8(5);
            write_assignment(assignment, writer);
        }
        Message::Ping => writer.u8(6),
        Message::Pong => writer.u8(7),
        Message::Neighbours(contacts) => {
            let contacts = &contacts[..contacts.len().min(MOST_AT_ONCE)];
            writer.u8(8);
            writer.u8(contacts.len() as u8);
            contacts.iter().for_each(|contact| write_contact(contact, writer));
        }
        Message::Report(report) => {
            writer.u8(9);
            write_report(report, writer);
        }
        Message::Silent(feeds) => {
            let feeds = &feeds[..feeds.len().min(usize::from(MAX_SLICES))];
            writer.u8(10);
            writer.u8(feeds.len() as u8);
            for feed in feeds {
                let which = [feed.parent.is_some(), feed.asked.is_some(), feed.is_excused];
                writer.u8(feed.slice);
                writer.u8(flags(which));
                writer.u32(feed.parent.unwrap_or_default().0);
                writer.u32(feed.asked.unwrap_or_default().0);
            }
        }
        Message::Greet(ticket) => {
            writer.u8(11);
            write_ticket(ticket, writer);
        }
        Message::Subscribe { slices, from } => {
            writer.u8(12);
            writer.u64(slices.0);
            writer.u64(from.0);
        }
        Message::Unsubscribe(slices) => {
            writer.u8(13);
            writer.u64(slices.0);
        }
        Message::Full(slices) => {
            writer.u8(14);
            writer.u64(slices.0);
        }
        Message::Stalled(slices) => {
            writer.u8(15);
            writer.u64(slices.0);
        }
        Message::Chain(link) => {
            writer.u8(16);
            writer.u32(link.chain);
            writer.u8(flags([link.next.is_some(), false, false]));
            link.next.iter().for_each(|next| write_contact(next, writer));
        }
        Message::Explored(nonce) => {
            writer.u8(17);
            writer.u32(*nonce);
        }
        Message::JoinPrivately => writer.u8(18),
        Message::WantOverlay => writer.u8(19),
        Message::Overlay(view) => {
            writer.u8(20);
            overlay::write(view, writer);
        }
        Message::Unanswered(client) => {
            writer.u8(21);
            writer.u32(client.0);
        }
        Message::Caller(address) => {
            writer.u8(22);
            write_address(*address, writer);
        }
    }
}

/// The message that `bytes` are.
///
/// # Errors
///
/// When no peer sends them.
pub fn read_message<C: WireContent>(bytes: &[u8]) -> Result<Message<SocketAddr, C>, CodecError> {
    let mut reader = Reader::new(bytes);
    let message = match reader.u8()? {
        1 => Message::Join { upload: rate(&mut reader)? },
        2 => {
            let stream = read_stream(&mut reader)?;
            let sent = reader.u16()?;
            Message::Welcome(Box::new(Welcome { stream, sent, ticket: read_ticket(&mut reader)? }))
        }
        3 => Message::Overloaded,
        4 => Message::Ticket(Box::new(read_ticket(&mut reader)?)),
        5 => Message::Assign(Box::new(read_assignment(&mut reader)?)),
        6 => Message::Ping,
        7 => Message::Pong,
        8 => {
            let count = usize::from(reader.u8()?);
            let count = reader.count("neighbours", count, MOST_AT_ONCE, CONTACT)?;
            Message::Neighbours((0..count).map(|_| read_contact(&mut reader)).collect::<Result<_, _>>()?)
        }
        9 => Message::Report(Box::new(read_report(&mut reader)?)),
        10 => {
            let count = usize::from(reader.u8()?);
            let count = reader.count("silent", count, usize::from(MAX_SLICES), SILENT)?;
            Message::Silent((0..count).map(|_| read_silent(&mut reader)).collect::<Result<_, _>>()?)
        }
        11 => Message::Greet(Box::new(read_ticket(&mut reader)?)),
        12 => Message::Subscribe { slices: SliceSet(reader.u64()?), from: packet_id(&mut reader)? },
        13 => Message::Unsubscribe(SliceSet(reader.u64()?)),
        14 => Message::Full(SliceSet(reader.u64()?)),
        15 => Message::Stalled(SliceSet(reader.u64()?)),
        16 => {
            let chain = reader.u32()?;
            let next = match read_flags("chain", &mut reader)? {
                [true, false, false] => Some(read_contact(&mut reader)?),
                [false, false, false] => None,
                _ => return Err(CodecError::Value("chain")),
            };
            Message::Chain(Box::new(ChainLink { chain, next }))
        }
        17 => Message::Explored(reader.u32()?),
        18 => Message::JoinPrivately,
        19 => Message::WantOverlay,
        20 => Message::Overlay(Box::new(overlay::read(&mut reader)?)),
        21 => Message::Unanswered(client_id(&mut reader)?),
        22 => Message::Caller(read_address(&mut reader)?),
        _ => return Err(CodecError::Value("message")),
    };
    reader.end()?;
    Ok(message)
}

/// Bytes of a contact.
const CONTACT: usize = 4 + 16 + 2 + 32;

/// Bytes of a slice that is silent.
const SILENT: usize = 1 + 1 + 4 + 4;

/// Bytes of what is told of a slice.
const FEED_REPORT: usize = 1 + 1 + 4 + 2 + 2;

fn packet_id(reader: &mut Reader<'_>) -> Result<PacketId, CodecError> {
    reader.u64().map(PacketId)
}

fn client_id(reader: &mut Reader<'_>) -> Result<ClientId, CodecError> {
    reader.u32().map(ClientId)
}

fn rate(reader: &mut Reader<'_>) -> Result<Rate, CodecError> {
    reader.u64().map(Rate::from_bits_per_sec)
}

fn key(reader: &mut Reader<'_>) -> Result<PeerKey, CodecError> {
    reader.array().map(PeerKey)
}

fn slice(reader: &mut Reader<'_>) -> Result<u8, CodecError> {
    let slice = reader.u8()?;
    if slice < MAX_SLICES { Ok(slice) } else { Err(CodecError::Value("slice")) }
}

fn flags(which: [bool; 3]) -> u8 {
    which.iter().rev().fold(0, |flags, &is_set| flags << 1 | u8::from(is_set))
}

fn read_flags(field: &'static str, reader: &mut Reader<'_>) -> Result<[bool; 3], CodecError> {
    let flags = reader.u8()?;
    if flags < 8 { Ok([0, 1, 2].map(|bit| flags >> bit & 1 == 1)) } else { Err(CodecError::Value(field)) }
}

fn write_stream(stream: &StreamInfo, writer: &mut Writer<'_>) {
    let mode = match stream.mode {
        Mode::Trees => 0,
        Mode::Mesh => 1,
        Mode::Hybrid => 2,
    };
    writer.u8(mode | if stream.is_private { PRIVATE } else { 0 });
    writer.u8(stream.slices);
    writer.u64(stream.bitrate.bits_per_sec());
    writer.u64(stream.begin.0);
    writer.u64(stream.edge.0.0);
    writer.u32(stream.edge.1.0);
    writer.u64(stream.broadcast.0);
}

fn read_stream(reader: &mut Reader<'_>) -> Result<StreamInfo, CodecError> {
    let mode = reader.u8()?;
    let is_private = mode & PRIVATE != 0;
    let mode = match mode & !PRIVATE {
        0 => Mode::Trees,
        1 => Mode::Mesh,
        2 => Mode::Hybrid,
        _ => return Err(CodecError::Value("mode")),
    };
    let slices = reader.u8()?;
    if slices == 0 || slices > MAX_SLICES {
        return Err(CodecError::Value("slices"));
    }
    let (bitrate, begin) = (rate(reader)?, packet_id(reader)?);
    let edge = (packet_id(reader)?, Stamp(reader.u32()?));
    let broadcast = Broadcast(reader.u64()?);
    Ok(StreamInfo { broadcast, mode, is_private, slices, bitrate, begin, edge })
}

fn write_ticket<C: WireContent>(ticket: &Ticket<C>, writer: &mut Writer<'_>) {
    writer.u32(ticket.client.0);
    writer.bytes(&ticket.key.0);
    writer.u32(ticket.expires.0);
    C::write_signature(&ticket.signature, writer);
}

fn read_ticket<C: WireContent>(reader: &mut Reader<'_>) -> Result<Ticket<C>, CodecError> {
    let (client, key, expires) = (client_id(reader)?, key(reader)?, Stamp(reader.u32()?));
    Ok(Ticket { client, key, expires, signature: C::read_signature(reader)? })
}

fn write_address(address: SocketAddr, writer: &mut Writer<'_>) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    writer.bytes(&ip.octets());
    writer.u16(address.port());
}

fn read_address(reader: &mut Reader<'_>) -> Result<SocketAddr, CodecError> {
    let ip = IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?)).to_canonical();
    Ok(SocketAddr::new(ip, reader.u16()?))
}

fn write_contact(contact: &Contact<SocketAddr>, writer: &mut Writer<'_>) {
    writer.u32(contact.client.0);
    write_address(contact.address, writer);
    writer.bytes(&contact.key.0);
}

fn read_contact(reader: &mut Reader<'_>) -> Result<Contact<SocketAddr>, CodecError> {
    Ok(Contact { client: client_id(reader)?, address: read_address(reader)?, key: key(reader)? })
}

/// Contacts that an assignment names at most: three for each slice.
const MOST_NAMED: usize = 3 * MAX_SLICES as usize;

fn write_assignment(assignment: &Assignment<SocketAddr>, writer: &mut Writer<'_>) {
    let most = usize::from(MAX_SLICES);
    let parents = &assignment.parents[..assignment.parents.len().min(most)];
    let children = &assignment.children[..assignment.children.len().min(most)];
    let mut contacts = assignment.contacts();
    contacts.truncate(MOST_NAMED);
    writer.u16(assignment.places);
    writer.u8(contacts.len() as u8);
    writer.u8(parents.len() as u8);
    writer.u8(children.len() as u8);
    contacts.iter().for_each(|contact| write_contact(contact, writer));
    for parent in parents {
        let place = |named: &Contact<SocketAddr>| contacts.iter().position(|contact| contact.client == named.client);
        let places = parent.contacts().map(|named| named.and_then(place));
        writer.u8(parent.slice);
        writer.u8(flags(places.map(|place| place.is_some())));
        places.into_iter().flatten().for_each(|place| writer.u8(place as u8));
    }
    for Children { slice, children } in children {
        let children = &children[..children.len().min(MOST_CHILDREN)];
        writer.u8(*slice);
        writer.u16(children.len() as u16);
        children.iter().for_each(|child| writer.u32(child.0));
    }
}

fn read_assignment(reader: &mut Reader<'_>) -> Result<Assignment<SocketAddr>, CodecError> {
    let most = usize::from(MAX_SLICES);
    let places = reader.u16()?;
    let named = usize::from(reader.u8()?);
    let (parents, children) = (usize::from(reader.u8()?), usize::from(reader.u8()?));
    let named = reader.count("contacts", named, MOST_NAMED, CONTACT)?;
    let parents = reader.count("parents", parents, most, 2)?;
    let children = reader.count("children", children, most, 3)?;
    let named = (0..named).map(|_| read_contact(reader)).collect::<Result<Vec<_>, _>>()?;
    let clients: BTreeSet<ClientId> = named.iter().map(|contact| contact.client).collect();
    if clients.len() < named.len() {
        // A client is in one place.
        return Err(CodecError::Value("client"));
    }
    let parent = |_| {
        let slice = slice(reader)?;
        let which = read_flags("contacts", reader)?;
        let mut contacts = [None; 3];
        for (contact, _) in contacts.iter_mut().zip(which).filter(|(_, is_there)| *is_there) {
            let place = usize::from(reader.u8()?);
            *contact = Some(*named.get(place).ok_or(CodecError::Value("contact"))?);
        }
        let [parent, first, second] = contacts;
        Ok(Parent { slice, parent, backups: [first, second] })
    };
    let parents = (0..parents).map(parent).collect::<Result<_, CodecError>>()?;
    let of_slice = |_| {
        let (slice, count) = (slice(reader)?, usize::from(reader.u16()?));
        let count = reader.count("children", count, MOST_CHILDREN, 4)?;
        let children = (0..count).map(|_| client_id(reader)).collect::<Result<_, _>>()?;
        Ok(Children { slice, children })
    };
    let children = (0..children).map(of_slice).collect::<Result<_, CodecError>>()?;
    Ok(Assignment { parents, children, places })
}

/// Stands for no delay.
const NO_DELAY: u32 = u32::MAX;

fn write_report(report: &Report, writer: &mut Writer<'_>) {
    let feeds = &report.feeds[..report.feeds.len().min(usize::from(MAX_SLICES))];
    let forgers = &report.forgers[..report.forgers.len().min(MOST_AT_ONCE)];
    writer.u64(report.capacity.bits_per_sec());
    writer.u64(report.sent.bits_per_sec());
    writer.u64(report.played);
    writer.u64(report.skipped);
    writer.u32(
        report.delay.map_or(NO_DELAY, |delay| {
            u32::try_from(delay.as_nanos() / 1_000_000).unwrap_or(NO_DELAY).min(NO_DELAY - 1)
        }),
    );
    writer.u8(report.neighbours);
    writer.u8(feeds.len() as u8);
    for feed in feeds {
        writer.u8(feed.slice);
        writer.u8(flags([feed.parent.is_some(), false, false]));
        writer.u32(feed.parent.unwrap_or_default().0);
        writer.u16(feed.expected);
        writer.u16(feed.received);
    }
    writer.u8(forgers.len() as u8);
    forgers.iter().for_each(|forger| writer.u32(forger.0));
}

fn read_report(reader: &mut Reader<'_>) -> Result<Report, CodecError> {
    let (capacity, sent) = (rate(reader)?, rate(reader)?);
    let (played, skipped) = (reader.u64()?, reader.u64()?);
    let delay = Some(reader.u32()?).filter(|&delay| delay != NO_DELAY);
    let delay = delay.map(|delay| Duration::from_millis(u64::from(delay)));
    let (neighbours, count) = (reader.u8()?, usize::from(reader.u8()?));
    let count = reader.count("feeds", count, usize::from(MAX_SLICES), FEED_REPORT)?;
    let feed = |_| {
        let slice = slice(reader)?;
        let [has_parent, ..] = read_flags("feed", reader)?;
        let parent = Some(client_id(reader)?).filter(|_| has_parent);
        Ok(FeedReport { slice, parent, expected: reader.u16()?, received: reader.u16()? })
    };
    let feeds = (0..count).map(feed).collect::<Result<_, CodecError>>()?;
    let count = usize::from(reader.u8()?);
    let count = reader.count("forgers", count, MOST_AT_ONCE, 4)?;
    let forgers = (0..count).map(|_| client_id(reader)).collect::<Result<_, CodecError>>()?;
    Ok(Report { capacity, sent, played, skipped, delay, neighbours, feeds, forgers })
}

fn read_silent(reader: &mut Reader<'_>) -> Result<SilentFeed, CodecError> {
    let slice = slice(reader)?;
    let [has_parent, has_asked, is_excused] = read_flags("silent", reader)?;
    let (parent, asked) = (client_id(reader)?, client_id(reader)?);
    Ok(SilentFeed { slice, parent: has_parent.then_some(parent), asked: has_asked.then_some(asked), is_excused })
}

#[cfg(test)]
mod tests;

//! What stands at a node: a relay with an exit, or a user who downloads from exits.
//!
//! Machines are named by socket addresses, each in a network of its own, as paths want them; the world numbers
//! nodes. An exit serves what a target's port says: that many kilobytes, or for ever.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_onion::crypto::Cryptography;
use anabranch_onion::directory::Document;
use anabranch_onion::node::{
    Destination, Frame, Kind, RelayNode, ServiceEvent, SessionId, SessionService, User, UserEvent,
};
use anabranch_onion::routes::PlacementError;
use anabranch_onion::session::{ExitEvent, Rates, ReadOutcome, SessionName, StreamEvent, StreamId, Target};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out};

/// The port of every node.
const PORT: u16 = 4000;

/// Bytes that are read or written at a time.
const CHUNK: usize = 16 << 10;

/// Bytes that are read at once: more than one cell brings.
const READ: usize = 2 << 10;

/// A node's address: bits of its number backwards, so that neighbours in number are in different /24s.
pub fn address(node: u32) -> SocketAddr {
    assert!(node < (1 << 16), "as many nodes have a /24 of their own in 10.0.0.0/8");
    let network = (node as u16).reverse_bits();
    let [high, low] = network.to_be_bytes();
    SocketAddr::from(([10, high, low, 1], PORT))
}

/// The node of this address.
pub fn node(address: SocketAddr) -> Option<u32> {
    let SocketAddr::V4(v4) = address else { return None };
    match v4.ip().octets() {
        [10, high, low, 1] if address.port() == PORT => Some(u32::from(u16::from_be_bytes([high, low]).reverse_bits())),
        _ => None,
    }
}

/// What a user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Bytes without end.
    Endless,
    /// This many kilobytes, once; less than 2^16.
    Kilobytes(u16),
}

impl Wish {
    /// The port that says so to an exit.
    fn port(self) -> u16 {
        match self {
            Wish::Endless => 0,
            Wish::Kilobytes(kilobytes) => kilobytes,
        }
    }
}

/// What a user has of what it wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Downloaded {
    /// Bytes that were read.
    pub bytes: u64,
    /// When the first came.
    pub first: Option<Time>,
    /// When all had come.
    pub whole: Option<Time>,
    /// The longest time from bytes to the next bytes.
    pub longest_stall: Duration,
    /// When bytes came last.
    pub last: Option<Time>,
    /// Bytes were not those that the exit sends there.
    pub wrong: bool,
    /// Sessions that ended before their time.
    pub ended: u32,
}

/// A user and its download.
#[derive(Debug)]
pub struct Downloader<C: Cryptography> {
    /// The user's edge.
    pub user: User<C, Rng>,
    /// Where to.
    destination: Destination,
    rates: Rates,
    wish: Wish,
    begins: Time,
    session: Option<(SessionId, StreamId)>,
    /// What it has.
    pub has: Downloaded,
    /// Its number among users, by which services know what it uploads.
    number: u32,
    /// Whether it uploads without end as well, and how much it has written of that.
    uploads: bool,
    written: u64,
    /// Stalls before then do not count.
    counts_from: Time,
}

/// What one user has uploaded to a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uploaded {
    /// Bytes that were read.
    pub read: u64,
    /// Bytes were not those that the user sends there.
    pub wrong: bool,
}

/// What an exit sends in one stream.
#[derive(Clone, Copy, Debug)]
struct Served {
    session: SessionName,
    stream: StreamId,
    /// Bytes that are still to be written; none for ever.
    left: Option<u64>,
    written: u64,
    /// Whose it is, and what was read of it in this stream.
    user: u32,
    read: u64,
}

/// A relay and what its exit serves.
#[derive(Debug)]
pub struct ExitRelay<C: Cryptography> {
    /// The relay.
    pub node: RelayNode<C, SessionService<C>>,
    served: Vec<Served>,
    /// What it has read, by user.
    pub uploads: BTreeMap<u32, Uploaded>,
    /// It drops what it should forward to members: a relay that is there and carries nothing.
    pub drops: bool,
}

/// A machine of a simulated onion overlay.
#[derive(Debug)]
pub enum OnionNode<C: Cryptography> {
    /// A relay.
    Relay(Box<ExitRelay<C>>),
    /// A user.
    User(Box<Downloader<C>>),
}

/// After this many bytes what a stream says begins again: a prime, so that no packet's length divides it.
const PERIOD: usize = 65_521;

/// What every stream says, and as much of its beginning behind it as is read or written at a time: bytes from
/// elsewhere in a stream would be seen.
static SAID: LazyLock<Vec<u8>> = LazyLock::new(|| (0..(PERIOD + CHUNK) as u64).map(byte).collect());

/// The byte of a stream at `offset`.
pub(super) fn byte(offset: u64) -> u8 {
    ((offset % PERIOD as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// This many bytes of a stream from `offset` on, [`CHUNK`] at most.
fn bytes_from(offset: u64, count: u64) -> &'static [u8] {
    &SAID[(offset % PERIOD as u64) as usize..][..count as usize]
}

/// Whether these are the bytes of a stream from `offset` on.
fn is_from(bytes: &[u8], offset: u64) -> bool {
    bytes == bytes_from(offset, bytes.len() as u64)
}

/// The way out of a machine inside a node `N`, and what it tells.
pub(super) struct Through<'a, N, O, E> {
    out: &'a mut O,
    events: &'a mut Vec<E>,
    /// Packets go no further.
    drops: bool,
    node: PhantomData<N>,
}

impl<'a, N, O, E> Through<'a, N, O, E>
where
    N: Machine<Address = u32, Message = Frame>,
    O: Out<N>,
{
    pub(super) fn new(out: &'a mut O, events: &'a mut Vec<E>, drops: bool) -> Through<'a, N, O, E> {
        Through { out, events, drops, node: PhantomData }
    }

    fn departure(&self, departure: Departure<SocketAddr>, frame: &Frame) -> Option<Departure<u32>> {
        let Departure { to, wait, size, ecn_capable } = departure;
        let goes = !(self.drops && frame.kind == Kind::Packet);
        Some(Departure { to: node(to).filter(|_| goes)?, wait, size, ecn_capable })
    }
}

impl<N, O, M, E> Out<M> for Through<'_, N, O, E>
where
    N: Machine<Address = u32, Message = Frame>,
    O: Out<N>,
    M: Machine<Address = SocketAddr, Message = Frame, Event = E, Job = Infallible>,
{
    fn send(&mut self, departure: Departure<SocketAddr>, frame: &Frame) {
        if let Some(to) = self.departure(departure, frame) {
            self.out.send(to, frame);
        }
    }

    fn forward(&mut self, departure: Departure<SocketAddr>, frame: &Frame) {
        if let Some(to) = self.departure(departure, frame) {
            self.out.forward(to, frame);
        }
    }

    fn event(&mut self, event: E) {
        self.events.push(event);
    }

    fn job(&mut self, job: Infallible) {
        match job {}
    }
}

impl<C: Cryptography> Downloader<C> {
    /// `user` begins at `begins`, and wants `wish` of the service at `destination`.
    pub fn new(user: User<C, Rng>, destination: Destination, rates: Rates, wish: Wish, begins: Time) -> Downloader<C> {
        Downloader {
            user,
            destination,
            rates,
            wish,
            begins,
            session: None,
            has: Downloaded::default(),
            number: 0,
            uploads: false,
            written: 0,
            counts_from: Time::ZERO,
        }
    }

    /// As number `number` of the users, of whom those that `upload` do so without end; its stalls count from
    /// `counts_from` on.
    #[must_use]
    pub fn numbered(self, number: u32, uploads: bool, counts_from: Time) -> Downloader<C> {
        Downloader { number, uploads, counts_from, ..self }
    }

    /// How long its download took, once it is whole.
    pub fn took(&self) -> Option<Duration> {
        self.has.whole.map(|whole| whole.since(self.begins))
    }

    /// Where it downloads from.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    fn begin(&mut self, now: Time, out: &mut impl Out<OnionNode<C>>) {
        let id = self.user.open(now, self.destination.clone(), self.rates.clone());
        let target = Target::Name(format!("{}.example.org", self.number), self.wish.port());
        let uploads = self.uploads;
        let stream = self.user.session(id).and_then(|client| {
            let stream = client.open_stream(now, target)?;
            if !uploads {
                client.finish(stream);
            }
            Some(stream)
        });
        self.session = stream.map(|stream| (id, stream));
        self.written = 0;
        self.upload();
        self.serve(now, out);
    }

    /// Another epoch begins.
    pub fn begin_epoch(
        &mut self,
        now: Time,
        document: Arc<Document>,
        out: &mut impl Out<OnionNode<C>>,
    ) -> Result<(), PlacementError> {
        self.user.begin_epoch(now, document)?;
        self.serve(now, out);
        Ok(())
    }

    /// Writes as much as its stream takes; whether anything was.
    fn upload(&mut self) -> bool {
        let Some((id, stream)) = self.session.filter(|_| self.uploads && self.has.whole.is_none()) else {
            return false;
        };
        let Some(client) = self.user.session(id) else { return false };
        let before = self.written;
        loop {
            match client.write(stream, bytes_from(self.written, CHUNK as u64)) {
                Ok(0) | Err(_) => return self.written > before,
                Ok(count) => self.written += count as u64,
            }
        }
    }

    fn serve(&mut self, now: Time, out: &mut impl Out<OnionNode<C>>) {
        let mut events = Vec::new();
        self.user.serve(now, &mut Through::new(out, &mut events, false));
        self.on_events(now, events, out);
    }

    fn on_events(&mut self, now: Time, events: Vec<UserEvent>, out: &mut impl Out<OnionNode<C>>) {
        let mut has_work = false;
        for event in events {
            match event {
                // Nothing outlives a run, and nothing is lost in one.
                UserEvent::Guards => {
                    let state = self.user.guards().clone();
                    self.user.on_guards_kept(now, &state);
                    has_work = true;
                }
                UserEvent::Stream(id, StreamEvent::Readable(stream)) => has_work |= self.read(now, id, stream),
                UserEvent::Stream(_, StreamEvent::Writable(_)) => has_work |= self.upload(),
                UserEvent::Ended(id, _) if self.session.is_some_and(|(own, _)| own == id) => {
                    self.session = None;
                    self.has.ended += u32::from(self.has.whole.is_none());
                }
                _ => {}
            }
        }
        // Reading gives credit, which is to leave, and what was written is; guards are to be asked for a link.
        if has_work {
            self.serve(now, out);
        }
    }

    fn read(&mut self, now: Time, id: SessionId, stream: StreamId) -> bool {
        let Some(client) = self.user.session(id) else { return false };
        let mut chunk = [0; READ];
        let before = self.has.bytes;
        loop {
            match client.read(stream, &mut chunk) {
                Ok(ReadOutcome::Bytes(count)) => {
                    let offset = self.has.bytes;
                    self.has.wrong |= !is_from(&chunk[..count], offset);
                    self.has.bytes += count as u64;
                }
                Ok(ReadOutcome::End) => {
                    self.has.whole = Some(now);
                    client.close();
                    break;
                }
                Ok(_) | Err(_) => break,
            }
        }
        if self.has.bytes > before {
            self.has.first.get_or_insert(now);
            let from = self.has.last.map(|last| last.max(self.counts_from));
            let since = from.map_or(Duration::ZERO, |last| now.since(last));
            self.has.longest_stall = self.has.longest_stall.max(since);
            self.has.last = Some(now);
        }
        true
    }
}

impl<C: Cryptography> ExitRelay<C> {
    /// `node`, which serves whoever comes.
    pub fn new(node: RelayNode<C, SessionService<C>>) -> ExitRelay<C> {
        ExitRelay { node, served: Vec::new(), uploads: BTreeMap::new(), drops: false }
    }

    fn on_events(&mut self, now: Time, events: Vec<ServiceEvent>, out: &mut impl Out<OnionNode<C>>) {
        let mut events = events;
        while !events.is_empty() {
            let mut more = Vec::new();
            for ServiceEvent { session, event } in events.drain(..) {
                let served = &mut self.served;
                let through = &mut Through::new(out, &mut more, self.drops);
                match event {
                    ExitEvent::Stream(StreamEvent::Opened(stream, target)) => {
                        let (user, left) = match target {
                            Target::Name(name, 0) => (user_of(&name), None),
                            Target::Name(name, kilobytes) => (user_of(&name), Some(u64::from(kilobytes) * 1000)),
                            _ => (u32::MAX, Some(0)),
                        };
                        served.push(Served { session, stream, left, written: 0, user, read: 0 });
                        let last = served.len() - 1;
                        self.node.act(now, through, |service| {
                            service.act(session, |exit| exit.accept(stream));
                            write(service, &mut served[last]);
                        });
                    }
                    ExitEvent::Stream(StreamEvent::Writable(stream)) => {
                        let of = served.iter_mut().find(|one| one.session == session && one.stream == stream);
                        if let Some(one) = of {
                            self.node.act(now, through, |service| write(service, one));
                        }
                    }
                    ExitEvent::Stream(StreamEvent::Readable(stream)) => {
                        let of = served.iter_mut().find(|one| one.session == session && one.stream == stream);
                        if let Some(one) = of {
                            let uploaded = self.uploads.entry(one.user).or_default();
                            self.node.act(now, through, |service| read(service, one, uploaded));
                        }
                    }
                    ExitEvent::Stream(StreamEvent::Reset(stream, _)) => {
                        served.retain(|one| one.session != session || one.stream != stream);
                    }
                    ExitEvent::Ended(_) => served.retain(|one| one.session != session),
                    ExitEvent::Stream(_) => {}
                }
            }
            events = more;
        }
    }
}

/// Writes as much as the stream takes.
fn write<C: Cryptography>(service: &mut SessionService<C>, served: &mut Served) {
    let Served { session, stream, left, written, .. } = served;
    service.act(*session, |exit| {
        loop {
            let most = left.map_or(CHUNK as u64, |left| left.min(CHUNK as u64));
            if most == 0 {
                exit.finish(*stream);
                return;
            }
            match exit.write(*stream, bytes_from(*written, most)) {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    *written += count as u64;
                    *left = left.map(|left| left - count as u64);
                }
            }
        }
    });
}

/// Reads all that has come.
fn read<C: Cryptography>(service: &mut SessionService<C>, served: &mut Served, uploaded: &mut Uploaded) {
    let mut chunk = [0; READ];
    service.act(served.session, |exit| {
        while let Ok(ReadOutcome::Bytes(count)) = exit.read(served.stream, &mut chunk) {
            uploaded.wrong |= !is_from(&chunk[..count], served.read);
            uploaded.read += count as u64;
            served.read += count as u64;
        }
    });
}

/// The user whose target has this name.
fn user_of(name: &str) -> u32 {
    name.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(u32::MAX)
}

impl<C: Cryptography> Machine for OnionNode<C> {
    type Address = u32;
    type Message = Frame;
    type Event = Infallible;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(&mut self, now: Time, arrival: Arrival<u32>, frame: &mut Frame, out: &mut impl Out<OnionNode<C>>) {
        let arrival = Arrival { marked: arrival.marked, ..Arrival::new(address(arrival.from)) };
        match self {
            OnionNode::Relay(relay) => {
                let mut events = Vec::new();
                let through = &mut Through::new(out, &mut events, relay.drops);
                relay.node.on_message(now, arrival, frame, through);
                relay.on_events(now, events, out);
            }
            OnionNode::User(user) => {
                let mut events = Vec::new();
                user.user.on_message(now, arrival, frame, &mut Through::new(out, &mut events, false));
                user.on_events(now, events, out);
            }
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<OnionNode<C>>) {
        match self {
            OnionNode::Relay(relay) => {
                let mut events = Vec::new();
                let through = &mut Through::new(out, &mut events, relay.drops);
                relay.node.on_timer(now, through);
                relay.on_events(now, events, out);
            }
            OnionNode::User(user) => {
                if user.session.is_none() && user.has.whole.is_none() && now >= user.begins {
                    user.begin(now, out);
                }
                let mut events = Vec::new();
                user.user.on_timer(now, &mut Through::new(out, &mut events, false));
                user.on_events(now, events, out);
            }
        }
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<OnionNode<C>>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        match self {
            OnionNode::Relay(relay) => relay.node.timer(now),
            OnionNode::User(user) => {
                let begins = user.session.is_none() && user.has.whole.is_none();
                // Where a session has ended too soon, the next begins at once.
                let begins = if begins { user.begins.max(now) } else { Time::MAX };
                user.user.timer(now).min(begins)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_nodes_are_the_same_and_neighbours_are_in_other_networks() {
        for number in [0, 1, 2, 255, 256, 65_535] {
            assert_eq!(node(address(number)), Some(number));
        }
        let network = |number: u32| match address(number) {
            SocketAddr::V4(v4) => v4.ip().octets()[1..3].to_vec(),
            SocketAddr::V6(_) => unreachable!("they are of IPv4"),
        };
        assert_ne!(network(0), network(1));
        assert_eq!(node("10.0.0.2:4000".parse().expect("an address")), None);
        assert_eq!(node("[::1]:4000".parse().expect("an address")), None);
    }
}

//! What stands at a node: a relay with an exit, or a user who downloads from exits.
//!
//! Machines are named by socket addresses, each in a network of its own, as paths want them; the world numbers
//! nodes. An exit serves what a target's port says: that many kilobytes, or for ever.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::net::SocketAddr;

use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_onion::crypto::Cryptography;
use anabranch_onion::node::{
    Destination, Frame, Kind, RelayNode, ServiceEvent, SessionId, SessionService, User, UserEvent,
};
use anabranch_onion::session::{ExitEvent, Rates, ReadOutcome, SessionName, StreamEvent, StreamId, Target};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out};

/// The port of every node.
const PORT: u16 = 4000;

/// Bytes that are read or written at a time.
const CHUNK: usize = 16 << 10;

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
    /// So many kilobytes, once; less than 2^16.
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
    pub longest_stall: anabranch_control::time::Duration,
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
}

/// What an exit sends in one stream.
#[derive(Clone, Copy, Debug)]
struct Served {
    session: SessionName,
    stream: StreamId,
    /// Bytes that are still to be written; none for ever.
    left: Option<u64>,
    written: u64,
}

/// A relay and what its exit serves.
#[derive(Debug)]
pub struct ExitRelay<C: Cryptography> {
    /// The relay.
    pub node: RelayNode<C, SessionService<C>>,
    served: Vec<Served>,
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

/// The byte at `offset` of every stream of an exit: what comes from elsewhere would be seen.
pub(super) fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
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
        Downloader { user, destination, rates, wish, begins, session: None, has: Downloaded::default() }
    }

    /// Where it downloads from.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    fn begin(&mut self, now: Time, out: &mut impl Out<OnionNode<C>>) {
        let id = self.user.open(now, self.destination.clone(), self.rates.clone());
        let target = Target::Name("example.org".to_owned(), self.wish.port());
        let stream = self.user.session(id).and_then(|client| {
            let stream = client.open_stream(now, target)?;
            client.finish(stream);
            Some(stream)
        });
        self.session = stream.map(|stream| (id, stream));
        self.serve(now, out);
    }

    fn serve(&mut self, now: Time, out: &mut impl Out<OnionNode<C>>) {
        let mut events = Vec::new();
        self.user.serve(now, &mut Through::new(out, &mut events, false));
        self.on_events(now, events, out);
    }

    fn on_events(&mut self, now: Time, events: Vec<UserEvent>, out: &mut impl Out<OnionNode<C>>) {
        let mut has_read = false;
        for event in events {
            match event {
                UserEvent::Stream(id, StreamEvent::Readable(stream)) => has_read |= self.read(now, id, stream),
                UserEvent::Ended(id, _) if self.session.is_some_and(|(own, _)| own == id) => {
                    self.session = None;
                    self.has.ended += 1;
                }
                _ => {}
            }
        }
        // Reading gives credit, which is to leave.
        if has_read {
            self.serve(now, out);
        }
    }

    fn read(&mut self, now: Time, id: SessionId, stream: StreamId) -> bool {
        let Some(client) = self.user.session(id) else { return false };
        let mut chunk = [0; CHUNK];
        let before = self.has.bytes;
        loop {
            match client.read(stream, &mut chunk) {
                Ok(ReadOutcome::Bytes(count)) => {
                    let offset = self.has.bytes;
                    self.has.wrong |= chunk[..count].iter().zip(offset..).any(|(is, at)| *is != byte(at));
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
            let since = self.has.last.map_or(anabranch_control::time::Duration::ZERO, |last| now.since(last));
            self.has.longest_stall = self.has.longest_stall.max(since);
            self.has.last = Some(now);
        }
        true
    }
}

impl<C: Cryptography> ExitRelay<C> {
    /// `node`, which serves whoever comes.
    pub fn new(node: RelayNode<C, SessionService<C>>) -> ExitRelay<C> {
        ExitRelay { node, served: Vec::new(), drops: false }
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
                        let left = match target {
                            Target::Name(_, 0) => None,
                            Target::Name(_, kilobytes) => Some(u64::from(kilobytes) * 1000),
                            _ => Some(0),
                        };
                        served.push(Served { session, stream, left, written: 0 });
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
    let Served { session, stream, left, written } = served;
    service.act(*session, |exit| {
        loop {
            let most = left.map_or(CHUNK as u64, |left| left.min(CHUNK as u64));
            if most == 0 {
                exit.finish(*stream);
                return;
            }
            let bytes: Vec<u8> = (*written..*written + most).map(byte).collect();
            match exit.write(*stream, &bytes) {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    *written += count as u64;
                    *left = left.map(|left| left - count as u64);
                }
            }
        }
    });
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
                let begins = if begins { user.begins } else { Time::MAX };
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

//! How long the packets may be that the paths of a transfer carry: datagram packetization layer path
//! MTU discovery (RFC 8899), before the first byte of a file.
//!
//! Each packet takes another path, so there is one size for all of them. A probe is a hello, filled up
//! to the size that is tried, over a route of as many relays as packets will have; the receiver
//! answers it by a cookie, computes nothing on a curve and remembers nothing. Routes begin at one relay
//! after another, so that with up to [`MAX_ROUTES`] relays each of them is tried in each place. The
//! largest size counts that every route carries which carries the smallest one: a relay that is dead
//! says nothing about sizes. Links between relays that are on no route tried are not known; what they
//! do not carry is lost there, and learned as loss.
//!
//! Packets must not be fragmented on the way (the sockets say so): a fragment more is a loss more.

use core::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;

use anabranch_control::path::MAX_RELAYS;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use crate::machine::{Arrival, Departure, Machine, Out};
use crate::overlay::hello::{HELLO, HelloBody, HelloReply};
use crate::overlay::packet::{Kind, Packet, PacketId, Route};
use crate::overlay::wire::{self, OwnedDatagram, Type};

/// Routes that are tried at most.
pub const MAX_ROUTES: usize = 16;

/// How often a size is tried on a route (MAX_PROBES; RFC 8899, 5.1.2).
const MAX_PROBES: u32 = 3;

/// So long an answer is waited for before a size is tried again (PROBE_TIMER is at least a second; RFC
/// 8899, 5.1.1).
const PROBE_TIMER: Duration = Duration::SECOND;

/// All probes of one round leave within so long below an upload limit; with less upload fewer routes are
/// tried.
const ROUND: Duration = Duration::SECOND;

/// The pattern of a handshake without keys, and what stands for its first message: nobody goes on
/// with it.
const OPENING: [u8; 33] = [0; 33];

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Bytes of the largest packet that all routes carry which carry the smallest one; that one, if
    /// nothing was answered.
    pub packet: usize,
    /// Routes that were tried.
    pub routes: usize,
    /// Of them, those on which anything was answered.
    pub live: usize,
}

/// Tries sizes on routes.
#[derive(Clone)]
pub struct PathMtu {
    routes: Vec<Route<SocketAddr>>,
    /// In growing order; the first is what every path has to carry.
    sizes: Vec<usize>,
    /// By route, then size.
    answered: Vec<bool>,
    key: [u8; 32],
    upload: Option<Rate>,
    /// Rounds that have begun, and the next probe of this one.
    round: u32,
    next: usize,
    /// When the next probe may leave, or the next round begins.
    wake: Time,
    outbox: OwnedDatagram,
}

impl fmt::Debug for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PathMtu({} routes, {:?}, round {})", self.routes.len(), self.sizes, self.round)
    }
}

impl PathMtu {
    /// Will try packets of `sizes` bytes, the smallest first, over `hops` of `relays` to `to`, no faster
    /// than `upload`. `key` must be random and secret, so that only who has had a probe can answer it.
    ///
    /// # Panics
    ///
    /// Without a size or a relay, or for paths that can't be.
    pub fn new(
        now: Time,
        relays: &[SocketAddr],
        hops: usize,
        to: SocketAddr,
        sizes: &[usize],
        upload: Option<Rate>,
        key: [u8; 32],
    ) -> PathMtu {
        assert!(!sizes.is_empty() && (1..=relays.len().min(MAX_RELAYS)).contains(&hops), "checked before");
        let round: u64 = sizes.iter().map(|&size| size as u64).sum();
        let affordable = upload.map_or(u64::MAX, |upload| (upload * ROUND).get() / round).max(1);
        let count = relays.len().min(MAX_ROUTES).min(usize::try_from(affordable).unwrap_or(usize::MAX));
        let route = |first: usize| {
            // Spread over all of them, where not each can be the first.
            let first = first * relays.len() / count;
            let relays = (0..hops).map(|place| relays[(first + place) % relays.len()]);
            Route::new(wire::unknown_source(relays.clone().next().expect("a relay at least")), relays, to)
        };
        let routes: Vec<_> = (0..count).map(route).collect();
        let answered = vec![false; routes.len() * sizes.len()];
        let outbox = OwnedDatagram::default();
        PathMtu { routes, sizes: sizes.to_vec(), answered, key, upload, round: 0, next: 0, wake: now, outbox }
    }

    fn proof(&self, index: usize) -> u64 {
        let hash = blake3::keyed_hash(&self.key, &(index as u64).to_be_bytes());
        u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }

    /// Makes probe `index` the one that leaves.
    fn write(&mut self, index: usize) {
        let proof = self.proof(index);
        let (route, size) = (self.routes[index / self.sizes.len()], self.sizes[index % self.sizes.len()]);
        let out = &mut self.outbox;
        out.what = Type::Hello;
        out.packet = Packet::new(PacketId { index: index as u32, generation: self.round }, 0, Kind::Data, route);
        out.body.clear();
        HelloBody { cookie: Default::default(), proof, opening: &OPENING }.encode(&mut out.body);
        let left = size.saturating_sub(out.len());
        out.body.resize(HELLO + left, 0);
    }

    /// What was found, once all is answered or was tried often enough.
    pub fn found(&self) -> Option<Found> {
        let is_over = self.answered.iter().all(|&answered| answered) || self.round > MAX_PROBES;
        is_over.then(|| {
            let rows = || self.answered.chunks(self.sizes.len()).filter(|row| row[0]);
            let carries = |place: &usize| rows().all(|row| row[*place]);
            let live = rows().count();
            let largest = (0..self.sizes.len()).rev().find(carries).filter(|_| live > 0).unwrap_or(0);
            Found { packet: self.sizes[largest], routes: self.routes.len(), live }
        })
    }
}

impl Machine for PathMtu {
    type Address = SocketAddr;
    type Message = OwnedDatagram;
    type Event = Infallible;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(&mut self, _: Time, _: Arrival<SocketAddr>, datagram: &mut OwnedDatagram, _: &mut impl Out<PathMtu>) {
        let index = datagram.packet.id.index as usize;
        let Some(HelloReply::Cookie { proof, .. }) = HelloReply::decode(&datagram.body) else { return };
        if datagram.what == Type::HelloReply && index < self.answered.len() && proof == self.proof(index) {
            self.answered[index] = true;
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<PathMtu>) {
        while now >= self.wake && self.found().is_none() {
            if self.next == self.answered.len() || self.round == 0 {
                (self.round, self.next) = (self.round + 1, 0);
            }
            let left = self.answered[self.next..].iter().position(|answered| !answered);
            let Some(left) = left.filter(|_| self.round <= MAX_PROBES) else {
                self.next = self.answered.len();
                self.wake = now + PROBE_TIMER;
                continue;
            };
            let index = self.next + left;
            self.next = index + 1;
            self.write(index);
            let size = self.outbox.len();
            out.send(Departure::now(self.outbox.packet.route.at(), size as u32), &self.outbox);
            self.wake = self.upload.map_or(now, |upload| now + Bytes::new(size as u64) / upload);
            if self.next == self.answered.len() {
                self.wake = now + PROBE_TIMER;
            }
        }
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<PathMtu>) {
        match done {}
    }

    fn timer(&self, _: Time) -> Time {
        if self.found().is_some() { Time::MAX } else { self.wake }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seal::Identity;
    use crate::transfer::{Limits, Receiver};

    const SIZES: [usize; 3] = [1232, 1372, 1400];

    #[derive(Default)]
    struct Sent(Vec<OwnedDatagram>);

    impl Out<PathMtu> for Sent {
        fn send(&mut self, departure: Departure<SocketAddr>, message: &OwnedDatagram) {
            assert_eq!(departure.size as usize, message.len());
            self.0.push(message.clone());
        }

        fn event(&mut self, event: Infallible) {
            match event {}
        }

        fn job(&mut self, job: Infallible) {
            match job {}
        }
    }

    fn relays(count: usize) -> Vec<SocketAddr> {
        (0..count).map(|last| SocketAddr::from(([10, 0, 0, last as u8], 4000))).collect()
    }

    const TO: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(10, 9, 9, 9), 1));

    /// Runs it to its end; each link carries packets of at most what `carries` says. What was found,
    /// when, and what has left.
    fn run(
        mut probe: PathMtu,
        mut carries: impl FnMut(SocketAddr, SocketAddr) -> usize,
    ) -> (Found, Time, Vec<OwnedDatagram>) {
        let mut receiver = Receiver::new(Identity::generate(), Limits::default());
        let (mut now, mut all) = (Time::ZERO, Vec::new());
        loop {
            let mut sent = Sent::default();
            probe.on_timer(now, &mut sent);
            for datagram in sent.0 {
                let nodes = datagram.packet.route.nodes();
                let arrives = nodes.windows(2).all(|link| datagram.len() <= carries(link[0], link[1]));
                let mut answer = datagram.clone();
                all.push(datagram);
                answer.what = Type::HelloReply;
                answer.body.clear();
                let source = SocketAddr::from(([192, 0, 2, 1], 9)).ip();
                if arrives && receiver.on_hello(now, source, &all.last().unwrap().body, &mut answer.body) {
                    assert!(answer.len() <= all.last().unwrap().len() && receiver.sessions() == 0);
                    probe.on_message(now, Arrival::new(TO), &mut answer, &mut Sent::default());
                }
            }
            if let Some(found) = probe.found() {
                assert_eq!(probe.timer(now), Time::MAX);
                return (found, now, all);
            }
            let next = probe.timer(now);
            assert!(next > now && next < Time::from_secs_f64(100.0), "{probe:?} at {now}");
            now = next;
        }
    }

    fn probe(count: usize, hops: usize, upload: Option<Rate>) -> PathMtu {
        PathMtu::new(Time::ZERO, &relays(count), hops, TO, &SIZES, upload, [7; 32])
    }

    #[test]
    fn paths_that_carry_all_sizes_are_found_at_once_and_each_relay_is_tried_in_each_place() {
        let (found, now, sent) = run(probe(5, 3, None), |_, _| 1472);
        assert_eq!((found, now), (Found { packet: 1400, routes: 5, live: 5 }, Time::ZERO));
        assert_eq!(sent.len(), 15);
        assert!(sent.iter().zip(SIZES.iter().cycle()).all(|(sent, &size)| sent.len() == size));
        for place in 1..=3 {
            let mut there: Vec<_> = sent.iter().map(|sent| sent.packet.route.nodes()[place]).collect();
            there.sort();
            there.dedup();
            assert_eq!(there.len(), 5);
        }
    }

    #[test]
    fn one_narrow_link_on_a_route_decides_and_a_dead_relay_does_not() {
        let all = relays(4);
        let (narrow, dead) = ((all[1], all[2]), all[3]);
        let carries = |from, to| match () {
            () if dead == from || dead == to => 0,
            () if (from, to) == narrow => 1392,
            () => 1472,
        };
        let (found, now, sent) = run(probe(4, 2, None), carries);
        assert_eq!(found, Found { packet: 1372, routes: 4, live: 2 });
        assert_eq!(now, Time::ZERO + PROBE_TIMER * u64::from(MAX_PROBES));
        // What was answered is not tried again: of 12, 5 were.
        assert_eq!(sent.len(), 12 + 2 * 7);
    }

    #[test]
    fn where_nobody_answers_the_smallest_size_is_all_there_is() {
        let (found, _, sent) = run(probe(3, 1, None), |_, _| 0);
        assert_eq!((found, sent.len()), (Found { packet: 1232, routes: 3, live: 0 }, 27));
    }

    #[test]
    fn probes_keep_to_the_upload_limit_and_try_fewer_routes_below_it() {
        let upload = Rate::from_bytes_per_sec(10_000);
        let (found, now, sent) = run(probe(10, 2, Some(upload)), |_, _| 0);
        assert_eq!(found.routes, 2);
        let bytes: usize = sent.iter().map(OwnedDatagram::len).sum();
        assert!(now >= Time::ZERO + Bytes::new(bytes as u64) / upload, "{bytes} until {now}");
        assert_eq!(run(probe(10, 2, Some(Rate::from_bytes_per_sec(1400))), |_, _| 1472).0.routes, 1);
    }

    #[test]
    fn a_probe_that_was_lost_is_sent_again() {
        let mut losses = 0;
        let lossy = |_, _| {
            losses += 1;
            if losses % 5 == 0 { 0 } else { 1472 }
        };
        assert_eq!(run(probe(4, 1, None), lossy).0.packet, 1400);
    }

    #[test]
    fn only_who_has_had_a_probe_can_answer_it() {
        let mut probe = probe(1, 1, None);
        probe.on_timer(Time::ZERO, &mut Sent::default());
        for forged in 0..100 {
            let mut answer = OwnedDatagram { what: Type::HelloReply, ..OwnedDatagram::default() };
            answer.packet.id.index = forged % 4;
            HelloReply::Cookie { proof: u64::from(forged), cookie: [1; 16] }.encode(&mut answer.body);
            probe.on_message(Time::ZERO, Arrival::new(TO), &mut answer, &mut Sent::default());
        }
        assert!(probe.answered.iter().all(|answered| !answered));
    }

    proptest! {
        #[test]
        fn no_route_that_was_tried_carries_less_than_is_found(
            count in 1usize..24,
            hops in 1usize..=8,
            widths in prop::collection::vec(prop::sample::select(vec![0, 1232, 1300, 1372, 1400, 1472]), 64),
        ) {
            let hops = hops.min(count);
            let width = |from: SocketAddr, to: SocketAddr| {
                let last = |address: SocketAddr| match address.ip() {
                    std::net::IpAddr::V4(ip) => usize::from(ip.octets()[3]),
                    std::net::IpAddr::V6(_) => 0,
                };
                widths[(last(from) * 7 + last(to)) % widths.len()]
            };
            let (found, _, sent) = run(probe(count, hops, None), width);
            for sent in &sent {
                let narrowest = sent.packet.route.nodes().windows(2).map(|link| width(link[0], link[1])).min().unwrap();
                prop_assert!(narrowest < SIZES[0] || narrowest >= found.packet);
            }
        }
    }
}

//! A bottleneck on loopback for programs that speak UDP: what a client sends to it goes on
//! to a server at a rate, out of a queue that drops what finds no room; both ways take a
//! delay. It forwards between one client, whoever sent last, and one server. The links are the
//! simulator's, as in the [emulator](crate::emulator), which takes rights that this does not.
//!
//! ```text
//! client --- queue, rate --- delay ---> server
//! client <------------------ delay ---- server
//! ```
//!
//! A datagram's size counts with the headers of UDP and IP, 28 bytes.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_net::endpoint::{Endpoint, Port};
use anabranch_net::pool::NoWork;
use anabranch_net::runtime::Runtime;
use anabranch_net::udp::Socket;
use anabranch_net::wait::Waker;
use anabranch_proto::machine::{Arrival, Departure};
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Event, Jitter, LinkConfig, LinkId, Network, NetworkBuilder, RouteId};
use anabranch_sim::varying::Course;

/// Headers of UDP and IPv4.
const HEADERS: usize = 28;

/// Datagrams on their way at most; more are lost.
const MOST_ON_THEIR_WAY: usize = 1 << 16;

/// What the bottleneck does.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Towards the server.
    pub rate: Rate,
    /// Each way.
    pub delay: Duration,
    /// What waits at most, beside the datagram that is being sent.
    pub queue: Bytes,
}

/// A bottleneck that works until it is dropped.
#[derive(Debug)]
pub struct Bottleneck {
    address: SocketAddr,
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    dropped: AtomicU64,
}

impl Bottleneck {
    /// Begins to forward to the server at `to`.
    ///
    /// # Errors
    ///
    /// When there is no socket.
    pub fn start(to: SocketAddr, link: Link) -> io::Result<Bottleneck> {
        let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = socket.local_addr()?;
        let mut runtime = Runtime::new(NoWork)?;
        runtime.add(socket, Forwarder::new(to, link), None)?;
        let (shared, waker): (Arc<Shared>, _) = (Arc::default(), runtime.waker());
        let works = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while !works.stop.load(Ordering::Relaxed) {
                runtime.turn(Time::MAX)?;
                works.dropped.store(runtime.machine_mut(0).dropped(), Ordering::Relaxed);
            }
            Ok(())
        });
        Ok(Bottleneck { address, shared, waker, thread: Some(thread) })
    }

    /// Where clients send to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Datagrams that found no room.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Bottleneck {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // Whoever uses it has noticed if its sockets failed: nothing arrived.
            let _ = thread.join();
        }
    }
}

/// Datagrams on the simulator's links.
struct Forwarder {
    network: Network<SocketAddr>,
    there: RouteId,
    back: RouteId,
    server: SocketAddr,
    client: Option<SocketAddr>,
    /// The datagrams on their way, by their packets' numbers.
    slots: Vec<Vec<u8>>,
}

impl Forwarder {
    fn new(server: SocketAddr, link: Link) -> Forwarder {
        let mut network = NetworkBuilder::new();
        let mut route = |name: &str, rate: Option<Rate>, capacity| {
            let id = network.link(LinkConfig {
                name: name.to_owned(),
                rate: rate.map(Course::constant),
                delay: Course::constant(link.delay),
                capacity,
                discipline: None,
                loss: LossModel::None,
                jitter: Jitter::NONE,
            });
            // Its count is looked at while it works.
            network.watch(id);
            network.route(&[id])
        };
        let there = route("there", Some(link.rate), Capacity::Bytes(link.queue.get()));
        let back = route("back", None, Capacity::Unlimited);
        Forwarder { network: network.build(0, 0), there, back, server, client: None, slots: Vec::new() }
    }

    /// A datagram sets out, after all that left before `now` has.
    fn accept(&mut self, now: Time, from: SocketAddr, datagram: &[u8], leave: impl FnMut(SocketAddr, &[u8])) {
        self.advance(now, leave);
        let (route, to) = if from == self.server {
            let Some(client) = self.client else { return };
            (self.back, client)
        } else {
            self.client = Some(from);
            (self.there, self.server)
        };
        if self.network.in_flight() >= MOST_ON_THEIR_WAY {
            return;
        }
        let number = self.network.send_numbered(route, (datagram.len() + HEADERS) as u32, false, to) as usize;
        if number >= self.slots.len() {
            self.slots.resize_with(number + 1, Vec::new);
        }
        self.slots[number].clear();
        self.slots[number].extend_from_slice(datagram);
    }

    /// Lets everything leave that is due before `now`.
    fn advance(&mut self, now: Time, mut leave: impl FnMut(SocketAddr, &[u8])) {
        while let Some(event) = self.network.next(now) {
            assert_eq!(event, Event::Arrived, "there are no timers");
            leave(self.network.arrived().payload, &self.slots[self.network.arrived_number() as usize]);
        }
    }

    fn dropped(&mut self) -> u64 {
        self.network.count(LinkId(0)).dropped
    }
}

/// How a datagram leaves by `port`.
fn by<'a>(port: &'a mut Port<'_, Forwarder>) -> impl FnMut(SocketAddr, &[u8]) + 'a {
    |to, datagram| {
        port.send(Departure::now(to, datagram.len() as u32), datagram.len(), |room| room.copy_from_slice(datagram));
    }
}

impl Endpoint for Forwarder {
    type Inbox = ();
    type Unreadable = ();
    type Event = Infallible;
    type Job = Infallible;
    type Done = Infallible;

    fn on_datagram(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        bytes: &[u8],
        (): &mut (),
        port: &mut Port<'_, Forwarder>,
    ) {
        self.accept(now, arrival.from, bytes, by(port));
    }

    fn on_timer(&mut self, now: Time, port: &mut Port<'_, Forwarder>) {
        self.advance(now, by(port));
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut Port<'_, Forwarder>) {
        match done {}
    }

    fn timer(&self, _: Time) -> Time {
        // What is due at an instant leaves after it.
        self.network.next_time() + Duration::from_nanos(1)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2);

    #[test]
    fn datagrams_leave_at_the_links_rate_and_what_finds_no_room_is_dropped() {
        let link = Link {
            rate: Rate::from_bytes_per_sec(1_000_000),
            delay: Duration::from_millis(10),
            queue: Bytes::new(2000),
        };
        let mut forwarder = Forwarder::new(SERVER, link);
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let nothing = |_: SocketAddr, _: &[u8]| panic!("nothing is due");
        // 1000 bytes with their headers: one is being sent, two wait, one finds no room.
        for byte in 0..4 {
            forwarder.accept(at(0), CLIENT, &[byte; 972], nothing);
        }
        for byte in 0..3u8 {
            let due = at(11 + u64::from(byte));
            forwarder.advance(due, nothing);
            let mut left = Vec::new();
            forwarder.advance(due + Duration::from_nanos(1), |to, datagram| left.push((to, datagram.to_vec())));
            assert_eq!(left, [(SERVER, vec![byte; 972])]);
        }
        forwarder.advance(at(100), nothing);
        assert_eq!(forwarder.network.count(LinkId(0)).dropped, 1);
    }

    #[test]
    fn datagrams_pass_both_ways_in_order() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let link = Link {
            rate: Rate::from_bytes_per_sec(10_000_000),
            delay: Duration::from_millis(1),
            queue: Bytes::new(100_000),
        };
        let bottleneck = Bottleneck::start(server.local_addr().unwrap(), link).unwrap();
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut buffer = [0; 16];
        for byte in 0..20 {
            client.send_to(&[byte], bottleneck.address()).unwrap();
        }
        for byte in 0..20 {
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..length], [byte]);
            server.send_to(&[byte, byte], from).unwrap();
        }
        for byte in 0..20 {
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..length], [byte, byte]);
        }
        assert_eq!(bottleneck.dropped(), 0);
    }
}

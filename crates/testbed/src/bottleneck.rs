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

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Event, Jitter, LinkConfig, LinkId, Network, NetworkBuilder, RouteId};
use anabranch_sim::varying::Course;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use anabranch_net::clock::Clock;

/// Headers of UDP and IPv4.
const HEADERS: usize = 28;

/// Datagrams on their way at most; more are lost.
const MOST_ON_THEIR_WAY: usize = 1 << 16;

/// The longest datagram that UDP carries.
const LONGEST: usize = 1 << 16;

/// How often the thread looks whether it shall end.
const LOOK: Duration = Duration::from_millis(50);

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
    /// When there are no sockets.
    pub fn start(to: SocketAddr, link: Link) -> io::Result<Bottleneck> {
        let outside = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let inside = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        inside.connect(to)?;
        for socket in [&outside, &inside] {
            socket.set_nonblocking(true)?;
        }
        let address = outside.local_addr()?;
        let shared: Arc<Shared> = Arc::default();
        let works = shared.clone();
        let thread = std::thread::spawn(move || forward(&outside, &inside, link, &works));
        Ok(Bottleneck { address, shared, thread: Some(thread) })
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
        if let Some(thread) = self.thread.take() {
            // Whoever uses it has noticed if its sockets failed: nothing arrived.
            let _ = thread.join();
        }
    }
}

/// Datagrams on the simulator's links.
struct Forwarder {
    network: Network<To>,
    there: RouteId,
    back: RouteId,
    /// The datagrams on their way, by their packets' numbers.
    slots: Vec<Vec<u8>>,
}

/// Where a datagram leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Server,
    Client(SocketAddr),
}

impl Forwarder {
    fn new(link: Link) -> Forwarder {
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
        Forwarder { network: network.build(0, 0), there, back, slots: Vec::new() }
    }

    /// A datagram sets out, after all that left before `now` has.
    fn accept(&mut self, now: Time, to: To, datagram: &[u8], leave: impl FnMut(To, &[u8])) {
        self.advance(now, leave);
        if self.network.in_flight() >= MOST_ON_THEIR_WAY {
            return;
        }
        let route = if to == To::Server { self.there } else { self.back };
        let number = self.network.send_numbered(route, (datagram.len() + HEADERS) as u32, false, to) as usize;
        if number >= self.slots.len() {
            self.slots.resize_with(number + 1, Vec::new);
        }
        self.slots[number].clear();
        self.slots[number].extend_from_slice(datagram);
    }

    /// Lets everything leave that is due before `now`.
    fn advance(&mut self, now: Time, mut leave: impl FnMut(To, &[u8])) {
        while let Some(event) = self.network.next(now) {
            assert_eq!(event, Event::Arrived, "there are no timers");
            leave(self.network.arrived().payload, &self.slots[self.network.arrived_number() as usize]);
        }
    }
}

fn forward(outside: &UdpSocket, inside: &UdpSocket, link: Link, shared: &Shared) -> io::Result<()> {
    let clock = Clock::start();
    let mut forwarder = Forwarder::new(link);
    let mut client = None;
    let mut datagram = vec![0; LONGEST];
    // What a full socket refuses is lost, as on any link.
    let leave = |to: To, datagram: &[u8]| match to {
        To::Server => drop(inside.send(datagram)),
        To::Client(client) => drop(outside.send_to(datagram, client)),
    };
    while !shared.stop.load(Ordering::Relaxed) {
        let mut ready = [PollFd::new(outside, PollFlags::IN), PollFd::new(inside, PollFlags::IN)];
        let wait = forwarder.network.next_time().since(clock.now()).min(LOOK);
        poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 }))?;
        while let Some((length, from)) = received(outside.recv_from(&mut datagram))? {
            client = Some(from);
            forwarder.accept(clock.now(), To::Server, &datagram[..length], leave);
        }
        while let Some(length) = received(inside.recv(&mut datagram))? {
            if let Some(client) = client {
                forwarder.accept(clock.now(), To::Client(client), &datagram[..length], leave);
            }
        }
        forwarder.advance(clock.now(), leave);
        shared.dropped.store(forwarder.network.count(LinkId(0)).dropped, Ordering::Relaxed);
    }
    Ok(())
}

/// What was received, or that nothing more is there. A peer that has gone is nobody's error.
fn received<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(received) => Ok(Some(received)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_leave_at_the_links_rate_and_what_finds_no_room_is_dropped() {
        let link = Link {
            rate: Rate::from_bytes_per_sec(1_000_000),
            delay: Duration::from_millis(10),
            queue: Bytes::new(2000),
        };
        let mut forwarder = Forwarder::new(link);
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let nothing = |_: To, _: &[u8]| panic!("nothing is due");
        // 1000 bytes with their headers: one is being sent, two wait, one finds no room.
        for byte in 0..4 {
            forwarder.accept(at(0), To::Server, &[byte; 972], nothing);
        }
        for byte in 0..3u8 {
            forwarder.advance(at(11 + u64::from(byte)), nothing);
            let mut left = Vec::new();
            forwarder.advance(at(11 + u64::from(byte)) + Duration::from_nanos(1), |to, datagram| {
                left.push((to, datagram.to_vec()));
            });
            assert_eq!(left, [(To::Server, vec![byte; 972])]);
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

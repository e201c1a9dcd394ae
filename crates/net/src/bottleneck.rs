//! A bottleneck on loopback for programs that speak UDP: what a client sends to it goes on
//! to a server at a rate, out of a queue that drops what finds no room; both ways take a
//! delay. It forwards between one client, whoever sent last, and one server.
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
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clock::Clock;
use crate::delay_queue::DelayQueue;

/// Headers of UDP and IPv4.
const HEADERS: u64 = 28;

/// The longest datagram that UDP carries.
const LONGEST: usize = 1 << 16;

/// How often the thread looks whether it shall end.
const LOOK: Duration = Duration::from_millis(50);

/// Where in the queue of delays a datagram leaves: towards the server or the client.
const TO_SERVER: usize = 0;
const TO_CLIENT: usize = 1;

/// What the bottleneck does.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Towards the server.
    pub rate: Rate,
    /// Each way.
    pub delay: Duration,
    /// What waits at most, the datagram included that is being sent.
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

fn forward(outside: &UdpSocket, inside: &UdpSocket, link: Link, shared: &Shared) -> io::Result<()> {
    let clock = Clock::start();
    let mut waiting = DelayQueue::default();
    let mut queue = Queue { link, busy_until: Time::ZERO };
    let mut client = None;
    let mut datagram = vec![0; LONGEST];
    while !shared.stop.load(Ordering::Relaxed) {
        let mut ready = [PollFd::new(outside, PollFlags::IN), PollFd::new(inside, PollFlags::IN)];
        let wait = waiting.next().since(clock.now()).min(LOOK);
        poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 }))?;
        while let Some((length, from)) = received(outside.recv_from(&mut datagram))? {
            client = Some(from);
            match queue.accept(clock.now(), Bytes::new(length as u64 + HEADERS)) {
                Some(at) => waiting.push(at, TO_SERVER, from, &datagram[..length], &[]),
                None => {
                    shared.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        while let Some(length) = received(inside.recv(&mut datagram))? {
            if let Some(client) = client {
                waiting.push(clock.now() + link.delay, TO_CLIENT, client, &datagram[..length], &[]);
            }
        }
        while let Some(datagram) = waiting.pop(clock.now()) {
            // What a full socket refuses is lost, as on any link.
            let _ = match datagram.member {
                TO_SERVER => inside.send(&datagram.bytes),
                _ => outside.send_to(&datagram.bytes, datagram.to),
            };
        }
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

/// A queue that is served at the link's rate.
struct Queue {
    link: Link,
    busy_until: Time,
}

impl Queue {
    /// When a datagram that comes now arrives at the other end; none if it finds no room.
    fn accept(&mut self, now: Time, size: Bytes) -> Option<Time> {
        let waiting = self.link.rate * self.busy_until.since(now);
        if waiting + size > self.link.queue {
            return None;
        }
        self.busy_until = self.busy_until.max(now) + size / self.link.rate;
        Some(self.busy_until + self.link.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_serves_at_its_rate_and_drops_what_finds_no_room() {
        let link = Link {
            rate: Rate::from_bytes_per_sec(1_000_000),
            delay: Duration::from_millis(10),
            queue: Bytes::new(3000),
        };
        let mut queue = Queue { link, busy_until: Time::ZERO };
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let arrivals: Vec<_> = (0..4).map(|_| queue.accept(at(0), Bytes::new(1000))).collect();
        assert_eq!(arrivals, [Some(at(11)), Some(at(12)), Some(at(13)), None]);
        assert_eq!(queue.accept(at(1), Bytes::new(1000)), Some(at(14)));
        assert_eq!(queue.accept(at(100), Bytes::new(1000)), Some(at(111)));
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

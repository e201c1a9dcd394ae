//! The driver: one thread that serves any number of peers, each behind its own socket.
//!
//! A turn sends what is due, lets senders send, waits for the next timer or datagram,
//! and hands what has come to its peer. Everything is done in small portions, so that a
//! burst of one peer neither fills the socket buffer of another nor keeps it waiting.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::peer::{Outbox, Peer};
use mio::{Events, Interest, Poll, Token};

use crate::clock::{Clock, std_duration};
use crate::delay_queue::DelayQueue;
use crate::udp::{Batch, Socket};

/// Datagrams that leave, of one sender or of the delay queue, before sockets are read
/// again: 32 of them fit the smallest usual socket buffer (208 KiB) three times over.
const PORTION: usize = 32;

/// An emulated link: the extra delay of a datagram to this next hop.
pub type Link = Box<dyn FnMut(SocketAddr) -> Duration + Send>;

/// What the driver itself has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Datagrams received, readable or not.
    pub received: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that the system refused to send.
    pub unsendable: u64,
    /// Datagrams dropped because too many waited.
    pub overflowed: u64,
}

struct Member {
    socket: Socket,
    peer: Peer,
    link: Option<Link>,
    /// Datagrams may wait at the socket.
    readable: bool,
}

/// Peers, their sockets, and the clock.
pub struct Host {
    poll: Poll,
    events: Events,
    clock: Clock,
    members: Vec<Member>,
    waiting: DelayQueue,
    batch: Batch,
    counters: HostCounters,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({} peers)", self.members.len())
    }
}

impl Host {
    /// Nobody yet; its time begins now.
    pub fn new() -> io::Result<Host> {
        Ok(Host {
            poll: Poll::new()?,
            events: Events::with_capacity(256),
            clock: Clock::start(),
            members: Vec::new(),
            waiting: DelayQueue::default(),
            batch: Batch::default(),
            counters: HostCounters::default(),
        })
    }

    /// Time since the host was made.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Serves `peer` behind `socket`; what it sends takes longer by what `link` says.
    /// Its number is how many were there before.
    pub fn add(&mut self, mut socket: Socket, peer: Peer, link: Option<Link>) -> io::Result<usize> {
        let number = self.members.len();
        self.poll.registry().register(socket.source(), Token(number), Interest::READABLE)?;
        self.members.push(Member { socket, peer, link, readable: true });
        Ok(number)
    }

    /// Peer `number`.
    pub fn peer(&self, number: usize) -> &Peer {
        &self.members[number].peer
    }

    /// Peer `number`, to change.
    pub fn peer_mut(&mut self, number: usize) -> &mut Peer {
        &mut self.members[number].peer
    }

    /// All peers, by number.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.members.iter().map(|member| &member.peer)
    }

    /// What the driver has moved and dropped.
    pub fn counters(&self) -> HostCounters {
        HostCounters { overflowed: self.waiting.overflowed(), ..self.counters }
    }

    /// Does what is due, then waits for something to happen, at most until `until`, and
    /// hands on what has come.
    pub fn turn(&mut self, until: Time) -> io::Result<()> {
        let mut busy = self.release();
        let mut wake = until;
        for number in 0..self.members.len() {
            let now = self.clock.now();
            if self.members[number].peer.timer() <= now {
                self.members[number].peer.on_timer(now);
            }
            busy |= self.send_portion(number, now);
            busy |= self.members[number].peer.work() | self.members[number].readable;
            wake = wake.min(self.members[number].peer.timer());
        }
        wake = wake.min(self.waiting.next());
        let pause = if busy { Duration::ZERO } else { wake.since(self.clock.now()) };
        match self.poll.poll(&mut self.events, Some(std_duration(pause))) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &self.events {
            self.members[event.token().0].readable = true;
        }
        for number in 0..self.members.len() {
            if self.members[number].readable {
                self.receive_portion(number)?;
            }
        }
        Ok(())
    }

    /// Turns until `until`.
    pub fn run_until(&mut self, until: Time) -> io::Result<()> {
        while self.now() < until {
            self.turn(until)?;
        }
        Ok(())
    }

    /// Sends a portion of what has waited long enough; whether there may be more.
    fn release(&mut self) -> bool {
        let now = self.clock.now();
        for _ in 0..PORTION {
            let Some(waiting) = self.waiting.pop(now) else { return false };
            let sent = self.members[waiting.member].socket.send(waiting.to, &waiting.bytes);
            self.counters.count(&sent);
        }
        true
    }

    fn send_portion(&mut self, number: usize, now: Time) -> bool {
        let Member { socket, peer, link, .. } = &mut self.members[number];
        let (waiting, counters) = (&mut self.waiting, &mut self.counters);
        let mut exit = Exit { now, number, socket, link, waiting, counters };
        (0..PORTION).all(|_| peer.poll(now, &mut exit))
    }

    /// Takes a portion of what waits at a socket.
    fn receive_portion(&mut self, number: usize) -> io::Result<()> {
        let now = self.clock.now();
        let Member { socket, peer, link, readable } = &mut self.members[number];
        let (waiting, counters) = (&mut self.waiting, &mut self.counters);
        let received = self.batch.receive(socket, |from, bytes| {
            let mut exit = Exit { now, number, socket, link, waiting, counters };
            peer.on_datagram(now, from, bytes, &mut exit);
        })?;
        self.counters.received += received as u64;
        *readable = received > 0;
        Ok(())
    }
}

impl HostCounters {
    fn count(&mut self, sent: &io::Result<()>) {
        match sent {
            Ok(()) => self.sent += 1,
            Err(_) => self.unsendable += 1,
        }
    }
}

/// The way out of one peer.
struct Exit<'a> {
    now: Time,
    number: usize,
    socket: &'a Socket,
    link: &'a mut Option<Link>,
    waiting: &'a mut DelayQueue,
    counters: &'a mut HostCounters,
}

impl Outbox for Exit<'_> {
    fn send(&mut self, to: SocketAddr, wait: Duration, datagram: &[u8]) {
        let wait = wait + self.link.as_mut().map_or(Duration::ZERO, |link| link(to));
        if wait > Duration::ZERO {
            self.waiting.push(self.now + wait, self.number, to, datagram);
        } else {
            self.counters.count(&self.socket.send(to, datagram));
        }
    }
}

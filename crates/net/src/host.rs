//! The driver: one thread that serves any number of peers, each behind its own socket.
//!
//! A turn sends what is due, lets senders send, waits for the next timer or datagram,
//! and hands what has come to its peer. Everything is done in small portions, so that a
//! burst of one peer neither fills the socket buffer of another nor keeps it waiting. What
//! a portion sends leaves by one system call.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::peer::{Outbox, Peer};
use mio::{Events, Interest, Poll, Token};

use crate::clock::{Clock, std_duration};
use crate::delay_queue::DelayQueue;
use crate::send_queue::{SendCounters, SendQueue};
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
    /// Empty but while a portion is sent.
    queue: SendQueue,
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
            // Neighbours mostly take different paths.
            queue: SendQueue::new(1),
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
        let Host { members, waiting, queue, counters, .. } = self;
        let mut last = None;
        let mut more = true;
        for _ in 0..PORTION {
            let Some(next) = waiting.pop(now) else {
                more = false;
                break;
            };
            if let Some(last) = last.replace(next.member)
                && last != next.member
            {
                counters.flush(queue, &members[last].socket);
            }
            counters.send(queue, &members[next.member].socket, next.to, &next.bytes, &[]);
        }
        if let Some(last) = last {
            counters.flush(queue, &members[last].socket);
        }
        more
    }

    fn send_portion(&mut self, number: usize, now: Time) -> bool {
        let Host { members, waiting, counters, queue, .. } = self;
        let Member { socket, peer, link, .. } = &mut members[number];
        let mut exit = Exit { now, number, socket, link, waiting, queue, counters };
        let more = (0..PORTION).all(|_| peer.poll(now, &mut exit));
        counters.flush(queue, socket);
        more
    }

    /// Takes a portion of what waits at a socket.
    fn receive_portion(&mut self, number: usize) -> io::Result<()> {
        let now = self.clock.now();
        let Host { members, waiting, counters, queue, batch, .. } = self;
        let Member { socket, peer, link, readable } = &mut members[number];
        let received = batch.receive(socket, |from, bytes| {
            let mut exit = Exit { now, number, socket, link, waiting, queue, counters };
            peer.on_datagram(now, from, bytes, &mut exit);
        })?;
        counters.flush(queue, socket);
        counters.received += received.datagrams as u64;
        *readable = received.more;
        Ok(())
    }
}

impl HostCounters {
    /// A datagram of `header` and `body` leaves with the next `flush`.
    fn send(&mut self, queue: &mut SendQueue, socket: &Socket, to: SocketAddr, header: &[u8], body: &[u8]) {
        let length = header.len() + body.len();
        if !queue.has_room(length) {
            self.flush(queue, socket);
        }
        match queue.push(to, false, length) {
            Some(room) => {
                let (head, rest) = room.split_at_mut(header.len());
                head.copy_from_slice(header);
                rest.copy_from_slice(body);
            }
            // Longer than any queue: no socket sends such a thing.
            None => self.unsendable += 1,
        }
    }

    /// Sends what waits; what a full socket does not take is dropped.
    fn flush(&mut self, queue: &mut SendQueue, socket: &Socket) {
        if queue.is_empty() {
            return;
        }
        let mut done = SendCounters::default();
        queue.flush(socket, &mut done);
        self.sent += done.sent;
        self.unsendable += done.refused + queue.clear() as u64;
    }
}

/// The way out of one peer.
struct Exit<'a> {
    now: Time,
    number: usize,
    socket: &'a Socket,
    link: &'a mut Option<Link>,
    waiting: &'a mut DelayQueue,
    queue: &'a mut SendQueue,
    counters: &'a mut HostCounters,
}

impl Outbox for Exit<'_> {
    fn send(&mut self, to: SocketAddr, wait: Duration, header: &[u8], body: &[u8]) {
        let wait = wait + self.link.as_mut().map_or(Duration::ZERO, |link| link(to));
        if wait > Duration::ZERO {
            self.waiting.push(self.now + wait, self.number, to, header, body);
        } else {
            self.counters.send(self.queue, self.socket, to, header, body);
        }
    }
}

//! The runtime: one thread that serves any number of machines, each behind its own socket.
//!
//! A turn sends what is due, wakes machines whose timers have come, waits for the next timer or
//! datagram, and hands what has come to its machine. Everything is done in small portions, so that
//! a burst of one machine neither fills the socket buffer of another nor keeps it waiting. What a
//! portion sends leaves by one system call. Slow work that machines hand out is done by a pool of
//! threads; its results come back between two turns.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out, Wire};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::clock::{Clock, std_duration};
use crate::delay_queue::DelayQueue;
use crate::pool::{Pool, Work};
use crate::send_queue::{SendCounters, SendQueue};
use crate::udp::{Batch, Socket};

/// Datagrams that have waited long enough and leave before sockets are read again: 32 of them fit
/// the smallest usual socket buffer (208 KiB) three times over.
const PORTION: usize = 32;

/// Wakes the thread when the pool has a result.
const POOL: Token = Token(usize::MAX);

/// An emulated link: the extra delay of a datagram to this next hop.
pub type Link = Box<dyn FnMut(SocketAddr) -> Duration + Send>;

/// What the runtime itself has moved and dropped; `U` counts what could not be read, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeCounters<U> {
    /// Datagrams received, readable or not.
    pub received: u64,
    /// Datagrams that were no messages.
    pub unreadable: U,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that the system refused to send.
    pub unsendable: u64,
    /// Datagrams dropped because too many waited.
    pub overflowed: u64,
}

struct Member<M> {
    socket: Socket,
    machine: M,
    link: Option<Link>,
    /// Datagrams may wait at the socket.
    readable: bool,
}

/// Machines, their sockets, and the clock.
pub struct Runtime<M: Machine<Message: Wire>> {
    poll: Poll,
    events: Events,
    members: Vec<Member<M>>,
    batch: Batch,
    /// The message that a machine is shown.
    inbox: M::Message,
    exit: Exit<M>,
}

impl<M: Machine<Message: Wire>> fmt::Debug for Runtime<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Runtime({} machines)", self.members.len())
    }
}

/// What all machines' ways out share.
struct Exit<M: Machine<Message: Wire>> {
    clock: Clock,
    waiting: DelayQueue,
    /// Empty but while a portion is sent.
    queue: SendQueue,
    pool: Pool<M>,
    counters: RuntimeCounters<<M::Message as Wire>::Unreadable>,
    /// A message as it leaves.
    bytes: Vec<u8>,
}

impl<M> Runtime<M>
where
    M: Machine<Address = SocketAddr, Message: Wire, Job: Send + 'static, Done: Send + 'static>,
{
    /// No machine yet, whose jobs `work` will do; its time begins now.
    ///
    /// # Errors
    ///
    /// When the system gives no poll.
    pub fn new(work: impl Work<M>) -> io::Result<Runtime<M>> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), POOL)?;
        Ok(Runtime {
            poll,
            events: Events::with_capacity(256),
            members: Vec::new(),
            batch: Batch::default(),
            inbox: M::Message::default(),
            exit: Exit {
                clock: Clock::start(),
                waiting: DelayQueue::default(),
                // Neighbours mostly take different paths.
                queue: SendQueue::new(1),
                pool: Pool::new(work, waker),
                counters: RuntimeCounters::default(),
                bytes: Vec::new(),
            },
        })
    }

    /// Time since the runtime was made.
    pub fn now(&self) -> Time {
        self.exit.clock.now()
    }

    /// Serves `machine` behind `socket`; what it sends takes longer by what `link` says. Its
    /// number is how many were there before.
    ///
    /// # Errors
    ///
    /// When the system can't watch the socket.
    pub fn add(&mut self, mut socket: Socket, machine: M, link: Option<Link>) -> io::Result<usize> {
        let number = self.members.len();
        self.poll.registry().register(socket.source(), Token(number), Interest::READABLE)?;
        self.members.push(Member { socket, machine, link, readable: true });
        Ok(number)
    }

    /// Machine `number`.
    pub fn machine(&self, number: usize) -> &M {
        &self.members[number].machine
    }

    /// Machine `number`, to change.
    pub fn machine_mut(&mut self, number: usize) -> &mut M {
        &mut self.members[number].machine
    }

    /// All machines, by number.
    pub fn machines(&self) -> impl Iterator<Item = &M> {
        self.members.iter().map(|member| &member.machine)
    }

    /// What the runtime has moved and dropped.
    pub fn counters(&self) -> RuntimeCounters<<M::Message as Wire>::Unreadable> {
        RuntimeCounters { overflowed: self.exit.waiting.overflowed(), ..self.exit.counters }
    }

    /// Acts on machine `number`, as an application: what it sends leaves now.
    pub fn act<R>(&mut self, number: usize, act: impl FnOnce(&mut M, Time, &mut Port<'_, M>) -> R) -> R {
        let now = self.now();
        let Runtime { members, exit, .. } = self;
        let Member { socket, machine, link, .. } = &mut members[number];
        let result = act(machine, now, &mut Port { now, number, socket, link, exit });
        exit.flush(socket);
        result
    }

    /// Does what is due, then waits for something to happen, at most until `until`, and hands on
    /// what has come.
    ///
    /// # Errors
    ///
    /// When the system can't wait or read.
    pub fn turn(&mut self, until: Time) -> io::Result<()> {
        let mut busy = self.release();
        let mut wake = until;
        while let Some((number, done)) = self.exit.pool.next_done() {
            self.act(number, |machine, now, out| machine.on_done(now, done, out));
        }
        for number in 0..self.members.len() {
            let now = self.now();
            if self.members[number].machine.timer(now) <= now {
                self.act(number, |machine, now, out| machine.on_timer(now, out));
            }
            busy |= self.members[number].readable;
            // What is due again already is done once sockets were read.
            wake = wake.min(self.members[number].machine.timer(now));
        }
        wake = wake.min(self.exit.waiting.next());
        let pause = if busy { Duration::ZERO } else { wake.since(self.now()) };
        match self.poll.poll(&mut self.events, Some(std_duration(pause))) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in self.events.iter().filter(|event| event.token() != POOL) {
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
    ///
    /// # Errors
    ///
    /// As [`Runtime::turn`].
    pub fn run_until(&mut self, until: Time) -> io::Result<()> {
        while self.now() < until {
            self.turn(until)?;
        }
        Ok(())
    }

    /// Sends a portion of what has waited long enough; whether there may be more.
    fn release(&mut self) -> bool {
        let now = self.now();
        let Runtime { members, exit, .. } = self;
        let mut last = None;
        let mut more = true;
        for _ in 0..PORTION {
            let Some(next) = exit.waiting.pop(now) else {
                more = false;
                break;
            };
            if let Some(last) = last.replace(next.member)
                && last != next.member
            {
                exit.counters.flush(&mut exit.queue, &members[last].socket);
            }
            exit.counters.send(&mut exit.queue, &members[next.member].socket, next.to, false, &next.bytes);
        }
        if let Some(last) = last {
            exit.flush(&members[last].socket);
        }
        more
    }

    /// Takes a portion of what waits at a socket.
    fn receive_portion(&mut self, number: usize) -> io::Result<()> {
        let now = self.now();
        let Runtime { members, exit, batch, inbox, .. } = self;
        let Member { socket, machine, link, readable } = &mut members[number];
        let received = batch.receive_marked(socket, |from, bytes, marked| match inbox.read(bytes) {
            Ok(()) => {
                let mut port = Port { now, number, socket, link, exit };
                machine.on_message(now, Arrival { from, marked }, inbox, &mut port);
            }
            Err(error) => M::Message::count(error, &mut exit.counters.unreadable),
        })?;
        exit.flush(socket);
        exit.counters.received += received.datagrams as u64;
        *readable = received.more;
        Ok(())
    }
}

impl<M: Machine<Message: Wire>> Exit<M> {
    fn flush(&mut self, socket: &Socket) {
        self.counters.flush(&mut self.queue, socket);
    }
}

impl<U> RuntimeCounters<U> {
    /// A datagram leaves with the next `flush`.
    fn send(&mut self, queue: &mut SendQueue, socket: &Socket, to: SocketAddr, ecn_capable: bool, bytes: &[u8]) {
        if !queue.has_room(bytes.len()) {
            self.flush(queue, socket);
        }
        match queue.push(to, ecn_capable, bytes.len()) {
            Some(room) => room.copy_from_slice(bytes),
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

/// The way out of one machine.
pub struct Port<'a, M: Machine<Message: Wire>> {
    now: Time,
    number: usize,
    socket: &'a Socket,
    link: &'a mut Option<Link>,
    exit: &'a mut Exit<M>,
}

impl<M> Out<M> for Port<'_, M>
where
    M: Machine<Address = SocketAddr, Message: Wire, Job: Send + 'static, Done: Send + 'static>,
{
    fn send(&mut self, departure: Departure<SocketAddr>, message: &M::Message) {
        let Departure { to, wait, ecn_capable, .. } = departure;
        let wait = wait + self.link.as_mut().map_or(Duration::ZERO, |link| link(to));
        let Exit { waiting, queue, counters, bytes, .. } = &mut *self.exit;
        message.write(bytes);
        if wait > Duration::ZERO {
            waiting.push(self.now + wait, self.number, to, bytes);
        } else {
            counters.send(queue, self.socket, to, ecn_capable, bytes);
        }
    }

    /// Events are for observers; applications read what they want from their machine between turns.
    fn event(&mut self, _: M::Event) {}

    fn job(&mut self, job: M::Job) {
        self.exit.pool.submit(self.number, job);
    }
}

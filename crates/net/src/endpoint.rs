//! What is behind a socket, datagrams in and datagrams out, and its way out.
//!
//! A [`Machine`] whose messages have a form in datagrams is an endpoint by itself. Others are
//! written here: those of flows, whose data goes from the application into the socket's buffer
//! without a copy between, and links of a model that carry whatever comes.

use std::fmt::{self, Debug};
use std::net::{IpAddr, SocketAddr};

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out, Wire};

use crate::clock::Clock;
use crate::delay_queue::DelayQueue;
use crate::events::Events;
use crate::pool::Pool;
use crate::send_queue::{SendCounters, SendQueue};
use crate::udp::{Socket, Way};

/// Takes datagrams and gives datagrams. It has no socket, no clock and no thread: the
/// [`Runtime`](crate::runtime::Runtime) has.
pub trait Endpoint: Sized {
    /// Into what a datagram is read, where its bytes alone will not do.
    type Inbox: Default;
    /// How many datagrams could not be read, by reason.
    type Unreadable: Copy + Debug + Default;
    /// What its application is notified of.
    type Event;
    /// Slow work that is handed out.
    type Job: Send + 'static;
    /// What such work gives.
    type Done: Send + 'static;

    /// A datagram has arrived.
    fn on_datagram(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        bytes: &[u8],
        inbox: &mut Self::Inbox,
        port: &mut Port<'_, Self>,
    );

    /// The time that [`Endpoint::timer`] gave has come, or a later one.
    fn on_timer(&mut self, now: Time, port: &mut Port<'_, Self>);

    /// A socket that had no room has some again. Whoever asks for [`Port::has_room`] goes on here;
    /// what others send waits at the socket by itself.
    fn on_room(&mut self, _now: Time, _port: &mut Port<'_, Self>) {}

    /// A job is done.
    fn on_done(&mut self, now: Time, done: Self::Done, port: &mut Port<'_, Self>);

    /// When to call [`Endpoint::on_timer`] if nothing else happens; `Time::MAX` for never. It is
    /// also asked when all has been handed over that came in one system call: one that says `now`
    /// then answers all of it together. An endpoint that waits for [`Port::has_room`] does not say
    /// `now` for that: [`Endpoint::on_room`] is called when there is some.
    fn timer(&self, now: Time) -> Time;
}

/// An emulated link: the extra delay of a datagram to this next hop.
pub type Link = Box<dyn FnMut(SocketAddr) -> Duration + Send>;

/// What the runtime itself has moved and dropped; `U` counts what could not be read, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeCounters<U> {
    /// Datagrams received, readable or not.
    pub received: u64,
    /// Datagrams that were no messages.
    pub unreadable: U,
    /// What left, and what the system refused.
    pub out: SendCounters,
    /// Datagrams dropped because too many waited.
    pub overflowed: u64,
    /// Events that nobody read in time.
    pub events_dropped: u64,
}

/// What all endpoints' ways out share.
pub(crate) struct Exit<E: Endpoint> {
    pub clock: Clock,
    pub waiting: DelayQueue,
    pub pool: Pool<E::Job, E::Done>,
    pub events: Events<(usize, E::Event)>,
    pub counters: RuntimeCounters<E::Unreadable>,
    /// A message as it leaves.
    pub bytes: Vec<u8>,
}

/// The way out of one endpoint.
pub struct Port<'a, E: Endpoint> {
    pub(crate) now: Time,
    pub(crate) number: usize,
    /// The address of ours that a datagram came to, at a socket that has several: what it gives rise
    /// to leaves from there.
    pub(crate) at: Option<IpAddr>,
    pub(crate) socket: &'a Socket,
    pub(crate) queue: &'a mut SendQueue,
    pub(crate) blocked: &'a mut bool,
    pub(crate) link: &'a mut Option<Link>,
    pub(crate) exit: &'a mut Exit<E>,
}

impl<E: Endpoint> fmt::Debug for Port<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({})", self.number)
    }
}

impl<E: Endpoint> Port<'_, E> {
    /// Whether a datagram of `length` bytes may leave now. If not, the socket is full, and the
    /// endpoint's [`on_room`](Endpoint::on_room) is called when there is some.
    #[inline]
    pub fn has_room(&mut self, length: usize) -> bool {
        if !self.queue.has_room(length) {
            flush(self.queue, self.socket, self.blocked, &mut self.exit.counters.out);
        }
        !*self.blocked && self.queue.has_room(length)
    }

    /// A datagram of `length` bytes leaves, which `write` fills; one that finds no room is dropped
    /// and counted.
    #[inline]
    pub fn send(&mut self, departure: Departure<SocketAddr>, length: usize, write: impl FnOnce(&mut [u8])) {
        let Departure { to, wait, ecn_capable, .. } = departure;
        let way = Way { to, from: self.at, ect: ecn_capable };
        let wait = wait + self.link.as_mut().map_or(Duration::ZERO, |link| link(to));
        if wait > Duration::ZERO {
            // The queue counts what finds no room.
            if let Some(room) = self.exit.waiting.push(self.now + wait, self.number, way, length) {
                write(room);
            }
            return;
        }
        let counters = &mut self.exit.counters;
        match room(self.queue, self.socket, self.blocked, &mut counters.out, way, length) {
            Some(room) => write(room),
            None => counters.overflowed += 1,
        }
    }

    /// `message` leaves in its form in a datagram.
    pub(crate) fn send_message(&mut self, departure: Departure<SocketAddr>, message: &impl Wire) {
        let mut bytes = std::mem::take(&mut self.exit.bytes);
        message.write(&mut bytes);
        self.send(departure, bytes.len(), |room| room.copy_from_slice(&bytes));
        self.exit.bytes = bytes;
    }

    /// Hands `event` to the application.
    pub fn emit(&mut self, event: E::Event) {
        self.exit.events.push((self.number, event));
    }

    /// The pool does `job`.
    pub fn hand_out(&mut self, job: E::Job) {
        self.exit.pool.submit(self.number, job);
    }

    /// To count what could not be read.
    pub fn unreadable(&mut self) -> &mut E::Unreadable {
        &mut self.exit.counters.unreadable
    }
}

/// Sends what waits in `queue`. A socket that was full is left alone until the waiter reports room,
/// since then its endpoint is to be notified too.
pub(crate) fn flush(queue: &mut SendQueue, socket: &Socket, blocked: &mut bool, counters: &mut SendCounters) {
    if !*blocked && !queue.is_empty() {
        *blocked = !queue.flush(socket, counters);
    }
}

/// Room in `queue`, which leaves first if it has none; none if the socket does not take it.
pub(crate) fn room<'a>(
    queue: &'a mut SendQueue,
    socket: &Socket,
    blocked: &mut bool,
    counters: &mut SendCounters,
    way: Way,
    length: usize,
) -> Option<&'a mut [u8]> {
    if !queue.has_room(length) {
        flush(queue, socket, blocked, counters);
    }
    queue.push(way, length)
}

impl<M> Endpoint for M
where
    M: Machine<Address = SocketAddr, Message: Wire, Job: Send + 'static, Done: Send + 'static>,
{
    type Inbox = M::Message;
    type Unreadable = <M::Message as Wire>::Unreadable;
    type Event = M::Event;
    type Job = M::Job;
    type Done = M::Done;

    fn on_datagram(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        bytes: &[u8],
        inbox: &mut M::Message,
        port: &mut Port<'_, M>,
    ) {
        match inbox.read(bytes) {
            Ok(()) => self.on_message(now, arrival, inbox, port),
            Err(error) => M::Message::count(error, port.unreadable()),
        }
    }

    fn on_timer(&mut self, now: Time, port: &mut Port<'_, M>) {
        Machine::on_timer(self, now, port);
    }

    fn on_done(&mut self, now: Time, done: M::Done, port: &mut Port<'_, M>) {
        Machine::on_done(self, now, done, port);
    }

    fn timer(&self, now: Time) -> Time {
        Machine::timer(self, now)
    }
}

impl<M> Out<M> for Port<'_, M>
where
    M: Machine<Address = SocketAddr, Message: Wire, Job: Send + 'static, Done: Send + 'static>,
{
    fn send(&mut self, departure: Departure<SocketAddr>, message: &M::Message) {
        self.send_message(departure, message);
    }

    fn event(&mut self, event: M::Event) {
        self.emit(event);
    }

    fn job(&mut self, job: M::Job) {
        self.hand_out(job);
    }
}

//! The runtime: one thread that serves any number of endpoints, each behind its own socket.
//!
//! A turn sends what is due, wakes endpoints whose timers have come, waits for the next timer or
//! datagram, and hands what has come to its endpoint. Everything is done in small portions, so that
//! a burst of one endpoint neither fills the socket buffer of another nor keeps it waiting. What a
//! portion sends leaves by few system calls. Slow work that endpoints hand out is done by a pool of
//! threads; its results come back between two turns.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::Arrival;

use crate::clock::Clock;
use crate::delay_queue::DelayQueue;
use crate::endpoint::{Endpoint, Exit, Link, Port, RuntimeCounters, flush, room};
use crate::events::Events;
use crate::pool::{Pool, Work};
use crate::send_queue::{SendCounters, SendQueue};
use crate::udp::{Batch, Socket};
use crate::wait::{Waiter, Waker};

/// Datagrams that have waited long enough and leave before sockets are read again: 32 of them fit
/// the smallest usual socket buffer (208 KiB) three times over.
const PORTION: usize = 32;

/// Datagrams of one reading after which more are gathered: one may be all there is, and of more there are enough.
const GATHERED: RangeInclusive<usize> = 2..=24;

/// Takes datagrams that are not the endpoint's, before it sees them; false for those that are.
pub type Diversion = Box<dyn FnMut(&Arrival<SocketAddr>, &[u8]) -> bool + Send>;

struct Member<E> {
    socket: Socket,
    /// What waits for a socket that was full; empty between turns otherwise.
    queue: SendQueue,
    machine: E,
    link: Option<Link>,
    diversion: Option<Diversion>,
    /// Datagrams may wait at the socket.
    readable: bool,
    /// The socket was full at the last try.
    blocked: bool,
    /// The waiter tells when there is room.
    room_watched: bool,
}

/// Endpoints, their sockets, and the clock.
pub struct Runtime<E: Endpoint> {
    waiter: Waiter,
    members: Vec<Member<E>>,
    batch: Batch,
    /// What an endpoint is shown.
    inbox: E::Inbox,
    exit: Exit<E>,
    /// How long datagrams are gathered while they come a few at a time; not at all if zero.
    gather: Duration,
    /// Until when nothing is read, so that more comes together.
    gathers_until: Option<Time>,
    /// When something was read last.
    last_read: Time,
}

impl<E: Endpoint> fmt::Debug for Runtime<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Runtime({} endpoints)", self.members.len())
    }
}

impl<E: Endpoint> Runtime<E> {
    /// No endpoint yet, whose jobs `work` will do; its time begins now.
    ///
    /// # Errors
    ///
    /// When the system has no room for another descriptor.
    pub fn new(work: impl Work<E::Job, E::Done>) -> io::Result<Runtime<E>> {
        Runtime::on_clock(Clock::start(), work)
    }

    /// No endpoint yet, whose jobs `work` will do; all times are of `clock`.
    ///
    /// # Errors
    ///
    /// When the system has no room for another descriptor.
    pub fn on_clock(clock: Clock, work: impl Work<E::Job, E::Done>) -> io::Result<Runtime<E>> {
        let waiter = Waiter::new()?;
        Ok(Runtime {
            members: Vec::new(),
            batch: Batch::default(),
            inbox: E::Inbox::default(),
            exit: Exit {
                clock,
                waiting: DelayQueue::default(),
                pool: Pool::new(work, waiter.waker()),
                events: Events::default(),
                counters: RuntimeCounters::default(),
                bytes: Vec::new(),
            },
            waiter,
            gather: Duration::ZERO,
            gathers_until: None,
            last_read: Time::ZERO,
        })
    }

    /// From now on, while datagrams come a few at a time and shortly after each other, they wait at the socket for up to
    /// `longest`, so that more of them are handled together: each time that a thread is woken costs as much as several
    /// datagrams. What comes seldom waits for nothing, and where many wait already nothing does. Wakers are heard once
    /// such a time is over.
    pub fn gather(&mut self, longest: Duration) {
        self.gather = longest;
    }

    /// Now, on the runtime's clock.
    pub fn now(&self) -> Time {
        self.exit.clock.now()
    }

    /// Ends a `turn` of another thread early.
    pub fn waker(&self) -> Waker {
        self.waiter.waker()
    }

    /// Serves `machine` behind `socket`; what it sends takes longer by what `link` says. Its
    /// number is how many were there before.
    ///
    /// # Errors
    ///
    /// When the system can't watch the socket.
    pub fn add(&mut self, socket: Socket, machine: E, link: Option<Link>) -> io::Result<usize> {
        // Neighbours mostly take different paths.
        self.add_with(socket, machine, link, SendQueue::new(1))
    }

    /// As [`Runtime::add`], for an endpoint whose datagrams each stand for themselves: those that leave
    /// together for one destination travel the system as one, as in [`Runtime::add_with_segmentation`],
    /// though they were no neighbours. Those of one length to one destination stay in order.
    ///
    /// # Errors
    ///
    /// As [`Runtime::add`].
    pub fn add_gathering(&mut self, socket: Socket, machine: E) -> io::Result<usize> {
        let queue = SendQueue::gathering(socket.max_segments());
        self.add_with(socket, machine, None, queue)
    }

    /// As [`Runtime::add_gathering`], but all that goes to one destination stays in order: for endpoints whose peers
    /// take for lost what others overtake, as QUIC's do (RFC 9002, 6.1).
    ///
    /// # Errors
    ///
    /// As [`Runtime::add`].
    pub fn add_gathering_in_order(&mut self, socket: Socket, machine: E) -> io::Result<usize> {
        let queue = SendQueue::gathering_in_order(socket.max_segments());
        self.add_with(socket, machine, None, queue)
    }

    /// As [`Runtime::add`]; datagrams that leave together for one destination travel the system as
    /// one until a network device, or the receiving socket, takes them apart: faster, and coarser
    /// for a queue on the way.
    ///
    /// # Errors
    ///
    /// As [`Runtime::add`].
    pub fn add_with_segmentation(&mut self, socket: Socket, machine: E, link: Option<Link>) -> io::Result<usize> {
        let queue = SendQueue::new(socket.max_segments());
        self.add_with(socket, machine, link, queue)
    }

    fn add_with(&mut self, socket: Socket, machine: E, link: Option<Link>, queue: SendQueue) -> io::Result<usize> {
        let number = self.members.len();
        self.waiter.watch(&socket, number)?;
        let (readable, blocked, room_watched) = (true, false, false);
        let diversion = None;
        self.members.push(Member { socket, queue, machine, link, diversion, readable, blocked, room_watched });
        Ok(number)
    }

    /// Has `diversion` see what comes to the socket of endpoint `number` first: another protocol that
    /// shares the socket.
    pub fn divert(&mut self, number: usize, diversion: Diversion) {
        self.members[number].diversion = Some(diversion);
    }

    /// Where the socket of endpoint `number` is bound.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn local_addr(&self, number: usize) -> io::Result<SocketAddr> {
        self.members[number].socket.local_addr()
    }

    /// Endpoint `number`.
    pub fn machine(&self, number: usize) -> &E {
        &self.members[number].machine
    }

    /// Endpoint `number`, to change.
    pub fn machine_mut(&mut self, number: usize) -> &mut E {
        &mut self.members[number].machine
    }

    /// All endpoints, by number.
    pub fn machines(&self) -> impl Iterator<Item = &E> {
        self.members.iter().map(|member| &member.machine)
    }

    /// What the runtime has moved and dropped.
    pub fn counters(&self) -> RuntimeCounters<E::Unreadable> {
        let Exit { counters, waiting, events, .. } = &self.exit;
        RuntimeCounters {
            overflowed: counters.overflowed + waiting.overflowed(),
            events_dropped: events.dropped(),
            ..*counters
        }
    }

    /// The next thing that has happened, and at which endpoint.
    pub fn poll_event(&mut self) -> Option<(usize, E::Event)> {
        self.exit.events.pop()
    }

    /// Acts on endpoint `number`, as an application: what it sends leaves now.
    pub fn act<R>(&mut self, number: usize, act: impl FnOnce(&mut E, Time, &mut Port<'_, E>) -> R) -> R {
        self.members[number].act(number, &mut self.exit, act)
    }

    /// Does what is due, then waits for something to happen, at most until `until`, and hands on
    /// what has come.
    ///
    /// # Errors
    ///
    /// When the system can't wait or read.
    pub fn turn(&mut self, until: Time) -> io::Result<()> {
        let mut busy = self.release();
        while let Some((number, done)) = self.exit.pool.next_done() {
            self.act(number, |machine, now, port| machine.on_done(now, done, port));
        }
        let Runtime { members, exit, .. } = self;
        let mut wake = until;
        for (number, member) in members.iter_mut().enumerate() {
            member.wake(number, exit);
            busy |= member.readable;
            // What is due again already is done once sockets were read.
            wake = wake.min(member.machine.timer(exit.clock.now()));
        }
        busy |= exit.events.are_fresh();
        // What has just been sent may wait for a link.
        wake = wake.min(exit.waiting.next());
        let longest = if busy { Duration::ZERO } else { wake.since(exit.clock.now()) };
        if !self.pause(busy, wake) {
            self.wait((busy || wake < Time::MAX).then_some(longest))?;
        }
        let mut received = 0;
        for number in 0..self.members.len() {
            if self.members[number].readable {
                received += self.receive_portion(number)?;
            }
        }
        if received > 0 && self.gather > Duration::ZERO {
            let now = self.now();
            let before = std::mem::replace(&mut self.last_read, now);
            let gathers = GATHERED.contains(&received) && now.since(before) < self.gather * 2;
            self.gathers_until = gathers.then_some(now + self.gather);
        }
        self.exit.events.end_turn();
        Ok(())
    }

    /// Lets datagrams gather, if they shall, until `wake` at the latest; whether it did, and sockets are to be read.
    fn pause(&mut self, busy: bool, wake: Time) -> bool {
        let Some(until) = self.gathers_until.take() else { return false };
        let now = self.now();
        let until = until.min(wake);
        if busy || until <= now || self.members.iter().any(|member| member.blocked) {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_nanos(until.since(now).as_nanos()));
        self.members.iter_mut().for_each(|member| member.readable = true);
        true
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
        let Runtime { members, exit, .. } = self;
        let Exit { waiting, counters, .. } = exit;
        let now = exit.clock.now();
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
                members[last].flush(&mut counters.out);
            }
            let Member { socket, queue, blocked, .. } = &mut members[next.member];
            match room(queue, socket, blocked, &mut counters.out, next.way, next.bytes.len()) {
                Some(room) => room.copy_from_slice(&next.bytes),
                None => counters.overflowed += 1,
            }
        }
        if let Some(last) = last {
            members[last].flush(&mut counters.out);
        }
        more
    }

    /// Waits until a socket can be read or has room again, at most for `longest`.
    fn wait(&mut self, longest: Option<Duration>) -> io::Result<()> {
        let Runtime { waiter, members, exit, .. } = self;
        // There is nothing to wait for and nothing to be notified of.
        if longest == Some(Duration::ZERO) && members.iter().all(|member| member.readable && !member.blocked) {
            return Ok(());
        }
        for (number, member) in members.iter_mut().enumerate() {
            if member.room_watched != member.blocked {
                waiter.watch_room(&member.socket, number, member.blocked)?;
                member.room_watched = member.blocked;
            }
        }
        waiter.wait(longest, |ready| {
            let member = &mut members[ready.number];
            member.readable |= ready.readable;
            if ready.writable && std::mem::take(&mut member.blocked) {
                member.flush(&mut exit.counters.out);
                if !member.blocked {
                    member.act(ready.number, exit, |machine, now, port| machine.on_room(now, port));
                }
            }
        })
    }

    /// Takes a portion of what waits at a socket; how many datagrams it was.
    fn receive_portion(&mut self, number: usize) -> io::Result<usize> {
        let now = self.now();
        let Runtime { members, exit, batch, inbox, .. } = self;
        let member = &mut members[number];
        let Member { socket, queue, machine, link, diversion, blocked, .. } = member;
        let socket = &*socket;
        let received = batch.receive_whole(socket, |arrival, bytes| {
            if diversion.as_mut().is_some_and(|divert| divert(&arrival, bytes)) {
                return;
            }
            let at = arrival.at.map(|at| at.ip());
            let mut port = Port { now, number, at, socket, queue, blocked, link, exit };
            machine.on_datagram(now, arrival, bytes, inbox, &mut port);
        })?;
        member.readable = received.more;
        exit.counters.received += received.datagrams as u64;
        member.wake(number, exit);
        member.flush(&mut exit.counters.out);
        Ok(received.datagrams)
    }
}

impl<E: Endpoint> Member<E> {
    fn act<R>(
        &mut self,
        number: usize,
        exit: &mut Exit<E>,
        act: impl FnOnce(&mut E, Time, &mut Port<'_, E>) -> R,
    ) -> R {
        let now = exit.clock.now();
        let Member { socket, queue, machine, link, blocked, .. } = self;
        let result = act(machine, now, &mut Port { now, number, at: None, socket, queue, blocked, link, exit });
        self.flush(&mut exit.counters.out);
        result
    }

    /// Calls the endpoint if its time has come.
    fn wake(&mut self, number: usize, exit: &mut Exit<E>) {
        let now = exit.clock.now();
        if self.machine.timer(now) <= now {
            self.act(number, exit, |machine, now, port| machine.on_timer(now, port));
        }
    }

    /// As [`flush`].
    fn flush(&mut self, counters: &mut SendCounters) {
        flush(&mut self.queue, &self.socket, &mut self.blocked, counters);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::{Ipv4Addr, UdpSocket};

    use anabranch_proto::machine::Departure;

    use crate::pool::NoWork;
    use crate::udp::Way;

    use super::*;

    /// Sends what it shall as fast as the socket takes it.
    #[derive(Default)]
    struct Burst {
        to: Option<SocketAddr>,
        left: u32,
        stalled: bool,
        calls: u32,
        says_nothing: bool,
    }

    impl Endpoint for Burst {
        type Inbox = ();
        type Unreadable = ();
        type Event = u32;
        type Job = Infallible;
        type Done = Infallible;

        fn on_datagram(&mut self, _: Time, _: Arrival<SocketAddr>, _: &[u8], (): &mut (), _: &mut Port<'_, Burst>) {}

        fn on_timer(&mut self, now: Time, port: &mut Port<'_, Burst>) {
            self.on_room(now, port);
        }

        fn on_room(&mut self, _: Time, port: &mut Port<'_, Burst>) {
            self.calls += 1;
            while self.left > 0 {
                self.stalled = !port.has_room(1000);
                if self.stalled {
                    return;
                }
                let departure = Departure::now(self.to.expect("somebody"), 1000);
                port.send(departure, 1000, |room| room.fill(self.left as u8));
                self.left -= 1;
            }
            if !self.says_nothing {
                port.emit(self.calls);
            }
        }

        fn on_done(&mut self, _: Time, done: Infallible, _: &mut Port<'_, Burst>) {
            match done {}
        }

        fn timer(&self, now: Time) -> Time {
            if self.left > 0 && !self.stalled { now } else { Time::MAX }
        }
    }

    fn runtime(left: u32) -> (Runtime<Burst>, UdpSocket) {
        let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let burst = Burst { to: Some(other.local_addr().unwrap()), left, ..Burst::default() };
        let mut runtime = Runtime::new(NoWork).unwrap();
        runtime.add(Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap(), burst, None).unwrap();
        (runtime, other)
    }

    #[test]
    fn an_endpoint_waits_for_a_full_socket_and_goes_on_when_it_has_room() {
        let (mut runtime, other) = runtime(3);
        // As after a send that the socket did not take: loopback takes whatever it is given.
        let full = &mut runtime.members[0];
        full.blocked = true;
        full.queue.push(Way::to(other.local_addr().unwrap()), 1).unwrap()[0] = 9;
        runtime.turn(Time::ZERO).unwrap();
        let mut first = [0; 2000];
        assert_eq!((other.recv(&mut first).unwrap(), first[0]), (1, 9), "what waited leaves first");
        // Called once while the socket was full, once when it had room.
        assert_eq!(runtime.poll_event(), Some((0, 2)));
        for byte in [3, 2, 1] {
            let mut datagram = [0; 2000];
            assert_eq!((other.recv(&mut datagram).unwrap(), datagram[0]), (1000, byte));
        }
        assert_eq!((runtime.counters().out.sent, runtime.machine(0).calls), (4, 2));
    }

    #[test]
    fn what_comes_a_few_at_a_time_is_gathered_and_what_comes_alone_is_not() {
        let (mut runtime, other) = runtime(0);
        let longest = Duration::from_millis(500);
        runtime.gather(longest);
        let address = runtime.local_addr(0).unwrap();
        let send = |count: usize| (0..count).for_each(|_| _ = other.send_to(&[1], address).unwrap());
        let until = |runtime: &Runtime<Burst>| runtime.now() + Duration::SECOND * 60;
        // Reads what waits; how long that took.
        let read = |runtime: &mut Runtime<Burst>, until: Time| {
            let began = runtime.now();
            runtime.turn(until).unwrap();
            runtime.now().since(began)
        };
        for _ in 0..2 {
            send(2);
            let until = until(&runtime);
            read(&mut runtime, until);
        }
        assert_eq!(runtime.counters().received, 4);
        send(1);
        let later = std::thread::spawn({
            let other = other.try_clone().unwrap();
            move || {
                std::thread::sleep(std::time::Duration::from_millis(50));
                other.send_to(&[2], address).unwrap();
            }
        });
        let last = until(&runtime);
        let took = read(&mut runtime, last);
        later.join().unwrap();
        // It began when the reading before was over.
        assert!(took >= longest - Duration::from_millis(100), "{took:?}");
        assert_eq!(runtime.counters().received, 6, "what came meanwhile is read with it");
        // What is due is done when it is.
        let soon = runtime.now() + Duration::from_millis(3);
        assert!(read(&mut runtime, soon) < longest / 2);
        send(1);
        runtime.turn(Time::ZERO).unwrap();
        send(1);
        let last = until(&runtime);
        assert!(read(&mut runtime, last) < longest / 2, "one alone");
        assert_eq!(runtime.counters().received, 8);
    }

    #[test]
    fn what_has_happened_ends_the_turn_and_a_waker_does() {
        let (mut runtime, _other) = runtime(1);
        runtime.turn(Time::MAX).unwrap();
        assert_eq!(runtime.poll_event(), Some((0, 1)));
        runtime.waker().wake();
        runtime.turn(Time::MAX).unwrap();
        assert_eq!(runtime.poll_event(), None);
        let until = runtime.now() + Duration::from_millis(3);
        runtime.turn(until).unwrap();
        assert!(runtime.now() >= until, "it waits if nothing happens");
    }

    #[test]
    fn what_a_timer_sends_over_a_slow_link_leaves_when_it_is_due_and_not_at_the_next_event() {
        let (mut runtime, _other) = runtime(0);
        runtime.turn(Time::ZERO).unwrap();
        let delay = Duration::from_millis(2);
        runtime.members[0].link = Some(Box::new(move |_| delay));
        let burst = runtime.machine_mut(0);
        (burst.left, burst.says_nothing) = (1, true);
        let until = runtime.now() + Duration::SECOND * 10;
        runtime.turn(until).unwrap();
        assert!(runtime.now() < until, "nothing else happens before");
        runtime.turn(Time::ZERO).unwrap();
        assert_eq!(runtime.counters().out.sent, 1);
    }

    #[test]
    fn an_emulated_link_delays_and_what_is_more_than_may_wait_is_counted() {
        let (mut runtime, other) = runtime(0);
        let delay = Duration::from_millis(2);
        runtime.members[0].link = Some(Box::new(move |_| delay));
        // The first turn looks into the socket.
        runtime.turn(Time::ZERO).unwrap();
        let (to, began) = (other.local_addr().unwrap(), runtime.now());
        runtime.act(0, |_, _, port| port.send(Departure::now(to, 1), 1, |room| room[0] = 7));
        assert_eq!(runtime.counters().out.sent, 0);
        runtime.turn(Time::MAX).unwrap();
        assert!(runtime.now() >= began + delay);
        runtime.turn(Time::ZERO).unwrap();
        assert_eq!(runtime.counters().out.sent, 1);
        runtime.act(0, |_, _, port| {
            (0..crate::delay_queue::MAX_WAITING + 2).for_each(|_| port.send(Departure::now(to, 1), 1, |_| ()));
        });
        assert_eq!(runtime.counters().overflowed, 2);
    }
}

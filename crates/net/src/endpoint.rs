//! What is behind a socket: datagrams in, datagrams out.
//!
//! A [`Machine`] whose messages have a form in datagrams is an endpoint by itself. Others are
//! written here: those of flows, whose data goes from the application into the socket's buffer
//! without a copy between, and links of a model that carry whatever comes.

use core::fmt::Debug;
use std::net::SocketAddr;

use anabranch_control::time::Time;
use anabranch_proto::machine::{Arrival, Departure, Machine, Out, Wire};

use crate::runtime::Port;

/// Takes datagrams and gives datagrams. It has no socket, no clock and no thread: the
/// [`Runtime`](crate::runtime::Runtime) has.
pub trait Endpoint: Sized {
    /// Into what a datagram is read, where its bytes alone will not do.
    type Inbox: Default;
    /// How many datagrams could not be read, by reason.
    type Unreadable: Copy + Debug + Default;
    /// What its application is told.
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

    /// The time that [`Endpoint::timer`] gave has come, or a later one, or a socket that had no
    /// room has some again.
    fn on_timer(&mut self, now: Time, port: &mut Port<'_, Self>);

    /// A job is done.
    fn on_done(&mut self, now: Time, done: Self::Done, port: &mut Port<'_, Self>);

    /// When to call [`Endpoint::on_timer`] if nothing else happens; `Time::MAX` for never. It is
    /// also asked when all has been handed over that came in one system call: one that says `now`
    /// then answers all of it together. An endpoint that waits for [`Port::has_room`] does not say
    /// `now` for that: it is called when there is room.
    fn timer(&self, now: Time) -> Time;
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
        self.tell(event);
    }

    fn job(&mut self, job: M::Job) {
        self.hand_out(job);
    }
}

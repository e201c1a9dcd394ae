//! What every part of a protocol is to whoever drives it: a machine without IO.
//!
//! A driver owns the clock, moves messages and calls back when a timer is due; the machine decides.
//! The simulator's world and the socket runtime drive the same machines. Commands are methods of
//! the machine itself: the driver lends it out together with an [`Out`] (`act`).

use core::fmt::Debug;

use anabranch_control::time::{Duration, Time};

/// Where a message has come from, and what its way has done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<A> {
    /// The node that sent it, as the driver has seen it.
    pub from: A,
    /// The address of ours that it was sent to, where the driver serves several as one.
    pub at: Option<A>,
    /// Whether it bears a congestion-experienced mark (RFC 3168).
    pub marked: bool,
}

impl<A> Arrival<A> {
    /// From `from`, without a mark.
    #[inline]
    pub fn new(from: A) -> Arrival<A> {
        Arrival { from, at: None, marked: false }
    }
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure<A> {
    /// The node that gets it.
    pub to: A,
    /// How long it waits here first.
    pub wait: Duration,
    /// Its bytes on the wire, where no codec says so.
    pub size: u32,
    /// Whether it may be marked instead of dropped (ECT, RFC 3168).
    pub ecn_capable: bool,
}

impl<A> Departure<A> {
    /// To `to`, now.
    #[inline]
    pub fn now(to: A, size: u32) -> Departure<A> {
        Departure { to, wait: Duration::ZERO, size, ecn_capable: false }
    }

    /// To `to`, after `wait`.
    #[inline]
    pub fn after(wait: Duration, to: A, size: u32) -> Departure<A> {
        Departure { to, wait, size, ecn_capable: false }
    }
}

/// A message's form in a datagram.
pub trait Wire: Default {
    /// Why bytes are no such message.
    type Error: Debug;
    /// How many were not, by reason.
    type Unreadable: Copy + Debug + Default;

    /// Replaces what is in `out` by the bytes of this message.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads the message in `bytes`. After an error, what this message says is of no meaning.
    ///
    /// # Errors
    ///
    /// When the bytes are no message: what a peer sends must never panic.
    fn read(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Counts a message that could not be read.
    fn count(error: Self::Error, unreadable: &mut Self::Unreadable);
}

/// Takes what a machine gives.
pub trait Out<M: Machine> {
    /// `message` leaves.
    fn send(&mut self, departure: Departure<M::Address>, message: &M::Message);

    /// `message`, which has arrived with this very call, leaves again: the same as [`Out::send`], but
    /// a driver may leave the message where it lies.
    #[inline]
    fn forward(&mut self, departure: Departure<M::Address>, message: &M::Message) {
        self.send(departure, message);
    }

    /// Something that an application or an observer wants to know has happened.
    fn event(&mut self, event: M::Event);

    /// Something slow (disk, hash) is to be done elsewhere; [`Machine::on_done`] gets the result.
    fn job(&mut self, job: M::Job);

    /// This call has not changed [`Machine::timer`], which therefore need not be asked.
    fn keep_timer(&mut self) {}
}

/// A part of a protocol.
pub trait Machine: Sized {
    /// What names a node: a number in a simulation, an address on a network.
    type Address: Copy + Eq + Debug;
    /// What travels.
    type Message;
    /// What applications and observers are told; [`Infallible`](core::convert::Infallible) if nothing.
    type Event;
    /// Slow work that is handed out.
    type Job: Clone + Debug;
    /// What such work gives.
    type Done: Clone + Debug;

    /// A message has arrived. It may be changed and sent on.
    fn on_message(
        &mut self,
        now: Time,
        arrival: Arrival<Self::Address>,
        message: &mut Self::Message,
        out: &mut impl Out<Self>,
    );

    /// The time that [`Machine::timer`] gave has come, or a later one.
    fn on_timer(&mut self, now: Time, out: &mut impl Out<Self>);

    /// A job is done.
    fn on_done(&mut self, now: Time, done: Self::Done, out: &mut impl Out<Self>);

    /// When to call [`Machine::on_timer`] if nothing else happens; `Time::MAX` for never. An
    /// instant before `now` counts as `now`: the driver clamps it, so that none is lost. A machine
    /// that says `now` after `on_timer` has more to do, and must get on with every call.
    fn timer(&self, now: Time) -> Time;
}

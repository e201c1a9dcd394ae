//! Sessions between peers, as the application above them sees them.
//!
//! A session connects two peers that have proved who they are. It carries *messages*, reliably and
//! in order, and *datagrams*, which may be lost or overtake each other. All sessions of a peer share
//! one congestion controller: one sender with many receivers. A datagram is therefore not handed
//! over to be queued; the application is asked for one, to whom and what, at the instant at which
//! the window has room for it, so that what leaves is what matters most at that instant.
//!
//! Two machines carry the same applications: flows of packets without bytes in a simulation, QUIC
//! (RFC 9000, datagrams of RFC 9221) on sockets. What only one of them can do is not offered here:
//! no QUIC library tells what became of a datagram.

mod books;
mod dues;
mod either;
mod flow_sessions;
mod handshake;
mod packet;
mod stream;
#[cfg(test)]
mod tests;

use core::fmt::{self, Debug};

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;

use crate::key_text;

pub use books::{SessionConfig, SessionCounters};
pub(crate) use either::either_application;
pub use flow_sessions::{Acting, FlowSessions};
pub use packet::{ACK_ALONE, ConnectionId, DATAGRAM_HEADERS, Packet};

/// Bytes of messages to one peer that may wait for their arrival: what QUIC libraries let a stream
/// have outstanding by default (a megabyte or so). Beyond, the session is over.
pub const MOST_BACKLOG: u64 = 1 << 20;

/// A session of a peer, numbered from 0. The number of a session that is over is used again once the
/// application knows it: after [`Application::on_closed`], or after its own [`Sessions::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

impl SessionId {
    /// As an index into tables with an entry for each session.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The public key by which a peer proves who it is (Ed25519, RFC 8032).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerKey(pub [u8; 32]);

/// In 64 hexadecimal digits.
impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        key_text::write(&self.0, f)
    }
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote<A> {
    /// Where it is, as its packets say.
    pub address: A,
    /// Which key it has proved to have.
    pub key: PeerKey,
    /// Whether it has begun the session.
    pub is_initiator: bool,
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The other end has closed it.
    ByPeer,
    /// Nothing came for the idle timeout, or no answer to the first packets.
    TimedOut,
    /// The other end has another key than was asked for, or does not speak the protocol.
    Refused,
    /// The other end reads its messages too slowly, or sends what it must not.
    Misused,
}

/// Bytes on the wire.
pub trait WireLength {
    /// How many bytes this is inside a packet, without the packet's own headers.
    fn wire_length(&self) -> usize;
}

/// What uses sessions: a machine without IO, as [`Machine`](crate::machine::Machine) is, one layer
/// above it.
pub trait Application: Sized {
    /// What names a node: a number in a simulation, an address on a network.
    type Address: Copy + Eq + Debug;
    /// What goes reliably and in order.
    type Message: Clone + Debug + WireLength;
    /// What may be lost.
    type Datagram: Clone + Debug + WireLength;
    /// What drivers and observers are notified of.
    type Event;

    /// Somebody whose session this peer has not asked for proves to be `remote`: whether it may begin.
    fn accepts(&mut self, now: Time, remote: &Remote<Self::Address>) -> bool;

    /// A session stands; from now on messages and datagrams pass.
    fn on_open(
        &mut self,
        now: Time,
        session: SessionId,
        remote: &Remote<Self::Address>,
        sessions: &mut impl Sessions<Self>,
    );

    /// A message has come.
    fn on_message(&mut self, now: Time, session: SessionId, message: Self::Message, sessions: &mut impl Sessions<Self>);

    /// A datagram has come.
    fn on_datagram(
        &mut self,
        now: Time,
        session: SessionId,
        datagram: Self::Datagram,
        sessions: &mut impl Sessions<Self>,
    );

    /// The other end has begun to be silent: a packet to it has waited for its ACK for longer than a
    /// probe timeout (RFC 9002, 6.2). Until it has answered, no datagram leaves for it, and those that
    /// are given for it are thrown away; messages wait. Or it has answered again.
    fn on_silent(&mut self, now: Time, session: SessionId, is_silent: bool, sessions: &mut impl Sessions<Self>) {
        let _ = (now, session, is_silent, sessions);
    }

    /// A session is over, or an attempt to open one: not by [`Sessions::close`].
    fn on_closed(&mut self, now: Time, session: SessionId, why: Closed, sessions: &mut impl Sessions<Self>);

    /// The time that [`Application::timer`] gave has come, or a later one.
    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Self>);

    /// When to call [`Application::on_timer`] if nothing else happens; `Time::MAX` for never.
    fn timer(&self, now: Time) -> Time;

    /// The window has room: what leaves next, and over which session. It must be open, and is asked
    /// for again after each datagram; none if nothing shall leave before the next call.
    fn next_datagram(&mut self, now: Time) -> Option<(SessionId, Self::Datagram)>;

    /// How much waits for nothing but that, a datagram counted as long as one may be.
    fn waiting(&self) -> Bytes;
}

/// What an application may do.
pub trait Sessions<A: Application> {
    /// Begins a session with `to`, whose key must be `key` if one is given. [`Application::on_open`]
    /// or [`Application::on_closed`] follows. None if there are too many sessions.
    fn open(&mut self, to: A::Address, key: Option<PeerKey>) -> Option<SessionId>;

    /// Has a NAT before this peer, if there is one, let in what comes from `from`: something goes there that says nothing
    /// (UDP hole punching, RFC 5128, 3.3). Does nothing where there are no NATs.
    fn open_way(&mut self, _from: A::Address) {}

    /// Sends `message`, once the session stands.
    fn send(&mut self, session: SessionId, message: A::Message);

    /// Ends a session; the other end is told. What has not left is lost.
    fn close(&mut self, session: SessionId);

    /// The least round trip so far, once there is a sample: what the way takes without queues.
    fn least_round_trip(&self, session: SessionId) -> Option<Duration>;

    /// Data that has arrived at the other ends of all sessions since the first began, as ACKs tell. What
    /// that grows by while something waits to leave is what this peer can send.
    fn delivered(&self) -> Bytes;

    /// Something that a driver or an observer wants to know has happened.
    fn event(&mut self, event: A::Event);
}

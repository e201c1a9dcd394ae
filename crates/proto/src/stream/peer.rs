//! Server or client: what drivers hold that carry both.

use anabranch_control::time::Time;
use anabranch_control::units::Bytes;

use super::client::{Client, ClientEvent};
use super::content::Content;
use super::message::{Datagram, Message};
use super::server::{Server, ServerEvent};
use crate::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions};

/// One of a stream's peers.
#[derive(Clone, Debug)]
pub enum StreamPeer<A, C: Content> {
    /// The one that has the stream.
    Server(Server<A, C>),
    /// One that watches.
    Client(Client<A, C>),
}

/// What a peer tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent<P> {
    /// The server.
    Server(ServerEvent),
    /// A client.
    Client(ClientEvent<P>),
}

/// What a server may do, or a client: their events become a peer's.
struct Inner<'a, S>(&'a mut S);

macro_rules! inner_sessions {
    ($inner:ident, $event:ident) => {
        impl<A, C, S> Sessions<$inner<A, C>> for Inner<'_, S>
        where
            A: Copy + Eq + core::fmt::Debug,
            C: Content,
            S: Sessions<StreamPeer<A, C>>,
        {
            fn open(&mut self, to: A, key: Option<PeerKey>) -> Option<SessionId> {
                self.0.open(to, key)
            }

            fn send(&mut self, session: SessionId, message: Message<A, C>) {
                self.0.send(session, message);
            }

            fn close(&mut self, session: SessionId) {
                self.0.close(session);
            }

            fn least_round_trip(&self, session: SessionId) -> Option<anabranch_control::time::Duration> {
                self.0.least_round_trip(session)
            }

            fn delivered(&self) -> Bytes {
                self.0.delivered()
            }

            fn event(&mut self, event: <$inner<A, C> as Application>::Event) {
                self.0.event(StreamEvent::$event(event));
            }
        }
    };
}

inner_sessions!(Server, Server);
inner_sessions!(Client, Client);

macro_rules! either {
    ($peer:expr, $inner:ident => $call:expr) => {
        match $peer {
            StreamPeer::Server($inner) => $call,
            StreamPeer::Client($inner) => $call,
        }
    };
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Application for StreamPeer<A, C> {
    type Address = A;
    type Message = Message<A, C>;
    type Datagram = Datagram<C>;
    type Event = StreamEvent<C::Packet>;

    fn accepts(&mut self, now: Time, remote: &Remote<A>) -> bool {
        either!(self, peer => peer.accepts(now, remote))
    }

    fn on_open(&mut self, now: Time, session: SessionId, remote: &Remote<A>, sessions: &mut impl Sessions<Self>) {
        either!(self, peer => peer.on_open(now, session, remote, &mut Inner(sessions)));
    }

    fn on_message(
        &mut self,
        now: Time,
        session: SessionId,
        message: Message<A, C>,
        sessions: &mut impl Sessions<Self>,
    ) {
        either!(self, peer => peer.on_message(now, session, message, &mut Inner(sessions)));
    }

    #[inline]
    fn on_datagram(
        &mut self,
        now: Time,
        session: SessionId,
        datagram: Datagram<C>,
        sessions: &mut impl Sessions<Self>,
    ) {
        either!(self, peer => peer.on_datagram(now, session, datagram, &mut Inner(sessions)));
    }

    fn on_silent(&mut self, now: Time, session: SessionId, is_silent: bool, sessions: &mut impl Sessions<Self>) {
        either!(self, peer => peer.on_silent(now, session, is_silent, &mut Inner(sessions)));
    }

    fn on_closed(&mut self, now: Time, session: SessionId, why: Closed, sessions: &mut impl Sessions<Self>) {
        either!(self, peer => peer.on_closed(now, session, why, &mut Inner(sessions)));
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        either!(self, peer => peer.on_timer(now, &mut Inner(sessions)));
    }

    #[inline]
    fn timer(&self, now: Time) -> Time {
        either!(self, peer => peer.timer(now))
    }

    #[inline]
    fn next_datagram(&mut self, now: Time) -> Option<(SessionId, Datagram<C>)> {
        either!(self, peer => peer.next_datagram(now))
    }
}

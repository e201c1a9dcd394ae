//! Server or client: what drivers hold that carry both.

use anabranch_control::time::Time;
use anabranch_control::units::Bytes;

use super::client::{Client, ClientEvent};
use super::content::Content;
use super::message::{Datagram, Message};
use super::server::{Server, ServerEvent};
use crate::network::Address;
use crate::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions, either_application};

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
            A: Address,
            C: Content,
            S: Sessions<StreamPeer<A, C>>,
        {
            fn open(&mut self, to: A, key: Option<PeerKey>) -> Option<SessionId> {
                self.0.open(to, key)
            }

            fn open_way(&mut self, from: A) {
                self.0.open_way(from);
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

either_application! {
    impl[A: Address, C: Content] for StreamPeer<A, C> { Server, Client };
    A, Message<A, C>, Datagram<C>, StreamEvent<C::Packet>
}

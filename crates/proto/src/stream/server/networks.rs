//! What one network may take of a server: whoever has one address has a whole network of them and as many keys as it
//! likes, so that nothing that is counted by address or key bounds it.
//!
//! Of each [network](crate::network) `most_of_network` viewers are let in at most ([`MOST_OF_NETWORK`] unless the server's
//! configuration says otherwise), and twice as many sessions stand: there is room for those who come again while nobody knows yet that they have gone. Handshakes of a network are counted
//! below, where addresses are proved; since each session asks once ([`Peer::has_asked`]), these are also the times
//! that a network may ask.

use super::super::content::Content;
use super::super::peers::Peer;
use super::Server;
use crate::network::Address;

/// Viewers of one network that are let in, if nothing else is said: a class of thirty with two devices each, behind
/// one router, and as many as may begin handshakes at once.
pub const MOST_OF_NETWORK: usize = 64;

impl<A: Address, C: Content> Server<A, C> {
    /// Those of the network of `address` with whom sessions stand.
    fn beside(&self, address: A) -> impl Iterator<Item = &Peer<A>> {
        let network_of = self.network_of;
        let is_its =
            move |peer: &&Peer<A>| peer.remote.is_some_and(|remote| network_of(remote.address) == network_of(address));
        self.peers.iter().map(|(_, peer)| peer).filter(is_its)
    }

    /// Whether another session may stand of the network of `address`.
    pub(super) fn has_room_for_session(&self, address: A) -> bool {
        self.beside(address).count() < 2 * self.config.most_of_network
    }

    /// Whether another viewer may be let in of the network of `address`.
    pub(super) fn has_room_for_viewer(&self, address: A) -> bool {
        self.beside(address).filter(|peer| peer.client.is_some()).count() < self.config.most_of_network
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::rng::Rng;
    use anabranch_control::time::{Duration, Time};
    use anabranch_control::units::{Bytes, Rate};

    use super::super::super::message::{Message, Mode};
    use super::super::super::testing::{TestPacket, Tested, key_of, server_config};
    use super::super::super::tracker::Refusal;
    use super::super::{GREETING_TIME, ServerEvent};
    use super::*;
    use crate::network::Network;
    use crate::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions};

    type Tests = Server<u32, Tested>;

    /// What a server sends and tells of, over sessions that others have begun.
    #[derive(Default)]
    struct Line {
        sent: Vec<(SessionId, Message<u32, Tested>)>,
        closed: Vec<SessionId>,
        refused: Vec<Refusal>,
    }

    impl Sessions<Tests> for Line {
        fn open(&mut self, _: u32, _: Option<PeerKey>) -> Option<SessionId> {
            None
        }

        fn send(&mut self, session: SessionId, message: Message<u32, Tested>) {
            self.sent.push((session, message));
        }

        fn close(&mut self, session: SessionId) {
            self.closed.push(session);
        }

        fn least_round_trip(&self, _: SessionId) -> Option<Duration> {
            None
        }

        fn delivered(&self) -> Bytes {
            Bytes::ZERO
        }

        fn event(&mut self, event: ServerEvent) {
            if let ServerEvent::Refused(refusal) = event {
                self.refused.push(refusal);
            }
        }
    }

    /// A server that has sent a second of a stream of 2 Mbit/s. Of addresses, each thousand is a network.
    struct Served {
        server: Tests,
        line: Line,
        now: Time,
        sessions: u32,
    }

    impl Served {
        fn with(upload: Rate) -> Served {
            let config = server_config(Mode::Hybrid, upload);
            let mut server: Tests = Server::new(config, 0, Time::ZERO, Rng::stream(1, "server"));
            server.set_networks(|address| Network(u64::from(address / 1000)));
            let (mut line, mut now) = (Line::default(), Time::ZERO);
            for _ in 0..200 {
                now += Duration::from_millis(5);
                server.on_input(now, TestPacket { is_genuine: true }, false);
                server.on_timer(now, &mut line);
            }
            Served { server, line, now, sessions: 0 }
        }

        /// Somebody at `address` begins a session, if it may.
        fn open(&mut self, address: u32) -> Option<SessionId> {
            let remote = Remote { address, key: key_of(address), is_initiator: true };
            if !self.server.accepts(self.now, &remote) {
                return None;
            }
            let session = SessionId(self.sessions);
            self.sessions += 1;
            self.server.on_open(self.now, session, &remote, &mut self.line);
            Some(session)
        }

        fn ask(&mut self, session: SessionId) {
            let upload = Rate::from_bits_per_sec(4_000_000);
            self.server.on_message(self.now, session, Message::Join { upload }, &mut self.line);
        }

        /// The same, which asks to be let in, and whether it is.
        fn join(&mut self, address: u32) -> Option<SessionId> {
            let (session, before) = (self.open(address)?, self.server.tracker().watching());
            self.ask(session);
            (self.server.tracker().watching() > before).then_some(session)
        }
    }

    #[test]
    fn a_network_has_so_many_viewers_and_others_find_room_all_the_same() {
        let mut served = Served::with(Rate::from_bits_per_sec(1_000_000_000));
        let let_in: Vec<SessionId> = (0..100).filter_map(|host| served.join(host)).collect();
        assert_eq!(let_in.len(), MOST_OF_NETWORK);
        assert!(served.line.refused.iter().all(|refusal| *refusal == Refusal::NetworkIsFull));
        assert_eq!(served.line.refused.len(), 100 - MOST_OF_NETWORK);
        // Of a hundred places some are left.
        assert!((1000..1030).all(|host| served.join(host).is_some()), "{:?}", served.line.refused.last());
        // One goes, and another may come: one alone.
        served.server.on_closed(served.now, let_in[7], Closed::ByPeer, &mut served.line);
        assert!(served.join(200).is_some() && served.join(201).is_none());
    }

    #[test]
    fn a_network_has_twice_as_many_sessions_while_it_does_not_say_what_it_wants_and_not_for_long() {
        let mut served = Served::with(Rate::from_bits_per_sec(1_000_000_000));
        let open = (0..200).filter(|&host| served.open(host).is_some()).count();
        assert_eq!(open, 2 * MOST_OF_NETWORK);
        assert!(served.join(1000).is_some(), "another network's");
        served.now += GREETING_TIME;
        served.server.on_timer(served.now, &mut served.line);
        assert_eq!(served.line.closed.len(), open, "who says nothing is shown out");
        assert!(served.join(0).is_some());
    }

    #[test]
    fn each_session_asks_once_to_be_let_in_and_has_one_answer() {
        // It can feed nobody.
        let mut served = Served::with(Rate::from_bits_per_sec(100_000));
        let session = served.open(0).expect("nobody is there");
        (0..1000).for_each(|_| served.ask(session));
        let answers = |served: &Served, whose: SessionId| {
            let answers = served.line.sent.iter().filter(|(session, _)| *session == whose);
            answers.filter(|(_, message)| matches!(message, Message::Overloaded)).count()
        };
        assert_eq!((answers(&served, session), served.line.refused.len()), (1, 1));
        let again = served.open(0).expect("there is room for a session");
        served.ask(again);
        assert_eq!(answers(&served, again), 1, "over a session of its own it may ask again");
    }
}

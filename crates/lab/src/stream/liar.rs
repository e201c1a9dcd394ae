//! A peer that may lie in what it passes on.

use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_control::units::Bytes;
use anabranch_proto::session::{Application, Closed, Remote, SessionId, Sessions};
use anabranch_proto::stream::message::{Datagram, Message};
use anabranch_proto::stream::peer::{StreamEvent, StreamPeer};

use super::content::{Simulated, SimulatedPacket};
#[cfg(test)]
use super::flooder::{Flood, Flooder};
#[cfg(test)]
use crate::soak::{planted, streams::Rule};

/// What a liar does with the packets of the stream that it should pass on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Lie {
    /// It passes them on.
    #[default]
    None,
    /// It passes none on.
    FreeRider,
    /// It drops this share.
    Drops(f64),
    /// It passes on others in their place.
    Poisons,
    /// It is no viewer, and floods the server.
    #[cfg(test)]
    Floods(Flood),
}

/// A server or viewer of a simulation.
#[derive(Clone, Debug)]
pub struct Viewer {
    peer: StreamPeer<u32, Simulated>,
    lie: Lie,
    rng: Rng,
    #[cfg(test)]
    flooder: Option<Flooder>,
}

impl Viewer {
    /// `peer`, which lies so, by `rng`.
    pub fn new(peer: StreamPeer<u32, Simulated>, lie: Lie, rng: Rng) -> Viewer {
        #[cfg(test)]
        let flooder = if let Lie::Floods(flood) = lie { Some(Flooder::new(flood)) } else { None };
        Viewer {
            peer,
            lie,
            rng,
            #[cfg(test)]
            flooder,
        }
    }

    /// The peer itself.
    pub fn peer(&self) -> &StreamPeer<u32, Simulated> {
        &self.peer
    }

    /// The peer itself, to act on.
    pub fn peer_mut(&mut self) -> &mut StreamPeer<u32, Simulated> {
        &mut self.peer
    }

    /// Whether it tells the truth.
    pub fn is_honest(&self) -> bool {
        self.lie == Lie::None
    }
}

/// Its sessions, as the peer within uses them.
struct Inner<'a, S>(&'a mut S);

impl<S: Sessions<Viewer>> Sessions<StreamPeer<u32, Simulated>> for Inner<'_, S> {
    fn open(&mut self, to: u32, key: Option<anabranch_proto::session::PeerKey>) -> Option<SessionId> {
        self.0.open(to, key)
    }

    fn send(&mut self, session: SessionId, message: Message<u32, Simulated>) {
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

    fn event(&mut self, event: StreamEvent<SimulatedPacket>) {
        self.0.event(event);
    }
}

impl Application for Viewer {
    type Address = u32;
    type Message = Message<u32, Simulated>;
    type Datagram = Datagram<Simulated>;
    type Event = StreamEvent<SimulatedPacket>;

    fn accepts(&mut self, now: Time, remote: &Remote<u32>) -> bool {
        #[cfg(test)]
        if self.flooder.is_some() {
            return true;
        }
        self.peer.accepts(now, remote)
    }

    fn on_open(&mut self, now: Time, session: SessionId, remote: &Remote<u32>, sessions: &mut impl Sessions<Viewer>) {
        #[cfg(test)]
        if let Some(flooder) = &mut self.flooder {
            return flooder.on_open(session, remote, sessions);
        }
        self.peer.on_open(now, session, remote, &mut Inner(sessions));
    }

    fn on_message(
        &mut self,
        now: Time,
        session: SessionId,
        message: Message<u32, Simulated>,
        sessions: &mut impl Sessions<Viewer>,
    ) {
        #[cfg(test)]
        if let Some(flooder) = &mut self.flooder {
            return flooder.on_message(now, session, &message, sessions);
        }
        self.peer.on_message(now, session, message, &mut Inner(sessions));
    }

    #[inline]
    fn on_datagram(
        &mut self,
        now: Time,
        session: SessionId,
        datagram: Datagram<Simulated>,
        sessions: &mut impl Sessions<Viewer>,
    ) {
        #[cfg(test)]
        assert!(!planted::in_streams(Rule::NoPanic), "a planted panic");
        #[cfg(test)]
        if self.flooder.is_some() {
            return;
        }
        self.peer.on_datagram(now, session, datagram, &mut Inner(sessions));
    }

    fn on_silent(&mut self, now: Time, session: SessionId, is_silent: bool, sessions: &mut impl Sessions<Viewer>) {
        self.peer.on_silent(now, session, is_silent, &mut Inner(sessions));
    }

    fn on_closed(&mut self, now: Time, session: SessionId, why: Closed, sessions: &mut impl Sessions<Viewer>) {
        #[cfg(test)]
        if let Some(flooder) = &mut self.flooder {
            return flooder.on_closed(session);
        }
        self.peer.on_closed(now, session, why, &mut Inner(sessions));
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Viewer>) {
        #[cfg(test)]
        if planted::in_streams(Rule::Bounded) {
            // It asks the server for another session again and again.
            for _ in 0..8 {
                let _ = sessions.open(0, None);
            }
        }
        #[cfg(test)]
        if let Some(flooder) = &mut self.flooder {
            return flooder.on_timer(now, sessions);
        }
        self.peer.on_timer(now, &mut Inner(sessions));
    }

    #[inline]
    fn timer(&self, now: Time) -> Time {
        #[cfg(test)]
        if let Some(flooder) = &self.flooder {
            return flooder.timer();
        }
        self.peer.timer(now)
    }

    fn waiting(&self) -> Bytes {
        self.peer.waiting()
    }

    #[inline]
    fn next_datagram(&mut self, now: Time) -> Option<(SessionId, Datagram<Simulated>)> {
        loop {
            let (session, mut datagram) = self.peer.next_datagram(now)?;
            if let Datagram::Packet { packet, .. } = &mut datagram {
                match self.lie {
                    Lie::None => {}
                    #[cfg(test)]
                    Lie::Floods(_) => {}
                    Lie::FreeRider => continue,
                    Lie::Drops(share) if self.rng.chance(share) => continue,
                    Lie::Drops(_) => {}
                    Lie::Poisons => packet.is_genuine = false,
                }
            }
            return Some((session, datagram));
        }
    }
}

//! What stands at a node: a peer as it ships, or a liar.

use core::convert::Infallible;
use std::net::SocketAddr;

use anabranch_control::time::Time;
use anabranch_proto::machine::{Arrival, Departure, Machine, Out};
use anabranch_proto::overlay::peer::Peer;
use anabranch_proto::overlay::wire::OwnedDatagram;
use anabranch_proto::transfer::{FileDone, FileJob};

use super::liar::Liar;
#[cfg(test)]
use super::sabotage;

/// A machine of a soak.
#[derive(Debug)]
pub enum Node {
    /// The peer that runs on sockets.
    Peer(Box<Peer>),
    /// A relay that lies.
    Liar(Box<Liar>),
    /// A peer with a bug that is planted.
    #[cfg(test)]
    Sabotaged(Box<Peer>, super::sabotage::Sabotage),
}

impl Node {
    /// The peer, if it is no liar.
    pub fn peer(&self) -> Option<&Peer> {
        match self {
            Node::Peer(peer) => Some(peer),
            Node::Liar(_) => None,
            #[cfg(test)]
            Node::Sabotaged(peer, _) => Some(peer),
        }
    }

    /// The peer, to act on it.
    pub fn peer_mut(&mut self) -> Option<&mut Peer> {
        match self {
            Node::Peer(peer) => Some(peer),
            Node::Liar(_) => None,
            #[cfg(test)]
            Node::Sabotaged(peer, _) => Some(peer),
        }
    }
}

/// The way out of what stands at a node.
struct Through<'a, O>(&'a mut O);

impl<O: Out<Node>> Out<Peer> for Through<'_, O> {
    fn send(&mut self, departure: Departure<SocketAddr>, message: &OwnedDatagram) {
        self.0.send(departure, message);
    }

    fn event(&mut self, event: Infallible) {
        match event {}
    }

    fn job(&mut self, job: FileJob) {
        self.0.job(job);
    }

    fn keep_timer(&mut self) {
        self.0.keep_timer();
    }
}

impl Machine for Node {
    type Address = SocketAddr;
    type Message = OwnedDatagram;
    type Event = Infallible;
    type Job = FileJob;
    type Done = FileDone;

    fn on_message(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        datagram: &mut OwnedDatagram,
        out: &mut impl Out<Node>,
    ) {
        match self {
            Node::Peer(peer) => peer.on_message(now, arrival, datagram, &mut Through(out)),
            Node::Liar(liar) => liar.on_message(now, arrival, datagram, &mut Through(out)),
            #[cfg(test)]
            Node::Sabotaged(peer, bug) => {
                sabotage::on_message(*bug, peer, now, arrival, datagram, &mut Through(out));
            }
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<Node>) {
        match self {
            Node::Peer(peer) => peer.on_timer(now, &mut Through(out)),
            Node::Liar(liar) => liar.on_timer(now, &mut Through(out)),
            #[cfg(test)]
            Node::Sabotaged(peer, bug) => sabotage::on_timer(*bug, peer, now, &mut Through(out)),
        }
    }

    fn on_done(&mut self, now: Time, done: FileDone, out: &mut impl Out<Node>) {
        if let Some(peer) = self.peer_mut() {
            peer.on_done(now, done, &mut Through(out));
        }
    }

    fn timer(&self, now: Time) -> Time {
        match self {
            Node::Peer(peer) => peer.timer(now),
            Node::Liar(liar) => liar.timer(),
            #[cfg(test)]
            Node::Sabotaged(peer, bug) => sabotage::timer(*bug, peer, now),
        }
    }
}

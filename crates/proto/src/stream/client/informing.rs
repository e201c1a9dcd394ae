//! What a client does for others' knowledge: it passes exploration packets on along their chain
//! ([`exploration`](crate::stream::exploration)), and takes part in gossip ([`gossip`](crate::stream::gossip)).
//!
//! Limits of use: an exploration packet is the newest of the stream, whose manifest is often not there yet. It goes on
//! along its chain unproven, where pushes wait until they are proven: a viewer that forges one makes the next of the
//! chain look like the forger. Simulations of trees alone explore; nothing does on sockets.

use anabranch_control::time::Time;

use super::super::content::Content;
use super::super::message::{ChainLink, Datagram, Message};
use super::super::receiving::{Arrived, Verdict};
use super::Client;
use crate::session::{SessionId, Sessions};

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Client<A, C> {
    /// The server tells of a link of a chain.
    pub(in crate::stream) fn on_chain(&mut self, now: Time, link: &ChainLink<A>, sessions: &mut impl Sessions<Self>) {
        self.chains.add(link.chain, link.next.map(|next| next.client));
        if let Some(next) = &link.next {
            self.reach(now, next, sessions);
        }
    }

    /// A packet comes that explores this client: it goes on behind what the client pushes, or the server is
    /// told. It is the stream's as well, and what was missing is not any more.
    pub(in crate::stream) fn on_explored(
        &mut self,
        now: Time,
        (chain, nonce): (u32, u32),
        arrived: Arrived<C::Packet>,
        sessions: &mut impl Sessions<Self>,
    ) {
        let Some(watching) = &mut self.watching else { return };
        let Arrived { from, id, stamp, packet } = arrived.clone();
        match watching.receiving.on_packet(now, arrived) {
            Verdict::New | Verdict::Late => self.on_new(now, from, id),
            Verdict::Forged => return self.on_forged(now, from, sessions),
            Verdict::Copy | Verdict::Unproven | Verdict::Ignored => {}
        }
        if let Some(peer) = self.peers.get_mut(from) {
            peer.used = now;
        }
        match self.chains.next(chain) {
            None => {}
            Some(None) => {
                if let Some(server) = self.server {
                    sessions.send(server, Message::Explored(nonce));
                }
            }
            Some(Some(next)) => {
                // A session that does not stand yet would hold the packet up.
                if let Some(session) = self.peers.session_of(next)
                    && let Some(peer) = self.peers.get_mut(session)
                    && peer.remote.is_some()
                {
                    peer.used = now;
                    self.uplink.push_behind(session, Datagram::Explore { chain, nonce, id, stamp, packet });
                }
            }
        }
        self.release(now, sessions);
    }

    /// Half of what this client knows of all goes to a neighbour, or to the server.
    pub(in crate::stream) fn gossip(&mut self, now: Time, sessions: &impl Sessions<Self>) {
        let Some(watching) = &mut self.watching else { return };
        let Some(stamp) = watching.receiving.clock().stamp(now) else { return };
        // What it says that it can send, until its packets have had to wait.
        let capacity = self.measured.capacity().unwrap_or(self.config.upload);
        watching.monitoring.on_time(now, stamp, capacity, sessions.delivered());
        let to: Vec<SessionId> = watching.mesh.sessions().chain(self.server).collect();
        if let Some((to, epoch, mass)) = watching.monitoring.give(stamp, &to) {
            self.uplink.push_ahead(to, Datagram::Mass(epoch, mass));
        }
    }
}

//! What a client does for others' knowledge: it passes exploration packets on along their chain
//! ([`exploration`](super::exploration)), and takes part in gossip ([`gossip`](super::gossip)).
//!
//! Limits of use: an exploration packet is the newest of the stream, whose manifest is often not there yet. It goes on
//! along its chain unproven, where pushes wait until they are proven: a viewer that forges one makes the next of the
//! chain look like the forger. Simulations of trees alone explore; nothing does on sockets.

use std::collections::VecDeque;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::client::Client;
use super::content::{ClientId, Content};
use super::gossip::{Gossip, Mass};
use super::message::{ChainLink, Datagram, Message};
use super::packet::Stamp;
use super::receiving::{Arrived, Verdict};
use super::tracker::capacity::OVERHEAD;
use crate::session::{SessionId, Sessions};

/// Chains that a client is part of at most; the oldest are forgotten for others. A server has some tens.
const MOST_CHAINS: usize = 256;

/// The chains that a client is part of.
#[derive(Clone, Debug, Default)]
pub struct Chains {
    links: VecDeque<(u32, Option<ClientId>)>,
}

impl Chains {
    /// The server tells of a link.
    pub fn add(&mut self, chain: u32, next: Option<ClientId>) {
        self.links.retain(|&(other, _)| other != chain);
        if self.links.len() == MOST_CHAINS {
            self.links.pop_front();
        }
        self.links.push_back((chain, next));
    }

    /// To whom what comes of `chain` goes: to nobody, for the last; none if the server has not told of it.
    pub fn next(&self, chain: u32) -> Option<Option<ClientId>> {
        self.links.iter().find(|(other, _)| *other == chain).map(|(_, next)| *next)
    }
}

/// What a client knows of all peers together, and has told.
#[derive(Clone, Debug)]
pub struct Monitoring {
    gossip: Gossip,
    /// Bytes of packets that have come since the epoch began, on the wire.
    received: f64,
    /// When the epoch began, and what had been delivered to others then.
    since: Option<(Time, Bytes)>,
    rng: Rng,
}

impl Monitoring {
    /// Nothing is known; who gets a half is drawn from what only this client's key decides.
    pub fn new(seed: u64) -> Monitoring {
        Monitoring { gossip: Gossip::default(), received: 0.0, since: None, rng: Rng::indexed(seed, "gossip", 0) }
    }

    /// A packet of the stream has come that was not here.
    #[inline]
    pub fn on_packet(&mut self, length: usize) {
        self.received += length as f64 * OVERHEAD;
    }

    /// What gossip has shown.
    pub fn gossip(&self) -> &Gossip {
        &self.gossip
    }

    /// Somebody's half.
    pub fn on_mass(&mut self, epoch: u32, mass: Mass) {
        self.gossip.on_mass(epoch, mass);
    }

    /// The time of the stream is `stamp`: whether an epoch is over, whose result is known now.
    pub fn on_time(&mut self, now: Time, stamp: Stamp, capacity: Rate, delivered: Bytes) -> bool {
        if self.gossip.epoch() == Some(Gossip::epoch_of(stamp)) {
            return false;
        }
        let own = self.own(now, capacity, delivered);
        self.gossip.on_time(stamp, || own)
    }

    /// The half that goes to one of `to` now, if it is time.
    pub fn give(&mut self, stamp: Stamp, to: &[SessionId]) -> Option<(SessionId, u32, Mass)> {
        if to.is_empty() {
            return None;
        }
        let (epoch, mass) = self.gossip.give(stamp)?;
        Some((to[self.rng.below(to.len())], epoch, mass))
    }

    /// What this peer has had since the epoch before.
    fn own(&mut self, now: Time, capacity: Rate, delivered: Bytes) -> Mass {
        let (since, before) = self.since.replace((now, delivered)).unwrap_or((now, delivered));
        let span = now.since(since).max(Duration::SECOND).as_secs_f64();
        let rate = |bytes: f64| Rate::from_bytes_per_sec_f64(bytes / span);
        Mass::of(capacity, rate((delivered - before).get() as f64), rate(std::mem::take(&mut self.received)))
    }
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Client<A, C> {
    /// The server tells of a link of a chain.
    pub(super) fn on_chain(&mut self, now: Time, link: &ChainLink<A>, sessions: &mut impl Sessions<Self>) {
        self.chains.add(link.chain, link.next.map(|next| next.client));
        if let Some(next) = &link.next {
            self.reach(now, next, sessions);
        }
    }

    /// A packet comes that explores this client: it goes on behind what the client pushes, or the server is
    /// told. It is the stream's as well, and what was missing is not any more.
    pub(super) fn on_explored(
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
    pub(super) fn gossip(&mut self, now: Time, sessions: &impl Sessions<Self>) {
        let Some(watching) = &mut self.watching else { return };
        let Some(stamp) = watching.receiving.clock().stamp(now) else { return };
        // What it says that it can send, until its packets have had to wait.
        let capacity = self.measured.capacity().unwrap_or(self.config.upload);
        watching.monitoring.on_time(now, stamp, capacity, sessions.delivered());
        let to: Vec<SessionId> = watching.mesh.sessions().chain(self.server).collect();
        if let Some((to, epoch, mass)) = watching.monitoring.give(stamp, &to) {
            self.uplink.tell(to, Datagram::Mass(epoch, mass));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_bounded_and_the_oldest_go() {
        let mut chains = Chains::default();
        for chain in 0..1000 {
            chains.add(chain, Some(ClientId(chain)));
        }
        chains.add(999, None);
        assert_eq!(chains.links.len(), MOST_CHAINS);
        assert_eq!((chains.next(0), chains.next(998), chains.next(999)), (None, Some(Some(ClientId(998))), Some(None)));
    }
}

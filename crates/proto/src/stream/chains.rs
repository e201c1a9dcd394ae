//! What a client remembers for others' knowledge: chains along which exploration packets pass
//! ([`exploration`](super::exploration)), and what gossip knows ([`gossip`](super::gossip)).

use std::collections::VecDeque;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::content::ClientId;
use super::gossip::{Gossip, Mass};
use super::on_wire;
use super::packet::Stamp;
use crate::session::SessionId;

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
        self.received += length as f64 * on_wire::STREAM;
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

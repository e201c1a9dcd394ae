//! Sending evenly: a packet over a peer costs as much time as it takes at the
//! peer's rate, and one spare packet may be saved up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Slot;
use super::candidates::Candidates;
use super::per_peer::Credit;
use crate::pacer::Pacer;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};

/// For each peer the instant from which it may be used again.
#[derive(Clone, Debug)]
pub struct PacedCredit {
    packet: Bytes,
    peers: Box<[Peer]>,
    /// Peers without room, soonest first; an entry that is not its peer's `free`
    /// any more is stale.
    waiting: BinaryHeap<Reverse<(Time, Slot)>>,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    /// Says from when on a packet may leave.
    pacer: Pacer,
    /// One packet at the peer's rate.
    gap: Duration,
}

impl PacedCredit {
    fn wait(&mut self, slot: Slot, candidates: &mut Candidates) {
        candidates.remove(slot);
        self.waiting.push(Reverse((self.peers[slot.index()].pacer.release(), slot)));
    }

    /// Rate changes leave stale entries behind; drops them once they are the greater part.
    fn compact(&mut self) {
        if self.waiting.len() > 2 * self.peers.len() {
            let peers = &self.peers;
            self.waiting.retain(|Reverse((free, slot))| peers[slot.index()].pacer.release() == *free);
        }
    }
}

impl Credit for PacedCredit {
    fn new(peers: usize, packet: Bytes, start: Time) -> PacedCredit {
        let peer = Peer { pacer: Pacer::free_from(start), gap: Duration::SECOND };
        PacedCredit { packet, peers: vec![peer; peers].into(), waiting: BinaryHeap::with_capacity(2 * peers + 1) }
    }

    fn advance(&mut self, now: Time, candidates: &mut Candidates) {
        while let Some(&Reverse((free, slot))) = self.waiting.peek() {
            let stale = self.peers[slot.index()].pacer.release() != free;
            if free > now && !stale {
                break;
            }
            self.waiting.pop();
            if !stale {
                candidates.insert(slot);
            }
        }
    }

    fn charge(&mut self, now: Time, slot: Slot, candidates: &mut Candidates) {
        let peer = &mut self.peers[slot.index()];
        // Unused time is worth at most one spare packet.
        peer.pacer.charge(now, peer.gap, peer.gap);
        if peer.pacer.release() > now {
            self.wait(slot, candidates);
        }
    }

    fn set_rate(&mut self, now: Time, slot: Slot, rate: Rate, candidates: &mut Candidates) {
        let peer = &mut self.peers[slot.index()];
        let gap = self.packet / rate;
        if peer.gap == gap {
            return;
        }
        let free = peer.pacer.release();
        if free > now {
            // What is still to wait for is worth as many bytes as before.
            let left = free.since(now).as_nanos();
            let scaled = u128::from(left) * u128::from(gap.as_nanos()) / u128::from(peer.gap.as_nanos().max(1));
            peer.pacer = Pacer::free_from(now + Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX)));
            peer.gap = gap;
            self.wait(slot, candidates);
            self.compact();
        } else {
            peer.gap = gap;
        }
    }

    fn timer(&self) -> Time {
        self.waiting.peek().map_or(Time::MAX, |Reverse((free, _))| *free)
    }

    fn heap_bytes(&self) -> usize {
        size_of_val(&*self.peers) + self.waiting.capacity() * size_of::<Reverse<(Time, Slot)>>()
    }
}

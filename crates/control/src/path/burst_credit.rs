//! Sending in one-second bursts: what may be sent to a peer is counted from zero
//! each second and goes out as soon as it is wanted. [Raiber 2010] 6.1.2.

use super::Slot;
use super::candidates::Candidates;
use super::per_peer::Credit;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};

/// The counting window.
pub const WINDOW: Duration = Duration::SECOND;

/// For each peer the bytes that were sent in this window, and may be.
#[derive(Clone, Debug)]
pub struct BurstCredit {
    window_ends: Time,
    packet: u32,
    peers: Box<[Peer]>,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    sent: u32,
    allowed: u32,
}

impl Credit for BurstCredit {
    fn new(peers: usize, packet: Bytes, start: Time) -> BurstCredit {
        let packet = u32::try_from(packet.get()).expect("a packet is at most 64 KiB");
        BurstCredit { window_ends: start, packet, peers: vec![Peer { sent: 0, allowed: 0 }; peers].into() }
    }

    fn advance(&mut self, now: Time, candidates: &mut Candidates) {
        if now < self.window_ends {
            return;
        }
        let elapsed = now.since(self.window_ends).as_nanos() / WINDOW.as_nanos();
        self.window_ends += WINDOW * (elapsed + 1);
        for (index, peer) in self.peers.iter_mut().enumerate() {
            peer.sent = 0;
            if peer.allowed >= self.packet {
                candidates.insert(Slot(index as u16));
            } else {
                candidates.remove(Slot(index as u16));
            }
        }
    }

    #[inline]
    fn charge(&mut self, _now: Time, slot: Slot, candidates: &mut Candidates) {
        let peer = &mut self.peers[slot.index()];
        peer.sent += self.packet;
        // R_c + l <= R_l
        if peer.sent + self.packet > peer.allowed {
            candidates.remove(slot);
        }
    }

    #[inline]
    fn set_rate(&mut self, _now: Time, slot: Slot, rate: Rate, candidates: &mut Candidates) {
        let peer = &mut self.peers[slot.index()];
        // Half the range, so that the sum above can't overflow.
        peer.allowed = ((rate * WINDOW).get()).min(u64::from(u32::MAX / 2)) as u32;
        if peer.sent + self.packet <= peer.allowed {
            candidates.insert(slot);
        } else {
            candidates.remove(slot);
        }
    }

    fn timer(&self) -> Time {
        self.window_ends
    }

    fn heap_bytes(&self) -> usize {
        size_of_val(&*self.peers)
    }
}

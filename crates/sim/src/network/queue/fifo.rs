//! Packets in the order of their coming, up to a limit.

use std::collections::VecDeque;

use super::{Limit, Waiting};

/// Packets in the order of their coming.
#[derive(Clone, Debug)]
pub struct Fifo {
    limit: Limit,
    packets: VecDeque<Waiting>,
    bytes: u64,
}

impl Fifo {
    pub fn new(limit: Limit) -> Fifo {
        Fifo { limit, packets: VecDeque::new(), bytes: 0 }
    }

    /// Adds `packet`; false if there is no room for it.
    #[inline]
    pub fn push(&mut self, packet: Waiting) -> bool {
        let fits = match self.limit {
            Limit::Bytes(limit) => self.bytes + u64::from(packet.size) <= limit,
            Limit::Packets(limit) => (self.packets.len() as u64) < limit,
        };
        if fits {
            self.bytes += u64::from(packet.size);
            self.packets.push_back(packet);
        }
        fits
    }

    /// Takes the packet that came first.
    #[inline]
    pub fn pop(&mut self) -> Option<Waiting> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.size);
        Some(packet)
    }

    /// The packets, the first that came first.
    #[cfg(test)]
    pub fn packets_for_test(&mut self) -> impl Iterator<Item = &mut Waiting> {
        self.packets.iter_mut()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

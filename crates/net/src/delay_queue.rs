//! Datagrams that leave later: those that wait in a relay's queue, and those on a link
//! whose delay is emulated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anabranch_control::time::Time;

use crate::udp::Way;

/// The most datagrams that wait at once: what 100 000 datagrams a second wait in 0.6 s.
pub const MAX_WAITING: usize = 1 << 16;

/// Datagrams in order of the instant at which they leave; equal instants in order of arrival.
#[derive(Debug, Default)]
pub struct DelayQueue {
    order: BinaryHeap<Reverse<(Time, u64, u32)>>,
    slots: Vec<Waiting>,
    free: Vec<u32>,
    arrivals: u64,
    overflowed: u64,
}

/// A datagram that waits.
#[derive(Debug)]
pub struct Waiting {
    /// Which socket sends it.
    pub member: usize,
    /// How it leaves.
    pub way: Way,
    /// It.
    pub bytes: Vec<u8>,
}

impl DelayQueue {
    /// Room for a datagram of `length` bytes that shall leave at `at`; None, and counted, if too many
    /// wait. Its bytes are whatever was there before.
    pub fn push(&mut self, at: Time, member: usize, way: Way, length: usize) -> Option<&mut [u8]> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.slots.len() < MAX_WAITING => {
                self.slots.push(Waiting { member, way, bytes: Vec::new() });
                (self.slots.len() - 1) as u32
            }
            None => {
                self.overflowed += 1;
                return None;
            }
        };
        // The buffer of a datagram that has left is used again.
        let slot = &mut self.slots[place as usize];
        (slot.member, slot.way) = (member, way);
        slot.bytes.resize(length, 0);
        self.arrivals += 1;
        self.order.push(Reverse((at, self.arrivals, place)));
        Some(&mut slot.bytes)
    }

    /// When the next one leaves.
    pub fn next(&self) -> Time {
        self.order.peek().map_or(Time::MAX, |Reverse((at, ..))| *at)
    }

    /// The next one, if it leaves now.
    pub fn pop(&mut self, now: Time) -> Option<&Waiting> {
        if self.next() > now {
            return None;
        }
        let Reverse((_, _, place)) = self.order.pop()?;
        self.free.push(place);
        Some(&self.slots[place as usize])
    }

    /// How many were dropped because too many waited.
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use anabranch_control::time::Duration;

    use super::*;

    #[test]
    fn datagrams_leave_in_order_of_time_then_of_arrival() {
        let mut queue = DelayQueue::default();
        let to = Way::to(SocketAddr::from(([127, 0, 0, 1], 1)));
        for (byte, ms) in [(b'c', 20), (b'a', 10), (b'b', 10)] {
            queue.push(Time::ZERO + Duration::from_millis(ms), 0, to, 1).unwrap()[0] = byte;
        }
        assert_eq!(queue.next(), Time::ZERO + Duration::from_millis(10));
        assert!(queue.pop(Time::ZERO).is_none());
        let mut left = Vec::new();
        while let Some(waiting) = queue.pop(Time::from_secs_f64(1.0)) {
            left.extend_from_slice(&waiting.bytes);
        }
        assert_eq!(left, b"abc");
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut queue = DelayQueue::default();
        let to = Way::to(SocketAddr::from(([127, 0, 0, 1], 1)));
        for _ in 0..MAX_WAITING + 5 {
            queue.push(Time::ZERO, 0, to, 1);
        }
        assert_eq!((queue.overflowed(), queue.slots.len()), (5, MAX_WAITING));
        assert!(queue.pop(Time::ZERO).is_some());
        queue.push(Time::ZERO, 0, to, 1);
        assert_eq!(queue.overflowed(), 5);
    }
}

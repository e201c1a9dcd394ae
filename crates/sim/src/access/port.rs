//! One of a node's two links at work: what waits for it, who goes next, and until when it is busy.
//!
//! Unlike a link of a [`Network`](crate::network::Network), which knows the future of its rate and
//! therefore of its queue, it decides when its transmitter is free: its rate may be set in between.

use std::collections::VecDeque;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use crate::network::{Capacity, Link, LinkConfig, LinkCount, Offer, Waiting};

#[derive(Clone, Debug)]
pub struct Port {
    link: Link,
    /// What waits, for a link without a discipline.
    line: DropTail,
    /// The end of the present transmission is an event already.
    is_awaited: bool,
}

impl Port {
    /// The link of node `number`.
    pub fn new(config: LinkConfig, number: u32, seed: u64) -> Port {
        let line = DropTail { capacity: config.capacity, messages: VecDeque::new(), bytes: 0 };
        let name = format!("{}/{number}", config.name);
        Port { link: Link::new(LinkConfig { name, ..config }, seed), line, is_awaited: false }
    }

    /// As new, with the random streams of `seed`.
    pub fn reset(&mut self, seed: u64) {
        self.link.reset(seed);
        self.line.messages.clear();
        self.line.bytes = 0;
        self.is_awaited = false;
    }

    /// `message` comes; whoever is dropped for it, itself perhaps, is added to `dropped`.
    pub fn enqueue(&mut self, now: Time, message: Waiting, dropped: &mut Vec<Waiting>) {
        let Port { link, line, .. } = self;
        let before = dropped.len();
        if link.discipline.is_some() {
            link.enqueue(now, message, dropped);
        } else {
            let is_idle = link.busy_until() <= now && line.messages.is_empty();
            let wait = || link.backlog(now) + line.transmission(link.rate_at(now));
            if is_idle || line.has_room(message.size, wait) {
                line.push(message);
            } else {
                dropped.push(message);
            }
        }
        link.count.dropped += (dropped.len() - before) as u64;
    }

    /// Whether it may transmit now. What waits is served by the event that it awaits.
    pub fn is_idle(&self, now: Time) -> bool {
        self.link.busy_until() <= now && !self.is_awaited
    }

    /// The message to transmit next; whoever is dropped on the way is added to `dropped`.
    pub fn dequeue(&mut self, now: Time, dropped: &mut Vec<Waiting>) -> Option<Waiting> {
        self.is_awaited = false;
        let before = dropped.len();
        let next = match self.link.discipline {
            Some(_) => self.link.next_waiting(now, dropped),
            None => self.line.pop(),
        };
        self.link.count.dropped += (dropped.len() - before) as u64;
        next
    }

    /// Transmits a message of `size` bytes from now on.
    pub fn transmit(&mut self, now: Time, size: u32, is_newly_marked: bool) -> Offer {
        self.link.count.marked += u64::from(is_newly_marked);
        self.link.depart(now, size)
    }

    /// When it is free again, if something may wait for that and nobody has been notified yet.
    pub fn await_end(&mut self) -> Option<Time> {
        // A discipline may have something that it counts no bytes for.
        let is_empty = self.link.discipline.is_none() && self.line.messages.is_empty();
        if is_empty || self.is_awaited {
            return None;
        }
        self.is_awaited = true;
        Some(self.link.busy_until())
    }

    pub fn backlog(&mut self, now: Time) -> Duration {
        self.link.backlog(now) + self.line.transmission(self.link.rate_at(now))
    }

    pub fn count(&self) -> LinkCount {
        self.link.count
    }

    pub fn rate_at(&mut self, now: Time) -> Option<Rate> {
        self.link.rate_at(now)
    }

    pub fn set_rate(&mut self, rate: Rate) {
        self.link.set_rate(rate);
    }
}

/// First come, first served, up to a capacity. The message in transmission no longer waits.
#[derive(Clone, Debug)]
struct DropTail {
    capacity: Capacity,
    messages: VecDeque<Waiting>,
    bytes: u64,
}

impl DropTail {
    fn push(&mut self, message: Waiting) {
        self.bytes += u64::from(message.size);
        self.messages.push_back(message);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let message = self.messages.pop_front()?;
        self.bytes -= u64::from(message.size);
        Some(message)
    }

    /// Whether a message of `size` bytes, which would wait for `wait`, may.
    fn has_room(&self, size: u32, wait: impl FnOnce() -> Duration) -> bool {
        match self.capacity {
            Capacity::Unlimited => true,
            Capacity::Bytes(limit) => self.bytes + u64::from(size) <= limit,
            Capacity::Packets(limit) => (self.messages.len() as u64) < limit,
            Capacity::Time(limit) => wait() <= limit,
        }
    }

    /// How long it takes to transmit all that waits.
    fn transmission(&self, rate: Option<Rate>) -> Duration {
        rate.map_or(Duration::ZERO, |rate| Bytes::new(self.bytes) / rate)
    }
}

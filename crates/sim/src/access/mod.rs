//! A fabric of access links: every node has an uplink and a downlink with a rate and a queue, and
//! between any two nodes lies a delay without a bandwidth. It is the network of peers behind
//! their providers, whose core has room for all:
//!
//! ```text
//! sender --> [queue] uplink --> delay of the pair --> [queue] downlink --> receiver
//! ```
//!
//! A message waits as its departure says, then comes to its sender's uplink. What a queue drops or
//! a link loses on the way is counted by the link. Rates can be set at any time.
//!
//! What chance does to a message's delay is a function of the seed, the node that sends it and how
//! many it has sent before; what chance does on a link, of the seed, the link and how many it has
//! transmitted before.

mod port;
#[cfg(test)]
mod tests;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use crate::delay::{DelayModel, Delays, Jitter, JitterTail};
use crate::event_queue::EventQueue;
use crate::fabric::{Departure, Event, Fabric, NodeId};
use crate::network::{LinkConfig, LinkCount, Offer, Waiting};
use port::Port;

/// One of a node's two links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What it sends.
    Up,
    /// What it gets.
    Down,
}

/// The two links of a node. A link's name begins those of its random streams; the node's number
/// follows it.
#[derive(Clone, Debug)]
pub struct AccessLinks {
    /// What it sends.
    pub up: LinkConfig,
    /// What it gets.
    pub down: LinkConfig,
}

/// What is between the nodes.
#[derive(Clone, Debug)]
pub struct AccessConfig {
    /// Where mean delays between uplink and downlink come from.
    pub delay: DelayModel,
    /// Standard deviation of a message's delay, as a share of the mean delay.
    pub jitter: f64,
    /// The links of a node that joins without others of its own.
    pub links: AccessLinks,
}

/// An event in the queue: what it is in the three highest bits, of what below.
#[derive(Clone, Copy, Debug)]
struct Packed(u32);

#[derive(Clone, Copy, Debug)]
#[repr(u32)]
enum Kind {
    /// The message in this slot comes to its sender's uplink.
    Leaves,
    /// It comes to its receiver's downlink.
    Enters,
    /// It arrives.
    Arrives,
    /// This node's uplink, for which something waits, is free.
    UpFree,
    DownFree,
    Timer,
}

const NUMBER_BITS: u32 = 29;

impl Packed {
    #[inline]
    fn new(kind: Kind, number: u32) -> Packed {
        debug_assert!(number >> NUMBER_BITS == 0, "a run holds fewer than 2^29 messages and nodes");
        Packed((kind as u32) << NUMBER_BITS | number)
    }

    #[inline]
    fn parts(self) -> (Kind, u32) {
        let kind = match self.0 >> NUMBER_BITS {
            0 => Kind::Leaves,
            1 => Kind::Enters,
            2 => Kind::Arrives,
            3 => Kind::UpFree,
            4 => Kind::DownFree,
            _ => Kind::Timer,
        };
        (kind, self.0 & ((1 << NUMBER_BITS) - 1))
    }
}

/// What the fabric knows of a message.
#[derive(Clone, Copy, Debug)]
struct Transit {
    from: NodeId,
    to: NodeId,
    size: u32,
    /// From the uplink's end to the downlink's queue.
    delay: Duration,
    departed: Time,
    ecn_capable: bool,
    marked: bool,
}

#[derive(Clone, Debug)]
struct Node {
    ports: [Port; 2],
    /// The fabric's links, not its own.
    is_default: bool,
    jitter: Jitter,
    /// The timer event that counts; others are stale.
    armed: Time,
}

/// Access links, and delays between them.
#[derive(Clone, Debug)]
pub struct Access<P> {
    config: AccessConfig,
    seed: u64,
    now: Time,
    queue: EventQueue<Packed>,
    delays: Delays,
    /// Those that have joined, then those of before the last reset, whose memory is used again.
    nodes: Vec<Node>,
    joined: usize,
    /// The links of the next node that joins, if they are its own.
    next: Option<AccessLinks>,
    slots: Vec<P>,
    transits: Vec<Transit>,
    free: Vec<u32>,
    arrived: Option<u32>,
    dropped: Vec<Waiting>,
}

impl<P: Default> Access<P> {
    /// No node yet; `capacity` of them are expected.
    ///
    /// # Panics
    ///
    /// If `config` has a matrix for another number of nodes than `capacity`.
    pub fn new(config: AccessConfig, capacity: usize, seed: u64) -> Access<P> {
        Access {
            delays: Delays::new(&config.delay, capacity, seed),
            config,
            seed,
            now: Time::ZERO,
            queue: EventQueue::new(),
            nodes: Vec::with_capacity(capacity),
            joined: 0,
            next: None,
            slots: Vec::new(),
            transits: Vec::new(),
            free: Vec::new(),
            arrived: None,
            dropped: Vec::new(),
        }
    }

    /// The next node that joins has links of its own.
    pub fn set_next(&mut self, links: AccessLinks) {
        self.next = Some(links);
    }

    /// From its next transmission on, a link of `node` has `rate`, whatever its course was. What
    /// is in transmission now ends as it would have.
    ///
    /// # Panics
    ///
    /// If the node has not joined, or without a rate: what waits would never leave.
    pub fn set_rate(&mut self, node: NodeId, direction: Direction, rate: Rate) {
        assert!(rate > Rate::ZERO, "a link has a rate above 0");
        self.port_mut(node, direction).set_rate(rate);
    }

    /// The rate of a link of `node` now; none if a message takes no time.
    ///
    /// # Panics
    ///
    /// If the node has not joined.
    pub fn rate(&mut self, node: NodeId, direction: Direction) -> Option<Rate> {
        let now = self.now;
        self.port_mut(node, direction).rate_at(now)
    }

    /// What a link of `node` has done. A message is counted when its transmission begins.
    ///
    /// # Panics
    ///
    /// If the node has not joined.
    pub fn count(&self, node: NodeId, direction: Direction) -> LinkCount {
        self.nodes[..self.joined][node.index()].ports[direction as usize].count()
    }

    /// How long a message that came to a link of `node` now would wait before its transmission,
    /// if it were served in order and the rate stayed.
    ///
    /// # Panics
    ///
    /// If the node has not joined.
    pub fn backlog(&mut self, node: NodeId, direction: Direction) -> Duration {
        let now = self.now;
        self.port_mut(node, direction).backlog(now)
    }

    fn port_mut(&mut self, node: NodeId, direction: Direction) -> &mut Port {
        &mut self.nodes[..self.joined][node.index()].ports[direction as usize]
    }

    /// The mean delays between uplinks and downlinks.
    pub fn delays(&self) -> &Delays {
        &self.delays
    }

    /// How many messages are on their way, those that still wait to depart included.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() - usize::from(self.arrived.is_some())
    }

    /// What never comes is not worth an event.
    #[inline]
    fn schedule(&mut self, at: Time, kind: Kind, number: u32) {
        if at < Time::MAX {
            self.queue.push(at, Packed::new(kind, number));
        }
    }

    /// A message comes to a link of `node`; false if it is gone at once.
    fn enter(&mut self, node: NodeId, direction: Direction, slot: u32) -> bool {
        let Transit { from, to, size, ecn_capable, marked, .. } = self.transits[slot as usize];
        let flow = u64::from(from.0) << 32 | u64::from(to.0);
        let message = Waiting { packet: slot, size, flow, since: self.now, ecn_capable, marked };
        let port = &mut self.nodes[node.index()].ports[direction as usize];
        port.enqueue(self.now, message, &mut self.dropped);
        if port.is_idle(self.now) {
            return self.serve(node, direction, slot);
        }
        if let Some(free_at) = port.await_end() {
            self.schedule(free_at, direction.free(), node.0);
        }
        self.release_dropped(slot)
    }

    /// A link is free: it takes the next message, if one waits. Whether `slot` is still there.
    fn serve(&mut self, node: NodeId, direction: Direction, slot: u32) -> bool {
        let port = &mut self.nodes[node.index()].ports[direction as usize];
        let Some(next) = port.dequeue(self.now, &mut self.dropped) else { return self.release_dropped(slot) };
        let transit = &mut self.transits[next.packet as usize];
        let is_newly_marked = next.marked && !transit.marked;
        transit.marked = next.marked;
        let (delay, offer) = (transit.delay, port.transmit(self.now, next.size, is_newly_marked));
        if let Some(free_at) = port.await_end() {
            self.schedule(free_at, direction.free(), node.0);
        }
        match (offer, direction) {
            (Offer::Arrives(at), Direction::Up) => self.schedule(at + delay, Kind::Enters, next.packet),
            (Offer::Arrives(at), Direction::Down) => self.schedule(at, Kind::Arrives, next.packet),
            (Offer::Gone, _) => self.free.push(next.packet),
        }
        let is_lost = offer == Offer::Gone && next.packet == slot;
        self.release_dropped(slot) && !is_lost
    }

    /// Frees the slots of what was dropped; false if `slot` is among them.
    fn release_dropped(&mut self, slot: u32) -> bool {
        let is_there = self.dropped.iter().all(|message| message.packet != slot);
        self.free.extend(self.dropped.drain(..).map(|message| message.packet));
        is_there
    }
}

impl Direction {
    fn free(self) -> Kind {
        match self {
            Direction::Up => Kind::UpFree,
            Direction::Down => Kind::DownFree,
        }
    }
}

/// No message has it.
const NO_SLOT: u32 = u32::MAX;

impl<P: Default> Fabric for Access<P> {
    type Payload = P;

    #[inline]
    fn now(&self) -> Time {
        self.now
    }

    /// None too if the uplink's queue drops the message at once.
    fn send(&mut self, departure: Departure) -> Option<&mut P> {
        let Departure { from, to, wait, size, ecn_capable } = departure;
        let jitter = &mut self.nodes[..self.joined][from.index()].jitter;
        let delay = self.delays.sample(from.0, to.0, jitter);
        let departed = self.now + wait;
        let transit = Transit { from, to, size, delay, departed, ecn_capable, marked: false };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.transits[slot as usize] = transit;
                slot
            }
            None => {
                self.slots.push(P::default());
                self.transits.push(transit);
                self.slots.len() as u32 - 1
            }
        };
        if wait > Duration::ZERO {
            self.schedule(departed, Kind::Leaves, slot);
        } else if !self.enter(from, Direction::Up, slot) {
            return None;
        }
        Some(&mut self.slots[slot as usize])
    }

    #[inline]
    fn set_timer(&mut self, node: NodeId, at: Time) {
        debug_assert!(at >= self.now, "a timer in the past");
        let armed = &mut self.nodes[..self.joined][node.index()].armed;
        if at < *armed {
            *armed = at;
            self.queue.push(at, Packed::new(Kind::Timer, node.0));
        }
    }

    fn next(&mut self, end: Time) -> Option<Event> {
        self.release();
        loop {
            let Some((at, event)) = self.queue.pop_before(end) else {
                if end < Time::MAX {
                    self.now = self.now.max(end);
                }
                return None;
            };
            self.now = at;
            let (kind, number) = event.parts();
            match kind {
                Kind::Leaves => {
                    self.enter(self.transits[number as usize].from, Direction::Up, number);
                }
                Kind::Enters => {
                    self.enter(self.transits[number as usize].to, Direction::Down, number);
                }
                Kind::UpFree => {
                    self.serve(NodeId(number), Direction::Up, NO_SLOT);
                }
                Kind::DownFree => {
                    self.serve(NodeId(number), Direction::Down, NO_SLOT);
                }
                Kind::Arrives => {
                    self.arrived = Some(number);
                    let Transit { from, to, marked, .. } = self.transits[number as usize];
                    return Some(Event::Arrival { from, to, marked });
                }
                Kind::Timer => {
                    let armed = &mut self.nodes[number as usize].armed;
                    if *armed == at {
                        *armed = Time::MAX;
                        return Some(Event::Timer(NodeId(number)));
                    }
                }
            }
        }
    }

    #[inline]
    fn arrived(&self) -> &P {
        &self.slots[self.arrived.expect("the last event was an arrival") as usize]
    }

    #[inline]
    fn arrived_mut(&mut self) -> &mut P {
        &mut self.slots[self.arrived.expect("the last event was an arrival") as usize]
    }

    #[inline]
    fn departed(&self) -> Option<Time> {
        Some(self.transits[self.arrived.expect("the last event was an arrival") as usize].departed)
    }

    #[inline]
    fn release(&mut self) {
        if let Some(slot) = self.arrived.take() {
            self.free.push(slot);
        }
    }

    fn join(&mut self) -> NodeId {
        let number = self.joined as u32;
        self.delays.reserve(self.joined + 1);
        let jitter =
            Jitter::new(self.config.jitter, JitterTail::Normal, Rng::indexed(self.seed, "jitter", u64::from(number)));
        let own = self.next.take();
        match self.nodes.get_mut(self.joined) {
            Some(node) if node.is_default && own.is_none() => {
                node.ports.iter_mut().for_each(|port| port.reset(self.seed));
                (node.jitter, node.armed) = (jitter, Time::MAX);
            }
            before => {
                let is_default = own.is_none();
                let AccessLinks { up, down } = own.unwrap_or_else(|| self.config.links.clone());
                let ports = [up, down].map(|link| Port::new(link, number, self.seed));
                let node = Node { ports, is_default, jitter, armed: Time::MAX };
                match before {
                    Some(before) => *before = node,
                    None => self.nodes.push(node),
                }
            }
        }
        self.joined += 1;
        NodeId(number)
    }

    fn reset(&mut self, seed: u64) {
        self.seed = seed;
        self.now = Time::ZERO;
        self.arrived = None;
        self.next = None;
        self.delays = Delays::new(&self.config.delay, self.delays.nodes(), seed);
        self.queue.clear();
        self.joined = 0;
        self.free.clear();
        self.free.extend((0..self.slots.len() as u32).rev());
    }
}

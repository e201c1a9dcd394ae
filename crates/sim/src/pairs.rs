//! A fabric with a delay for every pair of nodes: no bandwidth, random jitter, random loss.
//!
//! What chance does to a message is a function of the seed, the node that sends it and how many it
//! has sent before: two controllers face the same luck, and what one node does changes nothing for
//! another.
//!
//! Events of one instant happen node by node, in the order of the nodes' numbers; those of one node in
//! the order in which they were caused: by time, and in one instant by the number of the node that
//! caused them. That order does not depend on where events lie. A fabric may therefore be in parts
//! ([`Pairs::parts`]), each with its own nodes, queue and messages: as long as none is stepped by more
//! than the [lookahead](Pairs::lookahead) before what they have for each other is delivered, each node
//! meets the same events in the same order (Chandy and Misra 1979; the synchronous windows are those of
//! Lubachevsky, "Efficient distributed event-driven simulations of multiple-loop networks", CACM 1989).

mod order;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};

use crate::delay::{DelayModel, Delays, Jitter, JitterTail};
use crate::event_queue::EventQueue;
use crate::fabric::{Departure, Event, Fabric, Forwarded, NodeId};
use order::{Key, Order};

/// What a message must tell of itself: a message that knows its route needs no room for its ends.
pub trait Addressed: Default {
    /// It leaves `from` for `to`.
    fn set_ends(&mut self, from: NodeId, to: NodeId);

    /// Whence and where it goes.
    fn ends(&self) -> (NodeId, NodeId);

    /// Reads a part of it, so that it is in the processor's cache when it is needed.
    #[inline]
    fn prefetch(&self) {
        std::hint::black_box(self.ends());
    }
}

/// A message with its ends beside it.
#[derive(Debug, Default)]
pub struct Letter<P> {
    ends: (NodeId, NodeId),
    /// What it says.
    pub content: P,
}

impl<P: Clone> Clone for Letter<P> {
    fn clone(&self) -> Letter<P> {
        Letter { ends: self.ends, content: self.content.clone() }
    }

    /// Uses the memory of what it said before again.
    fn clone_from(&mut self, other: &Letter<P>) {
        self.ends = other.ends;
        self.content.clone_from(&other.content);
    }
}

impl<P: Default> Addressed for Letter<P> {
    #[inline]
    fn set_ends(&mut self, from: NodeId, to: NodeId) {
        self.ends = (from, to);
    }

    #[inline]
    fn ends(&self) -> (NodeId, NodeId) {
        self.ends
    }
}

/// What is between the nodes.
#[derive(Clone, Debug)]
pub struct PairsConfig {
    /// Where mean delays come from.
    pub delay: DelayModel,
    /// Standard deviation of a message's delay, as a share of the mean delay.
    pub jitter: f64,
    /// How it is distributed.
    pub jitter_tail: JitterTail,
    /// Probability that a message is lost.
    pub loss: f64,
}

/// An event in the queue: what it is in the highest bit, of what below. Half of an enum's size,
/// and the queue's size is what an event costs.
#[derive(Clone, Copy, Debug)]
struct Packed(u32);

impl Packed {
    const TIMER: u32 = 1 << 31;

    #[inline]
    fn arrival(slot: u32) -> Packed {
        debug_assert!(slot < Packed::TIMER, "a run holds fewer than 2^31 messages");
        Packed(slot)
    }

    #[inline]
    fn timer(node: NodeId) -> Packed {
        Packed(node.0 | Packed::TIMER)
    }

    #[inline]
    fn is_timer(self) -> bool {
        self.0 & Packed::TIMER != 0
    }
}

/// The chances of what one node sends, and its timer.
#[derive(Clone, Debug)]
struct Node {
    jitter: Jitter,
    loss: Rng,
    /// The timer event that counts; others are stale.
    armed: Time,
}

/// A message for another part, and when it arrives there.
#[derive(Clone, Debug)]
pub struct Mail<P> {
    arrives: Time,
    key: Key,
    payload: P,
}

/// Delays between pairs. What only a fabric in parts needs, if it is not `PARTED`, is not even compiled.
#[derive(Clone, Debug)]
pub struct Pairs<P, const PARTED: bool = false> {
    config: PairsConfig,
    /// Whether any message is lost.
    loses: bool,
    seed: u64,
    now: Time,
    queue: EventQueue<Packed>,
    delays: Delays,
    nodes: Vec<Node>,
    slots: Vec<P>,
    free: Vec<u32>,
    arrived: Option<u32>,
    /// What is left of events of one instant, the next one last.
    tied: Vec<Packed>,
    /// The number of the first node, and how many there are room for before the next part begins.
    first: u32,
    room: u32,
    /// For each part, what arrives there.
    mail: Vec<Vec<Mail<P>>>,
    /// Of what waits, in one of several parts. A whole fabric needs none: in its queue, what was caused
    /// before was inserted before.
    order: Option<Box<Order>>,
    /// Of what happens now, as a key has it.
    round: u32,
}

impl<P: Addressed> Pairs<P> {
    /// What each node takes of memory.
    pub const NODE_BYTES: usize = size_of::<Node>();

    /// What each message takes of memory while it is under way.
    pub const MESSAGE_BYTES: usize = size_of::<P>() + EventQueue::<Packed>::EVENT_BYTES;

    /// No node yet; `capacity` of them are expected.
    ///
    /// # Panics
    ///
    /// If `config` has a matrix for another number of nodes than `capacity`.
    pub fn new(config: PairsConfig, capacity: usize, seed: u64) -> Pairs<P> {
        Pairs::whole(config, capacity, seed)
    }
}

impl<P: Addressed, const PARTED: bool> Pairs<P, PARTED> {
    fn whole(config: PairsConfig, capacity: usize, seed: u64) -> Pairs<P, PARTED> {
        Pairs {
            delays: Delays::new(&config.delay, capacity, seed),
            loses: config.loss > 0.0,
            config,
            seed,
            now: Time::ZERO,
            queue: EventQueue::new(),
            nodes: Vec::with_capacity(capacity),
            slots: Vec::new(),
            free: Vec::new(),
            arrived: None,
            tied: Vec::new(),
            first: 0,
            room: u32::MAX,
            mail: Vec::new(),
            order: None,
            round: 0,
        }
    }

    /// The same in this many parts of as many nodes each, the last of fewer. The nodes of one part
    /// join it in their order, behind those of the parts before.
    ///
    /// # Panics
    ///
    /// As `new`, without a part, or if there are several of what is not `PARTED`.
    pub fn parts(config: PairsConfig, nodes: usize, seed: u64, parts: usize) -> Vec<Pairs<P, PARTED>>
    where
        P: Clone,
    {
        assert!(parts > 0, "a fabric has a part");
        assert!(PARTED || parts == 1, "{parts} parts need a type that has parts");
        let whole = Pairs::whole(config, nodes, seed);
        if parts == 1 {
            return vec![whole];
        }
        let room = nodes.div_ceil(parts).max(1) as u32;
        let part = |index: usize| Pairs {
            first: index as u32 * room,
            room,
            mail: vec![Vec::new(); parts],
            order: Some(Box::default()),
            nodes: Vec::with_capacity(room as usize),
            ..whole.clone()
        };
        (0..parts).map(part).collect()
    }

    /// What arrives in `part`, to be handed over there.
    pub fn mail_for(&mut self, part: usize) -> &mut Vec<Mail<P>> {
        &mut self.mail[part]
    }

    /// Takes over what was sent here from another part; `mail` is empty then.
    ///
    /// # Panics
    ///
    /// If something should have arrived before now.
    pub fn deliver(&mut self, mail: &mut Vec<Mail<P>>) {
        for Mail { arrives, key, payload } in mail.drain(..) {
            let slot = self.free_slot();
            self.slots[slot as usize] = payload;
            self.note(slot, key);
            self.queue.push(arrives, Packed::arrival(slot));
        }
    }

    /// No message arrives sooner than this after it has departed.
    pub fn lookahead(&self) -> Duration {
        self.delays.shortest(Jitter::least(self.config.jitter, self.config.jitter_tail))
    }

    /// Where a node stands among those of this part.
    #[inline]
    fn place(&self, node: NodeId) -> usize {
        let first = if PARTED { self.first } else { 0 };
        node.0.wrapping_sub(first) as usize
    }

    /// The keys of what waits, if there are several parts.
    #[inline]
    fn order(&mut self) -> Option<&mut Order> {
        if PARTED { self.order.as_deref_mut() } else { None }
    }

    #[inline]
    fn free_slot(&mut self) -> u32 {
        match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(P::default());
                self.slots.len() as u32 - 1
            }
        }
    }

    /// The key of what `source` causes now.
    #[inline]
    fn key(&self, source: NodeId) -> Key {
        Key { at: self.now, round: self.round, source: source.0 }
    }

    /// The message in `slot` has this key.
    #[inline]
    fn note(&mut self, slot: u32, key: Key) {
        let Some(order) = self.order() else { return };
        if order.messages.len() <= slot as usize {
            order.messages.resize(slot as usize + 1, key);
        }
        order.messages[slot as usize] = key;
    }

    /// Where a timer's event happens.
    #[inline]
    fn timer_node(&self, event: Packed) -> NodeId {
        let name = event.0 & !Packed::TIMER;
        let order = self.order.as_ref().filter(|_| PARTED);
        order.map_or(NodeId(name), |order| order.timer_at(name).0)
    }

    /// Writes a message for another part.
    #[inline]
    fn post(&mut self, departure: Departure, arrives: Time) -> &mut P {
        let key = self.key(departure.from);
        let part = &mut self.mail[(departure.to.0 / self.room) as usize];
        part.push(Mail { arrives, key, payload: P::default() });
        let payload = &mut part.last_mut().expect("it was pushed just now").payload;
        payload.set_ends(departure.from, departure.to);
        payload
    }

    /// `first` and the events behind it are of one instant: puts them in order.
    #[cold]
    fn gather(&mut self, first: Packed) {
        self.tied.push(first);
        while self.queue.is_tied() {
            let Some((_, event)) = self.queue.pop() else { break };
            self.tied.push(event);
        }
        let mut tied = std::mem::take(&mut self.tied);
        let node = |event: &Packed| match event.is_timer() {
            true => self.timer_node(*event),
            false => self.slots[event.0 as usize].ends().1,
        };
        match &self.order {
            // Events of one node keep the order in which they were inserted.
            None => tied.sort_by_key(node),
            Some(order) => tied.sort_by_key(|event| {
                let name = event.0 & !Packed::TIMER;
                let key = if event.is_timer() { order.timer_at(name).1 } else { order.messages[name as usize] };
                (node(event), key)
            }),
        }
        tied.reverse();
        self.tied = tied;
    }

    /// The mean delays.
    pub fn delays(&self) -> &Delays {
        &self.delays
    }

    /// When a message arrives that departs now; none if it is lost.
    #[inline(always)]
    fn arrives(&mut self, departure: Departure) -> Option<Time> {
        let Departure { from, to, wait, .. } = departure;
        let node = self.place(from);
        let node = &mut self.nodes[node];
        if self.loses && node.loss.chance(self.config.loss) {
            return None;
        }
        Some(self.now + wait + self.delays.sample(from.0, to.0, &mut node.jitter))
    }

    /// The message in `slot` is on its way.
    #[inline(always)]
    fn fly(&mut self, departure: Departure, arrives: Time, slot: u32) -> &mut P {
        let key = self.key(departure.from);
        self.note(slot, key);
        self.queue.push(arrives, Packed::arrival(slot));
        let payload = &mut self.slots[slot as usize];
        payload.set_ends(departure.from, departure.to);
        payload
    }

    /// Messages that are on their way.
    pub fn in_flight(&mut self) -> impl Iterator<Item = &P> {
        self.release();
        let mut is_free = vec![false; self.slots.len()];
        for &slot in &self.free {
            is_free[slot as usize] = true;
        }
        let here = self.slots.iter().zip(is_free).filter(|(_, is_free)| !is_free).map(|(slot, _)| slot);
        here.chain(self.mail.iter().flatten().map(|mail| &mail.payload))
    }
}

impl<P: Addressed, const PARTED: bool> Fabric for Pairs<P, PARTED> {
    type Payload = P;

    #[inline]
    fn now(&self) -> Time {
        self.now
    }

    #[inline(always)]
    fn send(&mut self, departure: Departure) -> Option<&mut P> {
        let arrives = self.arrives(departure)?;
        if self.is_elsewhere(departure.to) {
            return Some(self.post(departure, arrives));
        }
        let slot = self.free_slot();
        Some(self.fly(departure, arrives, slot))
    }

    #[inline(always)]
    fn forward(&mut self, departure: Departure) -> Option<Forwarded<'_, P>> {
        let Some(slot) = self.arrived else { return self.send(departure).map(Forwarded::Elsewhere) };
        let arrives = self.arrives(departure)?;
        if self.is_elsewhere(departure.to) {
            return Some(Forwarded::Elsewhere(self.post(departure, arrives)));
        }
        self.arrived = None;
        Some(Forwarded::InPlace(self.fly(departure, arrives, slot)))
    }

    #[inline]
    fn set_timer(&mut self, node: NodeId, at: Time) {
        debug_assert!(at >= self.now, "a timer in the past");
        let (place, key) = (self.place(node), self.key(node));
        let armed = &mut self.nodes[place].armed;
        if at < *armed {
            *armed = at;
            let event = self.order().map_or(Packed::timer(node), |order| order.timer(node, key));
            self.queue.push(at, event);
        }
    }

    #[inline(always)]
    fn next(&mut self, end: Time) -> Option<Event> {
        self.release();
        loop {
            let event = if self.tied.is_empty() {
                let Some((at, event)) = self.queue.pop_before(end) else {
                    if end < Time::MAX {
                        self.now = self.now.max(end);
                    }
                    self.round = 0;
                    return None;
                };
                if PARTED {
                    self.round = if at == self.now { self.round + 1 } else { 1 };
                }
                self.now = at;
                if self.queue.is_tied() {
                    self.gather(event);
                    continue;
                }
                event
            } else if self.now < end {
                self.tied.pop().expect("there are some")
            } else {
                return None;
            };
            // The next message is fetched into the cache while this one is worked on.
            if let Some(next) = self.queue.upcoming().filter(|next| !next.is_timer()) {
                self.slots[next.0 as usize].prefetch();
            }
            if !event.is_timer() {
                self.arrived = Some(event.0);
                let (from, to) = self.slots[event.0 as usize].ends();
                return Some(Event::Arrival { from, to, marked: false });
            }
            let node = self.timer_node(event);
            if let Some(order) = self.order() {
                order.release(event.0 & !Packed::TIMER);
            }
            let (place, now) = (self.place(node), self.now);
            let armed = &mut self.nodes[place].armed;
            if *armed == now {
                *armed = Time::MAX;
                return Some(Event::Timer(node));
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
    fn release(&mut self) {
        if let Some(slot) = self.arrived.take() {
            self.free.push(slot);
        }
    }

    fn join(&mut self) -> NodeId {
        let number = self.first + self.nodes.len() as u32;
        self.delays.reserve(number as usize + 1);
        self.nodes.push(Node {
            jitter: Jitter::new(
                self.config.jitter,
                self.config.jitter_tail,
                Rng::indexed(self.seed, "jitter", u64::from(number)),
            ),
            loss: Rng::indexed(self.seed, "loss", u64::from(number)),
            armed: Time::MAX,
        });
        NodeId(number)
    }

    #[inline]
    fn first_node(&self) -> NodeId {
        NodeId(if PARTED { self.first } else { 0 })
    }

    #[inline]
    fn is_elsewhere(&self, node: NodeId) -> bool {
        PARTED && node.0.wrapping_sub(self.first) >= self.room && (node.0 / self.room) < self.mail.len() as u32
    }

    fn reset(&mut self, seed: u64) {
        self.seed = seed;
        self.now = Time::ZERO;
        self.arrived = None;
        self.tied.clear();
        self.round = 0;
        if let Some(order) = &mut self.order {
            order.clear();
        }
        self.mail.iter_mut().for_each(Vec::clear);
        self.delays = Delays::new(&self.config.delay, self.delays.nodes(), seed);
        self.queue.clear();
        self.nodes.clear();
        self.free.clear();
        self.free.extend((0..self.slots.len() as u32).rev());
    }
}

#[cfg(test)]
mod tests;

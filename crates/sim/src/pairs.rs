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

/// Delays between pairs.
#[derive(Clone, Debug)]
pub struct Pairs<P> {
    config: PairsConfig,
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
    /// Of what waits, in a part. A whole fabric needs none: in its queue, what was caused before was
    /// inserted before.
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
        Pairs {
            delays: Delays::new(&config.delay, capacity, seed),
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

    /// The same in so many parts of as many nodes each, the last of fewer. The nodes of one part
    /// join it in their order, behind those of the parts before.
    ///
    /// # Panics
    ///
    /// As `new`, or without a part.
    pub fn parts(config: PairsConfig, nodes: usize, seed: u64, parts: usize) -> Vec<Pairs<P>>
    where
        P: Clone,
    {
        assert!(parts > 0, "a fabric has a part");
        let whole = Pairs::new(config, nodes, seed);
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
        node.0.wrapping_sub(self.first) as usize
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
        let Some(order) = &mut self.order else { return };
        if order.messages.len() <= slot as usize {
            order.messages.resize(slot as usize + 1, key);
        }
        order.messages[slot as usize] = key;
    }

    /// Where a timer's event happens.
    #[inline]
    fn timer_node(&self, event: Packed) -> NodeId {
        let name = event.0 & !Packed::TIMER;
        self.order.as_ref().map_or(NodeId(name), |order| order.timer_at(name).0)
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
        if self.config.loss > 0.0 && node.loss.chance(self.config.loss) {
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

impl<P: Addressed> Fabric for Pairs<P> {
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
        let at = at.max(self.now);
        let (place, key) = (self.place(node), self.key(node));
        let armed = &mut self.nodes[place].armed;
        if at < *armed {
            *armed = at;
            let event = self.order.as_mut().map_or(Packed::timer(node), |order| order.timer(node, key));
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
                self.round = if at == self.now { self.round + 1 } else { 1 };
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
            if let Some(order) = &mut self.order {
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
        NodeId(self.first)
    }

    #[inline]
    fn is_elsewhere(&self, node: NodeId) -> bool {
        node.0.wrapping_sub(self.first) >= self.room && (node.0 / self.room) < self.mail.len() as u32
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
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn pairs(loss: f64, jitter: f64, nodes: usize, seed: u64) -> Pairs<Letter<u32>> {
        let delay = DelayModel::Plane { span: MS(100), access: MS(5), stretch: 1.0 };
        let mut pairs = Pairs::new(PairsConfig { delay, jitter, jitter_tail: JitterTail::Normal, loss }, nodes, seed);
        for _ in 0..nodes {
            pairs.join();
        }
        pairs
    }

    fn send(pairs: &mut Pairs<Letter<u32>>, from: u32, to: u32, content: u32) -> bool {
        let (from, to) = (NodeId(from), NodeId(to));
        let departure = Departure { from, to, wait: Duration::ZERO, size: 0, ecn_capable: false };
        pairs.send(departure).map(|letter| letter.content = content).is_some()
    }

    /// When and what node 1 gets of what node 0 sends it.
    fn received(pairs: &mut Pairs<Letter<u32>>) -> Vec<(Time, u32)> {
        let mut received = Vec::new();
        while let Some(event) = pairs.next(Time::MAX) {
            assert_eq!(event, Event::Arrival { from: NodeId(0), to: NodeId(1), marked: false });
            received.push((pairs.now(), pairs.arrived().content));
        }
        received
    }

    #[test]
    fn luck_is_a_function_of_the_sender_and_its_count() {
        let run = |others: u32| {
            let mut pairs = pairs(0.3, 0.1, 4, 7);
            for content in 0..200 {
                for _ in 0..others {
                    send(&mut pairs, 2, 0, 0);
                }
                send(&mut pairs, 0, 1, content);
            }
            let mut arrived = Vec::new();
            while let Some(Event::Arrival { from, .. }) = pairs.next(Time::MAX) {
                if from == NodeId(0) {
                    arrived.push((pairs.now(), pairs.arrived().content));
                }
            }
            arrived
        };
        assert_eq!(run(0), run(3));
        assert!((100..180).contains(&run(0).len()), "{} of 200 arrive at 30 % loss", run(0).len());
    }

    #[test]
    fn a_reset_fabric_is_as_new() {
        let mut old = pairs(0.1, 0.1, 3, 1);
        for content in 0..50 {
            send(&mut old, 0, 1, content);
        }
        old.set_timer(NodeId(2), Time::ZERO + MS(3));
        old.next(Time::MAX);
        old.reset(2);
        for _ in 0..3 {
            old.join();
        }
        let mut new = pairs(0.1, 0.1, 3, 2);
        for pairs in [&mut old, &mut new] {
            for content in 0..50 {
                send(pairs, 0, 1, content);
            }
        }
        assert_eq!(received(&mut old), received(&mut new));
    }

    #[test]
    fn a_timer_in_the_past_comes_now_and_an_earlier_one_replaces_a_later() {
        let mut pairs = pairs(0.0, 0.0, 2, 1);
        assert_eq!(pairs.next(Time::ZERO + MS(10)), None);
        pairs.set_timer(NodeId(1), Time::ZERO + MS(3));
        assert_eq!((pairs.next(Time::MAX), pairs.now()), (Some(Event::Timer(NodeId(1))), Time::ZERO + MS(10)));
        pairs.set_timer(NodeId(1), Time::ZERO + MS(30));
        pairs.set_timer(NodeId(1), Time::ZERO + MS(20));
        assert_eq!((pairs.next(Time::MAX), pairs.now()), (Some(Event::Timer(NodeId(1))), Time::ZERO + MS(20)));
        assert_eq!(pairs.next(Time::MAX), None);
    }

    #[test]
    fn nodes_that_join_later_leave_the_others_where_they_are() {
        let mut pairs = pairs(0.0, 0.0, 3, 1);
        let before = pairs.delays().mean(0, 2);
        let joined = pairs.join();
        assert_eq!((joined, pairs.delays().mean(0, 2)), (NodeId(3), before));
        assert!(send(&mut pairs, 3, 1, 9));
        let event = pairs.next(Time::MAX);
        assert_eq!(event, Some(Event::Arrival { from: joined, to: NodeId(1), marked: false }));
        assert_eq!(pairs.now().since(Time::ZERO), pairs.delays().mean(3, 1));
    }

    #[test]
    fn a_forwarded_message_stays_in_its_slot_and_meets_the_luck_of_one_that_is_sent() {
        let run = |forwards: bool| {
            let mut pairs = pairs(0.1, 0.1, 2, 7);
            let mut arrived = Vec::new();
            for content in 0..300 {
                send(&mut pairs, 0, 1, content);
            }
            while let Some(Event::Arrival { from, to, .. }) = pairs.next(Time::MAX) {
                let content = pairs.arrived().content;
                arrived.push((pairs.now(), from, to, content));
                let departure = Departure { from: to, to: from, wait: Duration::ZERO, size: 0, ecn_capable: false };
                if !forwards {
                    pairs.release();
                    send(&mut pairs, to.0, from.0, content);
                    continue;
                }
                match pairs.forward(departure) {
                    Some(Forwarded::InPlace(letter)) => assert_eq!(letter.content, content),
                    Some(Forwarded::Elsewhere(_)) => panic!("message {content} has left its slot"),
                    None => {}
                }
            }
            assert_eq!(pairs.in_flight().count(), 0);
            (arrived, pairs.slots.len())
        };
        let (forwarded, slots) = run(true);
        assert!(forwarded.len() > 1000 && slots <= 300, "{} arrivals, {slots} slots", forwarded.len());
        assert_eq!((forwarded, slots), run(false));
    }

    #[test]
    fn a_message_that_has_left_again_is_not_forwarded_twice() {
        let mut pairs = pairs(0.0, 0.0, 2, 1);
        send(&mut pairs, 0, 1, 5);
        pairs.next(Time::MAX);
        let departure = Departure { from: NodeId(1), to: NodeId(0), wait: Duration::ZERO, size: 0, ecn_capable: false };
        assert!(matches!(pairs.forward(departure), Some(Forwarded::InPlace(_))));
        assert!(matches!(pairs.forward(departure), Some(Forwarded::Elsewhere(_))));
        assert_eq!(pairs.in_flight().count(), 2);
    }

    #[test]
    fn what_happens_in_one_instant_happens_node_by_node_and_at_each_in_the_order_of_its_causes() {
        let delay = DelayModel::Constant(MS(10));
        let mut pairs: Pairs<Letter<u32>> =
            Pairs::new(PairsConfig { delay, jitter: 0.0, jitter_tail: JitterTail::Normal, loss: 0.0 }, 4, 1);
        (0..4).for_each(|_| _ = pairs.join());
        for (from, to, content) in [(3, 2, 1), (1, 0, 2), (0, 2, 3), (2, 0, 4)] {
            send(&mut pairs, from, to, content);
        }
        pairs.set_timer(NodeId(0), Time::ZERO + MS(10));
        send(&mut pairs, 3, 0, 5);
        let mut seen = Vec::new();
        // A step that ends in the instant leaves it for the next.
        assert_eq!(pairs.next(Time::ZERO + MS(10)), None);
        while let Some(event) = pairs.next(Time::MAX) {
            seen.push(match event {
                Event::Timer(node) => 100 + node.0,
                Event::Arrival { .. } => pairs.arrived().content,
            });
            if seen.len() == 2 {
                assert_eq!(pairs.next(Time::ZERO + MS(10)), None, "the rest of the instant is not before it");
                // What is caused within the instant comes behind it.
                pairs.set_timer(NodeId(1), Time::ZERO + MS(10));
            }
        }
        assert_eq!((seen, pairs.now()), (vec![2, 4, 100, 5, 1, 3, 101], Time::ZERO + MS(10)));
    }

    #[test]
    fn parts_hand_over_what_arrives_in_another() {
        let delay = DelayModel::Constant(MS(10));
        let config = PairsConfig { delay, jitter: 0.0, jitter_tail: JitterTail::Normal, loss: 0.0 };
        let mut parts: Vec<Pairs<Letter<u32>>> = Pairs::parts(config, 5, 1, 2);
        assert_eq!(parts.iter_mut().map(|part| [part.join().0, part.join().0]).collect::<Vec<_>>(), [[0, 1], [3, 4]]);
        assert_eq!(parts[0].join(), NodeId(2));
        let [left, right] = &mut parts[..] else { panic!("two parts") };
        send(left, 0, 4, 7);
        send(left, 0, 1, 8);
        assert_eq!(left.in_flight().count(), 2);
        right.deliver(left.mail_for(1));
        assert_eq!((left.in_flight().count(), right.in_flight().count()), (1, 1));
        let arrival = |from, to| Some(Event::Arrival { from: NodeId(from), to: NodeId(to), marked: false });
        assert_eq!((right.next(Time::MAX), right.arrived().content), (arrival(0, 4), 7));
        // A message that is forwarded to another part leaves its slot.
        let departure = Departure { from: NodeId(4), to: NodeId(2), wait: MS(1), size: 0, ecn_capable: false };
        assert!(matches!(right.forward(departure), Some(Forwarded::Elsewhere(_))));
        assert_eq!((left.next(Time::MAX), left.arrived().content), (arrival(0, 1), 8));
        left.deliver(right.mail_for(0));
        assert_eq!((left.next(Time::MAX), left.now()), (arrival(4, 2), Time::ZERO + MS(21)));
        assert_eq!(right.next(Time::MAX), None);
        assert_eq!(left.next(Time::MAX), None);
        assert_eq!(left.in_flight().count() + right.in_flight().count(), 0);
    }

    #[test]
    fn what_is_in_flight_is_what_was_sent_and_has_not_arrived() {
        let mut pairs = pairs(0.0, 0.0, 2, 1);
        for content in 0..5 {
            send(&mut pairs, 0, 1, content);
        }
        pairs.next(Time::MAX);
        assert_eq!(pairs.in_flight().map(|letter| letter.content).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}

//! A fabric with a delay for every pair of nodes: no bandwidth, random jitter, random loss.
//!
//! What chance does to a message is a function of the seed, the node that sends it and how many it
//! has sent before: two controllers face the same luck, and what one node does changes nothing for
//! another.

use anabranch_control::rng::Rng;
use anabranch_control::time::Time;

use crate::delay::{DelayModel, Delays, Jitter, JitterTail};
use crate::event_queue::EventQueue;
use crate::fabric::{Departure, Event, Fabric, Forwarded, NodeId};

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
}

impl<P: Addressed> Pairs<P> {
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
        }
    }

    /// The mean delays.
    pub fn delays(&self) -> &Delays {
        &self.delays
    }

    /// When a message arrives that departs now; none if it is lost.
    #[inline(always)]
    fn arrives(&mut self, departure: Departure) -> Option<Time> {
        let Departure { from, to, wait, .. } = departure;
        let node = &mut self.nodes[from.index()];
        if self.config.loss > 0.0 && node.loss.chance(self.config.loss) {
            return None;
        }
        Some(self.now + wait + self.delays.sample(from.0, to.0, &mut node.jitter))
    }

    /// The message in `slot` is on its way.
    #[inline(always)]
    fn fly(&mut self, departure: Departure, arrives: Time, slot: u32) -> &mut P {
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
        self.slots.iter().zip(is_free).filter(|(_, is_free)| !is_free).map(|(slot, _)| slot)
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
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(P::default());
                self.slots.len() as u32 - 1
            }
        };
        Some(self.fly(departure, arrives, slot))
    }

    #[inline(always)]
    fn forward(&mut self, departure: Departure) -> Option<Forwarded<'_, P>> {
        let Some(slot) = self.arrived else { return self.send(departure).map(Forwarded::Elsewhere) };
        let arrives = self.arrives(departure)?;
        self.arrived = None;
        Some(Forwarded::InPlace(self.fly(departure, arrives, slot)))
    }

    #[inline]
    fn set_timer(&mut self, node: NodeId, at: Time) {
        let at = at.max(self.now);
        let armed = &mut self.nodes[node.index()].armed;
        if at < *armed {
            *armed = at;
            self.queue.push(at, Packed::timer(node));
        }
    }

    #[inline(always)]
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
            // The next message is fetched into the cache while this one is worked on.
            if let Some(next) = self.queue.upcoming().filter(|next| !next.is_timer()) {
                self.slots[next.0 as usize].prefetch();
            }
            if !event.is_timer() {
                self.arrived = Some(event.0);
                let (from, to) = self.slots[event.0 as usize].ends();
                return Some(Event::Arrival { from, to, marked: false });
            }
            let node = NodeId(event.0 & !Packed::TIMER);
            let armed = &mut self.nodes[node.index()].armed;
            if *armed == at {
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
        let number = self.nodes.len() as u32;
        self.delays.reserve(self.nodes.len() + 1);
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

    fn reset(&mut self, seed: u64) {
        self.seed = seed;
        self.now = Time::ZERO;
        self.arrived = None;
        self.delays = Delays::new(&self.config.delay, self.delays.nodes(), seed);
        self.queue.clear();
        self.nodes.clear();
        self.free.clear();
        self.free.extend((0..self.slots.len() as u32).rev());
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::Duration;

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
    fn what_is_in_flight_is_what_was_sent_and_has_not_arrived() {
        let mut pairs = pairs(0.0, 0.0, 2, 1);
        for content in 0..5 {
            send(&mut pairs, 0, 1, content);
        }
        pairs.next(Time::MAX);
        assert_eq!(pairs.in_flight().map(|letter| letter.content).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}

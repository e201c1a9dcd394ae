//! What goes wrong between nodes: loss, duplication, reordering, corruption, partitions, over any
//! fabric. What chance does to a message is a function of the seed, the node that gets it, and how
//! many have come to it before.

#[cfg(test)]
mod tests;

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};

use crate::fabric::{Departure, Event, Fabric, Forwarded, NodeId};
use crate::pairs::Letter;

/// How often what goes wrong, as probabilities for each message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// It does not arrive.
    pub loss: f64,
    /// It arrives twice.
    pub duplication: f64,
    /// It arrives later, by up to `delay`, behind others.
    pub reordering: f64,
    /// The longest that a reordered message is late.
    pub delay: Duration,
    /// One of its bits is flipped.
    pub corruption: f64,
}

/// How often it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Messages that did not arrive.
    pub lost: u64,
    /// Messages that arrived twice.
    pub duplicated: u64,
    /// Messages that arrived later.
    pub reordered: u64,
    /// Messages with a flipped bit.
    pub corrupted: u64,
    /// Messages between two parts of a partition.
    pub partitioned: u64,
}

/// A message that can be damaged.
pub trait Corrupt {
    /// Flips a bit of it.
    fn corrupt(&mut self, rng: &mut Rng);
}

impl Corrupt for Vec<u8> {
    fn corrupt(&mut self, rng: &mut Rng) {
        if !self.is_empty() {
            let place = rng.below(self.len());
            self[place] ^= 1 << rng.below(8);
        }
    }
}

impl<P: Corrupt> Corrupt for Letter<P> {
    fn corrupt(&mut self, rng: &mut Rng) {
        self.content.corrupt(rng);
    }
}

/// A message that is late, or comes once more: the fabric beneath has no part in it any more.
#[derive(Clone, Copy, Debug)]
struct Held {
    at: Time,
    /// Of equal times, what was held first comes first.
    sequence: u64,
    /// What it says lies here.
    slot: u32,
    from: NodeId,
    to: NodeId,
    marked: bool,
    departed: Option<Time>,
    /// Chance has had its part in it: a second message of a pair is one of its own.
    is_drawn: bool,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// A fabric in which things go wrong.
///
/// A message meets its faults where it has arrived: what is late crosses nothing a second time.
/// Of what happens at one instant, late messages and second ones come first.
#[derive(Clone, Debug)]
pub struct Faulty<F: Fabric> {
    inner: F,
    faults: Faults,
    seed: u64,
    /// Each node's chances, and the part of the network that it is in.
    nodes: Vec<(Rng, u32)>,
    held: BinaryHeap<Reverse<Held>>,
    sequence: u64,
    slots: Vec<F::Payload>,
    free: Vec<u32>,
    /// The last arrival, if it was held.
    arrived: Option<Held>,
    counters: FaultCounters,
}

impl<F: Fabric> Faulty<F> {
    /// `inner`, which has no node yet, with `faults`.
    pub fn new(inner: F, faults: Faults, seed: u64) -> Faulty<F> {
        Faulty {
            inner,
            faults,
            seed,
            nodes: Vec::new(),
            held: BinaryHeap::new(),
            sequence: 0,
            slots: Vec::new(),
            free: Vec::new(),
            arrived: None,
            counters: FaultCounters::default(),
        }
    }

    /// What goes wrong from now on.
    pub fn set(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// From now on `node` is in part `part` of the network; messages pass only within a part. All
    /// nodes are in part 0 at first.
    pub fn set_part(&mut self, node: NodeId, part: u32) {
        self.nodes[node.index()].1 = part;
    }

    /// What went wrong since the beginning.
    pub fn counters(&self) -> FaultCounters {
        self.counters
    }

    /// What is beneath.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// What is beneath, to change: a rate, the links of the next node.
    pub fn inner_mut(&mut self) -> &mut F {
        &mut self.inner
    }
}

impl<F: Fabric<Payload: Clone + Corrupt>> Faulty<F> {
    /// Whether a message passes from one node to another.
    fn passes(&mut self, from: NodeId, to: NodeId) -> bool {
        let is_one_part = self.nodes[from.index()].1 == self.nodes[to.index()].1;
        self.counters.partitioned += u64::from(!is_one_part);
        is_one_part
    }

    /// What chance does to a message that has just arrived: whether the node sees it now.
    fn arrives(&mut self, from: NodeId, to: NodeId, marked: bool) -> bool {
        if !self.passes(from, to) {
            return false;
        }
        let departed = self.departed();
        let now = self.now();
        let Faulty { inner, faults, nodes, slots, arrived, counters, .. } = self;
        let rng = &mut nodes[to.index()].0;
        if rng.chance(faults.loss) {
            counters.lost += 1;
            return false;
        }
        let late = rng
            .chance(faults.reordering)
            .then(|| Duration::from_nanos((rng.uniform() * faults.delay.as_nanos() as f64) as u64));
        if rng.chance(faults.corruption) {
            counters.corrupted += 1;
            match arrived {
                Some(held) => slots[held.slot as usize].corrupt(rng),
                None => inner.arrived_mut().corrupt(rng),
            }
        }
        let comes_twice = rng.chance(faults.duplication);
        counters.reordered += u64::from(late.is_some());
        counters.duplicated += u64::from(comes_twice);
        let message = Held { at: now, sequence: 0, slot: 0, from, to, marked, departed, is_drawn: false };
        if comes_twice {
            let slot = self.copy_arrived();
            self.hold(Held { slot, ..message });
        }
        let Some(late) = late else { return true };
        let slot = self.take_arrived();
        self.hold(Held { at: now + late, slot, is_drawn: true, ..message });
        false
    }

    fn hold(&mut self, message: Held) {
        self.sequence += 1;
        self.held.push(Reverse(Held { sequence: self.sequence, ..message }));
    }

    /// A slot of our own that holds the message that has just arrived, which the fabric beneath
    /// has no more.
    fn take_arrived(&mut self) -> u32 {
        let Faulty { inner, slots, free, arrived, .. } = self;
        match (arrived.take(), free.pop()) {
            (Some(held), unused) => {
                free.extend(unused);
                held.slot
            }
            (None, Some(slot)) => {
                // What was there before is memory for the fabric beneath.
                std::mem::swap(&mut slots[slot as usize], inner.arrived_mut());
                slot
            }
            (None, None) => {
                slots.push(inner.arrived().clone());
                slots.len() as u32 - 1
            }
        }
    }

    /// A slot of our own that holds a copy of it.
    fn copy_arrived(&mut self) -> u32 {
        let Some(slot) = self.free.pop() else {
            self.slots.push(self.arrived().clone());
            return self.slots.len() as u32 - 1;
        };
        let Faulty { inner, slots, arrived, .. } = self;
        match arrived {
            Some(held) => {
                let both = slots.get_disjoint_mut([slot as usize, held.slot as usize]);
                let [to, from] = both.expect("a free slot is not one that holds a message");
                to.clone_from(from);
            }
            None => slots[slot as usize].clone_from(inner.arrived()),
        }
        slot
    }
}

impl<F: Fabric<Payload: Clone + Corrupt>> Fabric for Faulty<F> {
    type Payload = F::Payload;

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn send(&mut self, departure: Departure) -> Option<&mut F::Payload> {
        self.inner.send(departure)
    }

    /// What was held lies here and has to be copied.
    fn forward(&mut self, departure: Departure) -> Option<Forwarded<'_, F::Payload>> {
        match self.arrived {
            Some(_) => self.inner.send(departure).map(Forwarded::Elsewhere),
            None => self.inner.forward(departure),
        }
    }

    fn set_timer(&mut self, node: NodeId, at: Time) {
        self.inner.set_timer(node, at);
    }

    fn next(&mut self, end: Time) -> Option<Event> {
        loop {
            self.release();
            let held = self.held.peek().map_or(Time::MAX, |Reverse(held)| held.at);
            if let Some(event) = self.inner.next(end.min(held)) {
                match event {
                    Event::Arrival { from, to, marked } if !self.arrives(from, to, marked) => continue,
                    _ => return Some(event),
                }
            }
            if held >= end {
                return None;
            }
            let Reverse(held) = self.held.pop()?;
            self.arrived = Some(held);
            let Held { from, to, marked, is_drawn, .. } = held;
            // Its nodes may have been parted since it came.
            let is_seen = if is_drawn { self.passes(from, to) } else { self.arrives(from, to, marked) };
            if is_seen {
                return Some(Event::Arrival { from, to, marked });
            }
        }
    }

    fn arrived(&self) -> &F::Payload {
        match self.arrived {
            Some(held) => &self.slots[held.slot as usize],
            None => self.inner.arrived(),
        }
    }

    fn arrived_mut(&mut self) -> &mut F::Payload {
        match self.arrived {
            Some(held) => &mut self.slots[held.slot as usize],
            None => self.inner.arrived_mut(),
        }
    }

    fn departed(&self) -> Option<Time> {
        match self.arrived {
            Some(held) => held.departed,
            None => self.inner.departed(),
        }
    }

    fn release(&mut self) {
        match self.arrived.take() {
            Some(held) => self.free.push(held.slot),
            None => self.inner.release(),
        }
    }

    fn join(&mut self) -> NodeId {
        let node = self.inner.join();
        self.nodes.push((Rng::indexed(self.seed, "faults", u64::from(node.0)), 0));
        node
    }

    fn reset(&mut self, seed: u64) {
        self.inner.reset(seed);
        self.seed = seed;
        self.nodes.clear();
        self.held.clear();
        self.sequence = 0;
        self.arrived = None;
        self.free.clear();
        self.free.extend((0..self.slots.len() as u32).rev());
        self.counters = FaultCounters::default();
    }
}

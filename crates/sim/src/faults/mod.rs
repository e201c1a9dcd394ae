//! What goes wrong between nodes: loss, duplication, reordering, corruption, partitions, over any
//! fabric. What chance does to a message is a function of the seed, the node that gets it, and how
//! many have come to it before.

#[cfg(test)]
mod tests;

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

/// A fabric in which things go wrong.
#[derive(Clone, Debug)]
pub struct Faulty<F> {
    inner: F,
    faults: Faults,
    seed: u64,
    /// Each node's chances, and the part of the network that it is in.
    nodes: Vec<(Rng, u32)>,
    /// The last arrival, which will come once more.
    again: Option<Event>,
    counters: FaultCounters,
}

impl<F: Fabric> Faulty<F> {
    /// `inner`, which has no node yet, with `faults`.
    pub fn new(inner: F, faults: Faults, seed: u64) -> Faulty<F> {
        Faulty { inner, faults, seed, nodes: Vec::new(), again: None, counters: FaultCounters::default() }
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
    /// What becomes of a message that has arrived at `to`: whether the node sees it now.
    fn arrives(&mut self, from: NodeId, to: NodeId) -> bool {
        let parts = (self.nodes[from.index()].1, self.nodes[to.index()].1);
        let Faulty { inner, faults, nodes, counters, .. } = self;
        let rng = &mut nodes[to.index()].0;
        if parts.0 != parts.1 {
            counters.partitioned += 1;
            return false;
        }
        if rng.chance(faults.loss) {
            counters.lost += 1;
            return false;
        }
        if rng.chance(faults.reordering) {
            counters.reordered += 1;
            let wait = Duration::from_nanos((rng.uniform() * faults.delay.as_nanos() as f64) as u64);
            let copy = inner.arrived().clone();
            if let Some(payload) = inner.send(Departure { from, to, wait, size: 0, ecn_capable: false }) {
                *payload = copy;
            }
            return false;
        }
        if rng.chance(faults.corruption) {
            counters.corrupted += 1;
            inner.arrived_mut().corrupt(rng);
        }
        true
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

    fn forward(&mut self, departure: Departure) -> Option<Forwarded<'_, F::Payload>> {
        // The slot is still needed by a message that comes once more.
        if self.again.is_some() {
            return self.inner.send(departure).map(Forwarded::Elsewhere);
        }
        self.inner.forward(departure)
    }

    fn set_timer(&mut self, node: NodeId, at: Time) {
        self.inner.set_timer(node, at);
    }

    fn next(&mut self, end: Time) -> Option<Event> {
        loop {
            let event = match self.again.take() {
                Some(event) => event,
                None => self.inner.next(end)?,
            };
            let Event::Arrival { from, to, .. } = event else { return Some(event) };
            if self.arrives(from, to) {
                if self.nodes[to.index()].0.chance(self.faults.duplication) {
                    self.counters.duplicated += 1;
                    self.again = Some(event);
                }
                return Some(event);
            }
        }
    }

    fn arrived(&self) -> &F::Payload {
        self.inner.arrived()
    }

    fn arrived_mut(&mut self) -> &mut F::Payload {
        self.inner.arrived_mut()
    }

    fn release(&mut self) {
        // The slot is still needed by a message that comes once more.
        if self.again.is_none() {
            self.inner.release();
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
        self.again = None;
        self.counters = FaultCounters::default();
    }
}

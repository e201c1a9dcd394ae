//! What goes wrong between nodes: loss, duplication, reordering, corruption, partitions, over any
//! fabric. What chance does to a message is a function of the seed, the node that gets it, and how
//! many have come to it before.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay::DelayModel;
    use crate::pairs::{Pairs, PairsConfig};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Node 0 sends 1000 messages to node 1, one each millisecond; when and what arrives.
    fn run(faults: Faults, part: u32) -> (Vec<(Time, u64, Vec<u8>)>, FaultCounters) {
        let config = PairsConfig { delay: DelayModel::Constant(MS(10)), jitter: 0.0, loss: 0.0 };
        let mut fabric: Faulty<Pairs<Letter<Vec<u8>>>> = Faulty::new(Pairs::new(config, 2, 1), faults, 1);
        let (from, to) = (fabric.join(), fabric.join());
        fabric.set_part(to, part);
        let mut arrived = Vec::new();
        for number in 0..1000u64 {
            let departure = Departure { from, to, wait: MS(number), size: 0, ecn_capable: false };
            fabric.send(departure).unwrap().content = number.to_be_bytes().to_vec();
        }
        while fabric.next(Time::MAX).is_some() {
            let content = fabric.arrived().content.clone();
            arrived.push((fabric.now(), u64::from_be_bytes(content[..].try_into().unwrap()), content));
            fabric.release();
        }
        (arrived, fabric.counters())
    }

    #[test]
    fn without_faults_all_arrives_once_and_in_order() {
        let (arrived, counters) = run(Faults::default(), 0);
        assert!(arrived.iter().map(|(_, number, _)| *number).eq(0..1000));
        assert_eq!(counters, FaultCounters::default());
    }

    #[test]
    fn each_fault_happens_as_often_as_it_is_counted() {
        let (arrived, counters) = run(Faults { loss: 0.2, ..Faults::default() }, 0);
        assert_eq!((arrived.len() as u64 + counters.lost, (150..250).contains(&counters.lost)), (1000, true));
        let (arrived, counters) = run(Faults { duplication: 0.2, ..Faults::default() }, 0);
        let twice = arrived.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        assert!(twice == counters.duplicated && (200..330).contains(&twice), "{twice} {counters:?}");
        let (arrived, counters) = run(Faults { reordering: 0.2, delay: MS(50), ..Faults::default() }, 0);
        assert!(arrived.len() == 1000 && counters.reordered > 150);
        assert!(arrived.windows(2).any(|pair| pair[0].1 > pair[1].1), "none overtakes another");
        let (arrived, counters) = run(Faults { corruption: 0.2, ..Faults::default() }, 0);
        let wrong = arrived.iter().zip(0..).filter(|((_, number, _), sent)| number != sent).count() as u64;
        assert!(wrong == counters.corrupted && wrong > 150, "{wrong} {counters:?}");
    }

    #[test]
    fn a_message_that_comes_once_more_is_as_it_was_though_it_was_forwarded() {
        let config = PairsConfig { delay: DelayModel::Constant(MS(10)), jitter: 0.0, loss: 0.0 };
        let faults = Faults { duplication: 1.0, ..Faults::default() };
        let mut fabric: Faulty<Pairs<Letter<Vec<u8>>>> = Faulty::new(Pairs::new(config, 2, 1), faults, 1);
        let (from, to) = (fabric.join(), fabric.join());
        let there = Departure { from, to, wait: Duration::ZERO, size: 0, ecn_capable: false };
        fabric.send(there).unwrap().content = vec![7];
        for forwarded in [8, 9] {
            assert_eq!(fabric.next(Time::MAX), Some(Event::Arrival { from, to, marked: false }));
            assert_eq!(fabric.arrived().content, [7]);
            fabric.set(Faults::default());
            match fabric.forward(Departure { from: to, to: from, ..there }).unwrap() {
                Forwarded::InPlace(letter) | Forwarded::Elsewhere(letter) => letter.content = vec![forwarded],
            }
        }
        for forwarded in [8, 9] {
            assert_eq!(fabric.next(Time::MAX), Some(Event::Arrival { from: to, to: from, marked: false }));
            assert_eq!(fabric.arrived().content, [forwarded]);
        }
    }

    #[test]
    fn nothing_passes_between_two_parts() {
        let (arrived, counters) = run(Faults::default(), 1);
        assert_eq!((arrived.len(), counters.partitioned), (0, 1000));
    }

    #[test]
    fn equal_seeds_give_equal_faults() {
        let faults = Faults { loss: 0.1, duplication: 0.1, reordering: 0.1, delay: MS(30), corruption: 0.1 };
        assert_eq!(run(faults, 0), run(faults, 0));
    }
}

//! Which relay loses packets: loss tomography.
//!
//! A packet is lost if any node of its path loses it, each independently: a noisy OR [Pearl 1988,
//! "Probabilistic Reasoning in Intelligent Systems", 4.3.2]. With the probabilities p of the nodes,
//!
//! ```text
//! P(lost) = 1 - Π (1 - p_j)            over the relays of the path and its destination
//! r_k     = p_k / P(lost)              the share of node k in a loss; 0 after an ACK
//! p_k     <- p_k + γ (r_k - p_k)
//! ```
//!
//! which is online expectation maximisation [Cappé and Moulines 2009] with the weight γ of an
//! outcome. The sum of the shares of one loss is at least 1: several nodes may have lost it.

use super::{Outcome, Report, Slot};

/// Weight of an outcome: a node's estimate forgets within this many of its own packets. With few, it
/// is noise; with many, a node that begins to drop is found late.
const WEIGHT: f32 = 1.0 / 128.0;

/// What is thought of a node before its first packet, and at the least: a node with none could
/// never be blamed.
const LEAST: f32 = 1e-3;

/// The most: outcomes with a node that loses everything must still tell of the others.
const MOST: f32 = 0.999;

/// What an outcome says of one relay of its path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blame {
    /// Its share in the loss; 0 after an ACK.
    pub share: f64,
    /// With what probability all other nodes of the path pass a packet on.
    pub others_pass: f64,
}

/// The probability of each node to lose a packet, and how much is known of it.
#[derive(Clone, Debug)]
pub struct Losses {
    nodes: Box<[Node]>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    loss: f32,
    /// Outcomes that it had part in.
    seen: u32,
}

impl Node {
    const UNKNOWN: Node = Node { loss: 10.0 * LEAST, seen: 0 };

    /// That of its last outcome.
    fn weight(&self) -> f32 {
        WEIGHT.max(1.0 / (self.seen as f32 + 8.0))
    }
}

impl Losses {
    /// Nothing is known of `peers` nodes.
    pub fn new(peers: usize) -> Losses {
        Losses { nodes: vec![Node::UNKNOWN; peers].into() }
    }

    /// The probability that `slot` loses a packet.
    #[inline]
    pub fn of(&self, slot: Slot) -> f64 {
        f64::from(self.nodes[slot.index()].loss)
    }

    /// How many outcomes it had part in.
    #[inline]
    pub fn seen(&self, slot: Slot) -> u32 {
        self.nodes[slot.index()].seen
    }

    /// Learns from an outcome, and tells what it says of each relay of the path. `suspects` says whether the destination
    /// could have lost it as well.
    #[inline]
    pub fn learn(&mut self, report: &Report<'_>, suspects: bool, mut blame: impl FnMut(usize, Blame)) {
        let nodes = report.path.iter().map(|hop| hop.slot).chain(suspects.then_some(report.destination));
        let arrives: f32 = nodes.clone().map(|slot| 1.0 - self.nodes[slot.index()].loss).product();
        let lost = (report.outcome == Outcome::TimedOut).then_some(1.0 - arrives);
        for (place, slot) in nodes.enumerate() {
            let node = &mut self.nodes[slot.index()];
            let share = lost.map_or(0.0, |lost| (node.loss / lost).min(1.0));
            let others_pass = arrives / (1.0 - node.loss);
            node.seen = node.seen.saturating_add(1);
            node.loss = (node.loss + node.weight() * (share - node.loss)).clamp(LEAST, MOST);
            if place < report.path.len() {
                blame(place, Blame { share: f64::from(share), others_pass: f64::from(others_pass) });
            }
        }
    }

    /// Knows nothing of `slot` any more.
    pub fn forget(&mut self, slot: Slot) {
        self.nodes[slot.index()] = Node::UNKNOWN;
    }

    /// Takes a loss back: the packet has arrived after all. The shares are computed again, for they are not kept.
    pub fn forgive(&mut self, report: &Report<'_>) {
        let nodes = report.path.iter().map(|hop| hop.slot).chain([report.destination]);
        let arrives: f32 = nodes.clone().map(|slot| 1.0 - self.nodes[slot.index()].loss).product();
        for slot in nodes {
            let node = &mut self.nodes[slot.index()];
            let share = (node.loss / (1.0 - arrives)).min(1.0);
            node.loss = (node.loss - node.weight() * share).max(LEAST);
        }
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Hop;
    use crate::rng::Rng;
    use crate::rtt::{PairRtts, RttConfig};

    /// The estimates of ten nodes that lose with these probabilities, after this many packets over
    /// three of them to the last.
    fn learned(truth: &[f64; 10], packets: usize, seed: u64) -> Vec<f64> {
        let mut losses = Losses::new(10);
        let mut rng = Rng::stream(seed, "losses");
        let rtts = PairRtts::new(&RttConfig::default(), 10);
        for _ in 0..packets {
            let mut path = [Hop::default(); 3];
            for place in 0..3 {
                path[place].slot = loop {
                    let slot = Slot(rng.below(9) as u16);
                    if path[..place].iter().all(|hop| hop.slot != slot) {
                        break slot;
                    }
                };
            }
            let nodes = path.iter().map(|hop| hop.slot.index()).chain([9]);
            let lost = nodes.filter(|&node| rng.chance(truth[node])).count() > 0;
            let outcome = if lost { Outcome::TimedOut } else { Outcome::Acked };
            losses.learn(&Report { destination: Slot(9), ..Report::of(outcome, &path, &rtts) }, true, |_, _| {});
        }
        (0..10).map(|slot| losses.of(Slot(slot))).collect()
    }

    #[test]
    fn who_loses_is_distinguished_from_who_shares_a_path() {
        let mut truth = [0.01; 10];
        (truth[2], truth[7]) = (1.0, 0.4);
        for seed in 0..10 {
            let found = learned(&truth, 1500, seed);
            for (node, (&found, &truth)) in found.iter().zip(&truth).enumerate() {
                assert_eq!(found > 0.2, truth > 0.2, "node {node}: {found}, not {truth}");
            }
            assert!(found[2] > 0.8, "{found:?}");
        }
    }

    #[test]
    fn a_destination_that_loses_is_not_blamed_on_relays() {
        let mut truth = [0.0; 10];
        truth[9] = 0.5;
        let found = learned(&truth, 1000, 1);
        assert!(found[9] > 0.3 && found[..9].iter().all(|&loss| loss < 0.15), "{found:?}");
    }

    #[test]
    fn the_shares_of_a_loss_are_at_least_one_together_and_none_after_an_ack() {
        let mut losses = Losses::new(4);
        let rtts = PairRtts::new(&RttConfig::default(), 4);
        let path = [Hop { slot: Slot(0), ..Hop::default() }, Hop { slot: Slot(1), ..Hop::default() }];
        let mut shares = Vec::new();
        let report = |outcome| Report { destination: Slot(3), ..Report::of(outcome, &path, &rtts) };
        losses.learn(&report(Outcome::Acked), true, |place, blame| shares.push((place, blame.share)));
        assert_eq!(shares, [(0, 0.0), (1, 0.0)]);
        shares.clear();
        losses.learn(&report(Outcome::TimedOut), true, |place, blame| shares.push((place, blame.share)));
        // Three nodes, equally suspect: each has a third and a little more.
        assert!(shares.iter().all(|&(_, share)| (0.33..0.35).contains(&share)), "{shares:?}");
        let before = losses.of(Slot(0));
        losses.forgive(&report(Outcome::Acked));
        assert!(losses.of(Slot(0)) < before);
    }
}

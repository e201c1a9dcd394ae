//! Networks by their nodes: links between names, the shortest paths over them, and shapes
//! that many scenarios share.
//!
//! ```text
//! dumbbell   s0 ---.                      .--- r0      star   h0 ---.     .--- h2
//!            s1 ---- left == bottleneck == right ---- r1             hub
//!            s2 ---'                      '--- r2             h1 ---'     '--- h3
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_sim::varying::{Change, Course};

use crate::flows::{LinkSpec, Path, QueueSpec, Receiver};

/// Nodes and the links between them.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    names: Vec<String>,
    /// Nodes by name.
    nodes: BTreeMap<String, usize>,
    links: Vec<LinkSpec>,
    /// From which node to which each link leads, where that was said.
    ends: Vec<Option<(usize, usize)>>,
    /// Links that leave each node, in their order.
    leaving: Vec<Vec<usize>>,
}

/// How far a node is: by propagation, then by links.
type Distance = (Duration, usize);

impl Topology {
    /// Adds a link from one node to another, both of which it adds where they are new.
    pub fn add(&mut self, from: &str, to: &str, link: LinkSpec) -> usize {
        let (from, to) = (self.add_node(from), self.add_node(to));
        let place = self.add_alone(link);
        self.ends[place] = Some((from, to));
        self.leaving[from].push(place);
        place
    }

    /// Adds a link that no node has: paths pass it only where they name it.
    pub fn add_alone(&mut self, link: LinkSpec) -> usize {
        self.links.push(link);
        self.ends.push(None);
        self.links.len() - 1
    }

    fn add_node(&mut self, name: &str) -> usize {
        if let Some(&node) = self.nodes.get(name) {
            return node;
        }
        self.names.push(name.to_owned());
        self.leaving.push(Vec::new());
        self.nodes.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }

    /// The node of that name.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.get(name).copied()
    }

    /// The names of all nodes, in the order in which they came.
    pub fn node_names(&self) -> &[String] {
        &self.names
    }

    /// The links, in the order in which they were added.
    pub fn links(&self) -> &[LinkSpec] {
        &self.links
    }

    /// The links alone.
    pub fn into_links(self) -> Vec<LinkSpec> {
        self.links
    }

    /// From which node to which `link` leads, where that was said.
    pub fn ends(&self, link: usize) -> Option<(usize, usize)> {
        self.ends[link]
    }

    /// The path with the least propagation delay at the beginning; of those, one with the
    /// fewest links; of those, the one whose links come first, from the far end on. A delay
    /// that is drawn at random counts with its least value.
    pub fn path(&self, from: usize, to: usize) -> Option<Path> {
        let mut best: Vec<Option<(Distance, usize)>> = vec![None; self.names.len()];
        let mut next = BinaryHeap::from([Reverse(((Duration::ZERO, 0), from))]);
        while let Some(Reverse((distance, node))) = next.pop() {
            if node == to {
                break;
            }
            if best[node].is_some_and(|(known, _)| known < distance) {
                continue;
            }
            for &link in &self.leaving[node] {
                let Some((_, far)) = self.ends[link] else { continue };
                if far == from || (far != to && self.leads_only_back(far, node)) {
                    continue;
                }
                let reached = (distance.0 + least(&self.links[link].delay), distance.1 + 1);
                let better = match best[far] {
                    None => true,
                    Some((known, by)) => (reached, link) < (known, by),
                };
                if better {
                    if best[far].is_none_or(|(known, _)| reached < known) {
                        next.push(Reverse((reached, far)));
                    }
                    best[far] = Some((reached, link));
                }
            }
        }
        let mut path = Vec::new();
        let mut node = to;
        while node != from {
            let (_, link) = best[node]?;
            path.push(link);
            (node, _) = self.ends[link]?;
        }
        path.reverse();
        Some(path)
    }

    /// A host at the end of a line: nothing passes through it.
    fn leads_only_back(&self, node: usize, back: usize) -> bool {
        self.leaving[node].iter().all(|&link| self.ends[link].is_some_and(|(_, far)| far == back))
    }
}

/// What a delay is at the beginning, and never less than if it is drawn at random.
pub fn least(delay: &Course<Duration>) -> Duration {
    match delay.change {
        Change::Uniform { low, .. } => low,
        Change::Never | Change::At(_) => delay.first,
    }
}

/// One sender's or receiver's own link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// Its rate in each direction; none if packets take no time.
    pub rate: Option<Rate>,
    /// Its propagation in each direction.
    pub delay: Duration,
}

/// A dumbbell: pairs of hosts with a link in common.
#[derive(Clone, Debug)]
pub struct Dumbbell {
    /// Each pair's links: the sender's and the receiver's.
    pub pairs: Vec<(Access, Access)>,
    /// The link in common, from left to right.
    pub bottleneck: LinkSpec,
    /// The queue of each access link.
    pub access_queue: QueueSpec,
}

impl Dumbbell {
    /// Its links, and each pair's way there and back. The bottleneck is the first link, its
    /// way back the second: without losses, with the same rate, delay and queue.
    pub fn build(&self) -> (Vec<LinkSpec>, Vec<Receiver>) {
        let mut topology = Topology::default();
        let ways = self.add_to(&mut topology);
        (topology.into_links(), ways)
    }

    /// Adds its links to a topology: senders are `s0` and so on, receivers `r0` and so on.
    pub fn add_to(&self, topology: &mut Topology) -> Vec<Receiver> {
        let back = LinkSpec {
            name: format!("{}-back", self.bottleneck.name),
            loss: anabranch_sim::loss::LossModel::None,
            ..self.bottleneck.clone()
        };
        let there = topology.add("left", "right", self.bottleneck.clone());
        let back = topology.add("right", "left", back);
        let mut ways = Vec::new();
        for (i, &(sender, receiver)) in self.pairs.iter().enumerate() {
            let (s, r) = (format!("s{i}"), format!("r{i}"));
            let mut add = |from: &str, to: &str, Access { rate, delay }: Access| {
                let link = LinkSpec::new(format!("{from}-{to}"), Rate::ZERO, delay).with_queue(self.access_queue);
                topology.add(from, to, LinkSpec { rate: rate.map(Course::constant), ..link })
            };
            let (up, down) = (add(&s, "left", sender), add("right", &r, receiver));
            let (back_up, back_down) = (add(&r, "right", receiver), add("left", &s, sender));
            ways.push(Receiver { there: vec![up, there, down], back: vec![back_up, back, back_down] });
        }
        ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_sim::network::Capacity;

    fn link(name: &str, ms: u64) -> LinkSpec {
        LinkSpec::new(name, Rate::from_bits_per_sec(1_000_000), Duration::from_millis(ms))
    }

    fn path(topology: &Topology, from: &str, to: &str) -> Option<Vec<String>> {
        let path = topology.path(topology.node(from)?, topology.node(to)?)?;
        Some(path.into_iter().map(|link| topology.links()[link].name.clone()).collect())
    }

    #[test]
    fn the_shortest_path_has_the_least_delay_then_the_fewest_links_then_the_first() {
        let mut topology = Topology::default();
        for (from, to, ms) in
            [("a", "d", 10), ("a", "b", 3), ("b", "d", 3), ("a", "c", 3), ("c", "d", 3), ("d", "e", 0), ("a", "e", 6)]
        {
            topology.add(from, to, link(&format!("{from}{to}"), ms));
        }
        assert_eq!(path(&topology, "a", "d").unwrap(), ["ab", "bd"]);
        // 6 ms over one link and over three.
        assert_eq!(path(&topology, "a", "e").unwrap(), ["ae"]);
        assert_eq!(path(&topology, "e", "a"), None);
        topology.add("a", "d", link("second", 6));
        topology.add("a", "d", link("third", 6));
        assert_eq!(path(&topology, "a", "d").unwrap(), ["second"]);
    }

    #[test]
    fn a_dumbbells_ways_are_its_shortest_paths() {
        let rate = Some(Rate::from_bits_per_sec(1_000_000));
        let access = |ms| Access { rate, delay: Duration::from_millis(ms) };
        let dumbbell = Dumbbell {
            pairs: vec![(access(1), access(2)), (access(3), access(0))],
            bottleneck: link("bottleneck", 10),
            access_queue: QueueSpec::DropTail(Capacity::Unlimited),
        };
        let mut topology = Topology::default();
        let ways = dumbbell.add_to(&mut topology);
        for (i, way) in ways.iter().enumerate() {
            let node = |side: &str| topology.node(&format!("{side}{i}")).unwrap();
            assert_eq!(topology.path(node("s"), node("r")).as_ref(), Some(&way.there));
            assert_eq!(topology.path(node("r"), node("s")).as_ref(), Some(&way.back));
        }
        assert_eq!(topology.links()[ways[1].there[0]].name, "s1-left");
        assert_eq!(topology.links()[ways[1].back[2]].name, "left-s1");
    }
}

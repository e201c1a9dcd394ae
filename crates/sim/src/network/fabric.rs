//! A fabric of links and queues: each pair of nodes that talk has its route over links.

use anabranch_control::time::{Duration, Time};

use super::{Event as NetworkEvent, Network, NetworkBuilder, RouteId, TimerId};
use crate::fabric::{Departure, Event, Fabric, NodeId};

/// The route of what one node sends another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Who sends.
    pub from: NodeId,
    /// Who gets it.
    pub to: NodeId,
    /// Over which links.
    pub route: RouteId,
}

/// Nodes on a network of links. Who has no route to somebody can't send anything there.
#[derive(Clone, Debug)]
pub struct Links<P> {
    network: Network<P>,
    /// The ways out of each node.
    ways: Box<[Box<[Way]>]>,
    /// The two ends of each route.
    ends: Box<[(NodeId, NodeId)]>,
    joined: u32,
}

impl<P: Default> Links<P> {
    /// Room for `nodes` nodes at the ends of `ways`, over the links of `network` with random
    /// streams of `seed`.
    ///
    /// # Panics
    ///
    /// If a way leads to a node or over a route that there is not, or if two share a route.
    pub fn new(network: NetworkBuilder, nodes: usize, ways: &[Way], seed: u64) -> Links<P> {
        let mut out = vec![Vec::new(); nodes];
        let mut ends = vec![None; network.routes()];
        for way in ways {
            assert!(way.to.index() < nodes, "node {} is one of {nodes}", way.to.0);
            out[way.from.index()].push(*way);
            let before = ends[way.route.0 as usize].replace((way.from, way.to));
            assert!(before.is_none(), "route {} has two ends", way.route.0);
        }
        let nobody = (NodeId(u32::MAX), NodeId(u32::MAX));
        Links {
            network: network.build(nodes, seed),
            ways: out.into_iter().map(Vec::into_boxed_slice).collect(),
            ends: ends.into_iter().map(|ends| ends.unwrap_or(nobody)).collect(),
            joined: 0,
        }
    }

    /// The links.
    pub fn network(&self) -> &Network<P> {
        &self.network
    }

    /// The links, to read what takes the present into account.
    pub fn network_mut(&mut self) -> &mut Network<P> {
        &mut self.network
    }
}

impl<P: Default> Fabric for Links<P> {
    type Payload = P;

    #[inline]
    fn now(&self) -> Time {
        self.network.now()
    }

    /// What a queue drops has been written in vain; links count it.
    ///
    /// # Panics
    ///
    /// If there is no way, or the message waits first: here it is links that messages wait for.
    #[inline(always)]
    fn send(&mut self, departure: Departure) -> Option<&mut P> {
        let Departure { from, to, wait, size, ecn_capable } = departure;
        assert!(wait == Duration::ZERO, "messages over links leave at once");
        let way = self.ways[from.index()].iter().find(|way| way.to == to);
        let way = way.unwrap_or_else(|| panic!("there is no way from node {} to node {}", from.0, to.0));
        Some(self.network.send_into(way.route, size, ecn_capable))
    }

    #[inline(always)]
    fn set_timer(&mut self, node: NodeId, at: Time) {
        self.network.set_timer(TimerId(node.0), at);
    }

    #[inline(always)]
    fn next(&mut self, end: Time) -> Option<Event> {
        match self.network.next(end)? {
            NetworkEvent::Arrived => {
                let packet = self.network.arrived();
                let (from, to) = self.ends[packet.route.0 as usize];
                Some(Event::Arrival { from, to, marked: packet.marked })
            }
            NetworkEvent::Timer(timer) => Some(Event::Timer(NodeId(timer.0))),
        }
    }

    #[inline(always)]
    fn arrived(&self) -> &P {
        &self.network.arrived().payload
    }

    #[inline]
    fn arrived_mut(&mut self) -> &mut P {
        &mut self.network.arrived_mut().payload
    }

    #[inline(always)]
    fn departed(&self) -> Option<Time> {
        Some(self.network.arrived().sent_at)
    }

    #[inline(always)]
    fn release(&mut self) {
        self.network.release();
    }

    /// # Panics
    ///
    /// If as many have joined as there is room for.
    fn join(&mut self) -> NodeId {
        assert!((self.joined as usize) < self.ways.len(), "there is room for {} nodes", self.ways.len());
        self.joined += 1;
        NodeId(self.joined - 1)
    }

    fn reset(&mut self, seed: u64) {
        self.network.reset(seed);
        self.joined = 0;
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::units::Rate;

    use super::super::{Capacity, CodelConfig, CodelLaw, Jitter, Limit, LinkConfig};
    use super::*;
    use crate::loss::{GilbertElliott, LossModel};
    use crate::network::Codel;
    use crate::varying::{Change, Course};

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const US: fn(u64) -> Duration = |micros| Duration::from_nanos(micros * 1000);

    fn link(name: &str) -> LinkConfig {
        LinkConfig {
            name: name.into(),
            rate: Some(Course::constant(Rate::from_bits_per_sec(8_000_000))),
            delay: Course::constant(MS(10)),
            capacity: Capacity::Packets(5),
            discipline: None,
            loss: LossModel::None,
            jitter: Jitter::NONE,
        }
    }

    /// Nodes 0 and 1 send to node 2 over one link each and one that they share; it answers 0.
    fn links(seed: u64) -> Links<u32> {
        let mut network = NetworkBuilder::new();
        let a = network.link(LinkConfig { jitter: Jitter { deviation: MS(1), reorders: true }, ..link("a") });
        let change = Change::Uniform {
            every: MS(7),
            low: Rate::from_bits_per_sec(1_000_000),
            high: Rate::from_bits_per_sec(9_000_000),
        };
        let rate = Some(Course { first: Rate::from_bits_per_sec(8_000_000), change });
        let b = network.link(LinkConfig { rate, ..link("b") });
        let loss =
            LossModel::GilbertElliott(GilbertElliott { to_bad: 0.1, to_good: 0.3, loss_good: 0.0, loss_bad: 1.0 });
        let codel = Codel::new(CodelConfig { law: CodelLaw::default(), limit: Limit::Packets(20) });
        let shared = network.link(LinkConfig { loss, discipline: Some(Box::new(codel)), ..link("shared") });
        let back = network.link(link("back"));
        let ways = [(0, 2, vec![a, shared]), (1, 2, vec![b, shared]), (2, 0, vec![back])];
        let ways =
            ways.map(|(from, to, links)| Way { from: NodeId(from), to: NodeId(to), route: network.route(&links) });
        let mut links = Links::new(network, 3, &ways, seed);
        (0..3).for_each(|node| assert_eq!(links.join(), NodeId(node)));
        links
    }

    fn departure(from: u32, to: u32) -> Departure {
        Departure { from: NodeId(from), to: NodeId(to), wait: Duration::ZERO, size: 1000, ecn_capable: false }
    }

    /// All that happens when both send each 0.6 ms, and each arrival is answered.
    fn course(links: &mut Links<u32>) -> Vec<(Time, Event, Option<u32>)> {
        let mut course = Vec::new();
        for number in 0..400 {
            let now = Time::ZERO + US(600) * u64::from(number);
            for from in 0..2 {
                *links.send(departure(from, 2)).unwrap() = number;
            }
            links.set_timer(NodeId(1), now + US(300));
            while let Some(event) = links.next(now + US(600)) {
                let content = matches!(event, Event::Arrival { .. }).then(|| *links.arrived());
                course.push((links.now(), event, content));
                if let (Event::Arrival { to: NodeId(2), .. }, Some(content)) = (event, content) {
                    *links.send(departure(2, 0)).unwrap() = content;
                }
            }
        }
        course
    }

    #[test]
    fn a_message_knows_its_ends_and_when_it_departed() {
        let mut links = links(1);
        assert_eq!(links.next(Time::ZERO + MS(3)), None);
        *links.send(departure(2, 0)).unwrap() = 9;
        let event = links.next(Time::MAX);
        assert_eq!(event, Some(Event::Arrival { from: NodeId(2), to: NodeId(0), marked: false }));
        assert_eq!((*links.arrived(), links.departed()), (9, Some(Time::ZERO + MS(3))));
        // 1000 B take a millisecond, and the way ten.
        assert_eq!(links.now(), Time::ZERO + MS(14));
    }

    #[test]
    fn a_reset_fabric_is_as_new_and_a_copy_goes_on_as_the_original() {
        let mut old = links(1);
        let first = course(&mut old);
        old.reset(2);
        (0..3).for_each(|_| _ = old.join());
        let mut new = links(2);
        let mut copy = new.clone();
        let second = course(&mut new);
        assert_eq!(course(&mut old), second);
        assert_ne!(first, second, "another seed has other losses");
        assert!(second.len() > 600, "{} events", second.len());
        assert_eq!(course(&mut copy), second);
        assert_eq!(
            old.network_mut().count(crate::network::LinkId(2)),
            new.network_mut().count(crate::network::LinkId(2))
        );
    }
}

//! What travels: data that carries its whole route, and ACKs that go the same way back.

use anabranch_control::path::MAX_RELAYS;

/// The sender's name for a packet in flight: a place in its table and how often that
/// place was used before, so that an old ACK is not taken for a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId {
    /// Place in the sender's table.
    pub index: u32,
    /// How often the place was used before.
    pub generation: u32,
}

/// Source, relays and destination of a packet, and where on it the packet is.
/// `A` is a node in a simulation, an address on a network.
#[derive(Clone, Copy, Debug)]
pub struct Route<A> {
    nodes: [A; MAX_RELAYS + 2],
    /// Index of the destination.
    last: u8,
    /// Index of the node that has the packet, or that it is on its way to.
    at: u8,
}

/// Equal nodes at equal places; what stands behind the destination says nothing.
impl<A: PartialEq> PartialEq for Route<A> {
    fn eq(&self, other: &Route<A>) -> bool {
        let last = usize::from(self.last);
        self.at == other.at && self.last == other.last && self.nodes[..=last] == other.nodes[..=last]
    }
}

impl<A: Eq> Eq for Route<A> {}

impl<A: Copy> Route<A> {
    /// The route from `source` over `relays` to `destination`; on its way to the first relay.
    ///
    /// Panics with more than `MAX_RELAYS` relays, which no path controller chooses.
    pub fn new(source: A, relays: impl Iterator<Item = A>, destination: A) -> Route<A> {
        let mut nodes = [source; MAX_RELAYS + 2];
        let mut last = 1;
        for relay in relays {
            nodes[last] = relay;
            last += 1;
        }
        nodes[last] = destination;
        Route { nodes, last: last as u8, at: 1 }
    }

    /// The route over `nodes` (source, relays, destination) of a packet that is at, or
    /// on its way to, `nodes[at]`; none unless it has 1 to `MAX_RELAYS` relays and `at`
    /// is one of the nodes.
    pub fn from_nodes(nodes: &[A], at: usize) -> Option<Route<A>> {
        let relays = nodes.len().checked_sub(2)?;
        if !(1..=MAX_RELAYS).contains(&relays) || at >= nodes.len() {
            return None;
        }
        let mut all = [nodes[0]; MAX_RELAYS + 2];
        all[..nodes.len()].copy_from_slice(nodes);
        Some(Route { nodes: all, last: (nodes.len() - 1) as u8, at: at as u8 })
    }

    /// Source, relays and destination.
    pub fn nodes(&self) -> &[A] {
        &self.nodes[..=usize::from(self.last)]
    }

    /// Which of `nodes` has the packet, or is the one that it is on its way to.
    #[inline]
    pub fn position(&self) -> usize {
        usize::from(self.at)
    }

    /// The source is in fact `source`: what the first relay has observed.
    pub fn set_source(&mut self, source: A) {
        self.nodes[0] = source;
    }

    /// The node that has the packet, or that it is on its way to.
    #[inline]
    pub fn at(&self) -> A {
        self.nodes[usize::from(self.at)]
    }

    /// The node after `at` on the way to the destination; none at the destination.
    #[inline]
    pub fn step_forth(&mut self) -> Option<A> {
        self.step(Kind::Data)
    }

    /// The node before `at`, on the way to the source; none at the source.
    #[inline]
    pub fn step_back(&mut self) -> Option<A> {
        self.step(Kind::Ack)
    }

    /// Whether `at` is the source.
    #[inline]
    pub fn is_home(&self) -> bool {
        self.at == 0
    }

    /// The next node in the direction of `kind`, without a branch on it: which way a
    /// packet goes is what a processor predicts worst.
    #[inline]
    fn step(&mut self, kind: Kind) -> Option<A> {
        let end = self.last & (kind as u8).wrapping_sub(1);
        if self.at == end {
            return None;
        }
        self.at = (self.at + 1).wrapping_sub(2 * kind as u8);
        Some(self.at())
    }

    /// The node before `at` in the direction of `kind`, itself at the beginning; without a branch
    /// on it either, nor on whether the index is in bounds.
    #[inline]
    fn previous(&self, kind: Kind) -> A {
        let index = (self.at + 2 * kind as u8).saturating_sub(1).min(self.last);
        self.nodes[usize::from(index).min(MAX_RELAYS + 1)]
    }
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the source to the destination.
    Data = 0,
    /// From the destination back to the source.
    Ack = 1,
}

/// A packet as relays see it. Aligned to a cache line: a simulation holds many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Packet<A> {
    /// The sender's name for it.
    pub id: PacketId,
    /// Drawn by the sender and told to the destination alone (on a network it travels
    /// encrypted); the ACK returns it, which proves that the packet arrived.
    pub nonce: u64,
    /// Data or ACK.
    pub kind: Kind,
    /// Where it goes.
    pub route: Route<A>,
}

/// A packet that goes nowhere, to be filled in.
impl<A: Copy + Default> Default for Packet<A> {
    fn default() -> Packet<A> {
        let nodes = [A::default(); MAX_RELAYS + 2];
        Packet { id: PacketId::default(), nonce: 0, kind: Kind::Data, route: Route { nodes, last: 1, at: 0 } }
    }
}

impl<A: Copy> Packet<A> {
    /// The node that it comes from: the one before on its way, itself at the beginning of it.
    #[inline]
    pub fn previous(&self) -> A {
        self.route.previous(self.kind)
    }

    /// Becomes `forwarded`, which is this packet after a node has worked on it: a node changes its
    /// kind, its nonce and where on its route it is.
    #[inline]
    pub fn update(&mut self, forwarded: &Packet<A>) {
        self.kind = forwarded.kind;
        self.nonce = forwarded.nonce;
        self.route.at = forwarded.route.at;
    }

    /// The next node on the way, forth for data and back for an ACK; none at its end.
    #[inline]
    pub fn step(&mut self) -> Option<A> {
        self.route.step(self.kind)
    }

    /// At the destination: the data becomes its ACK and goes to the last relay.
    #[inline]
    pub fn turn_around(&mut self) -> Option<A> {
        self.kind = Kind::Ack;
        self.route.step_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_comes_from_the_node_before_it_on_its_way() {
        let route = Route::new('a', "bcd".chars(), 'e');
        let mut packet = Packet { id: PacketId::default(), nonce: 7, kind: Kind::Data, route };
        let mut came_from = Vec::new();
        loop {
            came_from.push(packet.previous());
            if packet.step().is_none() {
                break;
            }
        }
        packet.turn_around();
        loop {
            came_from.push(packet.previous());
            if packet.step().is_none() {
                break;
            }
        }
        assert_eq!(came_from.iter().collect::<String>(), "abcdedcb");
        // At the beginning of its way it comes from itself.
        packet.kind = Kind::Data;
        assert_eq!(packet.previous(), 'a');
        assert_eq!(Packet { kind: Kind::Ack, route: Route { at: 4, ..route }, ..packet }.previous(), 'e');
    }

    #[test]
    fn an_update_brings_what_a_node_has_changed() {
        let route = Route::new('a', "bcd".chars(), 'e');
        let arrived = Packet { id: PacketId::default(), nonce: 7, kind: Kind::Data, route };
        let (mut forwarded, mut updated) = (arrived, arrived);
        forwarded.step();
        forwarded.nonce = 8;
        forwarded.turn_around();
        updated.update(&forwarded);
        assert_eq!(updated, forwarded);
        assert_ne!(updated, arrived);
    }

    #[test]
    fn an_ack_goes_back_the_way_its_packet_came() {
        let route = Route::new('a', "bcd".chars(), 'e');
        let mut packet = Packet { id: PacketId::default(), nonce: 7, kind: Kind::Data, route };
        let mut forth = vec![packet.route.at()];
        forth.extend(core::iter::from_fn(|| packet.route.step_forth()));
        let mut back: Vec<char> = packet.turn_around().into_iter().collect();
        back.extend(core::iter::from_fn(|| packet.route.step_back()));
        assert_eq!((forth.iter().collect::<String>(), back.iter().collect::<String>()), ("bcde".into(), "dcba".into()));
        assert_eq!(packet.kind, Kind::Ack);
        assert!(packet.route.is_home());
    }
}

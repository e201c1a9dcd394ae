//! What moves messages between nodes and wakes them: the simulator's side of a driver.
//!
//! A fabric knows how long a message takes from one node to another, and whether it is lost; what
//! a message says is nothing to it. [`Pairs`](crate::pairs::Pairs) has a delay for every pair of
//! nodes and no bandwidth; [`Links`](crate::network::Links) has routes over links with queues,
//! [`Access`](crate::access::Access) an uplink and a downlink for every node.

use anabranch_control::time::{Duration, Time};

/// A node, numbered from 0 in the order of joining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The node as an index into tables with an entry for each.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A message on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Who sends it.
    pub from: NodeId,
    /// Who gets it.
    pub to: NodeId,
    /// How long it waits at `from` first.
    pub wait: Duration,
    /// Its bytes on the wire.
    pub size: u32,
    /// Whether a queue may mark it instead of dropping it.
    pub ecn_capable: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message has arrived; [`Fabric::arrived`] shows it.
    Arrival {
        /// Who sent it.
        from: NodeId,
        /// Where it is now.
        to: NodeId,
        /// Whether a queue has marked it.
        marked: bool,
    },
    /// The instant that a node waits for has come.
    Timer(NodeId),
}

/// The slot of a message that is forwarded.
#[derive(Debug)]
pub enum Forwarded<'a, P> {
    /// The slot in which it arrived, and in which it still is.
    InPlace(&'a mut P),
    /// Another one, to be filled.
    Elsewhere(&'a mut P),
}

/// Moves messages and wakes nodes.
pub trait Fabric {
    /// What a message is to the fabric: a slot that is filled when it departs.
    type Payload;

    /// The time of the last event, or the end up to which there was none.
    fn now(&self) -> Time;

    /// A message departs: where to write it, or none if it is lost at once.
    fn send(&mut self, departure: Departure) -> Option<&mut Self::Payload>;

    /// The message that has just arrived departs again: where it is now, or none if it is lost at
    /// once.
    #[inline]
    fn forward(&mut self, departure: Departure) -> Option<Forwarded<'_, Self::Payload>> {
        self.send(departure).map(Forwarded::Elsewhere)
    }

    /// `node` is woken at `at` at the latest; `Time::MAX` for never. `at` is not before now: the
    /// world sees to it, for all fabrics.
    fn set_timer(&mut self, node: NodeId, at: Time);

    /// What happens next before `end`; none brings the time to `end`, if that is an instant.
    fn next(&mut self, end: Time) -> Option<Event>;

    /// The message that has just arrived. Its slot is free for another from the next
    /// [`Fabric::release`] or [`Fabric::next`] on, unless it was forwarded.
    ///
    /// # Panics
    ///
    /// Unless the last event was an arrival that was not forwarded yet.
    fn arrived(&self) -> &Self::Payload;

    /// The same, to change.
    ///
    /// # Panics
    ///
    /// Unless the last event was an arrival that was not forwarded yet.
    fn arrived_mut(&mut self) -> &mut Self::Payload;

    /// When the message that has just arrived departed, where the fabric keeps that.
    ///
    /// # Panics
    ///
    /// Unless the last event was an arrival.
    fn departed(&self) -> Option<Time> {
        None
    }

    /// Frees the slot of the message that has just arrived.
    fn release(&mut self);

    /// Adds a node.
    fn join(&mut self) -> NodeId;

    /// The node that joins first: another than 0 where this is a part of a greater fabric.
    #[inline]
    fn first_node(&self) -> NodeId {
        NodeId(0)
    }

    /// Whether `node` is in another part of a greater fabric.
    #[inline]
    fn is_elsewhere(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }

    /// Back to time zero without nodes and messages, with the random streams of `seed`; memory is
    /// kept for what comes.
    fn reset(&mut self, seed: u64);
}

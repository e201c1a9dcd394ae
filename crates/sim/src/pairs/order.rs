//! What orders events of one instant where they lie in several parts.

use anabranch_control::time::Time;

use super::Packed;
use crate::fabric::NodeId;

/// When and by whom an event was caused. Keys of one part grow as its events are inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub at: Time,
    /// Within the instant: 0 from outside, 1 while what was there before it happens, 2 while that
    /// happens which 1 has caused, and so on.
    pub round: u32,
    pub source: u32,
}

/// The keys of what waits in one part.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// By slot of a message.
    pub messages: Vec<Key>,
    /// Timers that wait. In a part that has keys, a timer's event names its place here.
    timers: Vec<(NodeId, Key)>,
    free: Vec<u32>,
}

impl Order {
    /// The event of `node`'s timer.
    pub fn timer(&mut self, node: NodeId, key: Key) -> Packed {
        let place = self.free.pop().unwrap_or_else(|| {
            self.timers.push((node, key));
            self.timers.len() as u32 - 1
        });
        self.timers[place as usize] = (node, key);
        Packed::timer(NodeId(place))
    }

    /// The node of a timer's event, and the event's key.
    pub fn timer_at(&self, place: u32) -> (NodeId, Key) {
        self.timers[place as usize]
    }

    /// A timer's event has happened.
    pub fn release(&mut self, place: u32) {
        self.free.push(place);
    }

    pub fn clear(&mut self) {
        self.messages.clear();
        self.timers.clear();
        self.free.clear();
    }
}

//! What a client asks its parents for again: packets that they pushed or should have pushed, and that did not come.
//!
//! What the last hop has lost, the parent has, and sends again within a round trip. What was lost above it, it
//! misses itself: it asks its own parent, and pushes what comes of that. So one question a packet repairs what a
//! whole subtree misses, nothing comes twice, and neighbours, who say what they have only if they are asked, are asked
//! only for what does not come so.

use std::collections::BTreeMap;

use anabranch_control::time::{Duration, Time};

use super::packet::PacketId;

/// So long it is waited for the parent: for its look for holes, for a few long round trips of its own question and of
/// ours, and for what is before the answer in its uplink.
const AWAITED: Duration = Duration::from_millis(500);

/// What has come late was pushed on at once: a child that asks for it within this time had not got it yet.
const PUSHED: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, Debug)]
struct Reclaim {
    asked: Time,
    came: Option<Time>,
}

/// The packets of a client for which its parents were asked, each of them once.
#[derive(Clone, Debug, Default)]
pub struct Reclaims {
    reclaims: BTreeMap<PacketId, Reclaim>,
}

impl Reclaims {
    /// Whether the parent was never asked for `id`.
    pub fn is_new(&self, id: PacketId) -> bool {
        !self.reclaims.contains_key(&id)
    }

    /// The parent is asked for `id`.
    pub fn note(&mut self, now: Time, id: PacketId) {
        self.reclaims.insert(id, Reclaim { asked: now, came: None });
    }

    /// Whether `id` may still come of a question.
    pub fn is_awaited(&self, now: Time, id: PacketId) -> bool {
        self.reclaims.get(&id).is_some_and(|reclaim| now < reclaim.asked + AWAITED)
    }

    /// `id` is here.
    #[inline]
    pub fn on_packet(&mut self, now: Time, id: PacketId) {
        if let Some(reclaim) = self.reclaims.get_mut(&id) {
            reclaim.came.get_or_insert(now);
        }
    }

    /// Whether `id` has come so lately that children may not have got it yet.
    pub fn has_just_come(&self, now: Time, id: PacketId) -> bool {
        self.reclaims.get(&id).and_then(|reclaim| reclaim.came).is_some_and(|came| now < came + PUSHED)
    }

    /// Forgets what is below `next`.
    pub fn forget_below(&mut self, next: PacketId) {
        while self.reclaims.first_key_value().is_some_and(|(&first, _)| first < next) {
            self.reclaims.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_asked_once_and_waited_for_a_while() {
        let at = |millis: u64| Time::ZERO + Duration::from_millis(millis);
        let mut reclaims = Reclaims::default();
        assert!(reclaims.is_new(PacketId(7)) && !reclaims.is_awaited(at(0), PacketId(7)));
        reclaims.note(at(0), PacketId(7));
        assert!(!reclaims.is_new(PacketId(7)));
        assert!(reclaims.is_awaited(at(499), PacketId(7)) && !reclaims.is_awaited(at(500), PacketId(7)));
        assert!(!reclaims.has_just_come(at(500), PacketId(7)));
        reclaims.on_packet(at(600), PacketId(7));
        reclaims.on_packet(at(700), PacketId(7));
        assert!(reclaims.has_just_come(at(749), PacketId(7)) && !reclaims.has_just_come(at(750), PacketId(7)));
        reclaims.forget_below(PacketId(7));
        assert!(!reclaims.is_new(PacketId(7)));
        reclaims.forget_below(PacketId(8));
        assert!(reclaims.is_new(PacketId(7)));
    }
}

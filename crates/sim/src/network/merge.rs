//! Links that take late what others bring.
//!
//! What comes to such a link is looked at when something could be seen at its far end: not
//! before the arrival of what it has taken already, and not before the next packet that a
//! feeder brings has crossed it and the links behind it that are computed in advance. All that its feeders have brought by then is taken at once,
//! in the order of its coming.

use anabranch_control::time::{Duration, Time};

use super::Network;
use super::plan::{Feeds, Merging};
use crate::tournament::Tournament;

/// A link that takes late what others bring.
#[derive(Clone, Debug)]
pub struct Merge {
    link: u32,
    feeders: Box<[u32]>,
    /// When the next packet of each feeder comes.
    coming: Tournament,
    /// What stands for it among the network's sources.
    source: u32,
    beyond: Duration,
}

impl Merge {
    pub fn new(merging: &Merging, source: u32) -> Merge {
        let coming = Tournament::new(merging.feeders.len());
        Merge { link: merging.link, feeders: merging.feeders.clone(), coming, source, beyond: merging.beyond }
    }

    /// Nothing comes.
    pub fn reset(&mut self) {
        self.coming.clear();
    }
}

impl<P> Network<P> {
    /// The next packet of a feeder will come at `arrival`.
    #[inline]
    pub(super) fn feed(&mut self, feeds: Feeds, arrival: Time) {
        let merge = &mut self.merges[feeds.merge as usize];
        let is_next = arrival < merge.coming.earliest();
        merge.coming.set(feeds.place as usize, arrival);
        if is_next {
            self.schedule(feeds.merge as usize);
        }
    }

    /// Takes what the feeders of a link have brought until `until`.
    pub(super) fn merge(&mut self, number: usize, until: Time) {
        let end = until + Duration::from_nanos(1);
        loop {
            let merge = &mut self.merges[number];
            let Some((at, place)) = merge.coming.earliest_before(end) else { break };
            let (packet, next) = self.links[merge.feeders[place] as usize].arrive();
            merge.coming.set(place, next);
            let this = &self.packets[packet as usize];
            self.forward(at, packet, this.hop + 1, this.size);
        }
        self.schedule(number);
    }

    /// Waits until something could be seen at the far end.
    #[inline]
    fn schedule(&mut self, number: usize) {
        let merge = &self.merges[number];
        let next = merge.coming.earliest();
        let due = if next == Time::MAX {
            next
        } else {
            self.links[merge.link as usize].earliest_arrival(next) + merge.beyond
        };
        self.pending.set(merge.source as usize, due);
    }

    /// Lets a link take what it has been brought by now.
    #[inline]
    pub(super) fn settle(&mut self, number: usize) {
        if self.merges[number].coming.earliest() <= self.now {
            self.merge(number, self.now);
        }
    }

    /// Lets every link take what it has been brought by now.
    pub(super) fn settle_all(&mut self) {
        for number in 0..self.merges.len() {
            self.settle(number);
        }
    }
}

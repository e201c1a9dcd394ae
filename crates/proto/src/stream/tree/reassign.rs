//! A child whose parent fails it, before anybody knows whether the parent is gone.

use std::collections::BTreeSet;

use super::slice_tree::{NONE, SERVER};
use super::{Change, LinkLatency, Links, NodeId, TreeBook};

/// Who is to take the place of a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Substitute {
    /// This node, even if it may be gone: the child says that it is there.
    Asked(NodeId),
    /// Its parent in another tree, or its child in any, that gets the slice soonest: it need not be reached first.
    Acquaintance,
    /// Whoever is best.
    Best,
}

impl TreeBook {
    /// `child` gets `slice` from `substitute` instead of its parent. False if there is none that has room and is not
    /// below it, or if the server does not reach the child, whose parent then waits itself; nothing has changed then.
    pub fn reassign<L: LinkLatency + ?Sized>(
        &mut self,
        slice: usize,
        child: NodeId,
        substitute: Substitute,
        latencies: &L,
        changes: &mut Vec<Change>,
    ) -> bool {
        let (tree, node) = (slice as u32, child.slot);
        if !self.is_client(child) || !self.trees[slice].reaches(node) {
            return false;
        }
        let links = self.links(latencies);
        let parent = match substitute {
            Substitute::Asked(asked) => self.may_substitute(tree, node, asked).then_some(asked.slot),
            Substitute::Acquaintance => self.best_acquaintance(tree, node, &links),
            Substitute::Best => {
                // The one before is no candidate.
                let before = self.trees[slice].parent(node) as usize;
                let places = core::mem::take(&mut self.places[before]);
                let best = self.best_parent(tree, node, &links);
                self.places[before] = places;
                best.map(|(parent, _)| parent)
            }
        };
        let Some(parent) = parent else { return false };
        self.relocate(tree, node, parent, links.cost(parent, node));
        self.finish(changes);
        true
    }

    fn may_substitute(&self, tree: u32, node: u32, asked: NodeId) -> bool {
        let (book, slot) = (&self.trees[tree as usize], asked.slot);
        self.is_known(asked)
            && slot != book.parent(node)
            && book.reaches(slot)
            && self.held[slot as usize] < self.places[slot as usize]
            && !book.is_below(slot, node)
    }

    fn best_acquaintance<L: LinkLatency + ?Sized>(&self, tree: u32, node: u32, links: &Links<'_, L>) -> Option<u32> {
        let book = &self.trees[tree as usize];
        let parents = self.trees.iter().map(|tree| tree.parent(node));
        let parents = parents.filter(|&parent| parent != NONE && parent != SERVER);
        let known: BTreeSet<u32> = parents.chain(self.trees.iter().flat_map(|tree| tree.children(node))).collect();
        let may = |&other: &u32| {
            let has_room = other != book.parent(node) && self.has_room(other);
            has_room && self.is_served(tree, other) && !book.is_below(other, node)
        };
        known.into_iter().filter(may).min_by_key(|&other| (book.latency(other) + links.cost(other, node), other))
    }

    /// Whether the server reaches `node` in `tree`, and by nobody who may be gone.
    pub(super) fn is_served(&self, tree: u32, node: u32) -> bool {
        let book = &self.trees[tree as usize];
        book.reaches(node) && (self.doubts == 0 || book.ancestors(node).all(|above| !self.doubtful[above as usize]))
    }
}

//! A child whose parent fails it, before anybody knows whether the parent is gone.

use super::{Change, LinkLatency, NodeId, TreeBook};

impl TreeBook {
    /// `child` gets `slice` from another node than now: from `wanted` if that has room and is not below
    /// it, else from the best that has. False if there is none or the server does not reach the child,
    /// whose parent then waits itself; nothing has changed then.
    pub fn reassign<L: LinkLatency + ?Sized>(
        &mut self,
        slice: usize,
        child: NodeId,
        wanted: Option<NodeId>,
        latencies: &L,
        changes: &mut Vec<Change>,
    ) -> bool {
        let (tree, node) = (slice as u32, child.slot);
        if !self.is_client(child) || !self.trees[slice].reaches(node) {
            return false;
        }
        let before = self.trees[slice].parent(node);
        let links = self.links(latencies);
        let is_possible = |parent: NodeId| {
            let slot = parent.slot;
            let book = &self.trees[slice];
            self.is_known(parent)
                && slot != before
                && book.reaches(slot)
                && self.has_room_in(slot, tree)
                && !book.is_below(slot, node)
        };
        let wanted = wanted.filter(|&parent| is_possible(parent)).map(|parent| parent.slot);
        let parent = wanted.or_else(|| {
            // The one before is no candidate.
            let places = core::mem::take(&mut self.places[before as usize]);
            let best = self.best_parent(tree, node, &links);
            self.places[before as usize] = places;
            best.map(|(parent, _)| parent)
        });
        let Some(parent) = parent else { return false };
        self.relocate(tree, node, parent, links.cost(parent, node));
        self.finish(changes);
        true
    }
}

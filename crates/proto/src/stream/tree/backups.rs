//! Whom a client asks if its parent falls silent.

use super::slice_tree::{NONE, SERVER, SliceTree};
use super::{NodeId, TreeBook};

/// How many backup parents a client has in each tree.
pub const BACKUPS: usize = 2;

impl TreeBook {
    /// Backup parents of `node` for `slice`, the better first: neither its parent nor below it, with
    /// room if possible, its parent in another tree if possible, of whom it knows whether it is alive, with as few as possible above them who are above the client now or belong to
    /// the path of the other backup, and with low path latency. Fewer than two, or none, where there
    /// are no more; clients only, since the server is known to all.
    pub fn backups(&self, slice: usize, node: NodeId) -> [Option<NodeId>; BACKUPS] {
        let mut backups = [None; BACKUPS];
        if !self.is_client(node) {
            return backups;
        }
        let tree = &self.trees[slice];
        let mut shunned = vec![false; self.state.len()];
        tree.ancestors(node.slot).for_each(|above| shunned[above as usize] = true);
        let parent = tree.parent(node.slot);
        let mut chosen = NONE;
        for backup in &mut backups {
            let candidates = (1..self.state.len() as u32).filter(|&other| {
                other != parent && other != chosen && self.places[other as usize] > 0 && tree.reaches(other)
            });
            let is_parent = |other: u32| self.trees.iter().any(|tree| tree.parent(node.slot) == other);
            let best = candidates
                .filter_map(|other| {
                    let shared = shared(tree, other, node.slot, &shunned)?;
                    Some((!self.has_room(other), !is_parent(other), shared, tree.latency(other), other))
                })
                .min();
            let Some((.., best)) = best else { break };
            *backup = Some(self.id(best));
            chosen = best;
            shunned[best as usize] = true;
            tree.ancestors(best).for_each(|above| shunned[above as usize] = true);
        }
        backups
    }
}

/// How many clients on the path to `other`, itself included, are shunned; none if it is `node` or below.
fn shared(tree: &SliceTree, other: u32, node: u32, shunned: &[bool]) -> Option<usize> {
    let mut shared = 0;
    let mut above = other;
    while above != SERVER {
        if above == node {
            return None;
        }
        shared += usize::from(shunned[above as usize]);
        above = tree.parent(above);
    }
    Some(shared)
}

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
        let mut parents: Vec<u32> = self.trees.iter().map(|tree| tree.parent(node.slot)).collect();
        parents.retain(|&other| other != NONE && other != SERVER);
        let mut chosen = NONE;
        for backup in &mut backups {
            let mut best: Option<(bool, bool, usize, i64, u32)> = None;
            let consider = |best: &mut Option<(bool, bool, usize, i64, u32)>, other: u32, is_parent: bool| {
                if other == parent || other == chosen || self.places[other as usize] == 0 || !tree.reaches(other) {
                    return;
                }
                // The walk up to the server is spared wherever even an empty path would be no better.
                let key = |shared| (!self.has_room(other), !is_parent, shared, tree.latency(other), other);
                if best.is_none_or(|best| key(0) < best)
                    && let Some(shared) = shared(tree, other, node.slot, &shunned)
                {
                    *best = Some(best.map_or(key(shared), |best| best.min(key(shared))));
                }
            };
            parents.iter().for_each(|&other| consider(&mut best, other, true));
            // A parent with room is better than all who are none.
            if best.is_none_or(|(is_full, is_stranger, ..)| is_full || is_stranger) {
                let mut latest = i64::MAX;
                for other in 1..self.state.len() as u32 {
                    if tree.latency(other) > latest {
                        continue;
                    }
                    consider(&mut best, other, false);
                    // With room and a path of its own: who is later is no better.
                    if let Some((false, true, 0, latency, _)) = best {
                        latest = latency;
                    }
                }
            }
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

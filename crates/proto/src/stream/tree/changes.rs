//! What a call has changed, told once: a child that moved and came back has not changed.

use super::slice_tree::NONE;
use super::{Change, NodeId};

/// The parents that children had when they were first touched.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangeLog {
    /// Tree, child, parent before.
    touched: Vec<(u32, u32, u32)>,
}

impl ChangeLog {
    /// `child` had `parent` in `tree`, and is about to get another.
    pub(super) fn touch(&mut self, tree: u32, child: u32, parent: u32) {
        self.touched.push((tree, child, parent));
    }

    /// Appends the changes, by slice and child, and forgets them.
    pub(super) fn drain(
        &mut self,
        changes: &mut Vec<Change>,
        parent: impl Fn(u32, u32) -> u32,
        id: impl Fn(u32) -> NodeId,
    ) {
        let node = |slot: u32| (slot != NONE).then(|| id(slot));
        // The sort is stable: the first touch of each child stays first.
        self.touched.sort_by_key(|&(tree, child, _)| (tree, child));
        self.touched.dedup_by_key(|&mut (tree, child, _)| (tree, child));
        for (tree, child, before) in self.touched.drain(..) {
            let now = parent(tree, child);
            if now != before {
                changes.push(Change { slice: tree as usize, child: id(child), from: node(before), to: node(now) });
            }
        }
    }
}

//! What must hold after every call, checked from nothing but parents.

use super::slice_tree::{CUT_OFF, NONE, SERVER};
use super::{State, TreeBook};

impl TreeBook {
    /// What [`verify`](TreeBook::verify) is to find.
    pub(in super::super) fn miscount(&mut self) {
        self.held[SERVER as usize] += 1;
    }

    /// Whether every tree is a tree in which all clients are, with the server as its root but for the
    /// subtrees that wait; whether nobody has more children than places; and whether sizes, path
    /// latencies and their sums are what they are when counted anew. It takes as long as looking at
    /// everyone in every tree: for tests.
    ///
    /// # Errors
    ///
    /// What does not hold, in words.
    pub fn verify(&self) -> Result<(), String> {
        let nodes = self.state.len();
        let mut held = vec![0u32; nodes];
        for (number, tree) in self.trees.iter().enumerate() {
            let wrong = |what: &str, node: u32| Err(format!("tree {number}, node {node}: {what}"));
            let mut sizes = vec![1u32; nodes];
            let mut sum = 0;
            for node in 0..nodes as u32 {
                let (parent, waits) = (tree.parent(node), self.waiting.contains(&(number as u32, node)));
                if parent == NONE {
                    let is_root = node == SERVER || !self.is_joined(node) || waits;
                    if !is_root {
                        return wrong("has no parent and does not wait", node);
                    }
                } else if node == SERVER || waits || !self.is_joined(node) || !self.is_joined(parent) {
                    return wrong("has a parent that it cannot have", node);
                } else {
                    held[parent as usize] += 1;
                    if !tree.children(parent).any(|child| child == node) {
                        return wrong("is no child of its parent", node);
                    }
                }
                let mut root = node;
                for steps in 0.. {
                    let above = tree.parent(root);
                    if above == NONE {
                        break;
                    }
                    if steps > nodes {
                        return wrong("is above itself", node);
                    }
                    sizes[above as usize] += 1;
                    root = above;
                }
                let latency = match (root == SERVER, parent) {
                    (false, _) => CUT_OFF,
                    (true, NONE) => 0,
                    (true, parent) => tree.latency(parent) + tree.link(node),
                };
                if latency != tree.latency(node) {
                    return wrong("has another path latency", node);
                }
                sum += latency.max(0);
                if tree.children(node).count() != tree.degree(node) as usize {
                    return wrong("has another number of children", node);
                }
            }
            if let Some(node) = (0..nodes as u32).find(|&node| i64::from(sizes[node as usize]) != tree.size(node)) {
                return wrong("has a subtree of another size", node);
            }
            if sum != tree.sum() {
                return Err(format!("tree {number}: the sum is {sum}, not {}", tree.sum()));
            }
        }
        for (node, &held) in held.iter().enumerate() {
            if held != self.held[node] {
                return Err(format!("node {node} has {held} children, not {}", self.held[node]));
            }
            if held > self.places[node] {
                return Err(format!("node {node} has {held} children and {} places", self.places[node]));
            }
            if (self.state[node] == State::Free) != self.free_slots.contains(&(node as u32)) {
                return Err(format!("slot {node} is {:?}", self.state[node]));
            }
        }
        Ok(())
    }
}

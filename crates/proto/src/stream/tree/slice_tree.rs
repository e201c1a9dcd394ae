//! One slice's tree: who is whose child, how large each subtree is, how late each node gets the slice.
//!
//! Sizes, path latencies and their sum are kept while nodes move. A subtree of size s whose root
//! becomes Δ later adds s·Δ to the sum, and the sum over all nodes of their path latencies is the sum
//! over all links of (size below the link)·(cost of the link): what a move is worth is known from the
//! links that it touches, without walking the tree.
//!
//! Slot 0 is the server. All times are nanoseconds.

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// The path latency of a node that the server does not reach; below any, so that nothing that looks
/// for a node that is late finds it.
pub(super) const CUT_OFF: i64 = -1;

/// The server's slot.
pub(super) const SERVER: u32 = 0;

/// The tree of one slice.
#[derive(Clone, Debug)]
pub(super) struct SliceTree {
    parent: Vec<u32>,
    first_child: Vec<u32>,
    next_sibling: Vec<u32>,
    previous_sibling: Vec<u32>,
    /// How many children.
    degree: Vec<u32>,
    /// How many nodes are in the subtree, the node itself included.
    size: Vec<u32>,
    /// What the link from the parent costs.
    link: Vec<i64>,
    /// From the server, or `CUT_OFF`.
    latency: Vec<i64>,
    /// Of the nodes that the server reaches.
    sum: i64,
}

impl SliceTree {
    /// A tree of the server alone.
    pub(super) fn new() -> SliceTree {
        let mut tree = SliceTree {
            parent: Vec::new(),
            first_child: Vec::new(),
            next_sibling: Vec::new(),
            previous_sibling: Vec::new(),
            degree: Vec::new(),
            size: Vec::new(),
            link: Vec::new(),
            latency: Vec::new(),
            sum: 0,
        };
        tree.add_slot();
        tree.latency[SERVER as usize] = 0;
        tree
    }

    /// One more node, alone and cut off.
    pub(super) fn add_slot(&mut self) {
        for list in [&mut self.parent, &mut self.first_child, &mut self.next_sibling, &mut self.previous_sibling] {
            list.push(NONE);
        }
        self.degree.push(0);
        self.size.push(1);
        self.link.push(0);
        self.latency.push(CUT_OFF);
    }

    #[inline]
    pub(super) fn parent(&self, node: u32) -> u32 {
        self.parent[node as usize]
    }

    #[inline]
    pub(super) fn degree(&self, node: u32) -> u32 {
        self.degree[node as usize]
    }

    #[inline]
    pub(super) fn size(&self, node: u32) -> i64 {
        i64::from(self.size[node as usize])
    }

    /// What the link from its parent costs.
    #[inline]
    pub(super) fn link(&self, node: u32) -> i64 {
        self.link[node as usize]
    }

    /// From the server to `node`, or `CUT_OFF`.
    #[inline]
    pub(super) fn latency(&self, node: u32) -> i64 {
        self.latency[node as usize]
    }

    /// Of every slot, to scan.
    #[inline]
    pub(super) fn latencies(&self) -> &[i64] {
        &self.latency
    }

    /// Whether the server reaches `node`.
    #[inline]
    pub(super) fn reaches(&self, node: u32) -> bool {
        self.latency(node) != CUT_OFF
    }

    /// The sum of the path latencies of all nodes that the server reaches: the tree's performance,
    /// lower is better [Raiber 2010, figure 6.7].
    pub(super) fn sum(&self) -> i64 {
        self.sum
    }

    /// The children of `node`, the latest first.
    pub(super) fn children(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.first_child[node as usize];
        core::iter::successors(some(first), |&child| some(self.next_sibling[child as usize]))
    }

    /// The parent of `node`, its parent's parent and so on.
    pub(super) fn ancestors(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(some(self.parent(node)), |&above| some(self.parent(above)))
    }

    /// Whether `node` is `root` or below it.
    pub(super) fn is_below(&self, node: u32, root: u32) -> bool {
        node == root || self.ancestors(node).any(|above| above == root)
    }

    /// Hangs `child`, which has no parent, with its subtree below `parent`.
    pub(super) fn attach(&mut self, child: u32, parent: u32, link: i64) {
        debug_assert!(self.parent(child) == NONE && !self.is_below(parent, child), "an attached node was free");
        self.tie(child, parent, link);
        self.resize_above(child, i64::from(self.size[child as usize]));
        if self.reaches(parent) {
            self.settle(child);
        }
    }

    /// Takes `child` with its subtree from its parent; the server reaches none of them any more.
    pub(super) fn detach(&mut self, child: u32) {
        self.resize_above(child, -i64::from(self.size[child as usize]));
        self.untie(child);
        if self.reaches(child) {
            let mut node = child;
            while node != NONE {
                self.sum -= self.latency[node as usize];
                self.latency[node as usize] = CUT_OFF;
                node = self.after(node, child);
            }
        }
    }

    /// Moves `child`, which the server reaches, with its subtree below `parent`.
    pub(super) fn relocate(&mut self, child: u32, parent: u32, link: i64) {
        debug_assert!(!self.is_below(parent, child) && self.reaches(child) && self.reaches(parent));
        let size = i64::from(self.size[child as usize]);
        self.resize_above(child, -size);
        self.untie(child);
        self.tie(child, parent, link);
        self.resize_above(child, size);
        let later = self.latency(parent) + link - self.latency(child);
        self.sum += size * later;
        let mut node = child;
        while node != NONE {
            self.latency[node as usize] += later;
            node = self.after(node, child);
        }
    }

    /// What the links around the place of `node` cost, each for everyone below it.
    pub(super) fn star(&self, node: u32) -> i64 {
        let below: i64 = self.children(node).map(|child| self.size(child) * self.link(child)).sum();
        self.size(node) * self.link(node) + below
    }

    /// Whether the links around the place of `node`, which cost `star`, would cost less with `other` in it.
    #[inline]
    pub(super) fn is_dearer(&self, node: u32, star: i64, other: u32, cost: impl Fn(u32, u32) -> i64) -> bool {
        let mut left = star - self.size(node) * cost(self.parent(node), other);
        for child in self.children(node) {
            if left <= 0 {
                return false;
            }
            left -= self.size(child) * if child == other { self.link(child) } else { cost(other, child) };
        }
        left > 0
    }

    /// By how much the sum rises if `a` and `b`, both with parents, exchange their places. Places keep
    /// their sizes, so that only the links around the two count.
    pub(super) fn switch_delta(&self, a: u32, b: u32, cost: impl Fn(u32, u32) -> i64) -> i64 {
        let (a, b) = if self.parent(a) == b { (b, a) } else { (a, b) };
        let (above_a, above_b) = (self.parent(a), self.parent(b));
        if above_b == a {
            // pa → a → {b → {y}, x} becomes pa → b → {a → {y}, x}.
            let mut delta = self.size(a) * (cost(above_a, b) - self.link(a));
            delta += self.size(b) * (cost(b, a) - self.link(b));
            for x in self.children(a).filter(|&x| x != b) {
                delta += self.size(x) * (cost(b, x) - self.link(x));
            }
            for y in self.children(b) {
                delta += self.size(y) * (cost(a, y) - self.link(y));
            }
            return delta;
        }
        let mut delta = self.size(a) * (cost(above_a, b) - self.link(a));
        delta += self.size(b) * (cost(above_b, a) - self.link(b));
        for x in self.children(a) {
            delta += self.size(x) * (cost(b, x) - self.link(x));
        }
        for y in self.children(b) {
            delta += self.size(y) * (cost(a, y) - self.link(y));
        }
        delta
    }

    /// `a` and `b`, which the server reaches, exchange their places: each gets the other's parent and
    /// children.
    pub(super) fn switch(&mut self, a: u32, b: u32, cost: impl Fn(u32, u32) -> i64) {
        let (a, b) = if self.parent(a) == b { (b, a) } else { (a, b) };
        let (above_a, above_b) = (self.parent(a), self.parent(b));
        let below_a: Vec<u32> = self.children(a).filter(|&child| child != b).collect();
        let below_b: Vec<u32> = self.children(b).collect();
        for &node in below_a.iter().chain(&below_b).chain(&[a, b]) {
            self.untie(node);
        }
        self.tie(b, above_a, cost(above_a, b));
        let above_b = if above_b == a { b } else { above_b };
        self.tie(a, above_b, cost(above_b, a));
        // The lists are from the front and ties go to the front: backwards keeps the order.
        for &child in below_a.iter().rev() {
            self.tie(child, b, cost(b, child));
        }
        for &child in below_b.iter().rev() {
            self.tie(child, a, cost(a, child));
        }
        self.size.swap(a as usize, b as usize);
        // If one is below the other, the upper one's turn sets both right.
        self.settle(a);
        self.settle(b);
    }

    /// Takes all costs of links anew.
    pub(super) fn refresh(&mut self, cost: impl Fn(u32, u32) -> i64) {
        let mut node = self.after(SERVER, SERVER);
        while node != NONE {
            let parent = self.parent(node);
            let link = cost(parent, node);
            self.link[node as usize] = link;
            let latency = self.latency(parent) + link;
            self.sum += latency - self.latency(node);
            self.latency[node as usize] = latency;
            node = self.after(node, SERVER);
        }
    }

    /// The node that follows `node` in the walk of the subtree of `root`, parents first.
    pub(super) fn after(&self, node: u32, root: u32) -> u32 {
        if self.first_child[node as usize] != NONE {
            return self.first_child[node as usize];
        }
        let mut node = node;
        while node != root {
            if self.next_sibling[node as usize] != NONE {
                return self.next_sibling[node as usize];
            }
            node = self.parent[node as usize];
        }
        NONE
    }

    /// Sets the latencies in the subtree of `root`, whose parent the server reaches, from the links.
    fn settle(&mut self, root: u32) {
        let mut node = root;
        while node != NONE {
            let latency = self.latency(self.parent(node)) + self.link(node);
            self.sum += latency - self.latency(node).max(0);
            self.latency[node as usize] = latency;
            node = self.after(node, root);
        }
    }

    fn resize_above(&mut self, node: u32, by: i64) {
        let mut above = self.parent(node);
        while above != NONE {
            self.size[above as usize] = (self.size(above) + by) as u32;
            above = self.parent(above);
        }
    }

    fn tie(&mut self, child: u32, parent: u32, link: i64) {
        let first = self.first_child[parent as usize];
        self.next_sibling[child as usize] = first;
        self.previous_sibling[child as usize] = NONE;
        if first != NONE {
            self.previous_sibling[first as usize] = child;
        }
        self.first_child[parent as usize] = child;
        self.parent[child as usize] = parent;
        self.link[child as usize] = link;
        self.degree[parent as usize] += 1;
    }

    fn untie(&mut self, child: u32) {
        let (parent, next) = (self.parent(child), self.next_sibling[child as usize]);
        let previous = self.previous_sibling[child as usize];
        if previous == NONE {
            self.first_child[parent as usize] = next;
        } else {
            self.next_sibling[previous as usize] = next;
        }
        if next != NONE {
            self.previous_sibling[next as usize] = previous;
        }
        self.parent[child as usize] = NONE;
        self.next_sibling[child as usize] = NONE;
        self.previous_sibling[child as usize] = NONE;
        self.degree[parent as usize] -= 1;
    }
}

#[inline]
fn some(node: u32) -> Option<u32> {
    (node != NONE).then_some(node)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODES: u32 = 14;

    /// Links in both directions cost something else, and hardly two the same.
    fn cost(from: u32, to: u32) -> i64 {
        1000 + i64::from((from * 7919 + to * 104_729) % 997) * 16 + i64::from(to)
    }

    /// Node by node, each below one that is there already.
    fn grown(ancestry: &[u32]) -> SliceTree {
        let mut tree = SliceTree::new();
        for (index, parent) in ancestry.iter().enumerate() {
            let node = index as u32 + 1;
            tree.add_slot();
            tree.attach(node, parent % node, cost(parent % node, node));
        }
        tree
    }

    fn parents(tree: &SliceTree) -> Vec<u32> {
        (0..NODES).map(|node| tree.parent(node)).collect()
    }

    proptest! {
        #[test]
        fn a_switch_is_worth_what_was_said_and_two_are_none(
            ancestry in proptest::collection::vec(any::<u32>(), NODES as usize - 1),
            a in 1..NODES,
            b in 1..NODES,
        ) {
            prop_assume!(a != b);
            let mut tree = grown(&ancestry);
            let (before, sum) = (parents(&tree), tree.sum());
            let delta = tree.switch_delta(a, b, cost);
            // What is tried at either place's parent is enough to find every exchange that helps.
            if tree.parent(a) != b && tree.parent(b) != a {
                prop_assert!(delta >= 0 || tree.is_dearer(a, tree.star(a), b, cost) || tree.is_dearer(b, tree.star(b), a, cost));
            }
            tree.switch(a, b, cost);
            prop_assert_eq!(tree.sum(), sum + delta);
            let exchanged = |node: u32| match node {
                _ if node == a => b,
                _ if node == b => a,
                _ => node,
            };
            for node in 1..NODES {
                prop_assert_eq!(tree.parent(exchanged(node)), exchanged(before[node as usize]));
            }
            prop_assert_eq!(tree.switch_delta(a, b, cost), -delta);
            tree.switch(b, a, cost);
            prop_assert_eq!(parents(&tree), before);
            prop_assert_eq!(tree.sum(), sum);
        }

        #[test]
        fn moving_a_subtree_adds_its_size_times_the_delay(
            ancestry in proptest::collection::vec(any::<u32>(), NODES as usize - 1),
            child in 1..NODES,
            parent in 0..NODES,
        ) {
            let mut tree = grown(&ancestry);
            prop_assume!(!tree.is_below(parent, child));
            let later = tree.latency(parent) + cost(parent, child) - tree.latency(child);
            let (sum, size) = (tree.sum(), tree.size(child));
            tree.relocate(child, parent, cost(parent, child));
            prop_assert_eq!(tree.sum(), sum + size * later);
            // As if it had been taken off and hung up again.
            let mut other = grown(&ancestry);
            other.detach(child);
            prop_assert!(!other.reaches(child));
            other.attach(child, parent, cost(parent, child));
            for node in 0..NODES {
                prop_assert_eq!(tree.latency(node), other.latency(node));
                prop_assert_eq!(tree.size(node), other.size(node));
            }
            prop_assert_eq!(tree.sum(), other.sum());
        }
    }
}

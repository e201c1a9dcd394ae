//! Who gets a place, and who loses one: joins, leaves, limits that fall, and those that wait.

use super::slice_tree::{NONE, SERVER};
use super::{LinkLatency, Links, State, TreeBook};

/// Newcomers that may look for a parent to push in at in one call, since that looks at every child of
/// every node.
pub(super) const WAITING_A_STEP: usize = 4;

/// Nodes with room that are tried as the new parent of the child that makes way for a newcomer.
const PUSHED_TO: usize = 8;

/// A child that makes way for a newcomer.
struct Insertion {
    parent: u32,
    tree: u32,
    child: u32,
    new_parent: u32,
}

/// Places that are free at a parent beyond which one is as good as another for a new child: what leaves by them brings a
/// second of the past of one slice in a quarter of a second. Who claims to have many more is not preferred for it.
const ROOM_FOR_THE_PAST: u32 = 4;

impl TreeBook {
    /// Whether `node` may get one more child in `tree`. The server keeps a place for each tree in
    /// which it has no child: a tree that does not begin reaches nobody.
    pub(super) fn has_room_in(&self, node: u32, tree: u32) -> bool {
        if node != SERVER || self.trees[tree as usize].degree(SERVER) == 0 {
            return self.has_room(node);
        }
        let kept = self.trees.iter().filter(|tree| tree.degree(SERVER) == 0).count();
        self.held[SERVER as usize] as usize + kept < self.places[SERVER as usize] as usize
    }

    pub(super) fn attach<L: LinkLatency + ?Sized>(&mut self, tree: u32, child: u32, parent: u32, links: &Links<'_, L>) {
        self.log.touch(tree, child, NONE);
        self.held[parent as usize] += 1;
        self.trees[tree as usize].attach(child, parent, links.cost(parent, child));
        self.sweeps[tree as usize].wake(child);
    }

    pub(super) fn detach(&mut self, tree: u32, child: u32) {
        let parent = self.trees[tree as usize].parent(child);
        self.log.touch(tree, child, parent);
        self.held[parent as usize] -= 1;
        self.trees[tree as usize].detach(child);
        self.wake_with_room(parent);
    }

    /// Moves `child` with its subtree below `parent`.
    pub(super) fn relocate(&mut self, tree: u32, child: u32, parent: u32, link: i64) {
        let before = self.trees[tree as usize].parent(child);
        self.shift(tree, child, parent, link);
        self.sweeps[tree as usize].wake(child);
        self.wake_with_room(before);
    }

    /// As `relocate`, but nobody's pause ends: the move may be taken back.
    pub(super) fn shift(&mut self, tree: u32, child: u32, parent: u32, link: i64) {
        let before = self.trees[tree as usize].parent(child);
        self.log.touch(tree, child, before);
        self.held[before as usize] -= 1;
        self.held[parent as usize] += 1;
        self.trees[tree as usize].relocate(child, parent, link);
    }

    /// `node` has lost a child: if that gives it room, it has a turn in every tree's next sweep.
    pub(super) fn wake_with_room(&mut self, node: u32) {
        if self.held[node as usize] + 1 == self.places[node as usize] {
            self.sweeps.iter_mut().for_each(|sweep| sweep.wake(node));
        }
    }

    /// Finds places for these nodes without parents, large subtrees first; gives those that wait now.
    pub(super) fn place_all<L: LinkLatency + ?Sized>(
        &mut self,
        mut orphans: Vec<(u32, u32)>,
        links: &Links<'_, L>,
    ) -> Vec<(u32, u32)> {
        orphans.sort_by_key(|&(tree, node)| (core::cmp::Reverse(self.trees[tree as usize].size(node)), tree, node));
        orphans.retain(|&(tree, node)| {
            let placed = self.place(tree, node, links) || self.insert(tree, node, links);
            if !placed {
                self.waiting.insert((tree, node));
            }
            !placed
        });
        orphans
    }

    /// Finds places for those that wait, large subtrees first, of which at most `insertions` may push
    /// in. Gives how many got one.
    pub(super) fn place_waiting<L: LinkLatency + ?Sized>(&mut self, links: &Links<'_, L>, insertions: usize) -> usize {
        if self.waiting.is_empty() {
            return 0;
        }
        let mut waiting: Vec<(u32, u32)> = self.waiting.iter().copied().collect();
        waiting.sort_by_key(|&(tree, node)| (core::cmp::Reverse(self.trees[tree as usize].size(node)), tree, node));
        // Where one finds no parent with room, no other does in that tree.
        let mut full = vec![false; self.trees.len()];
        let (mut placed, mut insertions) = (0, insertions);
        for (tree, node) in waiting {
            let mut success = false;
            if !full[tree as usize] {
                success = self.place(tree, node, links);
                full[tree as usize] = !success;
            }
            if !success && insertions > 0 && self.has_room(node) {
                insertions -= 1;
                success = self.insert(tree, node, links);
            }
            if success {
                full[tree as usize] = false;
                self.waiting.remove(&(tree, node));
                placed += 1;
            }
        }
        placed
    }

    /// Takes `node` out of all trees and finds places for its children; gives those that wait now.
    pub(super) fn remove<L: LinkLatency + ?Sized>(&mut self, node: u32, links: &Links<'_, L>) -> Vec<(u32, u32)> {
        let mut orphans = Vec::new();
        for tree in 0..self.trees.len() as u32 {
            let children: Vec<u32> = self.trees[tree as usize].children(node).collect();
            for child in children {
                self.detach(tree, child);
                orphans.push((tree, child));
            }
            if self.trees[tree as usize].parent(node) != NONE {
                self.detach(tree, node);
            }
            self.waiting.remove(&(tree, node));
        }
        self.places[node as usize] = 0;
        self.state[node as usize] = State::Excluded;
        let waiting = self.place_all(orphans, links);
        self.place_waiting(links, usize::MAX);
        waiting
    }

    /// Takes children from `node` until it has no more than it may have: those that the server does
    /// not reach, then those for whom the sum rises least. Gives those that wait now.
    pub(super) fn demote<L: LinkLatency + ?Sized>(&mut self, node: u32, links: &Links<'_, L>) -> Vec<(u32, u32)> {
        let mut waiting = Vec::new();
        // A child that pushes in where it was takes another's place there, so once may not be enough.
        while self.held[node as usize] > self.places[node as usize] {
            for (tree, child) in self.cheapest_to_give(node, links) {
                let is_child = self.trees[tree as usize].parent(child) == node;
                if is_child && self.held[node as usize] > self.places[node as usize] {
                    self.detach(tree, child);
                    waiting.append(&mut self.place_all(vec![(tree, child)], links));
                }
            }
        }
        waiting
    }

    /// The children of `node` in all trees: those that the server does not reach, then those first for
    /// whom the sum rises least if they go.
    fn cheapest_to_give<L: LinkLatency + ?Sized>(&self, node: u32, links: &Links<'_, L>) -> Vec<(u32, u32)> {
        let mut children: Vec<(i64, i64, u32, u32)> = Vec::new();
        for number in 0..self.trees.len() as u32 {
            let tree = &self.trees[number as usize];
            for child in tree.children(node) {
                let rise = if !tree.reaches(child) {
                    i64::MIN
                } else if let Some((parent, link)) = self.best_parent(number, child, links) {
                    tree.size(child) * (tree.latency(parent) + link - tree.latency(child))
                } else {
                    i64::MAX
                };
                children.push((rise, tree.size(child), number, child));
            }
        }
        children.sort_unstable();
        children.into_iter().map(|(.., tree, child)| (tree, child)).collect()
    }

    /// Hangs `node`, which has no parent, below the best one with room.
    fn place<L: LinkLatency + ?Sized>(&mut self, tree: u32, node: u32, links: &Links<'_, L>) -> bool {
        let Some((parent, _)) = self.best_parent(tree, node, links) else { return false };
        self.attach(tree, node, parent, links);
        true
    }

    /// The node with room that gives `node` and its subtree the least path latency, and what the link
    /// from it costs. Of those that are equal within the slack, the one that is above `node` in the
    /// fewest other trees; where `node` has nobody below it, then the one with more room.
    pub(super) fn best_parent<L: LinkLatency + ?Sized>(
        &self,
        tree: u32,
        node: u32,
        links: &Links<'_, L>,
    ) -> Option<(u32, i64)> {
        let book = &self.trees[tree as usize];
        let attached = book.reaches(node);
        let is_leaf = links.leaf_slack > 0 && book.size(node) == 1;
        let slack = if is_leaf { links.leaf_slack.max(links.slack) } else { links.slack };
        let mut best: Option<(i64, u32, i64)> = None;
        let mut near: Vec<(i64, u32, i64)> = Vec::new();
        for parent in 0..self.state.len() as u32 {
            let above = book.latency(parent);
            if !book.reaches(parent)
                || !self.has_room(parent)
                || best.is_some_and(|(least, ..)| above > least.saturating_add(slack))
            {
                continue;
            }
            let link = links.cost(parent, node);
            let latency = above + link;
            let least = best.map_or(i64::MAX, |(least, ..)| least);
            // `least` is at most i64::MAX and the slack is not negative.
            if latency >= least.saturating_add(slack) && (slack > 0 || latency >= least) {
                continue;
            }
            if parent == SERVER && !self.has_room_in(SERVER, tree) || attached && book.is_below(parent, node) {
                continue;
            }
            if !self.is_served(tree, parent) {
                continue;
            }
            if slack > 0 {
                near.push((latency, parent, link));
            }
            if latency < least {
                best = Some((latency, parent, link));
            }
        }
        let (least, parent, link) = best?;
        if slack == 0 {
            return Some((parent, link));
        }
        near.retain(|&(latency, ..)| latency < least + slack);
        let above = self.times_above(node, tree);
        near.into_iter()
            .min_by_key(|&(latency, parent, _)| {
                let room = self.places[parent as usize].saturating_sub(self.held[parent as usize]);
                let room = if is_leaf { room.min(ROOM_FOR_THE_PAST) } else { 0 };
                (above[parent as usize], core::cmp::Reverse(room), latency, parent)
            })
            .map(|(_, parent, link)| (parent, link))
    }

    /// In how many trees other than `except` each client is above `node`.
    fn times_above(&self, node: u32, except: u32) -> Vec<u32> {
        let mut times = vec![0; self.state.len()];
        for (number, tree) in self.trees.iter().enumerate() {
            if number != except as usize {
                for above in tree.ancestors(node).filter(|&above| above != SERVER) {
                    times[above as usize] += 1;
                }
            }
        }
        times
    }

    /// Hangs `node`, which has no parent, below a node without room, whose child of some tree goes to a
    /// node with room that could not be the parent of `node`: where the sum rises least.
    fn insert<L: LinkLatency + ?Sized>(&mut self, tree: u32, node: u32, links: &Links<'_, L>) -> bool {
        if !self.settings.moves.displace {
            return false;
        }
        let Some(Insertion { parent, tree: other, child, new_parent }) = self.insertion(tree, node, links) else {
            return false;
        };
        self.detach(other, child);
        self.attach(tree, node, parent, links);
        self.attach(other, child, new_parent, links);
        true
    }

    fn insertion<L: LinkLatency + ?Sized>(&self, tree: u32, node: u32, links: &Links<'_, L>) -> Option<Insertion> {
        let book = &self.trees[tree as usize];
        let nodes = 0..self.state.len() as u32;
        let roomy: Vec<u32> = nodes.clone().filter(|&other| self.has_room(other)).take(PUSHED_TO).collect();
        if roomy.is_empty() {
            return None;
        }
        // Of each tree, how late those with room are: in that of `node`, after it, if they are below it.
        let mut above: Vec<Option<i64>> = Vec::with_capacity(self.trees.len() * roomy.len());
        for (other, theirs) in self.trees.iter().enumerate() {
            above.extend(roomy.iter().map(|&new_parent| {
                if other != tree as usize {
                    return theirs.reaches(new_parent).then(|| theirs.latency(new_parent));
                }
                book.is_below(new_parent, node).then(|| {
                    let path = core::iter::once(new_parent).chain(book.ancestors(new_parent));
                    path.take_while(|&above| above != node).map(|above| book.link(above)).sum()
                })
            }));
        }
        // What the links from those with room cost, to each node: it is a child in many trees.
        let is_child = |child: u32| child != SERVER && self.is_joined(child);
        let cost = |from: u32, child: u32| if from != child && is_child(child) { links.cost(from, child) } else { 0 };
        let roomy_to = |child: u32| roomy.iter().map(move |&from| cost(from, child));
        let costs: Vec<i64> = nodes.clone().flat_map(roomy_to).collect();
        // Less than with the soonest of them and over the cheapest link the sum never rises.
        let soonest: Vec<Option<i64>> =
            above.chunks_exact(roomy.len()).map(|above| above.iter().flatten().copied().min()).collect();
        let cheapest: Vec<i64> =
            costs.chunks_exact(roomy.len()).filter_map(|costs| costs.iter().copied().min()).collect();
        let mut best: Option<(i64, Insertion)> = None;
        let is_there = |parent: u32| book.reaches(parent) && !self.doubtful[parent as usize];
        for parent in nodes.filter(|&parent| is_there(parent) && self.held[parent as usize] > 0) {
            let latency = book.latency(parent) + links.cost(parent, node);
            for other in 0..self.trees.len() as u32 {
                let theirs = &self.trees[other as usize];
                let Some(soonest) = soonest[other as usize] else { continue };
                let before = if other == tree { latency } else { 0 };
                let above = &above[other as usize * roomy.len()..][..roomy.len()];
                for child in theirs.children(parent).filter(|&child| theirs.reaches(child)) {
                    let least_later = before + soonest + cheapest[child as usize] - theirs.latency(child);
                    let least_rise = book.size(node) * latency + theirs.size(child) * least_later;
                    if best.as_ref().is_some_and(|&(least, _)| least_rise >= least) {
                        continue;
                    }
                    let costs = &costs[child as usize * roomy.len()..][..roomy.len()];
                    for ((&new_parent, &above), &cost) in roomy.iter().zip(above).zip(costs) {
                        let Some(above) = above else { continue };
                        let later = before + above + cost - theirs.latency(child);
                        let rise = book.size(node) * latency + theirs.size(child) * later;
                        if best.as_ref().is_none_or(|&(least, _)| rise < least)
                            && self.has_room_in(new_parent, other)
                            && !theirs.is_below(new_parent, child)
                        {
                            best = Some((rise, Insertion { parent, tree: other, child, new_parent }));
                        }
                    }
                }
            }
        }
        best.map(|(_, insertion)| insertion)
    }
}

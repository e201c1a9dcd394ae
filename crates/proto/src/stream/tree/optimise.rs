//! The moves that make a tree better, one node at a time.
//!
//! A sweep goes through a tree's nodes from the server down. Each node in turn, p, asks once for its
//! latency to every other and tries its moves:
//!
//! - Adopt: if p has room, it takes those c for whom L(p) + l(p, c) < L(c), the largest fall of the sum
//!   first: s(c)·(L(c) − L(p) − l(p, c)), where s is the size of the subtree. No c above p is among
//!   them, since nobody above p is later than p.
//! - Switch: a takes the place of p's child b. The sum of what the links around the two places cost
//!   falls only if one of the places is better off with the other node; so it is enough to try the
//!   pairs in which b's place is better off with a, since the other pairs come up at the parent of a. Of b's
//!   place, the link from p alone must then cost less than the whole place does with b, which few a
//!   reach.
//! - Displace: if p has no room, it takes one of the c above and hands one of its children, of any
//!   tree, to a node with room, to the former parent of c, or to c.

use core::cmp::Reverse;

use super::slice_tree::SERVER;
use super::{LinkLatency, Links, TreeBook};

/// The most children that a node tries to adopt in one turn.
const ADOPTIONS: usize = 32;
/// The children among whom a node without room looks for the one to take.
const WANTED: usize = 16;
/// The exchanges that a node without room tries in earnest.
const TRIES: usize = 3;

/// What a step has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The slice whose tree it was.
    pub slice: usize,
    /// Children taken by a node with room.
    pub adopted: usize,
    /// Pairs that exchanged their places.
    pub switched: usize,
    /// Children taken by a node without room.
    pub displaced: usize,
    /// Nodes that had waited and got a place.
    pub placed: usize,
    /// Latencies asked for.
    pub work: usize,
    /// Whether every node of the tree has had its turn since the sweep began.
    pub finished: bool,
}

/// How far the sweep of a tree is.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    /// The nodes that the server reached when the sweep began, the least late first.
    order: Vec<u32>,
    /// How many have had their turn.
    position: usize,
}

/// Nodes with room, to hand children to.
struct Room {
    nodes: Vec<u32>,
    /// In each tree, how late the least late of them is.
    least: Vec<i64>,
}

/// A child that its parent could hand on.
struct Release {
    tree: u32,
    child: u32,
    /// To the node with room that suits it best, and how much later the child is there.
    best: Option<(u32, i64)>,
}

/// Who takes what from whom, in a move that Displace tries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Exchange {
    /// By how much the sum rises, by the state before.
    rise: i64,
    taken: u32,
    tree: u32,
    released: u32,
    to: u32,
}

impl TreeBook {
    /// Goes on with the sweep of `slice` until it is finished or about `work` latencies were asked for.
    pub(super) fn optimise<L: LinkLatency + ?Sized>(
        &mut self,
        slice: usize,
        links: &Links<'_, L>,
        work: usize,
    ) -> Step {
        let mut step = Step { slice, ..Step::default() };
        let mut sweep = core::mem::take(&mut self.sweeps[slice]);
        if sweep.position == 0 {
            self.begin(slice, &mut sweep, links);
        }
        let mut room = self.room();
        let mut candidates = Vec::new();
        while sweep.position < sweep.order.len() && (step.work < work || step.work == 0) {
            let node = sweep.order[sweep.position];
            sweep.position += 1;
            if self.trees[slice].reaches(node) {
                self.take_turn(slice as u32, node, links, &mut room, &mut candidates, &mut step);
            }
        }
        if sweep.position >= sweep.order.len() {
            sweep.position = 0;
            step.finished = true;
        }
        self.sweeps[slice] = sweep;
        step
    }

    /// The tree's links cost what they cost now, and its nodes are ordered.
    fn begin<L: LinkLatency + ?Sized>(&mut self, slice: usize, sweep: &mut Sweep, links: &Links<'_, L>) {
        let tree = &mut self.trees[slice];
        tree.refresh(|from, to| links.cost(from, to));
        sweep.order.clear();
        sweep.order.extend((0..self.state.len() as u32).filter(|&node| tree.reaches(node)));
        sweep.order.sort_unstable_by_key(|&node| (tree.latency(node), node));
    }

    fn room(&self) -> Room {
        let mut room = Room { nodes: Vec::new(), least: vec![i64::MAX; self.trees.len()] };
        if self.settings.moves.displace {
            for node in (0..self.state.len() as u32).filter(|&node| self.has_room(node)) {
                self.add_room(node, &mut room);
            }
        }
        room
    }

    fn add_room(&self, node: u32, room: &mut Room) {
        room.nodes.push(node);
        for (least, tree) in room.least.iter_mut().zip(&self.trees) {
            if tree.reaches(node) {
                *least = (*least).min(tree.latency(node));
            }
        }
    }

    /// `node` tries its moves.
    fn take_turn<L: LinkLatency + ?Sized>(
        &mut self,
        tree: u32,
        node: u32,
        links: &Links<'_, L>,
        room: &mut Room,
        candidates: &mut Vec<(Reverse<i64>, u32)>,
        step: &mut Step,
    ) {
        let moves = self.settings.moves;
        if moves.switch && self.trees[tree as usize].degree(node) > 0 {
            self.switch_below(tree, node, links, step);
        }
        if moves.adopt && self.has_room_in(node, tree) {
            self.wanted(tree, node, links, candidates, ADOPTIONS);
            step.work += self.state.len();
            for &(_, child) in candidates.iter() {
                if !self.has_room_in(node, tree) {
                    break;
                }
                // Those above the child may have moved since.
                let book = &self.trees[tree as usize];
                let link = links.cost(node, child);
                if book.latency(child) - book.latency(node) - link > links.slack {
                    let before = book.parent(child);
                    self.relocate(tree, child, node, link);
                    self.note_room(before, room);
                    step.adopted += 1;
                }
            }
        }
        if moves.displace && self.held[node as usize] > 0 && !self.has_room_in(node, tree) {
            self.wanted(tree, node, links, candidates, WANTED);
            step.work += self.state.len();
            if !candidates.is_empty() && self.displace(tree, node, candidates, room, links, step) {
                step.displaced += 1;
            }
        }
    }

    /// A node that has lost a child has room if it had none.
    fn note_room(&self, node: u32, room: &mut Room) {
        if self.settings.moves.displace && self.held[node as usize] + 1 == self.places[node as usize] {
            self.add_room(node, room);
        }
    }

    /// Into `wanted` those who would be better off with `node` as parent, by how much the sum falls.
    fn wanted<L: LinkLatency + ?Sized>(
        &self,
        tree: u32,
        node: u32,
        links: &Links<'_, L>,
        wanted: &mut Vec<(Reverse<i64>, u32)>,
        most: usize,
    ) {
        let book = &self.trees[tree as usize];
        let above = book.latency(node) + links.slack;
        wanted.clear();
        for (child, &latency) in book.latencies().iter().enumerate() {
            // Those whom the server does not reach, and the server itself, are below any.
            if latency > above {
                let child = child as u32;
                let sooner = latency - book.latency(node) - links.cost(node, child);
                if sooner > links.slack && book.parent(child) != node {
                    wanted.push((Reverse(sooner * book.size(child)), child));
                }
            }
        }
        if wanted.len() > most {
            wanted.select_nth_unstable(most);
            wanted.truncate(most);
        }
        wanted.sort_unstable();
    }

    /// Each other node tries to exchange its place with a child of `parent`.
    fn switch_below<L: LinkLatency + ?Sized>(&mut self, tree: u32, parent: u32, links: &Links<'_, L>, step: &mut Step) {
        let (mut places, mut dearest) = self.places_below(tree, parent);
        step.work += self.state.len();
        for a in 1..self.state.len() as u32 {
            let book = &self.trees[tree as usize];
            if a == parent || !book.reaches(a) {
                continue;
            }
            let link = links.cost(parent, a);
            if link >= dearest {
                continue;
            }
            let mut best: Option<(i64, u32)> = None;
            for &(b, size, star) in &places {
                if a != b && size * link < star && self.can_switch(tree, a, b) {
                    step.work += (book.degree(a) + book.degree(b) + 2) as usize;
                    let delta = book.switch_delta(a, b, |from, to| links.cost(from, to));
                    if delta < best.map_or(-links.slack, |(least, _)| least) {
                        best = Some((delta, b));
                    }
                }
            }
            if let Some((_, b)) = best {
                self.switch(tree, a, b, links);
                step.switched += 1;
                (places, dearest) = self.places_below(tree, parent);
            }
        }
    }

    /// The children of `parent`, the sizes of their subtrees and what the links around their places
    /// cost; and the cost from which a link from `parent` costs more than any of these places.
    fn places_below(&self, tree: u32, parent: u32) -> (Vec<(u32, i64, i64)>, i64) {
        let tree = &self.trees[tree as usize];
        let places: Vec<(u32, i64, i64)> =
            tree.children(parent).map(|child| (child, tree.size(child), tree.star(child))).collect();
        let dearest = places.iter().map(|&(_, size, star)| (star + size - 1) / size).max().unwrap_or(0);
        (places, dearest)
    }

    /// Whether each can bear the other's children.
    fn can_switch(&self, tree: u32, a: u32, b: u32) -> bool {
        let tree = &self.trees[tree as usize];
        let bears = |node: u32, other: u32| {
            self.held[node as usize] - tree.degree(node) + tree.degree(other) <= self.places[node as usize]
        };
        bears(a, b) && bears(b, a)
    }

    fn switch<L: LinkLatency + ?Sized>(&mut self, tree: u32, a: u32, b: u32, links: &Links<'_, L>) {
        let book = &mut self.trees[tree as usize];
        for node in [a, b].into_iter().chain(book.children(a)).chain(book.children(b)) {
            self.log.touch(tree, node, book.parent(node));
        }
        let (degree_a, degree_b) = (book.degree(a), book.degree(b));
        book.switch(a, b, |from, to| links.cost(from, to));
        self.held[a as usize] = self.held[a as usize] - degree_a + degree_b;
        self.held[b as usize] = self.held[b as usize] - degree_b + degree_a;
    }

    /// `parent`, which has no room, takes one of `wanted` and hands on one of its children.
    fn displace<L: LinkLatency + ?Sized>(
        &mut self,
        tree: u32,
        parent: u32,
        wanted: &[(Reverse<i64>, u32)],
        room: &mut Room,
        links: &Links<'_, L>,
        step: &mut Step,
    ) -> bool {
        let largest = wanted[0].0.0;
        let releases = self.releases(parent, largest, room, links, step);
        let book = &self.trees[tree as usize];
        let mut exchanges: Vec<Exchange> = Vec::new();
        for &(Reverse(fall), taken) in wanted {
            let former = book.parent(taken);
            let latency = book.latency(parent) + links.cost(parent, taken);
            for &Release { tree: other, child, best } in &releases {
                let theirs = &self.trees[other as usize];
                let mut size = theirs.size(child);
                if other == tree && book.is_below(taken, child) {
                    size -= book.size(taken);
                }
                let mut consider = |to: u32, later: i64| {
                    let rise = size * later - fall;
                    if rise < -links.slack {
                        exchanges.push(Exchange { rise, taken, tree: other, released: child, to });
                    }
                };
                if let Some((to, later)) = best {
                    consider(to, later);
                }
                let now = theirs.latency(child);
                if theirs.reaches(former) {
                    let above = theirs.latency(former);
                    if size * (above - now) < fall {
                        consider(former, above + links.cost(former, child) - now);
                    }
                }
                if self.has_room(taken) && theirs.reaches(taken) {
                    let above = if other == tree { latency } else { theirs.latency(taken) };
                    if size * (above - now) < fall && taken != child {
                        consider(taken, above + links.cost(taken, child) - now);
                    }
                }
            }
        }
        exchanges.sort_unstable();
        exchanges.into_iter().take(TRIES).any(|exchange| self.exchange(tree, parent, exchange, room, links))
    }

    /// The children of `parent` in all trees, and for each the best node with room, unless the sum
    /// rises there by as much as `limit`.
    fn releases<L: LinkLatency + ?Sized>(
        &self,
        parent: u32,
        limit: i64,
        room: &Room,
        links: &Links<'_, L>,
        step: &mut Step,
    ) -> Vec<Release> {
        let mut releases = Vec::with_capacity(self.held[parent as usize] as usize);
        for (number, book) in self.trees.iter().enumerate() {
            for child in book.children(parent).filter(|&child| book.reaches(child)) {
                // size·later < limit
                let mut least = book.latency(child) + (limit - 1) / book.size(child) + 1;
                let mut best = None;
                if room.least[number] < least {
                    for &to in &room.nodes {
                        let above = book.latency(to);
                        if above >= least || to == parent || !book.reaches(to) {
                            continue;
                        }
                        step.work += 1;
                        let latency = above + links.cost(to, child);
                        if latency < least && self.has_room_in(to, number as u32) && !book.is_below(to, child) {
                            least = latency;
                            best = Some((to, latency - book.latency(child)));
                        }
                    }
                }
                releases.push(Release { tree: number as u32, child, best });
            }
        }
        releases
    }

    /// Does what `exchange` says, unless that turns out not to be possible or not to lower the sum.
    fn exchange<L: LinkLatency + ?Sized>(
        &mut self,
        tree: u32,
        parent: u32,
        exchange: Exchange,
        room: &mut Room,
        links: &Links<'_, L>,
    ) -> bool {
        let Exchange { taken, tree: other, released, to, .. } = exchange;
        let (former, former_link) = (self.trees[tree as usize].parent(taken), self.trees[tree as usize].link(taken));
        let before = self.sum_of(tree, other);
        self.relocate(tree, taken, parent, links.cost(parent, taken));
        if self.has_room_in(to, other) && !self.trees[other as usize].is_below(to, released) {
            let link = self.trees[other as usize].link(released);
            self.relocate(other, released, to, links.cost(to, released));
            if self.sum_of(tree, other) < before - links.slack {
                self.note_room(former, room);
                return true;
            }
            self.relocate(other, released, parent, link);
        }
        self.relocate(tree, taken, former, former_link);
        false
    }

    fn sum_of(&self, tree: u32, other: u32) -> i64 {
        let sum = self.trees[tree as usize].sum();
        if other == tree { sum } else { sum + self.trees[other as usize].sum() }
    }
}

/// The server has no place that another could take.
const _: () = assert!(SERVER == 0);

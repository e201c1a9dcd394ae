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
//! - Switch in two trees: where one exchange would break a limit, a and b exchange their places in a
//!   second tree too.
//! - Displace: if p has no room, it takes one of the c above and hands one of its children, of any
//!   tree, to a node with room, to the former parent of c, or to c.
//!
//! A node whose turn moved nobody pauses for one sweep, then for three, seven and fifteen, unless it
//! moves or gets room: most turns are in vain once a tree is good.

use core::cmp::Reverse;

use super::{LinkLatency, Links, TreeBook};

/// The most children that a node tries to adopt in one turn.
const ADOPTIONS: usize = 32;
/// The children among whom a node without room looks for the one to take.
const WANTED: usize = 8;
/// The pairs of which neither bears the other's children that are tried in two trees at once.
const PAIRS: usize = 3;
/// After each turn in which nobody moved, a node pauses twice as long: for up to 2^MOST_IDLE − 1 sweeps.
const MOST_IDLE: u8 = 4;

/// What a step may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// About how many pairs of nodes it may look at.
    pub work: usize,
    /// How many nodes it may give another parent; the turn of a node that goes beyond is the last.
    pub moves: usize,
}

impl Effort {
    /// One sweep: every node of the tree tries its moves once.
    pub const SWEEP: Effort = Effort { work: usize::MAX, moves: usize::MAX };
}

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
    /// Pairs of nodes looked at.
    pub work: usize,
    /// Whether every node of the tree has had its turn since the sweep began.
    pub finished: bool,
}

impl Step {
    /// About how many nodes have got another parent: of each pair that exchanged its places both, and
    /// their children.
    pub fn moves(&self) -> usize {
        self.adopted + 2 * (self.switched + self.displaced)
    }
}

/// How far the sweep of a tree is.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    /// The nodes that the server reached when the sweep began, the least late first.
    pub(super) order: Vec<u32>,
    /// How many have had their turn.
    position: usize,
    /// Of them, those that had room when the sweep began, and how late they were.
    pub(super) roomy: Vec<(i64, u32)>,
    /// How many sweeps have begun.
    number: u32,
    /// By slot, how many turns in a row have moved nobody, up to [`MOST_IDLE`].
    idle: Vec<u8>,
}

impl Sweep {
    /// Whether `node` has a turn in this sweep. Those with equal pauses take turns in pausing.
    fn has_turn(&self, node: u32) -> bool {
        self.number.wrapping_add(node).is_multiple_of(1 << self.idle[node as usize])
    }

    /// `node` has another place, or room: it has a turn in the next sweep.
    pub(super) fn wake(&mut self, node: u32) {
        if let Some(idle) = self.idle.get_mut(node as usize) {
            *idle = 0;
        }
    }
}

/// The place of a child whose parent has its turn.
pub(super) struct Place {
    /// The cost from which the link from the parent alone costs more than the place does now.
    limit: i64,
    child: u32,
    /// What the links around it cost now.
    star: i64,
}

impl TreeBook {
    /// Goes on with the sweep of `slice` until it is finished or `effort` is spent.
    pub(super) fn optimise<L: LinkLatency + ?Sized>(
        &mut self,
        slice: usize,
        links: &Links<'_, L>,
        effort: Effort,
    ) -> Step {
        let mut step = Step { slice, ..Step::default() };
        if self.sweeps[slice].position == 0 {
            self.begin(slice, links);
        }
        let (mut candidates, mut places) = (Vec::new(), Vec::new());
        loop {
            let sweep = &mut self.sweeps[slice];
            let Some(&node) = sweep.order.get(sweep.position) else {
                sweep.position = 0;
                step.finished = true;
                break;
            };
            if step.work >= effort.work || step.moves() >= effort.moves {
                break;
            }
            sweep.position += 1;
            if self.trees[slice].reaches(node) && self.sweeps[slice].has_turn(node) {
                self.take_turn(slice as u32, node, links, (&mut candidates, &mut places), &mut step);
            }
        }
        step
    }

    /// The tree's links cost what they cost now, and its nodes are ordered.
    fn begin<L: LinkLatency + ?Sized>(&mut self, slice: usize, links: &Links<'_, L>) {
        let mut sweep = core::mem::take(&mut self.sweeps[slice]);
        let tree = &mut self.trees[slice];
        tree.refresh(|from, to| links.cost(from, to));
        sweep.order.clear();
        sweep.order.extend((0..self.state.len() as u32).filter(|&node| tree.reaches(node)));
        sweep.order.sort_unstable_by_key(|&node| (tree.latency(node), node));
        let tree = &self.trees[slice];
        sweep.roomy.clear();
        let roomy = sweep.order.iter().filter(|&&node| self.has_room(node));
        sweep.roomy.extend(roomy.map(|&node| (tree.latency(node), node)));
        sweep.number = sweep.number.wrapping_add(1);
        sweep.idle.resize(self.state.len(), 0);
        self.sweeps[slice] = sweep;
    }

    /// `node` tries its moves.
    fn take_turn<L: LinkLatency + ?Sized>(
        &mut self,
        tree: u32,
        node: u32,
        links: &Links<'_, L>,
        (candidates, places): (&mut Vec<(Reverse<i64>, u32)>, &mut Vec<Place>),
        step: &mut Step,
    ) {
        let moves = self.settings.moves;
        let before = step.adopted + step.switched + step.displaced;
        if moves.switch && self.trees[tree as usize].degree(node) > 0 {
            self.switch_below(tree, node, links, places, step);
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
                    self.relocate(tree, child, node, link);
                    step.adopted += 1;
                }
            }
        }
        if moves.displace && self.held[node as usize] > 0 && !self.has_room_in(node, tree) {
            self.wanted(tree, node, links, candidates, WANTED);
            step.work += self.state.len();
            if !candidates.is_empty() {
                let far = self.sweeps[tree as usize].idle[node as usize] == MOST_IDLE;
                step.displaced += usize::from(self.displace(tree, node, candidates, far, links, step));
            }
        }
        let idle = &mut self.sweeps[tree as usize].idle[node as usize];
        let moved = step.adopted + step.switched + step.displaced > before;
        *idle = if moved { 0 } else { (*idle + 1).min(MOST_IDLE) };
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
    fn switch_below<L: LinkLatency + ?Sized>(
        &mut self,
        tree: u32,
        parent: u32,
        links: &Links<'_, L>,
        places: &mut Vec<Place>,
        step: &mut Step,
    ) {
        let cost = |from: u32, to: u32| links.cost(from, to);
        let mut unable = Vec::new();
        self.places_below(tree, parent, places);
        step.work += self.state.len();
        for a in 1..self.state.len() as u32 {
            let book = &self.trees[tree as usize];
            if a == parent || !book.reaches(a) {
                continue;
            }
            let link = links.cost(parent, a);
            if link >= places[0].limit {
                continue;
            }
            let mut best: Option<(i64, u32)> = None;
            for &Place { limit, child: b, star } in places.iter() {
                step.work += 1;
                if link >= limit {
                    break;
                }
                if a == b {
                    continue;
                }
                if !self.can_switch(&[tree], a, b) {
                    if self.settings.moves.double_switch && book.is_dearer(b, star, a, cost) {
                        step.work += (book.degree(a) + book.degree(b) + 2) as usize;
                        let delta = book.switch_delta(a, b, cost);
                        if delta < -links.slack {
                            unable.push((delta, a, b));
                        }
                    }
                } else {
                    step.work += (book.degree(a) + book.degree(b) + 2) as usize;
                    let delta = book.switch_delta(a, b, cost);
                    if delta < best.map_or(-links.slack, |(least, _)| least) {
                        best = Some((delta, b));
                    }
                }
            }
            if let Some((_, b)) = best {
                self.switch(tree, a, b, links);
                step.switched += 1;
                self.places_below(tree, parent, places);
            }
        }
        unable.sort_unstable();
        for &(_, a, b) in unable.iter().take(PAIRS) {
            step.switched += usize::from(self.switch_in_two(tree, a, b, links, step));
        }
    }

    /// `a` and `b` exchange their places in `tree` and in the other tree in which that suits best, if
    /// together the sum falls.
    fn switch_in_two<L: LinkLatency + ?Sized>(
        &mut self,
        tree: u32,
        a: u32,
        b: u32,
        links: &Links<'_, L>,
        step: &mut Step,
    ) -> bool {
        let cost = |from: u32, to: u32| links.cost(from, to);
        let delta = self.trees[tree as usize].switch_delta(a, b, cost);
        let others = (0..self.trees.len() as u32).filter(|&other| {
            let book = &self.trees[other as usize];
            other != tree && book.reaches(a) && book.reaches(b) && self.can_switch(&[tree, other], a, b)
        });
        let best = others.map(|other| (self.trees[other as usize].switch_delta(a, b, cost), other)).min();
        step.work += self.trees.len();
        match best {
            Some((more, other)) if delta + more < -links.slack => {
                self.switch(tree, a, b, links);
                self.switch(other, a, b, links);
                true
            }
            _ => false,
        }
    }

    /// The places of the children of `parent`, those with the highest limits first.
    fn places_below(&self, tree: u32, parent: u32, places: &mut Vec<Place>) {
        let tree = &self.trees[tree as usize];
        places.clear();
        // size·link < star
        places.extend(tree.children(parent).map(|child| {
            let star = tree.star(child);
            Place { limit: (star - 1) / tree.size(child) + 1, child, star }
        }));
        places.sort_unstable_by_key(|place| (Reverse(place.limit), place.child));
    }

    /// Whether each can bear the other's children in all of `trees`.
    fn can_switch(&self, trees: &[u32], a: u32, b: u32) -> bool {
        let degrees = |node: u32| -> u32 { trees.iter().map(|&tree| self.trees[tree as usize].degree(node)).sum() };
        let (of_a, of_b) = (degrees(a), degrees(b));
        let bears =
            |node: u32, loses: u32, gets: u32| self.held[node as usize] - loses + gets <= self.places[node as usize];
        bears(a, of_a, of_b) && bears(b, of_b, of_a)
    }

    fn switch<L: LinkLatency + ?Sized>(&mut self, tree: u32, a: u32, b: u32, links: &Links<'_, L>) {
        let book = &mut self.trees[tree as usize];
        for node in [a, b].into_iter().chain(book.children(a)).chain(book.children(b)) {
            self.log.touch(tree, node, book.parent(node));
            self.sweeps[tree as usize].wake(node);
        }
        let (degree_a, degree_b) = (book.degree(a), book.degree(b));
        book.switch(a, b, |from, to| links.cost(from, to));
        self.held[a as usize] = self.held[a as usize] - degree_a + degree_b;
        self.held[b as usize] = self.held[b as usize] - degree_b + degree_a;
    }
}

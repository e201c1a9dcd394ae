//! Displace: a node without room takes a child and hands on another (ours).
//!
//! Adopt and Switch leave every node as many children as its room allowed them to take; where room is
//! short they stop at trees in which early comers hold the good places. Here p takes c, whose fall of
//! the sum pays for w, a child of p in any tree, to go to a node with room; to the node that c came
//! from, which has room now; or to c. If nothing of the kind has helped for long, w may also go to a node
//! near the server that has no room either, which hands on a child in turn.
//!
//! What a chain of moves is worth is first reckoned by the trees as they are, move by move. The best
//! chains are then made and, if the sums do not say that they have helped, taken back.

use core::cmp::Reverse;

use super::slice_tree::{NONE, SERVER};
use super::{LinkLatency, Links, Step, TreeBook};

/// The chains that a node tries in earnest in one turn.
const TRIES: usize = 4;
/// The children that a node takes by a chain of three moves, of those it wants.
const TAKEN_FAR: usize = 4;
/// The nodes without room, the nearest to the server, that hand on in a chain of three moves.
const FULL: usize = 8;

/// A child gets another parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Move {
    tree: u32,
    child: u32,
    to: u32,
}

/// Moves that are made one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Chain {
    /// By how much the sum rises, by the trees as they are.
    rise: i64,
    first: Move,
    second: Move,
    third: Option<Move>,
}

/// A child that its parent could hand on.
#[derive(Clone, Copy, Debug)]
struct Release {
    tree: u32,
    child: u32,
    /// The node with room that suits it best, and how much later the child and those below it are there.
    best: Option<(u32, i64)>,
}

impl TreeBook {
    /// `parent`, which has no room, takes one of `wanted`, given with the falls of the sum, and hands on
    /// one of its children; with `far`, also by a node without room. Gives whether it did.
    pub(super) fn displace<L: LinkLatency + ?Sized>(
        &mut self,
        tree: u32,
        parent: u32,
        wanted: &[(Reverse<i64>, u32)],
        far: bool,
        links: &Links<'_, L>,
        step: &mut Step,
    ) -> bool {
        let releases = self.releases(parent, wanted[0].0.0, links, step);
        let mut chains = Vec::new();
        step.work += wanted.len() * releases.len();
        for &(Reverse(fall), child) in wanted {
            self.two_moves(Move { tree, child, to: parent }, fall, &releases, links, &mut chains);
        }
        if self.try_best(&mut chains, links) {
            return true;
        }
        if far {
            let wanted = &wanted[..wanted.len().min(TAKEN_FAR)];
            self.three_moves(tree, parent, wanted, &releases, links, step, &mut chains);
            return self.try_best(&mut chains, links);
        }
        false
    }

    /// The children of `parent` in all trees, and for each the best node with room, unless the sum
    /// rises there by as much as `limit`.
    fn releases<L: LinkLatency + ?Sized>(
        &self,
        parent: u32,
        limit: i64,
        links: &Links<'_, L>,
        step: &mut Step,
    ) -> Vec<Release> {
        let mut releases = Vec::with_capacity(self.held[parent as usize] as usize);
        for (number, book) in self.trees.iter().enumerate() {
            for child in book.children(parent).filter(|&child| book.reaches(child)) {
                // size·later < limit
                let mut least = book.latency(child) + (limit - 1) / book.size(child) + 1;
                let mut best = None;
                for &(when_begun, to) in &self.sweeps[number].roomy {
                    step.work += 1;
                    if when_begun >= least {
                        break;
                    }
                    let above = book.latency(to);
                    if above >= least || to == parent || !book.reaches(to) {
                        continue;
                    }
                    let latency = above + links.cost(to, child);
                    if latency < least && self.has_room_in(to, number as u32) && !book.is_below(to, child) {
                        least = latency;
                        best = Some((to, latency - book.latency(child)));
                    }
                }
                releases.push(Release { tree: number as u32, child, best });
            }
        }
        releases
    }

    /// Chains of `first`, by which the sum falls by `fall`, and one of `releases`.
    fn two_moves<L: LinkLatency + ?Sized>(
        &self,
        first: Move,
        fall: i64,
        releases: &[Release],
        links: &Links<'_, L>,
        chains: &mut Vec<Chain>,
    ) {
        let Move { tree, child: taken, to: parent } = first;
        let book = &self.trees[tree as usize];
        let former = book.parent(taken);
        let latency = book.latency(parent) + links.cost(parent, taken);
        for &Release { tree: other, child, best } in releases {
            let theirs = &self.trees[other as usize];
            let mut size = theirs.size(child);
            if other == tree && book.is_below(taken, child) {
                size -= book.size(taken);
            }
            let mut consider = |to: u32, later: i64| {
                let rise = size * later - fall;
                if rise < -links.slack {
                    chains.push(Chain { rise, first, second: Move { tree: other, child, to }, third: None });
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
            if taken != child && self.has_room(taken) && theirs.reaches(taken) {
                let above = if other == tree { latency } else { theirs.latency(taken) };
                if size * (above - now) < fall {
                    consider(taken, above + links.cost(taken, child) - now);
                }
            }
        }
    }

    /// Chains in which `parent` takes one of `wanted`, one of its `releases` goes to a node without
    /// room near the server, and a child of that one goes to a node with room or to where the first
    /// came from.
    #[allow(clippy::too_many_arguments, reason = "the parts of one turn")]
    fn three_moves<L: LinkLatency + ?Sized>(
        &self,
        tree: u32,
        parent: u32,
        wanted: &[(Reverse<i64>, u32)],
        releases: &[Release],
        links: &Links<'_, L>,
        step: &mut Step,
        chains: &mut Vec<Chain>,
    ) {
        let Reverse(largest) = wanted[0].0;
        let book = &self.trees[tree as usize];
        // Who hands on, what, and the releases of those seen already.
        let mut seen: Vec<(u32, Vec<Release>)> = Vec::new();
        let mut full: Vec<u32> = Vec::new();
        let mut of = NONE;
        for &Release { tree: other, child, .. } in releases {
            let theirs = &self.trees[other as usize];
            if of != other {
                of = other;
                let nearest = self.sweeps[other as usize].order.iter().copied();
                let fits = |&node: &u32| {
                    node != parent && theirs.reaches(node) && !self.has_room(node) && self.held[node as usize] > 0
                };
                full = nearest.filter(fits).take(FULL).collect();
            }
            for &by in &full {
                let later = theirs.latency(by) + links.cost(by, child) - theirs.latency(child);
                let below = theirs.is_below(by, child);
                if !below && theirs.size(child) * later >= largest || below && other != tree {
                    continue;
                }
                // By how much the sum rises as the child goes there, once another was taken from below
                // it; what is below that one goes with it, and is sooner then.
                let rise = |fall: i64, taken: u32| {
                    if other != tree || !book.is_below(taken, child) {
                        return (!below).then(|| theirs.size(child) * later);
                    }
                    let with_it = book.is_below(by, taken);
                    let sooner = if with_it { fall / book.size(taken) } else { 0 };
                    (with_it || !below).then(|| (theirs.size(child) - book.size(taken)) * (later - sooner))
                };
                let index = seen.iter().position(|&(node, _)| node == by).unwrap_or_else(|| {
                    // What this child costs may be less than nothing, so that no limit is known yet.
                    seen.push((by, self.releases(by, largest, links, step)));
                    seen.len() - 1
                });
                step.work += seen[index].1.len() * wanted.len();
                for &Release { tree: last, child: handed, best } in &seen[index].1 {
                    let third_tree = &self.trees[last as usize];
                    let (size, now) = (third_tree.size(handed), third_tree.latency(handed));
                    for &(Reverse(fall), taken) in wanted {
                        let Some(rise) = rise(fall, taken) else { continue };
                        let left = fall - rise;
                        let mut consider = |to: u32, later: i64| {
                            let rise = size * later - left;
                            if rise < -links.slack {
                                chains.push(Chain {
                                    rise,
                                    first: Move { tree, child: taken, to: parent },
                                    second: Move { tree: other, child, to: by },
                                    third: Some(Move { tree: last, child: handed, to }),
                                });
                            }
                        };
                        if let Some((to, later)) = best {
                            consider(to, later);
                        }
                        let former = book.parent(taken);
                        if third_tree.reaches(former) && size * (third_tree.latency(former) - now) < left {
                            consider(former, third_tree.latency(former) + links.cost(former, handed) - now);
                        }
                    }
                }
            }
        }
    }

    /// Makes the best of `chains` that helps, of the few best; gives whether there was one.
    fn try_best<L: LinkLatency + ?Sized>(&mut self, chains: &mut Vec<Chain>, links: &Links<'_, L>) -> bool {
        if chains.len() > TRIES {
            chains.select_nth_unstable(TRIES);
            chains.truncate(TRIES);
        }
        chains.sort_unstable();
        chains.drain(..).any(|chain| self.try_chain(chain, links))
    }

    /// Makes the moves of `chain`, unless one is impossible, someone has too many children after the
    /// last or the sum has not fallen.
    fn try_chain<L: LinkLatency + ?Sized>(&mut self, chain: Chain, links: &Links<'_, L>) -> bool {
        let moves = [Some(chain.first), Some(chain.second), chain.third];
        let mut undo = [None; 3];
        let mut rise = 0;
        let mut possible = true;
        for (index, Move { tree, child, to }) in moves.into_iter().flatten().enumerate() {
            let book = &self.trees[tree as usize];
            let (from, link) = (book.parent(child), book.link(child));
            if from == to || book.is_below(to, child) {
                possible = false;
                break;
            }
            rise -= book.sum();
            self.shift(tree, child, to, links.cost(to, child));
            rise += self.trees[tree as usize].sum();
            undo[index] = Some((tree, child, from, link));
        }
        let bears = |&Move { to, .. }: &Move| self.is_within_limits(to);
        if possible && rise < -links.slack && moves.iter().flatten().all(bears) {
            for &(tree, child, from, _) in undo.iter().flatten() {
                self.sweeps[tree as usize].wake(child);
                self.wake_with_room(from);
            }
            return true;
        }
        for &(tree, child, from, link) in undo.iter().rev().flatten() {
            self.shift(tree, child, from, link);
        }
        false
    }

    /// Whether `node` has no more children than it may have, the server's places for empty trees aside.
    fn is_within_limits(&self, node: u32) -> bool {
        let kept = if node == SERVER { self.trees.iter().filter(|tree| tree.degree(SERVER) == 0).count() } else { 0 };
        self.held[node as usize] as usize + kept <= self.places[node as usize] as usize
    }
}

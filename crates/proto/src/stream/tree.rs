//! The book of trees: for each slice of the stream, who gets it from whom [Raiber 2010, 6.4.4].
//!
//! The server is the root of `k` trees, one for each slice, and every client is in all of them. A tree
//! is the better the lower the sum over its clients of the path latency from the server is
//! (figure 6.7). Finding the best trees is not feasible, so they grow by small changes: a client joins
//! as a leaf, and step by step nodes take others as their children (Adopt) or exchange their places
//! (Switch) where the sum falls.
//!
//! As printed: Join, Adopt, Switch, Leave, and that children beyond a limit that fell are orphans and
//! rejoin with their subtrees. What the thesis leaves open and we chose, or added:
//!
//! - One limit for each node on its children in all trees together. The thesis has one bandwidth a
//!   client.
//! - A joining node and an orphan take the parent with room that gives them the least path latency;
//!   orphans with large subtrees go first.
//! - A node in need of room takes Adopt's children with the largest fall of the sum first.
//! - A node whose limit fell gives away the children whose new places cost the sum least, of any tree.
//! - **Double switch**: two nodes that cannot bear each other's children exchange their places in two
//!   trees at once, so that the one gives in this tree what it takes in that.
//! - **Displace**: a node without room takes a child and hands another, of any tree, to a node with
//!   room. Adopt and Switch alone stick above the optimum, since neither moves room from tree to tree.
//! - **Insertion**: where no parent has room, a node without room takes the newcomer and hands a child
//!   to a node with room that could not be the newcomer's parent: the newcomer itself, one below it.
//!   It belongs to Displace and is off with it.
//! - A slack: nodes whose path latencies differ by no more are equal. Of equal parents the one that is
//!   above the client in the fewest other trees is taken, and no move is made that gains no more.
//!
//! Nothing here reads a clock, draws a random number or depends on the order of a hash map: the same
//! calls give the same trees. Ties go to the lower slot.

mod backups;
mod changes;
mod displace;
mod optimise;
pub mod optimum;
mod reassign;
mod slice_tree;
mod upkeep;
mod verify;

use std::collections::BTreeSet;

use anabranch_control::time::Duration;

pub use backups::BACKUPS;
use changes::ChangeLog;
pub use optimise::{Effort, Step};
pub use reassign::Substitute;
use slice_tree::{NONE, SERVER, SliceTree};

/// A link that takes longer counts as this: no such link is of use to a live stream, and sums of path
/// latencies stay below 2^63 ns for ten thousand nodes in one chain.
const LONGEST_LINK: Duration = Duration::from_millis(10_000);

/// A node of the book: the server, or a client from its join until it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    slot: u32,
    generation: u32,
}

impl NodeId {
    /// The server.
    pub const SERVER: NodeId = NodeId { slot: SERVER, generation: 0 };

    /// Its place in tables: the server's is 0, a client gets the lowest that is free, so that all are
    /// below the largest number of nodes that there were at once.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// How long a packet takes from one node to another, as far as it is known.
pub trait LinkLatency {
    /// From the node in slot `from` to the one in slot `to`; none if nobody knows. The book asks only
    /// for slots of nodes that it holds: forget what a slot's former node had.
    fn latency(&self, from: usize, to: usize) -> Option<Duration>;
}

impl<F: Fn(usize, usize) -> Option<Duration>> LinkLatency for F {
    #[inline]
    fn latency(&self, from: usize, to: usize) -> Option<Duration> {
        self(from, to)
    }
}

/// Which moves [`TreeBook::step`] tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moves {
    /// A node with room takes a child from another.
    pub adopt: bool,
    /// Two nodes exchange their places.
    pub switch: bool,
    /// Two nodes that cannot bear each other's children exchange their places in two trees at once (ours).
    pub double_switch: bool,
    /// A node without room takes a child and hands on another; newcomers may push in (ours).
    pub displace: bool,
}

impl Moves {
    /// The thesis's alone.
    pub const PRINTED: Moves = Moves { adopt: true, switch: true, double_switch: false, displace: false };
    /// All.
    pub const ALL: Moves = Moves { adopt: true, switch: true, double_switch: true, displace: true };
}

/// How trees are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The number of slices, and so of trees; k in the thesis.
    pub slices: usize,
    /// Which moves a step tries.
    pub moves: Moves,
    /// What a link counts as whose latency nobody knows.
    pub unknown: Duration,
    /// What every hop adds for the node that forwards.
    pub forwarding: Duration,
    /// What is of no account: parents that differ by no more are equal, and a node moves only to gain
    /// more. Zero as printed.
    pub slack: Duration,
    /// The same for whoever has nobody below it: of parents that differ by no more, the one with most room
    /// is taken. What a new child misses of the past leaves a parent only as far as its other children leave
    /// room. Zero as printed.
    pub leaf_slack: Duration,
}

/// A child has another parent in a slice's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Change {
    /// The slice, from 0.
    pub slice: usize,
    /// Who gets it from another node now.
    pub child: NodeId,
    /// From whom before; none if from nobody.
    pub from: Option<NodeId>,
    /// From whom now; none if the child has left or waits for a place.
    pub to: Option<NodeId>,
}

/// No node has room for these; they wait, with those below them, and get the first place that is
/// found in a later call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overloaded {
    /// Slice and node.
    pub waiting: Vec<(usize, NodeId)>,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Joined,
    Excluded,
}

/// The trees of all slices.
#[derive(Clone, Debug)]
pub struct TreeBook {
    settings: Settings,
    trees: Vec<SliceTree>,
    /// Where the next step goes on in each tree.
    sweeps: Vec<optimise::Sweep>,
    next_slice: usize,
    state: Vec<State>,
    generation: Vec<u32>,
    /// The children that each slot's node may have in all trees.
    places: Vec<u32>,
    /// The children that it has.
    held: Vec<u32>,
    /// Whether each slot's node may be gone: it gets no child.
    doubtful: Vec<bool>,
    /// How many may be gone.
    doubts: usize,
    /// The slots between others that hold no node.
    free_slots: BTreeSet<u32>,
    /// Tree and node: roots of subtrees that the server does not reach.
    waiting: BTreeSet<(u32, u32)>,
    log: ChangeLog,
}

impl TreeBook {
    /// The server alone, which may have `places` children in all trees together.
    ///
    /// # Panics
    ///
    /// If there is no slice.
    pub fn new(settings: Settings, places: usize) -> TreeBook {
        assert!(settings.slices > 0, "a stream has at least one slice");
        TreeBook {
            settings,
            trees: vec![SliceTree::new(); settings.slices],
            sweeps: vec![optimise::Sweep::default(); settings.slices],
            next_slice: 0,
            state: vec![State::Joined],
            generation: vec![0],
            places: vec![to_u32(places)],
            held: vec![0],
            doubtful: vec![false],
            doubts: 0,
            free_slots: BTreeSet::new(),
            waiting: BTreeSet::new(),
            log: ChangeLog::default(),
        }
    }

    /// A client joins, which may have `places` children in all trees together: as a leaf in each tree.
    /// Changes of parents are appended to `changes`, as by all calls.
    ///
    /// # Errors
    ///
    /// The slices without a place for it. It has joined nevertheless, and waits for them until it
    /// leaves.
    pub fn join<L: LinkLatency + ?Sized>(
        &mut self,
        places: usize,
        latencies: &L,
        changes: &mut Vec<Change>,
    ) -> (NodeId, Result<(), Overloaded>) {
        let slot = self.take_slot();
        self.state[slot as usize] = State::Joined;
        self.places[slot as usize] = to_u32(places);
        let links = self.links(latencies);
        let placed = self.place_all((0..self.trees.len() as u32).map(|tree| (tree, slot)).collect(), &links);
        // Its own places may be what others wait for.
        self.place_waiting(&links, usize::MAX);
        self.finish(changes);
        (self.id(slot), self.overloaded(placed))
    }

    /// A client has left, was silent for too long or is to go. Its children rejoin with their
    /// subtrees. Nothing happens if it is gone already; the server cannot leave.
    ///
    /// # Errors
    ///
    /// Orphans without a place.
    pub fn leave<L: LinkLatency + ?Sized>(
        &mut self,
        node: NodeId,
        latencies: &L,
        changes: &mut Vec<Change>,
    ) -> Result<(), Overloaded> {
        if !self.is_client(node) {
            return Ok(());
        }
        self.set_doubtful(node, false);
        let result = self.exclude(node, latencies, changes);
        self.state[node.slot()] = State::Free;
        self.generation[node.slot()] = self.generation[node.slot()].wrapping_add(1);
        self.free_slots.insert(node.slot);
        result
    }

    /// Takes a client out of all trees, as if it had left, but keeps it until it does: it gets no
    /// place any more. "They should be excluded from the stream" [7.4.1]; see
    /// [`TreeBook::least_contributor`].
    ///
    /// # Errors
    ///
    /// Orphans without a place.
    pub fn exclude<L: LinkLatency + ?Sized>(
        &mut self,
        node: NodeId,
        latencies: &L,
        changes: &mut Vec<Change>,
    ) -> Result<(), Overloaded> {
        if !self.is_client(node) {
            return Ok(());
        }
        let placed = self.remove(node.slot, &self.links(latencies));
        self.finish(changes);
        self.overloaded(placed)
    }

    /// An excluded client is let in again, as if it joined; nothing happens if it is not excluded.
    ///
    /// # Errors
    ///
    /// The slices without a place for it; it waits for them.
    pub fn readmit<L: LinkLatency + ?Sized>(
        &mut self,
        node: NodeId,
        places: usize,
        latencies: &L,
        changes: &mut Vec<Change>,
    ) -> Result<(), Overloaded> {
        if !self.is_client(node) || self.is_joined(node.slot) {
            return Ok(());
        }
        self.state[node.slot()] = State::Joined;
        self.places[node.slot()] = to_u32(places);
        let links = self.links(latencies);
        let placed = self.place_all((0..self.trees.len() as u32).map(|tree| (tree, node.slot)).collect(), &links);
        self.place_waiting(&links, usize::MAX);
        self.finish(changes);
        self.overloaded(placed)
    }

    /// The node, client or server, may have `places` children in all trees from now on. If it has
    /// more, those whose new places cost the sum least go, with their subtrees. Nothing happens if it
    /// is gone or excluded.
    ///
    /// # Errors
    ///
    /// Orphans without a place.
    pub fn set_places<L: LinkLatency + ?Sized>(
        &mut self,
        node: NodeId,
        places: usize,
        latencies: &L,
        changes: &mut Vec<Change>,
    ) -> Result<(), Overloaded> {
        if !self.is_known(node) || self.state[node.slot()] == State::Excluded {
            return Ok(());
        }
        let links = self.links(latencies);
        if to_u32(places) > self.places[node.slot()] {
            self.sweeps.iter_mut().for_each(|sweep| sweep.wake(node.slot));
        }
        self.places[node.slot()] = to_u32(places);
        let placed = self.demote(node.slot, &links);
        self.place_waiting(&links, usize::MAX);
        self.finish(changes);
        self.overloaded(placed)
    }

    /// Whether a client may be gone: it keeps its children, and gets no other before that is known. Nothing happens
    /// to the server.
    pub fn set_doubtful(&mut self, node: NodeId, is_doubtful: bool) {
        if self.is_client(node) {
            let was_doubtful = core::mem::replace(&mut self.doubtful[node.slot()], is_doubtful);
            self.doubts = self.doubts + usize::from(is_doubtful) - usize::from(was_doubtful);
            if was_doubtful && self.has_room(node.slot) {
                self.sweeps.iter_mut().for_each(|sweep| sweep.wake(node.slot));
            }
        }
    }

    /// Whether a client may be gone.
    pub fn is_doubtful(&self, node: NodeId) -> bool {
        self.is_known(node) && self.doubtful[node.slot()]
    }

    /// Gives those that wait a place if there is one now, and improves the next tree in turn with
    /// `effort`, going on there the next time.
    pub fn step<L: LinkLatency + ?Sized>(&mut self, latencies: &L, effort: Effort, changes: &mut Vec<Change>) -> Step {
        let links = self.links(latencies);
        let placed = self.place_waiting(&links, upkeep::WAITING_A_STEP);
        let slice = self.next_slice;
        let mut step = Step { slice, ..Step::default() };
        if effort.moves > 0 {
            self.next_slice = (slice + 1) % self.trees.len();
            step = self.optimise(slice, &links, effort);
        }
        step.placed = placed;
        self.finish(changes);
        step
    }

    /// Whether the node is there still, excluded or not.
    pub fn is_known(&self, node: NodeId) -> bool {
        self.state.get(node.slot()).is_some_and(|&state| state != State::Free)
            && self.generation[node.slot()] == node.generation
    }

    /// All clients that are not excluded, by slot.
    pub fn clients(&self) -> impl Iterator<Item = NodeId> + '_ {
        (1..self.state.len() as u32).filter(|&slot| self.is_joined(slot)).map(|slot| self.id(slot))
    }

    /// From whom `node` gets `slice`; none if from nobody.
    pub fn parent(&self, slice: usize, node: NodeId) -> Option<NodeId> {
        let parent = if self.is_known(node) { self.trees[slice].parent(node.slot) } else { NONE };
        (parent != NONE).then(|| self.id(parent))
    }

    /// To whom `node` forwards `slice`, by slot.
    pub fn children(&self, slice: usize, node: NodeId) -> Vec<NodeId> {
        if !self.is_known(node) {
            return Vec::new();
        }
        let mut children: Vec<NodeId> = self.trees[slice].children(node.slot).map(|child| self.id(child)).collect();
        children.sort_unstable();
        children
    }

    /// How many hops `node` is from the server in the tree of `slice`; none if the server does not
    /// reach it.
    pub fn depth(&self, slice: usize, node: NodeId) -> Option<usize> {
        let tree = &self.trees[slice];
        (self.is_known(node) && tree.reaches(node.slot)).then(|| tree.ancestors(node.slot).count())
    }

    /// How late `node` gets `slice`, by the latencies as they were when the links were last looked at;
    /// none if the server does not reach it.
    pub fn path_latency(&self, slice: usize, node: NodeId) -> Option<Duration> {
        let tree = &self.trees[slice];
        (self.is_known(node) && tree.reaches(node.slot))
            .then(|| Duration::from_nanos(tree.latency(node.slot).unsigned_abs()))
    }

    /// The tree's performance: the sum of the path latencies of all clients that the server reaches.
    pub fn performance(&self, slice: usize) -> Duration {
        Duration::from_nanos(self.trees[slice].sum().unsigned_abs())
    }

    /// The children that a node may have in all trees, and those that it has.
    pub fn places(&self, node: NodeId) -> (usize, usize) {
        if !self.is_known(node) {
            return (0, 0);
        }
        (self.places[node.slot()] as usize, self.held[node.slot()] as usize)
    }

    /// The roots of the subtrees that wait for a place: slice and node.
    pub fn waiting(&self) -> impl Iterator<Item = (usize, NodeId)> + '_ {
        self.waiting.iter().map(|&(tree, slot)| (tree as usize, self.id(slot)))
    }

    /// Who is to go first if there are too many: the client with the fewest places, of equal ones the
    /// highest slot.
    pub fn least_contributor(&self) -> Option<NodeId> {
        self.clients().min_by_key(|node| (self.places[node.slot()], core::cmp::Reverse(node.slot)))
    }

    fn id(&self, slot: u32) -> NodeId {
        NodeId { slot, generation: self.generation[slot as usize] }
    }

    fn is_client(&self, node: NodeId) -> bool {
        node.slot != SERVER && self.is_known(node)
    }

    fn is_joined(&self, slot: u32) -> bool {
        self.state[slot as usize] == State::Joined
    }

    #[inline]
    fn has_room(&self, slot: u32) -> bool {
        self.held[slot as usize] < self.places[slot as usize] && !self.doubtful[slot as usize]
    }

    /// The lowest free slot, or a new one.
    fn take_slot(&mut self) -> u32 {
        if let Some(slot) = self.free_slots.pop_first() {
            return slot;
        }
        let slot = to_u32(self.state.len());
        self.state.push(State::Free);
        self.generation.push(0);
        self.places.push(0);
        self.held.push(0);
        self.doubtful.push(false);
        for tree in &mut self.trees {
            tree.add_slot();
        }
        slot
    }

    fn links<'a, L: LinkLatency + ?Sized>(&self, latencies: &'a L) -> Links<'a, L> {
        Links {
            latencies,
            unknown: to_cost(self.settings.unknown),
            forwarding: to_cost(self.settings.forwarding),
            slack: to_cost(self.settings.slack),
            leaf_slack: to_cost(self.settings.leaf_slack),
        }
    }

    fn overloaded(&self, waiting: Vec<(u32, u32)>) -> Result<(), Overloaded> {
        let mut waiting: Vec<(usize, NodeId)> = waiting
            .into_iter()
            .filter(|entry| self.waiting.contains(entry))
            .map(|(tree, slot)| (tree as usize, self.id(slot)))
            .collect();
        waiting.sort_unstable();
        if waiting.is_empty() { Ok(()) } else { Err(Overloaded { waiting }) }
    }

    /// Appends what this call has changed.
    fn finish(&mut self, changes: &mut Vec<Change>) {
        let mut log = core::mem::take(&mut self.log);
        log.drain(changes, |tree, child| self.trees[tree as usize].parent(child), |slot| self.id(slot));
        self.log = log;
        debug_assert!(self.state.len() > 64 || self.verify().is_ok(), "{:?}", self.verify());
    }
}

/// What links cost, as a call's latencies have it.
struct Links<'a, L: ?Sized> {
    latencies: &'a L,
    unknown: i64,
    forwarding: i64,
    slack: i64,
    leaf_slack: i64,
}

impl<L: LinkLatency + ?Sized> Links<'_, L> {
    #[inline]
    fn cost(&self, from: u32, to: u32) -> i64 {
        self.latencies.latency(from as usize, to as usize).map_or(self.unknown, to_cost) + self.forwarding
    }
}

#[inline]
fn to_cost(duration: Duration) -> i64 {
    duration.as_nanos().min(LONGEST_LINK.as_nanos()).cast_signed()
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

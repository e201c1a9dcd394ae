//! Who watches, what each may bear, and who gets which slice from whom.
//!
//! The server alone decides [Raiber 2010, 6.4.2]: peers have no say in the trees but by joining, by
//! leaving, and by what others report of them.

mod blame;
pub(super) mod capacity;
mod explored;
mod neighbours;
pub(super) mod supply;
mod word;

use std::collections::{BTreeMap, BTreeSet};

use anabranch_control::path::Slot;
use anabranch_control::rtt::PairRtts;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::content::ClientId;
use super::contribution::Contribution;
use super::message::{Assignment, Children, Contact, Parent};
use super::packet::SliceSet;
use super::report_history::ReportHistory;
use super::tree::{BACKUPS, Change, Effort, LinkLatency, Moves, NodeId, Overloaded, Settings, TreeBook};
use crate::session::{PeerKey, Remote, SessionId};

mod private;

pub use self::private::PrivateViewer;
use self::private::PrivateViewers;
use self::supply::Supply;
use self::word::Word;

/// How trees are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackerConfig {
    /// How many slices.
    pub slices: u8,
    /// Which moves make the trees better.
    pub moves: Moves,
    /// What the server can send.
    pub upload: Rate,
    /// Which part of what a peer can send is not used for the trees: it is left for repairs, for
    /// exploration, and for what estimates do not see.
    pub reserve: f64,
    /// Who has said nothing for so long is gone.
    pub silence: Duration,
    /// Whether a child whose parent falls silent has others to ask, which the thesis has not.
    pub has_backups: bool,
    /// The most clients.
    pub most_clients: usize,
}

/// How long a place in a tree stays as it is, in the mean, where nothing but a better tree would change
/// it. A change costs two handshake packets of 1228 B and some 4 kB that come twice; a slice of
/// 100 kbit/s brings sixty times as much in that time.
const REST: Duration = Duration::from_millis(30_000);

/// Streams that a viewer is believed to be able to send where a mesh alone carries the stream: the largest uplinks
/// of [Efthymiopoulos 2015] send some five. Who claims more adds no more room than that for others to join.
const BELIEVED_IN_MESH: usize = 8;

/// What former children say of a viewer is heard for so long: some reports.
const HEARD_OF_FORMER: Duration = Duration::from_millis(5000);

/// Who passes nothing on and had to go, because there is not enough for all, comes back no sooner.
const LEFT_OUT: Duration = Duration::from_millis(60_000);

/// Latencies that a step of the trees may ask for: a millisecond of work.
const STEP_WORK: usize = 50_000;

/// A hop of which nothing is known: as long as a quarter of a round trip around the earth.
const UNKNOWN: Duration = Duration::from_millis(50);

/// What forwarding takes at every hop: packets wait for their turn in an uplink of some Mbit/s.
const FORWARDING: Duration = Duration::from_millis(2);

/// Path latencies that differ by no more are equal: a change costs a child some packets that come twice, and
/// perhaps a session, and a fiftieth of a second is no gain to who holds one or more.
const SLACK: Duration = Duration::from_millis(20);

/// The same for a viewer that has nobody below it. A newcomer wants a second of the past from each parent, which it
/// sends only as far as its other children leave room: of a hundred viewers that come in ten seconds, 95 of 100 have
/// that 0.2 s sooner than from the nearest parents, and all wait longer for what is new by less than that.
const LEAF_SLACK: Duration = Duration::from_millis(200);

/// Somebody who watches.
#[derive(Clone, Debug)]
pub struct Viewer<A> {
    /// Its number, address and key.
    pub contact: Contact<A>,
    /// Its session.
    pub session: SessionId,
    /// Its place in the book of trees.
    pub node: NodeId,
    /// What it is believed to be able to pass on.
    pub contribution: Contribution,
    /// When it came.
    pub joined: Time,
    /// When it last said something.
    pub heard: Time,
    /// How it says that it fares.
    pub reports: ReportHistory,
    /// Slices whose parent, or whose children, it does not know yet.
    new_parents: SliceSet,
    new_children: SliceSet,
    /// How many children it may have, and whether it does not know that yet.
    places: usize,
    has_new_places: bool,
    /// Who was its child, and until when: what they say of it counts for a while.
    former: Vec<(ClientId, Time)>,
    /// When it last missed each slice.
    missed: Vec<Time>,
    /// Children that it can bear, as exploration has shown.
    explored: Option<usize>,
    /// How many neighbours it has: by its last report, and those that it and others were named since.
    neighbours: usize,
    /// What its word is worth that somebody has died.
    word: Word,
    /// What it had to pass on.
    supply: Supply,
}

/// All who watch.
#[derive(Clone, Debug)]
pub struct Tracker<A> {
    config: TrackerConfig,
    book: TreeBook,
    /// By the slots of the book; the server's is empty.
    viewers: Vec<Option<Viewer<A>>>,
    slots: BTreeMap<ClientId, usize>,
    /// The slots of those who watch, ascending.
    taken: Vec<usize>,
    /// Slots of whom something is not known yet to those who have them: no other needs an assignment.
    news: BTreeSet<usize>,
    /// The slot from which on the next is looked for that gets an assignment.
    next_assigned: usize,
    /// Those who are in no tree.
    private: PrivateViewers<A>,
    next_client: u32,
    latencies: Latencies,
    bitrate: Rate,
    /// What the server sends beside the stream.
    control: Rate,
    changes: Vec<Change>,
    /// Slices whose children of the server have changed.
    server_children: SliceSet,
    /// How often a viewer got another parent.
    parent_changes: u64,
    /// Who is to be asked whether it is there.
    questions: Vec<SessionId>,
    /// When last all were asked of whom nothing was heard since somebody seems to have died.
    doubted_at: Time,
    /// Slices of viewers whose parent may be gone, and for whom there is no other yet.
    orphans: BTreeSet<(usize, NodeId)>,
    /// Who had to go since it passes nothing on, and when. It begins with one child if it comes back.
    left_out: BTreeMap<PeerKey, Time>,
    /// The time of the last call that told it.
    now: Time,
    /// Whether there are places enough to keep some free.
    has_spare: bool,
    /// Which of [`capacity::KEPT_PARTS`] of the reserve viewers keep.
    kept_part: u8,
    /// Whether a mesh alone carries the stream.
    is_mesh_alone: bool,
    /// Changes of parents that better trees may cost now, and since when that was counted.
    allowance: f64,
    allowed_at: Time,
}

/// Delays between viewers, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// From the server, by slot.
    server: Vec<Option<Duration>>,
    /// Between viewers, by slot, where they are explored.
    explored: Option<PairRtts>,
}

impl LinkLatency for Latencies {
    fn latency(&self, from: usize, to: usize) -> Option<Duration> {
        let known = |slot: usize| self.server.get(slot).copied().flatten();
        match (from, to) {
            (0, slot) | (slot, 0) => known(slot),
            (from, to) => {
                let is_pair = |links: &&PairRtts| from != to && from.max(to) < links.peers();
                let explored = self.explored.as_ref().filter(is_pair)?;
                explored.mean_between(Slot(from as u16), Slot(to as u16))
            }
        }
    }
}

/// Why somebody may not watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are too many.
    Full,
    /// There are too many of its network.
    NetworkIsFull,
    /// Nobody has room for another child.
    Overloaded,
    /// It has been excluded: most of its children got forged packets from it.
    Excluded,
    /// The server itself cannot feed another viewer whom nobody else may know.
    NoRoomForPrivate,
}

impl<A: Copy + Eq> Tracker<A> {
    /// Nobody watches.
    pub fn new(config: TrackerConfig) -> Tracker<A> {
        let slices = usize::from(config.slices);
        // Trees alone are as printed.
        let leaf_slack = if config.has_backups { LEAF_SLACK } else { Duration::ZERO };
        let settings = Settings {
            slices,
            moves: config.moves,
            unknown: UNKNOWN,
            forwarding: FORWARDING,
            slack: SLACK,
            leaf_slack,
        };
        Tracker {
            config,
            book: TreeBook::new(settings, 0),
            viewers: vec![None],
            slots: BTreeMap::new(),
            taken: Vec::new(),
            news: BTreeSet::new(),
            next_assigned: 0,
            private: PrivateViewers::default(),
            next_client: 1,
            latencies: Latencies::default(),
            bitrate: Rate::ZERO,
            control: Rate::ZERO,
            changes: Vec::new(),
            server_children: SliceSet::default(),
            parent_changes: 0,
            questions: Vec::new(),
            doubted_at: Time::ZERO,
            orphans: BTreeSet::new(),
            left_out: BTreeMap::new(),
            now: Time::ZERO,
            has_spare: true,
            kept_part: 0,
            is_mesh_alone: false,
            allowance: 0.0,
            allowed_at: Time::ZERO,
        }
    }

    /// The trees.
    pub fn book(&self) -> &TreeBook {
        &self.book
    }

    pub(super) fn miscount(&mut self) {
        self.book.miscount();
    }

    /// Who watches, by slot.
    pub fn viewers(&self) -> impl Iterator<Item = &Viewer<A>> {
        self.viewers.iter().flatten()
    }

    /// How often a viewer has got another parent.
    pub fn parent_changes(&self) -> u64 {
        self.parent_changes
    }

    /// How many watch and pass the stream on.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.watching() == 0
    }

    /// How many watch, those whom nobody knows included.
    pub fn watching(&self) -> usize {
        self.slots.len() + self.private.viewers.len()
    }

    fn next_number(&mut self) -> ClientId {
        self.next_client += 1;
        ClientId(self.next_client - 1)
    }

    /// How many slices the stream has.
    pub fn slices(&self) -> u8 {
        self.config.slices
    }

    /// Children of the server, over all slices.
    pub fn server_held(&self) -> usize {
        self.book.places(NodeId::SERVER).1 + self.private_viewers().count() * usize::from(self.config.slices)
    }

    /// Whose place in the book `node` is; none of the server's.
    pub fn client_of(&self, node: NodeId) -> Option<ClientId> {
        self.contact(node).map(|contact| contact.client)
    }

    /// Between the server and a viewer, once that is known.
    pub fn round_trip(&self, node: NodeId) -> Option<Duration> {
        self.latencies.server.get(node.slot()).copied().flatten().map(|latency| latency * 2)
    }

    /// Who has this number.
    pub fn viewer(&self, client: ClientId) -> Option<&Viewer<A>> {
        self.viewers[*self.slots.get(&client)?].as_ref()
    }

    fn viewer_mut(&mut self, client: ClientId) -> Option<&mut Viewer<A>> {
        self.viewers[*self.slots.get(&client)?].as_mut()
    }

    /// Somebody wants to watch who believes that it can send `upload`.
    ///
    /// # Errors
    ///
    /// When there is no place for it; nothing has changed then.
    pub fn join(
        &mut self,
        now: Time,
        session: SessionId,
        remote: &Remote<A>,
        upload: Rate,
        round_trip: Option<Duration>,
    ) -> Result<ClientId, Refusal> {
        if self.watching() >= self.config.most_clients {
            return Err(Refusal::Full);
        }
        let left_out = self.left_out.get(&remote.key).copied();
        if left_out.is_some_and(|at| now.since(at) < LEFT_OUT) {
            return Err(Refusal::Overloaded);
        }
        let proven = match left_out {
            Some(_) => 1,
            None if self.is_mesh_alone => BELIEVED_IN_MESH * usize::from(self.config.slices),
            None => usize::from(self.config.slices),
        };
        let contribution = Contribution::new(upload, proven);
        self.weigh(1);
        let places = contribution.places(self.viewer_places(upload), 0);
        self.make_room();
        let (node, placed) = self.book.join(self.planned(places), &self.latencies, &mut self.changes);
        if let Err(Overloaded { waiting }) = &placed
            && waiting.iter().any(|&(_, waiting)| waiting == node)
        {
            let _ = self.book.leave(node, &self.latencies, &mut self.changes);
            self.changes.retain(|change| change.child != node);
            self.note_changes();
            return Err(Refusal::Overloaded);
        }
        let client = self.next_number();
        let contact = Contact { client, address: remote.address, key: remote.key };
        let slot = node.slot();
        if self.viewers.len() <= slot {
            self.viewers.resize_with(slot + 1, || None);
            self.latencies.server.resize(slot + 1, None);
        }
        self.latencies.server.resize(self.viewers.len(), None);
        self.latencies.server[slot] = round_trip.map(|round_trip| round_trip / 2);
        self.viewers[slot] = Some(Viewer {
            contact,
            session,
            node,
            contribution,
            joined: now,
            heard: now,
            reports: ReportHistory::new(now),
            new_parents: SliceSet::default(),
            new_children: SliceSet::default(),
            places,
            has_new_places: true,
            former: Vec::new(),
            missed: vec![Time::ZERO; usize::from(self.config.slices)],
            explored: None,
            neighbours: 0,
            word: Word::default(),
            supply: Supply::new(self.config.slices),
        });
        self.slots.insert(client, slot);
        let place = self.taken.partition_point(|&other| other < slot);
        self.taken.insert(place, slot);
        self.news.insert(slot);
        self.note_changes();
        Ok(client)
    }

    /// Somebody watches no more.
    pub fn leave(&mut self, client: ClientId) {
        if self.leave_private(client) {
            return;
        }
        let Some(slot) = self.slots.remove(&client) else { return };
        self.taken.retain(|&other| other != slot);
        self.news.remove(&slot);
        let Some(viewer) = self.viewers[slot].take() else { return };
        let _ = self.book.leave(viewer.node, &self.latencies, &mut self.changes);
        self.latencies.server[slot] = None;
        self.note_changes();
    }

    /// How many copies of `packets` packets of the stream the server can send.
    pub fn copies_of(&self, packets: usize) -> usize {
        packets * self.server_room() / usize::from(self.config.slices)
    }

    /// A mesh alone carries the stream. What viewers announce is believed then, up to some streams: no child ever
    /// proves it, and there would be no room for those whom others could feed with more than one stream.
    pub fn set_mesh_alone(&mut self) {
        self.is_mesh_alone = true;
    }

    /// Makes one tree a little better, as often as changes may happen.
    pub fn improve(&mut self, now: Time) {
        let places = self.len() * usize::from(self.config.slices);
        let a_second = places as f64 / REST.as_secs_f64();
        self.now = now;
        self.take_waiting();
        let since = now.since(self.allowed_at).as_secs_f64();
        self.allowed_at = now;
        // While it is not known who is there, no tree gets better by any move.
        let is_in_doubt = self.is_in_doubt(now);
        self.allowance = if is_in_doubt { 0.0 } else { (self.allowance + a_second * since).min(a_second.max(1.0)) };
        let effort = Effort { work: STEP_WORK, moves: self.allowance.max(0.0) as usize };
        let step = self.book.step(&self.latencies, effort, &mut self.changes);
        // What a turn has moved beyond is saved later.
        self.allowance -= step.moves() as f64;
        self.note_changes();
    }

    /// The round trip between the server and a viewer is known better.
    pub fn set_round_trip(&mut self, client: ClientId, round_trip: Duration) {
        if let Some(&slot) = self.slots.get(&client) {
            self.latencies.server[slot] = Some(round_trip / 2);
        }
    }

    fn note_changes(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            let slice = change.slice as u8;
            let child = self.contact(change.child).map(|contact| contact.client);
            self.parent_changes += u64::from(change.from.is_some() && change.to.is_some());
            if let Some(viewer) = self.viewers.get_mut(change.child.slot()).and_then(Option::as_mut) {
                viewer.new_parents.insert(slice);
                self.news.insert(change.child.slot());
            }
            for parent in [change.from, change.to].into_iter().flatten() {
                if parent == NodeId::SERVER {
                    self.server_children.insert(slice);
                } else if let Some(viewer) = self.viewers.get_mut(parent.slot()).and_then(Option::as_mut) {
                    viewer.new_children.insert(slice);
                    self.news.insert(parent.slot());
                }
            }
            let from = change.from.and_then(|from| self.viewers.get_mut(from.slot())).and_then(Option::as_mut);
            if let (Some(viewer), Some(child)) = (from, child) {
                viewer.former.retain(|&(other, _)| other != child);
                viewer.former.push((child, self.now + HEARD_OF_FORMER));
            }
        }
    }

    /// The slices whose children of the server have changed since the last call, with all of them.
    pub fn server_children(&mut self) -> Vec<Children> {
        let changed = std::mem::take(&mut self.server_children);
        changed.iter().map(|slice| self.children(slice, NodeId::SERVER)).collect()
    }

    /// What the next viewer, in turn, has not been told yet of its places in the trees, and over which session it is.
    pub fn next_assignment(&mut self) -> Option<(SessionId, Assignment<A>)> {
        loop {
            let slot = self.news.range(self.next_assigned..).next().or(self.news.first()).copied()?;
            self.news.remove(&slot);
            self.next_assigned = slot + 1;
            let Some(viewer) = &mut self.viewers[slot] else { continue };
            let new_parents = std::mem::take(&mut viewer.new_parents);
            let new_children = std::mem::take(&mut viewer.new_children);
            let has_new_places = std::mem::take(&mut viewer.has_new_places);
            if new_parents.is_empty() && new_children.is_empty() && !has_new_places {
                continue;
            }
            let (session, node, places) = (viewer.session, viewer.node, viewer.places);
            let assignment = Assignment {
                parents: new_parents.iter().filter_map(|slice| self.parent(slice, node)).collect(),
                children: new_children.iter().map(|slice| self.children(slice, node)).collect(),
                places: places.min(usize::from(u16::MAX)) as u16,
            };
            return Some((session, assignment));
        }
    }

    fn contact(&self, node: NodeId) -> Option<Contact<A>> {
        self.viewers.get(node.slot())?.as_ref().map(|viewer| viewer.contact)
    }

    /// None if nobody has a place for it yet.
    fn parent(&self, slice: u8, node: NodeId) -> Option<Parent<A>> {
        let index = usize::from(slice);
        let parent = self.book.parent(index, node)?;
        let mut backups = [None; BACKUPS];
        if self.config.has_backups {
            backups = self.book.backups(index, node).map(|backup| backup.and_then(|backup| self.contact(backup)));
        }
        Some(Parent { slice, parent: self.contact(parent), backups })
    }

    fn children(&self, slice: u8, node: NodeId) -> Children {
        let nodes = self.book.children(usize::from(slice), node);
        let children = nodes.into_iter().filter_map(|child| self.contact(child)).map(|contact| contact.client);
        Children { slice, children: children.chain(self.private_children(node)).collect() }
    }
}

#[cfg(test)]
mod tests;

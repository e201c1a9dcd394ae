//! Who watches, what each may bear, and who gets which slice from whom.
//!
//! The server alone decides [Raiber 2010, 6.4.2]: peers have no say in the trees but by joining, by
//! leaving, and by what others report of them.

use std::collections::BTreeMap;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::content::ClientId;
use super::contribution::Contribution;
use super::message::{Assignment, Children, Contact, Parent, Report, SilentFeed};
use super::packet::SliceSet;
use super::tree::{BACKUPS, Change, LinkLatency, Moves, NodeId, Overloaded, Settings, TreeBook};
use crate::session::{Remote, SessionId};

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

/// What a packet of a stream takes beside its bytes: IPv4 and UDP 28, QUIC 20 and its tag 16, our
/// header 13, of 1316.
const OVERHEAD: f64 = 1.0 + 77.0 / 1316.0;

/// Latencies that a step of the trees may ask for: a millisecond of work.
const STEP_WORK: usize = 50_000;

/// A hop of which nothing is known: as long as a quarter of a round trip around the earth.
const UNKNOWN: Duration = Duration::from_millis(50);

/// What forwarding takes at every hop: packets wait for their turn in an uplink of some Mbit/s.
const FORWARDING: Duration = Duration::from_millis(2);

/// Path latencies that differ by no more are equal: a change costs a child some packets.
const SLACK: Duration = Duration::from_millis(5);

/// Neighbours that a viewer looks for if it can send the stream once. As many find it.
const NEIGHBOURS: usize = 6;

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
    /// Slices whose parent, or whose children, it does not know yet.
    new_parents: SliceSet,
    new_children: SliceSet,
    /// Whether it does not know how many children it may have.
    has_new_places: bool,
}

/// All who watch.
#[derive(Clone, Debug)]
pub struct Tracker<A> {
    config: TrackerConfig,
    book: TreeBook,
    /// By the slots of the book; the server's is empty.
    viewers: Vec<Option<Viewer<A>>>,
    slots: BTreeMap<ClientId, usize>,
    next_client: u32,
    latencies: Latencies,
    bitrate: Rate,
    changes: Vec<Change>,
    /// Slices whose children of the server have changed.
    server_children: SliceSet,
    /// How often a viewer got another parent.
    parent_changes: u64,
    /// Who is to be asked whether it is there.
    questions: Vec<SessionId>,
}

/// Delays between viewers, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// From the server, by slot.
    server: Vec<Option<Duration>>,
}

impl LinkLatency for Latencies {
    fn latency(&self, from: usize, to: usize) -> Option<Duration> {
        let known = |slot: usize| self.server.get(slot).copied().flatten();
        match (from, to) {
            (0, slot) | (slot, 0) => known(slot),
            _ => None,
        }
    }
}

/// Why somebody may not watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are too many.
    Full,
    /// Nobody has room for another child.
    Overloaded,
}

impl<A: Copy + Eq> Tracker<A> {
    /// Nobody watches.
    pub fn new(config: TrackerConfig) -> Tracker<A> {
        let slices = usize::from(config.slices);
        let settings = Settings { slices, moves: config.moves, unknown: UNKNOWN, forwarding: FORWARDING, slack: SLACK };
        Tracker {
            config,
            book: TreeBook::new(settings, 0),
            viewers: vec![None],
            slots: BTreeMap::new(),
            next_client: 1,
            latencies: Latencies::default(),
            bitrate: Rate::ZERO,
            changes: Vec::new(),
            server_children: SliceSet::default(),
            parent_changes: 0,
            questions: Vec::new(),
        }
    }

    /// The trees.
    pub fn book(&self) -> &TreeBook {
        &self.book
    }

    /// Who watches, by slot.
    pub fn viewers(&self) -> impl Iterator<Item = &Viewer<A>> {
        self.viewers.iter().flatten()
    }

    /// How often a viewer has got another parent.
    pub fn parent_changes(&self) -> u64 {
        self.parent_changes
    }

    /// How many watch.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Who has this number.
    pub fn viewer(&self, client: ClientId) -> Option<&Viewer<A>> {
        self.viewers[*self.slots.get(&client)?].as_ref()
    }

    fn viewer_mut(&mut self, client: ClientId) -> Option<&mut Viewer<A>> {
        self.viewers[*self.slots.get(&client)?].as_mut()
    }

    /// Children that somebody who can send `upload` may have.
    fn places(&self, upload: Rate) -> usize {
        let slice = self.bitrate.bytes_per_sec() * OVERHEAD / f64::from(self.config.slices);
        if slice <= 0.0 {
            return 0;
        }
        (upload.bytes_per_sec() * (1.0 - self.config.reserve) / slice) as usize
    }

    /// The stream takes `bitrate`: all places are counted anew if that differs by more than a tenth.
    pub fn set_bitrate(&mut self, bitrate: Rate) {
        let (before, after) = (self.bitrate.bytes_per_sec(), bitrate.bytes_per_sec());
        if (before - after).abs() <= 0.1 * before {
            return;
        }
        self.bitrate = bitrate;
        let server = self.places(self.config.upload);
        self.set_places(NodeId::SERVER, server);
        let nodes: Vec<NodeId> = self.viewers.iter().flatten().map(|viewer| viewer.node).collect();
        for node in nodes {
            self.recount(node);
        }
    }

    fn set_places(&mut self, node: NodeId, places: usize) {
        // Who is left without a place waits in the book for the next one.
        let _ = self.book.set_places(node, places, &self.latencies, &mut self.changes);
        if let Some(viewer) = &mut self.viewers[node.slot()] {
            viewer.has_new_places = true;
        }
        self.note_changes();
    }

    fn recount(&mut self, node: NodeId) {
        let Some(viewer) = &self.viewers[node.slot()] else { return };
        let held = self.book.places(node).1;
        let places = viewer.contribution.places(self.places(viewer.contribution.announced()), held);
        if self.book.places(node).0 != places {
            self.set_places(node, places);
        }
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
        if self.slots.len() >= self.config.most_clients {
            return Err(Refusal::Full);
        }
        let contribution = Contribution::new(upload, usize::from(self.config.slices));
        let places = contribution.places(self.places(upload), 0);
        let (node, placed) = self.book.join(places, &self.latencies, &mut self.changes);
        if let Err(Overloaded { waiting }) = &placed
            && waiting.iter().any(|&(_, waiting)| waiting == node)
        {
            let _ = self.book.leave(node, &self.latencies, &mut self.changes);
            self.changes.retain(|change| change.child != node);
            self.note_changes();
            return Err(Refusal::Overloaded);
        }
        let client = ClientId(self.next_client);
        self.next_client += 1;
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
            new_parents: SliceSet::default(),
            new_children: SliceSet::default(),
            has_new_places: true,
        });
        self.slots.insert(client, slot);
        self.note_changes();
        Ok(client)
    }

    /// Somebody watches no more.
    pub fn leave(&mut self, client: ClientId) {
        let Some(slot) = self.slots.remove(&client) else { return };
        let Some(viewer) = self.viewers[slot].take() else { return };
        let _ = self.book.leave(viewer.node, &self.latencies, &mut self.changes);
        self.latencies.server[slot] = None;
        self.note_changes();
    }

    /// Whether those who have come in the last `span`, and another, can get that much of the stream in
    /// that time besides what is new: that takes each as many places again as it has parents.
    pub fn has_room_to_catch_up(&self, now: Time, span: Duration) -> bool {
        let new = self.viewers().filter(|viewer| now.since(viewer.joined) < span).count();
        let nodes = self.viewers().map(|viewer| viewer.node).chain([NodeId::SERVER]);
        let spare: usize =
            nodes.map(|node| self.book.places(node)).map(|(places, held)| places.saturating_sub(held)).sum();
        new * usize::from(self.config.slices) <= spare
    }

    /// How many copies of the stream the server can send.
    pub fn copies(&self) -> usize {
        self.places(self.config.upload) / usize::from(self.config.slices)
    }

    /// Others for `client` to trade with, which has `has` neighbours: none while those are enough.
    pub fn neighbours(&self, client: ClientId, has: usize, rng: &mut Rng) -> Vec<Contact<A>> {
        let Some(viewer) = self.viewer(client) else { return Vec::new() };
        let slices = usize::from(self.config.slices);
        // In proportion to what it can send [Efthymiopoulos 2015, 2].
        let degree = (self.places(viewer.contribution.announced()).saturating_mul(NEIGHBOURS) / slices)
            .clamp(NEIGHBOURS, 2 * NEIGHBOURS);
        if has >= degree {
            return Vec::new();
        }
        let others: Vec<&Viewer<A>> = self.viewers().filter(|other| other.contact.client != client).collect();
        let mut chosen: Vec<usize> = Vec::new();
        for _ in 0..4 * (degree - has) {
            if chosen.len() == (degree - has).min(others.len()) {
                break;
            }
            let other = rng.below(others.len());
            if !chosen.contains(&other) {
                chosen.push(other);
            }
        }
        chosen.into_iter().map(|other| others[other].contact).collect()
    }

    /// Somebody says how it fares, and how its parents do.
    pub fn on_report(&mut self, now: Time, client: ClientId, report: &Report) {
        self.on_heard(now, client);
        for parent in &report.parents {
            if let Some(viewer) = self.viewer_mut(parent.parent) {
                viewer.contribution.on_report(parent);
            }
        }
    }

    /// Somebody has said something.
    pub fn on_heard(&mut self, now: Time, client: ClientId) {
        let Some(viewer) = self.viewer_mut(client) else { return };
        viewer.heard = now;
        if viewer.contribution.on_heard() {
            let node = viewer.node;
            self.recount(node);
        }
    }

    /// A child says that nothing comes from its parent. Where parents have backups, it gets another, and
    /// a parent whom several miss gets no child before it is heard of again.
    pub fn on_silent(&mut self, now: Time, child: ClientId, feed: &SilentFeed) {
        if !self.config.has_backups || feed.slice >= self.config.slices {
            return;
        }
        let Some(node) = self.viewer(child).map(|viewer| viewer.node) else { return };
        let slice = usize::from(feed.slice);
        let current =
            self.book.parent(slice, node).and_then(|parent| self.contact(parent)).map(|contact| contact.client);
        let mut is_reassigned = false;
        if current == feed.parent {
            let asked = feed.asked.and_then(|asked| self.viewer(asked)).map(|viewer| viewer.node);
            is_reassigned = self.book.reassign(slice, node, asked, &self.latencies, &mut self.changes);
            self.note_changes();
        }
        if let Some(viewer) = self.viewer_mut(child)
            && !is_reassigned
        {
            // It has tried others than the one whom the server has named, or too early.
            viewer.new_parents.insert(feed.slice);
        }
        if feed.is_excused {
            return;
        }
        let Some(viewer) = feed.parent.and_then(|parent| self.viewer_mut(parent)) else { return };
        if viewer.contribution.on_silent(now, child) {
            let (node, session) = (viewer.node, viewer.session);
            self.questions.push(session);
            self.recount(node);
        }
    }

    /// Whom to ask since the last call whether they are there: several children miss them.
    pub fn take_questions(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.questions)
    }

    /// Those who were asked and have not answered hold nobody any more, until they are heard of.
    pub fn give_up_suspects(&mut self, now: Time) {
        let give_up = |viewer: &mut Viewer<A>| viewer.contribution.give_up(now).then_some(viewer.node);
        let gone: Vec<NodeId> = self.viewers.iter_mut().flatten().filter_map(give_up).collect();
        for node in gone {
            self.recount(node);
        }
    }

    /// Who has been silent for too long.
    pub fn silent(&self, now: Time) -> Vec<ClientId> {
        let is_silent = |viewer: &&Viewer<A>| now.since(viewer.heard) >= self.config.silence;
        self.viewers().filter(is_silent).map(|viewer| viewer.contact.client).collect()
    }

    /// The end of a period of reports: what viewers are believed to bear changes.
    pub fn review(&mut self, now: Time) {
        for slot in 1..self.viewers.len() {
            let Some(viewer) = &mut self.viewers[slot] else { continue };
            let node = viewer.node;
            let (places, held) = self.book.places(node);
            if viewer.contribution.review(now, places, held) {
                self.recount(node);
            }
        }
    }

    /// Makes one tree a little better.
    pub fn improve(&mut self) {
        self.book.step(&self.latencies, STEP_WORK, &mut self.changes);
        self.note_changes();
    }

    /// The round trip between the server and a viewer is known better.
    pub fn set_round_trip(&mut self, client: ClientId, round_trip: Duration) {
        if let Some(&slot) = self.slots.get(&client) {
            self.latencies.server[slot] = Some(round_trip / 2);
        }
    }

    fn note_changes(&mut self) {
        for change in self.changes.drain(..) {
            let slice = change.slice as u8;
            self.parent_changes += u64::from(change.from.is_some() && change.to.is_some());
            if let Some(viewer) = self.viewers.get_mut(change.child.slot()).and_then(Option::as_mut) {
                viewer.new_parents.insert(slice);
            }
            for parent in [change.from, change.to].into_iter().flatten() {
                if parent == NodeId::SERVER {
                    self.server_children.insert(slice);
                } else if let Some(viewer) = self.viewers.get_mut(parent.slot()).and_then(Option::as_mut) {
                    viewer.new_children.insert(slice);
                }
            }
        }
    }

    /// The slices whose children of the server have changed since the last call, with all of them.
    pub fn server_children(&mut self) -> Vec<Children> {
        let changed = std::mem::take(&mut self.server_children);
        changed.iter().map(|slice| self.children(slice, NodeId::SERVER)).collect()
    }

    /// What viewers have not been told yet of their places in the trees: to which session what goes.
    pub fn assignments(&mut self) -> Vec<(SessionId, Assignment<A>)> {
        let mut assignments = Vec::new();
        for slot in 1..self.viewers.len() {
            let Some(viewer) = &mut self.viewers[slot] else { continue };
            let new_parents = std::mem::take(&mut viewer.new_parents);
            let new_children = std::mem::take(&mut viewer.new_children);
            let has_new_places = std::mem::take(&mut viewer.has_new_places);
            if new_parents.is_empty() && new_children.is_empty() && !has_new_places {
                continue;
            }
            let (session, node) = (viewer.session, viewer.node);
            let assignment = Assignment {
                parents: new_parents.iter().filter_map(|slice| self.parent(slice, node)).collect(),
                children: new_children.iter().map(|slice| self.children(slice, node)).collect(),
                places: self.book.places(node).0.min(usize::from(u16::MAX)) as u16,
            };
            assignments.push((session, assignment));
        }
        assignments
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
        Children { slice, children: children.collect() }
    }
}

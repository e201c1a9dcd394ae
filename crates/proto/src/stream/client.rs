//! Somebody who watches, and passes on what it watches.
//!
//! ```text
//! source --> server --push--> parents --push--> this client --push--> children
//!               |                                  |   ^
//!               +--- welcome, places in trees -----+   +-- asked for, from neighbours
//!                    reports, silence
//! ```
//!
//! The parts that decide are beside this file: [`receiving`](super::receiving) what is genuine,
//! [`buffer`](super::buffer) what players get, [`feeds`](super::feeds) who pushes to this client,
//! [`pushing`](super::pushing) to whom it pushes, [`uplink`](super::uplink) what leaves first.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::buffer::{BufferConfig, Release};
use super::content::{ClientId, Content, Manifest, Ticket};
use super::feeds::{Feed, Feeds, Step};
use super::mesh::{ANSWERED_WITHIN, MAP_PERIOD, MAP_PERIOD_BESIDE_TREES, MOST_SOUGHT, Mesh};
use super::message::{
    Assignment, Contact, Datagram, MAX_WANTED, MOST_MANIFESTS_AT_ONCE, Message, ParentReport, Report, SilentFeed,
    StreamInfo, Welcome,
};
use super::packet::{MAX_SLICES, PacketId, SliceSet};
use super::peers::{GREETING_TIME, Peers};
use super::pushing::Pushing;
use super::receiving::{Arrived, Receiving, Verdict};
use super::uplink::{Next, Uplink};
use crate::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions};

/// How often a client looks for silent slices, and for what else time brings.
const TICK: Duration = Duration::from_millis(50);

/// How often it reports to the server: each report is a sign of life as well.
pub const REPORT_PERIOD: Duration = Duration::from_millis(1000);

/// How long until a client whose server could not be reached, or had no room, tries again.
const RETRY: Duration = Duration::from_millis(2000);

/// How often what is missing is sought.
const ROUND: Duration = Duration::from_millis(100);

/// What should be pushed and is silent is sought when others have had it for so long.
const PULL_AFTER: Duration = Duration::from_millis(300);

/// A session that nobody uses is closed after this: a parent that was left, a backup.
const UNUSED_STAY: Duration = Duration::from_millis(30000);

/// The most sessions of a client.
pub const MOST_SESSIONS: usize = 512;

/// What somebody must know to watch.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig<A> {
    /// Where the server is.
    pub server: A,
    /// Its key, which is the stream's.
    pub source: PeerKey,
    /// What this client believes that it can send.
    pub upload: Rate,
    /// When missing packets are given up.
    pub buffer: BufferConfig,
}

/// What a client tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent<P> {
    /// The server has let it in.
    Welcomed(StreamInfo),
    /// The server has no room for another; it tries again.
    Overloaded,
    /// The server is not reached, or has ended the session; it tries again.
    Unreachable,
    /// This goes to the players.
    Release(Release<P>),
    /// Nothing came of a slice.
    Silent(SilentFeed),
    /// A peer sent what is not the source's.
    Forged(Option<ClientId>),
}

/// What a client that was let in has.
#[derive(Clone, Debug)]
struct Watching<A, C: Content> {
    info: StreamInfo,
    ticket: Ticket<C>,
    receiving: Receiving<C>,
    feeds: Feeds<A>,
    pushing: Pushing,
    mesh: Mesh,
    /// Of each slice, the packet up to which its feed had pushed at the last tick.
    pushed: Vec<PacketId>,
    next_map: Time,
    next_round: Time,
    /// When missing manifests may be asked for again.
    next_question: Time,
    next_report: Time,
}

/// One viewer.
#[derive(Clone, Debug)]
pub struct Client<A, C: Content> {
    config: ClientConfig<A>,
    server: Option<SessionId>,
    peers: Peers<A>,
    watching: Option<Watching<A, C>>,
    uplink: Uplink<C>,
    played: u64,
    skipped: u64,
    next_tick: Time,
    retry_at: Time,
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Client<A, C> {
    /// A client that asks to be let in at its first timer.
    pub fn new(config: ClientConfig<A>) -> Client<A, C> {
        Client {
            config,
            server: None,
            peers: Peers::default(),
            watching: None,
            uplink: Uplink::default(),
            played: 0,
            skipped: 0,
            next_tick: Time::ZERO,
            retry_at: Time::ZERO,
        }
    }

    /// Its number; none before the server has let it in.
    pub fn id(&self) -> Option<ClientId> {
        self.watching.as_ref().map(|watching| watching.ticket.client)
    }

    /// Where `slice` comes from.
    pub fn feed(&self, slice: u8) -> Feed {
        self.watching.as_ref().map_or(Feed::None, |watching| watching.feeds.feed(slice))
    }

    /// The packet after the last of `slice` that was pushed to it.
    pub fn pushed(&self, slice: u8) -> PacketId {
        self.watching.as_ref().map_or(PacketId(0), |watching| watching.feeds.pushed(slice))
    }

    /// How many children it pushes to, over all slices.
    pub fn children(&self) -> usize {
        self.watching.as_ref().map_or(0, |watching| watching.pushing.held())
    }

    /// Packets that have gone to players.
    pub fn played(&self) -> u64 {
        self.played
    }

    /// Packets that players miss.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// What it holds of the stream.
    pub fn receiving(&self) -> Option<&Receiving<C>> {
        self.watching.as_ref().map(|watching| &watching.receiving)
    }

    fn on_welcome(&mut self, now: Time, welcome: Welcome<C>, sessions: &mut impl Sessions<Self>) {
        let Welcome { stream: info, ticket } = welcome;
        let slices = info.slices.clamp(1, MAX_SLICES);
        let info = StreamInfo { slices, ..info };
        match &mut self.watching {
            // Let in again: what is here stays.
            Some(watching) if watching.info.slices == slices => (watching.info, watching.ticket) = (info, ticket),
            _ => {
                self.watching = Some(Watching {
                    info,
                    ticket,
                    receiving: Receiving::new(self.config.source, self.config.buffer, info.begin),
                    feeds: Feeds::new(slices, now, info.begin),
                    pushing: Pushing::new(slices),
                    mesh: Mesh::default(),
                    pushed: vec![info.begin; usize::from(slices)],
                    next_map: now,
                    next_round: now,
                    next_question: now,
                    next_report: now + REPORT_PERIOD,
                });
            }
        }
        sessions.event(ClientEvent::Welcomed(info));
    }

    fn on_assignment(&mut self, now: Time, assignment: Assignment<A>, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &mut self.watching else { return };
        watching.pushing.set_places(usize::from(assignment.places));
        for children in assignment.children {
            watching.pushing.on_assigned(now, children.slice, children.children);
        }
        let mut steps = Vec::new();
        for parent in &assignment.parents {
            watching.feeds.on_parent(now, parent, |step| steps.push(step));
        }
        self.follow(now, steps, sessions);
    }

    /// Does what the feeds have decided.
    fn follow(&mut self, now: Time, steps: Vec<Step<A>>, sessions: &mut impl Sessions<Self>) {
        let (mut silent, mut missed) = (Vec::new(), SliceSet::default());
        for step in steps {
            match step {
                Step::Ask(slice, contact) => {
                    if let Some(session) = self.reach(now, &contact, sessions) {
                        self.subscribe(slice, session, sessions);
                    }
                }
                Step::AskServer(slice) => {
                    if let Some(server) = self.server {
                        self.subscribe(slice, server, sessions);
                    }
                }
                Step::Leave(slice, session) => {
                    sessions.send(session, Message::Unsubscribe(SliceSet(1 << slice)));
                }
                Step::TellChildren(slice) => missed.insert(slice),
                Step::Silent(feed) => {
                    silent.push(feed);
                    sessions.event(ClientEvent::Silent(feed));
                }
            }
        }
        if let Some(server) = self.server
            && !silent.is_empty()
        {
            sessions.send(server, Message::Silent(silent));
        }
        self.tell_children(missed, sessions);
    }

    /// Those below wait for this client to mend it, and stay.
    fn tell_children(&self, missed: SliceSet, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &self.watching else { return };
        let mut stalled: BTreeMap<SessionId, SliceSet> = BTreeMap::new();
        for slice in missed.iter() {
            for child in watching.pushing.children(slice) {
                stalled.entry(child).or_default().insert(slice);
            }
        }
        for (child, slices) in stalled {
            sessions.send(child, Message::Stalled(slices));
        }
    }

    fn subscribe(&mut self, slice: u8, session: SessionId, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &mut self.watching else { return };
        let from = watching.feeds.set_session(slice, session);
        sessions.send(session, Message::Subscribe { slices: SliceSet(1 << slice), from });
    }

    /// The session with another client, which begins if there is none.
    fn reach(&mut self, now: Time, contact: &Contact<A>, sessions: &mut impl Sessions<Self>) -> Option<SessionId> {
        if let Some(session) = self.peers.session_of(contact.client) {
            return Some(session);
        }
        let ticket = self.watching.as_ref()?.ticket.clone();
        let session = sessions.open(contact.address, Some(contact.key))?;
        self.peers.begin(now, session, Some(contact.client));
        sessions.send(session, Message::Greet(Box::new(ticket)));
        Some(session)
    }

    /// Whether `session` leads to the server, or to somebody who is one of its clients.
    fn is_proved(&self, session: SessionId) -> bool {
        Some(session) == self.server || self.peers.get(session).is_some_and(|peer| peer.client.is_some())
    }

    fn on_greeting(&mut self, now: Time, session: SessionId, ticket: Ticket<C>, sessions: &mut impl Sessions<Self>) {
        let has_key = |peer: &super::peers::Peer<A>| peer.remote.is_some_and(|remote| remote.key == ticket.key);
        let is_its = self.peers.get(session).is_some_and(has_key);
        // Before the first packet nobody knows the stream's time.
        let time = self.watching.as_ref().and_then(|watching| watching.receiving.clock().stamp(now));
        let is_good = time.is_none_or(|time| ticket.expires >= time);
        if is_its && is_good && C::is_ticket(&self.config.source, &ticket) {
            self.peers.on_proved(session, ticket.client);
        } else {
            self.end(session, sessions);
        }
    }

    fn end(&mut self, session: SessionId, sessions: &mut impl Sessions<Self>) {
        sessions.close(session);
        self.forget(session);
    }

    fn forget(&mut self, session: SessionId) {
        self.peers.end(session);
        self.uplink.forget(session);
        if let Some(watching) = &mut self.watching {
            watching.pushing.forget(session);
            watching.feeds.forget(session);
            watching.receiving.forget(session);
            watching.mesh.forget(session);
        }
    }

    fn on_packet(&mut self, now: Time, arrived: Arrived<C::Packet>, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &mut self.watching else { return };
        let (from, id) = (arrived.from, arrived.id);
        let slice = id.slice(watching.info.slices);
        match watching.receiving.on_packet(now, arrived) {
            Verdict::New | Verdict::Late => {
                watching.mesh.on_packet(id);
                for child in watching.pushing.children(slice) {
                    if child != from {
                        self.uplink.push(child, id);
                    }
                }
            }
            Verdict::Copy => {}
            // Who sends it is there, whatever it is worth.
            Verdict::Unproven => return watching.feeds.on_unproven(now, slice, from),
            Verdict::Ignored => return,
            Verdict::Forged => return self.on_forged(from, sessions),
        }
        if let Some(peer) = self.peers.get_mut(from) {
            peer.used = now;
        }
        let mut left = None;
        watching.feeds.on_packet(now, slice, from, id, |step| left = Some(step));
        if let Some(step) = left {
            self.follow(now, vec![step], sessions);
        }
        self.release(now, sessions);
    }

    fn on_forged(&mut self, from: SessionId, sessions: &mut impl Sessions<Self>) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        peer.forged = peer.forged.saturating_add(1);
        sessions.event(ClientEvent::Forged(peer.client));
    }

    fn on_manifest(
        &mut self,
        now: Time,
        from: SessionId,
        manifest: Arc<Manifest<C>>,
        sessions: &mut impl Sessions<Self>,
    ) {
        let Some(watching) = &mut self.watching else { return };
        match watching.receiving.on_manifest(Arc::clone(&manifest)) {
            None => return self.on_forged(from, sessions),
            Some(false) => return,
            Some(true) => {}
        }
        for slice in manifest_slices(manifest.generation, watching.info.slices) {
            for child in watching.pushing.children(slice) {
                if child != from {
                    self.uplink.tell(child, Datagram::Manifest(Arc::clone(&manifest)));
                }
            }
        }
        while let Some(arrived) = self.watching.as_mut().and_then(|watching| watching.receiving.next_proven()) {
            self.on_packet(now, arrived, sessions);
        }
    }

    fn release(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &mut self.watching else { return };
        while let Some(release) = watching.receiving.release(now) {
            match &release {
                Release::Packet(..) => self.played += 1,
                Release::Skipped(_, count) => self.skipped += count,
            }
            sessions.event(ClientEvent::Release(release));
        }
    }

    fn tick(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        self.next_tick = now + TICK;
        let Some(watching) = &mut self.watching else { return };
        let mut steps = Vec::new();
        if watching.info.mode.has_trees() {
            watching.feeds.watch(now, watching.receiving.announced(), |step| steps.push(step));
        }
        let mut full: Vec<(SessionId, u8)> = Vec::new();
        watching.pushing.drop_unassigned(now, |session, slice| full.push((session, slice)));
        for (session, slice) in full {
            sessions.send(session, Message::Full(SliceSet(1 << slice)));
        }
        if now >= watching.next_question {
            for (from, first, last) in watching.receiving.missing_manifests() {
                watching.next_question = now + ROUND;
                self.uplink.tell(from, Datagram::WantManifests(first, last));
            }
        }
        if watching.info.mode.has_mesh() {
            self.trade(now);
        }
        self.follow(now, steps, sessions);
        self.close_unused(now, sessions);
        self.report(now, sessions);
    }

    /// Tells neighbours what is here, and asks for what is missing.
    fn trade(&mut self, now: Time) {
        let Some(Watching { info, receiving, feeds, mesh, pushed, next_map, next_round, .. }) = &mut self.watching
        else {
            return;
        };
        // A neighbour may say that it has what will never be.
        let end = mesh.end().max(receiving.announced()).min(receiving.buffer().most_end());
        mesh.note_end(now, end);
        mesh.give_up(now, receiving.buffer().next());
        if now >= *next_map {
            *next_map = now + if info.mode.has_trees() { MAP_PERIOD_BESIDE_TREES } else { MAP_PERIOD };
            // What is older, nobody waits for any more.
            let from = mesh.end_before(now, self.config.buffer.patience).unwrap_or_default();
            let map = Arc::new(receiving.buffer().map(from));
            for session in mesh.sessions() {
                self.uplink.tell(session, Datagram::Have(Arc::clone(&map)));
            }
        }
        if now < *next_round {
            return;
        }
        *next_round = now + ROUND;
        // Of a slice that is pushed, what its feed has left out; of one that is not, what others have.
        let silent = if info.mode.has_trees() { feeds.silent(end) } else { SliceSet(u64::MAX) };
        let unpushed_end = if info.mode.has_trees() { mesh.end_before(now, PULL_AFTER).unwrap_or(end) } else { end };
        let is_sought = |id: &PacketId| {
            let slice = id.slice(info.slices);
            *id < pushed[usize::from(slice)] || silent.contains(slice) && *id < unpushed_end
        };
        let sought: Vec<PacketId> = receiving.buffer().missing(end).filter(is_sought).take(MOST_SOUGHT).collect();
        for (slice, pushed) in (0..).zip(pushed.iter_mut()) {
            *pushed = feeds.pushed(slice);
        }
        if sought.is_empty() {
            return;
        }
        let uplink = &mut self.uplink;
        // What is nearly too late, nobody but the server is sure to have.
        let urgent_end = mesh.end_before(now, self.config.buffer.patience / 3 * 2);
        if let (Some(server), Some(urgent_end)) = (self.server, urgent_end) {
            let is_urgent = |id: &&PacketId| **id < urgent_end && !mesh.is_asked(**id);
            let urgent: Vec<PacketId> = sought.iter().filter(is_urgent).copied().take(MAX_WANTED).collect();
            for &id in &urgent {
                mesh.note_asked(now, server, id);
            }
            if !urgent.is_empty() {
                uplink.tell(server, Datagram::Want(urgent.into()));
            }
        }
        mesh.ask(now, &sought, |session, ids| uplink.tell(session, Datagram::Want(ids.into())));
    }

    fn on_neighbours(&mut self, now: Time, contacts: &[Contact<A>], sessions: &mut impl Sessions<Self>) {
        for contact in contacts {
            let Some(session) = self.reach(now, contact, sessions) else { continue };
            let (Some(peer), Some(watching)) = (self.peers.get_mut(session), &mut self.watching) else { return };
            if peer.remote.is_some() {
                watching.mesh.add(session);
            } else {
                peer.is_wanted = true;
            }
        }
    }

    /// Ends sessions with those who have not said who they are, and those that serve nobody.
    fn close_unused(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &self.watching else { return };
        let is_unused = |(session, peer): &(SessionId, &super::peers::Peer<A>)| {
            let is_stranger = peer.client.is_none() && now >= peer.used + GREETING_TIME;
            let is_used = || watching.feeds.uses(*session) || watching.mesh.contains(*session);
            let is_idle = || now >= peer.used + UNUSED_STAY && !is_used();
            Some(*session) != self.server && (is_stranger || is_idle())
        };
        let unused: Vec<SessionId> = self.peers.iter().filter(is_unused).map(|(session, _)| session).collect();
        for session in unused {
            self.end(session, sessions);
        }
    }

    fn report(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let (Some(watching), Some(server)) = (&mut self.watching, self.server) else { return };
        if now < watching.next_report {
            return;
        }
        watching.next_report = now + REPORT_PERIOD;
        let mut parents: Vec<ParentReport> = Vec::new();
        watching.feeds.take_counts(|parent, expected, received| {
            match parents.iter_mut().find(|report| report.parent == parent) {
                Some(report) => {
                    report.expected = report.expected.saturating_add(expected);
                    report.received = report.received.saturating_add(received);
                }
                None => parents.push(ParentReport { parent, expected, received, forged: 0 }),
            }
        });
        for (_, peer) in self.peers.iter_mut() {
            let forged = std::mem::take(&mut peer.forged);
            let Some(parent) = peer.client.filter(|_| forged > 0) else { continue };
            match parents.iter_mut().find(|report| report.parent == parent) {
                Some(report) => report.forged = forged,
                None => parents.push(ParentReport { parent, expected: 0, received: 0, forged }),
            }
        }
        let neighbours = watching.mesh.len() as u8;
        let report = Report { played: self.played, skipped: self.skipped, neighbours, parents, ..Report::default() };
        sessions.send(server, Message::Report(Box::new(report)));
    }

    /// Nothing can be had from the server: a new attempt, later.
    fn on_server_lost(&mut self, now: Time) {
        self.server = None;
        self.retry_at = now + RETRY;
    }
}

/// The slices down whose trees the manifest of `generation` goes: two, so that it comes where one parent
/// is gone, and others each time, so that each pair of parents is at work.
pub fn manifest_slices(generation: u32, slices: u8) -> impl Iterator<Item = u8> {
    let first = (generation % u32::from(slices)) as u8;
    let second = (first + slices / 2) % slices;
    [Some(first), (second != first).then_some(second)].into_iter().flatten()
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Application for Client<A, C> {
    type Address = A;
    type Message = Message<A, C>;
    type Datagram = Datagram<C>;
    type Event = ClientEvent<C::Packet>;

    fn accepts(&mut self, _now: Time, _remote: &Remote<A>) -> bool {
        self.watching.is_some() && self.peers.len() < MOST_SESSIONS
    }

    fn on_open(&mut self, now: Time, session: SessionId, remote: &Remote<A>, sessions: &mut impl Sessions<Self>) {
        if Some(session) == self.server {
            sessions.send(session, Message::Join { upload: self.config.upload });
        } else if !remote.is_initiator {
            if let (Some(peer), Some(watching)) = (self.peers.get_mut(session), &mut self.watching) {
                peer.remote = Some(*remote);
                if peer.is_wanted {
                    watching.mesh.add(session);
                }
            }
            return;
        }
        let peer = self.peers.begin(now, session, None);
        peer.remote = Some(*remote);
        if Some(session) != self.server
            && let Some(watching) = &self.watching
        {
            sessions.send(session, Message::Greet(Box::new(watching.ticket.clone())));
        }
    }

    fn on_message(
        &mut self,
        now: Time,
        session: SessionId,
        message: Message<A, C>,
        sessions: &mut impl Sessions<Self>,
    ) {
        let is_server = Some(session) == self.server;
        // A stranger has no more time to say who it is, whatever else it says.
        if self.is_proved(session)
            && let Some(peer) = self.peers.get_mut(session)
        {
            peer.used = now;
        }
        match message {
            Message::Welcome(welcome) if is_server => self.on_welcome(now, *welcome, sessions),
            Message::Overloaded if is_server => {
                sessions.event(ClientEvent::Overloaded);
                self.end(session, sessions);
                self.on_server_lost(now);
            }
            Message::Ticket(ticket) if is_server => {
                if let Some(watching) = &mut self.watching {
                    watching.ticket = *ticket;
                }
            }
            Message::Ping if is_server => sessions.send(session, Message::Pong),
            Message::Neighbours(contacts) if is_server => self.on_neighbours(now, &contacts, sessions),
            Message::Assign(assignment) if is_server => self.on_assignment(now, *assignment, sessions),
            Message::Greet(ticket) => self.on_greeting(now, session, *ticket, sessions),
            Message::Subscribe { slices, from } => {
                let client = self.peers.get(session).and_then(|peer| peer.client);
                let Some((watching, client)) = self.watching.as_mut().zip(client) else { return };
                let refused = watching.pushing.on_subscribe(now, session, client, slices);
                let behind = watching.receiving.buffer().of_slices(slices.without(refused), watching.info.slices, from);
                self.uplink.ask(session, behind, now + self.config.buffer.patience, 0);
                if !refused.is_empty() {
                    sessions.send(session, Message::Full(refused));
                }
            }
            Message::Unsubscribe(slices) => {
                if let Some(watching) = &mut self.watching {
                    watching.pushing.on_unsubscribe(session, slices);
                }
            }
            Message::Full(slices) => self.on_refused(now, session, slices, sessions),
            Message::Stalled(slices) => {
                if let Some(watching) = &mut self.watching {
                    watching.feeds.on_stalled(now, session, slices);
                }
            }
            _ => {}
        }
    }

    fn on_datagram(
        &mut self,
        now: Time,
        session: SessionId,
        datagram: Datagram<C>,
        sessions: &mut impl Sessions<Self>,
    ) {
        // Who has not shown a ticket gets nothing, and is believed nothing.
        if !self.is_proved(session) {
            return;
        }
        match datagram {
            Datagram::Packet { id, stamp, packet } => {
                self.on_packet(now, Arrived { from: session, id, stamp, packet }, sessions);
            }
            Datagram::Manifest(manifest) => self.on_manifest(now, session, manifest, sessions),
            Datagram::WantManifests(first, last) => {
                let Some(watching) = &self.watching else { return };
                for manifest in watching.receiving.manifests(first, last).take(MOST_MANIFESTS_AT_ONCE) {
                    self.uplink.tell(session, Datagram::Manifest(Arc::clone(manifest)));
                }
            }
            Datagram::Have(map) => {
                if let Some(watching) = &mut self.watching
                    && watching.mesh.add(session)
                {
                    watching.mesh.on_map(session, map);
                }
            }
            Datagram::Want(ids) => {
                let has = self.watching.as_ref().and_then(|watching| watching.mesh.has(session)).unwrap_or(0);
                self.uplink.ask(session, ids.iter().copied(), now + ANSWERED_WITHIN, has);
            }
        }
    }

    fn on_closed(&mut self, now: Time, session: SessionId, _why: Closed, sessions: &mut impl Sessions<Self>) {
        if Some(session) == self.server {
            sessions.event(ClientEvent::Unreachable);
            self.on_server_lost(now);
        }
        self.on_refused(now, session, SliceSet(u64::MAX), sessions);
        self.forget(session);
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        if self.server.is_none() && now >= self.retry_at {
            self.retry_at = now + RETRY;
            self.server = sessions.open(self.config.server, Some(self.config.source));
            if let Some(server) = self.server {
                self.peers.begin(now, server, None);
            }
        }
        if now >= self.next_tick {
            self.tick(now, sessions);
        }
        self.release(now, sessions);
    }

    fn timer(&self, now: Time) -> Time {
        let retry = if self.server.is_none() { self.retry_at } else { Time::MAX };
        let release = self.watching.as_ref().map_or(Time::MAX, |watching| {
            let receiving = &watching.receiving;
            receiving.buffer().release_at(now, receiving.clock())
        });
        let tick = if self.watching.is_some() { self.next_tick } else { Time::MAX };
        retry.min(release).min(tick)
    }

    fn next_datagram(&mut self, now: Time) -> Option<(SessionId, Datagram<C>)> {
        let receiving = self.watching.as_ref().map(|watching| &watching.receiving);
        loop {
            let (to, next) = self.uplink.pop(now)?;
            let (id, is_push) = match next {
                Next::Ready(datagram) => return Some((to, datagram)),
                Next::Push(id) => (id, true),
                Next::Reply(id) => (id, false),
            };
            let Some(receiving) = receiving else { continue };
            let Some((stamp, packet)) = receiving.buffer().get(id) else { continue };
            // Nobody can use any more what has waited so long.
            if is_push && receiving.clock().age(now, stamp) >= self.config.buffer.patience {
                continue;
            }
            return Some((to, Datagram::Packet { id, stamp, packet: packet.clone() }));
        }
    }
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Client<A, C> {
    /// Who was asked for `slices` has no room, or is gone.
    fn on_refused(&mut self, now: Time, from: SessionId, slices: SliceSet, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &mut self.watching else { return };
        let mut steps = Vec::new();
        watching.feeds.on_refused(now, from, slices, |step| steps.push(step));
        self.follow(now, steps, sessions);
    }
}

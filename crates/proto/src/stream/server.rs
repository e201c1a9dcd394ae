//! The server: the root of all trees and the only one who knows them.

mod admission;
mod callers;
mod control_traffic;
mod departures;
mod distribution;
mod networks;
mod survey;
mod views;

use std::collections::VecDeque;
use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;

use self::callers::Callers;
use self::control_traffic::{ControlTraffic, MOST_OF_TREES, MOST_WHILE_BEHIND};
pub use self::networks::MOST_OF_NETWORK;
use self::views::OverlayViews;
use super::answers::Answers;
use super::beginning::Beginnings;
use super::buffer::{Buffer, BufferConfig};
use super::chains::Monitoring;
use super::content::{Broadcast, ClientId, Content, Manifest, TICKET_LIFE};
use super::enabler::{Advice, Enabler, EnablerConfig};
use super::exploration::{Exploration, ExplorationConfig, Explorations};
use super::feeds::SILENCE;
use super::gossip::Mean;
use super::mesh::ANSWERED_WITHIN;
use super::message::{Datagram, MOST_MANIFESTS_AT_ONCE, Message, Mode, Report};
use super::overlay::{OverlayView, ServerLoad};
use super::packet::PacketId;
use super::peers::{GREETING_TIME, Peers};
use super::pushing::{Pushing, Subscription};
use super::serving::{next_datagram, subscribe};
use super::source::Source;
use super::tracker::{Refusal, Tracker, TrackerConfig};
use super::uplink::Uplink;
use crate::network::{Address, Network};
use crate::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions, WireLength};

/// How often a tree is made better, assignments leave, and silent viewers are looked for.
const TICK: Duration = Duration::from_millis(50);

/// How often what viewers bear is looked at: as often as they report.
const REVIEW_PERIOD: Duration = super::client::REPORT_PERIOD;

/// What others ask for leaves behind what newcomers begin with: they count as having this many packets.
const NO_NEWCOMER: u32 = 1 << 16;

/// How a stream is served.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// Which broadcast of its key it is.
    pub broadcast: Broadcast,
    /// How it travels.
    pub mode: Mode,
    /// Trees, and who may watch.
    pub tracker: TrackerConfig,
    /// The most viewers of one network.
    pub most_of_network: usize,
    /// How far behind the newest packet a viewer begins that is sent the past.
    pub begin_behind: Duration,
    /// Packets that are kept, and when they are not sent any more.
    pub buffer: BufferConfig,
    /// How viewers are explored whom trees reach; not at all if nothing is said.
    pub exploration: Option<ExplorationConfig>,
    /// How much the server sends where a mesh alone carries the stream, by what gossip finds; always the
    /// tracker's upload if nothing is said.
    pub helper: Option<EnablerConfig>,
}

/// What a server tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// Somebody watches.
    Joined(ClientId),
    /// Somebody could not.
    Refused(Refusal),
    /// Somebody watches no more; whether because nothing was heard of it.
    Left(ClientId, bool),
    /// Most of its children got forged packets from it: it may not come back.
    Excluded(ClientId),
    /// There is not enough for all, and it passes nothing on or gets nothing: it may come back later.
    LeftOut(ClientId),
}

/// One stream's server.
#[derive(Clone, Debug)]
pub struct Server<A, C: Content> {
    config: ServerConfig,
    network_of: fn(A) -> Network,
    source: Source<C>,
    tracker: Tracker<A>,
    peers: Peers<A>,
    pushing: Pushing,
    uplink: Uplink<C>,
    control: ControlTraffic,
    kept: Buffer<C::Packet>,
    /// Of what is kept, in order.
    manifests: VecDeque<Arc<Manifest<C>>>,
    /// Where a mesh alone carries the stream: who gets each packet first whose manifest has left, in order, and the
    /// next viewer to get one.
    seeds: VecDeque<Vec<ClientId>>,
    next_seed: usize,
    callers: Callers,
    /// Keys of those who may not come back.
    excluded: VecDeque<PeerKey>,
    answers: Box<Answers>,
    beginnings: Beginnings,
    exploration: Option<Box<Exploration>>,
    monitoring: Monitoring,
    enabler: Option<Box<Enabler>>,
    views: Box<OverlayViews>,
    rng: Rng,
    next_tick: Time,
    next_review: Time,
    next_tickets: Time,
}

impl<A: Address, C: Content> Server<A, C> {
    /// Serves a stream that begins at `start`, signed with `secret`; neighbours are chosen by `rng`.
    pub fn new(config: ServerConfig, secret: C::Secret, start: Time, rng: Rng) -> Server<A, C> {
        let mut pushing = Pushing::new(config.tracker.slices);
        // Who is not assigned to the server gets nothing from it.
        pushing.set_places(0);
        let enabler = config.helper.map(|helper| Box::new(Enabler::new(helper)));
        let exploration = config.exploration.filter(|_| config.mode.has_trees());
        let mut tracker = Tracker::new(config.tracker);
        let upload = enabler.as_ref().map_or(config.tracker.upload, |enabler| enabler.helper());
        tracker.set_upload(upload);
        if !config.mode.has_trees() {
            tracker.set_mesh_alone();
        }
        Server {
            network_of: A::network,
            source: Source::new(
                secret,
                config.broadcast,
                start,
                config.mode.manifest_lead(),
                config.mode.packet_spread(),
            ),
            tracker,
            exploration: exploration.map(|config| Box::new(Exploration::new(config, rng.clone()))),
            monitoring: Monitoring::new(0),
            enabler,
            peers: Peers::default(),
            pushing,
            uplink: Uplink::new(upload),
            control: ControlTraffic::default(),
            kept: Buffer::new(config.buffer, PacketId(0)),
            manifests: VecDeque::new(),
            seeds: VecDeque::new(),
            next_seed: 0,
            callers: Callers::default(),
            excluded: VecDeque::new(),
            answers: Box::default(),
            beginnings: Beginnings::default(),
            views: Box::default(),
            rng,
            next_tick: start,
            next_review: start + REVIEW_PERIOD,
            next_tickets: start + TICKET_LIFE / 2,
            config,
        }
    }

    /// The server feeds every viewer itself from now on, and names none to another; call it before the first
    /// comes.
    pub fn set_private(&mut self) {
        self.tracker.set_private();
    }

    /// What the server has sent by now: pages are told.
    pub fn set_load(&mut self, load: ServerLoad) {
        self.views.load = load;
    }

    /// How all fare.
    pub fn overlay(&self, now: Time) -> OverlayView {
        self.views.view(now, &self.tracker, self.source.edge(), None)
    }

    /// Hosts of a simulation are in these networks from now on.
    #[doc(hidden)]
    pub fn set_networks(&mut self, network_of: fn(A) -> Network) {
        self.network_of = network_of;
    }

    /// Counts a child too many in the trees: a bug that tests of the check plant.
    #[doc(hidden)]
    pub fn miscount(&mut self) {
        self.tracker.miscount();
    }

    /// Who watches, and the trees.
    pub fn tracker(&self) -> &Tracker<A> {
        &self.tracker
    }

    /// Where the stream begins.
    pub fn source(&self) -> &Source<C> {
        &self.source
    }

    /// How the stream travels.
    pub fn mode(&self) -> Mode {
        self.config.mode
    }

    /// How many slices it has.
    pub fn slices(&self) -> u8 {
        self.config.tracker.slices
    }

    /// What has become of exploration packets; none where nothing is explored.
    pub fn explorations(&self) -> Option<Explorations> {
        self.exploration.as_ref().map(|exploration| exploration.counts())
    }

    /// What gossip has shown; none before the end of the first epoch.
    pub fn monitored(&self) -> Option<Mean> {
        self.monitoring.gossip().mean()
    }

    /// The helper's last step; none where the server helps by no law, or before the first epoch.
    pub fn advice(&self) -> Option<Advice> {
        self.enabler.as_ref().and_then(|enabler| enabler.last())
    }

    /// Children of the server, over all slices.
    pub fn children(&self) -> usize {
        self.pushing.held()
    }

    /// The stream goes on; `is_keyframe` if players can begin with this packet.
    pub fn on_input(&mut self, now: Time, packet: C::Packet, is_keyframe: bool) {
        self.source.on_packet(now, packet, is_keyframe);
        self.distribute(now);
    }

    /// Sends everybody what is new of its place in the trees.
    fn send_assignments(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let has_trees = self.config.mode.has_trees();
        if !has_trees && self.tracker.private_viewers().next().is_none() {
            return;
        }
        for mut children in self.tracker.server_children() {
            let is_fed = |client: &ClientId| has_trees || self.tracker.private_viewer(*client).is_some();
            children.children.retain(is_fed);
            self.pushing.on_assigned(now, children.slice, children.children);
        }
        for session in self.tracker.take_questions() {
            self.send(now, session, Message::Ping, sessions);
        }
        for (session, assignment) in self.tracker.private_assignments() {
            self.send(now, session, Message::Assign(Box::new(assignment)), sessions);
        }
        while has_trees
            && self.control.has_room(now, self.tracker.upload(), MOST_OF_TREES)
            && let Some((session, assignment)) = self.tracker.next_assignment()
        {
            let parents: Vec<ClientId> =
                assignment.parents.iter().filter_map(|parent| Some(parent.parent?.client)).collect();
            self.announce_caller(now, session, parents, sessions);
            self.send(now, session, Message::Assign(Box::new(assignment)), sessions);
        }
    }

    /// Whether pushes wait so long that viewers miss what has not left, while messages take much of the line.
    fn is_overrun(&self, now: Time) -> bool {
        self.uplink.waited(now) >= SILENCE && !self.control.has_room(now, self.tracker.upload(), MOST_WHILE_BEHIND)
    }

    /// Sends `message`, and counts what it takes.
    fn send(&mut self, now: Time, session: SessionId, message: Message<A, C>, sessions: &mut impl Sessions<Self>) {
        self.control.on_message(now, &message);
        sessions.send(session, message);
    }

    fn on_report(
        &mut self,
        now: Time,
        session: SessionId,
        client: ClientId,
        report: &Report,
        sessions: &mut impl Sessions<Self>,
    ) {
        if let Some(round_trip) = sessions.least_round_trip(session) {
            self.tracker.set_round_trip(client, round_trip);
        }
        self.tracker.on_report(now, client, report);
        self.views.on_report(client, report.played, self.source.edge());
        if self.cannot_be_served(now, client) {
            return self.send_away(now, client, Refusal::Overloaded, sessions);
        }
        if self.config.mode.has_mesh() {
            let neighbours = self.tracker.neighbours(client, usize::from(report.neighbours), &mut self.rng);
            if !neighbours.is_empty() {
                self.announce_caller(now, session, neighbours.iter().map(|contact| contact.client), sessions);
                self.send(now, session, Message::Neighbours(neighbours), sessions);
            }
        }
    }

    fn tick(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        self.next_tick = now + TICK;
        for client in self.tracker.silent(now) {
            if let Some(session) = self.peers.session_of(client) {
                sessions.close(session);
                self.forget(session);
            }
            self.remove(now, client, true, sessions);
        }
        let is_stranger = |peer: &super::peers::Peer<A>| peer.client.is_none() && now >= peer.used + GREETING_TIME;
        let strangers: Vec<SessionId> =
            self.peers.iter().filter(|(_, peer)| is_stranger(peer)).map(|(session, _)| session).collect();
        for session in strangers {
            sessions.close(session);
            self.forget(session);
        }
        self.tracker.give_up_suspects(now);
        self.tracker.place_orphans(now);
        let is_review = now >= self.next_review;
        if is_review {
            self.next_review = now + REVIEW_PERIOD;
            for (client, why) in self.tracker.review(now) {
                self.send_away(now, client, why, sessions);
            }
        }
        if now >= self.next_tickets {
            self.next_tickets = now + TICKET_LIFE / 2;
            let viewers: Vec<_> = self.tracker.viewers().map(|viewer| (viewer.session, viewer.contact)).collect();
            for (session, contact) in viewers {
                let ticket = self.ticket(now, contact.client, contact.key);
                self.send(now, session, Message::Ticket(Box::new(ticket)), sessions);
            }
        }
        if self.config.mode.has_trees() {
            self.tracker.improve(now);
        } else {
            self.monitor(now, sessions);
        }
        self.explore(now, is_review, sessions);
        self.pushing.drop_unassigned(now, |_, _| {});
        self.send_assignments(now, sessions);
        self.send_overlay_views(now, sessions);
        self.tracker.set_control(self.control.rate(now));
        self.uplink.set_rate(self.tracker.for_the_stream());
    }

    /// Sends those who look at pages how all fare.
    fn send_overlay_views(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        while let Some(client) = self.views.next(now, self.tracker.upload()) {
            let Some(session) = self.peers.session_of(client) else { continue };
            let view = self.views.view(now, &self.tracker, self.source.edge(), Some(client));
            let message = Message::Overlay(Box::new(view));
            self.views.on_sent(message.wire_length());
            self.send(now, session, message, sessions);
        }
    }
}

impl<A: Address, C: Content> Application for Server<A, C> {
    type Address = A;
    type Message = Message<A, C>;
    type Datagram = Datagram<C>;
    type Event = ServerEvent;

    fn accepts(&mut self, _now: Time, remote: &Remote<A>) -> bool {
        self.peers.len() < 2 * self.config.tracker.most_clients && self.has_room_for_session(remote.address)
    }

    fn on_open(&mut self, now: Time, session: SessionId, remote: &Remote<A>, _sessions: &mut impl Sessions<Self>) {
        self.control.on_session(now);
        self.peers.begin(now, session, None).remote = Some(*remote);
    }

    fn on_message(
        &mut self,
        now: Time,
        session: SessionId,
        message: Message<A, C>,
        sessions: &mut impl Sessions<Self>,
    ) {
        match message {
            Message::Join { upload } => return self.on_join(now, session, Some(upload), sessions),
            Message::JoinPrivately => return self.on_join(now, session, None, sessions),
            _ => {}
        }
        let Some(client) = self.peers.get(session).and_then(|peer| peer.client) else { return };
        self.tracker.on_heard(now, client);
        match message {
            Message::Report(report) => self.on_report(now, session, client, &report, sessions),
            // What has not left yet, nobody has: many who miss it would be moved, and be told so, for nothing.
            Message::Silent(_) if self.is_overrun(now) => {}
            Message::Silent(feeds) => {
                for feed in feeds {
                    self.tracker.on_silent(now, client, &feed);
                }
                self.send_assignments(now, sessions);
            }
            Message::Subscribe { slices, from } => {
                let until = now + self.config.buffer.patience;
                let asked = Subscription { session, client, slices, from };
                let refused = subscribe(now, asked, until, (&mut self.pushing, &mut self.uplink), &self.kept);
                if !refused.is_empty() {
                    self.send(now, session, Message::Full(refused), sessions);
                }
            }
            Message::Unsubscribe(slices) => self.pushing.on_unsubscribe(session, slices),
            Message::Explored(nonce) => {
                let round_trip = sessions.least_round_trip(session);
                if let Some(exploration) = &mut self.exploration {
                    exploration.on_ack(now, client, nonce, round_trip, self.tracker.explored_links());
                }
            }
            Message::WantOverlay => self.views.on_asked(client),
            Message::Unanswered(called) => self.on_unanswered(now, client, called, sessions),
            _ => {}
        }
    }

    fn on_datagram(
        &mut self,
        now: Time,
        session: SessionId,
        datagram: Datagram<C>,
        _sessions: &mut impl Sessions<Self>,
    ) {
        let Some(client) = self.peers.get(session).and_then(|peer| peer.client) else { return };
        let is_repaired = || self.config.mode.has_mesh() || self.tracker.private_viewer(client).is_some();
        match datagram {
            Datagram::WantManifests(first, last) => {
                let wanted = self.manifests.iter().filter(|manifest| manifest.end() > first && manifest.first <= last);
                let wanted: Vec<_> = wanted.take(MOST_MANIFESTS_AT_ONCE).map(Arc::clone).collect();
                let Some(peer) = self.peers.get_mut(session) else { return };
                let granted = peer.grant_manifests(now, wanted.len());
                for manifest in wanted.into_iter().take(granted) {
                    self.uplink.push_ahead(session, Datagram::Manifest(manifest));
                }
            }
            Datagram::Want(ids) if is_repaired() => {
                // Whom it feeds alone has no other to ask.
                let is_alone = self.tracker.private_viewer(client).is_some();
                let Server { answers, uplink, config, .. } = self;
                let is_granted = |id: &PacketId| is_alone || config.mode.has_trees() || answers.grant(now, *id);
                uplink.ask(now, session, ids.iter().copied().filter(is_granted), now + ANSWERED_WITHIN, NO_NEWCOMER);
            }
            Datagram::Mass(epoch, mass) => self.monitoring.on_mass(epoch, mass),
            _ => {}
        }
    }

    fn on_silent(&mut self, _now: Time, session: SessionId, is_silent: bool, _sessions: &mut impl Sessions<Self>) {
        self.pushing.set_silent(session, is_silent);
        if let Some(client) = self.peers.get(session).and_then(|peer| peer.client) {
            self.tracker.set_unanswering(client, is_silent);
        }
    }

    fn on_closed(&mut self, now: Time, session: SessionId, _why: Closed, sessions: &mut impl Sessions<Self>) {
        if let Some(client) = self.forget(session) {
            self.remove(now, client, false, sessions);
        }
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        self.distribute(now);
        self.uplink.on_timer(now);
        if now >= self.next_tick {
            self.tick(now, sessions);
        }
        self.depart(now, sessions);
    }

    fn timer(&self, _now: Time) -> Time {
        let explores = self.exploration.as_ref().map_or(Time::MAX, |exploration| exploration.due());
        self.source.due().min(self.next_tick).min(explores).min(self.uplink.timer())
    }

    fn waiting(&self) -> Bytes {
        self.uplink.waiting()
    }

    fn next_datagram(&mut self, now: Time) -> Option<(SessionId, Datagram<C>)> {
        let Server { source, uplink, kept, config, .. } = self;
        let get = |id| kept.get(id).map(|(stamp, packet)| (source.age(now, stamp), stamp, packet));
        // What the server drops, nobody has: it is late for all alike, and nobody misses a single slice.
        let patience = config.buffer.patience;
        next_datagram(now, uplink, (patience, patience), get)
    }
}

#[cfg(test)]
mod tests;

//! The server: the root of all trees and the only one who knows them.

use std::collections::VecDeque;
use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::answers::Answers;
use super::beginning::{Beginnings, GIVEN_UP_AFTER};
use super::buffer::{Buffer, BufferConfig};
use super::chains::Monitoring;
use super::content::{ClientId, Content, Manifest, Ticket};
use super::enabler::{Advice, Enabler, EnablerConfig};
use super::exploration::{Exploration, ExplorationConfig, Explorations};
use super::gossip::Mean;
use super::mesh::ANSWERED_WITHIN;
use super::message::{Datagram, MOST_MANIFESTS_AT_ONCE, Message, Mode, Report, StreamInfo, Welcome};
use super::overlay::{Happened, OverlayView, ServerLoad, Telling};
use super::packet::{MAX_PACKET, PacketId, Stamp};
use super::peers::{GREETING_TIME, Peers};
use super::pushing::Pushing;
use super::serving::{Subscription, next_datagram, subscribe};
use super::source::{Signed, Source};
use super::tracker::capacity::OVERHEAD;
use super::tracker::{Refusal, Tracker, TrackerConfig};
use super::uplink::{USED, Uplink};
use crate::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions, WireLength};

/// How often a tree is made better, assignments leave, and silent viewers are looked for.
const TICK: Duration = Duration::from_millis(50);

/// How often what viewers bear is looked at: as often as they report.
const REVIEW_PERIOD: Duration = super::client::REPORT_PERIOD;

/// How long a ticket is good; a new one is given when half of the time is over.
const TICKET_LIFE: Duration = Duration::from_millis(60_000);

/// How long an ACK's way counts as where no round trip was seen yet.
const UNKNOWN_WAY: Duration = Duration::from_millis(500);

/// Where a mesh alone carries the stream, packets of a generation that a viewer is given first. It is given the
/// manifest as well, which takes as much as a third of a packet: were each packet given to viewers of its own, a
/// fifth of what the server sends would be manifests.
const PACKETS_OF_A_SEED: usize = 8;

/// What others ask for leaves behind what newcomers begin with: they count as having so many packets.
const NO_NEWCOMER: u32 = 1 << 16;

/// Headers of a datagram.
const HEADERS: usize = 64;

/// Keys that are excluded at most; the oldest are forgiven for others.
const MOST_EXCLUDED: usize = 4096;

/// How a stream is served.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// How it travels.
    pub mode: Mode,
    /// Trees, and who may watch.
    pub tracker: TrackerConfig,
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
    /// There is not enough for all, and it passes nothing on: it may come back later.
    LeftOut(ClientId),
}

/// One stream's server.
#[derive(Clone, Debug)]
pub struct Server<A, C: Content> {
    config: ServerConfig,
    source: Source<C>,
    tracker: Tracker<A>,
    peers: Peers<A>,
    pushing: Pushing,
    uplink: Uplink<C>,
    kept: Buffer<C::Packet>,
    /// Of what is kept, in order.
    manifests: VecDeque<Arc<Manifest<C>>>,
    /// The next viewer to get a packet first, where a mesh alone carries the stream.
    next_seed: usize,
    /// Keys of those who may not come back.
    excluded: VecDeque<PeerKey>,
    answers: Answers,
    beginnings: Beginnings,
    exploration: Option<Box<Exploration>>,
    monitoring: Monitoring,
    enabler: Option<Enabler>,
    telling: Box<Telling>,
    rng: Rng,
    next_tick: Time,
    next_review: Time,
    next_tickets: Time,
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Server<A, C> {
    /// Serves a stream that begins at `start`, signed with `secret`; neighbours are chosen by `rng`.
    pub fn new(config: ServerConfig, secret: C::Secret, start: Time, rng: Rng) -> Server<A, C> {
        let mut pushing = Pushing::new(config.tracker.slices);
        // Who is not assigned to the server gets nothing from it.
        pushing.set_places(0);
        let enabler = config.helper.map(Enabler::new);
        let exploration = config.exploration.filter(|_| config.mode.has_trees());
        let mut tracker = Tracker::new(config.tracker);
        let upload = enabler.as_ref().map_or(config.tracker.upload, Enabler::helper);
        tracker.set_upload(upload);
        if !config.mode.has_trees() {
            tracker.set_mesh_alone();
        }
        Server {
            source: Source::new(secret, start),
            tracker,
            exploration: exploration.map(|config| Box::new(Exploration::new(config, rng.clone()))),
            monitoring: Monitoring::new(0),
            enabler,
            peers: Peers::default(),
            pushing,
            uplink: Uplink::new(upload),
            kept: Buffer::new(config.buffer, PacketId(0)),
            manifests: VecDeque::new(),
            next_seed: 0,
            excluded: VecDeque::new(),
            answers: Answers::default(),
            beginnings: Beginnings::default(),
            telling: Box::default(),
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
        self.telling.load = load;
    }

    /// How all fare.
    pub fn overlay(&self, now: Time) -> OverlayView {
        self.telling.view(now, &self.tracker, self.source.edge(), None)
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
        self.enabler.as_ref().and_then(Enabler::last)
    }

    /// Children of the server, over all slices.
    pub fn children(&self) -> usize {
        self.pushing.held()
    }

    /// The stream goes on; `is_keyframe` if players can begin with this packet.
    pub fn on_input(&mut self, now: Time, packet: C::Packet, is_keyframe: bool) {
        if let Some(signed) = self.source.on_packet(now, packet, is_keyframe) {
            self.distribute(now, signed);
        }
    }

    fn distribute(&mut self, now: Time, signed: Signed<C>) {
        let Signed { manifest, packets } = signed;
        let slices = self.config.tracker.slices;
        if self.config.mode.has_trees() {
            let slice = super::client::manifest_slice(manifest.generation, slices);
            for child in self.pushing.children(slice) {
                self.uplink.tell(child, Datagram::Manifest(Arc::clone(&manifest)));
            }
        }
        let seeds = if self.config.mode.has_trees() { Vec::new() } else { self.seeds(&manifest) };
        for (number, (stamp, packet)) in (0..).zip(packets) {
            let id = manifest.first.after(number);
            self.kept.insert(id, stamp, packet);
            for &seed in seeds.get(number as usize).into_iter().flatten() {
                self.uplink.push(now, seed, id);
            }
            for child in self.pushing.children(id.slice(slices)) {
                self.uplink.push(now, child, id);
            }
        }
        self.manifests.push_back(manifest);
        while self.manifests.front().is_some_and(|oldest| oldest.end() <= self.kept.oldest()) {
            self.manifests.pop_front();
        }
        let bitrate = self.source.bitrate(now);
        self.tracker.set_bitrate(bitrate);
    }

    /// Where a mesh alone carries the stream: to whom each packet of a generation goes first, as many as
    /// the server can serve, in turn. They get its manifest, too.
    fn seeds(&mut self, manifest: &Arc<Manifest<C>>) -> Vec<Vec<SessionId>> {
        let viewers: Vec<SessionId> = self.tracker.viewers().map(|viewer| viewer.session).collect();
        let packets = usize::from(manifest.packets);
        // What is left for packets beside the manifests that go with them; of those a copy of the stream has one in
        // each generation already.
        let (packet, manifest_bytes) = (MAX_PACKET as f64 * OVERHEAD, (manifest.wire_length() + HEADERS) as f64);
        let share = packet / (packet + manifest_bytes / PACKETS_OF_A_SEED as f64);
        let of_packets = |packets: usize| (self.tracker.copies_of(packets) as f64 * share) as usize;
        // Some packets one copy more than others, where copies do not come out even.
        let before = |packet: usize| of_packets(packet).max(packet).min(packet * viewers.len());
        let copies = before(packets);
        // No packet twice to the same viewer.
        let group = (copies / PACKETS_OF_A_SEED).max(copies.div_ceil(packets.max(1))).clamp(1, viewers.len().max(1));
        let seed = |number: usize| viewers[(self.next_seed + number % group) % viewers.len()];
        let seeds: Vec<Vec<SessionId>> =
            (0..packets).map(|packet| (before(packet)..before(packet + 1)).map(seed).collect()).collect();
        for told in 0..group.min(copies) {
            self.uplink.tell(seed(told), Datagram::Manifest(Arc::clone(manifest)));
        }
        self.next_seed = (self.next_seed + group) % viewers.len().max(1);
        seeds
    }

    fn ticket(&self, now: Time, client: ClientId, key: PeerKey) -> Ticket<C> {
        let expires = Stamp(self.source.stamp(now).0.saturating_add((TICKET_LIFE.as_nanos() / 1_000_000) as u32));
        let signature = C::sign_ticket(self.source.secret(), client, &key, expires);
        Ticket { client, key, expires, signature }
    }

    fn on_join(&mut self, now: Time, session: SessionId, upload: Option<Rate>, sessions: &mut impl Sessions<Self>) {
        let Some(peer) = self.peers.get(session) else { return };
        let (None, Some(remote)) = (peer.client, peer.remote) else { return };
        if self.excluded.contains(&remote.key) {
            sessions.event(ServerEvent::Refused(Refusal::Excluded));
            sessions.close(session);
            self.forget(session);
            return;
        }
        // What comes before the stream is known is admitted when it is.
        let bitrate = self.source.bitrate(now);
        self.tracker.set_bitrate(bitrate);
        // Where all are private, nobody need ask for it.
        let upload = upload.filter(|_| !self.tracker.is_private());
        let joined = match upload {
            Some(upload) => self.tracker.join(now, session, &remote, upload, sessions.least_round_trip(session)),
            None => self.tracker.join_privately(now, session, &remote),
        };
        match joined {
            Err(refusal) => {
                sessions.event(ServerEvent::Refused(refusal));
                sessions.send(session, Message::Overloaded);
            }
            Ok(client) => {
                self.peers.on_proved(session, client);
                let edge = (self.source.edge(), self.source.stamp(now));
                let group = Beginnings::group(bitrate);
                let room = self.beginnings.room(now, self.left());
                // A newcomer begins with a whole group of pictures that has left, where the server sends it that
                // itself, or where a mesh alone brings nothing sooner. Else with the newest one, as it comes: it
                // need not wait for a past that others have no room to send.
                let catches_up = || self.tracker.has_room_to_catch_up(now, self.config.begin_behind);
                let is_behind = room >= group || self.config.mode == Mode::Mesh && catches_up();
                let behind = if is_behind { self.config.begin_behind } else { Duration::ZERO };
                let behind = self.source.keyframe(now, behind);
                // Whom the server feeds itself, it repairs as well.
                let mode = if upload.is_some() { self.config.mode } else { Mode::Hybrid };
                let begin = if mode.has_mesh() { behind.unwrap_or(edge.0) } else { edge.0 };
                let (slices, is_private) = (self.config.tracker.slices, self.tracker.is_private());
                let stream = StreamInfo { mode, is_private, slices, bitrate, begin, edge };
                self.telling.on_joined(now, client, begin);
                let most = if mode == Mode::Hybrid { group.min(room) } else { 0 };
                let sent = self.send_beginning(now, session, begin, most);
                let ticket = self.ticket(now, client, remote.key);
                sessions.send(session, Message::Welcome(Box::new(Welcome { stream, sent, ticket })));
                // By them it can tell what others send it before anybody pushes it any.
                for manifest in self.manifests.iter().filter(|manifest| manifest.end() > begin) {
                    self.uplink.tell(session, Datagram::Manifest(Arc::clone(manifest)));
                }
                sessions.event(ServerEvent::Joined(client));
                if self.config.mode.has_mesh() {
                    let neighbours = self.tracker.neighbours(client, 0, &mut self.rng);
                    sessions.send(session, Message::Neighbours(neighbours));
                }
                self.tell_places(now, sessions);
            }
        }
    }

    /// What pushes leave of what the server can send.
    fn left(&self) -> Rate {
        let held = self.pushing.held().max(self.tracker.server_held());
        let pushed = self.tracker.slice_rate().bytes_per_sec() * held as f64;
        Rate::from_bytes_per_sec_f64((USED * self.tracker.upload().bytes_per_sec() - pushed).max(0.0))
    }

    /// Sends a newcomer `most` packets at most from `begin` on: how many.
    fn send_beginning(&mut self, now: Time, session: SessionId, begin: PacketId, most: u64) -> u16 {
        let packets = most.min(self.source.edge().since(begin));
        self.beginnings.promise(now, self.left(), packets);
        let ids = (0..packets).map(|number| begin.after(number));
        self.uplink.ask(now, session, ids, now + GIVEN_UP_AFTER, 0);
        packets as u16
    }

    /// Tells everybody what is new of its place in the trees.
    fn tell_places(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
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
            sessions.send(session, Message::Ping);
        }
        for (session, assignment) in self.tracker.assignments() {
            let is_private = || {
                let client = self.peers.get(session).and_then(|peer| peer.client);
                client.is_some_and(|client| self.tracker.private_viewer(client).is_some())
            };
            if !has_trees && !is_private() {
                continue;
            }
            sessions.send(session, Message::Assign(Box::new(assignment)));
        }
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
        if self.config.mode.has_mesh() {
            let neighbours = self.tracker.neighbours(client, usize::from(report.neighbours), &mut self.rng);
            if !neighbours.is_empty() {
                sessions.send(session, Message::Neighbours(neighbours));
            }
        }
    }

    /// Pages are told of it; before the tracker forgets.
    fn note_gone(&mut self, now: Time, client: ClientId, how: Happened) {
        let public = self.tracker.viewer(client).and_then(|viewer| viewer.told.last());
        let told = public.or_else(|| self.tracker.private_viewer(client)?.told.last());
        let played = told.map_or(0, |told| told.played);
        self.telling.on_gone(now, client, how, played, self.source.edge());
    }

    fn remove(&mut self, now: Time, client: ClientId, was_silent: bool, sessions: &mut impl Sessions<Self>) {
        self.note_gone(now, client, if was_silent { Happened::Died } else { Happened::Left });
        self.tracker.leave(client);
        sessions.event(ServerEvent::Left(client, was_silent));
    }

    /// Somebody has to go. Who forges may not come in again.
    fn send_away(&mut self, now: Time, client: ClientId, why: Refusal, sessions: &mut impl Sessions<Self>) {
        let public = self.tracker.viewer(client).map(|viewer| viewer.contact);
        let private = || self.tracker.private_viewer(client).map(|viewer| viewer.contact);
        let Some(contact) = public.or_else(private) else { return };
        let is_forger = why == Refusal::Excluded;
        if is_forger {
            if self.excluded.len() == MOST_EXCLUDED {
                self.excluded.pop_front();
            }
            self.excluded.push_back(contact.key);
        }
        if let Some(session) = self.peers.session_of(client) {
            sessions.close(session);
            self.forget(session);
        }
        self.note_gone(now, client, if is_forger { Happened::Excluded } else { Happened::LeftOut });
        self.tracker.leave(client);
        sessions.event(if is_forger { ServerEvent::Excluded(client) } else { ServerEvent::LeftOut(client) });
    }

    fn forget(&mut self, session: SessionId) -> Option<ClientId> {
        let peer = self.peers.end(session)?;
        self.uplink.forget(session);
        self.pushing.forget(session);
        peer.client
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
                sessions.send(session, Message::Ticket(Box::new(ticket)));
            }
        }
        if self.config.mode.has_trees() {
            self.tracker.improve(now);
        } else {
            self.monitor(now, sessions);
        }
        self.explore(now, is_review, sessions);
        self.pushing.drop_unassigned(now, |_, _| {});
        self.tell_places(now, sessions);
        self.tell_overlay(now, sessions);
    }

    /// Tells those who look at pages how all fare.
    fn tell_overlay(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        while let Some(client) = self.telling.next(now, self.tracker.upload()) {
            let Some(session) = self.peers.session_of(client) else { continue };
            let view = self.telling.view(now, &self.tracker, self.source.edge(), Some(client));
            let message = Message::Overlay(Box::new(view));
            self.telling.on_told(message.wire_length());
            sessions.send(session, message);
        }
    }
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Server<A, C> {
    /// Chains are drawn, and what was learned is what viewers bear: after the trees have changed, so that what
    /// is learned next is of them [Raiber 2010, 3.2.3].
    fn explore(&mut self, now: Time, is_review: bool, sessions: &mut impl Sessions<Self>) {
        let Some(exploration) = &mut self.exploration else { return };
        let (members, rates) = (self.tracker.members(), (self.tracker.upload(), self.tracker.slice_rate()));
        let told = exploration.on_tick(now, &members, rates, self.tracker.explored_links());
        for (session, link) in told {
            sessions.send(session, Message::Chain(Box::new(link)));
        }
        exploration.expire(now, self.tracker.explored_links());
        if is_review {
            self.tracker.set_explored(|client| exploration.places(client));
        }
    }

    /// Exploration packets leave that are due: the newest of the stream.
    fn depart(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let Server { exploration: Some(exploration), tracker, kept, uplink, .. } = self else { return };
        let back = |session| sessions.least_round_trip(session).unwrap_or(UNKNOWN_WAY);
        let Some(departure) = exploration.depart(now, tracker.explored_links(), back) else { return };
        let newest = kept.end().0.checked_sub(1).map(PacketId);
        if let Some((id, (stamp, packet))) = newest.and_then(|id| Some((id, kept.get(id)?))) {
            let (chain, nonce, packet) = (departure.chain, departure.nonce, packet.clone());
            uplink.tell(departure.session, Datagram::Explore { chain, nonce, id, stamp, packet });
        }
    }

    /// The server takes part in gossip, and does what the law says with its result.
    fn monitor(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let stamp = self.source.stamp(now);
        let viewers = self.tracker.len();
        let is_over = self.monitoring.on_time(now, stamp, self.tracker.upload(), sessions.delivered());
        if is_over && let (Some(mean), Some(enabler)) = (self.monitoring.gossip().mean(), &mut self.enabler) {
            let bitrate = Rate::from_bytes_per_sec_f64(self.source.bitrate(now).bytes_per_sec() * OVERHEAD);
            let advice = enabler.on_epoch(&mean, viewers + 1, viewers, bitrate);
            self.tracker.set_upload(advice.helper);
            self.uplink.set_rate(advice.helper);
        }
        let to: Vec<SessionId> = self.tracker.viewers().map(|viewer| viewer.session).collect();
        if let Some((to, epoch, mass)) = self.monitoring.give(stamp, &to) {
            self.uplink.tell(to, Datagram::Mass(epoch, mass));
        }
    }
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Application for Server<A, C> {
    type Address = A;
    type Message = Message<A, C>;
    type Datagram = Datagram<C>;
    type Event = ServerEvent;

    fn accepts(&mut self, _now: Time, _remote: &Remote<A>) -> bool {
        self.peers.len() < 2 * self.config.tracker.most_clients
    }

    fn on_open(&mut self, now: Time, session: SessionId, remote: &Remote<A>, _sessions: &mut impl Sessions<Self>) {
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
            Message::Silent(feeds) => {
                for feed in feeds {
                    self.tracker.on_silent(now, client, &feed);
                }
                self.tell_places(now, sessions);
            }
            Message::Subscribe { slices, from } => {
                let until = now + self.config.buffer.patience;
                let asked = Subscription { session, client, slices, from };
                let refused = subscribe(now, asked, until, (&mut self.pushing, &mut self.uplink), &self.kept);
                if !refused.is_empty() {
                    sessions.send(session, Message::Full(refused));
                }
            }
            Message::Unsubscribe(slices) => self.pushing.on_unsubscribe(session, slices),
            Message::Explored(nonce) => {
                let round_trip = sessions.least_round_trip(session);
                if let Some(exploration) = &mut self.exploration {
                    exploration.on_ack(now, client, nonce, round_trip, self.tracker.explored_links());
                }
            }
            Message::WantOverlay => self.telling.on_asked(client),
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
                    self.uplink.tell(session, Datagram::Manifest(manifest));
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
    }

    fn on_closed(&mut self, now: Time, session: SessionId, _why: Closed, sessions: &mut impl Sessions<Self>) {
        if let Some(client) = self.forget(session) {
            self.remove(now, client, false, sessions);
        }
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        while let Some(signed) = self.source.poll(now) {
            self.distribute(now, signed);
        }
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

    fn next_datagram(&mut self, now: Time) -> Option<(SessionId, Datagram<C>)> {
        let Server { source, uplink, kept, config, .. } = self;
        let get = |id| kept.get(id).map(|(stamp, packet)| (source.age(now, stamp), stamp, packet));
        // What the server drops, nobody has: it is late for all alike, and nobody misses a single slice.
        let patience = config.buffer.patience;
        next_datagram(now, uplink, (patience, patience), get)
    }
}

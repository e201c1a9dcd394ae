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

mod informing;
mod reaching;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use self::reaching::Reaching;
use super::buffer::{BufferConfig, Release};
use super::chains::{Chains, Monitoring};
use super::content::{ClientId, Content, Manifest, Ticket};
use super::feeds::{BEGINNING, Feed, FeedState, Feeds, SILENCE};
use super::gossip::Mean;
use super::manifest_holes::{ManifestHoles, manifest_slice};
use super::measured::Measured;
use super::mesh::Mesh;
use super::message::{Datagram, MOST_MANIFESTS_AT_ONCE, Message, Mode, SilentFeed, StreamInfo, Welcome};
use super::overlay::{LOOKED_AT, OverlayView};
use super::packet::{MAX_PACKET, MAX_SLICES, PacketId, SliceSet};
use super::peers::{MOST_SESSIONS, Peers};
use super::pushing::{Pushing, Subscription};
use super::receiving::{Arrived, Receiving, Verdict};
use super::reclaims::Reclaims;
use super::serving::{next_datagram, subscribe};
use super::uplink::{MOST_ASKED, Uplink};
use crate::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions};

/// How often a client looks for silent slices, and for what else time brings.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// How often it reports to the server: each report is a sign of life as well.
pub const REPORT_PERIOD: Duration = Duration::from_millis(1000);

/// Those who forge that are remembered; the oldest are forgotten for others.
const MOST_FORGERS: usize = 64;

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
pub(super) struct Watching<A, C: Content> {
    pub(super) info: StreamInfo,
    pub(super) ticket: Ticket<C>,
    pub(super) receiving: Receiving<C>,
    pub(super) feeds: Feeds<A>,
    pub(super) pushing: Pushing,
    pub(super) mesh: Mesh,
    pub(super) reclaims: Reclaims,
    pub(super) monitoring: Monitoring,
    /// With which packet its parents begin: those before it come from the server.
    pub(super) pushed_from: PacketId,
    /// Of each slice, the packet up to which its feed had pushed at the last tick.
    pub(super) pushed: Vec<PacketId>,
    pub(super) next_map: Time,
    /// When all neighbours may be told again that something is missing.
    pub(super) next_told: Time,
    pub(super) next_round: Time,
    pub(super) manifest_holes: ManifestHoles,
    /// When missing manifests may be asked for again.
    pub(super) next_question: Time,
    pub(super) next_report: Time,
}

/// One viewer.
#[derive(Clone, Debug)]
pub struct Client<A, C: Content> {
    pub(super) config: ClientConfig<A>,
    /// The session with the server, or that is to be it.
    pub(super) server: Option<SessionId>,
    pub(super) reaching: Reaching<A>,
    pub(super) peers: Peers<A>,
    pub(super) watching: Option<Watching<A, C>>,
    pub(super) uplink: Uplink<C>,
    pub(super) chains: Chains,
    pub(super) played: u64,
    pub(super) skipped: u64,
    /// Those who sent what is not the source's: since the last report, and none of them is dealt with any more.
    pub(super) forged: BTreeSet<ClientId>,
    pub(super) forgers: VecDeque<ClientId>,
    pub(super) measured: Measured,
    /// Whether it has asked to be named to nobody.
    pub(super) asks_privacy: bool,
    /// Until when somebody looks at a page, when the server is asked again how all fare, and what it said last.
    pub(super) looked_at_until: Time,
    pub(super) next_look: Time,
    overlay: Option<(Time, Box<OverlayView>)>,
    pub(super) next_tick: Time,
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Client<A, C> {
    /// A client that asks to be let in at its first timer.
    pub fn new(config: ClientConfig<A>) -> Client<A, C> {
        Client {
            reaching: Reaching::new(config.server),
            config,
            server: None,
            peers: Peers::default(),
            watching: None,
            uplink: Uplink::new(config.upload),
            chains: Chains::default(),
            played: 0,
            skipped: 0,
            forged: BTreeSet::new(),
            forgers: VecDeque::new(),
            measured: Measured::default(),
            asks_privacy: false,
            looked_at_until: Time::ZERO,
            next_look: Time::ZERO,
            overlay: None,
            next_tick: Time::ZERO,
        }
    }

    /// The server is to feed it alone, and to name it to nobody: it passes nothing on, opens no session with
    /// another viewer and lets none open one. Call it before the first timer.
    pub fn keep_private(&mut self) {
        self.asks_privacy = true;
    }

    /// Whether it deals with the server alone: by its own wish, or since all of the stream do.
    pub fn is_private(&self) -> bool {
        self.asks_privacy || self.watching.as_ref().is_some_and(|watching| watching.info.is_private)
    }

    /// Somebody looks at a page: the server is asked how all fare, for a while.
    pub fn look(&mut self, now: Time) {
        self.looked_at_until = now + LOOKED_AT;
    }

    /// How all fare, and when the server has said so; none before it has.
    pub fn overlay(&self) -> Option<(Time, &OverlayView)> {
        self.overlay.as_ref().map(|(at, view)| (*at, &**view))
    }

    /// To whom it pushes `slice`.
    pub fn children_of(&self, slice: u8) -> impl Iterator<Item = ClientId> {
        self.watching.iter().flat_map(move |watching| watching.pushing.clients(slice))
    }

    /// Its number; none before the server has let it in.
    pub fn id(&self) -> Option<ClientId> {
        self.watching.as_ref().map(|watching| watching.ticket.client)
    }

    /// Where `slice` comes from.
    pub fn feed(&self, slice: u8) -> Feed {
        self.watching.as_ref().map_or(Feed::None, |watching| watching.feeds.feed(slice))
    }

    /// How `slice` comes from there.
    pub fn feed_state(&self, slice: u8) -> FeedState {
        self.watching.as_ref().map_or(FeedState::Awaited, |watching| watching.feeds.state(slice))
    }

    /// The packet after the last of `slice` that was pushed to it, be it by a parent that goes on until the next begins.
    pub fn pushed(&self, slice: u8) -> PacketId {
        self.watching.as_ref().map_or(PacketId(0), |watching| watching.feeds.brought(slice))
    }

    /// How many children it pushes to, over all slices.
    pub fn children(&self) -> usize {
        self.watching.as_ref().map_or(0, |watching| watching.pushing.held())
    }

    /// What it can send, as far as that is known.
    pub fn capacity(&self) -> Option<Rate> {
        self.measured.capacity()
    }

    /// What peers can send and do not, on average, as gossip has shown.
    pub fn monitored(&self) -> Option<Mean> {
        self.watching.as_ref().and_then(|watching| watching.monitoring.gossip().mean())
    }

    /// Packets that have gone to players.
    pub fn played(&self) -> u64 {
        self.played
    }

    /// Packets that players miss.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// How long it waits for what is missing.
    pub fn patience(&self) -> Duration {
        self.config.buffer.patience
    }

    /// What it holds of the stream.
    pub fn receiving(&self) -> Option<&Receiving<C>> {
        self.watching.as_ref().map(|watching| &watching.receiving)
    }

    fn on_welcome(&mut self, now: Time, welcome: Welcome<C>, sessions: &mut impl Sessions<Self>) {
        let Welcome { stream: info, sent, ticket } = welcome;
        let (slices, ClientId(client)) = (info.slices.clamp(1, MAX_SLICES), ticket.client);
        let info = StreamInfo { slices, ..info };
        self.uplink.set_answers_freely(info.mode == Mode::Mesh);
        // What the server promises, which may be lost, is sought like what any other was asked for.
        let sent = sent.min(MOST_ASKED as u16);
        let pushed_from = info.begin.after(u64::from(sent));
        match &mut self.watching {
            // Let in again: what is here stays.
            Some(watching) if watching.info.broadcast == info.broadcast && watching.info.slices == slices => {
                (watching.info, watching.ticket) = (info, ticket);
            }
            _ => {
                self.leave_broadcast(sessions);
                let within = info.mode.leaves_within();
                let mut mesh = Mesh::new(info.mode == Mode::Mesh);
                let stream = (self.config.source, info.broadcast);
                let mut receiving = Receiving::new(now, stream, self.config.buffer, info.begin, within);
                if info.mode.has_mesh() {
                    receiving.ask_below();
                }
                if let Some(server) = self.server {
                    let promised = (0..u64::from(sent)).map(|number| info.begin.after(number));
                    promised.for_each(|id| mesh.note_asked(now, server, id));
                }
                self.next_tick = self.next_tick.max(now);
                self.watching = Some(Watching {
                    info,
                    ticket,
                    receiving,
                    feeds: Feeds::new(slices, now, pushed_from),
                    pushed_from,
                    pushing: Pushing::new(slices),
                    mesh,
                    reclaims: Reclaims::default(),
                    monitoring: Monitoring::new(u64::from(client)),
                    pushed: vec![pushed_from; usize::from(slices)],
                    next_map: now,
                    next_told: now,
                    next_round: now,
                    manifest_holes: ManifestHoles::default(),
                    next_question: now,
                    next_report: now + REPORT_PERIOD,
                });
            }
        }
        if let Some(watching) = &mut self.watching
            && info.mode == Mode::Mesh
            && info.bitrate > Rate::ZERO
        {
            watching.mesh.note_past(now, (info.begin, info.edge.0), Bytes::new(MAX_PACKET as u64) / info.bitrate);
        }
        sessions.event(ClientEvent::Welcomed(info));
    }

    /// The server has begun anew: whom this client dealt with, and what they were, was of the broadcast before. They show new
    /// tickets as they are let in.
    fn leave_broadcast(&mut self, sessions: &mut impl Sessions<Self>) {
        let (server, reaching) = (self.server, &self.reaching);
        let is_of_peer = |session: &SessionId| Some(*session) != server && !reaching.is_tried(*session);
        let of_peers: Vec<SessionId> = self.peers.iter().map(|(session, _)| session).filter(is_of_peer).collect();
        for session in of_peers {
            self.end(session, sessions);
        }
        (self.chains, self.overlay) = (Chains::default(), None);
        self.forged.clear();
        self.forgers.clear();
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
        let is_good = time.is_none_or(|time| ticket.is_good_at(time));
        let forges = self.forgers.contains(&ticket.client);
        // Who has not been let in knows of no broadcast, and accepts no session.
        let Some(broadcast) = self.watching.as_ref().map(|watching| watching.info.broadcast) else {
            return self.end(session, sessions);
        };
        if is_its && is_good && !forges && C::is_ticket(&self.config.source, broadcast, &ticket) {
            self.peers.on_proved(session, ticket.client);
        } else {
            self.end(session, sessions);
        }
    }

    pub(super) fn end(&mut self, session: SessionId, sessions: &mut impl Sessions<Self>) {
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
            Verdict::New | Verdict::Late => self.on_new(now, from, id),
            Verdict::Copy => {}
            // Who sends it is there, whatever it is worth.
            Verdict::Unproven => return watching.feeds.on_unproven(now, slice, from),
            Verdict::Ignored => return,
            Verdict::Forged => return self.on_forged(now, from, sessions),
        }
        if let Some(peer) = self.peers.get_mut(from) {
            peer.used = now;
        }
        let Some(watching) = &mut self.watching else { return };
        let mut left = None;
        watching.feeds.on_packet(now, slice, from, id, |step| left = Some(step));
        if let Some(step) = left {
            self.follow(now, vec![step], sessions);
        }
        self.release(now, sessions);
    }

    /// A packet was not here: others may want it.
    pub(super) fn on_new(&mut self, now: Time, from: SessionId, id: PacketId) {
        let Some(watching) = &mut self.watching else { return };
        watching.mesh.on_packet(now, id);
        watching.reclaims.on_packet(now, id);
        if let Some((_, packet)) = watching.receiving.buffer().get(id) {
            watching.monitoring.on_packet(C::packet_length(packet));
        }
        for (child, is_moved) in watching.pushing.receivers(id) {
            if child == from {
                continue;
            }
            if is_moved {
                self.uplink.ask(now, child, [id], now + SILENCE, watching.mesh.has(child).unwrap_or(0));
            } else {
                self.uplink.push(now, child, id);
            }
        }
    }

    /// What comes over a session is who it says it is: there is no doubt who forges, and nothing more to be
    /// had from it.
    pub(super) fn on_forged(&mut self, now: Time, from: SessionId, sessions: &mut impl Sessions<Self>) {
        let client = self.peers.get(from).and_then(|peer| peer.client);
        sessions.event(ClientEvent::Forged(client));
        let Some(client) = client else { return };
        if self.forged.len() < MOST_SESSIONS {
            self.forged.insert(client);
        }
        if !self.forgers.contains(&client) {
            if self.forgers.len() == MOST_FORGERS {
                self.forgers.pop_front();
            }
            self.forgers.push_back(client);
        }
        self.on_refused(now, from, SliceSet(u64::MAX), false, sessions);
        self.end(from, sessions);
    }

    fn on_manifest(
        &mut self,
        now: Time,
        from: SessionId,
        manifest: Arc<Manifest<C>>,
        sessions: &mut impl Sessions<Self>,
    ) {
        let Some(watching) = &mut self.watching else { return };
        match watching.receiving.on_manifest(now, Arc::clone(&manifest)) {
            None => return self.on_forged(now, from, sessions),
            Some(false) => return,
            Some(true) => {}
        }
        let slice = manifest_slice(manifest.generation, watching.info.slices);
        for child in watching.pushing.children(slice) {
            if child != from {
                self.uplink.push_ahead(child, Datagram::Manifest(Arc::clone(&manifest)));
            }
        }
        while let Some(arrived) = self.watching.as_mut().and_then(|watching| watching.receiving.next_proven()) {
            self.on_packet(now, arrived, sessions);
        }
    }

    pub(super) fn release(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &mut self.watching else { return };
        while let Some(release) = watching.receiving.release(now) {
            match &release {
                Release::Packet(..) => self.played += 1,
                Release::Skipped(_, count) => self.skipped += count,
            }
            sessions.event(ClientEvent::Release(release));
        }
    }
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Application for Client<A, C> {
    type Address = A;
    type Message = Message<A, C>;
    type Datagram = Datagram<C>;
    type Event = ClientEvent<C::Packet>;

    fn accepts(&mut self, _now: Time, _remote: &Remote<A>) -> bool {
        self.watching.is_some() && self.peers.len() < MOST_SESSIONS && !self.is_private()
    }

    fn on_open(&mut self, now: Time, session: SessionId, remote: &Remote<A>, sessions: &mut impl Sessions<Self>) {
        self.on_reached(session, sessions);
        if Some(session) == self.server {
            let private = self.asks_privacy.then_some(Message::JoinPrivately);
            sessions.send(session, private.unwrap_or(Message::Join { upload: self.config.upload }));
        } else if !remote.is_initiator {
            if let (Some(peer), Some(_)) = (self.peers.get_mut(session), &self.watching) {
                peer.remote = Some(*remote);
                if peer.is_wanted {
                    self.become_neighbour(now, session);
                }
            }
            if let Some(watching) = &self.watching {
                self.ask_for(session, watching.feeds.of_session(session), sessions);
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
            Message::Overlay(view) if is_server => self.overlay = Some((now, view)),
            Message::Ping if is_server => sessions.send(session, Message::Pong),
            Message::Neighbours(contacts) if is_server => self.on_neighbours(now, &contacts, sessions),
            Message::Chain(link) if is_server => self.on_chain(now, &link, sessions),
            Message::Assign(assignment) if is_server => self.on_assignment(now, *assignment, sessions),
            // Whatever the server says: who is private shows itself to nobody.
            Message::Caller(address) if is_server && !self.is_private() => sessions.open_way(address),
            Message::Greet(ticket) => self.on_greeting(now, session, *ticket, sessions),
            Message::Subscribe { slices, from } => {
                let client = self.peers.get(session).and_then(|peer| peer.client);
                let Some((watching, client)) = self.watching.as_mut().zip(client) else { return };
                let patience = self.config.buffer.patience;
                // Later it asks its neighbours.
                let until = now + if watching.info.mode.has_mesh() { BEGINNING.min(patience) } else { patience };
                let asked = Subscription { session, client, slices, from };
                let Watching { pushing, receiving, .. } = watching;
                let refused = subscribe(now, asked, until, (pushing, &mut self.uplink), receiving.buffer());
                if !refused.is_empty() {
                    sessions.send(session, Message::Full(refused));
                }
            }
            Message::Unsubscribe(slices) => {
                if let Some(watching) = &mut self.watching {
                    watching.pushing.on_unsubscribe(session, slices);
                }
            }
            Message::Full(slices) => self.on_refused(now, session, slices, true, sessions),
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
                let Some((watching, peer)) = self.watching.as_ref().zip(self.peers.get_mut(session)) else { return };
                let wanted: Vec<_> =
                    watching.receiving.manifests(first, last).take(MOST_MANIFESTS_AT_ONCE).map(Arc::clone).collect();
                let granted = peer.grant_manifests(now, wanted.len());
                for manifest in wanted.into_iter().take(granted) {
                    self.uplink.push_ahead(session, Datagram::Manifest(manifest));
                }
            }
            Datagram::Have(map) => self.on_map(now, session, map),
            Datagram::Want(ids) => self.on_wanted(now, session, &ids),
            Datagram::Explore { chain, nonce, id, stamp, packet } => {
                self.on_explored(now, (chain, nonce), Arrived { from: session, id, stamp, packet }, sessions);
            }
            Datagram::Mass(epoch, mass) => {
                if let Some(watching) = &mut self.watching {
                    watching.monitoring.on_mass(epoch, mass);
                }
            }
        }
    }

    fn on_silent(&mut self, _now: Time, session: SessionId, is_silent: bool, _sessions: &mut impl Sessions<Self>) {
        if let Some(watching) = &mut self.watching {
            watching.pushing.set_silent(session, is_silent);
        }
    }

    fn on_closed(&mut self, now: Time, session: SessionId, _why: Closed, sessions: &mut impl Sessions<Self>) {
        let is_server = Some(session) == self.server;
        if !self.on_not_reached(now, session, sessions) && is_server {
            self.on_server_closed(now, sessions);
        }
        self.on_refused(now, session, SliceSet(u64::MAX), true, sessions);
        self.forget(session);
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        self.reach_server(now, sessions);
        self.uplink.on_timer(now);
        if now >= self.next_tick {
            self.tick(now, sessions);
        }
        self.release(now, sessions);
    }

    fn timer(&self, now: Time) -> Time {
        let release = self.watching.as_ref().map_or(Time::MAX, |watching| watching.receiving.release_at(now));
        let tick = if self.watching.is_some() { self.next_tick } else { Time::MAX };
        self.reach_at().min(release).min(tick).min(self.uplink.timer())
    }

    fn waiting(&self) -> Bytes {
        self.uplink.waiting()
    }

    fn next_datagram(&mut self, now: Time) -> Option<(SessionId, Datagram<C>)> {
        let Client { watching, uplink, config, .. } = self;
        let Watching { info, receiving, .. } = watching.as_ref()?;
        let (buffer, clock) = (receiving.buffer(), receiving.clock());
        let get = |id| buffer.get(id).map(|(stamp, packet)| (clock.age(now, stamp), stamp, packet));
        let patience = config.buffer.patience;
        // Where a mesh repairs, a push waits no longer than its child does until it looks for another parent.
        let push_patience = if info.mode == Mode::Hybrid { SILENCE.min(patience) } else { patience };
        next_datagram(now, uplink, (push_patience, patience), get)
    }
}

//! A user as a machine: it hangs on its guards, chooses a path for every packet, makes the blocks by which it is
//! answered, and has sessions with services.
//!
//! ```text
//!  streams -> session -> cell -> path: guard, middles, the service's relay -> packet
//!                        cell <- the block that it came by: middles, guard <- packet
//! ```
//!
//! A path is a half of [`Routes`] with the service's relay at its end. Learners place packets: those of the
//! forward half learn from what the service says that it got and when, those of the backward half from which
//! blocks came back. How much is sent in all is the sessions' business.

mod loose;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out};

use super::frame::{Frame, Kind};
use super::members::Members;
use super::service::cell_format;
use crate::RelayIndex;
use crate::crypto::{Cryptography, PublicKey};
use crate::directory::{Document, UnixTime};
use crate::guards::{Choice, GuardState, Guards};
use crate::hidden::{MailboxAt, hidden_format};
use crate::link::Attachment;
use crate::packet::{Hop, Label, PacketsPerKey, PathKeys, Receipt, body, body_mut};
use crate::reply::{BlockId, MadeBlocks};
use crate::routes::{Fate, Half, MOST_FAR, Path, PlacementError, Request, RouteError, RouteId, Routes, RoutesConfig};
use crate::session::{
    CellFormat, Client, ClientEvent, Entropy, Rates, RelayDelays, Secrecy, ServiceKeys, StreamEvent, Via,
};
use crate::size::DATAGRAM;
use loose::Loose;
pub use loose::{Arrived, PacketId};

/// Blocks that are out at most: of more, the oldest count as lost. As many as two sessions in full flight have.
const MOST_BLOCKS: usize = 32_768;

/// A block that has not come back for so long is given up: longer than services keep them.
const BLOCK_LIFE: Duration = Duration::from_millis(120_000);

/// A guard that has not answered more often in a row fails: to be asked, it takes two frames, and with their waits of
/// one and two seconds three seconds are over then.
const UNANSWERED: u32 = 2;

/// After so many packets over a guard in a row that did not arrive it is asked whether it is there.
const SUSPICIOUS: u32 = 8;

/// After so many packets in a row to one of a session's mailboxes that did not arrive, others are taken.
const DEAD: u32 = 8;

/// For so long.
const DEAD_FOR: Duration = Duration::from_millis(10_000);

/// Where there is no path, one is looked for again after this.
const NO_PATH_WAIT: Duration = Duration::SECOND;

/// Names a user's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Where a service is, and how to talk to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The relay that it is at.
    pub relay: RelayIndex,
    /// What it is found by there.
    pub label: Label,
    /// Its keys.
    pub keys: ServiceKeys,
}

/// What the application is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserEvent {
    /// The service has answered.
    Connected(SessionId),
    /// Of a stream.
    Stream(SessionId, StreamEvent),
    /// The session is over.
    Ended(SessionId, crate::session::End),
    /// [`User::guards`] has changed, and is to be written down.
    Guards,
    /// There is no path now.
    NoPath(RouteError),
}

/// How a user chooses.
#[derive(Clone, Debug)]
pub struct UserSettings {
    /// Guards, g; 0 is MORE to the letter.
    pub guards: usize,
    /// Relays of a path, the service's included.
    pub hops: usize,
    /// What places packets on relays on the way to the service: a path controller's name.
    pub placement: String,
    /// What places the blocks by which services answer.
    pub placement_back: String,
    /// The network's k.
    pub packets_per_key: PacketsPerKey,
    /// Whether cells are sealed.
    pub secrecy: Secrecy,
    /// The mean of an exponential wait that packets are asked to make at each relay; none for none.
    pub mixing: Option<Duration>,
}

/// A packet whose outcome is open.
struct Sent {
    at: Time,
    route: RouteId,
    path: Path,
    receipt: Receipt,
    door: MailboxAt,
}

/// A block that is out.
struct OutBlock {
    session: SessionId,
    serial: u64,
    route: RouteId,
    path: Path,
}

/// A place at which a session's packets find the service: an exit's label, or one of a receiver's mailboxes.
#[derive(Clone, Copy)]
struct Door {
    at: MailboxAt,
    /// Packets that were lost since one arrived.
    lost: u32,
    /// It was given up until then.
    rests_until: Time,
}

impl Door {
    fn new(at: MailboxAt) -> Door {
        Door { at, lost: 0, rests_until: Time::ZERO }
    }
}

struct Session {
    client: Client,
    /// Bytes of its cells.
    cell: usize,
    /// One, or those of a hidden receiver, which packets take in turns.
    doors: Vec<Door>,
    /// Those that a session with a hidden receiver began at, while others take their place.
    reserve: Vec<Door>,
    next_door: usize,
    /// How many doors others have taken the place of: to learners, each is another far end.
    replaced: usize,
    /// By tag.
    sent: BTreeMap<u64, Sent>,
    /// By serial.
    blocks: BTreeMap<u64, BlockId>,
}

impl Session {
    fn new(client: Client, format: CellFormat, doors: impl IntoIterator<Item = MailboxAt>) -> Session {
        Session {
            client,
            cell: format.cell(),
            doors: doors.into_iter().map(Door::new).collect(),
            reserve: Vec::new(),
            next_door: 0,
            replaced: 0,
            sent: BTreeMap::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// Where the next packet goes, and which of the doors that is.
    fn next_door(&mut self, now: Time) -> Option<(u8, MailboxAt)> {
        let turn = self.next_door;
        self.next_door = turn.wrapping_add(1);
        let in_turn =
            |doors: &[Door]| -> Vec<usize> { (0..doors.len()).map(|more| (turn + more) % doors.len()).collect() };
        let awake = |doors: &[Door]| in_turn(doors).into_iter().find(|place| doors[*place].rests_until <= now);
        // The first half of far ends is for the reserve.
        let far = |place: usize| (MOST_FAR / 2 + (self.replaced + place) % (MOST_FAR / 2)) as u8;
        if let Some(place) = awake(&self.doors) {
            return Some((far(place), self.doors[place].at));
        }
        if let Some(place) = awake(&self.reserve) {
            return Some(((place % (MOST_FAR / 2)) as u8, self.reserve[place].at));
        }
        let place = in_turn(&self.doors).first().copied()?;
        Some((far(place), self.doors[place].at))
    }

    fn on_fate(&mut self, now: Time, door: MailboxAt, arrived: bool) {
        let mut all = self.doors.iter_mut().chain(&mut self.reserve);
        let Some(door) = all.find(|known| known.at == door) else { return };
        door.lost = if arrived { 0 } else { door.lost + 1 };
        if door.lost >= DEAD {
            (door.lost, door.rests_until) = (0, now + DEAD_FOR);
        }
    }
}

/// What a user has done, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserCounts {
    /// That left.
    pub sent: u64,
    /// That came back by a block.
    pub received: u64,
    /// That came by no block, or were changed on the way.
    pub unknown: u64,
    /// Blocks that were made.
    pub blocks: u64,
    /// Of those that left, known to have arrived.
    pub delivered: u64,
    /// Of those that left, given up.
    pub lost: u64,
}

/// A user's edge of the overlay. `R` is what is secret comes from: the operating system's on a network.
pub struct User<C: Cryptography, R> {
    settings: UserSettings,
    document: Arc<Document>,
    keys_of: Vec<PublicKey>,
    members: Members,
    guards: Guards,
    choice: Choice,
    /// Of those in use, the ones that packets take now.
    in_use: Vec<RelayIndex>,
    /// By index; labels stay over epochs.
    attachments: BTreeMap<RelayIndex, Attachment>,
    /// Packets over each guard that were lost since one arrived.
    lost_in_a_row: BTreeMap<RelayIndex, u32>,
    forth: Routes,
    back: Routes,
    path_keys: PathKeys<C>,
    blocks: MadeBlocks<C>,
    out_blocks: BTreeMap<BlockId, OutBlock>,
    loose: Loose<C>,
    forth_delays: RelayDelays,
    back_delays: RelayDelays,
    sessions: BTreeMap<SessionId, Session>,
    next_session: u64,
    next_tag: u64,
    cell: Vec<u8>,
    /// When old blocks are looked for.
    sweep_at: Time,
    /// There was no path: it is tried again then.
    no_path_until: Option<Time>,
    events: VecDeque<UserEvent>,
    counts: UserCounts,
    /// What is on the wall at time zero.
    wall_at_zero: UnixTime,
    rng: R,
}

impl<C: Cryptography, R> core::fmt::Debug for User<C, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "User({} sessions)", self.sessions.len())
    }
}

impl UserSettings {
    /// How one half of a user's paths is chosen; the service's relay is not chosen.
    fn routes(&self, placement: &str) -> RoutesConfig {
        let hops = self.hops.saturating_sub(1);
        RoutesConfig { hops, placement: placement.to_owned(), ..RoutesConfig::default() }
    }

    /// Refuses what cannot work, whatever the relays are.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn check(&self) -> Result<(), PlacementError> {
        self.routes(&self.placement).check()?;
        self.routes(&self.placement_back).check()
    }
}

impl<C: Cryptography, R: rand_core::Rng> User<C, R> {
    /// Over the relays of `document`; `wall` is the calendar's time at `now`.
    ///
    /// # Errors
    ///
    /// What is wrong with the settings.
    pub fn new(
        settings: UserSettings,
        document: Arc<Document>,
        guards: GuardState,
        now: Time,
        wall: UnixTime,
        mut rng: R,
    ) -> Result<User<C, R>, PlacementError> {
        let mut guards = Guards::new(settings.guards, guards);
        let choice = guards.choose(&document, now, wall, &mut route_rng(&mut rng));
        let routes =
            |placement: &str| Routes::new(settings.routes(placement), &document, settings.guards, choice.clone(), now);
        let (forth, back) = (routes(&settings.placement)?, routes(&settings.placement_back)?);
        let mut path_keys = PathKeys::new(settings.packets_per_key);
        path_keys.begin_epoch(choice.reserved.iter().copied());
        let (keys_of, members) = relays_of(&document);
        let changed = choice.changed;
        let mut user = User {
            settings,
            document,
            keys_of,
            members,
            guards,
            in_use: choice.in_use.clone(),
            choice,
            attachments: BTreeMap::new(),
            lost_in_a_row: BTreeMap::new(),
            forth,
            back,
            path_keys,
            blocks: MadeBlocks::new(MOST_BLOCKS),
            out_blocks: BTreeMap::new(),
            loose: Loose::new(),
            forth_delays: RelayDelays::default(),
            back_delays: RelayDelays::default(),
            sessions: BTreeMap::new(),
            next_session: 0,
            next_tag: 0,
            cell: Vec::new(),
            sweep_at: now + BLOCK_LIFE,
            no_path_until: None,
            events: VecDeque::new(),
            counts: UserCounts::default(),
            wall_at_zero: UnixTime(wall.0.saturating_sub(now.as_nanos() / Duration::SECOND.as_nanos())),
            rng,
        };
        if changed {
            user.events.push_back(UserEvent::Guards);
        }
        user.attach();
        Ok(user)
    }

    /// Another epoch begins.
    ///
    /// # Errors
    ///
    /// None that [`User::new`] has not had.
    pub fn begin_epoch(&mut self, now: Time, document: Arc<Document>) -> Result<(), PlacementError> {
        let label_of = |relay: &RelayIndex| self.document.member(*relay).map(|member| member.descriptor.identity);
        let kept: Vec<_> = self
            .attachments
            .iter()
            .filter_map(|(relay, attachment)| Some((label_of(relay)?, attachment.clone())))
            .collect();
        self.attachments = kept
            .into_iter()
            .filter_map(|(identity, attachment)| Some((document.index_of(&identity)?, attachment)))
            .collect();
        self.loose.begin_epoch();
        // A service stays where it is by its relay's name, or is gone.
        for session in self.sessions.values_mut() {
            let mut moves = |door: &mut Door| {
                let moved = label_of(&door.at.relay).and_then(|identity| document.index_of(&identity));
                door.at.relay = moved.unwrap_or(door.at.relay);
                moved.is_some()
            };
            session.doors.retain_mut(&mut moves);
            session.reserve.retain_mut(&mut moves);
            if session.doors.is_empty() {
                session.client.close();
            }
        }
        let (keys_of, members) = relays_of(&document);
        (self.keys_of, self.members, self.document) = (keys_of, members, document);
        // Indices mean other relays now.
        self.forth_delays = RelayDelays::default();
        self.back_delays = RelayDelays::default();
        self.choose_guards(now)
    }

    fn choose_guards(&mut self, now: Time) -> Result<(), PlacementError> {
        let wall = self.wall_at_zero.after(now.as_nanos() / Duration::SECOND.as_nanos());
        let choice = self.guards.choose(&self.document, now, wall, &mut route_rng(&mut self.rng));
        if choice.changed {
            self.events.push_back(UserEvent::Guards);
        }
        self.path_keys.begin_epoch(choice.reserved.iter().copied());
        self.choice = choice;
        self.attach();
        self.use_guards(now)
    }

    /// Packets take those guards that are known to be there.
    fn use_guards(&mut self, now: Time) -> Result<(), PlacementError> {
        let is_there = |relay: &RelayIndex| self.attachments.get(relay).is_some_and(|link| link.is_attached(now));
        self.in_use = self.choice.in_use.iter().copied().filter(is_there).collect();
        let choice = Choice { in_use: self.in_use.clone(), ..self.choice.clone() };
        self.forth.renew(&self.document, choice.clone(), now)?;
        self.back.renew(&self.document, choice, now)
    }

    /// Hangs on all relays that answers may come from.
    fn attach(&mut self) {
        let wanted: Vec<RelayIndex> = match self.settings.guards {
            0 => self.document.relays().map(|(relay, _)| relay).collect(),
            _ => self.choice.in_use.clone(),
        };
        self.attachments.retain(|relay, _| wanted.contains(relay));
        self.lost_in_a_row.clear();
        for relay in wanted {
            let rng = &mut self.rng;
            self.attachments.entry(relay).or_insert_with(|| Attachment::new(Label(rng.next_u64().to_be_bytes())));
        }
    }

    /// What must outlive a restart.
    pub fn guards(&self) -> &GuardState {
        self.guards.state()
    }

    /// The guards in use.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The relays that there are.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// Whether answers can come: a guard passes on what comes.
    pub fn is_attached(&self, now: Time) -> bool {
        self.attachments.values().any(|attachment| attachment.is_attached(now))
    }

    /// What it has done.
    pub fn counts(&self) -> &UserCounts {
        &self.counts
    }

    /// Where packets go on their way to services.
    pub fn routes(&self) -> &Routes {
        &self.forth
    }

    /// Begins a session with the service at `destination`.
    pub fn open(&mut self, now: Time, destination: Destination, rates: Rates) -> SessionId {
        let at = MailboxAt { relay: destination.relay, label: destination.label };
        self.open_at(now, cell_format(self.settings.secrecy), destination.keys, [at], rates)
    }

    /// Those that this user's packets may go to: a guard of it that is a mailbox would know whom it sends to.
    fn usable(&self, mailboxes: &[MailboxAt]) -> Vec<MailboxAt> {
        let may = |mailbox: &&MailboxAt| {
            !self.choice.reserved.contains(&mailbox.relay) && usize::from(mailbox.relay.0) < self.members.len()
        };
        mailboxes.iter().filter(may).copied().collect()
    }

    /// Begins a session with a hidden receiver that is found at `mailboxes`; none if none of them can be used.
    pub fn open_hidden(
        &mut self,
        now: Time,
        keys: ServiceKeys,
        mailboxes: &[MailboxAt],
        rates: Rates,
    ) -> Option<SessionId> {
        let usable = self.usable(mailboxes);
        let format = hidden_format(self.settings.secrecy);
        (!usable.is_empty()).then(|| self.open_at(now, format, keys, usable, rates))
    }

    fn open_at(
        &mut self,
        now: Time,
        format: CellFormat,
        keys: ServiceKeys,
        doors: impl IntoIterator<Item = MailboxAt>,
        rates: Rates,
    ) -> SessionId {
        let mut entropy = [0; 32];
        self.rng.fill_bytes(&mut entropy);
        let client = Client::new(now, format, keys, rates, Entropy(entropy));
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(id, Session::new(client, format, doors));
        id
    }

    /// From now on packets of the session go to `mailboxes`, if some can be used, and while those are dead to where they
    /// went at first.
    pub fn redirect(&mut self, id: SessionId, mailboxes: &[MailboxAt]) {
        let usable = self.usable(mailboxes);
        if let Some(session) = self.sessions.get_mut(&id).filter(|_| !usable.is_empty()) {
            let before = core::mem::replace(&mut session.doors, usable.into_iter().map(Door::new).collect());
            session.replaced += before.len();
            if session.reserve.is_empty() {
                session.reserve = before;
            }
        }
    }

    /// One of its sessions, to act on; [`User::serve`] comes after it.
    pub fn session(&mut self, id: SessionId) -> Option<&mut Client> {
        self.sessions.get_mut(&id).map(|session| &mut session.client)
    }

    /// Its sessions.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &Client)> {
        self.sessions.iter().map(|(id, session)| (*id, &session.client))
    }

    /// Sends what is to leave now, and tells what has happened.
    pub fn serve(&mut self, now: Time, out: &mut impl Out<User<C, R>>) {
        self.speak_to_guards(now, out);
        let there = self
            .choice
            .in_use
            .iter()
            .filter(|relay| self.attachments.get(relay).is_some_and(|attachment| attachment.is_attached(now)));
        if self.settings.guards > 0 && !there.eq(&self.in_use) {
            // The settings were good before.
            let _ = self.use_guards(now);
        }
        if self.is_attached(now) && self.no_path_until.is_none_or(|until| until <= now) {
            let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
            ids.into_iter().for_each(|id| self.serve_session(now, id, out));
        }
        self.events.drain(..).for_each(|event| out.event(event));
    }

    fn speak_to_guards(&mut self, now: Time, out: &mut impl Out<User<C, R>>) {
        let mut failed = Vec::new();
        for (relay, attachment) in &mut self.attachments {
            if let Some(said) = attachment.poll(now)
                && let Some(to) = self.members.current(*relay)
            {
                let frame = Frame::link(said);
                out.send(Departure::now(to, frame.length()), &frame);
            }
            if attachment.unanswered() > UNANSWERED && self.choice.in_use.contains(relay) {
                failed.push(*relay);
            }
        }
        for relay in &failed {
            let identity = self.document.member(*relay).map(|member| member.descriptor.identity);
            if let Some(identity) = identity {
                self.guards.on_failure(&identity, now);
            }
            self.attachments.remove(relay);
        }
        if !failed.is_empty()
            || self.guards.retry_at().is_some_and(|at| at <= now && self.choice.in_use.len() < self.settings.guards)
        {
            // The settings were good before.
            let _ = self.choose_guards(now);
        }
    }

    fn serve_session(&mut self, now: Time, id: SessionId, out: &mut impl Out<User<C, R>>) {
        // What happens in one call changes what is wanted in the next.
        while self.give_blocks(now, id) | self.send_cell(now, id, out) {}
        let Some(session) = self.sessions.get_mut(&id) else { return };
        while let Some(event) = session.client.poll_event() {
            match event {
                ClientEvent::Connected => self.events.push_back(UserEvent::Connected(id)),
                ClientEvent::Stream(event) => self.events.push_back(UserEvent::Stream(id, event)),
                ClientEvent::Ended(end) => {
                    self.events.push_back(UserEvent::Ended(id, end));
                    self.forget(id);
                    return;
                }
                ClientEvent::Delivered(delivered) => {
                    let Some(sent) = session.sent.remove(&delivered.via) else { continue };
                    self.counts.delivered += 1;
                    self.path_keys.arrived(&sent.receipt);
                    session.on_fate(now, sent.door, true);
                    if let Some(first) = sent.path.relays().first() {
                        self.lost_in_a_row.remove(first);
                    }
                    if let Some(round_trip) = delivered.round_trip {
                        self.forth_delays.sample(sent.path.relays(), round_trip);
                    }
                    let nanos = |time: Time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
                    let one_way_nanos = delivered.arrived.map(|arrived| nanos(arrived) - nanos(sent.at));
                    let fate = Fate::Arrived { one_way_nanos };
                    self.forth.on_outcome(sent.route, now, fate, &mut route_rng(&mut self.rng));
                }
                ClientEvent::Lost { via } => {
                    let Some(sent) = session.sent.remove(&via) else { continue };
                    self.counts.lost += 1;
                    self.path_keys.lost(&sent.receipt);
                    session.on_fate(now, sent.door, false);
                    if let Some(first) = sent.path.relays().first() {
                        let lost = self.lost_in_a_row.entry(*first).or_insert(0);
                        *lost += 1;
                        if *lost == SUSPICIOUS
                            && let Some(attachment) = self.attachments.get_mut(first)
                        {
                            attachment.ask(now);
                        }
                    }
                    self.forth.on_outcome(sent.route, now, Fate::Lost, &mut route_rng(&mut self.rng));
                }
                ClientEvent::BlockReturned { serial, delay } => {
                    let Some(block) = session.blocks.remove(&serial).and_then(|block| self.out_blocks.remove(&block))
                    else {
                        continue;
                    };
                    self.back_delays.sample(block.path.relays(), delay);
                    let nanos = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
                    let fate = Fate::Arrived { one_way_nanos: Some(nanos) };
                    self.back.on_outcome(block.route, now, fate, &mut route_rng(&mut self.rng));
                }
                ClientEvent::BlockLost { serial } => {
                    let Some(block) = session.blocks.remove(&serial).and_then(|block| self.out_blocks.remove(&block))
                    else {
                        continue;
                    };
                    self.back.on_outcome(block.route, now, Fate::Lost, &mut route_rng(&mut self.rng));
                }
            }
        }
    }

    /// A session is over: what is out of it is nobody's.
    fn forget(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        for sent in session.sent.into_values() {
            self.path_keys.lost(&sent.receipt);
        }
        for block in session.blocks.into_values() {
            self.out_blocks.remove(&block);
        }
    }

    /// Makes blocks as long as some are wanted; whether one was made.
    fn give_blocks(&mut self, now: Time, id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let mut has_made = false;
        let elsewhere: Vec<RelayIndex> = session.doors.iter().map(|door| door.at.relay).collect();
        for _ in 0..session.client.blocks_wanted() {
            let request = Request { half: Half::ToUser, elsewhere: &elsewhere, far: 0 };
            let route = match self.back.choose(now, request, &mut route_rng(&mut self.rng)) {
                Ok(route) => route,
                Err(why) => {
                    tell_no_path(now, &mut self.no_path_until, why, &mut self.events);
                    return has_made;
                }
            };
            let relays = route.path.relays();
            let label = relays.last().and_then(|guard| self.attachments.get(guard)).map(Attachment::label);
            let Some(label) = label else { return has_made };
            let hops = hops(relays, &self.keys_of, self.settings.mixing, &mut self.rng);
            let made = self.blocks.make(&mut self.path_keys, &hops, label, now, &mut self.rng);
            // Whoever chose this path keeps to what packets allow; a relay with a key of low order is none.
            let Ok((block_id, block)) = made else { return has_made };
            self.no_path_until = None;
            self.counts.blocks += 1;
            let spread = self.back_delays.timeout(relays);
            let Ok(serial) = session.client.give_block(&block.to_bytes(), spread) else { return has_made };
            session.blocks.insert(serial, block_id);
            self.out_blocks.insert(block_id, OutBlock { session: id, serial, route: route.id, path: route.path });
            has_made = true;
        }
        has_made
    }

    /// Sends one cell, if one is to leave; whether one did.
    fn send_cell(&mut self, now: Time, id: SessionId, out: &mut impl Out<User<C, R>>) -> bool {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.client.wants_cell(now)) else {
            return false;
        };
        let Some((far, door)) = session.next_door(now) else { return false };
        let request = Request { half: Half::FromUser, elsewhere: &[door.relay], far };
        let route = match self.forth.choose(now, request, &mut route_rng(&mut self.rng)) {
            Ok(route) => route,
            Err(why) => {
                tell_no_path(now, &mut self.no_path_until, why, &mut self.events);
                return false;
            }
        };
        let relays = route.path.relays();
        let tag = self.next_tag;
        self.next_tag += 1;
        let via = Via { tag, timeout: self.forth_delays.timeout(relays) };
        if !session.client.poll_cell(now, via, &mut self.cell) {
            return false;
        }
        let mut all = hops(relays, &self.keys_of, self.settings.mixing, &mut self.rng);
        all.extend(hops(&[door.relay], &self.keys_of, self.settings.mixing, &mut self.rng));
        let mut frame = Frame::default();
        body_mut(&mut frame.datagram)[..self.cell.len()].copy_from_slice(&self.cell);
        let sealed = self.path_keys.seal(&all, door.label, &mut self.rng, &mut frame.datagram);
        // Lost, then, as on any path: the session sends what it carried again.
        let Ok(receipt) = sealed else { return true };
        session.sent.insert(tag, Sent { at: now, route: route.id, path: route.path, receipt, door });
        let Some(to) = relays.first().and_then(|first| self.members.current(*first)) else { return true };
        self.no_path_until = None;
        self.counts.sent += 1;
        out.send(Departure::now(to, DATAGRAM as u32), &frame);
        true
    }

    fn on_packet(&mut self, now: Time, frame: &mut Frame) {
        if self.on_loose(now, &mut frame.datagram) {
            return;
        }
        let Ok(opened) = self.blocks.open(&mut self.path_keys, &mut frame.datagram) else {
            self.counts.unknown += 1;
            return;
        };
        self.counts.received += 1;
        let Some(block) = self.out_blocks.get(&opened.block) else { return };
        let (id, serial) = (block.session, block.serial);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.client.on_cell(now, &body(&frame.datagram)[..session.cell], serial);
        }
    }

    /// Gives up what is long out.
    fn sweep(&mut self, now: Time) {
        self.sweep_at = now + BLOCK_LIFE;
        let before = Time::from_nanos(now.as_nanos().saturating_sub(BLOCK_LIFE.as_nanos()));
        for block in self.blocks.give_up(&mut self.path_keys, before) {
            if let Some(out) = self.out_blocks.remove(&block)
                && let Some(session) = self.sessions.get_mut(&out.session)
            {
                session.blocks.remove(&out.serial);
            }
        }
    }
}

/// A choice of path draws from numbers that nothing else comes from.
fn route_rng(rng: &mut impl rand_core::Rng) -> Rng {
    Rng::stream(rng.next_u64(), "route")
}

fn tell_no_path(now: Time, until: &mut Option<Time>, why: RouteError, events: &mut VecDeque<UserEvent>) {
    if until.replace(now + NO_PATH_WAIT).is_none() {
        events.push_back(UserEvent::NoPath(why));
    }
}

fn relays_of(document: &Document) -> (Vec<PublicKey>, Members) {
    // One without a key for this epoch is there and opens nothing: a low-order key, which no path takes.
    let key = |descriptor: &crate::directory::Descriptor| descriptor.key_of(document.epoch).unwrap_or([0; 32]);
    let keys = document.relays().map(|(_, member)| PublicKey(key(&member.descriptor))).collect();
    let addresses: Vec<SocketAddr> = document.relays().map(|(_, member)| member.descriptor.address).collect();
    (keys, Members::new(document.epoch, addresses))
}

fn hops(
    relays: &[RelayIndex],
    keys: &[PublicKey],
    mixing: Option<Duration>,
    rng: &mut impl rand_core::Rng,
) -> Vec<Hop> {
    let mut wait = || match mixing {
        None => Duration::ZERO,
        Some(mean) => Duration::from_secs_f64(mean.as_secs_f64() * route_rng(rng).exponential()),
    };
    let hop = |relay: &RelayIndex| Hop { relay: *relay, key: keys[usize::from(relay.0)], wait: wait() };
    relays.iter().map(hop).collect()
}

impl<C: Cryptography, R: rand_core::Rng> Machine for User<C, R> {
    type Address = SocketAddr;
    type Message = Frame;
    type Event = UserEvent;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        frame: &mut Frame,
        out: &mut impl Out<User<C, R>>,
    ) {
        match frame.kind {
            Kind::Packet => self.on_packet(now, frame),
            Kind::Link(said) => {
                for (relay, attachment) in &mut self.attachments {
                    if self.members.current(*relay) == Some(arrival.from) {
                        attachment.on_frame(now, &said);
                        if attachment.is_attached(now)
                            && let Some(member) = self.document.member(*relay)
                        {
                            self.guards.on_success(&member.descriptor.identity);
                        }
                    }
                }
            }
        }
        self.serve(now, out);
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<User<C, R>>) {
        for session in self.sessions.values_mut() {
            if session.client.timer(now).is_some_and(|at| at <= now) {
                session.client.on_timer(now);
            }
        }
        if now >= self.sweep_at {
            self.sweep(now);
        }
        self.serve(now, out);
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<User<C, R>>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        let is_attached = self.is_attached(now);
        let sessions = self.sessions.values().filter(|_| is_attached).filter_map(|session| session.client.timer(now));
        let sessions = sessions.map(|at| at.max(self.no_path_until.unwrap_or(Time::ZERO)));
        let attachments = self.attachments.values().map(Attachment::timer);
        let missing = self.choice.in_use.len() < self.settings.guards;
        let retry = self.guards.retry_at().filter(|_| missing);
        sessions.chain(attachments).chain(retry).chain([self.sweep_at]).min().unwrap_or(Time::MAX)
    }
}

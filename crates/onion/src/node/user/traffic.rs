//! A user's sessions and their packets: a path for each cell that is to leave, the blocks by which cells come back, and
//! what came of either, which teaches those who choose paths.

pub mod cover;
pub mod loose;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use arrayvec::ArrayVec;

use self::cover::Covering;
use self::loose::Loose;
use super::doors::Doors;
use super::entry::Entry;
use super::{Destination, SessionId, UserCounts, UserEvent, UserSettings, route_rng};
use crate::RelayIndex;
use crate::crypto::{Cryptography, PublicKey};
use crate::directory::Document;
use crate::guards::Choice;
use crate::hidden::{MailboxAt, hidden_format};
use crate::node::service::cell_format;
use crate::node::{Frame, Members};
use crate::packet::{Hop, Label, PathKeys, Receipt, body, body_mut};
use crate::reply::{BlockId, MadeBlocks};
use crate::routes::{Fate, Half, Path, PlacementError, Request, RouteError, RouteId, Routes};
use crate::session::{CellFormat, Client, ClientEvent, Entropy, Rates, RelayDelays, ServiceKeys, Via};
use crate::size::MOST_HOPS;

/// Blocks that are out at most: of more, the oldest count as lost. As many as two sessions in full flight have.
const MOST_BLOCKS: usize = 32_768;

/// A block that has not come back for so long is given up: longer than services keep them.
const BLOCK_LIFE: Duration = Duration::from_millis(120_000);

/// Where there is no path, one is looked for again after this.
const NO_PATH_WAIT: Duration = Duration::SECOND;

/// After this many packets of a session in a row that did not arrive, over whatever relays, the loss of another says
/// nothing of its relays: an end is to blame, or a guard. Learners would have all relays at their least rates then, and
/// would have to find out again which of them are good.
const DEAF: u32 = 8;

/// Packets of a session that count as lost and may still come.
const MOST_LATE: usize = 4096;

/// A packet whose outcome is open.
struct Sent {
    at: Time,
    /// The indices of its path are of this epoch.
    epoch: u64,
    route: RouteId,
    path: Path,
    receipt: Receipt,
    /// The label that it went to.
    door: Label,
    /// It counts as lost.
    is_late: bool,
}

/// A block that is out.
struct OutBlock {
    session: SessionId,
    serial: u64,
    /// The indices of its path are of this epoch.
    epoch: u64,
    route: RouteId,
    path: Path,
}

struct Session {
    client: Client,
    /// Bytes of its cells.
    cell: usize,
    doors: Doors,
    /// By tag.
    sent: BTreeMap<u64, Sent>,
    /// Those of them that count as lost, and until when they may come late.
    late: VecDeque<(Time, u64)>,
    /// By serial.
    blocks: BTreeMap<u64, BlockId>,
    /// Packets lost since one arrived.
    deaf: u32,
    /// When the last of those left that arrived.
    arrived_from: Time,
}

/// What a user's packets have to do with.
pub(super) struct Traffic<C: Cryptography> {
    pub(super) settings: UserSettings,
    pub(super) keys_of: Vec<PublicKey>,
    pub(super) members: Members,
    pub(super) forth: Routes,
    pub(super) back: Routes,
    pub(super) path_keys: PathKeys<C>,
    pub(super) blocks: MadeBlocks<C>,
    out_blocks: BTreeMap<BlockId, OutBlock>,
    pub(super) loose: Loose<C>,
    forth_delays: RelayDelays,
    back_delays: RelayDelays,
    sessions: BTreeMap<SessionId, Session>,
    next_session: u64,
    next_tag: u64,
    cell: Vec<u8>,
    /// When old blocks are looked for.
    sweep_at: Time,
    /// There was no path: it is tried again then.
    pub(super) no_path_until: Option<Time>,
    pub(super) events: VecDeque<UserEvent>,
    pub(super) counts: UserCounts,
    pub(super) covering: Covering,
}

impl<C: Cryptography> Traffic<C> {
    /// Over the relays of `document`, entering by those of `choice`.
    pub fn new(
        settings: UserSettings,
        document: &Document,
        choice: &Choice,
        now: Time,
    ) -> Result<Traffic<C>, PlacementError> {
        let routes = |placement: &str, guards: usize| {
            Routes::new(settings.routes(placement), document, guards, choice.clone(), now)
        };
        // Without guards too, answers come by relays that this user hangs on.
        let (forth, back) =
            (routes(&settings.placement, settings.guards)?, routes(&settings.placement_back, settings.guards.max(1))?);
        let mut path_keys = PathKeys::new(settings.packets_per_key);
        path_keys.begin_epoch(document.epoch, choice.reserved.iter().copied());
        let (keys_of, members) = relays_of(document);
        Ok(Traffic {
            settings,
            keys_of,
            members,
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
            covering: Covering::default(),
        })
    }

    /// Another epoch begins, after that of `before`. Blocks that are out keep to theirs.
    pub fn begin_epoch(&mut self, before: &Document, document: &Document, choice: &Choice) {
        let moved = |relay: RelayIndex| document.index_of(&before.member(relay)?.descriptor.identity);
        // A service stays where it is by its relay's name, or is gone.
        for session in self.sessions.values_mut() {
            if !session.doors.begin_epoch(moved) || !session.doors.leave(&choice.reserved) {
                session.client.close();
            }
        }
        (self.keys_of, self.members) = relays_of(document);
        self.forth_delays.renumber(moved);
        self.back_delays.renumber(moved);
        self.covering.begin_epoch(moved);
        self.forget_loose();
        self.path_keys.begin_epoch(document.epoch, choice.reserved.iter().copied());
    }

    /// Guards were chosen anew.
    pub fn reserve(&mut self, choice: &Choice) {
        self.path_keys.set_guards(choice.reserved.iter().copied());
        // A guard that is a mailbox as well would know whom its user sends to, and no path leads there.
        for session in self.sessions.values_mut() {
            if !session.doors.leave(&choice.reserved) {
                session.client.close();
            }
        }
    }

    /// A guard is gone, and with it what was to come by it: services get other blocks.
    pub fn renew_blocks(&mut self) {
        self.sessions.values_mut().for_each(|session| session.client.renew_blocks());
    }

    /// Packets enter by those of `choice` from now on.
    pub fn enter_by(&mut self, document: &Document, choice: Choice, now: Time) -> Result<(), PlacementError> {
        self.forth.renew(document, choice.clone(), now)?;
        self.back.renew(document, choice, now)
    }

    /// Where relays are.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// What was done.
    pub fn counts(&self) -> &UserCounts {
        &self.counts
    }

    /// Where packets go on their way to services.
    pub fn routes(&self) -> &Routes {
        &self.forth
    }

    /// How often each relay was drawn in a learner's place, on the way to services and back.
    pub fn drawn(&self) -> [&[u64]; 2] {
        [self.forth.drawn(), self.back.drawn()]
    }

    /// Where the blocks lead that services answer by.
    pub fn routes_back(&self) -> &Routes {
        &self.back
    }

    /// The last times of packets there and back, oldest first, without what the other end waited.
    pub fn round_trips(&self) -> impl Iterator<Item = Duration> {
        self.forth_delays.recent()
    }

    /// Begins a session.
    pub fn open(&mut self, now: Time, destination: Destination, rates: Rates, entropy: Entropy) -> SessionId {
        let at = MailboxAt { relay: destination.relay, label: destination.label };
        let client = |format| Client::new(now, format, destination.keys, rates, entropy);
        self.begin(cell_format(self.settings.secrecy), client, Doors::exit(at))
    }

    /// Begins a session with a hidden receiver that is found at `mailboxes`; none if none of them can be used.
    pub fn open_hidden(
        &mut self,
        now: Time,
        keys: ServiceKeys,
        mailboxes: &[MailboxAt],
        rates: Rates,
        entropy: Entropy,
        choice: &Choice,
    ) -> Option<SessionId> {
        let usable = self.usable(mailboxes, choice);
        let client = |format| Client::new(now, format, keys, rates, entropy);
        let format = hidden_format(self.settings.secrecy);
        (!usable.is_empty()).then(|| self.begin(format, client, Doors::mailboxes(usable)))
    }

    fn begin(&mut self, format: CellFormat, client: impl FnOnce(CellFormat) -> Client, doors: Doors) -> SessionId {
        let cell = format.cell();
        let id = SessionId(self.next_session);
        self.next_session += 1;
        let (sent, blocks) = (BTreeMap::new(), BTreeMap::new());
        let (late, deaf, arrived_from) = (VecDeque::new(), 0, Time::ZERO);
        let client = client(format);
        self.sessions.insert(id, Session { client, cell, doors, sent, late, blocks, deaf, arrived_from });
        id
    }

    /// Those that this user's packets may go to: a guard of it that is a mailbox would know whom it sends to.
    fn usable(&self, mailboxes: &[MailboxAt], choice: &Choice) -> Vec<MailboxAt> {
        let may = |mailbox: &&MailboxAt| {
            !choice.reserved.contains(&mailbox.relay) && usize::from(mailbox.relay.0) < self.members.len()
        };
        mailboxes.iter().filter(may).copied().collect()
    }

    /// From now on packets of the session go to `mailboxes`, if some can be used, and while those are dead to where
    /// they went at first.
    pub fn redirect(&mut self, id: SessionId, mailboxes: &[MailboxAt], choice: &Choice) {
        let usable = self.usable(mailboxes, choice);
        if let Some(session) = self.sessions.get_mut(&id).filter(|_| !usable.is_empty()) {
            session.doors.replace(usable);
            if session.deaf >= DEAF {
                session.client.on_new_way();
            }
        }
    }

    /// One of the sessions.
    pub fn session(&mut self, id: SessionId) -> Option<&mut Client> {
        self.sessions.get_mut(&id).map(|session| &mut session.client)
    }

    /// All sessions.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &Client)> {
        self.sessions.iter().map(|(id, session)| (*id, &session.client))
    }

    /// What has happened since.
    pub fn poll_event(&mut self) -> Option<UserEvent> {
        self.events.pop_front()
    }

    /// Hands to `send` what is to leave now.
    pub fn serve(
        &mut self,
        now: Time,
        entry: &mut Entry,
        rng: &mut impl rand_core::Rng,
        send: &mut impl FnMut(SocketAddr, &Frame),
    ) {
        if self.no_path_until.is_none_or(|until| until <= now) {
            let mut ids: Vec<SessionId> = self.sessions.keys().copied().collect();
            self.covering.take_turns(&mut ids, self.counts.sent);
            ids.into_iter().for_each(|id| self.serve_session(now, id, entry, rng, send));
            self.serve_cover(now, entry, rng, send);
        }
    }

    fn serve_session(
        &mut self,
        now: Time,
        id: SessionId,
        entry: &mut Entry,
        rng: &mut impl rand_core::Rng,
        send: &mut impl FnMut(SocketAddr, &Frame),
    ) {
        // What happens in one call changes what is wanted in the next.
        while self.give_blocks(now, id, entry, rng) | self.send_cell(now, id, rng, send) {}
        let Some(session) = self.sessions.get_mut(&id) else { return };
        while session.late.front().is_some_and(|(until, _)| *until < now) || session.late.len() > MOST_LATE {
            if let Some((_, tag)) = session.late.pop_front() {
                session.sent.remove(&tag);
            }
        }
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
                    if sent.is_late {
                        self.path_keys.arrived_late(&sent.receipt);
                    } else {
                        self.counts.delivered += 1;
                        self.path_keys.arrived(&sent.receipt);
                    }
                    session.doors.on_fate(now, sent.door, true);
                    (session.deaf, session.arrived_from) = (0, session.arrived_from.max(sent.at));
                    if sent.epoch == self.members.epoch() {
                        if let Some(first) = sent.path.relays().first() {
                            entry.on_arrived(*first);
                        }
                        if let Some(round_trip) = delivered.round_trip {
                            self.forth_delays.sample(sent.path.relays(), round_trip);
                        }
                    }
                    // It was reported as lost to whoever places packets.
                    if sent.is_late {
                        continue;
                    }
                    let nanos = |time: Time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
                    let one_way_nanos = delivered.arrived.map(|arrived| nanos(arrived) - nanos(sent.at));
                    let fate = Fate::Arrived { one_way_nanos };
                    self.forth.on_outcome(sent.route, now, fate, &mut route_rng(rng));
                }
                ClientEvent::Lost { via } => {
                    let Some(sent) = session.sent.get_mut(&via).filter(|sent| !sent.is_late) else { continue };
                    sent.is_late = true;
                    // As long as the session remembers it.
                    session.late.push_back((now + now.since(sent.at), via));
                    self.counts.lost += 1;
                    self.path_keys.lost(&sent.receipt);
                    session.doors.on_fate(now, sent.door, false);
                    if let Some(first) = sent.path.relays().first()
                        && sent.epoch == self.members.epoch()
                    {
                        entry.on_lost(*first, now);
                    }
                    // Of those that left after it, some would have arrived.
                    if session.deaf >= DEAF && session.arrived_from < sent.at {
                        self.forth.forget(sent.route);
                    } else {
                        self.forth.on_outcome(sent.route, now, Fate::Lost, &mut route_rng(rng));
                    }
                    session.deaf = session.deaf.saturating_add(1);
                }
                ClientEvent::BlockReturned { serial, delay } => {
                    let Some(block) = session.blocks.remove(&serial).and_then(|block| self.out_blocks.remove(&block))
                    else {
                        continue;
                    };
                    if block.epoch == self.members.epoch() {
                        self.back_delays.sample(block.path.relays(), delay);
                    }
                    let nanos = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
                    let fate = Fate::Arrived { one_way_nanos: Some(nanos) };
                    self.back.on_outcome(block.route, now, fate, &mut route_rng(rng));
                }
                // It may come late, and is known then.
                ClientEvent::BlockLost { serial } => {
                    let Some(&id) = session.blocks.get(&serial) else { continue };
                    self.blocks.lost(&mut self.path_keys, id);
                    if let Some(block) = self.out_blocks.get(&id) {
                        self.back.on_outcome(block.route, now, Fate::Lost, &mut route_rng(rng));
                    }
                }
                ClientEvent::BlockUndelivered { serial } => {
                    if let Some(&id) = session.blocks.get(&serial) {
                        self.blocks.lost(&mut self.path_keys, id);
                    }
                }
            }
        }
    }

    /// A session is over: what is out of it is nobody's.
    fn forget(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        for sent in session.sent.into_values().filter(|sent| !sent.is_late) {
            self.path_keys.lost(&sent.receipt);
        }
        self.path_keys.end(id.isolation());
        for block in session.blocks.into_values() {
            self.out_blocks.remove(&block);
        }
    }

    /// Makes blocks as long as some are wanted; whether one was made.
    fn give_blocks(&mut self, now: Time, id: SessionId, entry: &Entry, rng: &mut impl rand_core::Rng) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let mut has_made = false;
        let elsewhere = session.doors.relays();
        for _ in 0..session.client.blocks_wanted() {
            let request = Request { half: Half::ToUser, elsewhere: &elsewhere, far: 0 };
            let route = match self.back.choose(now, request, &mut route_rng(rng)) {
                Ok(route) => route,
                Err(why) => {
                    report_no_path(now, &mut self.no_path_until, why, &mut self.events);
                    return has_made;
                }
            };
            let relays = route.path.relays();
            let label = relays.last().and_then(|guard| entry.label(*guard));
            let Some(label) = label else { return has_made };
            let hops = hops(relays, &self.keys_of, self.settings.mixing, rng);
            let made = self.blocks.make(self.path_keys.isolated(id.isolation()), &hops, label, now, rng);
            // Whoever chose this path keeps to what packets allow; a relay with a key of low order is none.
            let Ok((block_id, block)) = made else { return has_made };
            self.no_path_until = None;
            self.counts.blocks += 1;
            let spread = self.back_delays.timeout(relays);
            let Ok(serial) = session.client.give_block(&block.to_bytes(), spread, route.is_trial) else {
                return has_made;
            };
            session.blocks.insert(serial, block_id);
            let epoch = self.members.epoch();
            let out = OutBlock { session: id, serial, epoch, route: route.id, path: route.path };
            self.out_blocks.insert(block_id, out);
            has_made = true;
        }
        while self.out_blocks.len() > MOST_BLOCKS {
            let Some((_, out)) = self.out_blocks.pop_first() else { break };
            if let Some(session) = self.sessions.get_mut(&out.session) {
                session.blocks.remove(&out.serial);
            }
        }
        has_made
    }

    /// Sends one cell, if one is to leave; whether one did.
    fn send_cell(
        &mut self,
        now: Time,
        id: SessionId,
        rng: &mut impl rand_core::Rng,
        send: &mut impl FnMut(SocketAddr, &Frame),
    ) -> bool {
        if !self.covering.may_send(now) {
            return false;
        }
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.client.wants_cell(now)) else {
            return false;
        };
        let Some((far, door)) = session.doors.next(now) else { return false };
        let request = Request { half: Half::FromUser, elsewhere: &[door.relay], far };
        let route = match self.forth.choose(now, request, &mut route_rng(rng)) {
            Ok(route) => route,
            Err(why) => {
                report_no_path(now, &mut self.no_path_until, why, &mut self.events);
                return false;
            }
        };
        let relays = route.path.relays();
        let tag = self.next_tag;
        self.next_tag += 1;
        let via = Via { tag, timeout: self.forth_delays.timeout(relays), is_trial: route.is_trial };
        if !session.client.poll_cell(now, via, &mut self.cell) {
            return false;
        }
        let mut all = hops(relays, &self.keys_of, self.settings.mixing, rng);
        all.extend(hops(&[door.relay], &self.keys_of, self.settings.mixing, rng));
        let mut frame = Frame::default();
        body_mut(&mut frame.datagram)[..self.cell.len()].copy_from_slice(&self.cell);
        let sealed = self.path_keys.isolated(id.isolation()).seal(&all, door.label, rng, &mut frame.datagram);
        // Lost, then, as on any path: the session sends what it carried again.
        let Ok(receipt) = sealed else { return true };
        let epoch = self.members.epoch();
        let sent =
            Sent { at: now, epoch, route: route.id, path: route.path, receipt, door: door.label, is_late: false };
        session.sent.insert(tag, sent);
        let Some(to) = relays.first().and_then(|first| self.members.current(*first)) else { return true };
        self.no_path_until = None;
        self.counts.sent += 1;
        self.covering.on_sent(now);
        send(to, &frame);
        true
    }

    /// A packet came.
    pub fn on_packet(&mut self, now: Time, frame: &mut Frame, entry: &mut Entry, rng: &mut impl rand_core::Rng) {
        if self.on_loose(now, &mut frame.datagram, rng) {
            return;
        }
        let Ok(opened) = self.blocks.open(&mut self.path_keys, &mut frame.datagram) else {
            self.counts.unknown += 1;
            return;
        };
        self.counts.received += 1;
        if self.on_loop(now, opened.block, entry, rng) {
            return;
        }
        let Some(block) = self.out_blocks.get(&opened.block) else { return };
        let (id, serial) = (block.session, block.serial);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.client.on_cell(now, &body(&frame.datagram)[..session.cell], serial);
        }
    }

    /// Time has passed.
    pub fn on_timer(&mut self, now: Time, rng: &mut impl rand_core::Rng) {
        for session in self.sessions.values_mut() {
            if session.client.timer(now).is_some_and(|at| at <= now) {
                session.client.on_timer(now);
            }
        }
        if now >= self.sweep_at {
            self.sweep(now);
        }
        self.expire_loops(now, rng);
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

    /// When [`Traffic::on_timer`] or [`Traffic::serve`] has something to do; `can_send` if packets can leave.
    pub fn timer(&self, now: Time, can_send: bool) -> Time {
        let sessions = self.sessions.values().filter(|_| can_send).filter_map(|session| session.client.timer(now));
        let no_path_until = self.no_path_until.unwrap_or(Time::ZERO);
        let sessions = sessions.map(|at| at.max(no_path_until));
        // What a session wants to send now waits for its tick; what fell due while nothing could be sent is due now.
        let sessions = sessions.map(|at| if at <= now { now.max(self.covering.gate(now)) } else { at });
        let cover = self.covering.timer(now, can_send).max(no_path_until);
        sessions.chain([self.sweep_at, cover]).min().unwrap_or(Time::MAX)
    }
}

pub(super) fn report_no_path(now: Time, until: &mut Option<Time>, why: RouteError, events: &mut VecDeque<UserEvent>) {
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

/// The relays of a half, and one behind them.
pub(super) type Hops = ArrayVec<Hop, { MOST_HOPS + 1 }>;

pub(super) fn hops(
    relays: &[RelayIndex],
    keys: &[PublicKey],
    mixing: Option<Duration>,
    rng: &mut impl rand_core::Rng,
) -> Hops {
    let mut wait = || match mixing {
        None => Duration::ZERO,
        Some(mean) => Duration::from_secs_f64(mean.as_secs_f64() * route_rng(rng).exponential()),
    };
    let hop = |relay: &RelayIndex| Hop { relay: *relay, key: keys[usize::from(relay.0)], wait: wait() };
    relays.iter().map(hop).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use anabranch_control::rng::Rng;

    use super::*;
    use crate::crypto::Transparent;
    use crate::directory::{UnixTime, testing};
    use crate::guards::GuardState;
    use crate::packet::PacketsPerKey;
    use crate::session::{Secrecy, ServiceSecret, Target};

    /// An exit that finds one key in packets of two sessions knows that both are of one user, whatever names they
    /// showed to the proxy.
    #[test]
    fn p15_sessions_with_one_exit_share_no_key_behind_guards() {
        let mut rng = Rng::stream(15, "sessions");
        let (document, now) = (testing::document(1, 9), Time::ZERO);
        let settings = UserSettings {
            guards: 1,
            hops: 3,
            placement: "random".to_owned(),
            placement_back: "random".to_owned(),
            packets_per_key: PacketsPerKey::STANDARD,
            secrecy: Secrecy::Sealed,
            mixing: None,
        };
        let mut entry = Entry::new(1, GuardState::default(), &document, now, UnixTime(3600), &mut rng);
        let state = entry.state().clone();
        entry.on_kept(&state);
        entry.attach(&document, now, &mut rng);
        let guard = entry.choice().in_use[0];
        let mut traffic = Traffic::<Transparent>::new(settings, &document, entry.choice(), now).unwrap();
        let secret = ServiceSecret::from_seed(&[15; 32]);
        let exit = document.relays().map(|(relay, _)| relay).find(|relay| *relay != guard).unwrap();
        let open = |traffic: &mut Traffic<Transparent>| {
            let destination = Destination { relay: exit, label: Label(*b"exit...."), keys: secret.keys() };
            let id = traffic.open(now, destination, Rates::default(), Entropy([7; 32]));
            let target = Target::Name("example.org".into(), 80);
            traffic.session(id).and_then(|client| client.open_stream(now, target)).expect("it has just begun");
            id
        };
        let sessions = [(); 2].map(|()| {
            let id = open(&mut traffic);
            traffic.serve(now, &mut entry, &mut rng, &mut |_, _| {});
            // They arrive: their keys may be used again.
            let receipts: Vec<Receipt> = traffic.sessions[&id].sent.values().map(|sent| sent.receipt.clone()).collect();
            receipts.iter().for_each(|receipt| traffic.path_keys.arrived(receipt));
            id
        });
        let keys_at = |id: SessionId| -> BTreeSet<(bool, u64)> {
            let sent = traffic.sessions[&id].sent.values();
            sent.flat_map(|sent| sent.receipt.serials().map(|(place, key)| (place == 0, key))).collect()
        };
        let [one, other] = sessions.map(keys_at);
        for keys in [&one, &other] {
            assert!(keys.iter().any(|(is_guard, _)| !is_guard), "something was sent: {keys:?}");
        }
        let shared: Vec<_> = one.intersection(&other).filter(|(is_guard, _)| !is_guard).collect();
        assert!(shared.is_empty(), "{shared:?}");
        // What is over leaves no keys behind the guard.
        assert_eq!(traffic.path_keys.isolations(), 3);
        sessions.into_iter().for_each(|id| traffic.forget(id));
        assert_eq!(traffic.path_keys.isolations(), 1);
    }
}

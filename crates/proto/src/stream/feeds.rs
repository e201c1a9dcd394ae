//! Who pushes which slice to a client, and what it does when one falls silent.
//!
//! The server names a parent for each slice and backups. A new parent is asked at once, and the one
//! before it is told to stop when the new one's first packet is here. A slice is *silent* when the
//! others have got on without it by [`SILENT_PACKETS`] of its packets, and by [`SILENCE`]: what the
//! source does not send, nobody misses. Then the client's own children are told, who miss it as well
//! and are not to blame this client, nor to leave it; and so they are where another parent has been named meanwhile,
//! of whom nothing has come yet. If no such word comes from its parent in
//! [`WORD`], a backup is asked and the server told: one from which another slice comes if there is such a one, and
//! none from which another should come and does not. The server names another where the backup has no room, or is
//! not surely there; until one of them pushes, the last that has pushed goes on.
//!
//! A parent of whom packets of other slices still come is not dead but behind. It is left like one that
//! misses the slice itself: after [`PATIENCE`], and without blame.

use anabranch_control::time::{Duration, Time};

use super::content::ClientId;
use super::message::{Contact, FeedReport, Parent, SilentFeed};
use super::packet::{PacketId, SliceSet};
use super::pushes::Pushes;
use crate::session::SessionId;

/// Packets of a slice that do not come, while others do, until it is silent.
pub const SILENT_PACKETS: u64 = 3;

/// A slice is not silent sooner: two round trips of an eighth of a second.
pub const SILENCE: Duration = Duration::from_millis(250);

/// How long the word of a parent that misses the slice itself may take: its look for silent slices, and
/// a long way.
pub const WORD: Duration = Duration::from_millis(150);

/// What a parent that has just been asked has more time: three long ways for the session and the
/// question, and the queue of its uplink.
pub const BEGINNING: Duration = Duration::from_millis(600);

/// Each report in a row of which nothing comes, neither a packet nor another parent, doubles that, but no more often:
/// where the server's line is full, it is not to be filled by those who ask for its word.
const MOST_DOUBLINGS: u32 = 4;

/// What a backup has more time that has just been asked: it is there, as far as anybody knows, and has nothing to
/// mend; the rest is what any silence takes.
const BACKUP_BEGINNING: Duration = Duration::from_millis(100);

/// A parent that misses the slice itself is left after this, without blame.
const PATIENCE: Duration = Duration::from_millis(1500);

/// How long the parent that is left goes on if the new one sends nothing.
const OVERLAP: Duration = Duration::from_millis(2000);

/// Where a slice comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feed {
    /// From nowhere yet.
    #[default]
    None,
    /// From the server.
    Server,
    /// From another client.
    Client(ClientId),
}

/// How a slice comes from its feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedState {
    /// It has been asked for, and nothing has come yet.
    #[default]
    Awaited,
    /// It comes.
    Live,
    /// It came, or should have, and nothing does any more.
    Silent,
}

impl Feed {
    fn of<A>(contact: &Option<Contact<A>>) -> Feed {
        contact.as_ref().map_or(Feed::Server, |contact| Feed::Client(contact.client))
    }
}

/// One slice.
#[derive(Clone, Copy, Debug)]
struct Slice<A> {
    feed: Feed,
    session: Option<SessionId>,
    /// The one that it came from before, and until when it may go on.
    left: Option<(SessionId, Time)>,
    backups: [Option<Contact<A>>; 2],
    /// Which backups were asked since the last packet, a bit for each.
    tried: u8,
    /// The one after the last packet that the feed pushed, and when it was last known to be alive or was asked.
    last: PacketId,
    alive: Time,
    /// The one after the last packet that the feed, or the one before it that goes on, has pushed.
    brought: PacketId,
    pushes: Pushes,
    /// Until when what its feed was asked for is expected from it alone.
    begins_until: Time,
    /// When anything was last pushed: children have waited since then, whoever is named or asked meanwhile.
    fed: Time,
    /// Whether nothing comes of the feed.
    is_silent: bool,
    /// Whether children know that nothing comes.
    is_reported: bool,
    /// Since when the parent says that it misses it itself.
    stalled_since: Option<Time>,
    /// Reports in a row of which nothing has come.
    in_vain: u32,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<A> {
    /// Ask this client for the slice.
    Ask(u8, Contact<A>),
    /// Ask the server for it.
    AskServer(u8),
    /// Tell this parent to push the slice no more.
    Leave(u8, SessionId),
    /// Children are to know that nothing comes of this slice.
    ReportStalled(u8),
    /// Nothing comes of a slice; whom the server has named instead is asked next.
    Silent(SilentFeed),
}

/// The slices of a client.
#[derive(Clone, Debug)]
pub struct Feeds<A> {
    slices: Vec<Slice<A>>,
    /// When a packet of the stream last came over each session.
    heard: Vec<Time>,
}

impl<A: Copy> Feeds<A> {
    /// `slices` slices that come from nowhere.
    pub fn new(slices: u8, now: Time, begin: PacketId) -> Feeds<A> {
        let slice = Slice {
            feed: Feed::None,
            session: None,
            left: None,
            backups: [None; 2],
            tried: 0,
            last: begin,
            brought: begin,
            alive: now,
            pushes: Pushes::new(begin),
            begins_until: Time::ZERO,
            fed: now,
            is_silent: false,
            is_reported: false,
            stalled_since: None,
            in_vain: 0,
        };
        Feeds { slices: vec![slice; usize::from(slices)], heard: Vec::new() }
    }

    /// Where `slice` comes from.
    pub fn feed(&self, slice: u8) -> Feed {
        self.slices[usize::from(slice)].feed
    }

    /// How it comes from there.
    pub fn state(&self, slice: u8) -> FeedState {
        let slice = &self.slices[usize::from(slice)];
        if slice.is_silent {
            FeedState::Silent
        } else if slice.pushes.have_begun() {
            FeedState::Live
        } else {
            FeedState::Awaited
        }
    }

    /// The packet after the last that the feed of `slice` pushed.
    pub fn pushed(&self, slice: u8) -> PacketId {
        self.slices[usize::from(slice)].last
    }

    /// The packet after the last of `slice` that was pushed, be it by the one before the feed, which goes on until the
    /// feed begins.
    pub fn brought(&self, slice: u8) -> PacketId {
        self.slices[usize::from(slice)].brought
    }

    /// The session over which `slice` is pushed, or shall be.
    pub fn session(&self, slice: u8) -> Option<SessionId> {
        self.slices[usize::from(slice)].session
    }

    /// Whether any slice comes from `session`, or shall.
    pub fn uses(&self, session: SessionId) -> bool {
        self.slices
            .iter()
            .any(|slice| slice.session == Some(session) || slice.left.is_some_and(|(left, _)| left == session))
    }

    /// The server names a parent.
    pub fn on_parent(&mut self, now: Time, parent: &Parent<A>, mut step: impl FnMut(Step<A>)) {
        let Some(slice) = self.slices.get_mut(usize::from(parent.slice)) else { return };
        slice.backups = parent.backups;
        let feed = Feed::of(&parent.parent);
        if slice.feed == feed && slice.session.is_some() {
            return;
        }
        slice.replace_session(now, &self.heard, |session| step(Step::Leave(parent.slice, session)));
        slice.feed = feed;
        (slice.alive, slice.tried, slice.in_vain) = (now + BEGINNING, 0, 0);
        slice.await_anew();
        slice.pushes.begin_anew();
        step(match parent.parent {
            Some(contact) => Step::Ask(parent.slice, contact),
            None => Step::AskServer(parent.slice),
        });
    }

    /// The feed of `slice` has this session.
    pub fn set_session(&mut self, now: Time, slice: u8, session: SessionId) {
        let slice = &mut self.slices[usize::from(slice)];
        slice.session = Some(session);
        slice.begins_until = now + BEGINNING;
    }

    /// Which slices are to be pushed over `session`.
    pub fn of_session(&self, session: SessionId) -> SliceSet {
        let mut slices = SliceSet::default();
        for (slice, _) in (0..).zip(&self.slices).filter(|(_, state)| state.session == Some(session)) {
            slices.insert(slice);
        }
        slices
    }

    /// A packet of `slice` has come from `from`, new or not.
    #[inline]
    pub fn on_packet(&mut self, now: Time, slice: u8, from: SessionId, id: PacketId, mut step: impl FnMut(Step<A>)) {
        if self.heard.len() <= from.index() {
            self.heard.resize(from.index() + 1, Time::ZERO);
        }
        self.heard[from.index()] = now;
        let state = &mut self.slices[usize::from(slice)];
        if state.session == Some(from) || state.left.is_some_and(|(left, _)| left == from) {
            state.brought = state.brought.max(id.after(1));
            (state.fed, state.is_reported) = (now, false);
        }
        if state.session == Some(from) {
            state.last = state.last.max(id.after(1));
            state.pushes.count(id);
            (state.alive, state.tried, state.in_vain) = (now, 0, 0);
            (state.is_silent, state.stalled_since) = (false, None);
            if let Some((left, _)) = state.left.take()
                && left != from
            {
                step(Step::Leave(slice, left));
            }
        }
    }

    /// A packet of `slice` has come from `from` of which nobody can tell yet whether it is genuine.
    pub fn on_unproven(&mut self, now: Time, slice: u8, from: SessionId) {
        let state = &mut self.slices[usize::from(slice)];
        if state.session == Some(from) {
            state.alive = state.alive.max(now);
        }
    }

    /// The feed is alive, and mends what is behind it.
    pub fn on_stalled(&mut self, now: Time, from: SessionId, slices: SliceSet) {
        for (slice, state) in (0..).zip(&mut self.slices) {
            if slices.contains(slice) && state.session == Some(from) {
                let since = *state.stalled_since.get_or_insert(now);
                if now < since + PATIENCE {
                    (state.alive, state.is_silent, state.is_reported) = (state.alive.max(now), false, false);
                }
            }
        }
    }

    /// Who was asked has no room, or its session is over; `is_excused` if that is not its fault.
    pub fn on_refused(
        &mut self,
        now: Time,
        from: SessionId,
        slices: SliceSet,
        is_excused: bool,
        mut step: impl FnMut(Step<A>),
    ) {
        let mut lost = SliceSet::default();
        for (slice, state) in (0..).zip(&mut self.slices) {
            if state.left.is_some_and(|(left, _)| left == from) {
                state.left = None;
            }
            if slices.contains(slice) && state.session == Some(from) {
                state.session = None;
                lost.insert(slice);
            }
        }
        for slice in lost.iter() {
            self.ask_next(now, slice, is_excused, &mut step);
        }
    }

    /// The feed of `slice` cannot be asked: another is.
    pub fn on_unreachable(&mut self, now: Time, slice: u8, mut step: impl FnMut(Step<A>)) {
        self.ask_next(now, slice, true, &mut step);
    }

    /// A session is over: its number may soon be another's.
    pub fn forget(&mut self, session: SessionId) {
        if let Some(heard) = self.heard.get_mut(session.index()) {
            *heard = Time::ZERO;
        }
        for state in &mut self.slices {
            state.session = state.session.filter(|&other| other != session);
            state.left = state.left.filter(|&(left, _)| left != session);
        }
    }

    /// What was pushed of each slice between the last two calls before this one: by whom, how many packets those that
    /// came show that it should have pushed, and how many came. Of one that has pushed nothing yet none are expected:
    /// it is silent.
    pub fn take_counts(&mut self) -> Vec<FeedReport> {
        let count = self.slices.len() as u64;
        let mut reports = Vec::new();
        for (slice, state) in (0..).zip(&mut self.slices) {
            let (expected, received) = state.pushes.take(state.last, count).unwrap_or_default();
            let parent = match state.feed {
                Feed::None => continue,
                Feed::Server => None,
                Feed::Client(client) => Some(client),
            };
            reports.push(FeedReport { slice, parent, expected, received });
        }
        reports
    }

    /// Looks for slices that are silent; `end` is the packet above all that have come.
    pub fn watch(&mut self, now: Time, end: PacketId, mut step: impl FnMut(Step<A>)) {
        let count = self.slices.len() as u64;
        let mut lost: Vec<(u8, bool)> = Vec::new();
        for (slice, state) in (0..).zip(&mut self.slices) {
            if let Some((left, until)) = state.left
                && now >= until
            {
                state.left = None;
                step(Step::Leave(slice, left));
            }
            let is_behind = end.since(state.last) > SILENT_PACKETS * count;
            if state.feed == Feed::None || !is_behind {
                continue;
            }
            state.is_silent |= now >= state.alive + SILENCE;
            if now >= state.fed + SILENCE && !state.is_reported {
                state.is_reported = true;
                step(Step::ReportStalled(slice));
            }
            let heard = state.session.and_then(|session| self.heard.get(session.index()));
            let is_behind = heard.is_some_and(|&heard| heard > Time::ZERO && now < heard + SILENCE);
            let patience = if is_behind { PATIENCE } else { SILENCE + WORD };
            if now >= state.alive + patience {
                lost.push((slice, is_behind || state.stalled_since.is_some()));
            }
        }
        for (slice, is_excused) in lost {
            self.ask_next(now, slice, is_excused, &mut step);
        }
    }

    /// How much speaks for `client` being there: packets of another slice come from it, nothing is known, or they
    /// should and do not.
    fn signs_of_life(&self, now: Time, client: ClientId) -> u8 {
        let sessions =
            self.slices.iter().filter(|other| other.feed == Feed::Client(client)).filter_map(|other| other.session);
        let heard = sessions.filter_map(|session| self.heard.get(session.index())).max();
        match heard {
            Some(&heard) if heard > Time::ZERO => {
                if now < heard + SILENCE {
                    2
                } else {
                    0
                }
            }
            _ => 1,
        }
    }

    /// Asks another backup for `slice`, if the server has named one that was not asked, and tells the server: the one
    /// that is most surely there.
    fn ask_next(&mut self, now: Time, slice: u8, is_excused: bool, step: &mut impl FnMut(Step<A>)) {
        let Some(state) = self.slices.get(usize::from(slice)) else { return };
        let untried = (0..).zip(state.backups).filter(|(number, _)| state.tried >> number & 1 == 0);
        let named = untried.filter_map(|(number, backup): (u8, _)| Some((number, backup?)));
        let life = |contact: &Contact<A>| self.signs_of_life(now, contact.client);
        let best = named
            .filter(|(_, contact)| life(contact) > 0)
            .max_by_key(|(number, contact)| (life(contact), core::cmp::Reverse(*number)));
        let is_there = best.is_some_and(|(_, contact)| life(&contact) == 2);
        let Feeds { slices, heard } = self;
        slices[usize::from(slice)].ask(now, slice, heard, best, (is_there, is_excused), step);
    }

    /// Slices whose feed was asked just now for all that was missing: others need not be.
    pub fn beginning(&self, now: Time) -> SliceSet {
        let mut beginning = SliceSet::default();
        for (slice, _) in (0..).zip(&self.slices).filter(|(_, state)| now < state.begins_until) {
            beginning.insert(slice);
        }
        beginning
    }

    /// Slices of which nothing comes while others get on to `end`. One whose way is only longer is none of them.
    pub fn silent(&self, now: Time, end: PacketId) -> SliceSet {
        let mut silent = SliceSet::default();
        let count = self.slices.len() as u64;
        for (slice, state) in (0..).zip(&self.slices) {
            if end.since(state.last) > SILENT_PACKETS * count && now >= state.alive + SILENCE {
                silent.insert(slice);
            }
        }
        silent
    }
}

impl<A: Copy> Slice<A> {
    /// Another is to push. Of those that were asked before one goes on until it does: the last, unless it has pushed
    /// nothing yet where the one before it still does. `leave` is told of the other.
    fn replace_session(&mut self, now: Time, heard: &[Time], leave: impl FnOnce(SessionId)) {
        let Some(session) = self.session.take() else { return };
        let pushes = |session: SessionId| heard.get(session.index()).is_some_and(|&heard| now < heard + SILENCE);
        match self.left {
            Some((before, _)) if !self.pushes.have_begun() && pushes(before) => leave(session),
            before => {
                self.left = Some((session, now + OVERLAP));
                if let Some((before, _)) = before {
                    leave(before);
                }
            }
        }
    }

    /// Another one is to push: children are told once more that nothing comes until it does.
    fn await_anew(&mut self) {
        (self.is_silent, self.is_reported, self.stalled_since) = (false, false, None);
    }

    /// Asks `backup`, if there is one, and tells the server.
    fn ask(
        &mut self,
        now: Time,
        slice: u8,
        heard: &[Time],
        backup: Option<(u8, Contact<A>)>,
        (is_there, is_excused): (bool, bool),
        step: &mut impl FnMut(Step<A>),
    ) {
        self.alive = now + BEGINNING * (1 << self.in_vain);
        self.await_anew();
        self.in_vain = (self.in_vain + 1).min(MOST_DOUBLINGS);
        let parent = if let Feed::Client(client) = self.feed { Some(client) } else { None };
        let (number, backup) = backup.unzip();
        step(Step::Silent(SilentFeed {
            slice,
            parent,
            asked: backup.filter(|_| is_there).map(|backup| backup.client),
            is_excused,
        }));
        if let Some(backup) = backup {
            self.tried |= 1 << number.unwrap_or_default();
            // It has nothing to mend, and is believed to be there.
            self.alive = now + BACKUP_BEGINNING;
            self.pushes.begin_anew();
            // The one before may come to life again; it is told to stop when another pushes.
            self.replace_session(now, heard, |session| step(Step::Leave(slice, session)));
            self.feed = Feed::Client(backup.client);
            step(Step::Ask(slice, backup));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::PeerKey;

    fn contact(client: u32) -> Contact<u32> {
        Contact { client: ClientId(client), address: client, key: PeerKey::default() }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    /// One slice, pushed by client 7 over session 3.
    fn fed() -> Feeds<u32> {
        let mut feeds = Feeds::new(1, at(0), PacketId(0));
        feeds.on_parent(at(0), &Parent { slice: 0, parent: Some(contact(7)), backups: [None; 2] }, |_| {});
        feeds.set_session(at(0), 0, SessionId(3));
        feeds
    }

    #[test]
    fn a_session_that_is_over_feeds_nothing_under_its_old_number() {
        let mut feeds = fed();
        assert!(feeds.uses(SessionId(3)));
        feeds.forget(SessionId(3));
        assert!(!feeds.uses(SessionId(3)));
        feeds.on_packet(at(10), 0, SessionId(3), PacketId(5), |_| {});
        assert_eq!(feeds.pushed(0), PacketId(0), "somebody else has the number now");
    }

    /// Two slices, pushed by client 7 over session 3; slice 0 got its packets, slice 1 none. When the
    /// parent of slice 1 is left, and whether it is excused.
    fn left_at(other_slice_until: u64) -> (u64, bool) {
        let mut feeds = Feeds::new(2, at(0), PacketId(0));
        for slice in 0..2 {
            feeds.on_parent(
                at(0),
                &Parent { slice, parent: Some(contact(7)), backups: [Some(contact(8)), None] },
                |_| {},
            );
            feeds.set_session(at(0), slice, SessionId(3));
        }
        for tenth in 1..100 {
            let now = at(50 * tenth);
            if 50 * tenth <= other_slice_until {
                feeds.on_packet(now, 0, SessionId(3), PacketId(2 * tenth), |_| {});
            }
            let mut left = None;
            feeds.watch(now, PacketId(1000), |step| {
                if let Step::Silent(SilentFeed { slice: 1, is_excused, .. }) = step {
                    left = left.or(Some(is_excused));
                }
            });
            if let Some(is_excused) = left {
                return (50 * tenth, is_excused);
            }
        }
        panic!("it is never left");
    }

    /// Slice 0 comes from client 7, who has died, slices 1 and 2 from clients 8 and 9, the backups of slice 0, of
    /// whom packets come if `alive` says so: who is asked.
    fn asked(alive: [bool; 2]) -> Option<ClientId> {
        let mut feeds = Feeds::new(3, at(0), PacketId(0));
        for (slice, client) in [(0, 7), (1, 8), (2, 9)] {
            let backups = [Some(contact(8)), Some(contact(9))];
            feeds.on_parent(at(0), &Parent { slice, parent: Some(contact(client)), backups }, |_| {});
            feeds.set_session(at(0), slice, SessionId(client));
            feeds.on_packet(at(100), slice, SessionId(client), PacketId(u64::from(slice)), |_| {});
        }
        for tenth in 3..40 {
            let now = at(50 * tenth);
            for (slice, is_alive) in (1..).zip(alive) {
                if is_alive {
                    feeds.on_packet(now, slice, SessionId(7 + u32::from(slice)), PacketId(3 * tenth), |_| {});
                }
            }
            let mut silent = None;
            feeds.watch(now, PacketId(1000), |step| {
                if let Step::Silent(SilentFeed { slice: 0, asked, .. }) = step {
                    silent = silent.or(Some(asked));
                }
            });
            if let Some(asked) = silent {
                return asked;
            }
        }
        panic!("nobody misses it");
    }

    #[test]
    fn a_slice_whose_way_is_longer_than_others_is_not_silent() {
        let mut feeds = fed();
        feeds.on_packet(at(1000), 0, SessionId(3), PacketId(5), |_| {});
        let newest = PacketId(5 + 2 * SILENT_PACKETS);
        assert_eq!(feeds.silent(at(1100), newest), SliceSet(0), "something came just now");
        assert_eq!(feeds.silent(at(1250), newest), SliceSet(1));
        assert_eq!(feeds.silent(at(1250), PacketId(6 + SILENT_PACKETS)), SliceSet(0), "the source sends nothing");
    }

    #[test]
    fn a_slice_is_awaited_until_its_first_packet_and_silent_once_children_know_it() {
        let mut feeds = fed();
        assert_eq!(feeds.state(0), FeedState::Awaited);
        feeds.on_packet(at(1000), 0, SessionId(3), PacketId(5), |_| {});
        assert_eq!(feeds.state(0), FeedState::Live);
        feeds.watch(at(1000 + SILENCE.as_millis_f64() as u64), PacketId(1000), |_| {});
        assert_eq!(feeds.state(0), FeedState::Silent);
        feeds.on_packet(at(1400), 0, SessionId(3), PacketId(6), |_| {});
        assert_eq!(feeds.state(0), FeedState::Live, "it comes again");
        assert_eq!(waiting_for_a_backup().state(0), FeedState::Awaited, "of the backup nothing has come");
    }

    #[test]
    fn a_backup_is_asked_of_whom_something_comes() {
        assert_eq!(asked([true, true]), Some(ClientId(8)));
        assert_eq!(asked([false, true]), Some(ClientId(9)), "the first is as silent as the parent");
        assert_eq!(asked([false, false]), None, "the server is to name another");
    }

    #[test]
    fn who_asks_in_vain_for_another_parent_asks_ever_more_seldom_until_something_comes() {
        let mut feeds = fed();
        let asked = |feeds: &mut Feeds<u32>, from: u64, until: u64| {
            let is_silent = |tick: &u64| {
                let mut is_silent = false;
                feeds.watch(at(50 * tick), PacketId(1000), |step| is_silent |= matches!(step, Step::Silent(_)));
                is_silent
            };
            (from / 50..until / 50).filter(is_silent).map(|tick| 50 * tick).collect::<Vec<_>>()
        };
        // 400 ms of silence, and 600 ms, then 600, 1200, 2400, 4800 and always 9600 for its parent to begin.
        assert_eq!(asked(&mut feeds, 0, 35_000), [1000, 2000, 3600, 6400, 11_600, 21_600, 31_600]);
        feeds.on_packet(at(35_000), 0, SessionId(3), PacketId(5), |_| {});
        assert_eq!(asked(&mut feeds, 35_000, 37_000), [35_400, 36_400]);
        let named = Parent { slice: 0, parent: Some(contact(9)), backups: [None; 2] };
        feeds.on_parent(at(37_000), &named, |_| {});
        assert_eq!(asked(&mut feeds, 37_000, 39_500), [38_000, 39_000]);
    }

    #[test]
    fn children_know_that_nothing_comes_whoever_is_named_meanwhile() {
        let mut feeds = fed();
        feeds.on_packet(at(1000), 0, SessionId(3), PacketId(5), |_| {});
        let mut reported = Vec::new();
        for tick in 20..34_u32 {
            let now = at(50 * u64::from(tick));
            // Each 200 ms another parent, none of whom brings anything.
            if tick % 4 == 1 {
                let named = Parent { slice: 0, parent: Some(contact(tick)), backups: [None; 2] };
                feeds.on_parent(now, &named, |_| {});
                feeds.set_session(now, 0, SessionId(tick));
            }
            feeds.watch(now, PacketId(1000), |step| {
                if step == Step::ReportStalled(0) {
                    reported.push(50 * tick);
                }
            });
        }
        assert_eq!(reported, [1250, 1450, 1650], "and once more when another is named");
        feeds.on_packet(at(1700), 0, SessionId(33), PacketId(8), |_| {});
        let mut is_reported = false;
        feeds.watch(at(1900), PacketId(1000), |step| is_reported |= step == Step::ReportStalled(0));
        assert!(!is_reported, "something has come");
    }

    /// One slice of client 7, which falls silent at once, with clients 8 and 9 as backups, of whom nothing is known; 8
    /// is asked by now, over session 8.
    fn waiting_for_a_backup() -> Feeds<u32> {
        let mut feeds = Feeds::new(1, at(0), PacketId(0));
        let backups = [Some(contact(8)), Some(contact(9))];
        feeds.on_parent(at(0), &Parent { slice: 0, parent: Some(contact(7)), backups }, |_| {});
        feeds.set_session(at(0), 0, SessionId(7));
        let mut steps = Vec::new();
        feeds.watch(at(1000), PacketId(1000), |step| steps.push(step));
        let silent = SilentFeed { slice: 0, parent: Some(ClientId(7)), asked: None, is_excused: false };
        assert_eq!(steps[1..], [Step::Silent(silent), Step::Ask(0, contact(8))], "it may be gone as well");
        feeds.set_session(at(1000), 0, SessionId(8));
        feeds
    }

    #[test]
    fn until_another_pushes_the_last_that_has_pushed_goes_on() {
        let named = |client| Parent { slice: 0, parent: Some(contact(client)), backups: [None; 2] };
        let mut left = Vec::new();
        // The server names 10, and then 11, before 10 has pushed anything.
        let mut feeds = fed();
        feeds.on_packet(at(1000), 0, SessionId(3), PacketId(5), |_| {});
        for client in [10, 11] {
            feeds.on_parent(at(1050), &named(client), |step| left.push(step));
            feeds.set_session(at(1050), 0, SessionId(client));
        }
        left.retain(|step| matches!(step, Step::Leave(..)));
        assert_eq!(left, [Step::Leave(0, SessionId(10))]);
        feeds.on_packet(at(1100), 0, SessionId(3), PacketId(6), |_| {});
        assert_eq!((feeds.pushed(0), feeds.brought(0)), (PacketId(6), PacketId(7)));
        // Who has fallen silent makes way for a backup that was only asked.
        let mut feeds = waiting_for_a_backup();
        let mut left = Vec::new();
        feeds.on_parent(at(1100), &named(10), |step| left.push(step));
        assert!(left.contains(&Step::Leave(0, SessionId(7))), "{left:?}");
        assert!(feeds.uses(SessionId(8)));
    }

    #[test]
    fn a_parent_that_is_behind_is_not_dead() {
        assert_eq!(left_at(0), (1000, false), "600 ms to begin, 400 ms of silence");
        assert_eq!(left_at(5000), (2100, true), "600 ms to begin, then its patience");
        assert_eq!(left_at(1200), (1450, false), "it was behind, and died");
    }
}

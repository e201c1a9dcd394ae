//! To whom a peer pushes which slice.
//!
//! A child asks its parent, and the server tells the parent whom it has assigned. Either may come
//! first, and a child whose parent has died asks another before the server knows. So whoever asks is
//! served while there is room, but stays only if the server has named it soon after; and whoever the
//! server takes away stays until it says that it is served elsewhere, but no longer than that. Meanwhile it gets what pushes to the
//! others leave of the line: it may be gone for the very reason that there was too little for all.

use std::collections::BTreeMap;

use anabranch_control::time::{Duration, Time};

use super::content::ClientId;
use super::packet::{PacketId, SliceSet};
use super::peers::MOST_SESSIONS;
use crate::session::SessionId;

/// How long a child is served that the server has not assigned, or has assigned to another: what the
/// server's word takes at most, and a child to find its new parent.
const UNASSIGNED_STAY: Duration = Duration::from_millis(3000);

/// Part of the places that may be taken beyond them until the server's word comes: it has moved others
/// away for the child, or has not heard of it.
const BEFORE_THE_WORD: usize = 8;

/// Children that somebody serves who may have `places`, before the server's word says whom it has moved away.
pub(super) fn most_served(places: usize) -> usize {
    if places == 0 { 0 } else { places + places / BEFORE_THE_WORD + 1 }
}

/// Who has stayed so long without the server's word gets nothing without it for this long: else places
/// that are free for children in need could be held for ever by asking again.
const UNASSIGNED_PAUSE: Duration = Duration::from_millis(10_000);

/// A child asks for slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscription {
    pub session: SessionId,
    pub client: ClientId,
    pub slices: SliceSet,
    /// What it has of them ends here.
    pub from: PacketId,
}

#[derive(Clone, Copy, Debug)]
struct Child {
    session: SessionId,
    client: ClientId,
    /// What comes before this it has, or never wants.
    from: PacketId,
    /// Since when the server has not named it; none while it does.
    unassigned_since: Option<Time>,
    /// The server had named it, and does not any more.
    is_moved: bool,
    /// It does not answer: it gets nothing, and takes no place from others, until it does.
    is_silent: bool,
}

/// The children of a peer, by slice.
#[derive(Clone, Debug)]
pub struct Pushing {
    children: Vec<Vec<Child>>,
    assigned: Vec<Vec<ClientId>>,
    /// How many there may be over all slices.
    places: usize,
    held: usize,
    /// Who asked without the server's word, and when first.
    tried: BTreeMap<ClientId, Time>,
}

impl Pushing {
    /// No child in any of `slices`, and no place for one.
    pub fn new(slices: u8) -> Pushing {
        let slices = usize::from(slices);
        Pushing {
            children: vec![Vec::new(); slices],
            assigned: vec![Vec::new(); slices],
            places: 0,
            held: 0,
            tried: BTreeMap::new(),
        }
    }

    /// How many children there may be from now on, over all slices. Those that are here stay until the
    /// server takes them away.
    pub fn set_places(&mut self, places: usize) {
        self.places = places;
    }

    /// Who gets `id`, and whether the server has moved it to another parent: that one pushes soon, or does already.
    #[inline]
    pub fn receivers(&self, id: PacketId) -> impl Iterator<Item = (SessionId, bool)> {
        let children = self.children[usize::from(id.slice(self.slices()))].iter();
        let receive = children.filter(move |child| !child.is_silent && id >= child.from);
        receive.map(|child| (child.session, child.is_moved))
    }

    /// Whether `id` goes over `session` as soon as it is here. Who asks for what comes before all that it was to get is
    /// to get that as well.
    pub fn on_wanted(&mut self, session: SessionId, id: PacketId) -> bool {
        let slice = usize::from(id.slice(self.slices()));
        let child = self.children[slice].iter_mut().find(|child| child.session == session);
        child.map(|child| child.from = child.from.min(id)).is_some()
    }

    /// How many children there are that answer, over all slices.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Who gets `slice`.
    #[inline]
    pub fn children(&self, slice: u8) -> impl Iterator<Item = SessionId> {
        self.children[usize::from(slice)].iter().filter(|child| !child.is_silent).map(|child| child.session)
    }

    /// Who gets `slice`, by their numbers.
    pub fn clients(&self, slice: u8) -> impl Iterator<Item = ClientId> {
        let children = self.children.get(usize::from(slice)).into_iter().flatten();
        children.filter(|child| !child.is_silent).map(|child| child.client)
    }

    /// How many slices there are.
    pub fn slices(&self) -> u8 {
        self.children.len() as u8
    }

    /// What goes over `session`.
    pub fn served(&self, session: SessionId) -> SliceSet {
        let mut served = SliceSet::default();
        for (slice, children) in (0..).zip(&self.children) {
            if children.iter().any(|child| child.session == session) {
                served.insert(slice);
            }
        }
        served
    }

    /// Somebody asks for slices: those that there is no room for. Slices that do not exist are among
    /// them. Without the server's word somebody gets places only for a while.
    pub(super) fn on_subscribe(&mut self, now: Time, asked: Subscription) -> SliceSet {
        let Subscription { session, client, slices, from } = asked;
        let mut refused = SliceSet::default();
        // The server's word may come later than the child's.
        let most = most_served(self.places);
        for slice in slices.iter() {
            let Some(children) = self.children.get_mut(usize::from(slice)) else {
                refused.insert(slice);
                continue;
            };
            if children.iter().any(|child| child.session == session) {
                continue;
            }
            let is_assigned = self.assigned[usize::from(slice)].contains(&client);
            if !is_assigned && (self.held >= most || !may_stay(&mut self.tried, now, client)) {
                refused.insert(slice);
                continue;
            }
            let unassigned_since = if is_assigned { None } else { Some(now) };
            children.push(Child { session, client, from, unassigned_since, is_moved: false, is_silent: false });
            self.held += 1;
        }
        refused
    }

    /// The child of `session` is served elsewhere.
    pub fn on_unsubscribe(&mut self, session: SessionId, slices: SliceSet) {
        for slice in slices.iter() {
            if let Some(children) = self.children.get_mut(usize::from(slice)) {
                children.retain(|child| {
                    self.held -= usize::from(child.session == session && !child.is_silent);
                    child.session != session
                });
            }
        }
    }

    /// The other end of `session` has stopped answering, or has begun again.
    pub fn set_silent(&mut self, session: SessionId, is_silent: bool) {
        for child in self.children.iter_mut().flatten().filter(|child| child.session == session) {
            if child.is_silent != is_silent {
                child.is_silent = is_silent;
                self.held = if is_silent { self.held - 1 } else { self.held + 1 };
            }
        }
    }

    /// The server says who are the children of `slice`.
    pub fn on_assigned(&mut self, now: Time, slice: u8, assigned: Vec<ClientId>) {
        let Some(children) = self.children.get_mut(usize::from(slice)) else { return };
        for child in children {
            let is_named = assigned.contains(&child.client);
            child.is_moved = !is_named && (child.is_moved || child.unassigned_since.is_none());
            child.unassigned_since = if is_named { None } else { child.unassigned_since.or(Some(now)) };
        }
        for client in &assigned {
            self.tried.remove(client);
        }
        self.assigned[usize::from(slice)] = assigned;
    }

    /// Drops those who have stayed too long unassigned, and says who and of which slices. Also forgets who
    /// asked long ago.
    pub fn drop_unassigned(&mut self, now: Time, mut dropped: impl FnMut(SessionId, u8)) {
        self.tried.retain(|_, &mut since| now < since + UNASSIGNED_STAY + UNASSIGNED_PAUSE);
        for (slice, children) in (0..).zip(&mut self.children) {
            children.retain(|child| {
                let stays = child.unassigned_since.is_none_or(|since| now < since + UNASSIGNED_STAY);
                if !stays {
                    self.held -= usize::from(!child.is_silent);
                    dropped(child.session, slice);
                }
                stays
            });
        }
    }

    /// A session is over.
    pub fn forget(&mut self, session: SessionId) {
        self.on_unsubscribe(session, SliceSet(u64::MAX));
    }
}

/// Whether `client`, which the server has not named, may have a place: it has not had any for long.
fn may_stay(tried: &mut BTreeMap<ClientId, Time>, now: Time, client: ClientId) -> bool {
    if tried.len() >= MOST_SESSIONS && !tried.contains_key(&client) {
        return false;
    }
    let since = tried.entry(client).or_insert(now);
    if now >= *since + UNASSIGNED_STAY + UNASSIGNED_PAUSE {
        *since = now;
    }
    now < *since + UNASSIGNED_STAY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    const ONE: (SessionId, ClientId) = (SessionId(0), ClientId(10));
    const OTHER: (SessionId, ClientId) = (SessionId(1), ClientId(11));

    fn ask(pushing: &mut Pushing, now: Time, (session, client): (SessionId, ClientId), slices: u64) -> u64 {
        pushing.on_subscribe(now, Subscription { session, client, slices: SliceSet(slices), from: PacketId(0) }).0
    }

    fn sweep(pushing: &mut Pushing, now: Time) -> Vec<(SessionId, u8)> {
        let mut dropped = Vec::new();
        pushing.drop_unassigned(now, |session, slice| dropped.push((session, slice)));
        dropped
    }

    #[test]
    fn who_is_assigned_has_a_place_and_others_those_that_are_left() {
        let mut pushing = Pushing::new(4);
        pushing.set_places(1);
        pushing.on_assigned(at(0), 3, vec![OTHER.1]);
        assert_eq!(ask(&mut pushing, at(0), ONE, 0b0111), 0b0100, "one place, and one before the server's word");
        assert_eq!(ask(&mut pushing, at(0), OTHER, 0b1001), 0b0001);
        assert_eq!(pushing.children(3).collect::<Vec<_>>(), [OTHER.0]);
        assert_eq!(pushing.held(), 3);
        assert_eq!(ask(&mut pushing, at(0), ONE, 0b0001), 0, "who is here already takes no other place");
        assert_eq!(ask(&mut pushing, at(0), ONE, 1 << 63), 1 << 63, "there is no such slice");
    }

    #[test]
    fn who_is_never_assigned_leaves_after_a_while() {
        let mut pushing = Pushing::new(2);
        pushing.set_places(4);
        ask(&mut pushing, at(0), ONE, 0b11);
        pushing.on_assigned(at(100), 1, vec![ONE.1]);
        assert!(sweep(&mut pushing, at(2999)).is_empty());
        assert_eq!(sweep(&mut pushing, at(3000)), [(ONE.0, 0)]);
        assert_eq!((pushing.held(), pushing.children(1).count()), (1, 1));
    }

    #[test]
    fn who_asks_again_and_again_holds_no_place_for_ever() {
        let mut pushing = Pushing::new(2);
        pushing.set_places(4);
        let mut held = Vec::new();
        for second in 0..30 {
            if ask(&mut pushing, at(1000 * second), ONE, 0b1) == 0 {
                held.push(second);
            }
            // Leaving in time does not begin the time anew.
            pushing.on_unsubscribe(ONE.0, SliceSet(0b1));
            sweep(&mut pushing, at(1000 * second + 500));
        }
        assert_eq!(held, [0, 1, 2, 13, 14, 15, 26, 27, 28]);
        pushing.on_assigned(at(30_000), 0, vec![ONE.1]);
        assert_eq!(ask(&mut pushing, at(30_000), ONE, 0b1), 0, "the server has named it");
    }

    #[test]
    fn who_is_taken_away_stays_until_it_is_served_elsewhere_or_the_time_is_over() {
        let mut pushing = Pushing::new(2);
        pushing.on_assigned(at(0), 0, vec![ONE.1, OTHER.1]);
        ask(&mut pushing, at(0), ONE, 1);
        ask(&mut pushing, at(0), OTHER, 1);
        pushing.on_assigned(at(1000), 0, vec![]);
        assert_eq!(pushing.children(0).count(), 2);
        pushing.on_unsubscribe(ONE.0, SliceSet(1));
        assert_eq!(pushing.children(0).collect::<Vec<_>>(), [OTHER.0]);
        pushing.on_assigned(at(3900), 0, vec![ONE.1]);
        assert_eq!(sweep(&mut pushing, at(4000)), [(OTHER.0, 0)], "the time runs from when it was taken away");
        assert_eq!(pushing.held(), 0);
    }

    #[test]
    fn who_was_moved_is_told_from_who_is_here_and_from_who_comes() {
        let mut pushing = Pushing::new(1);
        pushing.set_places(4);
        pushing.on_assigned(at(0), 0, vec![ONE.1]);
        ask(&mut pushing, at(0), ONE, 1);
        ask(&mut pushing, at(0), OTHER, 1);
        let receivers =
            |pushing: &Pushing| pushing.receivers(PacketId(0)).map(|(session, moved)| (session.0, moved)).collect();
        let nobody: Vec<(u32, bool)> = receivers(&pushing);
        assert_eq!(nobody, [(0, false), (1, false)], "the server's word on the other may come yet");
        for millis in [100, 200] {
            pushing.on_assigned(at(millis), 0, vec![OTHER.1]);
            let moved: Vec<(u32, bool)> = receivers(&pushing);
            assert_eq!(moved, [(0, true), (1, false)]);
        }
        pushing.on_assigned(at(300), 0, vec![ONE.1, OTHER.1]);
        let back: Vec<(u32, bool)> = receivers(&pushing);
        assert_eq!(back, [(0, false), (1, false)]);
    }

    #[test]
    fn nobody_gets_what_comes_before_all_that_it_has_asked_for() {
        let mut pushing = Pushing::new(2);
        pushing.set_places(4);
        let (session, client) = ONE;
        pushing.on_subscribe(at(0), Subscription { session, client, slices: SliceSet(0b11), from: PacketId(100) });
        let gets = |pushing: &Pushing, id: u64| pushing.receivers(PacketId(id)).count() == 1;
        assert_eq!([98, 99, 100, 101].map(|id| gets(&pushing, id)), [false, false, true, true]);
        assert!(pushing.on_wanted(session, PacketId(96)) && !pushing.on_wanted(OTHER.0, PacketId(50)));
        assert_eq!([94, 96, 98, 97, 99].map(|id| gets(&pushing, id)), [false, true, true, false, false]);
    }

    #[test]
    fn who_does_not_answer_gets_nothing_and_takes_no_place() {
        let mut pushing = Pushing::new(2);
        pushing.set_places(1);
        ask(&mut pushing, at(0), ONE, 0b11);
        assert_eq!(ask(&mut pushing, at(0), OTHER, 0b1), 0b1, "there is no room");
        pushing.set_silent(ONE.0, true);
        assert_eq!((pushing.held(), pushing.children(0).count()), (0, 0));
        assert_eq!(ask(&mut pushing, at(0), OTHER, 0b1), 0);
        pushing.set_silent(ONE.0, false);
        assert_eq!((pushing.held(), pushing.children(0).count()), (3, 2));
        pushing.set_silent(ONE.0, true);
        pushing.forget(ONE.0);
        assert_eq!(pushing.held(), 1);
    }

    #[test]
    fn nothing_is_left_of_a_session_that_is_over() {
        let mut pushing = Pushing::new(2);
        pushing.set_places(4);
        ask(&mut pushing, at(0), ONE, 0b11);
        pushing.forget(ONE.0);
        assert_eq!((pushing.held(), pushing.children(0).count()), (0, 0));
    }
}

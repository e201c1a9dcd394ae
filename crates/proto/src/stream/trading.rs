//! What a client and its neighbours tell and ask each other: who has what, and who sends what is missing.
//!
//! Of a slice that is pushed, only what its feed has left out is sought; of one that is silent, what others
//! have had for a while. What a feed was asked for just now is expected of it alone, and what has come and waits
//! for its manifest is not sought at all. What is nearly too late is sought in any case, and the server is asked
//! for it, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_control::time::{Duration, Time};

use super::client::{Client, Watching};
use super::content::{Content, MAX_GENERATION};
use super::mesh::{ANSWERED_WITHIN, MAP_PERIOD, MAP_PERIOD_OF_NEW, MAP_PERIOD_WITH_HOLES, MOST_SOUGHT, Mesh, ROUND};
use super::message::{BufferMap, Contact, Datagram, MAX_WANTED};
use super::packet::{PacketId, SliceSet};
use super::receiving::Receiving;
use super::uplink::Uplink;
use crate::session::{SessionId, Sessions};

/// Packets beyond all that the source is known to have signed which a neighbour is believed to have: two generations, whose
/// manifests are on their way. What says that there is more would be sought from everybody, and come from nobody.
const UNANNOUNCED: u64 = 2 * MAX_GENERATION as u64;

/// What should be pushed and is silent is sought when others have had it for so long.
const PULL_AFTER: Duration = Duration::from_millis(300);

/// What has come and waits for its manifest for so long is sought like what has not: it may be made up.
const UNPROVEN: Duration = Duration::from_millis(500);

/// In a mesh alone, a newcomer waits as long for what it begins with as for the rest, and that is so much older.
const NEWCOMERS_ARE_BEHIND: Duration = Duration::from_millis(1000);

/// A newcomer may begin with what is so old, and waits as long for it as anybody does: others are told of all that.
const NEWCOMERS_BEGIN: Duration = Duration::from_millis(2500);

/// What is here that others may want.
fn map<C: Content>(now: Time, receiving: &Receiving<C>, mesh: &Mesh, patience: Duration) -> Arc<BufferMap> {
    let span =
        if mesh.is_alone() { NEWCOMERS_BEGIN.max(patience + NEWCOMERS_ARE_BEHIND) } else { patience + NEWCOMERS_BEGIN };
    let from = mesh.end_before(now, span).unwrap_or_default();
    Arc::new(receiving.buffer().map(from))
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Client<A, C> {
    /// Tells neighbours what is here, and asks for what is missing.
    pub(super) fn trade(&mut self, now: Time) {
        let Some(watching) = &mut self.watching else { return };
        let Watching {
            info,
            receiving,
            feeds,
            mesh,
            reclaims,
            pushed_from,
            pushed,
            next_map,
            next_told,
            next_round,
            ..
        } = watching;
        // A neighbour may say that it has what will never be, or not yet.
        let most_end = receiving.announced().after(UNANNOUNCED).min(receiving.buffer().most_end());
        let end = mesh.end().max(receiving.left(now)).min(most_end);
        mesh.note_end(now, end);
        mesh.give_up(now, receiving.buffer().next());
        reclaims.forget_below(receiving.buffer().next());
        let tell = |only_new, receiving: &Receiving<C>, mesh: &mut Mesh, uplink: &mut Uplink<C>| {
            let map = map(now, receiving, mesh, self.config.buffer.patience);
            mesh.tell(now, only_new, |session| uplink.push_ahead(session, Datagram::Have(Arc::clone(&map))));
        };
        let has_trees = info.mode.has_trees();
        if now >= *next_map {
            *next_map = now + if has_trees { MAP_PERIOD_OF_NEW } else { MAP_PERIOD };
            tell(has_trees, receiving, mesh, &mut self.uplink);
        }
        if now < *next_round {
            return;
        }
        *next_round = now + ROUND;
        let late_end = mesh.end_before(now, self.config.buffer.patience / 3 * 2);
        let silent = if has_trees { feeds.silent(now, end) } else { SliceSet(u64::MAX) };
        let beginning = if has_trees { feeds.beginning(now) } else { SliceSet::default() };
        let unpushed_end = if has_trees { mesh.end_before(now, PULL_AFTER).unwrap_or(end) } else { end };
        let unproven = receiving.unproven(now, UNPROVEN);
        let is_sought = |id: &PacketId| {
            let slice = id.slice(info.slices);
            let is_late = late_end.is_some_and(|end| *id < end);
            // All that a newcomer begins with is old.
            let is_begun = *id >= *pushed_from && feeds.pushed(slice) == *pushed_from;
            let is_expected = *id >= *pushed_from && beginning.contains(slice) && (!is_late || is_begun);
            let was_pushed = *id < pushed[usize::from(slice)];
            let is_missed = was_pushed || silent.contains(slice) && *id < unpushed_end || is_late;
            is_missed && !is_expected && unproven.binary_search(id).is_err()
        };
        let mut sought: Vec<PacketId> = receiving.buffer().missing(end).filter(is_sought).take(MOST_SOUGHT).collect();
        if has_trees {
            // A parent has what the last hop has lost, or asks for it itself.
            let mut reclaimed: BTreeMap<SessionId, Vec<PacketId>> = BTreeMap::new();
            for &id in &sought {
                let slice = id.slice(info.slices);
                let is_in_time = late_end.is_none_or(|end| id >= end);
                if let Some(parent) = feeds.session(slice).filter(|&session| self.peers.stands(session))
                    && id < pushed[usize::from(slice)]
                    && is_in_time
                    && reclaims.is_new(id)
                    && !mesh.is_asked(id)
                {
                    reclaims.note(now, id);
                    reclaimed.entry(parent).or_default().push(id);
                }
            }
            for (parent, ids) in reclaimed {
                for ids in ids.chunks(MAX_WANTED) {
                    self.uplink.push_ahead(parent, Datagram::Want(ids.into()));
                }
            }
        }
        for (slice, pushed) in (0..).zip(pushed.iter_mut()) {
            *pushed = feeds.pushed(slice);
        }
        sought.retain(|&id| late_end.is_some_and(|end| id < end) || !reclaims.is_awaited(now, id));
        if sought.is_empty() {
            return;
        }
        if has_trees && now >= *next_told {
            *next_told = now + MAP_PERIOD_WITH_HOLES;
            tell(false, receiving, mesh, &mut self.uplink);
        }
        let uplink = &mut self.uplink;
        // Where no tree brings it, the server is asked only for what neighbours are not.
        if !info.mode.has_trees() {
            mesh.ask(now, &sought, |session, ids| uplink.push_ahead(session, Datagram::Want(ids.into())));
        }
        // What is nearly too late, nobody but the server is sure to have; nor, where no tree brings it, what no
        // neighbour has although it is not new.
        // Whom the server feeds alone has no other to ask.
        let is_alone = self.asks_privacy || info.is_private;
        let urgent_end = if is_alone { mesh.end_before(now, PULL_AFTER) } else { late_end };
        let nowhere_end = if has_trees { None } else { mesh.end_before(now, self.config.buffer.patience / 3) };
        if let Some(server) = self.server.filter(|_| self.reaching.is_reached()) {
            let most = mesh.left_of_server(server);
            let is_urgent = |id: &&PacketId| {
                let is_late = info.mode.has_trees() && urgent_end.is_some_and(|end| **id < end);
                let is_nowhere = || nowhere_end.is_some_and(|end| **id < end) && !mesh.is_anywhere(**id);
                (is_late || is_nowhere()) && !mesh.is_asked(**id)
            };
            let urgent: Vec<PacketId> = sought.iter().filter(is_urgent).copied().take(most).collect();
            for &id in &urgent {
                mesh.note_asked(now, server, id);
            }
            if !urgent.is_empty() {
                uplink.push_ahead(server, Datagram::Want(urgent.into()));
            }
        }
        if info.mode.has_trees() {
            mesh.ask(now, &sought, |session, ids| uplink.push_ahead(session, Datagram::Want(ids.into())));
        }
    }

    pub(super) fn on_neighbours(&mut self, now: Time, contacts: &[Contact<A>], sessions: &mut impl Sessions<Self>) {
        for contact in contacts {
            let Some(session) = self.reach(now, contact, sessions) else { continue };
            let Some(peer) = self.peers.get_mut(session) else { return };
            if peer.remote.is_some() {
                self.become_neighbour(now, session);
            } else {
                peer.is_wanted = true;
            }
        }
    }

    /// The other end of `session` is to be a neighbour: it is told at once what is here, and answers so.
    pub(super) fn become_neighbour(&mut self, now: Time, session: SessionId) {
        let Some(Watching { mesh, .. }) = &mut self.watching else { return };
        if !mesh.contains(session) && mesh.add(now, session) {
            self.answer(now, session);
        }
    }

    /// A neighbour says what it has; who does so is one from then on. Where trees carry the stream it misses something,
    /// and is answered.
    pub(super) fn on_map(&mut self, now: Time, session: SessionId, map: Arc<BufferMap>) {
        self.become_neighbour(now, session);
        let Some(Watching { info, mesh, .. }) = &mut self.watching else { return };
        mesh.on_map(session, map);
        if info.mode.has_trees() {
            self.answer(now, session);
        }
    }

    /// Tells a neighbour what is here, unless it was told lately: so an answer has no answer.
    fn answer(&mut self, now: Time, session: SessionId) {
        let Some(Watching { receiving, mesh, .. }) = &mut self.watching else { return };
        if mesh.may_be_told(now, session) {
            let map = map(now, receiving, mesh, self.config.buffer.patience);
            self.uplink.push_ahead(session, Datagram::Have(map));
        }
    }

    /// Somebody asks for packets.
    pub(super) fn on_wanted(&mut self, now: Time, session: SessionId, ids: &[PacketId]) {
        let Some(Watching { receiving, pushing, mesh, reclaims, .. }) = &mut self.watching else { return };
        let has = mesh.has(session).unwrap_or(0);
        // What a child misses and is not here, or has only just come, is pushed to it in any case.
        let is_behind = |id| !receiving.buffer().contains(id) || reclaims.has_just_come(now, id);
        let mut will_be_pushed = |id: &PacketId| pushing.on_wanted(session, *id) && is_behind(*id);
        let ids = ids.iter().copied().take(MAX_WANTED).filter(|id| !will_be_pushed(id));
        self.uplink.ask(now, session, ids, now + ANSWERED_WITHIN, has);
    }
}

//! Packets that a user sends to itself, and when they leave.
//!
//! A loop goes out over relays as a packet to a service does and comes back over relays as an answer does; to all of
//! them it looks like any other packet. It hides when the user has something to say, and it is evidence of relays that
//! needs nobody at the other end. Two classes:
//!
//! ```text
//! loops             at exponential distances of mean 1 / λ, whatever else leaves ([Loopix 2017] 3, λ_L)
//! constant rate     a packet each 1 / R: a session's cell if one wants to leave, a loop else
//! ```
//!
//! At a constant rate whoever sees the user's line out sees nothing but R. What comes in is the answers' rate and the
//! loops': it stands still only as long as the sessions' own backward rates do, and that there are sessions at all
//! can be seen in it.
//!
//! A loop takes a forward half and a backward half that their own learners chose, and tells both what became of it:
//! whichever half lost it, both take their share of blame, as both ends of a path do. Where two halves are longer than
//! a packet's header, it takes the forward half alone and comes back by the guard.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use thiserror::Error;

use super::super::entry::Entry;
use super::super::{LOOPS_ISOLATION, UserSettings, route_rng};
use super::{Traffic, hops, report_no_path};
use crate::RelayIndex;
use crate::crypto::Cryptography;
use crate::node::frame::Frame;
use crate::packet::body_mut;
use crate::reply::BlockId;
use crate::routes::{Fate, Half, Request, RouteId};
use crate::session::RelayDelays;
use crate::size::MOST_HOPS;

/// Loops whose outcome may be open; beyond it the oldest is given up. More than leave at the highest rate within
/// the longest timeout of [`RelayDelays`] would be 60 s of it; a path answers within seconds.
const MOST_LOOPS: usize = 8192;

/// Most packets a second that leave for cover.
pub const MOST_COVER: u32 = 100_000;

/// Which of the other halves a loop is to a learner: its delays are by the user's own clock.
const LOOPS: u8 = 1;

/// What hides when a user sends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Cover {
    /// Nothing.
    #[default]
    Off,
    /// This many loops a second in the mean, besides all else.
    Loops(f64),
    /// This many packets a second in all, always.
    ConstantRate(u32),
}

/// Why there can be no such cover.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum CoverError {
    /// The rate is outside its bounds.
    #[error("cover of {0} packets a second; expected more than 0 and at most {MOST_COVER}")]
    Rate(f64),
    /// There is nothing that a loop could pass.
    #[error("a loop over one guard and nothing else is none; expected 3 hops, or another number of guards")]
    NoLoop,
}

/// A loop that is out.
#[derive(Clone, Debug)]
struct OutLoop {
    at: Time,
    deadline: Time,
    relays: Vec<RelayIndex>,
    forth: RouteId,
    back: RouteId,
}

/// What is due, and what is out.
#[derive(Clone, Debug, Default)]
pub(in crate::node::user) struct Covering {
    cover: Cover,
    /// When the next packet is due.
    next: Time,
    out: BTreeMap<BlockId, OutLoop>,
    deadlines: BTreeSet<(Time, BlockId)>,
    delays: RelayDelays,
}

impl Covering {
    /// Whether a session's cell may leave now.
    pub fn may_send(&self, now: Time) -> bool {
        !matches!(self.cover, Cover::ConstantRate(_)) || self.next <= now
    }

    /// A session's cell has left in place of a loop.
    pub fn on_sent(&mut self, now: Time) {
        if let Cover::ConstantRate(per_s) = self.cover {
            self.tick(now, Duration::SECOND / u64::from(per_s));
        }
    }

    /// The next one is due `gap` after this one was; what a machine slept through is not made up for.
    fn tick(&mut self, now: Time, gap: Duration) {
        self.next = (self.next + gap).max(now);
    }

    /// When there is something to do: to send, if that is possible (now, if it was not when it fell due), or to give
    /// up a loop.
    pub fn timer(&self, now: Time, can_send: bool) -> Time {
        let due = if can_send && self.cover != Cover::Off { self.next.max(now) } else { Time::MAX };
        self.deadlines.first().map_or(due, |(at, _)| due.min(*at))
    }

    /// Where one cell leaves at a tick, sessions take turns.
    pub fn take_turns<T>(&self, sessions: &mut [T], sent: u64) {
        if matches!(self.cover, Cover::ConstantRate(_)) && !sessions.is_empty() {
            let first = (sent % sessions.len() as u64) as usize;
            sessions.rotate_left(first);
        }
    }

    /// When a session's cell that may not leave now may leave.
    pub fn gate(&self, now: Time) -> Time {
        if self.may_send(now) { Time::ZERO } else { self.next }
    }

    /// Indices mean other relays now: loops that are out keep to theirs, and tell nothing of delays any more.
    pub fn begin_epoch(&mut self, moved: impl Fn(RelayIndex) -> Option<RelayIndex>) {
        self.delays.renumber(moved);
        self.out.values_mut().for_each(|out| out.relays.clear());
    }

    fn take(&mut self, block: BlockId) -> Option<OutLoop> {
        let out = self.out.remove(&block)?;
        self.deadlines.remove(&(out.deadline, block));
        Some(out)
    }
}

impl UserSettings {
    /// Refuses cover that cannot be.
    ///
    /// # Errors
    ///
    /// Why it can't.
    pub fn check_cover(&self, cover: Cover) -> Result<(), CoverError> {
        let rate = match cover {
            Cover::Off => return Ok(()),
            Cover::Loops(per_s) => per_s,
            Cover::ConstantRate(per_s) => f64::from(per_s),
        };
        if !(rate > 0.0 && rate <= f64::from(MOST_COVER)) {
            return Err(CoverError::Rate(rate));
        }
        if self.hops <= 2 && self.guards == 1 {
            return Err(CoverError::NoLoop);
        }
        Ok(())
    }
}

impl<C: Cryptography> Traffic<C> {
    /// From `now` on `cover` hides when its user sends.
    ///
    /// # Errors
    ///
    /// When there can be no such cover.
    pub fn set_cover(&mut self, now: Time, cover: Cover, rng: &mut impl rand_core::Rng) -> Result<(), CoverError> {
        self.settings.check_cover(cover)?;
        self.covering.cover = cover;
        self.covering.next = now + self.gap(rng);
        Ok(())
    }

    /// From one packet for cover to the next.
    fn gap(&self, rng: &mut impl rand_core::Rng) -> Duration {
        match self.covering.cover {
            Cover::Off => Duration::ZERO,
            Cover::Loops(per_s) => Duration::from_secs_f64(route_rng(rng).exponential() / per_s),
            Cover::ConstantRate(per_s) => Duration::SECOND / u64::from(per_s),
        }
    }

    /// Sends what is due for cover.
    pub(in crate::node::user) fn serve_cover(
        &mut self,
        now: Time,
        entry: &Entry,
        rng: &mut impl rand_core::Rng,
        send: &mut impl FnMut(SocketAddr, &Frame),
    ) {
        while self.covering.cover != Cover::Off && self.covering.next <= now {
            // A loop that finds no path is left out; the next one is due in its time.
            self.send_loop(now, entry, rng, send);
            let gap = self.gap(rng);
            self.covering.tick(now, gap);
            if gap == Duration::ZERO {
                break;
            }
        }
    }

    fn send_loop(
        &mut self,
        now: Time,
        entry: &Entry,
        rng: &mut impl rand_core::Rng,
        send: &mut impl FnMut(SocketAddr, &Frame),
    ) -> bool {
        let request = Request { half: Half::FromUser, elsewhere: &[], far: LOOPS };
        let forth = match self.forth.choose(now, request, &mut route_rng(rng)) {
            Ok(route) => route,
            Err(why) => {
                report_no_path(now, &mut self.no_path_until, why, &mut self.events);
                return false;
            }
        };
        // The guard may stand at both ends, with others between.
        let own = forth.path.relays();
        let between = if self.settings.guards > 0 && own.len() > 1 { &own[1..] } else { own };
        let request = Request { half: Half::ToUser, elsewhere: between, far: LOOPS };
        let Ok(back) = self.back.choose(now, request, &mut route_rng(rng)) else { return false };
        let mut relays = own.to_vec();
        let tail = back.path.relays();
        let fits = relays.len() + tail.len() <= MOST_HOPS;
        relays.extend(if fits { tail } else { &tail[tail.len() - 1..] });
        let label = relays.last().and_then(|guard| entry.label(*guard));
        let Some(label) = label else { return false };
        let path = hops(&relays, &self.keys_of, self.settings.mixing, rng);
        let made = self.blocks.make_loop(self.path_keys.isolated(LOOPS_ISOLATION), &path, label, now, rng);
        let Ok((block, sealing)) = made else { return false };
        let mut frame = Frame::default();
        body_mut(&mut frame.datagram).fill(0);
        let first = sealing.seal::<C>(&mut frame.datagram);
        let Some(to) = self.members.current(first) else { return false };
        if self.covering.out.len() >= MOST_LOOPS
            && let Some((&oldest, _)) = self.covering.out.first_key_value()
        {
            self.lose_loop(now, oldest, rng);
        }
        let deadline = now + self.covering.delays.timeout(&relays);
        self.covering.deadlines.insert((deadline, block));
        self.covering.out.insert(block, OutLoop { at: now, deadline, relays, forth: forth.id, back: back.id });
        self.counts.loops += 1;
        send(to, &frame);
        true
    }

    /// Whether `block` was a loop's, which has come back then.
    pub(in crate::node::user) fn on_loop(
        &mut self,
        now: Time,
        block: BlockId,
        entry: &mut Entry,
        rng: &mut impl rand_core::Rng,
    ) -> bool {
        let Some(came) = self.covering.take(block) else { return false };
        self.counts.loops_returned += 1;
        self.counts.loop_hops += came.relays.len() as u64;
        let time = now.since(came.at);
        self.covering.delays.sample(&came.relays, time);
        if let Some(first) = came.relays.first() {
            entry.on_arrived(*first);
        }
        let nanos = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        self.report_loop(now, &came, Fate::Arrived { one_way_nanos: Some(nanos) }, rng);
        true
    }

    /// Gives up what should be back.
    pub(in crate::node::user) fn expire_loops(&mut self, now: Time, rng: &mut impl rand_core::Rng) {
        while let Some(&(_, block)) = self.covering.deadlines.first().filter(|(at, _)| *at <= now) {
            self.lose_loop(now, block, rng);
        }
    }

    fn lose_loop(&mut self, now: Time, block: BlockId, rng: &mut impl rand_core::Rng) {
        let Some(lost) = self.covering.take(block) else { return };
        self.counts.loops_lost += 1;
        self.report_loop(now, &lost, Fate::Lost, rng);
    }

    fn report_loop(&mut self, now: Time, of: &OutLoop, fate: Fate, rng: &mut impl rand_core::Rng) {
        self.forth.on_outcome(of.forth, now, fate, &mut route_rng(rng));
        self.back.on_outcome(of.back, now, fate, &mut route_rng(rng));
    }
}

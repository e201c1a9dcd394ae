//! Where a user enters the overlay, and is answered: its guards, the links to them, and which of them packets take now.
//!
//! A new guard is reported to the application first, and has no packet of this user, not even one that asks for a link,
//! before that is known to be written down: after a crash the user would draw another, and an adversary could have it
//! draw until the guard is its own.
//!
//! Without guards (`--guards 0`) packets enter anywhere, as in MORE; but an answer needs a link. Of up to
//! [`MOST_LINKS`] relays the user hangs on all, and of more on this many, drawn by weight, each for [`LINK_LIFE`]: all
//! serve in the long run, and a thousand relays cost no more than these.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};

use crate::RelayIndex;
use crate::directory::{Document, PublicKey, UnixTime};
use crate::guards::{Choice, GuardState, Guards};
use crate::link::{Attachment, LinkFrame};
use crate::node::Members;
use crate::packet::Label;

/// A guard that has not answered more often in a row fails: to be asked, it takes two frames, and with their waits of
/// one and two seconds three seconds are over then, or half of that where it answered soon before.
const UNANSWERED: u32 = 2;

/// After this many packets over a guard in a row that did not arrive it is asked whether it is there.
const SUSPICIOUS: u32 = 8;

/// Relays that a user without guards hangs on: with a frame each 15 s, four a second there and back.
pub(super) const MOST_LINKS: usize = 64;

/// How long a user without guards hangs on one of more relays than that; its answers still come for as long again
/// ([`LIFETIME`](crate::link::LIFETIME)).
const LINK_LIFE: Duration = Duration::from_millis(60_000);

/// A user's guards.
pub(super) struct Entry {
    guards: Guards,
    /// Guards that are known to be written down.
    kept: BTreeSet<PublicKey>,
    choice: Choice,
    /// Those that packets take now: of the guards in use, those that are there; without guards, all that answers can
    /// come by.
    in_use: Vec<RelayIndex>,
    /// By index; labels stay over epochs.
    attachments: BTreeMap<RelayIndex, Attachment>,
    /// Without guards and among more relays than [`MOST_LINKS`]: until when each link is held.
    held_until: BTreeMap<RelayIndex, Time>,
    /// Packets over each guard that were lost since one arrived.
    lost_in_a_row: BTreeMap<RelayIndex, u32>,
    /// When a relay is to be spoken to; what relays say, and suspicion, bring it forward.
    speak_at: Time,
    /// Whether other relays may be there than packets take.
    has_news: bool,
    /// Whether a guard has failed, and blocks that lead to it are still with others.
    has_failed: bool,
    /// What is on the wall at time zero.
    wall_at_zero: UnixTime,
    /// When a relay that this user hangs on last answered.
    heard: Time,
}

impl Entry {
    /// `count` guards of `document`, going on from what was written down; `wall` is the calendar's time at `now`.
    pub fn new(
        count: usize,
        state: GuardState,
        document: &Document,
        now: Time,
        wall: UnixTime,
        rng: &mut Rng,
    ) -> Entry {
        let kept = state.identities().collect();
        let mut guards = Guards::new(count, state);
        let choice = guards.choose(document, now, wall, rng);
        Entry {
            guards,
            kept,
            in_use: choice.in_use.clone(),
            choice,
            attachments: BTreeMap::new(),
            held_until: BTreeMap::new(),
            lost_in_a_row: BTreeMap::new(),
            speak_at: now,
            has_news: true,
            has_failed: false,
            wall_at_zero: UnixTime(wall.0.saturating_sub(now.as_nanos() / Duration::SECOND.as_nanos())),
            heard: now,
        }
    }

    /// Indices mean other relays now: links go with their relays.
    pub fn begin_epoch(&mut self, before: &Document, document: &Document) {
        let moved = |relay: RelayIndex| document.index_of(&before.member(relay)?.descriptor.identity);
        let attachments = core::mem::take(&mut self.attachments).into_iter();
        self.attachments = attachments.filter_map(|(relay, link)| Some((moved(relay)?, link))).collect();
        let held = core::mem::take(&mut self.held_until).into_iter();
        self.held_until = held.filter_map(|(relay, until)| Some((moved(relay)?, until))).collect();
        self.lost_in_a_row.clear();
    }

    /// Chooses anew; whether what must outlive a restart has changed.
    pub fn choose(&mut self, document: &Document, now: Time, rng: &mut Rng) -> bool {
        let wall = self.wall_at_zero.after(now.as_nanos() / Duration::SECOND.as_nanos());
        self.choice = self.guards.choose(document, now, wall, rng);
        self.choice.changed
    }

    /// `state` is written down: its guards may be used.
    pub fn on_kept(&mut self, state: &GuardState) {
        self.kept = state.identities().collect();
    }

    fn is_kept(&self, document: &Document, relay: RelayIndex) -> bool {
        document.member(relay).is_some_and(|member| self.kept.contains(&member.descriptor.identity))
    }

    /// Hangs on the relays that answers may come from.
    pub fn attach(&mut self, document: &Document, now: Time, rng: &mut impl rand_core::Rng) {
        let wanted: Vec<RelayIndex> = if self.guards.count() > 0 {
            self.choice.in_use.iter().copied().filter(|relay| self.is_kept(document, *relay)).collect()
        } else if document.len() <= MOST_LINKS {
            document.relays().map(|(relay, _)| relay).collect()
        } else {
            self.hold(document, now, rng);
            self.held_until.keys().copied().collect()
        };
        self.attachments.retain(|relay, _| wanted.contains(relay));
        self.lost_in_a_row.retain(|relay, _| wanted.contains(relay));
        for relay in wanted {
            self.attachments.entry(relay).or_insert_with(|| Attachment::new(Label(rng.next_u64().to_be_bytes())));
        }
        (self.speak_at, self.has_news) = (now, true);
    }

    /// Holds links to [`MOST_LINKS`] of more relays.
    fn hold(&mut self, document: &Document, now: Time, rng: &mut impl rand_core::Rng) {
        self.held_until.retain(|_, until| *until > now);
        let mut drawn = super::route_rng(rng);
        let begins = self.held_until.is_empty();
        let total: u128 = document.relays().map(|(_, member)| u128::from(member.weight.max(1))).sum();
        while self.held_until.len() < MOST_LINKS.min(document.len()) {
            let mut left = (drawn.uniform() * total as f64) as u128;
            let found = document.relays().find(|(_, member)| {
                let weight = u128::from(member.weight.max(1));
                let is_it = left < weight;
                left = left.saturating_sub(weight);
                is_it
            });
            let Some((relay, _)) = found else { break };
            // At first they end one after the other, so that they never do together.
            let life =
                if begins { LINK_LIFE * (1 + self.held_until.len() as u64) / MOST_LINKS as u64 } else { LINK_LIFE };
            self.held_until.entry(relay).or_insert(now + life);
        }
    }

    fn is_there(&self, relay: RelayIndex, now: Time) -> bool {
        self.attachments.get(&relay).is_some_and(|attachment| attachment.is_attached(now))
    }

    fn those_there(&self, now: Time) -> Vec<RelayIndex> {
        if self.guards.count() > 0 {
            return self.choice.in_use.iter().copied().filter(|relay| self.is_there(*relay, now)).collect();
        }
        self.attachments.keys().copied().filter(|relay| self.is_there(*relay, now)).collect()
    }

    /// Whether other relays are there than packets take; looked at when something may have changed.
    pub fn has_moved(&mut self, now: Time) -> bool {
        core::mem::take(&mut self.has_news) && self.those_there(now) != self.in_use
    }

    /// Packets take those that are known to be there.
    pub fn use_those_there(&mut self, now: Time) -> Choice {
        self.in_use = self.those_there(now);
        Choice { in_use: self.in_use.clone(), ..self.choice.clone() }
    }

    /// What must outlive a restart.
    pub fn state(&self) -> &GuardState {
        self.guards.state()
    }

    /// The guards in use.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Whether answers can come: a guard passes on what comes.
    pub fn is_attached(&self, now: Time) -> bool {
        self.attachments.values().any(|attachment| attachment.is_attached(now))
    }

    /// Whether `guard` passes on what comes for this user.
    pub fn hangs_on(&self, guard: RelayIndex, now: Time) -> bool {
        self.attachments.get(&guard).is_some_and(|attachment| attachment.is_attached(now))
    }

    /// This user's name at a relay.
    pub fn label(&self, relay: RelayIndex) -> Option<Label> {
        self.attachments.get(&relay).map(Attachment::label)
    }

    /// Says with `say` what is to be said to relays now; whether guards are to be chosen, or links held, anew.
    pub fn speak(
        &mut self,
        document: &Document,
        members: &Members,
        now: Time,
        mut say: impl FnMut(SocketAddr, LinkFrame),
    ) -> bool {
        if now < self.speak_at {
            return false;
        }
        self.has_news = true;
        let mut failed = Vec::new();
        for (relay, attachment) in &mut self.attachments {
            if let Some(said) = attachment.poll(now)
                && let Some(to) = members.current(*relay)
            {
                say(to, said);
            }
            if attachment.unanswered() > UNANSWERED && self.choice.in_use.contains(relay) {
                failed.push(*relay);
            }
        }
        for relay in &failed {
            if let Some(member) = document.member(*relay) {
                self.guards.on_failure(&member.descriptor.identity, now);
            }
            self.attachments.remove(relay);
            self.has_failed = true;
        }
        let is_to_choose = !failed.is_empty()
            || self.is_missing() && self.guards.retry_at().is_some_and(|at| at <= now)
            || self.held_until.values().any(|until| *until <= now);
        self.speak_at = self.next();
        is_to_choose
    }

    fn is_missing(&self) -> bool {
        self.choice.in_use.len() < self.guards.count()
    }

    /// When a relay is to be spoken to, or another chosen, if nothing happens before.
    fn next(&self) -> Time {
        let retry = self.guards.retry_at().filter(|_| self.is_missing());
        let held = self.held_until.values().copied();
        self.attachments.values().map(Attachment::timer).chain(retry).chain(held).min().unwrap_or(Time::MAX)
    }

    /// A relay says something of a link.
    pub fn on_frame(&mut self, document: &Document, members: &Members, now: Time, from: SocketAddr, said: &LinkFrame) {
        for (relay, attachment) in &mut self.attachments {
            if members.current(*relay) == Some(from) {
                self.heard = now;
                attachment.on_frame(now, said);
                if attachment.is_attached(now)
                    && let Some(member) = document.member(*relay)
                {
                    self.guards.on_success(&member.descriptor.identity);
                }
            }
        }
        self.speak_at = self.next();
        self.has_news = true;
    }

    /// A packet that entered by `relay` has arrived.
    pub fn on_arrived(&mut self, relay: RelayIndex) {
        self.lost_in_a_row.remove(&relay);
    }

    /// A packet that entered by `relay` has not arrived.
    pub fn on_lost(&mut self, relay: RelayIndex, now: Time) {
        let Some(attachment) = self.attachments.get_mut(&relay) else { return };
        let lost = self.lost_in_a_row.entry(relay).or_insert(0);
        *lost += 1;
        if *lost == SUSPICIOUS {
            attachment.ask(now);
            self.speak_at = self.speak_at.min(attachment.timer());
        }
    }

    /// Asks all guards now whether they are there: nothing comes of what should.
    pub fn ask(&mut self, now: Time) {
        for attachment in self.attachments.values_mut() {
            attachment.ask(now);
            self.speak_at = self.speak_at.min(attachment.timer());
        }
    }

    /// When a relay that this user hangs on last answered; when it began, if none has.
    pub fn heard(&self) -> Time {
        self.heard
    }

    /// Whether a guard has failed since, and another is there for new blocks to lead to; once for each.
    pub fn take_failed(&mut self, now: Time) -> bool {
        self.has_failed && self.is_attached(now) && core::mem::take(&mut self.has_failed)
    }

    /// When [`Entry::speak`] has something to do.
    pub fn timer(&self) -> Time {
        self.speak_at
    }
}

//! Where a user enters the overlay: its guards, the links to them, and which of them packets take now.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};

use crate::RelayIndex;
use crate::directory::{Document, UnixTime};
use crate::guards::{Choice, GuardState, Guards};
use crate::link::{Attachment, LinkFrame};
use crate::node::Members;
use crate::packet::Label;

/// A guard that has not answered more often in a row fails: to be asked, it takes two frames, and with their waits of
/// one and two seconds three seconds are over then.
const UNANSWERED: u32 = 2;

/// After so many packets over a guard in a row that did not arrive it is asked whether it is there.
const SUSPICIOUS: u32 = 8;

/// A user's guards.
pub(super) struct Entry {
    guards: Guards,
    choice: Choice,
    /// Of those in use, the ones that packets take now.
    in_use: Vec<RelayIndex>,
    /// By index; labels stay over epochs.
    attachments: BTreeMap<RelayIndex, Attachment>,
    /// Packets over each guard that were lost since one arrived.
    lost_in_a_row: BTreeMap<RelayIndex, u32>,
    /// What is on the wall at time zero.
    wall_at_zero: UnixTime,
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
        let mut guards = Guards::new(count, state);
        let choice = guards.choose(document, now, wall, rng);
        Entry {
            guards,
            in_use: choice.in_use.clone(),
            choice,
            attachments: BTreeMap::new(),
            lost_in_a_row: BTreeMap::new(),
            wall_at_zero: UnixTime(wall.0.saturating_sub(now.as_nanos() / Duration::SECOND.as_nanos())),
        }
    }

    /// Indices mean other relays now: links go with their relays.
    pub fn begin_epoch(&mut self, before: &Document, document: &Document) {
        let moved = |(relay, attachment): (RelayIndex, Attachment)| {
            let identity = before.member(relay)?.descriptor.identity;
            Some((document.index_of(&identity)?, attachment))
        };
        self.attachments = core::mem::take(&mut self.attachments).into_iter().filter_map(moved).collect();
    }

    /// Chooses anew; whether what must outlive a restart has changed.
    pub fn choose(&mut self, document: &Document, now: Time, rng: &mut Rng) -> bool {
        let wall = self.wall_at_zero.after(now.as_nanos() / Duration::SECOND.as_nanos());
        self.choice = self.guards.choose(document, now, wall, rng);
        self.choice.changed
    }

    /// Hangs on all relays that answers may come from.
    pub fn attach(&mut self, document: &Document, rng: &mut impl rand_core::Rng) {
        let wanted: Vec<RelayIndex> = match self.guards.count() {
            0 => document.relays().map(|(relay, _)| relay).collect(),
            _ => self.choice.in_use.clone(),
        };
        self.attachments.retain(|relay, _| wanted.contains(relay));
        self.lost_in_a_row.clear();
        for relay in wanted {
            self.attachments.entry(relay).or_insert_with(|| Attachment::new(Label(rng.next_u64().to_be_bytes())));
        }
    }

    fn is_there(&self, relay: RelayIndex, now: Time) -> bool {
        self.attachments.get(&relay).is_some_and(|attachment| attachment.is_attached(now))
    }

    /// Whether other guards are there than packets take.
    pub fn has_moved(&self, now: Time) -> bool {
        let there = self.choice.in_use.iter().filter(|relay| self.is_there(**relay, now));
        self.guards.count() > 0 && !there.eq(&self.in_use)
    }

    /// Packets take those guards that are known to be there.
    pub fn use_those_there(&mut self, now: Time) -> Choice {
        self.in_use = self.choice.in_use.iter().copied().filter(|relay| self.is_there(*relay, now)).collect();
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

    /// This user's name at a relay.
    pub fn label(&self, relay: RelayIndex) -> Option<Label> {
        self.attachments.get(&relay).map(Attachment::label)
    }

    /// Says with `say` what is to be said to relays now; whether guards are to be chosen anew.
    pub fn speak(
        &mut self,
        document: &Document,
        members: &Members,
        now: Time,
        mut say: impl FnMut(SocketAddr, LinkFrame),
    ) -> bool {
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
        }
        !failed.is_empty() || self.is_missing() && self.guards.retry_at().is_some_and(|at| at <= now)
    }

    fn is_missing(&self) -> bool {
        self.choice.in_use.len() < self.guards.count()
    }

    /// A relay says something of a link.
    pub fn on_frame(&mut self, document: &Document, members: &Members, now: Time, from: SocketAddr, said: &LinkFrame) {
        for (relay, attachment) in &mut self.attachments {
            if members.current(*relay) == Some(from) {
                attachment.on_frame(now, said);
                if attachment.is_attached(now)
                    && let Some(member) = document.member(*relay)
                {
                    self.guards.on_success(&member.descriptor.identity);
                }
            }
        }
    }

    /// A packet that entered by `relay` has arrived.
    pub fn on_arrived(&mut self, relay: RelayIndex) {
        self.lost_in_a_row.remove(&relay);
    }

    /// A packet that entered by `relay` has not arrived.
    pub fn on_lost(&mut self, relay: RelayIndex, now: Time) {
        let lost = self.lost_in_a_row.entry(relay).or_insert(0);
        *lost += 1;
        if *lost == SUSPICIOUS
            && let Some(attachment) = self.attachments.get_mut(&relay)
        {
            attachment.ask(now);
        }
    }

    /// When [`Entry::speak`] has something to do.
    pub fn timer(&self) -> Option<Time> {
        let retry = self.guards.retry_at().filter(|_| self.is_missing());
        self.attachments.values().map(Attachment::timer).chain(retry).min()
    }
}

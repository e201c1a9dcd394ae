//! How a client follows what the server assigns and what its feeds decide: whom it reaches, asks, leaves and tells.

use std::collections::{BTreeMap, VecDeque};

use anabranch_control::time::Time;

use super::client::{Client, ClientEvent, Watching};
use super::content::Content;
use super::feeds::Step;
use super::message::{Assignment, Contact, Message};
use super::packet::{PacketId, SliceSet};
use crate::session::{SessionId, Sessions};

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Client<A, C> {
    pub(super) fn on_assignment(&mut self, now: Time, assignment: Assignment<A>, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &mut self.watching else { return };
        watching.pushing.set_places(usize::from(assignment.places));
        for children in assignment.children {
            watching.pushing.on_assigned(now, children.slice, children.children);
        }
        let mut steps = Vec::new();
        for parent in &assignment.parents {
            watching.feeds.on_parent(now, parent, |step| steps.push(step));
        }
        self.follow(now, steps, sessions);
    }

    /// Does what the feeds have decided.
    pub(super) fn follow(&mut self, now: Time, steps: Vec<Step<A>>, sessions: &mut impl Sessions<Self>) {
        let (mut silent, mut missed) = (Vec::new(), SliceSet::default());
        let mut steps = VecDeque::from(steps);
        while let Some(step) = steps.pop_front() {
            match step {
                Step::Ask(slice, contact) => match self.reach(now, &contact, sessions) {
                    Some(session) => self.subscribe(now, slice, session, sessions),
                    // Who cannot be asked is as good as silent.
                    None => {
                        let Some(watching) = &mut self.watching else { return };
                        watching.feeds.on_unreachable(now, slice, |step| steps.push_back(step));
                    }
                },
                Step::AskServer(slice) => {
                    if let Some(server) = self.server {
                        self.subscribe(now, slice, server, sessions);
                    }
                }
                Step::Leave(slice, session) => {
                    sessions.send(session, Message::Unsubscribe(SliceSet(1 << slice)));
                }
                Step::ReportStalled(slice) => missed.insert(slice),
                Step::Silent(feed) => {
                    silent.push(feed);
                    sessions.event(ClientEvent::Silent(feed));
                }
            }
        }
        if let Some(server) = self.server
            && !silent.is_empty()
        {
            sessions.send(server, Message::Silent(silent));
        }
        self.report_stalled(missed, sessions);
    }

    /// Those below wait for this client to mend it, and stay.
    pub(super) fn report_stalled(&self, missed: SliceSet, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &self.watching else { return };
        let mut stalled: BTreeMap<SessionId, SliceSet> = BTreeMap::new();
        for slice in missed.iter() {
            for child in watching.pushing.children(slice) {
                stalled.entry(child).or_default().insert(slice);
            }
        }
        for (child, slices) in stalled {
            sessions.send(child, Message::Stalled(slices));
        }
    }

    pub(super) fn subscribe(&mut self, now: Time, slice: u8, session: SessionId, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &mut self.watching else { return };
        watching.feeds.set_session(now, slice, session);
        // Until the session stands another parent may go on.
        if self.peers.stands(session) {
            self.ask_for(session, SliceSet(1 << slice), sessions);
        }
    }

    /// Asks for `slices`, which are to come over `session`: from the first packet on that is not here of those that the
    /// feed has not pushed. One before it may have pushed some meanwhile.
    pub(super) fn ask_for(&self, session: SessionId, slices: SliceSet, sessions: &mut impl Sessions<Self>) {
        let Some(Watching { info, feeds, receiving, .. }) = &self.watching else { return };
        let mut alike: BTreeMap<PacketId, SliceSet> = BTreeMap::new();
        for slice in slices.iter() {
            let brought = feeds.brought(slice);
            let is_missing = |id: &PacketId| id.slice(info.slices) == slice && !receiving.buffer().contains(*id);
            let missing = (feeds.pushed(slice).0..brought.0).map(PacketId).find(is_missing);
            alike.entry(missing.unwrap_or(brought)).or_default().insert(slice);
        }
        for (from, slices) in alike {
            sessions.send(session, Message::Subscribe { slices, from });
        }
    }

    /// The session with another client, which begins if there is none. None leads to somebody who forges.
    pub(super) fn reach(
        &mut self,
        now: Time,
        contact: &Contact<A>,
        sessions: &mut impl Sessions<Self>,
    ) -> Option<SessionId> {
        // Whatever the server says: who is private shows itself to nobody.
        if self.forgers.contains(&contact.client) || self.is_private() {
            return None;
        }
        if let Some(session) = self.peers.session_of(contact.client) {
            return Some(session);
        }
        let ticket = self.watching.as_ref()?.ticket.clone();
        let session = sessions.open(contact.address, Some(contact.key))?;
        self.peers.begin(now, session, Some(contact.client));
        sessions.send(session, Message::Greet(Box::new(ticket)));
        Some(session)
    }

    /// Who was asked for `slices` has no room or is gone, for which it is excused; or forges, for which it is
    /// not.
    pub(super) fn on_refused(
        &mut self,
        now: Time,
        from: SessionId,
        slices: SliceSet,
        is_excused: bool,
        sessions: &mut impl Sessions<Self>,
    ) {
        let Some(watching) = &mut self.watching else { return };
        let mut steps = Vec::new();
        watching.feeds.on_refused(now, from, slices, is_excused, |step| steps.push(step));
        self.follow(now, steps, sessions);
    }
}

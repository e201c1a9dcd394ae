//! What viewers say of each other, what it makes of whom they say it, and who has to go.

use std::collections::BTreeSet;

use anabranch_control::time::{Duration, Time};

use super::super::content::ClientId;
use super::super::contribution::ANSWER;
use super::super::feeds::SILENCE;
use super::super::message::{Contact, Report, SilentFeed};
use super::super::packet::{MAX_PACKET, MAX_SLICES, SliceSet};
use super::super::pushing::most_served;
use super::super::tree::{NodeId, Substitute};
use super::{Refusal, Tracker, Viewer};
use crate::session::SessionId;

/// Who has missed a slice so lately is not blamed if others miss it as well: it takes some tries to find
/// another parent.
const MISSED: Duration = Duration::from_millis(3000);

/// Who has come so lately is not blamed: its own parents have to be reached and asked, and may fail.
const GRACE: Duration = Duration::from_millis(2000);

/// What reports may tell of a slice in a period, of what it has on average: the source is not even.
const MOST_REPORTED: u32 = 2;

/// Keys of those that are remembered at most.
const MOST_LEFT_OUT: usize = 4096;

/// Nobody is asked whether it is there more often, however many seem to die: as often as it reports.
const DOUBT_PERIOD: Duration = super::super::client::REPORT_PERIOD;

/// Whether something was heard of `viewer` since those died whose children miss them now: they have waited for so long.
fn has_outlived<A>(viewer: &Viewer<A>, now: Time) -> bool {
    now < viewer.heard + SILENCE
}

impl<A: Copy + Eq> Tracker<A> {
    /// Somebody says how it fares, and how its parents do. It is believed of those whom the server has
    /// named to it.
    pub fn on_report(&mut self, now: Time, client: ClientId, report: &Report) {
        self.on_heard(now, client);
        if let Some(viewer) = self.private.viewers.get_mut(&client) {
            viewer.reports.on_report(now, report);
            return;
        }
        let Some(viewer) = self.viewer_mut(client) else { return };
        viewer.reports.on_report(now, report);
        viewer.supply.on_report(&report.feeds);
        let child = viewer.node;
        let packets = self.packets_of_a_slice() * MOST_REPORTED;
        let mut reported = SliceSet::default();
        for feed in report.feeds.iter().filter(|feed| feed.slice < self.config.slices) {
            let slice = usize::from(feed.slice);
            if reported.contains(feed.slice) {
                continue;
            }
            reported.insert(feed.slice);
            let parent = feed.parent.and_then(|parent| self.viewer(parent)).map(|viewer| viewer.node);
            let Some(parent) = parent.filter(|&parent| self.book.parent(slice, child) == Some(parent)) else {
                continue;
            };
            let supplied = self.supplied(slice, parent);
            if let Some(viewer) = &mut self.viewers[parent.slot()] {
                viewer.contribution.on_feed(packets, supplied, feed);
            }
        }
        self.on_accusations(now, client, &report.forgers);
    }

    /// Of `forgers` somebody has got what is not the source's. It is believed of those who are or were its parents.
    fn on_accusations(&mut self, now: Time, client: ClientId, forgers: &[ClientId]) {
        let Some(child) = self.viewer(client).map(|viewer| viewer.node) else { return };
        for &forger in forgers.iter().take(usize::from(MAX_SLICES)) {
            let Some(node) = self.viewer(forger).map(|viewer| viewer.node) else { continue };
            let mut slices = 0..usize::from(self.config.slices);
            let is_child = slices.any(|slice| self.book.parent(slice, child) == Some(node));
            let Some(viewer) = self.viewer_mut(forger) else { continue };
            if is_child || viewer.former.iter().any(|&(child, until)| child == client && now < until) {
                viewer.contribution.on_accused(now, client);
            }
        }
    }

    /// Since when somebody has been let in whose players got nothing and miss nothing, by its last report.
    pub fn has_nothing_since(&self, client: ClientId) -> Option<Time> {
        let public = self.viewer(client).map(|viewer| (viewer.joined, &viewer.reports));
        let private = || self.private_viewer(client).map(|viewer| (viewer.joined, &viewer.reports));
        public.or_else(private).filter(|(_, reports)| reports.has_nothing()).map(|(joined, _)| joined)
    }

    /// Packets of a slice in a period of reports.
    pub(super) fn packets_of_a_slice(&self) -> u32 {
        let bytes = (self.bitrate * super::super::client::REPORT_PERIOD).get();
        (bytes / MAX_PACKET as u64 / u64::from(self.config.slices.max(1))) as u32 + 1
    }

    /// Somebody has said something.
    pub fn on_heard(&mut self, now: Time, client: ClientId) {
        if let Some(viewer) = self.private.viewers.get_mut(&client) {
            viewer.heard = now;
        }
        let Some(viewer) = self.viewer_mut(client) else { return };
        viewer.heard = now;
        let (node, was_suspect) = (viewer.node, viewer.contribution.on_heard());
        self.book.set_doubtful(node, false);
        if was_suspect {
            let places = self.viewers[node.slot()].as_ref().map_or(0, |viewer| self.planned(self.bears(viewer)));
            let _ = self.book.readmit(node, places, &self.latencies, &mut self.changes);
            self.note_changes();
            self.recount(node);
        }
    }

    /// A child says that nothing comes from its parent. Where parents have backups, it gets another, and
    /// a parent whom several miss gets no child before it is heard of again.
    pub fn on_silent(&mut self, now: Time, child: ClientId, feed: &SilentFeed) {
        if !self.config.has_backups || feed.slice >= self.config.slices {
            return;
        }
        let Some(node) = self.viewer(child).map(|viewer| viewer.node) else { return };
        let slice = usize::from(feed.slice);
        let current =
            self.book.parent(slice, node).and_then(|parent| self.contact(parent)).map(|contact| contact.client);
        let reaches = |node| self.book.depth(slice, node).is_some();
        // Who does not get it itself, or has only just come, is not to blame.
        let is_blamed = !feed.is_excused
            && feed.parent.and_then(|parent| self.viewer(parent)).is_some_and(|parent| {
                let misses = parent.missed[slice] > Time::ZERO && now.since(parent.missed[slice]) < MISSED;
                let is_named = current == feed.parent || parent.former.iter().any(|&(former, _)| former == child);
                is_named && reaches(parent.node) && !misses && now.since(parent.joined) >= GRACE
            });
        if let Some(parent) = feed.parent.filter(|_| is_blamed) {
            self.doubt(now, child, parent);
        }
        let named = self.book.parent(slice, node);
        if current == feed.parent || named.is_some_and(|named| self.book.is_doubtful(named)) {
            self.take_place_of_parent(now, slice, node, feed.asked);
        } else if let Some(viewer) = self.viewer_mut(child) {
            // It has not heard whom the server has named.
            viewer.new_parents.insert(feed.slice);
            self.news.insert(node.slot());
        }
        if let Some(viewer) = self.viewer_mut(child) {
            viewer.missed[slice] = now;
        }
        if !is_blamed {
            if let Some(parent) = feed.parent.filter(|_| current == feed.parent) {
                self.on_excused(now, slice, parent);
            }
            return;
        }
        let Some(viewer) = feed.parent.and_then(|parent| self.viewer_mut(parent)) else { return };
        if viewer.contribution.on_silent(now, child) {
            let (node, session) = (viewer.node, viewer.session);
            if !self.book.is_doubtful(node) {
                self.questions.push(session);
            }
            self.recount(node);
        }
    }

    /// `parent` has said to a child that it misses `slice` itself, or has no room for it, or has missed it lately. It
    /// may be there for all that; but of what it had, nothing came.
    fn on_excused(&mut self, now: Time, slice: usize, parent: ClientId) {
        let Some(node) = self.viewer(parent).filter(|parent| now.since(parent.joined) >= GRACE).map(|it| it.node)
        else {
            return;
        };
        let supplied = self.supplied(slice, node);
        if let Some(viewer) = self.viewer_mut(parent) {
            viewer.contribution.on_missed(supplied);
        }
    }

    /// `missed` seems to have died, by the word of `child`, and others may have with it: who has said nothing since is
    /// asked whether it is there, and gets no child before it says so.
    fn doubt(&mut self, now: Time, child: ClientId, missed: ClientId) {
        if now < self.doubted_at + DOUBT_PERIOD || !self.is_trusted(now, child) {
            return;
        }
        if let Some(viewer) = self.viewer_mut(child) {
            viewer.word.give(now, missed);
        }
        self.doubted_at = now;
        let Tracker { viewers, book, questions, .. } = self;
        for viewer in viewers.iter().flatten().filter(|viewer| !has_outlived(viewer, now)) {
            if !book.is_doubtful(viewer.node) {
                book.set_doubtful(viewer.node, true);
                questions.push(viewer.session);
            }
        }
    }

    /// Whether a doubt may begin by the word of `child`.
    fn is_trusted(&mut self, now: Time, child: ClientId) -> bool {
        let missed = self.viewer(child).and_then(|viewer| viewer.word.missed());
        let heard = missed.and_then(|missed| self.viewer(missed)).map(|missed| missed.heard);
        self.viewer_mut(child).is_some_and(|viewer| viewer.word.is_trusted(now, heard))
    }

    /// Whether those who were asked whether they are there may still answer.
    pub(super) fn is_in_doubt(&self, now: Time) -> bool {
        self.doubted_at > Time::ZERO && now < self.doubted_at + ANSWER
    }

    /// `child` gets `slice` from the one that it has asked itself, if that may be, be it one of the places that stay
    /// free otherwise; else from somebody whom it need not reach first; else from the server, as far as it can; else
    /// from whoever is best. If there is nobody it is looked for one again while its parent may be gone.
    fn take_place_of_parent(&mut self, now: Time, slice: usize, child: NodeId, asked: Option<ClientId>) {
        let asked = asked.and_then(|asked| self.viewer(asked)).map(|viewer| (viewer.node, self.bears(viewer)));
        if let Some((node, places)) = asked {
            let (planned, held) = self.book.places(node);
            // Its children that are gone take nothing of it.
            let places = if self.is_in_doubt(now) { most_served(places) } else { places };
            if held >= planned && held < places {
                self.set_places(node, held + 1);
            }
        }
        let asked = asked.map(|(node, _)| Substitute::Asked(node));
        let mut is_placed = asked
            .into_iter()
            .chain([Substitute::Acquaintance])
            .any(|substitute| self.book.reassign(slice, child, substitute, &self.latencies, &mut self.changes));
        // Who is gone gets nothing: for others there is what it was sent.
        let (places, held) = self.book.places(NodeId::SERVER);
        if !is_placed && held - self.unanswering_children(NodeId::SERVER) < self.places(self.config.upload) {
            self.set_places(NodeId::SERVER, places.max(held + 1));
            let server = Substitute::Asked(NodeId::SERVER);
            is_placed = self.book.reassign(slice, child, server, &self.latencies, &mut self.changes);
        }
        if !is_placed && !self.book.reassign(slice, child, Substitute::Best, &self.latencies, &mut self.changes) {
            self.orphans.insert((slice, child));
        }
        self.note_changes();
    }

    /// Children of `node`, over all slices, that leave what the server sends them unanswered.
    fn unanswering_children(&self, node: NodeId) -> usize {
        let slices = 0..usize::from(self.config.slices);
        let children = slices.flat_map(|slice| self.book.children(slice, node));
        let viewers = children.filter_map(|child| self.viewers[child.slot()].as_ref());
        viewers.filter(|viewer| viewer.contribution.is_unanswering()).count()
    }

    /// Those for whom there was no parent get one, if there is one now: others have said that they are there.
    pub fn place_orphans(&mut self, now: Time) {
        for (slice, child) in std::mem::take(&mut self.orphans) {
            if self.book.parent(slice, child).is_some_and(|parent| self.book.is_doubtful(parent)) {
                self.take_place_of_parent(now, slice, child, None);
            }
        }
    }

    /// Whom to ask since the last call whether they are there: several children miss them.
    pub fn take_questions(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.questions)
    }

    /// A viewer has left something unanswered for a probe timeout, or has answered again.
    pub fn set_unanswering(&mut self, client: ClientId, is_unanswering: bool) {
        if let Some(viewer) = self.viewer_mut(client) {
            viewer.contribution.set_unanswering(is_unanswering);
        }
    }

    /// Those who were asked and have not answered hold nobody and get nothing any more, until they are
    /// heard of.
    pub fn give_up_suspects(&mut self, now: Time) {
        let give_up = |viewer: &mut Viewer<A>| viewer.contribution.give_up(now).then_some(viewer.node);
        let gone: Vec<NodeId> = self.viewers.iter_mut().flatten().filter_map(give_up).collect();
        for node in gone {
            // What others have to spare is for those who are there.
            let _ = self.book.exclude(node, &self.latencies, &mut self.changes);
            self.note_changes();
            self.recount(node);
        }
    }

    /// Who has been silent for too long.
    pub fn silent(&self, now: Time) -> Vec<ClientId> {
        let all = self.viewers().map(|viewer| (viewer.contact.client, viewer.heard));
        let all = all.chain(self.private_viewers().map(|viewer| (viewer.contact.client, viewer.heard)));
        all.filter(|&(_, heard)| now.since(heard) >= self.config.silence).map(|(client, _)| client).collect()
    }

    /// The end of a period of reports: what viewers are believed to bear changes. Gives who is to go: those
    /// who forge, for ever; and where there is not enough for all, those who pass nothing on.
    pub fn review(&mut self, now: Time) -> Vec<(ClientId, Refusal)> {
        let mut going: Vec<(ClientId, Refusal)> =
            self.too_many_private().into_iter().map(|client| (client, Refusal::NoRoomForPrivate)).collect();
        for slot in 1..self.viewers.len() {
            let Some(viewer) = &self.viewers[slot] else { continue };
            let node = viewer.node;
            let (places, held) = (viewer.places, self.book.places(node).1);
            let children = self.children_of(node);
            let Some(viewer) = &mut self.viewers[slot] else { continue };
            viewer.former.retain(|&(_, until)| now < until);
            let former = viewer.former.iter().filter(|(child, _)| !children.contains(child)).count();
            if viewer.contribution.is_forger(now, children.len() + former) {
                going.push((viewer.contact.client, Refusal::Excluded));
            }
            viewer.contribution.review(now, places, held);
        }
        self.weigh(0);
        self.recount_all();
        if !self.has_spare {
            let idle = self.viewers().filter(|viewer| viewer.contribution.is_idle());
            let idle: Vec<Contact<A>> = idle.map(|viewer| viewer.contact).collect();
            for contact in idle {
                if self.left_out.len() == MOST_LEFT_OUT {
                    let oldest = self.left_out.iter().min_by_key(|&(_, at)| *at).map(|(key, _)| *key);
                    oldest.map(|key| self.left_out.remove(&key));
                }
                self.left_out.insert(contact.key, now);
                going.push((contact.client, Refusal::Overloaded));
            }
        }
        going
    }

    /// The different viewers that get anything from `node`.
    pub(super) fn children_of(&self, node: NodeId) -> BTreeSet<ClientId> {
        let slices = 0..usize::from(self.config.slices);
        slices
            .flat_map(|slice| self.book.children(slice, node))
            .filter_map(|child| self.contact(child))
            .map(|contact| contact.client)
            .collect()
    }
}

//! Viewers of whom nobody but the server knows where they are: it feeds them itself, names them to nobody and
//! nobody to them. They are in no tree and no mesh, and pass nothing on; what they take of the server's places is
//! kept from the trees.
//!
//! A stream is private as a whole, or a viewer of a public one asks to be. In a public stream they have at most a
//! part of the server's places: who passes nothing on must not take the stream from those who do.

use std::collections::BTreeMap;

use anabranch_control::time::Time;

use super::{Refusal, Tracker};
use crate::session::{Remote, SessionId};
use crate::stream::content::ClientId;
use crate::stream::message::{Assignment, Contact, Parent};
use crate::stream::report_history::ReportHistory;
use crate::stream::tree::{BACKUPS, NodeId};

/// The part of the server's places that private viewers of a public stream may have.
const PART_OF_PUBLIC: usize = 2;

/// One whom nobody but the server knows.
#[derive(Clone, Debug)]
pub struct PrivateViewer<A> {
    /// Its number, address and key; they go to nobody.
    pub contact: Contact<A>,
    /// Its session.
    pub session: SessionId,
    /// When it came.
    pub joined: Time,
    /// When it last said something.
    pub heard: Time,
    /// How it says that it fares.
    pub reports: ReportHistory,
    /// Whether it knows that all comes from the server.
    is_assigned: bool,
}

/// All of them, by number: the last to come is the last.
#[derive(Clone, Debug)]
pub(super) struct PrivateViewers<A> {
    pub(super) viewers: BTreeMap<ClientId, PrivateViewer<A>>,
    /// Whether the stream is private as a whole.
    pub(super) is_all: bool,
}

impl<A> Default for PrivateViewers<A> {
    fn default() -> PrivateViewers<A> {
        PrivateViewers { viewers: BTreeMap::new(), is_all: false }
    }
}

impl<A: Copy + Eq> Tracker<A> {
    /// All viewers are private from now on; call it before the first joins.
    pub fn set_private(&mut self) {
        self.private.is_all = true;
    }

    /// Whether the stream is private as a whole.
    pub fn is_private(&self) -> bool {
        self.private.is_all
    }

    /// Those whom nobody but the server knows.
    pub fn private_viewers(&self) -> impl Iterator<Item = &PrivateViewer<A>> {
        self.private.viewers.values()
    }

    /// The private viewer of this number.
    pub fn private_viewer(&self, client: ClientId) -> Option<&PrivateViewer<A>> {
        self.private.viewers.get(&client)
    }

    /// Children that the server may have in the trees: what private viewers leave.
    pub(super) fn server_room(&self) -> usize {
        let taken = self.private.viewers.len() * usize::from(self.config.slices);
        self.places(self.config.upload).saturating_sub(taken)
    }

    /// Whether there are places for this many private viewers.
    fn has_room_for_private(&self, viewers: usize) -> bool {
        let (all, taken) = (self.places(self.config.upload), viewers * usize::from(self.config.slices));
        let most = if self.private.is_all { all } else { all / PART_OF_PUBLIC };
        let borne: usize = self.viewers().map(|viewer| self.bears(viewer)).sum();
        let needed = self.len() * usize::from(self.config.slices);
        taken <= most && (borne + all).saturating_sub(taken) >= needed
    }

    /// Somebody wants to watch whom nobody may know.
    ///
    /// # Errors
    ///
    /// When the server cannot feed it; nothing has changed then.
    pub fn join_privately(&mut self, now: Time, session: SessionId, remote: &Remote<A>) -> Result<ClientId, Refusal> {
        if self.watching() >= self.config.most_clients {
            return Err(Refusal::Full);
        }
        if !self.has_room_for_private(self.private.viewers.len() + 1) {
            return Err(Refusal::NoRoomForPrivate);
        }
        let client = self.next_number();
        let contact = Contact { client, address: remote.address, key: remote.key };
        let viewer = PrivateViewer {
            contact,
            session,
            joined: now,
            heard: now,
            reports: ReportHistory::new(now),
            is_assigned: false,
        };
        self.private.viewers.insert(client, viewer);
        self.on_private_changed();
        Ok(client)
    }

    /// What is left for the trees has changed, and whom the server pushes to.
    fn on_private_changed(&mut self) {
        (0..self.config.slices).for_each(|slice| self.server_children.insert(slice));
        self.weigh(0);
        self.recount_server();
    }

    /// Whether it was one of them who left.
    pub(super) fn leave_private(&mut self, client: ClientId) -> bool {
        let was_here = self.private.viewers.remove(&client).is_some();
        if was_here {
            self.on_private_changed();
        }
        was_here
    }

    /// Those who came last, as many as the server cannot feed any more: the stream takes more than it did.
    pub(super) fn too_many_private(&self) -> Vec<ClientId> {
        let count = self.private.viewers.len();
        let fits = (0..=count).rev().find(|&viewers| self.has_room_for_private(viewers)).unwrap_or(0);
        self.private.viewers.keys().skip(fits).copied().collect()
    }

    /// That the server feeds them, for those who do not know it yet.
    pub fn private_assignments(&mut self) -> Vec<(SessionId, Assignment<A>)> {
        let slices = self.config.slices;
        let parents = || (0..slices).map(|slice| Parent { slice, parent: None, backups: [None; BACKUPS] }).collect();
        let new = self.private.viewers.values_mut().filter(|viewer| !viewer.is_assigned);
        new.map(|viewer| {
            viewer.is_assigned = true;
            (viewer.session, Assignment { parents: parents(), children: Vec::new(), places: 0 })
        })
        .collect()
    }

    /// Those whom the server pushes to besides its children in the trees.
    pub(super) fn private_children(&self, node: NodeId) -> impl Iterator<Item = ClientId> {
        self.private.viewers.keys().copied().filter(move |_| node == NodeId::SERVER)
    }
}

//! Who watches no more: it has left, was silent for too long, or had to go.

use anabranch_control::time::Time;

use super::super::content::{ClientId, Content};
use super::super::overlay::Happened;
use super::super::tracker::Refusal;
use super::{Server, ServerEvent};
use crate::session::{SessionId, Sessions};

/// Keys that are excluded at most; the oldest are forgiven for others.
const MOST_EXCLUDED: usize = 4096;

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Server<A, C> {
    /// Pages are told of it; before the tracker forgets.
    fn note_gone(&mut self, now: Time, client: ClientId, how: Happened) {
        let public = self.tracker.viewer(client).and_then(|viewer| viewer.reports.last());
        let told = public.or_else(|| self.tracker.private_viewer(client)?.reports.last());
        let played = told.map_or(0, |told| told.played);
        self.telling.on_gone(now, client, how, played, self.source.edge());
    }

    pub(super) fn remove(&mut self, now: Time, client: ClientId, was_silent: bool, sessions: &mut impl Sessions<Self>) {
        self.note_gone(now, client, if was_silent { Happened::Died } else { Happened::Left });
        self.tracker.leave(client);
        sessions.event(ServerEvent::Left(client, was_silent));
    }

    /// Somebody has to go. Who forges may not come in again.
    pub(super) fn send_away(&mut self, now: Time, client: ClientId, why: Refusal, sessions: &mut impl Sessions<Self>) {
        let public = self.tracker.viewer(client).map(|viewer| viewer.contact);
        let private = || self.tracker.private_viewer(client).map(|viewer| viewer.contact);
        let Some(contact) = public.or_else(private) else { return };
        let is_forger = why == Refusal::Excluded;
        if is_forger {
            if self.excluded.len() == MOST_EXCLUDED {
                self.excluded.pop_front();
            }
            self.excluded.push_back(contact.key);
        }
        if let Some(session) = self.peers.session_of(client) {
            sessions.close(session);
            self.forget(session);
        }
        self.note_gone(now, client, if is_forger { Happened::Excluded } else { Happened::LeftOut });
        self.tracker.leave(client);
        sessions.event(if is_forger { ServerEvent::Excluded(client) } else { ServerEvent::LeftOut(client) });
    }

    pub(super) fn forget(&mut self, session: SessionId) -> Option<ClientId> {
        let peer = self.peers.end(session)?;
        self.uplink.forget(session);
        self.pushing.forget(session);
        peer.client
    }
}

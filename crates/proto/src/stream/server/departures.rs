//! Who watches no more: it has left, was silent for too long, or had to go.

use anabranch_control::time::{Duration, Time};

use super::super::content::{ClientId, Content};
use super::super::message::Message;
use super::super::overlay::Happened;
use super::super::tracker::Refusal;
use super::{Server, ServerEvent};
use crate::network::Address;
use crate::session::{SessionId, Sessions};

/// Keys that are excluded at most; the oldest are forgiven for others.
const MOST_EXCLUDED: usize = 4096;

/// Who has nothing for so long after it was let in, neither of the stream nor of what is signed ahead of it, cannot be
/// served: lines are full, or its own bears nothing.
const NOTHING_COMES: Duration = Duration::from_millis(10_000);

impl<A: Address, C: Content> Server<A, C> {
    /// Pages are told of it, and no caller is any more; before the tracker forgets.
    fn note_gone(&mut self, now: Time, client: ClientId, how: Happened) {
        let public = self.tracker.viewer(client).and_then(|viewer| viewer.reports.last());
        let report = public.or_else(|| self.tracker.private_viewer(client)?.reports.last());
        let played = report.map_or(0, |report| report.played);
        self.views.on_gone(now, client, how, played, self.source.edge());
        self.callers.forget(client);
    }

    pub(super) fn remove(&mut self, now: Time, client: ClientId, was_silent: bool, sessions: &mut impl Sessions<Self>) {
        self.note_gone(now, client, if was_silent { Happened::Died } else { Happened::Left });
        self.tracker.leave(client);
        sessions.event(ServerEvent::Left(client, was_silent));
    }

    /// Whether `client` says that it gets nothing, though the stream has gone on for long since it came.
    pub(super) fn cannot_be_served(&self, now: Time, client: ClientId) -> bool {
        let since = self.tracker.has_nothing_since(client).zip(self.source.goes_on_since(now));
        since.is_some_and(|(joined, resumed)| now >= joined.max(resumed) + NOTHING_COMES)
    }

    /// Somebody has to go. Who forges may not come in again; others are told that there is no room for them.
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
            let remote = self.peers.get(session).and_then(|peer| peer.remote);
            self.forget(session);
            if is_forger {
                sessions.close(session);
            } else {
                // Closing it at once would overtake the word.
                self.send(now, session, Message::Overloaded, sessions);
                let peer = self.peers.begin(now, session, None);
                (peer.remote, peer.has_asked) = (remote, true);
            }
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

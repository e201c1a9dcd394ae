//! What an edge does for its sessions regularly: it ends those that nobody uses, and leaves exits that are gone.

use anabranch_control::time::{Duration, Time};
use anabranch_onion::directory::PublicKey;
use anabranch_onion::node::{Cover, SessionId};
use anabranch_onion::session::{IDLE, Reason, StreamId};

use super::super::follow::wall;
use super::super::pipe::{ConnectionId, Inbox, ToTask};
use super::super::socks::SocksUser;
use super::{EdgeError, EdgeNews, Joined, UserEdge};

/// How often sessions are looked at: which have no connections, and whose exits seem to be gone.
const LOOK_AT_SESSIONS: Duration = Duration::from_millis(500);

/// Exits at which a connection is tried, one after the other.
const MOST_TRIES: u8 = 3;

impl UserEdge {
    pub(super) fn look_at_sessions(&mut self) {
        let now = self.runtime.now();
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_AT_SESSIONS;
        self.note_idle(now);
        self.note_gone(now);
        let document = self.runtime.machine(0).document();
        let (epoch, until) = (document.epoch, document.valid_until);
        if wall() >= until && !self.sessions.is_empty() {
            self.report(EdgeNews::Outdated { epoch, until });
            self.sessions.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| self.close(id));
        }
    }

    /// A session whose cells leave and come at a constant rate is never silent: where no program has had a connection in
    /// it for long, it is closed here.
    fn note_idle(&mut self, now: Time) {
        let mut over = Vec::new();
        for (id, open) in &mut self.sessions {
            let is_idle = open.streams.is_empty() && !self.associations.uses(*id);
            open.idle_since = is_idle.then(|| open.idle_since.unwrap_or(now));
            if self.cover != Cover::Off && open.idle_since.is_some_and(|since| now.since(since) >= IDLE) {
                open.idle_since = None;
                over.push(*id);
            }
        }
        over.into_iter().for_each(|id| self.close(id));
    }

    pub(super) fn close(&mut self, id: SessionId) {
        self.runtime.act(0, |user, now, port| {
            if let Some(client) = user.session(id) {
                client.close();
            }
            user.serve(now, port);
        });
    }

    /// Takes leave before it ends: closes all sessions, so that exits need not keep them and their connections until they
    /// take the user for gone, and resets programs' connections, so that none takes a part for the whole. Runs for `span`,
    /// within which that has to leave.
    ///
    /// # Errors
    ///
    /// As [`UserEdge::turn`].
    pub fn leave(&mut self, span: Duration) -> Result<(), EdgeError> {
        self.is_leaving = true;
        if self.sessions.is_empty() {
            return Ok(());
        }
        for (id, mut open) in std::mem::take(&mut self.sessions) {
            self.close(id);
            open.streams.on_end(Reason::Broken);
            self.associations.on_end(id);
        }
        self.by_connection.clear();
        self.run_for(span)
    }

    /// Finds exits that answer nothing while guards do, and sessions of which nothing is to be hoped any more.
    fn note_gone(&mut self, now: Time) {
        let user = self.runtime.machine(0);
        // One answer may be late.
        if user.sessions().any(|(_, client)| client.unanswered().0 > 1) {
            self.runtime.act(0, |user, now, port| {
                user.ask_guards(now);
                user.serve(now, port);
            });
        }
        let user = self.runtime.machine(0);
        self.gone_exits.note_guards(now, user.guards_heard(), user.is_attached(now));
        let may_blame = self.gone_exits.may_blame(now);
        let (mut gone, mut given_up) = (Vec::new(), Vec::new());
        for (id, client) in user.sessions() {
            let Some(open) = self.sessions.get_mut(&id) else { continue };
            let (_, heard) = client.unanswered();
            if open.gone_since.take_if(|since| heard > *since).is_some() {
                self.gone_exits.note_back(&open.exit);
            }
            if open.gone_since.is_none() && may_blame && client.seems_gone(now) {
                open.gone_since = Some(now);
                gone.push(id);
            }
            if open.gone_since.is_some() && self.gone_exits.is_hopeless(now, heard) {
                given_up.push(id);
            }
        }
        gone.into_iter().for_each(|id| self.leave_exit(now, id));
        given_up.into_iter().for_each(|id| self.close(id));
    }

    /// The exit of a session seems to be gone: what has sent nothing through it is tried at another, and datagrams, of which
    /// each may be lost, go by another from now on.
    fn leave_exit(&mut self, now: Time, id: SessionId) {
        let Some(open) = self.sessions.get_mut(&id) else { return };
        let (socks, exit) = (open.socks, open.exit);
        let waiting = open.streams.take_unaccepted();
        let flows = self.associations.on_end(id);
        let over: Vec<StreamId> =
            waiting.iter().map(|(stream, ..)| *stream).chain(flows.into_iter().map(|(_, flow)| flow)).collect();
        self.fail(now, exit);
        self.runtime.act(0, |user, now, port| {
            if let Some(client) = user.session(id) {
                over.into_iter().for_each(|stream| client.reset(stream, Reason::Stopped));
            }
            user.serve(now, port);
        });
        waiting.into_iter().for_each(|(_, connection, inbox)| self.try_another(connection, socks, inbox));
    }

    pub(super) fn fail(&mut self, now: Time, exit: PublicKey) {
        self.report(EdgeNews::ExitGone);
        self.gone_exits.note(now, exit);
    }

    /// A connection that has sent nothing has lost its session.
    pub(super) fn try_another(&mut self, connection: ConnectionId, socks: SocksUser, inbox: Inbox) {
        let Some(Joined { target, tries, .. }) = self.by_connection.remove(&connection) else { return };
        if tries < MOST_TRIES {
            self.begin(connection, socks, target, inbox, tries + 1);
        } else {
            let _ = inbox.try_send(ToTask::Reset(Reason::Broken));
        }
    }
}

//! What a client does regularly: it looks for what is silent or missing, ends sessions that nobody uses, and reports.

use anabranch_control::time::{Duration, Time};

use super::client::{Client, REPORT_PERIOD, TICK};
use super::content::{ClientId, Content};
use super::mesh::ROUND;
use super::message::{Datagram, Message, Mode, Report};
use super::overlay::ASK_PERIOD;
use super::packet::SliceSet;
use super::peers::GREETING_TIME;
use crate::session::{SessionId, Sessions};

/// A session that nobody uses is closed after this: a parent that was left, a backup.
const UNUSED_STAY: Duration = Duration::from_millis(30000);

/// Who has not answered for so long may be behind a NAT that lets nobody in; others have answered by then.
const UNANSWERED: Duration = Duration::from_millis(500);

/// How long packets wait for a manifest that comes down another tree than theirs until it is asked for: a
/// long way, and the time that it takes a generation to leave.
const MANIFEST_PATIENCE: Duration = Duration::from_millis(150);

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Client<A, C> {
    pub(super) fn tick(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        self.next_tick = now + TICK;
        self.measured.on_tick(now, sessions.delivered(), self.uplink.waits_for_room());
        let Some(watching) = &mut self.watching else { return };
        let mut steps = Vec::new();
        if watching.info.mode.has_trees() {
            watching.feeds.watch(now, watching.receiving.left(now), |step| steps.push(step));
        }
        let mut full: Vec<(SessionId, u8)> = Vec::new();
        watching.pushing.drop_unassigned(now, |session, slice| full.push((session, slice)));
        for (session, slice) in full {
            sessions.send(session, Message::Full(SliceSet(1 << slice)));
        }
        if now >= watching.next_question {
            let patience = if watching.info.mode.has_trees() { MANIFEST_PATIENCE } else { Duration::ZERO };
            for (from, first, last) in watching.receiving.missing_manifests(now, patience) {
                watching.next_question = now + ROUND;
                self.uplink.push_ahead(from, Datagram::WantManifests(first, last));
            }
        }
        let mode = watching.info.mode;
        if mode.has_trees() {
            let holes = watching.receiving.manifest_holes();
            let feed = |slice| watching.feeds.session(slice).filter(|&session| self.peers.stands(session));
            watching.manifest_holes.ask(now, &holes, watching.info.slices, feed, |session, (first, last)| {
                self.uplink.push_ahead(session, Datagram::WantManifests(first, last));
            });
        }
        if mode.has_mesh() {
            self.trade(now);
        }
        if mode == Mode::Mesh {
            self.gossip(now, sessions);
        }
        self.follow(now, steps, sessions);
        self.close_unused(now, sessions);
        self.report_unanswered(now, sessions);
        self.report(now, sessions);
        if now < self.looked_at_until
            && now >= self.next_look
            && let Some(server) = self.server
        {
            self.next_look = now + ASK_PERIOD;
            sessions.send(server, Message::WantOverlay);
        }
    }

    /// Ends sessions with those who have not said who they are, and those that serve nobody.
    pub(super) fn close_unused(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let Some(watching) = &self.watching else { return };
        let is_unused = |(session, peer): &(SessionId, &super::peers::Peer<A>)| {
            let is_stranger = peer.client.is_none() && now >= peer.used + GREETING_TIME;
            let serves = || !watching.pushing.served(*session).is_empty();
            let is_used = || watching.feeds.uses(*session) || watching.mesh.contains(*session) || serves();
            let is_idle = || now >= peer.used + UNUSED_STAY && !is_used();
            let is_server = Some(*session) == self.server || self.reaching.is_tried(*session);
            !is_server && (is_stranger || is_idle())
        };
        let unused: Vec<SessionId> = self.peers.iter().filter(is_unused).map(|(session, _)| session).collect();
        for session in unused {
            self.end(session, sessions);
        }
    }

    /// The server has those called who do not answer.
    fn report_unanswered(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let Some(server) = self.server else { return };
        for (_, peer) in self.peers.iter_mut() {
            let is_late = peer.remote.is_none() && now >= peer.used + UNANSWERED;
            if let Some(client) = peer.client.filter(|_| is_late && !peer.is_unanswered) {
                peer.is_unanswered = true;
                sessions.send(server, Message::Unanswered(client));
            }
        }
    }

    pub(super) fn report(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let (Some(watching), Some(server)) = (&mut self.watching, self.server) else { return };
        if now < watching.next_report {
            return;
        }
        watching.next_report = now + REPORT_PERIOD;
        let delay = watching.receiving.delay(now);
        let feeds = watching.feeds.take_counts();
        let forgers: Vec<ClientId> = std::mem::take(&mut self.forged).into_iter().collect();
        let neighbours = watching.mesh.len() as u8;
        let (capacity, sent) = self.measured.report();
        let capacity = capacity.unwrap_or_default();
        let (played, skipped) = (self.played, self.skipped);
        let report = Report { capacity, sent, played, skipped, delay, neighbours, feeds, forgers };
        sessions.send(server, Message::Report(Box::new(report)));
    }
}

//! How a client reaches a server that has several addresses: it tries them in their order, [`NEXT_ADDRESS`] apart,
//! or at once where one fails, and keeps the first that answers (RFC 8305, 5). The server that was reached is
//! asked to be let in; whoever is tried besides is left.

use anabranch_control::time::{Duration, Time};

use super::super::content::Content;
use super::{Client, ClientEvent};
use crate::session::{SessionId, Sessions};

/// How long an address has until the next one is tried besides: RFC 8305's "Connection Attempt Delay".
pub const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// How long until a client whose server could not be reached, or had no room, tries again.
const RETRY: Duration = Duration::from_millis(2000);

/// What is tried.
#[derive(Clone, Debug)]
pub(in crate::stream) struct Reaching<A> {
    addresses: Vec<A>,
    /// The next one to be tried in this round, and when.
    next: usize,
    next_at: Time,
    /// Sessions that are being opened, and to which address; the first is taken for the server's.
    tried: Vec<(SessionId, usize)>,
    is_reached: bool,
}

impl<A> Reaching<A> {
    pub(in crate::stream) fn new(address: A) -> Reaching<A> {
        Reaching { addresses: vec![address], next: 0, next_at: Time::ZERO, tried: Vec::new(), is_reached: false }
    }

    /// Whether the session with the server stands.
    pub(in crate::stream) fn is_reached(&self) -> bool {
        self.is_reached
    }

    /// Whether `session` is one of those that are tried.
    pub(in crate::stream) fn is_tried(&self, session: SessionId) -> bool {
        self.tried.iter().any(|&(tried, _)| tried == session)
    }

    /// The next address of this round to which no session is being opened.
    fn next_idle(&self) -> Option<usize> {
        (self.next..self.addresses.len()).find(|place| self.tried.iter().all(|(_, tried)| tried != place))
    }
}

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Client<A, C> {
    /// The server has these addresses, at least one: the best first. Call it before the first timer.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn set_addresses(&mut self, addresses: Vec<A>) {
        assert!(!addresses.is_empty(), "a server has an address");
        self.reaching.addresses = addresses;
    }

    /// When something is to be tried.
    pub(in crate::stream) fn reach_at(&self) -> Time {
        if self.reaching.is_reached { Time::MAX } else { self.reaching.next_at }
    }

    /// Tries the next address, if it is time.
    pub(in crate::stream) fn reach_server(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        if now < self.reach_at() {
            return;
        }
        self.reaching.next_at = now + RETRY;
        while let Some(place) = self.reaching.next_idle() {
            self.reaching.next = place + 1;
            let Some(session) = sessions.open(self.reaching.addresses[place], Some(self.config.source)) else {
                continue;
            };
            self.peers.begin(now, session, None);
            self.reaching.tried.push((session, place));
            self.server.get_or_insert(session);
            let has_more = self.reaching.next_idle().is_some();
            self.reaching.next_at = if has_more { now + NEXT_ADDRESS } else { Time::MAX };
            return;
        }
        self.reaching.next = 0;
    }

    /// A session stands; if it is with the server, the others that were tried are left.
    pub(in crate::stream) fn on_reached(&mut self, session: SessionId, sessions: &mut impl Sessions<Self>) {
        if !self.reaching.is_tried(session) {
            return;
        }
        (self.server, self.reaching.is_reached) = (Some(session), true);
        for (left, _) in std::mem::take(&mut self.reaching.tried) {
            if left != session {
                self.end(left, sessions);
            }
        }
    }

    /// A session is over; whether it was one of those that were tried, and others are yet.
    pub(in crate::stream) fn on_not_reached(
        &mut self,
        now: Time,
        session: SessionId,
        sessions: &mut impl Sessions<Self>,
    ) -> bool {
        if !self.reaching.is_tried(session) {
            return false;
        }
        self.reaching.tried.retain(|&(tried, _)| tried != session);
        self.server = self.reaching.tried.first().map(|&(tried, _)| tried);
        if self.reaching.next_idle().is_some() {
            self.reaching.next_at = now;
            self.reach_server(now, sessions);
        } else {
            (self.reaching.next, self.reaching.next_at) = (0, now + RETRY);
        }
        self.server.is_some()
    }

    /// Nothing can be had from the server: a new attempt, later.
    pub(in crate::stream) fn on_server_lost(&mut self, now: Time) {
        (self.server, self.reaching.is_reached) = (None, false);
        (self.reaching.next, self.reaching.next_at) = (0, now + RETRY);
    }

    /// The session with the server is over, or none of its addresses has answered.
    pub(in crate::stream) fn on_server_closed(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        sessions.event(ClientEvent::Unreachable);
        self.on_server_lost(now);
    }
}

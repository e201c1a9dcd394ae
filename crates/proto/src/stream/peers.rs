//! The sessions of a client or server, and who is at their other ends.

use std::collections::BTreeMap;

use anabranch_control::time::{Duration, Time};

use super::content::ClientId;
use super::message::MOST_MANIFESTS_AT_ONCE;
use crate::session::{Remote, SessionId};

/// The most sessions of a client.
pub const MOST_SESSIONS: usize = 512;

/// How long a peer that has begun a session may take to say who it is.
pub const GREETING_TIME: Duration = Duration::from_millis(3000);

/// Manifests that a peer may ask for in the long run: twice what a source makes, one each 100 ms.
const MANIFESTS_A_SECOND: f64 = 20.0;

/// One session.
#[derive(Clone, Debug)]
pub struct Peer<A> {
    /// Who it is, once it has proved to be a client.
    pub client: Option<ClientId>,
    /// Where it is and which key it has, once the session stands.
    pub remote: Option<Remote<A>>,
    /// Whether it is to be a neighbour once the session stands.
    pub is_wanted: bool,
    /// Whether it has asked to be let in, and was not, or has been sent away since: it asks again over a session of its
    /// own.
    pub has_asked: bool,
    /// Whether the server was told that it does not answer.
    pub is_unanswered: bool,
    /// When the session began, or was last of use.
    pub used: Time,
    /// Manifests that it may ask for now, and since when that was counted.
    manifests: f64,
    counted: Time,
}

impl<A> Peer<A> {
    /// How many manifests it may have that asks for some now, and for `wanted` at most: a question of 17
    /// bytes brings far more.
    pub fn grant_manifests(&mut self, now: Time, wanted: usize) -> usize {
        let more = now.since(self.counted).as_secs_f64() * MANIFESTS_A_SECOND;
        self.counted = now;
        self.manifests = (self.manifests + more).min(MOST_MANIFESTS_AT_ONCE as f64);
        let granted = wanted.min(self.manifests as usize);
        self.manifests -= granted as f64;
        granted
    }
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Peers<A> {
    peers: Vec<Option<Peer<A>>>,
    clients: BTreeMap<ClientId, SessionId>,
}

impl<A: Copy> Default for Peers<A> {
    fn default() -> Peers<A> {
        Peers { peers: Vec::new(), clients: BTreeMap::new() }
    }
}

impl<A: Copy> Peers<A> {
    /// A session begins with somebody who is, or is to be, `client`.
    pub fn begin(&mut self, now: Time, session: SessionId, client: Option<ClientId>) -> &mut Peer<A> {
        if self.peers.len() <= session.index() {
            self.peers.resize_with(session.index() + 1, || None);
        }
        if let Some(client) = client {
            self.clients.insert(client, session);
        }
        let (manifests, counted) = (MOST_MANIFESTS_AT_ONCE as f64, now);
        let peer = Peer {
            client,
            remote: None,
            is_wanted: false,
            has_asked: false,
            is_unanswered: false,
            used: now,
            manifests,
            counted,
        };
        self.peers[session.index()].insert(peer)
    }

    /// Whether `session` has been opened.
    pub fn stands(&self, session: SessionId) -> bool {
        self.get(session).is_some_and(|peer| peer.remote.is_some())
    }

    /// Who is at the other end.
    #[inline]
    pub fn get(&self, session: SessionId) -> Option<&Peer<A>> {
        self.peers.get(session.index())?.as_ref()
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, session: SessionId) -> Option<&mut Peer<A>> {
        self.peers.get_mut(session.index())?.as_mut()
    }

    /// The session with `client`; the last one, if there are several.
    pub fn session_of(&self, client: ClientId) -> Option<SessionId> {
        self.clients.get(&client).copied()
    }

    /// The peer of `session` has proved to be `client`.
    pub fn on_proved(&mut self, session: SessionId, client: ClientId) {
        if let Some(peer) = self.get_mut(session) {
            peer.client = Some(client);
            self.clients.insert(client, session);
        }
    }

    /// A session is over.
    pub fn end(&mut self, session: SessionId) -> Option<Peer<A>> {
        let peer = self.peers.get_mut(session.index())?.take()?;
        if let Some(client) = peer.client
            && self.clients.get(&client) == Some(&session)
        {
            self.clients.remove(&client);
        }
        Some(peer)
    }

    /// All sessions, by number.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Peer<A>)> {
        (0..).map(SessionId).zip(&self.peers).filter_map(|(session, peer)| Some((session, peer.as_ref()?)))
    }

    /// The same, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SessionId, &mut Peer<A>)> {
        (0..).map(SessionId).zip(&mut self.peers).filter_map(|(session, peer)| Some((session, peer.as_mut()?)))
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.peers.iter().flatten().count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_manifests_all_the_time_gets_twenty_a_second() {
        let mut peers: Peers<u32> = Peers::default();
        let peer = peers.begin(Time::ZERO, SessionId(0), None);
        let granted: usize = (0..1000)
            .map(|tenth| Time::ZERO + Duration::from_millis(100 * tenth))
            .map(|now| peer.grant_manifests(now, 64))
            .sum();
        assert!((64 + 1990..=64 + 2000).contains(&granted), "{granted}");
        assert_eq!(peers.begin(Time::ZERO, SessionId(1), None).grant_manifests(Time::ZERO, 30), 30, "a newcomer");
    }
}

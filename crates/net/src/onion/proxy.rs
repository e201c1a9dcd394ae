//! The sessions of a proxy: one for each user and no more, with the streams of the programs that use it.

use std::collections::BTreeMap;
use std::fmt;

use anabranch_control::time::Time;
use anabranch_onion::session::{Client, ClientEvent, Reason};

use super::pipe::{ConnectionId, FromTask, ToTask};
use super::socks::Request;
use super::streams::Streams;

/// Sessions at once.
pub const MOST_SESSIONS: usize = 256;

/// With whom a connection may share a session: a hash of the user name and password that it gave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct User([u8; 32]);

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User")
    }
}

impl User {
    /// Whoever gave these.
    pub fn new(name: &str, password: &str) -> User {
        let mut hasher = blake3::Hasher::new_derive_key("anabranch onion proxy user");
        hasher.update(&(name.len() as u64).to_be_bytes()).update(name.as_bytes()).update(password.as_bytes());
        User(*hasher.finalize().as_bytes())
    }
}

/// One user's session.
#[derive(Debug)]
pub struct Session {
    /// The client's end, which the driver polls for cells, blocks and timers.
    pub client: Client,
    streams: Streams,
}

/// All sessions of a proxy. It knows nothing of packets: cells are its driver's.
#[derive(Debug, Default)]
pub struct Proxy {
    sessions: BTreeMap<User, Session>,
    by_connection: BTreeMap<ConnectionId, User>,
}

impl Proxy {
    /// A program wants something. For a user without a session, `begin` makes one.
    pub fn on_request(&mut self, now: Time, request: Request, begin: impl FnOnce(User) -> Client) {
        let Request { connection, user, target, inbox } = request;
        if !self.sessions.contains_key(&user) {
            if self.sessions.len() >= MOST_SESSIONS {
                let _ = inbox.try_send(ToTask::Reset(Reason::Busy));
                return;
            }
            self.sessions.insert(user, Session { client: begin(user), streams: Streams::default() });
        }
        let Some(session) = self.sessions.get_mut(&user) else { return };
        match session.client.open_stream(now, target) {
            Some(stream) => {
                session.streams.join(stream, connection, inbox);
                self.by_connection.insert(connection, user);
            }
            None => _ = inbox.try_send(ToTask::Reset(Reason::Busy)),
        }
    }

    /// A task says something of its connection.
    pub fn on_task(&mut self, connection: ConnectionId, said: FromTask) {
        let Some(session) = self.by_connection.get(&connection).and_then(|user| self.sessions.get_mut(user)) else {
            return;
        };
        session.streams.on_task(&mut session.client, connection, said);
        if session.streams.stream_of(connection).is_none() {
            self.by_connection.remove(&connection);
        }
    }

    /// Passes on to programs what happened; all else, evidence of paths among it, goes to `other`. Sessions that are
    /// over are forgotten once they have said so.
    pub fn poll(&mut self, mut other: impl FnMut(User, &mut Client, ClientEvent)) {
        for (&user, session) in &mut self.sessions {
            while let Some(event) = session.client.poll_event() {
                match event {
                    ClientEvent::Stream(event) => session.streams.on_event(&mut session.client, &event),
                    ClientEvent::Ended(_) => {
                        session.streams.on_end(Reason::Broken);
                        other(user, &mut session.client, event);
                    }
                    event => other(user, &mut session.client, event),
                }
            }
        }
        self.by_connection.retain(|connection, user| {
            self.sessions.get(user).is_some_and(|session| session.streams.stream_of(*connection).is_some())
        });
        self.sessions.retain(|_, session| session.client.end().is_none() || session.client.wants_cell(Time::MAX));
    }

    /// The sessions, to be polled for cells.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (User, &mut Client)> {
        self.sessions.iter_mut().map(|(user, session)| (*user, &mut session.client))
    }

    /// One user's.
    pub fn get_mut(&mut self, user: User) -> Option<&mut Client> {
        self.sessions.get_mut(&user).map(|session| &mut session.client)
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

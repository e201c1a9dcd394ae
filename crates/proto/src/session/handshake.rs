//! How a session comes about: one round trip, in which both ends learn each other's key and what the
//! other end calls the session. In a simulation a key is believed.
//!
//! ```text
//! initiator   Hello{key, asked}  ->                  repeated after 1 s, 2 s, 4 s, ...
//!             <-  Welcome{key} or Refusal            repeated likewise
//!             Ping  ->                               open here; open there when it arrives
//! ```

use anabranch_control::flow::PeerId;
use anabranch_control::time::{Duration, Time};

use super::books::{Books, PacketOut, State};
use super::flow_sessions::FlowSessions;
use super::packet::{ConnectionId, Content, Hello, Welcome};
use super::{Application, Closed, PeerKey, Remote};
use crate::flow::HANDSHAKE_TIMEOUT;
use crate::machine::Out;

impl<A: Application> Books<A> {
    /// Asks for a session with `to`: its place, if there is one more.
    pub fn ask(&mut self, now: Time, to: A::Address, key: Option<PeerKey>) -> Option<u32> {
        if self.len() >= self.config.most_sessions {
            return None;
        }
        let remote = Remote { address: to, key: key.unwrap_or_default(), is_initiator: false };
        let slot = self.admit(now, State::Asking(key), remote, ConnectionId::default());
        // The first packet leaves with the timer: this is called from within the application.
        self.set_due(slot, now);
        Some(slot)
    }

    /// The handshake's packet over the session in `slot` leaves, for the first time or once more; the
    /// wait for its answer doubles (RFC 9002, 6.2.1).
    /// `answers` is the other end's attempt that has just come, if it is one that makes this one
    /// leave.
    pub fn shake_hands(&mut self, now: Time, slot: u32, answers: Option<u32>, out: &mut impl PacketOut<A>) {
        let (from, key) = (self.id(slot), self.key);
        let Some(session) = self.session_mut(slot) else { return };
        let is_first = session.attempt.wait == Duration::ZERO;
        let attempt = &mut session.attempt;
        attempt.number += u32::from(!is_first);
        attempt.wait = if is_first { HANDSHAKE_TIMEOUT } else { attempt.wait * 2 };
        attempt.sent = now;
        let number = attempt.number;
        let content = match session.state {
            State::Asking(asked) => Content::Hello(Box::new(Hello { from, attempt: number, key, asked })),
            _ => Content::Welcome(Box::new(Welcome { from, attempt: answers, key })),
        };
        let to = (session.remote.address, session.peer);
        let again = session.attempt.sent + session.attempt.wait;
        self.set_due(slot, again);
        self.reply(to, content, out);
    }

    /// The session that the other end at `from` calls `peer`.
    fn begun_by(&self, from: A::Address, peer: ConnectionId) -> Option<u32> {
        let is_it = |slot: &u32| {
            let session = self.session(*slot);
            session.is_some_and(|session| session.peer == peer && session.remote.address == from)
        };
        (0..self.slots.len() as u32).find(is_it)
    }

    /// Somebody does not have the session that it calls `peer`, any more.
    pub fn on_reset(&mut self, from: A::Address, peer: ConnectionId) {
        if let Some(slot) = self.begun_by(from, peer)
            && self.session(slot).is_some_and(|session| session.state == State::Open)
        {
            self.finish(slot, Closed::ByPeer);
        }
    }

    /// The session that `to` names is refused.
    pub fn on_refusal(&mut self, from: A::Address, to: ConnectionId) {
        let Some(session) = self.session(to.slot) else { return };
        if self.id(to.slot) == to && session.remote.address == from && matches!(session.state, State::Asking(_)) {
            self.finish(to.slot, Closed::Refused);
        }
    }
}

impl<A: Application> FlowSessions<A> {
    /// Somebody at `from` asks for a session.
    pub(super) fn on_hello(&mut self, now: Time, from: A::Address, hello: Hello, out: &mut impl Out<Self>) {
        let books = &mut self.books;
        if let Some(slot) = books.begun_by(from, hello.from) {
            // Its answer was lost, or is on its way.
            if books.session(slot).is_some_and(|session| session.state == State::Answering) {
                books.shake_hands(now, slot, Some(hello.attempt), out);
            }
            return;
        }
        let remote = Remote { address: from, key: hello.key, is_initiator: true };
        let has_room = books.len() < books.config.most_sessions && books.half_open < books.config.most_half_open;
        let is_me = hello.asked.is_none_or(|asked| asked == books.key);
        if !has_room || !is_me || !self.app.accepts(now, &remote) {
            books.counters.refused += 1;
            books.reply((from, hello.from), Content::Refusal, out);
            return;
        }
        let slot = books.admit(now, State::Answering, remote, hello.from);
        books.shake_hands(now, slot, Some(hello.attempt), out);
    }

    /// Somebody at `from` grants the session that this end calls `to`.
    pub(super) fn on_welcome(
        &mut self,
        now: Time,
        from: A::Address,
        to: ConnectionId,
        welcome: Welcome,
        out: &mut impl Out<Self>,
    ) {
        let books = &mut self.books;
        let slot = to.slot;
        let is_ours = books.session(slot).is_some_and(|session| session.remote.address == from) && books.id(slot) == to;
        let Some(session) = books.session_mut(slot).filter(|_| is_ours) else {
            // It has waited for nothing: nobody is here any more who asked.
            books.counters.stray += 1;
            return books.reply((from, welcome.from), Content::Close, out);
        };
        let State::Asking(asked) = session.state else { return };
        session.peer = welcome.from;
        if asked.is_some_and(|asked| asked != welcome.key) {
            return books.finish(slot, Closed::Refused);
        }
        session.remote.key = welcome.key;
        let sample = (welcome.attempt == Some(session.attempt.number)).then_some(session.attempt.sent);
        self.open(now, slot, sample);
        self.books.ping(now, slot, out);
        self.notify_open(now, slot, out);
    }

    /// The other end has shown that it has got the answer.
    pub(super) fn on_confirmed(&mut self, now: Time, slot: u32, out: &mut impl Out<Self>) {
        let Some(session) = self.books.session(slot) else { return };
        // Of several answers nobody knows which one it has got.
        let sample = (session.attempt.number == 0).then_some(session.attempt.sent);
        self.books.half_open -= 1;
        self.open(now, slot, sample);
        self.notify_open(now, slot, out);
    }

    /// The session in `slot` stands; the last packet of the handshake that left at `sent` is
    /// answered.
    fn open(&mut self, now: Time, slot: u32, sent: Option<Time>) {
        let books = &mut self.books;
        if let Some(session) = books.session_mut(slot) {
            session.state = State::Open;
            session.heard = now;
        }
        if let Some(sent) = sent {
            books.window.on_handshake(PeerId(slot), now.since(sent));
        }
        let due = books.due(slot);
        books.set_due(slot, due);
        books.get_in_line(slot);
    }
}

//! Viewers behind NATs: whoever is to be reached lets the caller in first, by sending it something (RFC 5128, 3.3).
//!
//! Who is named to a viewer hears of it from the server, sooner than from the viewer itself: what the server sends comes
//! straight, and the viewer's first packet only once the viewer has heard of it. Where the address of either changes with
//! the destination (RFC 4787, 4.1: an address-dependent mapping), it does not help.

use std::collections::{BTreeMap, VecDeque};

use anabranch_control::time::{Duration, Time};

use super::super::content::{ClientId, Content};
use super::super::message::Message;
use super::Server;
use crate::network::Address;
use crate::session::{SessionId, Sessions};
use crate::token_bucket::TokenBucket;

/// Those whom a viewer was named to lately: they have heard of it.
const MOST_HEARD: usize = 64;

/// Viewers that do not answer are called for one who says so this often, in the long run and at once.
const CALL_AGAIN: Duration = Duration::from_millis(100);
const AT_ONCE: u64 = 32;

/// Who has heard of whom.
#[derive(Clone, Debug, Default)]
pub(super) struct Callers(BTreeMap<ClientId, Caller>);

#[derive(Clone, Debug, Default)]
struct Caller {
    heard: VecDeque<ClientId>,
    /// How often others may be called for it.
    calls: TokenBucket,
}

impl Callers {
    /// Whether `called` has not heard of `caller` yet, which is so from now on.
    fn is_news(&mut self, caller: ClientId, called: ClientId) -> bool {
        let heard = &mut self.0.entry(caller).or_default().heard;
        let is_news = !heard.contains(&called);
        if is_news {
            if heard.len() == MOST_HEARD {
                heard.pop_front();
            }
            heard.push_back(called);
        }
        is_news
    }

    /// Whether another may be called for `caller`, who says that nobody answers.
    fn may_call(&mut self, now: Time, caller: ClientId) -> bool {
        self.0.entry(caller).or_default().calls.take(now, CALL_AGAIN, AT_ONCE)
    }

    /// A viewer watches no more.
    pub fn forget(&mut self, client: ClientId) {
        self.0.remove(&client);
    }
}

impl<A: Address, C: Content> Server<A, C> {
    /// The viewer at the other end of `session` is about to call `named`.
    pub(super) fn announce_caller(
        &mut self,
        now: Time,
        session: SessionId,
        named: impl IntoIterator<Item = ClientId>,
        sessions: &mut impl Sessions<Self>,
    ) {
        let Some(caller) = self.peers.get(session).and_then(|peer| peer.client) else { return };
        for called in named {
            if self.callers.is_news(caller, called) {
                self.call(now, caller, called, sessions);
            }
        }
    }

    /// `caller` says that `called` does not answer.
    pub(super) fn on_unanswered(
        &mut self,
        now: Time,
        caller: ClientId,
        called: ClientId,
        sessions: &mut impl Sessions<Self>,
    ) {
        if self.callers.may_call(now, caller) {
            self.call(now, caller, called, sessions);
        }
    }

    /// Who is private is neither named nor called.
    fn call(&mut self, now: Time, caller: ClientId, called: ClientId, sessions: &mut impl Sessions<Self>) {
        let Some(address) = self.tracker.viewer(caller).map(|viewer| viewer.contact.address) else { return };
        let Some(session) = self.tracker.viewer(called).map(|viewer| viewer.session) else { return };
        self.send(now, session, Message::Caller(address), sessions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_heard_is_told_again_only_after_many_others() {
        let mut callers = Callers::default();
        let news = |callers: &mut Callers, called| callers.is_news(ClientId(1), ClientId(called));
        assert!(news(&mut callers, 2) && !news(&mut callers, 2));
        assert!((100..100 + MOST_HEARD as u32).all(|called| news(&mut callers, called)));
        assert!(news(&mut callers, 2) && callers.is_news(ClientId(2), ClientId(1)));
        callers.forget(ClientId(1));
        assert!(news(&mut callers, 100));
    }

    #[test]
    fn nobody_has_others_called_more_often_than_may_be() {
        let mut callers = Callers::default();
        let calls = |callers: &mut Callers, tenths: u64| {
            let at = |tenth| Time::ZERO + CALL_AGAIN * tenth;
            (0..tenths * 5).filter(|call| callers.may_call(at(call / 5), ClientId(1))).count() as u64
        };
        let called = calls(&mut callers, 100);
        assert!((AT_ONCE + 98..=AT_ONCE + 100).contains(&called), "{called}");
    }
}

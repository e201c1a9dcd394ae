//! How a sender comes to a session: it greets, repeats the cookie that the receiver wants to see, and
//! greets anew when nothing was heard of the receiver for long, for it may have been started again.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};

use super::super::phase::Phase;
use super::{Carried, FileSender, REPEAT};
use crate::overlay::hello::{Cookie, HelloBody, HelloReply};
use crate::overlay::packet::Packet;
use crate::overlay::path_sender::AckVerdict;
use crate::overlay::wire::{OwnedDatagram, Type};
use crate::seal::SealError;

/// After so long without any answer the sender greets anew, for the receiver may have been started
/// again: a third of the time after which it gives up.
pub(super) const RENEWAL: Duration = Duration::from_millis(10_000);

impl FileSender {
    pub(super) fn greet(&mut self, now: Time, out: &mut OwnedDatagram) -> Option<SocketAddr> {
        let parcel = self.copy(now, Carried::Hello)?;
        out.what = Type::Hello;
        out.packet = parcel.packet;
        out.body.clear();
        let cookie = self.cookies.best(parcel.to());
        HelloBody { cookie, proof: parcel.proof, opening: self.hello.opening() }.encode(&mut out.body);
        Some(parcel.to())
    }

    pub(super) fn on_hello_reply(&mut self, now: Time, packet: &Packet<SocketAddr>, body: &[u8]) {
        let reply = HelloReply::decode(body).filter(|_| self.carried(packet.id) == Some(Carried::Hello));
        let is_read = match reply {
            Some(HelloReply::Cookie { proof, cookie }) => {
                self.on_cookie(now, packet, proof, cookie);
                true
            }
            Some(HelloReply::Answer { answer, sealed }) => self.on_hello_answer(now, packet, answer, sealed).is_ok(),
            None => false,
        };
        if !is_read {
            self.courier.count_unreadable();
        }
    }

    /// The receiver wants to see `cookie`, if it is the receiver: any relay on the way could say so.
    /// It is tried at once, but not that the silence has an end.
    fn on_cookie(&mut self, now: Time, packet: &Packet<SocketAddr>, proof: u64, cookie: Cookie) {
        let verdict = self.courier.on_answer(now, packet.id, proof, &packet.telemetry);
        if !matches!(verdict, AckVerdict::Acked { .. } | AckVerdict::Late { .. }) {
            return;
        }
        self.cookies.keep(packet.route.nodes()[1], cookie);
        self.attempts = 0;
        if self.phase == Phase::Greeting && now >= self.hasty_from {
            (self.repeat_at, self.hasty_from) = (now, now + REPEAT);
        }
    }

    /// Any of the hellos was answered: the first such answer is the handshake's second message.
    fn on_hello_answer(
        &mut self,
        now: Time,
        packet: &Packet<SocketAddr>,
        answer: &[u8],
        sealed: &[u8],
    ) -> Result<(), SealError> {
        let mut proof = Vec::new();
        let mut begun = None;
        let session = match (&mut self.session, self.phase) {
            (Some(session), phase) if phase != Phase::Greeting => session,
            (_, Phase::Greeting) => begun.insert(self.hello.complete(answer)?),
            _ => return Err(SealError::Damaged),
        };
        session.open(sealed, &mut proof)?;
        let proof = proof.try_into().map_err(|_| SealError::Damaged)?;
        // First, for the round trip says when blocks follow.
        self.on_proof(now, packet, u64::from_be_bytes(proof));
        if begun.is_some() {
            self.session = begun;
            self.interrupted = None;
            self.enter(now, Phase::Offering);
            self.follow_offer(now);
        }
        Ok(())
    }

    /// The receiver may have been started again, and know nothing of the session.
    pub(super) fn greet_anew(&mut self, now: Time) {
        // Of the session to come it may have a part from before, too.
        self.is_anew = false;
        self.interrupted = Some(self.phase);
        self.waits_since.get_or_insert(now);
        self.hello = self.hello.renewed();
        self.forget_arrivals();
        self.place = None;
        // What has come of it is there, and is told before any of it leaves again.
        self.early_left = 0;
        self.copies_left = 0;
        (self.phase, self.repeat_at) = (Phase::Greeting, now);
    }

    /// Whether there is a session of which the receiver may know nothing any more.
    pub(super) fn may_greet_anew(&self) -> bool {
        matches!(self.phase, Phase::Offering | Phase::Sending | Phase::Finishing)
    }
}

/// What a receiver wants to see, by the relay over which the hello went: each may see a sender
/// that is behind several addresses at another one. At most one for each relay.
#[derive(Clone, Debug, Default)]
pub(super) struct CookieJar {
    by_relay: BTreeMap<SocketAddr, Cookie>,
    last: Cookie,
}

impl CookieJar {
    fn keep(&mut self, relay: SocketAddr, cookie: Cookie) {
        self.by_relay.insert(relay, cookie);
        self.last = cookie;
    }

    /// That of this first relay or, if there is none, the last of all.
    fn best(&self, relay: SocketAddr) -> Cookie {
        self.by_relay.get(&relay).copied().unwrap_or(self.last)
    }
}

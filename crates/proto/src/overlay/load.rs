//! Load without a file: as many fillers as the controller allows, each to a random
//! peer. This is the thesis's standard scenario on real sockets.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_control::path::Slot;
use anabranch_control::rng::Rng;
use anabranch_control::time::Time;

use crate::overlay::courier::Courier;
use crate::overlay::message::{FILLER_PREFIX, Message};
use crate::overlay::packet::Packet;
use crate::overlay::wire::{OwnedDatagram, Type};
use crate::seal::{self, Session};

/// Sends fillers.
#[derive(Clone, Debug)]
pub struct LoadSender {
    courier: Courier,
    /// By the slot of the receiver.
    sessions: BTreeMap<Slot, Session>,
    rng: Rng,
    /// Drawn, and not yet sent to.
    destination: Option<Slot>,
    starts: Time,
    packet: usize,
    message: Vec<u8>,
}

impl LoadSender {
    /// Sends datagrams of `packet` bytes from `starts` on, to the peers with which it has
    /// sessions; `rng` draws them.
    pub fn new(
        courier: Courier,
        sessions: BTreeMap<Slot, Session>,
        packet: usize,
        starts: Time,
        rng: Rng,
    ) -> LoadSender {
        LoadSender { courier, sessions, rng, destination: None, starts, packet, message: Vec::new() }
    }

    /// A datagram that shall leave now, into `out`, and the relay to send it to.
    pub fn poll(&mut self, now: Time, out: &mut OwnedDatagram) -> Option<SocketAddr> {
        if now < self.starts {
            return None;
        }
        // A destination is drawn once for each packet, not once for each try.
        let (rng, sessions) = (&mut self.rng, &mut self.sessions);
        let peers = sessions.len();
        let draw = || *sessions.keys().nth(rng.below(peers)).expect("below the number of sessions");
        let destination = *self.destination.get_or_insert_with(draw);
        let parcel = self.courier.depart(now, destination).departs()?;
        self.destination = None;
        out.what = Type::Data;
        out.packet = parcel.packet;
        out.body.clear();
        Message::Filler.encode(parcel.proof, &mut self.message);
        let filling = self.packet.saturating_sub(out.len() + seal::DATA_PREFIX + seal::TAG + FILLER_PREFIX);
        self.message.resize(FILLER_PREFIX + filling, 0);
        let session = sessions.get_mut(&destination).expect("only peers with a session are drawn");
        session.seal_data(&self.message, &mut out.body);
        Some(parcel.to())
    }

    /// An answer has come home.
    pub fn on_answer(&mut self, now: Time, datagram: &OwnedDatagram) {
        if datagram.what == Type::Ack {
            let Packet { id, nonce, telemetry, .. } = &datagram.packet;
            self.courier.on_answer(now, *id, *nonce, telemetry);
        } else {
            self.courier.count_unreadable();
        }
    }

    /// Time has passed.
    pub fn on_timer(&mut self, now: Time) {
        self.courier.on_timer(now);
    }

    /// When to call `on_timer` and `poll` again if nothing else happens.
    pub fn timer(&self, now: Time) -> Time {
        self.courier.next_deadline().min(self.courier.wake(now).time(now).max(self.starts))
    }

    /// The path sender and its counters, to look at.
    pub fn courier(&self) -> &Courier {
        &self.courier
    }
}

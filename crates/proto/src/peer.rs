//! A peer on a network: a relay, and perhaps a receiver and a sender, behind one address.

use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};

use crate::courier::Courier;
use crate::load::LoadSender;
use crate::relay_node::{Handling, RelayNode};
use crate::transfer::{FileSender, Receiver, Reply};
use crate::wire::{self, Datagram, Type};

/// Takes the datagrams that a peer sends.
pub trait Outbox {
    /// A datagram of `header` and then `body` leaves for `to` after `wait`.
    fn send(&mut self, to: SocketAddr, wait: Duration, header: &[u8], body: &[u8]);
}

/// What a peer sends of its own.
#[derive(Debug)]
pub enum Sender {
    /// A file.
    File(Box<FileSender>),
    /// Fillers to random peers.
    Load(Box<LoadSender>),
}

impl Sender {
    /// Its path sender and counters, to look at.
    pub fn courier(&self) -> &Courier {
        match self {
            Sender::File(sender) => sender.courier(),
            Sender::Load(sender) => sender.courier(),
        }
    }
}

/// One peer.
#[derive(Debug)]
pub struct Peer {
    relay: RelayNode,
    receiver: Option<Receiver>,
    sender: Option<Sender>,
    scratch: Vec<u8>,
    body: Vec<u8>,
}

impl Peer {
    /// A peer that forwards, receives and sends as far as it is given the parts for it.
    pub fn new(relay: RelayNode, receiver: Option<Receiver>, sender: Option<Sender>) -> Peer {
        Peer { relay, receiver, sender, scratch: Vec::new(), body: Vec::new() }
    }

    /// A datagram has come from `from`.
    pub fn on_datagram(&mut self, now: Time, from: SocketAddr, bytes: &[u8], out: &mut impl Outbox) {
        match self.relay.on_datagram(now, from, bytes) {
            Handling::Forward { to, wait, datagram } => {
                wire::encode_header(datagram.what, &datagram.packet, &mut self.scratch);
                out.send(to, wait, &self.scratch, datagram.body);
            }
            Handling::Deliver { wait, datagram } => self.on_delivery(now, wait, datagram, out),
            Handling::Home(datagram) => match &mut self.sender {
                Some(Sender::File(sender)) => sender.on_answer(now, &datagram),
                Some(Sender::Load(sender)) => sender.on_answer(now, &datagram),
                None => {}
            },
            Handling::Discard => {}
        }
    }

    fn on_delivery(&mut self, now: Time, wait: Duration, mut datagram: Datagram<'_>, out: &mut impl Outbox) {
        let Some(receiver) = &mut self.receiver else { return };
        self.body.clear();
        let what = match datagram.what {
            Type::Hello => receiver.on_hello(now, datagram.body, &mut self.body).then_some(Type::HelloReply),
            Type::Data => receiver.on_data(now, datagram.body, &mut self.body).map(|reply| match reply {
                Reply::Ack(proof) => {
                    datagram.packet.nonce = proof;
                    Type::Ack
                }
                Reply::Report => Type::Report,
            }),
            // Answers end at their source.
            Type::HelloReply | Type::Ack | Type::Report => None,
        };
        if let (Some(what), Some(to)) = (what, datagram.packet.turn_around()) {
            wire::encode_header(what, &datagram.packet, &mut self.scratch);
            out.send(to, wait, &self.scratch, &self.body);
        }
    }

    /// Sends one datagram of its own, if there is one to send now.
    pub fn poll(&mut self, now: Time, out: &mut impl Outbox) -> bool {
        let to = match &mut self.sender {
            Some(Sender::File(sender)) => sender.poll(now, &mut self.scratch),
            Some(Sender::Load(sender)) => sender.poll(now, &mut self.scratch),
            None => None,
        };
        if let Some(to) = to {
            out.send(to, Duration::ZERO, &self.scratch, &[]);
        }
        to.is_some()
    }

    /// Time has passed.
    pub fn on_timer(&mut self, now: Time) {
        if let Some(receiver) = &mut self.receiver {
            receiver.on_timer(now);
        }
        match &mut self.sender {
            Some(Sender::File(sender)) => sender.on_timer(now),
            Some(Sender::Load(sender)) => sender.on_timer(now),
            None => {}
        }
    }

    /// When to call `on_timer`, and `poll` again, if nothing else happens.
    pub fn timer(&self) -> Time {
        let receiver = self.receiver.as_ref().map_or(Time::MAX, Receiver::timer);
        receiver.min(match &self.sender {
            Some(Sender::File(sender)) => sender.timer(),
            Some(Sender::Load(sender)) => sender.timer(),
            None => Time::MAX,
        })
    }

    /// Does a part of what takes long; whether there is more to do.
    pub fn work(&mut self) -> bool {
        self.receiver.as_mut().is_some_and(Receiver::work)
    }

    /// Its relay.
    pub fn relay(&self) -> &RelayNode {
        &self.relay
    }

    /// Its receiver, if it has one.
    pub fn receiver(&self) -> Option<&Receiver> {
        self.receiver.as_ref()
    }

    /// Its receiver, to fetch events or to add sessions.
    pub fn receiver_mut(&mut self) -> Option<&mut Receiver> {
        self.receiver.as_mut()
    }

    /// Its sender, if it has one.
    pub fn sender(&self) -> Option<&Sender> {
        self.sender.as_ref()
    }

    /// Its sender of a file, if it has one.
    pub fn file_sender_mut(&mut self) -> Option<&mut FileSender> {
        match &mut self.sender {
            Some(Sender::File(sender)) => Some(sender),
            _ => None,
        }
    }
}

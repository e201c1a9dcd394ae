//! A peer on a network: a relay, and perhaps a receiver and a sender, behind one address.

use core::convert::Infallible;
use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use crate::machine::{Arrival, Departure, Machine, Out};
use crate::overlay::courier::Courier;
use crate::overlay::load::LoadSender;
use crate::overlay::relay_node::{Handling, RelayNode};
use crate::overlay::wire::{OwnedDatagram, Type};
use crate::transfer::{FileDone, FileJob, FileSender, Receiver, Reply};

/// Datagrams of its own that a peer sends in one call, so that a burst neither fills a socket's
/// buffer nor keeps others waiting: 32 of them fit the smallest usual buffer (208 KiB) three times
/// over.
const PORTION: usize = 32;

/// What a peer sends of its own.
#[derive(Clone, Debug)]
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

    fn poll(&mut self, now: Time, out: &mut OwnedDatagram) -> Option<SocketAddr> {
        match self {
            Sender::File(sender) => sender.poll(now, out),
            Sender::Load(sender) => sender.poll(now, out),
        }
    }

    fn on_answer(&mut self, now: Time, datagram: &OwnedDatagram) {
        match self {
            Sender::File(sender) => sender.on_answer(now, datagram),
            Sender::Load(sender) => sender.on_answer(now, datagram),
        }
    }

    fn on_timer(&mut self, now: Time) {
        match self {
            Sender::File(sender) => sender.on_timer(now),
            Sender::Load(sender) => sender.on_timer(now),
        }
    }

    fn timer(&self, now: Time) -> Time {
        match self {
            Sender::File(sender) => sender.timer(now),
            Sender::Load(sender) => sender.timer(now),
        }
    }
}

/// One peer.
#[derive(Clone, Debug)]
pub struct Peer {
    relay: RelayNode,
    receiver: Option<Receiver>,
    sender: Option<Sender>,
    /// What leaves next.
    outbox: OwnedDatagram,
    /// The last portion may not have been all that may leave now.
    has_more: bool,
}

impl Peer {
    /// A peer that forwards, receives and sends as far as it is given the parts for it.
    pub fn new(relay: RelayNode, receiver: Option<Receiver>, sender: Option<Sender>) -> Peer {
        Peer { relay, receiver, sender, outbox: OwnedDatagram::default(), has_more: false }
    }

    /// The datagram has come to its destination, or is a receiver's to answer.
    fn on_delivery(&mut self, now: Time, wait: Duration, datagram: &OwnedDatagram, out: &mut impl Out<Peer>) {
        let Peer { receiver: Some(receiver), outbox, .. } = self else { return };
        outbox.packet = datagram.packet;
        outbox.body.clear();
        let what = match datagram.what {
            Type::Hello => {
                let source = datagram.packet.route.nodes()[0].ip();
                receiver.on_hello(now, source, &datagram.body, &mut outbox.body).then_some(Type::HelloReply)
            }
            Type::Data => receiver.on_data(now, &datagram.body, &mut outbox.body).map(|reply| match reply {
                Reply::Ack(proof) => {
                    outbox.packet.nonce = proof;
                    Type::Ack
                }
                Reply::Report => Type::Report,
            }),
            // Answers end at their source.
            Type::HelloReply | Type::Ack | Type::Report => None,
        };
        if let (Some(what), Some(to)) = (what, outbox.packet.turn_around(now)) {
            outbox.what = what;
            out.send(Departure::after(wait, to, outbox.len() as u32), outbox);
        }
    }

    /// Sends a portion of what may leave now.
    fn pump(&mut self, now: Time, out: &mut impl Out<Peer>) {
        let Peer { sender: Some(sender), outbox, .. } = self else { return };
        self.has_more = (0..PORTION).all(|_| {
            let to = sender.poll(now, outbox);
            if let Some(to) = to {
                out.send(Departure::now(to, outbox.len() as u32), outbox);
            }
            to.is_some()
        });
    }

    /// Has jobs done elsewhere.
    fn hand_out(&mut self, out: &mut impl Out<Peer>) {
        if let Some(receiver) = &mut self.receiver {
            std::iter::from_fn(|| receiver.next_job()).for_each(|job| out.job(job));
        }
        if let Some(Sender::File(sender)) = &mut self.sender {
            std::iter::from_fn(|| sender.next_job()).for_each(|job| out.job(job));
        }
    }

    /// Has its receiver [give up](Receiver::close_all) every session.
    pub fn close_all(&mut self, now: Time, silence: Duration, out: &mut impl Out<Peer>) {
        if let Some(receiver) = &mut self.receiver {
            receiver.close_all(now, silence);
        }
        self.hand_out(out);
    }

    /// Its relay.
    pub fn relay(&self) -> &RelayNode {
        &self.relay
    }

    /// What its relay forwards from now on.
    pub fn set_limit(&mut self, now: Time, limit: Rate) {
        self.relay.set_limit(now, limit);
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

impl Machine for Peer {
    type Address = SocketAddr;
    type Message = OwnedDatagram;
    type Event = Infallible;
    type Job = FileJob;
    type Done = FileDone;

    fn on_message(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        datagram: &mut OwnedDatagram,
        out: &mut impl Out<Peer>,
    ) {
        let size = datagram.len();
        match self.relay.on_datagram(now, arrival, datagram, Bytes::new(size as u64)) {
            Handling::Forward { to, wait } => {
                out.send(Departure::after(wait, to, size as u32), datagram);
                out.keep_timer();
            }
            Handling::Deliver { wait } => {
                self.on_delivery(now, wait, datagram, out);
                self.hand_out(out);
            }
            Handling::Home => {
                if let Some(sender) = &mut self.sender {
                    sender.on_answer(now, datagram);
                    self.pump(now, out);
                    self.hand_out(out);
                }
            }
            Handling::Discard => out.keep_timer(),
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<Peer>) {
        if let Some(receiver) = &mut self.receiver {
            receiver.on_timer(now);
        }
        if let Some(sender) = &mut self.sender {
            sender.on_timer(now);
        }
        self.pump(now, out);
        self.hand_out(out);
    }

    fn on_done(&mut self, now: Time, done: FileDone, out: &mut impl Out<Peer>) {
        if done.result.is_of_sender() {
            if let Some(Sender::File(sender)) = &mut self.sender {
                sender.on_done(now, done);
                self.pump(now, out);
            }
        } else if let Some(receiver) = &mut self.receiver {
            receiver.on_done(done);
        }
        self.hand_out(out);
    }

    fn timer(&self, now: Time) -> Time {
        if self.has_more {
            return now;
        }
        let receiver = self.receiver.as_ref().map_or(Time::MAX, Receiver::timer);
        receiver.min(self.sender.as_ref().map_or(Time::MAX, |sender| sender.timer(now)))
    }
}

//! A relay as a machine: takes a layer off what comes, and sends it on to a member, to a client that hangs on
//! it, or to a service of its own.

use std::convert::Infallible;
use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::limiter::{Admission, LimitModel, Limiter};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out};

use super::frame::{Frame, Kind};
use super::members::Members;
use super::observed::{Neighbour, Observed};
use crate::crypto::Cryptography;
use crate::link::Links;
use crate::packet::{BODY, Datagram, Label, body};
use crate::relay::{EpochKeys, Outcome, Relay, Sender};
use crate::reply::First;
use crate::size::DATAGRAM;

/// What a relay offers besides relaying: an exit, a mailbox. `()` offers nothing.
pub trait Service {
    /// What its application is notified of.
    type Event;

    /// A body has come for `label`. What is to be sent then is asked for when [`Service::timer`] says so.
    fn on_body(&mut self, now: Time, label: Label, body: &[u8; BODY], events: &mut Vec<Self::Event>);

    /// The time that [`Service::timer`] gave has come, or a later one.
    fn on_timer(&mut self, now: Time, events: &mut Vec<Self::Event>);

    /// What is to leave, written into `datagram`: where it goes first.
    fn poll(&mut self, now: Time, datagram: &mut Datagram) -> Option<First>;

    /// When it has something to do or to send; [`Time::MAX`] for never.
    fn timer(&self, now: Time) -> Time;

    /// Another epoch begins; packets of the one before come for `grace` longer.
    fn begin_epoch(&mut self, now: Time, epoch: u64, grace: Duration) {
        let _ = (now, epoch, grace);
    }
}

impl Service for () {
    type Event = Infallible;

    fn on_body(&mut self, _: Time, _: Label, _: &[u8; BODY], _: &mut Vec<Self::Event>) {}

    fn on_timer(&mut self, _: Time, _: &mut Vec<Self::Event>) {}

    fn poll(&mut self, _: Time, _: &mut Datagram) -> Option<First> {
        None
    }

    fn timer(&self, _: Time) -> Time {
        Time::MAX
    }
}

/// What a relay's node has done besides what its [`Relay`] counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayNodeCounts {
    /// Bytes that came.
    pub received: u64,
    /// Bytes that left.
    pub sent: u64,
    /// Packets beyond the limit.
    pub refused: u64,
    /// Packets for clients that do not hang on it.
    pub no_client: u64,
    /// Packets of the service.
    pub from_service: u64,
    /// Packets for the service.
    pub to_service: u64,
}

/// A relay that runs.
#[derive(Debug)]
pub struct RelayNode<C: Cryptography, S> {
    relay: Relay<C>,
    members: Members,
    links: Links,
    service: S,
    limiter: Option<Limiter>,
    /// Waits for the limit that are shorter than this are not waited.
    grain: Duration,
    counts: RelayNodeCounts,
    /// For demonstrations alone.
    observed: Option<Observed>,
}

impl<C: Cryptography, S: Service> RelayNode<C, S> {
    /// It forwards to `members`.
    pub fn new(relay: Relay<C>, members: Members, service: S) -> RelayNode<C, S> {
        let (links, counts) = (Links::default(), RelayNodeCounts::default());
        RelayNode { relay, members, links, service, limiter: None, grain: Duration::ZERO, counts, observed: None }
    }

    /// It takes no more than `limit` of packets. What was not made for it counts for nothing: whoever sends that takes
    /// of nobody's share, only of the processor's time.
    #[must_use]
    pub fn limited(mut self, model: LimitModel, limit: Rate) -> RelayNode<C, S> {
        self.limiter = Some(Limiter::new(model, limit));
        self
    }

    /// Whether there is a limit.
    pub fn has_limit(&self) -> bool {
        self.limiter.is_some()
    }

    /// What has to wait for the limit for less than `grain` leaves at once, so that packets leave together: a limit is
    /// then held over as long a time, and not from packet to packet.
    #[must_use]
    pub fn with_grain(mut self, grain: Duration) -> RelayNode<C, S> {
        self.grain = grain;
        self
    }

    /// Another epoch begins, in which `addresses` are the members'.
    pub fn begin_epoch(&mut self, now: Time, keys: EpochKeys<C>, addresses: Vec<SocketAddr>, grace: Duration) {
        self.service.begin_epoch(now, keys.epoch, grace);
        self.members.begin_epoch(keys.epoch, addresses);
        self.relay.begin_epoch(now, keys, grace);
    }

    /// Its keys and what they have done.
    pub fn relay(&self) -> &Relay<C> {
        &self.relay
    }

    /// Who hangs on it.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// What it has done.
    pub fn counts(&self) -> &RelayNodeCounts {
        &self.counts
    }

    /// What it offers.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// From now on it keeps who sends to whom through it: for demonstrations alone, since no user of a network expects
    /// that.
    pub fn observe(&mut self) {
        self.observed.get_or_insert_default();
    }

    /// What it has seen since this was last asked; none unless it [observes](RelayNode::observe).
    pub fn take_observed(&mut self) -> Option<Observed> {
        self.observed.as_mut().map(core::mem::take)
    }

    /// Acts on what it offers; what that wants to send leaves.
    pub fn act<R>(&mut self, now: Time, out: &mut impl Out<Self>, act: impl FnOnce(&mut S) -> R) -> R {
        let result = act(&mut self.service);
        self.serve(now, Vec::new(), out);
        result
    }

    /// Whether a packet may pass, and after which wait.
    fn admit(&mut self, now: Time) -> Option<Duration> {
        let Some(limiter) = &mut self.limiter else { return Some(Duration::ZERO) };
        match limiter.admit(now, Bytes::new(DATAGRAM as u64)) {
            Admission::After(wait) if wait < self.grain => Some(Duration::ZERO),
            Admission::After(wait) => Some(wait),
            Admission::Refused => {
                self.counts.refused += 1;
                None
            }
        }
    }

    fn on_packet(&mut self, now: Time, from: SocketAddr, frame: &mut Frame, out: &mut impl Out<Self>) {
        let RelayNode { relay, members, links, .. } = self;
        let sender = || match members.has(from) || links.has(now, from) {
            true => Sender::Known(from.ip()),
            false => Sender::Stranger,
        };
        let outcome = relay.process_from(now, sender, &mut frame.datagram);
        if matches!(outcome, Outcome::Drop(_)) {
            return;
        }
        let Some(queued) = self.admit(now) else { return };
        let (to, wait, is_client) = match outcome {
            Outcome::Forward { to, epoch, wait } => (self.members.address(epoch, to), wait, false),
            Outcome::ToClient { label, wait } => {
                let to = self.links.address(now, label);
                self.counts.no_client += u64::from(to.is_none());
                (to, wait, true)
            }
            // The wait hides which packet of a member's is which of another's; here there is no other.
            Outcome::Deliver { label, .. } => {
                self.see(Some(from), || Neighbour::Itself);
                self.counts.to_service += 1;
                let mut events = Vec::new();
                self.service.on_body(now, label, body(&frame.datagram), &mut events);
                // What it has to send leaves by the timer, together for all that comes together.
                events.into_iter().for_each(|event| out.event(event));
                return;
            }
            Outcome::Drop(_) => return,
        };
        let Some(to) = to else { return };
        self.see(Some(from), || if is_client { Neighbour::Client(to) } else { Neighbour::Relay(to) });
        self.counts.sent += DATAGRAM as u64;
        out.forward(Departure::after(queued + wait, to, DATAGRAM as u32), frame);
    }

    /// A packet came from `from`, or from the service here, and goes to `after`.
    fn see(&mut self, from: Option<SocketAddr>, after: impl FnOnce() -> Neighbour) {
        let Some(observed) = &mut self.observed else { return };
        let before = match from {
            None => Neighbour::Itself,
            Some(from) if self.members.has(from) => Neighbour::Relay(from),
            Some(from) => Neighbour::Client(from),
        };
        observed.count(before, after());
    }

    /// Tells what has happened, and sends what the service has to send.
    fn serve(&mut self, now: Time, events: Vec<S::Event>, out: &mut impl Out<Self>) {
        events.into_iter().for_each(|event| out.event(event));
        let mut frame = Frame::default();
        while let Some(first) = self.service.poll(now, &mut frame.datagram) {
            let Some(to) = self.members.first(first) else { continue };
            self.see(None, || Neighbour::Relay(to));
            self.counts.from_service += 1;
            self.counts.sent += DATAGRAM as u64;
            out.send(Departure::now(to, DATAGRAM as u32), &frame);
        }
    }
}

impl<C: Cryptography, S: Service> Machine for RelayNode<C, S> {
    type Address = SocketAddr;
    type Message = Frame;
    type Event = S::Event;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        frame: &mut Frame,
        out: &mut impl Out<RelayNode<C, S>>,
    ) {
        self.counts.received += u64::from(frame.length());
        match frame.kind {
            Kind::Packet => self.on_packet(now, arrival.from, frame, out),
            Kind::Link(said) => {
                if let Some(answer) = self.links.on_frame(now, arrival.from, &said) {
                    let answer = Frame::link(answer);
                    self.counts.sent += u64::from(answer.length());
                    out.send(Departure::now(arrival.from, answer.length()), &answer);
                }
            }
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<RelayNode<C, S>>) {
        if self.relay.timer(now) <= now {
            self.relay.on_timer(now);
        }
        let mut events = Vec::new();
        if self.service.timer(now) <= now {
            self.service.on_timer(now, &mut events);
        }
        self.serve(now, events, out);
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<RelayNode<C, S>>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        self.relay.timer(now).min(self.service.timer(now))
    }
}

//! A peer of an overlay as experiments need it: it relays, and sends data to random peers that it
//! knows, as much as its controller allows. Packets have a route and a size, but no content: what
//! runs on sockets is [`Peer`](crate::overlay::peer::Peer), around the same relay and the same sender.

use core::convert::Infallible;
use core::fmt::Debug;
use core::hash::Hash;
use core::marker::PhantomData;
use std::sync::{Arc, Mutex};

use anabranch_control::path::Slot;
use anabranch_control::path::perfect::Manager;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_control::wake::Wake;

use crate::machine::{Arrival, Departure, Machine, Out};
use crate::overlay::fair_share::Source;
use crate::overlay::packet::{Kind, Packet, Route, Telemetry, TelemetryField};
use crate::overlay::path_sender::{self, AckVerdict, PathSender};
use crate::overlay::relay::{Relay, Verdict};

/// What a peer tells of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayEvent {
    /// Data has left its source.
    Sent,
    /// Data has reached its destination.
    Delivered,
    /// The peer's limit had no room for it.
    Refused(Kind),
    /// The peer, which misbehaves, dropped it.
    Swallowed(Kind),
    /// An ACK has come home, this long before its deadline.
    Acked {
        /// How long.
        early: Duration,
    },
    /// An ACK has come home after its deadline: nothing had been lost.
    LateAck,
    /// An ACK did not know its packet's nonce.
    ForgedAck,
    /// A deadline has passed without an ACK.
    TimedOut,
}

/// What a relay does that it should not.
#[derive(Clone, Debug)]
pub struct Misbehaviour {
    /// Share of the packets and ACKs that it drops.
    pub drop: f64,
    /// By how much it delays the others.
    pub delay: Duration,
    /// Whether it drops data and sends an ACK of its own making.
    pub forge: bool,
    /// By what it multiplies every stamp on the ACKs that it forwards: its own, and those of the relays
    /// before it.
    pub stamp_factor: f64,
    /// From when on it does so.
    pub from: Time,
    /// Until when.
    pub until: Time,
    /// Draws what is dropped, and guesses nonces.
    pub rng: Rng,
}

/// When an application has something to send, and to whom.
#[derive(Clone, Debug)]
pub struct Traffic<A> {
    /// The peers that it knows, by slot.
    pub known: Box<[A]>,
    /// Draws destinations.
    pub rng: Rng,
    /// It sends nothing before.
    pub starts: Time,
    /// What it has to send; without a limit if none is given.
    pub offered: Option<Rate>,
}

/// One peer, whose packets tell `T`. What a packet needs that only passes comes first, in one line
/// of the processor's cache: most packets pass, and there may be many peers. That a peer is there at
/// all, in a table of those that may have left, is told by the value with the most bits to spare:
/// here that is the relay's, in the first line, as long as no optional number lies behind it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct OverlayPeer<A, T = Telemetry> {
    relay: Relay,
    /// Of data and of an ACK in bytes, by kind.
    sizes: [u32; 2],
    misbehaviour: Option<Box<Misbehaviour>>,
    sender: PathSender,
    known: Box<[A]>,
    rng: Rng,
    address: A,
    /// Where the next packet goes; drawn once for each packet.
    destination: Slot,
    /// When the application has the next packet.
    next_offer: Time,
    /// The time from one to the next; zero if it always has one.
    offer_gap: Duration,
    /// Until when nothing leaves, as far as was known when something last might have.
    waits_until: Time,
    telemetry: PhantomData<T>,
}

const _: () = assert!(core::mem::offset_of!(OverlayPeer<u32>, sender) == 64, "what a packet needs is one line");
const _: () = assert!(size_of::<Option<OverlayPeer<u32>>>() == 5 * 64, "worlds hold many peers: keep them small");

impl<A: Copy, T: TelemetryField> OverlayPeer<A, T> {
    /// The peer at `address`, for data packets and ACKs of `sizes`.
    ///
    /// # Panics
    ///
    /// If its traffic knows nobody, or if packets are longer than 4 GiB.
    pub fn new(
        address: A,
        sizes: [Bytes; 2],
        relay: Relay,
        misbehaviour: Option<Misbehaviour>,
        sender: PathSender,
        traffic: Traffic<A>,
    ) -> OverlayPeer<A, T> {
        let Traffic { known, mut rng, starts, offered } = traffic;
        let destination = Slot(rng.below(known.len()) as u16);
        let offer_gap = offered.map_or(Duration::ZERO, |rate| sizes[Kind::Data as usize] / rate);
        let misbehaviour = misbehaviour.map(Box::new);
        let sizes = sizes.map(|size| u32::try_from(size.get()).expect("a packet is shorter than 4 GiB"));
        OverlayPeer {
            relay,
            sizes,
            misbehaviour,
            sender,
            next_offer: starts,
            known,
            rng,
            address,
            destination,
            offer_gap,
            waits_until: Time::ZERO,
            telemetry: PhantomData,
        }
    }

    /// Its sender, to look at.
    pub fn sender(&self) -> &PathSender {
        &self.sender
    }

    /// The peers that it knows, by slot.
    pub fn known(&self) -> &[A] {
        &self.known
    }

    /// Its controller asks this manager from now on, if it asks any.
    pub fn set_manager(&mut self, manager: &Arc<Mutex<Manager>>) {
        self.sender.set_manager(manager);
    }

    /// What it forwards and receives from now on.
    pub fn set_limit(&mut self, now: Time, limit: Rate) {
        self.relay.set_limit(now, limit);
    }

    /// What the next packet waits for: the application, then the sender.
    #[inline]
    fn wake(&self, now: Time) -> Wake {
        match Wake::at(self.next_offer, now) {
            Wake::DepartNow(()) => self.sender.wake(now),
            wait => wait,
        }
    }

    /// Sends all that may leave now.
    #[inline]
    fn pump(&mut self, now: Time, out: &mut impl Out<OverlayPeer<A, T>>)
    where
        A: Debug + Eq + Hash + Source,
    {
        loop {
            let wake = self.wake(now);
            self.waits_until = wake.time(now);
            if wake != Wake::DepartNow(()) {
                return;
            }
            let Wake::DepartNow(departure) = self.sender.poll_ready(now, self.destination) else {
                self.waits_until = self.wake(now).time(now);
                return;
            };
            self.next_offer += self.offer_gap;
            let OverlayPeer { known, rng, .. } = self;
            let relays = departure.relays().iter().map(|slot| known[slot.index()]);
            let route = Route::new(self.address, relays, known[self.destination.index()]);
            self.destination = Slot(rng.below(known.len()) as u16);
            let path_sender::Departure { id, nonce, round_trip, .. } = departure;
            let packet = Packet { id, nonce, kind: Kind::Data, route, telemetry: T::of_data(round_trip) };
            out.event(OverlayEvent::Sent);
            out.send(Departure::now(packet.route.at(), self.size(Kind::Data)), &packet);
        }
    }

    #[inline]
    fn size(&self, kind: Kind) -> u32 {
        self.sizes[kind as usize]
    }

    #[inline(always)]
    fn forward(
        &mut self,
        now: Time,
        to: A,
        wait: Duration,
        packet: &mut Packet<A, T>,
        out: &mut impl Out<OverlayPeer<A, T>>,
    ) where
        A: Debug + Eq + Hash + Source,
    {
        let (mut to, mut wait) = (to, wait);
        if let Some(misbehaviour) = &mut self.misbehaviour
            && (misbehaviour.from..misbehaviour.until).contains(&now)
        {
            if misbehaviour.rng.chance(misbehaviour.drop) {
                out.event(OverlayEvent::Swallowed(packet.kind));
                return;
            }
            wait = wait + misbehaviour.delay;
            packet.telemetry.scale_stamps(misbehaviour.stamp_factor);
            if misbehaviour.forge && packet.kind == Kind::Data {
                // It claims the arrival of what it drops. The nonce it can only guess.
                out.event(OverlayEvent::Swallowed(Kind::Data));
                packet.nonce = misbehaviour.rng.bits();
                packet.route.step_back();
                let Some(back) = packet.turn_around(now) else { return };
                to = back;
            }
        }
        out.forward(Departure::after(wait, to, self.size(packet.kind)), packet);
    }

    fn on_ack(&mut self, now: Time, packet: &Packet<A, T>, out: &mut impl Out<OverlayPeer<A, T>>)
    where
        A: Debug + Eq + Hash + Source,
    {
        match self.sender.on_ack(now, packet.id, packet.nonce, &packet.telemetry) {
            AckVerdict::Acked { early, .. } => out.event(OverlayEvent::Acked { early }),
            AckVerdict::Late { .. } => out.event(OverlayEvent::LateAck),
            AckVerdict::Forged => out.event(OverlayEvent::ForgedAck),
            AckVerdict::Unknown => {}
        }
        // Most ACKs change nothing before the time that is waited for, and deadlines only go.
        let wake = self.wake(now);
        if wake == Wake::DepartNow(()) {
            self.pump(now, out);
        } else if wake.time(now) >= self.waits_until {
            out.keep_timer();
        }
    }
}

impl<A: Copy + Debug + Eq + Hash + Source, T: TelemetryField> Machine for OverlayPeer<A, T> {
    type Address = A;
    type Message = Packet<A, T>;
    type Event = OverlayEvent;
    type Job = Infallible;
    type Done = Infallible;

    #[inline(always)]
    fn on_message(
        &mut self,
        now: Time,
        _: Arrival<A>,
        packet: &mut Packet<A, T>,
        out: &mut impl Out<OverlayPeer<A, T>>,
    ) {
        match self.relay.on_packet(now, packet, Bytes::new(u64::from(self.size(packet.kind)))) {
            Verdict::Home => return self.on_ack(now, packet, out),
            Verdict::Forward { to, wait } => self.forward(now, to, wait, packet, out),
            Verdict::Deliver { wait } => {
                out.event(OverlayEvent::Delivered);
                if let Some(to) = packet.turn_around(now) {
                    out.forward(Departure::after(wait, to, self.size(Kind::Ack)), packet);
                }
            }
            Verdict::Refuse | Verdict::OverShare => out.event(OverlayEvent::Refused(packet.kind)),
        }
        out.keep_timer();
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<OverlayPeer<A, T>>) {
        self.sender.on_timer(now, |_| out.event(OverlayEvent::TimedOut));
        self.pump(now, out);
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<OverlayPeer<A, T>>) {
        match done {}
    }

    #[inline]
    fn timer(&self, now: Time) -> Time {
        self.sender.timer().min(self.wake(now).time(now))
    }
}

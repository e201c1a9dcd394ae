//! A path sender on a network: turns its departures into datagrams and answers into
//! its ACKs.
//!
//! The proof that is sealed in a packet is the sending machine's nonce, masked by a
//! keyed hash of the packet's name. The nonces come from a fast generator, and its
//! numbers follow from each other; a relay that reads the proof of one ACK learns
//! nothing about that of another, because the mask's key never leaves this machine.

use std::net::SocketAddr;

use anabranch_control::pacer::Pacer;
use anabranch_control::path::{MAX_RELAYS, Slot};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_control::wake::Wake;

use crate::overlay::bound::InFlightBound;
use crate::overlay::packet::{Kind, Packet, PacketId, Route, Telemetry, TelemetryField};
use crate::overlay::path_sender::{AckVerdict, Departure, PathSender};
use crate::overlay::wire;

/// How much may leave at once below an upload limit: what the limit lets through in this time.
const UPLOAD_BURST: Duration = Duration::from_millis(10);

/// What a sender has done and seen since its start, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Left.
    pub sent: u64,
    /// Answered in time.
    pub acked: u64,
    /// Answered after they were believed to be lost.
    pub late: u64,
    /// Believed to be lost.
    pub lost: u64,
    /// Answers with a wrong proof.
    pub forged: u64,
    /// Answers to packets that are not remembered: duplicates, or far too late.
    pub unknown: u64,
    /// Answers that did not open, or say nothing that makes sense.
    pub unreadable: u64,
}

/// A packet that shall leave now: its header, and the proof to be sealed in it.
#[derive(Clone, Copy, Debug)]
pub struct Parcel {
    /// Name and route. The body follows its header.
    pub packet: Packet<SocketAddr>,
    /// What the answer must return.
    pub proof: u64,
}

impl Parcel {
    /// The first relay.
    pub fn to(&self) -> SocketAddr {
        self.packet.route.at()
    }
}

/// A path sender with the addresses of the peers it knows.
#[derive(Clone, Debug)]
pub struct Courier {
    sender: PathSender,
    addresses: Vec<SocketAddr>,
    mask_key: [u8; 32],
    upload: Option<Rate>,
    /// When the upload limit lets the next packet leave.
    pacer: Pacer,
    packet: Bytes,
    /// What may be in flight, if that has a bound.
    bound: Option<InFlightBound>,
    counters: SendCounters,
    lost: Vec<PacketId>,
}

impl Courier {
    /// Knows the peer in slot i by `addresses[i]`; sends packets of at most `packet`, no
    /// faster than `upload`. `mask_key` must be random and secret.
    pub fn new(
        sender: PathSender,
        addresses: Vec<SocketAddr>,
        packet: Bytes,
        upload: Option<Rate>,
        mask_key: [u8; 32],
    ) -> Courier {
        Courier {
            sender,
            addresses,
            mask_key,
            upload,
            pacer: Pacer::default(),
            packet,
            bound: None,
            counters: SendCounters::default(),
            lost: Vec::new(),
        }
    }

    /// The same, but no more is in flight than relays pass on, whatever they grant ([`bound`](crate::overlay::bound)).
    #[must_use]
    pub fn with_bound(self) -> Courier {
        let bound = Some(InFlightBound::new(self.addresses.len() - 1, self.sender.relays()));
        Courier { bound, ..self }
    }

    /// Whether as much is in flight as may be.
    #[inline]
    fn is_full(&self) -> bool {
        let SendCounters { sent, acked, lost, .. } = self.counters;
        self.bound.as_ref().is_some_and(|bound| sent - acked - lost >= bound.packets())
    }

    /// The proof for packet `id`, and the nonce for a proof: the mask is its own inverse.
    fn mask(&self, id: PacketId, value: u64) -> u64 {
        let name = (u64::from(id.generation) << 32 | u64::from(id.index)).to_be_bytes();
        let hash = blake3::keyed_hash(&self.mask_key, &name);
        value ^ u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }

    /// A packet to `destination`, or what it waits for.
    pub fn depart(&mut self, now: Time, destination: Slot) -> Wake<Parcel> {
        let release = self.pacer.release();
        if release > now {
            return Wake::WaitUntil(release);
        }
        if self.is_full() {
            return Wake::AwaitOutcome;
        }
        self.sender.poll(now, destination).map(|departure| self.address(now, destination, &departure))
    }

    fn address(&mut self, now: Time, destination: Slot, departure: &Departure) -> Parcel {
        if let Some(upload) = self.upload {
            self.pacer.charge(now, UPLOAD_BURST, self.packet / upload);
        }
        self.counters.sent += 1;
        let mut relays = [self.addresses[0]; MAX_RELAYS];
        let relays = &mut relays[..departure.relays().len()];
        for (address, slot) in relays.iter_mut().zip(departure.relays()) {
            *address = self.addresses[slot.index()];
        }
        let source = wire::unknown_source(relays[0]);
        let route = Route::new(source, relays.iter().copied(), self.addresses[destination.index()]);
        let telemetry = Telemetry::of_data(departure.round_trip);
        let packet = Packet { id: departure.id, nonce: 0, kind: Kind::Data, route, telemetry };
        Parcel { packet, proof: self.mask(departure.id, departure.nonce) }
    }

    /// An answer to packet `id` has come with this proof, and what it tells.
    pub fn on_answer(&mut self, now: Time, id: PacketId, proof: u64, telemetry: &Telemetry) -> AckVerdict {
        let verdict = self.sender.on_ack(now, id, self.mask(id, proof), telemetry);
        match verdict {
            AckVerdict::Acked { .. } => self.counters.acked += 1,
            AckVerdict::Late { .. } => self.counters.late += 1,
            AckVerdict::Unknown => self.counters.unknown += 1,
            AckVerdict::Forged => self.counters.forged += 1,
        }
        if let (Some(bound), AckVerdict::Acked { rtt, .. } | AckVerdict::Late { rtt, .. }) = (&mut self.bound, verdict)
        {
            bound.on_ack(now, rtt);
        }
        verdict
    }

    /// An answer did not open, or says nothing that makes sense.
    pub fn count_unreadable(&mut self) {
        self.counters.unreadable += 1;
    }

    /// Time has passed: the packets that are believed to be lost since.
    pub fn on_timer(&mut self, now: Time) -> &[PacketId] {
        self.lost.clear();
        // Even if no deadline has passed: those of packets that were answered are cleared away.
        self.sender.on_timer(now, |id| self.lost.push(id));
        self.counters.lost += self.lost.len() as u64;
        &self.lost
    }

    /// When to call `on_timer`.
    pub fn next_deadline(&self) -> Time {
        self.sender.timer()
    }

    /// What a packet waits for: the upload limit, room in flight, and then the sending machine.
    pub fn wake(&self, now: Time) -> Wake {
        if self.is_full() {
            return Wake::AwaitOutcome;
        }
        Wake::at(self.pacer.release(), now).and(self.sender.wake(now))
    }

    /// Relays that there are: all peers but the one that is sent to.
    pub fn relays(&self) -> usize {
        self.addresses.len() - 1
    }

    /// This many paths take each relay once, the last perhaps fewer new ones.
    pub fn disjoint_paths(&self) -> usize {
        self.relays().div_ceil(self.sender.relays())
    }

    /// What it has done and seen.
    pub fn counters(&self) -> &SendCounters {
        &self.counters
    }

    /// The smoothed round-trip time over all paths, once one was seen.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.sender.smoothed_rtt()
    }

    /// The sending machine, to look at.
    pub fn sender(&self) -> &PathSender {
        &self.sender
    }

    /// The addresses of the peers by slot.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::path::registry::{self, Pacing, Setup};
    use anabranch_control::rng::Rng;
    use anabranch_control::rtt::RttConfig;

    use super::*;
    use crate::overlay::path_sender::SenderConfig;

    const PACKET: Bytes = Bytes::new(1400);

    fn courier(controller: &str, upload: Option<Rate>) -> Courier {
        let addresses: Vec<SocketAddr> = (1..=6).map(|last| SocketAddr::from(([10, 0, 0, last], 4000))).collect();
        let config = SenderConfig { peers: 6, relays: 2, packet: PACKET, rtt: RttConfig::default() };
        let setup = Setup { peers: 6, packet: PACKET, start: Time::ZERO, pacing: Pacing::Burst };
        let made = registry::find(controller).unwrap().build.make(&setup, &toml::Table::new());
        let made = made.expect("not for simulation only").unwrap();
        let sender = PathSender::new(&config, made, Rng::stream(1, "sender"));
        Courier::new(sender, addresses, PACKET, upload, [7; 32])
    }

    #[test]
    fn only_the_proof_that_travelled_in_the_packet_is_taken() {
        let mut courier = courier("random", None);
        let now = Time::ZERO + Duration::from_millis(50);
        let parcels: Vec<Parcel> = (0..3).map(|_| courier.depart(Time::ZERO, Slot(5)).departs().unwrap()).collect();
        // What one packet proves says nothing about another.
        assert_eq!(
            courier.on_answer(now, parcels[0].packet.id, parcels[1].proof, &Telemetry::default()),
            AckVerdict::Forged
        );
        for parcel in &parcels {
            let verdict = courier.on_answer(now, parcel.packet.id, parcel.proof, &Telemetry::default());
            assert!(matches!(verdict, AckVerdict::Acked { .. }));
        }
        let counters = courier.counters();
        assert_eq!((counters.sent, counters.acked, counters.forged), (3, 3, 1));
        assert_eq!(courier.smoothed_rtt(), Some(Duration::from_millis(50)));
    }

    #[test]
    fn proofs_hide_the_generator_behind_them() {
        let mut courier = courier("random", None);
        let twin = Rng::stream(1, "sender");
        let parcel = courier.depart(Time::ZERO, Slot(5)).departs().unwrap();
        let id = parcel.packet.id;
        let nonce = twin.beside(u64::from(id.generation) << 32 | u64::from(id.index));
        assert_eq!(courier.mask(id, parcel.proof), nonce);
        assert_ne!(parcel.proof, nonce);
    }

    #[test]
    fn an_upload_limit_holds_a_sender_that_nothing_else_limits() {
        let upload = Rate::from_bytes_per_sec(140_000);
        let mut courier = courier("random", Some(upload));
        let mut now = Time::ZERO;
        let mut sent = 0;
        while now < Time::from_secs_f64(2.0) {
            while courier.depart(now, Slot(5)).departs().is_some() {
                sent += 1;
            }
            assert_ne!(courier.wake(now), Wake::DepartNow(()));
            now = courier.wake(now).time(now);
        }
        assert!((198..=203).contains(&sent), "{sent} packets in two seconds at a hundred a second");
    }

    #[test]
    fn no_more_is_in_flight_than_its_bound_and_each_outcome_makes_room() {
        let mut courier = courier("random", None).with_bound();
        let all = |courier: &mut Courier, now: Time| -> Vec<Parcel> {
            std::iter::from_fn(|| courier.depart(now, Slot(5)).departs()).collect()
        };
        let first = all(&mut courier, Time::ZERO);
        assert_eq!((first.len(), courier.wake(Time::ZERO)), (1280, Wake::AwaitOutcome), "512 x 5 relays / 2");
        let now = Time::ZERO + Duration::from_millis(9);
        for parcel in &first[..3] {
            courier.on_answer(now, parcel.packet.id, parcel.proof, &Telemetry::default());
        }
        assert_eq!(all(&mut courier, now).len(), 3);
        let now = now + Duration::SECOND * 10;
        assert_eq!(courier.on_timer(now).len(), 1280, "nobody has answered");
        assert_eq!(all(&mut courier, now).len(), 1280);
    }

    #[test]
    fn after_a_refusal_nothing_leaves_until_the_next_burst() {
        let mut courier = courier("q-learning", None);
        let first = courier.depart(Time::ZERO, Slot(5)).departs().unwrap();
        while courier.depart(Time::ZERO, Slot(5)).departs().is_some() {}
        assert_eq!(courier.wake(Time::ZERO), Wake::WaitUntil(Time::ZERO + Duration::SECOND));
        let now = Time::ZERO + Duration::from_millis(9);
        courier.on_answer(now, first.packet.id, first.proof, &Telemetry::default());
        assert!(courier.depart(now, Slot(5)).departs().is_none(), "the ACK counts from the next burst on");
        assert!(courier.depart(Time::ZERO + Duration::SECOND, Slot(5)).departs().is_some());
        while courier.depart(Time::ZERO + Duration::SECOND, Slot(5)).departs().is_some() {}
    }
}

//! The sending machine: asks its controller for a path for each packet, remembers
//! what is in flight, and turns ACKs and missed deadlines into evidence.
//!
//! A packet whose ACK misses its deadline is reported as lost at once; it is
//! remembered for as long again, so that a late ACK still teaches the round-trip
//! time and is not mistaken for a forged one. [Raiber 2010] 4.2.1.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex};

use anabranch_control::path::perfect::Manager;
use anabranch_control::path::{Hop, MAX_RELAYS, Outcome, PathController, Report, Slot};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::{PairRtts, RttConfig};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_control::wake::Wake;

use crate::overlay::packet::{PacketId, TelemetryField};

/// The most packets that one sender remembers, in flight and late together.
pub const MAX_REMEMBERED: usize = 1 << 17;

/// What a sender is told at the start.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// How many peers it knows, relays and destinations together.
    pub peers: usize,
    /// Relays for each packet, 1 to `MAX_RELAYS`.
    pub relays: usize,
    /// Size of its packets.
    pub packet: Bytes,
    /// How it estimates round-trip times.
    pub rtt: RttConfig,
}

/// A packet that shall leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Its name, to come back with the ACK.
    pub id: PacketId,
    /// What the ACK must prove to know: a keyed function of `id`, and not a cryptographic one. What
    /// travels on a network is masked with one ([`Courier`](crate::overlay::courier::Courier)).
    pub nonce: u64,
    /// The smoothed round-trip time, for the relays, once one was seen.
    pub round_trip: Option<Duration>,
    relays: [Slot; MAX_RELAYS],
    count: u8,
}

impl Departure {
    /// The relays to pass, in order.
    pub fn relays(&self) -> &[Slot] {
        &self.relays[..usize::from(self.count)]
    }
}

/// What an ACK was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckVerdict {
    /// The packet has arrived, in time.
    Acked {
        /// Time since it left.
        rtt: Duration,
        /// By how much the ACK was before its deadline.
        early: Duration,
    },
    /// The packet has arrived, but its loss was reported before.
    Late {
        /// Time since it left.
        rtt: Duration,
        /// By how much the ACK missed its deadline.
        by: Duration,
    },
    /// No such packet is remembered: a duplicate, or far too late.
    Unknown,
    /// The nonce is wrong: whoever sent this has not received the packet.
    Forged,
}

/// A packet that is remembered.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    sent_at: Time,
    deadline: Time,
    generation: u32,
    destination: Slot,
    state: State,
}

const _: () = assert!(size_of::<Remembered>() == 24, "senders remember many packets: keep them small");
const _: () = assert!(size_of::<Hop>() == 6 && size_of::<Deadline>() == 12);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    InFlight,
    Late,
}

/// When a remembered packet's deadline passes; stale once that packet is forgotten, or has another
/// deadline. The soonest is the greatest.
/// In twelve bytes instead of sixteen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed(4))]
struct Deadline {
    at: Time,
    index: u32,
}

impl Deadline {
    #[inline]
    fn at(&self) -> Time {
        self.at
    }
}

impl Ord for Deadline {
    #[inline]
    fn cmp(&self, other: &Deadline) -> Ordering {
        let (own, others) = ((self.at, self.index), (other.at, other.index));
        others.cmp(&own)
    }
}

impl PartialOrd for Deadline {
    #[inline]
    fn partial_cmp(&self, other: &Deadline) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One sender.
#[derive(Clone, Debug)]
pub struct PathSender {
    controller: Box<dyn PathController>,
    rtts: PairRtts,
    rng: Rng,
    /// Bytes of each packet.
    packet: u32,
    /// Relays of each packet.
    relays: u8,
    remembered: Vec<Remembered>,
    /// The paths of the remembered packets, `relays` hops each.
    hops: Vec<Hop>,
    free: Vec<u32>,
    deadlines: BinaryHeap<Deadline>,
    /// The controller had no room when it was last asked.
    refused: bool,
    /// No deadline is sooner after its packet left.
    least_timeout: Duration,
    /// Deadlines move with what is learned of round-trip times meanwhile.
    moves_deadlines: bool,
    /// Packets pass their relays in the order of the slots.
    keeps_order: bool,
    /// Over all paths; zero before the first ACK.
    smoothed_rtt: Duration,
}

impl PathSender {
    /// A sender that draws its random numbers from `rng`.
    ///
    /// Panics unless `relays` is 1 to `MAX_RELAYS` and fewer than `peers`, or if packets are
    /// longer than 4 GiB.
    pub fn new(config: &SenderConfig, controller: Box<dyn PathController>, rng: Rng) -> PathSender {
        assert!((1..=MAX_RELAYS).contains(&config.relays), "a path has 1 to {MAX_RELAYS} relays");
        assert!(config.relays < config.peers, "a path needs relays besides its destination");
        PathSender {
            controller,
            rtts: PairRtts::new(&config.rtt, config.peers),
            rng,
            packet: u32::try_from(config.packet.get()).expect("a packet is shorter than 4 GiB"),
            relays: config.relays as u8,
            remembered: Vec::new(),
            hops: Vec::new(),
            free: Vec::new(),
            deadlines: BinaryHeap::new(),
            refused: false,
            least_timeout: Duration::ZERO,
            moves_deadlines: false,
            keeps_order: false,
            smoothed_rtt: Duration::ZERO,
        }
    }

    /// The same, but no ACK is late sooner than after `least`: where clocks are coarse and
    /// bursts long against round-trip times, deviations alone are too small a margin
    /// (RFC 6298 2.4).
    pub fn with_least_timeout(self, least: Duration) -> PathSender {
        PathSender { least_timeout: least, ..self }
    }

    /// The same, but a packet whose deadline passes is late only if it were late by what is known of
    /// round-trip times by then: where queues fill, those that left before are on their way for longer
    /// than was known when they left (RFC 6298 5.3 restarts the timer with each ACK).
    pub fn with_moving_deadlines(self) -> PathSender {
        PathSender { moves_deadlines: true, ..self }
    }

    /// The same, but packets pass their relays in the order of the slots, whatever the controller's. What
    /// it sends evenly comes to a relay that is now the first and now the last one as unevenly as the way
    /// to its places differs, and a relay that counts few packets in a window, or queues few, then refuses
    /// some. Not for a controller that wants to know the round trip to each relay alone
    /// ([`PairRtts::mean_to`]): that is learned from packets that pass it first.
    pub fn with_relays_in_order(self) -> PathSender {
        PathSender { keeps_order: true, ..self }
    }

    /// A packet to `destination`, or what it waits for.
    pub fn poll(&mut self, now: Time, destination: Slot) -> Wake<Departure> {
        match self.wake(now) {
            Wake::DepartNow(()) => {}
            Wake::WaitUntil(time) => return Wake::WaitUntil(time),
            Wake::AwaitOutcome => return Wake::AwaitOutcome,
        }
        self.poll_ready(now, destination)
    }

    /// The same for who has asked [`wake`](Self::wake) at this instant, and knows that a packet may leave.
    #[inline(always)]
    pub fn poll_ready(&mut self, now: Time, destination: Slot) -> Wake<Departure> {
        debug_assert_eq!(self.wake(now), Wake::DepartNow(()), "a packet may leave");
        let mut path = [Hop::default(); MAX_RELAYS];
        let path = &mut path[..self.relays()];
        self.refused =
            !self.controller.select(now, destination, Bytes::new(u64::from(self.packet)), path, &mut self.rng);
        if self.refused {
            return match self.controller.wake(now) {
                Wake::WaitUntil(time) => Wake::WaitUntil(time),
                // A controller that refuses what it has just said may leave knows of no time.
                Wake::DepartNow(()) | Wake::AwaitOutcome => Wake::AwaitOutcome,
            };
        }
        if self.keeps_order {
            path.sort_unstable_by_key(|hop| hop.slot.0);
        }
        let mut route = [destination; MAX_RELAYS + 1];
        for (slot, hop) in route.iter_mut().zip(&*path) {
            *slot = hop.slot;
        }
        let deadline = now + self.timeout(&route[..=self.relays()]);
        // Nonces were drawn once. The draw stays, or the controller's would be others and with them
        // every figure.
        self.rng.bits();
        let id = self.remember(now, deadline, destination, path);
        let mut relays = [Slot::default(); MAX_RELAYS];
        relays[..self.relays()].copy_from_slice(&route[..self.relays()]);
        let round_trip = self.smoothed_rtt();
        Wake::DepartNow(Departure { id, nonce: self.nonce(id), round_trip, relays, count: self.relays })
    }

    /// What a packet waits for: room in the table of those that are remembered, then for what
    /// the controller said when it refused one. An outcome alone is no reason to ask it again,
    /// unless it makes the controller name an earlier time.
    #[inline]
    pub fn wake(&self, now: Time) -> Wake {
        if self.free.is_empty() && self.remembered.len() == MAX_REMEMBERED {
            Wake::AwaitOutcome
        } else if self.refused {
            self.controller.wake(now)
        } else {
            Wake::DepartNow(())
        }
    }

    /// After so long the ACK of a packet over `route` (relays, then destination) is late.
    #[inline(always)]
    fn timeout(&self, route: &[Slot]) -> Duration {
        let by_pairs = self.rtts.timeout(route);
        let (&destination, path) = route.split_last().expect("a route has a destination");
        self.controller.timeout(path, destination, by_pairs).max(self.least_timeout)
    }

    fn nonce(&self, id: PacketId) -> u64 {
        self.rng.beside(u64::from(id.generation) << 32 | u64::from(id.index))
    }

    #[inline(always)]
    fn remember(&mut self, now: Time, deadline: Time, destination: Slot, path: &[Hop]) -> PacketId {
        let index = self.free.pop().unwrap_or_else(|| {
            let blank = Remembered { sent_at: now, deadline, generation: 0, destination, state: State::Free };
            make_room(&mut self.remembered, 1);
            self.remembered.push(blank);
            make_room(&mut self.hops, path.len());
            self.hops.extend_from_slice(path);
            (self.remembered.len() - 1) as u32
        });
        let entry = &mut self.remembered[index as usize];
        let generation = entry.generation;
        *entry = Remembered { sent_at: now, deadline, generation, destination, state: State::InFlight };
        let place = self.hops_of(index as usize);
        self.hops[place].copy_from_slice(path);
        self.await_deadline(deadline, index);
        PacketId { index, generation }
    }

    #[inline(always)]
    fn await_deadline(&mut self, deadline: Time, index: u32) {
        if self.deadlines.len() == self.deadlines.capacity() && !self.drop_stale() {
            self.deadlines.reserve_exact(self.deadlines.len() / 4 + LEAST_ROOM);
        }
        self.deadlines.push(Deadline { at: deadline, index });
    }

    /// How many relays each packet passes.
    pub fn relays(&self) -> usize {
        usize::from(self.relays)
    }

    /// Where the path of the packet at `index` stands among the hops.
    fn hops_of(&self, index: usize) -> core::ops::Range<usize> {
        index * self.relays()..(index + 1) * self.relays()
    }

    #[inline(always)]
    fn forget(&mut self, index: u32) {
        let entry = &mut self.remembered[index as usize];
        entry.state = State::Free;
        entry.generation = entry.generation.wrapping_add(1);
        make_room(&mut self.free, 1);
        self.free.push(index);
    }

    /// An ACK for packet `id` has come, with the nonce that it claims to know, and what it tells.
    pub fn on_ack(&mut self, now: Time, id: PacketId, nonce: u64, telemetry: &impl TelemetryField) -> AckVerdict {
        let index = id.index as usize;
        let entry = match self.remembered.get(index) {
            Some(entry) if entry.generation == id.generation && entry.state != State::Free => *entry,
            _ => return AckVerdict::Unknown,
        };
        if self.nonce(id) != nonce {
            return AckVerdict::Forged;
        }
        let rtt = now.since(entry.sent_at);
        let path = &self.hops[self.hops_of(index)];
        let mut route = [entry.destination; MAX_RELAYS + 1];
        for (slot, hop) in route.iter_mut().zip(path) {
            *slot = hop.slot;
        }
        self.rtts.sample(&route[..=self.relays()], rtt);
        // RFC 6298 2.3: SRTT <- 7/8 SRTT + 1/8 R
        self.smoothed_rtt = self.smoothed_rtt().map_or(rtt, |mean| (mean * 7 + rtt) / 8);
        let report = Report {
            now,
            sent_at: entry.sent_at,
            destination: entry.destination,
            path,
            outcome: Outcome::Acked,
            one_way_nanos: telemetry.one_way_nanos(entry.sent_at),
            stamps: telemetry.stamps(self.relays()),
            rtts: &self.rtts,
        };
        let verdict = if entry.state == State::InFlight {
            self.controller.on_outcome(&report, &mut self.rng);
            AckVerdict::Acked { rtt, early: entry.deadline.since(now) }
        } else {
            self.controller.on_late(&report, &mut self.rng);
            // The deadline was moved when it passed; it lay as far from sending as from now on.
            let first = entry.sent_at + entry.deadline.since(entry.sent_at) / 2;
            AckVerdict::Late { rtt, by: now.since(first) }
        };
        self.forget(id.index);
        verdict
    }

    /// Time has passed: reports each packet whose deadline is over.
    pub fn on_timer(&mut self, now: Time, mut lost: impl FnMut(PacketId)) {
        while let Some(deadline) = self.deadlines.peek() {
            let index = deadline.index;
            let stale = is_stale(&self.remembered, deadline);
            if deadline.at() > now && !stale {
                break;
            }
            if stale && self.drop_stale() {
                continue;
            }
            self.deadlines.pop();
            if stale {
                continue;
            }
            if self.remembered[index as usize].state == State::Late {
                self.forget(index);
                continue;
            }
            if self.moves_deadlines && self.move_deadline(now, index) {
                continue;
            }
            let entry = &mut self.remembered[index as usize];
            entry.state = State::Late;
            entry.deadline = entry.sent_at + entry.deadline.since(entry.sent_at) * 2;
            let entry = *entry;
            self.await_deadline(entry.deadline, index);
            let path = &self.hops[self.hops_of(index as usize)];
            let report = Report {
                now,
                sent_at: entry.sent_at,
                destination: entry.destination,
                path,
                outcome: Outcome::TimedOut,
                one_way_nanos: None,
                stamps: &[],
                rtts: &self.rtts,
            };
            self.controller.on_outcome(&report, &mut self.rng);
            lost(PacketId { index, generation: entry.generation });
        }
    }

    /// Whether the packet at `index`, whose deadline has passed, has another one by what is known now.
    #[inline(never)]
    fn move_deadline(&mut self, now: Time, index: u32) -> bool {
        let Remembered { sent_at, destination, .. } = self.remembered[index as usize];
        let path = &self.hops[self.hops_of(index as usize)];
        let mut route = [destination; MAX_RELAYS + 1];
        for (slot, hop) in route.iter_mut().zip(path) {
            *slot = hop.slot;
        }
        let deadline = sent_at + self.timeout(&route[..=self.relays()]);
        if deadline <= now {
            return false;
        }
        self.remembered[index as usize].deadline = deadline;
        self.await_deadline(deadline, index);
        true
    }

    /// Once most deadlines are stale, drops all of those together, which costs less for
    /// each than taking it from the heap; false if they are the lesser part.
    fn drop_stale(&mut self) -> bool {
        let live = self.remembered.len() - self.free.len();
        if 2 * live > self.deadlines.len() {
            return false;
        }
        let remembered = &self.remembered;
        self.deadlines.retain(|deadline| !is_stale(remembered, deadline));
        // After a crowd, its memory goes back.
        if self.deadlines.capacity() > 8 * (live + LEAST_ROOM) {
            self.deadlines.shrink_to(2 * live);
        }
        true
    }

    /// When to call `on_timer`: the next deadline.
    #[inline]
    pub fn timer(&self) -> Time {
        self.deadlines.peek().map_or(Time::MAX, Deadline::at)
    }

    /// When the packet at this place of the table left, if it is in flight and its deadline has not passed.
    pub fn in_flight_since(&self, index: usize) -> Option<Time> {
        self.remembered.get(index).filter(|entry| entry.state == State::InFlight).map(|entry| entry.sent_at)
    }

    /// Packets in flight whose deadline has not passed.
    pub fn in_flight(&self) -> usize {
        self.remembered.iter().filter(|entry| entry.state == State::InFlight).count()
    }

    /// The most packets that were remembered at once, in flight and late; no more than
    /// [`MAX_REMEMBERED`].
    pub fn most_remembered(&self) -> usize {
        self.remembered.len()
    }

    /// The controller, to look at.
    pub fn controller(&self) -> &dyn PathController {
        &*self.controller
    }

    /// The controller asks this manager from now on, if it asks any.
    pub fn set_manager(&mut self, manager: &Arc<Mutex<Manager>>) {
        self.controller.set_manager(manager);
    }

    /// The smoothed round-trip time over all paths, once one was seen.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        (self.smoothed_rtt > Duration::ZERO).then_some(self.smoothed_rtt)
    }

    /// The round-trip times learned so far.
    pub fn rtts(&self) -> &PairRtts {
        &self.rtts
    }

    /// What each remembered packet over this many relays takes of memory.
    pub fn remembered_bytes(relays: usize) -> usize {
        size_of::<Remembered>() + relays * size_of::<Hop>() + size_of::<Deadline>()
    }

    /// Memory in bytes, this value and all that it owns.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.controller.memory_bytes()
            + self.rtts.memory_bytes()
            + self.remembered.capacity() * size_of::<Remembered>()
            + self.hops.capacity() * size_of::<Hop>()
            + self.free.capacity() * size_of::<u32>()
            + self.deadlines.capacity() * size_of::<Deadline>()
    }
}

/// Whether the packet of `deadline` is forgotten, or has another one.
#[inline]
fn is_stale(remembered: &[Remembered], deadline: &Deadline) -> bool {
    let entry = &remembered[deadline.index as usize];
    entry.state == State::Free || entry.deadline != deadline.at()
}

/// The least room that a table grows by.
const LEAST_ROOM: usize = 8;

/// Room for `more` in a table; by a quarter of it, where doubling would leave a third of the memory
/// unused.
#[inline]
fn make_room<T>(table: &mut Vec<T>, more: usize) {
    if table.capacity() - table.len() < more {
        table.reserve_exact(table.len() / 4 + LEAST_ROOM.max(more));
    }
}

#[cfg(test)]
mod tests;

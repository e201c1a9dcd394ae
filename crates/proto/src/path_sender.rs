//! The sending machine: asks its controller for a path for each packet, remembers
//! what is in flight, and turns ACKs and missed deadlines into evidence.
//!
//! A packet whose ACK misses its deadline is reported as lost at once; it is
//! remembered for as long again, so that a late ACK still teaches the round-trip
//! time and is not mistaken for a forged one. [Raiber 2010] 4.2.1.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anabranch_control::path::{Hop, MAX_RELAYS, Outcome, PathController, Report, Slot};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::{PairRtts, RttConfig};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_control::wake::Wake;

use crate::packet::{PacketId, Telling};

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
    /// What the ACK must prove to know.
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
    nonce: u64,
    destination: Slot,
    generation: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    InFlight,
    Late,
}

/// When a remembered packet's deadline passes; stale once that packet is forgotten.
type Deadline = Reverse<(Time, u32, u32)>;

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
            smoothed_rtt: Duration::ZERO,
        }
    }

    /// The same, but no ACK is late sooner than after `least`: where clocks are coarse and
    /// bursts long against round-trip times, deviations alone are too small a margin
    /// (RFC 6298 2.4).
    pub fn with_least_timeout(self, least: Duration) -> PathSender {
        PathSender { least_timeout: least, ..self }
    }

    /// A packet to `destination`, or what it waits for.
    pub fn poll(&mut self, now: Time, destination: Slot) -> Wake<Departure> {
        match self.wake(now) {
            Wake::DepartNow(()) => {}
            Wake::WaitUntil(time) => return Wake::WaitUntil(time),
            Wake::AwaitOutcome => return Wake::AwaitOutcome,
        }
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
        let mut route = [destination; MAX_RELAYS + 1];
        for (slot, hop) in route.iter_mut().zip(&*path) {
            *slot = hop.slot;
        }
        let deadline = now + self.rtts.timeout(&route[..=self.relays()]).max(self.least_timeout);
        let nonce = self.rng.bits();
        let id = self.remember(now, deadline, nonce, destination, path);
        let mut relays = [Slot::default(); MAX_RELAYS];
        relays[..self.relays()].copy_from_slice(&route[..self.relays()]);
        let round_trip = self.smoothed_rtt();
        Wake::DepartNow(Departure { id, nonce, round_trip, relays, count: self.relays })
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

    fn remember(&mut self, now: Time, deadline: Time, nonce: u64, destination: Slot, path: &[Hop]) -> PacketId {
        let index = self.free.pop().unwrap_or_else(|| {
            let blank = Remembered { sent_at: now, deadline, nonce, destination, generation: 0, state: State::Free };
            self.remembered.push(blank);
            self.hops.extend(path);
            (self.remembered.len() - 1) as u32
        });
        let entry = &mut self.remembered[index as usize];
        let generation = entry.generation;
        *entry = Remembered { sent_at: now, deadline, nonce, destination, generation, state: State::InFlight };
        let place = self.hops_of(index as usize);
        self.hops[place].copy_from_slice(path);
        self.deadlines.push(Reverse((deadline, index, generation)));
        PacketId { index, generation }
    }

    /// How many relays each packet passes.
    pub fn relays(&self) -> usize {
        usize::from(self.relays)
    }

    /// Where the path of the packet at `index` stands among the hops.
    fn hops_of(&self, index: usize) -> core::ops::Range<usize> {
        index * self.relays()..(index + 1) * self.relays()
    }

    fn forget(&mut self, index: u32) {
        let entry = &mut self.remembered[index as usize];
        entry.state = State::Free;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// An ACK for packet `id` has come, with the nonce that it claims to know, and what it tells.
    pub fn on_ack(&mut self, now: Time, id: PacketId, nonce: u64, telemetry: &impl Telling) -> AckVerdict {
        let index = id.index as usize;
        let entry = match self.remembered.get(index) {
            Some(entry) if entry.generation == id.generation && entry.state != State::Free => *entry,
            _ => return AckVerdict::Unknown,
        };
        if entry.nonce != nonce {
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
        while let Some(&Reverse((deadline, index, generation))) = self.deadlines.peek() {
            let entry = &self.remembered[index as usize];
            let stale = entry.generation != generation;
            if deadline > now && !stale {
                break;
            }
            if stale && self.drop_stale() {
                continue;
            }
            self.deadlines.pop();
            if stale {
                continue;
            }
            let place = self.hops_of(index as usize);
            let entry = &mut self.remembered[index as usize];
            if entry.state == State::Late {
                self.forget(index);
                continue;
            }
            entry.state = State::Late;
            entry.deadline = entry.sent_at + entry.deadline.since(entry.sent_at) * 2;
            self.deadlines.push(Reverse((entry.deadline, index, generation)));
            let path = &self.hops[place];
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
            lost(PacketId { index, generation });
        }
    }

    /// Once most deadlines are stale, drops all of those together, which costs less for
    /// each than taking it from the heap; false if they are the lesser part.
    fn drop_stale(&mut self) -> bool {
        let live = self.remembered.len() - self.free.len();
        if 2 * live > self.deadlines.len() {
            return false;
        }
        let remembered = &self.remembered;
        self.deadlines.retain(|Reverse((_, index, generation))| remembered[*index as usize].generation == *generation);
        true
    }

    /// When to call `on_timer`: the next deadline.
    #[inline]
    pub fn timer(&self) -> Time {
        self.deadlines.peek().map_or(Time::MAX, |Reverse((at, ..))| *at)
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

    /// The smoothed round-trip time over all paths, once one was seen.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        (self.smoothed_rtt > Duration::ZERO).then_some(self.smoothed_rtt)
    }

    /// The round-trip times learned so far.
    pub fn rtts(&self) -> &PairRtts {
        &self.rtts
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

#[cfg(test)]
mod tests {
    use anabranch_control::path::registry::{self, Pacing, Setup};
    use proptest::prelude::*;

    use super::*;
    use crate::packet::Telemetry;
    use anabranch_control::rng::Rng;

    fn sender(controller: &str) -> PathSender {
        let config = SenderConfig { peers: 6, relays: 3, packet: Bytes::new(1500), rtt: RttConfig::default() };
        let setup = Setup { peers: 6, packet: config.packet, start: Time::ZERO, pacing: Pacing::Burst };
        let made = registry::find(controller).unwrap().build.make(&setup, &toml::Table::new());
        let made = made.unwrap_or_else(|| panic!("{controller} needs a simulation"));
        PathSender::new(&config, made.unwrap(), Rng::stream(1, "sender"))
    }

    const RTT: Duration = Duration::from_millis(100);

    #[test]
    fn an_ack_counts_once() {
        let mut sender = sender("q-learning");
        let departure = sender.poll(Time::ZERO, Slot(5)).departs().unwrap();
        assert!(!departure.relays().contains(&Slot(5)));
        let now = Time::ZERO + RTT;
        assert_eq!(
            sender.on_ack(now, departure.id, departure.nonce, &Telemetry::default()),
            AckVerdict::Acked { rtt: RTT, early: Duration::SECOND * 4 - RTT }
        );
        assert_eq!(sender.on_ack(now, departure.id, departure.nonce, &Telemetry::default()), AckVerdict::Unknown);
    }

    #[test]
    fn a_forged_ack_has_no_effect() {
        let mut sender = sender("q-learning");
        let departure = sender.poll(Time::ZERO, Slot(5)).departs().unwrap();
        let now = Time::ZERO + RTT;
        let before = format!("{sender:?}");
        assert_eq!(sender.on_ack(now, departure.id, departure.nonce ^ 1, &Telemetry::default()), AckVerdict::Forged);
        assert_eq!(
            sender.on_ack(now, PacketId { index: 9, generation: 0 }, 0, &Telemetry::default()),
            AckVerdict::Unknown
        );
        assert_eq!(format!("{sender:?}"), before);
        assert_eq!(
            sender.on_ack(now, departure.id, departure.nonce, &Telemetry::default()),
            AckVerdict::Acked { rtt: RTT, early: Duration::SECOND * 4 - RTT }
        );
    }

    #[test]
    fn a_missed_deadline_is_a_loss_and_its_late_ack_teaches_the_round_trip() {
        let mut sender = sender("aimd");
        let departure = sender.poll(Time::ZERO, Slot(5)).departs().unwrap();
        let deadline = sender.timer();
        assert_eq!(deadline, Time::ZERO + Duration::SECOND * 4, "four unsampled pairs");
        let mut lost = Vec::new();
        sender.on_timer(deadline, |id| lost.push(id));
        assert_eq!(lost, [departure.id]);
        let late = deadline + Duration::from_millis(500);
        let verdict = sender.on_ack(late, departure.id, departure.nonce, &Telemetry::default());
        assert_eq!(verdict, AckVerdict::Late { rtt: Duration::from_millis(4500), by: Duration::from_millis(500) });
        assert!(sender.rtts.mean_to(departure.relays()[0]).is_some());
    }

    #[test]
    fn no_deadline_is_sooner_than_the_least_timeout() {
        for least_ms in [0, 50] {
            let mut sender = sender("random").with_least_timeout(Duration::from_millis(least_ms));
            let mut now = Time::ZERO;
            for _ in 0..500 {
                let departure = sender.poll(now, Slot(5)).departs().unwrap();
                now += Duration::from_nanos(100_000);
                sender.on_ack(now, departure.id, departure.nonce, &Telemetry::default());
            }
            let departure = sender.poll(now, Slot(5)).departs().unwrap();
            let mut lost = Vec::new();
            sender.on_timer(now + Duration::from_millis(49), |id| lost.push(id));
            assert_eq!(lost.contains(&departure.id), least_ms == 0, "{least_ms}");
            sender.on_timer(now + Duration::from_millis(50), |id| lost.push(id));
            assert!(lost.contains(&departure.id));
        }
    }

    #[test]
    fn what_is_never_acked_is_forgotten_in_the_end() {
        let mut sender = sender("random");
        for _ in 0..100 {
            assert!(sender.poll(Time::ZERO, Slot(5)).departs().is_some());
        }
        let mut lost = 0;
        while sender.timer() < Time::MAX {
            sender.on_timer(sender.timer(), |_| lost += 1);
        }
        assert_eq!((lost, sender.free.len(), sender.in_flight()), (100, 100, 0));
    }

    #[test]
    fn memory_is_bounded_when_nothing_limits_the_rate() {
        let mut sender = sender("random");
        let sent = (0..MAX_REMEMBERED + 10).filter(|_| sender.poll(Time::ZERO, Slot(5)).departs().is_some()).count();
        assert_eq!(sent, MAX_REMEMBERED);
    }

    proptest! {
        /// Whatever ACKs come in whatever order, each packet has one outcome.
        #[test]
        fn every_packet_is_acked_or_lost_exactly_once(
            steps in proptest::collection::vec((0u64..400, 0usize..64, any::<bool>()), 1..300),
        ) {
            let mut sender = sender("q-learning");
            let (mut now, mut sent, mut lost) = (Time::ZERO, Vec::new(), Vec::new());
            let mut acked = Vec::new();
            for (wait_ms, pick, ack) in steps {
                now += Duration::from_millis(wait_ms);
                sender.on_timer(now, |id| lost.push(id));
                sent.extend(sender.poll(now, Slot(5)).departs());
                if let (true, Some(departure)) = (ack, sent.get(pick % sent.len().max(1))) {
                    match sender.on_ack(now, departure.id, departure.nonce, &Telemetry::default()) {
                        AckVerdict::Acked { .. } => {
                            prop_assert!(!lost.contains(&departure.id) && !acked.contains(&departure.id));
                            acked.push(departure.id);
                        }
                        AckVerdict::Late { .. } => prop_assert!(lost.contains(&departure.id)),
                        AckVerdict::Unknown => {
                            prop_assert!(lost.contains(&departure.id) || acked.contains(&departure.id));
                        }
                        AckVerdict::Forged => prop_assert!(false, "the nonce was right"),
                    }
                }
            }
            prop_assert_eq!(sent.len(), acked.len() + lost.len() + sender.in_flight());
        }
    }
}

//! A file over relays that is stepped from outside: observed by fixed indices, begun again with another seed, and copied
//! to come back to. A clone is a snapshot that goes on as the original would, with disks of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_control::path::Slot;
use anabranch_control::path::registry::Setup;
use anabranch_control::rng::Rng;
use anabranch_control::rtt::RttConfig;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::overlay::courier::{Courier, SendCounters};
use anabranch_proto::overlay::message::{FileName, Offer};
use anabranch_proto::overlay::path_sender::{PathSender, SenderConfig};
use anabranch_proto::overlay::peer::{Peer, Sender};
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::seal::Identity;
use anabranch_proto::transfer::{FileSender, Limits, Receiver, TransferError, Transferred};
use anabranch_sim::fabric::NodeId;

use super::OneFile;
use super::network::Network;
use crate::soak::disks::Disks;
use crate::soak::store::{MemorySource, MemoryStore, Shelf, SourceFault};
use crate::world::{Address, OnTheWire, World};

/// As `send` has it (`SenderSetup`), and so what follows of it: no ACK is late sooner.
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);

/// What [`SteppedFile::observe`] writes, in its order, with units. "New" is since it was observed last. What is not known
/// yet is 0.
pub const OBSERVATION: [(&str, &str); OBSERVATION_LENGTH] = [
    ("arrived_share", "of the file, what is known to have arrived, 0 to 1"),
    ("goodput_kbyte_s", "new bytes of that, kB/s"),
    ("sent_packets_s", "new packets that the sender sent, packets/s"),
    ("acked_packets_s", "new packets of those that were answered in time, packets/s"),
    ("loss_share", "new packets believed to be lost over those and answers in time, 0 to 1; 0 without either"),
    ("refused_packets_s", "new datagrams that relays refused because of their limits, packets/s"),
    ("srtt_ms", "smoothed round-trip time over all paths, ms"),
    ("in_flight_packets", "packets whose deadline has not passed, packets"),
    ("rate_kbyte_s", "what the controller believes that the relays forward, together, kB/s"),
    ("done", "1 once the sender knows that the receiver has checked all of it, else 0"),
];

/// Numbers in an observation.
pub const OBSERVATION_LENGTH: usize = 10;

/// What was there when it was observed last.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    at: Time,
    arrived: u64,
    packets: SendCounters,
    refused: u64,
}

/// A file on its way. Relays die when whoever steps it says, not as its case has it.
#[allow(missing_debug_implementations, reason = "a world has none")]
#[derive(Clone)]
pub struct SteppedFile {
    case: OneFile,
    offer: Offer,
    file: Arc<[u8]>,
    network: World<Peer, Network, OnTheWire, (), Disks>,
    /// What relays had refused that are gone.
    refused_before: u64,
    observed: Observed,
}

/// Of the relays, in their order, and of the receiver.
pub(super) fn addresses(relays: usize) -> Vec<SocketAddr> {
    (0..=relays as u32).map(|number| SocketAddr::of(NodeId(number))).collect()
}

/// Datagrams that a relay has refused because of its limit.
pub(super) fn refused(relay: &RelayNode) -> u64 {
    relay.counters().refused_data + relay.counters().refused_acks
}

impl SteppedFile {
    /// Relays, receiver and sender are there; nothing has happened yet.
    ///
    /// # Panics
    ///
    /// For paths that can't be, controllers for simulations only, and parameters that they do not take.
    pub fn new(case: &OneFile) -> SteppedFile {
        let file: Arc<[u8]> = (0..case.length).map(|place| (place >> 8) as u8 ^ place as u8).collect();
        let (length, hash) = (case.length as u64, *blake3::hash(&file).as_bytes());
        let offer = Offer { name: FileName::sanitised("file"), length, block: case.block(), hash };
        let network = World::new(Network::new(case), OnTheWire, (), disks(&file, case.seed));
        let (case, observed) = (case.clone(), Observed::default());
        let mut world = SteppedFile { case, offer, file, network, refused_before: 0, observed };
        world.join_all();
        world
    }

    /// Back to the beginning, with the random streams of `seed`: what one that is new has with that seed. Keys are
    /// drawn anew, as in each run; nothing that is observed follows from them.
    pub fn reset(&mut self, seed: u64) {
        self.case.seed = seed;
        self.network.reset(seed);
        *self.network.worker_mut() = disks(&self.file, seed);
        (self.refused_before, self.observed) = (0, Observed::default());
        self.join_all();
    }

    fn join_all(&mut self) {
        let SteppedFile { case, offer, network, .. } = self;
        let count = case.relays.len();
        let packet = Bytes::new(case.packet as u64);
        let config = SenderConfig { peers: count + 1, relays: case.hops, packet, rtt: RttConfig::default() };
        let setup = Setup { peers: count + 1, packet, start: Time::ZERO, pacing: case.pacing };
        let made = case.controller.build.make(&setup, &case.parameters).expect("not for simulation only");
        let sender =
            PathSender::new(&config, made.expect("its parameters are valid"), Rng::stream(case.seed, "sender"));
        let sender = sender.with_least_timeout(LEAST_TIMEOUT).with_moving_deadlines();
        let deliver = |sender| Courier::new(sender, addresses(count), packet, None, [3; 32]);
        let courier = match case.controller.reads_telemetry {
            true => deliver(sender.with_relays_in_order()).with_bound(),
            false => deliver(sender),
        };
        let identity = Identity::generate();
        let key = Some(identity.public());
        let sender = FileSender::new(Time::ZERO, courier, Slot(count as u16), key, offer.clone());
        for &(model, limit) in &case.relays {
            network.join(Peer::new(RelayNode::new(model, limit), None, None));
        }
        network.fabric_mut().put_next_behind(case.downlink);
        network.join(Peer::new(RelayNode::end(), Some(Receiver::new(identity, Limits::default())), None));
        network.join(Peer::new(RelayNode::end(), None, Some(Sender::File(Box::new(sender)))));
    }

    fn node(&self, number: usize) -> Option<&Peer> {
        self.network.node(NodeId(number as u32))
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Time {
        self.network.now()
    }

    /// Lets everything happen that happens before `until`.
    pub fn step(&mut self, until: Time) {
        self.network.step(until);
        self.network.debug_assert_no_late_timers();
    }

    /// A relay is gone, by its place in the case's list; nobody is told.
    pub fn kill(&mut self, relay: usize) {
        if relay < self.case.relays.len()
            && let Some(dead) = self.network.leave(NodeId(relay as u32))
        {
            self.refused_before += refused(dead.relay());
        }
    }

    /// From now on a relay, by its place in the case's list, forwards `limit`; not if it is gone.
    pub fn set_limit(&mut self, relay: usize, limit: Rate) {
        if relay < self.case.relays.len() {
            self.network.act(NodeId(relay as u32), |peer, now, _| peer.set_limit(now, limit));
        }
    }

    /// The relays that are there.
    pub fn relays(&self) -> impl Iterator<Item = &RelayNode> {
        (0..self.case.relays.len()).filter_map(|number| self.node(number)).map(Peer::relay)
    }

    /// Who receives.
    pub fn receiver(&self) -> &Receiver {
        self.node(self.case.relays.len()).and_then(Peer::receiver).expect("it stays where it joined")
    }

    /// Who sends.
    pub fn sender(&self) -> &FileSender {
        match self.node(self.case.relays.len() + 1).and_then(Peer::sender) {
            Some(Sender::File(sender)) => sender,
            _ => unreachable!("it stays where it joined"),
        }
    }

    /// What became of the file, as its sender knows.
    pub fn outcome(&self) -> Option<&Result<Transferred, TransferError>> {
        self.sender().outcome()
    }

    /// Writes what [`OBSERVATION`] says.
    pub fn observe(&mut self, into: &mut [f32; OBSERVATION_LENGTH]) {
        let now = self.now();
        let sender = self.sender();
        let (arrived, courier) = (sender.arrived_bytes(), sender.courier());
        let refused = self.refused_before + self.relays().map(refused).sum::<u64>();
        let seen = Observed { at: now, arrived, packets: *courier.counters(), refused };
        let before = self.observed;
        let seconds = now.since(before.at).as_secs_f64();
        let rate = |new: u64| if seconds > 0.0 { new as f64 / seconds } else { 0.0 };
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let acked = seen.packets.acked - before.packets.acked;
        let lost = seen.packets.lost - before.packets.lost;
        let rates =
            (0..self.case.relays.len()).filter_map(|slot| courier.sender().controller().rate(Slot(slot as u16)));
        let is_done = matches!(sender.outcome(), Some(Ok(_)));
        let numbers: [f64; OBSERVATION_LENGTH] = [
            share(arrived as f64, self.case.length as f64),
            rate(arrived - before.arrived) / 1e3,
            rate(seen.packets.sent - before.packets.sent),
            rate(acked),
            share(lost as f64, (acked + lost) as f64),
            rate(refused - before.refused),
            courier.smoothed_rtt().map_or(0.0, Duration::as_millis_f64),
            courier.sender().in_flight() as f64,
            rates.map(Rate::bytes_per_sec).sum::<f64>() / 1e3,
            f64::from(u8::from(is_done)),
        ];
        *into = numbers.map(|number| number as f32);
        self.observed = seen;
    }
}

/// Who does the jobs: the receiver's disk and the sender's file, in no time.
fn disks(file: &Arc<[u8]>, seed: u64) -> Disks {
    let store = MemoryStore::new(Shelf::default(), u64::MAX);
    Disks::new(store, MemorySource::new(Arc::clone(file), SourceFault::None), [None; 2], seed)
}

#[cfg(test)]
mod tests {
    use anabranch_control::path::registry::{self, Pacing};
    use anabranch_proto::limiter::LimitModel;
    use anabranch_sim::delay::DelayModel;

    use super::*;

    /// A megabyte over eight relays of 100 kB/s, whose positions and choices follow from `seed`.
    fn case(controller: &str, seed: u64) -> OneFile {
        let limit = Rate::from_bytes_per_sec(100_000);
        OneFile {
            relays: vec![(LimitModel::Queue { longest: Duration::from_millis(200) }, limit); 8],
            dying: Vec::new(),
            downlink: None,
            hops: 2,
            delay: DelayModel::Plane {
                span: Duration::from_millis(60),
                access: Duration::from_millis(5),
                stretch: 1.0,
            },
            jitter: 0.1,
            controller: registry::find(controller).unwrap(),
            parameters: toml::Table::new(),
            pacing: Pacing::Paced,
            packet: 1400,
            length: 1_000_000,
            seed,
        }
    }

    type Seen = [f32; OBSERVATION_LENGTH];

    /// What is seen after each of `steps` more steps of 100 ms.
    fn course(world: &mut SteppedFile, steps: usize) -> Vec<Seen> {
        let mut step = || {
            world.step(world.now() + Duration::from_millis(100));
            let mut seen = [f32::NAN; OBSERVATION_LENGTH];
            world.observe(&mut seen);
            seen
        };
        (0..steps).map(|_| step()).collect()
    }

    fn of(seen: &Seen, name: &str) -> f32 {
        seen[OBSERVATION.iter().position(|(other, _)| *other == name).unwrap()]
    }

    #[test]
    fn one_that_is_reset_is_as_one_that_is_new_with_that_seed() {
        for controller in ["explicit-rate", "timeouts", "aimd", "flow:cubic"] {
            let mut world = SteppedFile::new(&case(controller, 1));
            let first = course(&mut world, 30);
            world.kill(0);
            world.set_limit(1, Rate::from_bytes_per_sec(5_000));
            course(&mut world, 10);
            for seed in [2, 1] {
                world.reset(seed);
                let again = course(&mut world, 30);
                let new = course(&mut SteppedFile::new(&case(controller, seed)), 30);
                assert!(again == new && (again == first) == (seed == 1), "{controller}, seed {seed}");
            }
        }
    }

    #[test]
    fn a_snapshot_goes_on_as_the_original_does_and_may_be_gone_back_to() {
        for controller in ["explicit-rate", "timeouts", "aimd", "flow:cubic"] {
            let mut world = SteppedFile::new(&case(controller, 3));
            course(&mut world, 20);
            let snapshot = world.clone();
            let original = course(&mut world, 40);
            assert!(original.iter().any(|seen| of(seen, "goodput_kbyte_s") > 0.0), "{controller}");
            for _ in 0..2 {
                assert!(course(&mut snapshot.clone(), 40) == original, "{controller}");
            }
        }
    }

    #[test]
    fn what_is_observed_is_what_happened_in_the_units_that_are_named() {
        let mut world = SteppedFile::new(&case("explicit-rate", 1));
        let seen = course(&mut world, 100);
        assert!(seen.iter().flatten().all(|number| number.is_finite() && *number >= 0.0));
        let kilobytes: f64 = seen.iter().map(|one| f64::from(of(one, "goodput_kbyte_s")) * 0.1).sum();
        assert!((kilobytes - 1000.0).abs() < 0.1, "{kilobytes} kB");
        let done = seen.iter().position(|one| of(one, "done") == 1.0).expect("it arrives within ten seconds");
        let took = world.outcome().unwrap().as_ref().unwrap().took;
        assert_eq!(done as u64, took.as_nanos() / 100_000_000);
        assert!(seen[..done].iter().all(|one| of(one, "done") == 0.0));
        assert_eq!((of(&seen[0], "arrived_share"), of(&seen[done], "arrived_share")), (0.0, 1.0));
        let middle = &seen[done / 2];
        assert!(of(middle, "srtt_ms") > 5.0 && of(middle, "srtt_ms") < 1000.0, "{middle:?}");
        assert!(of(middle, "in_flight_packets") > 0.0 && of(middle, "sent_packets_s") > 0.0, "{middle:?}");
        // Eight relays of 100 kB/s forward no more than that, whatever is believed of them.
        assert!(of(middle, "rate_kbyte_s") > 0.0 && of(middle, "goodput_kbyte_s") < 800.0, "{middle:?}");
    }

    #[test]
    fn relays_that_are_gone_or_forward_less_hold_a_file_up() {
        let mut world = SteppedFile::new(&case("explicit-rate", 1));
        course(&mut world, 15);
        let mut fewer = world.clone();
        (0..5).for_each(|relay| fewer.kill(relay));
        let mut slower = world.clone();
        (0..8).for_each(|relay| slower.set_limit(relay, Rate::from_bytes_per_sec(10_000)));
        assert_eq!((world.relays().count(), fewer.relays().count()), (8, 3));
        let arrives = |world: &mut SteppedFile| {
            course(world, 15);
            world.sender().arrived_bytes()
        };
        let [all, fewer, slower] = [&mut world, &mut fewer, &mut slower].map(arrives);
        assert!(fewer < all && slower < all, "{all} {fewer} {slower}");
        // What relays had refused that are gone is not taken back.
        let mut refusing = SteppedFile::new(&case("aimd", 1));
        course(&mut refusing, 60);
        (0..3).for_each(|relay| refusing.kill(relay));
        assert!(course(&mut refusing, 10).iter().all(|one| of(one, "refused_packets_s") >= 0.0));
    }
}

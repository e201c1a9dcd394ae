//! An overlay that is stepped from outside: observed by fixed indices, begun again with another seed, and copied to come
//! back to. A clone is a snapshot that goes on as the original would.

use std::sync::{Arc, Mutex, MutexGuard};

use anabranch_control::path::Slot;
use anabranch_control::path::perfect::Manager;
use anabranch_control::registry::ParameterError;
use anabranch_control::time::Time;
use anabranch_control::units::Rate;
use anabranch_proto::machine::Out;
use anabranch_proto::overlay::overlay_peer::{OverlayEvent, OverlayPeer};
use anabranch_proto::overlay::packet::{Kind, Telemetry};
use anabranch_scenario::overlay::Scenario;
use anabranch_sim::fabric::NodeId;
use anabranch_sim::pairs::Pairs;

use super::controllers::SharedManager;
use super::setup::{self, AsTheyAre, Routed, Sharding};
use crate::world::{Observer, World};

/// What [`SteppedOverlay::observe`] writes of a peer, in its order, with units. "New" is since the peer was observed
/// last. What is not known yet is 0.
pub const OBSERVATION: [(&str, &str); OBSERVATION_LENGTH] = [
    ("sent_packets_s", "new data packets that it sent, packets/s"),
    ("acked_packets_s", "new ACKs of them that came in time, packets/s"),
    ("received_packets_s", "new data packets that reached it as their destination, packets/s"),
    ("refused_packets_s", "new packets and ACKs that it refused because of its limit, packets/s"),
    ("loss_share", "new deadlines that passed over those and ACKs in time, 0 to 1; 0 without either"),
    ("srtt_ms", "smoothed round-trip time over all paths, ms"),
    ("in_flight_packets", "packets whose deadline has not passed, packets"),
    ("rate_kbyte_s", "what its controller believes that the peers it knows forward for it, together, kB/s"),
    ("limited_share", "of the peers that it knows those for whom it believes a rate, 0 to 1"),
];

/// Numbers in an observation.
pub const OBSERVATION_LENGTH: usize = 9;

/// What has happened at one peer.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    sent: u64,
    acked: u64,
    timed_out: u64,
    received: u64,
    refused: u64,
}

/// Counts by peer.
#[derive(Clone, Debug, Default)]
struct Tallies(Vec<Tally>);

impl Observer<OverlayPeer<u32, Telemetry>> for Tallies {
    #[inline]
    fn on_event(&mut self, _: Time, node: NodeId, event: OverlayEvent) {
        if self.0.len() <= node.index() {
            self.0.resize(node.index() + 1, Tally::default());
        }
        let tally = &mut self.0[node.index()];
        match event {
            OverlayEvent::Sent => tally.sent += 1,
            OverlayEvent::Acked { .. } => tally.acked += 1,
            OverlayEvent::TimedOut => tally.timed_out += 1,
            OverlayEvent::Delivered => tally.received += 1,
            OverlayEvent::Refused(Kind::Data | Kind::Ack) => tally.refused += 1,
            OverlayEvent::Swallowed(_) | OverlayEvent::LateAck | OverlayEvent::ForgedAck => {}
        }
    }
}

/// An overlay at work. Limits change as whoever steps it says, not as its scenario does.
#[allow(missing_debug_implementations, reason = "a world has none")]
pub struct SteppedOverlay {
    world: World<OverlayPeer<u32, Telemetry>, Pairs<Routed<Telemetry>, false>, AsTheyAre, Tallies, ()>,
    manager: SharedManager,
    scenario: Arc<Scenario>,
    /// Each peer when it was observed last.
    observed: Vec<(Time, Tally)>,
}

/// The manager, for a look or a copy.
fn lock(manager: &Mutex<Manager>) -> MutexGuard<'_, Manager> {
    manager.lock().expect("no sender panics while it asks the manager")
}

impl Clone for SteppedOverlay {
    /// With a manager of its own, where there is one: what the copy sends is not booked for the original.
    fn clone(&self) -> SteppedOverlay {
        let mut world = self.world.clone();
        let manager = self.manager.as_ref().map(|manager| Arc::new(Mutex::new(lock(manager).clone())));
        if let Some(manager) = &manager {
            for node in (0..self.peers() as u32).map(NodeId) {
                world.act(node, |peer, _, out| {
                    peer.set_manager(manager);
                    out.keep_timer();
                });
            }
        }
        SteppedOverlay { world, manager, scenario: Arc::clone(&self.scenario), observed: self.observed.clone() }
    }
}

impl SteppedOverlay {
    /// All peers of `scenario` are there; nothing has happened yet.
    ///
    /// # Errors
    ///
    /// What the controller says of its parameters.
    pub fn new(scenario: &Scenario) -> Result<SteppedOverlay, ParameterError> {
        let (parts, manager) = setup::world::<Telemetry, Tallies, false>(scenario, Sharding::NONE)?;
        let [world] = parts.into_shards().try_into().unwrap_or_else(|_| unreachable!("there is one shard"));
        let observed = vec![(Time::ZERO, Tally::default()); scenario.overlay.peers];
        Ok(SteppedOverlay { world, manager, scenario: Arc::new(scenario.clone()), observed })
    }

    /// Back to the beginning, with the random streams of `seed`: what one that is new has with that seed. The world's
    /// memory stays; peers and their controllers are made anew.
    pub fn reset(&mut self, seed: u64) {
        Arc::make_mut(&mut self.scenario).seed = seed;
        self.world.reset(seed);
        *self.world.observer_mut() = Tallies::default();
        self.observed.fill((Time::ZERO, Tally::default()));
        let made = setup::peers(&self.scenario, self.world.fabric().delays());
        let (peers, manager) = made.expect("the controller's parameters were accepted before");
        self.manager = manager;
        for peer in peers {
            self.world.join(peer.expect("the controller's parameters were accepted before"));
        }
    }

    /// How many peers there are.
    pub fn peers(&self) -> usize {
        self.scenario.overlay.peers
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// Lets everything happen that happens before `until`.
    pub fn step(&mut self, until: Time) {
        self.world.step(until);
    }

    /// From now on `peer` forwards `limit`.
    pub fn set_limit(&mut self, peer: usize, limit: Rate) {
        let node = peer as u32;
        self.world.act(NodeId(node), |peer, now, _| peer.set_limit(now, limit));
        if let Some(manager) = &self.manager {
            lock(manager).set_limit(node, limit);
        }
    }

    /// Writes what [`OBSERVATION`] says of `peer`.
    ///
    /// # Panics
    ///
    /// If there is no such peer.
    pub fn observe(&mut self, peer: usize, into: &mut [f32; OBSERVATION_LENGTH]) {
        let now = self.now();
        let tally = self.world.observer().0.get(peer).copied().unwrap_or_default();
        let (at, before) = std::mem::replace(&mut self.observed[peer], (now, tally));
        let seconds = now.since(at).as_secs_f64();
        let rate = |new: u64| if seconds > 0.0 { (new as f64 / seconds) as f32 } else { 0.0 };
        let share = |part: f64, whole: f64| if whole > 0.0 { (part / whole) as f32 } else { 0.0 };
        let (acked, timed_out) = (tally.acked - before.acked, tally.timed_out - before.timed_out);
        let node = self.world.node(NodeId(peer as u32)).expect("peers stay");
        let (sender, known) = (node.sender(), node.known().len());
        let rates = || (0..known).filter_map(|slot| sender.controller().rate(Slot(slot as u16)));
        *into = [
            rate(tally.sent - before.sent),
            rate(acked),
            rate(tally.received - before.received),
            rate(tally.refused - before.refused),
            share(timed_out as f64, (acked + timed_out) as f64),
            sender.smoothed_rtt().map_or(0.0, |rtt| rtt.as_millis_f64() as f32),
            sender.in_flight() as f32,
            (rates().map(Rate::bytes_per_sec).sum::<f64>() / 1e3) as f32,
            share(rates().count() as f64, known as f64),
        ];
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::path::registry;
    use anabranch_control::time::Duration;
    use anabranch_scenario::overlay::default_offered;

    use super::*;

    fn overlay(controller: &str) -> SteppedOverlay {
        let mut scenario = Scenario::standard();
        scenario.overlay.controller = registry::find(controller).unwrap();
        scenario.overlay.offered = default_offered(scenario.overlay.controller);
        SteppedOverlay::new(&scenario).unwrap()
    }

    /// What is seen of all peers after each of `seconds` more seconds.
    fn course(overlay: &mut SteppedOverlay, seconds: u64) -> Vec<[f32; OBSERVATION_LENGTH]> {
        let mut seen = Vec::new();
        for _ in 0..seconds {
            overlay.step(overlay.now() + Duration::SECOND);
            for peer in 0..overlay.peers() {
                let mut one = [f32::NAN; OBSERVATION_LENGTH];
                overlay.observe(peer, &mut one);
                seen.push(one);
            }
        }
        seen
    }

    fn mean(course: &[[f32; OBSERVATION_LENGTH]], name: &str) -> f32 {
        let index = OBSERVATION.iter().position(|(other, _)| *other == name).unwrap();
        course.iter().map(|seen| seen[index]).sum::<f32>() / course.len() as f32
    }

    #[test]
    fn a_snapshot_goes_on_as_the_original_does_and_may_be_gone_back_to() {
        let all = ["random", "aimd", "q-learning", "tomography", "explicit-rate", "timeouts", "flow:cubic", "perfect"];
        for controller in all {
            let mut world = overlay(controller);
            course(&mut world, 8);
            let snapshot = world.clone();
            let original = course(&mut world, 8);
            assert!(mean(&original, "received_packets_s") > 1.0, "{controller}");
            for _ in 0..2 {
                world = snapshot.clone();
                assert!(course(&mut world, 8) == original, "{controller}");
            }
        }
    }

    #[test]
    fn one_that_is_reset_is_as_one_that_is_new_with_that_seed() {
        for controller in ["random", "q-learning", "explicit-rate", "flow:cubic", "perfect"] {
            let mut scenario = Scenario::standard();
            scenario.overlay.controller = registry::find(controller).unwrap();
            scenario.overlay.offered = default_offered(scenario.overlay.controller);
            let mut world = SteppedOverlay::new(&scenario).unwrap();
            let first = course(&mut world, 5);
            let mut copy = world.clone();
            for seed in [scenario.seed + 1, scenario.seed] {
                copy.reset(seed);
                scenario.seed = seed;
                let (again, new) = (course(&mut copy, 5), course(&mut SteppedOverlay::new(&scenario).unwrap(), 5));
                assert!(again == new && (seed == world.scenario.seed) == (again == first), "{controller}, seed {seed}");
            }
        }
    }

    #[test]
    fn what_is_observed_is_what_happened_in_the_units_that_are_named() {
        let mut world = overlay("aimd");
        let seen = course(&mut world, 20);
        assert!(seen.iter().flatten().all(|number| number.is_finite() && *number >= 0.0));
        let late = &seen[seen.len() / 2..];
        let of = |name| mean(late, name);
        // What is sent is acknowledged, times out or is on its way; what is delivered is what was sent and not lost.
        assert!(of("sent_packets_s") > 1.0 && of("acked_packets_s") <= 1.05 * of("sent_packets_s"));
        assert!(of("received_packets_s") >= of("acked_packets_s"), "an ACK comes of a packet that has come");
        assert!(of("loss_share") < 1.0 && of("srtt_ms") > 1.0 && of("srtt_ms") < 5000.0);
        assert!(of("rate_kbyte_s") > 0.0 && of("limited_share") > 0.0 && of("limited_share") <= 1.0);
        // A packet is in flight for a round trip (Little's law), or until its deadline.
        assert!(of("in_flight_packets") >= 0.5 * of("acked_packets_s") * of("srtt_ms") / 1e3);
        // Nothing new happens in no time.
        let mut again = [f32::NAN; OBSERVATION_LENGTH];
        world.observe(0, &mut again);
        assert_eq!(again[..5], [0.0; 5]);
    }

    #[test]
    fn a_limit_that_falls_is_refused_more_by_whom_it_is_set_for() {
        let mut world = overlay("aimd");
        course(&mut world, 10);
        let mut copy = world.clone();
        copy.set_limit(3, Rate::from_bytes_per_sec(100));
        let refused = |world: &mut SteppedOverlay| {
            let peers = world.peers();
            let seen = course(world, 5);
            seen.iter().skip(3).step_by(peers).map(|seen| seen[3]).sum::<f32>()
        };
        assert!(refused(&mut copy) > refused(&mut world));
    }
}

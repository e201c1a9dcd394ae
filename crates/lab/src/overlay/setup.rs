//! An overlay's world before its first event.

use anabranch_control::path::registry::Build;
use anabranch_control::registry::ParameterError;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::overlay::fair_share::FairShare;
use anabranch_proto::overlay::overlay_peer::{Misbehaviour, OverlayPeer, Traffic};
use anabranch_proto::overlay::packet::{Packet, TelemetryField};
use anabranch_proto::overlay::path_sender::{PathSender, SenderConfig};
use anabranch_proto::overlay::relay::Relay;
use anabranch_scenario::overlay::{LimitKind, Overlay, Scenario};
use anabranch_sim::delay::{Delays, Jitter};
use anabranch_sim::fabric::NodeId;
use anabranch_sim::pairs::{Addressed, Pairs, PairsConfig};

use super::controllers::{Controllers, SharedManager};
use super::counting::Counting;
use super::view::view;
use crate::world::{Carrier, Observer, Sharded};

/// A packet in a slot of the fabric: its route says whence and where it goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Routed<T>(pub Packet<u32, T>);

impl<T: TelemetryField> Addressed for Routed<T> {
    #[inline]
    fn set_ends(&mut self, _: NodeId, _: NodeId) {}

    #[inline]
    fn ends(&self) -> (NodeId, NodeId) {
        (NodeId(self.0.previous()), NodeId(self.0.route.at()))
    }

    #[inline(always)]
    fn prefetch(&self) {
        std::hint::black_box(self.0.kind);
    }
}

/// Packets as they are.
#[derive(Clone, Copy, Debug)]
pub struct AsTheyAre;

impl<T: TelemetryField> Carrier<OverlayPeer<u32, T>> for AsTheyAre {
    type Payload = Routed<T>;

    const REUSES_MEMORY: bool = false;

    #[inline(always)]
    fn pack(&mut self, packet: &Packet<u32, T>, slot: &mut Routed<T>) {
        slot.0 = *packet;
    }

    #[inline(always)]
    fn repack(&mut self, packet: &Packet<u32, T>, slot: &mut Routed<T>) {
        slot.0.update(packet);
        debug_assert_eq!(slot.0, *packet, "a peer changes no more of a packet than its place, kind and nonce");
    }

    #[inline(always)]
    fn unpack(&mut self, slot: &Routed<T>, packet: &mut Packet<u32, T>) -> bool {
        *packet = slot.0;
        true
    }
}

/// An overlay at work, whose packets tell `T`, in several shards if it is `PARTED`.
pub type OverlayWorld<T, const PARTED: bool, O = Counting> =
    Sharded<OverlayPeer<u32, T>, Routed<T>, AsTheyAre, O, (), PARTED>;

/// In how many shards a run goes on, and by how many threads. Its result depends on neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    /// Parts of the world. More than there are peers count as those.
    pub shards: usize,
    /// Threads that step them. More than there are shards count as those.
    pub threads: usize,
}

impl Sharding {
    /// The whole world, and one thread.
    pub const NONE: Sharding = Sharding { shards: 1, threads: 1 };

    /// The parts in which a run of `scenario` that has `threads` threads for itself is soonest done.
    pub fn of_run_alone(scenario: &Scenario, threads: usize) -> Sharding {
        let shards = threads.min(MOST_SHARDS).min(scenario.overlay.peers / LEAST_PEERS).max(1);
        Sharding { shards, threads: shards }
    }
}

/// A shard has as many peers at least, unless it is alone: those of fewer wait for each other for longer than they work.
/// On 16 cores a hundred peers that know all others are done 1.25 times as soon in two shards as in one, a thousand that
/// know 64 each 5.0 times as soon in eight and 5.7 times in sixteen.
const LEAST_PEERS: usize = 100;

/// A run has as many shards at most, however many threads it may have. Each has a mailbox for each other, and with 256
/// they take a few megabytes; with the 10 000 that a million peers could have, gigabytes.
const MOST_SHARDS: usize = 256;

/// In how many shards a run of `scenario` goes on.
pub fn shards(scenario: &Scenario, sharding: Sharding) -> usize {
    if why_unsharded(scenario).is_some() { 1 } else { sharding.shards.clamp(1, scenario.overlay.peers) }
}

/// Why a run of `scenario` goes on in one shard whatever was asked for; none if it can be sharded.
pub fn why_unsharded(scenario: &Scenario) -> Option<&'static str> {
    let overlay = &scenario.overlay;
    let least = Jitter::least(overlay.jitter, overlay.jitter_tail);
    if matches!(overlay.controller.build, Build::Omniscient) {
        Some("the controller \"perfect\" has one manager for all senders")
    } else if Delays::new(&overlay.delay, overlay.peers, scenario.seed).shortest(least) == Duration::ZERO {
        Some("delays have no least value: overlay.delay.jitter is a seventh or more, or some nodes are no time apart")
    } else {
        None
    }
}

/// The world of `scenario`, each shard with an observer.
///
/// # Errors
///
/// What the controller says of its parameters.
pub fn world<T: TelemetryField, O: Observer<OverlayPeer<u32, T>> + Default + Send, const PARTED: bool>(
    scenario: &Scenario,
    sharding: Sharding,
) -> Result<(OverlayWorld<T, PARTED, O>, SharedManager), ParameterError> {
    let Scenario { seed, overlay, .. } = scenario;
    let config = PairsConfig {
        delay: overlay.delay.clone(),
        jitter: overlay.jitter,
        jitter_tail: overlay.jitter_tail,
        loss: overlay.loss,
    };
    let parts = Pairs::<_, PARTED>::parts(config, overlay.peers, *seed, shards(scenario, sharding));
    let (peers, manager) = peers(scenario, parts[0].delays())?;
    let mut world = Sharded::new(parts, overlay.peers, sharding.threads, || (AsTheyAre, O::default(), ()));
    for peer in peers {
        world.join(peer?);
    }
    Ok((world, manager))
}

/// The peers of `scenario` over `delays`, in the order of their numbers, each made when it is asked for.
///
/// # Errors
///
/// What the controller says of its parameters.
#[allow(clippy::type_complexity, reason = "an iterator beside what its peers share")]
pub fn peers<'a, T: TelemetryField>(
    scenario: &'a Scenario,
    delays: &Delays,
) -> Result<
    (impl Iterator<Item = Result<OverlayPeer<u32, T>, ParameterError>> + use<'a, T>, SharedManager),
    ParameterError,
> {
    let Scenario { seed, overlay, .. } = scenario;
    let controllers = Controllers::new(overlay, delays)?;
    let manager = controllers.manager().clone();
    let misbehaving = overlay.misbehaviours();
    let mut phases = Rng::stream(*seed, "phases");
    let peers = (0..overlay.peers as u32).map(move |node| {
        let phase = Duration::from_secs_f64(phases.uniform());
        let misbehaviour = misbehaving.get(node as usize).copied().flatten().map(|misbehaviour| Misbehaviour {
            drop: misbehaviour.drop,
            delay: misbehaviour.delay,
            forge: misbehaviour.forge,
            stamp_factor: misbehaviour.stamp_factor,
            from: misbehaviour.from,
            until: misbehaviour.until,
            rng: Rng::indexed(*seed, "misbehaviour", u64::from(node)),
        });
        peer(overlay, *seed, node, phase, misbehaviour, &controllers)
    });
    Ok((peers, manager))
}

fn peer<T: TelemetryField>(
    overlay: &Overlay,
    seed: u64,
    node: u32,
    phase: Duration,
    misbehaviour: Option<Misbehaviour>,
    controllers: &Controllers,
) -> Result<OverlayPeer<u32, T>, ParameterError> {
    let known = view(overlay, seed, node);
    let starts = Time::ZERO + overlay.join_every * u64::from(node) + phase;
    let controller = controllers.make(overlay, node, &known, starts);
    let config = SenderConfig { peers: known.len(), relays: overlay.relays, packet: overlay.packet, rtt: overlay.rtt };
    let sender = PathSender::new(&config, controller, Rng::indexed(seed, "sender", u64::from(node)));
    let rng = Rng::indexed(seed, "destinations", u64::from(node));
    let offered = overlay.sender(node).map_or(overlay.offered, |other| other.offered);
    let neighbours = known.len();
    let traffic = Traffic { known, rng, starts, offered };
    // The manager's first step: all relays count in the same windows (6.3.2).
    let phase = if controllers.manager().is_some() { Duration::ZERO } else { phase };
    let model = match overlay.limit_model {
        LimitKind::Window => LimitModel::Window { phase },
        LimitKind::Bucket { depth } => LimitModel::Bucket { depth },
        LimitKind::Queue { longest } => LimitModel::Queue { longest },
    };
    let relay = match overlay.stamps && overlay.reads_telemetry() {
        true => Relay::stamping(model, overlay.limit),
        false => Relay::new(model, overlay.limit),
    };
    let relay = match overlay.fair_shares {
        // Those who know each other are neighbours, with two accounts each; twice as many places, for they
        // share sets by chance.
        true => relay.with_fair_share(FairShare::new(model, overlay.limit, 4 * neighbours, keys(seed, node))),
        false => relay,
    };
    Ok(OverlayPeer::new(node, [overlay.packet, overlay.ack], relay, misbehaviour, sender, traffic))
}

/// By which relay `node` places its sources.
fn keys(seed: u64, node: u32) -> [u64; 4] {
    let mut rng = Rng::indexed(seed, "fair shares", u64::from(node));
    std::array::from_fn(|_| rng.bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_alone_has_a_shard_for_each_thread_as_long_as_each_has_enough_peers() {
        let shards = |peers: usize, threads: usize| {
            let mut scenario = Scenario::standard();
            (scenario.overlay.peers, scenario.overlay.known_peers) = (peers, 16);
            let sharding = Sharding::of_run_alone(&scenario, threads);
            assert_eq!(sharding.shards, sharding.threads);
            sharding.shards
        };
        assert_eq!((shards(20, 8), shards(199, 8), shards(200, 8), shards(400, 3)), (1, 1, 2, 3));
        assert_eq!((shards(1000, 1), shards(1000, 16), shards(1_000_000, 16)), (1, 10, 16));
    }

    #[test]
    fn a_run_alone_has_256_shards_at_most() {
        let mut scenario = Scenario::standard();
        (scenario.overlay.peers, scenario.overlay.known_peers) = (1_000_000, 16);
        assert_eq!(Sharding::of_run_alone(&scenario, 100_000), Sharding { shards: 256, threads: 256 });
    }
}

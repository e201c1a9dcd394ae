//! A run of an overlay: every peer relays, and sends data to random peers that it knows; what
//! happens is counted for each simulated second.

mod controllers;
mod counting;
mod measured;
pub mod memory;
pub mod run_files;
mod setup;
pub mod stepped;
pub mod summary;
mod view;

use std::collections::BTreeMap;

use anabranch_control::path::Slot;
use anabranch_control::registry::ParameterError;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::overlay::packet::{Kind, Telemetry, TelemetryField};
use anabranch_scenario::overlay::{LimitChange, Overlay, Scenario};
use anabranch_sim::fabric::NodeId;
use thiserror::Error;

use crate::monitor::Monitor;
use controllers::SharedManager;
use counting::Counting;
pub use measured::{Measured, RateTrace, Second};
use setup::OverlayWorld;
pub use setup::{Sharding, shards, why_unsharded};

/// Within this, in simulated seconds, a peer that can deliver anything has begun to: longer than any
/// path, and than the second in which peers begin.
const TO_DELIVER_S: u64 = 10;

/// What controllers call in their traces what [`RateTrace::rates_bytes_per_s`] has already.
const RATE: &str = "rate_bytes_per_s";

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OverlayRunError {
    /// The controller refuses its parameters.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// Nothing has reached its destination.
    #[error(
        "in {seconds} s nothing was delivered under the controller \"{controller}\" ({sent} packets were sent, \
         {refused} refused by limits): no figure can come of this run"
    )]
    NothingDelivered {
        /// The registered name of the controller.
        controller: &'static str,
        /// Simulated seconds.
        seconds: u64,
        /// Data packets that left their source.
        sent: u64,
        /// Data packets that relays and destinations refused.
        refused: u64,
    },
}

/// Runs `scenario` until its end or until `monitor` interrupts it: what was measured is that of
/// the seconds that were over then.
///
/// # Errors
///
/// What the controller says of its parameters; a run of [`TO_DELIVER_S`] or more that was not
/// stopped and has delivered nothing.
pub fn run(scenario: &Scenario, monitor: &dyn Monitor) -> Result<Measured, OverlayRunError> {
    run_sharded(scenario, Sharding::NONE, monitor)
}

/// The same in shards: equal runs in other shards and on other threads give equal results. What
/// [can't be sharded](why_unsharded) goes on in one.
///
/// # Errors
///
/// As [`run`].
pub fn run_sharded(
    scenario: &Scenario,
    sharding: Sharding,
    monitor: &dyn Monitor,
) -> Result<Measured, OverlayRunError> {
    match (scenario.overlay.reads_telemetry(), setup::shards(scenario, sharding) > 1) {
        (true, true) => run_with::<Telemetry, true>(scenario, sharding, monitor),
        (true, false) => run_with::<Telemetry, false>(scenario, sharding, monitor),
        (false, true) => run_with::<(), true>(scenario, sharding, monitor),
        (false, false) => run_with::<(), false>(scenario, sharding, monitor),
    }
}

/// The same, with packets that tell `T`, in several shards if it is `PARTED`.
fn run_with<T: TelemetryField, const PARTED: bool>(
    scenario: &Scenario,
    sharding: Sharding,
    monitor: &dyn Monitor,
) -> Result<Measured, OverlayRunError> {
    let (mut world, manager) = setup::world::<T, Counting, PARTED>(scenario, sharding)?;
    let overlay = &scenario.overlay;
    let mut rates = overlay.watch.map(|sender| RateTrace {
        sender,
        known: world.node(NodeId(sender)).map(|peer| peer.known().to_vec()).unwrap_or_default(),
        rates_bytes_per_s: Vec::new(),
        traced: BTreeMap::new(),
    });
    let mut changes = Changes::new(overlay, manager);
    let mut seconds = Vec::with_capacity(scenario.seconds as usize);
    for index in 0..scenario.seconds {
        if index == scenario.seconds / 2 {
            for shard in world.shards_mut() {
                shard.observer_mut().acked_by_sender = vec![0; overlay.peers].into();
            }
        }
        let end = Time::ZERO + Duration::SECOND * (index + 1);
        if !changes.apply_before(end, &mut world, monitor) || !world.step_monitored(end, monitor) {
            break;
        }
        let mut second = Second::default();
        for shard in world.shards_mut() {
            second.add(&std::mem::take(&mut shard.observer_mut().second));
        }
        if let Some(trace) = &mut rates {
            sample_rates(&world, trace);
        }
        seconds.push(second);
        monitor.on_second();
        if monitor.is_interrupted() {
            break;
        }
    }
    let whole = seconds.len() as u64 == scenario.seconds;
    if whole && scenario.seconds >= TO_DELIVER_S && seconds.iter().all(|second| second.delivered == 0) {
        let sum = |count: fn(&Second) -> u32| seconds.iter().map(|second| u64::from(count(second))).sum();
        return Err(OverlayRunError::NothingDelivered {
            controller: overlay.controller.name,
            seconds: scenario.seconds,
            sent: sum(|second| second.sent),
            refused: sum(|second| second.refused),
        });
    }
    let mut data_in_flight = 0;
    let mut acked_by_sender = Vec::new();
    for shard in world.shards_mut() {
        shard.debug_assert_no_late_timers();
        data_in_flight += shard.fabric_mut().in_flight().filter(|slot| slot.0.kind == Kind::Data).count() as u64;
        let acked = std::mem::take(&mut shard.observer_mut().acked_by_sender);
        acked_by_sender.resize(acked.len(), 0);
        acked_by_sender.iter_mut().zip(acked).for_each(|(sum, acked)| *sum += acked);
    }
    Ok(Measured {
        seconds,
        controller: overlay.controller.name,
        peers: overlay.peers,
        packet: overlay.packet,
        data_in_flight,
        sender_memory_bytes: world.nodes().map(|(_, peer)| peer.sender().memory_bytes() as u64).sum(),
        peer_pairs: world.nodes().map(|(_, peer)| peer.known().len() as u64).sum(),
        rates,
        acked_by_sender,
    })
}

/// The agent that changes limits as the scenario says.
struct Changes<'a> {
    to_come: Vec<&'a LimitChange>,
    manager: SharedManager,
}

impl<'a> Changes<'a> {
    fn new(overlay: &'a Overlay, manager: SharedManager) -> Changes<'a> {
        let mut to_come: Vec<_> = overlay.limit_changes.iter().collect();
        // The next one last; of those of one instant, in the scenario's order.
        to_come.sort_by_key(|change| change.at);
        to_come.reverse();
        Changes { to_come, manager }
    }

    /// Steps to each change before `end` and applies it; false if `monitor` has interrupted that.
    fn apply_before<T: TelemetryField, const PARTED: bool>(
        &mut self,
        end: Time,
        world: &mut OverlayWorld<T, PARTED>,
        monitor: &dyn Monitor,
    ) -> bool {
        while let Some(change) = self.to_come.pop_if(|change| change.at < end) {
            if monitor.is_interrupted() || !world.step_monitored(change.at, monitor) {
                return false;
            }
            for &node in &change.peers {
                world.act(NodeId(node), |peer, now, _| peer.set_limit(now, change.limit));
                if let Some(manager) = &self.manager {
                    manager.lock().expect("no sender panics while it asks the manager").set_limit(node, change.limit);
                }
            }
        }
        true
    }
}

fn sample_rates<T: TelemetryField, const PARTED: bool>(world: &OverlayWorld<T, PARTED>, trace: &mut RateTrace) {
    let Some(peer) = world.node(NodeId(trace.sender)) else { return };
    let rate = |slot: usize| {
        let rate: Option<Rate> = peer.sender().controller().rate(Slot(slot as u16));
        rate.map_or(f32::NAN, |rate| rate.bytes_per_sec() as f32)
    };
    trace.rates_bytes_per_s.extend((0..peer.known().len()).map(rate));
    for slot in 0..peer.known().len() {
        peer.sender().controller().trace(Slot(slot as u16), &mut |name, value| {
            if name != RATE {
                trace.traced.entry(name).or_default().push(value as f32);
            }
        });
    }
}

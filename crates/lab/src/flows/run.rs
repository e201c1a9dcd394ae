//! One run of flows from its beginning to its end: stepped, steered, sampled and measured.

use std::sync::Arc;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::LossRecovery;
use anabranch_scenario::flows::{FlowScenario, FlowSpec};
use anabranch_sim::network::{LinkCount, LinkId};

use super::events::Recorder;
use super::measured::{CrossMeasured, FlowMeasured, FlowsMeasured, LinkMeasured};
use super::measuring::Measuring;
use super::node::FlowNode;
use super::recording::Recording;
use super::sample::Sampler;
use super::steering::Steering;
use super::world::FlowWorld;
use super::{FlowRunError, check_traces};
use crate::monitor::{EVENTS_BETWEEN_QUESTIONS, Monitor};
use crate::world::Observer;

/// An observer that measures.
trait Measures: Observer<FlowNode> {
    fn measuring(&self) -> &Measuring;

    fn measuring_mut(&mut self) -> &mut Measuring;

    /// Whether it is of no use to go on.
    fn has_failed(&self) -> bool {
        false
    }
}

impl Measures for Measuring {
    fn measuring(&self) -> &Measuring {
        self
    }

    fn measuring_mut(&mut self) -> &mut Measuring {
        self
    }
}

impl Measures for Recording<'_> {
    fn measuring(&self) -> &Measuring {
        &self.measuring
    }

    fn measuring_mut(&mut self) -> &mut Measuring {
        &mut self.measuring
    }

    fn has_failed(&self) -> bool {
        self.recorder.has_failed()
    }
}

/// Runs `scenario` until its end or until `monitor` interrupts it: what was measured is all until
/// then.
///
/// # Errors
///
/// When a controller refuses its parameters, or misbehaves; when a whole run delivers nothing.
pub fn run(scenario: &FlowScenario, monitor: &dyn Monitor) -> Result<FlowsMeasured, FlowRunError> {
    let scenario = Arc::new(scenario.clone());
    run_world(FlowWorld::new(Arc::clone(&scenario), Measuring::new(&scenario))?, monitor)
}

/// Runs `scenario` as [`run`] does, and tells `recorder` of each event. A recorder that has
/// failed ends the run at the next whole second at the latest.
///
/// # Errors
///
/// As [`run`].
pub fn run_recorded(
    scenario: &FlowScenario,
    recorder: &mut dyn Recorder,
    monitor: &dyn Monitor,
) -> Result<FlowsMeasured, FlowRunError> {
    let scenario = Arc::new(scenario.clone());
    let recording = Recording::new(Measuring::new(&scenario), recorder);
    run_world(FlowWorld::new(Arc::clone(&scenario), recording)?, monitor)
}

fn run_world<O: Measures>(mut world: FlowWorld<O>, monitor: &dyn Monitor) -> Result<FlowsMeasured, FlowRunError> {
    let scenario = Arc::clone(world.scenario());
    let end = Time::ZERO + scenario.length;
    let mut sampler = Sampler::new(&scenario);
    let mut steering = Steering::new(&scenario);
    let mut second = Time::ZERO + Duration::SECOND;
    let mut before_counting = vec![0; scenario.links.len()];
    world.network().set_marks([scenario.goodput_from.min(end), end]);
    loop {
        let is_counting = world.observer().measuring().is_counting();
        let counting_from = if is_counting { Time::MAX } else { scenario.goodput_from };
        let steers = steering.as_ref().map_or(Time::MAX, Steering::due);
        let stop = end.min(second).min(sampler.due()).min(counting_from).min(steers);
        if !advance(&mut world, stop, steering.as_ref(), monitor)? {
            let now = world.now();
            return finish(world, now, &before_counting, sampler, steering);
        }
        if stop == counting_from {
            world.observer_mut().measuring_mut().count();
            for (link, bytes) in (0..).zip(&mut before_counting) {
                *bytes = done(&mut world, LinkId(link)).1;
            }
        }
        if let Some(steering) = steering.as_mut().filter(|_| stop == steers) {
            steering.act(&mut world, monitor);
        }
        if stop == sampler.due() {
            sampler.sample(&mut world, |observer| &observer.measuring().flows)?;
        }
        if stop == second {
            second += Duration::SECOND;
            monitor.on_second();
        }
        if stop == end {
            return delivered(&scenario, finish(world, stop, &before_counting, sampler, steering)?);
        }
        if monitor.is_interrupted() || world.observer().has_failed() {
            return finish(world, stop, &before_counting, sampler, steering);
        }
    }
}

/// What a link has done by now, and the bytes that it has transmitted. Of a run that was interrupted that is an estimate.
fn done<O: Measures>(world: &mut FlowWorld<O>, link: LinkId) -> (LinkCount, u64) {
    let network = world.network();
    let (count, transmitted) =
        network.pass_mark(link).unwrap_or_else(|| (network.count(link), network.transmitted(link)));
    (count, transmitted.get())
}

/// Lets everything happen before `stop`; flows that begin meanwhile are steered before their data
/// leaves. False if `monitor` has interrupted it.
fn advance<O: Measures>(
    world: &mut FlowWorld<O>,
    stop: Time,
    steering: Option<&Steering>,
    monitor: &dyn Monitor,
) -> Result<bool, FlowRunError> {
    loop {
        let is_over = world.step_until_called(stop, EVENTS_BETWEEN_QUESTIONS);
        let measuring = world.observer_mut().measuring_mut();
        if let Some(error) = measuring.take_error() {
            return Err(error);
        }
        while let Some(flow) = world.observer_mut().measuring_mut().pop_changed() {
            if let Some(steering) = steering {
                steering.on_changed(flow, world);
            }
        }
        if is_over {
            return Ok(true);
        }
        if monitor.is_interrupted() {
            return Ok(false);
        }
    }
}

/// Refuses what a whole run measured, simulated or not, if none of its flows has delivered anything.
///
/// # Errors
///
/// That.
pub fn delivered(scenario: &FlowScenario, measured: FlowsMeasured) -> Result<FlowsMeasured, FlowRunError> {
    if !measured.flows.is_empty() && measured.flows.iter().all(|flow| flow.delivered_bytes == 0) {
        let sent = measured.flows.iter().map(|flow| flow.packets_sent).sum();
        return Err(FlowRunError::NothingDelivered { length: scenario.length, sent });
    }
    Ok(measured)
}

/// Which flows would begin once the run is over.
pub fn late_flows(scenario: &FlowScenario) -> impl Iterator<Item = String> {
    let end = Time::ZERO + scenario.length;
    let late = scenario.flows.iter().filter(move |flow| flow.start >= end);
    late.map(move |flow| {
        format!("{} would begin at {}, and the run ends at {end}: it sends nothing", flow.name, flow.start)
    })
}

/// Flows that have lost something and whose controllers can't judge that without selective ACKs: an interval in which a
/// packet left that was sent again has no end, and they go on as they began. Flows that `runs_ours` leaves out have
/// selective ACKs of their stack's own.
pub fn blind_flows(
    scenario: &FlowScenario,
    flows: &[FlowMeasured],
    runs_ours: impl Fn(&FlowSpec) -> bool,
) -> Vec<String> {
    let has_sack = scenario.packets.recovery != LossRecovery::Rfc6582;
    let each = scenario.flows.iter().zip(flows).filter(|(flow, _)| runs_ours(flow));
    let blind = each.filter(|(flow, of)| !has_sack && flow.controller.judges_each_packet() && of.packets_lost > 0);
    let words = blind.map(|(flow, _)| {
        let (name, controller) = (&flow.name, flow.controller.name);
        format!(
            "{name}: {controller} judges what it sends by what became of each packet, which ACKs without SACK do not \
             tell: expected packets.recovery = \"rack\" or \"rfc6675\""
        )
    });
    words.collect()
}

/// What was measured until `end`, which is now.
fn finish<O: Measures>(
    mut world: FlowWorld<O>,
    end: Time,
    before_counting: &[u64],
    sampler: Sampler,
    steering: Option<Steering>,
) -> Result<FlowsMeasured, FlowRunError> {
    check_traces(&world)?;
    for flow in 0..world.scenario().flows.len() {
        let on_time = world.source(flow).on_time(end);
        world.close(flow);
        world.observer_mut().measuring_mut().flows[flow].on_time = on_time;
    }
    world.observer_mut().measuring_mut().finish(end);
    let links = (0..).zip(before_counting).map(|(link, before)| {
        let link = LinkId(link);
        let (count, transmitted) = done(&mut world, link);
        LinkMeasured { count, counted_bytes: transmitted.saturating_sub(*before) }
    });
    let links = links.collect();
    let warnings = blind_flows(world.scenario(), &world.observer().measuring().flows, |_| true);
    let cross = 0..world.scenario().cross_traffic.len();
    let cross_traffic = cross.map(|number| world.cross(number)).map(|(sent, arrived)| CrossMeasured { sent, arrived });
    Ok(FlowsMeasured {
        links,
        cross_traffic: cross_traffic.collect(),
        series: sampler.into_series(),
        length: end.since(Time::ZERO),
        events: Some(world.network().events()),
        warnings,
        notes: late_flows(world.scenario())
            .chain(world.observer().measuring().notes())
            .chain(steering.into_iter().flat_map(Steering::notes))
            .collect(),
        flows: std::mem::take(&mut world.observer_mut().measuring_mut().flows),
    })
}

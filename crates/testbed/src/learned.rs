//! A scenario's policy beside real packets. What it sees of hosts, their senders report; what it sees of the link, the
//! emulator does, in a router's place. What it makes of that, and what becomes of it, is the code of simulated runs
//! ([`Acting`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_control::flow::Bounds;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::flows::FlowScenario;
use anabranch_lab::flows::acting::Acting;
use anabranch_lab::flows::node::Sent as Packets;
use anabranch_lab::flows::steerable::{LinkState, RoundTripSeen, Steerable};
use anabranch_scenario::flows::{PacketSpec, Stack};
use anabranch_sim::network::rate_stream;
use anabranch_sim::varying::{Course, Varying};

use super::lengths::share;
use super::watch::{Counted, CrossBytes};

/// Reports of senders between two decisions: what is decided by is no older than a tenth of an interval.
const REPORTS: u64 = 10;

/// No more often than this.
const LEAST_REPORT: Duration = Duration::from_millis(1);

/// No less often: those below a policy, and hosts whose flows begin, are then as prompt.
const MOST_REPORT: Duration = Duration::from_millis(10);

/// What a policy has directed.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// When.
    pub at: Time,
    /// To each agent.
    pub rates: Vec<f32>,
}

/// The policy at work.
#[derive(Debug)]
pub struct ByPolicy {
    every: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    acting: Acting,
    known: Known,
    /// What it has directed and nobody has taken yet.
    decisions: Vec<Decision>,
}

/// A flow as its sender has reported it last.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    is_on: bool,
    packets: Packets,
    round_trip: Option<RoundTripSeen>,
    /// Bounds that its sender has not taken yet.
    bounds: Option<Bounds>,
}

/// All that a coordinator knows.
#[derive(Debug)]
struct Known {
    scenario: Arc<FlowScenario>,
    now: Time,
    flows: Vec<Reported>,
    /// The rate of the link that is divided, drawn as the link itself draws it.
    rate: Option<Varying<Rate>>,
    counted: Arc<Counted>,
    cross_bytes: CrossBytes,
}

impl ByPolicy {
    /// That of `scenario`, if a policy steers there; the emulator counts in `counted` and `cross_bytes`.
    pub fn new(scenario: &FlowScenario, counted: Arc<Counted>, cross_bytes: CrossBytes) -> Option<ByPolicy> {
        let acting = Acting::new(scenario)?;
        let steering = scenario.steering.as_ref()?;
        let link = scenario.links[steering.link].config();
        let drawn = |course: &Course<Rate>| Varying::new(course, rate_stream(scenario.seed, &link.name));
        let known = Known {
            scenario: Arc::new(scenario.clone()),
            now: Time::ZERO,
            flows: vec![Reported::default(); scenario.flows.len()],
            rate: link.rate.as_ref().map(drawn),
            counted,
            cross_bytes,
        };
        let every = (steering.every / REPORTS).clamp(LEAST_REPORT, MOST_REPORT);
        Some(ByPolicy { every, state: Mutex::new(State { acting, known, decisions: Vec::new() }) })
    }

    fn at(&self, now: Time) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Threads come in any order.
        state.known.now = state.known.now.max(now);
        state
    }

    /// How often senders report, and ask for bounds.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// A flow's sender reports what all its connections have counted, and the round trips of the one that it has.
    pub fn report(&self, now: Time, flow: usize, packets: Packets, round_trip: Option<RoundTripSeen>) {
        let mut state = self.at(now);
        let reported = &mut state.known.flows[flow];
        (reported.packets, reported.round_trip) = (packets, round_trip);
    }

    /// A flow's application goes on or off, or has a connection.
    pub fn note(&self, now: Time, flow: usize, is_on: bool) {
        let mut state = self.at(now);
        let State { acting, known, .. } = &mut *state;
        known.flows[flow].is_on = is_on;
        acting.on_changed(flow, known);
    }

    /// Decides if that is due at `now`: the first of the senders' threads that comes decides for all.
    pub fn observe(&self, now: Time) {
        let mut state = self.at(now);
        let State { acting, known, decisions } = &mut *state;
        if acting.due() <= known.now
            && let Some(rates) = acting.act(known)
        {
            decisions.push(Decision { at: known.now, rates: rates.to_vec() });
        }
    }

    /// The bounds of `flow` that are new since they were asked for.
    pub fn bounds(&self, now: Time, flow: usize) -> Option<Bounds> {
        self.at(now).known.flows[flow].bounds.take()
    }

    /// What was directed since this was asked.
    pub fn take_decisions(&self) -> Vec<Decision> {
        std::mem::take(&mut self.at(Time::ZERO).decisions)
    }

    /// What is to be known of it when the run is over.
    pub fn into_note(self) -> Option<String> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).acting.into_note()
    }
}

impl Steerable for Known {
    fn now(&self) -> Time {
        self.now
    }

    fn scenario(&self) -> &FlowScenario {
        &self.scenario
    }

    fn is_on(&self, flow: usize) -> bool {
        self.flows[flow].is_on
    }

    fn sent(&self, flow: usize) -> Packets {
        let packets = self.flows[flow].packets;
        if self.scenario.flows[flow].stack != Stack::Quic {
            return packets;
        }
        // Of packets as long as ours, with headers, that were acknowledged.
        let PacketSpec { data, header, .. } = self.scenario.packets;
        let ours = data.get() as f64 / (data + header).get() as f64;
        let acked_bytes = (packets.acked_bytes as f64 * ours / self.data_share(flow)) as u64;
        Packets { acked_bytes, ..packets }
    }

    fn round_trip(&self, flow: usize) -> Option<RoundTripSeen> {
        self.flows[flow].round_trip
    }

    fn rate(&mut self, _: usize) -> Option<Rate> {
        let now = self.now;
        Some(self.rate.as_mut()?.at(now))
    }

    fn link(&mut self, _: usize) -> LinkState {
        self.counted.link()
    }

    fn cross_bytes(&self) -> u64 {
        self.cross_bytes.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn cross_to_come(&mut self, _: Time) -> Option<u64> {
        None
    }

    fn data_share(&self, flow: usize) -> f64 {
        share(&self.scenario, flow)
    }

    fn set_bounds(&mut self, flow: usize, bounds: Bounds) {
        self.flows[flow].bounds = Some(bounds);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use anabranch_control::units::Bytes;
    use anabranch_lab::flows::FlowWorld;
    use anabranch_scenario::file::{AnyScenario, Override, read_any};

    use super::*;

    /// Six seconds of one flow beside cross traffic.
    fn scenario() -> FlowScenario {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/cross.toml");
        match read_any(&path, &[Override::set("run.seconds=6").unwrap()]).unwrap() {
            AnyScenario::Flows(scenario) => scenario,
            other => panic!("{other:?}"),
        }
    }

    fn policy(scenario: &FlowScenario) -> (ByPolicy, Arc<Counted>, CrossBytes) {
        let (counted, cross_bytes) = (Arc::new(Counted::new(scenario.flows.len())), CrossBytes::default());
        let policy = ByPolicy::new(scenario, Arc::clone(&counted), Arc::clone(&cross_bytes)).unwrap();
        (policy, counted, cross_bytes)
    }

    /// The policy of cross traffic sees throughput, queue, drops, flows, and the cross traffic's share, age and course.
    #[test]
    fn of_the_same_reports_it_directs_what_the_simulated_coordinator_directs() {
        let scenario = Arc::new(scenario());
        let (policy, counted, cross_bytes) = policy(&scenario);
        let mut world = FlowWorld::new(Arc::clone(&scenario), ()).unwrap();
        let mut acting = Acting::new(&scenario).unwrap();
        let (mut decided, mut directed) = (0, Vec::new());
        while acting.due() < Time::MAX {
            let now = acting.due();
            world.step(now);
            counted.set_link(Steerable::link(&mut world, scenario.steering.as_ref().unwrap().link));
            cross_bytes.store(Steerable::cross_bytes(&world), Ordering::Relaxed);
            for flow in 0..scenario.flows.len() {
                policy.note(now, flow, Steerable::is_on(&world, flow));
                policy.report(now, flow, world.sent(flow), world.round_trip(flow));
            }
            policy.observe(now);
            let rates = acting.act(&mut world).unwrap().to_vec();
            assert_eq!(policy.take_decisions(), [Decision { at: now, rates: rates.clone() }]);
            directed.push(rates);
            decided += 1;
        }
        assert_eq!(decided, 60, "each 100 ms of 6 s");
        assert!(directed.iter().any(|rates| *rates != directed[0]), "what is directed depends on what is seen");
        assert!(cross_bytes.load(Ordering::Relaxed) > 0 && counted.link().transmitted > 0);
        assert_eq!(policy.into_note(), None);
    }

    #[test]
    fn a_flow_of_quic_counts_whole_packets_and_is_paced_by_them() {
        let known = |stack: Stack| {
            let mut scenario = scenario();
            scenario.flows[0].stack = stack;
            let (policy, ..) = policy(&scenario);
            let round_trip = RoundTripSeen { smoothed: Duration::from_millis(60), min: Duration::from_millis(50) };
            // A hundred packets of 1514 bytes on the links, of which a flow counts its part.
            let counted = (share(&scenario, 0) * 151_400.0).round() as u64;
            let packets = Packets { packets: 100, acked_bytes: counted, ..Packets::default() };
            policy.report(Time::ZERO, 0, packets, Some(round_trip));
            policy.note(Time::ZERO, 0, true);
            policy.observe(Time::ZERO);
            let bounds = policy.bounds(Time::ZERO, 0).expect("it was told something");
            assert_eq!(policy.bounds(Time::ZERO, 0), None, "it is taken once");
            let acked = policy.at(Time::ZERO).known.sent(0).acked_bytes;
            (bounds.fixed.expect("the policy fixes windows"), acked)
        };
        let ((ours, acked_ours), (quic, acked_quic)) = (known(Stack::Ours), known(Stack::Quic));
        assert_eq!((acked_ours, acked_quic), (144_800, 144_800), "the link has carried the same");
        let ratio = quic.get() as f64 / ours.get() as f64;
        assert!((ratio - 1472.0 / 1448.0).abs() < 1e-4 && ours > Bytes::ZERO, "{ours} and {quic}");
    }
}

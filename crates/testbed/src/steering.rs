//! A scenario's coordinator beside real packets: it learns from the emulator what cross traffic
//! has arrived, and senders ask it for their bounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_control::flow::Bounds;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::flows::FlowScenario;
use anabranch_lab::flows::coordinator::Coordinator;
use anabranch_lab::flows::node::Sent as Packets;
use anabranch_lab::flows::steerable::RoundTripSeen;
use anabranch_sim::network::rate_stream;
use anabranch_sim::varying::{Course, Varying};

use super::learned::{ByPolicy, Decision};
use super::lengths::share;
use super::plan::Plan;
use super::service::Service;
use super::ticks::Ticks;
use super::watch::CrossBytes;

/// Who steers a run's flows.
#[derive(Debug)]
pub enum Steered<'a> {
    /// The scenario's own coordinator, by its rule, in this process.
    Rule(Box<ByRule<'a>>),
    /// The same, by the scenario's policy.
    Policy(Box<ByPolicy>),
    /// A coordinator and agents over QUIC.
    Service(&'a Service<'a>),
}

impl<'a> Steered<'a> {
    /// As the scenario wants it, if it does.
    pub fn new(scenario: &'a FlowScenario, plan: &Plan) -> Option<Steered<'a>> {
        match ByPolicy::new(scenario, Arc::clone(&plan.counted), Arc::clone(&plan.cross_bytes)) {
            Some(policy) => Some(Steered::Policy(Box::new(policy))),
            None => ByRule::new(scenario, Arc::clone(&plan.cross_bytes)).map(Box::new).map(Steered::Rule),
        }
    }

    /// What a policy has directed since this was asked.
    pub fn take_decisions(&self) -> Vec<Decision> {
        match self {
            Steered::Policy(policy) => policy.take_decisions(),
            Steered::Rule(_) | Steered::Service(_) => Vec::new(),
        }
    }

    /// What is to be known of it when the run is over.
    pub fn into_note(self) -> Option<String> {
        match self {
            Steered::Policy(policy) => policy.into_note(),
            Steered::Rule(_) | Steered::Service(_) => None,
        }
    }

    /// When senders look, and tell what they do.
    pub fn ticks(&self, scenario: &FlowScenario) -> Ticks {
        match self {
            Steered::Rule(_) => Ticks::steered(scenario),
            Steered::Policy(policy) => Ticks::new(scenario).looking_each(policy.every()),
            Steered::Service(service) => Ticks::new(scenario).looking_each(service.look()),
        }
    }

    /// At `now` a flow's sender has counted so much over all its connections, and has seen these round trips of the one that
    /// it has; nobody is asked who does not want to know.
    pub fn report(&self, now: Time, flow: usize, counted: impl FnOnce() -> (Packets, Option<RoundTripSeen>)) {
        match self {
            Steered::Rule(_) => {}
            Steered::Policy(policy) => {
                let (packets, round_trip) = counted();
                policy.report(now, flow, packets, round_trip);
            }
            Steered::Service(service) => {
                let (packets, round_trip) = counted();
                service.report(flow, packets, round_trip);
            }
        }
    }

    /// At `now` a flow's application goes on or off, or has a connection.
    pub fn note(&self, now: Time, flow: usize, is_on: bool) {
        match self {
            Steered::Rule(rule) => rule.note(flow, is_on),
            Steered::Policy(policy) => policy.note(now, flow, is_on),
            Steered::Service(service) => service.note(flow, is_on),
        }
    }

    /// Looks at what has been sent and has arrived.
    pub fn observe(&self, now: Time, plan: &Plan) {
        match self {
            Steered::Rule(rule) => rule.observe(now),
            Steered::Policy(policy) => policy.observe(now),
            Steered::Service(service) => service.observe(plan),
        }
    }

    /// The bounds of `flow` at `now`, under a least round trip of `min_rtt`; none for one that nobody bounds, and where what
    /// was directed before still holds.
    pub fn bounds(&self, now: Time, flow: usize, min_rtt: Option<Duration>) -> Option<Bounds> {
        match self {
            Steered::Rule(rule) => rule.bounds(now, flow, min_rtt),
            Steered::Policy(policy) => policy.bounds(now, flow),
            Steered::Service(service) => service.bounds(now, flow, min_rtt),
        }
    }
}

/// The scenario's coordinator at work.
#[derive(Debug)]
pub struct ByRule<'a> {
    scenario: &'a FlowScenario,
    state: Mutex<State>,
    cross_bytes: CrossBytes,
    /// Whether each flow's application is on.
    on: Vec<AtomicBool>,
}

#[derive(Debug)]
struct State {
    coordinator: Coordinator,
    /// The rate of the link that is divided, drawn as the link itself draws it.
    rate: Option<Varying<Rate>>,
}

impl<'a> ByRule<'a> {
    /// That of `scenario`, if it has one.
    pub fn new(scenario: &'a FlowScenario, cross_bytes: CrossBytes) -> Option<ByRule<'a>> {
        let steering = scenario.steering.as_ref()?;
        let link = scenario.links[steering.link].config();
        let drawn = |course: &Course<Rate>| Varying::new(course, rate_stream(scenario.seed, &link.name));
        let state = State { coordinator: Coordinator::new(steering), rate: link.rate.as_ref().map(drawn) };
        let on = scenario.flows.iter().map(|_| AtomicBool::new(false)).collect();
        Some(ByRule { scenario, state: Mutex::new(state), cross_bytes, on })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A flow's application goes on or off.
    pub fn note(&self, flow: usize, is_on: bool) {
        self.on[flow].store(is_on, Ordering::Relaxed);
    }

    /// Makes the decision that is due at `now`, if one is: the first of the senders' threads
    /// that comes looks for all.
    pub fn observe(&self, now: Time) {
        let mut state = self.lock();
        if state.coordinator.due() <= now {
            let capacity = state.rate.as_mut().map_or(Rate::ZERO, |rate| rate.at(now));
            state.coordinator.observe(now, self.cross_bytes.load(Ordering::Relaxed), capacity);
        }
    }

    /// The bounds of `flow` at `now` by the last decision, under a least round trip of
    /// `min_rtt`; none for a flow that is not steered, or over a link without a rate.
    pub fn bounds(&self, now: Time, flow: usize, min_rtt: Option<Duration>) -> Option<Bounds> {
        let min_rtt = min_rtt.filter(|_| self.scenario.flows[flow].steered)?;
        let mut state = self.lock();
        let rate = state.rate.as_mut()?.at(now);
        let flows = self.scenario.flows.iter().zip(&self.on);
        let active = flows.filter(|(flow, on)| flow.steered && on.load(Ordering::Relaxed)).count();
        Some(state.coordinator.bounds(rate, active, share(self.scenario, flow), min_rtt))
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::units::Bytes;
    use anabranch_scenario::file::parse_flows;

    use super::*;

    #[test]
    fn active_flows_share_what_cross_traffic_leaves_and_others_are_left_alone() {
        let text = "[run]\nseconds = 1\n[packets]\ndata_bytes = 1448\nheader_bytes = 52\n[dumbbell]\npairs = 3\n\
                    rate = \"150 Mbit/s\"\ndelay_ms = 5\n[[flow]]\ncontroller = \"c3-cubic\"\nsteered = true\n\
                    [[flow]]\ncontroller = \"quic:c3-cubic\"\nsteered = true\n[[flow]]\ncontroller = \"reno\"\n\
                    [steering]\nlink = \"bottleneck\"\nevery_ms = 100";
        let scenario = parse_flows(text, "f.toml", &[]).unwrap();
        let cross_bytes = CrossBytes::default();
        let steered = ByRule::new(&scenario, Arc::clone(&cross_bytes)).unwrap();
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let window = |at_ms, flow| {
            let rtt = Some(Duration::from_millis(10));
            steered.bounds(at(at_ms), flow, rtt).map(|bounds| bounds.maximum.unwrap())
        };
        steered.observe(at(0));
        (0..3).for_each(|flow| steered.note(flow, flow != 1));
        // 18.75 kB a millisecond, of which 1448 in 1500 are data.
        assert_eq!(window(0, 0), Some(Bytes::new(181_000)));
        assert_eq!(window(0, 1), Some(Bytes::new(184_000)));
        assert_eq!(window(0, 2), None);
        steered.note(1, true);
        cross_bytes.store(937_500, Ordering::Relaxed);
        steered.observe(at(50));
        assert_eq!(window(50, 0), Some(Bytes::new(90_500)), "what came since is not looked at yet");
        steered.observe(at(100));
        assert_eq!(window(100, 0), Some(Bytes::new(45_250)), "75 Mbit/s were taken");
        assert_eq!(steered.bounds(at(100), 0, None), None, "without a round trip there is no window");
    }

    #[test]
    fn a_link_that_changes_is_divided_as_it_is_now() {
        let text = "[run]\nseconds = 4\n[packets]\nheader_bytes = 0\n[[link]]\nname = \"thin\"\nfrom = \"a\"\nto = \"b\"\n\
                    rate = { at_s = [0, 2], values = [\"8 Mbit/s\", \"16 Mbit/s\"] }\ndelay_ms = 5\n[[flow]]\n\
                    controller = \"c3-cubic\"\nsteered = true\nfrom = \"a\"\nto = \"b\"\n[steering]\n\
                    link = \"thin\"\nevery_ms = 100";
        let scenario = parse_flows(text, "f.toml", &[]).unwrap();
        let steered = ByRule::new(&scenario, CrossBytes::default()).unwrap();
        steered.note(0, true);
        let window = |s| steered.bounds(Time::from_secs_f64(s), 0, Some(Duration::from_millis(10))).unwrap().maximum;
        assert_eq!([window(1.0), window(2.5)], [Some(Bytes::new(10_000)), Some(Bytes::new(20_000))]);
    }
}

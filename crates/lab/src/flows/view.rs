//! What a coordinator that has learned, or is learning, sees of flows and their link, and what it does there: flows become
//! hosts, whose view ([`Hosts`]) is that of a coordinator of real ones, and what hosts are directed becomes bounds of
//! flows.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::coordination::budget::hold;
use anabranch_proto::coordination::policy::view::{FullPacket, HostSpan, LinkSpan, View as Hosts};
use anabranch_scenario::flows::{FlowScenario, PacketSpec, QueueSpec};
use anabranch_scenario::policy::feature::{HostSeen, LinkSeen};
use anabranch_scenario::policy::{Actuator, Feature, Sight, agents_of, hosts};
use anabranch_sim::network::{Capacity, CodelConfig, Limit, RedConfig};

use super::steerable::{RoundTripSeen, Steerable};

/// The longest wait at a link whose queue has no end counts as this.
const UNLIMITED: Duration = Duration::from_millis(100);

/// What had been counted when it was looked at last.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// Of each host: data bytes acknowledged, packets sent and lost.
    hosts: Vec<(u64, u64, u64)>,
    /// Of the link: packets transmitted and dropped.
    link: (u64, u64),
    /// Bytes of cross traffic that arrived.
    cross: u64,
}

/// Flows that are seen as hosts.
#[derive(Clone, Debug)]
pub struct Flows {
    /// The flows of each host.
    hosts: Vec<Vec<usize>>,
    /// The longest wait that the link's queue allows, at a rate.
    queue: QueueSpec,
    /// When it was looked last.
    looked: Option<Time>,
    counted: Counted,
    /// What hosts did since then.
    spans: Vec<HostSpan>,
}

/// The view of what is steered.
#[derive(Clone, Debug)]
pub struct View {
    flows: Flows,
    hosts: Hosts,
}

impl Flows {
    /// Of `scenario`, before its beginning, and the view of its hosts. A simulated world must watch the link of `sight`.
    ///
    /// # Panics
    ///
    /// When the scenario has no such link ([`anabranch_scenario::policy::check_in`]).
    pub fn new(sight: Sight, scenario: &FlowScenario) -> (Flows, Hosts) {
        let hosts = hosts(scenario, sight.link);
        let PacketSpec { data, header, .. } = scenario.packets;
        let packet = FullPacket { on_wire: (data + header).get() as f64, data: data.get() as f64 };
        let agents = agents_of(sight.agents, scenario, sight.link);
        let queue = scenario.links[sight.link].queue;
        let view = Hosts::new(sight, packet, hosts.len(), agents);
        let counted = Counted { hosts: vec![(0, 0, 0); hosts.len()], ..Counted::default() };
        (Flows { spans: vec![HostSpan::default(); hosts.len()], looked: None, hosts, queue, counted }, view)
    }

    fn reset(&mut self) {
        self.looked = None;
        self.counted.hosts.fill((0, 0, 0));
        (self.counted.link, self.counted.cross) = ((0, 0), 0);
    }

    /// Whether a host has something to send.
    pub fn is_active<W: Steerable>(&self, host: usize, world: &W) -> bool {
        self.hosts[host].iter().any(|&flow| world.is_on(flow))
    }

    /// What has happened since the last look.
    pub fn look<W: Steerable>(&mut self, sight: &Sight, world: &mut W) -> (LinkSpan, &[HostSpan]) {
        let before = self.looked.replace(world.now());
        let seconds = before.map_or(sight.interval, |before| world.now().since(before)).as_secs_f64();
        let PacketSpec { data, header, .. } = world.scenario().packets;
        let state = world.link(sight.link);
        let rate = world.rate(sight.link).map_or(0.0, Rate::bytes_per_sec);
        let arrived = world.cross_bytes();
        let is_foreseen = sight.features.contains(&Feature::CrossNext);
        let link = LinkSpan {
            seconds,
            rate,
            waits: state.waits.as_secs_f64(),
            longest_wait: longest_wait(&self.queue, rate, (data + header).get() as f64),
            passed: (state.transmitted - self.counted.link.0) as f64,
            dropped: (state.dropped - self.counted.link.1) as f64,
            crossed: (arrived - self.counted.cross) as f64,
            cross_next: if is_foreseen { cross_next(sight, world) } else { 0.0 },
        };
        self.counted.link = (state.transmitted, state.dropped);
        self.counted.cross = arrived;
        for (host, flows) in self.hosts.iter().enumerate() {
            let mut span = HostSpan::default();
            let (mut acked, mut sent, mut lost) = (0, 0, 0);
            for &flow in flows {
                let all = world.sent(flow);
                (acked, sent, lost) = (acked + all.acked_bytes, sent + all.packets, lost + all.lost);
                span.active += usize::from(world.is_on(flow));
                if let Some(rtt) = world.round_trip(flow) {
                    span.ratios += rtt.smoothed.as_secs_f64() / rtt.min.as_secs_f64();
                    span.sampled += 1;
                    span.least = span.least.min(rtt.min.as_secs_f64());
                }
            }
            let before = std::mem::replace(&mut self.counted.hosts[host], (acked, sent, lost));
            (span.acked, span.sent) = ((acked - before.0) as f64, (sent - before.1) as f64);
            span.lost = (lost - before.2) as f64;
            self.spans[host] = span;
        }
        (link, &self.spans)
    }

    /// Flows have the bounds of what their hosts were directed; those that begin have an initial window.
    pub fn follow<W: Steerable>(&self, view: &Hosts, world: &mut W) {
        if view.sight().actuator != Actuator::Initial {
            (0..self.hosts.len()).for_each(|host| self.direct(host, view, world));
        }
    }

    /// A flow has begun or ended, or its round trip is known now: its host divides its rate anew, if it was directed
    /// one.
    pub fn on_changed<W: Steerable>(&self, flow: usize, view: &Hosts, world: &mut W) {
        let Some(rates) = view.rates() else { return };
        let Some(host) = self.hosts.iter().position(|flows| flows.contains(&flow)) else { return };
        if view.sight().actuator == Actuator::Initial {
            let packet = world.scenario().packets.data;
            world.set_bounds(flow, Actuator::initial(rates[host], packet));
        } else {
            self.direct(host, view, world);
        }
    }

    /// A host divides its rate among its active flows.
    fn direct<W: Steerable>(&self, host: usize, view: &Hosts, world: &mut W) {
        let (Some(rates), sight) = (view.rates(), view.sight()) else { return };
        let Some(capacity) = world.rate(sight.link) else { return };
        let active = self.hosts[host].iter().filter(|&&flow| world.is_on(flow)).count();
        if active == 0 {
            return;
        }
        let data = world.scenario().packets.data;
        let expires = world.now() + hold(sight.interval);
        for &flow in &self.hosts[host] {
            let Some(RoundTripSeen { min, .. }) = world.round_trip(flow) else { continue };
            let rate = capacity.bytes_per_sec() * world.data_share(flow) * f64::from(rates[host]) / active as f64;
            let rate = Rate::from_bytes_per_sec_f64(rate);
            world.set_bounds(flow, sight.actuator.bounds(rate, min, data, expires));
        }
    }
}

impl View {
    /// Of `scenario`, before its beginning.
    ///
    /// # Panics
    ///
    /// As [`Flows::new`].
    pub fn new(sight: Sight, scenario: &FlowScenario) -> View {
        let (flows, hosts) = Flows::new(sight, scenario);
        View { flows, hosts }
    }

    /// Back to the beginning.
    pub fn reset(&mut self) {
        self.flows.reset();
        self.hosts.reset();
    }

    /// The flows of each host.
    pub fn hosts(&self) -> &[Vec<usize>] {
        &self.flows.hosts
    }

    /// The hosts of each agent: itself, or all of a sub-domain.
    pub fn agents(&self) -> &[Vec<usize>] {
        self.hosts.agents()
    }

    /// How many numbers an observation has: agents by features, for each observation in it.
    pub fn observation_len(&self) -> usize {
        self.hosts.observation_len()
    }

    /// What was seen of each host last, without delay.
    pub fn seen(&self) -> &[HostSeen] {
        self.hosts.seen()
    }

    /// The same of each agent ([`Hosts::of_agents`]).
    pub fn of_agents(&self) -> &[HostSeen] {
        self.hosts.of_agents()
    }

    /// The link as it was seen last, without delay.
    pub fn link(&self) -> &LinkSeen {
        self.hosts.link()
    }

    /// Packets that the hosts' flows have sent.
    pub fn packets(&self) -> u64 {
        self.flows.counted.hosts.iter().map(|&(_, sent, _)| sent).sum()
    }

    /// The agents have these relative rates, or initial windows, from now on ([`Hosts::direct`]).
    ///
    /// # Panics
    ///
    /// When there are more or fewer rates than agents.
    pub fn direct<W: Steerable>(&mut self, rates: &[f32], world: &mut W) {
        self.hosts.direct(world.now(), rates, |host| self.flows.is_active(host, world));
        self.flows.follow(&self.hosts, world);
    }

    /// When [`View::divide`] is to be called next; never where what was directed stands as it is.
    pub fn divides(&self) -> Time {
        self.hosts.divides()
    }

    /// Agents' rates become hosts' ([`Hosts::divide`]).
    pub fn divide<W: Steerable>(&mut self, world: &mut W) {
        self.hosts.divide(|host| self.flows.is_active(host, world));
        self.flows.follow(&self.hosts, world);
    }

    /// A flow has begun or ended, or its round trip is known now ([`Flows::on_changed`]).
    pub fn on_changed<W: Steerable>(&self, flow: usize, world: &mut W) {
        self.flows.on_changed(flow, &self.hosts, world);
    }

    /// Looks at what has happened since the last look.
    pub fn look<W: Steerable>(&mut self, world: &mut W) {
        let (link, hosts) = self.flows.look(self.hosts.sight(), world);
        self.hosts.look(&link, hosts);
    }

    /// Writes what is seen ([`Hosts::observe`]).
    ///
    /// # Panics
    ///
    /// When `into` has another length than [`View::observation_len`].
    pub fn observe(&self, into: &mut [f32]) {
        self.hosts.observe(into);
    }

    /// The same of a step to come, as it would be known from the last time ([`Hosts::cross_expected`]).
    pub fn cross_expected(&self, late: usize) -> f64 {
        self.hosts.cross_expected(late)
    }

    /// Cross traffic's share of the link in the step to come, as only an oracle knows it.
    pub fn cross_next<W: Steerable>(&self, world: &mut W) -> f64 {
        cross_next(self.hosts.sight(), world)
    }
}

fn cross_next<W: Steerable>(sight: &Sight, world: &mut W) -> f64 {
    let next = world.now() + sight.interval;
    let bytes = world.cross_to_come(next).unwrap_or(0);
    let rate = world.rate(sight.link).map_or(0.0, Rate::bytes_per_sec);
    let carries = rate * sight.interval.as_secs_f64();
    if carries > 0.0 { bytes as f64 / carries } else { 0.0 }
}

/// The longest wait that a queue allows at a link of `rate` bytes a second.
pub fn longest_wait(queue: &QueueSpec, rate: f64, full_packet: f64) -> f64 {
    let bytes = match *queue {
        QueueSpec::DropTail(Capacity::Time(wait)) => return wait.as_secs_f64(),
        QueueSpec::DropTail(Capacity::Unlimited) => return UNLIMITED.as_secs_f64(),
        QueueSpec::DropTail(Capacity::Bytes(bytes)) => bytes as f64,
        QueueSpec::DropTail(Capacity::Packets(packets)) => packets as f64 * full_packet,
        QueueSpec::FqCodel(config) => f64::from(config.limit) * full_packet,
        QueueSpec::Red(RedConfig { limit, .. }) | QueueSpec::Codel(CodelConfig { limit, .. }) => match limit {
            Limit::Bytes(bytes) => bytes as f64,
            Limit::Packets(packets) => packets as f64 * full_packet,
        },
    };
    bytes / rate
}

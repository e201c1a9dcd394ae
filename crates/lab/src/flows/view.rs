//! What a coordinator that has learned, or is learning, sees of flows and their link, and what it does there: one code for
//! environments, runs and real packets, so that a policy sees in all the same.
//!
//! What is told is told to agents: to hosts, or to sub-domains of hosts. A sub-domain has a coordinator of its own, by the rule:
//! it divides what it was told evenly among those of its hosts that are active, each [`BELOW`]. As often, sub-domains tell each
//! other how many those are, or that there are none, where what they were told depends on it ([`Actuator::Share`],
//! [`Actuator::Lent`]).

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::coordination::budget::hold;
use anabranch_scenario::flows::{FlowScenario, PacketSpec, QueueSpec};
use anabranch_scenario::policy::feature::{HostSeen, LinkSeen};
use anabranch_scenario::policy::{Actuator, Agents, Feature, Sight, agents_of, hosts};
use anabranch_sim::network::{Capacity, CodelConfig, Limit, RedConfig};

use super::steerable::{RoundTripSeen, Steerable};

/// The longest wait at a link whose queue has no end counts as this.
const UNLIMITED: Duration = Duration::from_millis(100);

/// Between two divisions of what agents were told, where that is not for good: within sub-domains, and of what the idle
/// lend. It is the interval of a coordinator of hosts.
const BELOW: Duration = Duration::from_millis(100);

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

/// When cross traffic came and went, as far as it was measured.
#[derive(Clone, Copy, Debug, Default)]
struct CrossCourse {
    is_there: bool,
    /// Seconds.
    age: f64,
    on: f64,
    off: f64,
}

impl CrossCourse {
    /// A span of this many seconds in which it took `share` of the link.
    fn pass(&mut self, seconds: f64, share: f64) {
        let is_there = share > 0.0;
        if is_there != self.is_there {
            *(if is_there { &mut self.off } else { &mut self.on }) = self.age;
            (self.is_there, self.age) = (is_there, 0.0);
        }
        self.age += seconds;
    }
}

/// What is counted of some flows since it was looked at last, and of their round trips.
struct Counts {
    acked: u64,
    sent: u64,
    lost: u64,
    active: usize,
    ratios: f64,
    sampled: u32,
    least: f64,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { acked: 0, sent: 0, lost: 0, active: 0, ratios: 0.0, sampled: 0, least: f64::INFINITY }
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        (self.acked, self.sent, self.lost) = (self.acked + other.acked, self.sent + other.sent, self.lost + other.lost);
        (self.active, self.sampled) = (self.active + other.active, self.sampled + other.sampled);
        self.ratios += other.ratios;
        self.least = self.least.min(other.least);
    }
}

/// The view of what is steered.
#[derive(Clone, Debug)]
pub struct View {
    sight: Sight,
    /// The flows of each host.
    hosts: Vec<Vec<usize>>,
    /// The hosts of each agent.
    agents: Vec<Vec<usize>>,
    /// The longest wait that the link's queue allows, at a rate.
    queue: QueueSpec,
    /// What agents were told, relative to the link; nothing before the first are told.
    told: Vec<f32>,
    /// What they hold of it, when some lend what they do not need.
    held: Vec<f32>,
    /// The relative rates of hosts that are in force.
    rates: Vec<f32>,
    /// Whether any have been told.
    has_told: bool,
    /// When what was told is divided anew.
    divides: Time,
    /// When it was looked last.
    looked: Option<Time>,
    counted: Counted,
    cross: CrossCourse,
    /// The link as it was seen last.
    link: LinkSeen,
    /// What was seen of each host last.
    seen: Vec<HostSeen>,
    /// What was seen of each agent last.
    of_agents: Vec<HostSeen>,
    /// Observations, the newest last: as many as history and delay need.
    frames: Vec<f32>,
    /// The place of what is known without delay in a row, if it has one.
    prompt: Option<usize>,
}

impl View {
    /// Of `scenario`, before its beginning. A simulated world must watch the link of `sight`.
    ///
    /// # Panics
    ///
    /// When the scenario has no such link ([`anabranch_scenario::policy::check_in`]).
    pub fn new(sight: Sight, scenario: &FlowScenario) -> View {
        let hosts = hosts(scenario, sight.link);
        let agents = agents_of(sight.agents, scenario, sight.link);
        let frame = agents.len() * sight.features.len();
        View {
            told: vec![0.0; agents.len()],
            held: Vec::with_capacity(agents.len()),
            rates: vec![0.0; hosts.len()],
            has_told: false,
            divides: Time::MAX,
            looked: None,
            counted: Counted { hosts: vec![(0, 0, 0); hosts.len()], ..Counted::default() },
            cross: CrossCourse::default(),
            link: LinkSeen::default(),
            seen: vec![HostSeen::default(); hosts.len()],
            of_agents: vec![HostSeen::default(); agents.len()],
            frames: vec![0.0; frame * (sight.history + sight.delay)],
            prompt: sight.features.iter().position(|&feature| feature == Feature::Told),
            queue: scenario.links[sight.link].queue,
            hosts,
            agents,
            sight,
        }
    }

    /// Back to the beginning.
    pub fn reset(&mut self) {
        self.told.fill(0.0);
        self.rates.fill(0.0);
        (self.has_told, self.divides, self.looked) = (false, Time::MAX, None);
        self.frames.fill(0.0);
        self.seen.fill(HostSeen::default());
        self.of_agents.fill(HostSeen::default());
        self.counted.hosts.fill((0, 0, 0));
        (self.counted.link, self.counted.cross) = ((0, 0), 0);
        (self.cross, self.link) = (CrossCourse::default(), LinkSeen::default());
    }

    /// The flows of each host.
    pub fn hosts(&self) -> &[Vec<usize>] {
        &self.hosts
    }

    /// The hosts of each agent: itself, or all of a sub-domain.
    pub fn agents(&self) -> &[Vec<usize>] {
        &self.agents
    }

    /// How many numbers an observation has: agents by features, for each observation in it.
    pub fn observation_len(&self) -> usize {
        self.frame_len() * self.sight.history
    }

    fn frame_len(&self) -> usize {
        self.agents.len() * self.sight.features.len()
    }

    /// What was seen of each host last, without delay.
    pub fn seen(&self) -> &[HostSeen] {
        &self.seen
    }

    /// The same of each agent: of a sub-domain the sums over its hosts, and the means and the least of their round trips.
    pub fn of_agents(&self) -> &[HostSeen] {
        &self.of_agents
    }

    /// The link as it was seen last, without delay.
    pub fn link(&self) -> &LinkSeen {
        &self.link
    }

    /// Packets that the hosts' flows have sent.
    pub fn packets(&self) -> u64 {
        self.counted.hosts.iter().map(|&(_, sent, _)| sent).sum()
    }

    /// The agents have these relative rates, or initial windows, from now on, from 0 to [`Actuator::most`]; what lies
    /// beyond, or is no number, counts as the nearest, or 0.
    ///
    /// # Panics
    ///
    /// When there are more or fewer rates than agents.
    pub fn tell<W: Steerable>(&mut self, rates: &[f32], world: &mut W) {
        assert_eq!(rates.len(), self.agents.len(), "an action has a number for each agent");
        self.has_told = true;
        let active = self.active(world);
        for (agent, &rate) in rates.iter().enumerate() {
            // `clamp` would let what is no number through.
            let told = if rate.is_nan() { 0.0 } else { rate.clamp(0.0, self.sight.actuator.most()) };
            // Sub-domains know at each division who sends; hosts only when they are told.
            let is_for_good = self.sight.agents == Agents::Hosts;
            self.told[agent] = if is_for_good { self.sight.actuator.relative(told, active) } else { told };
        }
        self.divides = world.now();
        self.divide(world);
    }

    /// When [`View::divide`] is to be called next; never where what was told stands as it is.
    pub fn divides(&self) -> Time {
        self.divides
    }

    /// Agents' rates become hosts': a host that is active has an even part of its agent's, and one that is not what it will
    /// have when it begins. Who has begun keeps an initial window.
    pub fn divide<W: Steerable>(&mut self, world: &mut W) {
        let actuator = self.sight.actuator;
        let is_for_good = self.sight.agents == Agents::Hosts && actuator != Actuator::Lent;
        self.divides = if is_for_good { Time::MAX } else { self.divides + BELOW };
        let mut held = std::mem::take(&mut self.held);
        actuator.held(&self.told, |agent| self.active_of(agent, world) > 0, &mut held);
        if self.sight.agents == Agents::Domains && actuator == Actuator::Share {
            let all = self.active(world);
            for (agent, rate) in held.iter_mut().enumerate() {
                *rate = match self.active_of(agent, world) {
                    0 => actuator.relative(*rate, all + 1),
                    active => actuator.relative(*rate, all) * active as f32,
                };
            }
        }
        for (agent, &rate) in held.iter().enumerate() {
            let active = self.active_of(agent, world);
            for &host in &self.agents[agent] {
                let parts = if self.is_active(host, world) { active } else { active + 1 };
                self.rates[host] = if actuator == Actuator::Initial { rate } else { rate / parts as f32 };
            }
        }
        self.held = held;
        if actuator != Actuator::Initial {
            (0..self.hosts.len()).for_each(|host| self.direct(host, world));
        }
    }

    /// Whether a host has something to send.
    fn is_active<W: Steerable>(&self, host: usize, world: &W) -> bool {
        self.hosts[host].iter().any(|&flow| world.is_on(flow))
    }

    /// How many hosts have.
    fn active<W: Steerable>(&self, world: &W) -> usize {
        (0..self.hosts.len()).filter(|&host| self.is_active(host, world)).count()
    }

    /// How many of an agent's.
    fn active_of<W: Steerable>(&self, agent: usize, world: &W) -> usize {
        self.agents[agent].iter().filter(|&&host| self.is_active(host, world)).count()
    }

    /// A flow has begun or ended, or its round trip is known now: its host divides its rate anew, if it was told one.
    pub fn on_changed<W: Steerable>(&self, flow: usize, world: &mut W) {
        if !self.has_told {
            return;
        }
        let Some(host) = self.hosts.iter().position(|flows| flows.contains(&flow)) else { return };
        if self.sight.actuator == Actuator::Initial {
            let packet = world.scenario().packets.data;
            world.set_bounds(flow, Actuator::initial(self.rates[host], packet));
        } else {
            self.direct(host, world);
        }
    }

    /// A host divides its rate among its active flows.
    fn direct<W: Steerable>(&self, host: usize, world: &mut W) {
        let Some(capacity) = world.rate(self.sight.link) else { return };
        let active = self.hosts[host].iter().filter(|&&flow| world.is_on(flow)).count();
        if active == 0 {
            return;
        }
        let data = world.scenario().packets.data;
        let expires = world.now() + hold(self.sight.interval);
        for &flow in &self.hosts[host] {
            let Some(RoundTripSeen { min, .. }) = world.round_trip(flow) else { continue };
            let rate = capacity.bytes_per_sec() * world.data_share(flow) * f64::from(self.rates[host]) / active as f64;
            let rate = Rate::from_bytes_per_sec_f64(rate);
            world.set_bounds(flow, self.sight.actuator.bounds(rate, min, data, expires));
        }
    }

    /// Looks at what has happened since the last look.
    pub fn look<W: Steerable>(&mut self, world: &mut W) {
        let before = self.looked.replace(world.now());
        let seconds = before.map_or(self.sight.interval, |before| world.now().since(before)).as_secs_f64();
        let PacketSpec { data, header, .. } = world.scenario().packets;
        let full_packet = (data + header).get() as f64;
        let state = world.link(self.sight.link);
        let rate = world.rate(self.sight.link).map_or(0.0, Rate::bytes_per_sec);
        let carries = rate * seconds;
        let share = |bytes: f64| if carries > 0.0 { bytes / carries } else { 0.0 };

        let waits = state.waits.as_secs_f64();
        let arrived = world.cross_bytes();
        let (passed, dropped) = (state.transmitted - self.counted.link.0, state.dropped - self.counted.link.1);
        let crossed = share((arrived - self.counted.cross) as f64);
        if before.is_some() {
            self.cross.pass(seconds, crossed);
        }
        let is_foreseen = self.sight.features.contains(&Feature::CrossNext);
        self.link = LinkSeen {
            queue: waits / longest_wait(&self.queue, rate, full_packet),
            dropped: dropped as f64 / (passed + dropped).max(1) as f64,
            cross: crossed,
            cross_next: if is_foreseen { self.cross_next(world) } else { 0.0 },
            cross_age: self.cross.age,
            cross_on: self.cross.on,
            cross_off: self.cross.off,
            hosts: self.active(world),
        };
        self.counted.link = (state.transmitted, state.dropped);
        self.counted.cross = arrived;

        let seen = |of: &Counts, told: f32| HostSeen {
            throughput: share(of.acked as f64 * full_packet / data.get() as f64),
            active: of.active,
            rate: shown(self.sight.actuator, told),
            round_trip: if of.sampled > 0 { of.ratios / f64::from(of.sampled) } else { 0.0 },
            loss: of.lost as f64 / of.sent.max(1) as f64,
            pipe: if of.sampled > 0 { rate * of.least / full_packet } else { 0.0 },
        };
        for (agent, hosts) in self.agents.iter().enumerate() {
            let mut of_agent = Counts::default();
            for &host in hosts {
                let mut of_host = Counts::default();
                let (mut acked, mut sent, mut lost) = (0, 0, 0);
                for &flow in &self.hosts[host] {
                    let all = world.sent(flow);
                    (acked, sent, lost) = (acked + all.acked_bytes, sent + all.packets, lost + all.lost);
                    of_host.active += usize::from(world.is_on(flow));
                    if let Some(rtt) = world.round_trip(flow) {
                        of_host.ratios += rtt.smoothed.as_secs_f64() / rtt.min.as_secs_f64();
                        of_host.sampled += 1;
                        of_host.least = of_host.least.min(rtt.min.as_secs_f64());
                    }
                }
                let before = std::mem::replace(&mut self.counted.hosts[host], (acked, sent, lost));
                (of_host.acked, of_host.sent, of_host.lost) = (acked - before.0, sent - before.1, lost - before.2);
                self.seen[host] = seen(&of_host, self.rates[host]);
                of_agent.add(&of_host);
            }
            self.of_agents[agent] = seen(&of_agent, self.told[agent]);
        }

        let frame = self.frame_len();
        self.frames.rotate_left(frame);
        let newest = self.frames.len() - frame;
        let rows = self.frames[newest..].chunks_exact_mut(self.sight.features.len());
        for (row, agent) in rows.zip(&self.of_agents) {
            for (value, feature) in row.iter_mut().zip(&self.sight.features) {
                *value = feature.value(&self.link, agent);
            }
        }
    }

    /// Writes what is seen: the newest observation, which is `delay` steps old, agent by agent, then the one before
    /// it. What is before the beginning is 0.
    ///
    /// # Panics
    ///
    /// When `into` has another length than [`View::observation_len`].
    pub fn observe(&self, into: &mut [f32]) {
        assert_eq!(into.len(), self.observation_len(), "an observation has agents x features x history numbers");
        let (frame, delay) = (self.frame_len(), self.sight.delay);
        for (age, part) in into.chunks_exact_mut(frame).enumerate() {
            let at = |late: usize| &self.frames[self.frames.len() - (age + late + 1) * frame..][..frame];
            part.copy_from_slice(at(delay));
            if let Some(place) = self.prompt {
                let row = self.sight.features.len();
                part.iter_mut().zip(at(0)).skip(place).step_by(row).for_each(|(value, &prompt)| *value = prompt);
            }
        }
    }

    /// Cross traffic's share of the link in the step to come, as only an oracle knows it.
    pub fn cross_next<W: Steerable>(&self, world: &mut W) -> f64 {
        let next = world.now() + self.sight.interval;
        let bytes = world.cross_to_come(next).unwrap_or(0);
        let rate = world.rate(self.sight.link).map_or(0.0, Rate::bytes_per_sec);
        let carries = rate * self.sight.interval.as_secs_f64();
        if carries > 0.0 { bytes as f64 / carries } else { 0.0 }
    }
}

/// What was told, as a feature and a reward have it.
fn shown(actuator: Actuator, told: f32) -> f64 {
    let told = f64::from(told);
    if actuator == Actuator::Initial { told / 10.0 } else { told }
}

/// The longest wait that a queue allows at a link of `rate` bytes a second.
fn longest_wait(queue: &QueueSpec, rate: f64, full_packet: f64) -> f64 {
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

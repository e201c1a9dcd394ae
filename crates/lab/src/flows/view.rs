//! What a coordinator that has learned, or is learning, sees of a world of flows, and what it does there: one code for
//! environments and runs, so that a policy sees in both the same.

use anabranch_control::flow::PeerId;
use anabranch_control::time::Time;
use anabranch_control::units::Rate;
use anabranch_scenario::flows::{FlowScenario, PacketSpec, QueueSpec};
use anabranch_scenario::policy::feature::{HostSeen, LinkSeen};
use anabranch_scenario::policy::{Actuator, Feature, Sight, hosts};
use anabranch_sim::network::{Capacity, CodelConfig, Limit, LinkId, RedConfig};

use anabranch_control::time::Duration;

use super::coordinator::lease;
use super::node::FlowNode;
use super::world::FlowWorld;
use crate::world::Observer;

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
    /// A span of so many seconds in which it took `share` of the link.
    fn pass(&mut self, seconds: f64, share: f64) {
        let is_there = share > 0.0;
        if is_there != self.is_there {
            *(if is_there { &mut self.off } else { &mut self.on }) = self.age;
            (self.is_there, self.age) = (is_there, 0.0);
        }
        self.age += seconds;
    }
}

/// The view of a world.
#[derive(Clone, Debug)]
pub struct View {
    sight: Sight,
    /// The flows of each host.
    hosts: Vec<Vec<usize>>,
    /// The longest wait that the link's queue allows, at a rate.
    queue: QueueSpec,
    /// The relative rates in force; nothing before the first are told.
    rates: Vec<f32>,
    /// Whether any have been told.
    has_told: bool,
    counted: Counted,
    cross: CrossCourse,
    /// The link as it was seen last.
    link: LinkSeen,
    /// What was seen of each host last.
    seen: Vec<HostSeen>,
    /// Observations, the newest last: as many as history and delay need.
    frames: Vec<f32>,
}

impl View {
    /// Of `scenario`, before its beginning. The world must watch the link of `sight`.
    ///
    /// # Panics
    ///
    /// When the scenario has no such link ([`Sight::check_in`]).
    pub fn new(sight: Sight, scenario: &FlowScenario) -> View {
        let hosts = hosts(scenario, sight.link);
        let frame = hosts.len() * sight.features.len();
        View {
            rates: vec![0.0; hosts.len()],
            has_told: false,
            counted: Counted { hosts: vec![(0, 0, 0); hosts.len()], ..Counted::default() },
            cross: CrossCourse::default(),
            link: LinkSeen::default(),
            seen: vec![HostSeen::default(); hosts.len()],
            frames: vec![0.0; frame * (sight.history + sight.delay)],
            queue: scenario.links[sight.link].queue,
            hosts,
            sight,
        }
    }

    /// Back to the beginning.
    pub fn reset(&mut self) {
        self.rates.fill(0.0);
        self.has_told = false;
        self.frames.fill(0.0);
        self.seen.fill(HostSeen::default());
        self.counted.hosts.fill((0, 0, 0));
        (self.counted.link, self.counted.cross) = ((0, 0), 0);
        (self.cross, self.link) = (CrossCourse::default(), LinkSeen::default());
    }

    /// The flows of each host.
    pub fn hosts(&self) -> &[Vec<usize>] {
        &self.hosts
    }

    /// How many numbers an observation has: hosts by features, for each observation in it.
    pub fn observation_len(&self) -> usize {
        self.frame_len() * self.sight.history
    }

    fn frame_len(&self) -> usize {
        self.hosts.len() * self.sight.features.len()
    }

    /// What was seen of each host last, without delay.
    pub fn seen(&self) -> &[HostSeen] {
        &self.seen
    }

    /// The link as it was seen last, without delay.
    pub fn link(&self) -> &LinkSeen {
        &self.link
    }

    /// Packets that the hosts' flows have sent.
    pub fn packets(&self) -> u64 {
        self.counted.hosts.iter().map(|&(_, sent, _)| sent).sum()
    }

    /// The hosts have these relative rates, or initial windows, from now on, from 0 to [`Actuator::most`]; what lies
    /// beyond, or is no number, counts as the nearest, or 0.
    ///
    /// # Panics
    ///
    /// When there are more or fewer rates than hosts.
    pub fn tell<O: Observer<FlowNode>>(&mut self, rates: &[f32], world: &mut FlowWorld<O>) {
        assert_eq!(rates.len(), self.hosts.len(), "an action has a number for each host");
        self.has_told = true;
        let active = self.active(world);
        for (held, &rate) in self.rates.iter_mut().zip(rates) {
            // `clamp` would let what is no number through.
            let told = if rate.is_nan() { 0.0 } else { rate.clamp(0.0, self.sight.actuator.most()) };
            *held = self.sight.actuator.relative(told, active);
        }
        // What has begun keeps its initial window.
        if self.sight.actuator == Actuator::Initial {
            return;
        }
        (0..self.hosts.len()).for_each(|host| self.direct(host, world));
    }

    /// How many hosts have something to send.
    fn active<O: Observer<FlowNode>>(&self, world: &FlowWorld<O>) -> usize {
        self.hosts.iter().filter(|flows| flows.iter().any(|&flow| world.source(flow).is_on())).count()
    }

    /// A flow has begun or ended, or its round trip is known now: its host divides its rate anew, if it was told one.
    pub fn on_changed<O: Observer<FlowNode>>(&self, flow: usize, world: &mut FlowWorld<O>) {
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
    fn direct<O: Observer<FlowNode>>(&self, host: usize, world: &mut FlowWorld<O>) {
        let Some(capacity) = world.network().rate(LinkId(self.sight.link as u32)) else { return };
        let active = self.hosts[host].iter().filter(|&&flow| world.source(flow).is_on()).count();
        if active == 0 {
            return;
        }
        let PacketSpec { data, header, .. } = world.scenario().packets;
        let data_share = data.get() as f64 / (data + header).get() as f64;
        let rate = capacity.bytes_per_sec() * data_share * f64::from(self.rates[host]) / active as f64;
        let rate = Rate::from_bytes_per_sec_f64(rate);
        let expires = world.now() + lease(self.sight.interval);
        for &flow in &self.hosts[host] {
            let Some(min_rtt) = world.sender(flow).and_then(|sender| sender.min_rtt(PeerId(0))) else { continue };
            world.set_bounds(flow, self.sight.actuator.bounds(rate, min_rtt, data, expires));
        }
    }

    /// Looks at what has happened since the last look.
    pub fn look<O: Observer<FlowNode>>(&mut self, world: &mut FlowWorld<O>) {
        let seconds = self.sight.interval.as_secs_f64();
        let id = LinkId(self.sight.link as u32);
        let PacketSpec { data, header, .. } = world.scenario().packets;
        let full_packet = (data + header).get() as f64;
        let rate = world.network().rate(id).map_or(0.0, Rate::bytes_per_sec);
        let carries = rate * seconds;
        let share = |bytes: f64| if carries > 0.0 { bytes / carries } else { 0.0 };

        let count = world.network().count(id);
        let waits = world.network().backlog(id).as_secs_f64();
        let cross = world.scenario().cross_traffic.iter().enumerate();
        let arrived: u64 = cross.map(|(number, cross)| world.cross(number).1 * cross.packet.get()).sum();
        let (passed, dropped) = (count.packets - self.counted.link.0, count.dropped - self.counted.link.1);
        let crossed = share((arrived - self.counted.cross) as f64);
        if world.now() > Time::ZERO {
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
        self.counted.link = (count.packets, count.dropped);
        self.counted.cross = arrived;

        for (host, flows) in self.hosts.iter().enumerate() {
            let (mut acked, mut sent, mut lost, mut active) = (0, 0, 0, 0);
            let (mut ratios, mut sampled, mut least) = (0.0, 0, f64::INFINITY);
            for &flow in flows {
                let all = world.sent(flow);
                (acked, sent, lost) = (acked + all.acked_bytes, sent + all.packets, lost + all.lost);
                active += usize::from(world.source(flow).is_on());
                if let Some(rtt) = world.sender(flow).and_then(|sender| sender.metrics(PeerId(0)).rtt) {
                    ratios += rtt.smoothed.as_secs_f64() / rtt.min.as_secs_f64();
                    sampled += 1;
                    least = least.min(rtt.min.as_secs_f64());
                }
            }
            let before = std::mem::replace(&mut self.counted.hosts[host], (acked, sent, lost));
            self.seen[host] = HostSeen {
                throughput: share((acked - before.0) as f64 * full_packet / data.get() as f64),
                active,
                rate: shown(self.sight.actuator, self.rates[host]),
                round_trip: if sampled > 0 { ratios / f64::from(sampled) } else { 0.0 },
                loss: (lost - before.2) as f64 / (sent - before.1).max(1) as f64,
                pipe: if sampled > 0 { rate * least / full_packet } else { 0.0 },
            };
        }

        let frame = self.frame_len();
        self.frames.rotate_left(frame);
        let newest = self.frames.len() - frame;
        let rows = self.frames[newest..].chunks_exact_mut(self.sight.features.len());
        for (row, host) in rows.zip(&self.seen) {
            for (value, feature) in row.iter_mut().zip(&self.sight.features) {
                *value = feature.value(&self.link, host);
            }
        }
    }

    /// Writes what is seen: the newest observation, which is `delay` steps old, host by host, then the one before
    /// it. What is before the beginning is 0.
    ///
    /// # Panics
    ///
    /// When `into` has another length than [`View::observation_len`].
    pub fn observe(&self, into: &mut [f32]) {
        assert_eq!(into.len(), self.observation_len(), "an observation has hosts x features x history numbers");
        let (frame, delay) = (self.frame_len(), self.sight.delay);
        for (age, part) in into.chunks_exact_mut(frame).enumerate() {
            let from = self.frames.len() - (age + delay + 1) * frame;
            part.copy_from_slice(&self.frames[from..from + frame]);
        }
    }

    /// Cross traffic's share of the link in the step to come, as only an oracle knows it.
    pub fn cross_next<O: Observer<FlowNode>>(&self, world: &mut FlowWorld<O>) -> f64 {
        let next = world.now() + self.sight.interval;
        let sources = 0..world.scenario().cross_traffic.len();
        let bytes: u64 = sources.map(|number| world.cross_to_come(number, next)).sum();
        let rate = world.network().rate(LinkId(self.sight.link as u32)).map_or(0.0, Rate::bytes_per_sec);
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

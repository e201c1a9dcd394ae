//! The environments by name: [C3]'s three scenarios, its cross traffic and its losses, and what it leaves open.
//!
//! [C3] tells neither rates nor delays of its three scenarios; ours are 5 Mbit/s, a round trip of 50 ms as in its
//! other figures, and a queue of one round trip. What is drawn, is drawn for each episode.

use std::sync::Arc;

use anabranch_control::flow::registry::{self, Entry};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::flow::AckPolicy;
use anabranch_scenario::flows::topology::{Access, Dumbbell};
use anabranch_scenario::flows::{
    CrossTraffic, FlowScenario, FlowSpec, LinkSpec, PacketSpec, Pattern, QueueSpec, Receiver, Size, Stack, Workload,
};
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::Capacity;
use anabranch_sim::varying::Course;

use crate::Agents;
use crate::action::Actuator;
use crate::feature::Feature;
use crate::reward::Weights;
use crate::spec::{Source, Spec};

/// An environment with a name.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// Its name.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    spec: fn() -> Spec,
}

impl Environment {
    /// What it is.
    pub fn spec(&self) -> Spec {
        (self.spec)()
    }
}

/// All, by name.
pub const ALL: [Environment; 10] = [
    Environment { name: "C3-Single", about: "one flow over 5 Mbit/s", spec: || paced(fixed(&[0.0])) },
    Environment { name: "C3-Parallel", about: "two flows that begin together", spec: || paced(fixed(&[0.0, 0.0])) },
    Environment {
        name: "C3-Staggered",
        about: "two flows, one of which begins later",
        spec: || paced(drawn(staggered)),
    },
    Environment { name: "C3-Cross", about: "100 Mbit/s beside periodic cross traffic of 70", spec: cross },
    Environment {
        name: "C3-Fct",
        about: "short flows that begin with the window that they are told",
        spec: completion,
    },
    Environment { name: "C3-Loss", about: "one flow whose packets are lost at random", spec: || paced(drawn(lossy)) },
    Environment { name: "C3-Delayed", about: "C3-Cross, seen a second late", spec: || Spec { delay: 10, ..cross() } },
    Environment {
        name: "C3-Random",
        about: "four hosts, rates, delays and queues drawn",
        spec: || paced(drawn(random)),
    },
    Environment {
        name: "C3-Fairness",
        about: "four to sixteen of 32 hosts, whose round trips differ fourfold, are told shares of what there is",
        spec: || fair(drawn(unequal)),
    },
    Environment {
        name: "C3-Subdomains",
        about: "four sub-domains of four hosts, each with a rule of its own, are told shares each second",
        spec: || domains(drawn(divided)),
    },
];

/// That of the name.
pub fn find(name: &str) -> Option<&'static Environment> {
    ALL.iter().find(|entry| entry.name == name)
}

/// Simulated time of an episode over 5 Mbit/s: a hundred steps.
const SHORT: Duration = Duration::from_millis(10_000);

/// The same beside cross traffic: two of its longest periods.
const LONG: Duration = Duration::from_millis(50_000);

/// When a flow begins and, if before the episode does, ends.
#[derive(Clone, Copy)]
struct Times {
    start: Time,
    stop: Option<Time>,
}

impl Times {
    fn from(start: f64) -> Times {
        Times { start: Time::from_secs_f64(start), stop: None }
    }
}

/// A sending host.
#[derive(Clone)]
struct Host {
    rtt: Duration,
    flows: Vec<Times>,
    /// What each flow sends, in turn; without end if nothing is there.
    sizes: Vec<Bytes>,
    /// The sub-domain whose uplink it comes over, if there are such.
    domain: Option<usize>,
}

impl Host {
    /// One flow over the usual round trip, which begins at that second.
    fn from(start: f64) -> Host {
        Host { rtt: RTT, flows: vec![Times::from(start)], sizes: Vec::new(), domain: None }
    }
}

/// What all have in common.
struct Net {
    rate: Rate,
    /// One way, of the bottleneck.
    delay: Duration,
    /// What the queue holds, in time.
    queue: Duration,
    loss: f64,
    length: Duration,
    hosts: Vec<Host>,
    /// Cross traffic on a pair of its own: its rate and pattern, and when it begins.
    cross: Option<(Rate, Pattern, Time)>,
}

/// The controller beneath the bounds.
fn controller() -> &'static Entry {
    registry::find("cubic").expect("there is cubic")
}

const RTT: Duration = Duration::from_millis(50);
const BOTTLENECK_DELAY: Duration = Duration::from_millis(5);

impl Net {
    fn scenario(&self) -> FlowScenario {
        let fast = Rate::from_bits_per_sec(self.rate.bits_per_sec() * 10);
        // What of the way is not the bottleneck's is divided between both access links. An uplink has what is the sender's.
        let access = |rtt: Duration| Access {
            rate: Some(fast),
            delay: Duration::from_nanos((rtt.as_nanos() / 2 - self.delay.as_nanos()) / 2),
        };
        let queue = QueueSpec::DropTail(Capacity::Bytes((self.rate * self.queue).get().max(2 * 1514)));
        let loss = if self.loss > 0.0 { LossModel::Random(Course::constant(self.loss)) } else { LossModel::None };
        let bottleneck = LinkSpec { loss, ..LinkSpec::new("bottleneck", self.rate, self.delay).with_queue(queue) };
        let mut pairs: Vec<_> = self.hosts.iter().map(|host| (access(host.rtt), access(host.rtt))).collect();
        pairs.extend(self.cross.iter().map(|_| (access(RTT), access(RTT))));
        let unlimited = QueueSpec::DropTail(Capacity::Unlimited);
        let (mut links, mut ways) = Dumbbell { pairs, bottleneck, access_queue: unlimited }.build();
        let domains = self.hosts.iter().filter_map(|host| host.domain).max().map_or(0, |last| last + 1);
        let uplink = |domain| LinkSpec::new(format!("uplink{domain}"), fast, Duration::ZERO).with_queue(unlimited);
        let first = links.len();
        links.extend((0..domains).map(uplink));
        for (host, way) in self.hosts.iter().zip(&mut ways) {
            if let Some(domain) = host.domain {
                // After the host's own link, and before the bottleneck.
                way.there.insert(1, first + domain);
            }
        }
        let mut flows = Vec::new();
        for (host, (Host { flows: times, sizes, .. }, way)) in self.hosts.iter().zip(&ways).enumerate() {
            flows.extend(times.iter().enumerate().map(|(number, &times)| {
                let size = sizes.get(number).map(|&bytes| Workload::Once(Size::Fixed(bytes)));
                let flow = flow(format!("{host}.{number}"), way, times);
                FlowSpec { workload: size.unwrap_or(Workload::Bulk), ..flow }
            }));
        }
        let cross_traffic = self.cross.map(|(rate, pattern, start)| CrossTraffic {
            name: "cross".into(),
            path: ways[self.hosts.len()].there.clone(),
            rate,
            packet: Bytes::new(1500),
            pattern,
            start,
            stop: None,
        });
        FlowScenario {
            length: self.length,
            seed: 1,
            goodput_from: Time::ZERO,
            delays_from: Time::ZERO,
            sample_every: None,
            links,
            flows,
            cross_traffic: cross_traffic.into_iter().collect(),
            packets: PacketSpec::default(),
            steering: None,
        }
    }
}

fn flow(name: String, way: &Receiver, Times { start, stop }: Times) -> FlowSpec {
    FlowSpec {
        name,
        stack: Stack::Ours,
        controller: controller(),
        parameters: toml::Table::new(),
        receivers: vec![way.clone()],
        workload: Workload::Bulk,
        start,
        stop,
        initial_window: None,
        handshake: true,
        steered: true,
    }
}

fn five_mbit(hosts: Vec<Host>) -> Net {
    Net {
        rate: Rate::from_bits_per_sec(5_000_000),
        delay: BOTTLENECK_DELAY,
        queue: RTT,
        loss: 0.0,
        length: SHORT,
        hosts,
        cross: None,
    }
}

/// Hosts with a flow each, which begin at these seconds.
fn fixed(starts: &[f64]) -> Spec {
    let hosts = starts.iter().map(|&start| Host::from(start)).collect();
    Spec::of(Source::Fixed(Arc::new(five_mbit(hosts).scenario())))
}

/// With a pace beside the window. Over 5 Mbit/s the window of a round trip is 20.6 packets, and whole ones carry less of
/// the link than was directed: an agent that directs more than there is would beat an oracle that directs what there
/// is.
fn paced(spec: Spec) -> Spec {
    Spec { actuator: Actuator::Rate, ..spec }
}

fn drawn(draw: fn(&mut Rng) -> FlowScenario) -> Spec {
    Spec::of(Source::Drawn(draw))
}

pub(crate) fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.uniform()
}

/// Uniform in its logarithm, so that each order of magnitude counts alike.
pub(crate) fn log_between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.uniform())
}

/// The second host begins between a fifth and two thirds of the episode.
fn staggered(rng: &mut Rng) -> FlowScenario {
    five_mbit(vec![Host::from(0.0), Host::from(between(rng, 2.0, 6.5))]).scenario()
}

/// Each packet is lost with a probability between 0.1 and 10 %.
fn lossy(rng: &mut Rng) -> FlowScenario {
    Net { loss: log_between(rng, 0.001, 0.1), ..five_mbit(vec![Host::from(0.0)]) }.scenario()
}

/// [C3]'s cross traffic, on for 0.2 to 5 s, from any instant of its period on.
fn crossed(rng: &mut Rng) -> FlowScenario {
    let on = log_between(rng, 0.2, 5.0);
    crossed_by(on, between(rng, 0.0, 1.0))
}

/// [C3]'s cross traffic: 70 of 100 Mbit/s for a fifth of the time, which its figure leaves room for; on for `on_s`
/// seconds at once, and first after the share `phase` of a period.
pub fn crossed_by(on_s: f64, phase: f64) -> FlowScenario {
    let pattern = Pattern::Periodic { on: Duration::from_secs_f64(on_s), off: Duration::from_secs_f64(4.0 * on_s) };
    let start = Time::from_secs_f64(5.0 * on_s * phase);
    let rate = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
    Net { rate: rate(100), length: LONG, cross: Some((rate(70), pattern, start)), ..five_mbit(vec![Host::from(0.0)]) }
        .scenario()
}

/// What finding the course of cross traffic takes is seen besides: its share, its age, and its last times.
fn cross() -> Spec {
    let mut spec = drawn(crossed);
    spec.features.extend([Feature::CrossShare, Feature::CrossAge, Feature::CrossOn, Feature::CrossOff]);
    spec
}

/// Four hosts of one to four flows over 2 to 50 Mbit/s; round trips of 20 to 80 ms; a queue of half to twice the
/// mean one; hosts begin within the first half, and every second one ends before the episode does.
fn random(rng: &mut Rng) -> FlowScenario {
    let rate = Rate::from_bits_per_sec(log_between(rng, 2e6, 50e6) as u64);
    let queue = Duration::from_secs_f64(0.05 * log_between(rng, 0.5, 2.0));
    let length = SHORT.as_secs_f64();
    let hosts = (0..4).map(|host| {
        let rtt = Duration::from_secs_f64(between(rng, 0.02, 0.08));
        let flows = 1 + rng.below(4);
        let begin = if host == 0 { 0.0 } else { between(rng, 0.0, length / 2.0) };
        let end = rng.chance(0.5).then(|| Time::from_secs_f64(between(rng, begin + length / 4.0, length)));
        Host { rtt, flows: vec![Times { stop: end, ..Times::from(begin) }; flows], sizes: Vec::new(), domain: None }
    });
    let hosts = hosts.collect();
    Net { rate, queue, ..five_mbit(hosts) }.scenario()
}

/// Hosts of C3-Fairness, as many as ever send.
pub const FAIR_HOSTS: usize = 32;

/// Simulated time of an episode of it.
const FAIR_LENGTH: Duration = Duration::from_millis(20_000);

/// The least round trip of its hosts, and the greatest, four times as long.
const FAIR_RTTS_S: (f64, f64) = (0.02, 0.08);

/// `active` hosts of a flow each over a link of `rate`, with round trips between 20 and 80 ms (evenly in the logarithm; the
/// first host has the least, the second the greatest) and a queue of 50 ms. All begin within the first second and
/// send to the end; the rest of the 32 send nothing.
pub fn unequal_hosts(active: usize, rate: Rate, rng: &mut Rng) -> FlowScenario {
    let never = Times { start: Time::ZERO + FAIR_LENGTH * 2, stop: None };
    let hosts = (0..FAIR_HOSTS).map(|host| {
        let drawn = log_between(rng, FAIR_RTTS_S.0, FAIR_RTTS_S.1);
        let start = between(rng, 0.0, 1.0);
        let rtt = [FAIR_RTTS_S.0, FAIR_RTTS_S.1].get(host).copied().unwrap_or(drawn);
        let times = if host < active { Times::from(start) } else { never };
        Host { rtt: Duration::from_secs_f64(rtt), flows: vec![times], sizes: Vec::new(), domain: None }
    });
    let hosts = hosts.collect();
    Net { rate, length: FAIR_LENGTH, ..five_mbit(hosts) }.scenario()
}

/// The inner half of either range of [C3]'s outlook, in the logarithm: 4 to 16 of 2 to 32 hosts, over 6.3 to 63 of 2 to
/// 200 Mbit/s. That is a quarter of what a policy is held to.
fn unequal(rng: &mut Rng) -> FlowScenario {
    let active = log_between(rng, 4.0, 16.0).round() as usize;
    let rate = log_between(rng, 2e6 * 10f64.sqrt(), 2e7 * 10f64.sqrt());
    unequal_hosts(active, Rate::from_bits_per_sec(rate as u64), rng)
}

/// Shares of what there is are directed, by how many hosts there are besides.
fn fair(mut spec: Spec) -> Spec {
    spec.features.push(Feature::Hosts);
    Spec { actuator: Actuator::Share, ..spec }
}

/// Sub-domains of C3-Subdomains, and the hosts of each.
const DOMAINS: (usize, usize) = (4, 4);

/// Simulated time of an episode of it.
const DIVIDED_LENGTH: Duration = Duration::from_millis(60_000);

/// Four sub-domains of four hosts over 20 Mbit/s, with round trips from 20 to 80 ms and a queue of 50 ms. In a sub-domain
/// one to four hosts have something to send for 2 to 20 s, and then nobody for 1 to 10 s, and so on; each begins with
/// either.
pub fn divided(rng: &mut Rng) -> FlowScenario {
    let length = DIVIDED_LENGTH.as_secs_f64();
    let mut hosts = Vec::new();
    for domain in 0..DOMAINS.0 {
        let mut flows: Vec<Vec<Times>> = vec![Vec::new(); DOMAINS.1];
        let (mut at, mut is_on) = (0.0, rng.chance(0.5));
        while at < length {
            let until = at + if is_on { log_between(rng, 2.0, 20.0) } else { log_between(rng, 1.0, 10.0) };
            if is_on {
                let first = rng.below(DOMAINS.1);
                for place in 0..=rng.below(DOMAINS.1) {
                    // Not at one instant: within the first second.
                    let start = at + between(rng, 0.0, 1.0);
                    let stop = Some(Time::from_secs_f64(until));
                    flows[(first + place) % DOMAINS.1].push(Times { stop, ..Times::from(start) });
                }
            }
            (at, is_on) = (until, !is_on);
        }
        for mut flows in flows {
            if flows.is_empty() {
                // A host that never sends is one still.
                flows.push(Times::from(2.0 * length));
            }
            let rtt = Duration::from_secs_f64(log_between(rng, FAIR_RTTS_S.0, FAIR_RTTS_S.1));
            hosts.push(Host { rtt, flows, sizes: Vec::new(), domain: Some(domain) });
        }
    }
    let rate = Rate::from_bits_per_sec(20_000_000);
    Net { rate, length: DIVIDED_LENGTH, ..five_mbit(hosts) }.scenario()
}

/// Sub-domains are directed, each second, what part of an even share their hosts may have; the idle hold nothing that
/// others could have, so that it is nothing to be punished for.
fn domains(mut spec: Spec) -> Spec {
    spec.features.push(Feature::Hosts);
    let weights = Weights { sending: 0.0, ..Weights::default() };
    let interval = Duration::SECOND;
    Spec { agents: Agents::Domains, actuator: Actuator::Share, interval, weights, ..spec }
}

/// Short flows of an episode: as many as come together now and then.
const SHORT_FLOWS: usize = 16;

/// 16 flows of 5 to 500 kB, around the 50 KiB of [C3]'s figure, over 5 to 100 Mbit/s, a round trip of 20 to 80 ms and a
/// queue of half to twice the mean one; they begin within the first eight of ten seconds.
fn short_flows(rng: &mut Rng) -> FlowScenario {
    let rate = Rate::from_bits_per_sec(log_between(rng, 5e6, 100e6) as u64);
    let rtt = Duration::from_secs_f64(between(rng, 0.02, 0.08));
    let queue = Duration::from_secs_f64(0.05 * log_between(rng, 0.5, 2.0));
    let mut starts: Vec<f64> = (0..SHORT_FLOWS).map(|_| between(rng, 0.0, 8.0)).collect();
    starts.sort_by(f64::total_cmp);
    let sizes = (0..SHORT_FLOWS).map(|_| Bytes::new(log_between(rng, 5e3, 500e3) as u64)).collect();
    let host = Host { rtt, flows: starts.into_iter().map(Times::from).collect(), sizes, domain: None };
    Net { rate, queue, ..five_mbit(vec![host]) }.scenario()
}

/// The window that flows begin with is directed, and what they take counts; a window says packets, so what the link
/// carries in a round trip is seen besides.
fn completion() -> Spec {
    let mut spec = Spec { actuator: Actuator::Initial, weights: Weights::OF_COMPLETION, ..drawn(short_flows) };
    spec.features.extend([Feature::Pipe, Feature::RoundTrip, Feature::Loss]);
    spec
}

/// One flow over one link and back: what an agent that is a sender learns on.
pub(crate) struct OneLink {
    pub rate: Rate,
    /// Propagation to the receiver.
    pub there: Duration,
    /// And back.
    pub back: Duration,
    pub queue: Capacity,
    pub loss: f64,
    pub length: Duration,
    /// Of a packet.
    pub data: Bytes,
    pub header: Bytes,
    pub ack_every: u32,
    /// Packets that leave before anything is decided.
    pub first_window: u64,
}

impl OneLink {
    pub fn scenario(self) -> FlowScenario {
        let loss = if self.loss > 0.0 { LossModel::Random(Course::constant(self.loss)) } else { LossModel::None };
        let there = LinkSpec::new("bottleneck", self.rate, self.there).with_queue(QueueSpec::DropTail(self.queue));
        let mut back = LinkSpec::new("back", self.rate, self.back);
        back.rate = None;
        let way = Receiver { there: vec![0], back: vec![1] };
        let standard = PacketSpec::default();
        let ack_policy = AckPolicy { every: self.ack_every, ..standard.ack_policy };
        FlowScenario {
            length: self.length,
            seed: 1,
            goodput_from: Time::ZERO,
            delays_from: Time::ZERO,
            sample_every: None,
            links: vec![LinkSpec { loss, ..there }, back],
            flows: vec![FlowSpec {
                handshake: false,
                steered: false,
                initial_window: Some(self.data * self.first_window),
                ..flow("agent".into(), &way, Times::from(0.0))
            }],
            cross_traffic: Vec::new(),
            packets: PacketSpec { data: self.data, header: self.header, ack_policy, ..standard },
            steering: None,
        }
    }
}

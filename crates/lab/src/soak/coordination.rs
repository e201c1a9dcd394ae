//! A coordinator and its agents while everything goes wrong: reports and directives are lost and overtake each
//! other, networks fall apart and heal, the coordinator and hosts crash and come back. A case is a function of its
//! seed. Hosts send as directed, or what they want when they are alone; packets of theirs are not simulated.
//!
//! Rules: nobody panics, and all get on; no lease holds longer than it may; no share is more than its host may have; what is
//! kept is bounded; and when nothing has gone wrong for a while, all are steered again, and what they are told
//! fits the link and fills it, unless a policy decides, as in three of ten cases.

mod rest;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::policy::{Activation, Layer, Policy};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::coordination::agent::{Agent, AgentConfig, AgentEvent};
use anabranch_proto::coordination::budget::LONGEST_LIFETIME;
use anabranch_proto::coordination::coordinator::{Coordinator, CoordinatorConfig, Duty, LinkConfig, Member, Share};
use anabranch_proto::coordination::message::{Actuator, Datagram, HostSeen, LinkSeen, Seen, Terms};
use anabranch_proto::coordination::peer::{CoordinationEvent, CoordinationPeer};
use anabranch_proto::coordination::policy::{Actuator as PolicyActuator, Agents, Feature, Learned, Sight, action};
use anabranch_proto::coordination::session_config;
use anabranch_proto::session::{FlowSessions, Packet, PeerKey};
use anabranch_sim::delay::{DelayModel, JitterTail};
use anabranch_sim::fabric::NodeId;
use anabranch_sim::pairs::{Addressed, Letter, Pairs, PairsConfig};
use serde::Serialize;

use super::batches::{self, words_of};
use super::draw::{log_uniform, now_and_then, seconds};
use crate::monitor::Monitor;
use crate::parallel::Progress;
use crate::world::{Carrier, Observer, World};

/// How long troubles may begin, and for how long nothing goes wrong after them: an idle timeout, the longest time
/// between two attempts, and some.
const TROUBLED: Duration = Duration::from_millis(60_000);
const CALM: Duration = Duration::from_millis(40_000);

/// How often hosts and monitors look at what has passed.
const TICK: Duration = Duration::from_millis(10);

/// Packets and timers in a tick at most: a hundred for each of a hundred peers.
const MOST_EVENTS: u64 = 10_000;

const COORDINATOR: NodeId = NodeId(0);

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// No machine panics, whatever happens.
    NoPanic,
    /// A tick has a bounded number of events: no timer is set again to the instant at which it came.
    GetsOn,
    /// A lease ends, and no later than it may.
    LeasesEnd,
    /// A share is no more than its host may have, nor than the link carries.
    Shares,
    /// The coordinator keeps a bounded number of sessions.
    Bounded,
    /// When nothing goes wrong any more, all are steered.
    Recovers,
    /// What hosts with flows may send then fits the link beside other traffic, and fills it, where the rule decides.
    Fills,
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Repeats the case.
    pub seed: u64,
    /// The rule.
    pub rule: Rule,
    /// How it was broken.
    pub what: String,
}

/// What a soak did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Soaked {
    /// Cases that were run to their end.
    pub cases: u64,
    /// Simulated hours.
    pub simulated_hours: f64,
    /// Directives that were followed.
    pub directives: u64,
    /// Directives that came too late, or from an earlier life.
    pub ignored: u64,
    /// Leases that ended.
    pub leases_ended: u64,
    /// Messages that were lost.
    pub lost: u64,
    /// Crashes of coordinators.
    pub coordinator_crashes: u64,
    /// Crashes of agents.
    pub agent_crashes: u64,
    /// Partitions.
    pub partitions: u64,
    /// Links that could not be judged, since delays that vary ended leases to the end and beyond.
    pub never_at_rest: u64,
    /// Broken rules, in the order of their seeds.
    pub failures: Vec<Failure>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// Something that goes wrong, or changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// These nodes are cut off from the others, or are so no more.
    Cut(Vec<u32>, bool),
    /// The coordinator is gone, without a word.
    CoordinatorDies,
    /// It is back, and knows nothing of its earlier life but that there was one.
    CoordinatorReturns,
    /// An agent is gone, without a word; its flows go on alone.
    AgentDies(u32),
    /// It is back.
    AgentReturns(u32),
    /// A host has this many flows from now on.
    Flows(u32, u32),
    /// Others send so much over a link from now on.
    Other(usize, Rate),
}

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its seed.
    pub seed: u64,
    /// The configuration of the coordinator.
    pub config: CoordinatorConfig,
    /// The share of messages that is lost, until it is calm.
    pub loss: f64,
    /// Standard deviation of delays, as a share of the mean.
    pub jitter: f64,
    /// Between nodes.
    pub delay: Duration,
    /// What happens, in order.
    pub troubles: Vec<(Time, Trouble)>,
}

fn key_of(node: u32) -> PeerKey {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&node.to_be_bytes());
    PeerKey(key)
}

fn rate(rng: &mut Rng, low: f64, high: f64) -> Rate {
    Rate::from_bits_per_sec(log_uniform(rng, low, high) as u64)
}

impl Case {
    /// The case of `seed`.
    pub fn draw(seed: u64) -> Case {
        let rng = &mut Rng::stream(seed, "soaked coordination");
        let links: Vec<LinkConfig> = (0..1 + rng.below(3))
            .map(|link| LinkConfig { name: format!("link {link}"), capacity: rate(rng, 1e6, 1e9), queue: None })
            .collect();
        let hosts = log_uniform(rng, 1.0, 40.0) as usize;
        let mut members = Vec::new();
        for host in 0..hosts {
            let link = rng.below(links.len());
            let capacity = links[link].capacity.bits_per_sec() as f64;
            let least = if rng.chance(0.3) { rate(rng, 1e3, capacity / hosts as f64) } else { Rate::ZERO };
            let most = if rng.chance(0.3) { rate(rng, 0.01 * capacity, 2.0 * capacity) } else { links[link].capacity };
            let duty = Duty::Host { link, least: least.min(most), most, most_flows: 1 + rng.below(100) as u32 };
            members.push(Member { name: format!("host {host}"), key: key_of(members.len() as u32 + 1), duty });
        }
        for link in 0..links.len() {
            if rng.chance(0.7) {
                let key = key_of(members.len() as u32 + 1);
                members.push(Member { name: format!("monitor {link}"), key, duty: Duty::Monitor { link } });
            }
        }
        let mut troubles = Case::draw_troubles(rng, &links, members.len() as u32, hosts as u32);
        troubles.sort_by_key(|(at, _)| *at);
        let mut config = CoordinatorConfig {
            epoch: 1,
            every: seconds(rng, 0.02, 0.5),
            utilisation: 0.8 + 0.2 * rng.uniform(),
            actuator: [Actuator::Maximum, Actuator::Fixed, Actuator::Rate][rng.below(3)],
            share: [Share::PerFlow, Share::PerHost][rng.below(2)],
            links,
            members,
            policy: None,
        };
        let (loss, jitter) = (now_and_then(rng, 0.5), now_and_then(rng, 1.0));
        let delay = seconds(rng, 0.0001, 0.1);
        if rng.chance(0.3) {
            let learned = draw_policy(rng, config.every);
            config.actuator = learned.actuator();
            config.policy = Some(Arc::new(learned));
        }
        Case { seed, config, loss, jitter, delay, troubles }
    }

    fn draw_troubles(rng: &mut Rng, links: &[LinkConfig], members: u32, hosts: u32) -> Vec<(Time, Trouble)> {
        let mut troubles = Vec::new();
        let when = |rng: &mut Rng| Time::from_secs_f64(rng.uniform() * TROUBLED.as_secs_f64());
        let end = Time::ZERO + TROUBLED;
        for _ in 0..rng.below(5) {
            let (at, span) = (when(rng), seconds(rng, 0.1, 30.0));
            let nodes: Vec<u32> = (0..=members).filter(|_| rng.chance(0.3)).collect();
            troubles.push((at, Trouble::Cut(nodes.clone(), true)));
            troubles.push(((at + span).min(end), Trouble::Cut(nodes, false)));
        }
        // One life after the other.
        let mut lives = |rng: &mut Rng, most: usize, dies: Trouble, returns: Trouble| {
            let mut at = Time::ZERO;
            for _ in 0..rng.below(most) {
                let dead = at + seconds(rng, 0.1, 30.0);
                let back = dead + seconds(rng, 0.001, 20.0);
                if back >= end {
                    return;
                }
                troubles.push((dead, dies.clone()));
                troubles.push((back, returns.clone()));
                at = back;
            }
        };
        lives(rng, 4, Trouble::CoordinatorDies, Trouble::CoordinatorReturns);
        for node in 1..=members {
            if rng.chance(0.2) {
                lives(rng, 3, Trouble::AgentDies(node), Trouble::AgentReturns(node));
            }
        }
        for host in 1..=hosts {
            for _ in 0..rng.below(6) {
                troubles.push((when(rng), Trouble::Flows(host, rng.below(8) as u32)));
            }
        }
        for (number, link) in links.iter().enumerate() {
            for _ in 0..rng.below(4) {
                let most = link.capacity.bits_per_sec() as f64;
                troubles.push((when(rng), Trouble::Other(number, rate(rng, 0.001 * most, most))));
            }
        }
        troubles
    }
}

/// A policy that sees what hosts report, and says anything.
fn draw_policy(rng: &mut Rng, interval: Duration) -> Learned {
    let features = vec![
        Feature::Throughput,
        Feature::Active,
        Feature::Flows,
        Feature::PreviousRate,
        Feature::Hosts,
        Feature::PromptRate,
    ];
    let (history, delay) = (1 + rng.below(3), rng.below(3));
    let inputs = features.len() * history;
    let weights = (0..inputs).map(|_| (4.0 * rng.uniform() - 2.0) as f32).collect();
    let layers = vec![Layer { weights, biases: vec![rng.uniform() as f32] }];
    let policy = Policy::new(layers, Activation::Tanh, vec![0.0; inputs], vec![1.0; inputs]);
    let policy = policy.expect("a layer of as many weights as inputs");
    let actuators = [PolicyActuator::Fixed, PolicyActuator::Bounded, PolicyActuator::Rate, PolicyActuator::Share];
    let actuator = [&actuators[..], &[PolicyActuator::Lent]].concat()[rng.below(5)];
    let sight = Sight { link: 0, interval, actuator, features, history, delay, agents: Agents::Hosts };
    Learned { name: "drawn".into(), policy, sight }
}

#[cfg(not(test))]
type App = CoordinationPeer<u32>;
/// A bug may be planted in it.
#[cfg(test)]
type App = super::planted::Buggy<CoordinationPeer<u32>>;

type Peer = FlowSessions<App>;
type Carried = Packet<Terms, Datagram>;

/// Loses what crosses a cut, and a share of the rest.
#[derive(Clone, Debug)]
struct Torn {
    cut: Vec<u32>,
    loss: f64,
    rng: Rng,
    lost: u64,
}

impl Carrier<Peer> for Torn {
    type Payload = Letter<Carried>;

    fn pack(&mut self, message: &Carried, letter: &mut Letter<Carried>) {
        letter.content.clone_from(message);
    }

    fn unpack(&mut self, letter: &Letter<Carried>, message: &mut Carried) -> bool {
        let (from, to) = letter.ends();
        let crosses = self.cut[from.index()] != self.cut[to.index()];
        if crosses || self.rng.chance(self.loss) {
            self.lost += 1;
            return false;
        }
        message.clone_from(&letter.content);
        true
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    directives: u64,
    ignored: u64,
    leases_ended: u64,
}

impl Observer<Peer> for Counted {
    fn on_event(&mut self, _: Time, _: NodeId, event: CoordinationEvent) {
        match event {
            CoordinationEvent::Agent(AgentEvent::Directed(..)) => self.directives += 1,
            CoordinationEvent::Agent(AgentEvent::Ignored(_)) => self.ignored += 1,
            CoordinationEvent::Agent(AgentEvent::Alone) => self.leases_ended += 1,
            _ => {}
        }
    }
}

struct Stage<'a> {
    case: &'a Case,
    world: World<Peer, Pairs<Letter<Carried>>, Torn, Counted>,
    epoch: u64,
    lives: u64,
    /// By member: flows, and what has been sent.
    flows: Vec<u32>,
    sent: Vec<u64>,
    /// By member: when it had no lease last, if it is a host.
    alone: Vec<Time>,
    /// By link.
    other: Vec<Rate>,
    passed: Vec<u64>,
    /// Until when it was played.
    played: Time,
    soaked: Soaked,
}

impl Stage<'_> {
    fn new(case: &Case) -> Stage<'_> {
        let delay = DelayModel::Constant(case.delay);
        let pairs = PairsConfig { delay, jitter: case.jitter, jitter_tail: JitterTail::Pareto, loss: 0.0 };
        let members = case.config.members.len();
        let torn =
            Torn { cut: vec![0; members + 1], loss: case.loss, rng: Rng::stream(case.seed, "soaked loss"), lost: 0 };
        let mut stage = Stage {
            case,
            world: World::new(Pairs::new(pairs, members + 1, case.seed), torn, Counted::default(), ()),
            epoch: case.config.epoch,
            lives: 0,
            flows: vec![1; members],
            sent: vec![0; members],
            alone: vec![Time::ZERO; members],
            other: vec![Rate::ZERO; case.config.links.len()],
            passed: vec![0; case.config.links.len()],
            played: Time::ZERO,
            soaked: Soaked::default(),
        };
        for node in 0..=members as u32 {
            let peer = stage.peer(node);
            stage.world.join(peer);
        }
        stage
    }

    fn peer(&mut self, node: u32) -> Peer {
        self.lives += 1;
        let rng = Rng::indexed(self.case.seed, "peer", self.lives);
        let config = session_config(self.case.config.members.len());
        #[cfg(test)]
        let config = super::planted::coordination_sessions(config);
        let setup = Setup::new(config.packet, self.world.now()).shared();
        let cubic = find("cubic").expect("it is registered");
        let controller = (cubic.build)(&setup, &toml::Table::new()).expect("it needs no parameters");
        let app = if node == COORDINATOR.0 {
            let config = CoordinatorConfig { epoch: self.epoch, ..self.case.config.clone() };
            #[cfg(test)]
            let config = super::planted::coordinator(config);
            CoordinationPeer::Coordinator(Box::new(Coordinator::new(config)))
        } else {
            let config = AgentConfig { coordinator: COORDINATOR.0, key: key_of(0), limit: None };
            CoordinationPeer::Agent(Box::new(Agent::new(config, &rng)))
        };
        #[cfg(test)]
        let app = super::planted::Buggy::new(app);
        FlowSessions::new(app, config, key_of(node), controller, &rng)
    }

    fn agent(&self, node: u32) -> Option<&Agent<u32>> {
        let app = self.world.node(NodeId(node))?.app();
        #[cfg(test)]
        let app = &app.app;
        match app {
            CoordinationPeer::Agent(agent) => Some(agent),
            CoordinationPeer::Coordinator(_) => None,
        }
    }

    fn strike(&mut self, trouble: &Trouble) {
        match trouble {
            Trouble::Cut(nodes, is_cut) => {
                let torn = self.world.carrier_mut();
                for node in nodes {
                    let depth = &mut torn.cut[*node as usize];
                    *depth = if *is_cut { *depth + 1 } else { *depth - 1 };
                }
                self.soaked.partitions += u64::from(*is_cut);
            }
            Trouble::CoordinatorDies => {
                self.world.leave(COORDINATOR);
                self.soaked.coordinator_crashes += 1;
            }
            Trouble::CoordinatorReturns => {
                self.epoch += 1;
                let peer = self.peer(COORDINATOR.0);
                self.world.rejoin(COORDINATOR, peer);
            }
            Trouble::AgentDies(node) => {
                self.world.leave(NodeId(*node));
                self.soaked.agent_crashes += 1;
            }
            Trouble::AgentReturns(node) => {
                let peer = self.peer(*node);
                self.world.rejoin(NodeId(*node), peer);
            }
            Trouble::Flows(host, flows) => self.flows[*host as usize - 1] = *flows,
            Trouble::Other(link, rate) => self.other[*link] = *rate,
        }
    }

    /// Hosts send for a tick, and all agents look.
    fn tick(&mut self) -> Result<(), (Rule, String)> {
        let members = &self.case.config.members;
        for (link, other) in self.other.iter().enumerate() {
            self.passed[link] += (*other * TICK).get();
        }
        for (place, member) in members.iter().enumerate() {
            let Duty::Host { link, most, .. } = member.duty else { continue };
            let held = self.agent(place as u32 + 1).and_then(Agent::budget);
            if let Some((directive, ends)) = held {
                let now = self.world.now();
                if ends < now || ends > now + LONGEST_LIFETIME {
                    return Err((Rule::LeasesEnd, format!("at {now:?}, {} has a lease until {ends:?}", member.name)));
                }
                // A policy may build a queue on purpose.
                let config = &self.case.config;
                let times = if config.policy.is_some() { f64::from(action::MOST) } else { 1.0 };
                let of_link = config.links[link].capacity.bytes_per_sec() * times;
                if directive.rate > most.min(Rate::from_bytes_per_sec_f64(of_link)) {
                    return Err((Rule::Shares, format!("{} may send {:?} of {most:?}", member.name, directive.rate)));
                }
            }
            if held.is_none() {
                self.alone[place] = self.world.now();
            }
            let rate = match (self.flows[place], held) {
                (0, _) => Rate::ZERO,
                (_, Some((directive, _))) => directive.rate,
                // Alone, it takes a part that the coordinator does not know.
                (_, None) => Rate::from_bits_per_sec(self.case.config.links[link].capacity.bits_per_sec() / 3),
            };
            let sent = (rate * TICK).get();
            self.sent[place] += sent;
            self.passed[link] += sent;
        }
        for (place, member) in members.iter().enumerate() {
            let sent = self.sent[place];
            let seen = match member.duty {
                Duty::Host { .. } => {
                    Seen::Host(HostSeen { flows: self.flows[place], sent: Bytes::new(sent), ..HostSeen::default() })
                }
                Duty::Monitor { link } => {
                    Seen::Link(LinkSeen { sent: Bytes::new(self.passed[link]), ..LinkSeen::default() })
                }
            };
            self.world.act(NodeId(place as u32 + 1), |sessions, now, out| {
                sessions.act(now, out, |app, _| {
                    #[cfg(test)]
                    let app = &mut app.app;
                    if let CoordinationPeer::Agent(agent) = app {
                        agent.set_seen(now, seen);
                    }
                });
            });
        }
        Ok(())
    }

    fn play(&mut self, monitor: &dyn Monitor) -> Result<(), (Rule, String)> {
        let (calm, end) = (Time::ZERO + TROUBLED, Time::ZERO + TROUBLED + CALM);
        let mut troubles = self.case.troubles.iter().peekable();
        let mut now = Time::ZERO;
        let links = 0..self.case.config.links.len();
        let are_at_rest = |stage: &Self| links.clone().all(|link| stage.is_at_rest(link));
        while (now < end || now < end + CALM && !are_at_rest(self)) && !monitor.is_interrupted() {
            if !self.world.step_at_most(now, MOST_EVENTS) {
                return Err((Rule::GetsOn, format!("{MOST_EVENTS} events in {TICK:?} before {now:?}")));
            }
            while let Some((_, trouble)) = troubles.next_if(|(at, _)| *at <= now) {
                self.strike(trouble);
            }
            if now >= calm {
                self.world.carrier_mut().loss = 0.0;
            }
            self.tick()?;
            now += TICK;
        }
        self.played = now;
        self.is_well()?;
        let restless = links.filter(|link| !self.is_at_rest(*link)).count() as u64;
        if restless > 0 && self.case.jitter == 0.0 {
            return Err((Rule::Recovers, format!("leases at {restless} links end though no delay varies")));
        }
        self.soaked.never_at_rest = restless;
        Ok(())
    }
}

fn run(case: &Case, monitor: &dyn Monitor) -> Option<Soaked> {
    let seed = case.seed;
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut stage = Stage::new(case);
        let outcome = stage.play(monitor);
        let Counted { directives, ignored, leases_ended } = *stage.world.observer();
        let lost = stage.world.carrier_mut().lost;
        let simulated_hours = stage.played.as_secs_f64() / 3600.0;
        (Soaked { simulated_hours, directives, ignored, leases_ended, lost, ..stage.soaked }, outcome.err())
    }));
    if monitor.is_interrupted() {
        return None;
    }
    let (soaked, broken) = ran.unwrap_or_else(|panic| (Soaked::default(), Some((Rule::NoPanic, words_of(&*panic)))));
    let failures = broken.map(|(rule, what)| Failure { seed, rule, what }).into_iter().collect();
    Some(Soaked { cases: 1, failures, ..soaked })
}

impl Soaked {
    fn add(&mut self, other: Soaked) {
        self.cases += other.cases;
        self.simulated_hours += other.simulated_hours;
        self.directives += other.directives;
        self.ignored += other.ignored;
        self.leases_ended += other.leases_ended;
        self.lost += other.lost;
        self.coordinator_crashes += other.coordinator_crashes;
        self.agent_crashes += other.agent_crashes;
        self.partitions += other.partitions;
        self.never_at_rest += other.never_at_rest;
        self.failures.extend(other.failures);
    }
}

/// Runs the cases of `first`, `first` + 1, ... on `threads` threads, as many as there are cores if none is given.
///
/// # Panics
///
/// When the system has no thread left.
pub fn soak(first: u64, cases: u64, threads: Option<usize>, progress: &Progress) -> Soaked {
    let mut soaked = Soaked::default();
    batches::run_counted(
        first,
        cases,
        threads,
        progress,
        |seed, monitor| run(&Case::draw(seed), monitor),
        |ran| soaked.add(ran),
    );
    soaked.interrupted = progress.is_interrupted();
    soaked
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hosts and a monitor of one link of 10 Mbit/s, 5 ms from their coordinator.
    pub(super) fn case(epoch: u64) -> Case {
        let capacity = Rate::from_bits_per_sec(10_000_000);
        let host = Duty::Host { link: 0, least: Rate::ZERO, most: capacity, most_flows: 8 };
        let duties = [host, host, Duty::Monitor { link: 0 }];
        let member = |(place, duty)| Member { name: format!("member {place}"), key: key_of(place as u32 + 1), duty };
        let config = CoordinatorConfig {
            epoch,
            every: Duration::from_millis(100),
            utilisation: 0.95,
            actuator: Actuator::Rate,
            share: Share::PerHost,
            links: vec![LinkConfig { name: "link".into(), capacity, queue: None }],
            members: duties.into_iter().enumerate().map(member).collect(),
            policy: None,
        };
        Case { seed: 1, config, loss: 0.0, jitter: 0.0, delay: Duration::from_millis(5), troubles: Vec::new() }
    }

    /// Lets it run until `done` says so, or `end`; when that was.
    fn play_until(stage: &mut Stage<'_>, end: Time, mut done: impl FnMut(&Stage<'_>) -> bool) -> Option<Time> {
        // What hosts send in the tick that is here has been counted.
        let mut now = stage.world.now() + TICK;
        while now < end {
            assert!(stage.world.step_at_most(now, MOST_EVENTS));
            stage.tick().unwrap();
            if done(stage) {
                return Some(now);
            }
            now += TICK;
        }
        None
    }

    fn directed_rate(stage: &Stage<'_>, node: u32) -> u64 {
        stage.agent(node).and_then(Agent::budget).map_or(0, |(held, _)| held.rate.bits_per_sec())
    }

    /// What it sent before counts as others' until the coordinator has reports that say it was its own.
    #[test]
    fn a_host_that_comes_while_it_fills_the_link_has_its_share_within_a_second() {
        let case = case(1);
        let mut stage = Stage::new(&case);
        // This many flows of its own: alone, it takes all that the other leaves.
        stage.strike(&Trouble::AgentDies(2));
        stage.other[0] = Rate::from_bits_per_sec(5_600_000);
        let at = |seconds: f64| Time::from_secs_f64(seconds);
        play_until(&mut stage, at(5.0), |_| false);
        let before = directed_rate(&stage, 1);
        assert!(before < 1_000_000, "the link is full: {before}");
        stage.other[0] = Rate::ZERO;
        stage.strike(&Trouble::AgentReturns(2));
        let is_even = |stage: &Stage<'_>| (1..=2).all(|node| directed_rate(stage, node) > 4_500_000);
        let even = play_until(&mut stage, at(10.0), is_even).expect("both are told half of the link");
        assert!(even < at(6.0), "told at {even}");
    }

    /// It dies at each of ten instants between two decisions.
    #[test]
    fn hosts_are_alone_within_300_ms_of_their_coordinators_death() {
        let case = case(1);
        for step in 0..10 {
            let mut stage = Stage::new(&case);
            let dies = Time::from_secs_f64(5.0) + TICK * step;
            play_until(&mut stage, dies, |_| false);
            let ended = stage.world.observer().leases_ended;
            stage.strike(&Trouble::CoordinatorDies);
            let is_alone = |stage: &Stage<'_>| (1..=2).all(|node| directed_rate(stage, node) == 0);
            let alone = play_until(&mut stage, dies + Duration::SECOND, is_alone).expect("leases end");
            let took = alone.since(dies);
            assert!(took > Duration::from_millis(200) && took < Duration::from_millis(300), "{took:?}");
            assert_eq!(stage.world.observer().leases_ended, ended + 2);
        }
    }

    /// All that is said to a coordinator and by it is lost for 70 ms, which are one or two directives.
    #[test]
    fn no_lease_ends_for_two_directives_that_are_lost() {
        let case = case(1);
        for step in 0..10 {
            let mut stage = Stage::new(&case);
            let from = Time::from_secs_f64(5.0) + TICK * step;
            play_until(&mut stage, from, |_| false);
            let (before, lost) = (*stage.world.observer(), stage.world.carrier_mut().lost);
            stage.strike(&Trouble::Cut(vec![COORDINATOR.0], true));
            let to = from + Duration::from_millis(70);
            play_until(&mut stage, to, |_| false);
            stage.strike(&Trouble::Cut(vec![COORDINATOR.0], false));
            play_until(&mut stage, to + Duration::SECOND, |_| false);
            assert!(stage.world.carrier_mut().lost >= lost + 2, "one for each host at least");
            assert_eq!(stage.world.observer().leases_ended, before.leases_ended, "from {from}");
        }
    }

    /// A monitor reports each 25 ms here, and what it says is no longer fresh after 131.
    #[test]
    fn other_traffic_is_not_forgotten_while_the_session_of_its_monitor_stands() {
        let case = case(1);
        let mut stage = Stage::new(&case);
        stage.other[0] = Rate::from_bits_per_sec(6_000_000);
        let at = |seconds: f64| Time::from_secs_f64(seconds);
        let together = |stage: &Stage<'_>| directed_rate(stage, 1) + directed_rate(stage, 2);
        play_until(&mut stage, at(5.0), |_| false);
        // 9.5 less 6 Mbit/s, within what the rule allows.
        let is_left = |rate: u64| rate.abs_diff(3_500_000) < 200_000;
        assert!(is_left(together(&stage)), "{}", together(&stage));
        stage.strike(&Trouble::Cut(vec![3], true));
        let more = play_until(&mut stage, at(8.0), |stage| !is_left(together(stage)));
        assert_eq!(more, None, "they may send {}", together(&stage));
        stage.strike(&Trouble::Cut(vec![3], false));
        let more = play_until(&mut stage, at(12.0), |stage| !is_left(together(stage)));
        assert_eq!(more, None, "they may send {}", together(&stage));
        // One that is gone for good is not believed for ever.
        stage.strike(&Trouble::AgentDies(3));
        let all = play_until(&mut stage, at(30.0), |stage| together(stage) > 9_400_000).expect("they have the link");
        assert!(all > at(16.0) && all < at(18.0), "{all}");
    }

    /// Neither its first life nor a later one knows anything of the link; its monitor comes a second after the hosts.
    #[test]
    fn a_coordinator_that_begins_gives_away_nothing_that_others_use() {
        let case = case(1);
        let mut stage = Stage::new(&case);
        stage.other[0] = Rate::from_bits_per_sec(6_000_000);
        let at = |seconds: f64| Time::from_secs_f64(seconds);
        let together = |stage: &Stage<'_>| directed_rate(stage, 1) + directed_rate(stage, 2);
        for begins in [0.0, 10.0] {
            if begins > 0.0 {
                stage.strike(&Trouble::CoordinatorDies);
                stage.strike(&Trouble::CoordinatorReturns);
            }
            stage.strike(&Trouble::Cut(vec![3], true));
            // 9.5 less 6 Mbit/s, within what the rule allows.
            let is_more = |stage: &Stage<'_>| together(stage) > 3_700_000;
            assert_eq!(play_until(&mut stage, at(begins + 1.0), is_more), None, "they may send {}", together(&stage));
            stage.strike(&Trouble::Cut(vec![3], false));
            assert_eq!(play_until(&mut stage, at(begins + 10.0), is_more), None, "they may send {}", together(&stage));
            assert!(together(&stage) > 3_300_000, "they may send {}", together(&stage));
        }
    }

    #[test]
    fn a_monitor_that_never_comes_is_waited_for_as_long_as_one_that_has_gone_is_believed() {
        let case = case(1);
        let mut stage = Stage::new(&case);
        stage.strike(&Trouble::AgentDies(3));
        let at = |seconds: f64| Time::from_secs_f64(seconds);
        let first = play_until(&mut stage, at(20.0), |stage| directed_rate(stage, 1) > 0).expect("they have the link");
        assert!(first > at(5.0) && first < at(5.5), "{first}");
    }

    /// One or two of them have flows, and one keeps `least` as long as there is so much. They report
    /// seldom, when they were directed another rate already.
    fn small_budgets_come_to_rest(left: u64, least: u64, hosts: u32, delay: u64) {
        let mut case = case(1);
        case.delay = Duration::from_millis(delay);
        let Duty::Host { least: kept, .. } = &mut case.config.members[0].duty else { unreachable!("a host") };
        *kept = Rate::from_bits_per_sec(least);
        let mut stage = Stage::new(&case);
        stage.strike(&Trouble::Flows(2, hosts - 1));
        let at = |seconds: f64| Time::from_secs_f64(seconds);
        play_until(&mut stage, at(5.0), |_| false);
        stage.other[0] = Rate::from_bits_per_sec(9_500_000 - left);
        play_until(&mut stage, at(20.0), |_| false);
        let together = |stage: &Stage<'_>| (1..=hosts).map(|node| directed_rate(stage, node)).sum::<u64>();
        let off = play_until(&mut stage, at(40.0), |stage| together(stage).abs_diff(left) > left / 50);
        let setting = format!("{left} bit/s left, {least} kept, {hosts} hosts, {delay} ms");
        assert_eq!(off, None, "{setting}: they may send {}", together(&stage));
    }

    #[test]
    fn small_budgets_come_to_rest_at_what_others_leave() {
        for left in [50_000, 100_000, 130_000, 200_000, 300_000, 400_000] {
            for least in [0, 300_000, 600_000] {
                for hosts in [1, 2] {
                    for delay in [1, 5, 50] {
                        small_budgets_come_to_rest(left, least, hosts, delay);
                    }
                }
            }
        }
    }

    #[test]
    fn a_coordinator_whose_clock_was_put_back_is_followed_by_those_who_knew_it() {
        let case = case(1_000_000);
        let mut stage = Stage::new(&case);
        let at = |seconds: f64| Time::from_secs_f64(seconds);
        play_until(&mut stage, at(5.0), |_| false);
        assert!(directed_rate(&stage, 1) > 4_500_000);
        stage.strike(&Trouble::CoordinatorDies);
        stage.epoch = 5;
        play_until(&mut stage, at(8.0), |_| false);
        assert_eq!(directed_rate(&stage, 1), 0, "its lease is over");
        stage.strike(&Trouble::CoordinatorReturns);
        let steered =
            play_until(&mut stage, at(60.0), |stage| (1..=2).all(|node| directed_rate(stage, node) > 4_500_000));
        assert!(steered.is_some(), "{:?}", stage.world.observer());
        assert_eq!(stage.world.observer().ignored, 0);
    }

    /// Agents come and go, and the coordinator dies for a while.
    fn lively() -> Case {
        let mut case = case(1);
        let at = |seconds: u64| Time::ZERO + Duration::SECOND * seconds;
        for life in 0..10 {
            case.troubles.push((at(10 + 3 * life), Trouble::AgentDies(1)));
            case.troubles.push((at(11 + 3 * life), Trouble::AgentReturns(1)));
        }
        case.troubles.push((at(45), Trouble::CoordinatorDies));
        case.troubles.push((at(50), Trouble::CoordinatorReturns));
        case.troubles.sort_by_key(|(at, _)| *at);
        case
    }

    #[test]
    fn a_bug_for_each_rule_is_found_under_it_and_none_without_one() {
        use super::super::planted::{self, Breaks};
        let without = run(&lively(), &()).expect("nobody interrupts it");
        assert_eq!(without.failures, []);
        for rule in
            [Rule::NoPanic, Rule::GetsOn, Rule::LeasesEnd, Rule::Shares, Rule::Bounded, Rule::Recovers, Rule::Fills]
        {
            let mut case = lively();
            if rule == Rule::Bounded {
                // Who begins a life anew has the sessions of the ones before.
                case.troubles
                    .retain(|(_, trouble)| !matches!(trouble, Trouble::CoordinatorDies | Trouble::CoordinatorReturns));
            }
            if rule == Rule::Shares {
                let Duty::Host { most, .. } = &mut case.config.members[0].duty else { unreachable!("a host") };
                *most = Rate::from_bits_per_sec(1_000_000);
            }
            let ran = planted::with(Breaks::Coordination(rule), || run(&case, &())).expect("nobody interrupts it");
            let [Failure { seed, rule: broken, what }] = &ran.failures[..] else { panic!("{rule:?} is not found") };
            assert_eq!((*seed, *broken), (case.seed, rule), "{what}");
        }
    }
}

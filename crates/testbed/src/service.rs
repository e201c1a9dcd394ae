//! A run whose flows are steered by a coordinator as it is deployed: the machines of `anabranch coordinate` and of
//! `anabranch agent` over QUIC, an agent for each host and a monitor for the link, beside the packets that they steer.
//!
//! ```text
//! [ senders ] --sent, flows--> agents --reports--> coordinator <--reports-- monitor <--passed-- [ emulator ]
//!      ^----- bounds, leases ----'    <--budgets-------'
//! ```
//!
//! What they say goes over loopback, out of band, as in [C3].

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;

use anabranch_control::flow::Bounds;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::flows::FlowScenario;
use anabranch_lab::flows::node::Sent as Packets;
use anabranch_lab::flows::steerable::RoundTripSeen;
use anabranch_lab::flows::view::longest_wait;
use anabranch_lab::monitor::Monitor;
use anabranch_net::clock::Clock;
use anabranch_net::coordination::flows::FlowAgent;
use anabranch_net::coordination::node::{CoordinationError, CoordinationNode};
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_proto::coordination::coordinator::{
    Coordinator, CoordinatorConfig, Duty, Known, LinkConfig, Member, Share,
};
use anabranch_proto::coordination::fitness::{self, Unfit};
use anabranch_proto::coordination::forecast::Expected;
use anabranch_proto::coordination::message::{Actuator, HostSeen, LinkSeen, Seen};
use anabranch_proto::coordination::peer::CoordinationPeer;
use anabranch_proto::coordination::policy::{Learned, action};
use anabranch_proto::session::PeerKey;
use anabranch_scenario::policy::hosts;
use anabranch_sim::network::{LinkId, rate_stream};
use anabranch_sim::varying::Varying;

use super::failure::TestbedFailure;
use super::lengths::share;
use super::plan::Plan;
use super::{Emulated, run_with};

/// How often senders look at their leases and tell what they do, if it decides no more often than five times in that.
const LOOK: Duration = Duration::from_millis(20);

/// As many looks are between two of its decisions at least.
const LOOKS: u64 = 5;

/// How often it is noted what the coordinator believes.
const NOTE: Duration = Duration::from_millis(100);

/// How it divides a link.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// The link, by its number in the scenario.
    pub link: usize,
    /// How often it decides.
    pub every: Duration,
    /// Which part of the link it gives away.
    pub utilisation: f64,
    /// How hosts share.
    pub share: Share,
    /// What the rule takes cross traffic to do.
    pub expected: Expected,
    /// Who decides in place of the rule, as often as `every`.
    pub policy: Option<Arc<Learned>>,
}

/// What a coordinator did in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coordination {
    /// What it believed and had directed, from time to time.
    pub believed: Vec<Believed>,
    /// Its decisions, each of which holds until the next.
    pub decided: Vec<Decided>,
    /// What its policy has seen that no training had shown it, if it has.
    pub beyond: Option<String>,
}

/// Who made a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// When.
    pub at: Time,
    /// Whether it was the policy; else the rule.
    pub by_policy: bool,
    /// Why the rule made it though there is a policy.
    pub rule_because: Option<String>,
}

/// What the coordinator believed and had directed at an instant of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Believed {
    /// When.
    pub at: Time,
    /// What others than the hosts send.
    pub other: Rate,
    /// What hosts that send may send.
    pub given: Rate,
    /// What each host may send; none without a lease.
    pub budgets: Vec<Option<Rate>>,
}

/// The service at work.
#[derive(Debug)]
pub struct Service<'a> {
    scenario: &'a FlowScenario,
    link: usize,
    /// What that carries at first; none if it has no rate.
    capacity: Option<Rate>,
    look: Duration,
    hosts: Vec<Vec<usize>>,
    agents: Vec<FlowAgent>,
    monitor: FlowAgent,
    on: Vec<AtomicBool>,
    /// What each flow's sender has counted, and the round trips of its connection.
    reported: Mutex<Vec<(Packets, Option<RoundTripSeen>)>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The run's; none before it.
    clock: OnceLock<Clock>,
    /// When the run is over on that clock. What is decided later, while links are taken down, is none of its.
    end: Time,
    history: Mutex<Coordination>,
    is_over: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `scenario` on real packets as [`super::run`] does, its flows that pass the link steered by a coordinator and
/// agents over QUIC.
///
/// # Errors
///
/// As [`super::run`], and when coordinator or agents can't run.
///
/// # Panics
///
/// When a policy does not fit ([`fits`]).
pub fn run_coordinated(
    scenario: &FlowScenario,
    config: &ServiceConfig,
    monitor: &dyn Monitor,
) -> Result<(Emulated, Coordination), TestbedFailure> {
    let service = Service::start(scenario, config)?;
    let emulated = run_with(scenario, monitor, Some(&service))?;
    let history = std::mem::take(&mut *lock(&service.shared.history));
    Ok((emulated, history))
}

/// Whether the policy of `config`, if it has one, can decide for the hosts of `scenario`.
///
/// # Errors
///
/// Why not.
pub fn fits(scenario: &FlowScenario, config: &ServiceConfig) -> Result<(), Unfit> {
    let Some(learned) = &config.policy else { return Ok(()) };
    let keys: Vec<PeerKey> =
        (0..=hosts(scenario, config.link).len()).map(|_| PeerIdentity::generate().public()).collect();
    fitness::check(learned, &settled(scenario, config, &keys))
}

/// What the link of `config` carries at first; none if a packet takes no time.
fn capacity(scenario: &FlowScenario, link: usize) -> Option<Rate> {
    let link = scenario.links[link].config();
    link.rate.as_ref().map(|rate| Varying::new(rate, rate_stream(scenario.seed, &link.name)).at(Time::ZERO))
}

/// The configuration of the coordinator: agents of these keys, of whom the last is the monitor.
fn settled(scenario: &FlowScenario, config: &ServiceConfig, keys: &[PeerKey]) -> CoordinatorConfig {
    let (monitor, hosts) = keys.split_last().expect("there is a monitor");
    let capacity = capacity(scenario, config.link).unwrap_or(Rate::from_bits_per_sec(u64::MAX));
    let packet = scenario.packets.data + scenario.packets.header;
    let link = &scenario.links[config.link];
    let queue = longest_wait(&link.queue, capacity.bytes_per_sec(), packet.get() as f64);
    // As `anabranch coordinate` has it: a policy may build a queue on purpose.
    let (most, actuator) = match &config.policy {
        Some(learned) => (capacity.bytes_per_sec() * f64::from(action::MOST), learned.actuator()),
        None => (capacity.bytes_per_sec(), Actuator::Rate),
    };
    let most = Rate::from_bytes_per_sec_f64(most);
    let duty = Duty::Host { link: 0, least: Rate::ZERO, most, most_flows: u32::MAX };
    let hosts = hosts.iter().enumerate();
    let mut members: Vec<Member> =
        hosts.map(|(number, &key)| Member { name: format!("host{number}"), key, duty }).collect();
    members.push(Member { name: "monitor".to_owned(), key: *monitor, duty: Duty::Monitor { link: 0 } });
    CoordinatorConfig {
        epoch: 1,
        every: config.every,
        utilisation: config.utilisation,
        actuator,
        share: config.share,
        expected: config.expected,
        links: vec![LinkConfig { name: link.name.clone(), capacity, queue: Some(Duration::from_secs_f64(queue)) }],
        members,
        policy: config.policy.clone(),
    }
}

impl<'a> Service<'a> {
    fn start(scenario: &'a FlowScenario, config: &ServiceConfig) -> Result<Service<'a>, CoordinationError> {
        let hosts = hosts(scenario, config.link);
        let keys: Vec<PeerIdentity> = (0..=hosts.len()).map(|_| PeerIdentity::generate()).collect();
        let (monitor_key, host_keys) = keys.split_last().expect("there is a monitor");
        let (link, look) = (config.link, LOOK.min(config.every / LOOKS));
        let config = settled(scenario, config, &keys.iter().map(PeerIdentity::public).collect::<Vec<_>>());
        let shared = Arc::new(Shared {
            clock: OnceLock::new(),
            end: Time::ZERO + scenario.length,
            history: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let its = Arc::clone(&shared);
        let (report, started) = mpsc::channel();
        let thread = std::thread::Builder::new().name("coordinator".into()).spawn(move || {
            let listen = (Ipv4Addr::LOCALHOST, 0).into();
            match CoordinationNode::coordinate(config, &PeerIdentity::generate(), listen) {
                Ok(node) => {
                    let _ = report.send(Ok(node.link().clone()));
                    // Should the system fail it, leases end and flows are on their own, which the run shows.
                    let _ = its.coordinate(node, look);
                }
                Err(error) => _ = report.send(Err(error)),
            }
        })?;
        let address = started.recv().map_err(std::io::Error::other)??;
        let agent = |key: &PeerIdentity| FlowAgent::start(address.clone(), PeerIdentity::from_secret(*key.secret()));
        Ok(Service {
            agents: host_keys.iter().map(agent).collect::<Result<_, _>>()?,
            monitor: agent(monitor_key)?,
            on: scenario.flows.iter().map(|_| AtomicBool::new(false)).collect(),
            reported: Mutex::new(vec![Default::default(); scenario.flows.len()]),
            capacity: capacity(scenario, link),
            link,
            look,
            hosts,
            scenario,
            shared,
            thread: Some(thread),
        })
    }

    /// The link that it divides.
    pub fn link(&self) -> LinkId {
        LinkId(self.link as u32)
    }

    /// How often senders look at their leases and tell what they do.
    pub fn look(&self) -> Duration {
        self.look
    }

    /// The run begins with this clock.
    pub fn begin(&self, clock: Clock) {
        let _ = self.shared.clock.set(clock);
    }

    /// A flow's application goes on or off.
    pub fn note(&self, flow: usize, is_on: bool) {
        self.on[flow].store(is_on, Ordering::Relaxed);
    }

    /// What all connections of a flow have counted so far, and the round trips of the one that it has.
    pub fn report(&self, flow: usize, counted: Packets, round_trip: Option<RoundTripSeen>) {
        lock(&self.reported)[flow] = (counted, round_trip);
    }

    fn active(&self, host: usize) -> usize {
        self.hosts[host].iter().filter(|flow| self.on[**flow].load(Ordering::Relaxed)).count()
    }

    /// Tells the agents what hosts and link do.
    pub fn observe(&self, plan: &Plan) {
        let reported = lock(&self.reported).clone();
        // Senders count packets: those that are lost are full ones.
        let packet = self.scenario.packets.data + self.scenario.packets.header;
        for (host, agent) in self.agents.iter().enumerate() {
            let flows = || self.hosts[host].iter().copied();
            let round_trips = || flows().filter_map(|flow| reported[flow].1);
            let smoothed: u64 = round_trips().map(|seen| seen.smoothed.as_nanos()).sum();
            agent.set_seen(Seen::Host(HostSeen {
                flows: self.active(host) as u32,
                sent: Bytes::new(flows().map(|flow| plan.counted.sent(flow)).sum()),
                lost: packet * flows().map(|flow| reported[flow].0.lost).sum::<u64>(),
                min_rtt: round_trips().map(|seen| seen.min).min(),
                rtt: smoothed.checked_div(round_trips().count() as u64).map(Duration::from_nanos),
                ..HostSeen::default()
            }));
        }
        let flows = self.hosts.iter().flatten().map(|flow| plan.counted.passed(*flow)).sum::<u64>();
        let link = plan.counted.link();
        self.monitor.set_seen(Seen::Link(LinkSeen {
            capacity: None,
            sent: Bytes::new(flows + plan.cross_bytes.load(Ordering::Relaxed)),
            queued: Some(self.capacity.map_or(Bytes::ZERO, |rate| rate * link.waits)),
            dropped: link.dropped,
        }));
    }

    /// The bounds of `flow` at `now`, under its least round trip; none while it is on its own. What held before ends by
    /// itself.
    pub fn bounds(&self, now: Time, flow: usize, min_rtt: Option<Duration>) -> Option<Bounds> {
        let host = self.hosts.iter().position(|flows| flows.contains(&flow))?;
        let lease = self.agents[host].lease()?;
        let (flows, packet) = (self.active(host) as u32, self.scenario.packets.data);
        let bounds = lease.bounds(flows, share(self.scenario, flow), min_rtt, packet);
        Some(Bounds { expires: Some(now + lease.left()?), ..bounds })
    }
}

impl Shared {
    fn coordinate(&self, mut node: CoordinationNode, look: Duration) -> std::io::Result<()> {
        let (mut next, mut decisions) = (Time::ZERO, 0);
        while !self.is_over.load(Ordering::Relaxed) {
            let now = node.now();
            node.turn(now + look)?;
            while node.poll_event().is_some() {}
            let now = node.now();
            let (Some(clock), CoordinationPeer::Coordinator(coordinator)) = (self.clock.get(), node.peer()) else {
                continue;
            };
            let at = clock.now();
            if at >= self.end {
                continue;
            }
            let mut history = lock(&self.history);
            if decisions != coordinator.decisions() {
                decisions = coordinator.decisions();
                let (by_policy, rule_because) = (coordinator.is_by_policy(0), coordinator.blocked(0));
                history.decided.push(Decided { at, by_policy, rule_because });
                history.beyond = coordinator.beyond(0).map(str::to_owned);
            }
            if now >= next {
                next = now + NOTE;
                history.believed.push(believed(coordinator, now, at));
            }
        }
        node.stop()
    }
}

/// What it believes `now` on its clock, when it is `at` in the run.
fn believed<A>(coordinator: &Coordinator<A>, now: Time, at: Time) -> Believed {
    let hosts = coordinator.config().members.iter().zip(coordinator.known());
    let hosts = hosts.filter(|(member, _)| matches!(member.duty, Duty::Host { .. }));
    let lease = |known: &Known| known.budget().filter(|(_, ends)| *ends > now).map(|(rate, _)| rate);
    let divided = coordinator.divided()[0];
    let budgets = hosts.map(|(_, known)| lease(known)).collect();
    Believed { at, other: divided.other, given: divided.given, budgets }
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Had it panicked, it would have said so.
            let _ = thread.join();
        }
    }
}

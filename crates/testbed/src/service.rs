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
use anabranch_lab::monitor::Monitor;
use anabranch_net::clock::Clock;
use anabranch_net::coordination::flows::FlowAgent;
use anabranch_net::coordination::node::{CoordinationError, CoordinationNode};
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_proto::coordination::coordinator::{CoordinatorConfig, Duty, LinkConfig, Member, Share};
use anabranch_proto::coordination::message::{Actuator, HostSeen, LinkSeen, Seen};
use anabranch_proto::coordination::peer::CoordinationPeer;
use anabranch_scenario::policy::hosts;
use anabranch_sim::network::rate_stream;
use anabranch_sim::varying::Varying;

use super::failure::TestbedFailure;
use super::lengths::share;
use super::plan::Plan;
use super::{Emulated, run_with};

/// How often senders look at their leases and tell what they do.
pub const LOOK: Duration = Duration::from_millis(20);

/// How often it is noted what the coordinator believes.
const NOTE: Duration = Duration::from_millis(100);

/// How it divides a link.
#[derive(Clone, Copy, Debug)]
pub struct ServiceConfig {
    /// The link, by its number in the scenario.
    pub link: usize,
    /// How often it decides.
    pub every: Duration,
    /// Which part of the link it gives away.
    pub utilisation: f64,
    /// How hosts share.
    pub share: Share,
}

/// What the coordinator believed and had told at an instant of the run.
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
    hosts: Vec<Vec<usize>>,
    agents: Vec<FlowAgent>,
    monitor: FlowAgent,
    on: Vec<AtomicBool>,
    min_rtts: Mutex<Vec<Option<Duration>>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The run's; none before it.
    clock: OnceLock<Clock>,
    history: Mutex<Vec<Believed>>,
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
pub fn run_coordinated(
    scenario: &FlowScenario,
    config: ServiceConfig,
    monitor: &dyn Monitor,
) -> Result<(Emulated, Vec<Believed>), TestbedFailure> {
    let service = Service::start(scenario, config)?;
    let emulated = run_with(scenario, monitor, Some(&service))?;
    let history = std::mem::take(&mut *lock(&service.shared.history));
    Ok((emulated, history))
}

impl<'a> Service<'a> {
    fn start(scenario: &'a FlowScenario, config: ServiceConfig) -> Result<Service<'a>, CoordinationError> {
        let hosts = hosts(scenario, config.link);
        let link = scenario.links[config.link].config();
        let drawn =
            link.rate.as_ref().map(|rate| Varying::new(rate, rate_stream(scenario.seed, &link.name)).at(Time::ZERO));
        let capacity = drawn.unwrap_or(Rate::from_bits_per_sec(u64::MAX));
        let keys: Vec<PeerIdentity> = (0..=hosts.len()).map(|_| PeerIdentity::generate()).collect();
        let (monitor_key, host_keys) = keys.split_last().expect("there is a monitor");
        let duty = Duty::Host { link: 0, least: Rate::ZERO, most: capacity, most_flows: u32::MAX };
        let member = |name: String, key: &PeerIdentity, duty| Member { name, key: key.public(), duty };
        let mut members: Vec<Member> =
            host_keys.iter().enumerate().map(|(number, key)| member(format!("host{number}"), key, duty)).collect();
        members.push(member("monitor".to_owned(), monitor_key, Duty::Monitor { link: 0 }));
        let config = CoordinatorConfig {
            epoch: 1,
            every: config.every,
            utilisation: config.utilisation,
            actuator: Actuator::Rate,
            share: config.share,
            links: vec![LinkConfig { name: link.name, capacity, queue: None }],
            members,
            policy: None,
        };
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let (tell, started) = mpsc::channel();
        let thread = std::thread::Builder::new().name("coordinator".into()).spawn(move || {
            let listen = (Ipv4Addr::LOCALHOST, 0).into();
            match CoordinationNode::coordinate(config, &PeerIdentity::generate(), listen) {
                Ok(node) => {
                    let _ = tell.send(Ok(node.link().clone()));
                    // Should the system fail it, leases end and flows are on their own, which the run shows.
                    let _ = its.coordinate(node);
                }
                Err(error) => _ = tell.send(Err(error)),
            }
        })?;
        let address = started.recv().map_err(std::io::Error::other)??;
        let agent = |key: &PeerIdentity| FlowAgent::start(address.clone(), PeerIdentity::from_secret(*key.secret()));
        Ok(Service {
            agents: host_keys.iter().map(agent).collect::<Result<_, _>>()?,
            monitor: agent(monitor_key)?,
            on: scenario.flows.iter().map(|_| AtomicBool::new(false)).collect(),
            min_rtts: Mutex::new(vec![None; scenario.flows.len()]),
            hosts,
            scenario,
            shared,
            thread: Some(thread),
        })
    }

    /// The run begins with this clock.
    pub fn begin(&self, clock: Clock) {
        let _ = self.shared.clock.set(clock);
    }

    /// A flow's application goes on or off.
    pub fn note(&self, flow: usize, is_on: bool) {
        self.on[flow].store(is_on, Ordering::Relaxed);
    }

    fn active(&self, host: usize) -> usize {
        self.hosts[host].iter().filter(|flow| self.on[**flow].load(Ordering::Relaxed)).count()
    }

    /// Tells the agents what hosts and link do.
    pub fn observe(&self, plan: &Plan) {
        let min_rtts = lock(&self.min_rtts).clone();
        for (host, agent) in self.agents.iter().enumerate() {
            let flows = || self.hosts[host].iter().copied();
            agent.set_seen(Seen::Host(HostSeen {
                flows: self.active(host) as u32,
                sent: Bytes::new(flows().map(|flow| plan.counted.sent(flow)).sum()),
                min_rtt: flows().filter_map(|flow| min_rtts[flow]).min(),
                ..HostSeen::default()
            }));
        }
        let flows = self.hosts.iter().flatten().map(|flow| plan.counted.passed(*flow)).sum::<u64>();
        let sent = Bytes::new(flows + plan.cross_bytes.load(Ordering::Relaxed));
        self.monitor.set_seen(Seen::Link(LinkSeen { sent, ..LinkSeen::default() }));
    }

    /// The bounds of `flow` at `now`, under its least round trip; none while it is on its own. What held before ends by
    /// itself.
    pub fn bounds(&self, now: Time, flow: usize, min_rtt: Option<Duration>) -> Option<Bounds> {
        lock(&self.min_rtts)[flow] = min_rtt;
        let host = self.hosts.iter().position(|flows| flows.contains(&flow))?;
        let lease = self.agents[host].lease()?;
        let (flows, packet) = (self.active(host) as u32, self.scenario.packets.data);
        let bounds = lease.bounds(flows, share(self.scenario, flow), min_rtt, packet);
        Some(Bounds { expires: Some(now + lease.left()?), ..bounds })
    }
}

impl Shared {
    fn coordinate(&self, mut node: CoordinationNode) -> std::io::Result<()> {
        let mut next = Time::ZERO;
        while !self.is_over.load(Ordering::Relaxed) {
            let now = node.now();
            node.turn(now + LOOK)?;
            while node.poll_event().is_some() {}
            let now = node.now();
            if now >= next
                && let Some(clock) = self.clock.get()
                && let CoordinationPeer::Coordinator(coordinator) = node.peer()
            {
                next = now + NOTE;
                let hosts = coordinator.config().members.iter().zip(coordinator.known());
                let hosts = hosts.filter(|(member, _)| matches!(member.duty, Duty::Host { .. }));
                let budget = |known: &anabranch_proto::coordination::coordinator::Known| {
                    known.budget().filter(|(_, ends)| *ends > now).map(|(rate, _)| rate)
                };
                lock(&self.history).push(Believed {
                    at: clock.now(),
                    other: coordinator.divided()[0].other,
                    given: coordinator.divided()[0].given,
                    budgets: hosts.map(|(_, known)| budget(known)).collect(),
                });
            }
        }
        node.stop()
    }
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

//! A case as it is played: coordinator and agents in the simulated world, and what is looked at in each tick.

use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::coordination::agent::{Agent, AgentConfig, AgentEvent};
use anabranch_proto::coordination::budget::LONGEST_LIFETIME;
use anabranch_proto::coordination::coordinator::{Coordinator, CoordinatorConfig, Duty};
use anabranch_proto::coordination::message::{Datagram, HostSeen, LinkSeen, Seen, Terms};
use anabranch_proto::coordination::peer::{CoordinationEvent, CoordinationPeer};
use anabranch_proto::coordination::policy::action;
use anabranch_proto::coordination::session_config;
use anabranch_proto::session::{FlowSessions, Packet};
use anabranch_sim::delay::{DelayModel, JitterTail};
use anabranch_sim::fabric::NodeId;
use anabranch_sim::pairs::{Addressed, Letter, Pairs, PairsConfig};

use super::case::{Case, Trouble, key_of};
use super::{CALM, COORDINATOR, MOST_EVENTS, Rule, Soaked, TICK, TROUBLED};
use crate::monitor::Monitor;
use crate::world::{Carrier, Observer, World};

#[cfg(not(test))]
type App = CoordinationPeer<u32>;
/// A bug may be planted in it.
#[cfg(test)]
type App = crate::soak::planted::Buggy<CoordinationPeer<u32>>;

type Peer = FlowSessions<App>;
type Carried = Packet<Terms, Datagram>;

/// Loses what crosses a cut, and a share of the rest.
#[derive(Clone, Debug)]
pub(super) struct Torn {
    cut: Vec<u32>,
    loss: f64,
    /// By sender: what one member does changes nothing for the others.
    luck: Vec<Rng>,
    pub(super) lost: u64,
}

impl Carrier<Peer> for Torn {
    type Payload = Letter<Carried>;

    fn pack(&mut self, message: &Carried, letter: &mut Letter<Carried>) {
        letter.content.clone_from(message);
    }

    fn unpack(&mut self, letter: &Letter<Carried>, message: &mut Carried) -> bool {
        let (from, to) = letter.ends();
        let is_unlucky = self.luck[from.index()].chance(self.loss);
        if is_unlucky || self.cut[from.index()] != self.cut[to.index()] {
            self.lost += 1;
            return false;
        }
        message.clone_from(&letter.content);
        true
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) directives: u64,
    pub(super) ignored: u64,
    pub(super) leases_ended: u64,
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

/// What has come to a link.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    passed: u64,
    /// Waits for it, and found no room; nothing does where no monitor knows of a queue.
    waits: u64,
    dropped: u64,
}

impl Link {
    /// What has come in a tick passes; where there is a queue, as much as the link carries.
    fn tick(&mut self, came: u64, capacity: Rate, queue: Option<Bytes>) {
        let Some(queue) = queue else {
            self.passed += came;
            return;
        };
        let waits = self.waits + came;
        let passes = waits.min((capacity * TICK).get());
        self.waits = (waits - passes).min(queue.get());
        self.dropped += waits - passes - self.waits;
        self.passed += passes;
    }

    fn seen(&self, queue: Option<Bytes>) -> LinkSeen {
        LinkSeen {
            sent: Bytes::new(self.passed),
            queued: queue.map(|_| Bytes::new(self.waits)),
            dropped: self.dropped / PACKET,
            ..LinkSeen::default()
        }
    }
}

/// Bytes of a packet that is dropped: what a coordinator takes it for.
const PACKET: u64 = 1514;

pub(super) struct Stage<'a> {
    pub(super) case: &'a Case,
    pub(super) world: World<Peer, Pairs<Letter<Carried>>, Torn, Counted>,
    pub(super) epoch: u64,
    lives: u64,
    /// By member: flows, and what has been sent.
    pub(super) flows: Vec<u32>,
    sent: Vec<u64>,
    /// By member: when it had no lease last, if it is a host.
    pub(super) alone: Vec<Time>,
    /// By link.
    pub(super) other: Vec<Rate>,
    links: Vec<Link>,
    /// Until when it was played.
    pub(super) played: Time,
    pub(super) soaked: Soaked,
}

impl Stage<'_> {
    pub(super) fn new(case: &Case) -> Stage<'_> {
        let delay = DelayModel::Constant(case.delay);
        let pairs = PairsConfig { delay, jitter: case.jitter, jitter_tail: JitterTail::Pareto, loss: 0.0 };
        let members = case.config.members.len();
        let luck = (0..=members as u64).map(|node| Rng::indexed(case.seed, "soaked loss", node)).collect();
        let torn = Torn { cut: vec![0; members + 1], loss: case.loss, luck, lost: 0 };
        let mut stage = Stage {
            case,
            world: World::new(Pairs::new(pairs, members + 1, case.seed), torn, Counted::default(), ()),
            epoch: case.config.epoch,
            lives: 0,
            flows: vec![1; members],
            sent: vec![0; members],
            alone: vec![Time::ZERO; members],
            other: vec![Rate::ZERO; case.config.links.len()],
            links: vec![Link::default(); case.config.links.len()],
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
        let config = crate::soak::planted::coordination_sessions(config);
        let setup = Setup::new(config.packet, self.world.now()).shared();
        let cubic = find("cubic").expect("it is registered");
        let controller = cubic.make(&setup, &toml::Table::new()).expect("it needs no parameters");
        let app = if node == COORDINATOR.0 {
            let config = CoordinatorConfig { epoch: self.epoch, ..self.case.config.clone() };
            #[cfg(test)]
            let config = crate::soak::planted::coordinator(config);
            CoordinationPeer::Coordinator(Box::new(Coordinator::new(config)))
        } else {
            let config = AgentConfig { coordinator: COORDINATOR.0, key: key_of(0), limit: None };
            CoordinationPeer::Agent(Box::new(Agent::new(config, &rng)))
        };
        #[cfg(test)]
        let app = crate::soak::planted::Buggy::new(app);
        FlowSessions::new(app, config, key_of(node), controller, &rng)
    }

    pub(super) fn agent(&self, node: u32) -> Option<&Agent<u32>> {
        let app = self.world.node(NodeId(node))?.app();
        #[cfg(test)]
        let app = &app.app;
        match app {
            CoordinationPeer::Agent(agent) => Some(agent),
            CoordinationPeer::Coordinator(_) => None,
        }
    }

    pub(super) fn strike(&mut self, trouble: &Trouble) {
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
    pub(super) fn tick(&mut self) -> Result<(), (Rule, String)> {
        let members = &self.case.config.members;
        let mut came: Vec<u64> = self.other.iter().map(|other| (*other * TICK).get()).collect();
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
            came[link] += sent;
        }
        for (number, link) in self.links.iter_mut().enumerate() {
            link.tick(came[number], self.case.config.links[number].capacity, self.case.queues[number]);
        }
        for (place, member) in members.iter().enumerate() {
            let sent = self.sent[place];
            let seen = match member.duty {
                Duty::Host { .. } => {
                    Seen::Host(HostSeen { flows: self.flows[place], sent: Bytes::new(sent), ..HostSeen::default() })
                }
                Duty::Monitor { link } => Seen::Link(self.links[link].seen(self.case.queues[link])),
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

    pub(super) fn play(&mut self, monitor: &dyn Monitor) -> Result<(), (Rule, String)> {
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

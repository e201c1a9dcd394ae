//! `anabranch bench coordination`: processor time of a coordinator of many hosts.
//!
//! The coordinator is what `anabranch coordinate` runs without its page, in this thread, whose processor time is counted.
//! Each agent has a thread, a socket and a session of its own over loopback, and an address in a network of its own, since
//! networks take turns in what they begin. They report at the coordinator's interval,
//! all have a flow, and each budget is large enough that no report or directive waits for it.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anabranch_control::time::{Duration as Span, Time};
use anabranch_control::units::Rate;
use anabranch_net::coordination::node::{CoordinationError, CoordinationNode};
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_net::stream::link::Link;
use anabranch_proto::coordination::agent::AgentEvent;
use anabranch_proto::coordination::coordinator::{
    Coordinator, CoordinatorConfig, Duty, Known, LinkConfig, Member, Share,
};
use anabranch_proto::coordination::message::{Actuator, HostSeen, Seen};
use anabranch_proto::coordination::peer::{CoordinationEvent, CoordinationPeer};
use serde::Serialize;

use super::processor_time;
use crate::failure::Failure;
use crate::printer::print_line;

/// A host's budget in bits per second: control's hundredth of it holds no report and no directive up.
const EACH_BITS_PER_S: u64 = 100_000_000;

/// How often threads look whether they shall stop.
const TICK: Span = Span::from_millis(20);

/// How long an agent may take to have its budget, beside 20 ms for each of them.
const PATIENCE: Duration = Duration::from_secs(20);

/// What all agents' first words and handshakes are given to be over.
const SETTLING: Duration = Duration::from_secs(2);

/// The first agent's address, and how far the next one's is from it: all are the loopback interface's.
const FIRST: u32 = u32::from_be_bytes([127, 1, 0, 1]);
const NETWORK: u32 = 256;

/// Memory of an agent's thread.
const STACK: usize = 512 * 1024;

/// Arguments of `bench coordination`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many hosts there are
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    agents: u16,
    /// Between two decisions, and between two reports of each
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=1000))]
    every_ms: u64,
    /// How long it is measured
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Json {
    agents: u16,
    every_ms: u64,
    /// From the first handshake until all had a budget.
    enrolled_after_s: f64,
    /// Wall-clock.
    seconds: f64,
    /// That the coordinator has taken.
    reports_per_s: f64,
    /// That agents have followed.
    directives_per_s: f64,
    /// Processor time of the coordinator's thread, of one core.
    processor_share: f64,
    /// The same for each report with the directives that it is answered by.
    processor_us_per_report: f64,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let json = measure(args)?;
    if args.json {
        print_line!("{}", serde_json::to_string(&json)?)?;
        return Ok(());
    }
    print_line!(
        "{} agents, each {} ms: {:.0} reports and {:.0} directives a second take {:.1} % of a core, {:.1} us a report; all had a \
         budget after {:.1} s",
        json.agents,
        json.every_ms,
        json.reports_per_s,
        json.directives_per_s,
        100.0 * json.processor_share,
        json.processor_us_per_report,
        json.enrolled_after_s
    )?;
    Ok(())
}

fn measure(args: &Args) -> Result<Json, Failure> {
    let identities: Vec<PeerIdentity> = (0..args.agents).map(|_| PeerIdentity::generate()).collect();
    let capacity = Rate::from_bits_per_sec(EACH_BITS_PER_S * u64::from(args.agents));
    let duty = Duty::Host { link: 0, least: Rate::ZERO, most: capacity, most_flows: 1 };
    let member =
        |(number, key): (usize, &PeerIdentity)| Member { name: format!("host {number}"), key: key.public(), duty };
    let config = CoordinatorConfig {
        epoch: 1,
        every: Span::from_millis(args.every_ms),
        utilisation: 1.0,
        actuator: Actuator::Rate,
        share: Share::PerFlow,
        expected: Default::default(),
        links: vec![LinkConfig { name: "link".into(), capacity, queue: None }],
        members: identities.iter().enumerate().map(member).collect(),
        policy: None,
    };
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let mut node = CoordinationNode::coordinate(config, &PeerIdentity::generate(), listen)?;
    let link = node.link().clone();
    let (stop, followed) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let mut agents = Vec::new();
        let measured = (|| {
            for (number, identity) in identities.into_iter().enumerate() {
                let local = Ipv4Addr::from(FIRST + NETWORK * number as u32);
                let (link, stop, followed) = (link.clone(), &stop, &followed);
                let builder = std::thread::Builder::new().stack_size(STACK);
                agents.push(builder.spawn_scoped(scope, move || act(local, link, &identity, stop, followed))?);
            }
            coordinate(args, &mut node, &followed)
        })();
        // Whatever has failed, the agents end.
        stop.store(true, Ordering::Relaxed);
        let ended = agents
            .into_iter()
            .try_for_each(|agent| agent.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended?;
        measured
    })
}

/// An agent of a host with one flow, until `stop`.
fn act(
    local: Ipv4Addr,
    link: Link,
    identity: &PeerIdentity,
    stop: &AtomicBool,
    followed: &AtomicU64,
) -> Result<(), CoordinationError> {
    let mut node = CoordinationNode::agent_at(Some(local.into()), link, identity, None)?;
    while !stop.load(Ordering::Relaxed) {
        let sent = Rate::from_bits_per_sec(EACH_BITS_PER_S) * node.now().since(Time::ZERO);
        node.set_seen(Seen::Host(HostSeen { flows: 1, sent, ..HostSeen::default() }));
        let until = node.now() + TICK * 5;
        while node.now() < until {
            node.turn(until)?;
            while let Some(event) = node.poll_event() {
                let is_directive = matches!(event, CoordinationEvent::Agent(AgentEvent::Directed(..)));
                followed.fetch_add(u64::from(is_directive), Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

fn coordinate(args: &Args, node: &mut CoordinationNode, followed: &AtomicU64) -> Result<Json, Failure> {
    let began = Instant::now();
    let patience = PATIENCE + Duration::from_millis(20) * u32::from(args.agents);
    while !known(node).iter().all(|one| one.is_here() && one.budget().is_some()) {
        if began.elapsed() > patience {
            let here = known(node).iter().filter(|one| one.budget().is_some()).count();
            return Err(Failure::new(format!(
                "{here} of {} agents had a budget after {} s; expected all: fewer --agents, or a machine with less else to do",
                args.agents,
                patience.as_secs()
            )));
        }
        turn(node)?;
    }
    let enrolled_after_s = began.elapsed().as_secs_f64();
    let settled = Instant::now();
    while settled.elapsed() < SETTLING {
        turn(node)?;
    }
    let counts = |node: &CoordinationNode| {
        let reports = known(node).iter().filter_map(Known::report).map(|(report, _)| report.number).sum::<u64>();
        (reports, followed.load(Ordering::Relaxed))
    };
    let (before, computed, began) = (counts(node), processor_time::now(), Instant::now());
    while began.elapsed() < Duration::from_secs(args.seconds) {
        turn(node)?;
    }
    let (after, computed, seconds) = (counts(node), processor_time::now() - computed, began.elapsed().as_secs_f64());
    if !known(node).iter().all(Known::is_here) || after.0 <= before.0 {
        return Err(Failure::new("agents went while it was measured; expected a machine with less else to do"));
    }
    let reports = (after.0 - before.0) as f64;
    Ok(Json {
        agents: args.agents,
        every_ms: args.every_ms,
        enrolled_after_s,
        seconds,
        reports_per_s: reports / seconds,
        directives_per_s: (after.1 - before.1) as f64 / seconds,
        processor_share: computed.as_secs_f64() / seconds,
        processor_us_per_report: computed.as_secs_f64() * 1e6 / reports,
    })
}

fn turn(node: &mut CoordinationNode) -> Result<(), Failure> {
    node.turn(node.now() + TICK)?;
    while node.poll_event().is_some() {}
    Ok(())
}

fn known(node: &CoordinationNode) -> &[Known] {
    match node.peer() {
        CoordinationPeer::Coordinator(coordinator) => Coordinator::known(coordinator),
        CoordinationPeer::Agent(_) => &[],
    }
}

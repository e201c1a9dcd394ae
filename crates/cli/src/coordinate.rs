//! `anabranch coordinate`: divides links among the hosts that send over them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_control::time::{Duration, Time};
use anabranch_net::coordination::file;
use anabranch_net::coordination::node::CoordinationNode;
use anabranch_net::identity_file;
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_proto::coordination::coordinator::{Coordinator, CoordinatorEvent, Duty};
use anabranch_proto::coordination::message::Seen;
use anabranch_proto::coordination::peer::{CoordinationEvent, CoordinationPeer};
use anabranch_proto::session::Closed;
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::printer::Printer;
use crate::table;

/// How often figures are told.
const PERIOD: Duration = Duration::SECOND;

/// In words less often: each time is a table.
const PERIODS_A_TABLE: u64 = 10;

/// How often it is looked whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `coordinate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
FILE names links with what they carry, the hosts that send over them, and monitors that watch them, each with the \
key that `anabranch agent` prints there. The coordinator divides what a link has beside the traffic of others \
evenly among hosts' flows, many times a second. What a host may send is a lease of half a second, unless `every_ms` \
says otherwise: without a coordinator, hosts are on their own again.

Printed first is the link by which agents find this coordinator, and know it.")]
pub struct Args {
    /// What to divide, and among whom
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where agents reach the coordinator
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7444")]
    listen: SocketAddr,
    /// The file with the coordinator's key [default: anabranch/coordinator-key in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print one JSON object each second
    #[arg(long)]
    json: bool,
}

/// How things stand.
#[derive(Serialize)]
struct Figures<'a> {
    uptime_s: f64,
    link: String,
    links: Vec<LinkFigures<'a>>,
    hosts: Vec<HostFigures<'a>>,
    monitors: Vec<MonitorFigures<'a>>,
}

/// A link as it was divided last.
#[derive(Serialize)]
struct LinkFigures<'a> {
    name: &'a str,
    capacity_mbit_s: f64,
    /// What others send over it; null without a monitor.
    other_mbit_s: Option<f64>,
    given_mbit_s: f64,
}

/// What is known of a host, and what it was told.
#[derive(Serialize)]
struct HostFigures<'a> {
    name: &'a str,
    link: &'a str,
    is_here: bool,
    flows: Option<u32>,
    sends_mbit_s: f64,
    /// What it may send; null without a lease.
    budget_mbit_s: Option<f64>,
}

/// What is known of a monitor.
#[derive(Serialize)]
struct MonitorFigures<'a> {
    name: &'a str,
    link: &'a str,
    is_here: bool,
    passes_mbit_s: f64,
}

impl<'a> Figures<'a> {
    fn of(link: &impl ToString, coordinator: &'a Coordinator<SocketAddr>, now: Time) -> Figures<'a> {
        let megabits = |rate: anabranch_control::units::Rate| rate.bits_per_sec() as f64 / 1e6;
        let config = coordinator.config();
        let links = config.links.iter().zip(coordinator.divided()).map(|(link, divided)| LinkFigures {
            name: &link.name,
            capacity_mbit_s: megabits(if divided.is_monitored { divided.capacity } else { link.capacity }),
            other_mbit_s: divided.is_monitored.then(|| megabits(divided.other)),
            given_mbit_s: megabits(divided.given),
        });
        let (mut hosts, mut monitors) = (Vec::new(), Vec::new());
        for (member, known) in config.members.iter().zip(coordinator.known()) {
            let (name, is_here, rate) = (member.name.as_str(), known.is_here(), megabits(known.rate()));
            match member.duty {
                Duty::Host { link, .. } => hosts.push(HostFigures {
                    name,
                    link: &config.links[link].name,
                    is_here,
                    flows: known.report().and_then(|(report, _)| match report.seen {
                        Seen::Host(host) => Some(host.flows),
                        Seen::Link(_) => None,
                    }),
                    sends_mbit_s: rate,
                    budget_mbit_s: known.budget().filter(|(_, ends)| *ends > now).map(|(rate, _)| megabits(rate)),
                }),
                Duty::Monitor { link } => {
                    monitors.push(MonitorFigures {
                        name,
                        link: &config.links[link].name,
                        is_here,
                        passes_mbit_s: rate,
                    });
                }
            }
        }
        let uptime_s = now.since(Time::ZERO).as_secs_f64();
        Figures { uptime_s, link: link.to_string(), links: links.collect(), hosts, monitors }
    }

    /// For people: a table of links, and one of hosts.
    fn print(&self) -> std::io::Result<()> {
        let number = |rate: f64| format!("{rate:.2}");
        let maybe = |rate: Option<f64>| rate.map_or("-".to_owned(), number);
        let head = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut rows = vec![head(&["link", "carries Mbit/s", "others send", "given away"])];
        rows.extend(self.links.iter().map(|link| {
            vec![
                link.name.to_owned(),
                number(link.capacity_mbit_s),
                maybe(link.other_mbit_s),
                number(link.given_mbit_s),
            ]
        }));
        let mut stdout = std::io::stdout().lock();
        table::print(&rows, 1.., &mut stdout)?;
        let mut rows = vec![head(&["host", "flows", "sends Mbit/s", "may send"])];
        rows.extend(self.hosts.iter().filter(|host| host.is_here).map(|host| {
            let flows = host.flows.map_or("-".to_owned(), |flows| flows.to_string());
            vec![host.name.to_owned(), flows, number(host.sends_mbit_s), maybe(host.budget_mbit_s)]
        }));
        table::print(&rows, 1.., &mut stdout)
    }
}

/// Coordinates until the user ends it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let named = |message: String| Failure::new(format!("{}: {message}", args.file.display()));
    let text = std::fs::read_to_string(&args.file).map_err(|error| named(error.to_string()))?;
    // A later life has a higher number, unless the clock was put back further than the lives are apart.
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let config = file::parse(&text, epoch).map_err(|error| named(error.to_string()))?;
    let path = args.identity.clone().map_or_else(identity_file::coordinator_path, Ok)?;
    let identity: PeerIdentity = identity_file::load_or_make(&path)?;
    let interrupt = Interrupt::listen()?;
    let mut node = CoordinationNode::coordinate(config, &identity, args.listen)?;
    let mut printer = Printer::start()?;
    if !args.json {
        println!("{}", node.link());
    }
    eprintln!("agents come to {}; Ctrl-C ends it", node.local_addr());
    let (mut next, mut told) = (node.now(), 0u64);
    while !interrupt.is_raised() {
        let now = node.now();
        if now >= next {
            next = now + PERIOD;
            let figures = Figures::of(node.link(), coordinator(&node), now);
            if args.json {
                printer = printer.print(&figures)?;
            } else if told > 0 && told.is_multiple_of(PERIODS_A_TABLE) {
                figures.print()?;
            }
            told += 1;
        }
        node.turn(next.min(now + LOOK))?;
        while let Some(event) = node.poll_event() {
            if let CoordinationEvent::Coordinator(event) = event {
                eprintln!("{}", words(coordinator(&node), event));
            }
        }
    }
    eprintln!("hosts are on their own when their leases end");
    Ok(node.stop()?)
}

fn coordinator(node: &CoordinationNode) -> &Coordinator<SocketAddr> {
    match node.peer() {
        CoordinationPeer::Coordinator(coordinator) => coordinator,
        CoordinationPeer::Agent(_) => unreachable!("it was begun as a coordinator"),
    }
}

fn words(coordinator: &Coordinator<SocketAddr>, event: CoordinatorEvent) -> String {
    let name = |place: usize| coordinator.config().members[place].name.as_str();
    match event {
        CoordinatorEvent::Came(place) => format!("{} is here", name(place)),
        CoordinatorEvent::Went(place, Closed::TimedOut) => format!("{} is gone: nothing was heard of it", name(place)),
        CoordinatorEvent::Went(place, _) => format!("{} is gone", name(place)),
        CoordinatorEvent::Untrue(place) => {
            format!(
                "{} reports what cannot be: is it a host where FILE says monitor, or the other way round?",
                name(place)
            )
        }
    }
}

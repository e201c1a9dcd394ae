//! `anabranch coordinate`: divides links among the hosts that send over them.

#[cfg(target_os = "linux")]
mod demo;
mod figures;
mod metrics;
mod policy;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_control::time::Duration;
use anabranch_gateway::coordinator::{Config, Overview};
use anabranch_gateway::server::{Access, Bounds, Gateway};
use anabranch_net::coordination::file as coordinators_file;
use anabranch_net::coordination::node::CoordinationNode;
use anabranch_net::identity_file;
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_proto::coordination::coordinator::Coordinator;
use anabranch_proto::coordination::peer::{CoordinationEvent, CoordinationPeer};
use tokio::sync::watch;

use figures::{Events, Place};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::socket_address;
use crate::printer::Printer;
use crate::research::words::Words;
use crate::stderr::eprint_line;
use crate::stream::local;

/// How often figures are published.
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
evenly among hosts' flows, many times a second. What a host may send is a lease of a quarter of a second, longer where \
`every_ms` is: without a coordinator, hosts are on their own again.

Printed first is the link by which agents find this coordinator, and know it.")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    demo: Option<Demo>,
    /// What to divide, and among whom
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    /// What a trained policy tells hosts, in the place of equal shares: NAME.safetensors, with NAME.json beside it
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Where agents reach the coordinator
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7444", value_parser = socket_address)]
    listen: SocketAddr,
    /// The file with the coordinator's key [default: anabranch/coordinator-key in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Where the page, its JSON and metrics for Prometheus are served [default: the first free port from 127.0.0.1:8080
    /// on]. Who can reach it sees all hosts and budgets, and can change nothing
    #[arg(long, value_name = "ADDRESS", value_parser = socket_address)]
    page: Option<SocketAddr>,
    /// A name by which the page is reached, besides addresses and localhost
    #[arg(long, value_name = "NAME")]
    page_name: Vec<String>,
    /// Serve no page
    #[arg(long, conflicts_with_all = ["page", "page_name"])]
    no_page: bool,
    /// Print one JSON object each second: what the page is told
    #[arg(long)]
    json: bool,
}

/// What else it does than coordinate.
#[derive(Debug, clap::Subcommand)]
enum Demo {
    /// Hosts on their own and steered, side by side, on real packets over an emulated link: a report
    #[cfg(target_os = "linux")]
    Demo(demo::Args),
}

/// Coordinates until the user ends it.
pub fn run(args: &Args) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    if let Some(Demo::Demo(args)) = &args.demo {
        return demo::run(args);
    }
    let file = args.file.as_deref().ok_or_else(|| Failure::new("expected FILE: what to divide, and among whom"))?;
    let named = |message: String| Failure::new(format!("{}: {message}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    // A later life has a higher number, unless the clock was put back further than the lives are apart.
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let learned = args.policy.as_deref().map(policy::load).transpose()?;
    let config = coordinators_file::parse(&text, epoch, learned)
        .map_err(|error| Failure::new(format!("{}:{error}", file.display())))?;
    if let Some(path) = &args.policy {
        policy::check(path, file, &config)?;
    }
    let path = args.identity.clone().map_or_else(identity_file::coordinator_path, Ok)?;
    let identity: PeerIdentity = identity_file::load_or_make(&path)?;
    let interrupt = Interrupt::listen()?;
    let mut node = CoordinationNode::coordinate(config, &identity, args.listen)?;
    let mut events = Events::default();
    let mut place = Place { link: node.link().to_string(), page: None };
    let first = figures::overview(&place, coordinator(&node), &events, node.now());
    let (overviews, latest) = watch::channel(first);
    // It ends with this value.
    let page = args.serve(latest)?;
    place.page = page.as_ref().map(|page| format!("http://{}/", page.address()));
    // Who stops a terminal stops no host.
    let (mut printer, words) = (Printer::start()?, Words::start()?);
    if let Some(page) = &place.page {
        eprint_line!("page: {page}");
    }
    if !args.json {
        crate::printer::print_line!("{}", node.link())?;
    }
    eprint_line!("agents come to {}; Ctrl-C ends it", node.local_addr());
    let (mut next, mut periods) = (node.now(), 0u64);
    while !interrupt.is_raised() {
        let now = node.now();
        if now >= next {
            next = now + PERIOD;
            let overview = figures::overview(&place, coordinator(&node), &events, now);
            // Who reads what is printed finds nothing older on the page.
            overviews.send_replace(overview.clone());
            if args.json {
                printer = printer.print(&overview)?;
            } else if periods > 0 && periods.is_multiple_of(PERIODS_A_TABLE) {
                printer = printer.write(figures::tables(&overview)?)?.0;
            }
            periods += 1;
        }
        node.turn(next.min(now + LOOK))?;
        while let Some(event) = node.poll_event() {
            if let CoordinationEvent::Coordinator(event) = event {
                let now = node.now();
                words.say(events.note(coordinator(&node), now, event));
            }
        }
    }
    words.say("hosts are on their own when their leases end".to_owned());
    Ok(node.stop()?)
}

impl Args {
    /// Serves the page, unless that is not wanted.
    fn serve(&self, overviews: watch::Receiver<Overview>) -> Result<Option<Gateway>, Failure> {
        if self.no_page {
            return Ok(None);
        }
        let listener = match self.page {
            None => local::first_free_port(),
            Some(address) => TcpListener::bind(address),
        };
        let at = self.page.map_or("127.0.0.1".to_owned(), |address| address.to_string());
        let listener = listener
            .map_err(|error| Failure::new(format!("the page cannot be served at {at}: {error}; see --page")))?;
        let config = Config {
            registry: metrics::registry(overviews.clone()),
            overviews,
            access: Access { names: self.page_name.clone(), origins: Vec::new() },
            bounds: Bounds::default(),
        };
        Ok(Some(anabranch_gateway::coordinator::start(listener, config)?))
    }
}

fn coordinator(node: &CoordinationNode) -> &Coordinator<SocketAddr> {
    match node.peer() {
        CoordinationPeer::Coordinator(coordinator) => coordinator,
        CoordinationPeer::Agent(_) => unreachable!("it was begun as a coordinator"),
    }
}

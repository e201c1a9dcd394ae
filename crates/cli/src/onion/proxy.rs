//! `anabranch onion proxy`: a SOCKS5 server whose connections leave the onion overlay at an exit.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anabranch_control::time::{Duration, Time};
use anabranch_gateway::onion::{self as gateway, Config, HappeningKind, Overview};
use anabranch_gateway::server::{Access, Bounds, Gateway};
use anabranch_net::onion::user_edge::{EdgeNews, EdgeSettings, MOST_SESSIONS, UserEdge};
use anabranch_net::udp::Socket;
use anabranch_onion::directory::Remembered;
use anabranch_onion::guards::{GuardState, MOST_GUARDS};
use anabranch_onion::node::{Cover, MOST_COVER, UserSettings};
use anabranch_onion::session::{Rates, Secrecy};
use anabranch_onion::size::MOST_HOPS;
use serde::Serialize;
use tokio::sync::watch;

use super::figures::{self, Events, Fixed};
use super::hidden::LEAVE;
use super::metrics::{self, Metrics};
use super::network::{NetworkArg, StateArg};
use super::relay::say_found;
use super::repeats::Repeats;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{say, socket_address};
use crate::printer::print_line;
use crate::stderr::eprint_line;
use crate::stream::local;

/// What was seen of the directory.
const SEEN: &str = "seen.json";

/// The guards.
const GUARDS: &str = "guards.json";

/// The longest mean delay at a relay: a packet's header can ask for eight times that, which one in 3000 would exceed.
const LONGEST_DELAY_MS: u64 = 1000;

/// How often figures are published.
const PERIOD: Duration = Duration::SECOND;

/// What names of metrics begin with.
const PREFIX: &str = "anabranch_onion_proxy";

/// How often it is looked whether the user has had enough.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of `onion proxy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It does not hide you from whoever runs one of your guards and the exit as well: if somebody runs c of the n relays, \
that is one user in n/c for each guard, and the user is then nearly certain to be linked to what it does within \
minutes. It hides nothing from whoever sees your line and your destination's, and the exit reads what is not \
encrypted. docs/onion.md has the figures.

Programs connect to the SOCKS5 server (curl --proxy socks5h://127.0.0.1:1080). Names are resolved at the exit. \
UDP ASSOCIATE is taken, too, where an exit allows UDP: datagrams of up to 1472 bytes, each sent once. \
Connections with different user names or passwords share no session and no exit's view.")]
pub struct Args {
    #[command(flatten)]
    network: NetworkArg,
    #[command(flatten)]
    state: StateArg,
    /// Where programs connect
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:1080", value_parser = socket_address)]
    socks: SocketAddr,
    /// Guards: relays by which all packets enter, for months; 0 is any relay for each packet, which hides least
    #[arg(long, value_name = "G", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=MOST_GUARDS as i64))]
    guards: u8,
    /// Relays of each path, the exit included
    #[arg(long, value_name = "H", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=MOST_HOPS as i64))]
    hops: u8,
    /// What places packets on relays: per-path, random, or a controller of `anabranch controllers`
    #[arg(long, value_name = "NAME", default_value = "timeouts")]
    placement: String,
    /// Send N packets a second, always: with what programs say, or to yourself. Whoever sees your line out then sees
    /// only that the proxy runs. Each costs 1400 bytes up and, one way or another, as much down: 100 are 140 kB/s, 12 GB
    /// a day; programs get 1.1 kB of each at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_COVER as i64))]
    cover: Option<u32>,
    /// Send N packets a second in the mean to yourself, at exponential distances, whatever programs say. They hide less
    /// than --cover does, and find relays that drop
    #[arg(long, value_name = "N", conflicts_with = "cover")]
    loops: Option<f64>,
    /// Ask each relay to keep each packet for an exponential time, of MS milliseconds in the mean: each packet draws its
    /// own. There and back it is five times that, and more than 100 make a download slow
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=LONGEST_DELAY_MS))]
    delay: Option<u64>,
    /// Serve a page for you at ADDR: what the overlay hides of you and what not, traffic, guards, relays [default without
    /// ADDR: the first free port from 127.0.0.1:8080 on]. Who can reach it sees your guards and how much you send
    #[arg(long, value_name = "ADDR", num_args = 0..=1, value_parser = socket_address)]
    page: Option<Option<SocketAddr>>,
    /// Serve figures for Prometheus at ADDR; they hold no address and no target
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    metrics: Option<SocketAddr>,
    /// Say at the end what was done as one JSON object on standard output, and all else on standard error
    #[arg(long)]
    json: bool,
}

/// What a proxy has done.
#[derive(Debug, Serialize)]
struct Done {
    packets_sent: u64,
    packets_delivered: u64,
    packets_lost: u64,
    packets_received: u64,
    packets_unknown: u64,
    blocks_made: u64,
    /// Packets to itself, for cover, besides those sent.
    loops_sent: u64,
    loops_received: u64,
}

/// Runs until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    let network = args.network.read()?;
    let user = UserSettings {
        guards: usize::from(args.guards),
        hops: usize::from(args.hops),
        placement: args.placement.clone(),
        placement_back: args.placement.clone(),
        packets_per_key: network.authorities.packets_per_key,
        secrecy: Secrecy::Sealed,
        mixing: args.delay.map(Duration::from_millis),
    };
    user.check().map_err(|why| Failure::new(format!("--placement {}: {why}", args.placement)))?;
    let (option, cover) = match (args.cover, args.loops) {
        (Some(per_s), _) => ("--cover", Cover::ConstantRate(per_s)),
        (None, Some(per_s)) => ("--loops", Cover::Loops(per_s)),
        (None, None) => ("--cover", Cover::Off),
    };
    user.check_cover(cover).map_err(|why| Failure::new(format!("{option}: {why}")))?;
    if !args.socks.ip().is_loopback() {
        eprint_line!("others than this machine can use {}, and read what programs say to it", args.socks);
    }
    let page = args.page.map(listen).transpose()?;
    let metrics_at = args.metrics.map(metrics::listen).transpose()?;
    let folder = args.state.open("onion-proxy")?;
    let guards: GuardState = folder.load(GUARDS)?;
    let remembered: Remembered = folder.load(SEEN)?;
    let interrupt = Interrupt::listen()?;
    let any: SocketAddr = (Ipv4Addr::UNSPECIFIED, 0).into();
    let (keep_in, guards_in) = (folder.clone(), folder);
    let (authorities, how) = (network.authorities.clone(), user.clone());
    let settings = EdgeSettings {
        network,
        user,
        cover,
        rates: args.cover.map_or_else(Rates::default, Rates::covered),
        socks: args.socks,
        socket: Socket::bind(any)?,
        guards,
        keep_guards: Box::new(move |state| guards_in.save(GUARDS, state).map_err(std::io::Error::other)),
        remembered,
        keep: Box::new(move |seen| keep_in.save(SEEN, seen).map_err(std::io::Error::other)),
    };
    let mut edge = UserEdge::start(settings)
        .map_err(|why| Failure::new(format!("cannot serve programs at {}: {why}", args.socks)))?;
    say(args.json, &format!("SOCKS5 at {}", edge.socks()));
    let fixed = Fixed::new(edge.socks(), &how, &authorities);
    let (mut events, mut refused, mut guards) = (Events::default(), 0, 0);
    let (overviews, latest) = watch::channel(figures::overview(&fixed, &edge, &events, refused));
    let metrics = Metrics::default();
    metrics.renew(figures::rows(&latest.borrow()));
    // It ends with this value.
    let _page = page.map(|listener| serve(listener, latest, &metrics)).transpose()?;
    if let Some(listener) = metrics_at {
        metrics.serve(listener, PREFIX)?;
    }
    let is_watched = args.page.is_some() || args.metrics.is_some();
    let mut repeats = Repeats::default();
    let mut next = if is_watched { edge.now() + PERIOD } else { Time::MAX };
    while !interrupt.is_raised() {
        edge.turn((edge.now() + LOOK).min(next))?;
        let now = edge.now();
        while let Some(news) = edge.poll_news() {
            match news {
                EdgeNews::Epoch { epoch, relays, exits } => {
                    let words = format!("epoch {epoch}: {relays} relays, {exits} exits");
                    say(args.json, &words);
                    events.note(now, HappeningKind::List, words);
                }
                EdgeNews::Directory(found) => {
                    if let Some(words) = say_found(&mut repeats, now, &found)? {
                        events.note(now, HappeningKind::Directory, words);
                    }
                }
                EdgeNews::GuardsNotKept(why) => {
                    return Err(Failure::new(format!("no new guard is used, since it cannot be written down: {why}")));
                }
                other => {
                    refused += u64::from(matches!(other, EdgeNews::NoExit));
                    let (kind, words) = trouble(&other);
                    if let Some(words) = repeats.say(now, kind, &words) {
                        eprint_line!("{words}");
                        events.note(now, HappeningKind::Refused, words);
                    }
                }
            }
        }
        if now >= next {
            next = now + PERIOD;
            let drawn = edge.user().map_or(0, |user| user.guards().drawn().count());
            if drawn != std::mem::replace(&mut guards, drawn) {
                events.note(now, HappeningKind::Guards, format!("guards were drawn or dropped: {drawn} now"));
            }
            let overview = figures::overview(&fixed, &edge, &events, refused);
            metrics.renew(figures::rows(&overview));
            overviews.send_replace(overview);
        }
    }
    edge.leave(LEAVE)?;
    let counts = edge.user().map(|user| *user.counts()).unwrap_or_default();
    let done = Done {
        packets_sent: counts.sent,
        packets_delivered: counts.delivered,
        packets_lost: counts.lost,
        packets_received: counts.received,
        packets_unknown: counts.unknown,
        blocks_made: counts.blocks,
        loops_sent: counts.loops,
        loops_received: counts.loops_returned,
    };
    say(args.json, &format!("sent {} packets, received {}", done.packets_sent, done.packets_received));
    if args.json {
        print_line!("{}", serde_json::to_string(&done)?)?;
    }
    Ok(())
}

/// What is wrong for programs, of which kind and in words.
fn trouble(news: &EdgeNews) -> (&'static str, String) {
    match news {
        EdgeNews::NoPath(why) => ("path", format!("no path: {why}")),
        EdgeNews::NoExit => ("exit", "a program wants to where no exit leads".to_owned()),
        EdgeNews::NoSession => {
            let words = format!(
                "a program is turned away: {MOST_SESSIONS} sessions have connections, one for each SOCKS user and exit, \
                 and there are no more"
            );
            ("sessions", words)
        }
        EdgeNews::Outdated { epoch, until } => {
            let words = format!(
                "programs are turned away and cut off: the list of relays of epoch {epoch} was valid until {until}, and \
                 the authorities have shown no newer one; if this machine's clock is wrong, set it"
            );
            ("outdated", words)
        }
        EdgeNews::ExitGone => ("gone", "an exit does not answer any more: others are used".to_owned()),
        EdgeNews::Foreign(what) => {
            let words = format!("a program speaks {what} to the proxy; expected SOCKS5 (curl --proxy socks5h://...)");
            ("foreign", words)
        }
        EdgeNews::Epoch { .. } | EdgeNews::GuardsNotKept(_) | EdgeNews::Directory(_) => ("", String::new()),
    }
}

/// Where the page is to be.
fn listen(at: Option<SocketAddr>) -> Result<TcpListener, Failure> {
    if at.is_some_and(|at| !at.ip().is_loopback()) {
        eprint_line!("others than this machine can see on the page how much you send, and by which guards");
    }
    let (words, listener) = match at {
        None => ("127.0.0.1".to_owned(), local::first_free_port()),
        Some(address) => (address.to_string(), TcpListener::bind(address)),
    };
    listener.map_err(|why| Failure::new(format!("the page cannot be served at {words}: {why}; see --page")))
}

/// Serves the page.
fn serve(listener: TcpListener, overviews: watch::Receiver<Overview>, metrics: &Metrics) -> Result<Gateway, Failure> {
    let config =
        Config { overviews, registry: metrics.registry(PREFIX), access: Access::default(), bounds: Bounds::default() };
    let gateway = gateway::start(listener, config)?;
    eprint_line!("page: http://{}/", gateway.address());
    Ok(gateway)
}

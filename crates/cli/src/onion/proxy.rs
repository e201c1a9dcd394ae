//! `anabranch onion proxy`: a SOCKS5 server whose connections leave the onion overlay at an exit.

use std::net::{Ipv4Addr, SocketAddr};

use anabranch_control::time::Duration;
use anabranch_net::onion::user_edge::{EdgeNews, EdgeSettings, UserEdge};
use anabranch_net::udp::Socket;
use anabranch_onion::directory::Remembered;
use anabranch_onion::guards::{GuardState, MOST_GUARDS};
use anabranch_onion::node::UserSettings;
use anabranch_onion::session::{Rates, Secrecy};
use anabranch_onion::size::MOST_HOPS;
use serde::Serialize;

use super::network::{NetworkArg, StateArg};
use super::relay::say_found;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::say;

/// What was seen of the directory.
const SEEN: &str = "seen.json";

/// The guards.
const GUARDS: &str = "guards.json";

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
Connections with different user names or passwords share no session and no exit's view.")]
pub struct Args {
    #[command(flatten)]
    network: NetworkArg,
    #[command(flatten)]
    state: StateArg,
    /// Where programs connect
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:1080")]
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
}

/// Runs until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    let network = args.network.read()?;
    let user = UserSettings {
        guards: usize::from(args.guards),
        hops: usize::from(args.hops),
        placement: args.placement.clone(),
        placement_back: args.placement.clone(),
        packets_per_key: network.packets_per_key,
        secrecy: Secrecy::Sealed,
        mixing: None,
    };
    user.check().map_err(|why| Failure::new(format!("--placement {}: {why}", args.placement)))?;
    if !args.socks.ip().is_loopback() {
        eprintln!("others than this machine can use {}, and read what programs say to it", args.socks);
    }
    let folder = args.state.open("onion-proxy")?;
    let guards: GuardState = folder.load(GUARDS)?;
    let remembered: Remembered = folder.load(SEEN)?;
    let interrupt = Interrupt::listen()?;
    let any: SocketAddr = (Ipv4Addr::UNSPECIFIED, 0).into();
    let (keep_in, guards_in) = (folder.clone(), folder);
    let settings = EdgeSettings {
        network,
        user,
        rates: Rates::default(),
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
    while !interrupt.is_raised() {
        edge.turn(edge.now() + LOOK)?;
        while let Some(news) = edge.poll_news() {
            match news {
                EdgeNews::Epoch { epoch, relays, exits } => {
                    say(args.json, &format!("epoch {epoch}: {relays} relays, {exits} exits"));
                }
                EdgeNews::GuardsNotKept(why) => {
                    return Err(Failure::new(format!("no new guard is used, since it cannot be written down: {why}")));
                }
                EdgeNews::NoPath(why) => eprintln!("no path: {why}"),
                EdgeNews::NoExit => eprintln!("a program wants to where no exit leads, or too many do"),
                EdgeNews::Directory(found) => say_found(&found)?,
            }
        }
    }
    let counts = edge.user().map(|user| *user.counts()).unwrap_or_default();
    let done = Done {
        packets_sent: counts.sent,
        packets_delivered: counts.delivered,
        packets_lost: counts.lost,
        packets_received: counts.received,
        packets_unknown: counts.unknown,
        blocks_made: counts.blocks,
    };
    say(args.json, &format!("sent {} packets, received {}", done.packets_sent, done.packets_received));
    if args.json {
        println!("{}", serde_json::to_string(&done)?);
    }
    Ok(())
}

//! `anabranch relay`: forwards what others send, up to a limit.

mod config;
mod log;
mod metrics;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_net::loopback::NoFiles;
use anabranch_net::metrics_server::{self, Bounds};
use anabranch_net::relay_list::DEFAULT_PORT;
use anabranch_net::runtime::Runtime;
use anabranch_net::setup;
use anabranch_net::udp::Socket;
use anabranch_proto::overlay::fair_share::{FairShare, MAX_SOURCES};
use anabranch_proto::overlay::forward_policy::ForwardPolicy;
use anabranch_proto::overlay::peer::Peer;
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_rendezvous as rendezvous;
use anabranch_rendezvous::server::Server;
use clap::ValueEnum;
use indicatif::ProgressBar;
use ipnet::IpNet;

use self::config::Settings;
use self::metrics::{Metrics, Snapshot};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{self, Amount, LimitKind, socket_address};
use crate::printer::print_line;

/// How long datagrams are gathered while they come a few at a time, so that the relay wakes once for them: what it costs
/// follows how many it finds. Over three relays, there and back, that is 6 ms at most, and nothing where they come seldom.
pub const GATHER: Duration = Duration::from_millis(1);

/// Arguments of `relay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What counts against the limit is UDP payload, data and ACKs alike. While more comes than \
that, everybody has a share: who wants less than a fair part gets it, whatever others send. \
Of those who send, a relay keeps averages for some seconds: every datagram carries its whole \
route. A relay can read neither the data nor the file's name, but it sees who sends to whom.

A relay passes on between ordinary public addresses, and never from one of them into a network \
of its own: not to its host's addresses, nor to loopback, private (10/8, 172.16/12, 192.168/16, \
fc00::/7), shared (100.64/10), link-local, documentation or other special addresses. One that \
listens on a loopback, private or shared address also passes on within that block, but only \
what has come from there. --forward-to opens a network to and from everybody; combine it with \
care. Multicast and broadcast addresses are never sent to. The rule holds for answers, too.

People who share a code (`anabranch send`, `anabranch receive CODE`) meet at the relay's own port: \
it lends them mailboxes over QUIC, bounded in number, size and age. It learns their addresses, and \
neither names nor keys nor the code's words.")]
pub struct Args {
    /// TOML file with any of these options; what is said here wins
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on, IP:PORT; 0.0.0.0 and [::] are all of this machine's [default: [::]:4000]
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    listen: Option<SocketAddr>,
    /// The most that is forwarded, such as "4 MB/s" or "32 Mbit/s" [default: 100 Mbit/s]
    #[arg(long, value_name = "RATE", value_parser = network::limit)]
    limit: Option<Rate>,
    /// How the limit is held [default: window]
    #[arg(long, value_name = "MODEL")]
    limit_model: Option<LimitKind>,
    /// Pass on to and from this network as well, such as 10.1.0.0/16 or 192.0.2.7; may be repeated
    #[arg(long, value_name = "CIDR", value_parser = network::cidr)]
    forward_to: Vec<IpNet>,
    /// Forward only for senders, and relays before this one, in this network; may be repeated
    #[arg(long, value_name = "CIDR", value_parser = network::cidr)]
    from: Vec<IpNet>,
    /// Serve metrics for Prometheus at http://ADDR/metrics [default address: 127.0.0.1:9464]
    #[arg(
        long,
        value_name = "ADDR",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:9464",
        value_parser = socket_address,
    )]
    metrics: Option<SocketAddr>,
    /// Whether people can meet here by codes [default: on]
    #[arg(long, value_name = "SWITCH")]
    rendezvous: Option<Switch>,
    /// How much is said on standard error [default: info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<log::Level>,
    /// Say at the end what was done as one JSON object on standard output, and all else on standard error
    #[arg(long)]
    json: bool,
}

/// Whether there shall be something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

/// Relays until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    let settings = Settings::new(args)?;
    let limit = settings.limit;
    let interrupt = Interrupt::listen()?;
    let (io, socket) = bind(settings.listen)?;
    let listen = socket.local_addr()?;
    let rendezvous = match settings.rendezvous {
        Switch::On => Some(Server::start(io, rendezvous::limits::Limits::default()).map_err(cannot_meet)?),
        Switch::Off => None,
    };
    let metrics = Metrics::new(limit);
    let page = settings.metrics.map(|address| serve(address, &metrics)).transpose()?;
    network::say(args.json, &format!("relaying up to {limit} on {listen}"));
    let display = ProgressBar::new_spinner();
    log::start(settings.log, &display);
    tracing::info!("relaying up to {limit} on {listen}");
    if let Some(page) = page {
        tracing::info!("metrics at http://{page}{}", metrics_server::PATH);
    }
    if let (given, Some(asked)) = socket.receive_buffer()? {
        tracing::warn!(
            "the system holds {given} bytes of what comes at once, not {asked}: more is lost in a burst \
             (on Linux, raise net.core.rmem_max)"
        );
    }
    let mut runtime = Runtime::new(NoFiles)?;
    let number = runtime.add_gathering(socket, Peer::new(relay(&settings, listen.ip())?, None, None))?;
    runtime.gather(GATHER);
    // Stays until the end: who waits in a mailbox waits as long.
    let (_rendezvous, inlet) = rendezvous.map_or((None, None), |(server, inlet)| (Some(server), Some(inlet)));
    if let Some(mut inlet) = inlet {
        runtime.divert(number, Box::new(move |arrival, bytes| inlet.take(arrival, bytes)));
    }
    let mut reports = log::Reports::new(settings.log, runtime.now());
    while !interrupt.is_raised() {
        let until = runtime.now() + network::TICK;
        runtime.run_until(until)?;
        let snapshot = Snapshot { relay: *runtime.machine(number).relay().counters(), runtime: runtime.counters() };
        let Snapshot { relay, runtime: counters } = &snapshot;
        metrics.renew(snapshot);
        reports.report(runtime.now(), relay, &counters.unreadable);
        display.set_message(format!(
            "{} datagrams forwarded, {}",
            relay.forwarded,
            Amount(relay.forwarded_bytes as f64)
        ));
        display.tick();
    }
    display.finish_and_clear();
    let counters = runtime.machine(number).relay().counters();
    let bytes = Amount(counters.forwarded_bytes as f64);
    let unreadable = runtime.counters().unreadable;
    let discarded = network::discarded(counters, &unreadable);
    network::say(args.json, &format!("forwarded {} datagrams, {bytes}; {discarded}", counters.forwarded));
    if args.json {
        let discards = network::discards(counters, &unreadable);
        let discards: serde_json::Map<_, _> =
            discards.iter().map(|discard| (discard.reason.to_owned(), discard.count.into())).collect();
        let summary = serde_json::json!({
            "outcome": "relayed",
            "listen": listen.to_string(),
            "received_datagrams": runtime.counters().received,
            "forwarded_datagrams": counters.forwarded,
            "forwarded_bytes": counters.forwarded_bytes,
            "discarded_datagrams": discards,
        });
        print_line!("{summary}")?;
    }
    Ok(())
}

/// The relay's socket, and a clone for the rendezvous. Where nothing was said and there is no IPv6, IPv4
/// alone will do.
fn bind(listen: Option<SocketAddr>) -> Result<(UdpSocket, Socket), Failure> {
    let any = SocketAddr::from(([0u16; 8], DEFAULT_PORT));
    let any_v4 = SocketAddr::from(([0; 4], DEFAULT_PORT));
    let bound = match listen {
        Some(listen) => UdpSocket::bind(listen),
        None => UdpSocket::bind(any).or_else(|error| match error.kind() {
            ErrorKind::AddrInUse => Err(error),
            _ => UdpSocket::bind(any_v4),
        }),
    };
    let address = listen.unwrap_or(any);
    let failed = |error: io::Error| Failure::new(format!("cannot listen on {address}: {error}"));
    let io = bound.map_err(failed)?;
    let clone = io.try_clone().map_err(failed)?;
    Ok((clone, Socket::from_std(io).and_then(Socket::serving).map_err(failed)?))
}

fn cannot_meet(error: io::Error) -> Failure {
    Failure::new(format!("cannot offer a rendezvous: {error}; without one, --rendezvous off"))
}

fn relay(settings: &Settings, listen: IpAddr) -> Result<RelayNode, Failure> {
    let model = settings.limit_model.model(settings.limit, Duration::ZERO);
    let relay = RelayNode::new(model, settings.limit)
        .with_policy(ForwardPolicy::new(listen, own_addresses()?, settings.forward_to.clone()))
        .with_fair_share(FairShare::new(model, settings.limit, MAX_SOURCES, share_key()));
    Ok(match &settings.from {
        Some(clients) => relay.with_clients(clients.clone()),
        None => relay,
    })
}

/// Serves metrics; where.
fn serve(address: SocketAddr, metrics: &Metrics) -> Result<SocketAddr, Failure> {
    TcpListener::bind(address)
        .and_then(|listener| metrics_server::serve(listener, metrics.registry(), Bounds::default()))
        .map_err(|error| Failure::new(format!("cannot serve metrics on {address}: {error}")))
}

/// The addresses that this host has now.
fn own_addresses() -> Result<Vec<IpAddr>, Failure> {
    let interfaces = nix::ifaddrs::getifaddrs()
        .map_err(|error| Failure::new(format!("cannot learn this host's addresses: {error}")))?;
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
    });
    Ok(addresses.collect())
}

/// A key that nobody can guess.
fn share_key() -> [u64; 4] {
    let secret = setup::secret();
    std::array::from_fn(|part| u64::from_be_bytes(std::array::from_fn(|byte| secret[8 * part + byte])))
}

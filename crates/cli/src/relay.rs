//! `anabranch relay`: forwards what others send, up to a limit.

mod config;
mod log;
mod metrics;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_net::loopback::NoFiles;
use anabranch_net::metrics_server::{self, Bounds};
use anabranch_net::runtime::Runtime;
use anabranch_net::setup;
use anabranch_proto::fair_share::{FairShare, MAX_SOURCES};
use anabranch_proto::forward_policy::ForwardPolicy;
use anabranch_proto::peer::Peer;
use anabranch_proto::relay_node::RelayNode;
use indicatif::ProgressBar;
use ipnet::IpNet;

use self::config::Settings;
use self::metrics::{Metrics, Snapshot};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{self, Amount, LimitKind};

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
care. Multicast and broadcast addresses are never sent to. The rule holds for answers, too.")]
pub struct Args {
    /// TOML file with any of these options; what is said here wins
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on, IP:PORT; 0.0.0.0 and [::] are all of this machine's
    #[arg(long, value_name = "ADDR", required_unless_present = "config")]
    listen: Option<SocketAddr>,
    /// The most that is forwarded, such as "4 MB/s" or "32 Mbit/s"
    #[arg(long, value_name = "RATE", value_parser = network::limit, required_unless_present = "config")]
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
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:9464")]
    metrics: Option<SocketAddr>,
    /// How much is said on standard error [default: info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<log::Level>,
}

/// Relays until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    let settings = Settings::new(args)?;
    let limit = settings.limit;
    let interrupt = Interrupt::listen()?;
    let socket = network::listen(settings.listen)?;
    let listen = socket.local_addr()?;
    let metrics = Metrics::new(limit);
    let page = settings.metrics.map(|address| serve(address, &metrics)).transpose()?;
    println!("relaying up to {limit} on {listen}");
    let display = ProgressBar::new_spinner();
    log::start(settings.log, &display);
    tracing::info!("relaying up to {limit} on {listen}");
    if let Some(page) = page {
        tracing::info!("metrics at http://{page}{}", metrics_server::PATH);
    }
    let mut runtime = Runtime::new(NoFiles)?;
    let number = runtime.add(socket, Peer::new(relay(&settings, listen.ip())?, None, None), None)?;
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
    println!(
        "forwarded {} datagrams, {bytes}; {}",
        counters.forwarded,
        network::discarded(counters, &runtime.counters().unreadable)
    );
    Ok(())
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

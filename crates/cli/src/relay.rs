//! `anabranch relay`: forwards what others send, up to a limit.

use std::net::{IpAddr, SocketAddr};

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_net::loopback::NoFiles;
use anabranch_net::runtime::Runtime;
use anabranch_net::setup;
use anabranch_proto::fair_share::FairShare;
use anabranch_proto::forward_policy::ForwardPolicy;
use anabranch_proto::peer::Peer;
use anabranch_proto::relay_node::RelayNode;
use indicatif::ProgressBar;
use ipnet::IpNet;

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
    /// Address to listen on, IP:PORT; its own IP address if the machine has several
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// The most that is forwarded, such as "4 MB/s" or "32 Mbit/s"
    #[arg(long, value_name = "RATE", value_parser = network::limit)]
    limit: Rate,
    /// How the limit is held
    #[arg(long, value_name = "MODEL", default_value = "window")]
    limit_model: LimitKind,
    /// Pass on to and from this network as well, such as 10.1.0.0/16 or 192.0.2.7; may be repeated
    #[arg(long, value_name = "CIDR", value_parser = network::cidr)]
    forward_to: Vec<IpNet>,
}

/// Relays until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let socket = network::bind(args.listen)?;
    println!("relaying up to {} on {}", args.limit, socket.local_addr()?);
    let mut runtime = Runtime::new(NoFiles)?;
    let model = args.limit_model.model(args.limit, Duration::ZERO);
    let policy = ForwardPolicy::new(socket.local_addr()?.ip(), own_addresses()?, args.forward_to.clone());
    let relay = RelayNode::new(model, args.limit).with_policy(policy).with_fair_share(FairShare::new(
        model,
        args.limit,
        share_key(),
    ));
    let number = runtime.add(socket, Peer::new(relay, None, None), None)?;
    let display = ProgressBar::new_spinner();
    while !interrupt.is_raised() {
        let until = runtime.now() + network::TICK;
        runtime.run_until(until)?;
        let counters = runtime.machine(number).relay().counters();
        let (forwarded, bytes) = (counters.forwarded, Amount(counters.forwarded_bytes as f64));
        display.set_message(format!("{forwarded} datagrams forwarded, {bytes}"));
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

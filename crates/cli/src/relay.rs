//! `anabranch relay`: forwards what others send, up to a limit.

use std::net::SocketAddr;

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_net::loopback::NoFiles;
use anabranch_net::runtime::Runtime;
use anabranch_proto::peer::Peer;
use anabranch_proto::relay_node::RelayNode;
use indicatif::ProgressBar;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{self, Amount, LimitKind};

/// Arguments of `relay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What counts against the limit is UDP payload, data and ACKs alike. A relay keeps nothing \
about those who send: every datagram carries its whole route. A relay can read neither \
the data nor the file's name, but it sees who sends to whom.")]
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
}

/// Relays until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let socket = network::bind(args.listen)?;
    println!("relaying up to {} on {}", args.limit, socket.local_addr()?);
    let mut runtime = Runtime::new(NoFiles)?;
    let relay = RelayNode::new(args.limit_model.model(args.limit, Duration::ZERO), args.limit);
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

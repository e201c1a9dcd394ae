//! `anabranch send`: sends a file over relays.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anabranch_control::path::Slot;
use anabranch_control::path::registry::Entry;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_net::relay_list;
use anabranch_net::runtime::Runtime;
use anabranch_net::setup::{self, PACKET, SenderSetup};
use anabranch_proto::peer::{Peer, Sender};
use anabranch_proto::relay_node::RelayNode;
use anabranch_proto::seal::PublicKey;
use anabranch_proto::transfer::{self, FileSender, Phase, TransferError};
use anabranch_proto::wire;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::key::IdentityArg;
use crate::network::{self, Amount, PacingArg};

/// So long a sender tries to take leave: the next burst is at most a second away.
const LEAVE: Duration = Duration::from_millis(1_500);

/// Arguments of `send`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
RELAYS.toml lists relays:

  [[relay]]
  address = \"192.0.2.1:4000\"

Everything is encrypted (Noise, 25519 and ChaCha20-Poly1305): relays see who sends to whom \
and how much, not what. With --key, nobody but the holder of the receiver's secret key can \
read or answer. With --insecure in its place, whoever only listens still learns nothing, but \
a relay that meddles with the first exchange could pose as the receiver.

Who has a key (see `anabranch key`) shows it to the holder of --key, and to nobody else: some \
receivers take files only from those whom they know.")]
pub struct Args {
    /// File to send
    file: PathBuf,
    /// The receiver's address, IP:PORT
    #[arg(long, value_name = "ADDR")]
    to: SocketAddr,
    /// List of relays
    #[arg(long, value_name = "RELAYS.toml")]
    relays: PathBuf,
    /// Relays for each packet
    #[arg(long, value_name = "H", default_value_t = 3)]
    hops: usize,
    /// What learns the relays' rates; see `anabranch controllers`
    #[arg(long, value_name = "NAME", default_value = "explicit-rate", value_parser = network::controller)]
    controller: &'static Entry,
    /// The receiver's public key, as it prints it
    #[arg(long, visible_alias = "fingerprint", value_name = "KEY", conflicts_with = "insecure")]
    key: Option<PublicKey>,
    /// Send to whoever answers
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    identity: IdentityArg,
    /// How rates become sending times
    #[arg(long, value_name = "HOW", default_value = "burst")]
    pacing: PacingArg,
    /// The most to send in all, headers included; a controller that limits nothing needs it
    #[arg(long, value_name = "RATE", value_parser = network::limit)]
    upload: Option<Rate>,
    /// A parameter of the controller, such as epsilon=0.05
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Sends the file and waits until the receiver has checked it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    check_trust(args)?;
    let identity = args.identity.load()?;
    let relays = read_relays(args)?;
    let to = wire::canonical(args.to);
    let parameters = network::parameters(&args.set)?;
    let mut peers = relays.clone();
    peers.push(to);
    let courier = SenderSetup {
        peers,
        hops: args.hops,
        controller: args.controller,
        parameters,
        pacing: args.pacing.into(),
        upload: args.upload,
        start: Time::ZERO,
        rng: Rng::stream(setup::random_seed(), "sender"),
    }
    .build()?;
    let block = transfer::block_size(&setup::longest_route(&relays, args.hops, to), PACKET)
        .ok_or_else(|| Failure::new("the route leaves no room for data in a packet"))?;
    let (offer, source) = network::offer(&args.file, block, &interrupt)?;
    let length = offer.length;
    let mut runtime = Runtime::new(source)?;
    let destination = Slot(relays.len() as u16);
    let mut sender = FileSender::new(runtime.now(), courier, destination, args.key, offer);
    if let Some(identity) = &identity {
        sender = sender.with_identity(identity);
    }
    let socket = network::bind(any_address(&relays))?;
    let number = runtime.add(socket, Peer::new(RelayNode::end(), None, Some(Sender::File(Box::new(sender)))), None)?;

    let style = ProgressStyle::with_template("{msg:10} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} eta {eta}");
    let display = ProgressBar::new(length).with_style(style.expect("the template is valid"));
    let (mut leave_until, mut said_place) = (None, None);
    loop {
        let until = runtime.now() + network::TICK;
        let now = runtime.now();
        runtime.turn(until)?;
        let Some(sender) = runtime.machine_mut(number).file_sender_mut() else { break };
        display.set_position(sender.arrived_bytes());
        match sender.place() {
            Some(place) => display.set_message(format!("waiting, place {place}")),
            None => display.set_message(name_of(sender.phase())),
        }
        // Where no bar is shown, it is said once.
        if let (None, Some(place)) = (said_place, sender.place()) {
            said_place = Some(place);
            display.suspend(|| println!("waiting, place {place}: the receiver takes others' files first"));
        }
        if interrupt.is_raised() {
            sender.cancel();
        }
        if sender.outcome().is_some() {
            let until = *leave_until.get_or_insert(now + LEAVE);
            if sender.is_over() || now >= until {
                break;
            }
        }
    }
    display.finish_and_clear();
    let Some(sender) = runtime.machine_mut(number).file_sender_mut() else { return Ok(()) };
    let counters = *sender.courier().counters();
    let rtt = sender.courier().smoothed_rtt();
    match sender.outcome() {
        Some(Ok(done)) => {
            let seconds = done.took.as_secs_f64();
            let rate = Amount(length as f64 / seconds.max(1e-9));
            println!(
                "sent {} to {to} as {}: {length} bytes in {seconds:.1} s, {rate}/s",
                args.file.display(),
                done.name
            );
        }
        Some(Err(TransferError::Cancelled)) => {
            return Err(Failure::interrupted(format_args!("{} was not sent", args.file.display())));
        }
        Some(Err(error)) => return Err(Failure::new(format!("{} was not sent: {error}", args.file.display()))),
        None => return Err(Failure::new("the transfer has no outcome")),
    }
    println!(
        "{} packets: {} acknowledged in time, {} late, {} lost; {} forged ACKs{}",
        counters.sent,
        counters.acked,
        counters.late,
        counters.lost,
        counters.forged,
        rtt.map(|rtt| format!("; round trip {:.1} ms", rtt.as_millis_f64())).unwrap_or_default()
    );
    Ok(())
}

/// To somebody or, if that is what is wanted, to anybody.
fn check_trust(args: &Args) -> Result<(), Failure> {
    match args.key {
        Some(_) => {}
        None if args.insecure && args.identity.is_named() => {
            return Err(Failure::new("--identity is shown to nobody but the holder of the key that --key gives"));
        }
        None if args.insecure => {
            eprintln!("anabranch: --insecure: a relay in the middle could pose as {} and get the file", args.to);
        }
        None => {
            return Err(Failure::new(
                "who is the receiver? give the public key that it prints with --key (or --insecure, to send to whoever \
                 answers)",
            ));
        }
    }
    Ok(())
}

fn read_relays(args: &Args) -> Result<Vec<SocketAddr>, Failure> {
    let path = args.relays.display();
    let text =
        fs::read_to_string(&args.relays).map_err(|error| Failure::new(format!("cannot read {path}: {error}")))?;
    let mut relays = relay_list::parse(&text).map_err(|error| Failure::new(format!("{path}, {error}")))?;
    if let Some(problem) = wire::problem_of_address(args.to) {
        return Err(Failure::new(format!("--to {}: {problem} is no receiver's address", args.to)));
    }
    // A receiver may be a relay for others, but not on the way to itself.
    let to = wire::canonical(args.to);
    relays.retain(|&relay| relay != to);
    if let Some(&relay) = relays.iter().find(|relay| relay.is_ipv4() != to.is_ipv4()) {
        let (theirs, its) = (relay_list::family(relay), relay_list::family(to));
        return Err(Failure::new(format!(
            "--to {to} is {its}, but the relays of {path} are {theirs}: expected one family"
        )));
    }
    Ok(relays)
}

/// An address from which all relays can be reached.
fn any_address(relays: &[SocketAddr]) -> SocketAddr {
    if relays.iter().all(SocketAddr::is_ipv4) {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    }
}

fn name_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Greeting => "greeting",
        Phase::Offering => "offering",
        Phase::Sending => "sending",
        Phase::Finishing => "checking",
        Phase::Over => "done",
    }
}

//! `anabranch bench relays`: processor time of a file over relays without limits, against what
//! `bench udp` gives for the same passages.
//!
//! Sender, receiver and each relay have a thread and sockets of their own on the loopback interface, and
//! are what `send`, `receive` and `relay` run. A packet of the file then costs one passage from sender to
//! receiver and, with its ACK, two at each of its relays; `bench udp` has both as a flow and a full relay
//! with segmentation offload, all of whose datagrams go one way. That is the least: here they go `h` ways
//! from each, are sealed and opened, written and hashed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anabranch_control::path::Slot;
use anabranch_control::path::registry::{Entry, Pacing};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration as Span, Time};
use anabranch_net::disk::{self, DiskStore};
use anabranch_net::runtime::Runtime;
use anabranch_net::setup::{self, PACKET, SenderSetup};
use anabranch_net::udp::Socket;
use anabranch_proto::overlay::peer::{Peer, Sender};
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::seal::Identity;
use anabranch_proto::transfer::{self, FileSender, Limits, Receiver};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::processor_time;
use super::udp;
use super::udp::ours::{self, Guard};
use crate::failure::Failure;
use crate::network;
use crate::printer::print_line;

/// How often a thread looks whether it shall stop.
const TICK: Span = Span::from_millis(20);

/// How long the file may take, at 100 kB/s of a machine that is very busy.
const PATIENCE_BYTES_PER_S: u64 = 100_000;

/// Arguments of `bench relays`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Bytes of the file
    #[arg(long, default_value_t = 1_000_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 34))]
    bytes: u64,
    /// How many relays there are
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    relays: u16,
    /// Relays for each packet
    #[arg(long, value_name = "H", default_value_t = 3)]
    hops: usize,
    /// The sender's controller
    #[arg(long, value_name = "NAME", default_value = "explicit-rate", value_parser = network::controller)]
    controller: &'static Entry,
    /// A parameter of the controller
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Json {
    packets: u64,
    lost_packets: u64,
    /// Datagrams that relays have passed on.
    passages: u64,
    /// Of all threads, from the file's first hash to its last.
    cpu_us_per_packet: f64,
    sender_us_per_packet: f64,
    receiver_us_per_packet: f64,
    relays_us_per_packet: f64,
    /// Of the threads that read, write and hash.
    files_us_per_packet: f64,
    /// That relays have sent in one system call.
    datagrams_per_call: f64,
    /// What `bench udp` gives for a packet's passages.
    udp_us_per_packet: f64,
    ratio: f64,
}

/// What one thread has done.
struct Done {
    time: Duration,
    passages: u64,
    sent: u64,
    calls: u64,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    network::parameters(args.controller.name, &args.set)?;
    setup::check_hops(args.hops, args.relays.into()).map_err(|error| Failure::new(error.to_string()))?;
    let folder = tempfile::tempdir()?;
    let json = Json { udp_us_per_packet: udp::passages_us(args.hops)?, ..measure(args, folder.path())? };
    let json = Json { ratio: json.cpu_us_per_packet / json.udp_us_per_packet, ..json };
    if args.json {
        print_line!("{}", serde_json::to_string(&json)?)?;
        return Ok(());
    }
    print_line!(
        "{} B over {} of {} relays without limits, {}: {} packets, {} lost, {:.1} datagrams a system call of a relay",
        args.bytes,
        args.hops,
        args.relays,
        args.controller.name,
        json.packets,
        json.lost_packets,
        json.datagrams_per_call
    )?;
    print_line!("processor time a packet, us: sender  receiver  relays  files    all  `bench udp`  ratio")?;
    print_line!(
        "                            {:>7.2} {:>9.2} {:>7.2} {:>6.2} {:>6.2} {:>12.2} {:>6.2}",
        json.sender_us_per_packet,
        json.receiver_us_per_packet,
        json.relays_us_per_packet,
        json.files_us_per_packet,
        json.cpu_us_per_packet,
        json.udp_us_per_packet,
        json.ratio
    )?;
    Ok(())
}

fn measure(args: &Args, folder: &Path) -> Result<Json, Failure> {
    let path = folder.join("file");
    write_noise(&path, args.bytes)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let measured = transfer(args, folder, &path, &stop, scope);
        // Whatever has failed, the others end.
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

fn transfer<'scope>(
    args: &Args,
    folder: &Path,
    path: &Path,
    stop: &'scope AtomicBool,
    scope: &'scope Scope<'scope, '_>,
) -> Result<Json, Failure> {
    let (mut peers, mut relays) = (Vec::new(), Vec::new());
    for _ in 0..args.relays {
        let (runtime, address) = ours::relay_runtime(Guard::StrangersGathering)?;
        peers.push(address);
        relays.push(serve(scope, runtime, stop));
    }
    let identity = Identity::generate();
    let key = identity.public();
    let limits = Limits { file_bytes: args.bytes, ..Limits::default() };
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (mut runtime, socket) = (Runtime::new(DiskStore::open(&folder.join("in"))?)?, Socket::bind(local)?);
    let to = socket.local_addr()?;
    runtime.add_gathering(socket, Peer::new(RelayNode::end(), Some(Receiver::new(identity, limits)), None))?;
    let receiver = serve(scope, runtime, stop);

    let route = setup::longest_route(&peers, args.hops, to);
    let block = transfer::block_size(&route, PACKET).ok_or_else(|| Failure::new("a packet has no room for data"))?;
    peers.push(to);
    let courier = SenderSetup {
        peers,
        hops: args.hops,
        controller: args.controller,
        parameters: network::parameters(args.controller.name, &args.set)?,
        pacing: Pacing::Burst,
        upload: None,
        packet: PACKET,
        start: Time::ZERO,
        rng: Rng::stream(1, "sender"),
    }
    .build()?;
    let (before, own_before) = (of_process(), processor_time::now());
    let (offer, source) = disk::offer(path, block, |_| false)?;
    let mut runtime = Runtime::new(source)?;
    let sender = FileSender::new(runtime.now(), courier, Slot(args.relays), Some(key), offer);
    let sender = Peer::new(RelayNode::end(), None, Some(Sender::File(Box::new(sender))));
    let number = runtime.add_gathering(Socket::bind(local)?, sender)?;
    let (began, patience) = (Instant::now(), Duration::from_secs(60 + args.bytes / PATIENCE_BYTES_PER_S));
    let counters = loop {
        runtime.turn(runtime.now() + TICK)?;
        let Some(sender) = runtime.machine_mut(number).file_sender_mut() else {
            return Err(Failure::new("the transfer has no sender"));
        };
        match sender.outcome() {
            Some(Err(error)) => return Err(Failure::new(format!("the file was not sent: {error}"))),
            Some(Ok(_)) if sender.is_over() => break *sender.courier().counters(),
            _ if began.elapsed() > patience => {
                return Err(Failure::new("the file is not sent: this machine is too busy"));
            }
            _ => {}
        }
    };
    let own = processor_time::now() - own_before;
    let all = of_process() - before;
    stop.store(true, Ordering::Relaxed);
    let receiver = ended(receiver)?;
    let relays = relays.into_iter().map(ended).collect::<Result<Vec<Done>, Failure>>()?;
    let us = |time: Duration| time.as_secs_f64() * 1e6 / counters.sent as f64;
    let of_relays: Duration = relays.iter().map(|relay| relay.time).sum();
    let sum = |of: fn(&Done) -> u64| relays.iter().map(of).sum::<u64>();
    Ok(Json {
        packets: counters.sent,
        lost_packets: counters.lost,
        passages: sum(|relay| relay.passages),
        cpu_us_per_packet: us(all),
        sender_us_per_packet: us(own),
        receiver_us_per_packet: us(receiver.time),
        relays_us_per_packet: us(of_relays),
        files_us_per_packet: us(all.saturating_sub(own + receiver.time + of_relays)),
        datagrams_per_call: sum(|relay| relay.sent) as f64 / sum(|relay| relay.calls) as f64,
        udp_us_per_packet: f64::NAN,
        ratio: f64::NAN,
    })
}

/// Turns `runtime` in a thread of its own until it shall stop.
fn serve<'scope>(
    scope: &'scope Scope<'scope, '_>,
    mut runtime: Runtime<Peer>,
    stop: &'scope AtomicBool,
) -> ScopedJoinHandle<'scope, Result<Done, Failure>> {
    scope.spawn(move || {
        let before = processor_time::now();
        while !stop.load(Ordering::Relaxed) {
            runtime.turn(runtime.now() + TICK)?;
        }
        let out = runtime.counters().out;
        let passages = runtime.machine(0).relay().counters().forwarded;
        Ok(Done { time: processor_time::now() - before, passages, sent: out.sent, calls: out.calls })
    })
}

fn ended(thread: ScopedJoinHandle<'_, Result<Done, Failure>>) -> Result<Done, Failure> {
    thread.join().expect("a thread that serves does not panic")
}

/// Processor time of all threads of this process.
fn of_process() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A file of `length` bytes that are all different.
fn write_noise(path: &Path, length: u64) -> Result<(), Failure> {
    use std::io::Write;

    let mut rng = Rng::stream(1, "file");
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut left = length;
    while left > 0 {
        let bytes = rng.bits().to_le_bytes();
        let some = left.min(8) as usize;
        file.write_all(&bytes[..some])?;
        left -= some as u64;
    }
    Ok(file.flush()?)
}

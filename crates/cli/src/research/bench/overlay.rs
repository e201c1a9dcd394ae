//! `anabranch bench overlay`: the standard scenario with 20, 1 000, 10 000 and
//! 100 000 peers (up to a million on request), and how replications use the cores.
//!
//! A packet or an ACK that arrives at a node is one packet-hop. Time is that of the
//! thread on its processor, so that other programs disturb it little; of a world that several step, that of
//! the clock on the wall.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anabranch_control::path::registry;
use anabranch_lab::overlay::{self, Measured, Sharding};
use anabranch_report::output::create_dir;
use anabranch_report::{Axis, Cell, Figure, Report, Series, Table, XyChart};
use anabranch_scenario::overlay::{MOST_PEERS, Scenario};
use rayon::prelude::*;
use serde::Serialize;

use super::processor_time;
use crate::failure::Failure;
use crate::printer::print_line;
use crate::research::memory;
use crate::stderr::eprint_line;

/// Arguments of `bench overlay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Numbers of peers
    #[arg(long, value_delimiter = ',', default_values_t = [20, 1_000, 10_000, 100_000])]
    peers: Vec<usize>,
    /// How many others each peer knows when there are 1000 and more
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(4..))]
    known: u16,
    /// The controller that runs
    #[arg(long, default_value = "q-learning")]
    controller: String,
    /// How often each size runs; the fastest counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Million packet-hops to simulate at each size, about
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    million_hops: u64,
    /// Seconds to simulate at least
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    least_seconds: u64,
    /// Numbers of threads to step one world with, in as many shards, against one
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// Step each world in this many shards, with a thread for each: speeds are those of all of them together
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    shards: u16,
    /// Round estimates of round-trip times to 16 bits, as overlay.rtt.compact
    #[arg(long)]
    compact: bool,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
    /// Write report.html with the curve into DIR
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Json {
    controller: &'static str,
    sizes: Vec<Size>,
    replications: Replications,
}

/// One number of peers.
#[derive(Debug, Serialize)]
struct Size {
    peers: usize,
    known_peers: usize,
    /// Of the world that the figures but `threads` are of; as many threads stepped it.
    shards: usize,
    simulated_s: u64,
    packet_hops: u64,
    million_packet_hops_per_s: f64,
    ns_per_packet_hop: f64,
    bytes_per_peer_pair: f64,
    bytes_per_peer: u64,
    /// What peers received in the second half of the run, as a share of what relays' limits allow.
    share_of_limit: f64,
    /// The same for each simulated second.
    shares_of_limit: Vec<f64>,
    peak_memory_mib: u64,
    threads: Vec<Threads>,
}

/// One world, stepped by several threads.
#[derive(Debug, Serialize)]
struct Threads {
    threads: usize,
    shards: usize,
    /// By the clock on the wall, the fastest runs.
    wall_s: f64,
    /// Times as fast as one thread with one shard.
    speedup: f64,
}

/// Equal runs side by side.
#[derive(Debug, Serialize)]
struct Replications {
    threads: usize,
    speedup: f64,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let controller = registry::find(&args.controller)?;
    if let Some(out) = &args.out {
        create_dir(out)?;
    }
    for &peers in &args.peers {
        if peers < 5 {
            return Err(Failure::new(format!("--peers {peers}: 3 relays need at least 5 peers")));
        }
        if peers as u64 > MOST_PEERS {
            return Err(Failure::new(format!("--peers {peers}: an overlay has at most {MOST_PEERS} peers")));
        }
        memory::check_overlay(&scenario(args, controller, peers), 1)?;
    }
    let mut sizes = Vec::new();
    if !args.json {
        print_line!("{} (fastest of {})", controller.name, args.repeat)?;
        print_line!(
            "{:>8} {:>6} {:>12} {:>9} {:>8} {:>10} {:>10} {:>9} {:>10}",
            "peers",
            "known",
            "hops",
            "Mhops/s",
            "ns/hop",
            "B/pair",
            "B/peer",
            "of limit",
            "peak MiB"
        )?;
    }
    for &peers in &args.peers {
        let size = measure(args, controller, peers)?;
        if !args.json {
            print_line!(
                "{:>8} {:>6} {:>12} {:>9.2} {:>8.1} {:>10.0} {:>10} {:>8.1}% {:>10}",
                size.peers,
                size.known_peers,
                size.packet_hops,
                size.million_packet_hops_per_s,
                size.ns_per_packet_hop,
                size.bytes_per_peer_pair,
                size.bytes_per_peer,
                100.0 * size.share_of_limit,
                size.peak_memory_mib
            )?;
        }
        if !args.json {
            for Threads { threads, shards, wall_s, speedup } in &size.threads {
                print_line!("{:>8} {threads} threads, {shards} shards: {wall_s:.2} s, {speedup:.2} times one", "")?;
            }
        }
        sizes.push(size);
    }
    let replications = replications(args, controller)?;
    let json = Json { controller: controller.name, sizes, replications };
    if let Some(out) = &args.out {
        let path = out.join("report.html");
        report(&json).write(&path)?;
        eprint_line!("wrote {}", path.display());
    }
    if args.json {
        print_line!("{}", serde_json::to_string(&json)?)
    } else {
        print_line!(
            "replications on {} threads: {:.2} times one thread's",
            json.replications.threads,
            json.replications.speedup
        )
    }
}

fn scenario(args: &Args, controller: &'static registry::Entry, peers: usize) -> Scenario {
    let mut scenario = Scenario::standard();
    scenario.overlay.peers = peers;
    scenario.overlay.known_peers = if peers < 1_000 { peers - 1 } else { usize::from(args.known).min(peers - 1) };
    scenario.overlay.rtt.compact = args.compact;
    scenario.overlay.controller = controller;
    scenario.overlay.offered = anabranch_scenario::overlay::default_offered(controller);
    // A peer causes about 470 packet-hops a second: 400 000 B/s / (4 · 1500 + 3 · 40) B · 7.
    scenario.seconds = (args.million_hops * 1_000_000 / (470 * peers as u64)).max(args.least_seconds);
    scenario
}

/// As many shards as were asked for, where the world of `scenario` can have them, and a thread for each.
fn sharding(scenario: &Scenario, asked: u16) -> Sharding {
    let shards = overlay::shards(scenario, Sharding { shards: asked.into(), threads: asked.into() });
    Sharding { shards, threads: shards }
}

/// A run, and the time that it took: of its thread on a processor, or by the clock on the wall if it has several.
fn once(scenario: &Scenario, sharding: Sharding) -> Result<(Measured, Duration), Failure> {
    let (on_processor, on_wall) = (processor_time::now(), Instant::now());
    let measured = overlay::run_sharded(scenario, sharding, &())?;
    let taken = if sharding.threads == 1 { processor_time::now() - on_processor } else { on_wall.elapsed() };
    assert_eq!(measured.controller, scenario.overlay.controller.name, "another controller ran");
    Ok((measured, taken.max(Duration::from_nanos(1))))
}

fn measure(args: &Args, controller: &'static registry::Entry, peers: usize) -> Result<Size, Failure> {
    let scenario = scenario(args, controller, peers);
    if let Some(why) = overlay::why_unsharded(&scenario).filter(|_| args.shards > 1 || !args.threads.is_empty()) {
        eprint_line!("anabranch: one shard, whatever --shards and --threads say: {why}");
    }
    let sharding = sharding(&scenario, args.shards);
    let mut fastest: Option<(Measured, Duration)> = None;
    memory::forget_peak();
    let before = memory::resident();
    for _ in 0..args.repeat {
        let run = once(&scenario, sharding)?;
        if fastest.as_ref().is_none_or(|(_, time)| run.1 < *time) {
            fastest = Some(run);
        }
    }
    let (measured, time) = fastest.expect("at least one run");
    let hops = measured.packet_hops();
    let seconds = time.as_secs_f64();
    let shares_of_limit = shares_of_limit(&scenario, &measured);
    let second_half = &shares_of_limit[shares_of_limit.len() / 2..];
    let (bytes_per_peer, peak_memory_mib) =
        (memory::peak().saturating_sub(before) / peers as u64, memory::peak() >> 20);
    Ok(Size {
        peers,
        known_peers: scenario.overlay.known_peers,
        shards: sharding.shards,
        simulated_s: scenario.seconds,
        packet_hops: hops,
        million_packet_hops_per_s: hops as f64 / seconds / 1e6,
        ns_per_packet_hop: seconds * 1e9 / hops as f64,
        bytes_per_peer_pair: measured.sender_memory_bytes as f64 / measured.peer_pairs as f64,
        bytes_per_peer,
        share_of_limit: second_half.iter().sum::<f64>() / second_half.len() as f64,
        shares_of_limit,
        peak_memory_mib,
        threads: threads(args, &scenario, &measured)?,
    })
}

/// Payload received in each second, as a share of the most there can be: each delivered packet uses the limit of its
/// relays twice, once for its ACK, and that of its destination.
fn shares_of_limit(scenario: &Scenario, measured: &Measured) -> Vec<f64> {
    let overlay = &scenario.overlay;
    let (relays, packet, ack) = (overlay.relays as f64, overlay.packet.get() as f64, overlay.ack.get() as f64);
    let most = overlay.limit.bytes_per_sec() * packet / ((relays + 1.0) * packet + relays * ack);
    measured.received_bytes_per_s().map(|received| received / most).collect()
}

/// Times the run with each number of threads that was asked for, and holds what it measured against
/// `whole`, which one has.
fn threads(args: &Args, scenario: &Scenario, whole: &Measured) -> Result<Vec<Threads>, Failure> {
    if args.threads.is_empty() {
        return Ok(Vec::new());
    }
    let timed = |sharding| -> Result<f64, Failure> {
        let started = Instant::now();
        let measured = overlay::run_sharded(scenario, sharding, &())?;
        assert_eq!(measured.seconds, whole.seconds, "{sharding:?} has changed the result");
        Ok(started.elapsed().as_secs_f64())
    };
    let (mut one, mut several) = (f64::MAX, vec![f64::MAX; args.threads.len()]);
    for _ in 0..args.repeat {
        one = one.min(timed(Sharding::NONE)?);
        for (fastest, &threads) in several.iter_mut().zip(&args.threads) {
            *fastest = fastest.min(timed(sharding(scenario, threads))?);
        }
    }
    let row = |(&threads, wall_s): (&u16, f64)| {
        let Sharding { shards, threads } = sharding(scenario, threads);
        Threads { threads, shards, wall_s, speedup: one / wall_s }
    };
    Ok(args.threads.iter().zip(several).map(row).collect())
}

/// The same run once for each thread, side by side, against one after the other.
fn replications(args: &Args, controller: &'static registry::Entry) -> Result<Replications, Failure> {
    let threads = rayon::current_num_threads();
    let scenario = scenario(args, controller, 20);
    let (mut one, mut all) = (f64::MAX, f64::MAX);
    for _ in 0..args.repeat {
        let started = Instant::now();
        once(&scenario, Sharding::NONE)?;
        one = one.min(started.elapsed().as_secs_f64());
        let started = Instant::now();
        (0..threads).into_par_iter().try_for_each(|_| once(&scenario, Sharding::NONE).map(drop))?;
        all = all.min(started.elapsed().as_secs_f64());
    }
    Ok(Replications { threads, speedup: one * threads as f64 / all })
}

fn report(json: &Json) -> Report {
    let curve = |of: fn(&Size) -> f64| json.sizes.iter().map(|size| (size.peers as f64, of(size))).collect();
    let chart = |label: &str, unit: &str, of: fn(&Size) -> f64| {
        XyChart::new(Axis::new("peers", "").log(), Axis::new(label, unit).from_zero())
            .series(Series::line(json.controller, curve(of)).markers())
    };
    let headers = [
        "peers",
        "known",
        "packet-hops",
        "million/s",
        "ns a hop",
        "B a peer pair",
        "B a peer",
        "of limit, %",
        "peak MiB",
    ];
    let table = json.sizes.iter().fold(Table::new("Overlay simulator", headers), |table, size| {
        table.row([
            Cell::number(size.peers as f64, 0),
            Cell::number(size.known_peers as f64, 0),
            Cell::number(size.packet_hops as f64, 0),
            Cell::number(size.million_packet_hops_per_s, 2),
            Cell::number(size.ns_per_packet_hop, 1),
            Cell::number(size.bytes_per_peer_pair, 0),
            Cell::number(size.bytes_per_peer as f64, 0),
            Cell::number(100.0 * size.share_of_limit, 1),
            Cell::number(size.peak_memory_mib as f64, 0),
        ])
    });
    let received = json.sizes.iter().fold(
        XyChart::new(Axis::new("simulated time", "s"), Axis::new("received, of what limits allow", "").from_zero()),
        |chart, size| {
            let points = (1..).zip(&size.shares_of_limit).map(|(second, &share)| (f64::from(second), share)).collect();
            chart.series(Series::line(format!("{} peers", size.peers), points).markers())
        },
    );
    let most = json.sizes.iter().map(|size| size.shards).max().unwrap_or(1);
    let threads = if most == 1 { "one thread".to_owned() } else { format!("{most} threads") };
    Report::new(format!("Overlay simulator: packet-hops a second on {threads}"))
        .meta("controller", json.controller)
        .meta("version", env!("CARGO_PKG_VERSION"))
        .table(table)
        .figures_side_by_side(vec![
            Figure::chart("Packet-hops a second.", chart("speed", "million/s", |size| size.million_packet_hops_per_s)),
            Figure::chart("Memory of the senders.", chart("memory", "B a peer pair", |size| size.bytes_per_peer_pair)),
        ])
        .figure(Figure::chart("What peers receive, by how many they are.", received))
        .paragraph(format!(
            "Replications on {} threads run {:.2} times as fast as on one.",
            json.replications.threads, json.replications.speedup
        ))
}

//! `anabranch bench streams`: a simulated stream to a hundred and a thousand viewers, who send half as much
//! again as they watch.
//!
//! A packet or an ACK that arrives at a peer is one packet-hop. Time is that of the thread on its processor, so
//! that other programs disturb it little.

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_lab::stream;
use anabranch_scenario::stream::{Rates, StreamScenario};
use serde::Serialize;

use super::processor_time;
use crate::failure::Failure;
use crate::printer::print_line;
use crate::research::memory;

/// Each viewer sends this many percent of the bitrate.
const UPLOAD_PERCENT: u64 = 150;

/// The server sends this many copies of the stream.
const COPIES: u64 = 10;

/// Until all viewers have come, at most; half of a run that is shorter than twice that.
const ARRIVAL: Duration = Duration::from_millis(10_000);

/// Arguments of `bench streams`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Numbers of viewers
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000], value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: Vec<u32>,
    /// Seconds to simulate
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=86_400))]
    seconds: u64,
    /// How often each size runs; the fastest counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Json {
    sizes: Vec<Size>,
}

/// One number of viewers.
#[derive(Debug, Serialize)]
struct Size {
    clients: u32,
    simulated_s: u64,
    processor_s: f64,
    packet_hops: u64,
    us_per_packet_hop: f64,
    /// Seconds of the stream that viewers watched, for each second of the processor's time.
    viewer_seconds_per_s: f64,
    /// What players got of what was due: a run that carries little is fast.
    delivered_percent: f64,
    peak_memory_mib: u64,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut sizes = Vec::new();
    if !args.json {
        print_line!(
            "{:>8} {:>8} {:>9} {:>12} {:>7} {:>16} {:>10} {:>9}",
            "viewers",
            "seconds",
            "CPU s",
            "hops",
            "us/hop",
            "viewer s/CPU s",
            "delivered",
            "peak MiB"
        )?;
    }
    for &clients in &args.clients {
        let size = measure(args, clients)?;
        if !args.json {
            print_line!(
                "{:>8} {:>8} {:>9.2} {:>12} {:>7.2} {:>16.0} {:>8.2} % {:>9}",
                size.clients,
                size.simulated_s,
                size.processor_s,
                size.packet_hops,
                size.us_per_packet_hop,
                size.viewer_seconds_per_s,
                size.delivered_percent,
                size.peak_memory_mib
            )?;
        }
        sizes.push(size);
    }
    if args.json {
        print_line!("{}", serde_json::to_string(&Json { sizes })?)?;
    }
    Ok(())
}

fn scenario(args: &Args, clients: u32) -> StreamScenario {
    let mut scenario = StreamScenario::standard();
    let bitrate = scenario.stream.bitrate.bits_per_sec();
    scenario.duration = Duration::SECOND * args.seconds;
    scenario.audience.clients = clients as usize;
    scenario.audience.arrival = ARRIVAL.min(scenario.duration / 2);
    scenario.audience.upload = Rates::InTurn(vec![Rate::from_bits_per_sec(bitrate * UPLOAD_PERCENT / 100)]);
    scenario.audience.server_upload = Rate::from_bits_per_sec(bitrate * COPIES);
    scenario
}

fn measure(args: &Args, clients: u32) -> Result<Size, Failure> {
    let scenario = scenario(args, clients);
    memory::forget_peak();
    let mut processor_s = f64::INFINITY;
    let mut metrics = stream::StreamMetrics::default();
    for _ in 0..args.repeat {
        let before = processor_time::now();
        metrics = stream::run(&scenario, &())?.metrics;
        processor_s = processor_s.min((processor_time::now() - before).as_secs_f64());
    }
    Ok(Size {
        clients,
        simulated_s: args.seconds,
        processor_s,
        packet_hops: metrics.packet_hops,
        us_per_packet_hop: processor_s * 1e6 / (metrics.packet_hops as f64).max(1.0),
        viewer_seconds_per_s: f64::from(clients) * args.seconds as f64 / processor_s,
        delivered_percent: metrics.delivered_percent,
        peak_memory_mib: memory::peak() >> 20,
    })
}

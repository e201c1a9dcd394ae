//! `anabranch bench transfer`: one file over relays in simulated time, and where its time goes.
//!
//! The peers are those that ship, on their wire format; only delays and the clock are simulated, so that
//! the figures are the same on any machine, however busy. `demo` is what `anabranch demo` sends over:
//! twenty relays of 30 to 90 kB/s, some hundred milliseconds from each other. `lan` is eight relays of 4 MB/s,
//! 50 us from each other.

use anabranch_control::path::registry::{Entry, Pacing};
use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_lab::transfer::{Measured, OneFile};
use anabranch_net::setup::PACKET;
use anabranch_sim::delay::DelayModel;
use serde::Serialize;

use crate::failure::Failure;
use crate::network::{self, LimitKind};

/// Relays for each packet.
const HOPS: usize = 3;

/// Arguments of `bench transfer`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The sender's controller
    #[arg(long, value_name = "NAME", default_value = "explicit-rate", value_parser = network::controller)]
    controller: &'static Entry,
    /// Runs of each, over other positions; means are shown
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// The means over all seeds.
#[derive(Debug, Default, Serialize)]
struct Row {
    network: &'static str,
    limit_model: &'static str,
    /// Goodput over the whole file as a share of what is possible, start and end included.
    share: f64,
    /// From a tenth of the file to 90 %.
    steady_share: f64,
    /// Until the offer was accepted, a hundredth and a tenth of the file had arrived, and all was checked.
    accepted_s: f64,
    hundredth_s: f64,
    tenth_s: f64,
    took_s: f64,
    round_trip_ms: f64,
    /// Of the sender's packets.
    lost: f64,
    /// Of what arrived at relays.
    refused: f64,
}

#[derive(Debug, Serialize)]
struct Json {
    controller: &'static str,
    seeds: u64,
    rows: Vec<Row>,
}

const MODELS: [(&str, LimitKind); 3] =
    [("window", LimitKind::Window), ("bucket", LimitKind::Bucket), ("queue", LimitKind::Queue)];

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for network in ["demo", "lan"] {
        for (limit_model, kind) in MODELS {
            let mut row = Row { network, limit_model, ..Row::default() };
            for seed in 1..=args.seeds {
                let case = case(network, kind, args.controller, seed);
                row.add(&case.run(), case.length, args.seeds as f64);
            }
            rows.push(row);
        }
    }
    if args.json {
        let json = Json { controller: args.controller.name, seeds: args.seeds, rows };
        println!("{}", serde_json::to_string(&json)?);
        return Ok(());
    }
    println!("a file over {HOPS} relays for each packet, {}, means of {} seeds", args.controller.name, args.seeds);
    println!("                share  steady  accepted     1 %    10 %     all  round trip    lost  refused");
    for row in rows {
        println!(
            "{:<5} {:<7} {:>6.1} % {:>5.1} % {:>7.2} s {:>6.2} s {:>5.2} s {:>5.2} s {:>8.1} ms {:>5.2} % {:>6.2} %",
            row.network,
            row.limit_model,
            100.0 * row.share,
            100.0 * row.steady_share,
            row.accepted_s,
            row.hundredth_s,
            row.tenth_s,
            row.took_s,
            row.round_trip_ms,
            100.0 * row.lost,
            100.0 * row.refused
        );
    }
    Ok(())
}

impl Row {
    /// Adds one of this many runs.
    fn add(&mut self, measured: &Measured, length: usize, runs: f64) {
        let Measured { packets, refused, forwarded, .. } = *measured;
        for (mean, value) in [
            (&mut self.share, measured.share(length)),
            (&mut self.steady_share, measured.steady_share(length)),
            (&mut self.accepted_s, measured.accepted.as_secs_f64()),
            (&mut self.hundredth_s, measured.arrived[0].as_secs_f64()),
            (&mut self.tenth_s, measured.arrived[1].as_secs_f64()),
            (&mut self.took_s, measured.took.as_secs_f64()),
            (&mut self.round_trip_ms, measured.round_trip.as_millis_f64()),
            (&mut self.lost, packets.lost as f64 / packets.sent as f64),
            (&mut self.refused, refused as f64 / (refused + forwarded) as f64),
        ] {
            *mean += value / runs;
        }
    }
}

fn case(network: &str, kind: LimitKind, controller: &'static Entry, seed: u64) -> OneFile {
    let (limits, delay, length) = if network == "demo" {
        let limits: Vec<Rate> =
            (0..20).map(|relay| Rate::from_bytes_per_sec_f64(60e3 * (0.5 + f64::from(relay) / 19.0))).collect();
        let (span, access) = (Duration::from_millis(100), Duration::from_millis(5));
        (limits, DelayModel::Plane { span, access, stretch: 1.0 }, 6_000_000)
    } else {
        let limits = vec![Rate::from_bytes_per_sec(4_000_000); 8];
        (limits, DelayModel::Constant(Duration::from_nanos(50_000)), 20_000_000)
    };
    let mut phases = Rng::stream(seed, "phases");
    let relays = limits.into_iter().map(|limit| (kind.model(limit, Duration::from_secs_f64(phases.uniform())), limit));
    OneFile {
        dying: Vec::new(),
        relays: relays.collect(),
        hops: HOPS,
        delay,
        jitter: 0.1,
        controller,
        pacing: Pacing::Burst,
        packet: PACKET,
        length,
        seed,
    }
}

//! `anabranch bench transfer`: one file over relays in simulated time, and where its time goes.
//!
//! The peers are those that ship, on their wire format; only delays and the clock are simulated, so that
//! the figures are the same on any machine, however busy. `demo` is what `anabranch demo` sends over:
//! twenty relays of 30 to 90 kB/s, some hundred milliseconds from each other. `lan` is eight relays of 4 MB/s,
//! 50 us from each other. `dying` is the same, of which the first four pass nothing on after 0.1 s. `home` is four relays
//! of 4 MB/s, two for each packet, to a receiver whose link carries 1 MB/s and drops what would wait for more than 40 ms;
//! in `home-deep` more than 250. In `home-far` and `home-far-deep` nodes are 20 ms from each other.

use std::net::{Ipv4Addr, SocketAddr};

use anabranch_control::path::registry::{Entry, Pacing};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::transfer::{Downlink, GivenUp, Measured, OneFile};
use anabranch_net::setup::{PACKET, SenderSetup};
use anabranch_sim::delay::DelayModel;
use serde::Serialize;

use crate::failure::Failure;
use crate::network::{self, LimitKind};
use crate::printer::print_line;

/// Relays for each packet, and of networks whose receiver has a slow link.
const HOPS: usize = 3;
const HOPS_TO_HOME: usize = 2;

/// When relays of `dying` do.
const DIES: Time = Time::from_nanos(100_000_000);

/// Arguments of `bench transfer`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The sender's controller
    #[arg(long, value_name = "NAME", default_value = "explicit-rate", value_parser = network::controller)]
    controller: &'static Entry,
    /// A parameter of the controller
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Only this network; may be given several times
    #[arg(long, value_name = "NAME", value_parser = NETWORKS)]
    network: Vec<String>,
    /// Runs of each, over other positions; the means of files that arrived are shown
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// The means over all files that arrived.
#[derive(Debug, Default, Serialize)]
struct Row {
    network: &'static str,
    limit_model: &'static str,
    /// Files that did, and those that were given up.
    arrived: u32,
    given_up: u32,
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
    parameters: toml::Table,
    seeds: u64,
    rows: Vec<Row>,
}

const NETWORKS: [&str; 7] = ["demo", "lan", "dying", "home", "home-deep", "home-far", "home-far-deep"];

const MODELS: [(&str, LimitKind); 3] =
    [("window", LimitKind::Window), ("bucket", LimitKind::Bucket), ("queue", LimitKind::Queue)];

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let parameters = network::parameters(args.controller.name, &args.set)?;
    check(args.controller, &parameters)?;
    let mut rows = Vec::new();
    let is_wanted = |network: &&str| args.network.is_empty() || args.network.iter().any(|wanted| wanted == network);
    for network in NETWORKS.into_iter().filter(is_wanted) {
        for (limit_model, kind) in MODELS {
            let mut row = Row { network, limit_model, ..Row::default() };
            for seed in 1..=args.seeds {
                let case = OneFile { parameters: parameters.clone(), ..case(network, kind, args.controller, seed) };
                match case.run() {
                    Ok(measured) => row.add(&measured, case.length),
                    Err(GivenUp(_)) => row.given_up += 1,
                }
            }
            rows.push(row);
        }
    }
    if args.json {
        let json = Json { controller: args.controller.name, parameters, seeds: args.seeds, rows };
        print_line!("{}", serde_json::to_string(&json)?)?;
        return Ok(());
    }
    let to_home =
        if rows.iter().any(|row| is_home(row.network)) { format!(" ({HOPS_TO_HOME} to home)") } else { String::new() };
    print_line!(
        "a file over {HOPS} relays for each packet{to_home}, {}, means of {} seeds",
        args.controller.name,
        args.seeds
    )?;
    let width = rows.iter().map(|row| row.network.len() + 1).max().unwrap_or(0).max(6);
    print_line!(
        "{:width$}          share  steady  accepted     1 %    10 %     all  round trip    lost  refused  given up",
        ""
    )?;
    for row in rows {
        if row.arrived == 0 {
            print_line!("{:<width$}{:<7} {:>88}", row.network, row.limit_model, row.given_up)?;
            continue;
        }
        print_line!(
            "{:<width$}{:<7} {:>6.1} % {:>5.1} % {:>7.2} s {:>6.2} s {:>5.2} s {:>5.2} s {:>8.1} ms {:>5.2} % {:>6.2} % {:>7}",
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
            100.0 * row.refused,
            row.given_up
        )?;
    }
    Ok(())
}

impl Row {
    /// Takes a file that arrived into the means.
    fn add(&mut self, measured: &Measured, length: usize) {
        let Measured { packets, refused, forwarded, .. } = *measured;
        self.arrived += 1;
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
            *mean += (value - *mean) / f64::from(self.arrived);
        }
    }
}

/// Refuses a controller that no sender on a network can have.
fn check(controller: &'static Entry, parameters: &toml::Table) -> Result<(), Failure> {
    let peers = (1..=HOPS as u16 + 1).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let setup = SenderSetup {
        peers: peers.collect(),
        hops: HOPS,
        controller,
        parameters: parameters.clone(),
        pacing: Pacing::Burst,
        upload: None,
        packet: PACKET,
        start: Time::ZERO,
        rng: Rng::stream(0, "check"),
    };
    setup.build().map(drop).map_err(|error| Failure::new(error.to_string()))
}

/// Whether its receiver has a slow link.
fn is_home(network: &str) -> bool {
    network.starts_with("home")
}

fn case(network: &str, kind: LimitKind, controller: &'static Entry, seed: u64) -> OneFile {
    let is_home = is_home(network);
    let near = Duration::from_nanos(50_000);
    let (limits, delay, length) = if network == "demo" {
        let limits: Vec<Rate> =
            (0..20).map(|relay| Rate::from_bytes_per_sec_f64(60e3 * (0.5 + f64::from(relay) / 19.0))).collect();
        let (span, access) = (Duration::from_millis(100), Duration::from_millis(5));
        (limits, DelayModel::Plane { span, access, stretch: 1.0 }, 6_000_000)
    } else if is_home {
        let delay = if network.contains("far") { Duration::from_millis(20) } else { near };
        (vec![Rate::from_bytes_per_sec(4_000_000); 4], DelayModel::Constant(delay), 6_000_000)
    } else {
        let limits = vec![Rate::from_bytes_per_sec(4_000_000); 8];
        (limits, DelayModel::Constant(near), 20_000_000)
    };
    let queue = Duration::from_millis(if network.ends_with("deep") { 250 } else { 40 });
    let downlink = is_home.then_some(Downlink { rate: Rate::from_bytes_per_sec(1_000_000), queue });
    let mut phases = Rng::stream(seed, "phases");
    let relays = limits.into_iter().map(|limit| (kind.model(limit, Duration::from_secs_f64(phases.uniform())), limit));
    OneFile {
        dying: if network == "dying" { (0..4).map(|relay| (relay, DIES)).collect() } else { Vec::new() },
        relays: relays.collect(),
        downlink,
        hops: if is_home { HOPS_TO_HOME } else { HOPS },
        delay,
        jitter: 0.1,
        controller,
        parameters: toml::Table::new(),
        pacing: Pacing::Burst,
        packet: PACKET,
        length,
        seed,
    }
}

//! `anabranch bench dumbbell`: data packets over the bottleneck of a dumbbell for each
//! second of processor time, one row for each flow controller.

use anabranch_control::flow::registry::{self, CONTROLLERS, Entry};
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_lab::flows;
use anabranch_scenario::flows::dumbbell::Bulk;
use serde::Serialize;

use super::processor_time;
use crate::failure::Failure;
use crate::printer::print_line;

/// Arguments of `bench dumbbell`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The controllers; all if none is named
    #[arg(long, value_delimiter = ',')]
    controllers: Vec<String>,
    /// Bulk flows
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    flows: u32,
    /// The bottleneck's rates; 300 s are simulated, 60 s from 100 Mbit/s on
    #[arg(long, value_delimiter = ',', default_values = ["5 Mbit/s", "100 Mbit/s"])]
    rates: Vec<Rate>,
    /// How often each runs; the fastest counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    controller: &'static str,
    bottleneck_bits_per_s: u64,
    data_packets: u64,
    million_packets_per_s: f64,
    events_per_packet: f64,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let named: Result<Vec<&'static Entry>, _> = args.controllers.iter().map(|name| registry::find(name)).collect();
    let controllers = match named? {
        none if none.is_empty() => CONTROLLERS.iter().filter(|entry| entry.needs().is_none()).collect(),
        named => named,
    };
    let mut rows = Vec::new();
    if !args.json {
        print_line!(
            "million data packets over the bottleneck a second of processor time (fastest of {})",
            args.repeat
        )?;
        print_line!(
            "{:<18} {:>12} {:>12} {:>10} {:>14}",
            "controller",
            "bottleneck",
            "packets",
            "million/s",
            "events/packet"
        )?;
    }
    for controller in controllers {
        for &rate in &args.rates {
            let row = measure(args, controller, rate)?;
            if !args.json {
                print_line!(
                    "{:<18} {:>5} Mbit/s {:>12} {:>10.2} {:>14.2}",
                    row.controller,
                    rate.bits_per_sec() / 1_000_000,
                    row.data_packets,
                    row.million_packets_per_s,
                    row.events_per_packet
                )?;
            }
            rows.push(row);
        }
    }
    if args.json {
        print_line!("{}", serde_json::to_string(&rows)?)?;
    }
    Ok(())
}

fn measure(args: &Args, controller: &'static Entry, rate: Rate) -> Result<Row, Failure> {
    let seconds = if rate.bits_per_sec() < 100_000_000 { 300 } else { 60 };
    let scenario = Bulk {
        flows: args.flows as usize,
        controller,
        parameters: toml::Table::new(),
        rate,
        loss: 0.0,
        length: Duration::SECOND * seconds,
        seed: 1,
    }
    .scenario();
    let mut fastest: Option<Row> = None;
    for _ in 0..args.repeat {
        let before = processor_time::now();
        let measured = flows::run(&scenario, &())?;
        let taken = processor_time::now() - before;
        assert!(measured.flows.iter().all(|flow| flow.controller == controller.name), "another controller ran");
        let packets = measured.links[0].count.packets;
        let million_packets_per_s = packets as f64 / taken.as_secs_f64() / 1e6;
        if fastest.as_ref().is_none_or(|row| row.million_packets_per_s < million_packets_per_s) {
            fastest = Some(Row {
                controller: controller.name,
                bottleneck_bits_per_s: rate.bits_per_sec(),
                data_packets: packets,
                million_packets_per_s,
                events_per_packet: measured.events.unwrap_or(0) as f64 / packets.max(1) as f64,
            });
        }
    }
    fastest.ok_or_else(|| Failure::new("--repeat 0 measures nothing"))
}

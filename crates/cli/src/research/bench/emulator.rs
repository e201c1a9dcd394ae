//! `anabranch bench emulator`: how far packets on an emulated link come from what the model
//! predicts for them, and how many a second it carries.
//!
//! ```text
//! sender --- link under test: rate, delay --- receiver      one machine, one clock
//! ```
//!
//! Delay: packets at 80 % of the link's rate say when they were sent. The model, fed with
//! these times, says when each must arrive; the difference to its arrival at the receiver's
//! socket is the error, the ends' own work included. Rate: packets at 125 % of the link's
//! rate; what arrives, over the time in which it does, against the rate. The threads at the
//! ends go before all others, so that their waiting for a processor is not measured.

use std::net::Ipv4Addr;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_net::clock::Clock;
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Event, Jitter, LinkConfig, Network, NetworkBuilder};
use anabranch_sim::varying::Course;
use anabranch_stats::percentile;
use anabranch_testbed::emulator::{EmulatorConfig, GRAIN, Report, RouteConfig, SPIN, testbed_available};
use anabranch_testbed::namespace::Namespace;
use anabranch_testbed::probe::{self, Probe, ProbeConfig};
use anabranch_testbed::tun::{Block, Tun, TunConfig};
use serde::Serialize;

use crate::failure::Failure;
use crate::printer::print_line;

const SENDER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

/// Length of an IP packet in bytes.
const PACKET: usize = 1500;

/// What the delay is measured at, in hundredths of the rate.
const MODERATE_PERCENT: u64 = 80;
/// What the rate is measured at.
const EXCESS_PERCENT: u64 = 125;

/// What the link's queue holds when it is offered too much.
const QUEUE: Duration = Duration::from_millis(20);

/// Some packets shall pass in each second: 100 kbit/s are 8 of them.
const LEAST_RATE: Rate = Rate::from_bits_per_sec(100_000);

/// Where the error of the delay shall be below [`TARGET_ERROR`] for 99 of 100 packets.
const TARGET_RATE: Rate = Rate::from_bits_per_sec(100_000_000);
const TARGET_ERROR: Duration = Duration::from_millis(1);

/// The share of its rate that a link shall carry.
const TARGET_SHARE: f64 = 0.99;

/// Arguments of `bench emulator`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The link's rates
    #[arg(long, value_delimiter = ',', default_values = ["1 Mbit/s", "10 Mbit/s", "100 Mbit/s", "1 Gbit/s"])]
    rates: Vec<Rate>,
    /// The link's delay in milliseconds
    #[arg(long, default_value_t = 20)]
    delay_ms: u64,
    /// How long each measurement sends
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How often each is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// How long before a packet is due the emulator looks at the clock instead of sleeping
    #[arg(long, default_value_t = SPIN.as_nanos() / 1000)]
    spin_us: u64,
    /// How often the emulator wakes up at most while packets come one close upon the other
    #[arg(long, default_value_t = GRAIN.as_nanos() / 1000)]
    grain_us: u64,
    /// Let the emulator's thread wait for a processor like any other
    #[arg(long)]
    no_realtime: bool,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// One rate, measured once.
#[derive(Clone, Debug, Serialize)]
struct Row {
    rate_bits_per_s: u64,
    /// Processes that were running or ready, of this machine, when the measurement began.
    load: f64,
    delay: Delay,
    rate: Carried,
}

/// Below the link's rate.
#[derive(Clone, Debug, Serialize)]
struct Delay {
    sent: usize,
    received: usize,
    /// Arrival at the socket, beyond what the model predicts from the time of sending.
    error_median_ms: f64,
    error_p99_ms: f64,
    error_max_ms: f64,
    /// Of the emulator alone: from the arrival in the model to the end of the writing.
    late_median_ms: f64,
    late_p99_ms: f64,
    late_max_ms: f64,
    /// The share of a processor that the emulator's thread used.
    busy: f64,
    warnings: Vec<String>,
}

/// Beyond the link's rate.
#[derive(Clone, Debug, Serialize)]
struct Carried {
    offered_packets_per_s: f64,
    packets_per_s: f64,
    /// Bits a second that arrived, over the link's rate.
    share: f64,
    busy: f64,
    warnings: Vec<String>,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    testbed_available().map_err(Failure::new)?;
    if let Some(rate) = args.rates.iter().find(|rate| rate.bits_per_sec() < LEAST_RATE.bits_per_sec()) {
        let message =
            format!("--rates: {} bit/s: a link of this bench carries 100 kbit/s at least", rate.bits_per_sec());
        return Err(Failure::new(message));
    }
    let mut rows: Vec<Vec<Row>> = Vec::new();
    if !args.json {
        print_line!(
            "packets of {PACKET} B, {} ms, {} s; delay error beyond the model's prediction, the median of {} runs \
             (and the best)",
            args.delay_ms,
            args.seconds,
            args.repeat
        )?;
        print_line!(
            "{:>12} {:>6} {:>10} {:>19} {:>10} {:>10} {:>8} {:>16} {:>18} {:>5}",
            "rate",
            "load",
            "median ms",
            "99 % ms",
            "most ms",
            "late 99 %",
            "cpu",
            "packets/s",
            "share of the rate",
            "cpu"
        )?;
    }
    for &rate in &args.rates {
        let runs = (0..args.repeat).map(|_| measure(args, rate)).collect::<Result<Vec<_>, _>>()?;
        if !args.json {
            print(&runs)?;
        }
        rows.push(runs);
    }
    if args.json {
        print_line!("{}", serde_json::to_string(&rows)?)?;
        return Ok(());
    }
    for runs in &rows {
        verdict(runs)?;
    }
    Ok(())
}

/// The median of the runs, and the least.
fn median_and_least(runs: &[Row], of: impl Fn(&Row) -> f64) -> (f64, f64) {
    let values: Vec<f64> = runs.iter().map(of).collect();
    let share = |share| percentile(&values, share).unwrap_or(f64::NAN);
    (share(0.5), share(0.0))
}

fn megabits(runs: &[Row]) -> String {
    format!("{} Mbit/s", runs[0].rate_bits_per_s as f64 / 1e6)
}

fn print(runs: &[Row]) -> Result<(), Failure> {
    let of = |of: fn(&Row) -> f64| median_and_least(runs, of);
    let (p99, best_p99) = of(|row| row.delay.error_p99_ms);
    let (lost_share, best_lost_share) = of(|row| 1.0 - row.rate.share);
    print_line!(
        "{:>12} {:>6.2} {:>10.3} {:>9.3} ({:>7.3}) {:>10.3} {:>10.3} {:>6.0} % {:>16.0} {:>8.2} % ({:>5.2}) {:>3.0} %",
        megabits(runs),
        of(|row| row.load).0,
        of(|row| row.delay.error_median_ms).0,
        p99,
        best_p99,
        of(|row| row.delay.error_max_ms).0,
        of(|row| row.delay.late_p99_ms).0,
        100.0 * of(|row| row.delay.busy).0,
        of(|row| row.rate.packets_per_s).0,
        100.0 * (1.0 - lost_share),
        100.0 * (1.0 - best_lost_share),
        100.0 * of(|row| row.rate.busy).0,
    )?;
    Ok(())
}

/// Says where a target is missed, and what the emulator warned of.
fn verdict(runs: &[Row]) -> Result<(), Failure> {
    let name = megabits(runs);
    let (p99, best_p99) = median_and_least(runs, |row| row.delay.error_p99_ms);
    if runs[0].rate_bits_per_s == TARGET_RATE.bits_per_sec() && p99 >= TARGET_ERROR.as_millis_f64() {
        print_line!(
            "{name}: target missed: 99 % of the delays within {p99:.3} ms of the model, not {TARGET_ERROR}; best {best_p99:.3} ms"
        )?;
    }
    let (lost, least_lost) = median_and_least(runs, |row| 1.0 - row.rate.share);
    if lost > 1.0 - TARGET_SHARE {
        let [carried, best] = [lost, least_lost].map(|lost| 100.0 * (1.0 - lost));
        print_line!("{name}: target missed: {carried:.2} % of the rate carried; best {best:.2} %")?;
    }
    for (number, row) in (1..).zip(runs) {
        let (below, beyond) = (row.delay.warnings.iter(), row.rate.warnings.iter());
        let below = below.map(|warning| (MODERATE_PERCENT, warning));
        for (percent, warning) in below.chain(beyond.map(|warning| (EXCESS_PERCENT, warning))) {
            print_line!("{name}, run {number}, {percent} % offered: saturated: {warning}")?;
        }
    }
    Ok(())
}

fn measure(args: &Args, rate: Rate) -> Result<Row, Failure> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN);
    Ok(Row { rate_bits_per_s: rate.bits_per_sec(), load, delay: delay(args, rate)?, rate: carried(args, rate)? })
}

fn delay(args: &Args, rate: Rate) -> Result<Delay, Failure> {
    let link = || link(args, rate, Capacity::Unlimited);
    let (probe, report) = once(args, rate, MODERATE_PERCENT, link())?;
    let predicted = predict(link(), &probe.sent);
    let late = |&(number, at): &(u64, Time)| {
        let due = predicted.get(number as usize)?;
        Some((at.as_nanos() as f64 - due.as_nanos() as f64) / 1e6)
    };
    let mut errors: Vec<f64> = probe.received.iter().filter_map(late).collect();
    errors.sort_by(f64::total_cmp);
    let quantile =
        |share: f64| errors.get(((errors.len() as f64 * share) as usize).min(errors.len().saturating_sub(1)));
    let error = |share| quantile(share).copied().unwrap_or(f64::NAN);
    let late = |share| report.lateness.value_at_quantile(share) as f64 / 1e6;
    Ok(Delay {
        sent: probe.sent.len(),
        received: probe.received.len(),
        error_median_ms: error(0.5),
        error_p99_ms: error(0.99),
        error_max_ms: error(1.0),
        late_median_ms: late(0.5),
        late_p99_ms: late(0.99),
        late_max_ms: late(1.0),
        busy: busy(&report),
        warnings: report.warnings(),
    })
}

fn carried(args: &Args, rate: Rate) -> Result<Carried, Failure> {
    let (probe, report) = once(args, rate, EXCESS_PERCENT, link(args, rate, Capacity::Time(QUEUE)))?;
    // The first packet finds the link empty. From its arrival in the model on, each further
    // one is a packet's worth of the link's time.
    let alone = Bytes::new(PACKET as u64) / rate + Duration::from_millis(args.delay_ms);
    let (count, time) = match (probe.sent.first(), probe.received.last()) {
        (Some(&first), Some(&(_, last))) if last > first + alone => {
            (probe.received.len() - 1, last.since(first + alone))
        }
        _ => (0, Duration::SECOND),
    };
    let packets_per_s = count as f64 / time.as_secs_f64();
    let bits_per_s = packets_per_s * PACKET as f64 * 8.0;
    Ok(Carried {
        offered_packets_per_s: probe.sent.len() as f64 / args.seconds as f64,
        packets_per_s,
        share: bits_per_s / rate.bits_per_sec() as f64,
        busy: busy(&report),
        warnings: report.warnings(),
    })
}

fn busy(report: &Report) -> f64 {
    report.busy.as_secs_f64() / report.elapsed.as_secs_f64()
}

fn link(args: &Args, rate: Rate, capacity: Capacity) -> LinkConfig {
    LinkConfig {
        name: "tested".into(),
        rate: Some(Course::constant(rate)),
        delay: Course::constant(Duration::from_millis(args.delay_ms)),
        capacity,
        discipline: None,
        loss: LossModel::None,
        jitter: Jitter::NONE,
    }
}

fn once(args: &Args, rate: Rate, percent: u64, link: LinkConfig) -> Result<(Probe, Report), Failure> {
    let (sender, receiver) = (Namespace::new()?, Namespace::new()?);
    let device = |namespace: &Namespace, first| Tun::open(namespace, TunConfig::new(Block::new(first, 16)?));
    let devices = vec![device(&sender, SENDER)?, device(&receiver, RECEIVER)?];
    let mut network = NetworkBuilder::new();
    let tested = network.link(link);
    let route = network.route(&[tested]);
    let routes = vec![RouteConfig { source: SENDER, destination: RECEIVER, route, extra_bytes: 0, ecn: true }];
    let mut config = EmulatorConfig::new(network, 1, devices, routes);
    config.spin = Duration::from_nanos(args.spin_us * 1000);
    config.grain = Duration::from_nanos(args.grain_us * 1000);
    config.realtime = !args.no_realtime;
    let clock = Clock::start();
    let emulator = config.start(clock)?;
    let offered = Rate::from_bits_per_sec(rate.bits_per_sec() * percent / 100);
    let probe = ProbeConfig {
        source: SENDER,
        destination: RECEIVER,
        packet: PACKET,
        interval: Bytes::new(PACKET as u64) / offered,
        length: Duration::SECOND * args.seconds,
        longest_delay: Duration::from_millis(args.delay_ms) + QUEUE,
    };
    let probe = probe::run(&sender, &receiver, clock, probe)?;
    Ok((probe, emulator.stop()?))
}

/// When packets that were sent at these times arrive, as the model has it.
fn predict(link: LinkConfig, sent: &[Time]) -> Vec<Time> {
    let mut network = NetworkBuilder::new();
    let link = network.link(link);
    let route = network.route(&[link]);
    let mut network: Network<u64> = network.build(0, 1);
    let mut arrivals = vec![Time::MAX; sent.len()];
    let mut advance = |network: &mut Network<u64>, until: Time| {
        while let Some(event) = network.next(until) {
            if event == Event::Arrived {
                arrivals[network.arrived().payload as usize] = network.now();
            }
        }
    };
    for (&at, number) in sent.iter().zip(0..) {
        advance(&mut network, at);
        network.send(route, PACKET as u32, false, number);
    }
    advance(&mut network, Time::MAX);
    arrivals
}

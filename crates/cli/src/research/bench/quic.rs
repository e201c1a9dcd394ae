//! `anabranch bench quic`: goodput and processor time of a transfer on loopback with each
//! flow controller, beside the library's own Cubic, over quinn or noq.
//!
//! Both ends and all their encryption run in one thread, whose time counts. Repeats are
//! interleaved (each controller once, then each once more), so that what else the machine
//! does hits all alike; the median counts. Through a bottleneck the processor's time says
//! nothing and is left out.

use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_net::quic::{self, Factory};
use anabranch_stats::percentile;
use anabranch_testbed::bottleneck::Link;
use anabranch_testbed::bulk::{Bulk, Library, Measured};
use serde::Serialize;

use super::processor_time;
use crate::failure::Failure;
use crate::printer::print_line;

/// What the library's own controller is called here.
const OWN: &str = "own-cubic";

/// The library that carries the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LibraryArg {
    Quinn,
    Noq,
}

/// Arguments of `bench quic`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The controllers; the library's own Cubic always runs beside them
    #[arg(long, value_delimiter = ',', default_values = ["cubic", "reno", "bbr", "copa"])]
    controllers: Vec<String>,
    /// The libraries
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["quinn", "noq"])]
    libraries: Vec<LibraryArg>,
    /// Million bytes that each transfer carries
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    megabytes: u64,
    /// How often each runs; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Through an emulated bottleneck of this rate, such as "20 Mbit/s"
    #[arg(long)]
    rate: Option<Rate>,
    /// Its delay each way in milliseconds
    #[arg(long, default_value_t = 20, requires = "rate")]
    delay_ms: u64,
    /// What waits before it at most, in bytes
    #[arg(long, default_value_t = 100_000, requires = "rate", value_parser = clap::value_parser!(u64).range(1500..))]
    queue_bytes: u64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// The medians of one controller over one library.
#[derive(Debug, Serialize)]
struct Row {
    library: String,
    controller: String,
    goodput_mbit_per_s: f64,
    /// Over that of the library's own Cubic.
    relative_goodput: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    processor_s_per_gb: Option<f64>,
    mean_rtt_ms: f64,
    lost_percent: f64,
    repeats: u32,
}

/// One controller that is measured.
struct Candidate {
    library: Library,
    name: String,
    factory: Option<Arc<Factory>>,
    goodput: Vec<f64>,
    processor: Vec<f64>,
    rtt: Vec<f64>,
    lost: Vec<f64>,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut candidates = candidates(args)?;
    let link = link(args)?;
    let bytes = args.megabytes * 1_000_000;
    for _ in 0..args.repeat {
        for candidate in &mut candidates {
            let bulk = Bulk { library: candidate.library, factory: candidate.factory.clone(), bytes, link };
            let before = processor_time::now();
            let measured = bulk.run()?;
            candidate.note(&measured, (processor_time::now() - before).as_secs_f64());
        }
    }
    let rows: Vec<Row> = candidates.iter().map(|candidate| row(candidate, &candidates, link.is_some())).collect();
    if args.json {
        print_line!("{}", serde_json::to_string(&rows)?)?;
        return Ok(());
    }
    print_line!("{} MB on loopback, medians of {}", args.megabytes, args.repeat)?;
    print_line!(
        "{:<7} {:<18} {:>12} {:>11} {:>10} {:>10} {:>8}",
        "library",
        "controller",
        "Mbit/s",
        "of its own",
        "CPU s/GB",
        "RTT ms",
        "lost %"
    )?;
    for row in rows {
        print_line!(
            "{:<7} {:<18} {:>12.1} {:>11.3} {:>10} {:>10.3} {:>8.3}",
            row.library,
            row.controller,
            row.goodput_mbit_per_s,
            row.relative_goodput,
            row.processor_s_per_gb.map_or("-".to_owned(), |seconds| format!("{seconds:.2}")),
            row.mean_rtt_ms,
            row.lost_percent
        )?;
    }
    Ok(())
}

fn candidates(args: &Args) -> Result<Vec<Candidate>, Failure> {
    let mut candidates = Vec::new();
    for library in &args.libraries {
        let library = match library {
            LibraryArg::Quinn => Library::Quinn,
            LibraryArg::Noq => Library::Noq,
        };
        candidates.push(Candidate::new(library, OWN, None));
        for name in &args.controllers {
            // Equal draws in each run of the benchmark.
            let factory = quic::controller(name)?.with_seed(1);
            candidates.push(Candidate::new(library, name, Some(Arc::new(factory))));
        }
    }
    Ok(candidates)
}

fn link(args: &Args) -> Result<Option<Link>, Failure> {
    match args.rate {
        Some(rate) if rate < Rate::from_bits_per_sec(100_000) => {
            Err(Failure::new(format!("--rate {rate}: a transfer would take for ever; expected 100 kbit/s at least")))
        }
        Some(rate) => {
            let (delay, queue) = (Duration::from_millis(args.delay_ms), Bytes::new(args.queue_bytes));
            Ok(Some(Link { rate, delay, queue }))
        }
        None => Ok(None),
    }
}

impl Candidate {
    fn new(library: Library, name: &str, factory: Option<Arc<Factory>>) -> Candidate {
        let [goodput, processor, rtt, lost] = [const { Vec::new() }; 4];
        Candidate { library, name: name.to_owned(), factory, goodput, processor, rtt, lost }
    }

    fn note(&mut self, measured: &Measured, processor_s: f64) {
        assert_eq!(measured.flow.is_some(), self.factory.is_some(), "another controller ran");
        let bytes = measured.arrived as f64;
        self.goodput.push(bytes * 8e-6 / measured.took.as_secs_f64());
        self.processor.push(processor_s / bytes * 1e9);
        self.rtt.push(measured.mean_rtt.as_secs_f64() * 1e3);
        self.lost.push(100.0 * measured.packets_lost as f64 / measured.packets.max(1) as f64);
    }
}

fn row(candidate: &Candidate, all: &[Candidate], emulated: bool) -> Row {
    let own = all.iter().find(|other| other.library == candidate.library && other.factory.is_none());
    let goodput = median(&candidate.goodput);
    Row {
        library: candidate.library.to_string(),
        controller: candidate.name.clone(),
        goodput_mbit_per_s: goodput,
        relative_goodput: goodput / own.map_or(goodput, |own| median(&own.goodput)),
        processor_s_per_gb: (!emulated).then(|| median(&candidate.processor)),
        mean_rtt_ms: median(&candidate.rtt),
        lost_percent: median(&candidate.lost),
        repeats: candidate.goodput.len() as u32,
    }
}

fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5).unwrap_or(0.0)
}

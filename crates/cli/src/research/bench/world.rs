//! `anabranch bench world`: what an agent waits for that learns in a world of flows: its reset, a
//! step, an observation, a snapshot.

use std::sync::Arc;
use std::time::Instant;

use anabranch_control::flow::registry;
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_lab::flows::FlowWorld;
use anabranch_lab::flows::observation::OBSERVATION_LENGTH;
use anabranch_scenario::flows::dumbbell::Bulk;
use anabranch_stats::percentile;
use serde::Serialize;

use crate::failure::Failure;
use crate::printer::print_line;

/// The simulated time of a step.
const STEP: Duration = Duration::from_millis(100);

/// Steps before the flows are in their usual course.
const WARM_UP: u64 = 200;

/// Arguments of `bench world`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The controller
    #[arg(long, default_value = "reno")]
    controller: String,
    /// Bulk flows
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    flows: u32,
    /// The bottleneck's rate
    #[arg(long, default_value = "5 Mbit/s")]
    rate: Rate,
    /// How often each is done; medians count
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    controller: &'static str,
    flows: u32,
    bottleneck_bits_per_s: u64,
    reset_us: f64,
    step_100_ms_us: f64,
    observe_us: f64,
    snapshot_us: f64,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let controller = registry::find(&args.controller)?;
    let scenario = Bulk {
        flows: args.flows as usize,
        controller,
        parameters: toml::Table::new(),
        rate: args.rate,
        loss: 0.0,
        length: Duration::SECOND * 300,
        seed: 1,
    }
    .scenario();
    let mut world = FlowWorld::new(Arc::new(scenario), ())?;
    let mut seed = 1;
    let reset_us = median(args.repeat, || {
        // A reset has something to clear.
        world.step(world.now() + STEP);
        seed += 1;
        taken(|| world.reset(seed))
    });
    (0..WARM_UP).for_each(|_| world.step(world.now() + STEP));
    let before: u64 = (0..args.flows as usize).map(|flow| world.sent(flow).packets).sum();
    let step_100_ms_us = median(args.repeat, || taken(|| world.step(world.now() + STEP)));
    let after: u64 = (0..args.flows as usize).map(|flow| world.sent(flow).packets).sum();
    assert!(after > before, "a step in which nothing leaves measures nothing");
    let mut seen = [0.0; OBSERVATION_LENGTH];
    let observe_us = median(args.repeat, || taken(|| world.observe(0, &mut seen)));
    let snapshot_us = median(args.repeat, || taken(|| world.clone()));
    let figures = Figures {
        controller: controller.name,
        flows: args.flows,
        bottleneck_bits_per_s: args.rate.bits_per_sec(),
        reset_us,
        step_100_ms_us,
        observe_us,
        snapshot_us,
    };
    if args.json {
        print_line!("{}", serde_json::to_string(&figures)?)?;
        return Ok(());
    }
    print_line!("{} flows of {} over {}, in us (medians of {}):", args.flows, controller.name, args.rate, args.repeat)?;
    print_line!("reset                {reset_us:8.2}")?;
    print_line!("step of 100 ms       {step_100_ms_us:8.2}")?;
    print_line!("observe a flow       {observe_us:8.3}")?;
    print_line!("snapshot             {snapshot_us:8.2}")?;
    Ok(())
}

/// How long `work` takes, in us; what it gives is dropped later.
fn taken<T>(work: impl FnOnce() -> T) -> f64 {
    let before = Instant::now();
    let result = std::hint::black_box(work());
    let taken = before.elapsed();
    drop(result);
    taken.as_secs_f64() * 1e6
}

fn median(repeat: u32, mut sample: impl FnMut() -> f64) -> f64 {
    let samples: Vec<f64> = (0..repeat).map(|_| sample()).collect();
    percentile(&samples, 0.5).unwrap_or(f64::NAN)
}

//! `anabranch bench env`: steps a second of many learning environments, in which hosts are directed rates that change
//! with each step.

use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_env::vector::Results;
use anabranch_env::{Autoreset, Seeds, Terms, Vector, catalogue};
use serde::Serialize;

use crate::failure::Failure;
use crate::printer::print_line;

/// Steps that a world has gone when it is reset.
const STEPS_BEFORE_RESET: u64 = 5;

/// Arguments of `bench env`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The environment
    #[arg(long, default_value = "C3-Single", value_parser = named())]
    env: String,
    /// How many are stepped together
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    envs: u32,
    /// Threads; as many as there are cores unless given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Seconds that it takes
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    env: &'static str,
    envs: u32,
    threads: u32,
    steps_per_s: f64,
    packets_per_s: f64,
    reset_us: f64,
}

fn named() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(catalogue::ALL.map(|environment| environment.name))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds".to_owned())?;
    if (0.01..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("must be from 0.01 to 3600".into()) }
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let environment = catalogue::find(&args.env).expect("the parser knows the names");
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get) as u32;
    let threads = args.threads.unwrap_or(cores).min(args.envs);
    let spec = Arc::new(environment.spec());
    let mut vector = Vector::new(&spec, args.envs as usize, 1, threads as usize, Autoreset::NextStep)
        .map_err(|error| Failure::new(error.to_string()))?;
    let envs = args.envs as usize;
    let mut observations = vec![0.0; vector.observation_len()];
    let (mut rewards, mut terms) = (vec![0.0; envs], vec![0.0; Terms::NAMES.len() * envs]);
    let (mut terminated, mut truncated) = (vec![false; envs], vec![false; envs]);
    let mut actions = vec![0.0; vector.action_len()];
    let hosts = vector.sessions()[0].hosts() as f32;
    let sent = |vector: &Vector| -> u64 { vector.sessions().iter().map(anabranch_env::Session::packets).sum() };
    let (mut steps, mut packets, mut reward) = (0u64, 0u64, 0.0);
    let shares = |steps: u64| (0.8 + 0.02 * (steps % 11) as f32) / hosts;
    let began = Instant::now();
    while began.elapsed().as_secs_f64() < args.seconds {
        // Fair shares from 0.8 to 1 of the link, so that nothing is dropped and much is sent.
        actions.fill(shares(steps));
        let before = sent(&vector);
        let results = Results {
            observations: &mut observations,
            rewards: &mut rewards,
            terms: &mut terms,
            terminated: &mut terminated,
            truncated: &mut truncated,
            last: None,
        };
        vector.step(&actions, results).map_err(|error| Failure::new(error.to_string()))?;
        packets += sent(&vector).saturating_sub(before);
        steps += 1;
        reward += f64::from(rewards.iter().sum::<f32>());
    }
    let seconds = began.elapsed().as_secs_f64();
    assert!(reward > 0.0 && packets > 0, "steps in which nothing is carried measure nothing");
    // A world in which nothing has happened yet has nothing to clear: some steps come before each reset.
    let (resets, mut resetting) = (50, Duration::ZERO);
    for number in 0..resets {
        for step in 0..STEPS_BEFORE_RESET {
            actions.fill(shares(number + step));
            let results = Results {
                observations: &mut observations,
                rewards: &mut rewards,
                terms: &mut terms,
                terminated: &mut terminated,
                truncated: &mut truncated,
                last: None,
            };
            vector.step(&actions, results).map_err(|error| Failure::new(error.to_string()))?;
        }
        let began = Instant::now();
        let reset = vector.reset(Seeds::Next, None, &mut observations);
        reset.map_err(|error| Failure::new(error.to_string()))?;
        resetting += began.elapsed();
    }
    let figures = Figures {
        env: environment.name,
        envs: args.envs,
        threads,
        steps_per_s: steps as f64 * envs as f64 / seconds,
        packets_per_s: packets as f64 / seconds,
        reset_us: resetting.as_secs_f64() * 1e6 / resets as f64 / envs as f64 * f64::from(threads),
    };
    if args.json {
        print_line!("{}", serde_json::to_string(&figures)?)?;
        return Ok(());
    }
    print_line!("{} environments {} on {} threads:", figures.envs, figures.env, figures.threads)?;
    print_line!("steps a second     {:10.0}", figures.steps_per_s)?;
    print_line!("packets a second   {:10.0}", figures.packets_per_s)?;
    print_line!("us a reset         {:10.2}", figures.reset_us)?;
    Ok(())
}

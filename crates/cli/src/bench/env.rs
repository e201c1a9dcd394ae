//! `anabranch bench env`: steps a second of many learning environments, in which hosts are told rates that change with
//! each step.

use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_env::vector::Results;
use anabranch_env::{Autoreset, Seeds, Terms, Vector, catalogue};
use serde::Serialize;

use crate::failure::Failure;

/// How many times all environments are reset.
const RESETS: u32 = 50;

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

/// Where results of steps go.
struct Room {
    observations: Vec<f32>,
    rewards: Vec<f32>,
    terms: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
}

impl Room {
    fn of(vector: &Vector) -> Room {
        let envs = vector.sessions().len();
        Room {
            observations: vec![0.0; vector.observation_len()],
            rewards: vec![0.0; envs],
            terms: vec![0.0; Terms::NAMES.len() * envs],
            terminated: vec![false; envs],
            truncated: vec![false; envs],
        }
    }

    fn step(&mut self, vector: &mut Vector, actions: &[f32]) -> Result<(), Failure> {
        let results = Results {
            observations: &mut self.observations,
            rewards: &mut self.rewards,
            terms: &mut self.terms,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            last: None,
        };
        vector.step(actions, results).map_err(|error| Failure::new(error.to_string()))
    }
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let environment = catalogue::find(&args.env).expect("the parser knows the names");
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get) as u32;
    let threads = args.threads.unwrap_or(cores).min(args.envs);
    let spec = Arc::new(environment.spec());
    let mut vector = Vector::new(&spec, args.envs as usize, 1, threads as usize, Autoreset::NextStep)
        .map_err(|error| Failure::new(error.to_string()))?;
    let mut room = Room::of(&vector);
    let mut actions = vec![0.0; vector.action_len()];
    let hosts = vector.sessions()[0].hosts() as f32;
    let sent = |vector: &Vector| -> u64 { vector.sessions().iter().map(anabranch_env::Session::packets).sum() };
    let (mut steps, mut packets, mut reward) = (0u64, 0u64, 0.0);
    let began = Instant::now();
    while began.elapsed().as_secs_f64() < args.seconds {
        // Fair shares from 0.8 to 1 of the link, so that nothing is dropped and much is sent.
        actions.fill((0.8 + 0.02 * (steps % 11) as f32) / hosts);
        let before = sent(&vector);
        room.step(&mut vector, &actions)?;
        packets += sent(&vector).saturating_sub(before);
        steps += 1;
        reward += f64::from(room.rewards.iter().sum::<f32>());
    }
    let seconds = began.elapsed().as_secs_f64();
    assert!(reward > 0.0 && packets > 0, "steps in which nothing is carried measure nothing");
    let mut resetting = Duration::ZERO;
    for _ in 0..RESETS {
        // A world in which nothing has happened has nothing to forget.
        (0..10).try_for_each(|_| room.step(&mut vector, &actions))?;
        let began = Instant::now();
        let reset = vector.reset(Seeds::Next, None, &mut room.observations);
        reset.map_err(|error| Failure::new(error.to_string()))?;
        resetting += began.elapsed();
    }
    let envs = f64::from(args.envs);
    let figures = Figures {
        env: environment.name,
        envs: args.envs,
        threads,
        steps_per_s: steps as f64 * envs / seconds,
        packets_per_s: packets as f64 / seconds,
        reset_us: resetting.as_secs_f64() * 1e6 / f64::from(RESETS) / envs * f64::from(threads),
    };
    if args.json {
        println!("{}", serde_json::to_string(&figures)?);
        return Ok(());
    }
    println!("{} environments {} on {} threads:", figures.envs, figures.env, figures.threads);
    println!("steps a second     {:10.0}", figures.steps_per_s);
    println!("packets a second   {:10.0}", figures.packets_per_s);
    println!("us a reset         {:10.2}", figures.reset_us);
    Ok(())
}

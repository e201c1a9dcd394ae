//! A policy does in a run what it does in an environment of the same scenario and seed, to the bit.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_env::policy::{Activation, Layer, Policy};
use anabranch_env::policy_file::{Purpose, Saved};
use anabranch_env::rollout::Rollout;
use anabranch_env::sight::Sight;
use anabranch_env::spec::Source;
use anabranch_env::{Actuator, Agents, Autoreset, Feature, Spec, Vector};
use anabranch_lab::flows::{FlowScenario, run};
use anabranch_lab::monitor::Monitor;
use anabranch_scenario::file::{AnyScenario, read_any};

/// Two hosts whose flows come and go beside cross traffic, sampled at times that are no decision's.
const TEXT: &str = r#"
    [run]
    seconds = 12
    seed = 7
    sample_every_s = 0.07
    [dumbbell]
    pairs = 3
    rate = "10 Mbit/s"
    delay_ms = 10
    queue = { ms = 50 }
    loss = 0.002
    access_rate = "100 Mbit/s"
    access_delay_ms = [5, 5, 9]
    [[flow]]
    name = "f{i}"
    count = 3
    from = "s{i}"
    to = "r0"
    controller = "cubic"
    steered = true
    handshake = true
    start_step_s = 0.63
    workload = { on_mean_s = 2, off_mean_s = 0.7, new_connections = true }
    [[flow]]
    name = "beside"
    from = "s2"
    to = "r1"
    controller = "reno"
    stop_s = 4
    [[cross_traffic]]
    from = "s1"
    to = "r1"
    rate = "4 Mbit/s"
    packet_bytes = 1500
    pattern = { on_s = 0.9, off_s = 1.3 }
    [steering]
    link = "bottleneck"
    policy = "p.safetensors"
"#;

const FEATURES: [Feature; 8] = [
    Feature::Throughput,
    Feature::Queue,
    Feature::Dropped,
    Feature::Flows,
    Feature::PreviousRate,
    Feature::CrossAge,
    Feature::RoundTrip,
    Feature::Loss,
];

/// A network of drawn weights whose rates go up and down with what it sees.
fn saved(actuator: Actuator, delay: usize, most: f32) -> Saved {
    let mut rng = Rng::stream(3, "weights");
    let inputs = FEATURES.len() * 2;
    let mut layer = |inputs: usize, outputs: usize, bias: f32| Layer {
        weights: (0..inputs * outputs).map(|_| rng.normal() as f32 * 0.5).collect(),
        biases: vec![bias; outputs],
    };
    let layers = vec![layer(inputs, 16, 0.0), layer(16, 1, 0.4)];
    let policy = Policy::new(layers, Activation::Tanh, vec![0.1; inputs], vec![0.5; inputs]).unwrap();
    let policy = policy.with_known(vec![0.0; inputs], vec![most; inputs]).unwrap();
    let interval = Duration::from_millis(100);
    let sight =
        Sight { link: 0, interval, actuator, features: FEATURES.to_vec(), history: 2, delay, agents: Agents::Hosts };
    Saved { policy, purpose: Purpose::of(&sight), trained: serde_json::Value::Null }
}

fn scenario(directory: &Path, saved: &Saved) -> FlowScenario {
    saved.save(&directory.join("p.safetensors")).unwrap();
    fs::write(directory.join("s.toml"), TEXT).unwrap();
    match read_any(&directory.join("s.toml"), &[]).unwrap() {
        AnyScenario::Flows(scenario) => scenario,
        other => panic!("{other:?}"),
    }
}

/// Writes down decisions.
#[derive(Default)]
struct Decisions(Mutex<Vec<(Time, Vec<u32>)>>);

impl Monitor for Decisions {
    fn on_second(&self) {}

    fn is_interrupted(&self) -> bool {
        false
    }

    fn on_decision(&self, now: Time, rates: &[f32]) {
        self.0.lock().unwrap().push((now, bits(rates)));
    }
}

fn bits(rates: &[f32]) -> Vec<u32> {
    rates.iter().map(|rate| rate.to_bits()).collect()
}

#[test]
fn a_policy_decides_in_a_run_what_it_decides_in_an_environment() {
    for (actuator, delay, sampled) in [
        (Actuator::Rate, 0, true),
        (Actuator::Fixed, 3, false),
        (Actuator::Bounded, 0, false),
        (Actuator::Initial, 1, false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let saved = saved(actuator, delay, 10.0);
        let mut scenario = scenario(directory.path(), &saved);
        if !sampled {
            scenario.sample_every = None;
        }
        let decisions = Decisions::default();
        let measured = run(&scenario, &decisions).unwrap();
        let decisions = decisions.0.into_inner().unwrap();

        let spec = Arc::new(Spec::of(Source::Fixed(Arc::new(scenario.clone()))));
        assert_eq!((spec.actuator, spec.delay, spec.features.as_slice()), (actuator, delay, &FEATURES[..]));
        let mut vector = Vector::new(&spec, 1, scenario.seed, 1, Autoreset::NextStep).unwrap();
        let (hosts, row, steps) = (vector.action_len(), vector.observation_len(), 120);
        assert_eq!((hosts, decisions.len()), (3, steps), "each of three hosts every tenth of 12 s");
        let mut actions = vec![0.0; hosts * steps];
        let room = Rollout {
            observations: &mut vec![0.0; row * steps],
            actions: &mut actions,
            rewards: &mut vec![0.0; steps],
            terminated: &mut vec![false; steps],
            truncated: &mut vec![false; steps],
            next: &mut vec![0.0; row],
        };
        vector.rollout(&saved.policy, &[], steps, 0..steps, room).unwrap();
        for (step, (at, rates)) in decisions.iter().enumerate() {
            assert_eq!(*at, Time::ZERO + spec.interval * step as u64);
            assert_eq!(*rates, bits(&actions[step * hosts..(step + 1) * hosts]), "{actuator:?}: step {step} at {at}");
        }
        let differ = decisions.iter().filter(|(_, rates)| *rates != decisions[0].1).count();
        assert!(differ > 100, "what is directed depends on what is seen: {differ}");
        // Not only what is directed: what became of it.
        let steered: u64 = measured.flows[..3].iter().map(|flow| flow.packets_sent).sum();
        assert!(steered > 1000 && vector.sessions()[0].packets() == steered, "{actuator:?}: {steered} packets");
    }
}

#[test]
fn what_training_never_showed_is_cut_and_said_once() {
    let directory = tempfile::tempdir().unwrap();
    let notes = |most| run(&scenario(directory.path(), &saved(Actuator::Rate, 0, most)), &()).unwrap().notes;
    assert_eq!(notes(10.0), Vec::<String>::new());
    let notes = notes(0.25);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].starts_with("p.safetensors: at ") && notes[0].contains("from 0 to 0.25 in its training"),
        "{notes:?}"
    );
}

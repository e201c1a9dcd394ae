//! A rollout is what steps one by one are, on any number of threads and in any number of parts.

use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_env::policy::{Activation, Layer, Policy, PolicyError, Scratch};
use anabranch_env::rollout::{Rollout, RolloutError};
use anabranch_env::{Autoreset, Session, Spec, Vector, catalogue};

const STEPS: usize = 20;

#[derive(Clone, Debug, PartialEq)]
struct Trajectory {
    observations: Vec<f32>,
    actions: Vec<f32>,
    rewards: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    next: Vec<f32>,
}

impl Trajectory {
    fn of(vector: &Vector) -> Trajectory {
        let all = vector.sessions().len() * STEPS;
        Trajectory {
            observations: vec![0.0; vector.observation_len() * STEPS],
            actions: vec![0.0; vector.action_len() * STEPS],
            rewards: vec![0.0; all],
            terminated: vec![false; all],
            truncated: vec![false; all],
            next: vec![0.0; vector.observation_len()],
        }
    }

    fn room(&mut self) -> Rollout<'_> {
        Rollout {
            observations: &mut self.observations,
            actions: &mut self.actions,
            rewards: &mut self.rewards,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            next: &mut self.next,
        }
    }
}

/// A short spec, so that episodes end.
fn spec(name: &str) -> Arc<Spec> {
    Arc::new(Spec { interval: Duration::from_millis(1500), ..catalogue::find(name).unwrap().spec() })
}

/// Rates that depend on what is seen of a host.
fn policy(inputs: usize) -> Policy {
    let weights = (0..inputs * 3).map(|place| 0.2 - 0.03 * place as f32).collect();
    let layers = vec![
        Layer { weights, biases: vec![0.1, -0.1, 0.0] },
        Layer { weights: vec![0.5, -0.5, 0.25], biases: vec![0.3] },
    ];
    Policy::new(layers, Activation::Tanh, vec![0.1; inputs], vec![0.5; inputs]).unwrap()
}

#[test]
fn a_rollout_is_what_single_steps_are() {
    for deviations in [&[][..], &[0.2]] {
        let (spec, policy) = (spec("C3-Random"), policy(6));
        let mut vector = Vector::new(&spec, 3, 5, 1, Autoreset::NextStep).unwrap();
        let mut found = Trajectory::of(&vector);
        vector.rollout(&policy, deviations, STEPS, 0..STEPS, found.room()).unwrap();
        let mut expected = Trajectory::of(&vector);
        for i in 0..3 {
            let mut session = Session::new(Arc::clone(&spec), 5 + i as u64).unwrap();
            let (row, hosts) = (session.observation_len(), session.hosts());
            for step in i * STEPS..(i + 1) * STEPS {
                let seen = &mut expected.observations[step * row..(step + 1) * row];
                session.observe(seen);
                let action = &mut expected.actions[step * hosts..(step + 1) * hosts];
                let reading = policy.reading(hosts, 6, 1).unwrap();
                policy.rates(reading, seen, &mut Scratch::default(), action);
                for (rate, deviation) in action.iter_mut().zip(deviations.iter().cycle()) {
                    *rate += deviation * session.explorer().normal() as f32;
                }
                if session.ended().is_over() {
                    session.reset(None).unwrap();
                    continue;
                }
                let ended = session.step(action).unwrap();
                expected.rewards[step] = session.reward();
                (expected.terminated[step], expected.truncated[step]) = (ended.terminated, ended.truncated);
            }
            session.observe(&mut expected.next[i * row..(i + 1) * row]);
        }
        assert_eq!(found, expected);
        assert!(found.truncated.contains(&true), "episodes end in it");
        let distinct: std::collections::BTreeSet<u32> = found.actions.iter().map(|rate| rate.to_bits()).collect();
        assert!(distinct.len() > STEPS, "what is told depends on what is seen");
    }
}

#[test]
fn neither_threads_nor_parts_change_it() {
    let (spec, policy) = (spec("C3-Staggered"), policy(6));
    let run = |threads: usize, parts: &[usize]| {
        let mut vector = Vector::new(&spec, 5, 9, threads, Autoreset::NextStep).unwrap();
        let mut trajectory = Trajectory::of(&vector);
        for ends in parts.windows(2) {
            vector.rollout(&policy, &[0.1], STEPS, ends[0]..ends[1], trajectory.room()).unwrap();
        }
        trajectory
    };
    let whole = run(1, &[0, STEPS]);
    assert_eq!(run(3, &[0, STEPS]), whole);
    assert_eq!(run(2, &[0, 1, 7, STEPS]), whole);
}

#[test]
fn a_policy_for_others_and_a_lost_observation_are_refused() {
    let refused = |policy: &Policy, deviations: &[f32], autoreset| {
        let mut vector = Vector::new(&spec("C3-Parallel"), 2, 1, 1, autoreset).unwrap();
        let mut trajectory = Trajectory::of(&vector);
        vector.rollout(policy, deviations, STEPS, 0..STEPS, trajectory.room()).unwrap_err()
    };
    let other = refused(&policy(7), &[], Autoreset::NextStep);
    assert!(matches!(other, RolloutError::Policy(PolicyError::Other { inputs: 7, outputs: 1, row: 6, .. })), "{other}");
    let noise = refused(&policy(6), &[0.1, 0.2], Autoreset::NextStep);
    assert_eq!(noise.to_string(), "deviations has 2 numbers, must have 1");
    assert_eq!(refused(&policy(6), &[], Autoreset::SameStep), RolloutError::SameStep);
}

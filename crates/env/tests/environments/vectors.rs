//! Environment `i` of a vector seeded `s` is the single one seeded `s + i`, whatever else is chosen.

use std::sync::Arc;

use anabranch_env::{Autoreset, Ended, Seeds, Session, Spec, Vector, catalogue, vector::Results};
use proptest::prelude::*;

/// A step's results.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    observations: Vec<f32>,
    rewards: Vec<f32>,
    terms: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    last: Vec<f32>,
}

impl Step {
    fn of(vector: &Vector) -> Step {
        let count = vector.sessions().len();
        Step {
            observations: vec![0.0; vector.observation_len()],
            rewards: vec![0.0; count],
            terms: vec![0.0; anabranch_env::Terms::NAMES.len() * count],
            terminated: vec![false; count],
            truncated: vec![false; count],
            last: vec![0.0; vector.observation_len()],
        }
    }

    fn take(&mut self, vector: &mut Vector, actions: &[f32]) {
        let results = Results {
            observations: &mut self.observations,
            rewards: &mut self.rewards,
            terms: &mut self.terms,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            last: Some(&mut self.last),
        };
        vector.step(actions, results).unwrap();
    }
}

/// Rates that differ by environment, step and host.
fn actions(environment: u64, step: usize, hosts: usize) -> Vec<f32> {
    (0..hosts).map(|host| ((environment as usize * 7 + step * 3 + host) % 11) as f32 / 10.0).collect()
}

/// A short spec, so that many episodes end.
fn short(name: &str) -> Arc<Spec> {
    let spec = catalogue::find(name).unwrap().spec();
    let interval = anabranch_control::time::Duration::from_millis(1500);
    Arc::new(Spec { interval, ..spec })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn an_environment_of_a_vector_is_the_single_one(
        place in 0..catalogue::ALL.len(),
        count in 1usize..6,
        threads in 1usize..4,
        seed in any::<u64>(),
        autoreset in prop_oneof![
            Just(Autoreset::NextStep), Just(Autoreset::SameStep), Just(Autoreset::Disabled)
        ],
    ) {
        let spec = short(catalogue::ALL[place].name);
        let mut vector = Vector::new(&spec, count, seed, threads, autoreset).unwrap();
        let mut singles: Vec<Session> =
            (0..count as u64).map(|i| Session::new(Arc::clone(&spec), seed.wrapping_add(i)).unwrap()).collect();
        let mut step = Step::of(&vector);
        let row = singles[0].observation_len();
        let hosts = singles[0].hosts();
        for number in 0..20 {
            let all: Vec<f32> = (0..count as u64).flat_map(|i| actions(i, number, hosts)).collect();
            step.take(&mut vector, &all);
            for (i, single) in singles.iter_mut().enumerate() {
                let mut seen = vec![0.0; row];
                let was_over = single.ended().is_over();
                let ended = match (was_over, autoreset) {
                    (true, Autoreset::NextStep) => {
                        single.reset(None).unwrap();
                        Ended::default()
                    }
                    _ => single.step(&actions(i as u64, number, hosts)).unwrap(),
                };
                let reward = if was_over { 0.0 } else { single.reward() };
                if ended.is_over() && autoreset == Autoreset::SameStep {
                    single.observe(&mut seen);
                    prop_assert_eq!(&step.last[i * row..(i + 1) * row], &seen[..]);
                    single.reset(None).unwrap();
                }
                single.observe(&mut seen);
                prop_assert_eq!(&step.observations[i * row..(i + 1) * row], &seen[..]);
                prop_assert_eq!(step.rewards[i], reward);
                prop_assert_eq!((step.terminated[i], step.truncated[i]), (ended.terminated, ended.truncated));
            }
        }
    }
}

#[test]
fn a_mask_says_whose_episode_begins() {
    let spec = short("C3-Random");
    let mut vector = Vector::new(&spec, 3, 5, 2, Autoreset::Disabled).unwrap();
    let mut step = Step::of(&vector);
    for _ in 0..10 {
        let actions = vec![0.2; vector.action_len()];
        step.take(&mut vector, &actions);
    }
    assert_eq!(step.truncated, [true; 3]);
    assert_eq!(step.rewards, [0.0; 3], "an episode that is over is worth nothing more");
    let mut seen = vec![0.0; vector.observation_len()];
    vector.reset(Seeds::Next, Some(&[false, true, false]), &mut seen).unwrap();
    let over: Vec<bool> = vector.sessions().iter().map(|session| session.ended().is_over()).collect();
    assert_eq!(over, [true, false, true]);
    vector.reset(Seeds::From(5), None, &mut seen).unwrap();
    let mut fresh = Vector::new(&spec, 3, 5, 1, Autoreset::Disabled).unwrap();
    let mut same = seen.clone();
    fresh.reset(Seeds::From(5), None, &mut same).unwrap();
    assert_eq!(seen, same);
    // One alone has a seed of its own; the others go on with theirs.
    fresh.reset(Seeds::Each(&[None, Some(5), None]), Some(&[false, true, false]), &mut same).unwrap();
    let row = same.len() / 3;
    assert_eq!(same[row..2 * row], seen[..row]);
    assert_eq!((&same[..row], &same[2 * row..]), (&seen[..row], &seen[2 * row..]));
}

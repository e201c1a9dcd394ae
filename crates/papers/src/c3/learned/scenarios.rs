//! [C3]'s three training scenarios: one flow, two that begin together, two of which one begins later.
//!
//! What five trainings end with is played beside an oracle, and what the first of them directed after 10, 50 and 100
//! episodes is drawn, as the paper draws it.

use std::sync::Arc;

use anabranch_env::{Spec, catalogue};
use anabranch_report::{Axis, Figure, Reference, Report, Series, XyChart};

use super::play::{Actor, EVALUATION_SEED, Episode, Play, check};
use super::policies::Policies;
use super::{mean, play_all};
use crate::{ExperimentError, Findings, FlowLab};

/// Seeds of trainings.
const TRAININGS: u64 = 5;

/// Steps of an episode.
const EPISODE: u64 = 100;

/// Episodes after which the paper draws what is directed.
const DRAWN: [u64; 3] = [10, 50, 100];

/// Of what the oracle gets, what a training is to reach.
const GOAL: f64 = 0.95;

/// Steps after a flow begins that count as its beginning: a second.
const SETTLING: usize = 10;

/// A host has its share when it is directed as much within this part of it.
const NEAR: f64 = 0.1;

/// Scenario 1.
pub fn single(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    run(lab, "C3-Single", 1, "One flow over 5 Mbit/s: the paper's agent learns to send at the bottleneck's rate.")
}

/// Scenario 2.
pub fn parallel(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    run(lab, "C3-Parallel", 1, "Two flows that begin together: the paper's agent learns to send at half the rate each.")
}

/// Scenario 3. Its episodes differ by when the second flow begins.
pub fn staggered(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let episodes = lab.seconds(16, 4);
    let about = "The second flow begins later: the paper's agent learns to send at the bottleneck's rate, and at half of it \
                 from then on.";
    run(lab, "C3-Staggered", episodes, about)
}

fn run(lab: &FlowLab, name: &str, episodes: u64, about: &str) -> Result<Findings, ExperimentError> {
    let spec = Arc::new(catalogue::find(name).expect("an experiment's environment is there").spec());
    let policies = Policies::of(lab, lab.id, "");
    let trained = policies.trained(TRAININGS)?;
    let mut early = Vec::new();
    for drawn in DRAWN {
        // A folder of somebody's own may have been filled without them.
        early.extend(policies.find(1, &format!("steps-{}", drawn * EPISODE))?.map(|policy| (drawn, policy)));
    }
    let early_at: Vec<u64> = early.iter().map(|(drawn, _)| *drawn).collect();
    let count = trained.len();
    let saved = trained.into_iter().chain(early.into_iter().map(|(_, policy)| policy));
    let mut actors = vec![Actor::Oracle, Actor::Rule { late: 0 }];
    for policy in saved {
        check(&policy, &spec)?;
        actors.push(Actor::policy(policy));
    }
    let plays: Vec<Play> = actors.iter().flat_map(|actor| of_seeds(lab, &spec, actor, episodes)).collect();
    let played = play_all(lab, &plays)?;
    let of_actors: Vec<&[Episode]> = played.chunks(episodes as usize).collect();
    let [oracle, rule, learned @ ..] = &of_actors[..] else { unreachable!("both are played") };
    let (last, early) = learned.split_at(count);
    let reward = |played: &[Episode]| mean(&played.iter().map(|one| one.reward(&spec.weights)).collect::<Vec<_>>());

    let rewards: Vec<f64> = last.iter().map(|played| reward(played)).collect();
    let of_oracle: Vec<f64> = rewards.iter().map(|ours| ours / reward(oracle)).collect();
    let near = of_oracle.iter().filter(|&&share| share >= GOAL).count() as f64;
    let mut rows = vec![
        lab.mean_row("ppo", "reward_of_oracle", "", &of_oracle),
        lab.row("ppo", "trainings_at_goal", "", Some(near)),
    ];
    let most = oracle[0].steps[0].rates.len();
    for active in 1..=most {
        let settled: Vec<Settled> = last.iter().map(|played| Settled::of(played, active)).collect();
        if settled.iter().all(|one| one.rate.is_nan()) {
            continue;
        }
        let how = if active == 1 { "alone" } else { "together" };
        let all = |of: fn(&Settled) -> f64| settled.iter().map(of).collect::<Vec<f64>>();
        rows.push(lab.mean_row("ppo", &format!("send_rate[{how}]"), "of the link", &all(|one| one.rate)));
        rows.push(lab.mean_row("ppo", &format!("deviation[{how}]"), "of the link", &all(|one| one.deviation)));
        rows.push(lab.mean_row("ppo", &format!("throughput[{how}]"), "of the link", &all(|one| one.throughput)));
    }
    if name == "C3-Staggered" {
        let steps: Vec<f64> =
            last.iter().map(|played| mean(&played.iter().map(steps_to_share).collect::<Vec<_>>())).collect();
        rows.push(lab.mean_row("ppo", "steps_to_half", "steps", &steps));
    }
    let at = |drawn: u64| format!("reward_per_step[episodes={drawn}]");
    for (&drawn, played) in early_at.iter().zip(early) {
        rows.push(lab.row("ppo", &at(drawn), "", Some(reward(played))));
    }
    rows.push(lab.mean_row("ppo", "reward_per_step[at the end]", "", &rewards));
    if let Some(first) = early.first() {
        rows.push(lab.row("ppo", "gain_since_first_drawn", "", Some(rewards[0] - reward(first))));
    }
    rows.push(lab.row("oracle", "reward_per_step", "", Some(reward(oracle))));
    rows.push(lab.row("rule", "reward_per_step", "", Some(reward(rule))));

    let mut figures: Vec<Figure> = early_at
        .iter()
        .zip(early)
        .map(|(drawn, played)| Figure::chart(format!("After {drawn} episodes."), rates(&played[0])))
        .collect();
    figures.push(Figure::chart("At the end of its training.", rates(&last[0][0])));
    let mut report = Report::new(format!("{}: a coordinator that learned", lab.id))
        .paragraph(about)
        .paragraph("Of one training, the rates that hosts were told in an episode, and what they carried.")
        .figures_side_by_side(figures);
    let curve = policies.curve(1)?;
    if !curve.is_empty() {
        let chart = XyChart::new(Axis::new("steps", "").log(), Axis::new("reward of a step", ""))
            .series(Series::line("with its noise", curve))
            .reference(Reference::horizontal("oracle", reward(oracle)));
        report = report.figure(Figure::chart("How the training went.", chart));
    }
    Ok(Findings { rows, report })
}

fn of_seeds(lab: &FlowLab, spec: &Arc<Spec>, actor: &Actor, episodes: u64) -> Vec<Play> {
    let first = EVALUATION_SEED + lab.scenario.seed;
    let play = |seed| Play { spec: Arc::clone(spec), seed, actor: actor.clone() };
    (first..first + episodes).map(play).collect()
}

/// How many were active in each step, 0 while that is new.
fn settled(episode: &Episode) -> Vec<usize> {
    let active: Vec<usize> = episode.steps.iter().map(|step| step.active.iter().filter(|&&is| is).count()).collect();
    let is_settled = |at: usize| at >= SETTLING && active[at - SETTLING..=at].iter().all(|&one| one == active[at]);
    (0..active.len()).map(|at| if is_settled(at) { active[at] } else { 0 }).collect()
}

/// What hosts were directed, and carried, while this many of them were active and none had begun just before.
struct Settled {
    /// Means over hosts and steps, and the mean deviation of what one host was directed in an episode.
    rate: f64,
    deviation: f64,
    throughput: f64,
}

impl Settled {
    fn of(episodes: &[Episode], active: usize) -> Settled {
        let (mut rates, mut deviations, mut throughput) = (Vec::new(), Vec::new(), Vec::new());
        for episode in episodes {
            let settled = settled(episode);
            let hosts = 0..episode.steps.first().map_or(0, |step| step.rates.len());
            for host in hosts {
                let steps = || {
                    episode.steps.iter().zip(&settled).filter(|(step, count)| **count == active && step.active[host])
                };
                let of_host: Vec<f64> = steps().map(|(step, _)| step.rates[host]).collect();
                throughput.extend(steps().map(|(step, _)| step.throughput[host]));
                deviations.extend(anabranch_stats::std_dev(&of_host));
                rates.extend(of_host);
            }
        }
        Settled { rate: mean(&rates), deviation: mean(&deviations), throughput: mean(&throughput) }
    }
}

/// Steps after the second host began until both are directed about half of the link; all that follow if they never are.
fn steps_to_share(episode: &Episode) -> f64 {
    let both = |step: &&super::play::Step| step.active.iter().all(|&is| is);
    let has_share = |rate: f64| (rate - 0.5).abs() <= NEAR * 0.5;
    let steps: Vec<_> = episode.steps.iter().skip_while(|step| !both(step)).collect();
    steps.iter().position(|step| step.rates.iter().all(|&rate| has_share(rate))).unwrap_or(steps.len()) as f64
}

/// What hosts were directed and carried over an episode.
fn rates(episode: &Episode) -> XyChart {
    let hosts = episode.steps.first().map_or(0, |step| step.rates.len());
    let axes = (Axis::new("time", "s").from_zero(), Axis::new("of the link", "").range(0.0, 1.3));
    (0..hosts).fold(XyChart::new(axes.0, axes.1), |chart, host| {
        let points = |of: &dyn Fn(&super::play::Step) -> f64| {
            episode.steps.iter().enumerate().map(|(step, seen)| (episode.at(step), of(seen))).collect::<Vec<_>>()
        };
        chart
            .series(Series::line(format!("host {host}, told"), points(&|step| step.rates[host])).slot(2 * host))
            .series(
                Series::line(format!("host {host}, carried"), points(&|step| step.throughput[host])).slot(2 * host + 1),
            )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c3::learned::play::Step;
    use crate::packets::Carrier;
    use anabranch_env::Terms;

    /// A second host joins at step 20; it and the first are directed half from step 23 on.
    fn episode() -> Episode {
        let step = |at: usize| {
            let (first, second) = match at {
                0..20 => (1.0, 0.0),
                20..23 => (1.0, 0.5),
                _ => (0.48, 0.52),
            };
            let is_there = at >= 20;
            Step {
                rates: vec![first, second],
                throughput: vec![first, second],
                active: vec![true, is_there],
                terms: Terms::default(),
            }
        };
        Episode { interval_s: 0.1, steps: (0..50).map(step).collect() }
    }

    /// The scenario beside the experiment, which `anabranch run` takes, is the environment's world.
    #[test]
    fn the_file_beside_it_is_the_environments_scenario() {
        use crate::{Request, find};
        use anabranch_env::spec::Source;
        use anabranch_lab::parallel::Job;
        for (id, name) in [("c3-scenario-1", "C3-Single"), ("c3-scenario-2", "C3-Parallel")] {
            let own = catalogue::find(name).unwrap().spec();
            let scenario =
                FlowLab::new_flows(&find(id).unwrap().folder(), Carrier::Kernel, &Request::default()).unwrap().scenario;
            let of_file = Spec { actuator: own.actuator, ..Spec::of(Source::Fixed(Arc::new(scenario))) };
            let carried = |spec: Spec| {
                let play = Play { spec: Arc::new(spec), seed: 1, actor: Actor::Rule { late: 0 } };
                let episode = play.run(&()).unwrap().unwrap();
                episode.steps.into_iter().map(|step| step.throughput).collect::<Vec<_>>()
            };
            assert_eq!(carried(of_file), carried(own), "{id}");
        }
    }

    #[test]
    fn a_beginning_counts_for_neither_time_alone_nor_together() {
        let settled = settled(&episode());
        assert_eq!((settled[9], settled[10], settled[19]), (0, 1, 1));
        assert_eq!((settled[20], settled[29], settled[30]), (0, 0, 2));
    }

    #[test]
    fn rates_are_distinguished_by_who_is_there() {
        let episodes = [episode()];
        let (alone, together) = (Settled::of(&episodes, 1), Settled::of(&episodes, 2));
        assert_eq!((alone.rate, alone.deviation), (1.0, 0.0));
        assert!((together.rate - 0.5).abs() < 1e-9 && together.deviation < 1e-9, "each host directed one thing");
        assert!(Settled::of(&episodes, 3).rate.is_nan());
    }

    #[test]
    fn a_half_is_reached_when_both_are_directed_it() {
        assert_eq!(steps_to_share(&episode()), 3.0);
        let never = Episode { steps: episode().steps.into_iter().take(22).collect(), interval_s: 0.1 };
        assert_eq!(steps_to_share(&never), 2.0);
    }
}

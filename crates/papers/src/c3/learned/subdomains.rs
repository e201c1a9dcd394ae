//! [C3]'s outlook, sub-domains: a coordinator above tells four of them what part of an even share their hosts may have, each
//! second, and a rule in each divides. Budgets, which are shares as they were when it was directed, stand beside it.
//!
//! ```text
//! kept = (score - Cubic's alone) / (score of a rule that tells all hosts, each 100 ms - Cubic's alone)
//! score = mean throughput of a second - queue at its end - 1 if the link dropped in it
//! ```

use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_env::spec::Source;
use anabranch_env::{Actuator, Agents, Spec, catalogue};
use anabranch_report::{Axis, BarChart, BarSeries, Figure, Report};

use super::play::{Actor, EVALUATION_SEED, Episode, Play, Step, check};
use super::policies::Policies;
use super::{mean, play_all};
use crate::{ExperimentError, Findings, FlowLab};

/// Seeds of trainings.
const TRAININGS: u64 = 3;

/// Draws of who sends when, and over which round trips.
const DRAWS: (u64, u64) = (16, 2);

/// Milliseconds between two decisions of a coordinator of hosts.
const FLAT_MS: u64 = 100;

/// Whoever decides more often is counted by the same windows.
const WINDOW_S: f64 = 1.0;

/// An environment of each draw.
type OfDraw = fn(u64) -> Spec;

/// The environment, of one draw.
fn spec(draw: u64) -> Spec {
    let spec = catalogue::find("C3-Subdomains").expect("the environment is there").spec();
    let mut rng = Rng::indexed(EVALUATION_SEED, "subdomains", draw);
    Spec { source: Source::Fixed(Arc::new(catalogue::divided(&mut rng))), ..spec }
}

/// Sub-domains have budgets, and lend what they hold while nobody in them sends.
fn lending(draw: u64) -> Spec {
    Spec { actuator: Actuator::Lent, ..spec(draw) }
}

/// Sub-domains have budgets, and keep them whether they need them or not.
fn keeping(draw: u64) -> Spec {
    Spec { actuator: Actuator::Rate, ..spec(draw) }
}

/// No sub-domains: hosts are directed, and often.
fn flat(draw: u64) -> Spec {
    Spec { agents: Agents::Hosts, interval: Duration::from_millis(FLAT_MS), ..keeping(draw) }
}

/// What an episode shows.
struct Shown {
    score: f64,
    jain: f64,
    utilisation: f64,
    queue: f64,
}

impl Shown {
    fn of(episode: &Episode) -> Shown {
        let each = ((WINDOW_S / episode.interval_s).round() as usize).max(1);
        let windows: Vec<&[Step]> = episode.steps.chunks(each).collect();
        let end = |window: &[Step]| window.last().map_or(0.0, |step| f64::from(step.terms.queue));
        let has_dropped = |window: &[Step]| f64::from(u8::from(window.iter().any(|step| step.terms.drop > 0.0)));
        let carried = |window: &[Step]| {
            window.iter().map(|step| f64::from(step.terms.throughput)).sum::<f64>() / window.len() as f64
        };
        let over = |of: &dyn Fn(&[Step]) -> f64| mean(&windows.iter().map(|window| of(window)).collect::<Vec<_>>());
        // Of those who sent all the time, as far as the windows' ends show it.
        let jain = |pair: &[&[Step]]| {
            let (before, now) = (pair[0].last()?, pair[1]);
            let sends = |host: &usize| before.active[*host] && now.iter().all(|step| step.active[*host]);
            let hosts = (0..before.active.len()).filter(sends);
            let carried: Vec<f64> = hosts.map(|host| now.iter().map(|step| step.throughput[host]).sum()).collect();
            (carried.len() > 1).then(|| anabranch_stats::jain_fairness(&carried)).flatten()
        };
        Shown {
            score: over(&|window| carried(window) - end(window) - has_dropped(window)),
            jain: mean(&windows.windows(2).filter_map(jain).collect::<Vec<_>>()),
            utilisation: over(&carried),
            queue: over(&end),
        }
    }
}

/// Runs it.
pub fn run(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let draws = lab.seconds(DRAWS.0, DRAWS.1);
    let trained = |variant: &str| -> Result<Vec<Actor>, ExperimentError> {
        let policies = Policies::of(lab, lab.id, variant).trained(TRAININGS)?;
        policies.iter().try_for_each(|policy| check(policy, &spec(0)))?;
        Ok(policies.into_iter().map(Actor::policy).collect())
    };
    let rule = || vec![Actor::Rule { late: 0 }];
    let deciders: [(&str, OfDraw, Vec<Actor>); 7] = [
        ("ppo", spec, trained("")?),
        ("ppo-longer", spec, trained("longer")?),
        ("rule", spec, rule()),
        ("rule-of-lent-budgets", lending, rule()),
        ("rule-of-budgets", keeping, rule()),
        ("rule-of-hosts", flat, rule()),
        ("cubic", flat, vec![Actor::Nobody]),
    ];
    let mut plays = Vec::new();
    for (_, spec, actors) in &deciders {
        for actor in actors {
            plays.extend((0..draws).map(|draw| Play {
                spec: Arc::new(spec(draw)),
                seed: EVALUATION_SEED + lab.scenario.seed + draw,
                actor: actor.clone(),
            }));
        }
    }
    let played = play_all(lab, &plays)?;
    let mut played = played.chunks(draws as usize);
    // Of each who decides, of each training: the means over draws.
    let mut reached: Vec<(&str, Vec<Shown>)> = Vec::new();
    for (subject, _, actors) in &deciders {
        let means = |episodes: &[Episode]| {
            let shown: Vec<Shown> = episodes.iter().map(Shown::of).collect();
            let mean = |of: fn(&Shown) -> f64| mean(&shown.iter().map(of).collect::<Vec<_>>());
            let (score, jain) = (mean(|one| one.score), mean(|one| one.jain));
            Shown { score, jain, utilisation: mean(|one| one.utilisation), queue: mean(|one| one.queue) }
        };
        reached.push((*subject, played.by_ref().take(actors.len()).map(means).collect()));
    }
    let only = |subject: &str| {
        let (_, shown) = reached.iter().find(|(name, _)| *name == subject).expect("all were played");
        shown[0].score
    };
    let (best, alone) = (only("rule-of-hosts"), only("cubic"));
    let mut rows = Vec::new();
    let (mut names, mut scores) = (Vec::new(), Vec::new());
    for (subject, shown) in &reached {
        let mut push = |metric: &str, of: &dyn Fn(&Shown) -> f64| {
            let values: Vec<f64> = shown.iter().map(of).collect();
            rows.push(match shown.len() {
                1 => lab.row(subject, metric, "", Some(values[0])),
                _ => lab.mean_row(subject, metric, "", &values),
            });
        };
        push("score", &|one| one.score);
        if *subject != "rule-of-hosts" && *subject != "cubic" {
            push("gain_kept", &|one| (one.score - alone) / (best - alone));
        }
        push("jain", &|one| one.jain);
        push("utilisation", &|one| one.utilisation);
        push("queue", &|one| one.queue);
        names.push((*subject).to_owned());
        scores.push(Some(mean(&shown.iter().map(|one| one.score).collect::<Vec<_>>())));
    }
    let axis = Axis::new("score: throughput less queue less drops", "");
    let chart = BarChart::new("", axis, names).series(BarSeries::new("mean of all draws", scores));
    let report = Report::new("C3, sub-domains")
        .paragraph(
            "Four sub-domains of four hosts over 20 Mbit/s; now and then nobody in one sends. A coordinator above tells each, \
             each second, what part of an even share its hosts may have, or a budget, and a rule in each divides; or, without \
             sub-domains, a rule tells each host its rate, each 100 ms.",
        )
        .figure(Figure::chart("Mean score.", chart));
    Ok(Findings { rows, report })
}

#[cfg(test)]
mod tests {
    use anabranch_env::Terms;

    use super::*;

    #[test]
    fn seconds_are_counted_alike_however_often_is_decided() {
        let step = |throughput: [f64; 3], queue: f32, drop: f32| Step {
            rates: vec![0.5; 3],
            throughput: throughput.to_vec(),
            active: vec![true, true, throughput[2] > 0.0],
            terms: Terms { throughput: throughput.iter().sum::<f64>() as f32, queue, drop, ..Terms::default() },
        };
        let seconds = |each: usize| {
            let mut steps = Vec::new();
            for second in 0..4 {
                for part in 0..each {
                    let is_last = part + 1 == each;
                    let drop = f32::from(u8::from(second == 3 && is_last));
                    let queue = if is_last { 0.25 } else { 0.75 };
                    steps.push(step([0.25, 0.5, 0.0], queue, drop));
                }
            }
            Shown::of(&Episode { interval_s: 1.0 / each as f64, steps })
        };
        for shown in [seconds(1), seconds(10)] {
            // 0.75 - 0.25, less a drop in one of four; (25 + 50)^2 / (2 (25^2 + 50^2)).
            assert!((shown.score - 0.25).abs() < 1e-6, "{}", shown.score);
            assert!((shown.jain - 0.9).abs() < 1e-9, "{}", shown.jain);
            assert!((shown.utilisation - 0.75).abs() < 1e-6 && (shown.queue - 0.25).abs() < 1e-6);
        }
    }
}

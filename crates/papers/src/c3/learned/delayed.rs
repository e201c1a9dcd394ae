//! [C3]'s outlook: what is left of a coordinator's gain when its reports are a second old.
//!
//! ```text
//! kept = (score with late reports - Cubic's alone) / (score with fresh ones - Cubic's alone)
//! ```
//!
//! With fresh ones the same is seen besides: what is expected, or not.

use std::sync::Arc;

use anabranch_env::{Feature, Spec};
use anabranch_report::{Axis, Figure, Report, Series, XyChart};

use super::cross::{self, phases, score, spec};
use super::play::{Actor, EVALUATION_SEED, Episode, Play, check};
use super::policies::Policies;
use super::{mean, play_all};
use crate::{ExperimentError, Findings, FlowLab};

/// Seeds of trainings.
const TRAININGS: u64 = 3;

/// On times of cross traffic in seconds.
const ON_S: [f64; 5] = [0.2, 0.5, 1.0, 2.0, 5.0];
const ON_S_QUICK: [f64; 2] = [0.2, 5.0];

/// Phases at which it begins.
const PHASES: (u64, u64) = (8, 2);

/// Between two decisions.
const INTERVAL_MS: u64 = 100;

/// Of a gain that is less than this, no part is said to be kept: a hundredth more or less would be a third of it.
const LEAST_GAIN: f64 = 0.03;

/// Steps that late reports are late: a second.
const LATE: usize = 10;

/// What `ppo-late-told` and `ppo-late-expects` see of themselves: what they directed in this many steps.
const PROMPT_HISTORY: usize = 12;

/// The environment as somebody sees it.
type Sees = fn(Spec) -> Spec;

/// Reports say what is.
fn now(spec: Spec) -> Spec {
    spec
}

/// Reports are late.
fn late(spec: Spec) -> Spec {
    Spec { delay: LATE, ..spec }
}

/// Reports are late, and what was directed since is seen beside them.
fn with_prompt_rate(mut spec: Spec) -> Spec {
    spec.features.push(Feature::PromptRate);
    Spec { history: PROMPT_HISTORY, ..late(spec) }
}

/// The same, and what cross traffic will take when reports are acted on, if it comes and goes as the last time.
fn expecting(mut spec: Spec) -> Spec {
    spec.features.extend([Feature::CrossExpected, Feature::PromptRate]);
    Spec { history: PROMPT_HISTORY, ..late(spec) }
}

/// Runs it.
pub fn run(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let on_s = lab.choose(&ON_S, &ON_S_QUICK);
    let phases: Vec<f64> = phases(lab.seconds(PHASES.0, PHASES.1)).collect();
    let trained = |experiment: &str, variant: &str, sees: Sees| -> Result<Vec<Actor>, ExperimentError> {
        let policies = Policies::of(lab, experiment, variant).trained(TRAININGS)?;
        policies.iter().try_for_each(|policy| check(policy, &sees(spec(on_s[0], phases[0], INTERVAL_MS))))?;
        Ok(policies.into_iter().map(Actor::policy).collect())
    };
    let fresh = trained(cross::ID, "100-ms", now)?;
    let deciders: Vec<(&str, Sees, Vec<Actor>)> = vec![
        ("ppo-fresh", now, fresh.clone()),
        ("ppo-fresh-expects", cross::expecting, trained(cross::ID, "expects-100-ms", cross::expecting)?),
        ("ppo-late", late, trained(lab.id, "", late)?),
        ("ppo-late-told", with_prompt_rate, trained(lab.id, "told", with_prompt_rate)?),
        ("ppo-late-expects", expecting, trained(lab.id, "expects", expecting)?),
        ("ppo-trained-on-fresh", late, fresh),
        ("rule-fresh", now, vec![Actor::Rule { late: 0 }]),
        ("rule-late", now, vec![Actor::Rule { late: LATE }]),
        ("period-fresh", now, vec![Actor::Period { late: 0 }]),
        ("period-late", now, vec![Actor::Period { late: LATE }]),
        ("cubic", now, vec![Actor::Nobody]),
    ];
    let mut plays = Vec::new();
    for (_, sees, actors) in &deciders {
        for actor in actors {
            for &on in on_s {
                plays.extend(phases.iter().map(|&phase| Play {
                    spec: Arc::new(sees(spec(on, phase, INTERVAL_MS))),
                    seed: EVALUATION_SEED + lab.scenario.seed,
                    actor: actor.clone(),
                }));
            }
        }
    }
    let played = play_all(lab, &plays)?;
    let mut played = played.chunks(phases.len());
    // Of each who decides, of each training, by on times.
    let mut scores: Vec<(&str, Vec<Vec<f64>>)> = Vec::new();
    for (subject, _, actors) in &deciders {
        let mean_score = |episodes: &[Episode]| mean(&episodes.iter().map(score).collect::<Vec<_>>());
        let of_trainings = actors.iter().map(|_| played.by_ref().take(on_s.len()).map(mean_score).collect()).collect();
        scores.push((*subject, of_trainings));
    }
    let of = |subject: &str, on: usize| {
        let (_, of_trainings) = scores.iter().find(|(name, _)| *name == subject).expect("all were played");
        mean(&of_trainings.iter().map(|of_times| of_times[on]).collect::<Vec<_>>())
    };
    let mut rows = Vec::new();
    let mut chart = XyChart::new(
        Axis::new("on time of the cross traffic", "s").log(),
        Axis::new("score: throughput less queue less drops", ""),
    );
    for (subject, of_trainings) in &scores {
        let fresh = match *subject {
            "cubic" | "ppo-fresh" | "ppo-fresh-expects" | "rule-fresh" | "period-fresh" => None,
            "ppo-late-expects" => Some("ppo-fresh-expects"),
            "period-late" => Some("period-fresh"),
            "rule-late" => Some("rule-fresh"),
            _ => Some("ppo-fresh"),
        };
        for (place, on) in on_s.iter().enumerate() {
            let values: Vec<f64> = of_trainings.iter().map(|of_times| of_times[place]).collect();
            let mut push = |metric: &str, values: &[f64]| match subject.starts_with("ppo") {
                true => rows.push(lab.mean_row(subject, metric, "", values)),
                false => rows.push(lab.row(subject, metric, "", Some(values[0]))),
            };
            push(&format!("score[on_s={on}]"), &values);
            let alone = of("cubic", place);
            let gain = fresh.map(|fresh| of(fresh, place) - alone).filter(|gain| *gain >= LEAST_GAIN);
            if let Some(gain) = gain {
                let kept = values.iter().map(|late| (late - alone) / gain).collect::<Vec<_>>();
                push(&format!("gain_kept[on_s={on}]"), &kept);
            }
        }
        let points = (0..on_s.len()).map(|place| (on_s[place], of(subject, place))).collect();
        chart = chart.series(Series::line(*subject, points).markers());
    }
    let report = Report::new("C3, reports that are late")
        .paragraph("Cross traffic as before; late reports are a second old, and decisions come each 100 ms.")
        .figure(Figure::chart("Score over the cross traffic's on time.", chart));
    Ok(Findings { rows, report })
}

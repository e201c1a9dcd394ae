//! [C3]'s cross traffic under coordinators that learned, beside rules of several intervals and an oracle.
//!
//! Whoever decides more often is counted by the same windows of 100 ms:
//!
//! ```text
//! score = mean throughput of the window - queue at its end - 1 if the link dropped in it
//! ```
//!
//! which is the reward of the environment's own interval.

use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_env::spec::Source;
use anabranch_env::{Feature, Spec, catalogue};
use anabranch_report::{Axis, Figure, Report, Series, XyChart};

use super::play::{Actor, EVALUATION_SEED, Episode, Play, check};
use super::policies::Policies;
use super::{data_share, mean, play_all};
use crate::{ExperimentError, Findings, FlowLab};

/// The folder of the policies, which other experiments use, too.
pub const ID: &str = "c3-cross-learned";

/// Seeds of trainings.
const TRAININGS: (u64, u64) = (10, 2);

/// On times of cross traffic in seconds; it is off four times as long.
const ON_S: [f64; 5] = [0.2, 0.5, 1.0, 2.0, 5.0];
const ON_S_QUICK: [f64; 3] = [0.2, 1.0, 5.0];

/// Those at which a rule that decides each 100 ms is late for much of an on time.
const SHORT_S: f64 = 1.0;

/// Phases at which cross traffic begins.
const PHASES: (u64, u64) = (8, 2);

/// Policies by their variants, the milliseconds between two decisions, and whether they see what is expected.
const POLICIES: [(&str, u64, bool); 4] =
    [("100-ms", 100, false), ("20-ms", 20, false), ("expects-100-ms", 100, true), ("expects-20-ms", 20, true)];

/// Milliseconds between two decisions of rules, of those that expect the last period again, and of oracles.
const RULES: [u64; 4] = [100, 50, 20, 10];
const PERIODS: [u64; 2] = [100, 20];
const ORACLES: [u64; 2] = [100, 20];

/// Observations in one of those that see what is expected: what is before and behind an edge.
const HISTORY: usize = 3;

/// The window in which all are counted.
const WINDOW_S: f64 = 0.1;

/// The environment with cross traffic that is on for `on_s` seconds from that phase on, decided each `interval_ms`.
pub fn spec(on_s: f64, phase: f64, interval_ms: u64) -> Spec {
    let spec = catalogue::find("C3-Cross").expect("the environment is there").spec();
    let source = Source::Fixed(Arc::new(catalogue::crossed_by(on_s, phase)));
    Spec { source, interval: Duration::from_millis(interval_ms), ..spec }
}

/// What cross traffic will take if it comes and goes as the last time is seen besides.
pub fn expecting(mut spec: Spec) -> Spec {
    spec.features.push(Feature::CrossExpected);
    Spec { history: HISTORY, ..spec }
}

/// Equally spaced ones, none of which is an edge.
pub fn phases(count: u64) -> impl Iterator<Item = f64> {
    (0..count).map(move |place| (place as f64 + 0.5) / count as f64)
}

/// The score of an episode.
pub fn score(episode: &Episode) -> f64 {
    let steps = ((WINDOW_S / episode.interval_s).round() as usize).max(1);
    let of_window = |window: &[super::play::Step]| {
        let carried: f64 = window.iter().map(|step| f64::from(step.terms.throughput)).sum();
        let queue = window.last().map_or(0.0, |step| f64::from(step.terms.queue));
        let has_dropped = window.iter().any(|step| step.terms.drop > 0.0);
        carried / window.len() as f64 - queue - f64::from(u8::from(has_dropped))
    };
    mean(&episode.steps.chunks(steps).map(of_window).collect::<Vec<_>>())
}

/// Goodput in Mbit/s over the bottleneck of 100.
fn goodput(episode: &Episode) -> f64 {
    episode.mean(|step| f64::from(step.terms.throughput)) * 100.0 * data_share()
}

/// How often somebody decides, and what they see.
#[derive(Clone, Copy)]
struct Sees {
    interval: u64,
    expects: bool,
}

impl Sees {
    fn spec(self, on_s: f64, phase: f64) -> Spec {
        let spec = spec(on_s, phase, self.interval);
        if self.expects { expecting(spec) } else { spec }
    }
}

/// What one who decides reached: of each training, or the one of a rule, its means over phases by on times.
struct Reached {
    subject: String,
    /// Milliseconds between two decisions.
    interval: u64,
    scores: Vec<Vec<f64>>,
    goodputs: Vec<Vec<f64>>,
}

impl Reached {
    /// The mean over trainings, by on times.
    fn mean_scores(&self, times: usize) -> Vec<f64> {
        (0..times).map(|on| mean(&self.scores.iter().map(|of| of[on]).collect::<Vec<_>>())).collect()
    }

    /// The one score of each on time, of one who was not trained.
    fn only(&self) -> &[f64] {
        &self.scores[0]
    }
}

/// Runs it.
pub fn run(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let on_s = lab.choose(&ON_S, &ON_S_QUICK);
    let phases: Vec<f64> = phases(lab.seconds(PHASES.0, PHASES.1)).collect();
    let mut deciders: Vec<(String, Sees, Vec<Actor>)> = Vec::new();
    for (variant, interval, expects) in POLICIES {
        let sees = Sees { interval, expects };
        let mut actors = Vec::new();
        for policy in Policies::of(lab, ID, variant).trained(lab.seconds(TRAININGS.0, TRAININGS.1))? {
            check(&policy, &sees.spec(on_s[0], phases[0]))?;
            actors.push(Actor::policy(policy));
        }
        deciders.push((format!("ppo-{variant}"), sees, actors));
    }
    let mut compared = |who: &str, intervals: &[u64], actor: &Actor| {
        let of =
            |&interval: &u64| (format!("{who}-{interval}-ms"), Sees { interval, expects: false }, vec![actor.clone()]);
        deciders.extend(intervals.iter().map(of));
    };
    compared("rule", &RULES, &Actor::Rule { late: 0 });
    compared("period", &PERIODS, &Actor::Period { late: 0 });
    compared("oracle", &ORACLES, &Actor::Oracle);
    let mut plays = Vec::new();
    for (_, sees, actors) in &deciders {
        for actor in actors {
            for &on in on_s {
                plays.extend(phases.iter().map(|&phase| Play {
                    spec: Arc::new(sees.spec(on, phase)),
                    seed: EVALUATION_SEED + lab.scenario.seed,
                    actor: actor.clone(),
                }));
            }
        }
    }
    let played = play_all(lab, &plays)?;
    let mut played = played.chunks(phases.len());
    let mut reached = Vec::new();
    for (subject, Sees { interval, .. }, actors) in deciders {
        let (mut scores, mut goodputs) = (Vec::new(), Vec::new());
        for _ in actors {
            let of_times: Vec<&[Episode]> = played.by_ref().take(on_s.len()).collect();
            let by = |of: fn(&Episode) -> f64| -> Vec<f64> {
                of_times.iter().map(|of_phases| mean(&of_phases.iter().map(of).collect::<Vec<_>>())).collect()
            };
            scores.push(by(score));
            goodputs.push(by(goodput));
        }
        reached.push(Reached { subject, interval, scores, goodputs });
    }
    Ok(judge(lab, on_s, &reached))
}

fn judge(lab: &FlowLab, on_s: &[f64], reached: &[Reached]) -> Findings {
    let find = |subject: &str| reached.iter().find(|one| one.subject == subject).expect("all were played");
    let (rule, oracle) = (find("rule-100-ms").only(), find("oracle-100-ms").only());
    let rules = || reached.iter().filter(|one| one.subject.starts_with("rule"));
    let best_rule =
        rules().max_by(|one, other| mean(one.only()).total_cmp(&mean(other.only()))).expect("there are rules");
    // Whoever knows most and decides most often.
    let best_oracle = find("oracle-20-ms").only();
    let mut rows = Vec::new();
    for one in reached {
        let is_learned = one.subject.starts_with("ppo");
        let of_trainings =
            |of: &dyn Fn(&[f64]) -> f64| one.scores.iter().map(|scores| of(scores)).collect::<Vec<f64>>();
        let mut push = |metric: &str, unit: &str, values: &[f64]| match is_learned {
            true => rows.push(lab.mean_row(&one.subject, metric, unit, values)),
            false => rows.push(lab.row(&one.subject, metric, unit, Some(values[0]))),
        };
        if is_learned {
            let short = || (0..on_s.len()).filter(|&on| on_s[on] <= SHORT_S);
            let closed = |scores: &[f64], rule: &[f64], oracle: &[f64]| {
                let gaps = |of: &[f64]| mean(&short().map(|on| of[on] - rule[on]).collect::<Vec<_>>());
                gaps(scores) / gaps(oracle)
            };
            let own = |who: &str| find(&format!("{who}-{}-ms", one.interval)).only();
            let least = |scores: &[f64]| {
                let over = scores.iter().zip(rule).map(|(ours, rule)| (ours / rule - 1.0) * 100.0);
                over.fold(f64::INFINITY, f64::min)
            };
            push("gap_closed[on_s<=1]", "", &of_trainings(&|scores| closed(scores, rule, oracle)));
            let of_own = of_trainings(&|scores| closed(scores, own("rule"), own("oracle")));
            push("gap_closed_of_own_interval[on_s<=1]", "", &of_own);
            push("least_over_rule", "%", &of_trainings(&least));
            push("score_over_best_rule", "", &of_trainings(&|scores| mean(scores) - mean(best_rule.only())));
            push("regret", "", &of_trainings(&|scores| mean(best_oracle) - mean(scores)));
        }
        push("score", "", &of_trainings(&mean));
        for (place, on) in on_s.iter().enumerate() {
            push(&format!("score[on_s={on}]"), "", &of_trainings(&|scores| scores[place]));
        }
        for (place, on) in on_s.iter().enumerate() {
            let goodputs: Vec<f64> = one.goodputs.iter().map(|of| of[place]).collect();
            push(&format!("goodput_mbit_s[on_s={on}]"), "Mbit/s", &goodputs);
        }
    }
    let mut chart = XyChart::new(
        Axis::new("on time of the cross traffic", "s").log(),
        Axis::new("score: throughput less queue less drops", ""),
    );
    let names = [
        ("oracle: knows what comes", find("oracle-20-ms")),
        ("learned, sees what is expected, each 20 ms", find("ppo-expects-20-ms")),
        ("learned, sees what is expected, each 100 ms", find("ppo-expects-100-ms")),
        ("learned, each 100 ms", find("ppo-100-ms")),
        ("expects the last period, each 100 ms", find("period-100-ms")),
        ("rule at its best interval", best_rule),
        ("rule, each 100 ms", find("rule-100-ms")),
    ];
    for (name, one) in names {
        let points = on_s.iter().copied().zip(one.mean_scores(on_s.len())).collect();
        chart = chart.series(Series::line(name, points).markers());
    }
    let report = Report::new("C3, cross traffic under coordinators that learned")
        .paragraph(
            "70 Mbit/s of cross traffic are on for a fifth of the time over a link of 100 Mbit/s. Counted in windows of \
             100 ms: throughput, less the queue at the end, less one if the link dropped.",
        )
        .paragraph(format!("The rule's best interval over these times: {}.", best_rule.subject))
        .figure(Figure::chart("Score over the cross traffic's on time; means over all trainings and eight phases.", chart));
    Findings { rows, report }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c3::learned::play::Step;
    use anabranch_env::Terms;

    fn episode(interval_s: f64, steps: &[(f32, f32, f32)]) -> Episode {
        let step = |&(throughput, queue, drop): &(f32, f32, f32)| Step {
            rates: Vec::new(),
            throughput: Vec::new(),
            active: Vec::new(),
            terms: Terms { throughput, queue, drop, ..Terms::default() },
        };
        Episode { interval_s, steps: steps.iter().map(step).collect() }
    }

    #[test]
    fn who_decides_more_often_is_counted_by_the_same_windows() {
        let coarse = episode(0.1, &[(0.75, 0.25, 1.0), (1.0, 0.0, 0.0)]);
        assert_eq!(score(&coarse), ((0.75 - 0.25 - 1.0) + 1.0) / 2.0);
        // The first window drops twice, which counts once, and what waits at its end counts.
        let fine = episode(0.05, &[(0.5, 0.75, 1.0), (1.0, 0.25, 1.0), (1.0, 0.5, 0.0), (1.0, 0.0, 0.0)]);
        assert_eq!(score(&fine), score(&coarse));
    }

    #[test]
    fn phases_are_even_and_inside() {
        assert_eq!(phases(4).collect::<Vec<_>>(), [0.125, 0.375, 0.625, 0.875]);
    }
}

//! Fairness where training never went: 2 to 32 hosts over 2 to 200 Mbit/s, round trips 1 : 4, of which the inner quarter
//! was trained on.
//!
//! A policy tells how much there is of a host's even share; the division is arithmetic.

use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::units::Rate;
use anabranch_env::spec::Source;
use anabranch_env::{Spec, catalogue};
use anabranch_report::{Axis, Figure, Report, Series, XyChart};

use super::play::{Actor, EVALUATION_SEED, Episode, Play, check};
use super::policies::Policies;
use super::{mean, play_all};
use crate::{ExperimentError, Findings, FlowLab};

/// Seeds of trainings.
const TRAININGS: u64 = 3;

/// The grid. [`catalogue`]'s C3-Fairness draws from its inner part, `TRAINED`, both ends included.
const HOSTS: [usize; 5] = [2, 4, 8, 16, 32];
const MBIT_S: [f64; 5] = [2.0, 6.3, 20.0, 63.0, 200.0];
const TRAINED: (std::ops::RangeInclusive<usize>, std::ops::RangeInclusive<f64>) = (4..=16, 6.3..=63.0);

/// Draws of round trips and beginnings in each cell.
const DRAWS: (u64, u64) = (5, 1);

/// Shares are those of what was carried from then on, when all have begun and answered what they were directed: half of
/// an episode.
const FROM_S: f64 = 10.0;

/// A cell of the grid.
#[derive(Clone, Copy)]
struct Cell {
    hosts: usize,
    mbit_s: f64,
}

impl Cell {
    fn is_trained(self) -> bool {
        TRAINED.0.contains(&self.hosts) && TRAINED.1.contains(&self.mbit_s)
    }

    fn all() -> impl Iterator<Item = Cell> {
        HOSTS.into_iter().flat_map(|hosts| MBIT_S.into_iter().map(move |mbit_s| Cell { hosts, mbit_s }))
    }

    fn spec(self, draw: u64) -> Spec {
        let mut rng = Rng::indexed(EVALUATION_SEED, "fairness", draw);
        let rate = Rate::from_bits_per_sec((self.mbit_s * 1e6) as u64);
        let source = Source::Fixed(Arc::new(catalogue::unequal_hosts(self.hosts, rate, &mut rng)));
        let spec = catalogue::find("C3-Fairness").expect("the environment is there").spec();
        Spec { source, ..spec }
    }
}

/// What an episode shows.
struct Shown {
    jain: f64,
    utilisation: f64,
    queue: f64,
}

impl Shown {
    fn of(episode: &Episode) -> Shown {
        let from = (FROM_S / episode.interval_s).round() as usize;
        let steps = &episode.steps[from.min(episode.steps.len())..];
        let hosts = 0..steps.first().map_or(0, |step| step.rates.len());
        let is_there = |host: &usize| steps.iter().any(|step| step.active[*host]);
        let carried: Vec<f64> =
            hosts.filter(is_there).map(|host| steps.iter().map(|step| step.throughput[host]).sum()).collect();
        let per_step = |sum: f64| sum / steps.len() as f64;
        Shown {
            jain: anabranch_stats::jain_fairness(&carried).unwrap_or(f64::NAN),
            utilisation: per_step(carried.iter().sum()),
            queue: per_step(steps.iter().map(|step| f64::from(step.terms.queue)).sum()),
        }
    }
}

/// Runs it.
pub fn run(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let draws = lab.seconds(DRAWS.0, DRAWS.1);
    let mut trained = Vec::new();
    for policy in Policies::of(lab, lab.id, "").trained(TRAININGS)? {
        check(&policy, &Cell { hosts: 2, mbit_s: 2.0 }.spec(0))?;
        trained.push(Actor::policy(policy));
    }
    let deciders = [("ppo", trained), ("rule", vec![Actor::Rule { late: 0 }]), ("cubic", vec![Actor::Nobody])];
    let mut plays = Vec::new();
    for (_, actors) in &deciders {
        for actor in actors {
            for cell in Cell::all() {
                plays.extend((0..draws).map(|draw| Play {
                    spec: Arc::new(cell.spec(draw)),
                    seed: EVALUATION_SEED + lab.scenario.seed + draw,
                    actor: actor.clone(),
                }));
            }
        }
    }
    let played = play_all(lab, &plays)?;
    let mut of_cells = played.chunks(draws as usize);
    let mut rows = Vec::new();
    let mut chart =
        XyChart::new(Axis::new("hosts", "").log(), Axis::new("least Jain index over all rates", "").range(0.0, 1.05));
    for (subject, actors) in &deciders {
        // Of each training, and each cell of it: the means over draws.
        let means = |episodes: &[Episode]| {
            let shown: Vec<Shown> = episodes.iter().map(Shown::of).collect();
            let mean = |of: fn(&Shown) -> f64| mean(&shown.iter().map(of).collect::<Vec<_>>());
            Shown { jain: mean(|one| one.jain), utilisation: mean(|one| one.utilisation), queue: mean(|one| one.queue) }
        };
        let trainings: Vec<Vec<(Cell, Shown)>> = actors
            .iter()
            .map(|_| Cell::all().map(|cell| (cell, means(of_cells.next().expect("each cell was played")))).collect())
            .collect();
        for (part, is_trained) in [("held out", false), ("trained", true)] {
            let over = |of: fn(&Shown) -> f64, fold: fn(&[f64]) -> f64| -> Vec<f64> {
                let of_cells = |cells: &Vec<(Cell, Shown)>| {
                    fold(
                        &cells
                            .iter()
                            .filter(|(cell, _)| cell.is_trained() == is_trained)
                            .map(|(_, shown)| of(shown))
                            .collect::<Vec<_>>(),
                    )
                };
                trainings.iter().map(of_cells).collect()
            };
            let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
            for (metric, values) in [
                ("jain", over(|shown| shown.jain, mean)),
                ("least_jain", over(|shown| shown.jain, least)),
                ("utilisation", over(|shown| shown.utilisation, mean)),
                ("least_utilisation", over(|shown| shown.utilisation, least)),
                ("queue", over(|shown| shown.queue, mean)),
            ] {
                let metric = format!("{metric}[{part}]");
                rows.push(match *subject {
                    "ppo" => lab.mean_row(subject, &metric, "", &values),
                    _ => lab.row(subject, &metric, "", Some(values[0])),
                });
            }
        }
        let least = |hosts: usize| {
            let cells = trainings.iter().flatten().filter(|(cell, _)| cell.hosts == hosts);
            cells.map(|(_, shown)| shown.jain).fold(f64::INFINITY, f64::min)
        };
        chart =
            chart.series(Series::line(*subject, HOSTS.map(|hosts| (hosts as f64, least(hosts))).to_vec()).markers());
    }
    let report = Report::new("C3, fairness where training never went")
        .paragraph(
            "2 to 32 hosts of a flow each over 2 to 200 Mbit/s, with round trips from 20 to 80 ms. Policies were trained \
             with 4 to 16 hosts over 6.3 to 63 Mbit/s.",
        )
        .figure(Figure::chart("The least fair rate and training, for each number of hosts.", chart));
    Ok(Findings { rows, report })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c3::learned::play::Step;
    use anabranch_env::Terms;

    #[test]
    fn nine_of_the_cells_bound_the_quarter_that_was_trained() {
        assert_eq!(Cell::all().filter(|cell| cell.is_trained()).count(), 9);
        assert_eq!(Cell::all().count(), 25);
    }

    #[test]
    fn shares_are_of_those_who_send_and_of_the_second_half() {
        let step = |at: usize| Step {
            rates: vec![0.5; 3],
            throughput: if at < 100 { vec![1.0, 0.0, 0.0] } else { vec![0.25, 0.5, 0.0] },
            active: vec![true, true, false],
            terms: Terms { queue: 0.25, ..Terms::default() },
        };
        let shown = Shown::of(&Episode { interval_s: 0.1, steps: (0..200).map(step).collect() });
        // (25 + 50)^2 / (2 (25^2 + 50^2)) = 0.9
        assert!((shown.jain - 0.9).abs() < 1e-9 && (shown.utilisation - 0.75).abs() < 1e-9);
        assert_eq!(shown.queue, 0.25);
    }
}

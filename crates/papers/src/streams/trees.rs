//! How far above the best trees the moves stop that make trees better: the thesis's Adopt and Switch
//! [Raiber 2010, 6.4.4] alone, and with what we have added.
//!
//! The book of trees is asked directly, without a stream: latencies are known and nobody comes or goes.
//! The best trees are found by trying all, which a handful of clients allows.

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_proto::stream::tree::optimum::optimum;
use anabranch_proto::stream::tree::{Effort, Moves, Settings, TreeBook};
use anabranch_report::{Axis, Cell, Figure, Reference, Report, Series, Table, XyChart};
use anabranch_scenario::stream::StreamScenario;

use super::super::runs::{Estimate, OfRuns};
use super::super::{ExperimentError, Findings, StreamLab};
use super::matrix::Matrix;

/// Worlds for each number of clients and trees, of a full run and of a quick one.
const WORLDS: (u64, u64) = (200, 20);

/// The fewest clients; the most are the scenario's.
const FEWEST: usize = 3;

const DISPLACE: Moves = Moves { displace: true, ..Moves::PRINTED };
const DOUBLE_SWITCH: Moves = Moves { double_switch: true, ..Moves::PRINTED };

/// Names of rows, and the moves that are tried.
const KINDS: [(&str, Moves); 4] =
    [("printed", Moves::PRINTED), ("double-switch", DOUBLE_SWITCH), ("displace", DISPLACE), ("all", Moves::ALL)];

/// The goal, in percent above the optimum.
const GOAL: f64 = 5.0;

/// Sweeps in a row without a change after which there will be none: by then every node has had a turn.
const QUIET: usize = 17;

/// No book changes for this many sweeps.
const MOST_SWEEPS: usize = 1000;

/// Limits that just suffice, or nearly; the server's places first.
fn tight_limits(clients: usize, slices: usize, rng: &mut Rng) -> Vec<usize> {
    let mut places = vec![0; clients + 1];
    places[0] = slices + rng.below(2);
    let wanted = clients * slices + rng.below(3);
    for _ in places[0]..wanted {
        places[1 + rng.below(clients)] += 1;
    }
    places
}

/// The sum of path latencies at which the moves stop; none if a client has found no place.
fn settled(moves: Moves, slices: usize, places: &[usize], latencies: &Matrix) -> Option<Duration> {
    let settings = Settings {
        slices,
        moves,
        unknown: Duration::ZERO,
        forwarding: Duration::ZERO,
        slack: Duration::ZERO,
        leaf_slack: Duration::ZERO,
    };
    let mut book = TreeBook::new(settings, places[0]);
    let mut changes = Vec::new();
    for &places in &places[1..] {
        // Who finds no place waits for one.
        let _ = book.join(places, latencies, &mut changes);
    }
    let mut quiet = 0;
    for _ in 0..MOST_SWEEPS {
        changes.clear();
        for _ in 0..slices {
            book.step(latencies, Effort::SWEEP, &mut changes);
        }
        quiet = if changes.is_empty() { quiet + 1 } else { 0 };
        if quiet == QUIET {
            break;
        }
    }
    let sum = (0..slices).map(|slice| book.performance(slice)).fold(Duration::ZERO, |sum, tree| sum + tree);
    book.waiting().next().is_none().then_some(sum)
}

/// What came of many worlds with as many clients and trees.
struct Size {
    clients: usize,
    slices: usize,
    /// Of each kind of moves, how far above the optimum each world's trees are, in percent; not a number where
    /// a client found no place.
    gaps: Vec<Vec<f64>>,
}

impl Size {
    fn measure(scenario: &StreamScenario, clients: usize, slices: usize, worlds: u64) -> Size {
        let mut gaps = vec![Vec::new(); KINDS.len()];
        for world in 0..worlds {
            let name = format!("trees/{clients} clients/{slices} slices");
            let mut rng = Rng::indexed(scenario.seed, &name, world);
            let latencies = Matrix::random(scenario, clients + 1, &mut rng);
            let places = tight_limits(clients, slices, &mut rng);
            let Some(best) = optimum(&places, slices, &latencies) else { continue };
            for (gaps, (_, moves)) in gaps.iter_mut().zip(KINDS) {
                let gap = |sum: Duration| 100.0 * (sum.as_secs_f64() / best.as_secs_f64() - 1.0);
                gaps.push(settled(moves, slices, &places, &latencies).map_or(f64::NAN, gap));
            }
        }
        Size { clients, slices, gaps }
    }

    fn of(&self, kind: usize) -> OfRuns {
        OfRuns::new(placed(&self.gaps[kind]))
    }

    fn name(&self) -> String {
        format!("{} clients, {} tree{}", self.clients, self.slices, if self.slices == 1 { "" } else { "s" })
    }
}

/// Of worlds in which all have found places.
fn placed(gaps: &[f64]) -> Vec<f64> {
    gaps.iter().copied().filter(|gap| gap.is_finite()).collect()
}

fn percentile(gaps: &[f64], share: f64) -> f64 {
    let mut sorted = placed(gaps);
    sorted.sort_by(f64::total_cmp);
    sorted.get(((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Measures every size.
pub fn run(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let scenario = &lab.scenario;
    let worlds = lab.seconds(WORLDS.0, WORLDS.1);
    let most_slices = usize::from(scenario.stream.slices);
    let mut sizes = Vec::new();
    for slices in 1..=most_slices {
        for clients in FEWEST..=scenario.audience.clients {
            if lab.progress.is_interrupted() {
                return Err(ExperimentError::Interrupted);
            }
            sizes.push(Size::measure(scenario, clients, slices, worlds));
        }
    }
    let headers =
        ["clients and trees".to_owned()].into_iter().chain(KINDS.iter().map(|(name, _)| format!("{name} (%)")));
    let mut table = Table::new("Above the optimum, by size", headers);
    for size in &sizes {
        let cells = (0..KINDS.len()).map(|kind| {
            let Estimate { mean, half_width } = size.of(kind).estimate();
            half_width.map_or(Cell::number(mean, 2), |half| Cell::interval(mean, half))
        });
        table = table.row([Cell::text(size.name())].into_iter().chain(cells));
    }
    let mut rows = Vec::new();
    for (kind, (subject, _)) in KINDS.iter().enumerate() {
        let all: Vec<f64> = sizes.iter().flat_map(|size| size.gaps[kind].iter().copied()).collect();
        rows.push(lab.mean_row(subject, "gap_percent", "%", &placed(&all)));
        rows.push(lab.row(subject, "gap_p95_percent", "%", Some(percentile(&all, 0.95))));
        let unplaced = (all.len() - placed(&all).len()) as f64;
        rows.push(lab.row(subject, "unplaced_percent", "%", Some(100.0 * unplaced / all.len() as f64)));
        for size in &sizes {
            let metric = format!("gap_percent[{}]", size.name());
            rows.push(lab.mean_row(subject, &metric, "%", size.of(kind).values()));
        }
    }
    let chart = |slices: usize| {
        let mut chart = XyChart::new(Axis::new("clients", ""), Axis::new("above the optimum", "%").from_zero());
        for (kind, (name, _)) in KINDS.iter().enumerate() {
            let points = sizes.iter().filter(|size| size.slices == slices).map(|size| {
                let estimate = size.of(kind).estimate();
                (size.clients as f64, estimate.mean, estimate.half_width.unwrap_or(f64::NAN))
            });
            chart = chart.series(Series::intervals(*name, points.collect()).slot(kind));
        }
        let plural = if slices == 1 { "" } else { "s" };
        Figure::chart(format!("{slices} tree{plural}"), chart.reference(Reference::horizontal("goal", GOAL)))
    };
    let figures = (1..=most_slices).map(chart).collect();
    let report = Report::new("Trees against the best that there are").figures_side_by_side(figures).table(table);
    Ok(Findings { rows, report })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_move_ends_below_the_optimum_and_more_moves_end_nearer() {
        let scenario = StreamScenario::standard();
        let size = Size::measure(&scenario, 4, 2, 40);
        assert!(size.gaps[0].len() > 20, "most worlds have trees");
        assert!(size.gaps.iter().flatten().all(|&gap| gap.is_nan() || gap > -1e-9));
        assert!(size.of(3).mean() < size.of(0).mean());
    }
}

//! What [Raiber 2010] says of Q-Stream in words (7.4, 7.4.1): silent clients are removed within ten
//! seconds, a large audience's trees are optimised with power left, and what exploring costs.

use std::time::Instant;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_lab::stream::StreamMeasured;
use anabranch_proto::stream::tree::{Change, Effort, Moves, NodeId, Settings, TreeBook};
use anabranch_report::{Axis, Figure, Reference, Report, Series, XyChart};

use super::super::runs::OfRuns;
use super::super::{ExperimentError, Findings, Row, StreamLab};
use super::matrix::Matrix;

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (10, 2);

/// Viewers of a quick run.
const QUICK_CLIENTS: usize = 20;

/// Clients of the trees that are optimised without a stream, and for how long.
const MANY: (u64, u64) = (1000, 200);
const OPTIMISED: (u64, u64) = (120, 30);

/// Places of the server and of each client: 20 and 5 Mbit/s, in a stream of 4 Mbit/s in 20 slices, headers left
/// out.
const SLICES: usize = 20;
const SERVER_PLACES: usize = 100;
const CLIENT_PLACES: usize = 25;

/// A tree is looked at so often, and this many pairs of nodes then, as a server of ours does.
const STEP: Duration = Duration::from_millis(50);
const STEP_WORK: usize = 50_000;

/// Sums of path latencies that differ by no more than this share are as good.
const CONVERGED: f64 = 0.01;

/// The thesis's example of 7.4.1: clients, new estimates a packet, bytes of a packet, bits a second.
const EXPLORED: usize = 1000;
const ESTIMATES: usize = 3;
const PACKET: f64 = 1500.0;
const EXPLORATION: f64 = 10e6;

/// Runs everything.
pub fn run(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let scenario = lab.shortened(QUICK_CLIENTS);
    let mut scenario_of_kill = scenario.clone();
    scenario_of_kill.churn.kill_at = Duration::from_nanos(scenario.duration.as_nanos() / 4);
    let runs = lab.run_seeds(std::slice::from_ref(&scenario_of_kill), lab.seconds(SEEDS.0, SEEDS.1))?.remove(0);
    let mut rows = removals(lab, &runs);
    let many = Many::measure(lab)?;
    rows.extend(many.rows(lab));
    let exploring = Exploring::measure(lab);
    rows.extend(exploring.rows(lab));
    let report = Report::new("Churn, many clients, and what exploring costs")
        .figures_side_by_side(vec![many.figure(), exploring.figure()]);
    Ok(Findings { rows, report })
}

/// The longest time from somebody's death to its removal, and who was not removed although there was time.
fn removals(lab: &StreamLab, runs: &[StreamMeasured]) -> Vec<Row> {
    let silence = Duration::from_millis(11_000);
    let after = |run: &StreamMeasured| {
        let waits = run.deaths.iter().filter_map(|death| Some(death.removed?.since(death.at).as_secs_f64()));
        waits.reduce(f64::max)
    };
    let left = |run: &StreamMeasured| {
        let end = Time::ZERO + run.metrics.simulated;
        let is_left = |death: &&anabranch_lab::stream::Death| death.removed.is_none() && death.at + silence < end;
        run.deaths.iter().filter(is_left).count() as f64
    };
    let of = |value: &dyn Fn(&StreamMeasured) -> Option<f64>| OfRuns::of(runs, value);
    vec![
        lab.mean_row("trees", "longest_removal_s", "s", of(&after).values()),
        lab.never_row("trees", "not_removed", "", of(&|run| Some(left(run))).values()),
        lab.mean_row("trees", "deaths", "", of(&|run| Some(run.deaths.len() as f64)).values()),
        lab.mean_row("trees", "delivered_percent", "%", of(&|run| Some(run.metrics.delivered_percent)).values()),
    ]
}

/// The trees of many clients, from the last join on.
struct Many {
    /// Seconds, and the sum of all path latencies in seconds.
    sums: Vec<(f64, f64)>,
    /// Mean hops before and after.
    depths: (f64, f64),
    /// The share of a core that the steps took.
    core: f64,
}

impl Many {
    fn measure(lab: &StreamLab) -> Result<Many, ExperimentError> {
        let clients = lab.seconds(MANY.0, MANY.1) as usize;
        let seconds = lab.seconds(OPTIMISED.0, OPTIMISED.1);
        let mut rng = Rng::stream(lab.scenario.seed, "churn/latencies");
        let latencies = Matrix::random(&lab.scenario, clients + 1, &mut rng);
        let settings = Settings {
            slices: SLICES,
            moves: Moves::PRINTED,
            unknown: Duration::ZERO,
            forwarding: Duration::ZERO,
            slack: Duration::ZERO,
            leaf_slack: Duration::ZERO,
        };
        let mut book = TreeBook::new(settings, SERVER_PLACES);
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..clients {
            // Who finds no place waits for one.
            let _ = book.join(CLIENT_PLACES, &latencies, &mut changes);
        }
        let sum = |book: &TreeBook| (0..SLICES).map(|slice| book.performance(slice).as_secs_f64()).sum::<f64>();
        let before = depth(&book);
        let mut sums = vec![(0.0, sum(&book))];
        let began = Instant::now();
        let steps = seconds * (Duration::SECOND.as_nanos() / STEP.as_nanos());
        for step in 1..=steps {
            if lab.progress.is_interrupted() {
                return Err(ExperimentError::Interrupted);
            }
            changes.clear();
            book.step(&latencies, Effort { work: STEP_WORK, moves: usize::MAX }, &mut changes);
            sums.push(((STEP * step).as_secs_f64(), sum(&book)));
        }
        let core = began.elapsed().as_secs_f64() / seconds as f64;
        Ok(Many { sums, depths: (before, depth(&book)), core })
    }

    /// When the sum is as low as it gets.
    fn converged_s(&self) -> f64 {
        let last = self.sums[self.sums.len() - 1].1;
        let above = self.sums.iter().rposition(|(_, sum)| *sum > (1.0 + CONVERGED) * last);
        self.sums[above.map_or(0, |above| above + 1)].0
    }

    fn rows(&self, lab: &StreamLab) -> Vec<Row> {
        let (before, after) = (self.sums[0].1, self.sums[self.sums.len() - 1].1);
        vec![
            lab.row("printed", "sum_before_s", "s", Some(before)),
            lab.row("printed", "sum_after_s", "s", Some(after)),
            lab.row("printed", "sum_after_share", "", Some(after / before)),
            lab.row("printed", "converged_s", "s", Some(self.converged_s())),
            lab.row("printed", "depth_before", "hops", Some(self.depths.0)),
            lab.row("printed", "depth_after", "hops", Some(self.depths.1)),
            lab.row("printed", "core_percent", "%", Some(100.0 * self.core))
                .with_caveat("of the machine on which it ran: another run gives another number"),
        ]
    }

    fn figure(&self) -> Figure {
        let chart = XyChart::new(Axis::new("time", "s"), Axis::new("sum of path latencies", "s").from_zero())
            .series(Series::line("adopt and switch", self.sums.clone()))
            .reference(Reference::vertical("converged", self.converged_s()));
        Figure::chart("Many clients' trees, one tree looked at each 50 ms", chart)
    }
}

fn depth(book: &TreeBook) -> f64 {
    let nodes: Vec<NodeId> = book.clients().collect();
    let depths: Vec<usize> =
        (0..SLICES).flat_map(|slice| nodes.iter().filter_map(move |&node| book.depth(slice, node))).collect();
    depths.iter().sum::<usize>() as f64 / depths.len().max(1) as f64
}

/// How long it takes until each ordered pair of clients has been on a chain.
struct Exploring {
    clients: usize,
    /// Packets over random chains, and the share of the pairs that they have seen.
    seen: Vec<(f64, f64)>,
}

impl Exploring {
    /// Draws chains of different clients until every pair was next to each other on one.
    fn measure(lab: &StreamLab) -> Exploring {
        let clients = lab.seconds(EXPLORED as u64, QUICK_EXPLORED) as usize;
        let mut rng = Rng::stream(lab.scenario.seed, "churn/chains");
        let all = clients * (clients - 1);
        let (mut found, mut count, mut packets) = (vec![false; clients * clients], 0, 0u64);
        let mut seen = vec![(0.0, 0.0)];
        while count < all {
            packets += 1;
            let mut chain = [usize::MAX; ESTIMATES + 1];
            for hop in 0..chain.len() {
                chain[hop] = loop {
                    let client = rng.below(clients);
                    if !chain[..hop].contains(&client) {
                        break client;
                    }
                };
            }
            for pair in chain.windows(2) {
                let pair = &mut found[pair[0] * clients + pair[1]];
                count += usize::from(!*pair);
                *pair = true;
            }
            if packets.is_multiple_of(all as u64 / 30 + 1) {
                seen.push((packets as f64, count as f64 / all as f64));
            }
        }
        seen.push((packets as f64, 1.0));
        Exploring { clients, seen }
    }

    /// If no chain saw a pair again.
    fn fewest(&self) -> f64 {
        (self.clients * (self.clients - 1)) as f64 / ESTIMATES as f64
    }

    fn rows(&self, lab: &StreamLab) -> Vec<Row> {
        let fewest = (EXPLORED * (EXPLORED - 1)) as f64 / ESTIMATES as f64;
        let all = self.seen[self.seen.len() - 1].0;
        let half = self.seen.iter().find(|(_, share)| *share >= 0.5).map(|(packets, _)| *packets);
        vec![
            lab.row("exploration", "packets_for_each_pair", "", Some(fewest)),
            lab.row("exploration", "minutes_for_each_pair", "min", Some(minutes(fewest))),
            lab.row("exploration", "random_over_fewest", "", Some(all / self.fewest())),
            lab.row("exploration", "random_minutes_for_half", "min", half.map(minutes)),
            lab.row("exploration", "random_minutes_for_all", "min", Some(minutes(all))),
        ]
    }

    fn figure(&self) -> Figure {
        let points = self.seen.iter().map(|(packets, share)| (minutes(*packets), 100.0 * share)).collect();
        let chart =
            XyChart::new(Axis::new("time at 10 Mbit/s", "min"), Axis::new("pairs with an estimate", "%").from_zero())
                .series(Series::line("random chains", points))
                .reference(Reference::vertical("no pair twice", minutes(self.fewest())));
        Figure::chart(format!("Exploring {} clients over four hops", self.clients), chart)
    }
}

/// Clients of a quick run.
const QUICK_EXPLORED: u64 = 200;

fn minutes(packets: f64) -> f64 {
    packets * PACKET * 8.0 / EXPLORATION / 60.0
}

//! The best trees there are, by trying all, and how far from them the moves stop.

use anabranch_control::rng::Rng;
use anabranch_proto::stream::tree::optimum::optimum;
use anabranch_proto::stream::tree::{Moves, TreeBook};

use crate::worlds::{Matrix, joined, settings, settle};

/// Limits that just suffice, or nearly: the server's places first.
fn tight_limits(clients: usize, slices: usize, rng: &mut Rng) -> Vec<usize> {
    let mut places = vec![0; clients + 1];
    places[0] = slices + rng.below(2);
    let wanted = clients * slices + rng.below(3);
    for _ in places[0]..wanted {
        places[1 + rng.below(clients)] += 1;
    }
    places
}

/// How far above the best trees the moves stop, over random worlds.
#[derive(Debug, Default)]
struct Gaps {
    shares: Vec<f64>,
    /// Worlds in which a client found no place though there are trees that hold all.
    stuck: usize,
}

impl Gaps {
    fn add(&mut self, book: &TreeBook, slices: usize, optimum: u64) {
        if book.waiting().next().is_some() {
            self.stuck += 1;
            return;
        }
        let sum: u64 = (0..slices).map(|slice| book.performance(slice).as_nanos()).sum();
        assert!(sum >= optimum, "nothing is better than the best: {sum} against {optimum}");
        self.shares.push(sum as f64 / optimum as f64 - 1.0);
    }

    fn mean(&self) -> f64 {
        self.shares.iter().sum::<f64>() / self.shares.len() as f64
    }

    fn percentile(&self, share: f64) -> f64 {
        let mut sorted = self.shares.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * share) as usize]
    }
}

/// Predeclared: with all moves, 5 % above the optimum on average for each number of clients and trees.
#[test]
fn all_moves_end_within_five_percent_of_the_optimum_on_average() {
    const WORLDS: u64 = 60;
    let mut bounds = Vec::new();
    println!("clients trees | printed: mean p95 stuck | and double switch | all");
    for clients in 3..=6 {
        for slices in 1..=3 {
            let (mut printed, mut double, mut all) = (Gaps::default(), Gaps::default(), Gaps::default());
            for world in 0..WORLDS {
                let mut rng = Rng::indexed(1, "trees/brute force", world * 100 + (clients * 10 + slices) as u64);
                let latencies = Matrix::uniform(clients + 1, 10.0, 100.0, &mut rng);
                let places = tight_limits(clients, slices, &mut rng);
                let Some(optimum) = optimum(&places, slices, &latencies).map(|sum| sum.as_nanos()) else { continue };
                let doubled = Moves { double_switch: true, ..Moves::PRINTED };
                for (moves, gaps) in [(Moves::PRINTED, &mut printed), (doubled, &mut double), (Moves::ALL, &mut all)] {
                    let (mut book, _) = joined(settings(slices, moves), places[0], &places[1..], &latencies);
                    settle(&mut book, slices, &latencies, 200);
                    gaps.add(&book, slices, optimum);
                }
            }
            let row = |gaps: &Gaps| {
                format!("{:5.1} % {:5.1} % {:2}", gaps.mean() * 100.0, gaps.percentile(0.95) * 100.0, gaps.stuck)
            };
            println!("{clients} {slices} | {} | {} | {} of {WORLDS}", row(&printed), row(&double), row(&all));
            bounds.push((clients, slices, printed, double, all));
        }
    }
    let mut saved = 0.0;
    for (clients, slices, printed, double, all) in bounds {
        assert!(all.shares.len() as u64 >= WORLDS / 2, "most worlds have trees");
        if slices == 1 {
            assert_eq!(printed.shares, double.shares, "there is no second tree");
        } else {
            saved += printed.mean() - double.mean();
        }
        assert!(all.mean() <= 0.05, "{clients} clients, {slices} trees: {:.1} %", all.mean() * 100.0);
    }
    assert!(saved > 0.0, "exchanges in two trees help on average: {saved}");
}

//! The best trees there are, by trying all, and how far from them the moves stop.

use std::collections::BTreeMap;

use anabranch_control::rng::Rng;
use anabranch_proto::stream::tree::{Moves, TreeBook};

use crate::worlds::{Matrix, joined, settings, settle};

/// Bits for one node's number of children.
const BITS: usize = 5;

/// The least sum of path latencies of `slices` trees over all clients, in nanoseconds; none if the places
/// do not suffice. `places[0]` are the server's.
fn optimum(places: &[usize], slices: usize, latencies: &Matrix) -> Option<u64> {
    let trees = cheapest_trees(places, latencies);
    let mut best: BTreeMap<u64, u64> = BTreeMap::from([(0, 0)]);
    for _ in 0..slices {
        let mut next: BTreeMap<u64, u64> = BTreeMap::new();
        for (&held, &cost) in &best {
            for (&degrees, &more) in &trees {
                let both = held + degrees;
                if (0..places.len()).all(|node| children(both, node) <= places[node]) {
                    let least = next.entry(both).or_insert(u64::MAX);
                    *least = (*least).min(cost + more);
                }
            }
        }
        best = next;
    }
    best.into_values().min()
}

fn children(degrees: u64, node: usize) -> usize {
    (degrees >> (BITS * node)) as usize & ((1 << BITS) - 1)
}

/// For each way in which children can be spread over the nodes of one tree, the least sum.
fn cheapest_trees(places: &[usize], latencies: &Matrix) -> BTreeMap<u64, u64> {
    let nodes = places.len();
    let mut trees = BTreeMap::new();
    let mut parents = vec![0; nodes];
    loop {
        if let Some((degrees, sum)) = tree(&parents, latencies)
            && (0..nodes).all(|node| children(degrees, node) <= places[node])
        {
            let least = trees.entry(degrees).or_insert(u64::MAX);
            *least = sum.min(*least);
        }
        // The next number with digits 0..nodes; node 0 has no parent.
        let Some(digit) = (1..nodes).find(|&digit| parents[digit] + 1 < nodes) else { return trees };
        parents[1..digit].fill(0);
        parents[digit] += 1;
    }
}

/// Children of each node and the sum of the path latencies; none if a client is above itself.
fn tree(parents: &[usize], latencies: &Matrix) -> Option<(u64, u64)> {
    let (mut degrees, mut sum) = (0u64, 0);
    for client in 1..parents.len() {
        degrees += 1u64 << (BITS * parents[client]);
        let mut node = client;
        for steps in 0.. {
            if node == 0 {
                break;
            }
            if steps == parents.len() {
                return None;
            }
            sum += latencies.nanos(parents[node], node);
            node = parents[node];
        }
    }
    Some((degrees, sum))
}

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
                let Some(optimum) = optimum(&places, slices, &latencies) else { continue };
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

#[test]
fn the_optimum_of_three_nodes_is_found_by_hand() {
    // The server has one place, so a chain it is: the shorter of the two.
    let latencies = Matrix::uniform(3, 10.0, 100.0, &mut Rng::stream(3, "three"));
    let chain = |first: usize, second: usize| 2 * latencies.nanos(0, first) + latencies.nanos(first, second);
    assert_eq!(optimum(&[1, 1, 1], 1, &latencies), Some(chain(1, 2).min(chain(2, 1))));
    assert_eq!(optimum(&[1, 0, 1], 1, &latencies), Some(chain(2, 1)));
    assert_eq!(optimum(&[1, 0, 0], 1, &latencies), None);
    assert_eq!(optimum(&[2, 0, 0], 1, &latencies), Some(latencies.nanos(0, 1) + latencies.nanos(0, 2)));
}

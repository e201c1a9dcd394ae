//! Trees of a thousand clients, of figure 7.11's limits, and what deaths cut off.

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_proto::stream::tree::{Moves, NodeId, Settings, TreeBook};

use crate::worlds::{Matrix, joined, mean_depth, mean_latency_ms, settings, settle};

/// A server of 20 Mbit/s, clients of 5 Mbit/s and a stream of 4 Mbit/s in 20 slices.
const SLICES: usize = 20;
const SERVER: usize = 100;
const CLIENT: usize = 25;

/// Clients of 10 Mbit/s.
const CLIENT_OF_FIGURE_7_11: usize = 50;

/// Predeclared: mean depth 13 to 15 after the joins, as a throw-away program had measured, and with all
/// moves no deeper and sooner than as printed. That program ended at 3.2 hops as printed, with
/// latencies that are not known; the bound of 4 is from after.
#[test]
fn a_thousand_clients_sink_to_a_few_hops() {
    for plane in [false, true] {
        let mut rng = Rng::stream(1, "trees/audience");
        let latencies = if plane {
            Matrix::plane(1001, 100.0, 10.0, &mut rng)
        } else {
            Matrix::uniform(1001, 10.0, 100.0, &mut rng)
        };
        let mut figures = Vec::new();
        for moves in [Moves::PRINTED, Moves::ALL] {
            let (mut book, nodes) = joined(settings(SLICES, moves), SERVER, &[CLIENT; 1000], &latencies);
            let after_joins = mean_depth(&book, SLICES, &nodes);
            let latency_of_joins = mean_latency_ms(&book, SLICES, &nodes);
            settle(&mut book, SLICES, &latencies, 12);
            book.verify().unwrap();
            assert_eq!(book.waiting().count(), 0);
            let (depth, latency) = (mean_depth(&book, SLICES, &nodes), mean_latency_ms(&book, SLICES, &nodes));
            println!(
                "plane {plane}, {moves:?}: depth {after_joins:.1} after joins, {depth:.2} after 12 sweeps; \
                 latency {latency_of_joins:.0} ms, {latency:.1} ms"
            );
            assert!((13.0..15.0).contains(&after_joins), "{after_joins}");
            figures.push((depth, latency));
        }
        assert!(plane || figures[0].0 < 4.0, "{figures:?}");
        assert!(figures[1].0 < figures[0].0 && figures[1].1 < figures[0].1, "{figures:?}");
    }
}

/// The depths that the throw-away program measured were 1.9 and 2.4; the thesis prints none.
#[test]
fn figure_7_11s_limits_give_flat_trees() {
    for (clients, slices) in [(12, 10), (12, 20), (50, 10), (50, 20)] {
        let mut row = format!("{clients} clients, {slices} trees:");
        for (least_ms, most_ms) in [(10.0, 100.0), (1.0, 100.0)] {
            for moves in [Moves::PRINTED, Moves::ALL] {
                let (mut depth, worlds) = (0.0, 10);
                for world in 0..worlds {
                    let mut rng = Rng::indexed(1, "trees/figure 7.11", world);
                    let latencies = Matrix::uniform(clients + 1, least_ms, most_ms, &mut rng);
                    let places = vec![CLIENT_OF_FIGURE_7_11; clients];
                    let (mut book, nodes) = joined(settings(slices, moves), SERVER, &places, &latencies);
                    settle(&mut book, slices, &latencies, 100);
                    assert_eq!(book.waiting().count(), 0);
                    depth += mean_depth(&book, slices, &nodes) / worlds as f64;
                }
                row += &format!(" {depth:.2}");
                // A tree of all clients below the server has depth 1; the server's places force the rest.
                let forced = 2.0 - SERVER as f64 / (clients * slices) as f64;
                assert!((forced.max(1.0) - 1e-9..3.5).contains(&depth), "{row}");
            }
        }
        println!("{row}");
    }
}

/// What a quarter's deaths cut: of all paths to survivors, and for each survivor of its slices.
fn cut(book: &TreeBook, nodes: &[NodeId], slices: usize, seed: u64) -> (f64, f64, f64) {
    let mut rng = Rng::indexed(seed, "trees/deaths", 0);
    let dies: Vec<bool> = nodes.iter().map(|_| rng.chance(0.25)).collect();
    let dead = |node: NodeId| node != NodeId::SERVER && dies[node.slot() - 1];
    let mut lost: Vec<usize> = Vec::new();
    for &node in nodes.iter().filter(|&&node| !dead(node)) {
        let is_cut = |slice: &usize| {
            core::iter::successors(book.parent(*slice, node), |&above| book.parent(*slice, above)).any(dead)
        };
        lost.push((0..slices).filter(is_cut).count());
    }
    lost.sort_unstable();
    let all = lost.iter().sum::<usize>() as f64 / (lost.len() * slices) as f64;
    let share = |place: f64| lost[((lost.len() - 1) as f64 * place) as usize] as f64 / slices as f64;
    (all, share(0.95), share(1.0))
}

/// A path of d hops survives with 0.75^(d − 1): its d − 1 clients must all live.
#[test]
fn a_quarters_deaths_cut_as_many_paths_as_their_lengths_say() {
    let latencies = Matrix::uniform(1001, 10.0, 100.0, &mut Rng::stream(1, "trees/audience"));
    for (slack, moves) in [(0, Moves::PRINTED), (0, Moves::ALL), (5, Moves::ALL)] {
        let settings = Settings { slack: Duration::from_millis(slack), ..settings(SLICES, moves) };
        let (mut book, nodes) = joined(settings, SERVER, &[CLIENT; 1000], &latencies);
        settle(&mut book, SLICES, &latencies, 12);
        let mut expected = 0.0;
        for slice in 0..SLICES {
            for &node in &nodes {
                expected += 1.0 - libm::pow(0.75, book.depth(slice, node).unwrap() as f64 - 1.0);
            }
        }
        expected /= (SLICES * nodes.len()) as f64;
        let (mut all, mut p95, mut worst) = (0.0, 0.0, 0.0);
        for seed in 0..10 {
            let (of_all, of_p95, of_worst) = cut(&book, &nodes, SLICES, seed);
            all += of_all / 10.0;
            p95 += of_p95 / 10.0;
            worst += of_worst / 10.0;
        }
        println!(
            "slack {slack} ms, {moves:?}: depth {:.2}, latency {:.1} ms, cut {:.0} % (by depth {:.0} %), \
                 of a survivor's slices p95 {:.0} %, worst {:.0} %",
            mean_depth(&book, SLICES, &nodes),
            mean_latency_ms(&book, SLICES, &nodes),
            all * 100.0,
            expected * 100.0,
            p95 * 100.0,
            worst * 100.0
        );
        // Ten draws of a quarter: the standard error of the share is about a hundredth.
        assert!((all - expected).abs() < 0.05, "{all} against {expected}");
    }
}

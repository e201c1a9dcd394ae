//! What the book of trees takes: joins, steps while the trees get better and when they are good, leaves.
//!
//! Uniform latencies of 10 to 100 ms, a server of 20 Mbit/s, clients of 5 Mbit/s, a stream of 4 Mbit/s
//! in 20 slices: 100 places, 25 places, and 1.25 times what is needed. Times are the thread's own, so
//! that a busy machine disturbs them less.

#[path = "../tests/trees/worlds.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod worlds;

use std::hint::black_box;
use std::time::Duration;

use anabranch_control::rng::Rng;
use anabranch_proto::stream::tree::{Effort, Moves, NodeId, TreeBook};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use worlds::{Matrix, joined, settings, settle};

const SLICES: usize = 20;
const SERVER: usize = 100;
const CLIENT: usize = 25;
/// Pairs of nodes that a step looks at.
const WORK: usize = 100_000;

fn grown(clients: usize, moves: Moves, rounds: usize) -> (TreeBook, Vec<NodeId>, Matrix) {
    let latencies = Matrix::uniform(clients + 1, 10.0, 100.0, &mut Rng::stream(1, "bench/latencies"));
    let (mut book, nodes) = joined(settings(SLICES, moves), SERVER, &vec![CLIENT; clients], &latencies);
    settle(&mut book, SLICES, &latencies, rounds);
    (book, nodes, latencies)
}

/// The processor time that this thread has had.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The processor time of `times` calls.
fn taken(times: u64, mut call: impl FnMut()) -> Duration {
    let begin = processor_time();
    (0..times).for_each(|_| call());
    processor_time() - begin
}

fn kinds() -> [(&'static str, Moves); 2] {
    [("printed", Moves::PRINTED), ("all", Moves::ALL)]
}

/// Twenty sweeps of twenty trees, from the joins on; the time is that of one tree's sweep.
fn sweeps(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("sweep of a tree");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    for (name, moves) in kinds() {
        for (state, rounds) in [("after joins", 0), ("after 12 rounds", 12), ("after 60 rounds", 60)] {
            let (book, _, latencies) = grown(1000, moves, rounds);
            group.bench_function(BenchmarkId::new(name, state), |b| {
                b.iter_custom(|times| {
                    let mut taken = Duration::ZERO;
                    let mut changes = Vec::new();
                    for _ in 0..times {
                        let mut book = book.clone();
                        let begin = processor_time();
                        for _ in 0..SLICES {
                            black_box(book.step(&latencies, Effort::SWEEP, &mut changes));
                        }
                        taken += (processor_time() - begin) / SLICES as u32;
                        changes.clear();
                    }
                    taken
                });
            });
        }
    }
    group.finish();
}

/// Steps of limited work, as a tracker makes them.
fn steps(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("step of 100000 pairs");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for clients in [1000, 10_000] {
        let (mut book, _, latencies) = grown(clients, Moves::ALL, 0);
        let mut changes = Vec::new();
        group.bench_function(BenchmarkId::from_parameter(clients), |b| {
            b.iter_custom(|times| {
                taken(times, || {
                    changes.clear();
                    black_box(book.step(&latencies, Effort { work: WORK, moves: usize::MAX }, &mut changes));
                })
            });
        });
    }
    group.finish();
}

/// A client leaves and another joins.
fn churn(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("leave and join");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for clients in [1000, 10_000] {
        let (mut book, mut nodes, latencies) = grown(clients, Moves::ALL, usize::from(clients == 1000) * 3);
        let mut rng = Rng::stream(2, "bench/churn");
        let mut changes = Vec::new();
        group.bench_function(BenchmarkId::from_parameter(clients), |b| {
            b.iter_custom(|times| {
                taken(times, || {
                    changes.clear();
                    let index = rng.below(nodes.len());
                    let _ = book.leave(nodes[index], &latencies, &mut changes);
                    nodes[index] = book.join(CLIENT, &latencies, &mut changes).0;
                })
            });
        });
    }
    group.finish();
}

fn backups(bench: &mut Criterion) {
    let (book, nodes, _) = grown(1000, Moves::ALL, 3);
    let mut next = 0;
    bench.bench_function("backups of a client for a slice, of 1000", |b| {
        b.iter_custom(|times| {
            taken(times, || {
                next += 1;
                black_box(book.backups(next % SLICES, nodes[next % nodes.len()]));
            })
        });
    });
}

criterion_group!(benches, sweeps, steps, churn, backups);
criterion_main!(benches);

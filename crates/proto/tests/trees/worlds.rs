//! Clients with limits and latencies, drawn from a seed.

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_proto::stream::tree::{Change, Effort, LinkLatency, Moves, NodeId, Settings, TreeBook};

/// The latency of every ordered pair of slots.
#[derive(Clone, Debug)]
pub struct Matrix {
    nodes: usize,
    nanos: Vec<u32>,
}

impl Matrix {
    /// Every pair's latency, the same in both directions, is uniform between two numbers of milliseconds:
    /// near nodes of near nodes need not be near.
    pub fn uniform(nodes: usize, least_ms: f64, most_ms: f64, rng: &mut Rng) -> Matrix {
        let mut matrix = Matrix { nodes, nanos: vec![0; nodes * nodes] };
        for from in 0..nodes {
            for to in 0..from {
                let nanos = ((least_ms + (most_ms - least_ms) * rng.uniform()) * 1e6) as u32;
                matrix.nanos[from * nodes + to] = nanos;
                matrix.nanos[to * nodes + from] = nanos;
            }
        }
        matrix
    }

    /// Nodes at random places of a square whose sides are `side_ms` long, and `access_ms` more for a pair.
    pub fn plane(nodes: usize, side_ms: f64, access_ms: f64, rng: &mut Rng) -> Matrix {
        let places: Vec<(f64, f64)> = (0..nodes).map(|_| (rng.uniform() * side_ms, rng.uniform() * side_ms)).collect();
        let mut matrix = Matrix { nodes, nanos: vec![0; nodes * nodes] };
        for (from, a) in places.iter().enumerate() {
            for (to, b) in places.iter().enumerate() {
                let distance = libm::sqrt((a.0 - b.0) * (a.0 - b.0) + (a.1 - b.1) * (a.1 - b.1));
                matrix.nanos[from * nodes + to] = ((distance + access_ms) * 1e6) as u32;
            }
        }
        matrix
    }

    pub fn nanos(&self, from: usize, to: usize) -> u64 {
        u64::from(self.nanos[from * self.nodes + to])
    }
}

impl LinkLatency for Matrix {
    #[inline]
    fn latency(&self, from: usize, to: usize) -> Option<Duration> {
        Some(Duration::from_nanos(self.nanos(from, to)))
    }
}

pub fn settings(slices: usize, moves: Moves) -> Settings {
    Settings {
        slices,
        moves,
        unknown: Duration::from_millis(100),
        forwarding: Duration::ZERO,
        slack: Duration::ZERO,
        leaf_slack: Duration::ZERO,
    }
}

/// A server with `server` places and a client for each number of places, joined in order.
pub fn joined(settings: Settings, server: usize, clients: &[usize], latencies: &Matrix) -> (TreeBook, Vec<NodeId>) {
    let mut book = TreeBook::new(settings, server);
    let mut changes: Vec<Change> = Vec::new();
    let nodes = clients.iter().map(|&places| book.join(places, latencies, &mut changes).0).collect();
    (book, nodes)
}

/// Sweeps in a row without a change after which there will be none: by then every node has had a turn.
const QUIET: usize = 17;

/// Sweeps all trees until nothing changes any more, at most `most` times; gives how often something did.
pub fn settle(book: &mut TreeBook, slices: usize, latencies: &Matrix, most: usize) -> usize {
    let mut changes = Vec::new();
    let (mut quiet, mut sweeps) = (0, 0);
    while quiet < QUIET && sweeps < most {
        changes.clear();
        for _ in 0..slices {
            book.step(latencies, Effort::SWEEP, &mut changes);
        }
        quiet = if changes.is_empty() { quiet + 1 } else { 0 };
        sweeps += 1;
    }
    sweeps - quiet
}

/// The mean number of hops from the server, over clients and slices.
pub fn mean_depth(book: &TreeBook, slices: usize, nodes: &[NodeId]) -> f64 {
    let mut depths = Vec::new();
    for slice in 0..slices {
        depths.extend(nodes.iter().filter_map(|&node| book.depth(slice, node)));
    }
    depths.iter().sum::<usize>() as f64 / depths.len() as f64
}

/// The mean path latency in milliseconds, over clients and slices that the server reaches.
pub fn mean_latency_ms(book: &TreeBook, slices: usize, nodes: &[NodeId]) -> f64 {
    let sum: f64 = (0..slices).map(|slice| book.performance(slice).as_millis_f64()).sum();
    sum / (nodes.len() * slices) as f64
}

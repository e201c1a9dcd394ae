//! The best trees that there are, found by trying all: a yardstick for [`TreeBook`](super::TreeBook),
//! for a handful of clients.
//!
//! A tree is a parent for each client, `clients` to the power of `clients` at most; of those with the same
//! number of children at each node only the cheapest counts. Trees of several slices share the nodes'
//! places and nothing else, so that their best combination is found slice by slice, over how many children
//! each node has so far.

use std::collections::BTreeMap;

use anabranch_control::time::Duration;

use super::LinkLatency;

/// Bits for one node's number of children.
const BITS: usize = 5;

/// More nodes would not fit their numbers of children into a word, and take hours.
pub const MOST_NODES: usize = 8;

/// More slices could give a node more children than its bits can say.
pub const MOST_SLICES: usize = 4;

/// The least sum of path latencies of `slices` trees over all clients; none if the places do not suffice.
/// `places[0]` are the server's, and the nodes' slots their indices.
///
/// # Panics
///
/// With more than [`MOST_NODES`] nodes or [`MOST_SLICES`] slices, and where a latency is not known.
pub fn optimum<L: LinkLatency + ?Sized>(places: &[usize], slices: usize, latencies: &L) -> Option<Duration> {
    assert!(places.len() <= MOST_NODES && slices <= MOST_SLICES, "all trees are tried: few nodes, few slices");
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
    best.into_values().min().map(Duration::from_nanos)
}

fn children(degrees: u64, node: usize) -> usize {
    (degrees >> (BITS * node)) as usize & ((1 << BITS) - 1)
}

/// For each way in which children can be spread over the nodes of one tree, the least sum.
fn cheapest_trees<L: LinkLatency + ?Sized>(places: &[usize], latencies: &L) -> BTreeMap<u64, u64> {
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
fn tree<L: LinkLatency + ?Sized>(parents: &[usize], latencies: &L) -> Option<(u64, u64)> {
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
            let latency = latencies.latency(parents[node], node).expect("the yardstick knows all latencies");
            sum += latency.as_nanos();
            node = parents[node];
        }
    }
    Some((degrees, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten milliseconds for each number between two nodes, and one for the way towards the lower number.
    fn latency(from: usize, to: usize) -> Option<Duration> {
        Some(Duration::from_millis(10 * from.abs_diff(to) as u64 + u64::from(to < from)))
    }

    #[test]
    fn the_optimum_of_three_nodes_is_found_by_hand() {
        let millis = |places: &[usize]| optimum(places, 1, &latency).map(|sum| sum.as_nanos() / 1_000_000);
        // 0 -> 1 -> 2 is 10 + 20; 0 -> 2 -> 1 would be 20 + 31.
        assert_eq!(millis(&[1, 1, 1]), Some(30));
        assert_eq!(millis(&[1, 0, 1]), Some(51));
        assert_eq!(millis(&[1, 0, 0]), None);
        assert_eq!(millis(&[2, 0, 0]), Some(30));
    }

    #[test]
    fn slices_share_places() {
        // Each slice needs a client to pass on once; one client alone cannot do it for both.
        let two = |places: &[usize]| optimum(places, 2, &latency).map(|sum| sum.as_nanos() / 1_000_000);
        assert_eq!(two(&[2, 2, 0]), Some(60));
        assert_eq!(two(&[2, 1, 1]), Some(81));
        assert_eq!(two(&[2, 1, 0]), None);
    }
}

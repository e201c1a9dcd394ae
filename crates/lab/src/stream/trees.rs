//! The trees in which a stream goes down, as its server has them.

use std::collections::BTreeMap;

use anabranch_proto::stream::content::ClientId;
use anabranch_proto::stream::tracker::Tracker;
use anabranch_proto::stream::tree::NodeId;

/// A tree for each slice. Nodes are numbered: 0 is the server, then the clients in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trees {
    /// Of each slice, the parent of each client from node 1 on; none for a client that is in no tree.
    parents: Vec<Vec<Option<usize>>>,
}

impl Trees {
    /// Those of `tracker`, which has this many slices.
    pub fn of<A: Copy + Eq>(tracker: &Tracker<A>, slices: usize) -> Trees {
        let mut viewers: Vec<(ClientId, NodeId)> =
            tracker.viewers().map(|viewer| (viewer.contact.client, viewer.node)).collect();
        viewers.sort_unstable_by_key(|(client, _)| *client);
        let numbers: BTreeMap<NodeId, usize> =
            viewers.iter().enumerate().map(|(index, (_, node))| (*node, index + 1)).collect();
        let number = |node: NodeId| if node == NodeId::SERVER { Some(0) } else { numbers.get(&node).copied() };
        let parent = |slice, node| tracker.book().parent(slice, node).and_then(number);
        Trees {
            parents: (0..slices).map(|slice| viewers.iter().map(|(_, node)| parent(slice, *node)).collect()).collect(),
        }
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.parents.first().map_or(0, Vec::len)
    }

    /// The parents of a slice's clients, from node 1 on.
    pub fn parents(&self, slice: usize) -> &[Option<usize>] {
        &self.parents[slice]
    }

    /// How many hops a client is from the server; none if the server does not reach it.
    pub fn depth(&self, slice: usize, client: usize) -> Option<usize> {
        let mut node = client;
        for hops in 0..=self.clients() {
            if node == 0 {
                return Some(hops);
            }
            node = self.parents[slice][node - 1]?;
        }
        None
    }

    /// The depths of all clients in all slices, of those whom the server reaches.
    pub fn depths(&self) -> Vec<usize> {
        let each = |slice| (1..=self.clients()).filter_map(move |client| self.depth(slice, client));
        (0..self.parents.len()).flat_map(each).collect()
    }

    /// How many children a node has, over all slices.
    pub fn children(&self, node: usize) -> usize {
        self.parents.iter().flatten().filter(|parent| **parent == Some(node)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_counted_from_the_server_and_circles_reach_nobody() {
        // Slice 0: 0 -> 1 -> 2; slice 1: 2 and 3 in a circle, and 1 in no tree.
        let trees = Trees { parents: vec![vec![Some(0), Some(1), Some(0)], vec![None, Some(3), Some(2)]] };
        assert_eq!(
            (trees.depth(0, 1), trees.depth(0, 2), trees.depth(1, 1), trees.depth(1, 2)),
            (Some(1), Some(2), None, None)
        );
        assert_eq!(trees.depths(), [1, 2, 1]);
        assert_eq!((trees.children(0), trees.children(1), trees.children(3)), (2, 1, 1));
    }
}

//! Names of nodes: numbers in experiments, socket addresses for what ships.

use std::net::{Ipv4Addr, SocketAddr};

use anabranch_sim::fabric::NodeId;

/// What names a node in a machine's messages, and the node that it names.
pub trait Address: Copy {
    /// The name of `node`.
    fn of(node: NodeId) -> Self;

    /// The node of this name; none if no simulated node has it.
    fn node(self) -> Option<NodeId>;
}

impl Address for u32 {
    #[inline]
    fn of(node: NodeId) -> u32 {
        node.0
    }

    #[inline]
    fn node(self) -> Option<NodeId> {
        Some(NodeId(self))
    }
}

/// The port of every simulated node that has a socket address.
const PORT: u16 = 4000;

/// Nodes have the addresses 10.0.0.1, 10.0.0.2, and so on.
impl Address for SocketAddr {
    fn of(node: NodeId) -> SocketAddr {
        assert!(node.0 < (1 << 24) - 1, "the network 10.0.0.0/8 has room for 2^24 - 2 nodes");
        SocketAddr::from((Ipv4Addr::from_bits((10 << 24) + node.0 + 1), PORT))
    }

    fn node(self) -> Option<NodeId> {
        let SocketAddr::V4(address) = self else { return None };
        let number = address.ip().to_bits().wrapping_sub((10 << 24) + 1);
        (address.port() == PORT && number < (1 << 24) - 1).then_some(NodeId(number))
    }
}

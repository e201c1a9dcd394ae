//! Which addresses are one network, where something is limited for each: those that one customer of a provider has, as
//! far as an address can tell. Of IPv4 these are a /24, of IPv6 a /56, which registries have providers give a site
//! (RFC 6177, 1). Whoever has one address of a /56 has all of it; another network costs something.

use core::fmt::Debug;
use core::net::{IpAddr, SocketAddr};

/// A network, by a number that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network(pub u64);

/// Networks of IPv4 are numbered from here on: those of IPv6 have 56 bits.
const OF_IPV4: u64 = 1 << 56;

/// Where a node is.
pub trait Address: Copy + Eq + Debug {
    /// The network that it is in.
    fn network(self) -> Network;
}

impl Address for IpAddr {
    fn network(self) -> Network {
        match self.to_canonical() {
            IpAddr::V4(ip) => Network(OF_IPV4 | u64::from(u32::from(ip) >> 8)),
            IpAddr::V6(ip) => Network((u128::from(ip) >> 72) as u64),
        }
    }
}

impl Address for SocketAddr {
    fn network(self) -> Network {
        self.ip().network()
    }
}

/// A node of a simulation: each has a line of its own, as a home has.
impl Address for u32 {
    fn network(self) -> Network {
        Network(u64::from(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Network {
        address.parse::<IpAddr>().unwrap().network()
    }

    #[test]
    fn hosts_of_a_24_or_of_a_56_are_one_network_and_their_neighbours_another() {
        assert_eq!(of("192.0.2.1"), of("192.0.2.255"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.77"), "the same host by another name");
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:0:100::1"), of("2001:db8:0:1ff:ffff::1"));
        assert_ne!(of("2001:db8:0:100::1"), of("2001:db8:0:200::1"));
        assert_ne!(of("0.0.1.1"), of("::1:0:0:0:0"), "of another family");
        assert_eq!(SocketAddr::from(([192, 0, 2, 9], 7)).network(), of("192.0.2.1"));
    }
}

//! The part of the internet an address belongs to: what one operator can have many addresses in.

use core::net::IpAddr;

/// An IPv4 /24 or an IPv6 /48: the usual smallest blocks that are routed, and given to one customer
/// (RFC 6177 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    /// The upper 24 bits.
    V4([u8; 3]),
    /// The upper 48 bits.
    V6([u8; 6]),
}

impl Network {
    /// The one that `address` is in. An IPv4 address inside IPv6 counts as what it is.
    pub fn of(address: IpAddr) -> Network {
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                Network::V4([a, b, c])
            }
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, ..] = v6.octets();
                Network::V6([a, b, c, d, e, f])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_in_one_network_and_others_are_not() {
        let of = |address: &str| Network::of(address.parse().unwrap());
        assert_eq!(of("192.0.2.1"), of("192.0.2.254"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:1::1"), of("2001:db8:1:ffff::2"));
        assert_ne!(of("2001:db8:1::1"), of("2001:db8:2::1"));
        assert_eq!(of("::ffff:192.0.2.9"), of("192.0.2.1"));
    }
}

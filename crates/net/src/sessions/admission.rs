//! How many handshakes a network may begin: a bucket of them for each /24 of IPv4 and /56 of IPv6, which
//! are what one customer of a provider has. Its address is proved before (by a Retry, RFC 9000, 8.1.2):
//! nobody can use up the bucket of another.

use std::collections::HashMap;
use std::net::IpAddr;

use anabranch_control::time::{Duration, Time};

/// Handshakes that a network may begin at once: as many as viewers behind one router.
const BURST: u32 = 64;

/// How long until it may begin another one.
const REFILL: Duration = Duration::from_millis(250);

/// Networks that are remembered. Those that have begun nothing for long enough to be full again need not be.
const MOST_NETWORKS: usize = 4096;

/// The networks that have begun handshakes.
#[derive(Debug, Default)]
pub struct Admission {
    /// When each bucket will be full again.
    full_at: HashMap<IpAddr, Time>,
}

/// The first address of the network of `address`.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) & (u32::MAX << 8)).into()),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) & (u128::MAX << 72)).into()),
    }
}

impl Admission {
    /// Somebody at `address` begins a handshake: whether it may.
    pub fn admit(&mut self, now: Time, address: IpAddr) -> bool {
        let network = network(address);
        if self.full_at.len() >= MOST_NETWORKS && !self.full_at.contains_key(&network) {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= MOST_NETWORKS {
                return false;
            }
        }
        let full_at = self.full_at.entry(network).or_insert(now);
        let after = (*full_at).max(now) + REFILL;
        let may = after.since(now) <= REFILL * u64::from(BURST);
        if may {
            *full_at = after;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_network_that_begins_too_much_waits_and_others_do_not() {
        let (mut admission, now) = (Admission::default(), Time::from_nanos(1));
        let of_net = |host: u8| IpAddr::from([192, 0, 2, host]);
        let admitted = (0..=255).filter(|&host| admission.admit(now, of_net(host))).count();
        assert_eq!(admitted, BURST as usize);
        assert!(admission.admit(now, IpAddr::from([192, 0, 3, 1])));
        assert!(!admission.admit(now, IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped())), "the same host");
        assert!(admission.admit(now + REFILL, of_net(0)) && !admission.admit(now + REFILL, of_net(1)));
        let of_56 = |last: u16| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, last, last, 0, 0, 1));
        assert_eq!((0..=255).filter(|&host| admission.admit(now, of_56(host))).count(), BURST as usize);
        assert!(admission.admit(now, of_56(256)));
    }

    #[test]
    fn no_more_networks_are_remembered_than_fit_and_idle_ones_are_forgotten() {
        let (mut admission, now) = (Admission::default(), Time::from_nanos(1));
        let network = |number: u32| IpAddr::V4(Ipv4Addr::from(number << 8));
        let admitted = (0..10_000).filter(|&number| admission.admit(now, network(number))).count();
        assert_eq!((admitted, admission.full_at.len()), (MOST_NETWORKS, MOST_NETWORKS));
        assert!(admission.admit(now + REFILL, network(9999)));
        assert_eq!(admission.full_at.len(), 1);
    }
}

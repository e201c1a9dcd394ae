//! How many handshakes a [network](anabranch_proto::network) may begin: a bucket of them for each. Its address is
//! proved before (by a Retry, RFC 9000, 8.1.2): nobody can use up the bucket of another.
//!
//! What it is there for is work for strangers. Where it is known by their keys who may come, a handshake that has proved
//! such a key is put back into the bucket, once in the time in which a bucket fills: a site's hosts, who come all at once,
//! do not wait for each other; strangers among them get no more than elsewhere, and somebody with a member's key next to
//! nothing.

use std::collections::HashMap;
use std::net::IpAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::network::{Address, Network};
use anabranch_proto::session::PeerKey;
use anabranch_proto::token_bucket::TokenBucket;

/// Handshakes that a network may begin at once: as many as viewers behind one router.
const BURST: u64 = 64;

/// How long until it may begin another one.
const REFILL: Duration = Duration::from_millis(250);

/// Networks that are remembered. Those that have begun nothing for long enough to be full again need not be.
const MOST_NETWORKS: usize = 4096;

/// Keys that are remembered for what was put back for them: more than there are members of a coordinator.
const MOST_KEYS: usize = 16_384;

/// The networks that have begun handshakes.
#[derive(Debug, Default)]
pub struct Admission {
    buckets: HashMap<Network, TokenBucket>,
    /// When a handshake of each key may be put back again.
    spares_at: HashMap<PeerKey, Time>,
}

impl Admission {
    /// Somebody at `address` begins a handshake: whether it may.
    pub fn admit(&mut self, now: Time, address: IpAddr) -> bool {
        let network = address.network();
        if self.buckets.len() >= MOST_NETWORKS && !self.buckets.contains_key(&network) {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
            if self.buckets.len() >= MOST_NETWORKS {
                return false;
            }
        }
        self.buckets.entry(network).or_default().take(now, REFILL, BURST)
    }

    /// Whose handshake from `address` was admitted is one who may come, by this `key`.
    pub fn spare(&mut self, now: Time, address: IpAddr, key: PeerKey) {
        if self.spares_at.len() >= MOST_KEYS {
            self.spares_at.retain(|_, at| *at > now);
        }
        let is_again = self.spares_at.get(&key).is_some_and(|at| *at > now);
        if is_again || self.spares_at.len() >= MOST_KEYS {
            return;
        }
        self.spares_at.insert(key, now + REFILL * BURST);
        if let Some(bucket) = self.buckets.get_mut(&address.network()) {
            bucket.put(now, REFILL);
        }
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
    fn a_handshake_of_one_who_may_come_is_put_back_once_while_a_bucket_fills() {
        let (mut admission, now) = (Admission::default(), Time::from_nanos(1));
        let of_net = |host: u8| IpAddr::from([192, 0, 2, host]);
        for host in 0..=255 {
            assert!(admission.admit(now, of_net(host)), "host {host}");
            admission.spare(now, of_net(host), PeerKey([host; 32]));
        }
        // The same keys again: all that strangers have, and no more.
        let again = (0..=255).filter(|&host| {
            let is_admitted = admission.admit(now, of_net(host));
            admission.spare(now, of_net(host), PeerKey([host; 32]));
            is_admitted
        });
        assert_eq!(again.count(), BURST as usize);
        // Nobody saves up: a bucket is never more than full.
        let later = now + REFILL * BURST;
        admission.spare(later, of_net(0), PeerKey([0; 32]));
        let strangers = (0..=255).filter(|&host| admission.admit(later, of_net(host))).count();
        assert_eq!(strangers, BURST as usize);
    }

    #[test]
    fn no_more_keys_are_remembered_than_fit() {
        let mut admission = Admission::default();
        for number in 0..MOST_KEYS as u32 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_be_bytes());
            admission.spares_at.insert(PeerKey(key), Time::from_nanos(9));
        }
        admission.spare(Time::from_nanos(1), IpAddr::from([192, 0, 2, 1]), PeerKey([7; 32]));
        assert_eq!(
            (admission.spares_at.len(), admission.spares_at.contains_key(&PeerKey([7; 32]))),
            (MOST_KEYS, false)
        );
        admission.spare(Time::from_nanos(9), IpAddr::from([192, 0, 2, 1]), PeerKey([7; 32]));
        assert_eq!(admission.spares_at.len(), 1);
    }

    #[test]
    fn no_more_networks_are_remembered_than_fit_and_idle_ones_are_forgotten() {
        let (mut admission, now) = (Admission::default(), Time::from_nanos(1));
        let network = |number: u32| IpAddr::V4(Ipv4Addr::from(number << 8));
        let admitted = (0..10_000).filter(|&number| admission.admit(now, network(number))).count();
        assert_eq!((admitted, admission.buckets.len()), (MOST_NETWORKS, MOST_NETWORKS));
        assert!(admission.admit(now + REFILL, network(9999)));
        assert_eq!(admission.buckets.len(), 1);
    }
}

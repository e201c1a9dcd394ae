//! Between which addresses a relay may be made to pass datagrams on.
//!
//! Whoever reaches a relay names the next hop, so that without a rule a relay would lend strangers
//! its place in its own network: the services of its host, of its private network, of its provider
//! (server-side request forgery, CWE-918). The rule looks at both neighbours of a datagram, where
//! it has come from and where it goes, for what is passed on may be answered:
//!
//! - **Outside** is every ordinary global unicast address.
//! - **Inside** is the block of local addresses that the datagram was addressed to: loopback
//!   (127.0.0.0/8, ::1), one block of RFC 1918, shared addresses (RFC 6598), unique local ones
//!   (RFC 4193). Where it was addressed to a global address, inside are the host's global addresses.
//! - **Listed** are the networks of `forward_to`.
//! - **Barred** is all else: other local blocks, link-local and documentation addresses, and what
//!   else the registries of special-purpose addresses name (RFC 6890; IPv6 outside 2000::/3).
//!   Unspecified, multicast and broadcast addresses, and port 0, are barred even if listed.
//!
//! A datagram passes from outside to outside, from inside to inside, and between what is listed and
//! any of these; never between outside and inside. A relay on a private address may be reachable
//! from everywhere (port forwarding, the addresses of cloud providers), so that its own address
//! alone opens nothing. An answer goes between the same two neighbours, the other way, and the rule
//! is symmetric: answers pass exactly where data could have passed.
//!
//! A source address in UDP is no proof: this rule relies on networks that let nobody outside send
//! as if from inside (BCP 38).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use crate::overlay::wire;

/// Where a relay passes datagrams on.
#[derive(Clone, Debug)]
pub struct ForwardPolicy {
    listen: IpAddr,
    /// The host's global addresses.
    own: Vec<IpAddr>,
    forward_to: Vec<IpNet>,
}

/// A block of addresses that hold within a host or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// 127.0.0.0/8 (RFC 1122, 3.2.1.3).
    LoopbackV4,
    /// ::1/128 (RFC 4291, 2.5.3).
    LoopbackV6,
    /// 10.0.0.0/8 (RFC 1918).
    Private10,
    /// 172.16.0.0/12 (RFC 1918).
    Private172,
    /// 192.168.0.0/16 (RFC 1918).
    Private192,
    /// 100.64.0.0/10, behind a provider's NAT (RFC 6598).
    Shared,
    /// fc00::/7 (RFC 4193).
    UniqueLocal,
}

/// What kind of address one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Global,
    Local(Block),
    Special,
}

/// Where a neighbour stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Outside,
    Inside,
    Listed,
    Barred,
}

impl ForwardPolicy {
    /// For a relay that listens on `listen` (where the driver does not say to which of several
    /// addresses a datagram came) on a host with the addresses `own`, and that was told to pass
    /// on to `forward_to` as well.
    pub fn new(listen: IpAddr, own: impl IntoIterator<Item = IpAddr>, forward_to: Vec<IpNet>) -> ForwardPolicy {
        let own = own.into_iter().map(|ip| ip.to_canonical()).filter(|&ip| scope(ip) == Scope::Global).collect();
        ForwardPolicy { listen: listen.to_canonical(), own, forward_to }
    }

    /// Whether what has come from `from`, addressed to `at` if that is known, may go on to `to`.
    /// It says the same with `from` and `to` the other way round.
    pub fn permits(&self, at: Option<IpAddr>, from: SocketAddr, to: SocketAddr) -> bool {
        let at = at.map_or(self.listen, |at| at.to_canonical());
        match (self.side(at, from), self.side(at, to)) {
            (Side::Barred, _) | (_, Side::Barred) => false,
            (Side::Inside, Side::Outside) | (Side::Outside, Side::Inside) => false,
            (Side::Inside | Side::Outside | Side::Listed, _) => true,
        }
    }

    fn side(&self, at: IpAddr, neighbour: SocketAddr) -> Side {
        let ip = neighbour.ip().to_canonical();
        if wire::problem_of_address(SocketAddr::new(ip, neighbour.port())).is_some() {
            return Side::Barred;
        }
        if self.forward_to.iter().any(|network| network.contains(&ip)) {
            return Side::Listed;
        }
        match (scope(ip), scope(at)) {
            (Scope::Global, Scope::Global) if ip == at || self.own.contains(&ip) => Side::Inside,
            (Scope::Global, _) if self.own.contains(&ip) => Side::Barred,
            (Scope::Global, _) => Side::Outside,
            (Scope::Local(block), Scope::Local(own)) if block == own => Side::Inside,
            (Scope::Local(_) | Scope::Special, _) => Side::Barred,
        }
    }
}

fn scope(ip: IpAddr) -> Scope {
    match ip {
        IpAddr::V4(ip) => scope_v4(ip),
        IpAddr::V6(ip) => scope_v6(ip),
    }
}

/// The IANA IPv4 Special-Purpose Address Registry (RFC 6890), less the anycast services in it that
/// are globally reachable.
fn scope_v4(ip: Ipv4Addr) -> Scope {
    match ip.octets() {
        [127, ..] => Scope::Local(Block::LoopbackV4),
        [10, ..] => Scope::Local(Block::Private10),
        [172, 16..=31, ..] => Scope::Local(Block::Private172),
        [192, 168, ..] => Scope::Local(Block::Private192),
        [100, 64..=127, ..] => Scope::Local(Block::Shared),
        // "This network" (RFC 791); link-local (RFC 3927).
        [0, ..] | [169, 254, ..] => Scope::Special,
        // Protocol assignments (RFC 6890); documentation (RFC 5737); 6to4 relays (RFC 7526).
        [192, 0, 0 | 2, _] | [198, 51, 100, _] | [203, 0, 113, _] | [192, 88, 99, _] => Scope::Special,
        // Benchmarks (RFC 2544); multicast (RFC 5771), reserved and broadcast (RFC 1112, 919).
        [198, 18..=19, ..] | [224..=255, ..] => Scope::Special,
        _ => Scope::Global,
    }
}

/// Global unicast addresses are taken from 2000::/3 (RFC 4291, 2.4, and the IANA registry), which
/// leaves out link-local, multicast, and the prefixes of translators that hold IPv4 addresses.
fn scope_v6(ip: Ipv6Addr) -> Scope {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Scope::Local(Block::LoopbackV6),
        [0xfc00..=0xfdff, ..] => Scope::Local(Block::UniqueLocal),
        // Protocol assignments, Teredo among them (RFC 2928); documentation (RFC 3849, 9637); 6to4,
        // which holds IPv4 addresses (RFC 3056).
        [0x2001, 0..=0x01ff | 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] | [0x2002, ..] => Scope::Special,
        [0x2000..=0x3fff, ..] => Scope::Global,
        _ => Scope::Special,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An address of every kind: outside, and what nobody outside may reach.
    const OUTSIDE: [&str; 4] = ["8.8.8.8", "172.32.0.1", "2a00:1450::1", "2606:4700::1111"];
    const LOCAL: [&str; 9] = [
        "127.0.0.1",
        "127.255.255.254",
        "::1",
        "10.0.0.7",
        "172.31.255.1",
        "192.168.1.1",
        "100.64.0.1",
        "100.127.255.254",
        "fd00::2",
    ];
    const SPECIAL: [&str; 21] = [
        "0.0.0.1",
        "169.254.169.254",
        "192.0.0.8",
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "192.88.99.1",
        "198.19.0.1",
        "240.0.0.1",
        "::2",
        "::ffff:0:1",
        "64:ff9b::a00:1",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:a00:1::1",
        "3fff::1",
        "5f00::1",
        "fe80::1",
        "fec0::1",
    ];
    const NEVER: [&str; 6] = ["0.0.0.0", "255.255.255.255", "224.0.0.251", "239.1.2.3", "::", "ff02::1"];

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn at(text: &str) -> SocketAddr {
        SocketAddr::new(ip(text), 4000)
    }

    fn policy(listen: &str, forward_to: &[&str]) -> ForwardPolicy {
        let listed = forward_to.iter().map(|text| text.parse().unwrap()).collect();
        ForwardPolicy::new(ip(listen), [ip("9.9.9.9"), ip("2600::9"), ip("10.0.0.5"), ip("127.0.0.1")], listed)
    }

    #[test]
    fn a_relay_on_a_public_address_is_never_made_to_send_into_its_own_network() {
        for listen in ["9.9.9.9", "2600::9", "0.0.0.0", "::"] {
            let policy = policy(listen, &[]);
            for outside in OUTSIDE {
                for other in OUTSIDE {
                    assert!(policy.permits(None, at(outside), at(other)), "{listen}: {outside} to {other}");
                }
                // Its own addresses are no less its network than others'.
                for barred in LOCAL.into_iter().chain(SPECIAL).chain(NEVER).chain(["9.9.9.9", "2600::9", "10.0.0.5"]) {
                    assert!(!policy.permits(None, at(outside), at(barred)), "{listen}: {outside} to {barred}");
                    assert!(!policy.permits(None, at(barred), at(outside)), "{listen}: {barred} to {outside}");
                }
            }
        }
    }

    #[test]
    fn a_relay_on_a_local_address_serves_its_own_block_and_takes_nobody_from_outside_into_it() {
        for (listen, near) in [
            ("127.0.0.1", "127.0.0.2"),
            ("::1", "::1"),
            ("10.0.0.5", "10.200.0.9"),
            ("172.16.0.1", "172.31.0.1"),
            ("192.168.1.10", "192.168.77.1"),
            ("100.64.0.1", "100.100.0.1"),
            ("fd00::2", "fdff::1"),
        ] {
            let policy = policy(listen, &[]);
            assert!(policy.permits(None, at(near), at(near)), "{listen}: {near}");
            // A wildcard that has been reached there is no other.
            assert!(self::policy("0.0.0.0", &[]).permits(Some(ip(listen)), at(near), at(near)));
            for outside in OUTSIDE {
                assert!(policy.permits(None, at(outside), at("8.8.4.4")), "{listen}: {outside} passes through");
                assert!(!policy.permits(None, at(outside), at(near)), "{listen}: {outside} to {near}");
                assert!(!policy.permits(None, at(near), at(outside)), "{listen}: {near} to {outside}");
            }
            for barred in LOCAL.into_iter().filter(|&local| scope(ip(local)) != scope(ip(listen))).chain(SPECIAL) {
                assert!(!policy.permits(None, at(near), at(barred)), "{listen}: {near} to {barred}");
            }
        }
    }

    #[test]
    fn a_wildcard_is_judged_by_the_address_that_a_datagram_came_to() {
        let policy = policy("127.0.0.1", &[]);
        assert!(policy.permits(None, at("127.0.0.2"), at("127.0.0.3")));
        assert!(!policy.permits(Some(ip("9.9.9.9")), at("127.0.0.2"), at("127.0.0.3")));
        assert!(policy.permits(Some(ip("::ffff:127.0.0.1")), at("127.0.0.2"), at("127.0.0.3")), "one spelling");
    }

    #[test]
    fn what_is_listed_opens_these_networks_and_no_others() {
        let policy = policy("9.9.9.9", &["10.1.0.0/16", "fd00::/8", "9.9.9.9/32", "0.0.0.0/32", "224.0.0.0/4"]);
        for (from, to, passes) in [
            ("8.8.8.8", "10.1.2.3", true),
            ("10.1.2.3", "8.8.8.8", true),
            ("2600::1", "fd00::2", true),
            ("8.8.8.8", "9.9.9.9", true),
            ("8.8.8.8", "10.2.0.1", false),
            ("10.1.2.3", "10.2.0.1", false),
            ("8.8.8.8", "127.0.0.1", false),
            ("8.8.8.8", "0.0.0.0", false),
            ("8.8.8.8", "224.0.0.251", false),
        ] {
            assert_eq!(policy.permits(None, at(from), at(to)), passes, "{from} to {to}");
        }
        assert!(!policy.permits(None, at("8.8.8.8"), SocketAddr::new(ip("10.1.2.3"), 0)), "port 0");
    }

    #[test]
    fn relays_on_one_public_host_serve_that_host_alone() {
        let policy = policy("9.9.9.9", &[]);
        assert!(policy.permits(None, at("9.9.9.9"), at("9.9.9.9")));
        assert!(policy.permits(None, at("2600::9"), at("9.9.9.9")));
        assert!(!policy.permits(None, at("8.8.8.8"), at("9.9.9.9")));
    }

    fn any_address() -> impl Strategy<Value = IpAddr> {
        let known: Vec<IpAddr> =
            OUTSIDE.into_iter().chain(LOCAL).chain(SPECIAL).chain(NEVER).chain(["9.9.9.9"]).map(ip).collect();
        prop_oneof![
            proptest::sample::select(known),
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(IpAddr::from),
        ]
    }

    proptest! {
        #[test]
        fn an_answer_passes_exactly_where_data_could_have_passed(
            (listen, came_to, from, to) in (any_address(), any_address(), any_address(), any_address()),
            ports in any::<(u16, u16)>(),
            listed in any::<([u8; 4], u8)>(),
        ) {
            let network = IpNet::new(IpAddr::from(listed.0), listed.1 % 33).unwrap();
            let policy = ForwardPolicy::new(listen, [listen, ip("9.9.9.9")], vec![network]);
            let (from, to) = (SocketAddr::new(from, ports.0), SocketAddr::new(to, ports.1));
            for at in [None, Some(came_to)] {
                prop_assert_eq!(policy.permits(at, from, to), policy.permits(at, to, from));
            }
        }

        /// An oracle of its own: what the standard library knows of addresses.
        #[test]
        fn nothing_special_is_global(address in any_address()) {
            if scope(address) == Scope::Global {
                prop_assert!(!address.is_loopback() && !address.is_unspecified() && !address.is_multicast());
                match address {
                    IpAddr::V4(v4) => prop_assert!(
                        !v4.is_private() && !v4.is_link_local() && !v4.is_documentation() && !v4.is_broadcast()
                    ),
                    IpAddr::V6(v6) => prop_assert!(
                        !v6.is_unique_local() && !v6.is_unicast_link_local() && v6.to_ipv4().is_none()
                    ),
                }
            }
        }
    }
}

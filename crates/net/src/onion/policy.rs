//! What an exit connects to: nothing, unless a rule allows it.
//!
//! A rule is a host and ports: `example.org:443`, `*.example.org:80,443`, `*:443`, `192.0.2.0/24:1-1024`, `[2001:db8::/32]:*`.
//! It allows TCP; with `/udp` behind the ports, as in `*:53/udp`, it allows UDP, and nothing of TCP.
//! A rule with a name allows what the name resolves to only where that is an address of the public internet; loopback,
//! private and other special addresses must be named as addresses. Otherwise whoever owns a name could point it at
//! the exit's own network.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anabranch_onion::directory::descriptor::MOST_RULES as MOST_ADVERTISED;
use anabranch_onion::directory::{ExitPolicy, ExitRule, Protocol};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Rules at most.
pub const MOST_RULES: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    /// Any name or public address.
    Any,
    /// This name, in lower case.
    Name(String),
    /// All names below this one, in lower case.
    Below(String),
    /// Addresses, also special ones.
    Net(IpNet),
}

/// One thing that is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    host: Host,
    protocol: Protocol,
    /// First and last port of each range.
    ports: Vec<(u16, u16)>,
}

/// What a rule should have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    rule: String,
    what: &'static str,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" {}; a rule is HOST:PORTS or HOST:PORTS/udp, as in example.org:443, *.example.org:80,443, \
             192.0.2.0/24:1-1024 or *:53/udp",
            self.rule, self.what
        )
    }
}

impl std::error::Error for RuleError {}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        let error = |what| RuleError { rule: text.to_owned(), what };
        let (host, ports) = text.rsplit_once(':').ok_or_else(|| error("names no ports"))?;
        let (ports, protocol) = match ports.split_once('/') {
            None => (ports, Protocol::Tcp),
            Some((ports, "tcp")) => (ports, Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some(_) => return Err(error("has a protocol that is neither tcp nor udp")),
        };
        let ports = ports.split(',').map(read_ports).collect::<Option<Vec<_>>>();
        let ports = ports.ok_or_else(|| error("has ports that are none (1 to 65535, A-B, or *)"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let net = bare.parse::<IpNet>().ok().or_else(|| bare.parse::<IpAddr>().ok().map(IpNet::from));
        let host = match (net, host) {
            (Some(IpNet::V6(_)), _) if bare.len() == host.len() => {
                return Err(error("has an IPv6 address without [ ] around it"));
            }
            // An address inside another is that one, and so is a network; none wider than that of all of them is inside.
            (Some(IpNet::V6(net)), _) => {
                match (net.trunc().addr().to_ipv4_mapped(), net.prefix_len().checked_sub(96)) {
                    (Some(address), Some(length)) => Host::Net(
                        Ipv4Net::new(address, length).map_err(|_| error("has a network that is none"))?.into(),
                    ),
                    _ => Host::Net(net.trunc().into()),
                }
            }
            (Some(net), _) => Host::Net(net.trunc()),
            (None, "*") => Host::Any,
            (None, name) => match name.strip_prefix("*.") {
                Some(below) if is_name(below) => Host::Below(below.to_ascii_lowercase()),
                None if is_name(name) => Host::Name(name.to_ascii_lowercase()),
                _ => return Err(error("has a host that is neither a name, an address nor a network")),
            },
        };
        Ok(Rule { host, protocol, ports })
    }
}

fn read_ports(text: &str) -> Option<(u16, u16)> {
    // Digits alone: numbers are read with a sign, too.
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let port = |text: &str| text.parse::<u16>().ok().filter(|&port| port > 0 && is_number(text));
    match text.split_once('-') {
        _ if text == "*" => Some((1, u16::MAX)),
        Some((first, last)) => Some((port(first)?, port(last)?)).filter(|(first, last)| first <= last),
        None => port(text).map(|port| (port, port)),
    }
}

/// Labels of letters, digits, hyphens and underscores. An address in an odd notation is none: its last label
/// is a number.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.split('.').all(is_label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// All that is allowed.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

impl Policy {
    /// What one of the rules allows, and nothing else; of more than [`MOST_RULES`], the rest is left out.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Policy {
        Policy { rules: rules.into_iter().take(MOST_RULES).collect() }
    }

    /// What the directory says of it: rules with networks and with any host, as far as they fit. Rules with names are
    /// the exit's own knowledge: no user chooses an exit by them.
    pub fn advertised(&self) -> ExitPolicy {
        let rules = self.rules.iter().flat_map(|rule| {
            let net = match &rule.host {
                Host::Any => Some(None),
                Host::Net(net) => Some(Some(*net)),
                Host::Name(_) | Host::Below(_) => None,
            };
            let ports = rule.ports.iter();
            ports.filter_map(move |&ports| Some(ExitRule { accept: true, protocol: rule.protocol, net: net?, ports }))
        });
        ExitPolicy { rules: rules.take(MOST_ADVERTISED).collect() }
    }

    /// Whether nothing is allowed.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether it makes sense to resolve `name`: some address of it might be allowed.
    pub fn may_resolve(&self, protocol: Protocol, name: &str, port: u16) -> bool {
        is_name(name.strip_suffix('.').unwrap_or(name))
            && self.with_port(protocol, port).any(|rule| match &rule.host {
                Host::Net(_) => true,
                host => names(host, name),
            })
    }

    /// Whether `protocol` may be spoken with `address`, which `name` led to, if it was not given itself.
    pub fn allows(&self, protocol: Protocol, name: Option<&str>, address: IpAddr, port: u16) -> bool {
        // An address inside another is that one.
        let address = address.to_canonical();
        self.with_port(protocol, port).any(|rule| match &rule.host {
            Host::Net(net) => net.contains(&address),
            Host::Any => is_public(address),
            host => is_public(address) && name.is_some_and(|name| names(host, name)),
        })
    }

    fn with_port(&self, protocol: Protocol, port: u16) -> impl Iterator<Item = &Rule> {
        let has = move |rule: &&Rule| rule.ports.iter().any(|&(first, last)| (first..=last).contains(&port));
        self.rules.iter().filter(move |rule| rule.protocol == protocol).filter(has)
    }
}

fn names(host: &Host, name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    match host {
        Host::Any => true,
        Host::Name(own) => *own == name,
        Host::Below(own) => name.strip_suffix(own.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        Host::Net(_) => false,
    }
}

/// What is not the public internet's, by the registries of special addresses (RFC 6890, as IANA keeps them).
const SPECIAL_V4: [Ipv4Net; 15] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
];

const fn v4(octets: [u8; 4], length: u8) -> Ipv4Net {
    let [a, b, c, d] = octets;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

/// Within 2000::/3, which is all that is given out: protocols, documentation, 6to4 with its embedded addresses.
const SPECIAL_V6: [Ipv6Net; 4] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    Ipv6Net::new_assert(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

const GLOBAL_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Whether `address` is one of the public internet.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) => GLOBAL_V6.contains(&address) && !SPECIAL_V6.iter().any(|net| net.contains(&address)),
    }
}

#[cfg(test)]
mod tests {
    use Protocol::{Tcp, Udp};

    use super::*;

    fn policy(rules: &[&str]) -> Policy {
        Policy::new(rules.iter().map(|rule| rule.parse().unwrap()))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn nothing_is_allowed_unless_a_rule_says_so() {
        assert!(!Policy::default().allows(Tcp, None, ip("93.184.216.34"), 443));
        assert!(!Policy::default().may_resolve(Tcp, "example.org", 443));
        let policy = policy(&["example.org:443", "*.example.net:80,8000-8080", "93.184.216.0/24:22", "[2600::/16]:*"]);
        let public = ip("1.1.1.1");
        assert!(policy.allows(Tcp, Some("Example.ORG."), public, 443));
        assert!(!policy.allows(Tcp, Some("example.org"), public, 80) && !policy.allows(Tcp, None, public, 443));
        assert!(policy.allows(Tcp, Some("a.b.example.net"), public, 8080));
        for name in ["example.net", "badexample.net", ".example.net", "example.net.evil.org"] {
            assert!(!policy.allows(Tcp, Some(name), public, 80), "{name}");
        }
        assert!(
            policy.allows(Tcp, None, ip("93.184.216.34"), 22)
                && policy.allows(Tcp, Some("x.y"), ip("93.184.216.34"), 22)
        );
        assert!(policy.allows(Tcp, None, ip("2600::1"), 65535) && !policy.allows(Tcp, None, ip("2601::1"), 65535));
        let network = self::policy(&["93.184.216.0/24:22"]);
        assert!(network.may_resolve(Tcp, "other.com", 22) && !network.may_resolve(Tcp, "other.com", 80));
    }

    #[test]
    fn loopback_and_private_addresses_are_never_allowed_unless_named_as_addresses() {
        let open = policy(&["*:*", "localhost:*", "example.org:80"]);
        for special in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "::127.0.0.1",
        ] {
            for name in [None, Some("localhost"), Some("example.org")] {
                assert!(!open.allows(Tcp, name, ip(special), 80), "{special} by {name:?}");
            }
        }
        assert!(open.allows(Tcp, None, ip("1.1.1.1"), 80) && open.allows(Tcp, None, ip("2606:4700::1111"), 80));
        let named = policy(&["127.0.0.1:8080", "10.0.0.0/8:*"]);
        assert!(
            named.allows(Tcp, Some("localhost"), ip("127.0.0.1"), 8080)
                && named.allows(Tcp, None, ip("::ffff:127.0.0.1"), 8080)
        );
        assert!(!named.allows(Tcp, None, ip("127.0.0.1"), 8081) && !named.allows(Tcp, None, ip("127.0.0.2"), 8080));
        assert!(named.allows(Tcp, None, ip("10.200.0.1"), 1));
    }

    #[test]
    fn a_network_of_ipv4_inside_ipv6_is_that_of_ipv4() {
        let policy = policy(&["[::ffff:10.0.0.0/104]:80", "[::ffff:192.0.2.7]:81", "[::/0]:82"]);
        assert!(policy.allows(Tcp, None, ip("10.1.2.3"), 80) && policy.allows(Tcp, None, ip("::ffff:10.1.2.3"), 80));
        assert!(!policy.allows(Tcp, None, ip("11.1.2.3"), 80));
        assert!(policy.allows(Tcp, None, ip("192.0.2.7"), 81) && !policy.allows(Tcp, None, ip("192.0.2.8"), 81));
        assert!(policy.allows(Tcp, None, ip("::1"), 82) && !policy.allows(Tcp, None, ip("10.1.2.3"), 82));
    }

    #[test]
    fn a_rule_allows_one_protocol_and_nothing_of_the_other() {
        let policy = policy(&["*:53/udp", "127.0.0.1:7/udp", "example.org:443", "example.net:80/tcp"]);
        let (public, loopback) = (ip("1.1.1.1"), ip("127.0.0.1"));
        assert!(policy.allows(Udp, None, public, 53) && policy.may_resolve(Udp, "a.b", 53));
        assert!(!policy.allows(Tcp, None, public, 53) && !policy.may_resolve(Tcp, "a.b", 53));
        assert!(!policy.allows(Udp, None, loopback, 53) && policy.allows(Udp, None, loopback, 7));
        assert!(policy.allows(Tcp, Some("example.org"), public, 443));
        assert!(!policy.allows(Udp, Some("example.org"), public, 443));
        assert!(policy.allows(Tcp, Some("example.net"), public, 80));
        let advertised = policy.advertised();
        assert!(advertised.may_allow(Udp, 53) && !advertised.may_allow(Tcp, 53) && !advertised.may_allow(Udp, 443));
    }

    #[test]
    fn a_wrong_rule_is_reported_with_what_it_should_be() {
        for wrong in [
            "",
            "example.org",
            "example.org:",
            "example.org:0",
            "example.org:65536",
            "example.org:80-",
            "*:+80",
            "*:1-+80",
            "a:9-8",
            ":80",
            "exa mple:80",
            "*.*:80",
            "a..b:80",
            "2001:db8::1:80",
            "1.2.3:80",
            "1.2.3.4/33:80",
            "[::1:80",
            "0x7f.1:80",
            "a.b:80/sctp",
            "a.b:80/udp/tcp",
            "a.b:80/",
            "a.b:/udp",
        ] {
            let error = wrong.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains("HOST:PORTS") && error.contains(wrong), "{error}");
        }
        // What only looks like a name is not resolved, whoever allows everything.
        for name in ["127.1", "2130706433", "0x7f000001.1", "a b", "", "a..b", "host\0"] {
            assert!(!policy(&["*:*"]).may_resolve(Tcp, name, 80), "{name}");
        }
    }
}

//! The file that lists relays:
//!
//! ```toml
//! [[relay]]
//! address = "192.0.2.1:4000"
//! [[relay]]
//! address = "relay.example:4000"
//! ```
//!
//! All are of one family. A relay is known to its neighbours by the one address that is listed, and
//! nothing can leave from an IPv4 address to an IPv6 one. A name is looked up once; of its addresses the
//! first of the family that fits is taken.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use anabranch_control::path::MAX_KNOWN_PEERS;
use anabranch_control::registry::nearest;
use anabranch_proto::overlay::wire;
use serde::Deserialize;
use toml::Spanned;

use crate::file_error::FileError;

/// Where a relay listens if nothing else is said.
pub const DEFAULT_PORT: u16 = 4000;

/// All keys of a list.
const KEYS: [&str; 2] = ["relay", "address"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    relay: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    address: Spanned<String>,
}

/// The addresses for which a text stands, each usable, or what is wrong with it.
pub type LookUp<'a> = &'a dyn Fn(&str) -> Result<Vec<SocketAddr>, String>;

/// Relays by family: in each that all of them have an address of, one address of each in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relays {
    v4: Vec<SocketAddr>,
    v6: Vec<SocketAddr>,
    prefers_v6: bool,
}

impl Relays {
    /// Those of the family of `like`, if all relays have an address of it.
    pub fn like(&self, like: SocketAddr) -> Option<&[SocketAddr]> {
        let relays = if like.is_ipv4() { &self.v4 } else { &self.v6 };
        (!relays.is_empty()).then_some(relays)
    }

    /// Those of the family that the first relay's first address is of or, if not all have one, of the
    /// other.
    pub fn preferred(&self) -> &[SocketAddr] {
        match self.prefers_v6 {
            true if !self.v6.is_empty() => &self.v6,
            false if self.v4.is_empty() => &self.v6,
            _ => &self.v4,
        }
    }

    /// Those of the other family than [`Relays::preferred`]; none if not all have an address of it.
    pub fn other(&self) -> &[SocketAddr] {
        if self.preferred().first().is_some_and(SocketAddr::is_ipv4) { &self.v6 } else { &self.v4 }
    }
}

/// Reads a list of addresses; the relays in its order, each once.
///
/// # Errors
///
/// What is wrong, and where.
pub fn parse(text: &str) -> Result<Vec<SocketAddr>, FileError> {
    Ok(parse_with(text, &numeric)?.preferred().to_vec())
}

/// As [`parse`], with `look_up` for what is written.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_with(text: &str, look_up: LookUp<'_>) -> Result<Relays, FileError> {
    let at = |offset, message| FileError::at(text, offset, message);
    let hint = "expected [[relay]] entries with address = \"HOST:PORT\"";
    let list: List = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let message = error.message().trim_end().replace('\n', " ");
        // Serde's words are those of programs.
        let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
        let near = unknown
            .and_then(|key| nearest(key, KEYS))
            .map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        at(
            offset,
            match unknown {
                Some(key) => format!("key `{key}`: unknown key{near} ({hint})"),
                None => format!("{message}; {hint}"),
            },
        )
    })?;
    if list.relay.is_empty() {
        return Err(at(0, format!("no relay is listed; {hint}")));
    }
    let written: Vec<&str> = list.relay.iter().map(|entry| entry.address.get_ref().as_str()).collect();
    collect(&written, look_up).map_err(|(entry, message)| {
        let offset = list.relay.get(entry).map_or(0, |entry| entry.address.span().start);
        at(offset, format!("key `address`: {message}"))
    })
}

/// The relays that are `written`, one after the other.
///
/// # Errors
///
/// Which of them is wrong, from 0 on, and why.
pub fn collect(written: &[&str], look_up: LookUp<'_>) -> Result<Relays, (usize, String)> {
    let mut relays = Relays::default();
    let mut families = (true, true);
    for (number, &text) in written.iter().enumerate() {
        if number == MAX_KNOWN_PEERS - 1 {
            return Err((number, format!("expected at most {} relays", MAX_KNOWN_PEERS - 1)));
        }
        let wrong = |message: String| (number, message);
        let found = look_up(text).map_err(wrong)?;
        let first = |is_v4: bool| found.iter().copied().find(|address| address.is_ipv4() == is_v4);
        let (v4, v6) = (first(true), first(false));
        if number == 0 {
            relays.prefers_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
        }
        let before = families;
        families = (families.0 && v4.is_some(), families.1 && v6.is_some());
        if families == (false, false) {
            let (this, others) = if before.0 { ("IPv6", "IPv4") } else { ("IPv4", "IPv6") };
            return Err(wrong(format!(
                "{text:?} is {this}, the relays before it are {others}, and no datagram can go between them; expected \
                 relays of one family"
            )));
        }
        let families = [(&mut relays.v4, v4), (&mut relays.v6, v6)];
        if families.iter().any(|(before, new)| new.is_some_and(|new| before.contains(&new))) {
            return Err(wrong(format!("{text:?} comes twice; expected each relay once")));
        }
        for (before, new) in families {
            before.extend(new);
        }
    }
    // A family is of use only if all have an address of it.
    if !families.0 {
        relays.v4.clear();
    }
    if !families.1 {
        relays.v6.clear();
    }
    Ok(relays)
}

/// Addresses as they are written, IP:PORT; for [`parse_with`].
///
/// # Errors
///
/// When it is none, or no single host's.
pub fn numeric(text: &str) -> Result<Vec<SocketAddr>, String> {
    let example = "expected IP:PORT, such as \"192.0.2.1:4000\" or \"[2001:db8::1]:4000\"";
    let address = text.parse().map_err(|_| format!("{text:?} is not an address; {example}"))?;
    Ok(vec![usable(text, address)?])
}

/// As [`numeric`], but a host's name will do, and is looked up now; without a port, `port` is meant, if
/// there is one.
///
/// # Errors
///
/// As [`numeric`], or when the name has no address.
pub fn resolve(text: &str, port: Option<u16>) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = text.parse() {
        return Ok(vec![usable(text, address)?]);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text).parse::<IpAddr>();
    let example = "expected HOST:PORT, such as \"relay.example:4000\", \"192.0.2.1:4000\" or \"[2001:db8::1]:4000\"";
    let missing = || format!("{text:?} has no port; {example}");
    if let Ok(ip) = bare {
        return Ok(vec![usable(text, SocketAddr::new(ip, port.ok_or_else(missing)?))?]);
    }
    let wrong = || format!("{text:?} is not an address; {example}");
    if let Some((host, interface, rest)) = with_interface(text) {
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None if rest.is_empty() => port.ok_or_else(missing)?,
            None => return Err(wrong()),
        };
        let found = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next());
        let found = found.ok_or_else(|| {
            format!("{text:?}: there is no network interface {interface:?} here; expected one that `ip link` lists")
        })?;
        return Ok(vec![usable(text, found)?]);
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|&port| port != 0).ok_or_else(wrong)?),
        None => (text, port.ok_or_else(missing)?),
    };
    let is_plain = |c: char| c.is_alphanumeric() || "-._".contains(c);
    if host.is_empty() || !host.chars().all(is_plain) {
        return Err(wrong());
    }
    let found = (host, port).to_socket_addrs().map_err(|error| format!("{text:?}: {host} has no address: {error}"))?;
    let found: Vec<SocketAddr> =
        found.map(wire::canonical).filter(|&address| wire::problem_of_address(address).is_none()).collect();
    if found.is_empty() { Err(format!("{text:?}: {host} has no address")) } else { Ok(found) }
}

/// An address of IPv6 that names an interface (RFC 4007, 11), such as `[fe80::1%eth0]:4000`: the two, the interface alone, and
/// what comes behind. A number in the interface's place is read with the address.
fn with_interface(text: &str) -> Option<(&str, &str, &str)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(text) => text.split_once(']')?,
        None => (text, ""),
    };
    let (address, interface) = host.split_once('%')?;
    address.parse::<Ipv6Addr>().ok()?;
    Some((host, interface, rest))
}

fn usable(text: &str, address: SocketAddr) -> Result<SocketAddr, String> {
    let scope = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
    let mut address = wire::canonical(address);
    if let SocketAddr::V6(address) = &mut address {
        // Without its interface nothing can be sent to a link-local address.
        address.set_scope_id(scope);
    }
    match wire::problem_of_address(address) {
        Some(problem) => Err(format!("{text:?} has {problem}; expected one host and its port")),
        None => Ok(address),
    }
}

/// The family of `address`, for people.
pub fn family(address: SocketAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_is_read_in_order() {
        for addresses in [["127.0.0.2:4000", "127.0.0.1:4001"], ["[::1]:4001", "[::1]:4000"]] {
            let text: String =
                addresses.iter().map(|address| format!("[[relay]]\naddress = \"{address}\"\n")).collect();
            assert_eq!(parse(&text).unwrap(), addresses.map(|address| address.parse().unwrap()));
        }
        // IPv4 inside IPv6 is IPv4.
        let text = "[[relay]]\naddress = \"127.0.0.1:4000\"\n[[relay]]\naddress = \"[::ffff:127.0.0.1]:4001\"\n";
        assert_eq!(parse(text).unwrap().len(), 2);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_what_would_be_right() {
        for (text, line, says) in [
            ("", 1, "no relay is listed"),
            ("[[relay]]\naddress = \"127.0.0.1\"", 2, "expected IP:PORT"),
            ("[[relay]]\n\naddress = \"relay.example:4000\"", 3, "`address`"),
            ("[[relay]]\naddress = \"0.0.0.0:4000\"", 2, "unspecified"),
            ("[[relay]]\naddress = \"10.0.0.1:0\"", 2, "port 0"),
            (
                "[[relay]]\naddress = \"10.0.0.1:1\"\nweight = 2",
                3,
                "key `weight`: unknown key (expected [[relay]] entries",
            ),
            (
                "[[relay]]\nadress = \"10.0.0.1:1\"",
                2,
                "key `adress`: unknown key; did you mean `address`? (expected [[relay]] entries with address = \"HOST:PORT\")",
            ),
            ("[[relay]]\naddres = \"10.0.0.1:1\"", 2, "addres"),
            ("relay = 3", 1, "expected"),
            ("[[relay]]\naddress = 4000", 2, "string"),
            ("[[relay]]\naddress = \"10.0.0.1:1\"\n[[relay]]\naddress = \"10.0.0.1:1\"", 4, "twice"),
            ("[[relay]\n", 1, "expected"),
            (
                "[[relay]]\naddress = \"10.0.0.1:1\"\n[[relay]]\naddress = \"[::1]:1\"",
                4,
                "is IPv6, the relays before it",
            ),
            ("[[relay]]\naddress = \"[::1]:1\"\n\n[[relay]]\naddress = \"10.0.0.1:1\"", 5, "is IPv4"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.line == line && error.message.contains(says), "{text:?}: {error}");
        }
    }

    /// Names that have addresses of one family, of the other, or of both.
    fn names(text: &str) -> Result<Vec<SocketAddr>, String> {
        let [v4, v6]: [SocketAddr; 2] = ["192.0.2.1:4000", "[2001:db8::1]:4000"].map(|text| text.parse().unwrap());
        match text {
            "both" => Ok(vec![v6, v4]),
            "other-both" => Ok(vec!["192.0.2.2:1".parse().unwrap(), "[2001:db8::2]:1".parse().unwrap()]),
            "four" => Ok(vec!["192.0.2.4:1".parse().unwrap()]),
            "six" => Ok(vec!["[2001:db8::6]:1".parse().unwrap()]),
            _ => numeric(text),
        }
    }

    #[test]
    fn of_a_names_addresses_the_first_of_the_family_that_fits_is_taken() {
        let four: SocketAddr = "1.1.1.1:1".parse().unwrap();
        let both = collect(&["both", "other-both"], &names).unwrap();
        assert!(both.preferred().iter().all(SocketAddr::is_ipv6), "as the first name's first address");
        assert_eq!(both.like(four).unwrap().len(), 2);
        assert_eq!(both.other(), both.like(four).unwrap());
        for (with, is_v4) in [("four", true), ("six", false)] {
            for list in [["both", with], [with, "both"]] {
                let relays = collect(&list, &names).unwrap();
                assert!(relays.preferred().iter().all(|relay| relay.is_ipv4() == is_v4), "{list:?}");
                assert_eq!((relays.like(four).is_some(), relays.other().len()), (is_v4, 0));
            }
        }
        let (number, message) = collect(&["both", "four", "six"], &names).unwrap_err();
        assert!(number == 2 && message.contains("\"six\" is IPv6, the relays before it are IPv4"), "{message}");
        let (number, message) = collect(&["both", "192.0.2.1:4000"], &names).unwrap_err();
        assert!(number == 1 && message.contains("twice"), "{message}");
    }

    #[test]
    fn a_host_needs_a_port_only_where_there_is_no_usual_one() {
        let one = |text: &str, port| resolve(text, port).map(|found| found[0].to_string());
        assert_eq!(one("192.0.2.1", Some(4000)).unwrap(), "192.0.2.1:4000");
        assert_eq!(one("192.0.2.1:7", Some(4000)).unwrap(), "192.0.2.1:7");
        for text in ["2001:db8::1", "[2001:db8::1]"] {
            assert_eq!(one(text, Some(4000)).unwrap(), "[2001:db8::1]:4000");
        }
        let local = resolve("localhost", Some(4000)).unwrap();
        assert!(local.iter().all(|address| address.ip().is_loopback() && address.port() == 4000));
        // The loopback device has another name elsewhere.
        #[cfg(target_os = "linux")]
        for text in ["[fe80::1%lo]:4000", "[fe80::1%lo]", "fe80::1%lo", "[fe80::1%1]:4000"] {
            assert_eq!(one(text, Some(4000)).unwrap(), "[fe80::1%1]:4000", "{text}");
        }
        for (wrong, says) in [
            ("[fe80::1%nosuch0]:4000", "there is no network interface \"nosuch0\" here"),
            ("[fe80::1%lo]", "has no port"),
            ("[fe80::1%lo]:0", "port 0"),
            ("[fe80::1%lo]4000", "not an address"),
            ("192.0.2.1", "has no port"),
            ("localhost", "has no port"),
            ("localhost:", "not an address"),
            ("localhost:0", "not an address"),
            ("localhost:70000", "not an address"),
            (":4000", "not an address"),
            ("a b:4000", "not an address"),
            ("0.0.0.0:4000", "unspecified"),
            ("no-such-host.invalid:4000", "no-such-host.invalid has no address"),
        ] {
            let error = resolve(wrong, None).unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in any::<String>(), cut in 0usize..80) {
            let _ = parse(&text);
            let good = "[[relay]]\naddress = \"127.0.0.1:4000\"\n[[relay]]\naddress = \"[::1]:4001\"\n";
            let _ = parse(&format!("{}{text}", &good[..cut.min(good.len())]));
            let _ = collect(&[&text], &numeric);
        }
    }
}

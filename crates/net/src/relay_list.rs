//! The file that lists relays:
//!
//! ```toml
//! [[relay]]
//! address = "192.0.2.1:4000"
//! [[relay]]
//! address = "192.0.2.2:4000"
//! ```
//!
//! All are of one family. A relay is known to its neighbours by the one address that is listed, and
//! nothing can leave from an IPv4 address to an IPv6 one.

use std::fmt;
use std::net::SocketAddr;

use anabranch_control::path::MAX_KNOWN_PEERS;
use anabranch_proto::wire;
use serde::Deserialize;
use toml::Spanned;

/// What is wrong in a list, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong, with the key and what would be right.
    pub message: String,
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ListError {}

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

/// Reads a list; the relays in its order, each once.
pub fn parse(text: &str) -> Result<Vec<SocketAddr>, ListError> {
    let at = |offset: usize, message: String| {
        let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
        ListError { line: 1 + before.iter().filter(|&&byte| byte == b'\n').count(), message }
    };
    let list: List = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let hint = "expected [[relay]] entries with address = \"IP:PORT\"";
        at(offset, format!("{}; {hint}", error.message().trim_end().replace('\n', " ")))
    })?;
    let mut relays: Vec<SocketAddr> = Vec::with_capacity(list.relay.len());
    for entry in &list.relay {
        let (offset, written) = (entry.address.span().start, entry.address.get_ref());
        let address: SocketAddr = written.parse().map_err(|_| {
            let example = "expected IP:PORT, such as \"192.0.2.1:4000\" or \"[2001:db8::1]:4000\"";
            at(offset, format!("key `address`: {written:?} is not an address; {example}"))
        })?;
        let address = wire::canonical(address);
        if let Some(problem) = wire::problem_of_address(address) {
            return Err(at(
                offset,
                format!("key `address`: {written:?} has {problem}; expected one host and its port"),
            ));
        }
        if let Some(first) = relays.first()
            && first.is_ipv4() != address.is_ipv4()
        {
            let (this, others) = (family(address), family(*first));
            let message = format!("{written:?} is {this}, the relays before it are {others}, and no datagram can go");
            return Err(at(offset, format!("key `address`: {message} between them; expected relays of one family")));
        }
        if relays.contains(&address) {
            return Err(at(offset, format!("key `address`: {written:?} comes twice; expected each relay once")));
        }
        if relays.len() == MAX_KNOWN_PEERS - 1 {
            return Err(at(offset, format!("expected at most {} relays", MAX_KNOWN_PEERS - 1)));
        }
        relays.push(address);
    }
    if relays.is_empty() {
        return Err(at(0, "no relay is listed; expected [[relay]] entries with address = \"IP:PORT\"".into()));
    }
    Ok(relays)
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
            ("[[relay]]\naddress = \"10.0.0.1:1\"\nweight = 2", 3, "unknown field `weight`"),
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

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in any::<String>(), cut in 0usize..80) {
            let _ = parse(&text);
            let good = "[[relay]]\naddress = \"127.0.0.1:4000\"\n[[relay]]\naddress = \"[::1]:4001\"\n";
            let _ = parse(&format!("{}{text}", &good[..cut.min(good.len())]));
        }
    }
}

//! A stream's link: what somebody needs to watch, in words to copy.
//!
//! ```text
//! anabranch://9d61…7f60@192.0.2.1:7443
//! anabranch://9d61…7f60@[2001:db8::1]:7443,203.0.113.5:7443
//! anabranch://9d61…7f60@stream.example:7443/private
//! ```
//!
//! With `/private`, a viewer deals with the server alone from its first packet on.
//!
//! The stream's public key in 64 hexadecimal digits, then the addresses at which its server is: by the key
//! nobody else passes for it, wherever the link has come from.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anabranch_proto::key_text;
use anabranch_proto::session::PeerKey;

/// What a link begins with.
const SCHEME: &str = "anabranch://";

/// The most addresses in a link.
pub const MOST_ADDRESSES: usize = 8;

/// What the link of a private stream ends with.
const PRIVATE: &str = "/private";

/// What a link looks like, for those whose link does not.
const EXPECTED: &str = "expected anabranch://KEY@HOST:PORT, with a KEY of 64 hexadecimal digits";

/// Why a text is no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It does not begin as one.
    #[error("this link does not begin with {SCHEME}; {EXPECTED}")]
    Scheme,
    /// Nothing stands between the key and the addresses.
    #[error("there is no @ in this link; {EXPECTED}")]
    NoAddress,
    /// The key is none.
    #[error("{0:?} is no key; {EXPECTED}")]
    Key(String),
    /// An address is none.
    #[error("{0:?} is no address; expected HOST:PORT, as in 192.0.2.1:7443, [2001:db8::1]:7443 or stream.example:7443")]
    Address(String),
    /// Nobody is there.
    #[error("nobody is reached at {0}; expected an address of one host, as in 192.0.2.1:7443, and a port from 1 on")]
    Nowhere(String),
    /// Nobody knows its names.
    #[error("no address is known of {0}: is the name right, and is there a network?")]
    Unknown(String),
    /// There are too many.
    #[error("expected at most {MOST_ADDRESSES} addresses in a link; got {0}")]
    TooMany(usize),
}

/// Where a stream is, and by which key it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The stream's key.
    pub key: PeerKey,
    /// `HOST:PORT` each, as they were written; at least one.
    addresses: Vec<String>,
    /// Whether the server feeds every viewer itself, and names none to another.
    pub is_private: bool,
}

impl Link {
    /// Of the stream of `key`, whose server is at `addresses`.
    ///
    /// # Errors
    ///
    /// When there are none, or too many, or nobody can be at one.
    pub fn new(key: PeerKey, addresses: &[SocketAddr]) -> Result<Link, LinkError> {
        Link { key, addresses: addresses.iter().map(SocketAddr::to_string).collect(), is_private: false }.checked()
    }

    fn checked(self) -> Result<Link, LinkError> {
        let is_nowhere = |address: &&String| address.parse().is_ok_and(|address| !is_somewhere(address));
        if let Some(nowhere) = self.addresses.iter().find(is_nowhere) {
            return Err(LinkError::Nowhere(nowhere.clone()));
        }
        match self.addresses.len() {
            0 => Err(LinkError::NoAddress),
            count if count > MOST_ADDRESSES => Err(LinkError::TooMany(count)),
            _ => Ok(self),
        }
    }

    /// The addresses as they are written.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The addresses for which they stand, in the order in which to try them: as they stand in the link, but
    /// those of IPv6 and of IPv4 in turn (RFC 8305, 4). Names are looked up, which may take a while.
    ///
    /// # Errors
    ///
    /// When none stands for any.
    pub fn look_up(&self) -> Result<Vec<SocketAddr>, LinkError> {
        let found: Vec<SocketAddr> =
            self.addresses.iter().filter_map(|address| address.to_socket_addrs().ok()).flatten().collect();
        if found.is_empty() { Err(LinkError::Unknown(self.addresses.join(","))) } else { Ok(in_turn(&found)) }
    }
}

/// The same addresses, each once, those of the first one's family and of the other in turn.
fn in_turn(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_ipv6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let of = |family: bool| addresses.iter().copied().filter(move |address| address.is_ipv6() == family);
    let (mut first, mut second) = (of(is_ipv6), of(!is_ipv6));
    let mut ordered: Vec<SocketAddr> = Vec::with_capacity(addresses.len());
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            return ordered;
        }
        for address in pair.into_iter().flatten() {
            if !ordered.contains(&address) {
                ordered.push(address);
            }
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}@{}", self.key, self.addresses.join(","))?;
        if self.is_private { f.write_str(PRIVATE) } else { Ok(()) }
    }
}

/// Whether somebody can be reached at `address`.
pub fn is_somewhere(address: SocketAddr) -> bool {
    address.port() > 0 && !address.ip().is_unspecified() && !address.ip().is_multicast()
}

/// Whether `address` is `HOST:PORT`.
fn is_address(address: &str) -> bool {
    if address.parse::<SocketAddr>().is_ok() {
        return true;
    }
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !host.is_empty() && host.len() <= 253 && host.bytes().all(is_in_name);
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    is_name && is_port
}

impl FromStr for Link {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Link, LinkError> {
        let text = text.trim();
        let is_scheme = text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
        let rest = if is_scheme { &text[SCHEME.len()..] } else { return Err(LinkError::Scheme) };
        let rest = rest.trim_end_matches('/');
        let (rest, is_private) = rest.strip_suffix(PRIVATE).map_or((rest, false), |rest| (rest, true));
        let (key, addresses) = rest.split_once('@').ok_or(LinkError::NoAddress)?;
        let parsed = key_text::parse(key).ok().filter(|_| key.len() == 64);
        let key = PeerKey(parsed.ok_or_else(|| LinkError::Key(key.to_owned()))?);
        let addresses: Vec<String> = addresses.split(',').map(str::to_owned).collect();
        if let Some(wrong) = addresses.iter().find(|address| !is_address(address)) {
            return Err(LinkError::Address(wrong.clone()));
        }
        Link { key, addresses, is_private }.checked()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_link_is_read_as_it_is_printed(
            key in any::<[u8; 32]>(),
            v4 in prop::collection::vec(any::<([u8; 4], u16)>(), 0..4),
            v6 in prop::collection::vec(any::<([u8; 16], u16)>(), 1..4),
        ) {
            let addresses: Vec<SocketAddr> =
                v4.into_iter().map(SocketAddr::from).chain(v6.into_iter().map(SocketAddr::from)).collect();
            prop_assume!(addresses.iter().all(|address| is_somewhere(*address)));
            let link = Link::new(PeerKey(key), &addresses).unwrap();
            prop_assert_eq!(link.to_string().parse(), Ok(link.clone()));
            let mut found = link.look_up().unwrap();
            found.sort();
            let mut expected = addresses;
            expected.sort();
            expected.dedup();
            prop_assert_eq!(found, expected);
            let private = Link { is_private: true, ..link };
            prop_assert_eq!(private.to_string().parse(), Ok(private));
        }

        #[test]
        fn whatever_is_written_is_read_or_refused(text in ".{0,200}") {
            let _ = text.parse::<Link>();
            let _ = format!("{SCHEME}{text}").parse::<Link>();
        }
    }

    #[test]
    fn addresses_of_both_families_are_tried_in_turn() {
        let text = "[2001:db8::1]:1,[2001:db8::2]:1,192.0.2.1:1,[2001:db8::1]:1,192.0.2.2:1,192.0.2.3:1";
        let link: Link = format!("anabranch://{}@{text}", "ab".repeat(32)).parse().unwrap();
        let order: Vec<String> = link.look_up().unwrap().iter().map(SocketAddr::to_string).collect();
        let expected = ["[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1", "192.0.2.2:1", "192.0.2.3:1"];
        assert_eq!(order, expected);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let key = "9d".repeat(32);
        let read = |text: &str| text.parse::<Link>();
        assert_eq!(read("http://example"), Err(LinkError::Scheme));
        assert_eq!(read(""), Err(LinkError::Scheme));
        assert_eq!(read(&format!("anabranch://{key}")), Err(LinkError::NoAddress));
        assert_eq!(read("anabranch://9d@192.0.2.1:1"), Err(LinkError::Key("9d".into())));
        assert!(matches!(read(&format!("anabranch://{}@192.0.2.1:1", "g".repeat(64))), Err(LinkError::Key(_))));
        for wrong in ["", "192.0.2.1", "example:0", "example:65536", "exa mple:1", ":1", "[::1]", "2001:db8::1"] {
            assert_eq!(read(&format!("anabranch://{key}@{wrong}")), Err(LinkError::Address(wrong.into())), "{wrong}");
        }
        for nowhere in ["192.0.2.1:0", "0.0.0.0:7443", "[::]:7443", "224.0.0.1:7443"] {
            assert_eq!(read(&format!("anabranch://{key}@{nowhere}")), Err(LinkError::Nowhere(nowhere.into())));
            assert!(Link::new(PeerKey::default(), &[nowhere.parse().unwrap()]).is_err(), "{nowhere}");
        }
        assert_eq!(read(&format!("anabranch://{key}@{}", ["h:1"; 9].join(","))), Err(LinkError::TooMany(9)));
        let upper = format!(" ANABRANCH://{}@stream.example:7443/ ", key.to_uppercase());
        assert_eq!(read(&upper).unwrap().to_string(), format!("anabranch://{key}@stream.example:7443"));
        assert!(Link::new(PeerKey::default(), &[]).is_err());
        assert!(LinkError::Key("x".into()).to_string().contains("64 hexadecimal digits"));
    }

    #[test]
    fn a_name_that_nobody_knows_is_said_to_be_unknown_and_not_to_be_wrong() {
        // RFC 2606, 2: no such name will ever be.
        let link: Link = format!("anabranch://{}@nobody.invalid:1", "ab".repeat(32)).parse().unwrap();
        assert_eq!(link.look_up(), Err(LinkError::Unknown("nobody.invalid:1".to_owned())));
    }
}

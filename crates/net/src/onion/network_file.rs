//! The file that says which network one is of, the same for authorities, relays and users: whom to believe, and
//! what all must have alike.
//!
//! ```toml
//! threshold = 2             # this many authorities must sign
//! epoch_s = 3600            # relays have new keys, and the list of relays is made anew
//! round_s = 60              # more than the authorities' clocks differ and a message takes
//! packets_per_key = 64      # what a relay can link at most; 1 is slowest and links nothing
//!
//! [[authority]]
//! key = "9d…"               # what `anabranch onion authority` prints there
//! address = "192.0.2.1:7555"
//! ```

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anabranch_control::time::Duration;
use anabranch_onion::directory::trust::MOST_AUTHORITIES;
use anabranch_onion::directory::{AuthorityConfig, PublicKey};
use anabranch_onion::packet::PacketsPerKey;
use anabranch_proto::key_text;
use serde::Deserialize;
use toml::Spanned;

use crate::file_error::{self, FileError, Problem};

/// The longest epoch, in seconds: relays hold what they have seen of set-ups for as long.
const LONGEST_EPOCH_S: u64 = 7 * 86_400;

/// For how many epochs a list of relays is good: authorities may be away for two.
const VALID_EPOCHS: u64 = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    threshold: Option<Spanned<usize>>,
    epoch_s: Option<Spanned<u64>>,
    round_s: Option<Spanned<f64>>,
    packets_per_key: Option<Spanned<u16>>,
    #[serde(default)]
    authority: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: Spanned<String>,
    address: Spanned<String>,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkFile {
    /// Who makes the list of relays, and how.
    pub authorities: AuthorityConfig,
}

/// Reads a network's file.
///
/// # Errors
///
/// What is wrong, and where.
pub fn read(bytes: &[u8]) -> Result<NetworkFile, FileError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        FileError::at(&before, before.len(), "no text in UTF-8 from here on; expected a file in TOML".to_owned())
    })?;
    parse(text)
}

/// Reads the text of a network's file.
///
/// # Errors
///
/// What is wrong, and where.
pub fn parse(text: &str) -> Result<NetworkFile, FileError> {
    file_error::parse(text, network)
}

fn network(file: File) -> Result<NetworkFile, Problem> {
    let mut authorities = Vec::with_capacity(file.authority.len());
    let mut keys = BTreeSet::new();
    if file.authority.is_empty() || file.authority.len() > MOST_AUTHORITIES {
        let count = file.authority.len();
        let expected = format!("expected 1 to {MOST_AUTHORITIES} [[authority]] entries with a key and an address");
        return Err((0, format!("{count} authorities; {expected}")));
    }
    for Entry { key, address } in &file.authority {
        let wrong_key = |found: String| (key.span().start, format!("key `key`: {found}"));
        let bytes = key_text::parse(key.get_ref()).map_err(|_| {
            let expected = "expected the 64 hexadecimal digits that `anabranch onion authority` prints";
            wrong_key(format!("{:?}; {expected}", key.get_ref()))
        })?;
        if bytes == [0; 32] {
            return Err(wrong_key(
                "all zeros, which is nobody's; expected what `anabranch onion authority` prints".into(),
            ));
        }
        if !keys.insert(bytes) {
            return Err(wrong_key("two authorities have this one".to_owned()));
        }
        let wrong_address = |found: &str| {
            let expected = "expected the IP address and port at which all others reach it, such as 192.0.2.1:7555";
            (address.span().start, format!("key `address`: {:?}{found}; {expected}", address.get_ref()))
        };
        let read: SocketAddr = address.get_ref().parse().map_err(|_| wrong_address(""))?;
        if read.port() == 0 {
            return Err(wrong_address(" has no port"));
        }
        if read.ip().is_unspecified() || read.ip().is_multicast() {
            return Err(wrong_address(" is no host's address"));
        }
        if authorities.iter().any(|(_, other)| *other == read) {
            return Err(wrong_address(": two authorities have this one"));
        }
        authorities.push((PublicKey(bytes), read));
    }
    let count = authorities.len();
    // More than half: two lists of one epoch then need an authority that signs both.
    let least = count / 2 + 1;
    let threshold = match file.threshold {
        None => least,
        Some(asked) if (least..=count).contains(asked.get_ref()) => asked.into_inner(),
        Some(asked) => {
            let message = format!("key `threshold`: {}; expected {least} to {count} of {count}", asked.get_ref());
            return Err((asked.span().start, message));
        }
    };
    let round = match file.round_s {
        None => Duration::SECOND * 60,
        Some(asked) if *asked.get_ref() >= 0.1 && *asked.get_ref() <= 600.0 => {
            Duration::from_secs_f64(asked.into_inner())
        }
        Some(asked) => {
            return Err((asked.span().start, format!("key `round_s`: {}; expected 0.1 to 600", asked.get_ref())));
        }
    };
    // Two rounds more than votes are passed on for, and as long again to do something else.
    let rounds = (count - threshold) as u64 + 3;
    let least = (2 * rounds * round.as_nanos()).div_ceil(Duration::SECOND.as_nanos());
    let epoch_s = match file.epoch_s {
        None => 3600.max(least),
        Some(asked) if (least..=LONGEST_EPOCH_S).contains(asked.get_ref()) => asked.into_inner(),
        Some(asked) => {
            let message = format!("key `epoch_s`: {}; expected {least} to {LONGEST_EPOCH_S}", asked.get_ref());
            return Err((asked.span().start, format!("{message}, twice what {rounds} rounds take at least")));
        }
    };
    let packets_per_key = match file.packets_per_key {
        None => PacketsPerKey::STANDARD,
        Some(asked) => PacketsPerKey::new(*asked.get_ref()).ok_or_else(|| {
            (asked.span().start, "key `packets_per_key`: 0; expected 1 (a new key for each packet) or more".to_owned())
        })?,
    };
    let valid_epochs = VALID_EPOCHS;
    Ok(NetworkFile {
        authorities: AuthorityConfig { authorities, threshold, epoch_s, round, valid_epochs, packets_per_key },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(number: u8) -> String {
        format!(
            "[[authority]]\nkey = \"{}\"\naddress = \"192.0.2.{number}:7555\"\n",
            format!("{number:02x}").repeat(32)
        )
    }

    fn of(head: &str, count: u8) -> String {
        format!("{head}\n{}", (1..=count).map(authority).collect::<String>())
    }

    #[test]
    fn what_is_not_said_is_what_most_want() {
        let network = parse(&of("", 3)).expect("a network");
        assert_eq!(network.authorities.authorities[2].1, "192.0.2.3:7555".parse().expect("an address"));
        assert_eq!(network.authorities.authorities[2].0, PublicKey([3; 32]));
        assert_eq!((network.authorities.threshold, network.authorities.epoch_s), (2, 3600));
        assert_eq!(network.authorities.packets_per_key, PacketsPerKey::STANDARD);
    }

    #[test]
    fn the_file_that_the_book_shows_is_one() {
        let page = include_str!("../../../../docs/onion.md");
        let (_, rest) = page.split_once("```toml\n").expect("the page shows a file");
        let (text, _) = rest.split_once("```").expect("it ends");
        let network = parse(text).expect("it is right");
        let AuthorityConfig { authorities, packets_per_key, .. } = network.authorities;
        assert_eq!((authorities.len(), packets_per_key), (3, PacketsPerKey::STANDARD));
    }

    #[test]
    fn what_is_wrong_is_reported_with_line_key_and_what_would_be_right() {
        let said = |text: &str| parse(text).expect_err("something is wrong").to_string();
        assert_eq!(
            said("threshold = 1\n"),
            "1:1: 0 authorities; expected 1 to 16 [[authority]] entries with a key and an address"
        );
        assert_eq!(said(&of("threshold = 1", 3)), "1:13: key `threshold`: 1; expected 2 to 3 of 3");
        assert_eq!(
            said(&of("\nepoch_s = 100", 3)),
            "2:11: key `epoch_s`: 100; expected 480 to 604800, twice what 4 rounds take at least"
        );
        assert_eq!(said(&of("round_s = 0.0", 3)), "1:11: key `round_s`: 0; expected 0.1 to 600");
        assert!(said(&of("packets_per_key = 0", 1)).contains("expected 1 (a new key for each packet) or more"));
        assert!(said(&of("epochs = 1", 1)).contains("1:1: unknown field `epochs`"));
        let twice = format!("{}{}", authority(1), authority(1));
        assert_eq!(said(&twice), "5:7: key `key`: two authorities have this one");
        let elsewhere = authority(1).replace("192.0.2.1:7555", "here");
        let expected = "expected the IP address and port at which all others reach it, such as 192.0.2.1:7555";
        assert_eq!(said(&elsewhere), format!("3:11: key `address`: \"here\"; {expected}"));
        let at = |address: &str| said(&authority(1).replace("192.0.2.1:7555", address));
        assert_eq!(at("192.0.2.1:0"), format!("3:11: key `address`: \"192.0.2.1:0\" has no port; {expected}"));
        assert!(at("0.0.0.0:7555").contains("\"0.0.0.0:7555\" is no host's address; expected"));
        assert!(at("[ff02::1]:7555").contains("is no host's address; expected"));
        let one_place = format!("{}{}", authority(1), authority(2).replace("192.0.2.2", "192.0.2.1"));
        assert!(
            said(&one_place).starts_with("6:11: key `address`: \"192.0.2.1:7555\": two authorities have this one;")
        );
        assert!(said(&authority(0)).starts_with("2:7: key `key`: all zeros, which is nobody's; expected"));
        let short = authority(1).replace("01", "1");
        assert!(said(&short).ends_with("; expected the 64 hexadecimal digits that `anabranch onion authority` prints"));
        let words = "1:13: threshold: invalid type: string \"two\", expected a whole number";
        assert_eq!(said(&of("threshold = \"two\"", 3)), words);
        let bytes = [&of("", 1).into_bytes()[..], b"# caf\xe9\n"].concat();
        let said = read(&bytes).expect_err("it is no text").to_string();
        assert_eq!(said, "5:6: no text in UTF-8 from here on; expected a file in TOML");
    }
}

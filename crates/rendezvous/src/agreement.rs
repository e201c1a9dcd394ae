//! What the two sides tell each other over the sealed channel, as JSON: what is to come, whether it is
//! wanted, where to, and the keys by which the transfer knows both.

use std::net::SocketAddr;

use anabranch_proto::printable::printable;
use anabranch_proto::seal::PublicKey;
use serde::{Deserialize, Serialize};

use crate::limits::MESSAGE_BYTES;

/// The version of these messages.
const VERSION: u32 = 1;

/// Names that are shown, at most; the others are counted.
pub const MOST_NAMES: usize = 20;

/// The longest name that is shown, in bytes.
pub const LONGEST_NAME: usize = 200;

/// Relays that are named, at most.
pub const MOST_RELAYS: usize = 64;

/// Bytes that sealing adds, and the digits of `more_names`.
const AROUND: usize = 128;

/// What is wrong in what the other side says.
#[derive(Debug, thiserror::Error)]
#[error("the other side says what this version does not understand: {0}; do both have the same version?")]
pub struct Malformed(String);

impl Malformed {
    /// What serde says, which may hold text of the other side's.
    fn json(error: serde_json::Error) -> Malformed {
        Malformed(printable(&error.to_string()))
    }
}

/// How the files travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Packing {
    /// One file, as it is.
    Plain,
    /// A tar archive, which the receiver unpacks.
    Tar,
}

/// What a sender offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    version: u32,
    /// The sender's key: the receiver takes the files from its holder alone.
    #[serde(with = "key")]
    pub key: PublicKey,
    /// How the files travel.
    pub packing: Packing,
    /// Files, folders apart.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that travel: as many, or those of the archive.
    pub travelling: u64,
    /// The names of the files and folders that were named, or the first of them.
    pub names: Vec<String>,
    /// How many more there are.
    pub more_names: u64,
    /// The relays that will pass it on, or the first of them.
    pub relays: Vec<SocketAddr>,
}

impl Offer {
    /// Of files that are called `names`, over `relays`.
    pub fn new(
        key: PublicKey,
        packing: Packing,
        [files, bytes, travelling]: [u64; 3],
        names: &[String],
        relays: &[SocketAddr],
    ) -> Offer {
        let shown: Vec<String> = names.iter().take(MOST_NAMES).map(|name| cut(name)).collect();
        let relays = relays.iter().take(MOST_RELAYS).copied().collect();
        let mut offer =
            Offer { version: VERSION, key, packing, files, bytes, travelling, names: shown, more_names: 0, relays };
        // What needs more room than text usually does is shown in part.
        while offer.encode().len() + AROUND > MESSAGE_BYTES && offer.names.pop().is_some() {}
        offer.more_names = (names.len() - offer.names.len()) as u64;
        offer
    }

    /// As it is sealed.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text, numbers and lists have a form in JSON")
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// When it is none, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Offer, Malformed> {
        let offer: Offer = serde_json::from_slice(bytes).map_err(Malformed::json)?;
        if offer.version != VERSION {
            return Err(Malformed(format!("version {}", offer.version)));
        }
        if offer.names.len() > MOST_NAMES || offer.relays.len() > MOST_RELAYS {
            return Err(Malformed("lists that are too long".into()));
        }
        Ok(offer)
    }
}

/// At most [`LONGEST_NAME`] bytes, and whole characters.
fn cut(name: &str) -> String {
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

/// What a receiver says to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It wants the files.
    Yes {
        /// The receiver's key: the sender gives the files to its holder alone.
        #[serde(with = "key")]
        key: PublicKey,
        /// Where it receives.
        address: SocketAddr,
    },
    /// It does not.
    No {
        /// Why, for people.
        reason: String,
    },
}

impl Answer {
    /// As it is sealed.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text has a form in JSON")
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn decode(bytes: &[u8]) -> Result<Answer, Malformed> {
        serde_json::from_slice(bytes).map_err(Malformed::json)
    }
}

/// A key in 64 hexadecimal digits.
mod key {
    use anabranch_proto::seal::PublicKey;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(key: &PublicKey, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(key)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PublicKey, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_proto::printable::is_printable;

    use super::*;

    fn offer(names: &[String], relays: &[SocketAddr]) -> Offer {
        Offer::new(PublicKey([7; 32]), Packing::Tar, [3, 10, 4096], names, relays)
    }

    #[test]
    fn the_longest_offer_fits_a_message() {
        let relays = vec![SocketAddr::from(([0xffff; 8], 65535)); 500];
        let offer = offer(&vec!["ä".repeat(LONGEST_NAME); 500], &relays);
        assert_eq!((offer.names.len(), offer.more_names), (MOST_NAMES, 480));
        assert!(offer.encode().len() + AROUND <= MESSAGE_BYTES, "{}", offer.encode().len());
        assert_eq!(Offer::decode(&offer.encode()).unwrap(), offer);
        // In JSON, a control character is six.
        let offer = self::offer(&vec!["\u{1}".repeat(LONGEST_NAME); 500], &relays);
        assert!(offer.encode().len() + AROUND <= MESSAGE_BYTES && !offer.names.is_empty());
        assert_eq!(offer.names.len() as u64 + offer.more_names, 500);
    }

    #[test]
    fn what_is_said_is_read_as_it_was_meant_or_refused() {
        let one = offer(&["a".into()], &["192.0.2.1:4000".parse().unwrap()]);
        assert_eq!(Offer::decode(&one.encode()).unwrap(), one);
        let text = String::from_utf8(one.encode()).unwrap();
        for wrong in [
            text.replace("\"version\":1", "\"version\":2"),
            text.replace("0707", "07"),
            text.replace("192.0.2.1:4000", "nowhere"),
            text[..text.len() - 1].to_owned(),
            "[".repeat(10_000),
        ] {
            assert!(Offer::decode(wrong.as_bytes()).is_err(), "{wrong}");
        }
        for answer in [
            Answer::Yes { key: PublicKey([1; 32]), address: "[2001:db8::1]:7".parse().unwrap() },
            Answer::No { reason: "no room".into() },
        ] {
            assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
        }
        assert!(Answer::decode(b"{}").is_err());
    }

    #[test]
    fn what_is_wrong_is_said_without_what_a_terminal_obeys() {
        let offer = String::from_utf8(offer(&["a".into()], &[]).encode()).unwrap();
        let unknown = offer.replace("\"tar\"", "\"\\u001b]0;x\\u0007\"");
        assert_ne!(offer, unknown);
        let of_offer = Offer::decode(unknown.as_bytes()).unwrap_err().to_string();
        let of_answer = Answer::decode(b"{\"\\u001b[2J\":{}}").unwrap_err().to_string();
        for text in [of_offer, of_answer] {
            assert!(text.contains("unknown variant") && text.chars().all(is_printable), "{text:?}");
        }
    }
}
